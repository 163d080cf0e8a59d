//! Readers and writers.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Caching, CuratorFramework, Error, HoldState, InterProcessReadWriteLock, LostReason, Revoker, testing::TestingServer,
};

use crate::{
    local::{await_watches, caching, costs_no_request},
    support::{
        self, PATIENCE, another, await_queue, builder, connect, eventually, namespace, queue,
        scope::{closed_by_failure, scope},
    },
};

const PATH: &str = "/locks/m";

fn cached(client: &CuratorFramework) -> InterProcessReadWriteLock {
    plain(client).with_caching(caching())
}

fn plain(client: &CuratorFramework) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client, PATH).unwrap()
}

fn client() -> CuratorFramework {
    closed_by_failure(support::client())
}

/// The next reader finds that it can share.
fn shares(lock: &InterProcessReadWriteLock, node: &str) {
    let held = lock.read_lock().lock().unwrap();
    assert_eq!(held.path(), node);
    held.release().unwrap();
}

#[test]
fn reading_costs_no_request_however_many_threads_read() {
    const CYCLES: usize = 1_000;
    const THREADS: usize = 4;
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, &namespace()).session_timeout(Duration::from_secs(60)));
    let lock = cached(&client);
    lock.read_lock().acquire().unwrap();
    lock.read_lock().release().unwrap();
    // On the znode and on the directory.
    await_watches(&server, &client, 2);
    let reads = || {
        for _ in 0..CYCLES {
            lock.read_lock().acquire().unwrap();
            lock.read_lock().release().unwrap();
        }
    };
    costs_no_request(&server, || thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(reads)))));
    let nodes = queue(&client, PATH);
    assert!(nodes.len() == 1 && nodes[0].contains("__READ__"), "{nodes:?}");
}

#[test]
fn readers_read_at_the_same_time_by_one_znode_each_with_a_hold_of_its_own() {
    const READERS: usize = 5;
    let client = client();
    let lock = cached(&client);
    let all = Barrier::new(READERS);
    let tokens = parking_lot::Mutex::new(Vec::new());
    scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let held = lock.read_lock().lock().unwrap();
                all.wait();
                assert!(held.is_valid());
                tokens.lock().push(held.fencing_token());
                let outlives = lock.read_lock().hold().unwrap();
                held.release().unwrap();
                assert_eq!(outlives.state(), HoldState::Released);
            });
        }
    });
    let mut tokens = tokens.into_inner();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), READERS);
    assert!(tokens.iter().all(|token| token.value() == tokens[0].value()), "{tokens:?}");
    assert_eq!(queue(&client, PATH).len(), 1);
}

#[test]
fn readers_of_other_processes_do_not_end_a_read_tenure() {
    let client = client();
    let other = another(&client);
    let (kept, plain) = (cached(&client), plain(&other));
    let held = kept.read_lock().lock().unwrap();
    let node = held.path().to_owned();
    held.release().unwrap();
    for _ in 0..20 {
        let read = plain.read_lock().lock().unwrap();
        shares(&kept, &node);
        read.release().unwrap();
        shares(&kept, &node);
    }
    // Two that cache do not disturb each other either.
    let twice = cached(&other);
    let held = twice.read_lock().lock().unwrap();
    let second = held.path().to_owned();
    held.release().unwrap();
    for _ in 0..20 {
        shares(&kept, &node);
        shares(&twice, &second);
    }
}

#[test]
fn a_writer_of_another_process_ends_an_idle_read_tenure_at_once() {
    let client = client();
    let other = another(&client);
    let (kept, plain) = (cached(&client), plain(&other));
    for _ in 0..20 {
        kept.read_lock().acquire().unwrap();
        kept.read_lock().release().unwrap();
        assert!(plain.write_lock().acquire_timeout(PATIENCE).unwrap());
        plain.write_lock().release().unwrap();
    }
}

#[test]
fn who_comes_after_a_writer_of_another_process_reads_after_it() {
    let client = client();
    let other = another(&client);
    let (kept, plain) = (cached(&client), plain(&other));
    kept.read_lock().acquire().unwrap();
    let first = queue(&client, PATH);
    scope(|scope| {
        let writes = scope.spawn(|| {
            let held = plain.write_lock().lock().unwrap();
            let behind = await_queue(&client, PATH, 2);
            assert!(behind[0] == held.path() && !first.contains(&behind[1]), "{behind:?}");
            (held.fencing_token(), held.release())
        });
        await_queue(&client, PATH, 2);
        // As long as the process does not know of the writer, it lets readers in.
        let reads = scope.spawn(|| {
            loop {
                let held = kept.read_lock().lock().unwrap();
                if held.path() != first[0] {
                    return (held.fencing_token(), held.release());
                }
                held.release().unwrap();
            }
        });
        await_queue(&client, PATH, 3);
        assert!(!writes.is_finished() && !reads.is_finished());
        kept.read_lock().release().unwrap();
        let (written, released) = writes.join().unwrap();
        released.unwrap();
        let (read, released) = reads.join().unwrap();
        released.unwrap();
        assert!(written < read);
    });
}

