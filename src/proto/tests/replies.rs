use super::hex;
use crate::proto::{
    connect::ConnectResponse,
    error::ProtoError,
    header::{ReplyHeader, decode_header},
    op,
    response::Response,
    types::{Acl, ErrorCode, EventType, Notification, Stat},
};

/// A stat in which no two fields are alike.
const STAT: &str = "0000000000000001 0000000000000002 0000000000000003 0000000000000004
    00000005 00000006 00000007 0000000000000008 00000009 0000000a 000000000000000b";

fn stat() -> Stat {
    Stat {
        czxid: 1,
        mzxid: 2,
        ctime: 3,
        mtime: 4,
        version: 5,
        cversion: 6,
        aversion: 7,
        ephemeral_owner: 8,
        data_length: 9,
        num_children: 10,
        pzxid: 11,
    }
}

fn decodes_to(op_code: i32, digits: &str, response: Response) {
    assert_eq!(Response::decode(op_code, 12, &hex(digits)), Ok(response));
}

#[test]
fn connected() {
    let frame = hex("00000000 00001770 0100000fd2b70000 00000010 5bc4b4aa4c8edad131aaf77375c529dc 01");
    let response = ConnectResponse::decode(&frame).unwrap();
    assert_eq!((response.timeout_ms, response.session_id, response.read_only), (6000, 0x0100_000f_d2b7_0000, true));
    assert_eq!(response.password, hex("5bc4b4aa4c8edad131aaf77375c529dc"));
    assert!(!format!("{response:?}").contains("91"), "the password begins with 91");
}

#[test]
fn connected_by_a_server_without_read_only_mode() {
    let frame = hex("00000000 00001770 0100000fd2b70000 00000001 5b");
    assert!(!ConnectResponse::decode(&frame).unwrap().read_only);
}

#[test]
fn session_expired() {
    let frame = hex("00000000 00000000 0000000000000000 00000010 00000000000000000000000000000000 00");
    let response = ConnectResponse::decode(&frame).unwrap();
    assert_eq!((response.timeout_ms, response.session_id), (0, 0));
}

#[test]
fn connect_response_cut_or_prolonged_is_refused() {
    let frame = hex("00000000 00001770 0100000fd2b70000 00000001 5b 00");
    for end in (0..frame.len()).filter(|end| *end != frame.len() - 1) {
        assert!(ConnectResponse::decode(&frame[..end]).is_err(), "{end} bytes");
    }
    let prolonged = [&frame[..], &[0]].concat();
    assert_eq!(ConnectResponse::decode(&prolonged), Err(ProtoError::Trailing { left: 1 }));
}

#[test]
fn header() {
    let frame = hex("0000001d 0000000000000011 ffffff9b 2f");
    let header = ReplyHeader { xid: 29, zxid: 17, err: -101 };
    assert_eq!(decode_header(&frame), Ok((header, &b"/"[..])));
    assert_eq!(ErrorCode::from(header.err), ErrorCode::NoNode);
    for end in 0..16 {
        assert!(decode_header(&frame[..end]).is_err(), "{end} bytes");
    }
}

#[test]
fn done() {
    decodes_to(op::DELETE, "", Response::Done);
    assert_eq!(Response::decode(op::DELETE, 12, &[0]), Err(ProtoError::Trailing { left: 1 }));
}

#[test]
fn created() {
    let created = || Response::Created { path: "/pc0000000002".to_owned(), czxid: 12 };
    let digits = "0000000d 2f706330303030303030303032";
    decodes_to(op::CREATE, digits, created());
    decodes_to(op::CREATE_CONTAINER, &format!("{digits} {STAT}"), created());
}

#[test]
fn stat_of_exists_set_data_and_set_acl() {
    decodes_to(op::EXISTS, STAT, Response::Stat(stat()));
}

#[test]
fn data() {
    let data = |data: &[u8]| Response::Data { data: data.to_vec(), stat: stat() };
    decodes_to(op::GET_DATA, &format!("00000002 6869 {STAT}"), data(b"hi"));
    decodes_to(op::GET_DATA, &format!("00000000 {STAT}"), data(b""));
    decodes_to(op::GET_DATA, &format!("ffffffff {STAT}"), data(b""));
}

#[test]
fn children() {
    let names = || vec!["pa".to_owned(), "zookeeper".to_owned()];
    let digits = "00000002 00000002 7061 00000009 7a6f6f6b6565706572";
    decodes_to(op::GET_CHILDREN, digits, Response::Children { names: names(), stat: None });
    decodes_to(op::GET_CHILDREN, "00000000", Response::Children { names: vec![], stat: None });
    let children = Response::Children { names: names(), stat: Some(stat()) };
    decodes_to(op::GET_CHILDREN2, &format!("{digits} {STAT}"), children);
}

