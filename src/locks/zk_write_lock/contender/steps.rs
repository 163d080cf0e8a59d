//! The steps of a contender that nobody waits for: create, read the queue, watch, be granted, begin anew.

use std::sync::Arc;

use super::{Contender, DATA, Place, Predecessor, Stage, unique_name};
use crate::{
    Error, HoldState,
    framework::{Claim, HeldNode, caught},
    locks::{
        driver::is_exhausted,
        wait::is_certain,
        zk_write_lock::{LockListener, ZNodeName},
    },
    paths::ServerPath,
    proto::{Acl, CreateMode, ErrorCode, Request, Response, Stat},
    session::{Reply, Session, SessionError, Submission, Ticket, Watch, WatchEvent, Watcher},
};

/// What a look at the queue leads to.
enum Step {
    /// Nothing to do until something happens.
    Rest,
    Look,
    Watch(ZNodeName),
    /// Start again, from whatever stage.
    GoOn,
}

impl Contender {
    /// Makes the next step, if none is under way.
    pub(super) fn go_on(self: &Arc<Self>) {
        let current = self.lock.client().core.current_session().filter(|session| !session.is_ended());
        let mut state = self.state.lock();
        if !state.is_wanted {
            return;
        }
        let has_ended = matches!(&state.stage, Stage::Queued(place) if place.claim.session().is_ended());
        let before = has_ended.then(|| state.enter(Stage::Absent));
        let mut next = None;
        match &mut state.stage {
            Stage::Absent => next = current,
            Stage::Queued(place) if place.is_looking => place.look_again = true,
            Stage::Queued(place) => {
                place.is_looking = true;
                next = Some(place.claim.session().clone());
            }
            Stage::Creating | Stage::Owner(_) => {}
        }
        let creates = matches!(state.stage, Stage::Absent);
        if creates && next.is_some() {
            state.enter(Stage::Creating);
        }
        let round = state.round;
        drop(state);
        // It may have to tell the server of a watch: not under the lock.
        drop(before);
        match next {
            Some(session) if creates => self.send_create(round, &session),
            Some(session) => self.send_list(round, &session),
            None => {}
        }
    }

    /// Sends a request; the reply is handled on the client's own thread.
    fn send(
        self: &Arc<Self>,
        session: &Arc<dyn Session>,
        request: Request,
        watcher: Option<Watcher>,
        handle: impl FnOnce(&Arc<Contender>, Reply) + Send + 'static,
    ) -> Ticket {
        let this = self.clone();
        let on_reply = Box::new(move |reply: Reply| {
            let core = this.lock.client().core.clone();
            core.run_in_background(move || handle(&this, reply));
        });
        let tickets = session.submit(vec![Submission { request, watcher, on_reply }]);
        tickets.first().copied().unwrap_or(Ticket(0))
    }

    fn send_create(self: &Arc<Self>, round: u64, session: &Arc<dyn Session>) {
        let (client, directory) = (self.lock.client(), self.lock.directory());
        let prefix = unique_name(session.id());
        let path = directory.join(&prefix);
        let Some(acl) = self.acl(&path) else { return self.absent(round, session, false) };
        let claim = Claim::new(client, session, directory, &prefix);
        let request = Request::Create {
            acl,
            path: path.into_string(),
            data: DATA.to_vec(),
            mode: CreateMode::EphemeralSequential,
            with_stat: true,
        };
        self.send(session, request, None, move |this, reply| this.created(round, claim, reply));
    }

    /// The provider is the caller's, and asked on the client's own thread. `None`: it panicked.
    fn acl(&self, path: &ServerPath) -> Option<Vec<Acl>> {
        caught("the ACL provider", || self.lock.client().leaf_acl(path))
    }

    /// In every case but success the claim is dropped or settled: whatever may have been made is deleted in the background.
    fn created(self: &Arc<Self>, round: u64, mut claim: Claim, reply: Reply) {
        let session = claim.session().clone();
        match reply {
            Ok(Response::Created { path, stat: Some(stat) }) => {
                claim.created(&path);
                let name = claim.path().map(|path| ZNodeName::new(path.name()));
                if let Some(number) = name.and_then(|name| name.sequence()).map(i64::from).filter(|n| is_exhausted(*n))
                {
                    let path = self.lock.base_path().to_owned();
                    log::error!("the lock is given up: {}", Error::SequenceExhausted { path, number });
                    let mut state = self.state.lock();
                    if state.round == round {
                        state.is_wanted = false;
                        state.enter(Stage::Absent);
                    }
                    return;
                }
                if self.queue(round, claim, stat, false).is_some() {
                    self.go_on();
                }
            }
            Err(SessionError::Server(ErrorCode::NoNode)) => {
                claim.keep();
                self.remake_directory(round, &session);
            }
            reply => {
                if let Err(SessionError::Server(code)) = &reply {
                    log::error!("{}: cannot queue again: {code}", self.lock.base_path());
                }
                let is_server = matches!(reply, Err(SessionError::Server(_)));
                drop(claim);
                self.absent(round, &session, !is_server);
            }
        }
    }

