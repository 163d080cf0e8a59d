//! From the registration to the grant: the last look, and the proof that the own znodes stand.

use std::sync::Arc;

use curator_locks::unversioned::contender::{Companion, Input, Mark, UpgradeDriver};

use super::*;

const HELD: Input<Error> = Input::Held { is_deleted: false };
const PROOF: &str = "sync; exists /main/u1-lock-0000000007";

fn registered() -> OneContender {
    OneContender::registered(&Lock::mutex())
}

/// In doubt, and about to hear whether its znode stands.
fn asked() -> OneContender {
    let mut one = registered();
    one.doubt();
    assert_eq!(one.step(HELD), PROOF);
    one
}

#[test]
fn with_the_hold_all_watches_are_given_up_but_that_on_the_own_znode() {
    let mut one = OneContender::behind(&Lock::mutex().watching_all(), &[3], 7).0;
    assert_eq!(one.told([listed(&[], 7)]), "hold");
    assert!(!one.contender.wants(WatchId::Directory(1)));
    let mut one = OneContender::asleep(&Lock::mutex());
    one.step(Input::Woken);
    one.reconnect();
    assert_eq!(one.told([lost()]), "connect");
    one.step(Input::Connected);
    assert_eq!(one.told([listed(&[], 7)]), "hold");
    assert!(!one.contender.wants(WatchId::Predecessor(1)) && one.contender.wants(WatchId::Own(2)));
    assert_eq!(one.contender.seen_over, 2, "the connection of the list");
}

#[test]
fn a_grant_leaves_nothing_to_clear_away_and_any_other_end_does() {
    let mut one = registered();
    assert_eq!(one.contender.leftovers().len(), 1);
    assert!(one.contender.is_held);
    assert_eq!(one.step(HELD), "end: Granted");
    assert!(one.contender.leftovers().is_empty());
    let mut one = registered();
    assert_eq!(one.step(Input::TimeUp), "end: TimeUp");
    assert!(!one.contender.is_held);
    assert_eq!(one.contender.leftovers().len(), 1);
}

#[test]
fn a_session_that_ends_while_the_hold_is_made_takes_it_along() {
    for lose in [OneContender::lose_session, |one: &mut OneContender| one.view.is_ended = true] {
        for input in [HELD, Input::Held { is_deleted: true }, Input::Woken] {
            let mut one = registered();
            lose(&mut one);
            assert_eq!(one.step(input), "connect");
            assert!(!one.contender.is_held && one.contender.nodes.is_empty());
            assert_eq!(one.discarded(), [own(1, 7)]);
        }
    }
}

#[test]
fn a_list_of_another_session_grants_nothing() {
    let mut one = OneContender::of(&Lock::mutex());
    one.begin();
    one.lose_session();
    assert_eq!(one.told([created(1, 7), listed(&[], 7)]), "connect");
}

#[test]
fn what_is_not_certain_for_as_long_as_it_is_wanted_is_asked_for() {
    let mut lock = Lock::mutex();
    lock.spec.min_validity = T / 2;
    let mut one = OneContender::registered(&lock);
    one.view.valid_until = Some(one.view.now + T / 2);
    assert_eq!(one.step(HELD), PROOF);
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "doze", "until the next heartbeats");
    one.view.valid_until = Some(one.view.now + T);
    assert_eq!(one.step(Input::Woken), "end: Granted");
}

#[test]
fn what_was_not_seen_over_the_live_connection_is_asked_for() {
    let mut one = registered();
    one.reconnect();
    assert_eq!(one.step(HELD), PROOF);
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "end: Granted");
    assert_eq!(one.contender.seen_over, 2);
    let mut one = asked();
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "doze");
    one.reconnect();
    assert_eq!(one.step(Input::Woken), PROOF, "once more");
    let mut one = registered();
    one.view.connection = 0;
    assert_eq!(one.step(HELD), "connect", "nobody can be asked");
    one.view.connection = 2;
    assert_eq!(one.step(Input::Connected), PROOF);
}

#[test]
fn only_the_own_znode_of_the_own_session_stands() {
    for answer in [stands(8, SESSION), stands(7, 9), no_node(), Ok(Response::Done)] {
        let mut one = asked();
        assert_eq!(one.told([synced(), answer]), "again? the own znode is gone");
        assert_eq!(one.discarded(), [own(1, 7)]);
        assert!(!one.contender.is_held);
    }
    assert_eq!(asked().told([synced()]), "again? the own znode is gone", "no answer shows it");
}

