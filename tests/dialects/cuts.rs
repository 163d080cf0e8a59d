//! A Keeper resumes no session: after each cut it answers with another one, and keeps the first with its znodes until that
//! expires.

use std::{
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Caching, CuratorFramework, HoldState, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, InterProcessUnfairMutex,
    LeaderLatch, LeaderSelector, Leadership, LostReason, Result,
    testing::{Dialect, Fault, FaultProxy, RequestMatch, TestingServer, op},
};

use crate::support::{
    PATIENCE, SESSION, await_queue, builder_at, children, connect, eventually, namespace, queue, quick_server, server,
};

const PATH: &str = "/locks/m";

/// What has to happen at once, and not when a session expires, has happened by then.
const SOON: Duration = Duration::from_secs(SESSION.as_secs() / 4);

type Make = fn(&CuratorFramework) -> Box<dyn InterProcessLock>;

/// Every kind whose locks exclude each other.
const KINDS: [(&str, Make); 7] = [
    ("mutex", |client| Box::new(InterProcessMutex::new(client, PATH).unwrap())),
    ("cached", |client| Box::new(InterProcessMutex::new(client, PATH).unwrap().with_caching(Caching::new()))),
    ("semaphore mutex", |client| Box::new(InterProcessSemaphoreMutex::new(client, PATH).unwrap())),
    ("write", |client| Box::new(InterProcessReadWriteLock::new(client, PATH).unwrap().write_lock().clone())),
    ("unfair", |client| Box::new(InterProcessUnfairMutex::new(client, PATH).unwrap())),
    ("multi", |client| Box::new(InterProcessMultiLock::new(client, ["/locks/a", "/locks/b"]).unwrap())),
    ("queue of one lease", |client| Box::new(OneLease::new(client))),
];

/// A semaphore of one lease, as a lock.
struct OneLease {
    semaphore: InterProcessSemaphoreV2,
    lease: parking_lot::Mutex<Option<curator_locks::Lease>>,
}

impl OneLease {
    fn new(client: &CuratorFramework) -> OneLease {
        let semaphore = InterProcessSemaphoreV2::new(client, PATH, 1).unwrap();
        OneLease { semaphore, lease: parking_lot::Mutex::default() }
    }
}

impl InterProcessLock for OneLease {
    fn acquire(&self) -> Result<()> {
        *self.lease.lock() = Some(self.semaphore.acquire()?);
        Ok(())
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        let lease = self.semaphore.acquire_timeout(timeout)?;
        let is_granted = lease.is_some();
        *self.lease.lock() = lease;
        Ok(is_granted)
    }

    fn release(&self) -> Result<()> {
        self.lease.lock().take().unwrap().close()
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.lease.lock().is_some()
    }
}

/// A client whose network can be cut.
struct Side {
    proxy: FaultProxy,
    client: CuratorFramework,
}

impl Side {
    fn of(dialect: Dialect, server: &TestingServer, namespace: &str, session: Duration) -> Side {
        let proxy = FaultProxy::start_as(server.connect_string(), dialect).unwrap();
        let client = connect(builder_at(&proxy.connect_string(), namespace).session_timeout(session));
        Side { proxy, client }
    }

    fn keeper(namespace: &str) -> Side {
        Side::of(Dialect::KeeperBefore267, server(), namespace, SESSION)
    }

    /// Cuts the connection, and waits for the next session.
    fn cut(&self) -> i64 {
        let before = self.client.session_id();
        self.proxy.cut();
        eventually("there is another session", || self.client.is_connected() && self.client.session_id() != before);
        before
    }
}

/// Acquires the lock and releases it. Returns when it was granted.
fn once(lock: &dyn InterProcessLock) -> Instant {
    assert!(lock.acquire_timeout(PATIENCE).unwrap());
    let at = Instant::now();
    lock.release().unwrap();
    at
}

/// How many sessions the server has.
fn sessions(server: &TestingServer) -> u64 {
    let answer = server.four_letter_word("mntr").unwrap();
    let value = answer.lines().find_map(|line| line.strip_prefix("zk_global_sessions\t")).unwrap();
    value.trim().parse().unwrap()
}

