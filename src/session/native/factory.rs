//! Opens this crate's own sessions, in the clear or encrypted.

use std::sync::Arc;

use super::session::NativeSession;
#[cfg(feature = "tls")]
use crate::session::transport::tls::Tls;
use crate::{
    error::Result,
    session::{
        api::{Session, SessionConfig, SessionFactory, SessionObserver},
        transport::tcp::Tcp,
    },
};

/// Opens sessions of this crate's own making.
///
/// ```
/// use curator_locks::{CuratorFramework, unversioned::NativeSessionFactory};
///
/// // What a client does unless it is told otherwise:
/// let builder = CuratorFramework::builder().connect_string("zk1:2181").session_factory(NativeSessionFactory);
/// # let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_secs(1));
/// # builder.retry_policy(retry).build()?;
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct NativeSessionFactory;

impl SessionFactory for NativeSessionFactory {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        NativeSession::open(config, Arc::new(Tcp), observer)
    }
}

/// Opens sessions whose connections are encrypted.
#[cfg(feature = "tls")]
impl SessionFactory for Tls {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        NativeSession::open(config, Arc::new(self.clone()), observer)
    }
}