#[test]
fn threads_of_one_process_are_served_as_they_come_and_readers_together() {
    let client = client();
    let lock = cached(&client);
    let order = parking_lot::Mutex::new(Vec::new());
    lock.read_lock().acquire().unwrap();
    let two_read = Barrier::new(2);
    scope(|scope| {
        let (lock, order, two_read) = (&lock, &order, &two_read);
        let write = |name| {
            scope.spawn(move || {
                let held = lock.write_lock().lock().unwrap();
                order.lock().push((name, held.fencing_token()));
                held.release().unwrap();
            });
        };
        let read = |name| {
            scope.spawn(move || {
                let held = lock.read_lock().lock().unwrap();
                two_read.wait();
                order.lock().push((name, held.fencing_token()));
                two_read.wait();
                held.release().unwrap();
            });
        };
        write("first writer");
        await_queue(&client, PATH, 2);
        for (k, name) in ["reader", "reader"].into_iter().enumerate() {
            read(name);
            eventually("it waits", || lock.local_waiters() == k + 1);
        }
        write("second writer");
        eventually("it waits", || lock.local_waiters() == 3);
        assert!(lock.read_lock().try_lock().is_ok_and(|held| held.is_some()), "this thread reads already");
        thread::sleep(Duration::from_millis(50));
        assert!(order.lock().is_empty());
        lock.read_lock().release().unwrap();
    });
    let order = order.into_inner();
    let names: Vec<_> = order.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["first writer", "reader", "reader", "second writer"]);
    assert!(order[0].1 < order[1].1.min(order[2].1) && order[1].1.max(order[2].1) < order[3].1, "{order:?}");
}

#[test]
fn writers_of_one_process_hand_their_znode_on() {
    const WRITERS: usize = 20;
    let client = client();
    let lock = cached(&client);
    let (says, said) = mpsc::channel();
    let held = lock.write_lock().lock().unwrap();
    let node = held.path().to_owned();
    assert!(node.contains("__WRIT__"));
    scope(|scope| {
        for k in 0..WRITERS {
            let (lock, says) = (&lock, says.clone());
            scope.spawn(move || {
                let held = lock.write_lock().lock().unwrap();
                says.send((k, held.path().to_owned())).unwrap();
                held.release().unwrap();
            });
            eventually("it waits", || lock.local_waiters() == k + 1);
        }
        held.release().unwrap();
    });
    drop(says);
    assert!(said.iter().enumerate().all(|(k, (who, path))| k == who && path == node));
}

#[test]
fn a_writer_goes_on_as_a_reader_and_nobody_writes_in_between() {
    let client = client();
    let other = another(&client);
    let (lock, elsewhere) = (cached(&client), plain(&other));
    // So that the write znode has served somebody before.
    lock.write_lock().acquire().unwrap();
    lock.write_lock().release().unwrap();
    let writing = lock.write_lock().lock().unwrap();
    let token = writing.fencing_token();
    assert_eq!(token.grant(), 2);
    scope(|scope| {
        let waits = scope.spawn(|| {
            let held = lock.write_lock().lock().unwrap();
            (held.fencing_token(), held.release())
        });
        eventually("it waits", || lock.local_waiters() == 1);
        let reading = lock.read_lock().lock().unwrap();
        assert_eq!(reading.fencing_token(), token);
        let nodes = queue(&client, PATH);
        assert_eq!(nodes, [writing.path(), reading.path()]);
        writing.release().unwrap();
        // The writer that has waited queues behind the reader, by a znode of its own.
        let mut nodes = Vec::new();
        eventually("it queues behind the reader", || {
            nodes = queue(&client, PATH);
            nodes.len() == 2 && nodes[0] == reading.path()
        });
        assert!(nodes[1].contains("__WRIT__") && !waits.is_finished(), "{nodes:?}");
        assert!(elsewhere.write_lock().try_lock().unwrap().is_none());
        assert!(reading.is_valid());
        reading.release().unwrap();
        let (later, released) = waits.join().unwrap();
        released.unwrap();
        assert!(later > token);
    });
}

#[test]
fn a_reader_that_wants_to_write_would_wait_for_itself() {
    let client = client();
    let lock = cached(&client);
    for _ in 0..2 {
        lock.read_lock().acquire().unwrap();
        assert!(matches!(lock.write_lock().acquire(), Err(Error::WouldDeadlock { .. })));
        assert!(!lock.write_lock().acquire_timeout(Duration::ZERO).unwrap());
        lock.read_lock().acquire().unwrap();
        lock.read_lock().release().unwrap();
        lock.read_lock().release().unwrap();
        assert!(matches!(lock.read_lock().release(), Err(Error::NotOwner { .. })));
    }
}

#[test]
fn who_only_tries_to_write_keeps_no_reader_out() {
    let client = client();
    let lock = cached(&client);
    let held = lock.read_lock().lock().unwrap();
    let node = held.path().to_owned();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.write_lock().try_lock().unwrap().is_none());
            shares(&lock, &node);
            assert!(!lock.write_lock().acquire_timeout(Duration::from_millis(20)).unwrap());
            lock.read_lock().acquire().unwrap();
            lock.read_lock().release().unwrap();
        });
    });
    assert!(held.is_valid());
    held.release().unwrap();
}

