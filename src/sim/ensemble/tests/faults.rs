use super::*;
use crate::{
    proto::op,
    sim::ensemble::{Dialect, Throttle, faults::Tail},
};

#[test]
fn a_server_that_stands_still_keeps_its_connections_and_answers_later() {
    let mut run = Run::three(1);
    let follower = run.followers()[0];
    let client = run.client(follower);
    run.act(|ensemble, now, _| ensemble.pause(follower, now));
    let second = run.ensemble.connect(follower, run.now);
    assert!(second.is_some(), "the machine accepts connections");
    assert_eq!(run.sync(&client), Answer::Silence);
    run.act(|ensemble, now, out| ensemble.resume(follower, now, out));
    assert!(is_done(&run.sync(&client)));
}

#[test]
fn a_server_that_stands_still_for_too_long_has_to_join_again() {
    let mut run = Run::three(2);
    let (leader, follower) = (run.leader(), run.followers()[0]);
    let client = run.client(follower);
    let writer = run.client(leader);
    run.act(|ensemble, now, _| ensemble.pause(follower, now));
    for number in 0..10 {
        run.after(Duration::from_secs(1));
        run.create(&writer, &format!("/{number}"));
    }
    run.act(|ensemble, now, out| ensemble.resume(follower, now, out));
    run.until("it has joined", |run| run.ensemble.tree(follower).node("/9").is_some());
    assert_eq!(run.ask(&client, &Request::Ping), Answer::Ended);
}

#[test]
fn a_leader_that_stands_still_is_replaced_and_learns_of_it_when_it_goes_on() {
    let mut run = Run::three(3);
    let leader = run.leader();
    let client = run.client(leader);
    run.act(|ensemble, now, _| ensemble.pause(leader, now));
    run.until("another leader", |run| run.ensemble.leader().is_some_and(|other| other != leader));
    run.act(|ensemble, now, out| ensemble.resume(leader, now, out));
    run.after(Duration::from_secs(10));
    assert!(run.ensemble.serves(leader));
    assert_eq!(run.ask(&client, &Request::Ping), Answer::Ended);
}

#[test]
fn a_leader_that_stood_still_answers_before_it_learns_that_it_is_replaced() {
    let mut answered = 0;
    for seed in 0..40 {
        let mut run = Run::three(seed);
        let leader = run.leader();
        let client = run.client(leader);
        run.act(|ensemble, now, _| ensemble.pause(leader, now));
        run.until("another leader", |run| run.ensemble.leader().is_some_and(|other| other != leader));
        run.send(&client, &Request::Exists { path: "/".into(), watch: false });
        run.act(|ensemble, now, out| ensemble.resume(leader, now, out));
        answered += u32::from(is_done(&run.ask(&client, &Request::Ping)));
    }
    println!("{answered} of 40 were answered by a leader that was none any more");
}

#[test]
fn a_throttled_request_waits_and_keeps_its_place() {
    let mut run = Run::three(4);
    let follower = run.followers()[0];
    let client = run.client(follower);
    run.ensemble.set_throttle(follower, Throttle::Delay(millis(400)));
    let before = run.now;
    assert!(is_done(&run.create(&client, "/x")));
    assert!(run.now - before >= millis(400));
    run.send(&client, &create("/y", CreateMode::Persistent));
    run.ensemble.set_throttle(follower, Throttle::Off);
    assert!(is_done(&run.ask(&client, &Request::Sync { path: "/".into() })));
    assert!(run.ensemble.tree(follower).node("/y").is_some());
}

#[test]
fn an_overloaded_server_refuses_all_but_pings_and_the_end() {
    let mut run = Run::three(5);
    let leader = run.leader();
    let client = run.client(leader);
    run.ensemble.set_throttle(leader, Throttle::Refuse);
    assert_eq!(run.create(&client, "/x"), Answer::Refused(ErrorCode::ThrottledOp));
    assert_eq!(run.sync(&client), Answer::Refused(ErrorCode::ThrottledOp));
    assert!(is_done(&run.ask(&client, &Request::Ping)));
    assert!(is_done(&run.ask(&client, &Request::CloseSession)));
}

