//! What is asked, and what is answered.

use std::{
    sync::Arc,
    thread,
    time::Instant,
};

use crossbeam_channel::unbounded;
use curator_locks::{
    Acl, CreateMode, ErrorCode,
    testing::FaultProxy,
    unversioned::{Reply, Request, Response, SessionError, SessionEvent, Submission},
};

use crate::{
    opened::{Kind, LONG, create, delete, exists, is_there, observer, read, write},
    support::{PATIENCE, eventually, password_of, server},
};

fn code(reply: &Reply) -> Option<ErrorCode> {
    match reply {
        Err(SessionError::Server(code)) => Some(*code),
        _ => None,
    }
}

/// It has an id that its znodes carry, a timeout, a connection, and is certain for a time to come.
pub(crate) fn a_session_knows_its_id_its_timeout_and_how_long_it_is_certain(kind: Kind) {
    let begin = Instant::now();
    let opened = kind.open(&server().connect_string(), LONG);
    let session = &opened.session;
    assert_eq!((session.timeout(), session.connection()), (LONG, 1));
    let until = session.valid_until().unwrap();
    assert!(until > Instant::now() && until > begin && until <= Instant::now() + LONG);
    assert!(session.last_error().is_none() && !session.is_ended() && !session.is_finished());
    let password: &[u8] = if kind == Kind::Native { &password_of(session.id()) } else { &[] };
    assert_eq!(session.password(), password, "what the server gave, or unknown");
    let mine = opened.path("mine");
    opened.ask(create(&mine, CreateMode::Ephemeral)).unwrap();
    let stat = opened.ask(exists(&mine));
    assert!(matches!(&stat, Ok(Response::Stat(stat)) if stat.ephemeral_owner == session.id()), "{stat:?}");
}

/// Every request that both sessions know, its reply, and the server's refusals.
pub(crate) fn each_request_gets_its_reply(kind: Kind) {
    let opened = kind.open(&server().connect_string(), LONG);
    let (a, list) = (opened.path("a"), opened.path("list"));
    let created = opened.ask(create(&a, CreateMode::Persistent)).unwrap();
    assert!(matches!(&created, Response::Created { path, .. } if *path == a), "{created:?}");
    opened.ask(create(&list, CreateMode::Persistent)).unwrap();
    for number in 0..2 {
        let mode = CreateMode::EphemeralSequential;
        let path = format!("{list}/x-");
        let created = opened.ask(create(&path, mode)).unwrap();
        let Response::Created { path: made, czxid } = created else { panic!("{created:?}") };
        assert_eq!(made, format!("{path}{number:010}"));
        let Ok(Response::Stat(stat)) = opened.ask(exists(&made)) else { panic!("{made} is not there") };
        assert_eq!(czxid, stat.czxid, "the transaction of the reply is that of the create");
    }
    let children = |with_stat| Request::GetChildren { path: list.clone(), watch: false, with_stat };
    for with_stat in [false, true] {
        let Ok(Response::Children { mut names, stat }) = opened.ask(children(with_stat)) else { panic!("no children") };
        names.sort();
        assert_eq!(names, ["x-0000000000", "x-0000000001"]);
        assert_eq!(stat.map(|stat| stat.num_children), with_stat.then_some(2));
    }
    let Ok(Response::Stat(written)) = opened.ask(write(&a, "one")) else { panic!("not written") };
    assert_eq!((written.version, written.data_length), (1, 3));
    assert_eq!(opened.ask(read(&a)).unwrap(), Response::Data { data: b"one".to_vec(), stat: written });
    assert_eq!(opened.ask(exists(&a)).unwrap(), Response::Stat(written));
    let other = observer();
    assert_eq!(other.ask(exists(&a)).unwrap(), Response::Stat(written));
    let acl = Acl::read_unsafe();
    let set = Request::SetAcl { path: a.clone(), acl: acl.clone(), version: -1 };
    assert!(matches!(opened.ask(set), Ok(Response::Stat(stat)) if stat.aversion == 1));
    let [got, seen] = [&opened, &other].map(|session| session.ask(Request::GetAcl { path: a.clone() }).unwrap());
    assert!(matches!(&got, Response::Acl { acl: got, .. } if *got == acl) && got == seen, "{got:?} {seen:?}");
    assert_eq!(opened.ask(Request::Sync { path: a.clone() }).unwrap(), Response::Synced { path: a.clone() });
    let refused = [
        (write(&a, "two"), ErrorCode::NoAuth),
        (create(&a, CreateMode::Persistent), ErrorCode::NodeExists),
        (create(&opened.path("none/child"), CreateMode::Persistent), ErrorCode::NoNode),
        (read(&opened.path("none")), ErrorCode::NoNode),
        (exists(&opened.path("none")), ErrorCode::NoNode),
        (delete(&list), ErrorCode::NotEmpty),
        (Request::Delete { path: a.clone(), version: 7 }, ErrorCode::BadVersion),
    ];
    for (request, expected) in refused {
        let reply = opened.ask(request.clone());
        assert_eq!(code(&reply), Some(expected), "{request:?}: {reply:?}");
    }
    assert_eq!(opened.ask(Request::Delete { path: a.clone(), version: 1 }).unwrap(), Response::Done);
    assert!(!is_there(&opened, &a));
}

