//! All there is at one moment, and what can happen next.

use curator_locks::unversioned::contender::Contender;

use super::{
    client::{Client, Owner, Watched},
    rules::{Fault, Rules},
    server::{Change, Server, changes_nothing},
    shared::Shared,
    thread::{Hold, Owed, Thread, Token},
};

#[derive(Debug, Clone, Hash)]
pub struct World {
    pub server: Shared<Server>,
    pub clients: Vec<Shared<Client>>,
    pub threads: Vec<Shared<Thread>>,
    pub faults: u8,
    /// The standing znodes that nobody stood in front of at some time. A reader in front may come later, by a downgrade
    /// whose writer was deleted.
    pub rightful: Vec<i64>,
    /// Those of them that an administrator deleted: their owners may well believe that they hold, until they look.
    pub forgiven: Vec<i64>,
    /// The highest token of a grant so far, by directory: of any, of one that excludes all others, and of an upgradable one.
    pub tokens: [(Token, Token, Token); 2],
}

/// What happens. The numbers are those of a thread, a client, or a directory and a znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Step(u8),
    Serve(u8),
    ServeGhost(u8),
    Deliver(u8),
    /// With the number of an order of missed events.
    Reconnect(u8, u8),
    NewSession(u8),
    Heartbeat(u8),
    Verify(u8, u8),
    Clean(u8),
    CatchUp(u8),
    /// The servers expire the session with this number.
    Expire(u16),
    /// The servers close the connection of a session that has expired.
    Close(u8),
    StopWaiting(u8),
    Fault(Fault, u8, u8),
}

/// The lines of a trace, where somebody reads them.
#[derive(Debug, Default)]
pub struct Notes(pub Option<Vec<String>>);

impl Notes {
    pub fn add(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(line());
        }
    }

    pub fn text(&self, text: impl FnOnce() -> String) -> String {
        self.0.as_ref().map(|_| text()).unwrap_or_default()
    }
}

impl World {
    pub fn new(rules: &Rules) -> World {
        let session = |client: usize| i64::try_from(client * 10 + 10).unwrap_or(0);
        let mut server = Server::default();
        server.sessions = (0..rules.clients()).map(session).collect();
        for number in (0..2).filter(|_| rules.has_directories) {
            server.tree.apply(&Change::Made(number));
        }
        World {
            clients: server.sessions.iter().map(|session| Shared::new(Client::new(*session))).collect(),
            threads: rules.threads.iter().map(|(client, _)| Shared::new(Thread::new(*client))).collect(),
            server: Shared::new(server),
            faults: rules.faults,
            rightful: Vec::new(),
            forgiven: Vec::new(),
            tokens: Default::default(),
        }
    }

    /// All that can happen but faults. Where nothing can, all is at rest.
    pub fn actions(&self, rules: &Rules) -> Vec<Action> {
        let mut actions = Vec::new();
        for (t, thread) in (0..).zip(&self.threads) {
            let is_next = t == 0 || !rules.is_symmetric || self.threads[usize::from(t) - 1].has_begun();
            if is_next && self.is_ready(rules, t.into()) {
                actions.push(Action::Step(t));
            }
            if thread.stop.is_some() && thread.answers.iter().any(Option::is_none) {
                actions.push(Action::StopWaiting(t));
            }
            for (place, hold) in (0..).zip(&thread.holds) {
                let client = &self.clients[thread.client];
                let is_unseen = client.connection != 0 && client.connection != hold.seen_over;
                let is_due = is_unseen || self.is_missed(rules, thread.client, hold);
                if is_due && hold.is_returned && !hold.is_lost && self.is_reachable(thread.client) {
                    actions.push(Action::Verify(t, place));
                }
            }
        }
        for c in 0..u8::try_from(self.clients.len()).unwrap_or(0) {
            self.actions_of(rules, c, &mut actions);
        }
        self.expiries(&mut actions);
        actions
    }

    /// Whether a question would be answered at once.
    fn is_reachable(&self, c: usize) -> bool {
        let client = &self.clients[c];
        client.is_connected() && client.is_idle() && self.server.lives(client.session)
    }

    /// Whether somebody waits by a place at the head of a queue that is gone, and that it had got without a watch: the
    /// registry sets one a moment later, and the answer tells.
    fn is_missed(&self, rules: &Rules, c: usize, hold: &Hold) -> bool {
        let client = &self.clients[c];
        let is_place = rules.locks.iter().any(|lock| lock.bar.or(lock.upgrades) == Some(hold.lock));
        let Some(node) =
            hold.nodes.last().filter(|node| is_place && !client.sees(&self.server.tree).stands(node.czxid))
        else {
            return false;
        };
        let is_watch = |watch: &Watched| matches!(watch.owner, Owner::Holder(_, czxid) if czxid == node.czxid);
        !client.watches.iter().any(is_watch)
    }

