//! [`Turns`] in every schedule: two processes of two threads each, readers and writers, against a model of the server. What
//! has too many states is explored up to the depth that its line prints; `MODEL_STATES` says how many are enough.
//!
//! The contender at the servers has a model check of its own. Here it is a create, and a grant as soon as its znode is the
//! first; all the rest is as in [`crate::locks::threads::caching::cache`]: what is sent, in which order, and what comes
//! back, late or never.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::{
    collections::{HashMap, VecDeque},
    env,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::OnceLock,
    time::{Duration, Instant},
};

use crate::{
    framework::held::node::tenure::Footing,
    locks::threads::caching::{
        look::is_firm,
        options::Caching,
        turns::{Mode, Next, Turn, Turns, Waiter},
    },
};

const THREADS: usize = 2;

/// So many states of one scenario are enough where nobody asks for more.
const ENOUGH_STATES: usize = 25_000;

/// So many rounds have a wish of their own.
const ROUNDS: usize = 4;

/// What each round of each thread of each process wants.
type Wishes = [[[Wish; ROUNDS]; THREADS]; 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Wish {
    Write,
    Read,
    /// To write, and to go on as a reader.
    WriteThenRead,
    /// To write or to read, if that can be had at once.
    TryWrite,
    TryRead,
}

impl Wish {
    fn mode(self) -> Mode {
        match self {
            Wish::Write | Wish::WriteThenRead | Wish::TryWrite => Mode::Exclusive,
            Wish::Read | Wish::TryRead => Mode::Shared,
        }
    }

    fn only_tries(self) -> bool {
        matches!(self, Wish::TryWrite | Wish::TryRead)
    }
}

fn always(of_threads: [Wish; 2 * THREADS]) -> Wishes {
    let [a, b, c, d] = of_threads.map(|wish| [wish; ROUNDS]);
    [[a, b], [c, d]]
}

fn limits() -> Caching {
    Caching::new().max_grants(1).max_tenure(Duration::from_secs(3600))
}

fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    /// In the order of the queue.
    znodes: Vec<Znode>,
    zxid: i64,
    sessions: u8,
    dead: Vec<u8>,
    processes: Vec<Process>,
    faults: u8,
    omitted: Omitted,
    wishes: Wishes,
    /// Deleted by somebody while it was the first: its owner may not know yet.
    forgiven: Vec<i64>,
    /// The largest token of all, and of a writer.
    last: (i64, u64),
    last_write: (i64, u64),
}

