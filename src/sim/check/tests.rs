//! Histories that break a promise, each of which its checker has to find, and the same without the fault.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Verdict,
    history::{Actor, Call, Claim, Ending, Excuse, History, Limit, Promise, Share, Term, Word, Write},
};

const T: Duration = Duration::from_secs(4);

fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn actor(process: usize) -> Actor {
    Actor { process, thread: 0 }
}

/// Promised until `until` from the start on, and given back at `ended`.
fn claim(process: usize, token: i64, begun: f64, until: f64, ended: Option<f64>) -> Claim {
    Claim {
        place: 0,
        by: actor(process),
        share: Share::Alone,
        znode: format!("/l/lock-{token:010}"),
        session: 7,
        token: (token, 0),
        begun: s(begun),
        promises: vec![Promise { at: s(begun), until: s(until), timeout: s(6.0) }],
        ended: ended.map(s),
        needs_quorum: false,
        writer: None,
        valid_for: Duration::ZERO,
        stays: Duration::ZERO,
        told: Vec::new(),
        listens: false,
        heard: None,
        is_left: false,
    }
}

/// Ended from outside while other things were wrong.
fn hard(at: f64) -> Ending {
    Ending { at: s(at), is_calm: false }
}

fn history(claims: Vec<Claim>) -> History {
    let mut history = History { places: vec![2], claims, end: s(1000.0), ..History::default() };
    history.facts.timeout = T;
    history.facts.grace = s(30.0);
    history
}

#[track_caller]
fn finds(history: &History, rule: &str) {
    let verdict = Verdict::of(history);
    let mut rules: Vec<&str> = verdict.violations.iter().map(|violation| violation.rule).collect();
    rules.dedup();
    assert_eq!(rules, [rule], "{:?}", verdict.violations);
}

#[track_caller]
fn finds_nothing(history: &History) -> Verdict {
    let verdict = Verdict::of(history);
    assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    verdict
}

#[test]
fn two_holders_are_found_while_both_are_promised_the_lock() {
    finds(&history(vec![claim(0, 1, 1.0, 5.0, None), claim(1, 2, 4.9, 9.0, None)]), "two holders");
    // Given back before, or no longer certain: a paused holder's claim ends by its clock.
    finds_nothing(&history(vec![claim(0, 1, 1.0, 5.0, Some(4.0)), claim(1, 2, 4.0, 9.0, None)]));
    finds_nothing(&history(vec![claim(0, 1, 1.0, 5.0, None), claim(1, 2, 5.0, 9.0, None)]));
}

#[test]
fn a_claim_that_becomes_certain_again_beside_the_next_one_is_found() {
    let mut first = claim(0, 1, 1.0, 5.0, None);
    first.promises.push(Promise { at: s(7.0), until: s(9.0), timeout: s(6.0) });
    finds(&history(vec![first, claim(1, 2, 6.0, 8.0, None)]), "two holders");
}

#[test]
fn a_reader_beside_a_writer_is_found_and_a_reader_beside_a_reader_is_none() {
    let reader =
        |process, token, begun| Claim { share: Share::Readers, ..claim(process, token, begun, begun + 2.0, None) };
    finds_nothing(&history(vec![reader(0, 1, 1.0), reader(1, 2, 1.5)]));
    finds(&history(vec![reader(0, 1, 1.0), claim(1, 2, 1.5, 3.0, None)]), "two holders");
    // The writer that goes on as a reader, and a writer that comes too early.
    let downgraded = Claim { writer: Some("/l/lock-0000000002".into()), ..reader(1, 2, 5.0) };
    let writer = claim(1, 2, 4.0, 9.0, Some(5.5));
    finds_nothing(&history(vec![writer.clone(), downgraded.clone()]));
    finds(&history(vec![writer, downgraded, claim(2, 3, 6.0, 9.0, None)]), "two holders");
}

