//! In the queue: what is watched, what an event means, and what ends the wait.

use curator_locks::{ErrorCode, unversioned::contender::Input};

use super::*;

const PREDECESSOR: WatchId = WatchId::Predecessor(1);
const OWN: WatchId = WatchId::Own(2);
const PROOF: &str = "sync; exists /main/u1-lock-0000000007";

/// Behind a waiter of another session, whose predecessor it watches too. That one's watch has number 1.
fn behind_a_waiter() -> OneContender {
    let (mut one, next) = OneContender::behind(&Lock::mutex(), &[3, 5], 7);
    assert_eq!(next, "read /main/lock-0000000005 and watch; read /main/u1-lock-0000000007 and watch");
    assert_eq!(one.told([data(9), data(SESSION)]), "read /main/lock-0000000003 and watch");
    one
}

#[test]
fn a_watch_that_was_given_up_says_nothing() {
    let mut one = OneContender::asleep(&Lock::mutex());
    for watch in
        [WatchId::Predecessor(9), WatchId::Predecessor(2), WatchId::Own(1), WatchId::Ahead(1), WatchId::Directory(1)]
    {
        assert!(!one.contender.wants(watch), "{watch:?}");
        assert_eq!(one.event(watch, EventType::NodeDeleted), "sleep", "{watch:?}");
    }
    assert!(one.contender.wants(PREDECESSOR) && one.contender.wants(OWN));
    assert_eq!(one.contender.ahead, None, "nobody wants to know");
    let mut all = OneContender::behind(&Lock::mutex().watching_all(), &[3], 7).0;
    assert_eq!(all.told([listed(&[3], 7)]), "sleep");
    assert!(all.contender.wants(WatchId::Directory(1)) && !all.contender.wants(WatchId::Directory(2)));
    let waiter = behind_a_waiter();
    assert!(waiter.contender.wants(WatchId::Ahead(1)) && !waiter.contender.wants(WatchId::Ahead(2)));
}

#[test]
fn an_event_of_the_own_znode_is_asked_about_where_it_says_the_end() {
    let mut one = OneContender::asleep(&Lock::mutex());
    assert_eq!(one.event(OWN, EventType::NodeDeleted), PROOF);
    let mut one = OneContender::asleep(&Lock::mutex());
    assert_eq!(one.event(OWN, EventType::NodeDataChanged), "list /main");
    let both = "read /main/lock-0000000003 and watch; read /main/u1-lock-0000000007 and watch";
    assert_eq!(one.told([listed(&[3], 7)]), both, "both watches anew");
}

#[test]
fn a_reconnect_brings_a_new_list_but_for_the_own_znode() {
    let mut one = OneContender::asleep(&Lock::mutex());
    one.reconnect();
    let reconnected = || WatchEvent::Reconnected { connection: 2 };
    assert_eq!(one.step(Input::Event(OWN, reconnected())), "sleep");
    assert_eq!(one.step(Input::Event(PREDECESSOR, WatchEvent::Disconnected)), "sleep");
    assert_eq!(one.step(Input::Event(PREDECESSOR, reconnected())), "list /main");
    assert_eq!(one.told([listed(&[3], 7)]), "sleep", "the watches are still in place");
    assert_eq!(one.event(PREDECESSOR, EventType::NodeDeleted), "hold", "over the connection of that list");
}

#[test]
fn the_end_of_a_predecessor_grants_only_where_nothing_can_have_come_in_between() {
    let after = |act: fn(&mut OneContender)| {
        let mut one = OneContender::asleep(&Lock::mutex());
        act(&mut one);
        one.event(PREDECESSOR, EventType::NodeDeleted)
    };
    assert_eq!(after(|_| {}), "hold");
    assert_eq!(after(OneContender::reconnect), "list /main", "seen over another connection");
    let touched = |one: &mut OneContender| drop(one.event(OWN, EventType::NodeDataChanged));
    assert_eq!(after(touched), "sleep", "no predecessor is watched without the own znode");
    assert_eq!(after(|one| one.process.leases = 2), "list /main");
    let mut one = OneContender::asleep(&Lock::mutex());
    let late = WatchEvent::Node { event: EventType::NodeDeleted, connection: 1 };
    one.reconnect();
    assert_eq!(one.step(Input::Event(PREDECESSOR, late)), "list /main", "an event from before the reconnect");
}

