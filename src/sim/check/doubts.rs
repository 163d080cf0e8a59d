//! No acquire returns a lock that is in doubt, or certain for less than it was to be, unless its process was kept from
//! running just then.

use std::time::Duration;

use super::{
    Verdict,
    history::{Claim, History},
};

/// How long after a pause a thread may return what it has looked at before.
const JUST: Duration = Duration::from_millis(50);

/// How long a thread takes at most from its last look to the return of its call.
const STEPS: Duration = Duration::from_millis(1);

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let stall = history.facts.stall;
    // The thread of a process that was killed between its last look and its return runs to its end when the run is over.
    let lived = |claim: &&Claim| history.facts.dead.get(&claim.by.process).is_none_or(|died| claim.begun <= *died);
    for claim in history.claims.iter().filter(lived).filter(|claim| !claim.is_given_back_at_first()) {
        let until = claim.promises.first().map_or(claim.begun, |first| first.until);
        // Clocks differ by one in a hundred.
        let until = until.saturating_sub(claim.valid_for * 98 / 100);
        if until > claim.begun {
            continue;
        }
        let since = claim.begun.saturating_sub(JUST + stall * 2);
        let is_after_pause = !history.facts.stood(claim.by.process, since, claim.begun).is_zero();
        // It looked before it was kept from running.
        let was_certain = claim.begun.saturating_sub(until) <= STEPS + stall * 2;
        let is_excused = is_after_pause || was_certain;
        if !is_excused {
            let what = || format!("[{claim}] was certain for {:?} until {:.6} s", claim.valid_for, until.as_secs_f64());
            // The event of a delete may come between the last look and the return.
            verdict.broken_unless_excused(history, &[claim], ("granted in doubt", claim.begun), what);
        }
    }
}
