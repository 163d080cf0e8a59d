//! The plan of one run: who does what, and which faults come when. All of it is drawn from the seed before the run begins,
//! so that a plan that fails can be made shorter.

use std::time::Duration;

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) servers: usize,
    /// The largest timeout that the servers grant; the processes ask for as much or less.
    pub(crate) timeout: Duration,
    /// The servers' tick.
    pub(crate) tick: Duration,
    /// How many thousandths of the messages between servers are late, and by how much at most.
    pub(crate) late: (u32, Duration),
    /// For how many ticks the servers wait for one another.
    pub(crate) sync_limit: u32,
    /// How long a server takes at most to write a proposal.
    pub(crate) disk: Duration,
    /// How long the leader takes at most from one expired session to the next, with which it can still be resumed.
    pub(crate) expiry: Duration,
    /// The largest frame that servers and clients take.
    pub(crate) max_frame: Option<usize>,
    pub(crate) places: Vec<Place>,
    pub(crate) processes: Vec<ProcessPlan>,
    pub(crate) faults: Vec<Planned>,
    /// How long the processes work while faults come.
    pub(crate) lasts: Duration,
    /// For how long single threads stand still at most, now and then.
    pub(crate) stall: Duration,
}

impl Plan {
    /// Whether a death is told for certain: small frames cut releases off.
    pub(crate) fn tells_of_deaths(&self) -> bool {
        self.max_frame.is_none()
    }
}

/// A directory that locks of one kind use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Mutex,
    SemaphoreMutex,
    ReadWrite,
    /// With so many leases.
    Semaphore(usize),
    Unfair,
    Latch,
    Selector,
    /// ZooKeeper's own recipe.
    WriteLock,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::SemaphoreMutex => "semaphore mutex",
            Kind::ReadWrite => "read/write",
            Kind::Semaphore(_) => "semaphore",
            Kind::Unfair => "unfair",
            Kind::Latch => "latch",
            Kind::Selector => "selector",
            Kind::WriteLock => "WriteLock",
        }
    }

    pub(crate) fn is_leader(self) -> bool {
        matches!(self, Kind::Latch | Kind::Selector | Kind::WriteLock)
    }

    /// How many may have it at a time.
    pub(crate) fn limit(self) -> usize {
        if let Kind::Semaphore(leases) = self { leases } else { 1 }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ProcessPlan {
    pub(crate) timeout: Duration,
    pub(crate) connection_timeout: Duration,
    /// After how many hundredths of its timeout without a connection it gives its session up.
    pub(crate) gives_up_at: u8,
    pub(crate) retries: Retries,
    pub(crate) needs_quorum: bool,
    /// Its locks are cached where that can be.
    pub(crate) is_cached: bool,
    /// Its locks listen for requests to give them back, and do so.
    pub(crate) gives_back: bool,
    /// Its locks, none of them cached, listen for unclean deaths, and wait for so long after one.
    pub(crate) hears_of_deaths: Option<Duration>,
    /// Some of its calls use plain objects of the same paths.
    pub(crate) has_plain_as_well: bool,
    /// How much too fast its clock runs, in millionths.
    pub(crate) rate: i64,
    /// One way to each server.
    pub(crate) latency: Duration,
    pub(crate) strategy: Strategy,
    /// Waiters look again now and then although nothing tells them to. Without that no lost event goes unnoticed.
    pub(crate) looks_again: bool,
    /// The caller's code panics once in so many calls.
    pub(crate) panics: Option<u64>,
    pub(crate) threads: Vec<Vec<Act>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retries {
    Once,
    Thrice,
    Backoff,
    Forever,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Predecessor,
    Parent,
    Poll,
}

/// One thing that a thread does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Act {
    /// How long it rests before.
    pub(crate) rest: Duration,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Lock {
        place: usize,
        is_reader: bool,
        way: Way,
        hold: Duration,
        with: With,
    },
    Leases {
        place: usize,
        count: usize,
        way: Way,
        hold: Duration,
    },
    /// Several locks at once.
    Several {
        places: Vec<usize>,
        way: Way,
        hold: Duration,
    },
    /// Wants to lead for so long, each term for as long as `term`.
    Lead {
        place: usize,
        lasts: Duration,
        term: Duration,
    },
    /// Asks the first contender to give the lock back.
    Ask {
        place: usize,
    },
    /// Closes the client while others use it, and starts another one.
    Renew,
}

/// How an acquire waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Wait,
    Timed(Duration),
    Try,
    /// Cancelled after this.
    Cancelled(Duration),
    /// Behind so many others at most.
    Queue(usize),
    /// Certain for this long, at least.
    Valid(Duration),
    /// Held for at least, and at most, so long.
    Bounded(Duration, Duration),
}

