//! A [`Spec`] says how one kind of lock differs from another; the other types are what a contender and its acquire exchange.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    framework::held::holds::HoldKind,
    locks::{options::wait_strategy::WaitStrategy, recipe::driver::LockInternalsDriver},
    proto::{
        request::Request,
        response::Response,
        types::{CreateMode, ErrorCode},
    },
    session::api::WatchEvent,
};

/// The difference between one kind of lock and another: data, no code.
#[derive(Clone)]
pub(in crate::locks) struct Recipe {
    pub(in crate::locks) kind: HoldKind,
    /// Decides from the names who has the lock.
    pub(in crate::locks) driver: Arc<dyn LockInternalsDriver>,
    /// The directory of the znodes below the lock's path; `None`: the path itself.
    pub(in crate::locks) below: Option<&'static str>,
    /// Whether the directory has one znode at most, whose creator has the lock.
    pub(in crate::locks) is_sole: bool,
    /// Whether the znodes are no locks, but places in the queue for one: the contender at the head holds nothing yet.
    pub(in crate::locks) is_queue: bool,
    /// Whether the directory is no container, and stays.
    pub(in crate::locks) has_persistent_directory: bool,
    /// Makes the unique prefix of a znode's name from the session's id; `None`: as Curator's protection does.
    pub(in crate::locks) unique: Option<fn(i64) -> String>,
}

impl Recipe {
    /// Makes the recipe of a mutex, but for what its driver decides.
    pub(in crate::locks) fn new(kind: HoldKind, driver: impl LockInternalsDriver) -> Recipe {
        Recipe {
            kind,
            driver: Arc::new(driver),
            below: None,
            is_sole: false,
            is_queue: false,
            has_persistent_directory: false,
            unique: None,
        }
    }
}

/// One acquire of a lock: how its contender differs from others.
#[derive(Clone)]
pub struct Spec {
    /// The directory of the znodes, as the server knows it.
    pub directory: String,
    /// Decides from the names who has the lock.
    pub driver: Arc<dyn LockInternalsDriver>,
    /// The znodes' names behind their unique prefixes; where the mode is sequential the server appends a number.
    pub name: String,
    /// Whether the directory has one znode at most: the contender that creates it while the directory is empty has the
    /// lock.
    pub is_sole: bool,
    /// How many znodes one acquire needs; all or none.
    pub count: usize,
    /// The kind of znode.
    pub mode: CreateMode,
    /// The data of the znodes.
    pub data: Vec<u8>,
    /// How it waits for others; `None`: not at all.
    pub waits: Option<WaitStrategy>,
    /// Whether it looks before it creates, and writes nothing where it would have to wait.
    pub looks_first: bool,
    /// A second directory in which nobody may queue, or it would overtake them.
    pub must_be_empty: Option<String>,
    /// The write lock of the same thread, whose place this reader takes: both have to stand in one list.
    pub companion: Option<Companion>,
    /// Semaphores: it holds the head of the wait queue, without which it may not wait; when granted it gives that up.
    pub holds_queue_head: bool,
    /// How long the session has to be certain, at least, from the grant on.
    pub min_validity: Duration,
    /// Whether the contenders in front are counted for somebody.
    pub counts: bool,
    /// How many contenders may be in front; with more it does not queue.
    pub max_ahead: Option<usize>,
}

/// The znode of a write lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Companion {
    /// Its name in the directory.
    pub name: String,
    /// Its session's id.
    pub session: i64,
    /// Its fencing token, which stays: the reader's znode may be younger than those that wait behind it, and tokens must
    /// not shrink from one grant to the next.
    pub token: i64,
    /// The number of its znode's grant by which the writer holds.
    pub grant: u64,
}

/// A znode of the contender's own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// Its name in the directory.
    pub name: String,
    /// The transaction that created it.
    pub czxid: i64,
}

/// A znode that may exist and has to go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Leftover {
    /// A znode that exists.
    Node(Node),
    /// A znode whose create got no answer. The name begins with this.
    Doubt(String),
}

/// A contender's knowledge of its session and of the time when it takes a step.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The monotonic clock.
    pub now: Instant,
    /// Whether the caller's time is up; never for a contender that only tries, which ends with its requests.
    pub is_time_up: bool,
    /// The session's id.
    pub session: i64,
    /// The number of the live connection, 0 while there is none.
    pub connection: u64,
    /// Up to here the servers cannot have expired the session.
    pub valid_until: Option<Instant>,
    /// The session timeout.
    pub timeout: Duration,
    /// Whether the session has ended.
    pub is_ended: bool,
    /// Whether a hold that it has made is lost: a watch has reported its end, or its listener has given it back.
    pub is_lost: bool,
}

