use super::{corpus::body, hex, peer};
use crate::proto::{
    connect::ConnectRequest,
    header::set_xid,
    op,
    request::Request,
    response::Response,
    types::{Acl, CreateMode, WatchTable},
};

fn encodes_to(request: &Request, digits: &str) {
    let frame = request.encode(5);
    assert_eq!(frame, hex(digits), "{request:?}");
    assert_eq!(&peer::decode_request(&frame), request);
}

fn create(mode: CreateMode) -> Request {
    Request::Create { path: "/pa".into(), data: b"hi".to_vec(), acl: Acl::open_unsafe(), mode }
}

/// Path, data and ACL of [`create`].
const CREATE: &str = "00000003 2f7061  00000002 6869  00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65";

#[test]
fn connect() {
    let request = ConnectRequest {
        last_zxid_seen: 0x17,
        timeout_ms: 6000,
        session_id: 0x0100_000f_d2b7_0000,
        password: (0..16).collect(),
        read_only: true,
    };
    let frame = request.encode();
    let expected = "0000002d 00000000 0000000000000017 00001770 0100000fd2b70000
        00000010 000102030405060708090a0b0c0d0e0f 01";
    assert_eq!(frame, hex(expected));
}

#[test]
fn create_has_a_flag_for_each_mode() {
    for (mode, flags) in [
        (CreateMode::Persistent, "00000000"),
        (CreateMode::Ephemeral, "00000001"),
        (CreateMode::PersistentSequential, "00000002"),
        (CreateMode::EphemeralSequential, "00000003"),
    ] {
        encodes_to(&create(mode), &format!("00000034 00000005 00000001 {CREATE} {flags}"));
    }
}

#[test]
fn containers_and_ttl_znodes_have_op_codes_of_their_own() {
    let frame = create(CreateMode::Container).encode(5);
    assert_eq!(frame, hex(&format!("00000034 00000005 00000013 {CREATE} 00000004")));
    let frame = create(CreateMode::PersistentWithTtl(60000)).encode(5);
    assert_eq!(frame, hex(&format!("0000003c 00000005 00000015 {CREATE} 00000005 000000000000ea60")));
    let frame = create(CreateMode::PersistentSequentialWithTtl(60000)).encode(5);
    assert_eq!(frame, hex(&format!("0000003c 00000005 00000015 {CREATE} 00000006 000000000000ea60")));
}

#[test]
fn delete() {
    let request = Request::Delete { path: "/pa".into(), version: -1 };
    encodes_to(&request, "00000013 00000005 00000002 00000003 2f7061 ffffffff");
}

#[test]
fn exists() {
    encodes_to(&Request::Exists { path: "/pa".into(), watch: true }, "00000010 00000005 00000003 00000003 2f7061 01");
}

#[test]
fn get_data() {
    encodes_to(
        &Request::GetData { path: "/nope".into(), watch: false },
        "00000012 00000005 00000004 00000005 2f6e6f7065 00",
    );
}

#[test]
fn set_data() {
    let request = Request::SetData { path: "/pa".into(), data: b"new".to_vec(), version: 0 };
    encodes_to(&request, "0000001a 00000005 00000005 00000003 2f7061 00000003 6e6577 00000000");
}

#[test]
fn get_acl() {
    encodes_to(&Request::GetAcl { path: "/pa".into() }, "0000000f 00000005 00000006 00000003 2f7061");
}

#[test]
fn set_acl() {
    let request = Request::SetAcl { path: "/pa".into(), acl: Acl::creator_all(), version: -1 };
    let expected = "00000027 00000005 00000007 00000003 2f7061
        00000001 0000001f 00000004 61757468 00000000  ffffffff";
    encodes_to(&request, expected);
}

#[test]
fn get_children() {
    let request = |with_stat| Request::GetChildren { path: "/".into(), watch: true, with_stat };
    encodes_to(&request(false), "0000000e 00000005 00000008 00000001 2f 01");
    encodes_to(&request(true), "0000000e 00000005 0000000c 00000001 2f 01");
}

#[test]
fn sync() {
    encodes_to(&Request::Sync { path: "/".into() }, "0000000d 00000005 00000009 00000001 2f");
}

#[test]
fn requests_without_a_body() {
    encodes_to(&Request::Ping, "00000008 00000005 0000000b");
    encodes_to(&Request::WhoAmI, "00000008 00000005 0000006b");
    encodes_to(&Request::CloseSession, "00000008 00000005 fffffff5");
}

#[test]
fn multi_ends_with_a_header_of_its_own() {
    encodes_to(&Request::Multi(vec![]), "00000011 00000005 0000000e ffffffff 01 ffffffff");
}

