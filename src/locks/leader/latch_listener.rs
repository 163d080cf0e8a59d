//! Who hears of a latch's terms.

use crate::locks::leader::leadership::Leadership;

/// Who is told that a [`LeaderLatch`](crate::LeaderLatch) leads. Java: `LeaderLatchListener`.
pub trait LeaderLatchListener: Send + Sync + 'static {
    /// The latch leads from now on, in this term.
    fn is_leader(&self, leadership: &Leadership);

    /// It does not any more. Called once for each [`is_leader`](LeaderLatchListener::is_leader), after that has returned.
    /// Where the leader gives up by itself, the next one leads after this has returned; where it may have lost its session,
    /// at [`Hold::valid_until`](crate::Hold::valid_until) at the latest, unless the process is paused or an earlier
    /// listener is still running.
    fn not_leader(&self);
}

/// Whether a leader's listeners are told when its latch is closed. Java: `LeaderLatch.CloseMode`.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CloseMode {
    /// They are not.
    #[default]
    Silent,
    /// They are, before the znode is deleted.
    NotifyLeader,
}
