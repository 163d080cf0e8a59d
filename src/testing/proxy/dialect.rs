//! Answers as servers give them that speak ZooKeeper and are none, or an old one.

use super::frame::{self, RequestHeader};
use crate::{
    proto::op,
    session::dialect::{API_VERSION, Dialect, FEATURE_FLAGS},
};

/// The error codes `Marshalling` and `Unimplemented`.
const MARSHALLING: i32 = -5;
const UNIMPLEMENTED: i32 = -6;

/// The version that RaftKeeper and the first versions of Keeper tell (`WITH_MULTI_READ`).
const FIRST_VERSION: &[u8] = b"2";
/// The version of a Keeper that also has feature flags (`WITH_CHECK_NOT_EXISTS`).
const VERSION_WITH_FLAGS: &[u8] = b"3";

/// Filtered lists, reads in transactions, and two checks.
const FEW_FLAGS: &[u8] = &[0b1111_0000];
/// Those, and seven more: among them watches that stay, and creates with a stat.
const MANY_FLAGS: &[u8] = &[0b1111_1111, 0b1110_0000];

/// An answer of the dialect's own.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnAnswer {
    /// The server ends the connection instead of answering.
    HangsUp,
    /// The server answers with this error code, and may end the connection after that.
    Refuses { code: i32, hangs_up: bool },
    /// The server answers with these data.
    Data(&'static [u8]),
}

impl OwnAnswer {
    /// `None`: as ZooKeeper answers.
    pub(super) fn to(dialect: Dialect, request: &RequestHeader, frame: &[u8]) -> Option<OwnAnswer> {
        if request.op == op::GET_DATA {
            return data_of(dialect, request.path.as_deref()?);
        }
        let unknown = operations(request.op, frame).into_iter().find(|operation| !dialect.knows(*operation))?;
        Some(match dialect {
            // It cannot read such a transaction.
            Dialect::ZooKeeper34 if request.op != unknown => OwnAnswer::Refuses { code: MARSHALLING, hangs_up: false },
            Dialect::ZooKeeper34 => OwnAnswer::Refuses { code: UNIMPLEMENTED, hangs_up: true },
            _ => OwnAnswer::HangsUp,
        })
    }

    /// The error code that the client gets.
    pub(super) fn code(self) -> i32 {
        match self {
            OwnAnswer::Refuses { code, .. } => code,
            OwnAnswer::HangsUp | OwnAnswer::Data(_) => 0,
        }
    }

    /// Whether there is no answer but the end of the connection.
    pub(super) fn is_none(self) -> bool {
        matches!(self, OwnAnswer::HangsUp)
    }

    /// Whether the connection ends after the answer.
    pub(super) fn hangs_up(self) -> bool {
        matches!(self, OwnAnswer::Refuses { hangs_up: true, .. })
    }

    /// The reply that the client gets, made of the server's to a [harmless](frame::harmless) request.
    pub(super) fn reply(self, reply: &[u8]) -> Vec<u8> {
        match self {
            OwnAnswer::HangsUp => reply.to_vec(),
            OwnAnswer::Refuses { code, .. } => frame::refusal(reply, code),
            OwnAnswer::Data(data) => frame::with_data(reply, data),
        }
    }
}

/// What the server says of itself.
fn data_of(dialect: Dialect, path: &str) -> Option<OwnAnswer> {
    let data = match (path, dialect) {
        (API_VERSION, Dialect::RaftKeeper) => FIRST_VERSION,
        (API_VERSION, Dialect::KeeperBefore267 | Dialect::Keeper) => VERSION_WITH_FLAGS,
        (FEATURE_FLAGS, Dialect::KeeperBefore267) => FEW_FLAGS,
        (FEATURE_FLAGS, Dialect::Keeper) => MANY_FLAGS,
        _ => return None,
    };
    Some(OwnAnswer::Data(data))
}

/// The operation of a request, and those in it.
fn operations(operation: i32, frame: &[u8]) -> Vec<i32> {
    let mut all = vec![operation];
    if operation == op::MULTI {
        // Behind the length and the header.
        let mut rest = frame.get(12..).unwrap_or_default();
        while let Some(inner) = next_of_multi(&mut rest) {
            all.push(inner);
        }
    }
    all
}

/// The next operation of a transaction. `None`: the end, or what this proxy cannot read.
fn next_of_multi(rest: &mut &[u8]) -> Option<i32> {
    let (operation, is_done) = (int(rest)?, take(rest, 1)? != [0]);
    // The error, and the path.
    int(rest)?;
    if is_done {
        return None;
    }
    sized(rest)?;
    match operation {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
            sized(rest)?;
            for _ in 0..int(rest)? {
                int(rest)?;
                sized(rest)?;
                sized(rest)?;
            }
            take(rest, if operation == op::CREATE_TTL { 12 } else { 4 })?;
        }
        op::SET_DATA => _ = (sized(rest)?, int(rest)?),
        op::DELETE | op::CHECK => _ = int(rest)?,
        _ => {}
    }
    Some(operation)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn int(rest: &mut &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
}

/// Bytes with their length in front; -1 stands for none.
fn sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = int(rest)?;
    take(rest, usize::try_from(length.max(0)).ok()?)
}

/// The handshake as the server takes it. A Keeper does not look for the session that is to be resumed.
pub(super) fn handshake(dialect: Dialect, frame: Vec<u8>) -> Vec<u8> {
    if dialect.resumes_sessions() { frame } else { frame::without_session(frame) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{
        request::Request,
        types::{Acl, CreateMode},
    };

    fn answer(dialect: Dialect, request: &Request) -> Option<OwnAnswer> {
        let frame = request.encode(1);
        OwnAnswer::to(dialect, &frame::request(&frame)?, &frame)
    }

    #[test]
    fn an_unknown_operation_is_found_in_a_transaction_too() {
        let create = |mode| {
            let (path, data) = ("/a".to_owned(), b"data".to_vec());
            Request::Create { path, data, acl: Acl::open_unsafe(), mode }
        };
        let others = || {
            let (delete, check) = ("/b".to_owned(), "/c".to_owned());
            let set = Request::SetData { path: "/d".into(), data: b"x".to_vec(), version: 1 };
            let ttl_free = create(CreateMode::EphemeralSequential);
            vec![
                Request::Delete { path: delete, version: -1 },
                Request::Check { path: check, version: 2 },
                set,
                ttl_free,
            ]
        };
        let multi = |last| Request::Multi(others().into_iter().chain(last).collect());
        let (plain, container) = (multi(None), multi(Some(create(CreateMode::Container))));
        for dialect in Dialect::ALL {
            assert!(answer(dialect, &plain).is_none(), "{dialect}");
            assert_eq!(answer(dialect, &container).is_none(), dialect.has_containers(), "{dialect}");
        }
        let code = |request| answer(Dialect::ZooKeeper34, &request).map(OwnAnswer::code);
        assert_eq!(code(container), Some(MARSHALLING));
        assert_eq!(code(create(CreateMode::Container)), Some(UNIMPLEMENTED));
    }

    #[test]
    fn only_those_that_have_it_tell_their_version() {
        let of = |path: &str| Request::GetData { path: path.into(), watch: false };
        let tell = |path| Dialect::ALL.map(|dialect| answer(dialect, &of(path)).is_some());
        assert_eq!(tell(API_VERSION), [false, false, true, true, true]);
        assert_eq!(tell(FEATURE_FLAGS), [false, false, true, true, false]);
        assert_eq!(tell("/keeper"), [false; 5]);
    }
}
