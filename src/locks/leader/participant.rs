//! The participants of a leader election.

use std::{borrow::Cow, ops::Deref};

use crate::{
    error::Result,
    framework::client::core::CuratorFramework,
    locks::queue_view::queue::{LockQueue, QueueEntry},
};

/// A participant that queues for leadership, or leads. It dereferences to its [`QueueEntry`]. Java: `Participant`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{LeaderLatch, Participant};
///
/// let latch = LeaderLatch::new(&client, "/scheduler")?.with_id("host-17");
/// latch.start()?;
/// latch.await_leadership()?;
/// let leader: Participant = latch.leader()?.ok_or("nobody leads")?;
/// assert!(leader.is_leader());
/// assert_eq!((leader.id().as_ref(), leader.session), ("host-17", client.session_id()));
/// latch.close()?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Participant {
    entry: QueueEntry,
    is_leader: bool,
}

impl Participant {
    /// All participants in a directory, the leader first.
    pub(super) fn all(client: &CuratorFramework, path: &str) -> Result<Vec<Participant>> {
        let entries = LockQueue::contenders(client, path)?;
        let of = |(position, entry)| Participant { entry, is_leader: position == 0 };
        Ok(entries.into_iter().enumerate().map(of).collect())
    }

    /// The participant's data as text, with U+FFFD for bytes that are no UTF-8; empty if they may not be read. Java:
    /// `Participant.getId`.
    #[must_use]
    pub fn id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.entry.data.as_deref().unwrap_or_default())
    }

    /// Whether it stood first. It may not know yet, or not lead any more. Java: `Participant.isLeader`.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }
}

impl Deref for Participant {
    type Target = QueueEntry;

    fn deref(&self) -> &QueueEntry {
        &self.entry
    }
}
