//! [`Acquire`] is the input of an acquire; [`Contention`] is its contender with its watches, its holds and its mailbox.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crate::{
    base::{
        channel::{Receiver, Sender, unbounded},
        clock,
        paths::{ServerPath, name_of},
        sync::Mutex,
    },
    error::{Error, Result},
    framework::{
        client::{call::Call, core::CuratorFramework},
        held::{
            node::{HeldNode, HeldZnode, RevocableNode, Znode},
            revocation::without_request,
            waited_for::WaitedFor,
        },
        znodes::create::protection,
    },
    locks::{
        acquire::{batch::Batch, internals::LockInternals, limit::Limit, owners::Owners, release::QueueHead},
        options::acquire::Wait,
        recipe::{
            machine::Contender,
            spec::{Do, Environment, Failed, Input, Leftover, Reaction, Spec, View, WatchId},
        },
    },
    proto::{
        request::Request,
        response::Response,
        types::{CreateMode, ErrorCode},
    },
    session::{
        api::{Session, WatchEvent, Watcher},
        wait::{
            deadline::{WaitBound, WaitEnd},
            pending::{Pending, Watch, submit},
        },
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
    pub(crate) queue_head: Option<QueueHead<'a>>,
    /// The threads of this process that hold the lock, where it belongs to a thread.
    pub(crate) owners: Option<&'a Owners>,
    /// The contenders whose creates went as one transaction, of which this may be one.
    pub(crate) batch: Option<&'a Batch>,
    /// The thread that queues for others, where the znode serves many threads.
    pub(crate) delegate: Option<&'a dyn Delegate>,
    /// Called after each step with the path of the znode, if there is one, and whether the contender waits: where a candidate
    /// queues and nobody waits for the return. It must not block.
    pub(crate) on_step: Option<&'a dyn Fn(Option<ServerPath>, bool)>,
}

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

/// A wake-up's input, and the time when it came.
type TimedInput = (Input<Error>, Instant);

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
    /// The contender that was in front last, with the path that the server knows.
    pub(super) in_front: Option<WaitedFor>,
    /// The receiver of the own znode's events.
    target: Option<Arc<Mutex<OwnWatchTarget>>>,
    /// The listener of requests to give the lock back; a waiter can be asked, too.
    revocable: Option<Arc<RevocableNode>>,
    /// The contender's wake-ups. The mailbox is made when the contender first has to wait, before the watches are sent for,
    /// so that no event is lost.
    mailbox: Option<(Sender<TimedInput>, Receiver<TimedInput>)>,
    /// When the wake-up that was read last came.
    woken: Option<Instant>,
    /// A list has shown names of other kinds of locks.
    pub(super) sees_other_kinds: bool,
}

/// The receiver of the events of a contender's own znode: the waiter, later the hold.
enum OwnWatchTarget {
    Waiter(Box<dyn Fn(&WatchEvent) + Send + Sync>),
    Holder(Weak<HeldZnode>),
}

impl Contention {
    /// Makes a contention of which `revocable` is told of requests to give the lock back.
    pub(super) fn new(revocable: Option<Arc<RevocableNode>>) -> Contention {
        Contention { revocable, ..Contention::default() }
    }

