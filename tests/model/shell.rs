//! A thread with its locks: a shell around the contender, as both real ones behave.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::OnceLock,
    time::{Duration, Instant},
};

use curator_locks::{
    CreateMode, ErrorCode,
    hooks::contender::{
        Companion, Condition, ConnectFor, Contender, Do, End, Environment, Failed, Input, Leftover, Naming, Node, Over,
        Plan, Reaction, Spec, Unlisted, View, WatchId,
    },
    proto::{EventType, Request, Response},
    session::WatchEvent,
};

use super::{
    client::{Job, Owner, Sent},
    rules::{Class, Lock, Op, Rules},
    server::number_of,
    trace,
    world::{Notes, World},
};

pub type Error = &'static str;
pub type Failure = Failed<Error>;

/// The session timeout. Time goes by in such leaps only.
const T: Duration = Duration::from_secs(3600);

/// What the shell owes its contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owed {
    /// There is none.
    Nothing,
    Connection(ConnectFor),
    Answers,
    Directory,
    Event,
    /// A look after a moment.
    Moment,
    Registration,
    /// The end of a release.
    Release,
}

/// What this process holds, or is about to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hold {
    pub lock: usize,
    pub nodes: Vec<Node>,
    pub session: i64,
    pub token: i64,
    pub seen_over: u64,
    /// The own watch has told of its end, or it was looked for and not found.
    pub is_lost: bool,
    /// The caller has it.
    pub is_returned: bool,
    /// The time when it was put into the registry.
    pub since: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Thread {
    pub client: usize,
    /// The next step of what it does.
    pub at: usize,
    pub contender: Option<Contender<Error>>,
    /// The session that was connected last, as far as this shell knows; 0 before the first.
    pub session: i64,
    /// The one in which znodes were made.
    owner: i64,
    pub owed: Owed,
    pub answers: Vec<Option<Result<Response, Failure>>>,
    /// The number of the guard that was asked for with them.
    guard: Option<u64>,
    pub mailbox: VecDeque<(WatchId, WatchEvent)>,
    pub holds: Vec<Hold>,
    retries: u8,
    uniques: u8,
    /// The caller's time is up, or it has cancelled.
    pub stop: Option<Reaction>,
}

/// What a contender may ask of its process.
struct Surroundings<'a> {
    rules: &'a Rules,
    lock: &'a Lock,
    thread: usize,
    uniques: Cell<u8>,
    over: Over,
    granted: &'a [String],
    unlisted: RefCell<&'a mut Unlisted<u64>>,
    guard: Cell<Option<u64>>,
}

impl Environment<Error> for Surroundings<'_> {
    fn unique(&self) -> String {
        let number = self.uniques.get();
        self.uniques.set(number + 1);
        let letter = letter_of(self.thread);
        match &self.lock.spec.naming {
            Naming::Fixed(_) => format!("{letter}{number}\n"),
            Naming::Unique(_) if self.lock.has_session_in_name => {
                format!("x-{}-{letter}{number}-", self.over.session)
            }
            Naming::Unique(_) => format!("_c_{letter}{number}-"),
        }
    }

    fn max_leases(&self) -> usize {
        self.lock.limit()
    }

    fn plan(&self) -> Plan {
        if !self.lock.is_unlisted {
            return Plan::List;
        }
        let (plan, number) = self.unlisted.borrow_mut().plan(self.over);
        self.guard.set((plan == Plan::ListAndGuard).then_some(number));
        plan
    }

    fn proves_alone(&self, name: &str) -> bool {
        self.unlisted.borrow().proves_alone(name, self.over)
    }

    fn was_granted_here(&self, name: &str) -> bool {
        self.granted.iter().any(|granted| granted == name)
    }

    fn node_gone(&self) -> Error {
        "the own znode is gone"
    }

    fn omits(&self, condition: Condition) -> bool {
        self.rules.omitted == Some(condition)
    }
}

impl Thread {
    pub fn new(client: usize) -> Thread {
        Thread {
            client,
            at: 0,
            contender: None,
            session: 0,
            owner: 0,
            owed: Owed::Nothing,
            answers: Vec::new(),
            guard: None,
            mailbox: VecDeque::new(),
            holds: Vec::new(),
            retries: 0,
            uniques: 0,
            stop: None,
        }
    }