/// A thread that reads until it is told to stop.
struct Reader {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<Result<(), Error>>,
    path: String,
}

impl Reader {
    fn begin(lock: InterProcessReadWriteLock) -> Reader {
        let ((stop, stopped), (says, said)) = (mpsc::channel(), mpsc::channel());
        let thread = thread::spawn(move || {
            let held = lock.read_lock().lock()?;
            drop(lock);
            says.send(held.path().to_owned()).unwrap();
            stopped.recv_timeout(PATIENCE).unwrap();
            assert!(held.is_valid());
            held.release()
        });
        Reader { stop, thread, path: said.recv_timeout(PATIENCE).unwrap() }
    }

    fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}

#[test]
fn guards_that_outlive_their_lock_share_the_znode_to_the_last() {
    let client = client();
    let lock = cached(&client);
    let (first, second) = (Reader::begin(lock.clone()), Reader::begin(lock.clone()));
    let node = first.path.clone();
    assert_eq!(second.path, node);
    drop(lock);
    first.end();
    assert_eq!(queue(&client, PATH), [node]);
    second.end();
    await_queue(&client, PATH, 0);
}

#[test]
fn a_lost_session_is_told_to_each_reader_and_those_who_wait_keep_their_order() {
    let client = client();
    let lock = cached(&client);
    let reading = Barrier::new(3);
    let lost = AtomicUsize::new(0);
    let order = parking_lot::Mutex::new(Vec::new());
    scope(|scope| {
        let (lock, reading, lost, order) = (&lock, &reading, &lost, &order);
        for _ in 0..2 {
            scope.spawn(move || {
                let held = lock.read_lock().lock().unwrap();
                let changes = held.state_changes();
                reading.wait();
                let last = std::iter::from_fn(|| changes.recv_timeout(PATIENCE).ok()).last();
                assert_eq!(last, Some(HoldState::Lost(LostReason::SessionExpired)));
                lost.fetch_add(1, Ordering::SeqCst);
                let released = held.release();
                assert!(matches!(released, Err(Error::LockLost { reason: LostReason::SessionExpired, .. })));
            });
        }
        reading.wait();
        scope.spawn(move || {
            let held = lock.write_lock().lock().unwrap();
            order.lock().push("writer");
            held.release().unwrap();
        });
        await_queue(&client, PATH, 2);
        scope.spawn(move || {
            let held = lock.read_lock().lock().unwrap();
            order.lock().push("reader");
            held.release().unwrap();
        });
        eventually("it waits", || lock.local_waiters() == 1);
        support::expire(&client);
    });
    assert_eq!(lost.into_inner(), 2);
    assert_eq!(order.into_inner(), ["writer", "reader"]);
}

#[test]
fn each_reader_is_asked_to_give_the_lock_back_and_the_next_one_gets_a_znode_of_its_own() {
    let client = client();
    let lock = cached(&client);
    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    lock.on_revocation(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let (one, two) = (Reader::begin(lock.clone()), Reader::begin(lock.clone()));
    let node = one.path.clone();
    Revoker::request(&client, &node, "operator", "maintenance").unwrap();
    eventually("both are asked", || asked.load(Ordering::SeqCst) == 2);
    eventually("nobody shares it any more", || {
        let held = lock.read_lock().lock().unwrap();
        let is_new = held.path() != node;
        held.release().unwrap();
        is_new
    });
    one.end();
    two.end();
    eventually("it is gone", || !queue(&client, PATH).contains(&node));
}

/// Clones are one lock to a thread.
#[test]
fn who_reads_beside_its_writing_through_a_clone_keeps_the_next_writer_out() {
    let client = client();
    let writers = cached(&client);
    let reader = writers.clone();
    let reads = AtomicBool::new(true);
    scope(|scope| {
        writers.write_lock().acquire().unwrap();
        let next = scope.spawn(|| {
            let held = writers.write_lock().lock().unwrap();
            assert!(!reads.load(Ordering::SeqCst), "two at work");
            held.release().unwrap();
        });
        eventually("the next writer waits", || writers.local_waiters() == 1);
        let reading = reader.read_lock().lock().unwrap();
        writers.write_lock().release().unwrap();
        await_queue(&client, PATH, 2);
        assert!(reading.is_valid());
        reads.store(false, Ordering::SeqCst);
        reading.release().unwrap();
        next.join().unwrap();
    });
}

#[test]
fn an_idle_read_lock_goes_after_its_time() {
    const IDLE: Duration = Duration::from_millis(300);
    let client = client();
    let lock = plain(&client).with_caching(Caching::new().keep_idle(IDLE));
    lock.read_lock().acquire().unwrap();
    let held = Instant::now();
    lock.read_lock().release().unwrap();
    await_queue(&client, PATH, 0);
    assert!(held.elapsed() >= IDLE, "{:?}", held.elapsed());
    let lock = plain(&client).with_caching(Caching::new().keep_idle(Duration::ZERO));
    lock.read_lock().acquire().unwrap();
    lock.read_lock().release().unwrap();
    await_queue(&client, PATH, 0);
}
