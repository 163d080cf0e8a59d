//! Before it is in the queue: looks, creates, and what a create without an answer has made.

use curator_locks::{
    CreateMode, ErrorCode,
    unversioned::{
        Response,
        contender::{Companion, Input},
    },
};

use super::*;

#[test]
fn a_number_that_is_nearly_the_last_one_is_given_up() {
    let (_, next) = OneContender::behind(&Lock::mutex(), &[], i32::MAX.unsigned_abs() - 7);
    assert_eq!(next, "end: Exhausted(2147483640)");
    let mut one = OneContender::of(&Lock::mutex());
    one.begin();
    assert_eq!(one.told([lost(), lost()]), "again? connection lost");
    assert_eq!(one.begin(), "sync; list /main");
    let number = i32::MAX.unsigned_abs() - 7;
    assert_eq!(one.told([synced(), listed(&[], number)]), "exists /main/u1-lock-2147483640");
    assert_eq!(one.told([stands(number, SESSION)]), "end: Exhausted(2147483640)");
}

#[test]
fn of_several_creates_all_are_made_anew_where_one_fails() {
    let mut one = OneContender::of(&Lock::lease(3, None).many(2));
    assert_eq!(one.begin(), "create /main/u1-lease-; create /main/u2-lease-; list /main");
    assert_eq!(one.told([created(1, 0), lost(), lost()]), "again? connection lost");
    assert_eq!(one.discarded(), [own(1, 0), "u2-?".to_owned()]);
    assert_eq!(one.begin(), "create /main/u3-lease-; create /main/u4-lease-; list /main");
}

#[test]
fn the_first_of_several_failures_is_the_one_that_counts() {
    let mut one = OneContender::of(&Lock::lease(3, None).many(2));
    one.begin();
    assert_eq!(one.told([no_node(), Err(refused(ErrorCode::NoAuth)), no_node()]), "makedirectory");
}

#[test]
fn a_create_that_was_refused_leaves_nothing_and_one_without_an_answer_may() {
    let mut one = OneContender::of(&Lock::mutex());
    one.begin();
    assert_eq!(one.told([Err(refused(ErrorCode::ThrottledOp)), no_node()]), "again? refused");
    assert!(one.contender.leftovers().is_empty());
    assert_eq!(one.begin(), "create /main/u2-lock-; list /main", "nothing to look for");
    one.told([]);
    assert_eq!(one.contender.leftovers(), [Leftover::Doubt("u2-".to_owned())], "nobody knows the outcome");
    assert_eq!(one.told([names(vec![])]), "connect", "nor is there a place");
    assert_eq!(one.discarded(), ["u2-?"]);
}

#[test]
fn who_may_overtake_nobody_looks_for_no_earlier_create() {
    let mut one = OneContender::of(&Lock::lease_at_once(1));
    assert_eq!(one.begin(), "create /main/u1-lease-; list /main; list /must_be_empty");
    one.told([lost(), lost(), lost()]);
    assert_eq!(one.discarded(), ["u1-?"]);
    assert_eq!(one.begin(), "create /main/u2-lease-; list /main; list /must_be_empty");
}

#[test]
fn a_queue_that_cannot_be_read_is_not_empty() {
    let queued = |queue: Answer| {
        let mut one = OneContender::of(&Lock::lease_at_once(1));
        one.begin();
        one.told([created(1, 0), names(vec![own(1, 0)]), queue])
    };
    assert_eq!(queued(no_node()), "hold", "nobody has made its directory yet");
    assert_eq!(queued(names(vec!["leases".to_owned()])), "hold", "that is no contender");
    assert_eq!(queued(names(vec![other(3)])), "end: TimeUp");
    assert_eq!(queued(Err(refused(ErrorCode::NoAuth))), "end: TimeUp");
    assert_eq!(queued(Ok(Response::Done)), "end: TimeUp");
}

#[test]
fn a_list_above_the_frame_limit_is_asked_for_once() {
    let after = |list: Answer| {
        let mut one = OneContender::of(&Lock::mutex());
        one.begin();
        one.told([created(1, 7), list])
    };
    assert_eq!(after(too_large()), "end: Failed(\"too large\")");
    assert_eq!(after(no_node()), "list /main", "the directory has gone since");
    assert_eq!(after(lost()), "list /main");
}