#[test]
fn more_leases_than_there_are_are_found() {
    let lease = |token, begun| Claim { share: Share::Leases, ..claim(0, token, begun, begun + 2.0, None) };
    finds_nothing(&history(vec![lease(1, 1.0), lease(2, 1.1), lease(3, 3.05)]));
    finds(&history(vec![lease(1, 1.0), lease(2, 1.1), lease(3, 1.2)]), "too many leases");
}

#[test]
fn a_token_that_shrinks_is_found() {
    let exclusive = [claim(0, 5, 1.0, 2.0, None), claim(1, 4, 3.0, 4.0, None)];
    finds(&history(exclusive.to_vec()), "a token that does not grow");
    let same = [claim(0, 5, 1.0, 2.0, None), Claim { znode: "/l/other".into(), ..claim(1, 5, 3.0, 4.0, None) }];
    finds(&history(same.to_vec()), "a token that does not grow");
    // Readers that are woken together are in no order, but behind each writer.
    let reader = |token, begun| Claim { share: Share::Readers, ..claim(0, token, begun, begun + 0.1, None) };
    finds_nothing(&history(vec![reader(5, 1.0), reader(4, 1.2), claim(1, 6, 2.0, 3.0, None), reader(7, 4.0)]));
    finds(&history(vec![claim(1, 6, 2.0, 3.0, None), reader(5, 4.0)]), "a token that does not grow");
    finds(&history(vec![reader(7, 1.0), reader(5, 1.2), claim(1, 6, 2.0, 3.0, None)]), "a token that does not grow");
    // The grants of one tenure.
    let grant = |grant, begun| Claim { token: (5, grant), ..claim(0, 5, begun, begun + 0.1, None) };
    finds_nothing(&history(vec![grant(1, 1.0), grant(2, 2.0)]));
    finds(&history(vec![grant(2, 1.0), Claim { by: actor(1), ..grant(1, 2.0) }]), "a token that does not grow");
}

#[test]
fn a_promise_that_outlives_its_znode_is_found() {
    let with = |ended, gone| {
        let mut history = history(vec![claim(0, 1, 1.0, 5.0, ended)]);
        history.facts.gone.insert("/l/lock-0000000001".into(), (s(gone), 1));
        history
    };
    finds(&with(None, 4.5), "a promise without a znode");
    finds(&with(None, 0.5), "a promise without a znode");
    finds_nothing(&with(None, 5.5));
    finds_nothing(&with(Some(4.0), 4.5));
    // Certain again after that.
    let mut again = with(None, 6.0);
    again.claims[0].promises.push(Promise { at: s(7.0), until: s(9.0), timeout: s(6.0) });
    finds(&again, "a promise without a znode");
}

#[test]
fn an_excuse_that_ends_while_a_promise_is_broken_is_none() {
    let ends = |end| {
        let mut history = history(vec![claim(0, 1, 1.0, 20.0, None), claim(1, 2, 3.0, 20.0, None)]);
        history.facts.deleted.insert("/l/lock-0000000001".into(), vec![end]);
        history.facts.timeout = s(6.0);
        history
    };
    finds(&ends(hard(2.5)), "two holders");
    let mut short = ends(hard(2.5));
    short.claims[0].ended = Some(s(14.0));
    finds_nothing(&short);
    // A holder hears of it at once if nothing else is wrong.
    let calm = Ending { is_calm: true, ..hard(2.5) };
    finds(&History { ..ends(calm) }, "two holders");
    let mut heard = ends(Ending { is_calm: true, ..hard(2.9) });
    heard.claims[0].ended = Some(s(3.15));
    finds_nothing(&heard);
}

