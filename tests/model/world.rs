//! All there is at one moment, and what can happen next.

use curator_locks::{
    ErrorCode,
    hooks::contender::{ConnectFor, Reaction},
    proto::{EventType, Request},
    session::WatchEvent,
};

use super::{
    check::sequence_of,
    client::{Client, Lag, Message, Owner, Sent, Slot},
    rules::{Fault, Rules},
    server::{Change, Server, changes_nothing, split},
    shared::Shared,
    shell::{Owed, Thread, connection_lost, letter_of, refused},
    trace,
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
    /// The highest token of a grant so far, by directory: of any, and of one that excludes all others.
    pub tokens: [(i64, i64); 2],
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
            tokens: [(0, 0); 2],
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
                if is_unseen && hold.is_returned && !hold.is_lost && self.is_reachable(thread.client) {
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
                Owed::Answers | Owed::Directory | Owed::Connection(_) | Owed::Moment | Owed::Release
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
                Fault::Delete => {
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
                    && thread.owed == Owed::Connection(ConnectFor::Call)
                    && !self.clients[thread.client].is_connected()
            }
            _ => is_waiting,
        }
    }

    pub fn apply(&mut self, rules: &Rules, action: Action, notes: &mut Notes) -> Result<(), String> {
        match action {
            Action::Step(t) => self.step(rules, t.into(), notes)?,
            Action::StopWaiting(t) => self.stop_waiting(t.into()),
            Action::Fault(kind, one, two) => self.fail(rules, kind, one.into(), two.into(), notes)?,
            _ => self.happen(action, notes)?,
        }
        if !rules.has_delays {
            for c in 0..self.clients.len() {
                while self.clients[c].inbound.front().is_some_and(|next| !matches!(next, Message::Missed(..))) {
                    self.deliver(c, notes);
                }
            }
        }
        if self.faults > 0 && rules.kinds.contains(&Fault::Delete) {
            self.note_rightful(rules);
        } else {
            self.rightful.clear();
        }
        self.check(rules, None)
    }

    fn happen(&mut self, action: Action, notes: &mut Notes) -> Result<(), String> {
        match action {
            Action::Serve(c) => return self.serve(c.into(), notes),
            Action::ServeGhost(c) => return self.serve_ghost(c.into(), notes),
            Action::Deliver(c) => self.deliver(c.into(), notes),
            Action::Reconnect(c, order) => self.reconnect(c.into(), order.into(), notes),
            Action::NewSession(c) => {
                self.clients[usize::from(c)].renew();
                self.server.sessions.push(self.clients[usize::from(c)].session);
                notes.add(|| format!("client {c}: session {}", self.clients[usize::from(c)].session));
            }
            Action::Heartbeat(c) => {
                let client = &mut self.clients[usize::from(c)];
                (client.is_valid, client.is_touched) = (true, true);
                notes.add(|| format!("client {c}: heartbeats are answered, its session is certain"));
            }
            Action::Verify(t, place) => self.verify(t.into(), place.into(), notes),
            Action::Clean(c) => self.clean(c.into(), notes),
            Action::CatchUp(c) => {
                self.clients[usize::from(c)].catch_up();
                notes.add(|| format!("client {c}: its server catches up by one change"));
            }
            Action::Expire(session) => {
                notes.add(|| format!("the servers expire session {session}"));
                let mut changes = Vec::new();
                self.server.expire(session.into(), &mut changes);
                self.spread(&changes);
            }
            Action::Close(c) => {
                notes.add(|| format!("client {c}: the server closes the connection"));
                self.cut(c.into());
            }
            Action::Step(_) | Action::StopWaiting(_) | Action::Fault(..) => {}
        }
        Ok(())
    }

    fn fail(&mut self, rules: &Rules, kind: Fault, one: usize, two: usize, notes: &mut Notes) -> Result<(), String> {
        self.faults -= 1;
        notes.add(|| format!("{kind:?} {one} {two}"));
        match kind {
            Fault::Cut => self.cut(one),
            Fault::CutToLagging | Fault::Lag => {
                let tree = self.server.tree.clone();
                self.clients[one].lag = Some(Lag { tree, pending: Default::default() });
                if kind == Fault::CutToLagging {
                    self.cut(one);
                }
            }
            Fault::Pause => {
                let client = &mut self.clients[one];
                client.clock += 1;
                (client.is_valid, client.is_touched) = (false, false);
            }
            Fault::Abandon => self.end(one),
            Fault::Delete => self.delete(one, two, notes),
            Fault::Sweep => {
                let mut changes = Vec::new();
                self.server.sweep(one, &mut changes);
                self.spread(&changes);
            }
            Fault::TimeUp => self.threads[one].stop = Some(Reaction::TimeUp),
            Fault::Cancel => self.threads[one].stop = Some(Reaction::Final),
            Fault::Refuse => self.refuse(one),
            Fault::Drop => self.dropped(rules, one),
            Fault::GiveUp => return self.give_up(rules, one, notes),
        }
        Ok(())
    }

    fn delete(&mut self, number: usize, place: usize, notes: &mut Notes) {
        let Some(znode) = self.server.tree.directory(number).and_then(|directory| directory.znodes.get(place)) else {
            return;
        };
        let (name, czxid) = (znode.name.clone(), znode.czxid);
        notes.add(|| format!("an administrator deletes {name}"));
        if self.rightful.contains(&czxid) {
            self.forgiven.push(czxid);
        }
        let mut changes = Vec::new();
        self.server.delete(number, &name, &mut changes);
        self.spread(&changes);
    }

    fn spread(&mut self, changes: &[Change]) {
        for change in changes {
            self.clients.iter_mut().for_each(|client| client.hear(change));
        }
    }

    /// The server carries out the next request of a connection.
    fn serve(&mut self, c: usize, notes: &mut Notes) -> Result<(), String> {
        let session = self.clients[c].session;
        let Some(Sent { request, slot, watch }) = self.clients[c].requests.pop_front() else { return Ok(()) };
        self.check_delete(session, &request)?;
        let client = &mut self.clients[c];
        let mut changes = Vec::new();
        let answer = if changes_nothing(&request) {
            client.sees(&self.server.tree).read(&request)
        } else {
            client.catch_up_wholly();
            self.server.serve(client.session, &request, &mut changes)
        };
        if let (Some((t, _)), Ok(_) | Err(ErrorCode::NoNode)) = (slot, &answer) {
            self.unforgive(t, &request);
        }
        let client = &mut self.clients[c];
        client.is_touched = self.server.lives(client.session);
        client.left_watch(watch, &answer);
        notes.add(|| format!("client {c}: served {}", trace::request(&request)));
        self.spread(&changes);
        self.clients[c].inbound.push_back(Message::Reply(slot, watch, answer));
        Ok(())
    }

    fn refuse(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let Some(Sent { slot, watch, .. }) = client.requests.pop_front() else { return };
        client.inbound.push_back(Message::Reply(slot, watch, Err(ErrorCode::ThrottledOp)));
    }

    /// Nobody deletes the znode of somebody else, but for this: once an administrator has deleted a znode of a fixed name,
    /// the delete that its owner sends hits the next one, and so on. ZooKeeper has no delete that checks for that.
    fn check_delete(&mut self, session: i64, request: &Request) -> Result<(), String> {
        let Request::Delete { path, .. } = request else { return Ok(()) };
        let Some((number, Some(name))) = split(path) else { return Ok(()) };
        let Some(znode) = self.server.tree.find(number, name) else { return Ok(()) };
        let (czxid, owner) = (znode.czxid, znode.owner);
        if sequence_of(name).is_none() && !self.forgiven.is_empty() {
            self.forgiven.push(czxid);
        } else if owner != session {
            return Err(format!("session {session} deletes {name} of session {owner}"));
        }
        Ok(())
    }

    fn serve_ghost(&mut self, c: usize, notes: &mut Notes) -> Result<(), String> {
        let Some((session, request)) = self.clients[c].ghosts.pop_front() else { return Ok(()) };
        self.check_delete(session, &request)?;
        notes.add(|| format!("client {c}: served after its connection has ended: {}", trace::request(&request)));
        let mut changes = Vec::new();
        let _lost = self.server.serve(session, &request, &mut changes);
        self.spread(&changes);
        Ok(())
    }

    /// The next message reaches the process.
    fn deliver(&mut self, c: usize, notes: &mut Notes) {
        let client = &mut self.clients[c];
        let Some(message) = client.inbound.pop_front() else { return };
        match message {
            Message::Reply(slot, watch, answer) => {
                if let Some(owner) = watch {
                    client.watch_answered(owner, answer.is_ok());
                    if let (Owner::Guard(number), Err(_)) = (owner, &answer) {
                        client.unlisted.fired(number);
                    }
                }
                if let Some((t, place)) = slot {
                    self.threads[t].answer(place, answer.map_err(refused));
                }
            }
            Message::Event(path, event) | Message::Missed(path, event) => {
                notes.add(|| format!("client {c}: is told {event:?} {path}"));
                let connection = client.connection;
                for owner in client.fire(&path, event) {
                    self.tell(c, owner, WatchEvent::Node { event, connection });
                }
            }
        }
    }

    fn tell(&mut self, c: usize, owner: Owner, event: WatchEvent) {
        match owner {
            Owner::Contender(t, watch) => self.threads[t].mailbox.push_back((watch, event)),
            Owner::Holder(t, czxid) => {
                let is_end = matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. });
                let holds = self.threads[t].holds.iter_mut();
                for hold in holds.filter(|hold| is_end && hold.nodes.last().is_some_and(|node| node.czxid == czxid)) {
                    hold.is_lost = true;
                }
            }
            Owner::Guard(number) => {
                self.clients[c].unlisted.fired(number);
                self.clients[c].unwatch(|watch| watch != owner);
            }
        }
    }

    fn tell_guards(&mut self, c: usize) {
        let watches = self.clients[c].watches.iter().map(|watch| watch.owner);
        let guards: Vec<Owner> = watches.filter(|owner| matches!(owner, Owner::Guard(..))).collect();
        for owner in guards {
            self.tell(c, owner, WatchEvent::Disconnected);
        }
    }

    fn tell_all(&mut self, c: usize, event: &WatchEvent) {
        let owners: Vec<Owner> =
            self.clients[c].watches.iter().filter(|watch| watch.is_armed).map(|watch| watch.owner).collect();
        for owner in owners {
            self.tell(c, owner, event.clone());
        }
    }

    /// The requests come to nothing, as far as their senders know.
    fn fail_all(&mut self, c: usize, requests: Vec<(Option<Slot>, Option<Owner>)>, maybe_done: bool) {
        for (slot, watch) in requests {
            if let Some((t, place)) = slot {
                self.threads[t].answer(place, Err(connection_lost(maybe_done)));
            }
            if let Some(Owner::Guard(number)) = watch {
                self.clients[c].unlisted.fired(number);
            }
        }
    }

    fn cut(&mut self, c: usize) {
        let lost = self.clients[c].cut();
        self.fail_all(c, lost, true);
        // To a contender that says nothing.
        self.tell_guards(c);
    }

    fn reconnect(&mut self, c: usize, order: usize, notes: &mut Notes) {
        if !self.server.lives(self.clients[c].session) {
            notes.add(|| format!("client {c}: is told that its session has expired"));
            return self.end(c);
        }
        self.clients[c].reconnect(&self.server.tree, order);
        let connection = self.clients[c].connection;
        notes.add(|| format!("client {c}: connection {connection}, missed events in order {order}"));
        self.tell_all(c, &WatchEvent::Reconnected { connection });
    }

    /// The client knows that its session is over.
    fn end(&mut self, c: usize) {
        self.tell_all(c, &WatchEvent::Ended);
        let unsent = self.clients[c].end();
        self.clients[c].unwatch(|_| false);
        self.fail_all(c, unsent, false);
    }

    /// After a reconnect somebody looks whether the holder's znodes stand.
    fn verify(&mut self, t: usize, place: usize, notes: &mut Notes) {
        let client = &self.clients[self.threads[t].client];
        let (connection, tree) = (client.connection, client.sees(&self.server.tree));
        let Some(hold) = self.threads[t].holds.get_mut(place) else { return };
        let stands = |name: &str, czxid| tree.znodes().any(|(_, znode)| znode.name == name && znode.czxid == czxid);
        let stand = hold.nodes.iter().all(|node| stands(&node.name, node.czxid));
        notes.add(|| format!("{}: looks whether its znodes stand: {stand}", letter_of(t)));
        if stand {
            hold.seen_over = connection;
        } else {
            hold.is_lost = true;
        }
    }

    /// The background does its next job.
    fn clean(&mut self, c: usize, notes: &mut Notes) {
        self.clients[c].catch_up_wholly();
        let Some(job) = self.clients[c].jobs.pop_front() else { return };
        notes.add(|| format!("client {c}: cleans up {:?}", job.leftover));
        let mut changes = Vec::new();
        for name in Client::clean(&job, &self.server.tree) {
            self.server.delete(job.directory, &name, &mut changes);
        }
        self.spread(&changes);
    }
}
