//! Servers that speak ZooKeeper's protocol: which of its operations each kind knows.

use std::fmt;

use crate::proto::{
    op,
    request::Request,
    types::{CreateMode, ErrorCode},
};

/// Where ClickHouse Keeper and RaftKeeper say which protocol they speak.
pub(crate) const API_VERSION: &str = "/keeper/api_version";

/// Where ClickHouse Keeper says, bit by bit, what it knows beyond that.
pub(crate) const FEATURE_FLAGS: &str = "/keeper/feature_flags";

/// The number of Keeper's flag for watches that stay, with which came `removeWatches`, `setWatches` and `setWatches2`.
const PERSISTENT_WATCHES: usize = 7;

/// The number of Keeper's flag for creates that are answered with a stat (`create2`).
const CREATE_WITH_STATS: usize = 8;

/// A kind of server that speaks ZooKeeper's protocol.
///
/// A client finds out by itself what it is connected to, by one read that goes out behind the handshake:
/// [`CuratorFramework::dialect`](crate::CuratorFramework::dialect) tells. [`Builder::dialect`](crate::Builder::dialect)
/// says it beforehand. A server ends the connection of a client that asks for what it does not know, so the client asks
/// for nothing of the kind.
///
/// ```
/// use curator_locks::Dialect;
///
/// assert!(Dialect::ZooKeeper.resumes_sessions() && !Dialect::Keeper.resumes_sessions());
/// assert_eq!(Dialect::KeeperBefore267.to_string(), "ClickHouse Keeper before 26.7");
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// ZooKeeper 3.5 and newer.
    ZooKeeper,
    /// ZooKeeper 3.4: no containers, no TTL znodes, no `removeWatches`. It tells so only by refusing one of them, and then
    /// ends the connection; the session goes on. A client that has learnt it asks for none of them any more.
    ZooKeeper34,
    /// ClickHouse Keeper before 26.7: no containers, in most versions no `removeWatches`, `setWatches` and `create2`. A
    /// connection that is lost costs the session.
    KeeperBefore267,
    /// ClickHouse Keeper since 26.7. A connection that is lost costs the session. Whether containers are known cannot be
    /// asked for, so they are used only where this was said to [`Builder::dialect`](crate::Builder::dialect).
    Keeper,
    /// RaftKeeper: ZooKeeper 3.4, and it resumes sessions.
    RaftKeeper,
}

impl Dialect {
    /// Every dialect, for tests that try them all.
    pub const ALL: [Dialect; 5] =
        [Dialect::ZooKeeper, Dialect::ZooKeeper34, Dialect::KeeperBefore267, Dialect::Keeper, Dialect::RaftKeeper];

    /// Whether a session goes on over another connection. Otherwise the server answers with another session, and keeps the
    /// first one with its znodes until it expires.
    #[must_use]
    pub fn resumes_sessions(self) -> bool {
        !matches!(self, Dialect::KeeperBefore267 | Dialect::Keeper)
    }

    /// Whether there are containers: znodes that go by themselves after their last child. Otherwise the parents of locks are
    /// persistent, and stay.
    #[must_use]
    pub fn has_containers(self) -> bool {
        self.knows(op::CREATE_CONTAINER)
    }

    /// Whether the server knows the operation with this number. Asked for another one, it ends the connection.
    pub(crate) fn knows(self, operation: i32) -> bool {
        match operation {
            op::CREATE2 | op::REMOVE_WATCHES | op::CREATE_CONTAINER | op::CREATE_TTL => {
                matches!(self, Dialect::ZooKeeper | Dialect::Keeper)
            }
            op::SET_WATCHES => self != Dialect::KeeperBefore267,
            op::SET_WATCHES2 | op::ADD_WATCH => matches!(self, Dialect::ZooKeeper | Dialect::Keeper),
            op::GET_EPHEMERALS | op::WHO_AM_I | op::MULTI_READ => self == Dialect::ZooKeeper,
            _ => true,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dialect::ZooKeeper => "ZooKeeper",
            Dialect::ZooKeeper34 => "ZooKeeper 3.4",
            Dialect::KeeperBefore267 => "ClickHouse Keeper before 26.7",
            Dialect::Keeper => "ClickHouse Keeper",
            Dialect::RaftKeeper => "RaftKeeper",
        })
    }
}

