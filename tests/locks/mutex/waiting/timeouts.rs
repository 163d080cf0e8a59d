//! A timed acquire ends in time and leaves nothing.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CancelToken, Error, InterProcessLock, InterProcessMutex, InterProcessSemaphoreMutex,
    InterProcessUnfairMutex, SharedCount, zookeeper_recipe::WriteLock,
};

use crate::{
    kept::Kept,
    support::{
        self, PATIENCE, another, await_queue, builder, connect, eventually,
        machine::{Machine, since},
        mutex, queue, quick_server,
        raw::heartbeats,
    },
};

#[test]
fn a_timed_acquire_of_a_held_lock_ends_in_time_and_its_znode_is_gone() {
    let client = support::client();
    let (held, other) = (mutex(&client), another(&client));
    held.acquire().unwrap();
    let wanted = mutex(&other);
    let machine = Machine::watch().and(heartbeats(support::server().connect_string()));
    let timeout = Duration::from_millis(30);
    let acquire = |_| {
        let begin = Instant::now();
        assert!(!wanted.acquire_timeout(timeout).unwrap());
        let took = since(begin);
        // Less than the call waits for the server once its time is up.
        if begin.elapsed() < timeout + Duration::from_millis(15) {
            assert_eq!(queue(&client, "/locks/m").len(), 1, "its znode is still there");
        } else {
            // The server did not answer in time, so the background sees to it.
            await_queue(&client, "/locks/m", 1);
        }
        assert!(took.end - took.start >= timeout, "it did not wait");
        took
    };
    let took: Vec<_> = (0..100).map(acquire).collect();
    machine.assert_median_at_most("timed out", took.clone(), timeout + Duration::from_millis(50));
    machine.assert_share_at_most("99 of 100 timed out", 0.98, took, timeout + Duration::from_millis(250));
}

#[test]
fn a_timed_acquire_ends_in_time_while_the_server_answers_nothing() {
    let machine = Machine::watch();
    let server = quick_server().start().unwrap();
    let [client, other] = [(); 2].map(|()| connect(builder(&server, "frozen").session_timeout(PATIENCE)));
    let (held, wanted) = (mutex(&client), mutex(&other));
    held.acquire().unwrap();
    // Whether it still waited when the server was paused.
    let freeze = |timeout: Duration, cancels: bool| {
        let token = CancelToken::new();
        let (took, result, kept, was_waiting) = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let (kept, begin) = (Kept::from_now(), Instant::now());
                let result = wanted.acquire_with(&AcquireOptions::new().timeout(timeout).cancel_token(&token));
                (since(begin), result, kept.so_far())
            });
            eventually("it waits", || queue(&client, "/locks/m").len() == 2 || waiting.is_finished());
            server.pause().unwrap();
            let was_waiting = !waiting.is_finished();
            let (of_this, cancelled) = (Kept::from_now(), Instant::now());
            if cancels {
                token.cancel();
            }
            let of_this = of_this.so_far();
            let (took, result, kept) = waiting.join().unwrap();
            (if cancels { cancelled..took.end } else { took }, result, kept + of_this, was_waiting)
        });
        match result {
            Ok(false) => assert!(!cancels),
            Err(Error::Cancelled { .. }) => assert!(cancels),
            other => panic!("{other:?}"),
        }
        let limit = if cancels { Duration::ZERO } else { timeout } + Duration::from_millis(500);
        machine.assert_at_most("a timed call, or a cancelled one", took, limit + kept);
        server.resume().unwrap();
        await_queue(&client, "/locks/m", 1);
        was_waiting
    };
    let mut timeout = Duration::from_millis(700);
    // Longer where this machine takes longer to let it queue.
    while !freeze(timeout, false) {
        timeout *= 2;
    }
    assert!(freeze(PATIENCE, true));
}

#[test]
fn a_call_that_begins_while_the_server_answers_nothing_ends_in_time() {
    let machine = Machine::watch();
    let server = quick_server().start().unwrap();
    let client = connect(builder(&server, "frozen"));
    let wanted = mutex(&client);
    server.pause().unwrap();
    let (kept, begin) = (Kept::from_now(), Instant::now());
    let result = wanted.acquire_timeout(Duration::from_millis(500));
    assert!(matches!(result, Ok(false) | Err(Error::ConnectionLoss { .. })), "{result:?}");
    let took = since(begin);
    machine.assert_at_most("a call of half a second", took, Duration::from_millis(1_000) + kept.so_far());
    server.resume().unwrap();
    // The create may have been carried out after all.
    client.sync().for_path("/").unwrap();
    eventually("nothing in the queue", || queue(&client, "/locks/m").is_empty());
    eventually("no container left", || client.check_exists().for_path("/locks").unwrap().is_none());
}

#[test]
fn no_duration_is_too_long() {
    let client = connect(
        builder(support::server(), &support::namespace())
            .lock_recheck_interval(Some(Duration::MAX))
            .max_close_wait(Duration::MAX),
    );
    let mutex = mutex(&client);
    for timeout in [Duration::MAX, Duration::from_secs(u64::MAX >> 1), Duration::from_secs(i64::MAX as u64 / 1000)] {
        assert!(mutex.acquire_timeout(timeout).unwrap());
        mutex.release().unwrap();
    }
    mutex.acquire().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let taken = mutex.acquire_timeout(Duration::MAX);
            mutex.release().unwrap();
            taken
        });
        await_queue(&client, "/locks/m", 2);
        mutex.release().unwrap();
        assert!(waiting.join().unwrap().unwrap());
    });
    // Bounds that just fit into the clock, plus what is added to them.
    let mut seconds = u64::MAX;
    while Instant::now().checked_add(Duration::from_secs(seconds)).is_none() {
        seconds = seconds / 2 + 1;
    }
    assert!(client.block_until_connected(Some(Duration::MAX)).unwrap());
    client.close();
}

