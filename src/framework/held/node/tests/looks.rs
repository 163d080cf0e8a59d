//! When the client's thread looks at holds, and what wakes it.

use super::*;
use crate::base::clock;

#[test]
fn short_holds_one_after_the_other_wake_nobody() {
    let rig = Rig::new(None);
    let node = rig.hold();
    assert!(rig.is_woken());
    rig.look_at(node.since);
    for _ in 0..10 {
        let node = rig.hold();
        node.released();
        rig.held.remove(&node);
    }
    assert!(!rig.is_woken());
    assert_eq!(rig.requests(), 0);
}

#[test]
fn holds_that_are_over_before_the_look_wake_somebody_once_in_a_while() {
    let rig = Rig::new(None);
    // Twice in vain, so no look is planned.
    rig.look_at(rig.begun);
    assert_eq!(rig.look_at(rig.begun), None);
    let mut woken = 0;
    for _ in 0..10 {
        let node = rig.hold();
        node.released();
        rig.held.remove(&node);
        if rig.is_woken() {
            woken += 1;
            rig.look_at(node.since);
        }
    }
    assert_eq!(woken, 1);
}

#[test]
fn a_hold_that_begins_during_a_look_needs_no_other_look_at_once() {
    let rig = Rig::new(None);
    let _watched = rig.watched();
    rig.look_at(rig.begun);
    for is_over in [false, true] {
        rig.is_woken();
        let (held, said) = (rig.held.clone(), rig.said.clone());
        let begins = move || {
            let node = held.add(ServerPath::from_server("/other"), said.clone(), 3, 1, None);
            if is_over {
                node.released();
                held.remove(&node);
            }
        };
        *rig.said.when_asked.lock() = Some(Box::new(begins));
        let begun = clock::now();
        // One by one these looks would come without a pause, if short holds do.
        let next = rig.look_at(begun).unwrap();
        assert!(rig.said.when_asked.lock().is_none());
        assert!(!rig.is_woken(), "over: {is_over}");
        assert!(next >= begun + WATCH_AFTER && next <= clock::now() + WATCH_AFTER);
    }
}

#[test]
fn a_look_that_panics_leaves_nobody_without_a_look() {
    let rig = Rig::new(None);
    let _watched = rig.watched();
    rig.look_at(rig.begun);
    for begins_meanwhile in [false, true] {
        let (held, said) = (rig.held.clone(), rig.said.clone());
        let panics = move || {
            if begins_meanwhile {
                held.add(ServerPath::from_server("/other"), said.clone(), 3, 1, None);
            }
            panic!("on purpose");
        };
        *rig.said.when_asked.lock() = Some(Box::new(panics));
        let look = || rig.held.look(clock::now());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err());
        assert_eq!(rig.is_woken(), begins_meanwhile);
        rig.hold();
        assert!(rig.is_woken());
    }
}

#[test]
fn a_watched_hold_that_nobody_listens_to_needs_no_look() {
    let rig = Rig::new(None);
    let node = rig.watched();
    // The look that asked for the watch has planned one more, for the short hold that may follow.
    assert_eq!(rig.look_at(node.since + 2 * WATCH_AFTER), None);
    assert_eq!(rig.requests(), 0);
    // The next hold finds that nothing is planned.
    rig.hold();
    assert!(rig.is_woken());
}

#[test]
fn who_listens_is_told_of_the_doubt_when_it_begins_watched_or_not() {
    for is_watched in [true, false] {
        let rig = Rig::new(None);
        let node = if is_watched { rig.watched() } else { rig.hold() };
        let at = node.since + WATCH_AFTER / 2;
        let doubtful = at + WATCH_AFTER / 4;
        *rig.said.valid_until.lock() = Some(doubtful);
        rig.is_woken();
        let states = node.channel();
        assert!(rig.is_woken());
        assert_eq!(rig.look_at(at), Some(doubtful), "watched: {is_watched}");
        assert_eq!(rig.look_at(doubtful), Some(doubtful + WATCH_AFTER));
        assert_eq!(states.try_iter().collect::<Vec<_>>(), [HoldState::InDoubt]);
        // The end of the doubt is found by looking.
        *rig.said.valid_until.lock() = Some(rig.begun + LONG);
        rig.look_at(doubtful + WATCH_AFTER);
        assert_eq!(states.try_iter().collect::<Vec<_>>(), [HoldState::Held]);
    }
}

#[test]
fn a_length_beyond_the_range_of_the_clock_is_a_long_one_at_least_and_none_at_most() {
    let rig = Rig::new(None);
    let node = rig.watched();
    assert_eq!(node.has_to_stay(), None, "nothing counts yet");
    node.limit(Some(Duration::MAX), Some(Duration::MAX), || ());
    assert!(node.has_to_stay().is_some_and(|rest| rest > Duration::from_secs(24 * 3600)));
    assert_eq!(node.valid_until(), rig.begun + LONG, "up to the session's end, and no sooner");
}

#[test]
fn a_long_hold_is_looked_at_when_its_warning_is_due_and_never_without_a_pause() {
    let limit = Duration::from_secs(3);
    let rig = Rig::new(Some(limit));
    let node = rig.watched();
    let at = node.since + 2 * WATCH_AFTER;
    assert_eq!(rig.look_at(at), Some(node.since + limit));
    assert_eq!(rig.look_at(node.since + limit), Some(node.since + 2 * limit));
    assert_eq!(rig.look_at(node.since + 2 * limit), Some(node.since + 4 * limit));

    let rig = Rig::new(Some(Duration::from_nanos(1)));
    let node = rig.watched();
    let mut at = node.since + 2 * WATCH_AFTER;
    for _ in 0..100 {
        let next = rig.look_at(at).unwrap();
        assert!(next >= at + WATCH_AFTER);
        at = next;
    }
}
