//! Servers that go away.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    ConnectionState, CuratorFramework, EnsembleProvider, Error, ExponentialBackoffRetry, HoldState, InterProcessMutex,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, RetryForever,
    testing::{Fault, FaultProxy, RequestMatch, TestingServer, op},
};

use crate::{
    over::Over,
    support::{PATIENCE, builder, builder_at, children, client_in, connect, eventually, namespace, server, start},
};

const SESSION: Duration = Duration::from_secs(2);

/// How many of these holds are under way then.
fn count_at(holds: &[(Instant, Instant)], at: Instant) -> usize {
    holds.iter().filter(|(from, to)| *from <= at && at < *to).count()
}

/// The head of the queue alone waits for a lease. One whose place is gone leaves, whatever the caller's listeners do.
#[test]
fn a_listener_that_never_returns_keeps_no_head_waiting_whose_place_is_gone() {
    let namespace = namespace();
    let [holding, first, second] = [(); 3].map(|()| client_in(&namespace));
    let [holder, head, next] =
        [&holding, &first, &second].map(|client| InterProcessSemaphoreV2::new(client, "/s", 1).unwrap());
    let other = InterProcessMutex::new(&first, "/other").unwrap();
    let (release, blocked) = mpsc::channel::<()>();
    let (enters, entered) = mpsc::channel();
    let lease = holder.acquire().unwrap();
    let queued = || children(&holding, "/s/locks");
    thread::scope(|scope| {
        let head = scope.spawn(|| head.acquire().unwrap());
        eventually("it waits at the head of the queue", || {
            queued().len() == 1 && holder.participant_nodes().unwrap().len() == 2
        });
        let place = queued().pop().unwrap();
        let next = scope.spawn(|| next.acquire().unwrap());
        eventually("the next one queues", || queued().len() == 2);
        // Its listener is told, and never returns.
        let held = other.lock().unwrap();
        let blocked = Mutex::new(blocked);
        held.on_state_change(move |_| {
            let _ = enters.send(());
            let _ = blocked.lock().unwrap().recv();
        });
        held.release().unwrap();
        entered.recv_timeout(PATIENCE).unwrap();
        let waiting = holder.participant_nodes().unwrap().pop().unwrap();
        holding.delete().for_path(&format!("/s/locks/{place}")).unwrap();
        eventually("the head has left, and queued again behind the next one", || {
            let leases = holder.participant_nodes().unwrap();
            leases.len() == 2 && !leases.contains(&waiting) && queued().len() == 2
        });
        assert!(!head.is_finished() && !next.is_finished(), "a lease that is taken");
        lease.close().unwrap();
        next.join().unwrap().close().unwrap();
        head.join().unwrap().close().unwrap();
        drop(release);
    });
}