#[test]
fn less_than_was_asked_for_is_found() {
    let valid_for = |time| history(vec![Claim { valid_for: s(time), ..claim(0, 1, 1.0, 5.0, None) }]);
    finds_nothing(&valid_for(4.0));
    finds(&valid_for(4.2), "granted in doubt");
    let mut stays = history(vec![Claim { stays: s(2.0), ..claim(0, 1, 1.0, 9.0, Some(1.5)) }]);
    stays.facts.gone.insert("/l/lock-0000000001".into(), (s(3.0), 1));
    finds_nothing(&stays);
    stays.facts.gone.insert("/l/lock-0000000001".into(), (s(2.5), 1));
    finds(&stays, "a znode that does not stay");
    stays.facts.deleted.insert("/l/lock-0000000001".into(), vec![hard(2.4)]);
    finds_nothing(&stays);
}

#[test]
fn what_breaks_an_assumption_excuses_from_then_on() {
    let mut history = history(vec![claim(0, 1, 1.0, 5.0, None), claim(1, 2, 3.0, 9.0, None)]);
    history.facts.deleted.insert("/l/lock-0000000001".into(), vec![hard(3.5)]);
    finds(&history, "two holders");
    history.facts.deleted.insert("/l/lock-0000000001".into(), vec![hard(2.5)]);
    assert_eq!(finds_nothing(&history).excused.get(&Excuse::Deleted), Some(&1));
    // A holder hears of it within a session timeout, and nobody takes a lock by what is gone.
    history.claims[0].promises[0].timeout = s(1.2);
    finds(&history, "two holders");
    history.claims[0].promises[0].timeout = s(1.3);
    finds_nothing(&history);
    history.facts.deleted.insert("/l/lock-0000000002".into(), vec![hard(2.5)]);
    history.facts.deleted.remove("/l/lock-0000000001");
    history.claims[1].promises[0].timeout = s(0.4);
    finds(&history, "two holders");
    history.facts.deleted = BTreeMap::new();
    history.claims.iter_mut().for_each(|claim| claim.promises[0].timeout = s(6.0));
    history.facts.isolated.push((s(2.0), s(2.5)));
    assert_eq!(finds_nothing(&history).excused.get(&Excuse::Isolated), Some(&1));
    history.claims.iter_mut().for_each(|claim| claim.needs_quorum = true);
    finds(&history, "two holders");
    // Both know of six seconds.
    history.facts.lowered.push((s(2.0), s(2.5), s(6.0)));
    finds(&history, "two holders");
    history.facts.lowered.push((s(2.0), s(2.5), s(5.0)));
    assert_eq!(finds_nothing(&history).excused.get(&Excuse::Lowered), Some(&1));
}

#[test]
fn a_grant_in_doubt_is_found_unless_its_process_stood_still() {
    let mut history = history(vec![claim(0, 1, 5.0, 4.0, None)]);
    finds(&history, "granted in doubt");
    history.facts.paused.push((1, s(3.0), s(5.0)));
    finds(&history, "granted in doubt");
    history.facts.paused.push((0, s(3.0), s(4.9)));
    finds(&history, "granted in doubt");
    history.facts.dead.insert(0, s(5.1));
    finds(&history, "granted in doubt");
    history.facts.dead.insert(0, s(4.0));
    finds_nothing(&history);
    history.facts.dead.clear();
    history.facts.paused.push((0, s(4.95), s(5.0)));
    finds_nothing(&history);
}

fn call(limit: Limit, began: f64, returned: Option<f64>) -> Call {
    let (place, by, what) = (0, actor(0), "acquire".to_owned());
    let gives_up = s(20.0);
    Call {
        place,
        by,
        what,
        began: s(began),
        limit,
        cancelled: None,
        returned: returned.map(s),
        gives_up,
        refused: None,
    }
}

fn calls(calls: Vec<Call>) -> History {
    History { calls, ..history(Vec::new()) }
}

#[test]
fn a_call_that_outlasts_its_time_is_found() {
    let timed = |returned| calls(vec![call(Limit::Timed(s(2.0)), 1.0, Some(returned))]);
    finds_nothing(&timed(3.1));
    finds(&timed(3.5), "a call that outlasts its time");
    let mut paused = timed(8.1);
    paused.facts.paused.push((0, s(2.0), s(7.0)));
    finds_nothing(&paused);
    let mut cancelled = calls(vec![call(Limit::Untimed, 1.0, Some(3.0))]);
    cancelled.calls[0].cancelled = Some(s(2.9));
    finds_nothing(&cancelled);
    cancelled.calls[0].cancelled = Some(s(2.0));
    finds(&cancelled, "a call that outlasts its time");
}

