//! How a client is configured: servers, ACLs, retries.

pub(crate) mod acl;
pub(crate) mod ensemble;
pub(crate) mod retry;

use std::{net::UdpSocket, sync::Arc, time::Duration};

use acl::{AclProvider, DefaultAclProvider};

use super::events::connection_state::ConnectionStateErrorPolicy;

/// The settings of a client that have a default.
pub(crate) struct Config {
    /// The name of the client in its log lines.
    pub(crate) client_name: Option<String>,
    /// The session timeout to ask the server for.
    pub(crate) session_timeout: Duration,
    /// How long a call waits for a connection before it asks the retry policy.
    pub(crate) connection_timeout: Duration,
    pub(crate) acl_provider: Arc<dyn AclProvider>,
    pub(crate) default_data: Vec<u8>,
    pub(crate) container_parents: bool,
    pub(crate) max_close_wait: Duration,
    pub(crate) expiration_percent: u8,
    pub(crate) error_policy: ConnectionStateErrorPolicy,
    pub(crate) recheck_interval: Option<Duration>,
    pub(crate) max_hold_time: Option<Duration>,
    /// Whether the client follows the servers' list of themselves.
    pub(crate) ensemble_tracker: bool,
    pub(crate) refuse_mixed_kinds: bool,
    pub(crate) create_chroot: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            client_name: None,
            session_timeout: Duration::from_secs(60),
            connection_timeout: Duration::from_secs(15),
            acl_provider: Arc::new(DefaultAclProvider),
            default_data: local_address(),
            container_parents: true,
            max_close_wait: Duration::from_millis(900),
            expiration_percent: 100,
            error_policy: ConnectionStateErrorPolicy::default(),
            recheck_interval: Some(Duration::from_secs(30)),
            max_hold_time: None,
            ensemble_tracker: true,
            refuse_mixed_kinds: false,
            create_chroot: false,
        }
    }
}

impl Config {
    /// The begin of a log line about the client itself.
    pub(crate) fn speaker(&self) -> String {
        self.client_name.as_ref().map_or_else(String::new, |name| format!("client {name}: "))
    }
}

/// The address that this machine would use to talk to others, as text; the loopback's if there is none. Connecting a
/// datagram socket sends nothing, and names no host that would have to exist.
fn local_address() -> Vec<u8> {
    let address = UdpSocket::bind(("0.0.0.0", 0)).and_then(|socket| {
        socket.connect(("192.0.2.1", 9))?;
        socket.local_addr()
    });
    match address {
        Ok(address) => address.ip().to_string().into_bytes(),
        Err(_) => b"127.0.0.1".to_vec(),
    }
}
