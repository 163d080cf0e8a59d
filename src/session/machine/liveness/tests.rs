//! The rules one by one, on a clock that the tests move.

use super::*;
use crate::base::clock;

const T: Duration = Duration::from_secs(12);

fn connected() -> (Liveness, Instant) {
    let start = clock::now();
    let mut liveness = Liveness::new(T, start);
    liveness.connected(T, Origin::Created(start), start + Duration::from_millis(5));
    (liveness, start)
}

fn after_margin(touched: Instant) -> Option<Instant> {
    Some(touched + T - T / 20)
}

#[test]
fn the_handshake_of_a_new_session_is_a_touch() {
    let (liveness, start) = connected();
    assert_eq!(liveness.valid_until(), after_margin(start));
}

#[test]
fn the_handshake_of_a_session_that_cannot_be_due_is_a_touch_once_a_majority_follows_the_leader() {
    let (mut liveness, start) = connected();
    let again = start + T / 2;
    liveness.disconnected();
    let answered = start + T - T / 20 - Duration::from_nanos(1);
    liveness.connected(T, Origin::Resumed(again), answered);
    assert_eq!(liveness.valid_until(), after_margin(start));
    assert_eq!(liveness.next_timer(), answered);
    assert!(liveness.take_heartbeat(answered) && liveness.needs_majority());
    // Its answer says that the handshake was one, however late it comes.
    let late = again + T - T / 20 - Duration::from_nanos(1);
    liveness.heartbeat_answered(answered, late, true);
    assert_eq!(liveness.valid_until(), after_margin(again));
    assert!(!liveness.needs_majority());
}

#[test]
fn in_doubt_a_handshake_proves_something_once_a_heartbeat_has_followed_it_half_a_timeout_later() {
    let late = Duration::from_nanos(1);
    for (pause, is_transaction, confirms) in [(T / 2, true, true), (T / 2, false, false), (T / 2 - late, true, false)] {
        let (mut liveness, start) = connected();
        let again = start + T - T / 20;
        liveness.disconnected();
        liveness.connected(T, Origin::Resumed(again), again);
        liveness.heartbeat_answered(again, again, is_transaction);
        assert_eq!(liveness.next_timer(), if is_transaction { again + T * 11 / 40 } else { again });
        liveness.heartbeat_answered(again + T / 4, again + T / 4, false);
        assert_eq!(liveness.valid_until(), after_margin(start));
        liveness.heartbeat_answered(again + pause, again + pause, false);
        let proved = if confirms { again + T / 4 } else { start };
        assert_eq!(liveness.valid_until(), after_margin(proved), "{pause:?}, {is_transaction}");
    }
}

/// It may have stood still, and have been left by the others meanwhile.
#[test]
fn what_a_leader_says_behind_a_silence_counts_with_the_next_transaction() {
    let late = Duration::from_nanos(1);
    for (silence, is_transaction, counts) in
        [(T * 2 / 5, false, true), (T * 2 / 5 + late, false, false), (T / 2, true, true)]
    {
        let (mut liveness, start) = connected();
        let sent = start + Duration::from_millis(5) + silence;
        liveness.received(sent);
        liveness.heartbeat_answered(sent, sent, is_transaction);
        assert_eq!(liveness.needs_majority(), !counts);
        assert_eq!(liveness.next_timer(), if counts { sent + T * 11 / 40 } else { sent });
        let second = sent + T / 4;
        liveness.heartbeat_answered(second, second, false);
        assert_eq!(liveness.valid_until(), after_margin(if counts { sent } else { start }));
        assert_eq!(liveness.needs_majority(), !counts);
        liveness.heartbeat_answered(second, second, true);
        assert_eq!(liveness.valid_until(), after_margin(sent));
        assert!(!liveness.needs_majority());
    }
}

#[test]
fn behind_a_silence_the_transaction_goes_out_once_however_many_answers_come_together() {
    let (mut liveness, start) = connected();
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(liveness.next_timer());
        assert!(liveness.take_heartbeat(liveness.next_timer()));
    }
    let again = start + T * 6 / 10;
    liveness.received(again);
    for sent in sent {
        liveness.heartbeat_answered(sent, again, false);
        assert_eq!((liveness.next_timer(), liveness.needs_majority()), (again, true));
    }
    assert!(liveness.take_heartbeat(again) && liveness.needs_majority());
    assert_eq!(liveness.next_timer(), again + T / 12);
    // One that is refused is sent again in its time.
    liveness.heartbeat_refused(again, again);
    assert_eq!((liveness.next_timer(), liveness.needs_majority()), (again + T * 11 / 40, true));
}

