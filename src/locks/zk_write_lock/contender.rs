//! A place in the queue that is kept without a thread that waits.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Instant,
};

use parking_lot::Mutex;

use super::{LockListener, ZNodeName};
use crate::{
    Error, HoldState, LockInternals, Result,
    framework::{Claim, Created, Creation, Follower, HeldNode},
    locks::driver::is_exhausted,
    proto::{CreateMode, ErrorCode, Request, Response, Stat},
    session::{Reply, Session, SessionError, Stop, Submission, Ticket, Watch, WatchEvent, Watcher},
};

/// What ZooKeeper's own recipe puts into its znodes.
pub(super) const DATA: [u8; 2] = [0x12, 0x34];

/// What a znode's name begins with: as in ZooKeeper's own recipe, `x-<session id>-`, and then an id of the attempt. By
/// the session alone two objects of one session could not tell their znodes apart after a lost reply.
fn unique_name(session_id: i64) -> String {
    format!("x-{session_id}-{}-", uuid::Uuid::new_v4())
}

/// Where the lock stands. Each change of it counts the round up, so that a reply from before is known as such.
enum Stage {
    /// It has no znode.
    Absent,
    /// The create of its znode is under way.
    Creating,
    /// Its znode stands in the queue.
    Queued(Box<Place>),
    Owner(Arc<HeldNode>),
}

struct Place {
    claim: Claim,
    stat: Stat,
    name: ZNodeName,
    predecessor: Option<Predecessor>,
    /// A look at the queue is under way.
    is_looking: bool,
    /// Something happened during that look.
    look_again: bool,
    /// The queue was read a second time, because the session was in doubt after the first.
    is_second_look: bool,
}

struct Predecessor {
    name: ZNodeName,
    #[allow(dead_code, reason = "dropping it gives the watch up")]
    watch: Option<Watch>,
}

struct State {
    is_wanted: bool,
    is_closed: bool,
    round: u64,
    stage: Stage,
    listener: Option<Arc<dyn LockListener>>,
}

impl State {
    /// What was there before is handed out, to be dropped outside of the lock.
    fn enter(&mut self, stage: Stage) -> Stage {
        self.round += 1;
        std::mem::replace(&mut self.stage, stage)
    }

    fn place(&mut self, round: u64) -> Option<&mut Place> {
        match &mut self.stage {
            Stage::Queued(place) if self.round == round => Some(place),
            _ => None,
        }
    }
}

/// What a look at the queue leads to.
enum Step {
    /// Nothing to do until something happens.
    Rest,
    Look,
    Watch(ZNodeName),
    /// Start again, from whatever stage.
    GoOn,
}

/// One object that wants the lock. Nothing here waits: each step sends a request, and the reply, which comes on the
/// session's reader thread, makes the next step on the client's own thread.
///
/// No step can be lost: every request is answered, if only with the end of the connection; every new connection, and
/// the periodic re-check, wake it ([`Follower`]) to look again at whatever it had reached.
pub(super) struct Contender {
    this: Weak<Contender>,
    lock: LockInternals,
    state: Mutex<State>,
}

impl Contender {
    pub(super) fn new(lock: LockInternals, listener: Option<Arc<dyn LockListener>>) -> Arc<Contender> {
        let stage = Stage::Absent;
        let state = Mutex::new(State { is_wanted: false, is_closed: false, round: 0, stage, listener });
        let contender = Arc::new_cyclic(|this: &Weak<Contender>| Contender { this: this.clone(), lock, state });
        let follower: Weak<dyn Follower> = contender.this.clone();
        contender.lock.client().core.followers.add(follower);
        contender
    }

    pub(super) fn lock_internals(&self) -> &LockInternals {
        &self.lock
    }

    pub(super) fn set_listener(&self, listener: Option<Arc<dyn LockListener>>) {
        let before = std::mem::replace(&mut self.state.lock().listener, listener);
        // The caller's code: not under the lock.
        drop(before);
    }

    /// Queues, unless it does already. `true` if the lock is its own.
    pub(super) fn lock(self: &Arc<Self>) -> Result<bool> {
        self.lock.client().core.check_open()?;
        let round = {
            let mut state = self.state.lock();
            if state.is_closed {
                return Ok(false);
            }
            if state.is_wanted {
                drop(state);
                return Ok(self.is_owner());
            }
            state.is_wanted = true;
            state.enter(Stage::Creating);
            state.round
        };
        let created = self.create();
        let created = match created {
            Ok(created) => created,
            Err(error) => {
                let mut state = self.state.lock();
                if state.round == round {
                    state.is_wanted = false;
                    state.enter(Stage::Absent);
                }
                return Err(error);
            }
        };
        let Created { stat, claim, listing } = created;
        let Some(round) = self.queue(round, claim, stat, listing.is_some()) else { return Ok(false) };
        match listing {
            Some(listing) => self.listed(round, listing.connection, &listing.children),
            None => self.go_on(),
        }
        Ok(self.is_owner())
    }