#[test]
fn multi() {
    let create = |path: &str, mode| Request::Create { path: path.into(), data: b"m".to_vec(), acl: vec![], mode };
    let request = Request::Multi(vec![
        Request::Check { path: "/pa".into(), version: 2 },
        create("/m1", CreateMode::Persistent),
        create("/m2", CreateMode::Container),
        create("/m3", CreateMode::PersistentWithTtl(1000)),
        create("/m4", CreateMode::EphemeralSequential),
        Request::SetData { path: "/m1".into(), data: vec![7], version: 0 },
        Request::Delete { path: "/m1".into(), version: -1 },
    ]);
    let expected = "000000ce 00000005 0000000e
        0000000d 00 ffffffff  00000003 2f7061 00000002
        00000001 00 ffffffff  00000003 2f6d31 00000001 6d 00000000 00000000
        00000013 00 ffffffff  00000003 2f6d32 00000001 6d 00000000 00000004
        00000015 00 ffffffff  00000003 2f6d33 00000001 6d 00000000 00000005 00000000000003e8
        00000001 00 ffffffff  00000003 2f6d34 00000001 6d 00000000 00000003
        00000005 00 ffffffff  00000003 2f6d31 00000001 07 00000000
        00000002 00 ffffffff  00000003 2f6d31 ffffffff
        ffffffff 01 ffffffff";
    encodes_to(&request, expected);
    assert_eq!(request.path(), "/pa");
}

#[test]
fn remove_watches() {
    let request = |table| Request::RemoveWatches { path: "/pb".into(), table };
    encodes_to(&request(WatchTable::Children), "00000013 00000005 00000012 00000003 2f7062 00000001");
    encodes_to(&request(WatchTable::Data), "00000013 00000005 00000012 00000003 2f7062 00000002");
}

#[test]
fn auth() {
    let request = Request::Auth { scheme: "digest".into(), auth: b"u:p".to_vec() };
    encodes_to(&request, "0000001d 00000005 00000064 00000000 00000006 646967657374 00000003 753a70");
}

#[test]
fn set_watches() {
    let request = Request::SetWatches {
        relative_zxid: 1,
        data: vec!["/pa".into(), "/gone".into()],
        exist: vec!["/pb".into()],
        child: vec![],
    };
    let expected = "00000033 00000005 00000065 0000000000000001
        00000002 00000003 2f7061 00000005 2f676f6e65  00000001 00000003 2f7062  00000000";
    encodes_to(&request, expected);
}

#[test]
fn get_ephemerals() {
    encodes_to(&Request::GetEphemerals { prefix: "/".into() }, "0000000d 00000005 00000067 00000001 2f");
}

#[test]
fn set_xid_changes_nothing_else() {
    let mut frame = Request::Sync { path: "/".into() }.encode(0);
    set_xid(&mut frame, -2);
    assert_eq!(frame, Request::Sync { path: "/".into() }.encode(-2));
    set_xid(&mut [0; 7], 1); // too short to hold one
}

#[test]
fn only_three_requests_leave_watches() {
    let watching = |watch| {
        [
            Request::Exists { path: "/a".into(), watch },
            Request::GetData { path: "/a".into(), watch },
            Request::GetChildren { path: "/a".into(), watch, with_stat: true },
        ]
    };
    use WatchTable::{Children, Data};
    assert_eq!(watching(true).map(|request| request.watch_table()), [Data, Data, Children].map(Some));
    assert_eq!(watching(false).map(|request| request.watch_table()), [None; 3]);
    assert_eq!(Request::Sync { path: "/a".into() }.watch_table(), None);
}

#[test]
fn containers_and_ttl_znodes_are_answered_with_a_stat_of_which_the_header_tells_what_counts() {
    for (request, like) in [
        (create(CreateMode::Ephemeral), op::CREATE),
        (create(CreateMode::Container), op::CREATE2),
        (create(CreateMode::PersistentWithTtl(1)), op::CREATE2),
    ] {
        let Ok(Response::Created { czxid, .. }) = Response::decode(request.op_code(), 77, &body(like)) else {
            panic!("{request:?}");
        };
        assert_eq!(czxid, 77, "{request:?}");
    }
}

#[test]
fn debug_shows_lengths_in_place_of_secrets() {
    let secret = || b"secret".to_vec();
    let acl = || vec![Acl { perms: 31, scheme: "digest".into(), id: "user:secret".into() }];
    let mode = CreateMode::Ephemeral;
    let connect =
        ConnectRequest { last_zxid_seen: 1, timeout_ms: 2, session_id: 3, password: secret(), read_only: false };
    let shown = [
        format!("{:?}", Request::Create { path: "/a".into(), data: secret(), acl: acl(), mode }),
        format!("{:?}", Request::SetData { path: "/a".into(), data: secret(), version: 1 }),
        format!("{:?}", Request::SetAcl { path: "/a".into(), acl: acl(), version: 1 }),
        format!("{:?}", Request::Auth { scheme: "digest".into(), auth: secret() }),
        format!(
            "{:?}",
            Request::Multi(vec![
                Request::Create { path: "/a".into(), data: secret(), acl: acl(), mode },
                Request::SetData { path: "/a".into(), data: secret(), version: 1 },
            ])
        ),
        format!("{connect:?}"),
        format!("{:?}", acl()),
        format!("{:?}", Acl { perms: 1, scheme: "own".into(), id: "secret".into() }),
    ];
    let bytes = format!("{:?}", secret());
    for text in &shown {
        assert!(!text.contains("secret") && !text.contains(&bytes) && !text.contains("115"), "{text}");
    }
    assert_eq!(shown[1], r#"set_data { path: "/a", data_len: 6, version: 1 }"#);
    assert_eq!(shown[6], r#"[Acl { perms: 31, scheme: "digest", id: "user:***" }]"#);
    let harmless = Acl { perms: 1, scheme: "ip".into(), id: "::1/128".into() };
    assert_eq!(format!("{harmless:?}"), r#"Acl { perms: 1, scheme: "ip", id: "::1/128" }"#);
}
