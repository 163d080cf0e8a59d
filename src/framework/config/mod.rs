//! What a client is told from outside: servers, ACLs, retries.

pub(crate) mod acl;
pub(crate) mod ensemble;
pub(crate) mod retry;
