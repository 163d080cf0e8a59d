//! Up to `valid_until` the znode stands: the servers cannot have given the lock to anybody else, rival or not.

use super::{Verdict, history::History};

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for claim in &history.claims {
        let Some((gone, _)) = history.facts.gone.get(&claim.znode).copied() else { continue };
        for (from, to) in claim.spans().into_iter().filter(|(_, to)| gone < *to) {
            let what = || format!("[{claim}], whose znode went at {:.6} s", gone.as_secs_f64());
            let at = verdict.worst(history, &[claim], from.max(gone)..to);
            verdict.broken_unless_excused(history, &[claim], ("a promise without a znode", at), what);
        }
    }
}
