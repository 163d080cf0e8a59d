//! What a release makes of each answer, in a session whose answers the test gives.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;

use super::*;
use crate::{
    base::clock,
    error::LostReason,
    framework::{
        client::core::CuratorFramework,
        config::retry::RetryOneTime,
        held::{holds::HoldKind, node::Znode},
    },
    locks::recipe::{
        driver::StandardLockInternalsDriver,
        spec::{Node, Recipe},
    },
    proto::response::Response,
    session::fake::stub::StubSession,
};

const PATH: &str = "/lock/_c_0-lock-0000000003";
const PATIENCE: Duration = Duration::from_secs(20);

struct Stage {
    client: CuratorFramework,
    session: Arc<StubSession>,
    lock: LockInternals,
}

impl Stage {
    /// A client whose retry policy allows one more attempt.
    fn new() -> Stage {
        let retry = RetryOneTime::new(Duration::from_millis(1));
        let client = CuratorFramework::builder().connect_string("127.0.0.1:1").retry_policy(retry).build().unwrap();
        client.start().unwrap();
        let session = StubSession::new();
        *session.valid_until.lock() = Some(clock::now() + PATIENCE);
        client.core.set_session(session.clone());
        let lock =
            LockInternals::new(&client, "/lock", Recipe::new(HoldKind::Mutex, StandardLockInternalsDriver::new()))
                .unwrap();
        Stage { client, session, lock }
    }

    fn held(&self) -> Arc<HeldNode> {
        let path = ServerPath::from_server(PATH);
        let (is_queue, has_waited, waited_for) = (false, false, None);
        let znode = Znode { path, czxid: 3, token: 3, grant: 0, has_waited, waited_for, is_queue, named: None };
        self.client.core.held.add_znode(znode, self.session.clone(), 1, None, None)
    }

    /// Releases, while these answers come. None is left over, and no request without an answer.
    fn release(&self, held: &Arc<HeldNode>, answers: Vec<Reply>) -> Released {
        let released = thread::scope(|scope| {
            let releasing = scope.spawn(|| self.lock.release(held));
            answers.into_iter().for_each(|answer| answer_delete(&self.session, answer));
            releasing.join().unwrap()
        });
        if released.1.is_none() {
            assert!(self.session.submissions.lock().is_empty(), "a request that nobody needs");
        }
        released
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.client.close();
    }
}

/// Waits for the delete of the held znode, and answers it.
fn answer_delete(session: &StubSession, answer: Reply) {
    let begun = clock::now();
    while session.submissions.lock().is_empty() {
        assert!(clock::since(begun) < PATIENCE, "nothing is sent");
        thread::sleep(Duration::from_millis(1));
    }
    let request = session.submissions.lock().first().unwrap().request.clone();
    assert!(matches!(&request, Request::Delete { path, .. } if path == PATH), "{request:?}");
    session.answer(answer);
}

fn done() -> Reply {
    Ok(Response::Done)
}

fn refused(code: ErrorCode) -> Reply {
    Err(SessionError::Server(code))
}

fn lost() -> Reply {
    Err(SessionError::ConnectionLoss(None))
}

fn reason(result: &Result<()>) -> Option<LostReason> {
    match result {
        Err(Error::LockLost { reason, .. }) => Some(*reason),
        _ => None,
    }
}

#[test]
fn a_znode_that_is_gone_was_somebody_elses_doing_unless_the_own_delete_is_in_doubt() {
    for (answers, is_ok) in [
        (vec![done()], true),
        (vec![refused(ErrorCode::NoNode)], false),
        (vec![lost(), done()], true),
        (vec![lost(), refused(ErrorCode::NoNode)], true),
        (vec![refused(ErrorCode::ThrottledOp), done()], true),
        (vec![refused(ErrorCode::ThrottledOp), refused(ErrorCode::NoNode)], false),
    ] {
        let stage = Stage::new();
        let what = format!("{answers:?}");
        let (result, left) = stage.release(&stage.held(), answers);
        assert_eq!(result.is_ok(), is_ok, "{what}");
        assert_eq!(reason(&result), (!is_ok).then_some(LostReason::NodeDeleted), "{what}");
        assert!(left.is_none(), "{what}");
        assert_eq!(stage.client.metrics().losses.node_deleted, u64::from(!is_ok), "{what}");
    }
}

#[test]
fn what_the_servers_do_not_confirm_goes_on_in_the_background_until_the_znode_is_gone() {
    for (answers, result) in [(vec![lost(), lost()], "connection"), (vec![refused(ErrorCode::NoAuth)], "NoAuth")] {
        let stage = Stage::new();
        let (released, left) = stage.release(&stage.held(), answers);
        assert!(format!("{released:?}").to_lowercase().contains(&result.to_lowercase()), "{released:?}");
        answer_delete(&stage.session, done());
        let (again, left) = stage.lock.await_release(left.unwrap(), clock::now() + PATIENCE);
        assert!(again.is_ok() && left.is_none(), "{again:?}");
    }
}

#[test]
fn a_second_release_ends_with_the_client() {
    let stage = Stage::new();
    let (_, left) = stage.release(&stage.held(), vec![refused(ErrorCode::NoAuth)]);
    stage.client.close();
    let (again, left) = stage.lock.await_release(left.unwrap(), clock::now() + PATIENCE);
    assert!(matches!(again, Err(Error::ClientClosed)) && left.is_none(), "{again:?}");
}