#[test]
fn a_waiter_that_nobody_serves_is_found() {
    let healed = |returned| {
        let mut history = calls(vec![call(Limit::Untimed, 1.0, returned)]);
        history.facts.healed = Some(s(100.0));
        history
    };
    finds_nothing(&healed(Some(120.0)));
    finds(&healed(Some(131.0)), "a waiter that is not served");
    finds(&healed(None), "a waiter that is not served");
    let refused = |began| {
        let mut history = healed(Some(130.0));
        (history.calls[0].began, history.calls[0].refused) = (s(began), Some("uncertain".to_owned()));
        history
    };
    finds_nothing(&refused(127.9));
    finds(&refused(128.1), "a waiter that is refused");
    let mut stalled = refused(128.1);
    stalled.facts.stall = s(1.0);
    finds_nothing(&stalled);
}

#[test]
fn a_waiter_that_waits_for_servers_that_are_gone_is_found() {
    let away = |from, to, returned| {
        let mut history = calls(vec![call(Limit::Untimed, 1.0, returned)]);
        history.facts.away.push((0, s(from), s(to)));
        history
    };
    finds_nothing(&away(10.0, 25.0, Some(40.0)));
    finds_nothing(&away(10.0, 60.0, Some(29.0)));
    finds(&away(10.0, 60.0, Some(31.0)), "a waiter without end");
    finds(&away(10.0, 60.0, None), "a waiter without end");
}

#[test]
fn a_holder_that_is_not_told_before_the_next_one_is_found() {
    let with = |told: Vec<(f64, Word)>| {
        let told = told.into_iter().map(|(at, word)| (s(at), word)).collect();
        history(vec![Claim { told, listens: true, ..claim(0, 1, 1.0, 5.0, None) }, claim(1, 2, 6.0, 9.0, None)])
    };
    finds_nothing(&with(vec![(5.0, Word::InDoubt)]));
    finds(&with(Vec::new()), "a holder that is not told");
    finds(&with(vec![(5.0, Word::InDoubt), (5.5, Word::Held)]), "a holder that is not told");
    finds(&with(vec![(6.1, Word::InDoubt)]), "a holder that is not told");
    let mut paused = with(Vec::new());
    paused.facts.paused.push((0, s(4.0), s(7.0)));
    finds_nothing(&paused);
    // Rival or not.
    let lapsed = |told| History { claims: vec![with(told).claims.remove(0)], ..history(Vec::new()) };
    finds_nothing(&lapsed(vec![(5.04, Word::InDoubt)]));
    finds(&lapsed(vec![(5.1, Word::InDoubt)]), "a holder that is not told");
}

#[test]
fn a_leader_that_is_told_after_the_next_one_is_found() {
    let term = |process, begun, ended: Option<f64>| Term {
        place: 0,
        by: actor(process),
        begun: s(begun),
        ended: ended.map(s),
        claim: Some(process),
    };
    let with = |ended| History { terms: vec![term(0, 1.0, ended), term(1, 3.0, None)], ..history(Vec::new()) };
    finds_nothing(&with(Some(2.9)));
    finds(&with(Some(3.1)), "a leader that is not told");
    finds(&with(None), "a leader that is not told");
    let late = Term { claim: None, ..term(1, 3.0, None) };
    finds_nothing(&History { terms: vec![term(0, 1.0, None), late], ..history(Vec::new()) });
    let late = |ended: f64| Term { claim: None, ..term(0, 2.99, Some(ended)) };
    finds_nothing(&History { terms: vec![late(3.03), term(1, 3.0, None)], ..history(Vec::new()) });
    finds(&History { terms: vec![late(3.05), term(1, 3.0, None)], ..history(Vec::new()) }, "a leader that is not told");
}

