//! The operation codes of requests.
//!
//! ```
//! use curator_locks::testing::{Fault, FaultProxy, RequestMatch, op};
//!
//! # let server = curator_locks::testing::TestingServer::start()?;
//! let proxy = FaultProxy::start(server.connect_string())?;
//! let lists = RequestMatch::ops([op::GET_CHILDREN, op::GET_CHILDREN_2]);
//! let fault = proxy.inject(lists, Fault::DropReply);
//! assert_eq!(proxy.requests(op::CREATE) + fault.hits(), 0); // nobody is connected so far
//! # Ok::<(), curator_locks::testing::TestingError>(())
//! ```

/// create
pub const CREATE: i32 = 1;
/// delete
pub const DELETE: i32 = 2;
/// exists
pub const EXISTS: i32 = 3;
/// getData
pub const GET_DATA: i32 = 4;
/// setData
pub const SET_DATA: i32 = 5;
/// getACL
pub const GET_ACL: i32 = 6;
/// setACL
pub const SET_ACL: i32 = 7;
/// getChildren
pub const GET_CHILDREN: i32 = 8;
/// sync
pub const SYNC: i32 = 9;
/// ping
pub const PING: i32 = 11;
/// getChildren2: with the parent's stat
pub const GET_CHILDREN_2: i32 = 12;
/// check
pub const CHECK: i32 = 13;
/// multi
pub const MULTI: i32 = 14;
/// create2: with the new znode's stat
pub const CREATE_2: i32 = 15;
/// removeWatches
pub const REMOVE_WATCHES: i32 = 18;
/// createContainer
pub const CREATE_CONTAINER: i32 = 19;
/// createTTL
pub const CREATE_TTL: i32 = 21;
/// multiRead
pub const MULTI_READ: i32 = 22;
/// auth
pub const AUTH: i32 = 100;
/// setWatches
pub const SET_WATCHES: i32 = 101;
/// sasl
pub const SASL: i32 = 102;
/// getEphemerals
pub const GET_EPHEMERALS: i32 = 103;
/// setWatches2: with persistent watches
pub const SET_WATCHES_2: i32 = 105;
/// addWatch
pub const ADD_WATCH: i32 = 106;
/// whoAmI
pub const WHO_AM_I: i32 = 107;
/// closeSession
pub const CLOSE_SESSION: i32 = -11;