#[test]
fn no_duration_is_too_long_for_those_who_wait_for_other_locks() {
    let server = quick_server().start().unwrap();
    let patient = || {
        let builder = builder(&server, "patient").lock_recheck_interval(Some(Duration::MAX));
        connect(builder.max_close_wait(Duration::MAX).max_hold_time(Duration::MAX))
    };
    let (one, two) = (patient(), patient());
    let forever = AcquireOptions::new().timeout(Duration::MAX);
    let contend = |held: &dyn InterProcessLock, waits: &dyn InterProcessLock| {
        held.acquire().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let taken = waits.acquire_with(&forever);
                waits.release().unwrap();
                taken
            });
            eventually("holder and waiter watch", || server.watch_count().unwrap() >= 2);
            held.release().unwrap();
            assert!(waiting.join().unwrap().unwrap());
        });
        eventually("nobody watches", || server.watch_count().unwrap() == 0);
    };
    let unfair = |client| InterProcessUnfairMutex::new(client, "/locks/unfair").unwrap();
    contend(&unfair(&one), &unfair(&two));
    let semaphore = |client| InterProcessSemaphoreMutex::new(client, "/locks/semaphore").unwrap();
    contend(&semaphore(&one), &semaphore(&two));
    let (first, second) = (WriteLock::new(&one, "/election").unwrap(), WriteLock::new(&two, "/election").unwrap());
    assert!(first.lock().unwrap() && !second.lock().unwrap());
    first.unlock().unwrap();
    eventually("the second is elected", || second.is_owner());
    let count = SharedCount::new(&one, "/count", 3).unwrap();
    count.start().unwrap();
    assert_eq!(count.count(), 3);
    for client in [one, two] {
        client.close();
    }
}

#[test]
fn a_directory_that_the_server_removes_again_and_again_is_no_error_of_a_timed_acquire() {
    let server = quick_server().container_check_interval(Duration::from_millis(1)).start().unwrap();
    let client = connect(builder(&server, "removed"));
    let fair = InterProcessMutex::new(&client, "/locks/fair").unwrap();
    let unfair = InterProcessUnfairMutex::new(&client, "/locks/unfair").unwrap();
    let alone = InterProcessSemaphoreMutex::new(&client, "/locks/alone").unwrap();
    let locks: [&dyn InterProcessLock; 3] = [&fair, &unfair, &alone];
    let round_trip = || {
        let begin = Instant::now();
        client.check_exists().for_path("/").unwrap();
        begin.elapsed()
    };
    let mut granted = [0; 3];
    for round in 0..300 {
        for (lock, granted) in locks.into_iter().zip(&mut granted) {
            // Too short for some, on this machine at this moment, and long enough for others.
            let moment = round_trip().max(Duration::from_millis(1)) * (1 + round % 5);
            let is_patient = round % 50 == 0;
            if lock.acquire_timeout(if is_patient { PATIENCE } else { moment }).unwrap() {
                lock.release().unwrap();
                *granted += 1;
            } else {
                assert!(!is_patient, "not granted within {PATIENCE:?}");
            }
        }
    }
    println!("granted: {granted:?} of 300 each");
}

mod slow {
    use super::*;

    #[test]
    fn ten_thousand_timed_out_acquires_leave_no_watch_on_either_side() {
        const THREADS: usize = 20;
        const EACH: usize = 500;
        let server = quick_server().start().unwrap();
        let [holding, client] = [(); 2].map(|()| connect(builder(&server, "timeouts").session_timeout(PATIENCE)));
        let (held, wanted) = (mutex(&holding), mutex(&client));
        held.acquire().unwrap();
        let waited = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (wanted, waited) = (&wanted, &waited);
                scope.spawn(move || {
                    for k in 0..EACH {
                        let timeout = Duration::from_micros(1 + ((thread * 7 + k * 13) % 40) as u64 * 100);
                        match wanted.acquire_timeout(timeout) {
                            Ok(false) => waited.fetch_add(1, Ordering::Relaxed),
                            other => panic!("{other:?}"),
                        };
                    }
                });
            }
        });
        assert_eq!(waited.into_inner(), THREADS * EACH);
        await_queue(&holding, "/locks/m", 1);
        // The holder itself watches its znode.
        eventually("no watch but the holder's", || server.watch_count().unwrap() <= 1);
        // After a reconnect a client sets again what it believes to watch, so this counts the client's side.
        let (session, other) = (holding.session_id(), client.session_id());
        server.restart().unwrap();
        eventually("both are connected again", || holding.is_connected() && client.is_connected());
        client.sync().for_path("/").unwrap();
        holding.sync().for_path("/").unwrap();
        assert_eq!((holding.session_id(), client.session_id()), (session, other), "a session was lost");
        assert!(server.watch_count().unwrap() <= 1, "{}", server.four_letter_word("wchp").unwrap());
        held.release().unwrap();
        eventually("no watch at all", || server.watch_count().unwrap() == 0);
        wanted.acquire().unwrap();
    }
}
