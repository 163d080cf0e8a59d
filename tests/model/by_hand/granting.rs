//! From the registration to the grant: the last look, and the proof that the own znodes stand.

use curator_locks::unversioned::contender::Input;

use super::*;

const PROOF: &str = "sync; exists /main/u1-lock-0000000007";

fn registered() -> OneContender {
    OneContender::registered(&Lock::mutex())
}

/// In doubt, and about to hear whether its znode stands.
fn asked() -> OneContender {
    let mut one = registered();
    one.doubt();
    assert_eq!(one.step(Input::Woken), PROOF);
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
    assert_eq!(one.step(Input::Woken), "end: Granted");
    assert!(one.contender.leftovers().is_empty());
    let mut one = registered();
    assert_eq!(one.step(Input::TimeUp), "end: TimeUp");
    assert!(!one.contender.is_held);
    assert_eq!(one.contender.leftovers().len(), 1);
}

#[test]
fn a_session_that_ends_while_the_hold_is_made_takes_it_along() {
    for lose in [OneContender::lose_session, |one: &mut OneContender| one.view.is_ended = true] {
        for is_lost in [false, true] {
            let mut one = registered();
            lose(&mut one);
            one.view.is_lost = is_lost;
            assert_eq!(one.step(Input::Woken), "connect");
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
    assert_eq!(one.step(Input::Woken), PROOF);
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "doze", "until the next heartbeats");
    one.view.valid_until = Some(one.view.now + T);
    assert_eq!(one.step(Input::Woken), "end: Granted");
}

#[test]
fn what_was_not_seen_over_the_live_connection_is_asked_for() {
    let mut one = registered();
    one.reconnect();
    assert_eq!(one.step(Input::Woken), PROOF);
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "end: Granted");
    assert_eq!(one.contender.seen_over, 2);
    let mut one = asked();
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "doze");
    one.reconnect();
    assert_eq!(one.step(Input::Woken), PROOF, "once more");
    let mut one = registered();
    one.view.connection = 0;
    assert_eq!(one.step(Input::Woken), "connect", "nobody can be asked");
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
    assert_eq!(one.step(Input::Woken), proof);
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
    assert_eq!(one.step(Input::Woken), PROOF);
    assert_eq!(one.told([synced(), stands(7, SESSION)]), "doze");
    one.view.is_lost = true;
    assert_eq!(one.step(Input::Woken), PROOF);
    assert_eq!(one.told([synced(), no_node()]), "again? the own znode is gone");
    one.view.is_lost = false;
    one.view.valid_until = Some(one.view.now + T);
    one.begin();
    assert_eq!(one.told([created(2, 8), names(vec![other(3), own(2, 8)])]), {
        "read /main/lock-0000000003 and watch; read /main/u2-lock-0000000008 and watch"
    });
    assert_eq!(one.told([data(9), data(SESSION)]), "sleep");
    assert_eq!(one.step(Input::Woken), "list /main", "no question is open");
    assert_eq!(one.told([names(vec![other(3)])]), "sync; exists /main/u2-lock-0000000008", "nor was it answered");
}

#[test]
fn a_hold_whose_end_is_reported_before_the_return_is_asked_for() {
    let mut one = asked();
    one.view.valid_until = Some(one.view.now + T);
    one.view.is_lost = true;
    assert_eq!(one.told([synced(), stands(7, SESSION)]), PROOF, "the event came after this answer");
    assert_eq!(one.told([synced(), no_node()]), "again? the own znode is gone");
}

/// As servers do that have applied different transactions (ZOOKEEPER-4712).
#[test]
fn an_answer_that_contradicts_the_event_gives_the_place_up_after_a_session_timeout() {
    let mut one = asked();
    one.view.valid_until = Some(one.view.now + T * 10);
    one.view.is_lost = true;
    let mut asked = 0;
    let end = loop {
        match one.told([synced(), stands(7, SESSION)]) {
            next if next == PROOF => asked += 1,
            end => break end,
        }
        one.view.now += T / 10;
    };
    assert_eq!((end.as_str(), asked), ("end: Uncertain", 10));
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
        one.view.is_lost = true;
        assert_eq!(one.step(Input::Woken), PROOF);
        assert_eq!(one.told([synced(), no_node()]), "again? the own znode is gone");
        one.view.is_lost = false;
        one.begin();
        let next = one.told([created(2, 8), names(vec![other(3), own(2, 8)])]);
        assert_eq!(next, if holds_queue_head { "end: QueueHeadLost" } else { "list /main and watch" });
    }
}