/// What a holder does beside holding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum With {
    /// Acquires and releases without a guard.
    Plain,
    /// Drops a guard.
    Guard,
    /// Acquires it once more.
    Again,
    /// Listens to its state.
    Listener,
    /// Writes in a guarded transaction.
    Write,
    /// A writer that goes on as a reader.
    Downgrade,
}

/// A fault and its moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
}

/// The link of one process, or of all, to one server, or to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) process: Option<usize>,
    pub(crate) server: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Cut {
        link: Link,
        is_reset: bool,
    },
    BlackHole {
        link: Link,
        way: Direction,
        lasts: Duration,
    },
    Delay {
        link: Link,
        latency: Duration,
        lasts: Duration,
    },
    Refuse {
        link: Link,
        lasts: Duration,
    },
    /// No server can be reached.
    Away {
        process: usize,
        lasts: Duration,
    },
    /// The next requests of this kind are lost, or their replies.
    Lose {
        process: usize,
        op: i32,
        times: u64,
        how: Loss,
    },
    Names {
        lasts: Duration,
        is_silent: bool,
    },
    Crash {
        server: Target,
        lasts: Duration,
        is_hard: bool,
    },
    StopServer {
        server: Target,
        lasts: Duration,
    },
    /// A follower stands still until so long after a session of its clients is due.
    StopUntilDue {
        longer: Duration,
    },
    /// The leader stands still until the others have left it, and is the only one that can be reached for a while when it goes on.
    StopUntilLeft {
        lasts: Duration,
    },
    /// All servers stand still.
    StopAll {
        lasts: Duration,
    },
    Elect,
    Isolate {
        server: Target,
        lasts: Duration,
    },
    Lag {
        server: usize,
        lasts: Duration,
    },
    Throttle {
        lasts: Duration,
    },
    Expire {
        process: usize,
    },
    DeleteZnode {
        place: usize,
        rank: usize,
    },
    DeleteDirectory {
        place: usize,
        times: u32,
    },
    Permits {
        place: usize,
        lasts: Duration,
        only_read: bool,
    },
    Pause {
        process: usize,
        lasts: Duration,
    },
    MachineSleeps {
        process: usize,
        lasts: Duration,
    },
    /// A process ends, and takes nothing back. `is_silent`: its machine is gone, and the servers hear of nothing.
    Kill {
        process: usize,
        is_silent: bool,
    },
    /// The servers grant a shorter timeout from now on, after a restart: the plan's by [`LOWERED`].
    Lower {
        lasts: Duration,
    },
}

/// Two ticks of the plan's servers fit in what is left of its timeout.
pub(crate) const LOWERED: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Both,
    ToServer,
    ToClient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    RequestAndCut,
    AfterRequestCut,
    ReplyAndCut,
    ReplyStays,
    RequestStays,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Leader,
    Server(usize),
}

impl Fault {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Fault::Cut { is_reset: true, .. } => "connection reset",
            Fault::Cut { .. } => "connection closed",
            Fault::BlackHole { way: Direction::Both, .. } => "black hole",
            Fault::BlackHole { .. } => "black hole one way",
            Fault::Delay { .. } => "delay",
            Fault::Refuse { .. } => "connections refused",
            Fault::Away { .. } => "no server in reach",
            Fault::Lose { how: Loss::RequestAndCut | Loss::RequestStays, .. } => "request lost",
            Fault::Lose { .. } => "reply lost",
            Fault::Names { .. } => "name service",
            Fault::Crash { .. } => "server crash",
            Fault::StopServer { .. } => "server paused",
            Fault::StopUntilDue { .. } => "follower paused until a session is due",
            Fault::StopUntilLeft { .. } => "leader paused until it is left",
            Fault::StopAll { .. } => "all servers paused",
            Fault::Elect => "leader change",
            Fault::Isolate { server: Target::Leader, .. } => "leader isolated",
            Fault::Isolate { .. } => "server isolated",
            Fault::Lag { .. } => "follower lags",
            Fault::Throttle { .. } => "throttled",
            Fault::Expire { .. } => "session expired",
            Fault::DeleteZnode { .. } => "znode deleted",
            Fault::DeleteDirectory { .. } => "directory deleted",
            Fault::Permits { .. } => "permits taken away",
            Fault::Pause { .. } => "process paused",
            Fault::MachineSleeps { .. } => "machine asleep",
            Fault::Kill { .. } => "process killed",
            Fault::Lower { .. } => "timeout lowered",
        }
    }
}
