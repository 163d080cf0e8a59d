//! A server's port for TLS.

#[cfg(feature = "tls")]
pub(super) mod certificates;

use std::{path::PathBuf, sync::Arc};

use tempfile::TempDir;

/// The certificates of a server's port for TLS, for
/// [`secure_client_port`](super::TestingServerBuilder::secure_client_port).
///
/// With the feature `tls`, a `TestingAuthority` makes them. Otherwise: files that end in `.pem`, `.jks` or `.p12`,
/// without a password.
///
/// ```
/// use curator_locks::testing::{TestingServer, TlsServerConfig};
///
/// let files = TlsServerConfig::new("/etc/tests/server.pem", "/etc/tests/clients.pem").client_auth(true);
/// let builder = TestingServer::builder().secure_client_port(files); // and `start`, where the files are
/// # drop(builder);
/// ```
#[derive(Debug, Clone)]
pub struct TlsServerConfig {
    key_store: PathBuf,
    trust_store: PathBuf,
    client_auth: bool,
    /// Where the files are, if they are to go with the last server that uses them.
    _directory: Option<Arc<TempDir>>,
}

impl TlsServerConfig {
    /// `key_store` has the server's private key and certificate, `trust_store` those from which clients' certificates
    /// must come.
    #[must_use]
    pub fn new(key_store: impl Into<PathBuf>, trust_store: impl Into<PathBuf>) -> TlsServerConfig {
        TlsServerConfig {
            key_store: key_store.into(),
            trust_store: trust_store.into(),
            client_auth: false,
            _directory: None,
        }
    }

    /// Whether a client must show a certificate. Defaults to no.
    #[must_use]
    pub fn client_auth(mut self, needed: bool) -> TlsServerConfig {
        self.client_auth = needed;
        self
    }

    /// The lines of the server's configuration file.
    pub(super) fn properties(&self, port: u16) -> Vec<(&'static str, String)> {
        vec![
            ("secureClientPort", port.to_string()),
            ("secureClientPortAddress", "127.0.0.1".into()),
            ("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory".into()),
            ("ssl.keyStore.location", self.key_store.display().to_string()),
            ("ssl.trustStore.location", self.trust_store.display().to_string()),
            ("ssl.clientAuth", if self.client_auth { "need" } else { "none" }.into()),
        ]
    }
}