#[test]
fn a_cut_costs_one_handshake_and_leaves_no_session() {
    const CUTS: u64 = 10;
    let session = Duration::from_secs(3);
    let server = quick_server().start().unwrap();
    for dialect in [Dialect::KeeperBefore267, Dialect::Keeper] {
        let side = Side::of(dialect, &server, &namespace(), session);
        let mutex = InterProcessMutex::new(&side.client, PATH).unwrap();
        for cut in 1..=CUTS {
            let guard = mutex.lock().unwrap();
            // One that soon ends again counts as a failed attempt, and the next one follows a pause.
            let since = Instant::now();
            eventually("the connection has lasted", || since.elapsed() > Duration::from_millis(300));
            side.cut();
            assert!(guard.is_lost() && guard.state() == HoldState::Lost(LostReason::SessionExpired));
            assert!(guard.release().is_err());
            assert_eq!(side.proxy.connections(), 1 + cut, "{dialect}: one handshake a cut");
        }
        eventually("the sessions that were cut have expired, and no other is left", || sessions(&server) == 1);
        assert!(mutex.acquire_timeout(PATIENCE).unwrap(), "the one that is left is the client's");
        mutex.release().unwrap();
        side.client.close();
        eventually("no session is left", || sessions(&server) == 0);
    }
}

#[test]
fn a_client_that_is_closed_without_a_connection_leaves_no_other_session() {
    let server = quick_server().start().unwrap();
    let session = Duration::from_secs(3);
    let side = Side::of(Dialect::Keeper, &server, &namespace(), session);
    thread::scope(|scope| {
        let closing = scope.spawn(|| {
            side.proxy.cut();
            side.client.close();
        });
        closing.join().unwrap();
    });
    eventually("no session is left", || sessions(&server) == 0);
    assert!(side.proxy.connections() <= 2);
}

#[test]
fn a_server_that_hangs_up_on_each_session_is_not_asked_for_one_after_the_other() {
    let side = Side::keeper(&namespace());
    let before = side.proxy.connections();
    let fault = side.proxy.inject(RequestMatch::any().times(u64::MAX), Fault::CutInsteadOfRequest);
    side.proxy.cut();
    let since = Instant::now();
    eventually("it has tried for a while", || since.elapsed() > Duration::from_secs(3));
    let tried = side.proxy.connections() - before;
    assert!(tried <= 60, "{tried} connections in {:?}", since.elapsed());
    fault.release();
    eventually("it is back", || side.client.check_exists().for_path("/").is_ok());
    side.client.close();
}

/// Holds the lock of each kind, and cuts the holder off: nobody gets in before it has released, and somebody at once then.
#[test]
fn a_holder_is_told_and_keeps_others_out_until_it_has_released() {
    for (kind, make) in KINDS {
        let namespace = namespace();
        let (side, other) = (Side::keeper(&namespace), Side::keeper(&namespace));
        let (held, wanted) = (make(&side.client), make(&other.client));
        held.acquire().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| once(&*wanted));
            side.cut();
            // A round trip in the next session, which would have deleted the znode before.
            side.client.check_exists().for_path("/").unwrap();
            assert!(!waiter.is_finished(), "{kind}: nobody gets in");
            let released = Instant::now();
            let _ = held.release();
            let at = waiter.join().unwrap();
            assert!(at - released < SOON, "{kind}: after {:?}", at - released);
        });
        assert!(held.acquire_timeout(SOON).unwrap(), "{kind}: the process that was cut off locks again");
        held.release().unwrap();
        side.client.close();
        other.client.close();
    }
}

/// A holder that does nothing keeps its lock as long as it may believe to have it, and no longer.
#[test]
fn a_holder_that_does_not_release_keeps_others_out_until_valid_until() {
    let session = Duration::from_secs(6);
    let namespace = namespace();
    let side = Side::of(Dialect::KeeperBefore267, server(), &namespace, session);
    let other = Side::keeper(&namespace);
    let held = InterProcessMutex::new(&side.client, PATH).unwrap();
    let guard = held.lock().unwrap();
    let wanted: Box<dyn InterProcessLock> = Box::new(InterProcessMutex::new(&other.client, PATH).unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| once(&*wanted));
        await_queue(&other.client, PATH, 2);
        let valid_until = guard.valid_until();
        side.cut();
        assert!(guard.is_lost());
        let at = waiter.join().unwrap();
        assert!(at >= valid_until, "{:?} before valid_until", valid_until - at);
        // A heartbeat may have gone out between the look and the cut.
        let late = at.saturating_duration_since(valid_until);
        assert!(late < session / 2, "{late:?} after valid_until");
    });
    drop(guard);
    side.client.close();
    other.client.close();
}

