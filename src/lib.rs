//! Curator's lock recipes on ZooKeeper.
#![allow(dead_code)]

mod error;
mod framework;
mod locks;
mod proto;

pub use error::{Error, LostReason, Result};
pub use framework::*;
pub use locks::*;
pub use proto::{Acl, CreateMode, ErrorCode, Stat, perms};
