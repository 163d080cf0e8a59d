//! One process of the model: its threads, its client, and the messages on their way to and from the server.

use std::{
    collections::VecDeque,
    sync::OnceLock,
    time::{Duration, Instant},
};

use crate::{
    base::clock,
    framework::held::certainty::{Certainty, Evidence, Needs},
    locks::threads::caching::{
        local_queue::{LocalQueue, Mode, Next, Turn},
        options::Caching,
    },
};

pub(super) const THREADS: usize = 3;

/// How many rounds have a task of their own.
pub(super) const ROUNDS: usize = 4;

/// The task of each round of each thread of each process.
pub(super) type Tasks = [[[Task; ROUNDS]; THREADS]; 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Write,
    Read,
    /// Writes, and goes on as a reader.
    WriteThenRead,
    /// Writes or reads, if the lock is free at once.
    TryWrite,
    TryRead,
}

impl Task {
    pub(super) fn mode(self) -> Mode {
        match self {
            Task::Write | Task::WriteThenRead | Task::TryWrite => Mode::Exclusive,
            Task::Read | Task::TryRead => Mode::Shared,
        }
    }

    pub(super) fn only_tries(self) -> bool {
        matches!(self, Task::TryWrite | Task::TryRead)
    }
}

pub(super) fn always(of_threads: [Task; 4]) -> Tasks {
    let [a, b, c, d] = of_threads.map(|task| [task; ROUNDS]);
    [[a, b, b], [c, d, d]]
}

pub(super) fn limits() -> Caching {
    Caching::new().max_grants(1).max_tenure(Duration::from_secs(3600))
}

pub(super) fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(clock::now)
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) session: u8,
    pub(super) connection: u64,
    pub(super) connections: u64,
    pub(super) is_valid: bool,
    /// Watches and replies are told in the order of time.
    pub(super) tells_in_order: bool,
    pub(super) local_queue: LocalQueue,
    pub(super) threads: Vec<Thread>,
    /// The acquires of the threads, and the last one of all.
    pub(super) waiters: [u64; THREADS],
    pub(super) modes: [Mode; THREADS],
    pub(super) last_waiter: u64,
    /// A writer has got its turn although an earlier writer waits.
    pub(super) is_out_of_order: bool,
    /// The last tenure that a thread has entered.
    pub(super) entered: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) outgoing: VecDeque<Request>,
    pub(super) incoming: VecDeque<Told>,
    /// Watches at the server: on znodes, and on the children, each for a tenure.
    pub(super) own: Vec<(i64, u64)>,
    pub(super) children: Option<u64>,
    /// The children changed while there was no connection.
    pub(super) has_missed: bool,
}

/// A tenure's znode, as its process knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) number: u64,
    pub(super) czxid: i64,
    pub(super) seen_over: u64,
    pub(super) is_watched: bool,
    pub(super) is_gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Thread {
    Outside {
        rounds: u8,
    },
    Waiting {
        rounds: u8,
    },
    Queueing {
        rounds: u8,
        znode: Sought,
    },
    Looking {
        rounds: u8,
        tenure: u64,
        grant: u64,
        /// Its own contender has just been granted the znode.
        has_seen: bool,
        confirmed_over: u64,
    },
    Inside {
        rounds: u8,
        tenure: u64,
        grant: u64,
    },
    /// The thread writes, and asks for a reader's znode behind its own.
    Downgrading {
        rounds: u8,
        tenure: u64,
        grant: u64,
        znode: Sought,
    },
    /// The thread reads by a znode of its own, without caching.
    Reading {
        rounds: u8,
        czxid: i64,
        session: u8,
    },
}

impl Thread {
    /// Whether the thread wants the lock, and has not begun to hold it.
    pub(super) fn may_leave(&self) -> bool {
        matches!(self, Thread::Waiting { .. } | Thread::Queueing { .. } | Thread::Looking { .. })
    }

