//! The contender as a plain state machine: (state, input, view) -> (state, next request or pause).

use std::time::{Duration, Instant};

use crate::{
    base::{collections::HashSet, paths::name_of},
    framework::held::certainty::{Certainty, Evidence, Needs},
    locks::{
        options::wait_strategy::WaitStrategy,
        recipe::{
            doubt::Doubt,
            driver::{Decision, is_exhausted, is_kin, sequence_for, sorted_contenders},
            spec::{Condition, Do, End, Environment, Failed, Input, Leftover, Node, Reaction, Spec, View, WatchId},
        },
    },
    proto::{
        request::Request,
        response::Response,
        types::{CreateMode, ErrorCode, EventType, Stat},
    },
    session::api::WatchEvent,
};

/// The purpose of the requests that are on their way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Asked {
    /// They look before the create.
    Look,
    /// They create the znodes; `lists`: and list the directory.
    Creates { lists: bool },
    /// They search for the znode whose create got no answer; its name, once it is known.
    Lost(Option<String>),
    /// They list the directory, with a watch of this number.
    List(Option<u64>),
    /// They set the watches on the predecessor and on the own znode; the number is that of the latter.
    Watches(Option<Predecessor>, Option<u64>),
    /// They set the watch on the contender in front of the predecessor.
    Ahead,
    /// They ask whether the own znodes stand.
    Proof,
}

/// A watched predecessor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Predecessor {
    name: String,
    watch: u64,
    /// Whether it was the first of the queue when it was found, so that it held the lock.
    held_the_lock: bool,
    /// The connection of the list in which it was found.
    connection: u64,
    /// The look-ahead: the contender in front of the predecessor, and the watch on it. When that contender is gone, the
    /// queue is read again while the predecessor holds the lock, not after its release while nobody does. With it a
    /// queue of 100 sessions drains in 1.09 times what a bare socket takes, without it in 1.36 times.
    ahead: Option<(String, u64)>,
}

/// One attempt to get a lock. Nothing is sent before the first [`step`](Contender::step).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Contender {
    /// The purpose of the last requests, and the connection over which they went.
    asked: Option<(Asked, u64)>,
    /// The session that owns the znodes.
    session: i64,
    /// The own znodes, in the order of their numbers.
    pub nodes: Vec<Node>,
    /// The prefixes, or the marks, of creates whose outcome is unknown.
    doubts: Vec<String>,
    /// The leftovers of earlier attempts, for the acquire to clean up.
    discarded: Vec<Leftover>,
    has_looked: bool,
    /// How often the directory was missing since the last create that found it.
    missing: u32,
    watches: u64,
    own: Option<u64>,
    predecessor: Option<Predecessor>,
    /// The contender in front, where it is not watched itself.
    in_front: Option<String>,
    directory: Option<u64>,
    /// Whether it has given up the head of the wait queue, so that it may not wait any more.
    lost_queue_head: bool,
    /// Whether anybody was in front of it.
    pub has_waited: bool,
    /// The connection over which the own znodes were seen last.
    pub seen_over: u64,
    /// Something says that an own znode is gone; the server's answer is still to come.
    is_in_question: bool,
    /// A server has shown the own znodes when it was asked for them.
    is_confirmed: bool,
    /// Whether it holds: from [`Do::Hold`] on until the lock turns out to be lost, or the end. The held znodes stay in
    /// the registry only as long.
    pub is_held: bool,
    is_granted: bool,
    /// For how long it has held the lock in a session that is in doubt.
    doubt: Doubt,
    /// How many contenders were in front when the queue was read last, if they are counted.
    pub ahead: Option<usize>,
}

impl Contender {
    /// The contender in front, whose end it waits for.
    pub fn waits_for(&self) -> Option<&str> {
        self.predecessor.as_ref().map(|predecessor| &predecessor.name).or(self.in_front.as_ref()).map(String::as_str)
    }

    /// Whether this watch is still needed. The acquire gives up all others.
    pub fn wants(&self, watch: WatchId) -> bool {
        let predecessor = self.predecessor.as_ref();
        match watch {
            WatchId::Predecessor(number) => predecessor.is_some_and(|now| now.watch == number),
            WatchId::Ahead(number) => {
                predecessor.and_then(|now| now.ahead.as_ref()).is_some_and(|(_, watch)| *watch == number)
            }
            WatchId::Own(number) => self.own == Some(number),
            WatchId::Directory(number) => self.directory == Some(number),
        }
    }

