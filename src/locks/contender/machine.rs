//! The contender as a plain state machine: (state, input, view) -> (state, what to do next).

use std::{collections::HashSet, time::Instant};

use super::spec::{
    Answer, Ask, Condition, ConnectFor, Do, End, Environment, Failed, Input, Leftover, Naming, Node, Plan, Reaction,
    Spec, View, WatchId,
};
use crate::{
    locks::{
        Decision, WaitStrategy,
        driver::{is_exhausted, is_kin, sequence_for, sorted_contenders},
    },
    proto::{ErrorCode, EventType, Request, Response, Stat},
    session::WatchEvent,
};

/// What the shell owes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stage<E> {
    /// A connection, for this.
    Connecting(Next),
    /// The retry policy's word, for this.
    Pausing(Next),
    /// Answers to a look that comes before the create.
    Looking,
    /// Answers to the creates and what went with them.
    Creating {
        connection: u64,
        plan: Plan,
    },
    MakingDirectory,
    /// Answers to the search for a znode whose create got no answer.
    Searching {
        connection: u64,
    },
    /// The answer to whose znode was found, in this list.
    Recognizing {
        name: String,
        children: Vec<String>,
        connection: u64,
    },
    /// The answer to a list.
    Listing {
        connection: u64,
        watch: Option<u64>,
    },
    /// Answers to what sets the watches.
    Watching(Box<Watching>),
    /// An event.
    Sleeping,
    /// The answers to whether the own znodes stand, asked then, for this.
    Asking {
        at: Instant,
        connection: u64,
        why: Why,
    },
    /// The own znodes in the registry.
    Holding,
    /// A moment. It holds the lock, and the session is in doubt.
    Dozing,
    /// A moment, for this: the server refuses requests for now.
    Resting(Next),
    /// Answers to the deletes.
    Leaving(End<E>),
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Next {
    Create,
    MakeDirectory,
    List,
    Ask(Why),
}

/// Why it asks whether its own znodes stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Why {
    /// One was missing in a list, or its watch has reported its end.
    Missing,
    /// Nobody is in front, but the session is in doubt.
    Grant,
    /// The same once the lock is held.
    LastLook,
}

/// Watches on their way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Watching {
    predecessor: Option<Predecessor>,
    own: Option<u64>,
    /// Whom the predecessor waits for, where it is worth knowing.
    ahead: Option<String>,
    is_for_ahead: bool,
}

/// A watched predecessor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Predecessor {
    name: String,
    watch: u64,
    /// It was the first of the queue when it was found, so it held the lock.
    held_the_lock: bool,
    /// The connection of the list in which it was found.
    connection: u64,
    /// The watch on the one in front of it. Once that is gone the queue is read again, while the predecessor holds the
    /// lock and not while nobody does.
    ahead: Option<u64>,
}

/// One attempt to get a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Contender<E> {
    stage: Stage<E>,
    /// Whose znodes these are.
    session: i64,
    nodes: Vec<Node>,
    /// The prefixes, or the marks, of creates whose outcome is unknown.
    doubts: Vec<String>,
    /// What was left on the way, for the shell to clean up.
    discarded: Vec<Leftover>,
    has_looked: bool,
    /// How often the directory was missing since the last create that found it.
    missing: u32,
    watches: u64,
    own: Option<u64>,
    predecessor: Option<Predecessor>,
    directory: Option<u64>,
    is_barred: bool,
    has_waited: bool,
    is_alone: bool,
    /// The connection over which the own znodes were seen last.
    seen_over: u64,
    /// When the question was sent whose answer showed the own znodes.
    confirmed: Option<Instant>,
    is_held: bool,
    /// Since when it holds the lock in a session that is in doubt.
    in_doubt_since: Option<Instant>,
    /// How many were in front when the queue was read last.
    ahead: Option<usize>,
}

impl<E> Default for Contender<E> {
    /// Nothing is sent before the first [`step`](Contender::step).
    fn default() -> Self {
        Contender {
            stage: Stage::Ended,
            session: 0,
            nodes: Vec::new(),
            doubts: Vec::new(),
            discarded: Vec::new(),
            has_looked: false,
            missing: 0,
            watches: 0,
            own: None,
            predecessor: None,
            directory: None,
            is_barred: false,
            has_waited: false,
            is_alone: false,
            seen_over: 0,
            confirmed: None,
            is_held: false,
            in_doubt_since: None,
            ahead: None,
        }
    }
}

impl<E: Clone> Contender<E> {
    /// The own znodes, in the order of their numbers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The connection over which the own znodes were seen last.
    pub fn seen_over(&self) -> u64 {
        self.seen_over
    }

    /// From [`Do::Hold`] on until it turns out that the lock is lost, or the end. What was put into the registry belongs
    /// there only as long.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether anybody was in front of it.
    pub fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// How many were in front when the queue was read last, where somebody wants to know.
    pub fn ahead(&self) -> Option<usize> {
        self.ahead
    }

    /// Whether nobody else stood in the directory when it was listed last.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// The watch on the own znode.
    pub fn own_watch(&self) -> Option<WatchId> {
        self.own.map(WatchId::Own)
    }

