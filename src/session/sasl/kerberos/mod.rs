//! Kerberos: which principal the client is, where its tickets come from, and the mechanism GSSAPI.
//!
//! | open | for |
//! |---|---|
//! | `config` | what a caller sets |
//! | `login` | the thread that gets tickets, renews them, and begins authentications |
//! | `kinit` | the program that gets and renews tickets |
//! | `gssapi` | the client's side of the mechanism |
//! | `advice` | what is wrong, in words for a person |

mod advice;
pub(crate) mod config;
mod gssapi;
mod kinit;
pub(super) mod login;
