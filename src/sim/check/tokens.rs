//! T3: a fencing token is larger than those of all earlier grants that exclude this one.

use super::{
    Verdict,
    history::{Claim, History, Share},
};

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for place in 0..history.places.len() {
        let of_place =
            |claim: &&Claim| claim.place == place && claim.share != Share::Leases && claim.is_valid_at_first();
        let mut claims: Vec<&Claim> = history.claims.iter().filter(of_place).collect();
        claims.sort_by_key(|claim| claim.begun);
        let (mut alone, mut readers, mut upgradables): (Option<&Claim>, Option<&Claim>, Option<&Claim>) =
            (None, None, None);
        for claim in claims {
            let (is_reader, is_alone) = (claim.share == Share::Readers, claim.share == Share::Alone);
            let before = [alone, readers.filter(|_| is_alone), upgradables.filter(|_| !is_reader)];
            for earlier in before.into_iter().flatten().filter(|earlier| !is_in_order(earlier, claim)) {
                let what = || format!("[{claim}] after [{earlier}]");
                let place = ("a token that does not grow", claim.begun);
                verdict.broken_unless_excused(history, &[earlier, claim], place, what);
            }
            let last = match claim.share {
                Share::Readers => &mut readers,
                Share::Upgradable => &mut upgradables,
                Share::Alone | Share::Leases => &mut alone,
            };
            if last.is_none_or(|last| last.token < claim.token) {
                *last = Some(claim);
            }
        }
    }
}

fn is_in_order(earlier: &Claim, claim: &Claim) -> bool {
    // A writer that goes on as a reader keeps its token, and so does a leader whose doubt has passed.
    let is_same = claim.by == earlier.by && (claim.writer.is_some() || claim.znode == earlier.znode);
    earlier.token < claim.token || is_same && earlier.token == claim.token
}
