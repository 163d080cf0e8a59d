//! A znode that was to stay for a while at least does, whatever its holder gives back.

use std::time::Duration;

use super::{Verdict, history::History};

/// How long the grant may lie before the return of its call, beside the time for which its process stood still.
const STEPS: Duration = Duration::from_millis(50);

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let facts = &history.facts;
    let expired = |session: i64| facts.expired.iter().any(|(_, other)| *other == session);
    for claim in history.claims.iter().filter(|claim| !claim.stays.is_zero()) {
        let Some((gone, _)) = facts.gone.get(&claim.znode).copied() else { continue };
        // Whoever ends its session, or deletes the znode, ends it sooner.
        let is_ended = facts.deleted.contains_key(&claim.znode)
            || facts.closed.contains_key(&claim.session)
            || facts.dead.contains_key(&claim.by.process)
            || expired(claim.session);
        let before = facts.stall * 2 + facts.stood(claim.by.process, Duration::ZERO, gone) + STEPS;
        // Clocks differ by one in a hundred.
        let until = (claim.begun + claim.stays * 98 / 100).saturating_sub(before);
        if gone < until && !is_ended {
            let what = format!("[{claim}], to stay for {:?}, went at {:.6} s", claim.stays, gone.as_secs_f64());
            verdict.broken("a znode that does not stay", gone, what);
        }
    }
}
