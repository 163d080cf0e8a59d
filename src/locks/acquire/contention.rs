//! The input of an acquire, and its contender with its watches, its holds and its mailbox.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::{
    base::paths::ServerPath,
    error::{Error, Result},
    framework::{
        client::{call::Call, core::CuratorFramework},
        held::node::{HeldNode, HeldZnode, RevocableNode, Znode},
        znodes::create::protection,
    },
    locks::{
        acquire::{internals::LockInternals, limit::Limit, owners::Owners, release::QueueHead},
        options::wait::Wait,
        recipe::{
            machine::Contender,
            spec::{Answer, Ask, Do, Environment, Failed, Input, Leftover, Reaction, Spec, View, WatchId, is_end},
        },
    },
    proto::{
        request::Request,
        response::Response,
        types::{CreateMode, ErrorCode},
    },
    session::{
        api::{Session, WatchEvent, Watcher},
        wait::pending::{Pending, Watch, submit},
    },
};

/// One acquire: its lock, what kind of contender it needs, and how long it waits.
pub(crate) struct Acquire<'a> {
    pub(crate) lock: &'a LockInternals,
    pub(crate) spec: Spec,
    pub(crate) wait: Wait<'a>,
    /// How many leases there are; `None`: one.
    pub(crate) limit: Option<&'a Limit>,
    /// Semaphores: the head of the wait queue, without which it may not wait.
    pub(crate) place: Option<QueueHead<'a>>,
    /// The threads of this process that hold the lock, where it belongs to a thread.
    pub(crate) owners: Option<&'a Owners>,
    /// The thread that queues for others, where the znode serves many threads.
    pub(crate) delegate: Option<&'a dyn Delegate>,
    /// Called after each step, where a candidate queues and nobody waits for the return. It must not block.
    pub(crate) on_step: Option<&'a OnStep<'a>>,
}

/// Sees the contender after a step, and what it wants next.
pub(crate) type OnStep<'a> = dyn Fn(&Contender, &Do<Error>) + 'a;

/// The thread that queues at the servers for many threads of its process.
pub(crate) trait Delegate {
    /// Whether its znode may stay while nobody holds it.
    fn stays_idle(&self) -> bool;

    /// Notes that the create is on its way, or was carried out.
    fn created(&self);

    /// The listener of requests to give the znode back.
    fn revocable_node(&self) -> Arc<RevocableNode>;

    /// Takes over the contender that an earlier thread has left in the queue, if there is one.
    fn take_over(&self) -> Option<Contention>;

    /// Hands the contender over to the next thread that waits. Returns it if no thread waits.
    fn hand_over(&self, contender: Contention) -> Option<Contention>;
}

/// A contender with its watches and its holds.
#[derive(Default)]
pub(crate) struct Contention {
    pub(super) contender: Contender,
    /// The session that was connected last.
    pub(super) session: Option<Arc<dyn Session>>,
    /// The session in which the last creates were sent: it owns the znodes.
    owner: Option<Arc<dyn Session>>,
    /// The watches that were asked for with the last requests.
    asked: Vec<Option<WatchId>>,
    watches: Vec<(WatchId, Watch)>,
    held: Vec<Arc<HeldNode>>,
    /// The receiver of the own znode's events: the waiter, later the hold.
    target: Option<Arc<Mutex<OwnWatchTarget>>>,
    /// The listener of requests to give the lock back; a waiter can be asked, too.
    revocable: Option<Arc<RevocableNode>>,
    /// The wake-ups of the contender: made when it first has to wait, before the watches are sent for, so that no event
    /// is lost.
    mailbox: Option<(Sender<Mail>, Receiver<Mail>)>,
    /// When the wake-up that was read last came.
    told: Option<Instant>,
}

/// A wake-up of a contender, and when it came.
type Mail = (Input<Error>, Instant);

/// The watches, holds and znodes to clear away, under no lock.
#[must_use = "znodes and watches stay otherwise"]
pub(super) struct Leftovers {
    watches: Vec<(WatchId, Watch)>,
    pub(super) held: Vec<Arc<HeldNode>>,
    leftovers: Vec<Leftover>,
    owner: Option<Arc<dyn Session>>,
}

impl Contention {
    /// `revocable`: the listener of requests to give the lock back.
    pub(super) fn new(revocable: Option<Arc<RevocableNode>>) -> Contention {
        Contention { revocable, ..Contention::default() }
    }

    fn mailbox(&mut self) -> &(Sender<Mail>, Receiver<Mail>) {
        self.mailbox.get_or_insert_with(unbounded)
    }