#[test]
fn ten_clients_acquire_again_after_the_server_was_away_for_longer_than_the_session() {
    let server = TestingServer::start().unwrap();
    let clients: Vec<CuratorFramework> =
        (0..10).map(|_| connect(builder(&server, "lost").session_timeout(SESSION))).collect();
    let holds = Mutex::new(Vec::new());
    let cycles: Vec<AtomicUsize> = (0..10).map(|_| AtomicUsize::new(0)).collect();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&ends);
        for (client, cycles) in clients.iter().zip(&cycles) {
            let (holds, ends) = (&holds, &ends);
            scope.spawn(move || {
                let semaphore = InterProcessSemaphoreV2::new(client, "/s", 2).unwrap();
                while !ends.load(Ordering::SeqCst) {
                    // While the server is away, calls fail when the retry policy is exhausted.
                    let Ok(Some(lease)) = semaphore.acquire_timeout(PATIENCE) else { continue };
                    let from = Instant::now();
                    thread::yield_now();
                    // The clock comes first: what is valid later was valid then.
                    let to = Instant::now();
                    if lease.is_valid() {
                        holds.lock().unwrap().push((from, to));
                    }
                    // It may have been lost.
                    let _ = lease.close();
                    cycles.fetch_add(1, Ordering::SeqCst);
                    // Others have a lease meanwhile, and the server a processor to start on.
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        eventually("all have acquired", || cycles.iter().all(|cycles| cycles.load(Ordering::SeqCst) > 0));
        server.kill().unwrap();
        eventually("all sessions are lost", || {
            clients.iter().all(|client| client.connection_state() == Some(ConnectionState::Lost))
        });
        server.restart().unwrap();
        let before: Vec<usize> = cycles.iter().map(|cycles| cycles.load(Ordering::SeqCst)).collect();
        eventually("all acquire again", || {
            cycles.iter().zip(&before).all(|(cycles, before)| cycles.load(Ordering::SeqCst) > before + 1)
        });
    });
    let holds = holds.into_inner().unwrap();
    assert!(holds.iter().all(|(from, _)| count_at(&holds, *from) <= 2), "more than two hold a lease: {holds:?}");
    eventually("nothing is left", || {
        children(&clients[0], "/s/leases").is_empty() && children(&clients[0], "/s/locks").is_empty()
    });
}

#[test]
fn a_waiter_that_lost_its_session_gets_a_lease_of_its_new_session() {
    let server = TestingServer::start().unwrap();
    let holder = connect(builder(&server, "dead").session_timeout(Duration::from_secs(60)));
    // Longer than this machine lets a process stand still.
    let waiter = connect(builder(&server, "dead").session_timeout(SESSION * 4));
    let lease = InterProcessSemaphoreV2::new(&holder, "/s", 1).unwrap().acquire().unwrap();
    let old_session = waiter.session_id();
    let semaphore = InterProcessSemaphoreV2::new(&waiter, "/s", 1).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| semaphore.acquire_timeout(PATIENCE).unwrap().unwrap());
        // Not just a first try.
        eventually("it waits", || {
            children(&holder, "/s/locks").len() == 1 && children(&holder, "/s/leases").len() == 2
        });
        server.stop().unwrap();
        eventually("the session is lost", || waiter.connection_state() == Some(ConnectionState::Lost));
        // The server still knows the old session, and its znodes (CURATOR-604).
        server.restart().unwrap();
        lease.close().unwrap();
        let lease = waiting.join().unwrap();
        let stat = holder.check_exists().for_path(lease.path()).unwrap().unwrap();
        assert_ne!(waiter.session_id(), old_session);
        assert_eq!(stat.ephemeral_owner, waiter.session_id());
        eventually("only this lease is left", || children(&holder, "/s/leases") == [lease.node_name()]);
        assert_eq!(lease.state(), HoldState::Held);
        lease.close().unwrap();
    });
}

/// That its session ends is no failure of the acquire: the mutex asks no retry policy about it either.
#[test]
fn a_waiter_whose_sessions_expire_goes_on_whatever_the_retry_policy_says() {
    struct Never;
    impl curator_locks::RetryPolicy for Never {
        fn allow_retry(&self, _: u32, _: Duration, _: &dyn curator_locks::RetrySleeper) -> bool {
            false
        }
    }
    let server = TestingServer::start().unwrap();
    let holder = connect(builder(&server, "ends"));
    let waiter = CuratorFramework::builder()
        .connect_string(server.connect_string())
        .session_timeout(Duration::from_secs(60))
        .retry_policy(Never)
        .lock_recheck_interval(None)
        .namespace("ends")
        .build()
        .unwrap();
    waiter.start().unwrap();
    let lease = InterProcessSemaphoreV2::new(&holder, "/s", 1).unwrap().acquire().unwrap();
    let semaphore = InterProcessSemaphoreV2::new(&waiter, "/s", 1).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| semaphore.acquire_timeout(PATIENCE));
        // Nothing of it is under way once all is watched (the two leases, its place and the directory) and a later request answered.
        let waits = || {
            children(&holder, "/s/locks").len() == 1
                && children(&holder, "/s/leases").len() == 2
                && server.watch_count().unwrap() == 4
        };
        let waits = || waits() && waiter.check_exists().for_path("/s").is_ok();
        eventually("it waits", waits);
        for _ in 0..2 {
            let (session, password) = (waiter.session_id(), waiter.session_password());
            curator_locks::testing::expire_session(&server.connect_string(), session, &password).unwrap();
            eventually("it waits in another session, or has failed", || {
                waiting.is_finished() || waiter.session_id() != session && waits()
            });
        }
        lease.close().unwrap();
        assert!(waiting.join().unwrap().unwrap().is_some());
    });
}