/// What is submitted together goes out in this order, its tickets are in this order, and so are its replies.
pub(crate) fn a_batch_is_carried_out_and_answered_in_its_order(kind: Kind) {
    const WRITES: usize = 50;
    let opened = kind.open(&server().connect_string(), LONG);
    let path = opened.path("a");
    let mut requests = vec![read(&path), create(&path, CreateMode::Persistent)];
    requests.extend((0..WRITES).map(|k| write(&path, k.to_string())));
    requests.extend([read(&path), delete(&path), read(&path)]);
    let (tell, told) = unbounded();
    let submission = |(k, request)| {
        let tell = tell.clone();
        Submission { request, watcher: None, on_reply: Box::new(move |reply| drop(tell.send((k, reply)))) }
    };
    let tickets = opened.session.submit(requests.into_iter().enumerate().map(submission).collect());
    drop(tell);
    assert!(tickets.is_sorted() && tickets.len() == WRITES + 5);
    let replies: Vec<(usize, Reply)> = tickets.iter().map(|_| told.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(replies.iter().map(|(k, _)| *k).eq(0..WRITES + 5), "{replies:?}");
    let replies: Vec<Reply> = replies.into_iter().map(|(_, reply)| reply).collect();
    assert_eq!(code(&replies[0]), Some(ErrorCode::NoNode));
    for (k, reply) in replies[2..WRITES + 2].iter().enumerate() {
        assert!(matches!(reply, Ok(Response::Stat(stat)) if stat.version as usize == k + 1), "{k}: {reply:?}");
    }
    let last = (WRITES - 1).to_string();
    assert!(matches!(&replies[WRITES + 2], Ok(Response::Data { data, .. }) if *data == last.as_bytes()));
    assert_eq!(code(&replies[WRITES + 4]), Some(ErrorCode::NoNode));
}

/// Requests of many threads do not get each other's replies.
pub(crate) fn threads_get_each_the_replies_to_their_own_requests(kind: Kind) {
    let opened = kind.open(&server().connect_string(), LONG);
    thread::scope(|scope| {
        for k in 0..8 {
            let (path, session) = (opened.path(&k.to_string()), &opened);
            scope.spawn(move || {
                session.ask(create(&path, CreateMode::Persistent)).unwrap();
                for round in 0..20 {
                    let data = format!("{k} {round}");
                    let replies = session.submit(vec![write(&path, data.clone()), read(&path)]);
                    replies[0].wait().unwrap();
                    let reply = replies[1].wait();
                    assert!(matches!(&reply, Ok(Response::Data { data: got, .. }) if *got == data.as_bytes()));
                }
            });
        }
    });
}

/// What takes a reply may ask for the next one.
pub(crate) fn a_callback_may_submit(kind: Kind) {
    let opened = kind.open(&server().connect_string(), LONG);
    let (tell, told) = unbounded();
    let (session, path) = (Arc::downgrade(&opened.session), opened.path("a"));
    let next = read(&path);
    let on_reply = Box::new(move |reply: Reply| {
        reply.unwrap();
        let on_reply = Box::new(move |reply| drop(tell.send(reply)));
        session.upgrade().unwrap().submit(vec![Submission { request: next, watcher: None, on_reply }]);
    });
    opened.session.submit(vec![Submission { request: create(&path, CreateMode::Persistent), watcher: None, on_reply }]);
    assert!(matches!(told.recv_timeout(PATIENCE).unwrap(), Ok(Response::Data { .. })));
}

/// What is submitted while no server can be reached is sent when one can.
pub(crate) fn a_request_waits_for_the_first_connection(kind: Kind) {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    proxy.refuse();
    let opened = kind.begin(&proxy.connect_string(), LONG, &[]);
    let replies = opened.submit(vec![exists("/"), exists("/none")]);
    assert_eq!((opened.session.id(), opened.session.connection(), opened.session.valid_until()), (0, 0, None));
    eventually("why there is no connection", || opened.session.last_error().is_some());
    assert!(replies.iter().all(|pending| pending.reply.try_recv().is_err()));
    proxy.pass().unwrap();
    assert!(matches!(replies[0].wait(), Ok(Response::Stat(_))));
    assert_eq!(code(&replies[1].wait()), Some(ErrorCode::NoNode));
    opened.await_connection(1);
    assert!(opened.session.last_error().is_none() && opened.session.id() != 0);
}

/// It never reaches the server, and its callback is dropped.
pub(crate) fn a_request_that_was_not_sent_can_be_withdrawn_and_one_that_was_cannot(kind: Kind) {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    proxy.refuse();
    let opened = kind.begin(&proxy.connect_string(), LONG, &[]);
    let (kept, withdrawn) = (opened.path("kept"), opened.path("withdrawn"));
    let root = opened.path("");
    let pending = opened.submit(vec![
        create(root.trim_end_matches('/'), CreateMode::Persistent),
        create(&withdrawn, CreateMode::Persistent),
        create(&kept, CreateMode::Persistent),
    ]);
    assert!(opened.session.withdraw(pending[1].ticket));
    pending[1].await_nothing();
    assert!(!opened.session.withdraw(pending[1].ticket), "twice");
    proxy.pass().unwrap();
    pending[2].wait().unwrap();
    assert!(is_there(&opened, &kept) && !is_there(&opened, &withdrawn));
    assert!(!opened.session.withdraw(pending[2].ticket), "it was answered");
}

/// Empty, every byte, and half a megabyte.
pub(crate) fn data_of_any_bytes_goes_both_ways(kind: Kind) {
    let opened = kind.open(&server().connect_string(), LONG);
    let path = opened.path("a");
    opened.ask(create(&path, CreateMode::Persistent)).unwrap();
    for data in [Vec::new(), (0..=u8::MAX).collect(), vec![7; 512 * 1024]] {
        opened.ask(write(&path, data.clone())).unwrap();
        let reply = opened.ask(read(&path));
        assert!(matches!(reply, Ok(Response::Data { data: got, .. }) if got == data), "{} bytes", data.len());
    }
}

/// A znode that is open to these credentials alone is open to the session, before and after a cut, and to no other one.
pub(crate) fn credentials_count_again_on_the_next_connection(kind: Kind) {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let opened = kind.begin(&proxy.connect_string(), LONG, &[("digest", "somebody:secret")]);
    opened.await_connection(1);
    let path = opened.path("");
    let path = path.trim_end_matches('/');
    let acl = Acl::creator_all();
    let mode = CreateMode::Persistent;
    opened.ask(Request::Create { path: path.into(), data: Vec::new(), acl, mode }).unwrap();
    opened.ask(read(path)).unwrap();
    assert_eq!(code(&observer().ask(read(path))), Some(ErrorCode::NoAuth));
    proxy.cut();
    assert_eq!(opened.next_event(), SessionEvent::Disconnected);
    opened.await_connection(2);
    opened.ask(read(path)).unwrap();
}

/// The scheme is named.
pub(crate) fn rejected_credentials_end_the_session(kind: Kind) {
    let opened = kind.begin(&server().connect_string(), LONG, &[("no-such-scheme", "secret")]);
    let pending = opened.send(exists("/"));
    let reply = pending.wait();
    assert!(matches!(&reply, Err(SessionError::AuthFailed { scheme, .. }) if scheme == "no-such-scheme"), "{reply:?}");
    // It may have been connected for the moment in which the credentials were on their way.
    eventually("the end is told", || {
        opened.events.try_iter().any(|event| matches!(event, SessionEvent::AuthFailed { scheme, .. } if scheme == "no-such-scheme"))
    });
    assert!(opened.session.is_ended());
}