    /// Somebody removed the directory while this object was in the queue.
    fn remake_directory(self: &Arc<Self>, round: u64, session: &Arc<dyn Session>) {
        let directory = self.lock.directory();
        let mut chain: Vec<_> = directory.ancestors().collect();
        chain.push(directory.clone());
        let last = chain.len().saturating_sub(1);
        for (index, path) in chain.into_iter().enumerate() {
            let Some(acl) = self.acl(&path) else { return self.absent(round, session, false) };
            let (mode, data) = (CreateMode::Persistent, Vec::new());
            let request = Request::Create { path: path.into_string(), data, acl, mode, with_stat: false };
            let of_session = session.clone();
            self.send(session, request, None, move |this, reply| {
                if index == last {
                    let made = matches!(reply, Ok(_) | Err(SessionError::Server(ErrorCode::NodeExists)));
                    this.absent(round, &of_session, made);
                }
            });
        }
    }

    /// A create came to nothing. It begins anew at once if that makes sense, else with the next connection.
    fn absent(self: &Arc<Self>, round: u64, session: &Arc<dyn Session>, at_once: bool) {
        {
            let mut state = self.state.lock();
            if state.round != round {
                return;
            }
            state.enter(Stage::Absent);
        }
        if at_once && (session.is_ended() || session.connection() != 0) {
            self.go_on();
        }
    }

    /// The znode stands in the queue. `None`: nobody wants it any more, and it is deleted in the background.
    pub(super) fn queue(&self, round: u64, claim: Claim, stat: Stat, is_looking: bool) -> Option<u64> {
        let name = ZNodeName::new(claim.path().map(|path| path.name().to_owned()).unwrap_or_default());
        let place =
            Place { claim, stat, name, predecessor: None, is_looking, look_again: false, is_second_look: false };
        let mut state = self.state.lock();
        if state.round != round || !state.is_wanted {
            drop(state);
            drop(place);
            return None;
        }
        state.enter(Stage::Queued(Box::new(place)));
        Some(state.round)
    }

    fn send_list(self: &Arc<Self>, round: u64, session: &Arc<dyn Session>) {
        let connection = session.connection();
        self.send(session, self.lock.list_request(false), None, move |this, reply| match reply {
            Ok(Response::Children { names, .. }) => this.listed(round, connection, &names),
            Err(SessionError::Server(ErrorCode::NoNode)) => this.listed(round, connection, &[]),
            reply => this.look_failed(round, reply),
        });
    }

    /// Decides by the names of the directory's children.
    pub(super) fn listed(self: &Arc<Self>, round: u64, connection: u64, children: &[String]) {
        let mut before = None;
        let step = {
            let mut state = self.state.lock();
            let Some(place) = state.place(round) else { return };
            let names: Vec<ZNodeName> = children.iter().map(ZNodeName::new).collect();
            if !names.contains(&place.name) {
                // Somebody deleted it.
                before = Some(state.enter(Stage::Absent));
                Step::GoOn
            } else if let Some(ahead) = names.into_iter().filter(|name| *name < place.name).max() {
                place.is_second_look = false;
                match &place.predecessor {
                    Some(predecessor) if predecessor.name == ahead => place.rest(),
                    _ => Step::Watch(ahead),
                }
            } else if place.is_second_look || is_certain(place.claim.session(), connection) {
                drop(state);
                return self.grant(round, connection);
            } else {
                // A process may be paused for long between the reply and this line.
                place.is_second_look = true;
                Step::Look
            }
        };
        if let Some(Stage::Queued(place)) = before {
            place.claim.keep();
        }
        self.take(round, step);
    }

    fn take(self: &Arc<Self>, round: u64, step: Step) {
        match step {
            Step::Rest => {}
            Step::GoOn => self.go_on(),
            Step::Look => {
                let session = self.state.lock().place(round).map(|place| place.claim.session().clone());
                if let Some(session) = session {
                    self.send_list(round, &session);
                }
            }
            Step::Watch(name) => self.watch(round, name),
        }
    }

