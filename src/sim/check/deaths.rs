//! A holder that went without releasing is told to one of those that come after it, and no other is.

use super::{
    Verdict,
    history::{Claim, History},
};

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let hears = |claim: &&Claim| claim.heard.is_some();
    // A writer that goes on as a reader keeps its token, and there is a mark of either.
    let of_two: Vec<_> =
        history.claims.iter().filter(|claim| claim.writer.is_some()).map(|claim| claim.token.0).collect();
    for claim in history.claims.iter().filter(hears) {
        if of_two.contains(&claim.token.0) {
            continue;
        }
        // No other hold that is listened for has its token: these are made one by one.
        let is_of = |token: &i64| *token == claim.token.0;
        let heard = |other: &Claim| other.heard.iter().flatten().any(is_of);
        // Other holds may have been dropped on the way to their user, with what they had heard.
        let (died, others) = (history.facts.dead.get(&claim.by.process), history.facts.dead.len());
        let is_dead = died.is_some_and(|died| claim.ended == Some(*died) && others == 1);
        let went = history.facts.gone.get(&claim.znode).map(|(at, _)| *at);
        // One that may stand beside it may have looked before it went.
        let later = |other: &&Claim| claim.excludes(other) && went.is_some_and(|went| other.begun > went);
        let next = history.claims.iter().filter(hears).find(later);
        if let Some(next) = next.filter(|_| is_dead && !history.claims.iter().any(heard)) {
            let what = format!("[{claim}], whose process died, and not even [{next}] was told");
            verdict.broken("an unclean death that nobody is told of", next.begun, what);
        }
        // A fault may cut a release off between the mark and the znode, and a thread that stands still may lose the session.
        let healed = history.facts.healed.map(|healed| healed + history.facts.timeout * 3);
        let is_healthy = !history.facts.stalls() && healed.is_some_and(|healed| claim.begun >= healed);
        let is_expired = history.facts.expired.iter().any(|(_, session)| *session == claim.session);
        if died.is_some() || claim.is_left || !is_healthy || is_expired {
            continue;
        }
        let hears_again = |other: &&Claim| {
            let is_heard = |token: &i64| other.heard.iter().flatten().any(|heard| heard == token);
            let news = |token: &i64| !of_two.contains(token) && is_heard(token);
            claim.excludes(other) && other.begun > claim.begun && claim.heard.iter().flatten().any(news)
        };
        if let Some(next) = history.claims.iter().find(hears_again) {
            verdict.broken(
                "a death that is told twice",
                next.begun,
                format!("[{next}] heard what [{claim}] had heard"),
            );
        }
        if let Some(next) = history.claims.iter().find(|other| heard(other)) {
            let what = format!("[{next}] was told that [{claim}] had died");
            verdict.broken("a death that was none", next.begun, what);
        }
        if history.facts.marks.iter().any(is_of) {
            verdict.broken("a mark that stays", history.end, format!("of [{claim}]"));
        }
    }
}