#[test]
fn a_release_without_the_server_is_finished_when_it_is_back() {
    let server = TestingServer::start().unwrap();
    let client = CuratorFramework::builder()
        .connect_string(server.connect_string())
        .namespace("release")
        .session_timeout(Duration::from_secs(30))
        .connection_timeout(Duration::from_secs(1))
        .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(10), 1))
        .build()
        .unwrap();
    start(&client);
    let mutex = InterProcessSemaphoreMutex::new(&client, "/m").unwrap();
    mutex.acquire().unwrap();
    server.stop().unwrap();
    assert!(matches!(mutex.release(), Err(Error::ConnectionLoss { path, .. }) if path == "/m"));
    assert!(mutex.is_acquired_in_this_process(), "the server has not confirmed it");
    server.restart().unwrap();
    eventually("there is a connection", || client.is_connected());
    mutex.release().unwrap();
    assert!(!mutex.is_acquired_in_this_process());
    assert!(children(&client, "/m/leases").is_empty());
    assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
    assert!(mutex.acquire_timeout(PATIENCE).unwrap());
    mutex.release().unwrap();
}

/// Java's test does this with ensembles of three.
#[test]
fn there_is_one_holder_and_none_when_all_servers_die_and_one_again_on_new_servers() {
    struct Current(Arc<Mutex<String>>);
    impl EnsembleProvider for Current {
        fn connection_string(&self) -> String {
            self.0.lock().unwrap().clone()
        }
    }

    let old = TestingServer::start().unwrap();
    let servers = Arc::new(Mutex::new(old.connect_string()));
    let holders = AtomicUsize::new(0);
    let grants = AtomicUsize::new(0);
    let holds = Mutex::new(Vec::new());
    let ends = AtomicBool::new(false);
    let clients: Vec<CuratorFramework> = (0..10)
        .map(|_| {
            let client = CuratorFramework::builder()
                .ensemble_provider(Current(servers.clone()))
                .namespace("provider")
                .session_timeout(SESSION)
                .connection_timeout(Duration::from_millis(500))
                .retry_policy(RetryForever::new(Duration::from_millis(100)))
                .build()
                .unwrap();
            client.start().unwrap();
            client
        })
        .collect();
    thread::scope(|scope| {
        let over = Over(&ends);
        for client in &clients {
            let (holders, grants, ends, holds) = (&holders, &grants, &ends, &holds);
            scope.spawn(move || {
                let semaphore = InterProcessSemaphoreV2::new(client, "/s", 1).unwrap();
                while !ends.load(Ordering::SeqCst) {
                    let Ok(Some(lease)) = semaphore.acquire_timeout(SESSION) else { continue };
                    holders.fetch_add(1, Ordering::SeqCst);
                    grants.fetch_add(1, Ordering::SeqCst);
                    let from = Instant::now();
                    let mut to = from;
                    while !ends.load(Ordering::SeqCst) {
                        // The clock comes first: what is valid later was valid then.
                        let at = Instant::now();
                        if !lease.is_valid() {
                            break;
                        }
                        to = at;
                        thread::sleep(Duration::from_millis(1));
                    }
                    holds.lock().unwrap().push((from, to));
                    holders.fetch_sub(1, Ordering::SeqCst);
                    let _ = lease.close();
                }
            });
        }
        eventually("one holds", || holders.load(Ordering::SeqCst) == 1);
        old.kill().unwrap();
        eventually("none holds", || holders.load(Ordering::SeqCst) == 0);
        let before = grants.load(Ordering::SeqCst);
        let new = TestingServer::start().unwrap();
        *servers.lock().unwrap() = new.connect_string();
        eventually("one holds again", || grants.load(Ordering::SeqCst) > before && holders.load(Ordering::SeqCst) == 1);
        drop(over);
        // The server must outlive the threads' last calls.
        eventually("none holds in the end", || holders.load(Ordering::SeqCst) == 0);
        clients.iter().for_each(CuratorFramework::close);
        let holds = holds.lock().unwrap();
        assert!(holds.iter().all(|(from, _)| count_at(&holds, *from) <= 1), "two holders: {holds:?}");
    });
}