    /// Puts inputs into the mailbox. The contender may have gone.
    pub(super) fn sender(&mut self) -> impl Fn(Input<Error>) + Send + Sync + 'static + use<> {
        let sender = self.mailbox().0.clone();
        move |input| drop(sender.send((input, Instant::now())))
    }

    pub(super) fn inputs(&mut self) -> &Receiver<Mail> {
        &self.mailbox().1
    }

    pub(super) fn step(&mut self, acquire: &Acquire<'_>, mut input: Input<Error>) -> (Do<Error>, Leftovers) {
        if let Input::Answers(answers) = &mut input {
            answers.iter_mut().for_each(|answer| unpack(acquire.lock, answer));
            self.answered(answers);
        }
        let view = view_of(self.session.as_ref(), acquire.wait.is_over());
        let contender = &mut self.contender;
        let surroundings = ProcessEnvironment { acquire, session: self.session.as_ref() };
        let next = contender.step(&acquire.spec, &surroundings, &view, input);
        let leftovers = contender.take_discarded();
        let watches = self.watches.extract_if(.., |(watch, _)| !contender.wants(*watch)).collect();
        let held = if contender.is_held { Vec::new() } else { std::mem::take(&mut self.held) };
        (next, Leftovers { watches, held, leftovers, owner: self.owner.clone() })
    }

    /// Notes that requests are about to be sent. Returns the session to send them in.
    pub(super) fn sends(&mut self, ask: &Ask) -> Option<Arc<dyn Session>> {
        if ask.iter().any(|(request, _)| is_creation(request)) {
            self.owner.clone_from(&self.session);
        }
        self.asked = ask.iter().map(|(_, watch)| *watch).collect();
        self.session.clone()
    }

    /// Takes over the watches that the sent requests leave.
    pub(super) fn sent(&mut self, sent: &mut [(Pending, Option<Watch>)]) {
        let left = self.asked.iter().zip(sent).filter_map(|(id, (_, watch))| Some(((*id)?, watch.take()?)));
        self.watches.extend(left);
    }

    /// Takes a wake-up's input, and notes when it came.
    pub(super) fn read(&mut self, (input, at): Mail) -> Input<Error> {
        self.told = Some(at);
        input
    }

    /// `tell` is called with what the watch reports, and must not block.
    pub(super) fn watcher(&mut self, id: WatchId, tell: impl Fn(Input<Error>) + Send + Sync + 'static) -> Watcher {
        let tell = move |event: &WatchEvent| tell(Input::Event(id, event.clone()));
        match id {
            WatchId::Own(_) => {
                let target = Arc::new(Mutex::new(OwnWatchTarget::Waiter(Box::new(tell))));
                self.target = Some(target.clone());
                own_watcher(target)
            }
            _ => Arc::new(tell),
        }
    }

    fn answered(&mut self, answers: &[Answer<Error>]) {
        for (id, answer) in std::mem::take(&mut self.asked).into_iter().zip(answers) {
            if let (Some(WatchId::Own(_)), Ok(Response::Data { data, stat })) = (id, answer)
                && let Some(revocable) = &self.revocable
            {
                revocable.read(data, stat);
            }
        }
    }

    /// The own znodes become holds, and the watch on them the holder's.
    pub(super) fn hold(&mut self, acquire: &Acquire<'_>) -> Input<Error> {
        let Acquire { lock, spec, .. } = acquire;
        let own = self.watches.iter().position(|(id, _)| matches!(id, WatchId::Own(_)));
        let mut watch = own.map(|index| self.watches.swap_remove(index).1);
        let is_watched = watch.is_some();
        for (node, session) in self.contender.nodes.iter().zip(self.session.iter().cycle()) {
            let (token, grant) = spec.companion.as_ref().map_or((node.czxid, 0), |of| (of.token, of.grant));
            let (path, has_waited) = (lock.child(&node.name), self.contender.has_waited);
            let is_place = lock.recipe.is_queue;
            let znode = Znode { path, czxid: node.czxid, token, grant, has_waited, is_place };
            let (registry, over) = (&lock.client().core.held, self.contender.seen_over);
            // Each of several holds is told of the requests for its own znode.
            let each = |one: &Arc<RevocableNode>| RevocableNode::new(one.revocation().clone());
            let revocable = if spec.count > 1 { self.revocable.as_ref().map(each) } else { self.revocable.clone() };
            self.held.push(registry.add_znode(znode, session.clone(), over, watch.take(), revocable));
        }
        self.remember(lock, spec);
        let is_deleted = self.held.last().filter(|_| is_watched).is_some_and(|held| self.hand_over(held));
        Input::Held { is_deleted }
    }

    /// From here on the hold gets the events of its own znode. `true`: one from before, in the mailbox, is the znode's
    /// end.
    fn hand_over(&self, held: &Arc<HeldNode>) -> bool {
        let (Some(target), Some((_, mailbox))) = (&self.target, &self.mailbox) else { return false };
        let before = std::mem::replace(&mut *target.lock(), OwnWatchTarget::Holder(Arc::downgrade(held.znode())));
        drop(before);
        let of_own = mailbox.try_iter().filter_map(|(input, _)| match input {
            Input::Event(id, event) if self.contender.own_watch() == Some(id) => Some(event),
            _ => None,
        });
        let (ends, others): (Vec<WatchEvent>, Vec<WatchEvent>) = of_own.partition(is_end);
        // A change of the data has used the watch up.
        others.iter().for_each(|event| held.znode().watched(event));
        !ends.is_empty()
    }

    /// Notes the grant for the contenders that come later.
    fn remember(&self, lock: &LockInternals, spec: &Spec) {
        let [node] = &self.contender.nodes[..] else { return };
        // Only for one that has waited: a contender that queued behind one that has not saw in its own list that this
        // one is first.
        if self.contender.has_waited && spec.driver.successor_follows_holder() {
            lock.client().core.grants.add(&lock.child(&node.name));
        }
    }

    /// A doze is over. By now the watch on the own znode reports to the hold.
    pub(super) fn dozed(&self) -> Input<Error> {
        let is_lost = self.held.iter().any(|held| held.lost().is_some());
        if is_lost { Input::Held { is_deleted: true } } else { Input::Woken }
    }

    pub(super) fn held(&self) -> &[Arc<HeldNode>] {
        &self.held
    }

    /// The lock is granted.
    pub(super) fn take_held(&mut self) -> Vec<Arc<HeldNode>> {
        // The last look may have gone over another connection than the first.
        self.held.iter().for_each(|held| held.znode().seen_again(self.contender.seen_over));
        let counters = self.held.first().and_then(|held| held.counters());
        if let Some((told, counters)) = self.told.zip(counters) {
            counters.hand_overs.record(told.elapsed());
        }
        std::mem::take(&mut self.held)
    }

    /// Takes the contender out of the queue, in the background.
    pub(crate) fn withdraw(mut self, lock: &LockInternals) {
        self.take_leftovers().clear_away(lock);
    }

    /// All that has to be cleared away if the acquire takes no further step.
    pub(super) fn take_leftovers(&mut self) -> Leftovers {
        let (watches, held) = (std::mem::take(&mut self.watches), std::mem::take(&mut self.held));
        Leftovers { watches, held, leftovers: self.contender.leftovers(), owner: self.owner.clone() }
    }
}