    pub fn has_begun(&self) -> bool {
        self.at > 0 || self.contender.is_some()
    }

    fn hold_of(&self, lock: usize) -> Option<&Hold> {
        self.holds.iter().find(|hold| hold.lock == lock)
    }

    pub fn answer(&mut self, place: usize, answer: Result<Response, Failure>) {
        if let Some(waiting) = self.answers.get_mut(place) {
            *waiting = Some(answer);
        }
    }
}

pub fn letter_of(thread: usize) -> char {
    char::from(b'a' + u8::try_from(thread).unwrap_or(0))
}

fn failure(error: Error, maybe_done: bool, reaction: Reaction) -> Failure {
    Failed { error, code: None, maybe_done, reaction }
}

pub fn connection_lost(maybe_done: bool) -> Failure {
    failure("connection lost", maybe_done, Reaction::Retry)
}

pub fn refused(code: ErrorCode) -> Failure {
    let reaction = if code == ErrorCode::ThrottledOp { Reaction::Retry } else { Reaction::Final };
    Failed { error: "refused", code: Some(code), maybe_done: false, reaction }
}

fn stopped(stop: Option<Reaction>) -> Input<Error> {
    match stop {
        Some(Reaction::Final) => Input::Failed(failure("cancelled", false, Reaction::Final)),
        _ => Input::TimeUp,
    }
}

fn now(clock: u8) -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now) + T * u32::from(clock)
}

impl World {
    /// What the thread does next, if it can.
    fn next_op(&self, rules: &Rules, t: usize) -> Op {
        let (_, program) = &rules.threads[t];
        program.get(self.threads[t].at).copied().unwrap_or(Op::End)
    }