#[test]
fn it_looks_once_and_then_creates() {
    let mut one = OneContender::of(&Lock::mutex().trying());
    assert_eq!(one.begin(), "list /main");
    assert_eq!(one.told([no_node()]), "create /main/u1-lock-; list /main");
    assert_eq!(one.told([no_node(), no_node()]), "makedirectory");
    assert_eq!(one.step(Input::DirectoryMade(Ok(()))), "connect");
    assert_eq!(one.step(Input::Connected), "create /main/u2-lock-; list /main");
    assert_eq!(one.told([created(2, 3), names(vec![own(2, 3)])]), "hold");
}

#[test]
fn who_would_have_to_wait_or_overtake_writes_nothing() {
    let looked = |lock: &Lock, queue: [Answer; 2]| {
        let mut one = OneContender::of(lock);
        one.spec.looks_first = true;
        assert_eq!(one.begin(), "list /main; list /must_be_empty");
        one.told(queue)
    };
    let lock = Lock::lease_at_once(3).many(2);
    let create = "create /main/u1-lease-; create /main/u2-lease-; list /main; list /must_be_empty";
    assert_eq!(looked(&lock, [names(vec![other(3)]), names(vec![])]), create);
    assert_eq!(looked(&lock, [names(vec![other(3), other(4)]), names(vec![])]), "end: TimeUp");
    assert_eq!(looked(&lock, [names(vec![other(3)]), names(vec![other(0)])]), "end: TimeUp");
}

#[test]
fn it_queues_behind_no_more_than_it_wants_to() {
    let looked = |count: usize, lock: Lock| {
        let mut one = OneContender::of(&lock);
        (one.spec.looks_first, one.spec.counts, one.spec.max_ahead) = (true, true, Some(1));
        one.begin();
        let next = one.told([names((0..3).take(count).map(other).collect())]);
        (one, next)
    };
    assert_eq!(looked(2, Lock::mutex()).1, "end: Busy(2)");
    let leases = Lock::lease(3, None);
    assert_eq!(looked(2, leases).1, "create /main/u1-lease-; list /main", "there is a lease");
    let (mut one, _) = looked(1, Lock::mutex());
    assert_eq!(one.told([created(1, 7), listed(&[2, 3], 7)]), "end: Busy(2)", "others were faster");
    let (mut one, _) = looked(1, Lock::mutex());
    let queued = one.told([created(1, 7), listed(&[3], 7)]);
    assert_eq!(queued, "read /main/lock-0000000003 and watch; read /main/u1-lock-0000000007 and watch");
    one.told([data(9), data(SESSION)]);
    one.event(WatchId::Predecessor(1), EventType::NodeDataChanged);
    let again = one.told([listed(&[2, 3], 7)]);
    assert_eq!(again, "read /main/lock-0000000003 and watch", "it has queued, and stays");
    assert_eq!(one.contender.ahead, Some(2));
}

#[test]
fn who_only_tries_is_not_told_how_many_are_in_front() {
    let mut one = OneContender::of(&Lock::mutex().trying());
    (one.spec.counts, one.spec.max_ahead) = (true, Some(1));
    one.begin();
    assert_eq!(one.told([names(vec![other(1), other(2)])]), "end: TimeUp");
}

#[test]
fn a_directory_that_goes_as_often_as_it_is_made_is_a_matter_of_the_retry_policy() {
    let mut one = OneContender::of(&Lock::mutex());
    one.begin();
    assert_eq!(one.told([no_node(), no_node()]), "makedirectory");
    assert_eq!(one.step(Input::DirectoryMade(Err(refused(ErrorCode::NoNode)))), "connect", "the create finds out");
    one.step(Input::Connected);
    assert_eq!(one.told([no_node(), no_node()]), "makedirectory");
    assert_eq!(one.step(Input::DirectoryMade(Ok(()))), "again? the own znode is gone");
    let refusal = Input::DirectoryMade(Err(refused(ErrorCode::NoAuth)));
    assert_eq!(one.step(refusal), "end: Failed(\"refused\")");
}

