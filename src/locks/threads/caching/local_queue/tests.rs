//! The turns alone, on a clock that the test says.
#![allow(clippy::panic)]

use super::*;
use crate::base::clock;

/// A tenure of a writer, which has its turn.
fn writing(local_queue: &mut LocalQueue, now: Instant) -> (u64, u64) {
    assert_eq!(local_queue.enter(1, Mode::Exclusive, false).0, Turn::Queue);
    let Some((Turn::Hold { tenure, grant }, ..)) = local_queue.granted(1, true, now) else { panic!("not granted") };
    (tenure, grant)
}

/// A tenure of readers, all of whom have a turn.
fn sharing(local_queue: &mut LocalQueue, readers: &[u64]) -> u64 {
    let (first, others) = readers.split_first().unwrap_or_else(|| panic!("no reader"));
    assert_eq!(local_queue.enter(*first, Mode::Shared, false), (Turn::Queue, Next::default()));
    let Some((Turn::Hold { tenure, .. }, number, next)) = local_queue.granted(*first, true, clock::now()) else {
        panic!("not granted")
    };
    assert_eq!((number, next), (tenure, Next { look: Some(tenure), ..Next::default() }));
    for reader in others {
        assert!(shares(local_queue, *reader, tenure));
    }
    tenure
}

fn shares(local_queue: &mut LocalQueue, reader: u64, number: u64) -> bool {
    let (turn, next) = local_queue.enter(reader, Mode::Shared, false);
    matches!(turn, Turn::Hold { tenure, .. } if tenure == number) && next == Next::default()
}

fn releases(local_queue: &mut LocalQueue, tenure: u64, grant: u64) -> Next {
    local_queue.release(tenure, grant, &Caching::new(), clock::now())
}

fn comes(local_queue: &mut LocalQueue, who: u64, mode: Mode) -> Turn {
    local_queue.enter(who, mode, false).0
}

fn hold(tenure: u64, grant: u64) -> Turn {
    Turn::Hold { tenure, grant }
}

#[test]
fn writers_that_come_again_go_before_those_that_came_later() {
    let (mut local_queue, now) = (LocalQueue::default(), clock::now());
    let (before, grant) = writing(&mut local_queue, now);
    for who in [2, 3] {
        assert_eq!(comes(&mut local_queue, who, Mode::Exclusive), Turn::Wait);
    }
    assert_eq!(local_queue.gone(before).wake, [(2, Turn::Queue)]);
    let (turn, next) = local_queue.enter_again(1, Mode::Exclusive, (before, grant), false);
    assert_eq!((turn, next), (Turn::Wait, Next::releasing(Some(before))));
    let Some((Turn::Wait, tenure, next)) = local_queue.granted(2, true, now) else {
        panic!("it overtakes the first one")
    };
    assert_eq!(next.wake, [(1, hold(tenure, 2))]);
    assert!(hold(tenure, 1).is_first() && !hold(tenure, 2).is_first(), "its contender has seen nothing");
    assert_eq!(releases(&mut local_queue, tenure, 2).wake, [(2, hold(tenure, 3))]);
    assert_eq!(releases(&mut local_queue, tenure, 3).wake, [(3, hold(tenure, 4))]);
}

#[test]
fn readers_that_come_again_keep_their_order_and_share_the_next_znode_up_to_the_first_writer() {
    let (mut local_queue, now) = (LocalQueue::default(), clock::now());
    let before = sharing(&mut local_queue, &[1, 2]);
    assert_eq!(comes(&mut local_queue, 3, Mode::Exclusive), Turn::Queue);
    assert_eq!(comes(&mut local_queue, 4, Mode::Exclusive), Turn::Wait);
    let again = |local_queue: &mut LocalQueue, who| local_queue.enter_again(who, Mode::Shared, (before, who), false);
    assert_eq!(again(&mut local_queue, 1), (Turn::Wait, Next::default()));
    assert_eq!(again(&mut local_queue, 2), (Turn::Wait, Next::releasing(Some(before))));
    let Some((Turn::Hold { tenure, grant: 1 }, ..)) = local_queue.granted(3, true, now) else { panic!("no turn") };
    // Another kind of znode, and nobody else waits for it.
    assert_eq!(
        releases(&mut local_queue, tenure, 1),
        Next { wake: vec![(1, Turn::Queue)], ..Next::releasing(Some(tenure)) }
    );
    let Some((Turn::Hold { tenure, grant: 1 }, _, next)) = local_queue.granted(1, true, now) else { panic!("no turn") };
    assert_eq!(next.wake, [(2, hold(tenure, 2)), (4, Turn::Queue)]);
}

