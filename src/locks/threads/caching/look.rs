//! The last look before a thread returns with a lock of its process.

use std::{sync::Arc, time::Instant};

use crate::{
    error::Result,
    framework::{
        client::core::CuratorFramework,
        held::node::{Evidence, HeldNode},
    },
    locks::{
        acquire::last_look::{ask_session, pause},
        recipe::doubt::Doubt,
    },
    session::wait::deadline::{WaitBound, WaitEnd},
};

/// The result of a look at the znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// There was a moment, just now, at which the znode stood for certain.
    Certain,
    /// The znode is gone.
    Gone,
    /// The znode was in doubt for as long as the session timeout.
    InDoubt,
    /// The caller's time was up first.
    Stopped(WaitEnd),
}

/// Whether the lock may be handed out without asking the servers: over a live connection, over which the znode was
/// seen, in a session that the servers cannot have expired, and nothing can have happened to the znode without an
/// event. `is_confirmed`: the server was asked over this connection, a moment ago.
pub(super) fn is_certain(evidence: &Evidence, is_confirmed: bool) -> bool {
    !evidence.is_gone
        && evidence.connection != 0
        && evidence.connection == evidence.seen_over
        && (evidence.is_watched || is_confirmed)
        && evidence.is_valid
}

/// Looks, and asks the server if the evidence is not enough. Costs nothing if it is.
///
/// The thread may have been paused at any time before this, for longer than its session. So this is the last thing that
/// happens before it returns with the lock. `is_first`: its own contender has just been granted the znode.
pub(super) fn look(
    client: &CuratorFramework,
    tenure: &Arc<HeldNode>,
    is_first: bool,
    bound: WaitBound<'_>,
) -> Result<Look> {
    let evidence = tenure.znode().evidence();
    if is_certain(&evidence, is_first) {
        return Ok(Look::Certain);
    }
    ask(client, tenure, bound)
}

