//! The thread that queues at the servers for its process.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use curator_locks::{
    AcquireOptions, Caching, CancelToken, Error, FencingToken, InterProcessMutex, InterProcessReadWriteLock, Result,
    RetryNTimes,
    testing::{Fault, FaultProxy, RequestMatch, RequestRecord, op},
};

use crate::{
    local::{cached, cached_with, caching, pass_on},
    support::{
        self, PATIENCE, another, await_queue, builder, builder_at, connect, eventually, mutex, namespace, queue,
        scope::{closed_by_failure, scope},
        server,
    },
    wire::{Wire, Wiring},
};

const PATH: &str = "/locks/m";

/// When a thread that waits is granted the lock: with which znode and token.
type Grant = (String, FencingToken);

fn grant(mutex: &InterProcessMutex) -> Grant {
    let held = mutex.lock().unwrap();
    let grant = (held.path().to_owned(), held.fencing_token());
    held.release().unwrap();
    grant
}

/// One thread queues for its process and gives up, by `give_up`; another one waits behind it. `false`: it had given up
/// before the other one waited.
fn the_place_stays(options: &AcquireOptions, give_up: impl FnOnce(), check: impl FnOnce(Result<bool>) + Send) -> bool {
    let client = support::client();
    let (second, third) = (another(&client), another(&client));
    let (kept, first, last) = (cached(&client), mutex(&second), mutex(&third));
    first.acquire().unwrap();
    thread::scope(|scope| {
        let queues = scope.spawn(|| kept.acquire_with(options));
        eventually("it queues", || queue(&client, PATH).len() == 2 || queues.is_finished());
        let waits = scope.spawn(|| grant(&kept));
        eventually("one waits behind the queued thread", || kept.local_waiters() == 1 || queues.is_finished());
        let comes_later = scope.spawn(|| grant(&last));
        eventually("another one comes later", || queue(&client, PATH).len() == 3 || queues.is_finished());
        let before = queue(&client, PATH);
        if queues.is_finished() {
            first.release().unwrap();
            return false;
        }
        give_up();
        check(queues.join().unwrap());
        eventually("the next one queues", || kept.local_waiters() == 0);
        assert_eq!(queue(&client, PATH), before);
        first.release().unwrap();
        let (waited, later) = (waits.join().unwrap(), comes_later.join().unwrap());
        assert_eq!(waited.0, before[1]);
        assert!(waited.1 < later.1, "{waited:?} {later:?}");
        true
    })
}

#[test]
fn a_queued_thread_whose_time_is_up_leaves_its_place_to_the_next_thread() {
    let mut timeout = Duration::from_secs(2);
    // Longer where this machine takes longer to let three contenders queue.
    while !the_place_stays(&AcquireOptions::new().timeout(timeout), || {}, |result| assert!(!result.unwrap())) {
        timeout *= 2;
    }
}

#[test]
fn a_queued_thread_that_is_cancelled_leaves_its_place_to_the_next_thread() {
    let cancel = CancelToken::new();
    let options = AcquireOptions::new().cancel_token(&cancel);
    let check = |result| assert!(matches!(result, Err(Error::Cancelled { .. })), "{result:?}");
    assert!(the_place_stays(&options, || cancel.cancel(), check));
}

#[test]
fn the_place_goes_from_thread_to_thread_and_is_given_up_with_the_last() {
    const THREADS: usize = 4;
    let client = support::client();
    let other = another(&client);
    let (kept, plain) = (cached(&client), mutex(&other));
    plain.acquire().unwrap();
    let cancels: Vec<CancelToken> = (0..THREADS).map(|_| CancelToken::new()).collect();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut place = Vec::new();
        for (k, cancel) in cancels.iter().enumerate() {
            let kept = &kept;
            threads.push(scope.spawn(move || kept.acquire_with(&AcquireOptions::new().cancel_token(cancel))));
            place = await_queue(&client, PATH, 2);
            eventually("it waits", || kept.local_waiters() == k);
        }
        for (k, (cancel, thread)) in cancels.iter().zip(threads).enumerate() {
            assert_eq!(queue(&client, PATH), place);
            cancel.cancel();
            assert!(matches!(thread.join().unwrap(), Err(Error::Cancelled { .. })));
            eventually("the next one queues", || kept.local_waiters() == (THREADS - 2).saturating_sub(k));
        }
    });
    await_queue(&client, PATH, 1);
    plain.release().unwrap();
    kept.acquire().unwrap();
    kept.release().unwrap();
}