#[test]
fn who_comes_again_to_an_idle_znode_of_the_other_kind_has_both_znodes_given_back() {
    let (mut local_queue, now) = (LocalQueue::default(), clock::now());
    let (before, grant) = writing(&mut local_queue, now);
    assert_eq!(local_queue.gone(before), Next::default());
    let idle = sharing(&mut local_queue, &[2]);
    assert!(releases(&mut local_queue, idle, 1).releases.is_empty());
    let (turn, next) = local_queue.enter_again(1, Mode::Exclusive, (before, grant), false);
    assert_eq!((turn, next.releases), (Turn::Queue, vec![before, idle]));
}

#[test]
fn only_the_thread_that_queues_at_the_servers_is_granted_the_znode_or_passes_its_place_on() {
    let (mut local_queue, now) = (LocalQueue::default(), clock::now());
    let (before, grant) = writing(&mut local_queue, now);
    for who in [2, 3, 4] {
        assert_eq!(comes(&mut local_queue, who, Mode::Exclusive), Turn::Wait);
    }
    assert_eq!(local_queue.ends_with_turn(before), Next::default());
    assert_eq!(releases(&mut local_queue, before, grant).wake, [(2, Turn::Queue)]);
    for other in [1, 3] {
        assert_eq!((local_queue.created(other), local_queue.hand_over(other)), (Next::default(), None));
        assert_eq!(local_queue.granted(other, true, now), None);
    }
    assert_eq!(local_queue.hand_over(2).map(|next| next.wake), Some(vec![(3, Turn::Queue)]));
    // Nobody has said that a create is on its way.
    let Some((turn, tenure, next)) = local_queue.granted(3, true, now) else { panic!("not granted") };
    assert_eq!((turn, next.releases), (hold(tenure, 1), vec![before]));
}

/// Its znode goes behind the next create where that keeps a place in the queue.
#[test]
fn a_reader_behind_a_writer_of_its_process_loses_no_place_to_others_who_wait() {
    for others_wait in [false, true] {
        let (mut local_queue, now) = (LocalQueue::default(), clock::now());
        let (tenure, grant) = writing(&mut local_queue, now);
        assert_eq!(comes(&mut local_queue, 2, Mode::Shared), Turn::Wait);
        if others_wait {
            assert_eq!(local_queue.rivals_came(tenure, now), Next::default());
        }
        let next = releases(&mut local_queue, tenure, grant);
        assert_eq!((next.wake, next.releases.len()), (vec![(2, Turn::Queue)], usize::from(!others_wait)));
        assert_eq!(local_queue.created(2).releases.len(), usize::from(others_wait));
    }
}

/// An idle lock goes without a look, but for one of readers: those who come may be readers too.
#[test]
fn there_is_time_to_look_who_came_while_the_lock_is_in_use_or_shared() {
    let mut local_queue = LocalQueue::default();
    let (tenure, grant) = writing(&mut local_queue, clock::now());
    assert!(local_queue.looks_for_rivals(tenure) && !local_queue.looks_for_rivals(tenure + 1));
    assert!(local_queue.mode_without_rivals(tenure).is_some() && local_queue.mode_without_rivals(tenure + 1).is_none());
    assert!(releases(&mut local_queue, tenure, grant).tick.is_some() && !local_queue.looks_for_rivals(tenure));
    assert_eq!(comes(&mut local_queue, 2, Mode::Exclusive), hold(tenure, 2));
    let late = clock::now() + Duration::from_secs(60);
    assert_eq!(local_queue.tick(&Caching::new(), late), Next::default(), "a release looks");
    assert!(local_queue.mode_without_rivals(tenure).is_some(), "it is in use");
    assert_eq!(local_queue.rivals_came(tenure, clock::now()), Next::default());
    assert!(
        !local_queue.looks_for_rivals(tenure) && local_queue.mode_without_rivals(tenure).is_none(),
        "they are known"
    );

    let mut local_queue = LocalQueue::default();
    let tenure = sharing(&mut local_queue, &[1]);
    assert!(releases(&mut local_queue, tenure, 1).tick.is_some() && local_queue.looks_for_rivals(tenure));
}

