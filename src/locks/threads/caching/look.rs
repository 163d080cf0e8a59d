//! The last look before a thread returns with a lock of its process.

use std::{sync::Arc, time::Instant};

use crate::{
    error::Result,
    framework::{
        client::core::CuratorFramework,
        held::node::{HeldNode, tenure::Footing},
    },
    locks::contender::last_look::{ask_session, pause},
    session::wait::deadline::{Stop, WaitEnd},
};

/// What a look at the znode shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// There was a moment, just now, at which the znode stood for certain.
    Certain,
    /// It is gone.
    Gone,
    /// For as long as the session timeout nobody could make sure.
    InDoubt,
    /// The caller's time was up first.
    Stopped(WaitEnd),
}

/// Whether the lock may be handed out without asking anybody: over a live connection, over which the znode was seen, in a
/// session that the servers cannot have expired, and nothing can have happened to the znode without being told.
/// `is_confirmed`: the server was asked over this connection, a moment ago.
pub(super) fn is_firm(footing: &Footing, is_confirmed: bool) -> bool {
    !footing.is_gone
        && footing.connection != 0
        && footing.connection == footing.seen_over
        && (footing.is_watched || is_confirmed)
        && footing.is_valid
}

/// Looks, and asks the server where the look does not say enough. Costs nothing where it does.
///
/// The thread may have been paused at any time before this, for longer than its session. So this is the last thing that
/// happens before it returns with the lock. `is_first`: its own contender has just been granted the znode.
pub(super) fn look(client: &CuratorFramework, tenure: &Arc<HeldNode>, is_first: bool, stop: Stop<'_>) -> Result<Look> {
    let footing = tenure.footing();
    if is_firm(&footing, is_first) {
        return Ok(Look::Certain);
    }
    ask(client, tenure, stop)
}

#[cold]
fn ask(client: &CuratorFramework, tenure: &Arc<HeldNode>, stop: Stop<'_>) -> Result<Look> {
    let timeout = tenure.session().timeout();
    let end = Instant::now().checked_add(timeout);
    let bound = end.map_or(stop, |end| stop.by(end));
    // When the question was sent that was answered last, and over which connection.
    let mut confirmed: Option<(Instant, u64)> = None;
    loop {
        // First: with the footing the session's end is what is looked at last.
        let over = stop.is_over();
        let footing = tenure.footing();
        let is_confirmed = confirmed.is_some_and(|(at, over)| over == footing.connection && at.elapsed() < timeout / 2);
        if footing.is_gone {
            return Ok(Look::Gone);
        }
        if let Some(end) = over {
            return Ok(Look::Stopped(end));
        }
        if is_firm(&footing, is_confirmed) {
            return Ok(Look::Certain);
        }
        if bound.is_over().is_some() {
            return Ok(Look::InDoubt);
        }
        if footing.connection == 0 {
            // Whatever it finds, the next round looks at it. Where it is another session, this one has ended.
            if client.core.connected_session(bound)?.is_ok_and(|session| !Arc::ptr_eq(&session, tenure.session())) {
                pause(timeout, bound);
            }
            continue;
        }
        let is_seen = footing.connection == footing.seen_over && (footing.is_watched || is_confirmed);
        let asked = Instant::now();
        if !is_seen && ask_session(tenure.session(), vec![tenure], bound) {
            confirmed = Some((asked, footing.connection));
        } else {
            // The next prompt heartbeats make the session certain.
            pause(timeout, bound);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{sync::atomic::Ordering, thread, time::Duration};

    use super::*;
    use crate::{
        base::paths::ServerPath,
        framework::config::retry::RetryOneTime,
        session::{api::Ticket, fake::stub::StubSession, wait::pending::Watch},
    };

    const LONG: Duration = Duration::from_secs(20);

    /// The znode was not seen over the connection of now, and nobody answers.
    #[test]
    fn who_is_certain_only_when_its_time_is_up_does_not_get_the_lock() {
        let retry = RetryOneTime::new(Duration::from_millis(1));
        let client = CuratorFramework::builder().connect_string("127.0.0.1:1").retry_policy(retry).build().unwrap();
        let session = StubSession::new();
        *session.valid_until.lock() = Some(Instant::now() + LONG);
        let path = ServerPath::from_server("/locks/m/lock-0000000000");
        let watch = Watch::new(session.clone(), Ticket(0));
        let tenure = client.core.held.add(path, session.clone(), 1, 1, Some(watch));
        session.connection.store(2, Ordering::SeqCst);
        let end = Instant::now() + Duration::from_millis(200);
        let looked = thread::scope(|scope| {
            let looks = scope.spawn(|| look(&client, &tenure, true, Stop::at(end)).unwrap());
            // Where it begins too late it asks nobody.
            while session.submissions.lock().is_empty() && !looks.is_finished() {
                thread::yield_now();
            }
            // Whoever looks sleeps until its time is up, and finds this when it wakes.
            session.connection.store(1, Ordering::SeqCst);
            looks.join().unwrap()
        });
        assert_eq!(looked, Look::Stopped(WaitEnd::Deadline));
    }
}