#[test]
fn acl() {
    let digits = format!("00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 {STAT}");
    decodes_to(op::GET_ACL, &digits, Response::Acl { acl: Acl::open_unsafe(), stat: stat() });
}

#[test]
fn synced() {
    decodes_to(op::SYNC, "00000001 2f", Response::Synced { path: "/".into() });
}

#[test]
fn multi_that_succeeded() {
    let digits = format!(
        "0000000d 00 00000000
        00000001 00 00000000 00000003 2f6d31
        0000000f 00 00000000 00000003 2f6d32 {STAT}
        00000005 00 00000000 {STAT}
        00000002 00 00000000
        ffffffff 01 ffffffff"
    );
    let results = vec![
        Ok(Response::Done),
        Ok(Response::Created { path: "/m1".into(), czxid: 12 }),
        Ok(Response::Created { path: "/m2".into(), czxid: 12 }),
        Ok(Response::Stat(stat())),
        Ok(Response::Done),
    ];
    decodes_to(op::MULTI, &digits, Response::Multi(results));
}

#[test]
fn multi_that_failed() {
    let digits = "ffffffff 00 00000000 00000000
        ffffffff 00 ffffff9b ffffff9b
        ffffffff 00 fffffffe fffffffe
        ffffffff 01 ffffffff";
    let results = vec![Err(None), Err(Some(ErrorCode::NoNode)), Err(Some(ErrorCode::RuntimeInconsistency))];
    decodes_to(op::MULTI, digits, Response::Multi(results));
}

#[test]
fn multi_with_an_unknown_operation_is_refused() {
    let unknown = ProtoError::Unexpected { what: "operation in the reply of a multi", value: 6 };
    assert_eq!(Response::decode(op::MULTI, 12, &hex("00000006 00 00000000")), Err(unknown));
}

#[test]
fn reads_of_a_multi_have_results_of_their_own() {
    let digits = format!(
        "00000008 00 00000000 00000002 00000001 61 00000001 62
        ffffffff 00 ffffff9b ffffff9b
        00000004 00 00000000 00000001 78 {STAT}
        ffffffff 01 ffffffff"
    );
    let results = vec![
        Ok(Response::Children { names: vec!["a".into(), "b".into()], stat: None }),
        Err(Some(ErrorCode::NoNode)),
        Ok(Response::Data { data: b"x".to_vec(), stat: stat() }),
    ];
    decodes_to(op::MULTI_READ, &digits, Response::Multi(results));
}

#[test]
fn ephemerals() {
    let paths = vec!["/pb".to_owned(), "/sb".to_owned()];
    decodes_to(op::GET_EPHEMERALS, "00000002 00000003 2f7062 00000003 2f7362", Response::Ephemerals(paths));
}

#[test]
fn who_am_i() {
    let digits = "00000002 00000006 646967657374 00000009 75eda0bdedb880c3a9
        00000002 6970 00000009 3132372e302e302e31";
    let users = vec![("digest".into(), "u\u{1F600}\u{e9}".into()), ("ip".into(), "127.0.0.1".into())];
    decodes_to(op::WHO_AM_I, digits, Response::WhoAmI(users));
}

#[test]
fn notifications() {
    let frame = hex("ffffffff ffffffffffffffff 00000000 00000003 00000003 00000003 2f7061");
    let (header, body) = decode_header(&frame).unwrap();
    assert_eq!(header, ReplyHeader { xid: crate::proto::header::XID_NOTIFICATION, zxid: -1, err: 0 });
    let changed = Notification { event: EventType::NodeDataChanged, state: 3, path: "/pa".into() };
    assert_eq!(Notification::decode(body), Ok(changed));
    for end in 0..body.len() {
        assert!(Notification::decode(&body[..end]).is_err(), "{end} bytes");
    }
    let prolonged = [body, &[0]].concat();
    assert_eq!(Notification::decode(&prolonged), Err(ProtoError::Trailing { left: 1 }));
}

#[test]
fn event_types() {
    for (number, event) in [
        (1, EventType::NodeCreated),
        (2, EventType::NodeDeleted),
        (3, EventType::NodeDataChanged),
        (4, EventType::NodeChildrenChanged),
        (5, EventType::DataWatchRemoved),
        (6, EventType::ChildWatchRemoved),
        (7, EventType::Other(7)),
    ] {
        assert_eq!(EventType::from(number), event);
    }
}

#[test]
fn error_codes_keep_their_number() {
    for code in -200..0 {
        assert_eq!(i32::from(ErrorCode::from(code)), code);
    }
}