    fn create(&self) -> Result<Created> {
        let client = self.lock.client();
        let call = client.call("lock", self.lock.base_path(), Stop::default());
        let creation = Creation {
            client,
            parent: self.lock.directory().clone(),
            unique: unique_name,
            name: "",
            data: &DATA,
            mode: CreateMode::EphemeralSequential,
            acl: None,
            make_parents: false,
            list: true,
        };
        let mut retries = 0;
        let created = loop {
            match creation.run(&call) {
                Err(error) if error.is_no_node() => {
                    self.make_directory()?;
                    // Somebody may remove it again and again.
                    if retries > 0 {
                        call.allow_retry(&mut retries, error)?;
                    }
                    retries = retries.max(1);
                }
                result => break result?,
            }
        };
        let number = created.claim.path().and_then(|path| ZNodeName::new(path.name()).sequence());
        match number.map(i64::from) {
            Some(number) if is_exhausted(number) => {
                Err(Error::SequenceExhausted { path: self.lock.base_path().to_owned(), number })
            }
            _ => Ok(created),
        }
    }

    /// Persistent, as in ZooKeeper's own recipe; what is missing above it is made as the client makes parents.
    fn make_directory(&self) -> Result<()> {
        let create = self.lock.client().create().creating_parents_if_needed().with_mode(CreateMode::Persistent);
        match create.for_path_and_data(self.lock.base_path(), Vec::new()) {
            Err(error) if error.is_node_exists() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Gives the lock, or the place in the queue, back, and does not ask for it again.
    pub(super) fn unlock(&self) -> Result<()> {
        match self.leave() {
            Stage::Absent | Stage::Creating => Ok(()),
            Stage::Queued(place) => {
                let Place { claim, predecessor, .. } = *place;
                drop(predecessor);
                self.lock.withdraw(claim);
                Ok(())
            }
            Stage::Owner(held) => {
                let (result, job) = self.lock.release(&held);
                if let Some(job) = job {
                    self.lock.client().core.clean_up(job);
                }
                result
            }
        }
    }

    pub(super) fn close(&self) -> Result<()> {
        self.state.lock().is_closed = true;
        self.unlock()
    }

    /// The object is gone: leaves without waiting.
    pub(super) fn abandon(&self) {
        self.state.lock().is_closed = true;
        // A place in the queue is given up by dropping it.
        if let Stage::Owner(held) = self.leave() {
            self.lock.release_in_background(&held);
        }
    }

    fn leave(&self) -> Stage {
        let mut state = self.state.lock();
        state.is_wanted = false;
        let stage = state.enter(Stage::Absent);
        if matches!(stage, Stage::Owner(_)) {
            self.tell(&state, LockListener::lock_released);
        }
        stage
    }

    /// Calls the listener on the dispatch thread. Handing over under the lock keeps the order of the changes.
    fn tell(&self, state: &State, what: fn(&(dyn LockListener + 'static))) {
        if let Some(listener) = state.listener.clone() {
            self.lock.client().core.dispatcher.run(move || what(&*listener));
        }
    }

    pub(super) fn is_owner(&self) -> bool {
        let held = match &self.state.lock().stage {
            Stage::Owner(held) => held.clone(),
            _ => return false,
        };
        held.is_certain()
    }

    pub(super) fn held(&self) -> Option<Arc<HeldNode>> {
        match &self.state.lock().stage {
            Stage::Owner(held) => Some(held.clone()),
            _ => None,
        }
    }

    /// The path of its znode, as the caller sees it.
    pub(super) fn id(&self) -> Option<String> {
        let path = match &self.state.lock().stage {
            Stage::Queued(place) => place.claim.path()?.as_str().to_owned(),
            Stage::Owner(held) => held.path().as_str().to_owned(),
            Stage::Absent | Stage::Creating => return None,
        };
        Some(self.lock.client().prefix.to_client(&path))
    }

    /// Makes the next step, if none is under way.
    fn go_on(self: &Arc<Self>) {
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
        let claim = Claim::new(client, session, directory, &prefix);
        let request = Request::Create {
            acl: client.leaf_acl(&path),
            path: path.into_string(),
            data: DATA.to_vec(),
            mode: CreateMode::EphemeralSequential,
            with_stat: true,
        };
        self.send(session, request, None, move |this, reply| this.created(round, claim, reply));
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
        let (client, directory) = (self.lock.client(), self.lock.directory());
        let mut chain: Vec<_> = directory.ancestors().collect();
        chain.push(directory.clone());
        let last = chain.len().saturating_sub(1);
        for (index, path) in chain.into_iter().enumerate() {
            let acl = client.leaf_acl(&path);
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
    fn queue(&self, round: u64, claim: Claim, stat: Stat, is_looking: bool) -> Option<u64> {
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
    fn listed(self: &Arc<Self>, round: u64, connection: u64, children: &[String]) {
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
            } else if place.is_second_look || place.is_certain(connection) {
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
                this.lost(&held);
            }
        }));
        // What was told before there was anybody to listen.
        if held.lost().is_some() {
            self.lost(&held);
        }
    }

    fn lost(self: &Arc<Self>, held: &Arc<HeldNode>) {
        {
            let mut state = self.state.lock();
            if !matches!(&state.stage, Stage::Owner(owned) if Arc::ptr_eq(owned, held)) {
                return;
            }
            state.enter(Stage::Absent);
            self.tell(&state, LockListener::lock_released);
        }
        self.lock.client().core.held.remove(held);
        let this = self.clone();
        self.lock.client().core.run_in_background(move || this.go_on());
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

    /// Whether the servers cannot have expired the session yet, after a listing over this connection.
    fn is_certain(&self, connection: u64) -> bool {
        let session = self.claim.session();
        connection != 0
            && session.connection() == connection
            && session.valid_until().is_some_and(|at| Instant::now() < at)
    }
}

impl Follower for Contender {
    fn wake(self: Arc<Self>) {
        self.go_on();
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("dir", &self.lock.base_path()).finish_non_exhaustive()
    }
}