    /// The lock of the contender under way, or to begin.
    fn lock_of<'a>(&self, rules: &'a Rules, t: usize) -> Option<(usize, &'a Lock)> {
        match self.next_op(rules, t) {
            Op::Acquire(lock) | Op::Try(lock, _) => Some((lock, &rules.locks[lock])),
            Op::Release(_) | Op::End => None,
        }
    }

    pub fn is_done(&self, rules: &Rules, t: usize) -> bool {
        let thread = &self.threads[t];
        thread.owed == Owed::Nothing && thread.holds.is_empty() && self.next_op(rules, t) == Op::End
    }

    /// Whether the thread can take a step.
    pub fn is_ready(&self, rules: &Rules, t: usize) -> bool {
        let thread = &self.threads[t];
        match thread.owed {
            Owed::Nothing => !self.is_done(rules, t),
            Owed::Connection(_) => self.clients[thread.client].is_connected() || thread.stop.is_some(),
            Owed::Answers | Owed::Directory | Owed::Release => thread.answers.iter().all(Option::is_some),
            Owed::Event => !thread.mailbox.is_empty() || thread.stop.is_some() || self.is_barred(rules, t),
            Owed::Moment | Owed::Registration => true,
        }
    }

    fn is_barred(&self, rules: &Rules, t: usize) -> bool {
        let Some(bar) = self.lock_of(rules, t).and_then(|(_, lock)| lock.bar) else { return false };
        self.threads[t].hold_of(bar).is_none_or(|hold| self.is_over(t, hold))
    }

    /// Whether the holder has been told that it lost the lock.
    fn is_over(&self, t: usize, hold: &Hold) -> bool {
        let client = &self.clients[self.threads[t].client];
        hold.is_lost || client.is_ended || client.session != hold.session
    }

    /// Whether the holder believes, and may, that it holds the lock.
    pub fn is_certain(&self, t: usize, hold: &Hold) -> bool {
        let client = &self.clients[self.threads[t].client];
        let is_seen = client.connection == 0 || client.connection == hold.seen_over;
        !self.is_over(t, hold) && is_seen && client.is_valid
    }

    pub fn step(&mut self, rules: &Rules, t: usize, notes: &mut Notes) -> Result<(), String> {
        let thread = &mut *self.threads[t];
        let input = match thread.owed {
            Owed::Nothing => return self.begin(rules, t, notes),
            Owed::Release => {
                self.released(rules, t);
                return Ok(());
            }
            Owed::Connection(_) if self.clients[thread.client].is_connected() => Input::Connected,
            Owed::Connection(_) => stopped(thread.stop),
            Owed::Answers => Input::Answers(self.take_answers(t)),
            Owed::Directory => Input::DirectoryMade(directory_made(self.take_answers(t).pop())),
            Owed::Event => match thread.mailbox.pop_front() {
                Some((watch, event)) => Input::Event(watch, event),
                None if thread.stop.is_some() => stopped(thread.stop),
                None => Input::Barred,
            },
            Owed::Moment if thread.stop.is_some() => stopped(thread.stop),
            Owed::Moment => Input::Woken,
            Owed::Registration => Input::Held { is_deleted: self.was_deleted(t) },
        };
        self.hand_in(rules, t, input, notes)
    }

    fn begin(&mut self, rules: &Rules, t: usize, notes: &mut Notes) -> Result<(), String> {
        match self.next_op(rules, t) {
            Op::Acquire(_) | Op::Try(..) => {
                let thread = &mut *self.threads[t];
                thread.contender = Some(Contender::new());
                (thread.session, thread.owner) = (0, 0);
                self.hand_in(rules, t, Input::Begin, notes)
            }
            Op::Release(lock) => {
                self.threads[t].at += 1;
                if let Some(place) = self.threads[t].holds.iter().position(|hold| hold.lock == lock) {
                    self.release(rules, t, place, notes);
                }
                Ok(())
            }
            Op::End => {
                self.release(rules, t, self.threads[t].holds.len() - 1, notes);
                Ok(())
            }
        }
    }

    /// What a lock is at this moment, for a thread that takes the place of its own writer.
    fn spec_of(&self, t: usize, lock: &Lock) -> Spec {
        let mut spec = lock.spec.clone();
        let writer = lock.downgrades.and_then(|writer| self.threads[t].hold_of(writer));
        let session = writer.map_or(0, |writer| writer.session);
        if let (Some(writer), Naming::Unique(name)) = (writer.and_then(|writer| writer.nodes.last()), &mut spec.naming)
        {
            name.push_str(&writer.name[writer.name.len() - 10..]);
            spec.companion = Some(Companion { name: writer.name.clone(), session });
        }
        spec
    }

    fn view(&self, t: usize) -> View {
        let thread = &self.threads[t];
        let client = &self.clients[thread.client];
        let now = now(client.clock);
        let lives = thread.session == client.session && !client.is_ended;
        View {
            now,
            is_time_up: thread.stop == Some(Reaction::TimeUp),
            session: thread.session,
            connection: if lives { client.connection } else { 0 },
            valid_until: lives.then_some(if client.is_valid { now + T } else { now }),
            timeout: T,
            is_ended: !lives && thread.session != 0,
        }
    }

    /// One step of the contender, and what needs nothing from outside at once: a connection that is there, and the retry
    /// policy's word.
    fn hand_in(&mut self, rules: &Rules, t: usize, mut input: Input<Error>, notes: &mut Notes) -> Result<(), String> {
        let Some((number, lock)) = self.lock_of(rules, t) else { return Ok(()) };
        let spec = self.spec_of(t, lock);
        loop {
            if matches!(input, Input::Connected) {
                self.threads[t].session = self.clients[self.threads[t].client].session;
            }
            let told = notes.text(|| trace::input(&input));
            let next = self.one_step(rules, t, lock, &spec, input);
            notes.add(|| format!("{}: {told} -> {}", letter_of(t), trace::next(&next)));
            self.tidy(t, number, lock);
            input = match next {
                Do::Connect(_) if self.clients[self.threads[t].client].is_connected() => Input::Connected,
                Do::Again(error) if self.threads[t].retries >= rules.retries => {
                    Input::Failed(failure(error, false, Reaction::Retry))
                }
                Do::Again(_) => {
                    self.threads[t].retries += 1;
                    Input::Allowed
                }
                next => return self.carry_out(rules, t, (number, lock, &spec), next),
            };
        }
    }

    fn one_step(&mut self, rules: &Rules, t: usize, lock: &Lock, spec: &Spec, input: Input<Error>) -> Do<Error> {
        let view = self.view(t);
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let surroundings = Surroundings {
            rules,
            lock,
            thread: t,
            uniques: Cell::new(thread.uniques),
            over: Over { session: view.session, connection: view.connection },
            granted: &client.granted,
            unlisted: RefCell::new(&mut client.unlisted),
            guard: Cell::new(thread.guard),
        };
        let Some(contender) = &mut thread.contender else { return Do::Sleep };
        let next = contender.step(spec, &surroundings, &view, input);
        thread.uniques = surroundings.uniques.get();
        thread.guard = surroundings.guard.get();
        next
    }

    /// What has to follow every step.
    fn tidy(&mut self, t: usize, number: usize, lock: &Lock) {
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let Some(contender) = &mut thread.contender else { return };
        let discarded = contender.take_discarded();
        clean_up(client, thread.owner, lock, discarded);
        client.unwatch(|owner| match owner {
            Owner::Contender(of, watch) => of != t || contender.wants(watch),
            Owner::Holder(..) | Owner::Guard(..) => true,
        });
        if !contender.is_held()
            && let Some(place) = thread.holds.iter().position(|hold| hold.lock == number && !hold.is_returned)
        {
            let hold = thread.holds.remove(place);
            unwatch_hold(client, t, &hold);
        }
    }

    fn carry_out(
        &mut self,
        rules: &Rules,
        t: usize,
        (number, lock, spec): (usize, &Lock, &Spec),
        next: Do<Error>,
    ) -> Result<(), String> {
        let owed = match next {
            Do::Ask(ask) => {
                self.submit(t, ask.requests);
                Owed::Answers
            }
            Do::MakeDirectory => {
                let (path, mode) = (spec.directory.clone(), CreateMode::Container);
                let request = Request::Create { path, data: Vec::new(), acl: Vec::new(), mode, with_stat: true };
                self.submit(t, vec![(request, None)]);
                Owed::Directory
            }
            Do::Connect(patience) => Owed::Connection(patience),
            Do::Sleep => Owed::Event,
            Do::Doze => Owed::Moment,
            Do::Hold => {
                self.register(rules, t, number, lock);
                Owed::Registration
            }
            Do::End(end) => return self.ended(rules, t, number, lock, &end),
            Do::Again(_) => return Err("nobody asks the retry policy".to_owned()),
        };
        self.threads[t].owed = owed;
        Ok(())
    }

    fn submit(&mut self, t: usize, requests: Vec<(Request, Option<WatchId>)>) {
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        thread.answers = vec![None; requests.len()];
        let lives = thread.session == client.session && !client.is_ended;
        if requests.iter().any(|(request, _)| matches!(request, Request::Create { .. })) {
            thread.owner = thread.session;
        }
        for (place, (request, watch)) in requests.into_iter().enumerate() {
            if !lives {
                thread.answer(place, Err(connection_lost(false)));
                continue;
            }
            let watch = watch.map(|watch| match (watch, thread.guard) {
                (WatchId::Guard, Some(number)) => Owner::Guard(number),
                _ => Owner::Contender(t, watch),
            });
            if let Some(watch) = watch {
                client.watch(watch, &request);
            }
            client.requests.push_back(Sent { request, slot: Some((t, place)), watch });
        }
    }

    fn take_answers(&mut self, t: usize) -> Vec<Result<Response, Failure>> {
        let thread = &mut *self.threads[t];
        let answers: Vec<_> = std::mem::take(&mut thread.answers).into_iter().flatten().collect();
        let client = &mut *self.clients[thread.client];
        if let (Some(number), Some(Ok(_))) = (thread.guard.take(), answers.last())
            && let Some(useless) = client.unlisted.guarded(number, client.over(), number)
        {
            client.unwatch(|owner| owner != Owner::Guard(useless));
        }
        answers
    }

    /// The time is up while answers are missing. What was not sent never will be.
    pub fn stop_waiting(&mut self, t: usize) {
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let is_sent = client.connection != 0;
        let reaction = thread.stop.unwrap_or(Reaction::TimeUp);
        for answer in thread.answers.iter_mut().filter(|answer| answer.is_none()) {
            *answer = Some(Err(failure("stopped", is_sent, reaction)));
        }
        if !is_sent {
            client.requests.retain(|sent| sent.slot.is_none_or(|(of, _)| of != t));
        }
        client.forget_slots(t);
    }

    /// A call that has waited long enough for a connection.
    pub fn give_up(&mut self, rules: &Rules, t: usize, notes: &mut Notes) -> Result<(), String> {
        self.hand_in(rules, t, Input::Failed(connection_lost(false)), notes)
    }

    /// The contender takes no further step.
    pub fn dropped(&mut self, rules: &Rules, t: usize) {
        let Some((number, lock)) = self.lock_of(rules, t) else { return };
        self.threads[t].stop = Some(Reaction::Final);
        self.stop_waiting(t);
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let Some(contender) = thread.contender.take() else { return };
        clean_up(client, thread.owner, lock, contender.leftovers());
        client.unwatch(|owner| !matches!(owner, Owner::Contender(of, _) if of == t));
        if let Some(place) = thread.holds.iter().position(|hold| hold.lock == number && !hold.is_returned) {
            let hold = thread.holds.remove(place);
            unwatch_hold(client, t, &hold);
        }
        thread.mailbox.clear();
        thread.answers.clear();
        thread.guard = None;
        (thread.owed, thread.stop, thread.retries, thread.at) = (Owed::Nothing, None, 0, usize::MAX);
    }

    fn register(&mut self, rules: &Rules, t: usize, number: usize, lock: &Lock) {
        let writer = lock.downgrades.and_then(|writer| self.threads[t].hold_of(writer)).map(|writer| writer.token);
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let Some(contender) = &thread.contender else { return };
        let nodes = contender.nodes().to_vec();
        let czxid = nodes.last().map_or(0, |node| node.czxid);
        if contender.has_waited() && lock.spec.driver.successor_follows_holder() {
            client.granted.extend(nodes.last().map(|node| node.name.clone()));
        }
        for watch in &mut client.watches {
            if matches!(watch.owner, Owner::Contender(of, WatchId::Own(_)) if of == t) {
                watch.owner = Owner::Holder(t, czxid);
            }
        }
        if let Some(node) =
            nodes.last().filter(|_| lock.is_unlisted && contender.is_alone() && lock.downgrades.is_none())
            && let Some(useless) = client.unlisted.stands_alone(&node.name)
        {
            client.unwatch(|owner| owner != Owner::Guard(useless));
        }
        let (session, seen_over) = (thread.session, contender.seen_over());
        let (token, since) = (writer.unwrap_or(czxid), client.clock);
        let (is_lost, is_returned) = (false, false);
        thread.holds.push(Hold { lock: number, nodes, session, token, seen_over, is_lost, is_returned, since });
        // The head of the other queue is for whoever waits next.
        let place = thread.holds.iter().position(|hold| Some(hold.lock) == lock.bar);
        if let Some(place) = place.map(|place| thread.holds.remove(place)).filter(|place| !place.is_lost) {
            unwatch_hold(client, t, &place);
            let leftovers = place.nodes.into_iter().map(Leftover::Node).collect();
            clean_up(client, place.session, &rules.locks[place.lock], leftovers);
        }
    }

    /// Whether an event of the own znode's end waits in the mailbox.
    fn was_deleted(&self, t: usize) -> bool {
        self.threads[t].mailbox.iter().any(|(watch, event)| {
            let is_end = matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. } | WatchEvent::Ended);
            matches!(watch, WatchId::Own(_)) && is_end
        })
    }

    fn ended(&mut self, rules: &Rules, t: usize, number: usize, lock: &Lock, end: &End<Error>) -> Result<(), String> {
        let op = self.next_op(rules, t);
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let Some(contender) = thread.contender.take() else { return Ok(()) };
        clean_up(client, thread.owner, lock, contender.leftovers());
        client.unwatch(|owner| !matches!(owner, Owner::Contender(of, _) if of == t));
        thread.mailbox.clear();
        thread.at = match (end, op) {
            (End::Granted, _) => thread.at + 1,
            (_, Op::Try(_, or_else)) if thread.stop.is_none() => or_else,
            // It gives back what it has.
            _ => usize::MAX,
        };
        (thread.owed, thread.stop, thread.retries) = (Owed::Nothing, None, 0);
        if *end != End::Granted {
            return Ok(());
        }
        let Some(hold) = thread.holds.iter_mut().find(|hold| hold.lock == number) else {
            return Err("granted, and not in the registry".to_owned());
        };
        hold.is_returned = true;
        hold.seen_over = contender.seen_over();
        self.returned(rules, t, number)
    }

    fn release(&mut self, rules: &Rules, t: usize, place: usize, notes: &mut Notes) {
        let hold = self.threads[t].holds.remove(place);
        notes.add(|| format!("{}: gives back {}", letter_of(t), hold.names()));
        let lock = &rules.locks[hold.lock];
        let (is_over, is_certain) = (self.is_over(t, &hold), self.is_certain(t, &hold));
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        unwatch_hold(client, t, &hold);
        if is_over {
            return;
        }
        // A fixed name may be somebody else's znode by now.
        if matches!(lock.spec.naming, Naming::Fixed(_)) && !is_certain {
            let leftovers = hold.nodes.into_iter().map(Leftover::Node).collect();
            return clean_up(client, hold.session, lock, leftovers);
        }
        for node in &hold.nodes {
            client.unlisted.leaves(&node.name);
        }
        let path = |node: &Node| format!("{}/{}", lock.spec.directory, node.name);
        let requests = hold.nodes.iter().map(|node| (Request::Delete { path: path(node), version: -1 }, None));
        thread.owed = Owed::Release;
        self.submit(t, requests.collect());
        self.threads[t].holds.push(Hold { is_lost: true, is_returned: false, ..hold });
    }

    /// The deletes of a release are answered.
    fn released(&mut self, rules: &Rules, t: usize) {
        let answers = self.take_answers(t);
        let thread = &mut *self.threads[t];
        thread.owed = Owed::Nothing;
        let Some(hold) = thread.holds.pop() else { return };
        let client = &mut *self.clients[thread.client];
        for (node, answer) in hold.nodes.into_iter().zip(answers) {
            match answer {
                Ok(_) => client.unlisted.left(&node.name),
                Err(failed) if failed.code == Some(ErrorCode::NoNode) => {}
                Err(_) => clean_up(client, hold.session, &rules.locks[hold.lock], vec![Leftover::Node(node)]),
            }
        }
    }
}