/// Until the second heartbeat came to the leader nobody can say that the first one's touch was in time.
#[test]
fn in_doubt_a_pair_proves_something_once_another_heartbeat_has_followed_it() {
    let due = T - T / 20;
    let late = Duration::from_nanos(1);
    for (pause, confirms) in [(T / 4, true), (T / 4 - late, false)] {
        let (mut liveness, start) = connected();
        let first = start + due - late;
        let second = start + due + T / 4;
        let third = second + pause;
        for sent in [first, second] {
            liveness.heartbeat_answered(sent, sent, true);
            assert_eq!(liveness.valid_until(), after_margin(start));
        }
        liveness.heartbeat_answered(third, third, true);
        let proved = if confirms { second } else { start };
        assert_eq!(liveness.valid_until(), after_margin(proved), "{pause:?}");
        // The last pair counts, however early the first one was.
        liveness.heartbeat_answered(third + T / 4, third + T / 4, true);
        assert_eq!(liveness.valid_until(), after_margin(third));
    }
    // A proof that has run out before it was confirmed is none, nor is it one for those after it.
    let (mut liveness, start) = connected();
    let sent = [due, due + T / 4, due * 2, due * 2 + T / 4, due * 2 + T / 2].map(|after| start + after);
    for (sent, proved) in sent.into_iter().zip([start, start, start, start, sent[3]]) {
        liveness.heartbeat_answered(sent, sent, true);
        assert_eq!(liveness.valid_until(), after_margin(proved));
    }
    // Nor is one confirmed over another connection.
    let (mut liveness, start) = connected();
    let again = start + due;
    for again in [again, again + T / 2] {
        liveness.disconnected();
        liveness.connected(T, Origin::Resumed(again), again);
        liveness.heartbeat_answered(again, again, true);
    }
    assert_eq!(liveness.valid_until(), after_margin(start));
}

/// Of a session whose age nobody knows.
#[test]
fn the_handshake_of_a_session_of_which_nothing_was_proved_counts_as_a_heartbeat() {
    let start = clock::now();
    let mut liveness = Liveness::new(T, start);
    liveness.connected(T, Origin::Resumed(start), start);
    assert_eq!(liveness.valid_until(), None);
    let confirmed = start + T / 2;
    liveness.heartbeat_answered(confirmed, confirmed, true);
    assert_eq!(liveness.valid_until(), after_margin(start));
}

#[test]
fn a_read_only_server_and_a_handshake_that_nobody_knows_prove_nothing() {
    let (mut liveness, start) = connected();
    liveness.disconnected();
    liveness.connected(2 * T, Origin::Unknown, start + T / 2);
    assert_eq!(liveness.valid_until(), after_margin(start));
    let mut never_seen_by_a_leader = Liveness::new(T, start);
    never_seen_by_a_leader.connected(T, Origin::Unknown, start);
    assert_eq!(never_seen_by_a_leader.valid_until(), None);
}

#[test]
fn the_timeout_of_the_last_handshake_counts_even_if_it_is_shorter() {
    for timeout in [T / 4, 2 * T] {
        let (mut liveness, start) = connected();
        let sent = start + Duration::from_secs(1);
        liveness.disconnected();
        liveness.connected(timeout, Origin::Resumed(sent), sent);
        let granted = Some(sent + timeout - timeout / 20);
        assert_eq!(liveness.valid_until(), granted.min(after_margin(start)));
        liveness.heartbeat_answered(sent, sent, true);
        assert_eq!(liveness.valid_until(), granted, "{timeout:?}");
    }
}

#[test]
fn one_prompt_heartbeat_alone_proves_nothing() {
    let (mut liveness, start) = connected();
    liveness.heartbeat_answered(start + T / 3, start + T / 3 + Duration::from_millis(1), true);
    assert_eq!(liveness.valid_until(), after_margin(start));
}

#[test]
fn a_prompt_heartbeat_followed_by_another_is_a_touch() {
    let (mut liveness, start) = connected();
    for k in 1..=3 {
        liveness.heartbeat_answered(start + k * T / 3, start + k * T / 3 + Duration::from_millis(1), true);
    }
    assert_eq!(liveness.valid_until(), after_margin(start + 2 * T / 3));
}

#[test]
fn two_heartbeats_close_together_prove_nothing() {
    let (mut liveness, start) = connected();
    let first = start + T / 3;
    liveness.heartbeat_answered(first, first, true);
    liveness.heartbeat_answered(first + T / 5, first + T / 5, true);
    assert_eq!(liveness.valid_until(), after_margin(start));
}

