use super::*;
use crate::sim::ensemble::faults::{Isolated, Tail};

#[test]
fn a_follower_that_lags_answers_from_the_past_until_a_sync() {
    let mut run = Run::three(1);
    let (leader, follower) = (run.leader(), run.followers()[0]);
    let (writer, reader) = (run.client(leader), run.client(follower));
    run.ensemble.set_lag(follower, millis(300));
    assert!(is_done(&run.create(&writer, "/x")));
    assert!(!run.exists(&reader, "/x"));
    let before = run.now;
    assert!(is_done(&run.sync(&reader)));
    assert!(run.now - before >= millis(200), "the sync came after {:?}", run.now - before);
    assert!(run.exists(&reader, "/x"));
}

#[test]
fn a_write_through_a_follower_that_lags_is_answered_late_and_in_order() {
    let mut run = Run::three(2);
    let follower = run.followers()[0];
    let client = run.client(follower);
    run.ensemble.set_lag(follower, millis(300));
    let before = run.now;
    run.send(&client, &create("/x", CreateMode::Persistent));
    assert!(run.exists(&client, "/x") || run.now - before >= millis(300));
    assert!(run.now - before >= millis(300));
}

#[test]
fn a_follower_that_lags_refuses_a_client_that_has_seen_more() {
    let mut run = Run::three(3);
    let (leader, follower) = (run.leader(), run.followers()[0]);
    let writer = run.client(leader);
    run.ensemble.set_lag(follower, millis(300));
    run.create(&writer, "/x");
    let seen = run.last_zxid;
    assert!(run.connect_seen(follower, millis(6000), Some(&writer), seen).is_none());
    run.after(millis(310));
    assert!(run.connect_seen(follower, millis(6000), Some(&writer), seen).is_some());
}

#[test]
fn a_leader_that_is_cut_off_reads_and_syncs_for_its_clients_until_its_limit() {
    let mut run = Run::three(4);
    let leader = run.leader();
    let (client, reader) = (run.client(leader), run.client(leader));
    run.act(|ensemble, now, _| ensemble.isolate(leader, Isolated::Both, now));
    run.send(&client, &create("/x", CreateMode::Persistent));
    assert!(is_done(&run.sync(&reader)) && !run.exists(&reader, "/x"));
    // The session that has asked for it has its requests answered in order, over whatever connections.
    let again = run.connect(leader, millis(6000), Some(&client)).unwrap();
    assert!(!is_done(&run.sync(&again)));
    let config = EnsembleConfig::default();
    run.after(config.tick * (config.sync_limit + 2));
    assert_eq!(run.sync(&reader), Answer::Ended);
    run.until("another leader", |run| run.ensemble.leader().is_some_and(|other| other != leader));
    let new = run.leader();
    let client = run.client(new);
    assert!(!run.exists(&client, "/x") && is_done(&run.create(&client, "/y")));
    run.act(|ensemble, now, _| ensemble.mend(leader, now));
    run.until("the old leader follows", |run| run.ensemble.serves(leader));
    assert!(run.ensemble.tree(leader).node("/x").is_none() && run.ensemble.tree(leader).node("/y").is_some());
}

#[test]
fn two_servers_may_believe_to_lead_and_only_one_commits() {
    // A leader that does not hear the others is found out by them no sooner than by itself.
    let mut both = 0;
    for seed in 0..50 {
        let mut run = Run::three(seed);
        let leader = run.leader();
        let old = run.client(leader);
        run.act(|ensemble, now, _| ensemble.isolate(leader, Isolated::Both, now));
        let end = run.now + Duration::from_secs(20);
        while run.ensemble.leader() == Some(leader) && run.step(end) {}
        if run.ensemble.serves(leader) && run.ensemble.leader().is_some() {
            both += 1;
            assert_eq!(run.create(&old, "/x"), Answer::Ended);
            let new = run.leader();
            let new = run.client(new);
            assert!(!run.exists(&new, "/x"));
        }
    }
    println!("two leaders at a time in {both} of 50 runs");
}

#[test]
fn a_leader_that_hears_nobody_steps_down_and_one_that_nobody_hears_as_well() {
    for how in [Isolated::In, Isolated::Out] {
        let mut run = Run::three(6);
        let leader = run.leader();
        run.act(|ensemble, now, _| ensemble.isolate(leader, how, now));
        run.until("another leader", |run| run.ensemble.leader().is_some_and(|other| other != leader));
        run.act(|ensemble, now, _| ensemble.mend(leader, now));
        run.until("all serve", |run| (0..3).all(|server| run.ensemble.serves(server)));
    }
}

#[test]
fn a_follower_that_hears_and_is_not_heard_is_given_up_by_its_leader() {
    let mut run = Run::three(12);
    let (leader, follower) = (run.leader(), run.followers()[0]);
    let client = run.client(follower);
    run.act(|ensemble, now, _| ensemble.cut(follower, leader, now));
    assert_eq!(run.create(&client, "/x"), Answer::Silence);
    run.after(Duration::from_secs(10));
    assert!(!run.ensemble.serves(follower) && run.ensemble.leader() == Some(leader));
    run.act(|ensemble, now, _| ensemble.mend(follower, now));
    run.until("it serves", |run| run.ensemble.serves(follower));
    assert!(run.ensemble.tree(follower).node("/x").is_none());
}