impl Leftovers {
    /// Deletes the znodes, waiting no longer than the call lasts. Znodes that are not known to be gone stay.
    pub(super) fn delete_nodes(&mut self, call: &Call<'_>, lock: &LockInternals) {
        let Some(owner) = self.owner.as_ref().filter(|owner| owner.connection() != 0) else { return };
        let delete = |leftover: &Leftover| match leftover {
            Leftover::Node(node) => Some(Request::Delete { path: lock.child(&node.name).into_string(), version: -1 }),
            Leftover::Doubt(_) => None,
        };
        let requests: Vec<_> = self.leftovers.iter().filter_map(delete).map(|request| (request, None)).collect();
        if requests.is_empty() {
            return;
        }
        let mut sent = submit(owner, requests);
        call.await_last(&mut sent);
        let mut replies = sent.into_iter().map(|(pending, _)| call.reply(pending));
        let is_gone = |reply: Result<Response>| reply.map_or_else(|error| error.is_no_node(), |_| true);
        self.leftovers.retain(|leftover| match leftover {
            Leftover::Node(_) => !replies.next().is_some_and(is_gone),
            Leftover::Doubt(_) => true,
        });
    }

    pub(super) fn clear_away(self, lock: &LockInternals) {
        // First the watches: after the deletes the server may be asked for nothing more.
        drop(self.watches);
        for held in self.held {
            lock.client().core.held.remove(&held);
        }
        for (leftover, owner) in self.leftovers.into_iter().zip(self.owner.iter().cycle()) {
            lock.clean_up(owner, leftover);
        }
    }
}

/// The receiver of the events of a contender's own znode.
enum OwnWatchTarget {
    Waiter(Box<dyn Fn(&WatchEvent) + Send + Sync>),
    Holder(Weak<HeldZnode>),
}

