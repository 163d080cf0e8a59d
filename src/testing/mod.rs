//! Real ZooKeeper servers for your own tests: started, stopped, killed and paused at will, and gone afterwards.
//!
//! Everything here acts on a client from outside, over the network or through signals, so it tests any client. It needs
//! a Java runtime and ZooKeeper's jars: those in `ZOOKEEPER_HOME`, else those of Debian's packages
//! (`apt-get install libzookeeper-java default-jre-headless`). All traffic stays on 127.0.0.1.
//!
//! ```
//! use curator_locks::testing::TestingServer;
//!
//! let server = TestingServer::start()?;
//! assert!(server.four_letter_word("srvr")?.contains("Mode: standalone"));
//! server.kill()?;
//! server.restart()?; // the same port, the same data
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod cluster;
mod error;
mod expiry;
mod four_letter_word;
mod install;
mod kdc;
mod port;
mod process;
mod proxy;
mod reconfiguration;
mod server;
mod tls;

#[doc(no_inline)]
pub use crate::session::dialect::Dialect;
pub use builder::TestingServerBuilder;
pub use cluster::{TestingCluster, TestingClusterBuilder};
pub use error::TestingError;
pub use expiry::expire_session;
pub use kdc::TestingKdc;
pub use proxy::{Direction, Fault, FaultProxy, InjectedFault, RequestMatch, RequestRecord, op};
pub use server::TestingServer;
pub use tls::TlsServerConfig;
#[cfg(feature = "tls")]
pub use tls::certificates::{TestingAuthority, TestingCertificate};
