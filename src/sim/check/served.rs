//! T8: once everything has healed every waiter is served or told, and none waits for ever for servers that are gone.

use std::time::Duration;

use super::{
    Verdict,
    history::{At, Call, History, Limit},
};

/// How long a client has after some session timeouts: a name service that was silent is asked again only after a while.
const TO_RECOVER: Duration = Duration::from_secs(20);

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for call in &history.calls {
        check_healed(history, call, verdict);
        if call.limit == Limit::Untimed {
            check_away(history, call, verdict);
        }
    }
}

fn check_healed(history: &History, call: &Call, verdict: &mut Verdict) {
    let Some(healed) = history.facts.healed else { return };
    let latest = healed.max(call.began) + history.facts.grace;
    let returned = call.returned.unwrap_or(history.end);
    let has_session = healed + history.facts.timeout * 2 + TO_RECOVER;
    // Where single threads stand still for seconds a session may end at any time, and a call with it.
    let is_asked = call.began > has_session && !history.facts.stalls();
    if let Some(error) = call.refused.as_ref().filter(|_| is_asked) {
        let what = format!("{}: {error}, although all was healed", describe(call, returned));
        verdict.broken("a waiter that is refused", returned, what);
    }
    if returned > latest {
        let what = format!("{} although all was healed at {:.6} s", describe(call, returned), healed.as_secs_f64());
        verdict.broken("a waiter that is not served", latest, what);
    }
}

/// An untimed call ends with its session, and the retry policy after that.
fn check_away(history: &History, call: &Call, verdict: &mut Verdict) {
    let returned = call.returned.unwrap_or(history.end);
    for (_, from, to) in history.facts.away.iter().filter(|(process, ..)| *process == call.by.process) {
        let begin = call.began.max(*from);
        let stood = history.facts.stood(call.by.process, begin, *to);
        let latest = begin + call.gives_up + stood;
        if begin < *to && latest < *to && returned > latest {
            let what = format!(
                "{} although no server was there from {:.6} s on",
                describe(call, returned),
                from.as_secs_f64()
            );
            verdict.broken("a waiter without end", latest, what);
        }
    }
}

fn describe(call: &Call, returned: At) -> String {
    let (by, what, began) = (call.by, &call.what, call.began.as_secs_f64());
    let end = if call.returned.is_some() { "returned" } else { "had not returned" };
    format!("{by:?} {what}, begun at {began:.6} s, {end} at {:.6} s", returned.as_secs_f64())
}
