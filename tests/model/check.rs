//! What has to be true, whatever happens.

use curator_locks::unversioned::{Request, contender::Node};

use super::{
    rules::{Class, Lock, Rules},
    server::{DIRECTORIES, Znode, number_of},
    thread::{Hold, Owed, letter_of},
    world::World,
};

impl World {
    pub fn note_rightful(&mut self, rules: &Rules) {
        let is_so = |directory, znode: &Znode| {
            self.rightful.contains(&znode.czxid) || self.is_rightful(rules, directory, &znode.name)
        };
        let standing = self.server.tree.znodes().filter(|(directory, znode)| is_so(*directory, znode));
        self.rightful = standing.map(|(_, znode)| znode.czxid).collect();
    }

    /// A thread that reads where its znode stood is told that it is gone.
    pub fn unforgive(&mut self, t: usize, request: &Request) {
        let Some(contender) = &self.threads[t].contender else { return };
        let tree = self.clients[self.threads[t].client].sees(&self.server.tree);
        let is_told = |node: &Node| match request {
            Request::Exists { path, .. } | Request::GetData { path, .. } => {
                path.ends_with(&format!("/{}", node.name)) && !tree.stands(node.czxid)
            }
            Request::GetChildren { path, .. } => {
                path == DIRECTORIES[0] && !tree.stands(node.czxid) && tree.find(0, &node.name).is_none()
            }
            _ => false,
        };
        let told: Vec<i64> = contender.nodes.iter().filter(|node| is_told(node)).map(|node| node.czxid).collect();
        self.forgiven.retain(|czxid| !told.contains(czxid));
    }

    /// Whether nobody who excludes it stands in front of the znode.
    fn is_rightful(&self, rules: &Rules, directory: usize, name: &str) -> bool {
        let is_reader = |name: &str| name.contains("__READ__");
        let limit = rules.locks.iter().filter(|lock| number_of(&lock.spec.directory) == directory).map(Lock::limit);
        let own = sequence_of(name);
        let znodes = self.server.tree.directory(directory).map_or(&[][..], |directory| &directory.znodes[..]);
        let in_front = znodes
            .iter()
            .filter(|znode| sequence_of(&znode.name) < own && !(is_reader(name) && is_reader(&znode.name)));
        in_front.count() < limit.max().unwrap_or(1)
    }

    /// In every state. `returning`: the thread whose acquire returns right now, which counts as certain.
    pub fn check(&self, rules: &Rules, returning: Option<(usize, usize)>) -> Result<(), String> {
        let mut holders: Vec<(usize, &Hold)> = Vec::new();
        for (t, thread) in self.threads.iter().enumerate() {
            for hold in thread.holds.iter().filter(|hold| hold.is_returned && !self.is_forgiven(hold)) {
                if returning == Some((t, hold.lock)) || self.is_certain(t, hold) {
                    holders.push((t, hold));
                }
            }
        }
        for (k, one) in holders.iter().enumerate() {
            if let Some(two) = holders.iter().skip(k + 1).find(|two| excludes(rules, *one, **two)) {
                return Err(format!("two holders: {} and {}", shown(*one), shown(*two)));
            }
        }
        if let Some(t) = (0..self.threads.len()).find(|t| self.has_left_queue(rules, *t)) {
            return Err(format!("{} waits for a lease without its place in the queue", letter_of(t)));
        }
        let leases = holders.iter().filter_map(|(_, hold)| match rules.locks[hold.lock].class {
            Class::Lease(limit) => Some((limit, hold.nodes.len())),
            Class::Alone | Class::Shared => None,
        });
        let (limit, count) = leases.fold((usize::MAX, 0), |(_, all), (limit, count)| (limit, all + count));
        if count > limit { Err(format!("{count} hold {limit} leases")) } else { Ok(()) }
    }

    /// Whether a thread sleeps until there are leases though it is in the queue for them no more.
    fn has_left_queue(&self, rules: &Rules, t: usize) -> bool {
        let place = self.lock_of(rules, t).and_then(|(_, lock)| lock.bar);
        self.threads[t].owed == Owed::Event && place.is_some_and(|place| self.threads[t].hold_of(place).is_none())
    }