    fn actions_of(&self, rules: &Rules, c: u8, actions: &mut Vec<Action>) {
        let client = &self.clients[usize::from(c)];
        let lives = self.server.lives(client.session);
        if client.is_connected() {
            let is_vouched_for =
                client.lag.is_some() && client.requests.front().is_some_and(|sent| changes_nothing(&sent.request));
            if !client.requests.is_empty() && (lives || is_vouched_for) {
                actions.push(Action::Serve(c));
            }
            if !client.inbound.is_empty() {
                actions.push(Action::Deliver(c));
            }
            if !lives {
                actions.push(Action::Close(c));
            }
            if !client.is_valid && self.is_reachable(c.into()) && self.is_of_use(rules, c.into()) {
                actions.push(Action::Heartbeat(c));
            }
            if !client.jobs.is_empty() && self.is_reachable(c.into()) {
                actions.push(Action::Clean(c));
            }
        } else if client.is_ended {
            actions.push(Action::NewSession(c));
        } else {
            let orders = if lives { (1..=client.missed()).product::<usize>() } else { 1 };
            actions.extend((0..orders.min(24)).map(|order| Action::Reconnect(c, u8::try_from(order).unwrap_or(0))));
        }
        if client.ghosts.front().is_some_and(|(session, _)| self.server.lives(*session)) {
            actions.push(Action::ServeGhost(c));
        }
        if client.lag.as_ref().is_some_and(|lag| !lag.pending.is_empty()) && (lives || !client.is_connected()) {
            actions.push(Action::CatchUp(c));
        }
    }

    /// A step that may as well be taken at once, once no more faults are to come: it depends on nothing that others do,
    /// and what it does others see only when a server carries it out. (A release and a registration are not of the kind.)
    pub fn step_at_once(&self, rules: &Rules) -> Option<Action> {
        let can = |t: &usize| {
            let thread = &self.threads[*t];
            let client = &self.clients[thread.client];
            let is_only_one = rules.threads.iter().filter(|(c, _)| *c == thread.client).count() == 1;
            let is_certain = client.is_connected() && client.is_valid && self.server.lives(client.session);
            let is_quiet = client.jobs.is_empty()
                && thread.holds.iter().all(|hold| hold.is_lost || hold.seen_over == client.connection);
            let is_of_kind = matches!(
                thread.owed,
                Owed::Answers | Owed::Directory | Owed::Connection | Owed::Moment | Owed::Release
            );
            self.faults == 0 && is_only_one && is_certain && is_quiet && is_of_kind && self.is_ready(rules, *t)
        };
        (0..self.threads.len()).find(can).map(|t| Action::Step(u8::try_from(t).unwrap_or(0)))
    }

    /// Whether the client has anything left to do.
    pub fn is_of_use(&self, rules: &Rules, c: usize) -> bool {
        !self.clients[c].jobs.is_empty()
            || (0..self.threads.len()).any(|t| self.threads[t].client == c && !self.is_done(rules, t))
    }

    /// The servers expire what was not heard of for a session timeout, and what its client has given up.
    fn expiries(&self, actions: &mut Vec<Action>) {
        for session in &self.server.sessions {
            let owner = self.clients.iter().find(|client| client.session == *session && !client.is_ended);
            if owner.is_none_or(|client| !client.is_valid && !client.is_touched) {
                actions.push(Action::Expire(u16::try_from(*session).unwrap_or(0)));
            }
        }
    }

    /// The faults that can happen.
    pub fn faults(&self, rules: &Rules) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.faults == 0 {
            return actions;
        }
        for kind in &rules.kinds {
            match kind {
                Fault::Delete | Fault::Touch => {
                    let mut place = [0_u8; 2];
                    for (number, _) in self.server.tree.znodes() {
                        actions.push(Action::Fault(*kind, u8::try_from(number).unwrap_or(0), place[number]));
                        place[number] += 1;
                    }
                }
                Fault::Sweep => {
                    let directories = (0..2).filter(|number| self.server.can_sweep(usize::from(*number)));
                    actions.extend(directories.map(|number| Action::Fault(*kind, number, 0)));
                }
                Fault::TimeUp | Fault::Cancel | Fault::Drop | Fault::GiveUp => {
                    let can = |t: &u8| self.can_stop(*kind, usize::from(*t));
                    let threads = (0..u8::try_from(self.threads.len()).unwrap_or(0)).filter(can);
                    actions.extend(threads.map(|t| Action::Fault(*kind, t, 0)));
                }
                _ => {
                    let can = |c: &u8| self.can_fail(rules, *kind, usize::from(*c));
                    let clients = (0..u8::try_from(self.clients.len()).unwrap_or(0)).filter(can);
                    actions.extend(clients.map(|c| Action::Fault(*kind, c, 0)));
                }
            }
        }
        let is_meant = |action: &Action| match (*action, rules.target) {
            (Action::Fault(Fault::Delete, _, at) | Action::Fault(_, at, _), Some(target)) => at == target,
            _ => true,
        };
        actions.retain(is_meant);
        actions
    }

    fn can_fail(&self, rules: &Rules, kind: Fault, c: usize) -> bool {
        let client = &self.clients[c];
        let lives = self.server.lives(client.session);
        if !self.is_of_use(rules, c) {
            return false;
        }
        match kind {
            Fault::Cut => client.is_connected() && lives,
            Fault::CutToLagging => client.is_connected() && lives && client.lag.is_none(),
            Fault::Lag => client.is_connected() && lives && client.lag.is_none(),
            Fault::Pause => client.is_valid || client.is_touched,
            Fault::Abandon => client.connection == 0 && !client.is_ended,
            Fault::Refuse => client.is_connected() && lives && !client.requests.is_empty(),
            _ => false,
        }
    }

    fn can_stop(&self, kind: Fault, t: usize) -> bool {
        let thread = &self.threads[t];
        let is_waiting = thread.contender.is_some() && thread.stop.is_none();
        match kind {
            Fault::GiveUp => {
                is_waiting
                    && thread.owed == Owed::Connection
                    && !thread.contender.as_ref().is_some_and(Contender::stands)
                    && !self.clients[thread.client].is_connected()
            }
            _ => is_waiting,
        }
    }
}