#[test]
fn a_tick_that_is_to_come_is_the_only_one() {
    let (limits, begin) = (Caching::new(), clock::now());
    let mut local_queue = LocalQueue::default();
    let (tenure, grant) = writing(&mut local_queue, begin);
    let first = local_queue.release(tenure, grant, &limits, begin).tick;
    let second = first.and_then(|at| local_queue.tick(&limits, at).tick);
    assert!(second > first);
    assert_eq!(comes(&mut local_queue, 2, Mode::Exclusive), hold(tenure, 2));
    assert_eq!(releases(&mut local_queue, tenure, 2).tick, None);
}

#[test]
fn a_turn_that_is_given_back_twice_ends_nobody_elses() {
    let mut local_queue = LocalQueue::default();
    let tenure = sharing(&mut local_queue, &[1, 2]);
    for _ in 0..2 {
        assert_eq!(releases(&mut local_queue, tenure, 1), Next::default());
    }
    assert_eq!(
        (local_queue.inside(tenure), local_queue.enter(3, Mode::Exclusive, false)),
        (1, (Turn::Queue, Next::default()))
    );
}

#[test]
fn whoever_has_a_turn_or_waits_is_in_front_of_those_who_cannot_share_it() {
    let mut local_queue = LocalQueue::default();
    let ahead = |local_queue: &LocalQueue| [Mode::Exclusive, Mode::Shared].map(|mode| local_queue.ahead(mode));
    assert_eq!(ahead(&local_queue), [0, 0]);
    let tenure = sharing(&mut local_queue, &[1]);
    assert_eq!(ahead(&local_queue), [1, 0]);
    assert!(releases(&mut local_queue, tenure, 1).releases.is_empty());
    assert_eq!(ahead(&local_queue), [0, 0], "it is idle");
    assert_eq!(comes(&mut local_queue, 2, Mode::Exclusive), Turn::Queue);
    assert_eq!(comes(&mut local_queue, 3, Mode::Shared), Turn::Wait);
    assert_eq!(ahead(&local_queue), [2, 2]);
}

/// Also where those are told of twice.
#[test]
fn the_limits_count_from_when_others_are_known_to_wait() {
    let (begin, long) = (clock::now(), Duration::from_secs(60));
    for limits in [Caching::new().max_grants(2).max_tenure(long), Caching::new().max_tenure(Duration::from_secs(2))] {
        let mut local_queue = LocalQueue::default();
        let (tenure, _) = writing(&mut local_queue, begin);
        for who in 2..6 {
            assert_eq!(comes(&mut local_queue, who, Mode::Exclusive), Turn::Wait);
        }
        let turn = (1..5).find(|grant| {
            let at = begin + Duration::from_secs(*grant);
            assert_eq!(local_queue.rivals_came(tenure, at), Next::default());
            let wake = local_queue.release(tenure, *grant, &limits, at + Duration::from_millis(999)).wake;
            wake == [(grant + 1, Turn::Queue)]
        });
        assert_eq!(turn, Some(3));
    }
}

#[test]
fn a_lock_that_nobody_here_wants_goes_at_once_where_others_wait_or_it_is_not_to_be_idle() {
    for (others_wait, limits) in [(true, Caching::new()), (false, Caching::new().keep_idle(Duration::ZERO))] {
        let (mut local_queue, now) = (LocalQueue::default(), clock::now());
        let (tenure, grant) = writing(&mut local_queue, now);
        if others_wait {
            assert_eq!(local_queue.rivals_came(tenure, now), Next::default());
        }
        assert_eq!(local_queue.release(tenure, grant, &limits, now), Next::releasing(Some(tenure)));
    }
}