#[test]
fn whom_this_process_granted_the_lock_held_it() {
    let mut one = behind_a_waiter();
    one.told([data(9)]);
    assert_eq!(one.event(WatchId::Predecessor(2), EventType::NodeDeleted), "list /main");
    let mut one = behind_a_waiter();
    one.told([data(9)]);
    one.process.granted.push(other(5));
    assert_eq!(one.event(WatchId::Predecessor(2), EventType::NodeDeleted), "hold");
}

#[test]
fn a_predecessor_that_comes_first_holds_the_lock_from_then_on() {
    let mut one = behind_a_waiter();
    assert_eq!(one.told([data(9)]), "sleep");
    assert_eq!(one.event(WatchId::Ahead(1), EventType::NodeDeleted), "list /main");
    assert!(!one.contender.wants(WatchId::Ahead(1)));
    assert_eq!(one.told([listed(&[5], 7)]), "sleep");
    assert_eq!(one.step(Input::Woken), "list /main");
    assert_eq!(one.told([listed(&[4, 5], 7)]), "sleep", "and that does not end");
    assert_eq!(one.event(WatchId::Predecessor(2), EventType::NodeDeleted), "hold");
    let mut one = behind_a_waiter();
    one.told([data(9)]);
    assert_eq!(one.step(Input::Woken), "list /main");
    one.told([listed(&[5], 7)]);
    assert!(!one.contender.wants(WatchId::Ahead(1)), "nobody is in front of it");
}

#[test]
fn who_is_in_front_of_the_predecessor_is_watched_where_that_saves_time() {
    let next = |leases: usize, others: &[u32], owner: i64| {
        let mut one = OneContender::of(&Lock::mutex());
        one.process.leases = leases;
        one.begin();
        one.told([created(1, 7), listed(others, 7)]);
        one.told([data(owner), data(SESSION)])
    };
    assert_eq!(next(1, &[3, 5], 9), "read /main/lock-0000000003 and watch");
    assert_eq!(next(1, &[3, 5], SESSION), "sleep", "this process knows of its own grants");
    assert_eq!(next(1, &[5], 9), "sleep", "it is the first");
    assert_eq!(next(2, &[1, 2, 3, 5], 9), "sleep", "its end does not make the next one first");
}

#[test]
fn where_nobody_is_in_front_of_the_predecessor_any_more_the_list_says_who_is_first() {
    for (answer, next) in [
        (no_node(), "list /main"),
        (Err(refused(ErrorCode::NoAuth)), "list /main"),
        (lost(), "connect"),
        (data(9), "sleep"),
    ] {
        let mut one = behind_a_waiter();
        let is_there = answer.is_ok();
        assert_eq!(one.told([answer]), next);
        assert_eq!(one.contender.wants(WatchId::Ahead(1)), is_there);
    }
}

#[test]
fn a_predecessor_that_is_gone_when_it_is_read_is_no_reason_to_enter() {
    let (mut one, _) = OneContender::behind(&Lock::mutex(), &[3], 7);
    assert_eq!(one.told([no_node(), data(SESSION)]), "list /main");
    let (mut one, _) = OneContender::behind(&Lock::mutex(), &[3], 7);
    assert_eq!(one.told([data(9), no_node()]), PROOF, "nor to wait, if it is the own znode");
}

#[test]
fn who_looks_at_times_watches_the_own_znode_once() {
    let (mut one, next) = OneContender::behind(&Lock::mutex().polling(), &[3], 7);
    assert_eq!(next, "read /main/u1-lock-0000000007 and watch");
    assert_eq!(one.told([data(SESSION)]), "sleep");
    assert_eq!(one.step(Input::Woken), "list /main");
    assert_eq!(one.told([listed(&[3], 7)]), "sleep");
}

#[test]
fn who_watches_the_directory_lists_it_with_a_watch_once() {
    let (mut one, next) = OneContender::behind(&Lock::mutex().watching_all(), &[3], 7);
    assert_eq!(next, "list /main and watch");
    assert_eq!(one.told([listed(&[3], 7)]), "sleep");
    assert_eq!(one.step(Input::Woken), "list /main");
    assert_eq!(one.told([listed(&[3], 7)]), "sleep");
    assert!(one.contender.wants(WatchId::Directory(1)), "the watch is still in place");
    assert_eq!(one.event(WatchId::Directory(1), EventType::NodeChildrenChanged), "list /main and watch");
}

