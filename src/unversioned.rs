//! Parts for a session of your own: [`Session`], [`SessionFactory`], and the requests and replies that go through them.
//!
//! **Nothing here keeps still.** A release that changes only its last number may change, move or remove any of it. Pin
//! this crate to one version (`curator-locks = "=0.1.0"`) if you use it.
//!
//! Give a factory to [`Builder::session_factory`](crate::Builder::session_factory). The one that a client uses by itself is
//! [`NativeSessionFactory`].
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
//! use curator_locks::{CuratorFramework, Result, RetryOneTime};
//! use curator_locks::unversioned::{NativeSessionFactory, Session, SessionConfig, SessionFactory, SessionObserver};
//!
//! /// Counts the sessions that a client opens.
//! #[derive(Clone, Default)]
//! struct Counting(Arc<AtomicU32>);
//!
//! impl SessionFactory for Counting {
//!     fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!         NativeSessionFactory.open(config, observer)
//!     }
//! }
//!
//! let sessions = Counting::default();
//! let client = CuratorFramework::builder()
//!     .connect_string("127.0.0.1:1") // nobody answers there
//!     .retry_policy(RetryOneTime::new(std::time::Duration::from_secs(1)))
//!     .session_factory(sessions.clone())
//!     .build()?;
//! client.start()?;
//! assert_eq!(sessions.0.load(Ordering::Relaxed), 1);
//! # Ok::<(), curator_locks::Error>(())
//! ```

/// The clock of [`Session::valid_until`], [`Session::left_behind`] and [`Session::close`]: it goes on while the system sleeps.
///
/// Where the system has not slept since this process first looked at it, it shows what [`Instant::now`](std::time::Instant::now)
/// does. Its moments must not be compared with those of that clock otherwise. Linux has such a clock; elsewhere a step by
/// which the wall clock gets ahead of the monotonic one counts as a sleep. Does not block.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::unversioned::now;
///
/// let deadline = now() + Duration::from_secs(5);
/// assert!(deadline.saturating_duration_since(now()) <= Duration::from_secs(5));
/// ```
#[must_use]
pub fn now() -> std::time::Instant {
    crate::base::clock::now()
}

pub use crate::{
    base::telemetry::counters::Counters as SessionCounters,
    proto::{
        request::Request,
        response::Response,
        types::{EventType, WatchTable},
    },
    session::{
        api::{
            OnReply, Reply, Session, SessionConfig, SessionError, SessionEvent, SessionFactory, SessionObserver,
            Submission, Ticket, WatchEvent, Watcher,
        },
        native::session::NativeSessionFactory,
    },
};

/// The bytes of the protocol, for this crate's own tests and benchmarks.
#[doc(hidden)]
pub mod wire {
    pub use crate::proto::{
        connect::{ConnectRequest, ConnectResponse},
        error::ProtoError,
        frame::FrameBuffer,
        header::{ReplyHeader, XID_NOTIFICATION, decode_header},
        types::Notification,
    };
}

/// The table of a queue, for this crate's own command.
#[doc(hidden)]
pub mod table {
    pub use crate::{
        base::text::cut,
        locks::queue_view::table::{
            GAP, HEADINGS, QueueTable, TableLine, WIDTH, age, aligned, brief, data, facts, row, widths,
        },
    };
}

/// The contender under every lock, for the model check.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod contender {
    pub use crate::{
        framework::znodes::create::Mark,
        locks::{
            UpgradableLockDriver, UpgradeDriver, ZNodeNameDriver,
            recipe::{machine::Contender, spec::*},
        },
    };
}
