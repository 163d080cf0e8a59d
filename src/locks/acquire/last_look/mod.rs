//! The last look before a lock is handed out: whether all acquired holds are certain at one moment.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    base::{channel::never, clock},
    error::{Error, LostReason},
    framework::held::{
        certainty::{Certainty, Evidence, Needs},
        changes::HoldState,
        node::HeldNode,
    },
    locks::{holds::hold::Hold, recipe::doubt::Doubt},
    proto::{request::Request, response::Response, types::ErrorCode},
    session::{
        api::{Session, SessionError},
        wait::{
            deadline::{WaitBound, WaitEnd},
            pending::submit,
        },
    },
};

/// Without a connection the look comes at least as often as with a session of this timeout: every 20 ms.
const UNCONNECTED: Duration = Duration::from_secs(1);

/// Looks at several holds. Costs nothing where there was a moment, just now, at which all were certain for `time` ahead.
/// Otherwise asks the servers, with one write for each session, and waits until the next heartbeats have made all certain:
/// up to the wait bound, at most the session timeout.
///
/// The caller may have been paused at any time before this, for longer than its session, and may be so afterwards. An
/// earlier certainty is therefore no reason to return a lock; only this look is, as the last thing before the return.
pub(crate) fn last_look(
    held: &[Arc<HeldNode>],
    time: Duration,
    bound: WaitBound<'_>,
    needs: Needs,
) -> Result<Certainty, WaitEnd> {
    match glance(held, time, needs, false).0 {
        // Where there was a doubt, the grant is too old.
        Certainty::InDoubt if needs == Needs::Connection => ask_until_certain(held, time, bound, Needs::Watch),
        Certainty::InDoubt => ask_until_certain(held, time, bound, needs),
        certainty => Ok(certainty),
    }
}

/// Whether these holds stand at this moment. If they are in doubt it waits until the servers have said, at most the session
/// timeout. A hold that was released stands no more and is not looked at.
///
/// # Errors
/// [`Error::LockLost`], and [`Error::Uncertain`] if the doubt stays.
pub(in crate::locks) fn stand(holds: &[Hold]) -> crate::error::Result<()> {
    let is_held = |hold: &&Hold| hold.state() != HoldState::Released;
    let nodes: Vec<_> = holds.iter().filter(is_held).map(|hold| hold.node().clone()).collect();
    let certainty = last_look(&nodes, Duration::ZERO, WaitBound::default(), Needs::Nothing);
    let lost = holds.iter().find_map(|hold| Some((hold, hold.node().lost()?)));
    match (lost, certainty, holds.first()) {
        (Some((hold, reason)), ..) => Err(Error::LockLost { path: hold.path().to_owned(), reason }),
        (None, Ok(Certainty::Certain), _) | (.., None) => Ok(()),
        (None, Ok(Certainty::Gone), Some(hold)) => {
            Err(Error::LockLost { path: hold.path().to_owned(), reason: LostReason::NodeDeleted })
        }
        (None, Ok(Certainty::InDoubt) | Err(_), Some(hold)) => {
            let (path, after) = (hold.path().to_owned(), hold.node().session().timeout());
            Err(Error::Uncertain { path, wanted: Duration::ZERO, after })
        }
    }
}

#[cold]
fn ask_until_certain(
    held: &[Arc<HeldNode>],
    time: Duration,
    bound: WaitBound<'_>,
    needs: Needs,
) -> Result<Certainty, WaitEnd> {
    let timeouts = || held.iter().map(|held| held.session().timeout());
    let (shortest, longest) = (timeouts().min().unwrap_or_default(), timeouts().max().unwrap_or_default());
    let mut doubt = Doubt::default();
    // When the last question with an answer was sent.
    let mut confirmed: Option<Instant> = None;
    loop {
        doubt.steps(clock::now(), longest);
        // The bound is read first: the evidence has to be read last.
        let over = bound.is_over();
        let is_confirmed = confirmed.is_some_and(|at| clock::since(at) < shortest / 2);
        let (certainty, evidence) = glance(held, time, needs, is_confirmed);
        match (certainty, over) {
            (Certainty::Gone, _) => return Ok(certainty),
            (_, Some(end)) => return Err(end),
            (Certainty::Certain, None) => return Ok(certainty),
            (Certainty::InDoubt, None) => {}
        }
        if !evidence.is_connected {
            // No server can be asked. If the connection stays away the session ends, and the hold is lost.
            doubt.ends();
        }
        let now = clock::now();
        if doubt.has_lasted(now, longest) {
            return Ok(certainty);
        }
        let asks = evidence.is_connected && !(evidence.is_seen && (is_confirmed || evidence.is_enough(needs)));
        doubt.sleeps(now, asks);
        if asks && ask(held, bound) {
            confirmed = Some(now);
        } else {
            // The next prompt heartbeats make the session certain. Nothing tells of a new connection.
            pause(if evidence.is_connected { shortest } else { shortest.min(UNCONNECTED) }, bound);
        }
    }
}

