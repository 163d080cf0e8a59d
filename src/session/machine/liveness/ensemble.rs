//! The real rules against a model of a leader, a follower and the network between them, to count lies: moments at which
//! the client takes its session for certain although the leader has expired it.
//!
//! The leader keeps sessions in buckets of a tick, as ZooKeeper does. At the end of a tick it takes all sessions of a bucket
//! from its clock, and expires them one after the other; in between it answers for them as before. Threads of one process
//! wake from a pause in any order. Messages of one stream keep theirs.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use super::{Liveness, Majority, Origin};
use faults::{Faults, Rule, T, Time};

use crate::base::clock;

/// How late a thread may run after a pause of its process, and a message without a fault.
const PUNCTUAL: Time = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Thread {
    Client,
    FollowersClients,
    FollowersLeader,
    LeadersFollower,
    LeadersPings,
    LeadersClock,
}

const THREADS: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    Handshake {
        connection: u64,
        sent: Time,
        creates: bool,
    },
    Heartbeat {
        connection: u64,
        sent: Time,
        is_transaction: bool,
    },
    Touch,
    Ping,
    /// The session of this number is closed.
    Closed(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes(Message),
    Timer,
    /// The client does not wait for the answer to this handshake any more.
    GivesUp(u64),
    Tick,
    /// The turn of the session with this number has come.
    Expires(u64),
    Pause(usize),
    Silence,
}

/// The leader's view of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// In the bucket of this tick.
    Until(Time),
    /// Taken from the clock.
    Taken,
    Expired,
}

#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    sessions: u64,
    answers: u64,
    lies: u64,
    /// The client's largest error.
    worst: Time,
}

struct World {
    random: fastrand::Rng,
    faults: Faults,
    rule: Rule,
    begin: Instant,
    now: Time,
    tick: Time,
    events: BinaryHeap<Reverse<(Time, u64, Thread, Event)>>,
    next_event: u64,
    /// Until when each thread is paused.
    paused: [Time; THREADS],
    /// When the last message that is on the way to this thread comes.
    last: [Time; THREADS],
    silent_until: Time,
    // The client.
    liveness: Liveness,
    connection: u64,
    is_connected: bool,
    creates: bool,
    timer: Time,
    /// The number of its session.
    known: u64,
    has_lied: bool,
    // The follower.
    has_touched: bool,
    // The leader.
    kept: Kept,
    session: u64,
    /// The connection over which the session was made.
    made_over: u64,
    outcome: Outcome,
}

impl World {
    fn new(seed: u64, tick: Time, faults: Faults, rule: Rule) -> World {
        let begin = clock::now();
        let mut world = World {
            random: fastrand::Rng::with_seed(seed),
            faults,
            rule,
            begin,
            now: 0,
            tick,
            events: BinaryHeap::new(),
            next_event: 0,
            paused: [0; THREADS],
            last: [0; THREADS],
            silent_until: 0,
            liveness: Liveness::new(Duration::from_micros(T), begin),
            connection: 0,
            is_connected: false,
            creates: true,
            timer: Time::MAX,
            known: 0,
            has_lied: false,
            has_touched: false,
            kept: Kept::Expired,
            session: 0,
            made_over: 0,
            outcome: Outcome::default(),
        };
        let first = world.random.u64(0..tick);
        world.at(first, Thread::LeadersPings, Event::Timer);
        let first = world.random.u64(0..tick);
        world.at(first, Thread::LeadersClock, Event::Tick);
        for (process, pauses) in
            [faults.client_pauses, faults.follower_pauses, faults.leader_pauses].into_iter().enumerate()
        {
            if pauses {
                let first = world.random.u64(0..4 * T);
                world.at(first, Thread::Client, Event::Pause(process));
            }
        }
        if faults.network_lets_go {
            world.at(T, Thread::Client, Event::Silence);
        }
        world.connect();
        world
    }

    fn run(&mut self, end: Time) {
        while let Some(Reverse((at, number, thread, event))) = self.events.pop() {
            let paused = self.paused[thread as usize];
            if at < paused && !matches!(event, Event::Pause(_) | Event::Silence) {
                self.events.push(Reverse((paused, number, thread, event)));
                continue;
            }
            if at >= end {
                return;
            }
            self.now = at;
            self.happen(thread, event);
        }
    }

