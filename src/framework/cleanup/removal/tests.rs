//! Each kind of removal, against every reply.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

fn path(text: &str) -> ServerPath {
    ServerPath::from_server(text)
}

fn code(code: ErrorCode) -> Reply {
    Err(SessionError::Server(code))
}

fn lost() -> Reply {
    Err(SessionError::ConnectionLoss(None))
}

fn too_large() -> Reply {
    Err(SessionError::FrameTooLarge { size: 1001, limit: 1000 })
}

fn done() -> Reply {
    Ok(Response::Done)
}

fn synced() -> Reply {
    Ok(Response::Synced { path: "/l".into() })
}

fn children(names: &[&str]) -> Reply {
    Ok(Response::Children { names: names.iter().map(ToString::to_string).collect(), stat: None })
}

/// What the server may answer and later answers otherwise.
fn refusals() -> Vec<Reply> {
    let codes = [
        ErrorCode::NoAuth,
        ErrorCode::ThrottledOp,
        ErrorCode::NotEmpty,
        ErrorCode::OperationTimeout,
        ErrorCode::SessionExpired,
        ErrorCode::SystemError,
        ErrorCode::Other(-4711),
    ];
    let refused = SessionError::AuthFailed { scheme: "digest".into(), detail: String::new() };
    let lost = [lost(), Err(SessionError::Expired), Err(refused)];
    codes.into_iter().map(code).chain(lost).collect()
}

fn sent(removal: &Removal) -> Vec<String> {
    let name = |request: &Request| match request {
        Request::Delete { path, version } => format!("delete {path} {version}"),
        other => format!("{} {}", other.operation(), other.path()),
    };
    removal.requests().iter().map(name).collect()
}

fn search(is_ephemeral: bool) -> Removal {
    Removal::Protected { parent: path("/l"), prefix: "_c_a-".into(), is_ephemeral, too_large: None }
}

#[test]
fn a_znode_is_deleted_until_it_is_known_to_be_gone() {
    for gone in [done(), code(ErrorCode::NoNode)] {
        let mut removal = Removal::Nodes(vec![path("/l/x")]);
        for refusal in refusals() {
            assert_eq!(sent(&removal), ["delete /l/x -1"]);
            assert_eq!(removal.take(&[refusal]), Progress::Again);
        }
        assert_eq!(removal.take(&[gone]), Progress::Done);
    }
}

#[test]
fn a_search_deletes_what_it_finds_and_of_several_those_that_are_left() {
    let mut removal = search(true);
    assert_eq!(sent(&removal), ["sync /l", "get_children /l"]);
    let names = children(&["_c_Z-", "_c_a-lock-1", "_c_a-lock-3", "_c_b-lock-2", "x_c_a-"]);
    assert_eq!(removal.take(&[synced(), names]), Progress::More);
    assert_eq!(sent(&removal), ["delete /l/_c_a-lock-1 -1", "delete /l/_c_a-lock-3 -1"]);
    assert_eq!(removal.take(&[done(), lost()]), Progress::Again);
    assert_eq!(sent(&removal), ["delete /l/_c_a-lock-3 -1"]);
    assert_eq!(removal.take(&[code(ErrorCode::NoNode)]), Progress::Done);
}

#[test]
fn a_search_ends_where_nothing_is_found_or_the_directory_is_gone() {
    for reply in [children(&["_c_b-lock-2"]), children(&[]), code(ErrorCode::NoNode)] {
        let mut removal = search(true);
        assert_eq!(removal.take(&[synced(), reply]), Progress::Done);
    }
}

#[test]
fn a_search_believes_no_list_without_the_sync_before_it() {
    let mut removal = search(true);
    for refusal in refusals() {
        assert_eq!(removal.take(&[refusal.clone(), children(&[])]), Progress::Again, "{refusal:?}");
        assert_eq!(removal.take(&[synced(), refusal.clone()]), Progress::Again, "{refusal:?}");
    }
    // A session that has no sync is asked all the same.
    let no_sync = code(ErrorCode::Unimplemented);
    assert_eq!(removal.take(&[no_sync, children(&[])]), Progress::Done);
}

#[test]
fn a_list_that_is_too_large_is_asked_for_once_and_the_sessions_own_znodes_after_it() {
    let mut removal = search(true);
    assert_eq!(removal.take(&[synced(), too_large()]), Progress::More);
    assert_eq!(sent(&removal), ["sync /l", "get_ephemerals /l/_c_a-"]);
    assert_eq!(removal.take(&[lost(), lost()]), Progress::Again);
    assert_eq!(sent(&removal), ["sync /l", "get_ephemerals /l/_c_a-"]);
    let own = ["/l/_c_a-lock-1", "/other/_c_a-lock-1"].map(str::to_owned).to_vec();
    assert_eq!(removal.take(&[synced(), Ok(Response::Ephemerals(own))]), Progress::More);
    assert_eq!(sent(&removal), ["delete /l/_c_a-lock-1 -1"]);
}

#[test]
fn too_large_is_final_where_there_is_no_other_way_and_says_what_to_do() {
    for refusal in [code(ErrorCode::Unimplemented), too_large()] {
        let mut removal = search(true);
        removal.take(&[synced(), too_large()]);
        let Progress::GaveUp(reason) = removal.take(&[synced(), refusal]) else { panic!("goes on") };
        assert!(["/l", "_c_a-", "1000", "max_frame_size"].iter().all(|part| reason.contains(part)), "{reason}");
    }
    // What no session owns, no session lists.
    let mut removal = search(false);
    assert!(matches!(removal.take(&[synced(), too_large()]), Progress::GaveUp(_)));
}

#[test]
fn a_container_that_was_not_used_is_used_once_unless_that_is_refused_for_good() {
    let failed = |code| Ok(Response::Multi(vec![Err(None), Err(Some(code))]));
    let rows = [
        (Ok(Response::Multi(vec![Ok(Response::Done)])), Progress::Done),
        (code(ErrorCode::NoAuth), Progress::Done),
        (failed(ErrorCode::NoNode), Progress::Done),
        (code(ErrorCode::ThrottledOp), Progress::Again),
        (failed(ErrorCode::SessionMoved), Progress::Again),
        (lost(), Progress::Again),
    ];
    for (reply, progress) in rows {
        assert_eq!(Removal::NeverUsed(path("/l")).take(&[reply]), progress);
    }
}
