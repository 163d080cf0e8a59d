//! A directory that has one znode at most.

use curator_locks::{ErrorCode, unversioned::contender::Input};

use super::*;

const CREATE: &str = "at once: delete /main; create /main; create /main/u1-lock";
const TAKEN: ErrorCode = ErrorCode::NotEmpty;

/// The name of a holder's znode.
fn holder() -> Vec<String> {
    vec!["x-lock".to_owned()]
}

#[test]
fn a_holder_is_waited_for_unless_that_is_too_many() {
    let looked = |lock: Lock, most: Option<usize>| {
        let mut one = OneContender::of(&lock);
        (one.spec.looks_first, one.spec.max_ahead, one.spec.counts) = (true, most, most.is_some());
        assert_eq!(one.begin(), "list /main");
        one.told([names(holder())])
    };
    assert_eq!(looked(Lock::unfair(), Some(0)), "end: Busy(1)");
    assert_eq!(looked(Lock::unfair(), Some(1)), CREATE);
    assert_eq!(looked(Lock::unfair().trying(), None), "end: TimeUp");
    let mut one = OneContender::of(&Lock::unfair().trying());
    one.begin();
    assert_eq!(one.told([names(Vec::new())]), CREATE);
    assert_eq!(one.told([Err(refused(TAKEN))]), "end: TimeUp", "another one was faster");
}

#[test]
fn a_directory_that_is_taken_each_time_was_there() {
    let mut unfair = OneContender::of(&Lock::unfair());
    unfair.begin();
    for _ in 0..2 {
        assert_eq!(unfair.told([no_node()]), "makedirectory");
        assert_eq!(unfair.step(Input::DirectoryMade(Ok(()))), "connect");
        unfair.step(Input::Connected);
        assert_eq!(unfair.told([Err(refused(TAKEN))]), "list /main");
        assert_eq!(unfair.told([names(Vec::new())]), "connect", "it is empty by now");
        unfair.step(Input::Connected);
    }
}

#[test]
fn a_waiter_watches_the_holders_znode_and_a_change_of_its_data_is_no_end() {
    let mut one = OneContender::of(&Lock::unfair());
    one.begin();
    assert_eq!(one.told([Err(refused(TAKEN))]), "list /main");
    assert_eq!(one.told([names(holder())]), "read /main/x-lock and watch");
    assert_eq!(one.told([data(9)]), "sleep");
    assert!(one.contender.has_waited);
    assert_eq!(one.event(WatchId::Predecessor(1), EventType::NodeDataChanged), "list /main");
    one.told([names(holder())]);
    one.told([data(9)]);
    assert_eq!(one.event(WatchId::Predecessor(2), EventType::NodeDeleted), "connect");
}

#[test]
fn the_own_znode_is_found_after_a_lost_reply_and_no_other() {
    let searched = |found: Vec<String>| {
        let mut one = OneContender::of(&Lock::unfair());
        assert_eq!(one.begin(), CREATE);
        one.told([lost()]);
        assert_eq!(one.begin(), "sync; list /main");
        let next = one.told([synced(), names(found)]);
        (one, next)
    };
    let (mut one, next) = searched(vec!["u1-lock".to_owned()]);
    assert_eq!(next, "exists /main/u1-lock");
    assert_eq!(one.told([stands(7, SESSION)]), "hold");
    assert_eq!(one.step(Input::Woken), "end: Granted");
    let (one, next) = searched(holder());
    assert!(next.starts_with("at once: "), "the own create was not carried out: {next}");
    assert!(one.contender.nodes.is_empty());
}
