//! T1, T6: no valid claim stands beside another one that it excludes.

use super::{
    Verdict,
    history::{At, Claim, History},
};

const RULE: &str = "two holders";

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for place in 0..history.places.len() {
        let mut spans: Vec<(At, At, &Claim)> = Vec::new();
        for claim in history.claims.iter().filter(|claim| claim.place == place) {
            spans.extend(claim.spans().into_iter().map(|(from, to)| (from, to, claim)));
        }
        spans.sort_by_key(|(from, ..)| *from);
        check_place(history, &spans, verdict);
    }
}

fn check_place(history: &History, spans: &[(At, At, &Claim)], verdict: &mut Verdict) {
    let mut standing: Vec<(At, &Claim)> = Vec::new();
    for (from, to, claim) in spans {
        standing.retain(|(end, _)| end > from);
        for (end, other) in standing.iter().filter(|(_, other)| other.excludes(claim)) {
            let what = || format!("[{other}] beside [{claim}]");
            let at = verdict.worst(history, &[*other, *claim], *from..(*end).min(*to));
            verdict.broken_unless_excused(history, &[*other, *claim], (RULE, at), what);
        }
        standing.push((*to, *claim));
    }
}
