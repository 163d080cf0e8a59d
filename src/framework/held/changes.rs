//! What a holder is told, as a channel.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Weak},
};

use crossbeam_channel::Receiver;

use super::node::{HeldNode, HoldState};

/// The changes of a hold's state: a [`Receiver`], also in `select!`.
///
/// [`Lost`](HoldState::Lost) or [`Released`](HoldState::Released) is the last message; then the channel ends. Clones share
/// the messages, as those of a receiver do. Dropping the last one ends the subscription.
#[derive(Clone)]
pub struct StateChanges {
    receiver: Receiver<HoldState>,
    _subscription: Arc<Subscription>,
}

struct Subscription {
    node: Weak<HeldNode>,
    id: u64,
}

impl StateChanges {
    pub(super) fn of(receiver: Receiver<HoldState>, node: &Arc<HeldNode>, id: u64) -> StateChanges {
        StateChanges { receiver, _subscription: Arc::new(Subscription { node: Arc::downgrade(node), id }) }
    }

    /// Nothing comes besides what is in the channel already.
    pub(super) fn ended(receiver: Receiver<HoldState>) -> StateChanges {
        StateChanges { receiver, _subscription: Arc::new(Subscription { node: Weak::new(), id: 0 }) }
    }
}

impl Deref for StateChanges {
    type Target = Receiver<HoldState>;

    fn deref(&self) -> &Receiver<HoldState> {
        &self.receiver
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(node) = self.node.upgrade() {
            node.inner.lock().audience.channels.remove(&self.id);
        }
    }
}

impl fmt::Debug for StateChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateChanges").field(&self.receiver).finish()
    }
}
