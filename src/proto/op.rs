//! Operation codes.

pub(crate) const CREATE: i32 = 1;
pub(crate) const DELETE: i32 = 2;
pub(crate) const EXISTS: i32 = 3;
pub(crate) const GET_DATA: i32 = 4;
pub(crate) const SET_DATA: i32 = 5;
pub(crate) const GET_ACL: i32 = 6;
pub(crate) const SET_ACL: i32 = 7;
pub(crate) const GET_CHILDREN: i32 = 8;
pub(crate) const SYNC: i32 = 9;
pub(crate) const PING: i32 = 11;
pub(crate) const GET_CHILDREN2: i32 = 12;
pub(crate) const CHECK: i32 = 13;
pub(crate) const MULTI: i32 = 14;
/// Sent nowhere: the servers answer containers and TTL znodes inside of a multi under this code.
pub(crate) const CREATE2: i32 = 15;
pub(crate) const REMOVE_WATCHES: i32 = 18;
pub(crate) const CREATE_CONTAINER: i32 = 19;
pub(crate) const CREATE_TTL: i32 = 21;
pub(crate) const MULTI_READ: i32 = 22;
pub(crate) const AUTH: i32 = 100;
pub(crate) const SET_WATCHES: i32 = 101;
pub(crate) const GET_EPHEMERALS: i32 = 103;
pub(crate) const SET_WATCHES2: i32 = 105;
pub(crate) const ADD_WATCH: i32 = 106;
pub(crate) const WHO_AM_I: i32 = 107;
pub(crate) const CLOSE_SESSION: i32 = -11;
/// In a multi: the end of the list in both directions, and in the reply also a failed operation.
pub(crate) const NONE: i32 = -1;
