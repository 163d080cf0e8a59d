//! Values that processes share.
//!
//! `znode.rs` reads, watches and writes a znode, and tells the listeners. [`SharedValue`] is its face for any bytes,
//! [`SharedCount`] for numbers.

pub(in crate::locks) mod count;
pub(in crate::locks) mod value;
mod versioned;
mod znode;

pub use count::{SharedCount, SharedCountListener, SharedCountReader};
pub use value::{SharedValue, SharedValueListener, SharedValueReader};
pub use versioned::VersionedValue;
