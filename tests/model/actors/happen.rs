//! What happens, one thing at a time.

use curator_locks::{
    ErrorCode,
    unversioned::{EventType, Request, WatchEvent, contender::Reaction},
};

use super::{
    client::{Lag, Message, Owner, Sent, Slot},
    rules::{Fault, Rules},
    server::{Change, DIRECTORIES, changes_nothing, split},
    thread::{connection_lost, letter_of, refused},
    trace,
    world::{Action, Notes, World},
};

impl World {
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
            Action::Clean(c) => return self.clean(c.into(), notes),
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
            Fault::Touch => self.touch(one, two),
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

    fn touch(&mut self, number: usize, place: usize) {
        let znode = self.server.tree.directory(number).and_then(|directory| directory.znodes.get(place));
        if let Some(name) = znode.map(|znode| znode.name.clone()) {
            self.spread(&[Change::Touched(number, name)]);
        }
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

    /// Nobody deletes the znode of somebody else.
    fn check_delete(&self, session: i64, request: &Request) -> Result<(), String> {
        let Request::Delete { path, .. } = request else { return Ok(()) };
        let Some((number, Some(name))) = split(path) else { return Ok(()) };
        let Some(znode) = self.server.tree.find(number, name) else { return Ok(()) };
        match znode.owner {
            owner if owner == session => Ok(()),
            owner => Err(format!("session {session} deletes {name} of session {owner}")),
        }
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
                }
                if let Some((t, place)) = slot {
                    self.threads[t].answer(place, answer.map_err(refused));
                }
            }
            Message::Event(path, event) | Message::Missed(path, event) => {
                notes.add(|| format!("client {c}: is told {event:?} {path}"));
                let connection = client.connection;
                for owner in client.fire(&path, event) {
                    self.tell(owner, WatchEvent::Node { event, connection });
                }
            }
        }
    }

    fn tell(&mut self, owner: Owner, event: WatchEvent) {
        match owner {
            Owner::Contender(t, watch) => self.threads[t].mailbox.push_back((watch, event)),
            Owner::Holder(t, czxid) => {
                let is_end = matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. });
                let holds = self.threads[t].holds.iter_mut();
                for hold in holds.filter(|hold| is_end && hold.nodes.last().is_some_and(|node| node.czxid == czxid)) {
                    hold.is_lost = true;
                }
            }
        }
    }

    fn tell_all(&mut self, c: usize, event: &WatchEvent) {
        let owners: Vec<Owner> =
            self.clients[c].watches.iter().filter(|watch| watch.is_armed).map(|watch| watch.owner).collect();
        for owner in owners {
            self.tell(owner, event.clone());
        }
    }

    /// The requests come to nothing, as far as their senders know.
    fn fail_all(&mut self, slots: Vec<Option<Slot>>, maybe_done: bool) {
        for (t, place) in slots.into_iter().flatten() {
            self.threads[t].answer(place, Err(connection_lost(maybe_done)));
        }
    }

    fn cut(&mut self, c: usize) {
        let lost = self.clients[c].cut();
        self.fail_all(lost, true);
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
        self.fail_all(unsent, false);
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

    /// The background takes the next step of its first job.
    fn clean(&mut self, c: usize, notes: &mut Notes) -> Result<(), String> {
        self.clients[c].catch_up_wholly();
        let Some((session, number)) = self.clients[c].jobs.front().map(|job| (job.session, job.directory)) else {
            return Ok(());
        };
        let mut changes = Vec::new();
        for name in self.clients[c].clean(&self.server.tree) {
            notes.add(|| format!("client {c}: cleans up {name}"));
            let path = format!("{}/{name}", DIRECTORIES[number]);
            self.check_delete(session, &Request::Delete { path, version: 0 })?;
            self.server.delete(number, &name, &mut changes);
        }
        self.spread(&changes);
        Ok(())
    }
}
