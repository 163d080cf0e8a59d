//! A holder is told some time before its lock may be gone.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use curator_locks::{
    Deadline, DeadlineEvent, Hold, HoldState, InterProcessMultiLock, InterProcessMutex, InterProcessSemaphoreV2,
    LostReason,
    testing::{Direction, FaultProxy, op},
};

use crate::{
    MS, behind_proxy_for,
    support::{self, PATIENCE, SESSION, another, eventually, mutex},
};

const MARGIN: Duration = Duration::from_millis(500);

/// Outlasts what the machine may do between a warning and the end of a black hole.
const LASTS: Duration = Duration::from_secs(15);

#[track_caller]
fn next(deadline: &Deadline) -> DeadlineEvent {
    deadline.recv_timeout(PATIENCE).unwrap()
}

/// It ends without another word.
#[track_caller]
fn assert_ended(deadline: &Deadline) {
    assert_eq!(deadline.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

/// It tells this and the other in turn, as often as the machine lets the session become uncertain, and then it ends.
#[track_caller]
fn assert_ends_in_turn(events: &Receiver<DeadlineEvent>, mut expected: DeadlineEvent) {
    loop {
        match events.recv_timeout(PATIENCE) {
            Ok(event) => assert_eq!(event, expected),
            Err(error) => return assert_eq!(error, RecvTimeoutError::Disconnected),
        }
        expected = if expected == DeadlineEvent::Near { DeadlineEvent::Recovered } else { DeadlineEvent::Near };
    }
}

#[test]
fn a_hold_is_told_the_margin_before_its_end_and_again_when_it_has_recovered() {
    let (proxy, client) = behind_proxy_for(LASTS);
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    let deadline = held.deadline(MARGIN);
    let (tell, told) = unbounded();
    held.on_deadline(MARGIN, |_| panic!("a listener that panics silences no other"));
    held.on_deadline(MARGIN, move |event| tell.send(event).unwrap());
    assert!(!deadline.is_near() && deadline.is_empty());
    // The server goes on hearing it.
    proxy.black_hole(Direction::ToClient);
    assert_eq!(next(&deadline), DeadlineEvent::Near);
    // The last heartbeat's answer may have been on its way, but no other comes.
    let left = held.valid_until().saturating_duration_since(Instant::now());
    assert!(left <= MARGIN, "{left:?} before the end");
    assert!(deadline.is_near());
    proxy.pass().unwrap();
    assert_eq!(next(&deadline), DeadlineEvent::Recovered);
    eventually("it is far again", || !deadline.is_near() && held.state() == HoldState::Held);
    for expected in [DeadlineEvent::Near, DeadlineEvent::Recovered] {
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), expected);
    }
    held.release().unwrap();
    assert_ends_in_turn(&deadline, DeadlineEvent::Near);
    // The listener is dropped with the hold.
    assert_ends_in_turn(&told, DeadlineEvent::Near);
}

#[test]
fn each_margin_is_told_for_itself_and_the_end_is_told_to_all() {
    let (proxy, client) = behind_proxy_for(LASTS);
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    let [short, long, always] = [200 * MS, 1000 * MS, 2 * LASTS].map(|margin| held.deadline(margin));
    assert_eq!(next(&always), DeadlineEvent::Near);
    proxy.black_hole(Direction::Both);
    assert_eq!(next(&long), DeadlineEvent::Near);
    assert!(short.is_empty() || held.valid_until() <= Instant::now() + 200 * MS);
    assert_eq!(next(&short), DeadlineEvent::Near);
    let lost = || held.is_lost();
    eventually("the session is given up", lost);
    assert_ended(&always);
    assert_ends_in_turn(&long, DeadlineEvent::Recovered);
    assert_ends_in_turn(&short, DeadlineEvent::Recovered);
    assert!([&short, &long, &always].iter().all(|deadline| deadline.is_near()));
    assert_ended_at_once(&held);
}

/// Of a hold that is lost, near is told once.
fn assert_ended_at_once(hold: &Hold) {
    let late = hold.deadline(MARGIN);
    assert_eq!(next(&late), DeadlineEvent::Near);
    assert_ended(&late);
}

#[test]
fn a_hold_whose_znode_is_deleted_is_near_its_end_at_once() {
    let client = support::client();
    let admin = another(&client);
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    let deadline = held.deadline(Duration::ZERO);
    admin.delete().for_path(held.path()).unwrap();
    assert_eq!(next(&deadline), DeadlineEvent::Near);
    assert_ended(&deadline);
    assert_eq!(held.state(), HoldState::Lost(LostReason::NodeDeleted));
    assert_eq!(held.state().to_string(), "lost: somebody deleted the lock's znode");
    assert_ended_at_once(&held);
}

#[test]
fn a_hold_that_was_given_back_tells_nothing() {
    let client = support::client();
    let semaphore = InterProcessSemaphoreV2::new(&client, "/semaphore", 2).unwrap();
    let lease = semaphore.acquire().unwrap();
    let (before, hold) = (lease.deadline(Duration::MAX), Hold::clone(&lease));
    lease.close().unwrap();
    assert_eq!(next(&before), DeadlineEvent::Near);
    assert_ended(&before);
    assert_ended(&hold.deadline(MARGIN));
    assert_eq!(hold.state(), HoldState::Released);
}

#[test]
fn several_locks_are_as_near_their_end_as_the_first_of_them() {
    let client = support::client();
    let (proxy, behind) = (FaultProxy::start(support::server().connect_string()).unwrap(), client.namespace());
    let other = support::connect(support::builder_at(&proxy.connect_string(), behind).session_timeout(LASTS));
    let locks = [(&client, "/a"), (&other, "/b")].map(|(client, path)| {
        std::sync::Arc::new(InterProcessMutex::new(client, path).unwrap())
            as std::sync::Arc<dyn curator_locks::InterProcessLock>
    });
    let both = InterProcessMultiLock::from_locks(locks).unwrap();
    let held = both.lock().unwrap();
    let deadline = held.deadline(MARGIN);
    assert!(deadline.is_empty());
    // The server goes on hearing it.
    proxy.black_hole(Direction::ToClient);
    assert_eq!(next(&deadline), DeadlineEvent::Near);
    proxy.pass().unwrap();
    assert_eq!(next(&deadline), DeadlineEvent::Recovered);
    client.delete().for_path(held.holds()[0].path()).unwrap();
    assert_eq!(next(&deadline), DeadlineEvent::Near);
    let _ = held.release();
    assert_ends_in_turn(&deadline, DeadlineEvent::Recovered);
}

#[test]
fn a_deadline_that_is_dropped_costs_nothing_any_more() {
    let (proxy, client) = behind_proxy_for(SESSION);
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    for _ in 0..1000 {
        drop(held.deadline(MARGIN));
    }
    let deadline = held.deadline(MARGIN);
    let requests = proxy.requests(op::SYNC);
    eventually("a heartbeat", || proxy.requests(op::SYNC) > requests);
    assert!(deadline.is_empty());
    held.release().unwrap();
}

#[test]
fn a_hold_can_be_looked_at_from_any_thread() {
    fn is_shared<T: Send + Sync + Clone>(_: &T) {}
    let client = support::client();
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    is_shared(&*held);
    let hold = Hold::clone(&held);
    let seen = std::thread::spawn(move || (hold.is_valid(), hold.fencing_token())).join().unwrap();
    assert_eq!(seen, (true, held.fencing_token()));
    held.release().unwrap();
}