/// What a server knows, as it has told, or was said beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub(crate) dialect: Dialect,
    pub(crate) has_containers: bool,
    removes_watches: bool,
    /// ZooKeeper 3.6 and newer: several reads in one request.
    pub(crate) reads_together: bool,
}

impl From<Dialect> for Abilities {
    fn from(dialect: Dialect) -> Abilities {
        Abilities {
            dialect,
            has_containers: dialect.has_containers(),
            removes_watches: dialect.knows(op::REMOVE_WATCHES),
            reads_together: dialect.knows(op::MULTI_READ),
        }
    }
}

impl Abilities {
    /// What a server knows that has [`API_VERSION`], and these [`FEATURE_FLAGS`]; `None`: there are none.
    pub(crate) fn by_flags(flags: Option<&[u8]>) -> Abilities {
        let Some(flags) = flags else { return Dialect::RaftKeeper.into() };
        let removes_watches = has_flag(flags, PERSISTENT_WATCHES);
        let is_new = removes_watches && has_flag(flags, CREATE_WITH_STATS);
        let dialect = if is_new { Dialect::Keeper } else { Dialect::KeeperBefore267 };
        // No flag tells of containers, and a server that does not know them may end the connection, and the session with it.
        Abilities { has_containers: false, removes_watches, ..dialect.into() }
    }

    pub(crate) fn knows(&self, operation: i32) -> bool {
        match operation {
            // No flag tells of TTL znodes either, and a Keeper that knows containers knows them.
            op::CREATE_CONTAINER | op::CREATE_TTL => self.has_containers,
            op::REMOVE_WATCHES => self.removes_watches,
            op::MULTI_READ => self.reads_together,
            _ => self.dialect.knows(operation),
        }
    }

    /// Learns from the answer to an operation that not every server knows.
    pub(crate) fn refused(&mut self, operation: i32, code: ErrorCode) {
        let is_unknown = match code {
            ErrorCode::Unimplemented => true,
            // ZooKeeper 3.4 cannot read a transaction that holds one.
            ErrorCode::MarshallingError => operation == op::CREATE_CONTAINER,
            // Only a Keeper finds fault with the arguments of an operation that it does not know.
            ErrorCode::BadArguments => self.dialect != Dialect::ZooKeeper,
            _ => false,
        };
        match operation {
            op::CREATE_CONTAINER | op::REMOVE_WATCHES if is_unknown && self.dialect == Dialect::ZooKeeper => {
                *self = Dialect::ZooKeeper34.into();
            }
            op::CREATE_CONTAINER if is_unknown => self.has_containers = false,
            op::REMOVE_WATCHES if is_unknown => self.removes_watches = false,
            op::MULTI_READ if is_unknown => self.reads_together = false,
            // A server may be told not to make TTL znodes, and knows them all the same.
            _ => {}
        }
    }
}

/// Keeper's flags are numbered from the highest bit of the first byte on.
fn has_flag(flags: &[u8], number: usize) -> bool {
    flags.get(number / 8).is_some_and(|byte| byte & (0x80 >> (number % 8)) != 0)
}

