//! Curator's lock recipes on ZooKeeper.
#![forbid(unsafe_code)]

mod cancel;
mod error;
pub mod framework;
pub mod proto;
pub mod session;
pub use cancel::CancelToken;
pub use error::{Error, ErrorCode, LostReason, Result};
pub use framework::*;
pub use proto::{Acl, CreateMode, Stat};

pub mod locks;
pub use locks::*;
