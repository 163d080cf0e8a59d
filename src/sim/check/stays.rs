//! A znode that was to stay for a while at least does, whatever its holder gives back.

use std::time::Duration;

use super::{Verdict, history::History};

/// How long the grant may lie before the return of its call, beside the time for which its process stood still.
const STEPS: Duration = Duration::from_millis(50);

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let facts = &history.facts;
    for claim in history.claims.iter().filter(|claim| !claim.stays.is_zero()) {
        let Some((gone, _)) = facts.gone.get(&claim.znode).copied() else { continue };
        // An administrator's delete ends it sooner, and so does the end of its session.
        let is_ended =
            facts.deleted.contains_key(&claim.znode) || facts.ended.get(&claim.session).is_some_and(|at| *at <= gone);
        let before = facts.stall * 2 + facts.stood(claim.by.process, Duration::ZERO, gone) + STEPS;
        // Clocks differ by one in a hundred.
        let until = (claim.begun + claim.stays * 98 / 100).saturating_sub(before);
        if gone < until && !is_ended {
            let what = format!("[{claim}], to stay for {:?}, went at {:.6} s", claim.stays, gone.as_secs_f64());
            verdict.broken("a znode that does not stay", gone, what);
        }
    }
}
