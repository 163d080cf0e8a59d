//! Error codes as they stand on the wire.

pub(super) const OK: i32 = 0;
pub(super) const RUNTIME_INCONSISTENCY: i32 = -2;
pub(super) const MARSHALLING: i32 = -5;
pub(super) const UNIMPLEMENTED: i32 = -6;
pub(super) const BAD_ARGUMENTS: i32 = -8;
pub(super) const NO_NODE: i32 = -101;
pub(super) const NO_AUTH: i32 = -102;
pub(super) const BAD_VERSION: i32 = -103;
pub(super) const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
pub(super) const NODE_EXISTS: i32 = -110;
pub(super) const NOT_EMPTY: i32 = -111;
pub(super) const SESSION_EXPIRED: i32 = -112;
pub(super) const INVALID_ACL: i32 = -114;
pub(super) const AUTH_FAILED: i32 = -115;
pub(super) const SESSION_MOVED: i32 = -118;
pub(super) const NO_WATCHER: i32 = -121;
pub(super) const THROTTLED: i32 = -127;
