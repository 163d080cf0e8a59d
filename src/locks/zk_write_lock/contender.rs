//! A place in the queue that is kept without a thread that waits.

mod steps;

use std::{
    fmt,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::{LockListener, ZNodeName};
use crate::{
    Error, LockInternals, Result,
    framework::{Claim, Created, Creation, Follower, HeldNode},
    locks::driver::is_exhausted,
    proto::{CreateMode, Stat},
    session::{Stop, Watch},
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

/// One object that wants the lock. Nothing here waits: each step sends a request, and the reply, which comes on the
/// thread that reads for the session, makes the next step on the client's own thread.
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
            vacancy: None,
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