    fn at(&mut self, at: Time, thread: Thread, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((at, self.next_event, thread, event)));
    }

    fn instant(&self, at: Time) -> Instant {
        self.begin + Duration::from_micros(at)
    }

    fn micros(&self, at: Instant) -> Time {
        Time::try_from(at.saturating_duration_since(self.begin).as_micros()).unwrap()
    }

    fn happen(&mut self, thread: Thread, event: Event) {
        match (thread, event) {
            (_, Event::Pause(process)) => self.pause(process),
            (_, Event::Silence) => {
                self.silent_until = self.some_end();
                let next = self.silent_until + self.random.u64(0..4 * T);
                self.at(next, Thread::Client, Event::Silence);
            }
            (Thread::LeadersPings, _) => {
                self.send(Thread::FollowersLeader, Message::Ping);
                self.at(self.now + self.tick / 2, Thread::LeadersPings, Event::Timer);
            }
            (Thread::LeadersClock, Event::Tick) => self.tick(),
            (Thread::LeadersClock, _) if event == Event::Expires(self.session) => self.expire(),
            (Thread::LeadersFollower, Event::Comes(message)) => self.leader(message),
            (Thread::FollowersLeader, Event::Comes(message)) => self.follower_from_leader(message),
            (Thread::FollowersClients, Event::Comes(message)) => self.follower_from_client(message),
            (Thread::Client, Event::GivesUp(connection)) if connection == self.connection && !self.is_connected => {
                self.connect();
            }
            (Thread::Client, Event::Comes(message)) => {
                self.client(message);
                self.keep_timer();
            }
            (Thread::Client, Event::Timer) if self.timer <= self.now => {
                self.timer = Time::MAX;
                self.client_timer();
                self.keep_timer();
            }
            _ => {}
        }
    }

    fn pause(&mut self, process: usize) {
        let threads = [
            &[Thread::Client][..],
            &[Thread::FollowersClients, Thread::FollowersLeader],
            &[Thread::LeadersFollower, Thread::LeadersPings, Thread::LeadersClock],
        ][process];
        let end = self.some_end();
        for thread in threads {
            let wakes = end + self.random.u64(0..PUNCTUAL);
            let paused = &mut self.paused[*thread as usize];
            *paused = wakes.max(*paused);
        }
        if self.faults.leader_pauses_after && process != 2 {
            let soon = end + self.random.u64(0..T / 2);
            self.at(soon, Thread::Client, Event::Pause(2));
        }
        if !self.faults.leader_pauses_after || process != 2 {
            let next = end + self.random.u64(0..4 * T);
            self.at(next, Thread::Client, Event::Pause(process));
        }
    }

    /// When a fault that begins now ends: just about when the session expires, more often than not.
    fn some_end(&mut self) -> Time {
        let any = self.now + self.random.u64(0..T * 3 / 2);
        match self.kept {
            Kept::Until(tick) if tick > self.now && tick < self.now + T * 3 / 2 && self.random.bool() => {
                (tick + self.random.u64(0..2 * PUNCTUAL)).saturating_sub(PUNCTUAL).max(self.now)
            }
            _ => any,
        }
    }

    /// Puts a message on its way. Streams between the servers last; those of a client begin anew with its connection.
    fn send(&mut self, to: Thread, message: Message) {
        let mut at = self.now + self.random.u64(0..PUNCTUAL);
        if matches!(to, Thread::Client | Thread::FollowersClients) {
            at = at.max(self.silent_until) + self.faults.round_trip * T / 2000;
        } else if self.random.u64(0..1000) < self.faults.delays {
            at += self.random.u64(0..T / 6);
        }
        let last = &mut self.last[to as usize];
        at = at.max(*last);
        *last = at;
        self.at(at, to, Event::Comes(message));
    }

    // The leader.

    fn leader(&mut self, message: Message) {
        match message {
            Message::Touch => self.touch(),
            Message::Handshake { creates: true, connection, .. } => {
                self.session += 1;
                self.made_over = connection;
                self.outcome.sessions += 1;
                self.kept = Kept::Taken;
                self.renew();
                self.send(Thread::FollowersLeader, message);
            }
            Message::Handshake { .. } | Message::Heartbeat { .. } if self.kept != Kept::Expired => {
                if matches!(message, Message::Handshake { .. }) {
                    self.touch();
                }
                self.send(Thread::FollowersLeader, message);
            }
            _ => self.send(Thread::FollowersLeader, Message::Closed(self.session)),
        }
    }

    fn touch(&mut self) {
        if matches!(self.kept, Kept::Until(_)) {
            self.renew();
        }
    }

    fn renew(&mut self) {
        self.kept = Kept::Until(((self.now + T) / self.tick + 1) * self.tick);
    }

    fn tick(&mut self) {
        let bucket = self.now / self.tick * self.tick;
        if matches!(self.kept, Kept::Until(tick) if tick <= bucket) {
            self.kept = Kept::Taken;
            let turn = self.now + self.random.u64(0..=self.faults.mass_expiry);
            self.at(turn, Thread::LeadersClock, Event::Expires(self.session));
        }
        self.at(bucket + self.tick, Thread::LeadersClock, Event::Tick);
    }

    fn expire(&mut self) {
        self.kept = Kept::Expired;
        self.send(Thread::FollowersLeader, Message::Closed(self.session));
        self.look_for_a_lie();
    }

    // The follower.

    fn follower_from_client(&mut self, message: Message) {
        self.has_touched |= matches!(message, Message::Heartbeat { connection, .. } if connection >= self.made_over);
        self.send(Thread::LeadersFollower, message);
    }

    fn follower_from_leader(&mut self, message: Message) {
        match message {
            Message::Ping if std::mem::take(&mut self.has_touched) => {
                self.send(Thread::LeadersFollower, Message::Touch);
            }
            Message::Ping | Message::Touch => {}
            answer => self.send(Thread::Client, answer),
        }
    }

    // The client.

    fn client(&mut self, message: Message) {
        let now = self.instant(self.now);
        match message {
            Message::Handshake { connection, sent, creates } if connection == self.connection && !self.is_connected => {
                let sent = self.instant(sent);
                let origin = if creates { Origin::Created(sent) } else { Origin::Resumed(sent) };
                if creates {
                    self.liveness = Liveness::new(Duration::from_micros(T), now);
                    (self.known, self.has_lied) = (self.session, false);
                }
                (self.is_connected, self.creates) = (true, false);
                self.liveness.connected(Duration::from_micros(T), origin, now);
            }
            Message::Heartbeat { connection, sent, is_transaction }
                if connection == self.connection && self.is_connected =>
            {
                self.answered(self.instant(sent), now, is_transaction);
            }
            Message::Closed(session) if session == self.known && !self.creates => {
                self.creates = true;
                self.connect();
            }
            _ => {}
        }
        self.look_for_a_lie();
    }

    fn answered(&mut self, sent: Instant, now: Instant, is_transaction: bool) {
        self.outcome.answers += 1;
        self.liveness.received(now);
        match self.rule {
            Rule::Whole => self.liveness.heartbeat_answered(sent, now, is_transaction),
            Rule::NothingIsConfirmed => {
                self.liveness.heartbeat_answered(sent, now, is_transaction);
                // As if a heartbeat had followed at once.
                self.liveness.confirm(now + Duration::from_micros(T), now);
            }
            Rule::FromSendToSend => {
                self.liveness.heartbeat_refused(sent, now);
                if is_transaction {
                    self.liveness.majority = Majority::Follows;
                }
                self.liveness.pair(sent, sent);
                self.liveness.confirm(sent, now);
            }
        }
    }

    fn client_timer(&mut self) {
        let now = self.instant(self.now);
        if !self.is_connected {
            return;
        }
        if self.liveness.why_dead(now).is_some() {
            self.connect();
        } else if self.liveness.take_heartbeat(now) {
            let (connection, is_transaction) = (self.connection, self.liveness.needs_majority());
            self.send(Thread::FollowersClients, Message::Heartbeat { connection, sent: self.now, is_transaction });
        }
    }

    /// Connects anew, over a connection that does not wait for the streams of the one before.
    fn connect(&mut self) {
        self.liveness.disconnected();
        self.is_connected = false;
        self.connection += 1;
        self.last[Thread::Client as usize] = 0;
        self.last[Thread::FollowersClients as usize] = 0;
        let handshake = Message::Handshake { connection: self.connection, sent: self.now, creates: self.creates };
        self.send(Thread::FollowersClients, handshake);
        self.at(self.now + T / 2, Thread::Client, Event::GivesUp(self.connection));
    }

    fn keep_timer(&mut self) {
        let next = self.micros(self.liveness.next_timer()).max(self.now);
        if self.is_connected && next < self.timer {
            self.timer = next;
            self.at(next, Thread::Client, Event::Timer);
        }
    }

    fn look_for_a_lie(&mut self) {
        let until = self.liveness.valid_until().map_or(0, |until| self.micros(until));
        if self.kept == Kept::Expired && until > self.now {
            self.outcome.worst = self.outcome.worst.max(until - self.now);
            self.outcome.lies += u64::from(!std::mem::replace(&mut self.has_lied, true));
        }
    }
}

mod faults;
mod tests;
