//! Who hears of a latch's terms.

use crate::locks::leader::leadership::Leadership;

/// Who is told that a [`LeaderLatch`](crate::LeaderLatch) leads. Java: `LeaderLatchListener`.
///
/// ```
/// # #[cfg(not(feature = "testing"))] fn main() {}
/// # #[cfg(feature = "testing")] fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_locks::testing::TestingServer::start()?;
/// # let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_millis(100));
/// # let client = curator_locks::CuratorFrameworkFactory::new_client(server.connect_string(), retry)?;
/// # client.start()?;
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
/// # Ok(()) }
/// ```
pub trait LeaderLatchListener: Send + Sync + 'static {
    /// The latch leads from now on, in this term.
    fn is_leader(&self, leadership: &Leadership);

    /// It does not any more. Called once for each [`is_leader`](LeaderLatchListener::is_leader), after that has returned.
    /// Where the leader gives up by itself, the next one leads after this has returned; where it may have lost its session,
    /// at [`Hold::valid_until`](crate::Hold::valid_until) at the latest, unless the process is paused or an earlier
    /// listener is still running.
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
    /// They are not.
    #[default]
    Silent,
    /// They are, before the znode is deleted.
    NotifyLeader,
}
