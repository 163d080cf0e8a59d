//! A client's numbers, as a user reads them.

use std::fmt;

use super::{
    counters::{Acquires, Connections, Counters, Losses, Requests},
    times::Times,
};

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
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// How acquires ended.
    pub acquires: Acquires,
    /// How long granted acquires took: from the call to its return, requests included. A thread that finds a kept znode
    /// free ([`Acquires::cached`]) is not timed.
    pub waits: Times,
    /// How long a waiter took from the wake-up that ended its sleep to the grant: the lock was free for about this
    /// long, plus the way of the wake-up. Threads that pass on a kept znode are not in it.
    pub hand_overs: Times,
    /// Locks held now; a lost one until its holder has released it. A znode that is kept counts once, in use or not.
    pub held: u64,
    /// How long locks were held, up to the release or the loss; a znode that was kept counts once, for all its grants.
    pub holds: Times,
    /// Locks that were lost.
    pub losses: Losses,
    /// How often a held lock was found [in doubt](crate::HoldState::InDoubt): after each reconnect until the server has
    /// confirmed its znode, and with a listener also while the servers are silent.
    pub doubts: u64,
    /// How often the connection got into each state.
    pub connections: Connections,
    /// Requests, by kind.
    pub requests: Requests,
    /// Requests whose reply never came, because the connection ended first: whether they were carried out is unknown.
    pub requests_unanswered: u64,
    /// How long heartbeats took to be answered.
    pub heartbeats: Times,
    /// Heartbeats answered after more than 0.3 of the session timeout, which is too late to keep locks from being in doubt,
    /// and connections that ended before the answer to one.
    pub heartbeats_late: u64,
    /// Watches now, on their way to the server or there.
    pub watches: u64,
    /// Watch events that have come.
    pub watch_events: u64,
    /// Clean-up jobs now: znodes that have to go, and are not known to be gone.
    pub clean_up_jobs: u64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Metrics {
        let session = &self.session;
        Metrics {
            acquires: self.acquires.read(),
            waits: self.waits.read(),
            hand_overs: self.hand_overs.read(),
            held: self.held.read(),
            holds: self.holds.read(),
            losses: self.losses.read(),
            doubts: self.doubts.read(),
            connections: self.connections.read(),
            requests: session.requests.read(),
            requests_unanswered: session.unanswered.read(),
            heartbeats: session.heartbeats.read(),
            heartbeats_late: session.late_heartbeats.read(),
            watches: session.watches.read(),
            watch_events: session.watch_events.read(),
            clean_up_jobs: self.clean_up_jobs.read(),
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
