//! What goes on by itself, without a caller that waits.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

/// Something that makes progress in the background.
pub(crate) trait Follower: Send + Sync {
    /// There is a connection again, or it is time to look whether anything was missed. Runs on the client's own thread
    /// and must not block.
    fn wake(self: Arc<Self>);
}

/// The followers of one client, as long as they live.
#[derive(Default)]
pub(crate) struct Followers {
    list: Mutex<Vec<Weak<dyn Follower>>>,
}

impl Followers {
    pub(crate) fn add(&self, follower: Weak<dyn Follower>) {
        self.list.lock().push(follower);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }

    pub(crate) fn wake(&self) {
        let followers: Vec<Arc<dyn Follower>> = {
            let mut list = self.list.lock();
            list.retain(|follower| follower.strong_count() > 0);
            list.iter().filter_map(Weak::upgrade).collect()
        };
        for follower in followers {
            follower.wake();
        }
    }
}

impl fmt::Debug for Followers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followers").finish_non_exhaustive()
    }
}