#[test]
fn a_tenure_that_does_not_end_is_found() {
    let with = |begun, made, gone| {
        let grant = |grant, begun| Claim { token: (1, grant), ..claim(0, 1, begun, begun + 1.0, None) };
        let mut history = history(vec![grant(1, begun), grant(2, 30.0)]);
        history.facts.made.insert("/l/lock-0000000002".into(), s(made));
        history.facts.gone.insert("/l/lock-0000000002".into(), (s(gone), 1));
        history.facts.made.insert("/l/lock-0000000001".into(), s(1.0));
        history
    };
    finds_nothing(&with(2.0, 15.0, 40.0));
    finds_nothing(&with(2.0, 13.0, 29.0));
    finds(&with(2.0, 13.0, 40.0), "a tenure that does not end");
    // It stood behind the other one for long.
    finds_nothing(&with(20.0, 13.0, 40.0));
    // Another member kept it from returning.
    let several = |began| Call { what: "several Wait".to_owned(), ..call(Limit::Untimed, began, Some(30.0)) };
    finds_nothing(&History { calls: vec![several(29.0)], ..with(2.0, 13.0, 40.0) });
    finds(&History { calls: vec![several(29.5)], ..with(2.0, 13.0, 40.0) }, "a tenure that does not end");
    let before = vec![several(25.0), call(Limit::Untimed, 28.0, Some(30.0))];
    finds(&History { calls: before, ..with(2.0, 13.0, 40.0) }, "a tenure that does not end");
}

#[test]
fn a_guarded_write_that_comes_late_is_found() {
    let write =
        |token, zxid| Write { place: 0, by: actor(0), token: (token, 0), znode: String::new(), zxid, at: s(1.0) };
    finds_nothing(&History { writes: vec![write(3, 10), write(2, 9), write(3, 11)], ..history(Vec::new()) });
    let late = History { writes: vec![write(2, 12), write(3, 10)], ..history(Vec::new()) };
    finds(&late, "a guarded write after the next holder's");
    let mut gone = History { writes: vec![write(2, 12)], ..history(Vec::new()) };
    gone.facts.gone.insert(String::new(), (s(0.5), 12));
    finds_nothing(&gone);
    gone.facts.gone.insert(String::new(), (s(0.5), 11));
    finds(&gone, "a guarded write without a znode");
}

#[test]
fn a_death_that_nobody_is_told_of_is_found_and_one_that_was_none() {
    let hears = |claim: Claim, heard: &[i64]| Claim { heard: Some(heard.to_vec()), ..claim };
    let run = |died: Option<f64>, heard: &[i64], marks: &[i64]| {
        let first = hears(claim(0, 1, 20.0, 22.0, Some(21.0)), &[]);
        let mut history = history(vec![first.clone(), hears(claim(1, 2, 25.0, 26.0, Some(26.0)), heard)]);
        history.facts.gone.insert(first.znode, (s(24.0), 9));
        history.facts.dead.extend(died.map(|died| (0, s(died))));
        history.facts.healed = Some(Duration::ZERO);
        history.facts.marks = marks.to_vec();
        history
    };
    finds_nothing(&run(None, &[], &[]));
    finds_nothing(&run(Some(21.0), &[1], &[]));
    finds(&run(Some(21.0), &[], &[]), "an unclean death that nobody is told of");
    finds(&run(None, &[1], &[]), "a death that was none");
    finds(&run(None, &[], &[1]), "a mark that stays");
    // Given back before its process died.
    finds_nothing(&run(Some(23.0), &[], &[]));
    let mut twice = run(Some(21.0), &[1], &[]);
    twice.claims.push(hears(claim(2, 3, 27.0, 28.0, Some(28.0)), &[1]));
    finds(&twice, "a death that is told twice");
}