/// Its turn comes while there is no connection, and then it finds that the znode was deleted meanwhile: it enters again, in
/// front of the thread that came later, which may be the first to know.
#[test]
fn a_thread_that_finds_its_znode_gone_goes_before_those_that_came_later() {
    let namespace = namespace();
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = closed_by_failure(connect(builder_at(&proxy.connect_string(), &namespace)));
    let (admin, kept, order) = (connect(builder(server(), &namespace)), cached(&client), Mutex::new(Vec::new()));
    let held = kept.lock().unwrap();
    scope(|scope| {
        for thread in [1, 2] {
            let (kept, order) = (&kept, &order);
            scope.spawn(move || {
                let held = kept.lock().unwrap();
                order.lock().unwrap().push(thread);
                held.release().unwrap();
            });
            eventually("it waits", || kept.local_waiters() == thread);
        }
        // A look at the directory that gets no answer would end the tenure with this hold.
        let is_listed = |request: &RequestRecord| request.op == op::GET_CHILDREN && request.error == Some(0);
        eventually("the directory is watched", || proxy.log().iter().filter(|sent| is_listed(sent)).count() >= 2);
        client.sync().for_path("/").unwrap();
        proxy.refuse();
        proxy.cut();
        eventually("there is no connection", || !client.is_connected());
        admin.delete().for_path(held.path()).unwrap();
        let create = proxy.inject(RequestMatch::creates(), Fault::HoldRequest);
        held.release().unwrap();
        eventually("the next one has its turn", || kept.local_waiters() == 1);
        proxy.pass().unwrap();
        create.wait_for_hits(1, PATIENCE).unwrap();
        eventually("one queues at the servers, and one waits behind it", || kept.local_waiters() == 1);
        create.release();
    });
    assert_eq!(*order.lock().unwrap(), [1, 2]);
}

#[test]
fn the_znode_of_a_tenure_stays_until_the_next_create_is_on_its_way() {
    let wire = Arc::new(Wire::default());
    let retry = RetryNTimes::new(10, Duration::from_millis(1));
    let client = connect(builder(server(), &namespace()).retry_policy(retry).session_factory(Wiring(wire.clone())));
    let other = connect(builder(server(), client.namespace()));
    let (kept, plain) = (cached_with(&client, caching().max_grants(0)), mutex(&other));
    kept.acquire().unwrap();
    let first = queue(&client, PATH);
    thread::scope(|scope| {
        let local = scope.spawn(|| pass_on(&kept, &first[0]));
        eventually("it waits", || kept.local_waiters() == 1);
        let rival = scope.spawn(|| grant(&plain));
        await_queue(&client, PATH, 2);
        wire.log.lock().clear();
        wire.refuses.store(true, Ordering::SeqCst);
        kept.release().unwrap();
        let ours = pass_on(&kept, &first[0]);
        let (rival, local) = (rival.join().unwrap(), local.join().unwrap());
        assert!(rival.1 < ours.1.min(local.1), "the rival was there before");
    });
    let log = wire.log.lock().clone();
    assert_eq!(log, ["refused", "create", "delete"]);
}

#[test]
fn whoever_is_next_is_woken_although_the_session_panics_over_the_znode_before() {
    let wire = Arc::new(Wire::default());
    let client = connect(builder(server(), &namespace()).session_factory(Wiring(wire.clone())));
    let lock = InterProcessReadWriteLock::new(&client, PATH).unwrap().with_caching(Caching::new());
    let held = lock.write_lock().lock().unwrap();
    thread::scope(|scope| {
        let reads = scope.spawn(|| lock.read_lock().lock().map(|held| held.is_valid()));
        eventually("it waits", || lock.local_waiters() == 1);
        wire.panics.store(true, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| held.release())).is_err());
        assert!(reads.join().unwrap().unwrap());
    });
}

mod slow {
    use curator_locks::testing::FaultProxy;

    use super::*;

    /// The next thread of the process would wait with the same znode, in the same session, and so on.
    #[test]
    fn a_process_whose_session_stays_uncertain_gives_its_place_up() {
        let (session, namespace) = (Duration::from_secs(6), namespace());
        let proxy = FaultProxy::start(server().connect_string()).unwrap();
        let slow = connect(support::builder_at(&proxy.connect_string(), &namespace).session_timeout(session));
        let other = connect(builder(server(), &namespace));
        let (kept, rival, is_over) = (cached(&slow), mutex(&other), AtomicBool::new(false));
        let first = mutex(&other);
        first.acquire().unwrap();
        // Round trips of 0.35 of the session timeout.
        proxy.delay(session * 7 / 40);
        thread::scope(|scope| {
            let attempt = || {
                while !is_over.load(Ordering::SeqCst) {
                    match kept.acquire() {
                        Ok(()) => kept.release().unwrap_or_default(),
                        Err(Error::Uncertain { .. }) => {}
                        Err(error) => println!("{error}"),
                    }
                }
            };
            let threads = [scope.spawn(attempt), scope.spawn(attempt), scope.spawn(attempt)];
            await_queue(&other, PATH, 2);
            let waits = scope.spawn(|| rival.lock_timeout(support::PATIENCE).map(|held| held.is_some()));
            await_queue(&other, PATH, 3);
            first.release().unwrap();
            let is_granted = waits.join().unwrap().unwrap();
            is_over.store(true, Ordering::SeqCst);
            proxy.pass().unwrap();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(is_granted, "the process kept its place");
        });
    }
}