/// It may have reached the follower just before it was answered, and between that and the next one's send lie T/6,
/// less than half a tick where T is two ticks.
#[test]
fn a_heartbeat_answered_late_does_not_pair_with_the_next_one_but_with_the_one_after() {
    let (mut liveness, start) = connected();
    let moment = Duration::from_millis(1);
    liveness.heartbeat_answered(start + T / 3, start + T / 3 + T / 6, true);
    liveness.heartbeat_answered(start + T / 2 + T / 6, start + T / 2 + T / 6 + moment, true);
    assert_eq!(liveness.valid_until(), after_margin(start));
    let third = start + T / 2 + T / 4 + moment;
    liveness.heartbeat_answered(third, third + moment, true);
    assert_eq!(liveness.valid_until(), after_margin(start + T / 3));
}

#[test]
fn the_next_heartbeat_has_to_be_sent_a_quarter_of_the_timeout_after_the_answer() {
    let (mut liveness, start) = connected();
    let (sent, answered) = (start + T / 3, start + T / 3 + T / 12);
    liveness.heartbeat_answered(sent, answered, true);
    let next = answered + T / 4;
    liveness.heartbeat_answered(next - Duration::from_nanos(1), next, true);
    assert_eq!(liveness.valid_until(), after_margin(start));
    liveness.heartbeat_answered(next, next, true);
    assert_eq!(liveness.valid_until(), after_margin(sent));
}

#[test]
fn a_late_answer_proves_as_much_as_an_early_one() {
    for late in [T / 6, T / 3] {
        let (mut liveness, start) = connected();
        liveness.heartbeat_answered(start + T / 3, start + T / 3, true);
        liveness.heartbeat_answered(start + T * 7 / 12, start + T * 7 / 12 + late, true);
        assert_eq!(liveness.valid_until(), after_margin(start + T / 3));
    }
}

#[test]
fn heartbeats_of_two_connections_do_not_pair() {
    let (mut liveness, start) = connected();
    liveness.heartbeat_answered(start + T / 3, start + T / 3, true);
    liveness.disconnected();
    liveness.heartbeat_answered(start + 2 * T / 3, start + 2 * T / 3, true);
    assert_eq!(liveness.valid_until(), after_margin(start));
}

#[test]
fn the_connection_is_dead_after_two_thirds_of_silence() {
    let (mut liveness, start) = connected();
    let received = start + Duration::from_secs(1);
    liveness.received(received);
    assert_eq!(liveness.why_dead(received + T * 2 / 3 - Duration::from_millis(1)), None);
    assert!(liveness.why_dead(received + T * 2 / 3).is_some());
}

#[test]
fn a_heartbeat_without_an_answer_for_the_session_timeout_is_the_end_whatever_else_comes() {
    let (mut liveness, _) = connected();
    let sent = liveness.next_timer();
    assert!(liveness.take_heartbeat(sent));
    let mut now = sent;
    while now + T / 12 < sent + T {
        now += T / 12;
        liveness.received(now);
        assert!(liveness.take_heartbeat(now));
        assert_eq!(liveness.why_dead(now), None);
    }
    assert_eq!(liveness.dead_at(), sent + T);
    assert_eq!(liveness.why_dead(sent + T), Some("a heartbeat was not answered within the session timeout"));
    // An answer that says nothing of the session is one, too.
    liveness.heartbeat_refused(sent, now);
    assert_eq!(liveness.dead_at(), sent + T / 12 + T);
}

#[test]
fn heartbeats_come_a_quarter_of_the_timeout_after_a_prompt_answer() {
    let (mut liveness, start) = connected();
    let connected = start + Duration::from_millis(5);
    for since in [connected, connected + T / 3] {
        let due = since + T * 11 / 40;
        assert_eq!(liveness.next_timer(), due);
        assert!(!liveness.take_heartbeat(due - Duration::from_millis(1)));
        assert!(liveness.take_heartbeat(due));
        assert!(!liveness.take_heartbeat(due));
        liveness.received(connected + T / 3);
        liveness.heartbeat_answered(due, connected + T / 3, true);
    }
}

#[test]
fn heartbeats_overlap_where_the_answer_takes_longer_than_a_twelfth() {
    let (mut liveness, start) = connected();
    let first = liveness.next_timer();
    assert!(liveness.take_heartbeat(first));
    // Nobody knows yet how slow the link is.
    assert_eq!(liveness.next_timer(), first + T / 12);
    assert!(liveness.take_heartbeat(first + T / 12));
    let answered = first + T / 12 + T / 80;
    liveness.received(answered);
    liveness.heartbeat_answered(first, answered, true);
    for later in 1..20 {
        let due = first + T / 12 + later * T / 40;
        assert_eq!(liveness.next_timer(), due);
        assert!(liveness.take_heartbeat(due));
    }
    // The link is quick again.
    let quick = liveness.unanswered.back().copied().unwrap_or(start);
    liveness.received(quick);
    liveness.heartbeat_answered(quick, quick + T / 100, true);
    assert_eq!(liveness.next_timer(), quick + T / 100 + T * 11 / 40);
}

