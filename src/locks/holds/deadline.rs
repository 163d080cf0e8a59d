//! Warnings some time before a hold stops being certain.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use crate::{
    base::channel::Receiver,
    framework::held::{
        changes::DeadlineEvent,
        node::{HeldNode, telling::Subscription},
    },
    locks::holds::hold::Hold,
};

/// Tells a holder to stop some time before its lock may be gone: a `crossbeam_channel::Receiver`, also in `select!`.
///
/// For `select!` add `crossbeam-channel = "0.5"`, the version that this crate uses; `recv`, `recv_timeout` and `iter` need no
/// dependency.
///
/// It tells [`Near`](DeadlineEvent::Near) when [`valid_until`](Hold::valid_until) is no more than the margin away, and in
/// any case when the hold is in doubt or lost; and [`Recovered`](DeadlineEvent::Recovered) when a heartbeat has moved that
/// moment on. Each is told once, in turn. The channel ends when the hold is lost, after `Near`, or released. Made by
/// [`Hold::deadline`] and [`MultiLockGuard::deadline`](crate::MultiLockGuard::deadline).
///
/// Messages come from the client's own thread, which a busy machine may keep from running for a while.
/// [`is_near`](Deadline::is_near) needs no thread but the caller's: ask it right before each step that must not come too
/// late.
///
/// # How to choose the session timeout
/// A session with the timeout T, whose requests take r there and back, is valid for 0.67 T - 2 r right after a heartbeat
/// and for 0.40 T - 3 r right before the next one, as long as r stays below T / 12 and both machines keep up; above
/// that, for 0.65 T - 2 r up to r = 0.3 T. With T = 3 s on a local server
/// the first two are 2 s and 1.2 s. So:
///
/// | the job | ask for | T |
/// |---|---|---|
/// | can stop within m, and runs for as long as it likes | `deadline(m)` | at least 3 m; a smaller one warns for nothing |
/// | takes L and cannot be stopped | [`min_validity(L)`](crate::AcquireOptions::min_validity) | at least 2 L |
/// | both: takes L, and can stop within m | `min_validity(m)` and `deadline(m)` | at least 3 m |
///
/// A holder whose servers are gone keeps at least the time it had, and is told a margin before that ends; nobody else can
/// be granted the lock earlier, unless its znode is deleted. In that case the holder is told at once, and only a [fencing
/// token](Hold::fencing_token) or a [guarded transaction](Hold::guard_transaction) helps.
///
/// It dereferences to a `Receiver`: loop over it with `iter()`, and keep it itself. A clone of the receiver ends with it.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use crossbeam_channel::{select, tick};
/// use curator_locks::DeadlineEvent;
/// # use curator_locks::InterProcessMutex;
///
/// # let mutex = InterProcessMutex::new(client, "/locks/order-42")?;
/// let held = mutex.lock()?;
/// let deadline = held.deadline(Duration::from_secs(2)); // the next step may take two seconds
/// let work = tick(Duration::from_millis(10));
/// for _ in 0..3 {
///     select! {
///         recv(deadline) -> event => match event {
///             Ok(DeadlineEvent::Near) => { /* stop, and go on when it has recovered */ }
///             Ok(_) => { /* go on */ }
///             Err(_) => break, // lost or released
///         },
///         recv(work) -> _ => if !deadline.is_near() { /* the next step */ },
///     }
/// }
/// held.release()?;
/// # Ok(()) });
/// ```
pub struct Deadline {
    receiver: Receiver<DeadlineEvent>,
    nodes: Vec<Arc<HeldNode>>,
    margin: Duration,
    _subscription: Subscription,
}

impl Deadline {
    pub(in crate::locks) fn new(nodes: Vec<Arc<HeldNode>>, margin: Duration) -> Deadline {
        let (receiver, _subscription) = HeldNode::deadline_channel(&nodes, margin);
        Deadline { receiver, nodes, margin, _subscription }
    }

    /// Whether the hold is certain for no longer than the margin right now, which is so as well once it is in doubt, lost
    /// or released. Does not block.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.nodes.iter().any(|node| node.is_near(self.margin))
    }

    /// The margin.
    #[must_use]
    pub fn margin(&self) -> Duration {
        self.margin
    }
}

impl Deref for Deadline {
    type Target = Receiver<DeadlineEvent>;

    fn deref(&self) -> &Receiver<DeadlineEvent> {
        &self.receiver
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline").field("margin", &self.margin).field("is_near", &self.is_near()).finish()
    }
}

impl Hold {
    /// Tells on a channel when the hold is certain for no longer than this margin, and when for longer again. The state
    /// at the call is told, too. Does not block; [`Deadline`] says how to choose the margin.
    ///
    /// Each call makes a channel of its own. Dropping the [`Deadline`] ends it.
    #[must_use = "it ends at once if it is not kept"]
    pub fn deadline(&self, margin: Duration) -> Deadline {
        Deadline::new(vec![self.node().clone()], margin)
    }

    /// Calls the listener with the events of [`deadline`](Hold::deadline), in order, on the client's dispatch thread
    /// and under no lock, until the hold is lost or released. While another listener of the client runs, this one
    /// waits: where every moment counts, prefer the channel.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use std::{sync::{Arc, atomic::{AtomicBool, Ordering}}, time::Duration};
    /// # use curator_locks::DeadlineEvent;
    /// # let mutex = &curator_locks::InterProcessMutex::new(client, "/example")?;
    /// let held = mutex.lock()?;
    /// let may_write = Arc::new(AtomicBool::new(true));
    /// let flag = may_write.clone();
    /// held.on_deadline(Duration::from_secs(2), move |event| {
    ///     flag.store(event == DeadlineEvent::Recovered, Ordering::SeqCst);
    /// });
    /// # held.release()?;
    /// # Ok(()) });
    /// ```
    pub fn on_deadline(&self, margin: Duration, listener: impl Fn(DeadlineEvent) + Send + Sync + 'static) {
        self.node().on_deadline(margin, Arc::new(listener));
    }
}
