//! The source of the connect string.

use std::sync::Arc;

use crate::{base::sync::Mutex, error::Result};

/// Says which servers to connect to. Java: `EnsembleProvider`.
///
/// A client asks when it is built, and about once a second while it has no connection, so a changed answer moves it to
/// other servers. On which thread:
///
/// | | thread |
/// |---|---|
/// | [`connection_string`](EnsembleProvider::connection_string) | the one that calls `build()`; from the start on the client's own thread |
/// | [`start`](EnsembleProvider::start) | the one that calls `start()` of the client |
/// | [`close`](EnsembleProvider::close) | the one that closes the client, or drops its last handle: a listener's, too |
///
/// ```
/// use curator_locks::{CuratorFramework, EnsembleProvider, Result, RetryOneTime};
///
/// /// Asks the environment whenever the client connects.
/// struct OfEnvironment;
/// impl EnsembleProvider for OfEnvironment {
///     fn connection_string(&self) -> String {
///         std::env::var("SHOP_ZOOKEEPER").unwrap_or_else(|_| "localhost:2181".into())
///     }
///     fn start(&self) -> Result<()> {
///         Ok(()) // may begin to watch something
///     }
///     fn close(&self) {}
/// }
///
/// let retry = RetryOneTime::new(std::time::Duration::from_secs(1));
/// let client = CuratorFramework::builder().ensemble_provider(OfEnvironment).retry_policy(retry).build()?;
/// # Ok::<(), curator_locks::Error>(())
/// ```
pub trait EnsembleProvider: Send + Sync + 'static {
    /// The current connect string, as in [`ConnectString`](crate::ConnectString). It must not block: while the client's own
    /// thread waits, no holder is told of anything. If it panics, the client logs that and keeps its servers.
    fn connection_string(&self) -> String;

    /// Called once when the client starts. The client has asked for the
    /// [`connection_string`](EnsembleProvider::connection_string) once before, when it was built.
    ///
    /// # Errors
    /// Any error that keeps the provider from working; the client's start then fails with it.
    fn start(&self) -> Result<()> {
        Ok(())
    }

    /// Called once when the client is closed. A panic is logged.
    fn close(&self) {}
}

/// A connect string that changes only by [`set_connection_string`](FixedEnsembleProvider::set_connection_string).
/// Java: `FixedEnsembleProvider`.
///
/// Clones share the value, so a program keeps one and gives one to the client.
///
/// ```
/// use curator_locks::{EnsembleProvider, FixedEnsembleProvider};
///
/// let ours = FixedEnsembleProvider::new("zk1:2181");
/// let the_clients = ours.clone();
/// ours.set_connection_string("zk2:2181,zk3:2181");
/// assert_eq!(the_clients.connection_string(), "zk2:2181,zk3:2181");
/// ```
#[derive(Debug, Clone)]
pub struct FixedEnsembleProvider {
    connection_string: Arc<Mutex<String>>,
}

impl FixedEnsembleProvider {
    /// Starts with this connect string; it is checked when the client is built.
    #[must_use]
    pub fn new(connection_string: impl Into<String>) -> FixedEnsembleProvider {
        FixedEnsembleProvider { connection_string: Arc::new(Mutex::new(connection_string.into())) }
    }

    /// Replaces the connect string for all clones. A client looks at it while it has no connection.
    pub fn set_connection_string(&self, connection_string: impl Into<String>) {
        let connection_string = connection_string.into();
        *self.connection_string.lock() = connection_string;
    }
}

impl EnsembleProvider for FixedEnsembleProvider {
    fn connection_string(&self) -> String {
        self.connection_string.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_connect_string() {
        let ours = FixedEnsembleProvider::new("a:1");
        let theirs = ours.clone();
        assert_eq!(theirs.connection_string(), "a:1");
        ours.set_connection_string(String::from("b:2"));
        assert_eq!(theirs.connection_string(), "b:2");
    }

    #[test]
    fn start_and_close_do_nothing_to_a_fixed_one() {
        let provider = FixedEnsembleProvider::new("a:1");
        assert!(provider.start().is_ok());
        provider.close();
        assert_eq!(provider.connection_string(), "a:1");
    }
}