#[test]
fn all_leases_go_back_in_one_round_trip() {
    const COUNT: usize = 10;
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), "all-at-once"));
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", COUNT).unwrap();
    let leases = semaphore.acquire_many(COUNT).unwrap();
    let held_up = proxy.inject(RequestMatch::op(op::DELETE), Fault::HoldReply);
    let before = proxy.requests(op::DELETE);
    thread::scope(|scope| {
        let returning = scope.spawn(|| semaphore.return_all(leases));
        eventually("all deletes are sent before the first reply", || {
            proxy.requests(op::DELETE) - before >= COUNT as u64
        });
        held_up.release();
        returning.join().unwrap().unwrap();
    });
    assert_eq!(proxy.requests(op::DELETE) - before, COUNT as u64);
    assert_eq!(semaphore.participant_nodes().unwrap(), [""; 0]);
}

#[test]
fn all_leases_go_back_though_a_reply_is_lost() {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), "all-but-one"));
    let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 5).unwrap();
    let leases = semaphore.acquire_many(5).unwrap();
    let cut = proxy.inject(RequestMatch::op(op::DELETE).skip(2), Fault::CutInsteadOfReply);
    semaphore.return_all(leases).unwrap();
    assert_eq!(cut.hits(), 1);
    assert_eq!(semaphore.participant_nodes().unwrap(), [""; 0]);
}

#[test]
fn a_lease_that_was_lost_is_reported_and_the_others_go_back() {
    let client = connect(builder(server(), "one-was-lost"));
    let (one, two) = (
        InterProcessSemaphoreV2::new(&client, "/s", 3).unwrap(),
        InterProcessSemaphoreV2::new(&client, "/t", 3).unwrap(),
    );
    let mut leases = one.acquire_many(3).unwrap();
    leases.extend(two.acquire_many(3).unwrap());
    client.delete().for_path(leases[1].path()).unwrap();
    assert!(matches!(one.return_all(leases), Err(Error::LockLost { .. })));
    assert_eq!(one.participant_nodes().unwrap(), [""; 0]);
    assert_eq!(two.participant_nodes().unwrap(), [""; 0], "leases of another semaphore go back, too");
}

/// As a waiter of a mutex does.
#[test]
fn a_waiter_whose_place_is_deleted_again_and_again_queues_again() {
    let namespace = namespace();
    let (holding, waiting) = (client_in(&namespace), client_in(&namespace));
    let semaphore = |client| InterProcessSemaphoreV2::new(client, "/s", 1).unwrap();
    let (held, wanted) = (semaphore(&holding), semaphore(&waiting));
    let lease = held.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wanted.acquire());
        let mut deleted = Vec::new();
        // More often than the retry policy allows.
        for _ in 0..8 {
            eventually("it waits anew at the head of the queue for a lease, or has failed", || {
                let places = children(&holding, "/s/locks");
                let is_anew = places.len() == 1 && places != deleted;
                is_anew && held.participant_nodes().unwrap().len() == 2 || waiter.is_finished()
            });
            deleted = children(&holding, "/s/locks");
            deleted.iter().for_each(|name| holding.delete().for_path(&format!("/s/locks/{name}")).unwrap());
        }
        lease.close().unwrap();
        waiter.join().unwrap().unwrap().close().unwrap();
    });
    assert_eq!(held.participant_nodes().unwrap(), [""; 0]);
}

#[test]
fn a_waiter_whose_place_is_deleted_and_whose_time_is_up_before_it_may_queue_again_has_no_lease() {
    let namespace = namespace();
    let holding = client_in(&namespace);
    let pause = RetryForever::new(PATIENCE);
    let waiting = connect(builder(server(), &namespace).retry_policy(pause));
    let semaphore = |client| InterProcessSemaphoreV2::new(client, "/s", 1).unwrap();
    let (held, wanted) = (semaphore(&holding), semaphore(&waiting));
    let _lease = held.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wanted.acquire_timeout(Duration::from_secs(4)));
        // On a machine that stands still its time may be up before.
        eventually("it waits at the head of the queue for a lease", || {
            let places = children(&holding, "/s/locks").len();
            places == 1 && held.participant_nodes().unwrap().len() == 2 || waiter.is_finished()
        });
        for name in children(&holding, "/s/locks") {
            let deleted = holding.delete().for_path(&format!("/s/locks/{name}"));
            assert!(deleted.is_ok() || deleted.is_err_and(|error| error.is_no_node()));
        }
        assert!(waiter.join().unwrap().unwrap().is_none());
    });
}