#[test]
fn a_directory_that_was_there_may_go_once_more() {
    let mut one = OneContender::of(&Lock::mutex());
    one.begin();
    one.told([no_node(), no_node()]);
    one.step(Input::DirectoryMade(Ok(())));
    one.step(Input::Connected);
    assert_eq!(one.told([created(2, 7), no_node()]), "list /main");
    assert_eq!(one.told([no_node()]), "sync; exists /main/u2-lock-0000000007");
    assert_eq!(one.told([synced(), no_node()]), "again? the own znode is gone");
    one.begin();
    assert_eq!(one.told([no_node(), no_node()]), "makedirectory");
    assert_eq!(one.step(Input::DirectoryMade(Ok(()))), "connect");
}

#[test]
fn a_reader_takes_a_writers_place_only_beside_that_writer() {
    let writer = "w-__WRIT__0000000003";
    let reader = |session: i64| {
        let mut one = OneContender::of(&Lock::read());
        let companion = Companion { name: writer.to_owned(), session, token: 1, grant: 0 };
        (one.spec.companion, one.spec.mode) = (Some(companion), CreateMode::Ephemeral);
        one.spec.name = "__READ__0000000003".to_owned();
        let first = one.begin();
        (one, first)
    };
    assert_eq!(reader(SESSION + 1).1, "end: CompanionGone", "the writer's session has ended");
    let create = "create /main/u1-__READ__0000000003; list /main";
    let made = || Ok(Response::Created { path: "/main/u1-__READ__0000000003".to_owned(), czxid: 9 });
    let own = "u1-__READ__0000000003".to_owned();
    let (mut one, first) = reader(SESSION);
    assert_eq!(first, create);
    assert_eq!(one.told([no_node(), no_node()]), "end: CompanionGone", "with the directory");
    let (mut one, _) = reader(SESSION);
    assert_eq!(one.told([made(), names(vec![own.clone()])]), "end: CompanionGone");
    let (mut one, _) = reader(SESSION);
    assert_eq!(one.told([made(), names(vec![own, writer.to_owned()])]), "hold");
    one.lose_session();
    assert_eq!(one.step(Input::Woken), "end: CompanionGone");
}

#[test]
fn what_an_earlier_session_made_is_not_looked_for_in_the_next_one() {
    let mut one = OneContender::of(&Lock::mutex());
    one.begin();
    one.told([lost(), lost()]);
    one.lose_session();
    assert_eq!(one.begin(), "create /main/u2-lock-; list /main");
    assert!(!one.discarded().is_empty());
}

#[test]
fn a_create_without_a_list_is_followed_by_one() {
    let bare = |reconnects: bool| {
        let mut one = OneContender::of(&Lock::mutex());
        one.process.lists_with_create = false;
        assert_eq!(one.begin(), "create /main/u1-lock-");
        if reconnects {
            one.reconnect();
        }
        one.told([created(1, 7)])
    };
    assert_eq!([false, true].map(bare), ["list /main", "list /main"]);
}

#[test]
fn a_znode_of_the_own_name_in_another_session_is_not_its_own() {
    let found = |owner: i64| {
        let mut one = OneContender::of(&Lock::mutex());
        one.begin();
        one.told([lost(), lost()]);
        one.begin();
        assert_eq!(one.told([synced(), listed(&[3], 7)]), "exists /main/u1-lock-0000000007");
        let next = one.told([stands(7, owner)]);
        (next, one.contender.leftovers().len())
    };
    assert_eq!(found(9), ("create /main/u2-lock-; list /main".to_owned(), 1));
    assert_eq!(found(SESSION), ("list /main".to_owned(), 1), "the znode, and no doubt");
}

#[test]
fn a_create_that_was_not_carried_out_is_sent_anew() {
    let mut one = OneContender::of(&Lock::mutex());
    one.begin();
    one.told([lost(), lost()]);
    one.begin();
    assert_eq!(one.told([synced(), names(vec![other(3)])]), "create /main/u2-lock-; list /main");
    assert_eq!(one.contender.leftovers(), [Leftover::Doubt("u2-".to_owned())]);
}
