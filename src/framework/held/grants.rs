//! The znodes that were granted a lock in this process lately.

use std::collections::VecDeque;

use crate::base::{collections::HashSet, paths::ServerPath, sync::Mutex};

/// How many grants the client remembers, in 0.2 MB. A forgotten one costs its successor a listing, no more, and so it does only
/// where a process holds more locks at a time.
const REMEMBERED: usize = 1024;

/// Znodes that held a lock at some time. A waiter right behind such a znode has the lock when it is deleted, without
/// another look at the queue.
#[derive(Debug, Default)]
pub(crate) struct RecentGrants {
    /// The paths, and their order, the oldest first.
    paths: Mutex<(HashSet<ServerPath>, VecDeque<ServerPath>)>,
}

impl RecentGrants {
    pub(crate) fn add(&self, path: &ServerPath) {
        let (known, order) = &mut *self.paths.lock();
        if !known.insert(path.clone()) {
            return;
        }
        order.push_back(path.clone());
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }

    /// Whether the znode is known to have held the lock.
    pub(crate) fn contains(&self, path: &ServerPath) -> bool {
        self.paths.lock().0.contains(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_remembered_until_many_came_after_it() {
        let grants = RecentGrants::default();
        let path = |k: usize| ServerPath::from_server(format!("/l/lock-{k:010}"));
        for k in 0..REMEMBERED {
            grants.add(&path(k));
        }
        assert!(grants.contains(&path(0)));
        grants.add(&path(1));
        assert!(grants.contains(&path(0)), "one that is known already takes no other's place");
        grants.add(&path(REMEMBERED));
        assert!(!grants.contains(&path(0)));
        assert!(grants.contains(&path(1)) && grants.contains(&path(REMEMBERED)));
    }
}