/// The process that a contender lives in, as far as the contender asks it something.
pub trait Environment<E> {
    /// Makes a prefix that nobody else uses.
    fn unique(&self) -> String;

    /// How many may hold the lock at a time, right now.
    fn max_leases(&self) -> usize;

    /// Whether the list of children is sent for with a create; else in a second step, once the znode is there.
    fn lists_with_create(&self) -> bool;

    /// Whether the lock was granted to this znode in this process.
    fn was_granted_here(&self, name: &str) -> bool;

    /// The error of an acquire whose znode or directory is deleted as often as it makes it, before it could wait.
    fn node_gone(&self) -> E;

    /// The model check takes each condition of a grant out in turn, to see that it is found missing.
    fn omits(&self, condition: Condition) -> bool {
        let _ = condition;
        false
    }
}

/// A condition of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Condition {
    /// One connection, on which events come in the order of time.
    Connection,
    /// A watch on the own znode, which somebody may have deleted before.
    OwnWatch,
    /// A predecessor of the contender's own kind: a mutex may queue in the directory of a read/write lock, where a
    /// writer that downgrades leaves a reader with its own number.
    Kind,
    /// One more look as late as can be: the process may have been paused since the first.
    LastLook,
    /// The servers cannot have expired the session yet.
    ValidUntil,
    /// A directory without another contender, for a [sole](Spec::is_sole) znode.
    EmptyDirectory,
}

/// Names a watch of one contender. The numbers tell a new watch from an event of an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchId {
    /// On the contender in front.
    Predecessor(u64),
    /// On the contender in front of the predecessor.
    Ahead(u64),
    /// On the own znode.
    Own(u64),
    /// On the children of the directory.
    Directory(u64),
}

/// The input of a contender's step.
#[derive(Debug, Clone)]
pub enum Input<E> {
    /// The contender begins, or the retry policy allows another attempt.
    Begin,
    /// There is a connected session, which the view shows.
    Connected,
    /// The answers to all requests of one [`Do::Ask`], in their order.
    Answers(Vec<Result<Response, Failed<E>>>),
    /// The end of [`Do::MakeDirectory`].
    DirectoryMade(Result<(), Failed<E>>),
    /// The last [`Do`] failed.
    Failed(Failed<E>),
    /// A watch reports.
    Event(WatchId, WatchEvent),
    /// Time to look again: a pause is over, the limit of leases has changed, or the end of [`Do::Hold`].
    Woken,
    /// The head of the wait queue is lost, without which the contender may not wait.
    QueueHeadLost,
    /// The time is up while it sleeps or waits for a connection.
    TimeUp,
}

/// A request's failure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failed<E> {
    /// The error that the caller sees.
    pub error: E,
    /// The server's code, where it has answered.
    pub code: Option<ErrorCode>,
    /// Whether the server may have carried the request out.
    pub maybe_done: bool,
    /// The reaction that the failure calls for.
    pub reaction: Reaction,
}

/// The reaction to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reaction {
    /// Another attempt, over another connection perhaps.
    Retry,
    /// The caller's time is up.
    TimeUp,
    /// The caller gets the error.
    Final,
}

/// The next need of a contender.
#[derive(Debug, Clone)]
pub enum Do<E> {
    /// A connected session.
    Connect,
    /// The answers to these requests, sent back to back, each with the watch that it leaves.
    Ask(Vec<(Request, Option<WatchId>)>),
    /// The directory, and what is missing above it.
    MakeDirectory,
    /// The retry policy's word on this error.
    Again(E),
    /// A sleep until something happens.
    Sleep,
    /// A short sleep, until the session may be certain again.
    Doze,
    /// The znodes in the process's registry of what it holds, so that their end is noticed.
    Hold,
    /// Nothing more.
    End(End<E>),
}

/// How a contender ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum End<E> {
    /// It has the lock.
    Granted,
    /// The time was up, or it would have had to wait.
    TimeUp,
    /// The head of the wait queue was lost.
    QueueHeadLost,
    /// The write lock whose place was to be taken does not stand any more.
    CompanionGone,
    /// The directory's numbers are nearly used up; this is the number.
    Exhausted(i64),
    /// Within the session timeout the session was never certain for as long ahead as was wanted. The contender gives
    /// its place up.
    Uncertain,
    /// More than [`max_ahead`](Spec::max_ahead) contenders were in front: how many.
    Busy(usize),
    /// It failed with this error.
    Failed(E),
}

impl View {
    pub(super) fn is_over(&self, connection: u64) -> bool {
        connection != 0 && self.connection == connection
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spec")
            .field("directory", &self.directory)
            .field("name", &self.name)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