#[test]
fn a_session_that_ends_takes_the_znode_along() {
    for (why, is_closed) in [
        (LostReason::SessionExpired, false),
        (LostReason::SuspendedTooLong, false),
        // Closed after that.
        (LostReason::SuspendedTooLong, true),
        (LostReason::ClientClosed, true),
    ] {
        let stage = Stage::new();
        let held = stage.held();
        let next = StubSession::new();
        let (released, _) = thread::scope(|scope| {
            let releasing = scope.spawn(|| stage.lock.release(&held));
            while stage.session.submissions.lock().is_empty() && !releasing.is_finished() {
                thread::yield_now();
            }
            let session: Arc<dyn Session> = stage.session.clone();
            stage.client.core.held.lose_all(Some(&session), why);
            stage.session.ended.store(true, Ordering::Release);
            stage.client.core.set_session(next.clone());
            stage.session.answer(Err(if is_closed { SessionError::Closed } else { SessionError::Expired }));
            releasing.join().unwrap()
        });
        assert_eq!(reason(&released), Some(why), "{released:?}");
        let losses = stage.client.metrics().losses;
        let counted = (losses.session_expired, losses.suspended_too_long, losses.client_closed);
        let is = |reason| u64::from(why == reason);
        // A client that is closed is its holder's own doing.
        assert_eq!(counted, (is(LostReason::SessionExpired), is(LostReason::SuspendedTooLong), 0));
        assert!(next.submissions.lock().is_empty());
    }
}

#[test]
fn no_delete_goes_out_in_another_session() {
    for has_ended in [false, true] {
        let stage = Stage::new();
        let held = stage.held();
        stage.session.ended.store(has_ended, Ordering::Release);
        let next = StubSession::new();
        stage.client.core.set_session(next.clone());
        let (released, _) = stage.lock.release(&held);
        assert!(released.is_err(), "{released:?}");
        assert!(next.submissions.lock().is_empty() && stage.session.submissions.lock().is_empty());
        stage.lock.release_in_background(&stage.held());
        assert!(next.submissions.lock().is_empty());
    }
}

#[test]
fn a_hold_that_was_lost_is_not_deleted_again() {
    let stage = Stage::new();
    for in_background in [false, true] {
        let held = stage.held();
        held.lose(LostReason::NodeDeleted);
        if in_background {
            stage.lock.release_in_background(&held);
        } else {
            assert_eq!(reason(&stage.lock.release(&held).0), Some(LostReason::NodeDeleted));
        }
        assert!(stage.session.submissions.lock().is_empty());
    }
}

/// Runs when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_loss_while_the_hold_is_ended_is_counted_once() {
    for is_told in [false, true] {
        let stage = Stage::new();
        let held = stage.held();
        let (core, session) = (stage.client.core.clone(), stage.session.clone());
        // The release drops what the caller has given to the hold.
        let guard = OnDrop(move || {
            if is_told {
                let session: Arc<dyn Session> = session.clone();
                core.held.lose_all(Some(&session), LostReason::SuspendedTooLong);
            }
            session.ended.store(true, Ordering::Release);
            core.set_session(StubSession::new());
        });
        held.limit(None, Some(Duration::from_secs(3600)), move || _ = &guard);
        let (released, _) = stage.lock.release(&held);
        let why = if is_told { LostReason::SuspendedTooLong } else { LostReason::SessionExpired };
        assert_eq!(reason(&released), Some(why));
        let losses = stage.client.metrics().losses;
        assert_eq!(losses.session_expired + losses.suspended_too_long, 1, "{losses}");
    }
}

#[test]
fn without_waiting_one_delete_goes_out_at_once_and_the_clean_up_does_the_rest() {
    for (answer, goes_on) in [
        (done(), false),
        (refused(ErrorCode::NoNode), false),
        (Err(SessionError::Expired), false),
        (Err(SessionError::Closed), false),
        (lost(), true),
        (refused(ErrorCode::ThrottledOp), true),
    ] {
        let stage = Stage::new();
        let was_gone = matches!(answer, Err(SessionError::Server(ErrorCode::NoNode)));
        stage.lock.release_in_background(&stage.held());
        assert_eq!(stage.session.submissions.lock().len(), 1, "sent by this very thread");
        answer_delete(&stage.session, answer);
        assert_eq!(stage.client.metrics().clean_up_jobs, u64::from(goes_on));
        assert_eq!(stage.client.metrics().losses.node_deleted, u64::from(was_gone));
    }
}

#[test]
fn what_an_acquire_leaves_is_deleted_at_once_over_a_connection_and_by_the_clean_up_without_one() {
    let node = || Leftover::Node(Node { name: "_c_0-lock-0000000003".to_owned(), czxid: 3 });
    let doubt = || Leftover::Doubt("_c_0-".to_owned());
    // The connection, whether the session has ended, the leftover: how many deletes go out, and how many jobs there are.
    for (connection, has_ended, leftover, deletes, jobs) in [
        (1, false, node(), 1, 0),
        (0, false, node(), 0, 1),
        (0, true, node(), 0, 0),
        (0, true, doubt(), 0, 0),
        (0, false, doubt(), 0, 1),
    ] {
        let stage = Stage::new();
        stage.session.connection.store(connection, Ordering::Release);
        stage.session.ended.store(has_ended, Ordering::Release);
        let owner: Arc<dyn Session> = stage.session.clone();
        let what = format!("{connection} {has_ended} {leftover:?}");
        stage.lock.clean_up(&owner, leftover);
        assert_eq!(stage.session.submissions.lock().len(), deletes, "{what}");
        assert_eq!(stage.client.metrics().clean_up_jobs, jobs, "{what}");
    }
}