    fn is_forgiven(&self, hold: &Hold) -> bool {
        hold.nodes.iter().any(|node| self.forgiven.contains(&node.czxid))
    }

    /// An acquire returns with the lock.
    pub fn returned(&mut self, rules: &Rules, t: usize, lock: usize) -> Result<(), String> {
        self.check(rules, Some((t, lock)))?;
        let Some(hold) = self.threads[t].holds.iter().find(|hold| hold.lock == lock) else { return Ok(()) };
        if rules.omitted.is_none() && hold.is_lost {
            return Err(format!("{} returns with a lock whose end was reported", letter_of(t)));
        }
        // That may be where nobody could make sure for a whole session timeout.
        if rules.omitted.is_none()
            && !self.is_certain(t, hold)
            && self.clients[self.threads[t].client].clock == hold.since
        {
            return Err(format!("{} returns with a lock that is in doubt", letter_of(t)));
        }
        // Of one alone an administrator's delete may come between its create and the reply, where no list follows.
        if hold.nodes.len() > 1
            && self.is_certain(t, hold)
            && !self.is_forgiven(hold)
            && let Some(node) = hold.nodes.iter().find(|node| !self.server.tree.stands(node.czxid))
        {
            return Err(format!("{} returns without {}, which is gone", letter_of(t), node.name));
        }
        self.check_queue(rules, t, hold)?;
        let directory = number_of(&rules.locks[lock].spec.directory);
        let (any, alone) = self.tokens[directory];
        let is_old = match rules.locks[lock].class {
            Class::Alone => hold.token <= any,
            Class::Shared => hold.token < alone,
            Class::Lease(_) => false,
        };
        if is_old && !self.is_forgiven(hold) {
            return Err(format!("the token {} of {} is no greater than one before", hold.token, letter_of(t)));
        }
        let alone = if hold.is_alone(rules) { hold.token.max(alone) } else { alone };
        self.tokens[directory] = (hold.token.max(any), alone);
        Ok(())
    }

    /// Who takes a lease at once overtakes nobody who had queued before.
    fn check_queue(&self, rules: &Rules, t: usize, hold: &Hold) -> Result<(), String> {
        let Some(must_be_empty) = &rules.locks[hold.lock].spec.must_be_empty else { return Ok(()) };
        let queued =
            self.server.tree.directory(number_of(must_be_empty)).map_or(&[][..], |directory| &directory.znodes[..]);
        let is_before = |znode: &&Znode| hold.nodes.iter().any(|node| znode.czxid < node.czxid);
        match queued.iter().find(is_before) {
            Some(znode) => Err(format!("{} overtakes {}, which had queued", letter_of(t), znode.name)),
            None => Ok(()),
        }
    }

    /// Whether all have ended well, and left nothing. Asked when all is at rest.
    pub fn check_rest(&self, rules: &Rules) -> Result<(), String> {
        if let Some(t) = (0..self.threads.len()).find(|t| !self.is_done(rules, *t)) {
            let owed = self.threads[t].owed;
            return Err(format!("{} waits for what nothing will bring: {owed:?}", letter_of(t)));
        }
        if let Some((_, znode)) = self.server.tree.znodes().next() {
            return Err(format!("{} is left behind", znode.name));
        }
        match self.clients.iter().flat_map(|client| &client.watches).next() {
            Some(watch) => Err(format!("a watch is left behind: {watch:?}")),
            None => Ok(()),
        }
    }
}

fn excludes(rules: &Rules, (one, hold): (usize, &Hold), (other, held): (usize, &Hold)) -> bool {
    let directory = |hold: &Hold| number_of(&rules.locks[hold.lock].spec.directory);
    one != other && directory(hold) == directory(held) && (hold.is_alone(rules) || held.is_alone(rules))
}

fn shown((t, hold): (usize, &Hold)) -> String {
    format!("{} with {}", letter_of(t), hold.names())
}

pub fn sequence_of(name: &str) -> Option<u32> {
    name.get(name.len().checked_sub(10)?..)?.parse().ok()
}
