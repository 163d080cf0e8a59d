//! What wakes a waiter, and the watchers that do.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{
    framework::{HeldNode, Listing},
    proto::EventType,
    session::{WakeSender, Watch, WatchEvent, Watcher},
};

/// What wakes a waiter. Each has a channel of its own, so that one event wakes one thread.
pub(super) enum Wake {
    /// With the number of the watch: an event of an earlier predecessor may still be in the channel when the next one
    /// is watched, and says nothing about that one.
    Predecessor(u64, WatchEvent),
    /// The listing that was under way when the predecessor with this number went, or `None` if it failed.
    Listed(u64, Option<Listing>),
    Own(WatchEvent),
    Directory(WatchEvent),
}

/// The watch on the own znode: it wakes the waiter, and later serves the holder.
pub(super) struct OwnWatch {
    pub(super) watch: Watch,
    pub(super) target: Arc<Mutex<Target>>,
}

pub(super) enum Target {
    Waiter(WakeSender<Wake>),
    /// The event came while the waiter was being granted.
    Deleted,
    Holder(Weak<HeldNode>),
}

pub(super) fn directory_watcher(wakes: WakeSender<Wake>) -> Watcher {
    Arc::new(move |event: &WatchEvent| wakes.send(Wake::Directory(event.clone())))
}

pub(super) fn predecessor_watcher(number: u64, wakes: WakeSender<Wake>) -> Watcher {
    Arc::new(move |event: &WatchEvent| wakes.send(Wake::Predecessor(number, event.clone())))
}

pub(super) fn own_watcher(target: Arc<Mutex<Target>>) -> Watcher {
    Arc::new(move |event: &WatchEvent| {
        let mut target = target.lock();
        match &*target {
            Target::Waiter(wakes) => {
                // Put there under the lock, so that none comes after the waiter has looked for the last time.
                let ring = wakes.put(Wake::Own(event.clone()));
                let is_deleted = matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. });
                // A sender that is dropped rings, too.
                let before = is_deleted.then(|| std::mem::replace(&mut *target, Target::Deleted));
                drop(target);
                drop((before, ring));
            }
            Target::Deleted => {}
            Target::Holder(held) => {
                let held = held.upgrade();
                drop(target);
                if let Some(held) = held {
                    held.watched(event);
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::task::Wake as Woken;

    use super::*;
    use crate::session::wakes;

    /// Notes whether the lock was free when it was woken.
    struct Probe {
        target: Mutex<Option<Arc<Mutex<Target>>>>,
        was_free: Mutex<Vec<bool>>,
    }

    impl Woken for Probe {
        fn wake(self: Arc<Self>) {
            let target = self.target.lock().clone().unwrap();
            let is_free = target.try_lock().is_some();
            self.was_free.lock().push(is_free);
        }
    }

    #[test]
    fn what_happens_to_the_own_znode_wakes_the_waiter_under_no_lock() {
        for event in [EventType::NodeDataChanged, EventType::NodeDeleted] {
            let (sender, receiver) = wakes();
            let target = Arc::new(Mutex::new(Target::Waiter(sender)));
            let probe = Arc::new(Probe { target: Mutex::new(Some(target.clone())), was_free: Mutex::default() });
            receiver.arm(&probe.clone().into());
            own_watcher(target)(&WatchEvent::Node { event, connection: 1 });
            assert_eq!(receiver.try_iter().count(), 1);
            assert_eq!(*probe.was_free.lock(), [true], "{event:?}");
        }
    }
}