    /// Returns the leftovers that may exist and have to go, if no step follows: none once the lock is granted.
    pub fn leftovers(&self) -> Vec<Leftover> {
        if self.is_granted {
            return Vec::new();
        }
        let nodes = self.nodes.iter().cloned().map(Leftover::Node);
        nodes.chain(self.doubts.iter().cloned().map(Leftover::Doubt)).collect()
    }

    /// Takes the leftovers since the last call, in the session that was current before the last step.
    pub fn take_discarded(&mut self) -> Vec<Leftover> {
        std::mem::take(&mut self.discarded)
    }

    /// Takes one step.
    pub fn step<E: Clone>(&mut self, spec: &Spec, env: &dyn Environment<E>, view: &View, input: Input<E>) -> Do<E> {
        self.doubt.steps(view.now, view.timeout);
        let next = Step { me: self, spec, env, view }.take(input);
        self.doubt.sleeps(view.now, matches!(next, Do::Ask(_)));
        next
    }

    /// Whether there are znodes. They keep their places while their session may live, so their owner waits for the end
    /// of the session, and not of a call's time.
    pub fn stands(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Begins anew: what the contender has reached so far does not count any more.
    fn forget(&mut self) {
        self.unwatch();
        self.own = None;
        self.is_held = false;
        self.is_in_question = false;
        self.doubt.ends();
        self.is_confirmed = false;
        let leftovers = self.leftovers();
        self.discarded.extend(leftovers);
        self.nodes.clear();
        self.doubts.clear();
    }

    fn unwatch(&mut self) {
        self.predecessor = None;
        self.in_front = None;
        self.directory = None;
    }

    fn next_watch(&mut self) -> u64 {
        self.watches += 1;
        self.watches
    }
}

/// One step under way.
struct Step<'a, E> {
    me: &'a mut Contender,
    spec: &'a Spec,
    env: &'a dyn Environment<E>,
    view: &'a View,
}