#[test]
fn a_server_that_does_not_know_an_operation_ends_the_connection() {
    let dialect = Dialect { unknown_ops: [op::CREATE_CONTAINER].into(), ..Dialect::default() };
    let mut run = Run::new(EnsembleConfig { dialect, ..EnsembleConfig::default() }, 6);
    let client = run.client(0);
    assert!(is_done(&run.create(&client, "/x")));
    let container =
        Request::Create { path: "/y".into(), data: Vec::new(), acl: Acl::open_unsafe(), mode: CreateMode::Container };
    assert_eq!(run.ask(&client, &container), Answer::Ended);
}

#[test]
fn a_server_may_give_a_resumed_session_another_one() {
    let dialect = Dialect { resumes_as_another: true, ..Dialect::default() };
    let mut run = Run::new(EnsembleConfig { dialect, ..EnsembleConfig::default() }, 7);
    let client = run.client(0);
    run.ask(&client, &create("/e", CreateMode::Ephemeral));
    let other = run.connect(0, millis(6000), Some(&client)).unwrap();
    assert_ne!(other.session, client.session);
    assert!(run.exists(&other, "/e"));
}

#[test]
fn a_server_may_refuse_containers() {
    let dialect = Dialect { containers_refused: Some(-8), ..Dialect::default() };
    let mut run = Run::new(EnsembleConfig { dialect, ..EnsembleConfig::default() }, 8);
    let client = run.client(0);
    let answer = run.ask(&client, &create("/c", CreateMode::Container));
    assert_eq!(answer, Answer::Refused(ErrorCode::BadArguments));
}

#[test]
fn administrators_delete_create_and_change_permits() {
    let mut run = Run::three(9);
    let leader = run.leader();
    let client = run.client(leader);
    for path in ["/d", "/d/e", "/d/e/f", "/de"] {
        run.create(&client, path);
    }
    run.ask(&client, &Request::GetData { path: "/d/e".into(), watch: true });
    run.act(|ensemble, now, out| {
        assert!(ensemble.delete("/d", now, out) && ensemble.create("/foreign", b"x", now, out));
        assert!(ensemble.set_data("/foreign", b"y", now, out) && ensemble.set_acl("/de", Vec::new(), now, out));
        assert!(ensemble.set_acl("/de", Acl::read_unsafe(), now, out));
    });
    run.after(millis(10));
    let tree = run.ensemble.tree(leader);
    assert!(tree.node("/d").is_none() && tree.node("/foreign").is_some_and(|node| node.data == b"y"));
    assert!(run.exists(&client, "/de"));
    assert_eq!(run.events.len(), 1);
    let refused = run.ask(&client, &Request::SetData { path: "/de".into(), data: Vec::new(), version: -1 });
    assert_eq!(refused, Answer::Refused(ErrorCode::NoAuth));
}

/// As measured on ZooKeeper 3.8.0.
#[test]
fn sequence_numbers_stand_still_at_their_end_and_jump_where_creates_are_pipelined() {
    let mut run = Run::three(11);
    let leader = run.leader();
    let client = run.client(leader);
    run.create(&client, "/d");
    run.after(millis(10));
    run.ensemble.set_created("/d", i32::MAX - 1);
    let next = |name: &str| create(&format!("/d/{name}-"), CreateMode::PersistentSequential);
    let mut names = Vec::new();
    for name in ["a", "b", "c"] {
        names.push(run.ask(&client, &next(name)));
    }
    run.send(&client, &next("d"));
    run.send(&client, &next("e"));
    names.push(run.ask(&client, &next("f")));
    let paths = names.iter().map(|answer| match answer {
        Answer::Done(Response::Created { path, .. }) => path.as_str(),
        other => panic!("{other:?}"),
    });
    let made = ["/d/a-2147483646", "/d/b-2147483647", "/d/c-2147483647", "/d/f--2147483647"];
    assert_eq!(paths.collect::<Vec<_>>(), made);
}

#[test]
fn nobody_listens_where_a_server_has_crashed() {
    let mut run = Run::three(10);
    run.act(|ensemble, now, out| ensemble.crash(1, Tail::Kept, now, out));
    assert!(run.ensemble.connect(1, run.now).is_none());
    run.act(|ensemble, now, _| ensemble.restart(1, now));
    assert!(run.ensemble.connect(1, run.now).is_some());
}