/// What happens to its znode is told too late.
#[test]
fn a_tenure_that_may_not_last_ends_with_its_first_turn_and_nobody_shares_it() {
    let (mut local_queue, now) = (LocalQueue::default(), clock::now());
    for (who, mode) in [(1, Mode::Exclusive), (3, Mode::Shared)] {
        assert_eq!(comes(&mut local_queue, who, mode), Turn::Queue);
        assert_eq!(comes(&mut local_queue, who + 1, mode), Turn::Wait);
        let Some((turn, tenure, next)) = local_queue.granted(who, false, now) else { panic!("not granted") };
        assert_eq!((turn, next.look), (hold(tenure, 1), None));
        // The next reader has to queue at once.
        let wake = if mode == Mode::Shared { next.wake } else { releases(&mut local_queue, tenure, 1).wake };
        assert_eq!(wake, [(who + 1, Turn::Queue)]);
        assert_eq!(
            local_queue.leave(who + 1),
            Next { wake: Vec::new(), ..Next::releasing((who == 1).then_some(tenure)) }
        );
        assert_eq!(releases(&mut local_queue, tenure, 1), Next::releasing((who == 3).then_some(tenure)));
    }
}

#[test]
fn a_tenure_in_use_is_looked_at_again_after_max_tenure_and_one_that_nobody_can_see_ends_with_its_turn() {
    let (limits, begin) = (Caching::new().max_tenure(Duration::from_millis(70)), clock::now());
    let after = |ms| begin + Duration::from_millis(ms);
    let mut local_queue = LocalQueue::default();
    let (tenure, mut grant) = writing(&mut local_queue, begin);
    // One thread after the other, and always one behind it.
    let mut pass_on = |local_queue: &mut LocalQueue, who, ms| {
        assert_eq!(local_queue.enter(who, Mode::Exclusive, false).0, Turn::Wait);
        let next = local_queue.release(tenure, grant, &limits, after(ms));
        grant += 1;
        next
    };
    for (who, ms, is_due) in [(2, 69, false), (3, 70, true), (4, 139, false), (5, 500, true), (6, 501, false)] {
        let next = pass_on(&mut local_queue, who, ms);
        assert_eq!(next.wake, [(who, Turn::Hold { tenure, grant: who })]);
        assert_eq!(next.look, is_due.then_some(tenure), "after {ms} ms");
    }
    assert_eq!(local_queue.ends_with_turn(tenure), Next::default());
    assert_eq!(pass_on(&mut local_queue, 7, 502).wake, [(7, Turn::Queue)]);
}

#[test]
fn an_idle_tenure_is_looked_at_as_long_as_it_lasts_and_one_that_nobody_can_see_ends_at_once() {
    let (limits, begin) = (Caching::new().keep_idle(Duration::from_secs(60)), clock::now());
    let mut local_queue = LocalQueue::default();
    let (tenure, grant) = writing(&mut local_queue, begin);
    let mut tick = local_queue.release(tenure, grant, &limits, begin).tick;
    let mut looks = Vec::new();
    for _ in 0..10 {
        let Some(at) = tick else { break };
        let next = local_queue.tick(&limits, at);
        looks.extend(next.look.map(|_| at.duration_since(begin).as_secs()));
        tick = next.tick;
    }
    assert_eq!(looks, [1, 2, 4, 8, 16, 26, 36, 46, 56]);
    assert_eq!(local_queue, LocalQueue { tenures: 1, ..LocalQueue::default() });

    let mut local_queue = LocalQueue::default();
    let (tenure, grant) = writing(&mut local_queue, begin);
    assert!(local_queue.release(tenure, grant, &limits, begin).tick.is_some());
    assert_eq!(local_queue.ends_with_turn(tenure), Next::releasing(Some(tenure)));
}

#[test]
fn a_tenure_of_readers_who_overlap_is_looked_at_and_nobody_comes_in_if_nobody_can_see_who_waits() {
    let (limits, begin) = (Caching::new(), clock::now());
    let mut local_queue = LocalQueue::default();
    let tenure = sharing(&mut local_queue, &[1, 2, 3]);
    let late = begin + Duration::from_secs(1);
    // As others still read it is not idle.
    assert_eq!(local_queue.release(tenure, 1, &limits, late), Next { look: Some(tenure), ..Next::default() });
    assert_eq!(local_queue.release(tenure, 2, &limits, late), Next::default());
    assert_eq!(local_queue.ends_with_turn(tenure), Next::default());
    assert_eq!(local_queue.enter(4, Mode::Shared, false).0, Turn::Queue);
}

