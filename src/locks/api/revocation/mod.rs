//! How somebody asks a holder for its lock, and how the holder is told.

pub(in crate::locks) mod request;
pub(in crate::locks) mod revoker;