#[test]
fn of_several_all_have_to_be_listed_and_to_stand() {
    let both = || {
        let mut one = OneContender::of(&Lock::lease(3, None).many(2));
        one.begin();
        one
    };
    let proof = "sync; exists /main/u1-lock-0000000007; exists /main/u2-lock-0000000008";
    for missing in [own(1, 7), own(2, 8)] {
        let mut one = both();
        let listed = [own(1, 7), own(2, 8)].into_iter().filter(|name| *name != missing).collect();
        assert_eq!(one.told([created(1, 7), created(2, 8), names(listed)]), proof);
    }
    let mut one = both();
    assert_eq!(one.told([created(1, 7), created(2, 8), names(vec![own(1, 7), own(2, 8)])]), "hold");
    one.doubt();
    assert_eq!(one.step(HELD), proof);
    assert_eq!(one.told([synced(), no_node(), stands(8, SESSION)]), "again? the own znode is gone");
}

#[test]
fn an_answer_from_before_a_reconnect_is_asked_for_again() {
    let mut one = asked();
    one.reconnect();
    assert_eq!(one.told([synced(), stands(7, SESSION)]), PROOF);
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "doze");
}

#[test]
fn a_question_that_is_open_stays_so_over_a_lost_connection() {
    let mut one = OneContender::asleep(&Lock::mutex());
    assert_eq!(one.event(WatchId::Own(2), EventType::NodeDeleted), PROOF);
    assert_eq!(one.told([lost(), lost()]), "connect");
    assert_eq!(one.step(Input::Connected), PROOF);
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "list /main", "it was another one's end");
    assert_eq!(one.step(Input::Woken), "list /main", "and the question is answered");
}

#[test]
fn a_new_attempt_has_nothing_to_do_with_the_one_before() {
    let mut one = OneContender::asleep(&Lock::mutex());
    assert_eq!(one.event(WatchId::Predecessor(1), EventType::NodeDeleted), "hold");
    one.doubt();
    assert_eq!(one.step(HELD), PROOF);
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "doze");
    assert_eq!(one.step(Input::Held { is_deleted: true }), PROOF);
    assert_eq!(one.told([synced(), no_node()]), "again? the own znode is gone");
    one.view.valid_until = Some(one.view.now + T);
    one.begin();
    assert_eq!(one.told([created(2, 8), names(vec![other(3), own(2, 8)])]), {
        "read /main/lock-0000000003 and watch; read /main/u2-lock-0000000008 and watch"
    });
    assert_eq!(one.told([data(9), data(SESSION)]), "sleep");
    assert_eq!(one.step(Input::Woken), "list /main", "no question is open");
    assert_eq!(one.told([names(vec![other(3)])]), "sync; exists /main/u2-lock-0000000008", "nor was it answered");
}

/// Nobody can ask in a pause, and two heartbeats settle the doubt after it.
#[test]
fn a_pause_is_no_part_of_a_doubt() {
    let mut one = asked();
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "doze");
    for _ in 0..40 {
        one.view.now += T / 50;
        assert_eq!(one.step(Input::Woken), "doze");
    }
    one.view.now += T * 9 / 10;
    assert_eq!(one.step(Input::Woken), "doze", "0.8 T of doubt and a pause are no doubt of T");
    for _ in 0..49 {
        one.view.now += T / 50;
        assert_eq!(one.step(Input::Woken), "doze");
    }
    one.view.now += T / 50;
    assert_eq!(one.step(Input::Woken), "end: Uncertain", "it has lasted T since the pause");
}

#[test]
fn what_has_left_the_other_queue_may_not_wait_here_any_more() {
    let mut lock = Lock::mutex().watching_all();
    for holds_queue_head in [true, false] {
        lock.spec.holds_queue_head = holds_queue_head;
        let mut one = OneContender::registered(&lock);
        assert_eq!(one.step(Input::Held { is_deleted: true }), PROOF);
        assert_eq!(one.told([synced(), no_node()]), "again? the own znode is gone");
        one.begin();
        let next = one.told([created(2, 8), names(vec![other(3), own(2, 8)])]);
        assert_eq!(next, if holds_queue_head { "end: QueueHeadLost" } else { "list /main and watch" });
    }
}

/// A marked name with this number.
fn marked(mark: Mark, name: &str, number: u32) -> String {
    format!("{}{name}{number:010}", mark.sample())
}

fn made(name: &str, number: u32) -> Answer {
    Ok(Response::Created { path: format!("/main/{name}"), czxid: czxid(number) })
}

