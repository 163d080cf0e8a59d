//! Clean-up jobs: znodes that have to go, whatever happens to the calls that made them.

pub(crate) mod jobs;
pub(crate) mod removal;
