//! Operation codes.

pub(super) const CREATE: i32 = 1;
pub(super) const DELETE: i32 = 2;
pub(super) const EXISTS: i32 = 3;
pub(super) const GET_DATA: i32 = 4;
pub(super) const SET_DATA: i32 = 5;
pub(super) const GET_ACL: i32 = 6;
pub(super) const SET_ACL: i32 = 7;
pub(super) const GET_CHILDREN: i32 = 8;
pub(super) const SYNC: i32 = 9;
pub(super) const PING: i32 = 11;
pub(super) const GET_CHILDREN2: i32 = 12;
pub(super) const CHECK: i32 = 13;
pub(super) const MULTI: i32 = 14;
pub(super) const CREATE2: i32 = 15;
pub(super) const REMOVE_WATCHES: i32 = 18;
pub(super) const CREATE_CONTAINER: i32 = 19;
pub(super) const CREATE_TTL: i32 = 21;
pub(super) const AUTH: i32 = 100;
pub(super) const SET_WATCHES: i32 = 101;
pub(super) const GET_EPHEMERALS: i32 = 103;
pub(super) const WHO_AM_I: i32 = 107;
pub(super) const CLOSE_SESSION: i32 = -11;
/// In a multi: the end of the list in both directions, and in the reply also a failed operation.
pub(super) const NONE: i32 = -1;
