//! How the servers of a modelled ensemble are set up.

use std::{collections::BTreeSet, ops::RangeInclusive, time::Duration};

/// A length of time that the seed picks anew each time.
pub(crate) type Span = RangeInclusive<Duration>;

const fn millis(from: u64, to: u64) -> Span {
    Duration::from_millis(from)..=Duration::from_millis(to)
}

/// The ensemble's size, limits and latencies. Limits are those of `zoo.cfg`.
#[derive(Debug, Clone)]
pub(crate) struct EnsembleConfig {
    /// 1, 3 or 5.
    pub(crate) servers: usize,
    pub(crate) tick: Duration,
    pub(crate) min_session_timeout: Duration,
    pub(crate) max_session_timeout: Duration,
    /// In ticks: how long followers may take to join a leader.
    pub(crate) init_limit: u32,
    /// In ticks: for how long leader and follower believe in each other without a message.
    pub(crate) sync_limit: u32,
    pub(crate) container_interval: Duration,
    /// `zookeeper.extendedTypesEnabled`: TTL znodes.
    pub(crate) extended_types: bool,
    /// `jute.maxbuffer`.
    pub(crate) frame_limit: usize,
    /// A message from one server to another.
    pub(crate) link: Span,
    /// How many thousandths of the messages between servers are late, and by how much.
    pub(crate) late: (u32, Span),
    /// From a proposal to its acknowledgement by the same server.
    pub(crate) disk: Span,
    /// From the loss of a leader to the next vote.
    pub(crate) election: Span,
    /// From a server's start to its first vote, or of one that is alone to its first client.
    pub(crate) start: Span,
    /// From one closed session to the next where several expire at a time.
    pub(crate) expiry: Span,
    /// How late the threads of a server that was paused go on, each for itself.
    pub(crate) wake: Span,
    pub(crate) dialect: Dialect,
}

/// In what the servers are unlike ZooKeeper. Defaults to nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialect {
    /// Operations that end the connection without an answer.
    pub(crate) unknown_ops: BTreeSet<i32>,
    /// A resumed handshake is given a session of its own, and the old one stays until it expires.
    pub(crate) resumes_as_another: bool,
    /// The error code that answers `createContainer`.
    pub(crate) containers_refused: Option<i32>,
}

impl Default for EnsembleConfig {
    fn default() -> Self {
        EnsembleConfig {
            servers: 3,
            tick: Duration::from_millis(500),
            min_session_timeout: Duration::from_millis(500),
            max_session_timeout: Duration::from_secs(60),
            init_limit: 10,
            sync_limit: 5,
            container_interval: Duration::from_secs(60),
            extended_types: false,
            frame_limit: 0xf_ffff,
            link: Duration::from_micros(100)..=Duration::from_micros(500),
            late: (0, millis(0, 0)),
            disk: Duration::from_micros(50)..=Duration::from_millis(1),
            election: millis(200, 1500),
            start: millis(300, 1000),
            expiry: Duration::ZERO..=Duration::from_micros(200),
            wake: millis(0, 2),
            dialect: Dialect::default(),
        }
    }
}

impl EnsembleConfig {
    /// One server that answers at once.
    #[cfg(feature = "testing")]
    pub(crate) fn alone() -> EnsembleConfig {
        EnsembleConfig {
            servers: 1,
            link: Duration::ZERO..=Duration::ZERO,
            disk: Duration::ZERO..=Duration::ZERO,
            expiry: Duration::ZERO..=Duration::ZERO,
            ..EnsembleConfig::default()
        }
    }

    pub(super) fn quorum(&self) -> usize {
        self.servers / 2 + 1
    }
}
