//! The listeners of a latch.

use crate::locks::leader::leadership::Leadership;

/// A listener that is told when a [`LeaderLatch`](crate::LeaderLatch) leads. Java: `LeaderLatchListener`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{CloseMode, LeaderLatch, LeaderLatchListener, Leadership};
///
/// struct Tell(crossbeam_channel::Sender<&'static str>);
///
/// impl LeaderLatchListener for Tell {
///     fn is_leader(&self, _leadership: &Leadership) {
///         drop(self.0.send("leads")); // returns soon: the client's other listeners wait
///     }
///     fn not_leader(&self) {
///         drop(self.0.send("leads no more"));
///     }
/// }
///
/// let (tell, told) = crossbeam_channel::unbounded();
/// let latch = LeaderLatch::new(&client, "/scheduler")?;
/// latch.add_listener(Tell(tell));
/// latch.start()?;
/// assert_eq!(told.recv()?, "leads");
/// latch.close_with(CloseMode::NotifyLeader).unwrap_or_else(|error| eprintln!("closed, but {error}"));
/// assert_eq!(told.recv()?, "leads no more");
/// # Ok(()) });
/// ```
pub trait LeaderLatchListener: Send + Sync + 'static {
    /// The latch leads from now on, in this term.
    fn is_leader(&self, leadership: &Leadership);

    /// The latch does not lead any more. Called once for each [`is_leader`](LeaderLatchListener::is_leader), after that
    /// has returned. If the leader gives up by itself, the next one leads after this has returned; if it may have lost
    /// its session, this is called at [`Hold::valid_until`](crate::Hold::valid_until) at the latest, unless the process
    /// is paused or an earlier listener is still running.
    fn not_leader(&self);
}

/// Whether a leader's listeners are told when its latch is closed. Java: `LeaderLatch.CloseMode`.
///
/// ```
/// use curator_locks::{CloseMode, LeaderLatch};
///
/// # let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_millis(100));
/// # let client = curator_locks::CuratorFrameworkFactory::new_client("zk1:2181", retry)?;
/// let latch = LeaderLatch::new(&client, "/scheduler")?.with_close_mode(CloseMode::NotifyLeader);
/// drop(latch); // a leader's listeners would be told
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CloseMode {
    /// The listeners are not told.
    #[default]
    Silent,
    /// The listeners are told, before the znode is deleted.
    NotifyLeader,
}