fn own_watcher(target: Arc<Mutex<OwnWatchTarget>>) -> Watcher {
    Arc::new(move |event: &WatchEvent| {
        let target = target.lock();
        match &*target {
            // Told under the lock, so that no event comes after the waiter's last look into its mailbox. That is no
            // deadlock: telling only wakes the waiter.
            OwnWatchTarget::Waiter(tell) => tell(event),
            OwnWatchTarget::Holder(held) => {
                let held = held.upgrade();
                drop(target);
                if let Some(held) = held {
                    held.watched(event);
                }
            }
        }
    })
}

/// The environment of a contender in this process.
struct ProcessEnvironment<'a> {
    acquire: &'a Acquire<'a>,
    session: Option<&'a Arc<dyn Session>>,
}

impl Environment<Error> for ProcessEnvironment<'_> {
    fn unique(&self) -> String {
        if let Some(unique) = self.acquire.lock.recipe.unique {
            return unique(self.session.map_or(0, |session| session.id()));
        }
        // The prefix tells other clients of which znodes they cannot know whether somebody holds by them.
        let stays_idle = self.acquire.delegate.is_some_and(Delegate::stays_idle);
        protection(stays_idle && self.session.is_some_and(|session| session.tells_in_order()))
    }

    fn max_leases(&self) -> usize {
        self.acquire.limit.map_or(1, Limit::current)
    }

    fn lists_with_create(&self) -> bool {
        let lock = self.acquire.lock;
        // The server is slow to answer creates. A list with each create would make it slower, as lists grow with every
        // znode left in doubt; a contender that gets its znode in time asks for the list then.
        !lock.client().core.cleanup.is_searching(lock.directory())
    }

    fn was_granted_here(&self, name: &str) -> bool {
        self.acquire.lock.client().core.grants.contains(&self.acquire.lock.child(name))
    }

    fn node_gone(&self) -> Error {
        self.acquire.lock.node_gone()
    }
}

/// A contender's view of its session. The clock comes last: the values that it is compared with can only be older.
fn view_of(session: Option<&Arc<dyn Session>>, is_time_up: bool) -> View {
    let (session, connection, valid_until, timeout, is_ended) = match session {
        None => (0, 0, None, Duration::ZERO, false),
        Some(session) => {
            (session.id(), session.connection(), session.valid_until(), session.timeout(), session.is_ended())
        }
    };
    View { is_time_up, session, connection, valid_until, timeout, is_ended, now: Instant::now() }
}

/// `over`: the reaction instead of another attempt, where the call has ended.
pub(super) fn failed(error: Error, maybe_done: bool, over: Option<Reaction>) -> Failed<Error> {
    let reaction = if error.is_retryable() { over.unwrap_or(Reaction::Retry) } else { Reaction::Final };
    Failed { code: error.code(), maybe_done, reaction, error }
}

/// Whether a request makes a znode of the contender's own.
pub(super) fn is_creation(request: &Request) -> bool {
    matches!(request, Request::Create { .. } | Request::Multi(_))
}

/// A transaction's answer is that of its last operation, or the error of the one that made all of it fail.
fn unpack(lock: &LockInternals, answer: &mut Answer<Error>) {
    let Ok(Response::Multi(results)) = answer else { return };
    let cause = results.iter().find_map(|result| result.as_ref().err().copied().flatten());
    *answer = match (cause, results.pop()) {
        (None, Some(Ok(last))) => Ok(last),
        (cause, _) => {
            let (code, path) = (cause.unwrap_or(ErrorCode::RuntimeInconsistency), lock.base_path().to_owned());
            Err(failed(Error::Server { code, operation: "acquire", path }, false, None))
        }
    };
}

/// Adds the access control list that the caller's provider names.
pub(in crate::locks) fn with_acl(client: &CuratorFramework, mut request: Request) -> Request {
    match &mut request {
        Request::Create { path, acl, .. } => *acl = client.leaf_acl(&ServerPath::from_server(path.as_str())),
        Request::Multi(steps) => {
            *steps = std::mem::take(steps).into_iter().map(|step| step_with_acl(client, step)).collect();
        }
        _ => {}
    }
    request
}

/// The directory that a transaction makes anew is made as the client makes directories.
fn step_with_acl(client: &CuratorFramework, step: Request) -> Request {
    match &step {
        Request::Create { path, mode: CreateMode::Container, .. } => {
            client.parent_creation(&ServerPath::from_server(path.as_str()), true)
        }
        _ => with_acl(client, step),
    }
}
