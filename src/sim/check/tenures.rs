//! A cached lock moves on when others have queued for it, however busy the threads of its process are.

use super::{
    Verdict,
    history::{At, Claim, History, Share},
};

/// How long others may stand in the queue before the lock's last grant, in session timeouts: one hold, and a look whose answer
/// was lost.
const LONGEST: u32 = 4;

/// When the claim's turn may have come first: a member of several has its own while the others are waited for.
fn turn(history: &History, claim: &Claim) -> At {
    let of_thread =
        history.calls.iter().filter(|call| call.by == claim.by && call.returned.is_some_and(|at| at <= claim.begun));
    let call = of_thread.max_by_key(|call| call.returned).filter(|call| call.what.starts_with("several"));
    call.map_or(claim.begun, |call| call.began)
}

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let facts = &history.facts;
    for claim in history.claims.iter().filter(|claim| claim.token.1 > 0) {
        let Some((directory, _)) = claim.znode.rsplit_once('/') else { continue };
        let since = |rival: &str| {
            let (parent, name) = rival.rsplit_once('/')?;
            let is_beside = claim.share == Share::Readers && name.contains("__READ__");
            let made = facts.made.get(rival).filter(|_| parent == directory && rival != claim.znode && !is_beside)?;
            let stands = facts.gone.get(rival).is_none_or(|(gone, _)| *gone > claim.begun);
            stands.then_some(*made)
        };
        let Some(first) = facts.made.keys().filter_map(|rival| since(rival)).min() else { continue };
        let of_tenure = history.claims.iter().filter(|other| other.znode == claim.znode).map(|other| other.begun);
        let rival = of_tenure.min().map_or(first, |begun| begun.max(first));
        let bound = facts.timeout * LONGEST + facts.stall * 20 + facts.stood(claim.by.process, rival, claim.begun);
        if turn(history, claim) > rival + bound {
            let what = format!("[{claim}], while another stood in the queue since {:.6} s", rival.as_secs_f64());
            verdict.broken("a tenure that does not end", claim.begun, what);
        }
    }
}