    /// Whether this watch is of use. All others are to be given up.
    pub fn wants(&self, watch: WatchId) -> bool {
        let predecessor = self.predecessor.as_ref();
        match watch {
            WatchId::Predecessor(number) => predecessor.is_some_and(|now| now.watch == number),
            WatchId::Ahead(number) => predecessor.is_some_and(|now| now.ahead == Some(number)),
            WatchId::Own(number) => self.own == Some(number),
            WatchId::Directory(number) => self.directory == Some(number),
            WatchId::Guard(_) => true,
        }
    }

    /// What may exist and has to go, if nobody takes another step; nothing once the lock is granted.
    pub fn leftovers(&self) -> Vec<Leftover> {
        if self.is_granted() {
            return Vec::new();
        }
        let nodes = self.nodes.iter().cloned().map(Leftover::Node);
        nodes.chain(self.doubts.iter().cloned().map(Leftover::Doubt)).collect()
    }

    /// What was left on the way since the last call, of the session before the last step.
    pub fn take_discarded(&mut self) -> Vec<Leftover> {
        std::mem::take(&mut self.discarded)
    }

    fn is_granted(&self) -> bool {
        self.is_held && matches!(self.stage, Stage::Ended)
    }

    /// Takes one step.
    pub fn step(&mut self, spec: &Spec, env: &dyn Environment<E>, view: &View, input: Input<E>) -> Do<E> {
        Step { me: self, spec, env, view }.take(input)
    }
}

/// One step under way.
struct Step<'a, E> {
    me: &'a mut Contender<E>,
    spec: &'a Spec,
    env: &'a dyn Environment<E>,
    view: &'a View,
}