/// These, after this last change of the directory.
fn changed(names: &[&String], pzxid: i64) -> Answer {
    let names = names.iter().map(|name| (*name).clone()).collect();
    Ok(Response::Children { names, stat: Some(Stat { pzxid, ..Stat::default() }) })
}

#[test]
fn a_reader_goes_past_an_upgradable_one_and_queues_anew_in_front_of_an_upgrade() {
    let [own, upgradable] = [marked(Mark::PASSES, "__READ__", 7), marked(Mark::UPGRADABLE, "__WRIT__", 3)];
    let upgrade = marked(Mark::UPGRADE, "__WRIT__", 9);
    let listed = |lock: &Lock, with: &[&String]| {
        let mut one = OneContender::of(lock);
        assert_eq!(one.begin(), "create /main/u1-__READ__; list /main");
        let next = one.told([made(&own, 7), changed(with, 110)]);
        (one, next)
    };
    assert_eq!(listed(&Lock::passing(), &[&upgradable, &own]).1, "hold");
    let (mut one, next) = listed(&Lock::passing(), &[&upgradable, &own, &upgrade]);
    assert_eq!(next, "create /main/u2-__READ__; list /main");
    assert_eq!(one.discarded(), [own.clone()]);
    let mut tries = Lock::passing();
    tries.spec.waits = None;
    assert_eq!(listed(&tries, &[&upgradable, &own, &upgrade]).1, "end: TimeUp");
    assert_eq!(listed(&Lock::passing(), &[&own, &upgrade]).1, "hold", "there is nothing to go past");
}

#[test]
fn the_token_of_an_upgradable_one_lies_in_front_of_a_writer_that_waits() {
    let own = marked(Mark::UPGRADABLE, "__WRIT__", 7);
    let [left, writer] = [marked(Mark::UPGRADE, "__WRIT__", 8), other(9)];
    let listed = |with: &[&String]| {
        let mut one = OneContender::of(&Lock::upgradable());
        assert_eq!(one.begin(), "create /main/u1-__WRIT__; list /main");
        let next = one.told([made(&own, 7), changed(with, 120)]);
        (one, next)
    };
    let (one, next) = listed(&[&own, &left]);
    assert_eq!((next.as_str(), one.contender.token), ("hold", Some((120, 0))));
    let (mut one, next) = listed(&[&own, &left, &writer]);
    assert_eq!(next, "exists /main/lock-0000000009");
    assert_eq!(one.told([stands(9, 9)]), "hold");
    assert_eq!(one.contender.token, Some((czxid(9) - 1, (1 << 63) | 120)));
    let (mut one, _) = listed(&[&own, &writer]);
    assert_eq!(one.told([no_node()]), "list /main", "it has given up");
}

#[test]
fn an_upgrade_holds_by_both_znodes() {
    let [upgradable, own] = [marked(Mark::UPGRADABLE, "__WRIT__", 7), marked(Mark::UPGRADE, "__WRIT__", 9)];
    let reader = marked(Mark::PASSES, "__READ__", 8);
    let begun = || {
        let mut one = OneContender::of(&Lock::upgrade(0));
        let stays = Some(czxid(7));
        let name = upgradable.clone();
        one.spec.companion = Some(Companion { name, stays, session: SESSION, token: 1, grant: 0 });
        one.spec.driver = Arc::new(UpgradeDriver { upgradable: upgradable.clone() });
        assert_eq!(one.begin(), "create /main/u1-__WRIT__; list /main");
        one
    };
    let mut one = begun();
    assert_eq!(one.told([made(&own, 9), changed(&[&own], 120)]), "end: CompanionGone");
    let mut one = begun();
    let next = one.told([made(&own, 9), changed(&[&upgradable, &reader, &own], 120)]);
    assert_eq!(next, format!("read /main/{reader} and watch; read /main/{own} and watch"));
    let mut one = begun();
    assert_eq!(one.told([made(&own, 9), changed(&[&upgradable, &own], 120)]), "hold");
    assert_eq!(one.contender.token, None, "that of its znode");
    let proof = format!("sync; exists /main/{own}; exists /main/{upgradable}");
    assert_eq!(one.step(Input::Held { is_deleted: true }), proof);
    assert_eq!(one.told([synced(), stands(9, SESSION), stands(7, SESSION)]), "end: Granted");
    let mut one = begun();
    one.told([made(&own, 9), changed(&[&upgradable, &own], 120)]);
    one.step(Input::Held { is_deleted: true });
    assert_eq!(one.told([synced(), stands(9, SESSION), no_node()]), "end: CompanionGone");
}
