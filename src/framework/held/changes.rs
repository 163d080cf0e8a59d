//! The state of a hold, and its changes as a channel.

use std::{any::Any, fmt, ops::Deref, sync::Arc};

use crate::{base::channel::Receiver, error::LostReason};

/// The state of a hold, as its holder knows it.
///
/// ```
/// use curator_locks::{HoldState, LostReason};
///
/// fn may_write(state: HoldState) -> bool {
///     match state {
///         HoldState::Held => true,
///         HoldState::InDoubt => false, // for now
///         _ => false, // lost or released: for good
///     }
/// }
/// assert!(may_write(HoldState::Held));
/// assert!(!may_write(HoldState::Lost(LostReason::SessionExpired)));
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// The servers cannot have granted the lock to anybody else.
    Held,
    /// The lock may be another's: [`valid_until`](crate::Hold::valid_until) has passed without a heartbeat that proves the
    /// session, or the znode is gone and the servers have yet to say why. So it is also after each reconnect until the
    /// server has confirmed the znode, although `valid_until` lies ahead. The hold can become `Held` again.
    InDoubt,
    /// The lock is gone, for this reason. It stays so, also after a release.
    Lost(LostReason),
    /// The holder has begun to release it. It stays so.
    Released,
}

impl fmt::Display for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldState::Held => f.write_str("held"),
            HoldState::InDoubt => f.write_str("in doubt"),
            HoldState::Lost(reason) => write!(f, "lost: {reason}"),
            HoldState::Released => f.write_str("released"),
        }
    }
}

/// The changes of a hold's state: a `crossbeam_channel::Receiver`, also in `select!`.
///
/// For `select!` add `crossbeam-channel = "0.5"`, the version that this crate uses; `recv`, `recv_timeout` and `iter` need no
/// dependency.
///
/// [`Lost`](HoldState::Lost) or [`Released`](HoldState::Released) is the last message; then the channel ends. Clones share
/// the messages, as those of a receiver do. Dropping the last one ends the subscription.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{HoldState, InterProcessMutex, StateChanges};
///
/// let held = InterProcessMutex::new(&client, "/locks/order-42")?.lock()?;
/// let changes: StateChanges = held.state_changes();
/// held.release()?;
/// assert_eq!(changes.iter().last(), Some(HoldState::Released)); // and then the channel ends
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct StateChanges {
    pub(super) receiver: Receiver<HoldState>,
    /// The subscription ends with the last clone.
    pub(super) _subscription: Arc<dyn Any + Send + Sync>,
}

impl Deref for StateChanges {
    type Target = Receiver<HoldState>;

    fn deref(&self) -> &Receiver<HoldState> {
        &self.receiver
    }
}

impl fmt::Debug for StateChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateChanges").field(&self.receiver).finish()
    }
}

/// An event of a [`Deadline`](crate::Deadline).
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{DeadlineEvent, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
/// let held = mutex.lock()?;
/// // No session lasts for an hour without a heartbeat, so this margin is reached at once.
/// let deadline = held.deadline(Duration::from_secs(3600));
/// assert_eq!(deadline.recv()?, DeadlineEvent::Near);
/// held.release()?;
/// # Ok(()) });
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeadlineEvent {
    /// The hold is certain for less than the margin, or in doubt, or lost: time to stop.
    Near,
    /// A heartbeat has moved [`valid_until`](crate::Hold::valid_until) on: there is more time than the margin again.
    Recovered,
}