/// The operation of a request that not every server knows. A transaction is named after the one that it holds.
pub(crate) fn questionable(request: &Request) -> Option<i32> {
    let operation = request.op_code();
    match request {
        Request::Create { mode: CreateMode::Container, .. }
        | Request::Create {
            mode: CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_), ..
        }
        | Request::RemoveWatches { .. }
        | Request::GetEphemerals { .. }
        | Request::WhoAmI => Some(operation),
        Request::Multi(_) if operation == op::MULTI_READ => Some(operation),
        Request::Multi(steps) => steps.iter().find_map(questionable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_counted_from_the_highest_bit() {
        let flags = [0b0000_0001, 0b1000_0000];
        assert!(has_flag(&flags, PERSISTENT_WATCHES) && has_flag(&flags, CREATE_WITH_STATS));
        assert!(!has_flag(&flags, 0) && !has_flag(&flags, 9) && !has_flag(&flags, 16) && !has_flag(&[], 0));
    }

    #[test]
    fn a_keeper_is_known_by_its_flags_and_raft_keeper_by_having_none() {
        let found = |flags| {
            let abilities = Abilities::by_flags(flags);
            (abilities.dialect, abilities.knows(op::REMOVE_WATCHES), abilities.has_containers)
        };
        assert_eq!(found(None), (Dialect::RaftKeeper, false, false));
        assert_eq!(found(Some(&[0b1100_0000])), (Dialect::KeeperBefore267, false, false));
        assert_eq!(found(Some(&[0xff])), (Dialect::KeeperBefore267, true, false), "between the two");
        assert_eq!(found(Some(&[0xff, 0xff])), (Dialect::Keeper, true, false));
        assert!(!Abilities::by_flags(Some(&[0xff, 0xff])).knows(op::CREATE_TTL));
        assert!(Abilities::from(Dialect::Keeper).has_containers, "said beforehand");
    }

    #[test]
    fn a_refusal_is_learnt_and_bad_arguments_only_from_others_than_zookeeper() {
        let after = |dialect: Dialect, operation, code| {
            let mut abilities = Abilities::from(dialect);
            abilities.refused(operation, code);
            abilities
        };
        let zookeeper = |operation, code| after(Dialect::ZooKeeper, operation, code);
        let (fresh, old) = (Abilities::from(Dialect::ZooKeeper), Abilities::from(Dialect::ZooKeeper34));
        assert_eq!(zookeeper(op::CREATE_CONTAINER, ErrorCode::BadArguments), fresh);
        assert_eq!(zookeeper(op::CREATE_CONTAINER, ErrorCode::NoAuth), fresh);
        assert_eq!(zookeeper(op::CREATE_TTL, ErrorCode::Unimplemented), fresh);
        assert_eq!(zookeeper(op::CREATE_CONTAINER, ErrorCode::Unimplemented), old);
        assert_eq!(zookeeper(op::CREATE_CONTAINER, ErrorCode::MarshallingError), old);
        assert_eq!(zookeeper(op::REMOVE_WATCHES, ErrorCode::Unimplemented), old);
        let zookeeper_35 = zookeeper(op::MULTI_READ, ErrorCode::Unimplemented);
        assert!(!zookeeper_35.knows(op::MULTI_READ) && fresh.knows(op::MULTI_READ) && zookeeper_35.has_containers);
        assert_eq!(zookeeper_35.dialect, Dialect::ZooKeeper);
        assert_eq!(zookeeper(op::MULTI_READ, ErrorCode::NoNode), fresh);
        let keeper = after(Dialect::Keeper, op::CREATE_CONTAINER, ErrorCode::BadArguments);
        assert!(!keeper.has_containers && keeper.knows(op::REMOVE_WATCHES) && keeper.dialect == Dialect::Keeper);
    }

    #[test]
    fn a_transaction_needs_what_its_steps_need() {
        let create = |mode| Request::Create { path: "/a".into(), data: Vec::new(), acl: Vec::new(), mode };
        let check = || Request::Check { path: "/a".into(), version: 0 };
        assert_eq!(questionable(&create(CreateMode::Ephemeral)), None);
        let transaction = Request::Multi(vec![check(), create(CreateMode::Container)]);
        assert_eq!(questionable(&transaction), Some(op::CREATE_CONTAINER));
        assert_eq!(questionable(&Request::Multi(vec![check()])), None);
        let list = Request::GetChildren { path: "/a".into(), watch: false, with_stat: false };
        assert_eq!(questionable(&Request::Multi(vec![list.clone(), list])), Some(op::MULTI_READ));
    }
}