#[test]
fn a_waiter_queues_anew_at_once_and_takes_its_old_znode_along() {
    let namespace = namespace();
    let (side, other) = (Side::keeper(&namespace), Side::keeper(&namespace));
    let (wanted, held) =
        (InterProcessMutex::new(&side.client, PATH).unwrap(), InterProcessMutex::new(&other.client, PATH).unwrap());
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| once(&wanted))).collect();
        let before = await_queue(&other.client, PATH, 4);
        let cut = Instant::now();
        side.cut();
        eventually("three others stand in the queue", || {
            let now = queue(&other.client, PATH);
            now.len() == 4 && now[1..].iter().all(|name| !before.contains(name))
        });
        assert!(cut.elapsed() < SOON, "not when the session has expired: {:?}", cut.elapsed());
        guard.release().unwrap();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    side.client.close();
    other.client.close();
}

#[test]
fn a_create_whose_reply_was_lost_is_in_nobodys_way() {
    let namespace = namespace();
    let side = Side::keeper(&namespace);
    let mutex = InterProcessMutex::new(&side.client, PATH).unwrap();
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    let is_contender = |path: &str| path.contains("-lock-");
    let lost = side.proxy.inject(RequestMatch::op(op::CREATE).path(is_contender), Fault::CutInsteadOfReply);
    let since = Instant::now();
    mutex.acquire().unwrap();
    assert!(lost.hits() == 1 && since.elapsed() < SOON, "after {:?}", since.elapsed());
    assert_eq!(children(&side.client, PATH).len(), 1);
    mutex.release().unwrap();
    side.client.close();
}

#[test]
fn a_process_that_has_released_locks_again_within_two_round_trips() {
    let side = Side::keeper(&namespace());
    let mutex = InterProcessMutex::new(&side.client, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    side.cut();
    assert!(guard.release().is_err());
    side.proxy.clear_log();
    mutex.acquire().unwrap();
    let log = side.proxy.log();
    let count = |op: i32| log.iter().filter(|request| request.op == op).count();
    let asked: Vec<_> = log.iter().map(|request| (request.op, request.error)).collect();
    // Create and list in one round trip; if the delete came behind them, a watch and another list.
    assert!(count(op::CREATE) == 1 && count(op::GET_CHILDREN) <= 2, "{asked:?}");
    mutex.release().unwrap();
    side.client.close();
}

/// Nobody can tell whether a leader that was told has stopped: the next one leads when it must have noticed by itself.
#[test]
fn a_latch_that_led_leads_again_from_valid_until_on() {
    let session = Duration::from_secs(6);
    let side = Side::of(Dialect::KeeperBefore267, server(), &namespace(), session);
    let latch = LeaderLatch::new(&side.client, "/leader").unwrap();
    latch.start().unwrap();
    latch.await_leadership().unwrap();
    let term = latch.leadership().unwrap();
    let valid_until = term.hold().valid_until();
    side.cut();
    eventually("it is told", || !term.has_leadership());
    assert!(latch.await_leadership_timeout(PATIENCE).unwrap());
    assert!(Instant::now() >= valid_until);
    assert_eq!(children(&side.client, "/leader").len(), 1, "its old znode is gone");
    latch.close().unwrap();
    side.client.close();
}

#[test]
fn a_candidate_that_has_not_led_queues_anew_at_once() {
    let namespace = namespace();
    let (side, other) = (Side::keeper(&namespace), Side::keeper(&namespace));
    let (leader, candidate) =
        (LeaderLatch::new(&other.client, "/leader").unwrap(), LeaderLatch::new(&side.client, "/leader").unwrap());
    leader.start().unwrap();
    leader.await_leadership().unwrap();
    candidate.start().unwrap();
    await_queue(&other.client, "/leader", 2);
    side.cut();
    leader.close().unwrap();
    let since = Instant::now();
    assert!(candidate.await_leadership_timeout(PATIENCE).unwrap() && since.elapsed() < SOON, "{:?}", since.elapsed());
    candidate.close().unwrap();
    side.client.close();
    other.client.close();
}

#[test]
fn a_selector_leads_again_as_soon_as_it_has_given_the_lost_term_up() {
    let side = Side::keeper(&namespace());
    let (tell, terms) = channel();
    let lead = move |_: &CuratorFramework, term: &Leadership| {
        let _ = tell.send(());
        let _ = term.cancelled().recv();
        Ok(())
    };
    let selector = LeaderSelector::new(&side.client, "/leader", lead).unwrap();
    selector.auto_requeue();
    selector.start().unwrap();
    terms.recv_timeout(PATIENCE).unwrap();
    side.cut();
    let since = Instant::now();
    terms.recv_timeout(PATIENCE).unwrap();
    assert!(since.elapsed() < SOON, "after {:?}", since.elapsed());
    selector.close().unwrap();
    side.client.close();
}