    /// Puts inputs into the mailbox. The contender may have gone.
    pub(super) fn sender(&mut self) -> impl Fn(Input<Error>) + Send + Sync + 'static + use<> {
        let sender = self.mailbox.get_or_insert_with(unbounded).0.clone();
        move |input| drop(sender.send((input, clock::now())))
    }

    /// Waits for the next wake-up.
    pub(super) fn receive(&mut self, bound: WaitBound<'_>) -> std::result::Result<Input<Error>, WaitEnd> {
        let (input, at) = bound.recv(&self.mailbox.get_or_insert_with(unbounded).1)?;
        self.woken = Some(at);
        Ok(input)
    }

    /// Takes one step, and clears away what the contender does not need after it.
    pub(super) fn step(&mut self, acquire: &Acquire<'_>, mut input: Input<Error>) -> Do<Error> {
        if let Input::Answers(answers) = &mut input {
            answers.iter_mut().for_each(|answer| unpack(acquire.lock, answer));
            self.answered(acquire.lock, answers);
        }
        let is_lost = self.held.iter().any(|held| held.lost().is_some());
        let view = view_of(self.session.as_ref(), acquire.wait.is_over(), is_lost);
        let contender = &mut self.contender;
        let surroundings = ProcessEnvironment { acquire, session: self.session.as_ref() };
        let next = contender.step(&acquire.spec, &surroundings, &view, input);
        let discarded = contender.take_discarded();
        self.note_in_front(acquire.lock);
        self.clear_away(acquire.lock, acquire.owners, discarded);
        next
    }

    /// Notes the contender in front, also where it is not watched.
    fn note_in_front(&mut self, lock: &LockInternals) {
        let is_noted = |name: &str| self.in_front.as_ref().is_some_and(|noted| name_of(&noted.path) == name);
        if let Some(name) = self.contender.waits_for().filter(|name| !is_noted(name)) {
            self.in_front = Some(WaitedFor::named(lock.child(name).into_string()));
        }
    }

    /// Notes that requests are about to be sent, and whether they make znodes. Returns the session to send them in.
    pub(super) fn sends(&mut self, requests: &[(Request, Option<WatchId>)], creates: bool) -> Option<Arc<dyn Session>> {
        if creates {
            self.owner.clone_from(&self.session);
        }
        self.asked = requests.iter().map(|(_, watch)| *watch).collect();
        for (request, watch) in requests {
            if let (Request::GetData { path, .. }, Some(WatchId::Predecessor(_))) = (request, watch) {
                self.in_front = Some(WaitedFor::named(path.clone()));
            }
        }
        self.session.clone()
    }

    /// Takes over the watches that the sent requests leave.
    pub(super) fn sent(&mut self, sent: &mut [(Pending, Option<Watch>)]) {
        let left = self.asked.iter().zip(sent).filter_map(|(id, (_, watch))| Some(((*id)?, watch.take()?)));
        self.watches.extend(left);
    }

    /// Makes the watcher of a watch that is about to be sent for.
    pub(super) fn watcher(&mut self, id: WatchId) -> Watcher {
        let send = self.sender();
        let tell = move |event: &WatchEvent| send(Input::Event(id, event.clone()));
        if !matches!(id, WatchId::Own(_)) {
            return Arc::new(tell);
        }
        let target = self.target.insert(Arc::new(Mutex::new(OwnWatchTarget::Waiter(Box::new(tell))))).clone();
        Arc::new(move |event: &WatchEvent| {
            let target = target.lock();
            match &*target {
                // The waiter is told under the lock, so that no event comes after its last look into its mailbox. That is
                // no deadlock: telling only wakes the waiter.
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

    fn answered(&mut self, lock: &LockInternals, answers: &[std::result::Result<Response, Failed<Error>>]) {
        for (id, answer) in std::mem::take(&mut self.asked).into_iter().zip(answers) {
            match (id, answer) {
                (Some(WatchId::Own(_)), Ok(Response::Data { data, stat })) => {
                    self.revocable.iter().for_each(|revocable| revocable.read(data, stat));
                }
                (Some(WatchId::Predecessor(_)), Ok(Response::Data { data, stat })) => {
                    if let Some(in_front) = &mut self.in_front {
                        in_front.session = Some(stat.ephemeral_owner);
                        in_front.data = Some(without_request(data).to_vec());
                    }
                }
                (_, Ok(Response::Children { names, .. })) => {
                    self.sees_other_kinds |= lock.shows_other_kinds(names);
                }
                _ => {}
            }
        }
    }

    /// The own znodes become holds, and the watch on them the holder's. `since` is when the acquire began, `queued` the contender
    /// that was in front in a semaphore's queue.
    pub(super) fn hold(&mut self, acquire: &Acquire<'_>, since: Instant, queued: Option<&WaitedFor>) {
        let Acquire { lock, spec, .. } = acquire;
        let waited_for = self.waited_for(lock, since, queued).map(Arc::new);
        let own = self.watches.iter().position(|(id, _)| matches!(id, WatchId::Own(_)));
        let mut watch = own.map(|index| self.watches.swap_remove(index).1);
        let is_watched = watch.is_some();
        for (node, session) in self.contender.nodes.iter().zip(self.session.iter().cycle()) {
            let (token, grant) = spec.companion.as_ref().map_or((node.czxid, 0), |of| (of.token, of.grant));
            let (path, has_waited) = (lock.child(&node.name), self.contender.has_waited);
            let (waited_for, is_queue, named) = (waited_for.clone(), lock.recipe.is_queue, lock.named.clone());
            let znode = Znode { path, czxid: node.czxid, token, grant, has_waited, waited_for, is_queue, named };
            let (registry, over) = (&lock.client().core.held, self.contender.seen_over);
            // Each of several holds is told of the requests for its own znode.
            let each = |one: &Arc<RevocableNode>| RevocableNode::new(one.revocation().clone());
            let revocable = if spec.count > 1 { self.revocable.as_ref().map(each) } else { self.revocable.clone() };
            let held = registry.add_znode(znode, session.clone(), over, watch.take(), revocable);
            // A listener that hears of a request may give it back before the acquire returns. A multi lock may withdraw a member.
            held.limit(acquire.wait.options.hold_at_least.filter(|_| !acquire.wait.options.is_member), None, || ());
            self.held.push(held);
        }
        self.remember(lock, spec);
        if let Some(held) = self.held.last().filter(|_| is_watched) {
            self.hand_over(held);
        }
        for (held, owners) in self.held.iter().zip(acquire.owners.iter().cycle()) {
            owners.entered(lock, held.clone());
        }
    }

    /// The contender that was in front last. Of one in a semaphore's queue the data are known, and of a lease only the name.
    fn waited_for(&self, lock: &LockInternals, since: Instant, queued: Option<&WaitedFor>) -> Option<WaitedFor> {
        let found = queued.or(self.in_front.as_ref())?;
        let path = queued.map_or_else(|| lock.client().prefix.to_client(&found.path), |queued| queued.path.clone());
        let (session, data) = (found.session, found.data.clone());
        Some(WaitedFor { path, session, data, time: clock::since(since) })
    }

    /// Makes the hold receive the events of its own znode from here on, and those that are still in the mailbox.
    fn hand_over(&self, held: &HeldNode) {
        let (Some(target), Some((_, mailbox))) = (&self.target, &self.mailbox) else { return };
        let waiter = std::mem::replace(&mut *target.lock(), OwnWatchTarget::Holder(Arc::downgrade(held.znode())));
        drop(waiter);
        for (input, _) in mailbox.try_iter() {
            if let Input::Event(id @ WatchId::Own(_), event) = input
                && self.contender.wants(id)
            {
                held.znode().watched(&event);
            }
        }
    }

    /// Notes the grant for the contenders that come later.
    fn remember(&self, lock: &LockInternals, spec: &Spec) {
        let [node] = &self.contender.nodes[..] else { return };
        // This is noted only for one that has waited: a contender that queued behind one that has not waited saw in its
        // own list that this one is first.
        if self.contender.has_waited && spec.driver.successor_follows_holder() {
            lock.client().core.grants.add(&lock.child(&node.name));
        }
    }

    /// Takes the holds out, once the lock is granted.
    pub(super) fn take_held(&mut self) -> Vec<Arc<HeldNode>> {
        // The last look may have gone over another connection than the first.
        self.held.iter().for_each(|held| held.znode().seen_again(self.contender.seen_over));
        let counters = self.held.first().and_then(|held| held.counters());
        if let Some((woken, counters)) = self.woken.zip(counters) {
            counters.hand_overs.record(clock::since(woken));
        }
        std::mem::take(&mut self.held)
    }

    /// Takes the contender out of the queue, in the background.
    pub(crate) fn withdraw(mut self, lock: &LockInternals) {
        self.end(lock, None, None);
    }

    /// Takes the contender out of the queue, unless it was granted the lock. Waits for the deletes as long as the call
    /// lasts, and leaves the rest to the background.
    pub(super) fn end(&mut self, lock: &LockInternals, owners: Option<&Owners>, call: Option<&Call<'_>>) {
        let mut leftovers = std::mem::take(&mut self.contender).leftovers();
        if let Some(call) = call {
            self.delete_nodes(call, lock, &mut leftovers);
        }
        self.clear_away(lock, owners, leftovers);
    }

    /// Deletes the znodes, waiting no longer than the call lasts. Znodes that are not known to be gone stay.
    fn delete_nodes(&self, call: &Call<'_>, lock: &LockInternals, leftovers: &mut Vec<Leftover>) {
        let Some(owner) = self.owner.as_ref().filter(|owner| owner.connection() != 0) else { return };
        let delete = |leftover: &Leftover| match leftover {
            Leftover::Node(node) => Some(Request::Delete { path: lock.child(&node.name).into_string(), version: -1 }),
            Leftover::Doubt(_) => None,
        };
        let requests: Vec<_> = leftovers.iter().filter_map(delete).map(|request| (request, None)).collect();
        if requests.is_empty() {
            return;
        }
        let mut sent = submit(owner, requests);
        call.await_last(&mut sent);
        let mut replies = sent.into_iter().map(|(pending, _)| call.reply(pending));
        let is_gone = |reply: Result<Response>| reply.map_or_else(|error| error.is_no_node(), |_| true);
        leftovers.retain(|leftover| match leftover {
            Leftover::Node(_) => !replies.next().is_some_and(is_gone),
            Leftover::Doubt(_) => true,
        });
    }

    /// Drops the watches and the holds that the contender does not need, and cleans these leftovers up.
    fn clear_away(&mut self, lock: &LockInternals, owners: Option<&Owners>, leftovers: Vec<Leftover>) {
        // First the watches: after the deletes the server may be asked for nothing more.
        drop(self.watches.extract_if(.., |(watch, _)| !self.contender.wants(*watch)).collect::<Vec<_>>());
        let held = if self.contender.is_held { Vec::new() } else { std::mem::take(&mut self.held) };
        for held in held {
            drop(owners.and_then(|owners| owners.leave(lock, &held)));
            lock.client().core.held.remove(&held);
        }
        for (leftover, owner) in leftovers.into_iter().zip(self.owner.iter().cycle()) {
            lock.clean_up(owner, leftover);
        }
    }
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
        if let Some(sent) = self.acquire.batch.and_then(|batch| batch.unique(self.acquire.lock, self.session)) {
            return sent;
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
fn view_of(session: Option<&Arc<dyn Session>>, is_time_up: bool, is_lost: bool) -> View {
    let (session, connection, valid_until, timeout, is_ended) = match session {
        None => (0, 0, None, Duration::ZERO, false),
        Some(session) => {
            (session.id(), session.connection(), session.valid_until(), session.timeout(), session.is_ended())
        }
    };
    View { is_time_up, session, connection, valid_until, timeout, is_ended, is_lost, now: clock::now() }
}

/// Makes a contender's failure of an error. Where the call has ended, `over` stands for another attempt.
pub(super) fn failed(error: Error, maybe_done: bool, over: Option<Reaction>) -> Failed<Error> {
    let reaction = if error.is_retryable() { over.unwrap_or(Reaction::Retry) } else { Reaction::Final };
    Failed { code: error.code(), maybe_done, reaction, error }
}

/// A transaction's answer is that of its last operation, or the error of the one that made all of it fail.
fn unpack(lock: &LockInternals, answer: &mut std::result::Result<Response, Failed<Error>>) {
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