    /// Watches the predecessor. If it is gone meanwhile, that shows in the reply, and the queue is read again; in
    /// ZooKeeper's own recipe that waiter is never woken.
    fn watch(self: &Arc<Self>, round: u64, name: ZNodeName) {
        let (session, before) = {
            let mut state = self.state.lock();
            let Some(place) = state.place(round) else { return };
            (place.claim.session().clone(), place.predecessor.replace(Predecessor { name: name.clone(), watch: None }))
        };
        drop(before);
        let this = self.this.clone();
        let watched = name.clone();
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| {
            let Some(this) = this.upgrade() else { return };
            let (event, watched) = (event.clone(), watched.clone());
            let core = this.lock.client().core.clone();
            core.run_in_background(move || this.predecessor_changed(round, &watched, &event));
        });
        let path = self.lock.child(name.name()).into_string();
        let request = Request::GetData { path, watch: true };
        let ticket = self.send(&session, request, Some(watcher), move |this, reply| match reply {
            Ok(_) => {
                let step = this.state.lock().place(round).map(Place::rest);
                this.take(round, step.unwrap_or(Step::Rest));
            }
            Err(SessionError::Server(ErrorCode::NoNode)) => {
                this.forget_predecessor(round);
                this.take(round, Step::Look);
            }
            reply => {
                this.forget_predecessor(round);
                this.look_failed(round, reply);
            }
        });
        let watch = Watch::new(session, ticket);
        let mut state = self.state.lock();
        let unused = match state.place(round).and_then(|place| place.predecessor.as_mut()) {
            Some(predecessor) if predecessor.name == name => predecessor.watch.replace(watch),
            // The reply was faster, or nobody wants the lock any more.
            _ => Some(watch),
        };
        drop(state);
        drop(unused);
    }

    fn forget_predecessor(&self, round: u64) {
        let before = self.state.lock().place(round).and_then(|place| place.predecessor.take());
        // It may have to tell the server: not under the lock.
        drop(before);
    }

    fn predecessor_changed(self: &Arc<Self>, round: u64, name: &ZNodeName, event: &WatchEvent) {
        let used_up = match event {
            WatchEvent::Disconnected => return,
            WatchEvent::Reconnected { .. } => false,
            WatchEvent::Node { .. } | WatchEvent::Ended => true,
        };
        let before = self
            .state
            .lock()
            .place(round)
            .and_then(|place| place.predecessor.take_if(|predecessor| used_up && predecessor.name == *name));
        drop(before);
        self.go_on();
    }

    /// A request of a look at the queue has no answer.
    fn look_failed(self: &Arc<Self>, round: u64, reply: Reply) {
        let session = {
            let mut state = self.state.lock();
            let Some(place) = state.place(round) else { return };
            place.is_looking = false;
            place.claim.session().clone()
        };
        if let Err(SessionError::Server(code)) = reply {
            log::error!("{}: cannot read the queue: {code}", self.lock.base_path());
        } else if session.is_ended() || session.connection() != 0 {
            self.go_on();
        }
    }

    fn grant(self: &Arc<Self>, round: u64, connection: u64) {
        let held = {
            let mut state = self.state.lock();
            let Some(place) = state.place(round) else { return };
            let session = place.claim.session().clone();
            if session.is_ended() {
                drop(state);
                return self.go_on();
            }
            let Some(path) = place.claim.path().cloned() else { return };
            let held = self.lock.client().core.held.add(path, session, place.stat.czxid, connection, None);
            let place = state.enter(Stage::Owner(held.clone()));
            self.tell(&state, LockListener::lock_acquired);
            drop(state);
            if let Stage::Queued(place) = place {
                place.claim.keep();
            }
            held
        };
        let this = self.this.clone();
        let of_node = Arc::downgrade(&held);
        held.listen(Arc::new(move |state| {
            if let (HoldState::Lost(_), Some(this), Some(held)) = (state, this.upgrade(), of_node.upgrade()) {
                // On the dispatch thread already, which takes nothing new when the client is being closed.
                if let Some(listener) = this.lost(&held) {
                    listener.lock_released();
                }
            }
        }));
        // What was told before there was anybody to listen.
        if held.lost().is_some()
            && let Some(listener) = self.lost(&held)
        {
            self.lock.client().core.dispatcher.run(move || listener.lock_released());
        }
    }

    /// The owner lost the lock. Hands out whom to tell, once.
    fn lost(self: &Arc<Self>, held: &Arc<HeldNode>) -> Option<Arc<dyn LockListener>> {
        let listener = {
            let mut state = self.state.lock();
            if !matches!(&state.stage, Stage::Owner(owned) if Arc::ptr_eq(owned, held)) {
                return None;
            }
            state.enter(Stage::Absent);
            state.listener.clone()
        };
        self.lock.client().core.held.remove(held);
        let this = self.clone();
        self.lock.client().core.run_in_background(move || this.go_on());
        listener
    }
}

impl Place {
    /// The look at the queue is over.
    fn rest(&mut self) -> Step {
        if std::mem::take(&mut self.look_again) {
            return Step::Look;
        }
        self.is_looking = false;
        Step::Rest
    }
}