/// The condition of a grant that is taken out, to see that it is found missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Omitted {
    Nothing,
    Connection,
    Watch,
    ValidUntil,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Znode {
    czxid: i64,
    session: u8,
    mode: Mode,
    /// The process and the thread whose create it was.
    of: (usize, usize),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Process {
    session: u8,
    connection: u64,
    connections: u64,
    is_valid: bool,
    turns: Turns,
    threads: Vec<Thread>,
    /// The acquires of the threads, and the last one of all.
    waiters: [Waiter; THREADS],
    modes: [Mode; THREADS],
    last_waiter: Waiter,
    /// One has got its turn although another one waits that came before it, both to write.
    is_out_of_order: bool,
    nodes: Vec<Node>,
    outbox: VecDeque<Request>,
    inbox: VecDeque<Told>,
    /// Watches at the server: on znodes, and on the children, each for a tenure.
    own: Vec<(i64, u64)>,
    children: Option<u64>,
    /// The children changed while there was no connection.
    has_missed: bool,
}

/// A tenure's znode, as its process knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    number: u64,
    czxid: i64,
    seen_over: u64,
    is_watched: bool,
    is_gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Thread {
    Outside {
        rounds: u8,
    },
    Waiting {
        rounds: u8,
    },
    Seeking {
        rounds: u8,
        znode: Sought,
    },
    Looking {
        rounds: u8,
        tenure: u64,
        grant: u64,
        confirmed_over: u64,
    },
    Inside {
        rounds: u8,
        tenure: u64,
        grant: u64,
    },
    /// It writes, and asks for a reader's znode behind its own.
    Downgrading {
        rounds: u8,
        tenure: u64,
        grant: u64,
        znode: Sought,
    },
    /// By a znode of its own, without caching.
    Reading {
        rounds: u8,
        czxid: i64,
        session: u8,
    },
}

impl Thread {
    /// It wants the lock, and has not begun to hold it.
    fn may_leave(&self) -> bool {
        matches!(self, Thread::Waiting { .. } | Thread::Seeking { .. } | Thread::Looking { .. })
    }

    fn rounds(&self) -> u8 {
        match self {
            Thread::Outside { rounds }
            | Thread::Waiting { rounds }
            | Thread::Seeking { rounds, .. }
            | Thread::Looking { rounds, .. }
            | Thread::Inside { rounds, .. }
            | Thread::Downgrading { rounds, .. }
            | Thread::Reading { rounds, .. } => *rounds,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sought {
    Unsent,
    Sent,
    Stands(i64),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Request {
    Create(usize, Mode),
    /// Behind this writer, and in front of all who wait for it.
    CreateBehind(usize, i64),
    Delete(i64),
    Watch {
        tenure: u64,
        czxid: i64,
    },
    List {
        tenure: u64,
        czxid: i64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Told {
    Created(usize, i64),
    Watched(u64, bool),
    Listed(u64, bool),
    Deleted(u64),
    ChildrenChanged(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Step(usize, usize),
    /// Of one that only tries.
    GiveUp(usize, usize),
    Serve(usize),
    Deliver(usize),
    Tick(usize),
    Heartbeat(usize),
    Reconnect(usize),
    Expire(usize),
    Fault(Fault, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The connection breaks.
    Cut,
    /// The process is paused, or its heartbeats are not answered, for longer than the session timeout.
    Pause,
    /// An administrator deletes the first znode.
    Delete,
    /// The first thread that waits in any way gives up.
    Leave,
    /// Whoever looks for long in vain begins anew.
    Doubt,
}

const FAULTS: [Fault; 5] = [Fault::Cut, Fault::Pause, Fault::Delete, Fault::Leave, Fault::Doubt];

impl Process {
    fn new(session: u8, rounds: u8) -> Process {
        Process {
            session,
            connection: 1,
            connections: 1,
            is_valid: true,
            turns: Turns::default(),
            threads: vec![Thread::Outside { rounds }; THREADS],
            waiters: [0; THREADS],
            modes: [Mode::Exclusive; THREADS],
            last_waiter: 0,
            is_out_of_order: false,
            nodes: Vec::new(),
            outbox: VecDeque::new(),
            inbox: VecDeque::new(),
            own: Vec::new(),
            children: None,
            has_missed: false,
        }
    }

    fn node(&mut self, number: u64) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.number == number)
    }

    fn footing(&self, number: u64, omitted: Omitted) -> Footing {
        let Some(node) = self.nodes.iter().find(|node| node.number == number) else {
            return Footing { is_gone: true, connection: 0, seen_over: 0, is_watched: false, is_valid: false };
        };
        let Node { mut seen_over, mut is_watched, is_gone, .. } = *node;
        let (mut connection, mut is_valid) = (self.connection, self.is_valid);
        match omitted {
            Omitted::Nothing => {}
            Omitted::Connection => (connection, seen_over) = (1, 1),
            Omitted::Watch => is_watched = true,
            Omitted::ValidUntil => is_valid = true,
        }
        Footing { is_gone, connection, seen_over, is_watched, is_valid }
    }

    /// What follows from a step of the turns.
    fn follow(&mut self, next: Next) {
        for number in next.farewells {
            self.farewell(number);
        }
        for (who, turn) in next.wake {
            let thread = self.waiters.iter().position(|waiter| *waiter == who).unwrap();
            let Thread::Waiting { rounds } = self.threads[thread] else { panic!("woken, and did not wait") };
            self.turned(thread, rounds, turn);
        }
    }

    fn farewell(&mut self, number: u64) {
        let Some(place) = self.nodes.iter().position(|node| node.number == number) else { return };
        let node = self.nodes.swap_remove(place);
        if !node.is_gone {
            self.outbox.push_back(Request::Delete(node.czxid));
        }
    }

    fn turned(&mut self, thread: usize, rounds: u8, turn: Turn) {
        let came_before = |t: usize| self.waiters[t] < self.waiters[thread];
        let waits = |t: usize| matches!(self.threads[t], Thread::Waiting { .. } | Thread::Seeking { .. });
        // Readers get theirs together.
        let are_writers = |t: usize| self.modes[t] == Mode::Exclusive && self.modes[thread] == Mode::Exclusive;
        let is_overtaken = (0..THREADS).any(|t| waits(t) && came_before(t) && are_writers(t));
        self.is_out_of_order |= matches!(turn, Turn::Hold { .. }) && is_overtaken;
        self.threads[thread] = match turn {
            Turn::Hold { tenure, grant } => Thread::Looking { rounds, tenure, grant, confirmed_over: 0 },
            Turn::Seek => Thread::Seeking { rounds, znode: Sought::Unsent },
            Turn::Wait => Thread::Waiting { rounds },
            Turn::No => Thread::Outside { rounds: rounds - 1 },
        };
    }

    fn gone(&mut self, number: u64) {
        if let Some(node) = self.node(number) {
            node.is_gone = true;
        }
        let next = self.turns.gone(number);
        self.follow(next);
    }

    fn rivals_came(&mut self, number: u64) {
        let next = self.turns.rivals_came(number, base());
        self.follow(next);
    }

    /// The tenure of now, if another thread than this one reads in it.
    fn read_by_others(&self, thread: usize) -> Option<u64> {
        let number = self.turns.number()?;
        let reads = |t: &usize| match self.threads[*t] {
            Thread::Looking { tenure, .. } | Thread::Inside { tenure, .. } => {
                tenure == number && self.modes[*t] == Mode::Shared
            }
            _ => false,
        };
        (0..THREADS).filter(|t| *t != thread).any(|t| reads(&t)).then_some(number)
    }

    fn idle(&self) -> Option<u64> {
        let number = self.turns.number()?;
        let is_used = self.threads.iter().any(|thread| match thread {
            Thread::Looking { tenure, .. } | Thread::Inside { tenure, .. } | Thread::Downgrading { tenure, .. } => {
                *tenure == number
            }
            _ => false,
        });
        (!is_used).then_some(number)
    }
}

impl World {
    fn new(wishes: Wishes, rounds: u8, faults: u8, omitted: Omitted) -> World {
        let processes = vec![Process::new(1, rounds), Process::new(2, rounds)];
        let (znodes, dead, forgiven) = (Vec::new(), Vec::new(), Vec::new());
        let (last, last_write) = ((0, 0), (0, 0));
        World { znodes, zxid: 0, sessions: 2, dead, processes, faults, omitted, wishes, forgiven, last, last_write }
    }

    /// What a thread wants, in the round that it is in.
    fn wish(&self, p: usize, t: usize) -> Wish {
        let rounds = usize::from(self.processes[p].threads[t].rounds());
        self.wishes[p][t][rounds.saturating_sub(1) % ROUNDS]
    }

    fn stands(&self, czxid: i64) -> bool {
        self.znodes.iter().any(|znode| znode.czxid == czxid)
    }

    /// A writer is granted the lock as the first of all, a reader if no writer is in front.
    fn is_granted(&self, czxid: i64) -> bool {
        let in_front = self.znodes.iter().take_while(|znode| znode.czxid != czxid);
        let own = self.znodes.iter().find(|znode| znode.czxid == czxid);
        own.is_some_and(|own| in_front.into_iter().all(|other| own.mode == Mode::Shared && other.mode == Mode::Shared))
    }

    fn lives(&self, p: usize) -> bool {
        !self.dead.contains(&self.processes[p].session)
    }

    /// All that can happen without a fault.
    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (p, process) in self.processes.iter().enumerate() {
            actions.extend((0..THREADS).filter(|t| self.can_step(p, *t)).map(|t| Action::Step(p, t)));
            let gives_up = |t: &usize| process.threads[*t].may_leave() && self.wish(p, *t).only_tries();
            actions.extend((0..THREADS).filter(gives_up).map(|t| Action::GiveUp(p, t)));
            if process.connection != 0 && !process.outbox.is_empty() {
                actions.push(Action::Serve(p));
            }
            if process.connection != 0 && !process.inbox.is_empty() {
                actions.push(Action::Deliver(p));
            }
            if process.idle().is_some() {
                actions.push(Action::Tick(p));
            }
            if process.connection != 0 && !process.is_valid {
                actions.push(Action::Heartbeat(p));
            }
            if process.connection == 0 {
                actions.push(Action::Reconnect(p));
            }
            if !process.is_valid && self.lives(p) {
                actions.push(Action::Expire(p));
            }
        }
        actions
    }

    fn can_step(&self, p: usize, t: usize) -> bool {
        let process = &self.processes[p];
        match process.threads[t] {
            Thread::Outside { rounds } => rounds > 0,
            Thread::Inside { .. } | Thread::Reading { .. } => true,
            Thread::Waiting { .. } | Thread::Seeking { znode: Sought::Sent, .. } => false,
            Thread::Seeking { znode: Sought::Unsent, .. } => process.connection != 0,
            // Granted, or gone.
            Thread::Seeking { znode: Sought::Stands(czxid), .. } => {
                let is_granted = self.is_granted(czxid) && process.is_valid;
                process.connection != 0 && self.lives(p) && (!self.stands(czxid) || is_granted)
            }
            Thread::Downgrading { tenure, znode, .. } => {
                let is_gone = process.footing(tenure, Omitted::Nothing).is_gone;
                let has_answer = match znode {
                    Sought::Unsent => true,
                    Sought::Sent => false,
                    Sought::Stands(_) => process.is_valid && self.lives(p),
                };
                is_gone || process.connection != 0 && has_answer
            }
            Thread::Looking { tenure, grant, confirmed_over, .. } => {
                let footing = process.footing(tenure, self.omitted);
                let is_confirmed = grant == 1 || confirmed_over == process.connection;
                let is_seen = footing.seen_over == process.connection && (footing.is_watched || is_confirmed);
                footing.is_gone
                    || is_firm(&footing, is_confirmed)
                    || process.connection != 0 && self.lives(p) && !is_seen
            }
        }
    }

    fn faults(&self) -> Vec<Action> {
        let all = FAULTS.iter().flat_map(|fault| [0, 1].map(|p| (*fault, p)));
        let is_possible = |(fault, p): &(Fault, usize)| {
            let process = &self.processes[*p];
            match fault {
                Fault::Cut => process.connection != 0,
                Fault::Pause => process.is_valid,
                Fault::Delete => *p == 0 && !self.znodes.is_empty(),
                Fault::Leave => process.threads.iter().any(Thread::may_leave),
                Fault::Doubt => process.threads.iter().any(|thread| matches!(thread, Thread::Looking { .. })),
            }
        };
        if self.faults == 0 {
            Vec::new()
        } else {
            all.filter(is_possible).map(|(fault, p)| Action::Fault(fault, p)).collect()
        }
    }

    fn apply(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Step(p, t) => {
                let read = self.processes[p].read_by_others(t).filter(|_| self.wish(p, t) == Wish::TryWrite);
                self.step(p, t)?;
                if read.is_some() && self.processes[p].turns.number() != read {
                    return Err(format!("the mere try of {p}.{t} ends what others read by"));
                }
            }
            Action::GiveUp(p, t) => self.leave(p, t),
            Action::Serve(p) => self.serve(p),
            Action::Deliver(p) => self.deliver(p),
            Action::Tick(p) => {
                let process = &mut self.processes[p];
                let limits = limits();
                let later = base() + Duration::from_secs(60);
                let next = process.turns.tick(&limits, later);
                process.follow(next);
            }
            Action::Heartbeat(p) => {
                if self.lives(p) {
                    self.processes[p].is_valid = true;
                } else {
                    self.cut(p);
                }
            }
            Action::Reconnect(p) => self.reconnect(p),
            Action::Expire(p) => {
                let session = self.processes[p].session;
                self.dead.push(session);
                while let Some(znode) = self.znodes.iter().find(|znode| znode.session == session).copied() {
                    self.remove(znode.czxid);
                }
            }
            Action::Fault(fault, p) => self.fail(fault, p),
        }
        self.check()
    }

    fn fail(&mut self, fault: Fault, p: usize) {
        self.faults -= 1;
        match fault {
            Fault::Cut => self.cut(p),
            Fault::Pause => self.processes[p].is_valid = false,
            Fault::Delete => {
                let first = self.znodes[0].czxid;
                self.forgiven.push(first);
                self.remove(first);
            }
            Fault::Leave => {
                let t = self.processes[p].threads.iter().position(Thread::may_leave).unwrap();
                self.leave(p, t);
            }
            Fault::Doubt => {
                let is_looking = |thread: &Thread| matches!(thread, Thread::Looking { .. });
                let t = self.processes[p].threads.iter().position(is_looking).unwrap();
                let wish = self.wish(p, t);
                let process = &mut self.processes[p];
                let Thread::Looking { rounds, tenure, grant, .. } = process.threads[t] else { return };
                let (who, only_tries) = (process.waiters[t], wish.only_tries());
                let (turn, next) = process.turns.come_again(who, wish.mode(), (tenure, grant), false, only_tries);
                process.turned(t, rounds, turn);
                process.follow(next);
            }
        }
    }

    /// It gives up, for good: an answer to its create is for nobody else.
    fn leave(&mut self, p: usize, t: usize) {
        let limits = limits();
        let process = &mut self.processes[p];
        let before = process.threads[t];
        process.threads[t] = Thread::Outside { rounds: 0 };
        if let Thread::Seeking { znode, .. } = before
            && let Some(next) = process.turns.bequeath(process.waiters[t])
        {
            process.follow(next);
            return self.inherit(p, t, znode);
        }
        if let Thread::Seeking { znode: Sought::Stands(czxid), .. } = before {
            process.outbox.push_back(Request::Delete(czxid));
        }
        let next = match before {
            Thread::Looking { tenure, grant, .. } => process.turns.release(tenure, grant, &limits, base()),
            _ => process.turns.leave(process.waiters[t]),
        };
        process.follow(next);
    }

    /// The next seeker goes on with the contender of the one before.
    fn inherit(&mut self, p: usize, before: usize, found: Sought) {
        let process = &mut self.processes[p];
        let is_new = |thread: &Thread| matches!(thread, Thread::Seeking { znode: Sought::Unsent, .. });
        let heir = process.threads.iter().position(is_new).unwrap();
        if let Thread::Seeking { znode, .. } = &mut process.threads[heir] {
            *znode = found;
        }
        for request in &mut process.outbox {
            if let Request::Create(t, _) = request {
                *t = if *t == before { heir } else { *t };
            }
        }
        for told in &mut process.inbox {
            if let Told::Created(t, _) = told {
                *t = if *t == before { heir } else { *t };
            }
        }
        for znode in self.znodes.iter_mut().filter(|znode| znode.of == (p, before)) {
            znode.of = (p, heir);
        }
    }

    fn step(&mut self, p: usize, t: usize) -> Result<(), String> {
        let limits = limits();
        let wish = self.wish(p, t);
        let process = &mut self.processes[p];
        match process.threads[t] {
            Thread::Outside { rounds } => {
                process.last_waiter += 1;
                (process.waiters[t], process.modes[t]) = (process.last_waiter, wish.mode());
                let (turn, next) = process.turns.come(process.waiters[t], wish.mode(), wish.only_tries());
                process.turned(t, rounds, turn);
                process.follow(next);
            }
            Thread::Seeking { rounds, znode: Sought::Unsent } => {
                process.outbox.push_back(Request::Create(t, wish.mode()));
                process.threads[t] = Thread::Seeking { rounds, znode: Sought::Sent };
                let next = process.turns.created(process.waiters[t]);
                process.follow(next);
            }
            Thread::Seeking { rounds, znode: Sought::Stands(czxid) } => {
                if !self.znodes.iter().any(|znode| znode.czxid == czxid) {
                    process.threads[t] = Thread::Seeking { rounds, znode: Sought::Unsent };
                    return Ok(());
                }
                let (turn, number, next) =
                    process.turns.granted(process.waiters[t], true).ok_or("granted to nobody")?;
                let seen_over = process.connection;
                process.nodes.push(Node { number, czxid, seen_over, is_watched: false, is_gone: false });
                process.outbox.push_back(Request::Watch { tenure: number, czxid });
                process.outbox.push_back(Request::List { tenure: number, czxid });
                process.turned(t, rounds, turn);
                process.follow(next);
            }
            Thread::Looking { rounds, tenure, grant, confirmed_over } => {
                let footing = process.footing(tenure, self.omitted);
                let is_confirmed = grant == 1 || confirmed_over == process.connection;
                if footing.is_gone {
                    let (who, only_tries) = (process.waiters[t], wish.only_tries());
                    let (turn, next) = process.turns.come_again(who, wish.mode(), (tenure, grant), true, only_tries);
                    process.turned(t, rounds, turn);
                    process.follow(next);
                } else if is_firm(&footing, is_confirmed) {
                    process.threads[t] = Thread::Inside { rounds, tenure, grant };
                    return self.entered(p, t, tenure, grant, is_confirmed);
                } else {
                    self.ask(p, t, tenure);
                }
            }
            Thread::Inside { rounds, tenure, grant } if wish == Wish::WriteThenRead => {
                process.turns.ends_with_turn(tenure);
                process.threads[t] = Thread::Downgrading { rounds, tenure, grant, znode: Sought::Unsent };
            }
            Thread::Inside { rounds, tenure, grant } => {
                process.threads[t] = Thread::Outside { rounds: rounds - 1 };
                let next = process.turns.release(tenure, grant, &limits, base());
                process.follow(next);
            }
            Thread::Downgrading { rounds, tenure, grant, znode } => {
                let footing = process.footing(tenure, Omitted::Nothing);
                let czxid = process.node(tenure).map_or(0, |node| node.czxid);
                if footing.is_gone {
                    process.threads[t] = Thread::Outside { rounds: rounds - 1 };
                    if let Sought::Stands(czxid) = znode {
                        process.outbox.push_back(Request::Delete(czxid));
                    }
                } else if let Sought::Stands(czxid) = znode {
                    let session = process.session;
                    process.threads[t] = Thread::Reading { rounds, czxid, session };
                } else {
                    process.outbox.push_back(Request::CreateBehind(t, czxid));
                    process.threads[t] = Thread::Downgrading { rounds, tenure, grant, znode: Sought::Sent };
                    return Ok(());
                }
                let next = process.turns.release(tenure, grant, &limits, base());
                process.follow(next);
            }
            Thread::Reading { rounds, czxid, session } => {
                process.threads[t] = Thread::Outside { rounds: rounds - 1 };
                if session == process.session {
                    process.outbox.push_back(Request::Delete(czxid));
                }
            }
            Thread::Waiting { .. } | Thread::Seeking { .. } => {}
        }
        Ok(())
    }

    /// The server is asked whether the znode stands; what comes before the answer is told before it.
    fn ask(&mut self, p: usize, t: usize, tenure: u64) {
        while !self.processes[p].outbox.is_empty() {
            self.serve(p);
        }
        while !self.processes[p].inbox.is_empty() {
            self.deliver(p);
        }
        let czxid = self.processes[p].node(tenure).map(|node| node.czxid);
        let stands = self.znodes.iter().any(|znode| Some(znode.czxid) == czxid);
        let process = &mut self.processes[p];
        let connection = process.connection;
        if stands {
            if let Some(node) = process.node(tenure) {
                node.seen_over = connection;
            }
            if let Thread::Looking { confirmed_over, .. } = &mut process.threads[t] {
                *confirmed_over = connection;
            }
        } else {
            process.gone(tenure);
        }
    }

    fn entered(&mut self, p: usize, t: usize, tenure: u64, grant: u64, is_confirmed: bool) -> Result<(), String> {
        let czxid = self.processes[p].node(tenure).map_or(0, |node| node.czxid);
        if self.forgiven.contains(&czxid) {
            let process = &self.processes[p];
            let tells = |told: &Told| matches!(told, Told::Deleted(of) | Told::Watched(of, _) if *of == tenure);
            let asks = |request: &Request| matches!(request, Request::Watch { tenure: of, .. } if *of == tenure);
            // Whoever has just asked may have a watch that is yet to come, as any lock has in its first moments.
            let is_told = process.inbox.iter().any(tells) || is_confirmed && process.outbox.iter().any(asks);
            return if is_told {
                Ok(())
            } else {
                Err("the znode is gone, and nothing will tell its holder".to_owned())
            };
        }
        // Readers beside each other are in no order.
        let is_writer = self.wish(p, t).mode() == Mode::Exclusive;
        let before = if is_writer { self.last } else { self.last_write };
        if (czxid, grant) <= before {
            return Err(format!("the token {:?} is no greater than {before:?}", (czxid, grant)));
        }
        self.last = self.last.max((czxid, grant));
        if is_writer {
            self.last_write = (czxid, grant);
        }
        Ok(())
    }

    fn serve(&mut self, p: usize) {
        let Some(request) = self.processes[p].outbox.pop_front() else { return };
        if !self.lives(p) {
            self.processes[p].outbox.push_front(request);
            return self.cut(p);
        }
        let told = match request {
            Request::Create(t, mode) => {
                self.zxid += 1;
                let (czxid, session) = (self.zxid, self.processes[p].session);
                self.znodes.push(Znode { czxid, session, mode, of: (p, t) });
                self.children_changed();
                Told::Created(t, czxid)
            }
            Request::CreateBehind(t, writer) => {
                // Without the writer it is taken back at once.
                let Some(place) = self.znodes.iter().position(|znode| znode.czxid == writer) else { return };
                self.zxid += 1;
                let (czxid, session) = (self.zxid, self.processes[p].session);
                self.znodes.insert(place + 1, Znode { czxid, session, mode: Mode::Shared, of: (p, t) });
                self.children_changed();
                Told::Created(t, czxid)
            }
            Request::Delete(czxid) => return self.remove(czxid),
            Request::Watch { tenure, czxid } => {
                let stands = self.znodes.iter().any(|znode| znode.czxid == czxid);
                if stands {
                    self.processes[p].own.push((czxid, tenure));
                }
                Told::Watched(tenure, stands)
            }
            Request::List { tenure, czxid } => {
                self.processes[p].children = Some(tenure);
                let own = self.znodes.iter().find(|znode| znode.czxid == czxid).map(|own| own.mode);
                let is_beside = |mode| mode == Mode::Shared && own == Some(Mode::Shared);
                Told::Listed(tenure, self.znodes.iter().all(|znode| znode.czxid == czxid || is_beside(znode.mode)))
            }
        };
        self.processes[p].inbox.push_back(told);
    }

    fn remove(&mut self, czxid: i64) {
        let before = self.znodes.len();
        self.znodes.retain(|znode| znode.czxid != czxid);
        if self.znodes.len() == before {
            return;
        }
        for process in self.processes.iter_mut().filter(|process| process.connection != 0) {
            let told: Vec<_> = process.own.extract_if(.., |(of, _)| *of == czxid).collect();
            process.inbox.extend(told.into_iter().map(|(_, tenure)| Told::Deleted(tenure)));
        }
        self.children_changed();
    }

    fn children_changed(&mut self) {
        for process in &mut self.processes {
            if process.connection == 0 {
                process.has_missed = true;
            } else if let Some(tenure) = process.children.take() {
                process.inbox.push_back(Told::ChildrenChanged(tenure));
            }
        }
    }

    fn deliver(&mut self, p: usize) {
        let process = &mut self.processes[p];
        let Some(told) = process.inbox.pop_front() else { return };
        match told {
            Told::Created(t, czxid) => match &mut process.threads[t] {
                Thread::Seeking { znode: znode @ Sought::Sent, .. }
                | Thread::Downgrading { znode: znode @ Sought::Sent, .. } => *znode = Sought::Stands(czxid),
                // It has given up.
                _ => process.outbox.push_back(Request::Delete(czxid)),
            },
            Told::Watched(tenure, true) => {
                if let Some(node) = process.node(tenure) {
                    node.is_watched = true;
                }
            }
            Told::Watched(tenure, false) | Told::Deleted(tenure) => process.gone(tenure),
            Told::Listed(_, true) => {}
            Told::Listed(tenure, false) => process.rivals_came(tenure),
            Told::ChildrenChanged(tenure) if process.turns.looks_for_rivals(tenure) => {
                if let Some(czxid) = process.node(tenure).map(|node| node.czxid) {
                    process.outbox.push_back(Request::List { tenure, czxid });
                }
            }
            Told::ChildrenChanged(tenure) => process.rivals_came(tenure),
        }
    }

    /// What was on its way to the process is lost, but for its outcome.
    fn cut(&mut self, p: usize) {
        let process = &mut self.processes[p];
        process.connection = 0;
        let unread = std::mem::take(&mut process.inbox);
        for told in unread {
            match told {
                Told::Listed(tenure, _) => process.rivals_came(tenure),
                // The session sets such a watch again.
                Told::ChildrenChanged(tenure) => {
                    process.children = Some(tenure);
                    process.has_missed = true;
                }
                Told::Deleted(tenure) => {
                    if let Some(czxid) = process.node(tenure).map(|node| node.czxid) {
                        process.own.push((czxid, tenure));
                    }
                }
                Told::Watched(tenure, _) => process.own.retain(|(_, of)| *of != tenure),
                Told::Created(..) => {}
            }
        }
        let unanswered = std::mem::take(&mut process.outbox);
        for request in unanswered {
            match request {
                // The background goes on until it is known to be gone.
                Request::Delete(_) => process.outbox.push_back(request),
                // Somebody may be there.
                Request::List { tenure, .. } => process.rivals_came(tenure),
                Request::Create(..) | Request::CreateBehind(..) | Request::Watch { .. } => {}
            }
        }
    }

    fn reconnect(&mut self, p: usize) {
        if !self.lives(p) {
            return self.end(p);
        }
        let znodes = &self.znodes;
        let process = &mut self.processes[p];
        process.connections += 1;
        process.connection = process.connections;
        process.is_valid = true;
        let stands = |czxid: i64| znodes.iter().any(|znode| znode.czxid == czxid);
        let missed: Vec<_> = process.own.extract_if(.., |(czxid, _)| !stands(*czxid)).collect();
        process.inbox.extend(missed.into_iter().map(|(_, tenure)| Told::Deleted(tenure)));
        // What looks after held znodes asks again for the watch.
        let unwatched = process.nodes.iter().filter(|node| !node.is_gone && !node.is_watched);
        let again = unwatched.map(|node| Request::Watch { tenure: node.number, czxid: node.czxid });
        process.outbox.extend(again);
        if std::mem::take(&mut process.has_missed)
            && let Some(tenure) = process.children.take()
        {
            process.inbox.push_back(Told::ChildrenChanged(tenure));
        }
        // A contender whose create got no answer looks for its znode.
        let mut known: Vec<i64> = process.nodes.iter().map(|node| node.czxid).collect();
        known.extend(process.outbox.iter().filter_map(|request| match request {
            Request::Delete(czxid) => Some(*czxid),
            _ => None,
        }));
        let session = process.session;
        for thread in &process.threads {
            if let Thread::Seeking { znode: Sought::Stands(czxid), .. }
            | Thread::Downgrading { znode: Sought::Stands(czxid), .. }
            | Thread::Reading { czxid, .. } = thread
            {
                known.push(*czxid);
            }
        }
        let lost =
            znodes.iter().filter(|znode| znode.session == session && znode.of.0 == p && !known.contains(&znode.czxid));
        for znode in lost {
            match &mut process.threads[znode.of.1] {
                Thread::Seeking { znode: sought @ Sought::Sent, .. }
                | Thread::Downgrading { znode: sought @ Sought::Sent, .. } => *sought = Sought::Stands(znode.czxid),
                _ => process.outbox.push_back(Request::Delete(znode.czxid)),
            }
        }
        for thread in &mut process.threads {
            if let Thread::Seeking { znode: sought @ Sought::Sent, .. }
            | Thread::Downgrading { znode: sought @ Sought::Sent, .. } = thread
            {
                *sought = Sought::Unsent;
            }
        }
    }

    /// The process learns that its session is gone; the next one begins.
    fn end(&mut self, p: usize) {
        self.sessions += 1;
        let process = &mut self.processes[p];
        process.session = self.sessions;
        process.outbox.clear();
        process.own.clear();
        process.children = None;
        process.has_missed = false;
        for node in &mut process.nodes {
            node.is_gone = true;
        }
        for thread in &mut process.threads {
            if let Thread::Seeking { znode, .. } | Thread::Downgrading { znode, .. } = thread {
                *znode = Sought::Unsent;
            }
        }
        let numbers: Vec<u64> = process.nodes.iter().map(|node| node.number).collect();
        for number in numbers {
            process.gone(number);
        }
        process.connections += 1;
        process.connection = process.connections;
        process.is_valid = true;
    }

    /// A certain writer is alone.
    fn check(&self) -> Result<(), String> {
        let (mut holders, mut writes) = (Vec::new(), false);
        for (p, process) in self.processes.iter().enumerate() {
            for (t, thread) in process.threads.iter().enumerate() {
                if let Thread::Reading { czxid, session, .. } = thread
                    && *session == process.session
                    && process.is_valid
                    && !self.forgiven.contains(czxid)
                {
                    holders.push((p, t));
                }
                let (Thread::Inside { tenure, .. } | Thread::Downgrading { tenure, .. }) = thread else { continue };
                let Some(node) = process.nodes.iter().find(|node| node.number == *tenure) else {
                    return Err(format!("the znode of the holder {p}.{t} was given back"));
                };
                if !node.is_gone && process.is_valid && !self.forgiven.contains(&node.czxid) {
                    holders.push((p, t));
                    writes |= self.wish(p, t).mode() == Mode::Exclusive;
                }
            }
            process.turns.check(&limits())?;
            if process.is_out_of_order {
                return Err(format!("a thread of process {p} overtakes another one"));
            }
        }
        if writes && holders.len() > 1 { Err(format!("a writer among the holders {holders:?}")) } else { Ok(()) }
    }

    /// Whether all have ended well, and left nothing.
    fn check_rest(&self) -> Result<(), String> {
        for (p, process) in self.processes.iter().enumerate() {
            if let Some(t) = process.threads.iter().position(|thread| !matches!(thread, Thread::Outside { rounds: 0 }))
            {
                return Err(format!("{p}.{t} waits for what nothing will bring: {:?}", process.threads[t]));
            }
            if !process.nodes.is_empty() {
                return Err(format!("process {p} has forgotten a znode"));
            }
        }
        self.znodes.first().map_or(Ok(()), |znode| Err(format!("{znode:?} is left behind")))
    }
}

fn hash(world: &World) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(world)
}

/// Who wants what: the threads of the one process, then those of the other.
const SCENARIOS: [[Wish; 2 * THREADS]; 8] = {
    use Wish::{Read, TryRead, TryWrite, Write, WriteThenRead};
    [
        [Write, Write, Write, Write],
        [Read, Read, Read, Read],
        [Read, Write, Read, Write],
        [Read, Read, Write, Read],
        [WriteThenRead, Read, Read, Write],
        [WriteThenRead, Write, WriteThenRead, Read],
        [TryWrite, Read, Read, Write],
        [TryRead, Read, TryWrite, Write],
    ]
};

fn explore_all(rounds: u8, faults: u8) {
    for wishes in SCENARIOS {
        let name = format!("{wishes:?}, {rounds} rounds, {faults} faults");
        assert!(explore(&name, always(wishes), rounds, faults) > 1_000, "{name}");
    }
}

fn explore(name: &str, wishes: Wishes, rounds: u8, faults: u8) -> usize {
    let first = World::new(wishes, rounds, faults, Omitted::Nothing);
    let mut parents: HashMap<u64, Option<(u64, Action)>> = HashMap::from([(hash(&first), None)]);
    let mut queue = VecDeque::from([(first, 0)]);
    let most = env::var("MODEL_STATES").map_or(ENOUGH_STATES, |most| most.parse().unwrap());
    let mut depth = None;
    while let Some((world, steps)) = queue.pop_front() {
        let at = hash(&world);
        let actions = world.actions();
        let fail = |what: String, last: Option<Action>| {
            let mut trace: Vec<Action> = last.into_iter().collect();
            let mut at = at;
            while let Some(Some((before, action))) = parents.get(&at) {
                trace.push(*action);
                at = *before;
            }
            trace.reverse();
            panic!("{name}: {what}, after {trace:#?}");
        };
        if actions.is_empty()
            && let Err(what) = world.check_rest()
        {
            fail(what, None);
        }
        let mut found = Vec::new();
        for action in actions.into_iter().chain(world.faults()) {
            let mut next = world.clone();
            if let Err(what) = next.apply(action) {
                fail(what, Some(action));
            }
            found.push((next, action));
        }
        for (next, action) in found {
            let key = hash(&next);
            if !parents.contains_key(&key) {
                if parents.len() >= most {
                    depth.get_or_insert(steps);
                    continue;
                }
                parents.insert(key, Some((at, action)));
                queue.push_back((next, steps + 1));
            }
        }
    }
    let depth = depth.map_or("all".to_owned(), |steps: usize| format!("up to {steps} steps"));
    println!("{name}: {} states, {depth}", parents.len());
    parents.len()
}

#[test]
fn every_schedule_of_two_processes_keeps_the_rules() {
    explore_all(1, 0);
}

#[test]
fn every_schedule_of_two_processes_keeps_the_rules_in_spite_of_a_fault() {
    explore_all(1, 1);
}

#[test]
fn every_schedule_of_two_rounds_keeps_the_rules() {
    explore_all(2, 0);
}

#[test]
fn every_schedule_keeps_the_rules_in_spite_of_two_faults() {
    explore_all(1, 2);
}

/// One schedule by chance, up to its rest.
fn by_chance(seed: u64, omitted: Omitted) -> Result<usize, String> {
    let mut trace = Vec::new();
    try_by_chance(seed, omitted, &mut trace).map_err(|what| format!("{what}, after {trace:?}"))
}

fn try_by_chance(seed: u64, omitted: Omitted, trace: &mut Vec<Action>) -> Result<usize, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut wish = || {
        [Wish::Write, Wish::Read, Wish::Read, Wish::WriteThenRead, Wish::TryWrite, Wish::TryRead][random.usize(0..6)]
    };
    let wishes = std::array::from_fn(|_| std::array::from_fn(|_| std::array::from_fn(|_| wish())));
    let mut world = World::new(wishes, random.u8(1..4), random.u8(0..8), omitted);
    let one_in = [3, 10, 30][random.usize(0..3)];
    for steps in 0..20_000 {
        let (actions, faults) = (world.actions(), world.faults());
        let fault = random.choice(&faults).filter(|_| random.usize(0..one_in) == 0);
        let Some(action) = fault.or_else(|| random.choice(&actions)) else {
            return world.check_rest().map(|()| steps);
        };
        trace.push(*action);
        world.apply(*action)?;
    }
    Err("it never comes to rest".to_owned())
}

#[test]
fn schedules_by_chance_keep_the_rules() {
    let begin = Instant::now();
    let (mut steps, mut seed) = (0, 1);
    while begin.elapsed() < Duration::from_secs(10) {
        steps += by_chance(seed, Omitted::Nothing).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        seed += 1;
    }
    println!("{seed} schedules of {steps} steps");
    assert!(seed > 100);
}

#[test]
fn without_any_one_condition_of_a_grant_it_is_found_missing() {
    for omitted in [Omitted::Connection, Omitted::Watch, Omitted::ValidUntil] {
        let found = (1..200_000).find_map(|seed| by_chance(seed, omitted).err().map(|what| (seed, what)));
        println!("without {omitted:?}: {found:?}");
        assert!(found.is_some(), "{omitted:?} is not needed");
    }
}

/// Where processes take turns, each short time between is a tenure's last: a tick for each would be thousands at a time.
#[test]
fn one_tick_is_to_come_however_many_tenures_are_idle_one_after_the_other() {
    let (limits, now) = (limits(), base());
    let mut turns = Turns::default();
    let mut ticks = 0;
    for who in 1..=100 {
        assert_eq!(turns.come(who, Mode::Exclusive, false).0, Turn::Seek);
        let Some((Turn::Hold { tenure, grant }, ..)) = turns.granted(who, true) else { panic!("no turn") };
        ticks += usize::from(turns.release(tenure, grant, &limits, now).tick.is_some());
        assert_eq!(turns.rivals_came(tenure, now).farewells, [tenure]);
    }
    assert_eq!(ticks, 1);
    // None of them is idle any more, so the next one needs a tick again.
    assert_eq!(turns.tick(&limits, now), Next::default());
    let (_, next) = turns.come(101, Mode::Exclusive, false);
    assert_eq!(next, Next::default());
    let Some((Turn::Hold { tenure, grant }, ..)) = turns.granted(101, true) else { panic!("no turn") };
    assert!(turns.release(tenure, grant, &limits, now).tick.is_some());
}
