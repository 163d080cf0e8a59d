//! All counters of one client, each in one place, and their names in the facade `metrics`.

use std::{fmt, sync::Arc, time::Duration};

use super::instruments::{Counter, Gauge, Timer};
use crate::{
    error::{Error, LostReason},
    proto::request::Request,
};

/// Counters that differ in one label: the numbers for a user, and the counters themselves.
macro_rules! family {
    (
        $(#[$doc:meta])* $public:ident, $private:ident, $name:literal by $label:literal:
        $($(#[$field_doc:meta])* $field:ident,)*
    ) => {
        $(#[$doc])*
        #[non_exhaustive]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $public {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl fmt::Display for $public {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let all = [$((stringify!($field), self.$field)),*];
                for (place, (name, count)) in all.into_iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{count} {}", name.replace('_', " "))?;
                }
                Ok(())
            }
        }

        #[derive(Debug)]
        pub(crate) struct $private {
            $(pub(crate) $field: Counter,)*
        }

        impl $private {
            fn new() -> $private {
                $private { $($field: Counter::new($name, Some(($label, stringify!($field)))),)* }
            }

            pub(super) fn read(&self) -> $public {
                $public { $($field: self.$field.read(),)* }
            }
        }
    };
}

family! {
    /// How acquires ended. A re-entry counts as none; each member of a multi lock counts.
    ///
    /// ```
    /// # use curator_locks::{CuratorFrameworkFactory, RetryOneTime};
    /// # let retry = RetryOneTime::new(std::time::Duration::from_secs(1));
    /// # let client = CuratorFrameworkFactory::new_client("zk1:2181", retry)?;
    /// let before = client.metrics().acquires;
    /// // ... a minute later ...
    /// let now = client.metrics().acquires;
    /// if now.failed > before.failed {
    ///     eprintln!("acquires fail: {now}");
    /// }
    /// assert_eq!(now.granted - before.granted, 0);
    /// # Ok::<(), curator_locks::Error>(())
    /// ```
    Acquires, AcquireCounters, "curator_locks_acquires_total" by "outcome":
    /// Granted at the servers, to a thread that waited for it.
    granted,
    /// Granted without a request: the lock object [had kept its znode](crate::Caching).
    cached,
    /// Granted to a listener instead of a waiting thread: leaders, and
    /// [`WriteLock`](crate::zookeeper_recipe::WriteLock).
    told,
    /// The time was up, or a mere try found the lock taken.
    timed_out,
    /// Ended by a [`CancelToken`](crate::CancelToken), or with the loss of another member of a multi lock.
    cancelled,
    /// Ended with another error.
    failed,
}

family! {
    /// Locks that were lost, by [reason](LostReason).
    ///
    /// ```
    /// # use curator_locks::{CuratorFrameworkFactory, RetryOneTime};
    /// # let retry = RetryOneTime::new(std::time::Duration::from_secs(1));
    /// # let client = CuratorFrameworkFactory::new_client("zk1:2181", retry)?;
    /// let losses = client.metrics().losses;
    /// let by_a_long_silence = losses.session_expired + losses.suspended_too_long;
    /// if by_a_long_silence > 0 {
    ///     eprintln!("the session timeout may be too short: {losses}");
    /// }
    /// # assert_eq!(by_a_long_silence, 0);
    /// # Ok::<(), curator_locks::Error>(())
    /// ```
    Losses, LossCounters, "curator_locks_losses_total" by "reason":
    /// [`LostReason::SessionExpired`].
    session_expired,
    /// [`LostReason::SuspendedTooLong`].
    suspended_too_long,
    /// [`LostReason::NodeDeleted`]; also those whose release found the znode gone.
    node_deleted,
    /// [`LostReason::ClientClosed`].
    client_closed,
    /// [`LostReason::Revoked`].
    revoked,
    /// [`LostReason::HeldTooLong`].
    held_too_long,
}

family! {
    /// How often the connection got into each [state](crate::ConnectionState).
    ///
    /// ```
    /// # use curator_locks::{CuratorFrameworkFactory, RetryOneTime};
    /// # let retry = RetryOneTime::new(std::time::Duration::from_secs(1));
    /// # let client = CuratorFrameworkFactory::new_client("zk1:2181", retry)?;
    /// let connections = client.metrics().connections;
    /// assert_eq!(connections.connected, 0); // the client is not started yet
    /// println!("{connections}"); // 0 connected, 0 suspended, ...
    /// # Ok::<(), curator_locks::Error>(())
    /// ```
    Connections, ConnectionCounters, "curator_locks_connection_states_total" by "state":
    /// [`ConnectionState::Connected`](crate::ConnectionState::Connected).
    connected,
    /// [`ConnectionState::Suspended`](crate::ConnectionState::Suspended).
    suspended,
    /// [`ConnectionState::Reconnected`](crate::ConnectionState::Reconnected).
    reconnected,
    /// [`ConnectionState::Lost`](crate::ConnectionState::Lost).
    lost,
}

family! {
    /// Requests of the session, by kind.
    ///
    /// ```
    /// # use curator_locks::{CuratorFrameworkFactory, RetryOneTime};
    /// # let retry = RetryOneTime::new(std::time::Duration::from_secs(1));
    /// # let client = CuratorFrameworkFactory::new_client("zk1:2181", retry)?;
    /// let before = client.metrics().requests;
    /// // ... the work whose cost you want to know ...
    /// let now = client.metrics().requests;
    /// assert_eq!((now.create - before.create, now.read - before.read), (0, 0));
    /// # Ok::<(), curator_locks::Error>(())
    /// ```
    Requests, RequestCounters, "curator_locks_requests_total" by "kind":
    /// Creates.
    create,
    /// Deletes.
    delete,
    /// Writes to a znode that is there: its data, its ACL.
    write,
    /// Reads: data, children, ACLs, whether a znode is there.
    read,
    /// Syncs, heartbeats among them.
    sync,
    /// Transactions.
    multi,
    /// Requests of the session itself: credentials, watches to set again or to remove, its end.
    session,
}

/// The numbers that a session counts for its client.
///
/// Sessions of your own hand each request to [`requested`](Self::requested), and have nothing else to do with it.
///
/// ```
/// use curator_locks::unversioned::{Request, SessionConfig, Submission};
///
/// fn write(config: &SessionConfig, batch: &[Submission]) {
///     for submission in batch {
///         config.counters.requested(&submission.request); // Metrics::requests shows it
///         // ... and put it on the wire
///     }
/// }
/// # let counters = curator_locks::unversioned::SessionCounters::default();
/// # counters.requested(&Request::Ping);
/// ```
#[derive(Debug)]
pub struct SessionCounters {
    pub(super) requests: RequestCounters,
    /// Requests whose reply never came.
    pub(crate) unanswered: Counter,
    pub(super) heartbeats: Timer,
    pub(super) late_heartbeats: Counter,
    pub(crate) watches: Gauge,
    pub(crate) watch_events: Counter,
}

impl Default for SessionCounters {
    fn default() -> SessionCounters {
        SessionCounters {
            requests: RequestCounters::new(),
            unanswered: Counter::new("curator_locks_requests_unanswered_total", None),
            heartbeats: Timer::new("curator_locks_heartbeat_seconds"),
            late_heartbeats: Counter::new("curator_locks_heartbeats_late_total", None),
            watches: Gauge::new("curator_locks_watches"),
            watch_events: Counter::new("curator_locks_watch_events_total", None),
        }
    }
}

impl SessionCounters {
    /// A request is about to be sent.
    pub fn requested(&self, request: &Request) {
        let requests = &self.requests;
        let kind = match request {
            Request::Create { .. } => &requests.create,
            Request::Delete { .. } => &requests.delete,
            Request::SetData { .. } | Request::SetAcl { .. } => &requests.write,
            Request::Exists { .. }
            | Request::GetData { .. }
            | Request::GetAcl { .. }
            | Request::GetChildren { .. }
            | Request::Check { .. }
            | Request::GetEphemerals { .. } => &requests.read,
            Request::Sync { .. } => &requests.sync,
            Request::Multi(_) => &requests.multi,
            Request::Ping
            | Request::RemoveWatches { .. }
            | Request::Auth { .. }
            | Request::SetWatches { .. }
            | Request::WhoAmI
            | Request::CloseSession => &requests.session,
        };
        kind.count();
    }

    /// A heartbeat was answered; `is_late`: too late to keep the session certain.
    pub(crate) fn heartbeat_answered(&self, took: Duration, is_late: bool) {
        self.heartbeats.record(took);
        if is_late {
            self.late_heartbeats.count();
        }
    }

    /// A connection ended before the answer to a heartbeat.
    pub(crate) fn heartbeat_unanswered(&self) {
        self.late_heartbeats.count();
    }
}

/// All counters of one client.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) acquires: AcquireCounters,
    pub(crate) waits: Timer,
    pub(crate) hand_overs: Timer,
    pub(crate) held: Gauge,
    pub(crate) holds: Timer,
    pub(super) losses: LossCounters,
    pub(crate) doubts: Counter,
    pub(crate) connections: ConnectionCounters,
    pub(crate) session: Arc<SessionCounters>,
    pub(super) clean_up_jobs: Gauge,
}

