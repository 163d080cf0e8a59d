//! How a contender waits for its turn.

use std::time::Duration;

/// How a contender waits for its turn: the three classical ways, to compare them or to meet a rule from outside.
///
/// The choice is each object's own. Contenders with different strategies, in any process and language, queue in one
/// directory, in one order, and none is granted by other rules: a strategy only says when a waiter reads the queue
/// again. With each, a wait ends at once when the call is cancelled, the client closed or the session lost; while the
/// connection is suspended the waiter keeps its place, and it reads the queue again over the next connection.
///
/// With `n` waiters, one release costs:
///
/// | | woken | requests | names read | hand-over takes |
/// |---|---|---|---|---|
/// | `WatchPredecessor` | 1 | 0 or 2 | 0 or `n` | half a round trip, or 1.5 |
/// | `WatchParent` | all | `n` | `n * n` | 1.5 round trips, behind the replies to all others |
/// | `Poll` | as time goes by | 0 | 0 | half the interval on average |
///
/// So polling costs the servers less than watching the parent where releases follow each other quicker than the interval
/// (200 waiters who poll each 50 ms: 58 requests for each hand-over instead of 102), and hands over later (27 ms instead of
/// 9).
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{CuratorFramework, InterProcessMutex, WaitStrategy};
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?.with_wait_strategy(WaitStrategy::WatchParent);
/// mutex.acquire()?;
/// mutex.release()?;
/// # Ok(()) });
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitStrategy {
    /// Watches the one contender in front whose end can bring the turn. A release wakes one waiter, however long the
    /// queue is. A waiter costs two watches at the server and nothing while it waits.
    #[default]
    WatchPredecessor,
    /// Watches the lock's directory. Every arrival, release and give-up wakes every waiter, and each reads the whole
    /// queue: a herd, harmless with a few waiters and ruinous with a thousand. A waiter costs one watch, and is told of a
    /// [request to give the lock back](crate::InterProcessMutex::on_revocation) only once it holds the lock.
    WatchParent,
    /// Reads the queue again and again, this far apart; shorter than 1 ms counts as 1 ms. A waiter costs `1 / interval`
    /// requests per second and one watch, on its own znode, which tells of the end of its session or of the znode.
    /// Choose it where a bounded load on the server matters more than a prompt hand-over.
    Poll(Duration),
}

impl WaitStrategy {
    /// The interval of a waiter that polls.
    pub(crate) fn interval(self) -> Option<Duration> {
        match self {
            WaitStrategy::Poll(interval) => Some(interval.max(Duration::from_millis(1))),
            WaitStrategy::WatchPredecessor | WaitStrategy::WatchParent => None,
        }
    }
}
