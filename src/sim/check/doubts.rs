//! No acquire returns a lock that is in doubt, unless its process was kept from running just then.

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
    for claim in history.claims.iter().filter(lived).filter(|claim| !claim.is_valid_at_first()) {
        let until = claim.promises.first().map_or(claim.begun, |first| first.until);
        let since = claim.begun.saturating_sub(JUST + stall * 2);
        let is_after_pause = !history.facts.stood(claim.by.process, since, claim.begun).is_zero();
        // It looked before it was kept from running.
        let was_certain = claim.begun.saturating_sub(until) <= STEPS + stall * 2;
        let is_excused = is_after_pause || was_certain;
        if !is_excused {
            let what = || format!("[{claim}] was certain until {:.6} s", until.as_secs_f64());
            verdict.broken_unless_excused(history, &[claim], ("granted in doubt", claim.begun), what);
        }
    }
}