#[test]
fn a_connection_that_takes_one_request_at_a_time_waits_for_each_answer() {
    let start = clock::now();
    let mut liveness = Liveness::one_at_a_time(T, start);
    liveness.connected(T, Origin::Created(start), start + T / 8);
    let sent = liveness.next_timer();
    assert_eq!(sent, start + T / 8 + T * 11 / 40);
    assert!(liveness.take_heartbeat(sent));
    assert_eq!(liveness.next_timer(), liveness.dead_at());
    liveness.received(sent + T / 8);
    liveness.heartbeat_answered(sent, sent + T / 8, true);
    assert_eq!(liveness.next_timer(), sent + T / 8 + T * 11 / 40);
}

/// Over a link with this round trip: how much of a session is certain at least, from its third T on, and for how long it is in
/// doubt before that.
fn certainty(mut liveness: Liveness, begin: Instant, round_trip: Duration) -> (Duration, Duration) {
    let (mut answers, mut transactions) = (VecDeque::new(), VecDeque::new());
    liveness.connected(T, Origin::Created(begin), begin + round_trip);
    let (mut least, mut doubt) = (T, Duration::ZERO);
    loop {
        let timer = liveness.next_timer().max(begin + round_trip);
        let answer = answers.front().map(|sent: &Instant| *sent + round_trip).filter(|answer| *answer <= timer);
        let now = answer.unwrap_or(timer);
        if now > begin + 20 * T {
            return (least, doubt);
        }
        assert_eq!(liveness.why_dead(now), None);
        if answer.is_none() {
            assert!(liveness.take_heartbeat(now));
            answers.push_back(now);
            transactions.push_back(liveness.needs_majority());
            continue;
        }
        let before = liveness.valid_until();
        liveness.received(now);
        if let (Some(sent), Some(is_transaction)) = (answers.pop_front(), transactions.pop_front()) {
            // Nobody is silent.
            assert!(!is_transaction || !liveness.overlaps, "{round_trip:?}, {:?}", now - begin);
            liveness.heartbeat_answered(sent, now, is_transaction || !liveness.overlaps);
        }
        let until = before.unwrap_or(begin);
        if now >= begin + 3 * T {
            least = least.min(until.saturating_duration_since(now));
        } else if liveness.valid_until() > before {
            doubt += now.saturating_duration_since(until);
        }
    }
}

fn hundredths(part: Duration) -> String {
    format!("{}.{:02} T", part.as_nanos() / T.as_nanos(), part.as_nanos() * 100 / T.as_nanos() % 100)
}

/// The table in `docs/guarantees.md` is computed here.
#[test]
fn a_session_stays_certain_over_a_slow_link_for_as_long_as_the_docs_say() {
    let (begin, mut table) = (clock::now(), String::new());
    for upper in [0, 5, 8, 10, 15, 20, 25, 30] {
        // Not only where the intervals fit into each other.
        let round_trips = (0..16_u32).map(|less| T * (upper * 10_u32).saturating_sub(less) / 1000);
        let certain = round_trips.map(|round_trip| certainty(Liveness::new(T, begin), begin, round_trip));
        let (mut least, mut doubt) = (T, Duration::ZERO);
        for (one, for_now) in certain {
            (least, doubt) = (least.min(one), doubt.max(for_now));
        }
        let round_trip = T * upper / 100;
        let bound = if round_trip <= T / 12 { T * 40 / 100 - 3 * round_trip } else { T * 65 / 100 - 2 * round_trip };
        let is_so = least >= bound.saturating_sub(T / 100);
        assert!(is_so && least > Duration::ZERO, "{round_trip:?}: {least:?} of {bound:?}");
        let doubt = if doubt.is_zero() { "no".to_owned() } else { hundredths(doubt) };
        table += &format!("| {} | {} | {doubt} |\n", hundredths(round_trip), hundredths(least));
    }
    assert!(include_str!("../../../docs/guarantees.md").contains(&table), "the docs say otherwise:\n{table}");
    assert!(certainty(Liveness::new(T, begin), begin, T * 34 / 100).0.is_zero());
    // A handle of the package takes one request at a time.
    let slowest = T * 13 / 100;
    assert!(certainty(Liveness::one_at_a_time(T, begin), begin, slowest).0 > Duration::ZERO);
}
