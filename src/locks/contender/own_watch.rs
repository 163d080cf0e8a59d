//! The watch on a contender's own znode: it wakes the waiter, and later serves the holder.

use std::sync::{Arc, Weak};

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use super::{blocking::Message, spec::WatchId};
use crate::{
    framework::HeldNode,
    session::{WatchEvent, Watcher},
};

/// To whom it reports.
pub(super) enum Target {
    Waiter(WatchId, Sender<Message>),
    Holder(Weak<HeldNode>),
}

impl Target {
    /// From here on events go to the holder.
    pub(super) fn hand_over(target: &Mutex<Target>, held: &Arc<HeldNode>) {
        let before = std::mem::replace(&mut *target.lock(), Target::Holder(Arc::downgrade(held)));
        drop(before);
    }
}

pub(super) fn own_watcher(target: Arc<Mutex<Target>>) -> Watcher {
    Arc::new(move |event: &WatchEvent| {
        let target = target.lock();
        match &*target {
            // Put there under the lock, so that none comes after the waiter has looked for the last time. To send wakes
            // the waiter at most, and it takes this lock only when it is granted the lock.
            Target::Waiter(id, sender) => drop(sender.send(Message::Event(*id, event.clone()))),
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