impl<E: Clone> Step<'_, E> {
    fn take(&mut self, input: Input<E>) -> Do<E> {
        match input {
            Input::Begin => Do::Connect,
            Input::Connected if self.me.stands() => self.resume(),
            Input::Connected => self.create(),
            Input::Answers(answers) => self.answered(answers),
            Input::DirectoryMade(made) => self.directory_made(made),
            Input::Event(watch, event) => self.happened(watch, &event),
            Input::QueueHeadLost => self.leave(End::QueueHeadLost),
            Input::TimeUp => self.leave(End::TimeUp),
            Input::Failed(failed) => self.failed(failed),
            Input::Woken => self.resume(),
        }
    }

    fn send(&mut self, asked: Asked, requests: Vec<(Request, Option<WatchId>)>) -> Do<E> {
        self.me.asked = Some((asked, self.view.connection));
        Do::Ask(requests)
    }

    fn answered(&mut self, answers: Vec<Result<Response, Failed<E>>>) -> Do<E> {
        // Answers without a request: the queue is read anew.
        let Some((asked, over)) = self.me.asked.take() else { return self.list() };
        let asked = match asked {
            Asked::Creates { lists } => return self.created(lists, over, answers),
            Asked::Ahead => return self.ahead_watched(answers),
            asked => asked,
        };
        let found = match answers.into_iter().map(there).collect::<Result<Vec<_>, _>>() {
            Ok(found) => found,
            Err(failed) => return self.failed(failed),
        };
        match (asked, found.last()) {
            (Asked::Look, _) => self.looked(&found),
            (Asked::Lost(name), _) => self.searched(name, over, found.into_iter().last().flatten()),
            (Asked::List(watch), Some(Some(Response::Children { names, .. }))) => {
                self.me.directory = watch.or(self.me.directory);
                if self.is_outside() { self.wait_outside(names, over) } else { self.decide(names, over) }
            }
            // Without the directory nobody holds the lock: the create finds out.
            (Asked::List(_), _) if self.is_outside() => Do::Connect,
            (Asked::Watches(predecessor, own), _) => self.watching(predecessor, own, found),
            (Asked::Proof, _) => self.proved(&found, over),
            // Without the directory the own znodes are gone, or the server lags behind.
            _ => self.ask(),
        }
    }

    fn resume(&mut self) -> Do<E> {
        if self.me.is_in_question {
            self.ask()
        } else if self.me.is_held {
            self.finish()
        } else {
            self.list()
        }
    }

    fn again(&mut self, error: E) -> Do<E> {
        if self.view.is_time_up { self.leave(End::Failed(error)) } else { Do::Again(error) }
    }

    fn directory_made(&mut self, made: Result<(), Failed<E>>) -> Do<E> {
        match made {
            // Another contender's ephemeral znode is in the directory's place, as a client makes it that knows this
            // lock as one znode of a fixed name.
            Err(failed) if self.spec.is_sole && failed.code == Some(ErrorCode::NoChildrenForEphemerals) => {
                self.me.missing = 0;
                // Nothing reports its end, so a waiter looks again after a moment.
                if self.spec.waits.is_none() { self.leave(End::TimeUp) } else { Do::Doze }
            }
            // A parent that was there a moment ago has been removed: the create finds out.
            Err(failed) if failed.code != Some(ErrorCode::NoNode) => self.failed(failed),
            // Once is normal. Twice means that the server has removed it in between, as an empty container.
            _ if self.me.missing > 1 => self.again(self.env.node_gone()),
            _ => Do::Connect,
        }
    }

    /// Tries again where that makes sense, or leaves.
    fn failed(&mut self, failed: Failed<E>) -> Do<E> {
        match failed.reaction {
            Reaction::Retry if !self.me.stands() => self.again(failed.error),
            Reaction::Retry if self.has_lost_session() => self.session_ended(),
            // The server is there but refuses: it has too much to do, and must not be asked again at once.
            Reaction::Retry if failed.code.is_some() => Do::Doze,
            // The connection is gone. While the session may live the znodes keep their places.
            Reaction::Retry => Do::Connect,
            Reaction::TimeUp if self.me.stands() => self.leave(End::TimeUp),
            Reaction::TimeUp | Reaction::Final => self.leave(End::Failed(failed.error)),
        }
    }

    fn has_lost_session(&self) -> bool {
        self.view.is_ended || self.me.session != self.view.session
    }

    /// The session has taken its znodes with it. Znodes that no session owns have to be deleted.
    fn session_ended(&mut self) -> Do<E> {
        self.me.forget();
        if self.spec.companion.is_some() {
            return self.leave(End::CompanionGone);
        }
        if self.view.is_time_up {
            return self.leave(End::TimeUp);
        }
        Do::Connect
    }

    /// An own znode was deleted from outside.
    fn gone(&mut self) -> Do<E> {
        self.me.forget();
        self.again(self.env.node_gone())
    }

    fn create(&mut self) -> Do<E> {
        if self.view.is_time_up {
            return self.leave(End::TimeUp);
        }
        if !self.me.doubts.is_empty() {
            // A znode of an earlier session is about to vanish with it, and must not be found (CURATOR-498).
            if !self.has_lost_session() {
                return self.search();
            }
            self.me.forget();
        }
        self.me.session = self.view.session;
        if self.spec.companion.as_ref().is_some_and(|writer| writer.session != self.view.session) {
            return self.leave(End::CompanionGone);
        }
        if self.spec.looks_first && !self.me.has_looked { self.look() } else { self.send_creates() }
    }

    fn send_creates(&mut self) -> Do<E> {
        let lists = !self.spec.is_sole && self.env.lists_with_create();
        self.me.doubts = (0..self.spec.count).map(|_| self.env.unique()).collect();
        let mut requests: Vec<_> = self.me.doubts.iter().map(|unique| (self.creation(unique), None)).collect();
        if lists {
            requests.push(list_of(&self.spec.directory, None));
        }
        if let Some(must_be_empty) = &self.spec.must_be_empty {
            requests.push(list_of(must_be_empty, None));
        }
        self.send(Asked::Creates { lists }, requests)
    }

    /// Makes the create, without the access control list: the acquire adds the one that the caller's provider names.
    fn creation(&self, unique: &str) -> Request {
        let (path, mode, data) = (self.child(&self.name(unique)), self.spec.mode, self.spec.data.clone());
        if self.spec.is_sole {
            return self.sole_creation(path, data);
        }
        Request::Create { path, data, acl: Vec::new(), mode }
    }

    fn name(&self, unique: &str) -> String {
        [unique, &self.spec.name].concat()
    }

    /// Makes one transaction that fails unless the directory is empty. ZooKeeper has no condition for that but one: it deletes
    /// no znode that has children.
    ///
    /// So two znodes are never in the directory together, whatever an administrator does: each was created at a moment
    /// when there was none. And each has a name that nobody uses again, so that a delete, or a request to give the lock
    /// back, that comes late finds no znode. With one name for all it would find the next holder's: a delete can name
    /// only a version, and every new znode has version 0.
    fn sole_creation(&self, path: String, data: Vec<u8>) -> Request {
        let create = |path, data, mode| Request::Create { path, data, acl: Vec::new(), mode };
        let directory = &self.spec.directory;
        let empty = [
            Request::Delete { path: directory.clone(), version: -1 },
            create(directory.clone(), Vec::new(), CreateMode::Container),
        ];
        let own = create(path, data, self.spec.mode);
        let is_empty = (!self.env.omits(Condition::EmptyDirectory)).then_some(empty);
        Request::Multi(is_empty.into_iter().flatten().chain([own]).collect())
    }

    fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.spec.directory)
    }

    fn sync(&self) -> Request {
        Request::Sync { path: self.spec.directory.clone() }
    }

    fn created(&mut self, lists: bool, connection: u64, answers: Vec<Result<Response, Failed<E>>>) -> Do<E> {
        let mut answers = answers.into_iter();
        let mut failure = None;
        for unique in std::mem::take(&mut self.me.doubts) {
            match answers.next() {
                Some(Ok(Response::Created { path, czxid })) => {
                    self.me.nodes.push(Node { name: name_of(&path).to_owned(), czxid });
                }
                Some(Err(failed)) => {
                    if failed.maybe_done {
                        self.me.doubts.push(unique);
                    }
                    failure = failure.or(Some(failed));
                }
                // No answer to this create was handed in: its outcome is unknown.
                _ => self.me.doubts.push(unique),
            }
        }
        if let Some(failed) = failure {
            return self.not_created(failed);
        }
        self.me.missing = 0;
        if let Some(end) = self.exhausted() {
            return end;
        }
        if self.spec.is_sole {
            return self.grant(connection);
        }
        let listed = lists.then(|| answers.next()).flatten();
        if self.spec.must_be_empty.is_some()
            && !answers.next().and_then(|queued| there(queued).ok()).is_some_and(|queued| is_empty(&queued))
        {
            return self.leave(End::TimeUp);
        }
        match listed {
            Some(Ok(Response::Children { names, .. })) => self.decide(&names, connection),
            // The list is not sent for once more: each one above the frame limit ends the connection. If the directory has
            // gone since the create, the list that follows says so again.
            Some(Err(failed)) if failed.reaction == Reaction::Final && failed.code != Some(ErrorCode::NoNode) => {
                self.failed(failed)
            }
            _ => self.list(),
        }
    }

    /// Leaves if the directory's numbers are nearly used up.
    fn exhausted(&mut self) -> Option<Do<E>> {
        let number = sequence_for(&self.me.nodes.last()?.name, self.spec.driver.lock_name())?;
        is_exhausted(number).then(|| self.leave(End::Exhausted(number)))
    }

    fn not_created(&mut self, failed: Failed<E>) -> Do<E> {
        if self.spec.count > 1 || self.spec.must_be_empty.is_some() {
            // It creates all or none. The next attempt makes all of them anew: to find one later, when others have queued, would
            // let it overtake them.
            self.me.forget();
        }
        match failed.code {
            Some(ErrorCode::NoNode) if self.spec.companion.is_some() => self.leave(End::CompanionGone),
            Some(ErrorCode::NoNode) => {
                self.me.missing += 1;
                Do::MakeDirectory
            }
            Some(ErrorCode::NotEmpty) if self.spec.is_sole => self.taken(),
            _ => self.failed(failed),
        }
    }

    /// Reads before anything is written.
    fn look(&mut self) -> Do<E> {
        let directories = std::iter::once(&self.spec.directory).chain(&self.spec.must_be_empty);
        self.send(Asked::Look, directories.map(|directory| list_of(directory, None)).collect())
    }

    fn looked(&mut self, found: &[Option<Response>]) -> Do<E> {
        self.me.has_looked = true;
        let waits = self.spec.waits.is_some();
        let is_taken = match found.first() {
            Some(Some(Response::Children { names, .. })) => {
                let too_many = self.too_many(names, None).filter(|_| waits);
                match (self.would_wait(names), too_many) {
                    (true, Some(ahead)) => return self.leave(End::Busy(ahead)),
                    (would_wait, _) => would_wait && !waits,
                }
            }
            first => first.is_none_or(Option::is_some),
        };
        let is_overtaking = found.iter().skip(1).any(|queued| !is_empty(queued));
        if is_taken || is_overtaking { self.leave(End::TimeUp) } else { self.send_creates() }
    }

    /// Whether the znodes that are wanted would have to wait, if they were created now.
    fn would_wait(&self, names: &[String]) -> bool {
        if self.spec.is_sole {
            return !names.is_empty();
        }
        let mut names = names.to_vec();
        let last = i64::from(i32::MAX);
        let count = i64::try_from(self.spec.count).unwrap_or(last);
        let name_of = |number: i64| format!("{}{number:010}", self.spec.driver.lock_name());
        names.extend((0..count).map(|k| name_of(last - count + 1 + k)));
        self.spec.driver.decide(&names, &name_of(last), self.env.max_leases()) != Decision::Granted
    }

    /// Looks for the znode that a create without an answer may have made. The sync makes sure that the server asked has
    /// seen it, also if the create was sent to another server.
    fn search(&mut self) -> Do<E> {
        self.me.session = self.view.session;
        self.send(Asked::Lost(None), vec![(self.sync(), None), list_of(&self.spec.directory, None)])
    }

    fn searched(&mut self, name: Option<String>, connection: u64, found: Option<Response>) -> Do<E> {
        let is_ours = |name: &String| self.me.doubts.iter().any(|doubt| name.starts_with(doubt));
        match (name, found) {
            (None, Some(Response::Children { names, .. })) => {
                let Some(name) = names.into_iter().find(is_ours) else {
                    return self.not_found();
                };
                let request = Request::Exists { path: self.child(&name), watch: false };
                self.send(Asked::Lost(Some(name)), vec![(request, None)])
            }
            (Some(name), Some(Response::Stat(stat))) if self.is_owner(&stat) => {
                self.me.doubts.clear();
                self.me.nodes = vec![Node { name, czxid: stat.czxid }];
                self.me.seen_over = connection;
                self.exhausted().unwrap_or_else(|| self.list())
            }
            _ => self.not_found(),
        }
    }

    /// The create was not carried out, and never will be: the server refuses requests that come late over an earlier
    /// connection.
    fn not_found(&mut self) -> Do<E> {
        self.me.doubts.clear();
        self.create()
    }

    fn is_owner(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.me.session
    }

    /// Reads the queue.
    fn list(&mut self) -> Do<E> {
        if self.has_lost_session() {
            return self.session_ended();
        }
        if self.spec.is_sole {
            return if self.me.stands() { self.grant(self.me.seen_over) } else { self.taken() };
        }
        let is_first_watch = self.spec.waits == Some(WaitStrategy::WatchParent) && self.me.directory.is_none();
        let watch = is_first_watch.then(|| self.me.next_watch());
        self.send(Asked::List(watch), vec![list_of(&self.spec.directory, watch.map(WatchId::Directory))])
    }

    /// Decides by the names of the directory's children.
    fn decide(&mut self, children: &[String], connection: u64) -> Do<E> {
        let Some(own) = self.me.nodes.last().map(|node| node.name.clone()) else { return self.session_ended() };
        if self.spec.companion.as_ref().is_some_and(|writer| !children.contains(&writer.name)) {
            return self.leave(End::CompanionGone);
        }
        let decision = if self.are_listed(children) {
            self.spec.driver.decide(children, &own, self.env.max_leases())
        } else {
            Decision::Missing
        };
        match decision {
            // The server has shown it over this very connection before.
            Decision::Missing if self.me.is_confirmed && self.me.seen_over == connection => self.gone(),
            // A server that lags behind may not know it yet.
            Decision::Missing => self.ask(),
            Decision::Granted => self.grant(connection),
            Decision::Wait { watch, first } => match self.too_many(children, Some(&own)) {
                Some(ahead) => self.leave(End::Busy(ahead)),
                None => self.wait(watch, first, children, connection),
            },
        }
    }

    /// Counts those in front of it, or all where it does not stand yet. `Some`: more than it queues behind.
    fn too_many(&mut self, children: &[String], own: Option<&str>) -> Option<usize> {
        if !self.spec.counts {
            return None;
        }
        let ahead = if self.spec.is_sole {
            // There is a holder, and no queue in which to have a position.
            children.len()
        } else {
            let contenders = sorted_contenders(children);
            let position = contenders.iter().position(|name| Some(*name) == own);
            *self.me.ahead.insert(position.unwrap_or(contenders.len()))
        };
        // A contender that has queued stays, also in the session that follows.
        self.spec.max_ahead.filter(|most| ahead > *most && !self.me.has_waited).map(|_| ahead)
    }

    fn are_listed(&self, children: &[String]) -> bool {
        if self.me.nodes.len() == 1 {
            return true;
        }
        let listed: HashSet<&str> = children.iter().map(String::as_str).collect();
        self.me.nodes.iter().all(|node| listed.contains(node.name.as_str()))
    }

    fn wait(&mut self, name: String, first: bool, children: &[String], connection: u64) -> Do<E> {
        let Some(strategy) = self.spec.waits else { return self.leave(End::TimeUp) };
        self.me.has_waited = true;
        if self.me.lost_queue_head {
            return self.leave(End::QueueHeadLost);
        }
        if strategy == WaitStrategy::WatchPredecessor {
            return self.watch(name, first, children, connection);
        }
        self.me.in_front = Some(name);
        match strategy {
            // The watch comes with the next list, which shows what changed before it.
            WaitStrategy::WatchParent if self.me.directory.is_none() => self.list(),
            WaitStrategy::Poll(_) if self.me.own.is_none() => self.send_watches(None),
            _ => self.sleep(),
        }
    }

    fn sleep(&mut self) -> Do<E> {
        if self.view.is_time_up {
            return self.leave(End::TimeUp);
        }
        Do::Sleep
    }

    /// Watches the predecessor, and once the own znode.
    fn watch(&mut self, name: String, first: bool, children: &[String], connection: u64) -> Do<E> {
        if let Some(predecessor) = self.me.predecessor.as_mut().filter(|now| now.name == name) {
            // The watch is still in place, over a reconnect too.
            predecessor.held_the_lock |= first;
            predecessor.connection = connection;
            if first {
                predecessor.ahead = None;
            }
            return self.sleep();
        }
        let ahead = if first { None } else { self.in_front_of(&name, children) };
        let ahead = ahead.map(|ahead| (ahead, self.me.next_watch()));
        let watch = self.me.next_watch();
        self.send_watches(Some(Predecessor { name, watch, held_the_lock: first, connection, ahead }))
    }

    /// Finds the contender that the predecessor waits for, where the lock follows the predecessor's end.
    fn in_front_of(&self, name: &str, children: &[String]) -> Option<String> {
        if !self.follows(name) {
            return None;
        }
        match self.spec.driver.decide(children, name, self.env.max_leases()) {
            Decision::Wait { watch, .. } => Some(watch),
            Decision::Granted | Decision::Missing => None,
        }
    }

    /// Whether the waiter has the lock as soon as this holder is gone. It has only behind a znode of its own kind: a mutex
    /// may queue behind a writer, and one that downgrades leaves a reader with its own number behind.
    fn follows(&self, name: &str) -> bool {
        let driver = &self.spec.driver;
        driver.successor_follows_holder()
            && self.env.max_leases() == 1
            && (is_kin(name, driver.lock_name()) || self.env.omits(Condition::Kind))
    }

    /// Sends for the watches in one write. getData leaves no watch on a znode that is gone, which `exists` would
    /// (CURATOR-107).
    fn send_watches(&mut self, predecessor: Option<Predecessor>) -> Do<E> {
        let mut requests = Vec::with_capacity(2);
        if let Some(Predecessor { name, watch, .. }) = &predecessor {
            requests.push((self.watch_of(name), Some(WatchId::Predecessor(*watch))));
        }
        let watches_own = self.me.own.is_none() && !self.env.omits(Condition::OwnWatch);
        let unwatched = self.me.nodes.last().filter(|_| watches_own).map(|node| self.watch_of(&node.name));
        let own = unwatched.map(|request| {
            let own = self.me.next_watch();
            requests.push((request, Some(WatchId::Own(own))));
            own
        });
        self.send(Asked::Watches(predecessor, own), requests)
    }

    fn watch_of(&self, name: &str) -> Request {
        Request::GetData { path: self.child(name), watch: true }
    }

    fn watching(
        &mut self,
        predecessor: Option<Predecessor>,
        own: Option<u64>,
        mut found: Vec<Option<Response>>,
    ) -> Do<E> {
        if own.is_some() {
            if found.pop().flatten().is_none() {
                return self.ask();
            }
            self.me.own = own;
        }
        let Some(mut predecessor) = predecessor else { return self.sleep() };
        let Some(Some(Response::Data { stat, .. })) = found.pop() else {
            // The predecessor is gone, and it is unknown whether it held the lock.
            return if self.is_outside() { Do::Connect } else { self.list() };
        };
        // This process knows by itself whether a predecessor in its own session was granted the lock.
        predecessor.ahead.take_if(|_| stat.ephemeral_owner == self.me.session);
        let next = predecessor.ahead.as_ref().map(|(name, watch)| (self.watch_of(name), Some(WatchId::Ahead(*watch))));
        self.me.predecessor = Some(predecessor);
        match next {
            Some(request) => self.send(Asked::Ahead, vec![request]),
            None => self.sleep(),
        }
    }

    fn ahead_watched(&mut self, mut answers: Vec<Result<Response, Failed<E>>>) -> Do<E> {
        let answer = answers.pop();
        if matches!(answer, Some(Ok(_))) {
            return self.sleep();
        }
        if let Some(predecessor) = &mut self.me.predecessor {
            predecessor.ahead = None;
        }
        match answer {
            Some(Err(failed)) if failed.code.is_none() => self.failed(failed),
            // The contender ahead is gone, or may not be read: the list says who is first.
            _ => self.list(),
        }
    }

    /// Whether it has no znode while it waits for the directory to be empty.
    fn is_outside(&self) -> bool {
        self.spec.is_sole && !self.me.stands()
    }

    /// Another contender's znode is in the directory.
    fn taken(&mut self) -> Do<E> {
        self.me.missing = 0;
        if self.spec.waits.is_none() {
            return self.leave(End::TimeUp);
        }
        self.me.has_waited = true;
        self.send(Asked::List(None), vec![list_of(&self.spec.directory, None)])
    }

    /// Watches the znode in the directory, and not the directory: the servers tell operators who watches a znode (`wchp`),
    /// and so who waits, but not who watches a list. No wake-up is lost: if the znode has gone since the list, the reply to
    /// the read says so.
    fn wait_outside(&mut self, children: &[String], connection: u64) -> Do<E> {
        let Some(name) = children.first().cloned() else { return Do::Connect };
        let watch = self.me.next_watch();
        self.send_watches(Some(Predecessor { name, watch, held_the_lock: true, connection, ahead: None }))
    }

    /// A watch reports.
    fn happened(&mut self, watch: WatchId, event: &WatchEvent) -> Do<E> {
        match (watch, event) {
            // This watch was given up for another one, which reports for itself.
            _ if !self.me.wants(watch) => self.sleep(),
            (_, WatchEvent::Ended) => self.session_ended(),
            (_, WatchEvent::Disconnected) | (WatchId::Own(_) | WatchId::Ahead(_), WatchEvent::Reconnected { .. }) => {
                self.sleep()
            }
            (_, WatchEvent::Reconnected { .. }) if self.env.omits(Condition::Connection) => self.sleep(),
            // Events after a reconnect come in the order of paths, not of time.
            (_, WatchEvent::Reconnected { .. }) => self.list(),
            (WatchId::Predecessor(_), WatchEvent::Node { event, connection }) => {
                self.predecessor_changed(*event, *connection)
            }
            (WatchId::Ahead(_), WatchEvent::Node { .. }) => {
                if let Some(predecessor) = &mut self.me.predecessor {
                    predecessor.ahead = None;
                }
                self.list()
            }
            (WatchId::Own(_), WatchEvent::Node { event, .. }) => {
                // The watch is used up. If only the data changed, the list sets both watches again.
                self.me.own = None;
                self.me.predecessor = None;
                if *event == EventType::NodeDeleted { self.ask() } else { self.list() }
            }
            (WatchId::Directory(_), WatchEvent::Node { .. }) => {
                self.me.directory = None;
                self.list()
            }
        }
    }

    /// The watch on the predecessor is used up.
    fn predecessor_changed(&mut self, event: EventType, connection: u64) -> Do<E> {
        let Some(predecessor) = self.me.predecessor.take() else { return self.list() };
        if self.is_outside() && event == EventType::NodeDeleted {
            return Do::Connect;
        }
        // It is sure if all came over one connection, and the own znode is watched, as it is with every predecessor: else an
        // administrator may have deleted the own znode before the predecessor's, and the lock is the next waiter's.
        let is_sure = event == EventType::NodeDeleted
            && self.follows(&predecessor.name)
            && ((predecessor.connection == connection && self.view.is_over(connection))
                || self.env.omits(Condition::Connection));
        if is_sure && (predecessor.held_the_lock || self.env.was_granted_here(&predecessor.name)) {
            return self.grant(connection);
        }
        self.list()
    }

    /// Takes the lock: over this connection it was learnt that no contender is in front.
    fn grant(&mut self, connection: u64) -> Do<E> {
        if self.view.is_time_up {
            return self.leave(End::TimeUp);
        }
        // A znode of another session is no lock (CURATOR-604).
        if self.has_lost_session() {
            return self.session_ended();
        }
        self.me.seen_over = connection;
        self.me.is_held = true;
        // The watches are given up now, since that may send a request: nothing may come between the last look and the return.
        self.me.unwatch();
        // The acquire gives up the head of the wait queue now. If this hold comes to nothing, the contender may not
        // wait any more.
        self.me.lost_queue_head |= self.spec.holds_queue_head;
        Do::Hold
    }

    /// Whether the znodes stand: they were seen over the live connection, in a session that the servers cannot have
    /// expired by then.
    fn certainty(&self, until: Instant) -> Certainty {
        let is_seen = self.view.is_over(self.me.seen_over) || self.env.omits(Condition::Connection);
        let valid_until = match self.env.omits(Condition::ValidUntil) {
            true => until.checked_add(Duration::from_nanos(1)),
            false => self.view.valid_until,
        };
        let is_gone = self.has_lost_session();
        let evidence = Evidence { is_gone, is_connected: is_seen, is_seen, is_watched: false, valid_until };
        evidence.certainty_for(until, Needs::Connection, false)
    }

    /// Takes the last look, as late as can be: the process may have been paused since the grant, for longer than its session.
    fn finish(&mut self) -> Do<E> {
        let until = self.view.now.checked_add(self.spec.min_validity);
        match until.map_or(Certainty::InDoubt, |until| self.certainty(until)) {
            Certainty::Gone => return self.session_ended(),
            _ if self.view.is_time_up => return self.leave(End::TimeUp),
            _ if self.view.is_lost => {}
            Certainty::InDoubt if !self.env.omits(Condition::LastLook) => {}
            Certainty::Certain | Certainty::InDoubt => {
                self.me.is_granted = true;
                return Do::End(End::Granted);
            }
        }
        if self.me.doubt.has_lasted(self.view.now, self.view.timeout) {
            // Those behind it wait for a holder that cannot be sure of being one.
            return self.leave(End::Uncertain);
        }
        // The event may be of a server that others contradict (ZOOKEEPER-4712): the answers tell.
        if self.view.is_lost || !(self.me.is_confirmed && self.view.is_over(self.me.seen_over)) {
            return self.ask();
        }
        // The znodes stand, and the next heartbeats make the session certain.
        Do::Doze
    }

    /// Asks whether the own znodes stand. The sync takes the question to the leader first: a server that is cut off
    /// from the leader may vouch for a session that is gone.
    fn ask(&mut self) -> Do<E> {
        if self.has_lost_session() {
            return self.session_ended();
        }
        self.me.is_in_question = true;
        if self.view.connection == 0 {
            // The connection over which the answer would come is not known yet.
            return Do::Connect;
        }
        let paths = self.me.nodes.iter().map(|node| self.child(&node.name));
        let looks = paths.map(|path| Request::Exists { path, watch: false });
        let requests = std::iter::once(self.sync()).chain(looks).map(|request| (request, None)).collect();
        self.send(Asked::Proof, requests)
    }

    fn proved(&mut self, found: &[Option<Response>], connection: u64) -> Do<E> {
        let stands = |(node, found): (&Node, &Option<Response>)| match found {
            Some(Response::Stat(stat)) => stat.czxid == node.czxid && self.is_owner(stat),
            _ => false,
        };
        let of_nodes = found.iter().skip(1);
        if of_nodes.len() != self.me.nodes.len() || !self.me.nodes.iter().zip(of_nodes).all(stands) {
            return self.gone();
        }
        if !self.view.is_over(connection) {
            return self.ask();
        }
        self.me.seen_over = connection;
        self.me.is_confirmed = true;
        self.me.is_in_question = false;
        self.resume()
    }

    /// Ends the contender: the acquire takes its znodes out of the queue.
    fn leave(&mut self, end: End<E>) -> Do<E> {
        self.me.is_held = false;
        // After the deletes the server may be asked for nothing more.
        self.me.unwatch();
        Do::End(end)
    }
}

/// Makes the request for a directory's list, with the watch that it leaves.
fn list_of(directory: &str, watch: Option<WatchId>) -> (Request, Option<WatchId>) {
    (Request::GetChildren { path: directory.to_owned(), watch: watch.is_some(), with_stat: false }, watch)
}

/// Returns the response; `None` where there is no such znode.
fn there<E>(answer: Result<Response, Failed<E>>) -> Result<Option<Response>, Failed<E>> {
    match answer {
        Ok(response) => Ok(Some(response)),
        Err(failed) if failed.code == Some(ErrorCode::NoNode) => Ok(None),
        Err(failed) => Err(failed),
    }
}

/// Whether nobody queues in a directory.
fn is_empty(found: &Option<Response>) -> bool {
    match found {
        None => true,
        Some(Response::Children { names, .. }) => sorted_contenders(names).is_empty(),
        Some(_) => false,
    }
}