/// Its turn was in a tenure whose znode is gone. Meanwhile others read.
#[test]
fn who_only_tries_to_write_and_comes_again_ends_no_tenure_of_readers() {
    for only_tries in [true, false] {
        let mut local_queue = LocalQueue::default();
        assert_eq!(local_queue.enter(1, Mode::Exclusive, only_tries).0, Turn::Queue);
        let Some((Turn::Hold { tenure, grant }, ..)) = local_queue.granted(1, true, clock::now()) else {
            panic!("not granted")
        };
        assert_eq!(local_queue.gone(tenure), Next::default());
        let now = sharing(&mut local_queue, &[2, 3]);
        let (turn, next) = local_queue.enter_again(1, Mode::Exclusive, (tenure, grant), only_tries);
        assert_eq!(next, Next::releasing(Some(tenure)));
        assert_eq!(turn, if only_tries { Turn::No } else { Turn::Queue });
        assert_eq!(shares(&mut local_queue, 4, now), only_tries);
    }
}

/// It finds the znode gone that others read by.
#[test]
fn a_reader_that_only_tries_and_comes_again_takes_no_znode_from_the_others_and_keeps_nobody_out() {
    let mut local_queue = LocalQueue::default();
    let number = sharing(&mut local_queue, &[1, 2]);
    assert_eq!(local_queue.enter(3, Mode::Shared, true).0, Turn::Hold { tenure: number, grant: 3 });
    assert_eq!(local_queue.enter_again(3, Mode::Shared, (number, 3), true), (Turn::Queue, Next::default()));
    // Who comes meanwhile waits for what it finds at the servers.
    assert_eq!(local_queue.enter(4, Mode::Shared, false), (Turn::Wait, Next::default()));
    // It finds nothing.
    assert_eq!(local_queue.leave(3).wake, [(4, Turn::Queue)]);
    let Some((Turn::Hold { tenure, .. }, _, next)) = local_queue.granted(4, true, clock::now()) else {
        panic!("not granted")
    };
    assert!(next.releases.is_empty() && shares(&mut local_queue, 5, tenure));
    // The znode of before goes with the last who has a turn in it.
    assert_eq!(releases(&mut local_queue, number, 1), Next::default());
    assert_eq!(releases(&mut local_queue, number, 2), Next::releasing(Some(number)));
}

/// Where processes take turns, each short time between is a tenure's last: a tick for each would be thousands at a time.
#[test]
fn one_tick_is_to_come_however_many_tenures_are_idle_one_after_the_other() {
    let (limits, now) = (Caching::new(), clock::now());
    let mut local_queue = LocalQueue::default();
    let mut ticks = 0;
    for who in 1..=100 {
        assert_eq!(local_queue.enter(who, Mode::Exclusive, false).0, Turn::Queue);
        let Some((Turn::Hold { tenure, grant }, ..)) = local_queue.granted(who, true, now) else { panic!("no turn") };
        ticks += usize::from(local_queue.release(tenure, grant, &limits, now).tick.is_some());
        assert_eq!(local_queue.rivals_came(tenure, now).releases, [tenure]);
    }
    assert_eq!(ticks, 1);
    // None of them is idle any more, so the next one needs a tick again.
    assert_eq!(local_queue.tick(&limits, now), Next::default());
    let (_, next) = local_queue.enter(101, Mode::Exclusive, false);
    assert_eq!(next, Next::default());
    let Some((Turn::Hold { tenure, grant }, ..)) = local_queue.granted(101, true, now) else { panic!("no turn") };
    assert!(local_queue.release(tenure, grant, &limits, now).tick.is_some());
}

#[test]
fn an_idle_lock_is_asked_about_within_ten_seconds_however_long_a_tenure_may_be() {
    let limits = Caching::new().max_tenure(Duration::from_secs(120)).keep_idle(Duration::from_secs(600));
    let (mut local_queue, now) = (LocalQueue::default(), clock::now());
    let (tenure, grant) = writing(&mut local_queue, now);
    let mut tick = local_queue.release(tenure, grant, &limits, now).tick;
    let mut asked = vec![now];
    while let Some(at) = tick.filter(|at| *at <= now + Duration::from_secs(100)) {
        let next = local_queue.tick(&limits, at);
        asked.extend(next.look.map(|_| at));
        tick = next.tick;
    }
    assert!(
        asked.len() > 8
            && asked.iter().zip(asked.iter().skip(1)).all(|(last, next)| *next - *last <= LONGEST_IDLE_LOOK),
        "{asked:?}"
    );
}
