//! The last look before a lock is handed out: whether all acquired holds are certain at one moment.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    framework::held::{changes::HoldState, node::HeldNode},
    locks::recipe::doubt::Doubt,
    proto::{request::Request, response::Response, types::ErrorCode},
    session::{
        api::{Session, SessionError},
        wait::{
            deadline::WaitBound,
            pending::{ReplyOutcome, submit},
        },
    },
};

/// The certainty of several holds together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// There was a moment, just now, at which all were held for certain.
    Certain,
    /// One is gone.
    Lost,
    /// None is known to be gone, and one is not certain.
    InDoubt,
}

/// Looks at several holds. Costs nothing where all are certain for `time` ahead. Otherwise asks the servers, with one
/// write for each session, and waits until the next heartbeats have made all certain: up to the wait bound, at most the
/// session timeout. `has_to_ask`: asks in any case, as nothing reports yet that a young hold's znode was deleted.
///
/// The caller may have been paused at any time before this, for longer than its session, and may be so afterwards. An
/// earlier certainty is therefore no reason to return a lock; only this look is, as the last thing before the return.
pub(crate) fn last_look(held: &[Arc<HeldNode>], time: Duration, bound: WaitBound<'_>, has_to_ask: bool) -> Certainty {
    let timeouts = || held.iter().map(|held| held.session().timeout());
    let (shortest, longest) = (timeouts().min().unwrap_or_default(), timeouts().max().unwrap_or_default());
    let (mut is_answered, mut doubt) = (!has_to_ask, Doubt::default());
    let mut asked: Option<Instant> = None;
    loop {
        doubt.steps(Instant::now(), longest);
        if held.iter().any(|held| held.session().connection() == 0) {
            // No server can be asked. If the connection stays away the session ends, and the hold is lost.
            doubt.ends();
        }
        match glance(held, time) {
            Certainty::Lost => return Certainty::Lost,
            Certainty::Certain if is_answered => return Certainty::Certain,
            _ if bound.is_over().is_some() || doubt.has_lasted(Instant::now(), longest) => return Certainty::InDoubt,
            _ => {}
        }
        let now = Instant::now();
        let asks = asked.is_none_or(|at| now.saturating_duration_since(at) >= shortest / 2);
        doubt.sleeps(now, asks);
        if asks && ask(held, bound) {
            asked = Some(now);
            is_answered = true;
        } else {
            pause(shortest, bound);
        }
    }
}

/// How long to pause until the next look, which may find a session of this timeout certain again.
fn moment(timeout: Duration) -> Duration {
    (timeout / 50).max(Duration::from_millis(5))
}

/// Pauses a moment until the next look, with sessions of this timeout.
pub(crate) fn pause(timeout: Duration, bound: WaitBound<'_>) {
    // The next iteration checks whatever ended the pause.
    let _ = by(bound, moment(timeout)).recv(&crossbeam_channel::never::<()>());
}

fn by(bound: WaitBound<'_>, time: Duration) -> WaitBound<'_> {
    Instant::now().checked_add(time).map_or(bound, |at| bound.by(at))
}

/// The certainty that is known without asking the servers.
fn glance(held: &[Arc<HeldNode>], time: Duration) -> Certainty {
    let Some(then) = Instant::now().checked_add(time) else { return Certainty::InDoubt };
    let mut look = Certainty::Certain;
    for held in held {
        match held.state(then) {
            HoldState::Held => {}
            // The hold's end was reported, and only the reason is open.
            HoldState::InDoubt if held.lost().is_some() => return Certainty::Lost,
            HoldState::InDoubt => look = Certainty::InDoubt,
            _ => return Certainty::Lost,
        }
    }
    // Once more at the end, with the clock read last: a pause in the midst of the states shows.
    let until = held.iter().map(|held| held.valid_until()).min();
    if until.is_some_and(|at| at.saturating_duration_since(Instant::now()) <= time) && look == Certainty::Certain {
        Certainty::InDoubt
    } else {
        look
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

/// One write: a sync, so that no server answers that has been cut off from the others, and a question for each znode.
pub(crate) fn ask_session(session: &Arc<dyn Session>, held: Vec<&Arc<HeldNode>>, bound: WaitBound<'_>) -> bool {
    let (asked, connection, half) = (Instant::now(), session.connection(), session.timeout() / 2);
    let path = |held: &&Arc<HeldNode>| held.path().as_str().to_owned();
    let sync = held.first().map(|held| Request::Sync { path: path(held) });
    let looks = held.iter().map(|held| Request::Exists { path: path(held), watch: false });
    let sent = submit(session, sync.into_iter().chain(looks).map(|request| (request, None)));
    let mut replies = sent.into_iter().map(|(pending, _)| pending.wait(by(bound, half)));
    if !matches!(replies.next(), Some(ReplyOutcome::Reply(Ok(Response::Synced { .. })))) {
        return false;
    }
    let mut are_answered = true;
    for (held, answer) in held.into_iter().zip(replies) {
        match answer {
            // An old answer shows nothing: the process may have been paused since.
            ReplyOutcome::Reply(reply @ (Ok(Response::Stat(_)) | Err(SessionError::Server(ErrorCode::NoNode))))
                if asked.elapsed() < half =>
            {
                held.znode().seen(connection, reply);
            }
            _ => are_answered = false,
        }
    }
    are_answered
}

#[cfg(test)]
mod tests;
