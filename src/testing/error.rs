//! Errors of the test kit.

use std::{io, time::Duration};

/// Why a server, a cluster or a proxy did not do what the test asked for. It is no [`Error`](crate::Error): a test that has both returns
/// `Box<dyn std::error::Error>`.
///
/// ```
/// use curator_locks::testing::{TestingError, TestingServer};
///
/// let server = TestingServer::start()?;
/// server.stop()?;
/// assert!(matches!(server.pause(), Err(TestingError::NotRunning { .. })));
/// # Ok::<(), TestingError>(())
/// ```
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum TestingError {
    /// A program or library that must be installed is not.
    #[error("{what} not found in {searched}: {remedy}")]
    NotInstalled {
        /// The program or file that is missing.
        what: &'static str,
        /// The places that were searched.
        searched: String,
        /// The remedy.
        remedy: String,
    },
    /// The server ended, or did not serve in time. The message ends with the last lines of its log.
    #[error("ZooKeeper did not start: {reason}; the end of its log:\n{log_tail}")]
    StartFailed {
        /// The state that was seen instead.
        reason: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// The server is not running, so there is nothing to signal or to ask.
    #[error("the server on port {port} is not running")]
    NotRunning {
        /// Its client port.
        port: u16,
    },
    /// Something awaited did not happen in time.
    #[error("{what} did not happen within {after:?}")]
    Timeout {
        /// The state that was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// The server refused, or answered something unexpected.
    #[error("unexpected answer of the server: {0}")]
    Refused(String),
    /// The operating system refused.
    #[error("{what}")]
    Io {
        /// The action that was tried.
        what: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl TestingError {
    /// For `map_err`: names what was tried.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> TestingError {
        let what = what.into();
        move |source| TestingError::Io { what, source }
    }
}
