//! T5: never more leases than there are.

use super::{
    Verdict,
    history::{At, Claim, History, Share},
};

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for (place, limit) in history.places.iter().enumerate() {
        let mut spans: Vec<(At, At, &Claim)> = Vec::new();
        for claim in history.claims.iter().filter(|claim| claim.place == place && claim.share == Share::Leases) {
            spans.extend(claim.spans().into_iter().map(|(from, to)| (from, to, claim)));
        }
        spans.sort_by_key(|(from, ..)| *from);
        let mut standing: Vec<(At, &Claim)> = Vec::new();
        for (from, to, claim) in spans {
            standing.retain(|(end, other)| *end > from && history.facts.excuse(other, from).is_none());
            standing.push((to, claim));
            if standing.len() > *limit {
                let what = || {
                    let all: Vec<String> = standing.iter().map(|(_, claim)| format!("[{claim}]")).collect();
                    format!("{} leases of {limit}: {}", standing.len(), all.join(" "))
                };
                verdict.broken_unless_excused(history, &[claim], ("too many leases", from), what);
            }
        }
    }
}
