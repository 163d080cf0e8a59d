use super::*;
use crate::sim::ensemble::faults::Tail;

const TICK: Duration = millis(500);
const TIMEOUT: Duration = millis(3000);

/// When the leader closed the client's session, if nothing was heard of it from now on.
fn end_of(run: &mut Run, client: &Client) -> Duration {
    let session = client.session;
    run.until("the session ends", |run| {
        run.ensemble.leader().is_some_and(|leader| !run.ensemble.tree(leader).sessions.contains_key(&session))
    });
    run.now
}

#[test]
fn a_session_ends_at_the_end_of_a_tick_after_its_timeout() {
    let mut spread = Vec::new();
    for seed in 0..200 {
        let mut run = Run::three(seed);
        let leader = run.leader();
        let client = run.connect(leader, TIMEOUT, None).unwrap();
        run.after(TICK + millis(seed * 7));
        run.sync(&client);
        let touched = run.now;
        spread.push(end_of(&mut run, &client) - touched);
    }
    let (first, last) = (spread.iter().min().unwrap(), spread.iter().max().unwrap());
    assert!(*first >= TIMEOUT && *last <= TIMEOUT + TICK + millis(5), "{first:?} to {last:?}");
    assert!(*last - *first > TICK * 9 / 10, "{first:?} to {last:?}");
}

#[test]
fn a_follower_hands_touches_over_with_the_leaders_next_ping() {
    let mut spread = Vec::new();
    for seed in 0..200 {
        let mut run = Run::three(seed);
        let follower = run.followers()[0];
        let client = run.connect(follower, TIMEOUT, None).unwrap();
        run.after(TICK + millis(seed * 7));
        run.ask(&client, &Request::Ping);
        let touched = run.now;
        spread.push(end_of(&mut run, &client) - touched);
    }
    let (first, last) = (spread.iter().min().unwrap(), spread.iter().max().unwrap());
    assert!(*first >= TIMEOUT && *last <= TIMEOUT + TICK * 3 / 2 + millis(5), "{first:?} to {last:?}");
    assert!(*last > TIMEOUT + TICK, "{first:?} to {last:?}");
}

#[test]
fn a_touch_that_the_follower_had_no_time_to_hand_over_is_lost() {
    let mut run = Run::three(1);
    let (leader, follower) = (run.leader(), run.followers()[0]);
    let client = run.connect(follower, TIMEOUT, None).unwrap();
    // Every follower touches a session that has just begun.
    run.after(TICK);
    run.act(|ensemble, now, _| ensemble.pause(leader, now));
    run.after(millis(1900));
    assert!(is_done(&run.ask(&client, &Request::Ping)));
    let touched = run.now;
    run.after(millis(100));
    run.act(|ensemble, now, _| ensemble.pause(follower, now));
    run.act(|ensemble, now, out| ensemble.resume(leader, now, out));
    let ended = end_of(&mut run, &client);
    assert!(ended - touched < TIMEOUT, "ended {:?} after the last answered ping", ended - touched);
}

#[test]
fn a_session_that_the_clock_has_let_go_is_served_until_its_turn_comes() {
    let expiry = millis(200)..=millis(200);
    let mut run = Run::new(EnsembleConfig { expiry, ..EnsembleConfig::default() }, 2);
    let leader = run.leader();
    let client = run.connect(leader, TIMEOUT, None).unwrap();
    let (taken, is_closing) = run.ensemble.expiry(client.session).unwrap();
    assert!(!is_closing);
    run.after(taken - run.now + millis(50));
    // It is touched, answered and taken up, and closed all the same.
    assert!(is_done(&run.sync(&client)));
    let again = run.connect(leader, TIMEOUT, Some(&client)).unwrap();
    assert!(is_done(&run.create(&again, "/x")));
    run.after(millis(200));
    assert_eq!(run.sync(&again), Answer::Ended);
    assert!(run.connect(leader, TIMEOUT, Some(&client)).is_none());
}

#[test]
fn sessions_that_end_together_are_closed_one_by_one() {
    let expiry = millis(30)..=millis(30);
    let mut run = Run::new(EnsembleConfig { expiry, ..EnsembleConfig::default() }, 3);
    run.ensemble.keep_journal();
    let leader = run.leader();
    for _ in 0..10 {
        run.connect(leader, TIMEOUT, None).unwrap();
    }
    run.after(TIMEOUT + TICK + millis(400));
    let expired = run.ensemble.take_journal().into_iter();
    let times: Vec<Duration> = expired
        .filter(|(_, happened)| matches!(happened, crate::sim::ensemble::looks::Happened::Expired(_)))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(times.len(), 10);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= millis(30)), "{times:?}");
    assert_eq!(run.ensemble.counters().expired, 10);
}

#[test]
fn all_sessions_begin_anew_with_a_new_leader() {
    let mut run = Run::three(4);
    let leader = run.leader();
    let client = run.connect(leader, TIMEOUT, None).unwrap();
    run.ask(&client, &create("/e", CreateMode::Ephemeral));
    run.after(millis(2500));
    run.act(|ensemble, now, out| ensemble.crash(leader, Tail::Kept, now, out));
    run.until("another leader", |run| run.ensemble.leader().is_some());
    let begun = run.now;
    let ended = end_of(&mut run, &client);
    assert!(ended - begun >= TIMEOUT && ended - begun <= TIMEOUT + TICK + millis(5), "{:?}", ended - begun);
    run.after(millis(50));
    assert!((0..3).all(|server| run.ensemble.tree(server).node("/e").is_none() || server == leader));
}

#[test]
fn an_expired_session_ends_its_connection_at_a_follower() {
    let mut run = Run::three(5);
    let follower = run.followers()[0];
    let client = run.connect(follower, TIMEOUT, None).unwrap();
    end_of(&mut run, &client);
    run.after(millis(10));
    assert_eq!(run.ask(&client, &Request::Ping), Answer::Ended);
}

#[test]
fn a_session_is_closed_from_outside() {
    let mut run = Run::three(6);
    let follower = run.followers()[1];
    let client = run.client(follower);
    run.ask(&client, &create("/e", CreateMode::Ephemeral));
    let session = client.session;
    run.act(|ensemble, now, out| assert!(ensemble.expire(session, now, out)));
    run.after(millis(10));
    assert_eq!(run.sync(&client), Answer::Ended);
    assert!(run.ensemble.tree(0).node("/e").is_none() && run.ensemble.tree(0).ephemerals(session).next().is_none());
}

#[test]
fn a_server_ends_a_connection_from_which_nothing_comes() {
    let mut run = Run::three(7);
    let (one, other) = (run.followers()[0], run.leader());
    let left = run.client(one);
    let client = run.connect(other, Duration::from_secs(6), Some(&left)).unwrap();
    run.ask(&left, &Request::Exists { path: "/x".into(), watch: true });
    assert_eq!(run.ensemble.watches(one), [("/x", client.session)]);
    for _ in 0..30 {
        run.ask(&client, &Request::Ping);
        run.after(Duration::from_secs(1));
    }
    assert_eq!(run.ensemble.watches(one), []);
    assert_eq!(run.ensemble.connections(other), [(client.conn, client.session)]);
}