impl<E: Clone> Step<'_, E> {
    fn take(&mut self, input: Input<E>) -> Do<E> {
        match input {
            Input::Begin => self.connect(Next::Create),
            Input::Connected => self.connected(),
            Input::Allowed => self.allowed(),
            Input::Answers(answers) => self.answered(answers),
            Input::DirectoryMade(made) => self.directory_made(made),
            Input::Event(watch, event) => self.happened(watch, &event),
            Input::Held { is_deleted } => {
                // Its session may have ended: the question tells.
                if is_deleted { self.ask(Why::LastLook) } else { self.finish() }
            }
            Input::Barred => self.barred(),
            Input::TimeUp => self.leave(End::TimeUp),
            Input::Woken => self.woken(),
            Input::Failed(failed) => self.failed(failed),
        }
    }

    fn woken(&mut self) -> Do<E> {
        match self.me.stage {
            Stage::Dozing => self.finish(),
            Stage::Resting(next) => self.connect(next),
            _ => self.list(),
        }
    }

    // ---- on the way to a znode

    fn connect(&mut self, next: Next) -> Do<E> {
        // A znode keeps its place while its session may live, so its owner waits for the session, not for a call's time.
        let patience = if matches!(next, Next::List | Next::Ask(_)) { ConnectFor::Wait } else { ConnectFor::Call };
        self.me.stage = Stage::Connecting(next);
        Do::Connect(patience)
    }

    fn connected(&mut self) -> Do<E> {
        let Stage::Connecting(next) = self.me.stage else { return self.list() };
        match next {
            Next::Create | Next::MakeDirectory => self.create(),
            Next::List => self.list(),
            Next::Ask(why) => self.ask(why),
        }
    }

    fn again(&mut self, next: Next, error: E) -> Do<E> {
        if self.view.is_time_up {
            return self.leave(End::Failed(error));
        }
        self.me.stage = Stage::Pausing(next);
        Do::Again(error)
    }

    fn allowed(&mut self) -> Do<E> {
        match self.me.stage {
            Stage::Pausing(Next::MakeDirectory) => self.make_directory(),
            Stage::Pausing(next) => self.connect(next),
            _ => self.list(),
        }
    }

    fn make_directory(&mut self) -> Do<E> {
        self.me.stage = Stage::MakingDirectory;
        Do::MakeDirectory
    }

    fn directory_made(&mut self, made: Result<(), Failed<E>>) -> Do<E> {
        match made {
            Ok(()) => self.connect(Next::Create),
            // A parent that was there a moment ago has been removed: the create finds out.
            Err(failed) if failed.code == Some(ErrorCode::NoNode) => self.connect(Next::Create),
            Err(failed) => self.failed(failed),
        }
    }

    /// No way on from here but another attempt, if that makes sense.
    fn failed(&mut self, failed: Failed<E>) -> Do<E> {
        match failed.reaction {
            Reaction::Retry if matches!(self.me.stage, Stage::Pausing(_)) => self.leave(End::Failed(failed.error)),
            Reaction::Retry if self.stands() => self.outlast(failed.code.is_some()),
            Reaction::Retry => self.again(Next::Create, failed.error),
            Reaction::TimeUp if self.stands() => self.leave(End::TimeUp),
            Reaction::TimeUp | Reaction::Final => self.leave(End::Failed(failed.error)),
        }
    }

    /// Whether there are znodes, all of them known.
    fn stands(&self) -> bool {
        !self.me.nodes.is_empty() && self.me.doubts.is_empty()
    }

    /// The connection is gone. While the session may live the znodes keep their places.
    fn outlast(&mut self, is_refused: bool) -> Do<E> {
        if self.has_lost_session() {
            return self.session_ended();
        }
        let next = if self.me.is_held { Next::Ask(Why::LastLook) } else { Next::List };
        if !is_refused {
            return self.connect(next);
        }
        // The connection is there, and a server that has too much to do must not be asked again at once.
        self.me.stage = Stage::Resting(next);
        Do::Doze
    }

    fn has_lost_session(&self) -> bool {
        self.view.is_ended || self.me.session != self.view.session
    }

    /// The session has taken the znodes with it. What no session owns has to be deleted.
    fn session_ended(&mut self) -> Do<E> {
        self.forget();
        if self.spec.companion.is_some() {
            return self.leave(End::CompanionGone);
        }
        if self.view.is_time_up {
            return self.leave(End::TimeUp);
        }
        self.connect(Next::Create)
    }

    /// Somebody has deleted an own znode.
    fn gone(&mut self) -> Do<E> {
        self.forget();
        let error = self.env.node_gone();
        self.again(Next::Create, error)
    }

    /// What was reached so far counts no more.
    fn forget(&mut self) {
        self.unwatch();
        self.me.own = None;
        self.me.is_held = false;
        self.me.in_doubt_since = None;
        self.me.confirmed = None;
        let nodes = std::mem::take(&mut self.me.nodes).into_iter().map(Leftover::Node);
        let doubts = std::mem::take(&mut self.me.doubts).into_iter().map(Leftover::Doubt);
        self.me.discarded.extend(nodes.chain(doubts));
    }

    fn unwatch(&mut self) {
        self.me.predecessor = None;
        self.me.directory = None;
    }

    fn create(&mut self) -> Do<E> {
        if self.view.is_time_up {
            return self.leave(End::TimeUp);
        }
        if !self.me.doubts.is_empty() || !self.me.nodes.is_empty() {
            // What an earlier session made ends with it, and must not be found: it is about to vanish (CURATOR-498).
            if self.has_lost_session() && self.spec.mode.is_ephemeral() {
                self.forget();
            } else {
                return self.search();
            }
        }
        self.me.session = self.view.session;
        if self.spec.companion.as_ref().is_some_and(|writer| writer.session != self.view.session) {
            return self.leave(End::CompanionGone);
        }
        if self.spec.looks_first && !std::mem::replace(&mut self.me.has_looked, true) {
            return self.look();
        }
        self.send_creates()
    }

    fn send_creates(&mut self) -> Do<E> {
        let plan = match self.spec.naming {
            Naming::Unique(_) => self.env.plan(),
            Naming::Fixed(_) => Plan::Bare,
        };
        self.me.doubts = (0..self.spec.count).map(|_| self.env.unique()).collect();
        let mut requests: Vec<_> = self.me.doubts.iter().map(|unique| (self.creation(unique), None)).collect();
        if matches!(plan, Plan::List | Plan::ListAndGuard(_)) {
            requests.push((list_of(&self.spec.directory, false), None));
        }
        if let Some(gate) = &self.spec.gate {
            requests.push((list_of(gate, false), None));
        }
        if let Plan::ListAndGuard(number) = plan {
            // Not getData: the directory may have more data than a frame can take, which would end the connection. What
            // `exists` leaves on a directory that is gone goes with the watch.
            let request = Request::Exists { path: self.spec.directory.clone(), watch: true };
            requests.push((request, Some(WatchId::Guard(number))));
        }
        self.me.stage = Stage::Creating { connection: self.view.connection, plan };
        asked(requests)
    }

    /// The shell adds the access control list, which the caller's provider names.
    fn creation(&self, unique: &str) -> Request {
        let (name, data) = match &self.spec.naming {
            Naming::Unique(name) => ([unique, name].concat(), self.spec.data.clone()),
            Naming::Fixed(name) => (name.clone(), [unique.as_bytes(), &self.spec.data].concat()),
        };
        let (path, mode) = (self.child(&name), self.spec.mode);
        Request::Create { path, data, acl: Vec::new(), mode, with_stat: true }
    }

    fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.spec.directory)
    }

    fn created(&mut self, connection: u64, plan: Plan, answers: Vec<Answer<E>>) -> Do<E> {
        let mut answers = answers.into_iter();
        let mut failure = None;
        for unique in std::mem::take(&mut self.me.doubts) {
            match answers.next() {
                Some(Ok(Response::Created { path, stat: Some(stat) })) => {
                    self.me.nodes.push(Node { name: name_of(&path), czxid: stat.czxid });
                }
                Some(Err(failed)) => {
                    if failed.maybe_done {
                        self.me.doubts.push(unique);
                    }
                    failure = failure.or(Some(failed));
                }
                // A shell that breaks the rules: nothing is known.
                _ => self.me.doubts.push(unique),
            }
        }
        self.me.seen_over = connection;
        if let Some(failed) = failure {
            return self.not_created(failed);
        }
        self.me.missing = 0;
        if let Some(number) = self.exhausted() {
            return self.leave(End::Exhausted(number));
        }
        if matches!(self.spec.naming, Naming::Fixed(_)) {
            return self.grant(connection);
        }
        let listed = matches!(plan, Plan::List | Plan::ListAndGuard(_)).then(|| answers.next()).flatten();
        if self.spec.gate.is_some() && !answers.next().is_some_and(|queued| is_nobody_listed(&queued)) {
            return self.leave(End::TimeUp);
        }
        match (plan, listed) {
            (Plan::ByNumber, _) => self.by_number(connection),
            (_, Some(Ok(Response::Children { names, .. }))) => self.decide(&names, connection),
            // Not asked for once more: each list above the frame limit ends the connection.
            (_, Some(Err(failed))) if failed.reaction == Reaction::Final => self.failed(failed),
            _ => self.list(),
        }
    }

    fn exhausted(&self) -> Option<i64> {
        let name = &self.me.nodes.last()?.name;
        sequence_for(name, self.spec.driver.lock_name()).filter(|number| is_exhausted(*number))
    }

    fn by_number(&mut self, connection: u64) -> Do<E> {
        let Some(own) = self.me.nodes.last().map(|node| node.name.clone()) else { return self.list() };
        if self.view.is_over(connection) && self.env.proves_alone(&own) {
            return self.decide(&[own], connection);
        }
        self.list()
    }

    fn not_created(&mut self, failed: Failed<E>) -> Do<E> {
        if self.spec.count > 1 || self.spec.gate.is_some() {
            // All or none, and none found later, when others may have queued: the next attempt makes all of them anew.
            self.forget();
        }
        match (failed.code, &self.spec.naming) {
            (Some(ErrorCode::NoNode), _) if self.spec.companion.is_some() => self.leave(End::CompanionGone),
            (Some(ErrorCode::NoNode), _) => {
                self.me.missing += 1;
                // Once is normal. Again means that the server removed it in between, as an empty container.
                if self.me.missing > 1 { self.again(Next::MakeDirectory, failed.error) } else { self.make_directory() }
            }
            (Some(ErrorCode::NodeExists), Naming::Fixed(name)) => self.taken(name.clone()),
            _ => self.failed(failed),
        }
    }

    /// Reads before anything is written.
    fn look(&mut self) -> Do<E> {
        self.me.stage = Stage::Looking;
        let first = match &self.spec.naming {
            Naming::Unique(_) => list_of(&self.spec.directory, false),
            Naming::Fixed(name) => Request::GetData { path: self.child(name), watch: false },
        };
        let gate = self.spec.gate.iter().map(|gate| (list_of(gate, false), None));
        asked(std::iter::once((first, None)).chain(gate).collect())
    }

    fn looked(&mut self, answers: Vec<Answer<E>>) -> Do<E> {
        let mut answers = answers.into_iter();
        let is_taken = match answers.next() {
            Some(Ok(Response::Children { names, .. })) => {
                let too_many = self.too_many(&names, None).filter(|_| self.spec.waits.is_some());
                match (self.would_wait(names), too_many) {
                    (true, Some(ahead)) => return self.leave(End::Busy(ahead)),
                    (would_wait, _) => would_wait && self.spec.waits.is_none(),
                }
            }
            // Another one has the one name.
            Some(Ok(_)) if self.spec.waits.is_some() => match self.spec.max_ahead {
                Some(0) => return self.leave(End::Busy(1)),
                _ => false,
            },
            Some(Ok(_)) | None => true,
            Some(Err(failed)) if failed.code == Some(ErrorCode::NoNode) => false,
            Some(Err(failed)) => return self.look_failed(failed),
        };
        match answers.next() {
            _ if is_taken => self.leave(End::TimeUp),
            Some(Err(failed)) if failed.code != Some(ErrorCode::NoNode) => self.look_failed(failed),
            Some(queued) if !is_nobody_listed(&queued) => self.leave(End::TimeUp),
            _ => self.send_creates(),
        }
    }

    fn look_failed(&mut self, failed: Failed<E>) -> Do<E> {
        self.me.has_looked = false;
        self.failed(failed)
    }

    /// Whether as many as are wanted, if they came now, would have to wait.
    fn would_wait(&self, mut names: Vec<String>) -> bool {
        let last = i64::from(i32::MAX);
        let count = i64::try_from(self.spec.count).unwrap_or(last);
        let name_of = |number: i64| format!("{}{number:010}", self.spec.driver.lock_name());
        names.extend((0..count).map(|k| name_of(last - count + 1 + k)));
        self.spec.driver.decide(&names, &name_of(last), self.env.max_leases()) != Decision::Granted
    }

    /// Looks for what a create without an answer may have made. The sync makes sure that the server asked has seen it,
    /// also if it is another one than the server that was sent the create.
    fn search(&mut self) -> Do<E> {
        self.me.session = self.view.session;
        self.me.stage = Stage::Searching { connection: self.view.connection };
        let (path, read) = match &self.spec.naming {
            Naming::Unique(_) => (self.spec.directory.clone(), list_of(&self.spec.directory, false)),
            Naming::Fixed(name) => (self.child(name), Request::GetData { path: self.child(name), watch: false }),
        };
        asked(vec![(Request::Sync { path }, None), (read, None)])
    }

    fn searched(&mut self, connection: u64, answers: Vec<Answer<E>>) -> Do<E> {
        match last_of(answers) {
            Ok(Response::Children { names, .. }) => {
                let doubts = &self.me.doubts;
                match names.iter().find(|name| doubts.iter().any(|doubt| name.starts_with(doubt))).cloned() {
                    Some(name) => {
                        let request = Request::Exists { path: self.child(&name), watch: false };
                        self.me.stage = Stage::Recognizing { name, children: names, connection };
                        asked(vec![(request, None)])
                    }
                    None => self.not_found(),
                }
            }
            Ok(Response::Data { data, stat }) => {
                let is_marked = self.me.doubts.iter().any(|mark| data.starts_with(mark.as_bytes()));
                let Naming::Fixed(name) = self.spec.naming.clone() else { return self.not_found() };
                if is_marked && self.is_owner(&stat) {
                    self.found(name, &stat, connection);
                    return self.grant(connection);
                }
                self.me.doubts.clear();
                self.taken(name)
            }
            Ok(_) => self.not_found(),
            Err(Some(failed)) if failed.code == Some(ErrorCode::NoNode) => self.not_found(),
            Err(Some(failed)) => self.failed(failed),
            Err(None) => self.not_found(),
        }
    }

    fn recognized(&mut self, name: String, children: &[String], connection: u64, answers: Vec<Answer<E>>) -> Do<E> {
        match last_of(answers) {
            Ok(Response::Stat(stat)) if self.is_owner(&stat) => {
                self.found(name, &stat, connection);
                match self.exhausted() {
                    Some(number) => self.leave(End::Exhausted(number)),
                    None => self.decide(children, connection),
                }
            }
            Err(Some(failed)) if failed.code != Some(ErrorCode::NoNode) => self.failed(failed),
            _ => self.not_found(),
        }
    }

    fn found(&mut self, name: String, stat: &Stat, connection: u64) {
        self.me.doubts.clear();
        self.me.nodes = vec![Node { name, czxid: stat.czxid }];
        self.me.seen_over = connection;
    }

    /// It was never made, and never will be: what a former connection left behind the server refuses.
    fn not_found(&mut self) -> Do<E> {
        self.me.doubts.clear();
        self.create()
    }

    fn is_owner(&self, stat: &Stat) -> bool {
        !self.spec.mode.is_ephemeral() || stat.ephemeral_owner == self.me.session
    }

    // ---- in the queue

    /// Reads the queue.
    fn list(&mut self) -> Do<E> {
        if self.has_lost_session() {
            return self.session_ended();
        }
        if let Naming::Fixed(name) = &self.spec.naming {
            return if self.me.nodes.is_empty() { self.taken(name.clone()) } else { self.ask(Why::Grant) };
        }
        let is_first_watch = self.spec.waits == Some(WaitStrategy::WatchParent) && self.me.directory.is_none();
        let watch = is_first_watch.then(|| self.next_watch());
        self.me.stage = Stage::Listing { connection: self.view.connection, watch };
        asked(vec![(list_of(&self.spec.directory, watch.is_some()), watch.map(WatchId::Directory))])
    }

    fn next_watch(&mut self) -> u64 {
        self.me.watches += 1;
        self.me.watches
    }

    fn listed(&mut self, connection: u64, watch: Option<u64>, answers: Vec<Answer<E>>) -> Do<E> {
        match last_of(answers) {
            Ok(Response::Children { names, .. }) => {
                self.me.directory = watch.or(self.me.directory);
                self.decide(&names, connection)
            }
            Err(Some(failed)) if failed.code == Some(ErrorCode::NoNode) => self.ask(Why::Missing),
            Err(Some(failed)) => self.failed(failed),
            Ok(_) | Err(None) => self.ask(Why::Missing),
        }
    }

    /// Decides by the names of the directory's children.
    fn decide(&mut self, children: &[String], connection: u64) -> Do<E> {
        let Some(own) = self.me.nodes.last().map(|node| node.name.clone()) else { return self.session_ended() };
        if self.spec.companion.as_ref().is_some_and(|writer| !children.contains(&writer.name)) {
            return self.leave(End::CompanionGone);
        }
        self.me.is_alone = matches!(children, [only] if *only == own);
        let decision = if self.are_listed(children) {
            self.spec.driver.decide(children, &own, self.env.max_leases())
        } else {
            Decision::Missing
        };
        match decision {
            // It was seen there over this very connection before.
            Decision::Missing if self.me.confirmed.is_some() && self.me.seen_over == connection => self.gone(),
            // A server that lags behind may not know it yet.
            Decision::Missing => self.ask(Why::Missing),
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
        let contenders = sorted_contenders(children);
        let ahead = contenders.iter().position(|name| Some(*name) == own).unwrap_or(contenders.len());
        self.me.ahead = Some(ahead);
        // Who has queued stays, over the end of its session too.
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
        if self.me.is_barred {
            return self.leave(End::Barred);
        }
        match strategy {
            WaitStrategy::WatchPredecessor => self.watch(name, first, children, connection),
            // The watch comes with the next list, which shows what changed before it.
            WaitStrategy::WatchParent if self.me.directory.is_none() => self.list(),
            WaitStrategy::Poll(_) if self.me.own.is_none() => self.send_watches(None, None),
            WaitStrategy::WatchParent | WaitStrategy::Poll(_) => self.sleep(),
        }
    }

    fn sleep(&mut self) -> Do<E> {
        if self.view.is_time_up {
            return self.leave(End::TimeUp);
        }
        self.me.stage = Stage::Sleeping;
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
        let watch = self.next_watch();
        self.send_watches(Some(Predecessor { name, watch, held_the_lock: first, connection, ahead: None }), ahead)
    }

    /// Whom the predecessor waits for, where the lock follows the predecessor's end.
    fn in_front_of(&self, name: &str, children: &[String]) -> Option<String> {
        if !self.follows(name) {
            return None;
        }
        match self.spec.driver.decide(children, name, self.env.max_leases()) {
            Decision::Wait { watch, .. } => Some(watch),
            Decision::Granted | Decision::Missing => None,
        }
    }

    /// Whether the lock is the waiter's as soon as this one, which held it, is gone. Only behind one of its own kind: a
    /// writer that downgrades leaves a reader with its own number behind.
    fn follows(&self, name: &str) -> bool {
        let driver = &self.spec.driver;
        driver.successor_follows_holder()
            && self.env.max_leases() == 1
            && (is_kin(name, driver.lock_name()) || self.env.omits(Condition::Kind))
    }

    /// Sends for the watches in one write. getData leaves no watch on a znode that is gone, which `exists` would
    /// (CURATOR-107).
    fn send_watches(&mut self, predecessor: Option<Predecessor>, ahead: Option<String>) -> Do<E> {
        self.me.predecessor = None;
        let watches_own = self.me.own.is_none() && !self.env.omits(Condition::OwnWatch);
        let own = watches_own.then(|| self.next_watch());
        let mut requests = Vec::with_capacity(2);
        if let Some(Predecessor { name, watch, .. }) = &predecessor {
            requests.push((self.watch_of(name), Some(WatchId::Predecessor(*watch))));
        }
        if let (Some(own), Some(node)) = (own, self.me.nodes.last()) {
            requests.push((self.watch_of(&node.name), Some(WatchId::Own(own))));
        }
        self.me.stage = Stage::Watching(Box::new(Watching { predecessor, own, ahead, is_for_ahead: false }));
        asked(requests)
    }

    fn watch_of(&self, name: &str) -> Request {
        Request::GetData { path: self.child(name), watch: true }
    }

    fn watching(&mut self, watching: Watching, answers: Vec<Answer<E>>) -> Do<E> {
        if watching.is_for_ahead {
            return self.ahead_watched(answers);
        }
        let mut answers = answers.into_iter();
        let of_predecessor = watching.predecessor.is_some().then(|| answers.next()).flatten();
        if let Some(own) = watching.own.filter(|_| !self.me.nodes.is_empty()) {
            match answers.next() {
                Some(Ok(_)) => self.me.own = Some(own),
                Some(Err(failed)) if failed.code == Some(ErrorCode::NoNode) => return self.ask(Why::Missing),
                Some(Err(failed)) => return self.failed(failed),
                None => return self.list(),
            }
        }
        let Some(predecessor) = watching.predecessor else { return self.sleep() };
        match of_predecessor {
            Some(Ok(Response::Data { stat, .. })) => {
                // Of a predecessor in this session it is known anyway whether it was granted the lock.
                let is_here = stat.ephemeral_owner == self.me.session;
                self.me.predecessor = Some(predecessor);
                match watching.ahead.filter(|_| !is_here) {
                    Some(ahead) => self.watch_ahead(&ahead),
                    None => self.sleep(),
                }
            }
            Some(Err(failed)) if failed.code == Some(ErrorCode::NoNode) => self.freed(),
            Some(Err(failed)) => self.failed(failed),
            Some(Ok(_)) | None => self.list(),
        }
    }

    fn watch_ahead(&mut self, ahead: &str) -> Do<E> {
        let number = self.next_watch();
        if let Some(predecessor) = &mut self.me.predecessor {
            predecessor.ahead = Some(number);
        }
        let watching = Watching { predecessor: None, own: None, ahead: None, is_for_ahead: true };
        self.me.stage = Stage::Watching(Box::new(watching));
        asked(vec![(self.watch_of(ahead), Some(WatchId::Ahead(number)))])
    }

    fn ahead_watched(&mut self, answers: Vec<Answer<E>>) -> Do<E> {
        let answer = last_of(answers);
        if answer.is_ok() {
            return self.sleep();
        }
        if let Some(predecessor) = &mut self.me.predecessor {
            predecessor.ahead = None;
        }
        match answer {
            Err(Some(failed)) if failed.code.is_none() => self.failed(failed),
            // It is gone, or may not be read: the list says who is first.
            _ => self.list(),
        }
    }

    /// The predecessor is gone, nobody knows how.
    fn freed(&mut self) -> Do<E> {
        self.me.predecessor = None;
        match self.spec.naming {
            Naming::Fixed(_) => self.connect_or_create(),
            Naming::Unique(_) => self.list(),
        }
    }

    fn connect_or_create(&mut self) -> Do<E> {
        if self.view.connection == 0 || self.has_lost_session() { self.connect(Next::Create) } else { self.create() }
    }

    /// Somebody else has the one name.
    fn taken(&mut self, name: String) -> Do<E> {
        if self.spec.waits.is_none() {
            return self.leave(End::TimeUp);
        }
        self.me.has_waited = true;
        let watch = self.next_watch();
        let connection = self.view.connection;
        let predecessor = Predecessor { name, watch, held_the_lock: true, connection, ahead: None };
        self.send_watches(Some(predecessor), None)
    }

    fn barred(&mut self) -> Do<E> {
        self.me.is_barred = true;
        if matches!(self.me.stage, Stage::Sleeping) { self.leave(End::Barred) } else { self.list() }
    }

    /// A watch reports.
    fn happened(&mut self, watch: WatchId, event: &WatchEvent) -> Do<E> {
        if !self.me.wants(watch) || matches!(watch, WatchId::Guard(_)) {
            // It was given up for another one, which will report for itself.
            return self.sleep();
        }
        match (watch, event) {
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
                // Used up. By a change of the data: set both again.
                self.me.own = None;
                self.me.predecessor = None;
                if *event == EventType::NodeDeleted { self.ask(Why::Missing) } else { self.list() }
            }
            (WatchId::Directory(_) | WatchId::Guard(_), WatchEvent::Node { .. }) => {
                self.me.directory = None;
                self.list()
            }
        }
    }

    /// The watch on the predecessor is used up.
    fn predecessor_changed(&mut self, event: EventType, connection: u64) -> Do<E> {
        let Some(predecessor) = self.me.predecessor.take() else { return self.list() };
        if matches!(self.spec.naming, Naming::Fixed(_)) {
            return if event == EventType::NodeDeleted { self.connect_or_create() } else { self.list() };
        }
        // Over one connection all the time, and with the own znode watched: else an administrator who has deleted the
        // own znode would have put the next waiter here.
        let is_sure = event == EventType::NodeDeleted
            && self.follows(&predecessor.name)
            && ((predecessor.connection == connection && self.view.is_over(connection))
                || self.env.omits(Condition::Connection))
            && (self.me.own.is_some() || self.env.omits(Condition::OwnWatch));
        if is_sure && (predecessor.held_the_lock || self.env.was_granted_here(&predecessor.name)) {
            return self.grant(connection);
        }
        self.list()
    }

    // ---- at the head of the queue

    /// Nobody is in front. Whether that is still so is certain only over the connection of that news, in a session that
    /// lives; else the server is asked.
    fn grant(&mut self, connection: u64) -> Do<E> {
        if self.view.is_time_up {
            return self.leave(End::TimeUp);
        }
        // A znode of another session is no lock (CURATOR-604).
        if self.has_lost_session() {
            return self.session_ended();
        }
        self.me.seen_over = connection;
        if self.is_certain() { self.hold() } else { self.ask(Why::Grant) }
    }

    fn is_certain(&self) -> bool {
        (self.view.is_over(self.me.seen_over) || self.env.omits(Condition::Connection))
            && (self.view.is_valid_for(self.spec.min_validity) || self.env.omits(Condition::ValidUntil))
    }

    fn hold(&mut self) -> Do<E> {
        self.me.is_held = true;
        // Given up now, since that may send a request: nothing may come between the last look and the return.
        self.unwatch();
        // The shell leaves the other queue. Should this hold come to nothing, it must not wait here any more.
        self.me.is_barred |= self.spec.has_place;
        self.me.stage = Stage::Holding;
        Do::Hold
    }

    /// The last look, as late as can be: the process may have been paused since the grant, for longer than its session.
    fn finish(&mut self) -> Do<E> {
        if self.has_lost_session() {
            return self.session_ended();
        }
        if self.view.is_time_up {
            return self.leave(End::TimeUp);
        }
        if self.is_certain() || self.env.omits(Condition::LastLook) {
            return self.end(End::Granted);
        }
        let since = *self.me.in_doubt_since.get_or_insert(self.view.now);
        let is_unseen = self.view.connection != 0 && !self.view.is_over(self.me.seen_over);
        if is_unseen || !self.me.confirmed.is_some_and(|at| self.is_young(at)) {
            return self.ask(Why::LastLook);
        }
        // The znodes stand, and the next prompt heartbeats make the session certain. Where none is prompt for as long as
        // the session timeout, the answer has to do: the holder sees that it is in doubt.
        if self.view.now.saturating_duration_since(since) >= self.view.timeout {
            return if self.spec.min_validity.is_zero() { self.end(End::Granted) } else { self.leave(End::Uncertain) };
        }
        self.me.stage = Stage::Dozing;
        Do::Doze
    }

    /// An old answer proves nothing: the process may have been paused since.
    fn is_young(&self, asked: Instant) -> bool {
        self.view.now.saturating_duration_since(asked) < self.view.timeout / 2 || self.env.omits(Condition::AgeOfAnswer)
    }

    /// Asks whether the own znodes stand. The sync takes the question to the leader first: a server that is cut off
    /// from the majority may vouch for a session that is gone.
    fn ask(&mut self, why: Why) -> Do<E> {
        if self.has_lost_session() {
            return self.session_ended();
        }
        if self.view.connection == 0 {
            // Over which connection the answer would come is unknown.
            return self.connect(Next::Ask(why));
        }
        let mut requests = Vec::with_capacity(1 + self.me.nodes.len());
        requests.push((Request::Sync { path: self.spec.directory.clone() }, None));
        let paths = self.me.nodes.iter().map(|node| self.child(&node.name));
        requests.extend(paths.map(|path| (Request::Exists { path, watch: false }, None)));
        self.me.stage = Stage::Asking { at: self.view.now, connection: self.view.connection, why };
        asked(requests)
    }

    fn told(&mut self, at: Instant, connection: u64, why: Why, answers: Vec<Answer<E>>) -> Do<E> {
        let mut answers = answers.into_iter();
        if let Some(Err(failed)) = answers.next() {
            return self.failed(failed);
        }
        let mut is_gone = answers.len() != self.me.nodes.len();
        for (node, answer) in self.me.nodes.iter().zip(answers) {
            match answer {
                Ok(Response::Stat(stat)) => is_gone |= stat.czxid != node.czxid || !self.is_owner(&stat),
                Err(failed) if failed.code != Some(ErrorCode::NoNode) => return self.failed(failed),
                _ => is_gone = true,
            }
        }
        if is_gone {
            return self.gone();
        }
        if !self.view.is_over(connection) || !self.is_young(at) {
            return self.ask(why);
        }
        self.me.seen_over = connection;
        self.me.confirmed = Some(at);
        match why {
            Why::Missing => self.list(),
            Why::Grant if self.view.is_time_up => self.leave(End::TimeUp),
            Why::Grant => self.hold(),
            Why::LastLook => self.finish(),
        }
    }

    // ---- on the way out

    /// Takes the znodes out of the queue. Those that the server does not confirm are left to the shell, with the creates
    /// whose outcome is unknown.
    fn leave(&mut self, end: End<E>) -> Do<E> {
        self.me.is_held = false;
        // After the deletes the server may be asked for nothing more.
        self.unwatch();
        // A fixed name may be another one's znode by now: that takes a look first, which is the background's.
        let can_delete = matches!(self.spec.naming, Naming::Unique(_)) && self.spec.gate.is_none();
        if !can_delete || self.me.nodes.is_empty() || self.view.connection == 0 || self.has_lost_session() {
            return self.end(end);
        }
        let paths = self.me.nodes.iter().map(|node| self.child(&node.name));
        let requests = paths.map(|path| (Request::Delete { path, version: -1 }, None)).collect();
        self.me.stage = Stage::Leaving(end);
        Do::Ask(Ask { requests, is_farewell: true })
    }

    fn left(&mut self, end: End<E>, answers: Vec<Answer<E>>) -> Do<E> {
        let is_gone = |answer: Answer<E>| match answer {
            Ok(_) => true,
            Err(failed) => failed.code == Some(ErrorCode::NoNode),
        };
        let mut answers = answers.into_iter();
        self.me.nodes.retain(|_| !answers.next().is_some_and(is_gone));
        self.end(end)
    }

    fn end(&mut self, end: End<E>) -> Do<E> {
        self.me.stage = Stage::Ended;
        Do::End(end)
    }

    fn answered(&mut self, answers: Vec<Answer<E>>) -> Do<E> {
        match std::mem::replace(&mut self.me.stage, Stage::Ended) {
            Stage::Looking => self.looked(answers),
            Stage::Creating { connection, plan } => self.created(connection, plan, answers),
            Stage::Searching { connection } => self.searched(connection, answers),
            Stage::Recognizing { name, children, connection } => self.recognized(name, &children, connection, answers),
            Stage::Listing { connection, watch } => self.listed(connection, watch, answers),
            Stage::Watching(watching) => self.watching(*watching, answers),
            Stage::Asking { at, connection, why } => self.told(at, connection, why, answers),
            Stage::Leaving(end) => self.left(end, answers),
            // A shell that breaks the rules.
            _ => self.list(),
        }
    }
}

fn asked<E>(requests: Vec<(Request, Option<WatchId>)>) -> Do<E> {
    Do::Ask(Ask { requests, is_farewell: false })
}

fn list_of(directory: &str, watch: bool) -> Request {
    Request::GetChildren { path: directory.to_owned(), watch, with_stat: false }
}

/// The last answer; of several the first error, with none the outcome is the shell's secret.
fn last_of<E>(answers: Vec<Answer<E>>) -> Result<Response, Option<Failed<E>>> {
    let mut last = Err(None);
    for answer in answers {
        last = Ok(answer.map_err(Some)?);
    }
    last
}

fn is_nobody_listed<E>(answer: &Answer<E>) -> bool {
    match answer {
        Ok(Response::Children { names, .. }) => sorted_contenders(names).is_empty(),
        Ok(_) => false,
        Err(failed) => failed.code == Some(ErrorCode::NoNode),
    }
}

fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}
