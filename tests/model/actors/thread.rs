//! A thread, what its shell owes its contender, and what it holds.

use std::{
    collections::VecDeque,
    sync::OnceLock,
    time::{Duration, Instant},
};

use curator_locks::{
    ErrorCode, WaitStrategy,
    unversioned::{
        Response, WatchEvent,
        contender::{Companion, Contender, Failed, Input, Node, Reaction, Spec, View, WatchId},
    },
};

use super::{
    rules::{Class, Lock, Op, Rules},
    world::World,
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
    Connection,
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

impl Hold {
    pub fn names(&self) -> String {
        self.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<&str>>().join(", ")
    }

    pub fn is_alone(&self, rules: &Rules) -> bool {
        rules.locks[self.lock].class == Class::Alone
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Thread {
    pub client: usize,
    /// The next step of what it does.
    pub at: usize,
    pub contender: Option<Contender>,
    /// The session that was connected last, as far as this shell knows; 0 before the first.
    pub session: i64,
    /// The one in which znodes were made.
    pub owner: i64,
    pub owed: Owed,
    pub answers: Vec<Option<Result<Response, Failure>>>,
    pub mailbox: VecDeque<(WatchId, WatchEvent)>,
    pub holds: Vec<Hold>,
    pub retries: u8,
    pub uniques: u8,
    /// The caller's time is up, or it has cancelled.
    pub stop: Option<Reaction>,
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

    pub fn hold_of(&self, lock: usize) -> Option<&Hold> {
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

pub fn failure(error: Error, maybe_done: bool, reaction: Reaction) -> Failure {
    Failed { error, code: None, maybe_done, reaction }
}

pub fn connection_lost(maybe_done: bool) -> Failure {
    failure("connection lost", maybe_done, Reaction::Retry)
}

pub fn refused(code: ErrorCode) -> Failure {
    let reaction = if code == ErrorCode::ThrottledOp { Reaction::Retry } else { Reaction::Final };
    Failed { error: "refused", code: Some(code), maybe_done: false, reaction }
}

pub fn stopped(stop: Option<Reaction>) -> Input<Error> {
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
    pub fn next_op(&self, rules: &Rules, t: usize) -> Op {
        let (_, program) = &rules.threads[t];
        program.get(self.threads[t].at).copied().unwrap_or(Op::End)
    }

    /// The lock of the contender under way, or to begin.
    pub fn lock_of<'a>(&self, rules: &'a Rules, t: usize) -> Option<(usize, &'a Lock)> {
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
            Owed::Connection => self.clients[thread.client].is_connected() || thread.stop.is_some(),
            Owed::Answers | Owed::Directory | Owed::Release => thread.answers.iter().all(Option::is_some),
            Owed::Event => {
                let is_woken = !thread.mailbox.is_empty() || thread.stop.is_some();
                is_woken || self.lost_queue_head(rules, t) || self.polls(rules, t)
            }
            Owed::Moment | Owed::Registration => true,
        }
    }

    fn polls(&self, rules: &Rules, t: usize) -> bool {
        self.lock_of(rules, t).is_some_and(|(_, lock)| matches!(lock.spec.waits, Some(WaitStrategy::Poll(_))))
    }

    pub fn lost_queue_head(&self, rules: &Rules, t: usize) -> bool {
        let Some(bar) = self.lock_of(rules, t).and_then(|(_, lock)| lock.bar) else { return false };
        self.threads[t].hold_of(bar).is_some_and(|hold| self.is_over(t, hold))
    }

    /// Whether the holder has been told that it lost the lock.
    pub fn is_over(&self, t: usize, hold: &Hold) -> bool {
        let client = &self.clients[self.threads[t].client];
        hold.is_lost || client.is_ended || client.session != hold.session
    }

    /// Whether the holder believes, and may, that it holds the lock.
    pub fn is_certain(&self, t: usize, hold: &Hold) -> bool {
        let client = &self.clients[self.threads[t].client];
        let is_seen = client.connection == 0 || client.connection == hold.seen_over;
        !self.is_over(t, hold) && is_seen && client.is_valid
    }

    /// What a lock is at this moment, for a thread that takes the place of its own writer.
    pub fn spec_of(&self, t: usize, lock: &Lock) -> Spec {
        let mut spec = lock.spec.clone();
        let writer = lock.downgrades.and_then(|writer| self.threads[t].hold_of(writer));
        let session = writer.map_or(0, |writer| writer.session);
        if let Some(writer) = writer.and_then(|writer| writer.nodes.last()) {
            spec.name.push_str(&writer.name[writer.name.len() - 10..]);
            spec.companion = Some(Companion { name: writer.name.clone(), session, token: writer.czxid, grant: 0 });
        }
        spec
    }

    pub fn view(&self, t: usize) -> View {
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
            is_lost: thread.contender.as_ref().is_some_and(|contender| contender.is_held)
                && thread.holds.last().is_some_and(|hold| hold.is_lost),
        }
    }
}
