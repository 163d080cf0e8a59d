//! A mechanism as the session sees it.

use std::time::Instant;

/// Why a connection is not authenticated.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The credentials are wrong, or there are none: trying again does not help.
    Refused(String),
    /// The server speaks otherwise than it should.
    Protocol(String),
    /// It may work later.
    #[cfg_attr(not(feature = "kerberos"), expect(dead_code, reason = "a password needs nobody else"))]
    NotNow(String),
}

/// Begins authentications, one for each connection.
pub(crate) trait Authenticator: Send + Sync {
    /// Begins one with this server. Gives up at the deadline, and soon after `is_over` says so.
    fn begin(&self, host: &str, deadline: Instant, is_over: &dyn Fn() -> bool) -> Result<Begun, Failure>;
}

/// The client's side of a mechanism, and the token to begin with.
pub(crate) type Begun = (Box<dyn Mechanism>, Vec<u8>);

/// The client's side of one authentication.
pub(crate) trait Mechanism: Send {
    /// The answer to the server's token; `None`: the server has accepted the client, and has proved to be the right one.
    fn step(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// The likely reasons of a server that has refused the client: it names none.
    fn why_refused(&self) -> String;
}
