//! When a create needs no list.

use curator_locks::unversioned::contender::{Over, Plan, Unlisted};

const OVER: Over = Over { session: 10, connection: 1 };

fn name(number: u32) -> String {
    format!("_c_x-lock-{number:010}")
}

/// From the registration to the confirmed delete.
fn hold(unlisted: &mut Unlisted<char>, number: u32) {
    assert_eq!(unlisted.stands_alone(&name(number)), None);
    unlisted.leaves(&name(number));
    unlisted.left(&name(number));
}

/// After a hold with number 0, and one with number 1 that asked for the watch.
fn watched() -> Unlisted<char> {
    let mut unlisted = Unlisted::default();
    assert_eq!(unlisted.plan(OVER), Plan::List);
    hold(&mut unlisted, 0);
    assert_eq!(unlisted.plan(OVER), Plan::ListAndGuard(1));
    assert_eq!(unlisted.guarded(1, 'w'), None);
    unlisted
}

fn follows(unlisted: &Unlisted<char>) -> bool {
    unlisted.proves_alone(&name(2), 1, OVER)
}

#[test]
fn the_number_after_a_confirmed_delete_under_the_watch_is_alone() {
    let mut unlisted = watched();
    hold(&mut unlisted, 1);
    assert_eq!(unlisted.plan(OVER), Plan::Follows(1));
    assert!(follows(&unlisted));
    assert!(!unlisted.proves_alone(&name(3), 1, OVER), "somebody has come in between");
    assert!(!unlisted.proves_alone(&name(1), 1, OVER), "in a directory that was made anew");
    assert_eq!(unlisted.plan(OVER), Plan::List, "one create goes by its number");
    // Another thread, whose create went out first, has listed the directory and given the lock back.
    hold(&mut unlisted, 2);
    assert!(!unlisted.proves_alone(&name(3), 1, OVER), "it stood while another one held the lock");
    assert!(!follows(&unlisted));
}

#[test]
fn a_znode_that_still_stands_is_followed_by_nobody() {
    let mut unlisted = watched();
    assert_eq!(unlisted.stands_alone(&name(1)), None);
    assert_eq!(unlisted.plan(OVER), Plan::List);
    unlisted.leaves(&name(1));
    assert!(!follows(&unlisted), "the delete may yet be refused");
    assert_eq!(unlisted.plan(OVER), Plan::Follows(1), "its reply comes before that of the create");
    unlisted.left(&name(7));
    assert!(!follows(&unlisted), "that was another one");
    unlisted.left(&name(1));
    assert!(follows(&unlisted));
    let mut first = Unlisted::<char>::default();
    assert_eq!(first.stands_alone(&name(0)), None);
    assert_eq!(first.plan(OVER), Plan::List);
    first.leaves(&name(0));
    assert_eq!(first.plan(OVER), Plan::ListAndGuard(1), "the first create after the delete is the one that may follow");
}

#[test]
fn a_watch_that_was_not_there_before_the_delete_was_sent_proves_nothing() {
    let mut unlisted = Unlisted::default();
    hold(&mut unlisted, 0);
    assert_eq!(unlisted.plan(OVER), Plan::ListAndGuard(1));
    assert_eq!(unlisted.stands_alone(&name(1)), None);
    unlisted.leaves(&name(1));
    assert_eq!(unlisted.guarded(1, 'w'), None);
    unlisted.left(&name(1));
    unlisted.leaves(&name(1));
    unlisted.left(&name(1));
    assert!(!follows(&unlisted), "nor where the delete is sent once more");
    assert_eq!(unlisted.plan(OVER), Plan::List);
}

#[test]
fn a_watch_over_another_connection_proves_nothing() {
    for other in [Over { connection: 2, ..OVER }, Over { session: 11, ..OVER }] {
        let mut unlisted = watched();
        hold(&mut unlisted, 1);
        assert!(!unlisted.proves_alone(&name(2), 1, other));
        assert_eq!(unlisted.plan(other), Plan::List);
    }
}

#[test]
fn a_watch_that_has_fired_proves_nothing_and_another_ones_event_says_nothing() {
    let mut unlisted = watched();
    hold(&mut unlisted, 1);
    assert_eq!(unlisted.fired(7), None);
    assert!(follows(&unlisted));
    assert_eq!(unlisted.fired(1), Some('w'));
    assert!(!follows(&unlisted));
    assert_eq!(unlisted.plan(OVER), Plan::ListAndGuard(2));
    assert_eq!(unlisted.guarded(1, 'o'), Some('o'), "it came too late");
    assert_eq!(unlisted.guarded(2, 'n'), None);
    assert!(!follows(&unlisted), "the delete was under the first watch");
}

#[test]
fn a_watch_that_never_came_is_asked_for_again() {
    let mut unlisted = Unlisted::default();
    hold(&mut unlisted, 0);
    assert_eq!(unlisted.plan(OVER), Plan::ListAndGuard(1));
    hold(&mut unlisted, 1);
    assert_eq!(unlisted.plan(OVER), Plan::ListAndGuard(2));
}

#[test]
fn where_somebody_has_come_in_between_many_have_to_follow_each_other_again() {
    let mut unlisted = watched();
    hold(&mut unlisted, 1);
    assert_eq!(unlisted.stands_alone(&name(5)), Some('w'), "the watch would be of no use for long");
    for number in 5..12 {
        assert_eq!(unlisted.plan(OVER), Plan::List, "{number}");
        hold(&mut unlisted, number);
    }
    unlisted.leaves(&name(11));
    assert_eq!(unlisted.plan(OVER), Plan::List);
    hold(&mut unlisted, 12);
    assert_eq!(unlisted.plan(OVER), Plan::ListAndGuard(2));
    assert_eq!(unlisted.guarded(2, 'n'), None);
    hold(&mut unlisted, 13);
    assert_eq!(unlisted.plan(OVER), Plan::Follows(13));
}
