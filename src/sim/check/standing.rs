//! Up to `valid_until` the znode stands: the servers cannot have given the lock to anybody else, rival or not.

use super::{
    Verdict,
    history::{Claim, History},
};

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for claim in &history.claims {
        let Some(gone) = history.facts.gone.get(&claim.znode).copied() else { continue };
        if is_broken(claim, gone) {
            let what = || format!("[{claim}], whose znode went at {:.6} s", gone.as_secs_f64());
            verdict.broken_unless_excused(history, &[claim], ("a promise without a znode", gone), what);
        }
    }
}

fn is_broken(claim: &Claim, gone: std::time::Duration) -> bool {
    claim.spans().iter().any(|(from, to)| *from <= gone && gone < *to)
        // A grant by a znode that was gone by then.
        || claim.is_valid_at_first() && gone < claim.begun && claim.ended.is_none_or(|ended| ended > claim.begun)
}
