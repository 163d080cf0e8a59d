//! All counters of one client, each in one place, and their names in the facade `metrics`.

use std::{fmt, time::Duration};

use super::instruments::{Counter, Gauge, Timer, Times};
use crate::{
    error::LostReason,
    proto::{op, request::Request},
};

/// Numbers as a user reads them, and the instruments that count them: each in one line.
macro_rules! numbers {
    (
        $(#[$doc:meta])* $public:ident, $(#[$private_doc:meta])* $vis:vis $private:ident:
        $($(#[$field_doc:meta])* $field:ident: $read:ty = $instrument:ident($($arg:expr),*),)*
    ) => {
        $(#[$doc])*
        #[non_exhaustive]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $public {
            $($(#[$field_doc])* pub $field: $read,)*
        }

        $(#[$private_doc])*
        #[derive(Debug)]
        $vis struct $private {
            $(pub(crate) $field: $instrument,)*
        }

        impl $private {
            fn new() -> $private {
                $private { $($field: $instrument::new($($arg),*),)* }
            }

            pub(crate) fn read(&self) -> $public {
                $public { $($field: self.$field.read(),)* }
            }
        }
    };
}

/// Counters that differ in one label.
macro_rules! family {
    (
        $(#[$doc:meta])* $public:ident, $private:ident, $name:literal by $label:literal, $help:literal:
        $($(#[$field_doc:meta])* $field:ident,)*
    ) => {
        numbers! {
            $(#[$doc])*
            #[derive(Copy)]
            $public, pub(crate) $private:
            $($(#[$field_doc])* $field: u64 = Counter($name, Some(($label, stringify!($field))), $help),)*
        }

        impl fmt::Display for $public {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let all = [$(format!("{} {}", self.$field, stringify!($field).replace('_', " "))),*];
                f.write_str(&all.join(", "))
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
    Acquires, AcquireCounters, "curator_locks_acquires_total" by "outcome",
    "Acquires by how they ended; re-entries are not counted.":
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
    Losses, LossCounters, "curator_locks_losses_total" by "reason",
    "Locks that were lost, by reason.":
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
    Connections, ConnectionCounters, "curator_locks_connection_states_total" by "state",
    "How often the connection got into each state.":
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
    Requests, RequestCounters, "curator_locks_requests_total" by "kind",
    "Requests to the servers, by kind.":
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

numbers! {
    /// A client's numbers since it was made, for operators: [Running it](crate::docs::operations#what-to-alert-on) says
    /// what to alert on.
    ///
    /// The numbers are read one after the other while others count, so two of them may differ by the events in between.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// client.create().for_path("/currency")?;
    /// let metrics = client.metrics();
    /// println!("{metrics}");
    /// if metrics.losses.session_expired > 0 {
    ///     eprintln!("the session timeout may be too short");
    /// }
    /// # Ok(()) });
    /// ```
    Metrics,
    /// The counters of one client.
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
    pub Counters:
    /// How acquires ended.
    acquires: Acquires = AcquireCounters(),
    /// How long granted acquires took: from the call to the grant, requests included. The delay after an
    /// [unclean death](crate::Hold::unclean_deaths) comes on top. A thread that finds a kept znode
    /// free ([`Acquires::cached`]) is not timed.
    waits: Times = Timer("curator_locks_wait_seconds", "Time of granted acquires, from the call to the grant."),
    /// How long a waiter took from the wake-up that ended its sleep to the grant: the lock was free for about this
    /// long, plus the way of the wake-up. Threads that pass on a kept znode are not in it.
    hand_overs: Times = Timer(
        "curator_locks_hand_over_seconds",
        "Time of waiters from the wake-up that ended their sleep to the grant."
    ),
    /// Locks held now; a lost one until its holder has released it. A znode that is kept counts once, in use or not.
    held: u64 = Gauge("curator_locks_held", "Locks held now."),
    /// How long locks were held, up to the release or the loss; a znode that was kept counts once, for all its grants.
    holds: Times = Timer(
        "curator_locks_hold_seconds",
        "Time for which locks were held, up to the release or the loss."
    ),
    /// Locks that were lost.
    losses: Losses = LossCounters(),
    /// How often a held lock was found [in doubt](crate::HoldState::InDoubt): after each reconnect until the server has
    /// confirmed its znode, and with a listener also while the servers are silent.
    doubts: u64 = Counter("curator_locks_doubts_total", None, "How often a held lock was found in doubt."),
    /// How often the connection got into each state.
    connections: Connections = ConnectionCounters(),
    /// Requests, by kind.
    requests: Requests = RequestCounters(),
    /// Requests whose reply never came, because the connection ended first: whether they were carried out is unknown.
    requests_unanswered: u64 = Counter(
        "curator_locks_requests_unanswered_total", None,
        "Requests whose connection ended before the reply."
    ),
    /// How long heartbeats took to be answered.
    heartbeats: Times = Timer("curator_locks_heartbeat_seconds", "Time of heartbeats until they were answered."),
    /// Heartbeats answered after more than 0.3 of the session timeout, which is too late to keep locks from being in doubt,
    /// and connections that ended before the answer to one.
    heartbeats_late: u64 = Counter(
        "curator_locks_heartbeats_late_total", None,
        "Heartbeats answered after more than 0.3 of the session timeout, or not at all."
    ),
    /// Watches now, on their way to the server or there.
    watches: u64 = Gauge("curator_locks_watches", "Watches now, on their way to the server or there."),
    /// Watch events that have come.
    watch_events: u64 = Counter("curator_locks_watch_events_total", None, "Watch events that have come."),
    /// Clean-up jobs now: znodes that have to go, and are not known to be gone.
    clean_up_jobs: u64 = Gauge("curator_locks_clean_up_jobs", "Znodes that have to go and are not known to be gone."),
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new()
    }
}

impl Counters {
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
            Request::Multi(_) if request.op_code() == op::MULTI_READ => &requests.read,
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
            self.heartbeats_late.count();
        }
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

/// One line for each number.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "acquires:      {}", self.acquires)?;
        writeln!(f, "waits:         {}", self.waits)?;
        writeln!(f, "hand-overs:    {}", self.hand_overs)?;
        writeln!(f, "held now:      {}", self.held)?;
        writeln!(f, "holds:         {}", self.holds)?;
        writeln!(f, "losses:        {}", self.losses)?;
        writeln!(f, "doubts:        {}", self.doubts)?;
        writeln!(f, "connection:    {}", self.connections)?;
        writeln!(f, "requests:      {}, {} unanswered", self.requests, self.requests_unanswered)?;
        writeln!(f, "heartbeats:    {}, {} late", self.heartbeats, self.heartbeats_late)?;
        writeln!(f, "watches:       {} now, {} events", self.watches, self.watch_events)?;
        write!(f, "clean-up jobs: {}", self.clean_up_jobs)
    }
}