/// Pauses a moment until the next look, which may find a session of this timeout certain again.
pub(crate) fn pause(timeout: Duration, bound: WaitBound<'_>) {
    let moment = (timeout / 50).max(Duration::from_millis(5));
    // The next iteration checks whatever ended the pause.
    let _ = by(bound, moment).recv(&never::<()>());
}

/// Returns this wait bound, with the end of this time if that is earlier.
fn by(bound: WaitBound<'_>, time: Duration) -> WaitBound<'_> {
    clock::now().checked_add(time).map_or(bound, |at| bound.by(at))
}

/// Returns the certainty of all together that is known without asking the servers, and why.
fn glance(held: &[Arc<HeldNode>], time: Duration, needs: Needs, is_confirmed: bool) -> (Certainty, Evidence) {
    let all = held.iter().map(|held| held.evidence()).reduce(Evidence::and).unwrap_or_default();
    // The clock is read last: a pause in the midst of the holds shows.
    let until = clock::now().checked_add(time);
    match until.map_or(Certainty::InDoubt, |until| all.certainty_for(until, needs, is_confirmed)) {
        // An end that was reported meanwhile shows, too.
        Certainty::Certain if held.len() > 1 && held.iter().any(|held| held.lost().is_some()) => (Certainty::Gone, all),
        certainty => (certainty, all),
    }
}

/// Asks whether the znodes still stand, session by session. `false`: one has not answered.
fn ask(held: &[Arc<HeldNode>], bound: WaitBound<'_>) -> bool {
    let mut left: Vec<&Arc<HeldNode>> = held.iter().collect();
    let mut are_answered = true;
    while let Some(session) = left.first().map(|held| held.session().clone()) {
        let (of_session, others) = left.into_iter().partition(|held| Arc::ptr_eq(held.session(), &session));
        left = others;
        are_answered &= session.connection() != 0 && ask_session(&session, of_session, bound);
    }
    are_answered
}

/// Asks in one write: a sync, so that no server answers that has been cut off from the others, and a question for each
/// znode.
fn ask_session(session: &Arc<dyn Session>, held: Vec<&Arc<HeldNode>>, bound: WaitBound<'_>) -> bool {
    let (asked, connection, half) = (clock::now(), session.connection(), session.timeout() / 2);
    let path = |held: &&Arc<HeldNode>| held.path().as_str().to_owned();
    let sync = held.first().map(|held| Request::Sync { path: path(held) });
    let looks = held.iter().map(|held| Request::Exists { path: path(held), watch: false });
    let sent = submit(session, sync.into_iter().chain(looks).map(|request| (request, None)));
    let mut replies = sent.into_iter().map(|(pending, _)| pending.wait(by(bound, half)));
    if !matches!(replies.next(), Some(Ok(Ok(Response::Synced { .. })))) {
        return false;
    }
    let mut are_answered = true;
    for (held, answer) in held.into_iter().zip(replies) {
        match answer {
            // An old answer shows nothing: the process may have been paused since.
            Ok(reply @ (Ok(Response::Stat(_)) | Err(SessionError::Server(ErrorCode::NoNode))))
                if clock::since(asked) < half =>
            {
                held.znode().seen(connection, reply);
            }
            _ => are_answered = false,
        }
    }
    are_answered
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests;
