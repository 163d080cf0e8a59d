//! What differs between the kinds of lock, and the words that a contender and its shell exchange.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    locks::{options::wait_strategy::WaitStrategy, recipe::driver::LockInternalsDriver},
    proto::{
        request::Request,
        response::Response,
        types::{CreateMode, ErrorCode, EventType},
    },
    session::api::WatchEvent,
};

/// What differs from one kind of lock to another: data, no code.
#[derive(Clone)]
pub struct Spec {
    /// The directory of the znodes, as the server knows it.
    pub directory: String,
    /// Decides from the names who has the lock.
    pub driver: Arc<dyn LockInternalsDriver>,
    /// What the znodes are called.
    pub naming: Naming,
    /// How many znodes one acquire needs; all or none.
    pub count: usize,
    /// The kind of znode.
    pub mode: CreateMode,
    /// What the znodes carry.
    pub data: Vec<u8>,
    /// How it waits for others; `None`: not at all.
    pub waits: Option<WaitStrategy>,
    /// Looks before it creates, and writes nothing where it would have to wait.
    pub looks_first: bool,
    /// A second directory in which nobody may queue, or it would overtake them.
    pub must_be_empty: Option<String>,
    /// The same thread's write lock, whose place this reader takes: both have to stand in one list.
    pub companion: Option<Companion>,
    /// It stands at the head of another queue, without which it may not wait here, and leaves that once it holds.
    pub holds_queue_head: bool,
    /// For so long the session has to be certain from the grant on.
    pub min_validity: Duration,
    /// Somebody wants to know how many are in front.
    pub counts: bool,
    /// So many may be in front, or it does not queue.
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
    /// Which grant of its znode holds by it.
    pub grant: u64,
}

/// What a contender's znodes are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Naming {
    /// A unique prefix and this, and the number that the server appends where the mode is sequential.
    Unique(String),
    /// A unique prefix and this, in a directory that has one znode at most: whoever creates one while the directory is
    /// empty has the lock.
    Sole(String),
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
    /// It exists.
    Node(Node),
    /// Its create got no answer. The name begins with this.
    Doubt(String),
}

/// What a contender knows of its session and of the time when it takes a step.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The monotonic clock.
    pub now: Instant,
    /// The caller's time is up; never for one that only tries, which ends with its requests.
    pub is_time_up: bool,
    /// The session's id.
    pub session: i64,
    /// The number of the live connection, 0 while there is none.
    pub connection: u64,
    /// Up to here the servers cannot have expired the session.
    pub valid_until: Option<Instant>,
    /// The session timeout.
    pub timeout: Duration,
    /// The session has ended.
    pub is_ended: bool,
}

/// What a contender asks of the process it lives in.
pub trait Environment<E> {
    /// A prefix that nobody else uses.
    fn unique(&self) -> String;

    /// How many may hold the lock at a time, right now.
    fn max_leases(&self) -> usize;

    /// Whether the list of children is sent for with a create; else in a second step, once the znode is there.
    fn lists_with_create(&self) -> bool;

    /// Whether the lock was granted to this znode in this process.
    fn was_granted_here(&self, name: &str) -> bool;

    /// The error of an acquire that finds its znode or its directory deleted as often as it makes it, before it could wait.
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
    /// Over one connection, on which events come in the order of time.
    Connection,
    /// With a watch on the own znode, which somebody may have deleted before.
    OwnWatch,
    /// Behind a znode of one's own kind: a mutex may queue in the directory of a read/write lock, where a writer that
    /// downgrades leaves a reader with its own number.
    Kind,
    /// One more look as late as can be: the process may have been paused since the first.
    LastLook,
    /// The servers cannot have expired the session yet.
    ValidUntil,
    /// In a directory where nobody else is, for [`Naming::Sole`].
    EmptyDirectory,
}

/// Names a watch of one contender. The numbers tell a new watch from an event of an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchId {
    /// On the contender in front.
    Predecessor(u64),
    /// On the one in front of that.
    Ahead(u64),
    /// On the own znode.
    Own(u64),
    /// On the children of the directory.
    Directory(u64),
}

/// What happens to a contender.
#[derive(Debug, Clone)]
pub enum Input<E> {
    /// It begins, or the retry policy allows another attempt.
    Begin,
    /// There is a connected session, which the view shows.
    Connected,
    /// The answers to all requests of one [`Do::Ask`], in their order.
    Answers(Vec<Answer<E>>),
    /// The end of [`Do::MakeDirectory`].
    DirectoryMade(Result<(), Failed<E>>),
    /// What was to be done cannot be done.
    Failed(Failed<E>),
    /// A watch reports.
    Event(WatchId, WatchEvent),
    /// Time to look again: nobody knows why, or the limit of leases has changed.
    Woken,
    /// Its place at the head of another queue is lost, without which it may not wait here.
    Barred,
    /// The time is up while it sleeps or waits for a connection.
    TimeUp,
    /// The end of [`Do::Hold`]: the znodes are in the process's registry. `is_deleted`: the own watch has reported the
    /// end of one before.
    Held {
        /// See above.
        is_deleted: bool,
    },
}

/// One answer.
pub type Answer<E> = Result<Response, Failed<E>>;

/// Why there is no good answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failed<E> {
    /// As the caller is to see it.
    pub error: E,
    /// The server's code, where it has answered.
    pub code: Option<ErrorCode>,
    /// The server may have carried it out.
    pub maybe_done: bool,
    /// What it calls for.
    pub reaction: Reaction,
}

/// What a failure calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reaction {
    /// Another attempt, over another connection perhaps.
    Retry,
    /// The caller's time is up.
    TimeUp,
    /// The caller's error.
    Final,
}

/// What a contender wants next.
#[derive(Debug, Clone)]
pub enum Do<E> {
    /// A connected session.
    Connect,
    /// The answers to these, sent back to back.
    Ask(Ask),
    /// The directory, and what is missing above it.
    MakeDirectory,
    /// The retry policy's word on this error.
    Again(E),
    /// To sleep until something happens.
    Sleep,
    /// To sleep a moment, until the session may be certain again.
    Doze,
    /// The znodes in the process's registry of what it holds, so that their end is noticed.
    Hold,
    /// Nothing more.
    End(End<E>),
}

/// Requests that go out together, each with the watch that it leaves.
pub type Ask = Vec<(Request, Option<WatchId>)>;

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum End<E> {
    /// With the lock.
    Granted,
    /// The time was up, or it would have had to wait.
    TimeUp,
    /// Its place at the head of another queue was lost.
    Barred,
    /// The write lock whose place was to be taken does not stand any more.
    CompanionGone,
    /// The directory's numbers are nearly used up; this is the number.
    Exhausted(i64),
    /// The session was not certain for as long ahead as was wanted, at no time within the session timeout. Its place is
    /// given up.
    Uncertain,
    /// So many were in front, which is too many.
    Busy(usize),
    /// With an error.
    Failed(E),
}

/// Whether an event of a znode's own watch says that it is gone.
pub(in crate::locks) fn is_end(event: &WatchEvent) -> bool {
    matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. } | WatchEvent::Ended)
}

impl View {
    pub(super) fn is_over(&self, connection: u64) -> bool {
        connection != 0 && self.connection == connection
    }

    pub(super) fn is_valid_for(&self, time: Duration) -> bool {
        self.valid_until.is_some_and(|at| time < at.saturating_duration_since(self.now))
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spec")
            .field("directory", &self.directory)
            .field("naming", &self.naming)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