    pub(super) fn rounds(&self) -> u8 {
        match self {
            Thread::Outside { rounds }
            | Thread::Waiting { rounds }
            | Thread::Queueing { rounds, .. }
            | Thread::Looking { rounds, .. }
            | Thread::Inside { rounds, .. }
            | Thread::Downgrading { rounds, .. }
            | Thread::Reading { rounds, .. } => *rounds,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sought {
    Unsent,
    Sent,
    Stands(i64),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Create(usize, Mode),
    /// A create behind this writer, and in front of all its waiters.
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
pub(super) enum Told {
    Created(usize, i64),
    Watched(u64, bool),
    Listed(u64, bool),
    Deleted(u64),
    ChildrenChanged(u64),
}

/// The condition of a grant that is taken out, to see that it is found missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Omitted {
    Nothing,
    Connection,
    Watch,
    ValidUntil,
}

impl Process {
    pub(super) fn new(session: u8, threads: usize, rounds: u8, tells_in_order: bool) -> Process {
        Process {
            session,
            connection: 1,
            connections: 1,
            is_valid: true,
            tells_in_order,
            local_queue: LocalQueue::default(),
            threads: vec![Thread::Outside { rounds }; threads],
            waiters: [0; THREADS],
            modes: [Mode::Exclusive; THREADS],
            last_waiter: 0,
            is_out_of_order: false,
            entered: 0,
            nodes: Vec::new(),
            outgoing: VecDeque::new(),
            incoming: VecDeque::new(),
            own: Vec::new(),
            children: None,
            has_missed: false,
        }
    }

    pub(super) fn node(&mut self, number: u64) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.number == number)
    }

    pub(super) fn evidence(&self, number: u64, omitted: Omitted) -> Evidence {
        let Some(node) = self.nodes.iter().find(|node| node.number == number) else {
            return Evidence { is_gone: true, ..Evidence::default() };
        };
        let Node { mut is_watched, is_gone, seen_over, .. } = *node;
        let is_connected = self.connection != 0;
        let (mut is_seen, mut is_valid) = (is_connected && self.connection == seen_over, self.is_valid);
        match omitted {
            Omitted::Nothing => {}
            Omitted::Connection => is_seen = true,
            Omitted::Watch => is_watched = true,
            Omitted::ValidUntil => is_valid = true,
        }
        let is_connected = is_connected || omitted == Omitted::Connection;
        let valid_until = is_valid.then(|| base() + Duration::from_secs(1));
        Evidence { is_gone, is_connected, is_seen, is_watched, valid_until }
    }

    /// Whether a thread would return with a lock of which it knows this.
    pub(super) fn is_certain(evidence: &Evidence, is_confirmed: bool) -> bool {
        evidence.certainty_for(base(), Needs::Watch, is_confirmed) == Certainty::Certain
    }

    /// Carries out the effects of a step of the local queue.
    pub(super) fn follow(&mut self, next: Next) {
        for number in next.releases {
            self.release_tenure(number);
        }
        if let Some(tenure) = next.look
            && let Some(czxid) = self.node(tenure).map(|node| node.czxid)
        {
            self.outgoing.push_back(Request::List { tenure, czxid });
        }
        for (who, turn) in next.wake {
            let thread = self.waiters.iter().position(|waiter| *waiter == who).unwrap();
            let Thread::Waiting { rounds } = self.threads[thread] else { panic!("woken, and did not wait") };
            self.turned(thread, rounds, turn);
        }
    }

    pub(super) fn release_tenure(&mut self, number: u64) {
        let Some(place) = self.nodes.iter().position(|node| node.number == number) else { return };
        let node = self.nodes.swap_remove(place);
        if !node.is_gone {
            self.outgoing.push_back(Request::Delete(node.czxid));
        }
    }

    pub(super) fn turned(&mut self, thread: usize, rounds: u8, turn: Turn) {
        let came_before = |t: usize| self.waiters[t] < self.waiters[thread];
        let waits = |t: usize| matches!(self.threads[t], Thread::Waiting { .. } | Thread::Queueing { .. });
        // Readers get their turns together.
        let are_writers = |t: usize| self.modes[t] == Mode::Exclusive && self.modes[thread] == Mode::Exclusive;
        let is_overtaken = (0..self.threads.len()).any(|t| waits(t) && came_before(t) && are_writers(t));
        self.is_out_of_order |= matches!(turn, Turn::Hold { .. }) && is_overtaken;
        self.threads[thread] = match turn {
            Turn::Hold { tenure, grant } => {
                Thread::Looking { rounds, tenure, grant, has_seen: false, confirmed_over: 0 }
            }
            Turn::Queue => Thread::Queueing { rounds, znode: Sought::Unsent },
            Turn::Wait => Thread::Waiting { rounds },
            Turn::No => Thread::Outside { rounds: rounds - 1 },
        };
    }

    pub(super) fn gone(&mut self, number: u64) {
        if let Some(node) = self.node(number) {
            node.is_gone = true;
        }
        let next = self.local_queue.gone(number);
        self.follow(next);
    }

    pub(super) fn rivals_came(&mut self, number: u64) {
        let next = self.local_queue.rivals_came(number, base());
        self.follow(next);
    }

    /// The current tenure, if another thread than this one reads in it.
    pub(super) fn read_by_others(&self, thread: usize) -> Option<u64> {
        let number = self.local_queue.number()?;
        let reads = |t: &usize| match self.threads[*t] {
            Thread::Looking { tenure, .. } | Thread::Inside { tenure, .. } => {
                tenure == number && self.modes[*t] == Mode::Shared
            }
            _ => false,
        };
        (0..self.threads.len()).filter(|t| *t != thread).any(|t| reads(&t)).then_some(number)
    }

    pub(super) fn idle(&self) -> Option<u64> {
        let number = self.local_queue.number()?;
        let is_used = self.threads.iter().any(|thread| match thread {
            Thread::Looking { tenure, .. } | Thread::Inside { tenure, .. } | Thread::Downgrading { tenure, .. } => {
                *tenure == number
            }
            _ => false,
        });
        (!is_used).then_some(number)
    }
}
