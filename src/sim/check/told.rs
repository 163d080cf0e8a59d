//! The holder is told, and a leader's listener, before the next one begins.

use std::time::Duration;

use super::{
    Verdict,
    history::{At, Claim, History, SAMPLED, Term, Word},
};

/// How long a process takes to tell its listeners.
const SOON: Duration = Duration::from_millis(50);

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for place in 0..history.places.len() {
        let of_place = |claim: &&Claim| claim.place == place && claim.is_valid_at_first();
        let mut claims: Vec<&Claim> = history.claims.iter().filter(of_place).collect();
        claims.sort_by_key(|claim| claim.begun);
        for (index, next) in claims.iter().enumerate() {
            let open = |claim: &&&Claim| claim.listens && claim.ended.is_none_or(|ended| ended > next.begun);
            for claim in claims.iter().take(index).filter(open).filter(|claim| claim.excludes(next)) {
                if !is_told(claim, next.begun) && is_awake(history, claim.by.process, next.begun) {
                    let what = || format!("[{claim}] was not told of its end before [{next}]");
                    verdict.broken_unless_excused(
                        history,
                        &[*claim, *next],
                        ("a holder that is not told", next.begun),
                        what,
                    );
                }
            }
        }
        check_terms(history, place, verdict);
    }
    for claim in history.claims.iter().filter(|claim| claim.listens) {
        check_lapses(history, claim, verdict);
    }
}

/// A holder is told when its lock is in doubt, rival or not.
fn check_lapses(history: &History, claim: &Claim, verdict: &mut Verdict) {
    let spans = claim.spans();
    let begins = spans.iter().skip(1).map(|(from, _)| *from).chain([claim.ended.unwrap_or(history.end)]);
    for ((_, to), next) in spans.iter().zip(begins) {
        // A promise that was noted after the lapse may say that it came later.
        let known = claim.promises.iter().filter(|promise| promise.at < next).map(|promise| promise.until);
        let lapsed = known.fold(*to, Duration::max);
        let by = lapsed + SOON;
        let is_seen = by + history.facts.timeout / SAMPLED < next;
        if is_seen && !is_told(claim, by) && is_awake(history, claim.by.process, by) {
            let (at, told) = (lapsed.as_secs_f64(), &claim.told);
            let what = || format!("[{claim}] was not told of its doubt at {at:.6} s, but {told:?}");
            verdict.broken_unless_excused(history, &[claim], ("a holder that is not told", by), what);
        }
    }
}

/// Whether the last word to its listener was that it does not hold.
fn is_told(claim: &Claim, by: At) -> bool {
    let last = claim.told.iter().rfind(|(at, _)| *at <= by);
    last.is_some_and(|(_, word)| matches!(word, Word::InDoubt | Word::Lost | Word::Released))
}

/// Whether a process has run for as long as it takes to be told.
fn is_awake(history: &History, process: usize, at: At) -> bool {
    let facts = &history.facts;
    !facts.stalls() && facts.stood(process, at.saturating_sub(facts.timeout), at + Duration::from_nanos(1)).is_zero()
}

fn check_terms(history: &History, place: usize, verdict: &mut Verdict) {
    let mut terms: Vec<&Term> = history.terms.iter().filter(|term| term.place == place).collect();
    terms.sort_by_key(|term| term.begun);
    // A listener that is called late, for a leadership that was gone by then, takes nothing from the leader before.
    let certain = terms.iter().enumerate().filter(|(_, term)| term.claim.is_some());
    for (index, next) in certain {
        // Nor does it lead: its listener hears of the end right after it.
        let by = |term: &Term| if term.claim.is_some() { next.begun } else { next.begun.max(term.begun + SOON) };
        let open = |term: &&&Term| term.ended.is_none_or(|ended| ended > by(term)) && term.by != next.by;
        for term in terms.iter().take(index).filter(open) {
            let of = |term: &Term| term.claim.and_then(|claim| history.claims.get(claim));
            let claims: Vec<&Claim> = [of(term), of(next)].into_iter().flatten().collect();
            if is_awake(history, term.by.process, next.begun) && is_awake(history, next.by.process, next.begun) {
                let begun = [term.begun.as_secs_f64(), next.begun.as_secs_f64()];
                let what = || {
                    format!(
                        "{:?}, a leader since {:.6} s, was not told before {:?} led at {:.6} s",
                        term.by, begun[0], next.by, begun[1]
                    )
                };
                verdict.broken_unless_excused(history, &claims, ("a leader that is not told", next.begun), what);
            }
        }
    }
}