#[cold]
fn ask(client: &CuratorFramework, tenure: &Arc<HeldNode>, bound: WaitBound<'_>) -> Result<Look> {
    let (timeout, mut doubt) = (tenure.session().timeout(), Doubt::default());
    // When the last question with an answer was sent, and over which connection.
    let mut confirmed: Option<(Instant, u64)> = None;
    loop {
        doubt.steps(Instant::now(), timeout);
        // Read first: the evidence, which has the session's end, has to be read last.
        let over = bound.is_over();
        let evidence = tenure.znode().evidence();
        let is_confirmed =
            confirmed.is_some_and(|(at, over)| over == evidence.connection && at.elapsed() < timeout / 2);
        if evidence.is_gone {
            return Ok(Look::Gone);
        }
        if let Some(end) = over {
            return Ok(Look::Stopped(end));
        }
        if is_certain(&evidence, is_confirmed) {
            return Ok(Look::Certain);
        }
        if evidence.connection == 0 {
            // No server can be asked. The wait ends with the session at the latest.
            doubt.ends();
            // The next iteration checks the result. A different session means that ours has ended.
            let found = client.core.connected_session(Some(tenure.session()), bound)?;
            if found.is_ok_and(|session| !Arc::ptr_eq(&session, tenure.session())) {
                pause(timeout, bound);
            }
            continue;
        }
        if doubt.has_lasted(Instant::now(), timeout) {
            return Ok(Look::InDoubt);
        }
        let asks = evidence.connection != evidence.seen_over || !(evidence.is_watched || is_confirmed);
        let now = Instant::now();
        doubt.sleeps(now, asks);
        if asks && ask_session(tenure.session(), vec![tenure], bound) {
            confirmed = Some((now, evidence.connection));
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
        proto::{response::Response, types::Stat},
        session::{
            api::{Session, SessionConfig, SessionFactory, SessionObserver, Ticket},
            fake::stub::StubSession,
            wait::pending::Watch,
        },
    };

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_znode_is_handed_out_only_where_nothing_is_missing() {
        let certain = Evidence { is_gone: false, connection: 3, seen_over: 3, is_watched: true, is_valid: true };
        let young = Evidence { is_watched: false, ..certain };
        assert!(is_certain(&certain, false) && is_certain(&young, true) && !is_certain(&young, false));
        for shaky in [
            Evidence { is_gone: true, ..certain },
            Evidence { connection: 0, seen_over: 0, ..certain },
            Evidence { seen_over: 2, ..certain },
            Evidence { is_valid: false, ..certain },
        ] {
            assert!(!is_certain(&shaky, true), "{shaky:?}");
        }
    }

    /// A client that no server knows.
    fn client() -> CuratorFramework {
        let retry = RetryOneTime::new(Duration::from_millis(1));
        CuratorFramework::builder().connect_string("127.0.0.1:1").retry_policy(retry).build().unwrap()
    }

    fn stands(session: &StubSession) {
        // A sync, and whether it stands.
        session.answer(Ok(Response::Synced { path: String::new() }));
        session.answer(Ok(Response::Stat(Stat { czxid: 1, ephemeral_owner: session.id(), ..Stat::default() })));
    }

    #[test]
    fn a_znode_that_was_watched_over_another_connection_is_asked_about_and_one_that_is_gone_is_not() {
        let (client, session) = (client(), StubSession::new());
        *session.valid_until.lock() = Some(Instant::now() + LONG);
        let path = ServerPath::from_server("/locks/m/lock-0000000000");
        let watch = Watch::new(session.clone(), Ticket(0));
        let tenure = client.core.held.add(path, session.clone(), 1, 1, Some(watch));
        session.connection.store(2, Ordering::SeqCst);
        let looked = thread::scope(|scope| {
            let looks = scope.spawn(|| look(&client, &tenure, false, WaitBound::default()).unwrap());
            while session.submissions.lock().len() < 2 && !looks.is_finished() {
                thread::yield_now();
            }
            assert!(!looks.is_finished(), "it asks nobody");
            stands(&session);
            looks.join().unwrap()
        });
        assert_eq!(looked, Look::Certain);
        session.ended.store(true, Ordering::SeqCst);
        assert_eq!(look(&client, &tenure, false, WaitBound::default()).unwrap(), Look::Gone);
        assert!(session.submissions.lock().is_empty());
    }

    /// The znode has no watch, and the connection of the first question is gone when its answer comes.
    #[test]
    fn only_an_answer_over_the_connection_of_now_makes_certain_of_a_znode_without_a_watch() {
        let (client, session) = (client(), StubSession::new());
        *session.valid_until.lock() = Some(Instant::now() + LONG);
        let path = ServerPath::from_server("/locks/m/lock-0000000000");
        let tenure = client.core.held.add(path, session.clone(), 1, 1, None);
        let bound = WaitBound::default();
        assert_eq!(look(&client, &tenure, true, bound).unwrap(), Look::Certain);
        assert!(session.submissions.lock().is_empty(), "its contender has just seen it");
        let looked = thread::scope(|scope| {
            let looks = scope.spawn(|| look(&client, &tenure, false, bound).unwrap());
            for connection in [2, 2] {
                while session.submissions.lock().len() < 2 && !looks.is_finished() {
                    thread::yield_now();
                }
                assert!(!looks.is_finished(), "it asks nobody");
                session.connection.store(connection, Ordering::SeqCst);
                stands(&session);
            }
            looks.join().unwrap()
        });
        assert_eq!(looked, Look::Certain);
    }

    /// A client, and a tenure of the session with a watch on its znode.
    fn tenure_of(session: &Arc<StubSession>) -> (CuratorFramework, Arc<HeldNode>) {
        let client = client();
        let path = ServerPath::from_server("/locks/m/lock-0000000000");
        let watch = Watch::new(session.clone(), Ticket(0));
        let tenure = client.core.held.add(path, session.clone(), 1, 1, Some(watch));
        (client, tenure)
    }

    #[test]
    fn a_pause_is_no_part_of_the_time_in_which_a_znode_may_become_certain() {
        let (session, timeout) = (StubSession::new(), Duration::from_secs(1));
        *session.timeout.lock() = timeout;
        let (client, tenure) = tenure_of(&session);
        // The process stands still in the midst of the second look, and is certain half a timeout after that.
        let this = session.clone();
        let pause = move || {
            thread::sleep(timeout.mul_f64(0.9));
            thread::spawn(move || {
                thread::sleep(timeout / 2);
                *this.valid_until.lock() = Some(Instant::now() + LONG);
            });
        };
        let second = session.clone();
        *session.when_asked.lock() = Some(Box::new(move || *second.when_asked.lock() = Some(Box::new(pause))));
        assert_eq!(look(&client, &tenure, true, WaitBound::default()).unwrap(), Look::Certain);
        *session.valid_until.lock() = None;
        assert_eq!(look(&client, &tenure, true, WaitBound::default()).unwrap(), Look::InDoubt);
    }

    /// The znode was not seen over the current connection, and no server answers.
    #[test]
    fn who_is_certain_only_when_its_time_is_up_does_not_get_the_lock() {
        let session = StubSession::new();
        *session.valid_until.lock() = Some(Instant::now() + LONG);
        let (client, tenure) = tenure_of(&session);
        session.connection.store(2, Ordering::SeqCst);
        let end = Instant::now() + Duration::from_millis(200);
        let looked = thread::scope(|scope| {
            let looks = scope.spawn(|| look(&client, &tenure, true, WaitBound::at(end)).unwrap());
            // If it begins too late it does not ask.
            while session.submissions.lock().is_empty() && !looks.is_finished() {
                thread::yield_now();
            }
            // The thread sleeps until its time is up, and finds this when it wakes.
            session.connection.store(1, Ordering::SeqCst);
            looks.join().unwrap()
        });
        assert_eq!(looked, Look::Stopped(WaitEnd::Deadline));
    }

    struct Given(Arc<StubSession>);

    impl SessionFactory for Given {
        fn open(&self, _: &SessionConfig, _: SessionObserver) -> Result<Arc<dyn Session>> {
            Ok(self.0.clone())
        }
    }

    /// The session is certain once the servers could be asked for half a timeout.
    #[test]
    fn a_wait_for_a_connection_is_no_part_of_that_time_either() {
        let (session, timeout) = (StubSession::new(), Duration::from_secs(1));
        *session.timeout.lock() = timeout;
        session.connection.store(0, Ordering::SeqCst);
        let builder = CuratorFramework::builder().connect_string("127.0.0.1:1");
        let builder = builder.retry_policy(RetryOneTime::new(Duration::from_millis(1)));
        let client = builder.session_factory(Given(session.clone())).build().unwrap();
        client.start().unwrap();
        while client.core.current_session().is_none() {
            thread::yield_now();
        }
        let path = ServerPath::from_server("/locks/m/lock-0000000000");
        let watch = Watch::new(session.clone(), Ticket(0));
        let tenure = client.core.held.add(path, session.clone(), 1, 1, Some(watch));
        let (this, core) = (session.clone(), client.core.clone());
        thread::spawn(move || {
            thread::sleep(timeout.mul_f64(0.8));
            this.connection.store(1, Ordering::SeqCst);
            core.wake_waiting();
            thread::sleep(timeout.mul_f64(0.5));
            *this.valid_until.lock() = Some(Instant::now() + LONG);
        });
        assert_eq!(look(&client, &tenure, false, WaitBound::default()).unwrap(), Look::Certain);
    }
}