#[test]
fn a_leader_without_a_quorum_serves_nobody() {
    let mut run = Run::three(7);
    let leader = run.leader();
    let client = run.client(leader);
    for server in run.followers() {
        run.act(|ensemble, now, out| ensemble.crash(server, Tail::Kept, now, out));
    }
    assert_eq!(run.create(&client, "/x"), Answer::Ended);
    assert_eq!(run.ensemble.leader(), None);
    assert!(run.connect(leader, millis(6000), None).is_none());
    let follower = (leader + 1) % 3;
    assert!(run.connect(follower, millis(6000), None).is_none());
    run.act(|ensemble, now, _| ensemble.restart(follower, now));
    run.until("a leader", |run| run.ensemble.leader().is_some());
}

#[test]
fn an_acknowledged_write_survives_its_leader() {
    for seed in 0..30 {
        let mut run = Run::three(seed);
        let leader = run.leader();
        let client = run.client(leader);
        assert!(is_done(&run.create(&client, "/x")));
        run.act(|ensemble, now, out| ensemble.crash(leader, Tail::Lost, now, out));
        run.until("another leader", |run| run.ensemble.leader().is_some());
        let new = run.leader();
        let client = run.client(new);
        assert!(run.exists(&client, "/x"));
    }
}

/// A write that only the leader has when it crashes.
fn written_by_the_leader_alone(tail: Tail) -> Run {
    let mut run = Run::three(8);
    let leader = run.leader();
    let client = run.client(leader);
    run.act(|ensemble, now, _| ensemble.isolate(leader, Isolated::Both, now));
    run.send(&client, &create("/x", CreateMode::Persistent));
    run.after(millis(10));
    for server in run.followers() {
        run.act(|ensemble, now, out| ensemble.crash(server, tail, now, out));
    }
    run.act(|ensemble, now, out| ensemble.crash(leader, tail, now, out));
    run.act(|ensemble, now, _| ensemble.mend(leader, now));
    for server in 0..3 {
        run.act(|ensemble, now, _| ensemble.restart(server, now));
    }
    run.until("a leader", |run| run.ensemble.leader().is_some());
    run
}

#[test]
fn a_write_that_no_quorum_had_is_gone_with_the_tail_and_comes_back_with_it() {
    for (tail, comes_back) in [(Tail::Lost, false), (Tail::Kept, true)] {
        let mut run = written_by_the_leader_alone(tail);
        run.after(Duration::from_secs(5));
        for server in 0..3 {
            assert_eq!(run.ensemble.tree(server).node("/x").is_some(), comes_back, "{tail:?}, server {server}");
        }
    }
}

#[test]
fn a_server_that_was_away_has_everything_before_it_serves() {
    let mut run = Run::three(9);
    let away = run.followers()[0];
    run.act(|ensemble, now, out| ensemble.crash(away, Tail::Kept, now, out));
    let leader = run.leader();
    let client = run.client(leader);
    for number in 0..20 {
        assert!(is_done(&run.create(&client, &format!("/{number}"))));
    }
    run.act(|ensemble, now, _| ensemble.restart(away, now));
    for number in 20..40 {
        run.create(&client, &format!("/{number}"));
        run.after(millis(50));
    }
    run.until("it serves", |run| run.ensemble.serves(away));
    let reader = run.client(away);
    run.sync(&reader);
    assert!((0..40).all(|number| run.exists(&reader, &format!("/{number}"))));
}

#[test]
fn leadership_goes_to_whom_it_is_given() {
    for seed in 0..10 {
        let mut run = Run::three(seed);
        let to = run.followers()[0];
        run.act(|ensemble, now, out| ensemble.transfer_leadership(to, now, out));
        run.until("a leader", |run| run.ensemble.leader().is_some());
        assert_eq!(run.leader(), to);
        assert!(run.ensemble.counters().elections == 2);
    }
}

#[test]
fn five_servers_stand_two_crashes() {
    let mut run = Run::new(EnsembleConfig { servers: 5, ..EnsembleConfig::default() }, 10);
    for round in 0..2 {
        let leader = run.leader();
        let client = run.client(leader);
        assert!(is_done(&run.create(&client, &format!("/{round}"))));
        run.act(|ensemble, now, out| ensemble.crash(leader, Tail::Lost, now, out));
        run.until("another leader", |run| run.ensemble.leader().is_some());
    }
    let leader = run.leader();
    let client = run.client(leader);
    assert!(run.exists(&client, "/0") && run.exists(&client, "/1") && is_done(&run.create(&client, "/2")));
}

#[test]
fn a_follower_drops_its_clients_when_its_leader_ends() {
    let mut run = Run::three(11);
    let (leader, follower) = (run.leader(), run.followers()[0]);
    let client = run.client(follower);
    run.act(|ensemble, now, out| ensemble.crash(leader, Tail::Kept, now, out));
    assert_eq!(run.sync(&client), Answer::Ended);
    run.until("a leader", |run| run.ensemble.leader().is_some());
    run.until("it serves", |run| run.ensemble.serves(follower));
    assert!(run.connect(follower, millis(6000), Some(&client)).is_some());
}