#[test]
fn the_end_of_the_time_ends_it_wherever_it_is() {
    let mut one = OneContender::of(&Lock::mutex());
    one.view.is_time_up = true;
    assert_eq!(one.begin(), "end: TimeUp", "before the create");
    let late = |mut one: OneContender, step: fn(&mut OneContender) -> String| {
        one.view.is_time_up = true;
        step(&mut one)
    };
    let begun = |lock: &Lock| {
        let mut one = OneContender::of(lock);
        one.begin();
        one
    };
    let queued = || OneContender::asleep(&Lock::mutex());
    let refusal = "end: Failed(\"connection lost\")";
    assert_eq!(late(begun(&Lock::mutex()), |one| one.told([lost(), lost()])), refusal, "instead of a retry");
    assert_eq!(late(begun(&Lock::mutex()), |one| one.told([created(1, 7), listed(&[], 7)])), "end: TimeUp");
    assert_eq!(late(queued(), |one| one.event(WatchId::Predecessor(9), EventType::NodeDeleted)), "end: TimeUp");
    assert_eq!(late(queued(), |one| one.step(Input::TimeUp)), "end: TimeUp");
    let lost_session = |one: &mut OneContender| {
        one.lose_session();
        one.step(Input::Woken)
    };
    assert_eq!(late(queued(), lost_session), "end: TimeUp", "instead of another queue");
    let registered = OneContender::registered(&Lock::mutex());
    assert_eq!(late(registered, |one| one.step(Input::Woken)), "end: TimeUp");
}

#[test]
fn a_failure_at_the_end_of_the_time_is_the_end_of_the_time_for_who_queues() {
    let up = || Input::Failed(Failed { reaction: Reaction::TimeUp, ..connection_lost(false) });
    assert_eq!(OneContender::asleep(&Lock::mutex()).step(up()), "end: TimeUp");
    let mut one = OneContender::of(&Lock::mutex());
    one.begin();
    assert_eq!(one.step(up()), "end: Failed(\"connection lost\")");
}

#[test]
fn who_queues_outlasts_a_lost_connection_and_leaves_a_server_that_refuses_in_peace() {
    let mut one = OneContender::asleep(&Lock::mutex());
    assert_eq!(one.step(Input::Woken), "list /main");
    assert_eq!(one.told([lost()]), "connect");
    assert_eq!(one.step(Input::Connected), "list /main", "it keeps its place");
    assert_eq!(one.told([Err(refused(ErrorCode::ThrottledOp))]), "doze");
    assert_eq!(one.step(Input::Woken), "list /main");
    one.view.is_ended = true;
    assert_eq!(one.told([lost()]), "connect");
    assert_eq!(one.discarded(), [own(1, 7)], "with its session the place is lost");
}

#[test]
fn what_ends_a_wait_leaves_no_watch_behind() {
    for (input, end) in [
        (Input::QueueHeadLost, "end: QueueHeadLost"),
        (Input::TimeUp, "end: TimeUp"),
        (Input::Event(PREDECESSOR, WatchEvent::Ended), "connect"),
    ] {
        let mut one = OneContender::asleep(&Lock::mutex());
        assert_eq!(one.step(input.clone()), end);
        assert!(!one.contender.wants(PREDECESSOR));
        let mut all = OneContender::behind(&Lock::mutex().watching_all(), &[3], 7).0;
        all.told([listed(&[3], 7)]);
        let input = if let Input::Event(_, event) = input { Input::Event(WatchId::Directory(1), event) } else { input };
        assert_eq!(all.step(input), end);
        assert!(!all.contender.wants(WatchId::Directory(1)));
    }
}

#[test]
fn who_only_tries_does_not_wait() {
    let mut lock = Lock::mutex();
    lock.spec.waits = None;
    assert_eq!(OneContender::behind(&lock, &[3], 7).1, "end: TimeUp");
}

#[test]
fn a_driver_that_never_finds_the_own_znode_ends_the_attempt() {
    let mut one = OneContender::of(&Lock::mutex());
    one.begin();
    assert_eq!(one.told([created(1, 7), names(vec![])]), PROOF, "not by one list");
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "list /main");
    assert_eq!(one.told([names(vec![])]), "again? the own znode is gone");
    let (mut one, _) = OneContender::behind(&Lock::mutex(), &[3], 7);
    one.told([data(9), data(SESSION)]);
    one.event(OWN, EventType::NodeDeleted);
    one.told([synced(), stands(7, SESSION)]);
    one.reconnect();
    assert_eq!(one.told([lost()]), "connect");
    one.step(Input::Connected);
    assert_eq!(one.told([names(vec![])]), PROOF, "this server may lag behind");
}
