//! What wakes a waiter, and the watchers that do.

use std::sync::{Arc, Weak};

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use crate::{
    framework::{HeldNode, Listing},
    proto::EventType,
    session::{Watch, WatchEvent, Watcher},
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
    Waiter(Sender<Wake>),
    /// The event came while the waiter was being granted.
    Deleted,
    Holder(Weak<HeldNode>),
}

pub(super) fn directory_watcher(wakes: Sender<Wake>) -> Watcher {
    Arc::new(move |event: &WatchEvent| drop(wakes.send(Wake::Directory(event.clone()))))
}

pub(super) fn predecessor_watcher(number: u64, wakes: Sender<Wake>) -> Watcher {
    Arc::new(move |event: &WatchEvent| drop(wakes.send(Wake::Predecessor(number, event.clone()))))
}

pub(super) fn own_watcher(target: Arc<Mutex<Target>>) -> Watcher {
    Arc::new(move |event: &WatchEvent| {
        let mut target = target.lock();
        match &*target {
            Target::Waiter(wakes) => {
                // Under the lock, so that none comes after the waiter has looked for the last time.
                let _ = wakes.send(Wake::Own(event.clone()));
                if matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. }) {
                    *target = Target::Deleted;
                }
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
