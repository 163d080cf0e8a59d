//! Reactions of recipes to a client's connection states, and wake-ups: no listener can delay them.

use std::sync::{Arc, Weak};

use super::connection_state::ConnectionState;
use crate::base::sync::Mutex;

/// Wakes a waiter: at once, on the thread of the event, and before any listener is told. Must not block.
pub(crate) type WakeUp = dyn Fn() + Send + Sync;

/// A recipe's own reaction to a change of the connection state: before the caller's listeners are told, of which one may
/// never return. Runs on the client's own thread and must not block.
pub(crate) type OnConnection = dyn Fn(ConnectionState) + Send + Sync;

/// The reactions of one client, as long as their owners keep them.
#[derive(Default)]
pub(crate) struct Reactions {
    list: Mutex<Vec<Weak<OnConnection>>>,
}

impl Reactions {
    /// Adds a reaction, which lives as long as the caller keeps it.
    pub(crate) fn add(&self, reaction: impl Fn(ConnectionState) + Send + Sync + 'static) -> Arc<OnConnection> {
        let reaction: Arc<OnConnection> = Arc::new(reaction);
        let mut list = self.list.lock();
        if list.len() == list.capacity() {
            list.retain(|reaction| reaction.strong_count() > 0);
            // Room for as many again: so each of them is looked at a few times at most, however many are added.
            let living = list.len();
            list.reserve(living.max(4));
        }
        list.push(Arc::downgrade(&reaction));
        reaction
    }

    /// The living reactions, to be called under no lock.
    pub(crate) fn living(&self) -> Vec<Arc<OnConnection>> {
        let mut list = self.list.lock();
        list.retain(|reaction| reaction.strong_count() > 0);
        list.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactions_that_are_gone_make_room_for_those_that_come() {
        let reactions = Reactions::default();
        let stays: Vec<Arc<OnConnection>> = (0..10).map(|_| reactions.add(|_| ())).collect();
        for _ in 0..100_000 {
            reactions.add(|_| ());
        }
        assert!(reactions.list.lock().len() <= 40, "{}", reactions.list.lock().len());
        assert_eq!(reactions.living().len(), stays.len());
    }
}
