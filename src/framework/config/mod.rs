//! How a client is configured: servers, ACLs, retries.

pub(crate) mod acl;
pub(crate) mod ensemble;
pub(crate) mod retry;

use std::{sync::Arc, time::Duration};

use acl::AclProvider;
use ensemble::EnsembleProvider;
use retry::RetryPolicy;

use super::events::connection_state::ConnectionStateErrorPolicy;
use crate::session::api::{SessionConfig, SessionFactory};

/// Everything a client was configured with, checked.
pub(crate) struct Config {
    pub(crate) ensemble: Arc<dyn EnsembleProvider>,
    /// The configuration that a session is opened with.
    pub(crate) session: SessionConfig,
    /// How long a call waits for a connection before it asks the retry policy.
    pub(crate) connection_timeout: Duration,
    pub(crate) retry_policy: Arc<dyn RetryPolicy>,
    pub(crate) acl_provider: Arc<dyn AclProvider>,
    pub(crate) default_data: Vec<u8>,
    pub(crate) container_parents: bool,
    pub(crate) max_close_wait: Duration,
    pub(crate) expiration_percent: u8,
    pub(crate) error_policy: ConnectionStateErrorPolicy,
    pub(crate) recheck_interval: Option<Duration>,
    pub(crate) max_hold_time: Option<Duration>,
    pub(crate) session_factory: Arc<dyn SessionFactory>,
}
