//! Every acquire ends by its time, and a cancelled one at once.

use std::time::Duration;

use super::{
    Verdict,
    history::{At, Call, History, Limit},
};

/// How long a call may take beyond its time: it waits 25 ms for its deletes, and 20 ms for an answer.
const GRACE: Duration = Duration::from_millis(150);

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for call in &history.calls {
        let Some((limit, why)) = latest(call) else { continue };
        let returned = call.returned.unwrap_or(history.end);
        let limit = limit + GRACE + history.facts.stall * 20;
        let limit = limit + history.facts.stood(call.by.process, call.began, returned);
        if returned > limit {
            let (by, what, began) = (call.by, &call.what, call.began.as_secs_f64());
            let end = if call.returned.is_some() { "returned" } else { "had not returned" };
            let late =
                format!("{by:?} {what}, begun at {began:.6} s and {why}, {end} at {:.6} s", returned.as_secs_f64());
            verdict.broken("a call that outlasts its time", limit, late);
        }
    }
}

fn latest(call: &Call) -> Option<(At, &'static str)> {
    let timed = match call.limit {
        Limit::Untimed => None,
        // Clocks differ by one in a hundred.
        Limit::Timed(time) => Some((call.began + time + time / 50, "timed")),
    };
    let cancelled = call.cancelled.map(|at| (at, "cancelled"));
    [timed, cancelled].into_iter().flatten().min()
}