/// Gives what may be left to the background, as long as its session lives.
fn clean_up(client: &mut super::client::Client, session: i64, lock: &Lock, leftovers: Vec<Leftover>) {
    if client.is_ended || client.session != session {
        return;
    }
    let directory = number_of(&lock.spec.directory);
    let fixed = match &lock.spec.naming {
        Naming::Fixed(name) => Some(name.clone()),
        Naming::Unique(_) => None,
    };
    client.jobs.extend(leftovers.into_iter().map(|leftover| Job {
        session,
        directory,
        fixed: fixed.clone(),
        leftover,
    }));
}

fn unwatch_hold(client: &mut super::client::Client, t: usize, hold: &Hold) {
    let czxid = hold.nodes.last().map_or(0, |node| node.czxid);
    client.unwatch(|owner| owner != Owner::Holder(t, czxid));
}

fn directory_made(answer: Option<Result<Response, Failure>>) -> Result<(), Failure> {
    match answer {
        Some(Ok(_)) => Ok(()),
        Some(Err(failed)) if failed.code == Some(ErrorCode::NodeExists) => Ok(()),
        Some(Err(failed)) => Err(failed),
        None => Err(connection_lost(true)),
    }
}

impl Hold {
    pub fn names(&self) -> String {
        self.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<&str>>().join(", ")
    }

    pub fn is_alone(&self, rules: &Rules) -> bool {
        rules.locks[self.lock].class == Class::Alone
    }
}