impl Counters {
    pub(crate) fn new() -> Arc<Counters> {
        Arc::new(Counters {
            acquires: AcquireCounters::new(),
            waits: Timer::new("curator_locks_wait_seconds"),
            hand_overs: Timer::new("curator_locks_hand_over_seconds"),
            held: Gauge::new("curator_locks_held"),
            holds: Timer::new("curator_locks_hold_seconds"),
            losses: LossCounters::new(),
            doubts: Counter::new("curator_locks_doubts_total", None),
            connections: ConnectionCounters::new(),
            session: Arc::default(),
            clean_up_jobs: Gauge::new("curator_locks_clean_up_jobs"),
        })
    }

    /// An acquire ended with the lock. Returns the outcome's name.
    pub(crate) fn granted(&self, is_cached: bool) -> &'static str {
        let (counter, outcome) =
            if is_cached { (&self.acquires.cached, "cached") } else { (&self.acquires.granted, "granted") };
        counter.count();
        outcome
    }

    /// An acquire ended without the lock. Returns the outcome's name.
    pub(crate) fn not_granted(&self, error: Option<&Error>) -> &'static str {
        let (counter, outcome) = match error {
            None | Some(Error::StillTaken { .. }) => (&self.acquires.timed_out, "timed_out"),
            Some(Error::Cancelled { .. }) => (&self.acquires.cancelled, "cancelled"),
            Some(_) => (&self.acquires.failed, "failed"),
        };
        counter.count();
        outcome
    }

    /// Counts a clean-up job as long as the result lives.
    pub(crate) fn clean_up_job(self: &Arc<Self>) -> CountedJob {
        self.clean_up_jobs.add(1);
        CountedJob(self.clone())
    }

    pub(crate) fn lost(&self, reason: LostReason) {
        let losses = &self.losses;
        match reason {
            LostReason::SessionExpired => losses.session_expired.count(),
            LostReason::SuspendedTooLong => losses.suspended_too_long.count(),
            LostReason::NodeDeleted => losses.node_deleted.count(),
            LostReason::ClientClosed => losses.client_closed.count(),
            LostReason::Revoked => losses.revoked.count(),
            LostReason::HeldTooLong => losses.held_too_long.count(),
        }
    }
}

/// One clean-up job.
#[derive(Debug)]
pub(crate) struct CountedJob(Arc<Counters>);

impl Drop for CountedJob {
    fn drop(&mut self) {
        self.0.clean_up_jobs.add(-1);
    }
}
