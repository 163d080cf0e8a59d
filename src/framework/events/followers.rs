//! What goes on by itself, without a caller that waits.

use std::sync::{Arc, Weak};

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
        let mut list = self.list.lock();
        if list.len() == list.capacity() {
            list.retain(|follower| follower.strong_count() > 0);
            // Room for as many again: so each of them is looked at a few times at most, however many are added.
            let living = list.len();
            list.reserve(living.max(4));
        }
        list.push(follower);
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Idle;

    impl Follower for Idle {
        fn wake(self: Arc<Self>) {}
    }

    fn weak(follower: &Arc<Idle>) -> Weak<dyn Follower> {
        let follower: Arc<dyn Follower> = follower.clone();
        Arc::downgrade(&follower)
    }

    #[test]
    fn followers_that_are_gone_make_room_for_those_that_come() {
        let followers = Followers::default();
        let stays: Vec<Arc<Idle>> = (0..10).map(|_| Arc::new(Idle)).collect();
        stays.iter().for_each(|follower| followers.add(weak(follower)));
        for _ in 0..100_000 {
            followers.add(weak(&Arc::new(Idle)));
        }
        assert!(followers.list.lock().len() <= 40, "{}", followers.list.lock().len());
        let living = followers.list.lock().iter().filter(|follower| follower.strong_count() > 0).count();
        assert_eq!(living, stays.len());
    }
}
