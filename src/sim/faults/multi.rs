//! A multi lock among faults: its time, what it gives back, and members that are lost before the last one is got.

use std::sync::Arc;

use super::testbed::*;
use crate::{
    AcquireOptions, CancelToken, CuratorFramework, Error, ErrorCode, Hold, HoldState, InterProcessLock,
    InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessUnfairMutex, Locker, Result,
};

const A: &str = "/locks/a";
const B: &str = "/locks/b";

/// What a call that has nothing to wait for may take on this machine.
const AT_ONCE: Duration = Duration::from_millis(50);

fn mutex_at(client: &CuratorFramework, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(client, path).unwrap()
}

fn both(client: &CuratorFramework) -> InterProcessMultiLock {
    InterProcessMultiLock::new(client, [A, B]).unwrap()
}

fn expire(testbed: &Testbed) {
    testbed.expire();
}

fn delete_first_of(testbed: &Testbed, directory: &str) {
    let mut names = children(&testbed.observer, directory);
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    testbed.observer.delete().for_path(&format!("{directory}/{}", names[0])).unwrap();
}

fn await_contenders(testbed: &Testbed, directory: &str, count: usize) {
    eventually("so many contenders", || children(&testbed.observer, directory).len() == count);
}

/// A lock of another kind, which does what the test says when it is acquired.
struct Foreign<F>(F);

impl<F: Fn(Option<Duration>) -> Result<bool> + Send + Sync> InterProcessLock for Foreign<F> {
    fn acquire(&self) -> Result<()> {
        (self.0)(None).map(drop)
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        (self.0)(Some(timeout))
    }

    fn release(&self) -> Result<()> {
        Ok(())
    }

    fn is_acquired_in_this_process(&self) -> bool {
        false
    }
}

/// What is deleted sooner after its acquire is not asked about: it is told a moment later, as of any lock.
fn await_age(begun: Instant) {
    eventually("so long after the first acquire", || elapsed(begun) > 25 * MS);
}

/// A thread that queues for a lock, and keeps it until it is told to go.
struct Rival {
    go: Sender<()>,
    done: Receiver<(Instant, ())>,
}

impl Rival {
    fn queue(client: &CuratorFramework, path: &'static str) -> Rival {
        let (client, (go, told)) = (client.clone(), bounded::<()>(0));
        let done = spawn(move || {
            let lock = mutex_at(&client, path);
            lock.acquire().unwrap();
            let _ = told.recv();
            lock.release().unwrap();
        });
        Rival { go, done }
    }

    fn go(self) {
        drop(self.go);
        join(&self.done);
    }
}

/// One lock of each kind.
fn kinds(client: &CuratorFramework) -> Vec<Arc<dyn InterProcessLock>> {
    let books = InterProcessReadWriteLock::new(client, "/locks/books").unwrap();
    let prices = InterProcessReadWriteLock::new(client, "/locks/prices").unwrap();
    vec![
        Arc::new(mutex_at(client, A)),
        Arc::new(books.read_lock().clone()),
        Arc::new(prices.write_lock().clone()),
        Arc::new(InterProcessUnfairMutex::new(client, "/locks/unfair").unwrap()),
        Arc::new(InterProcessSemaphoreMutex::new(client, "/locks/semaphore").unwrap()),
    ]
}

fn await_no_kinds(testbed: &Testbed) {
    for directory in [A, "/locks/books", "/locks/prices", "/locks/unfair/lock/holder", "/locks/semaphore/leases"] {
        await_contenders(testbed, directory, 0);
    }
}

#[test]
fn a_cancelled_multi_lock_in_a_black_hole_ends_at_once() {
    let testbed = testbed_with(LONG);
    let holder = mutex_at(&testbed.observer, B);
    holder.acquire().unwrap();
    let mut over = Vec::new();
    for _ in 0..3 {
        let (client, token) = (testbed.client.clone(), CancelToken::new());
        let options = AcquireOptions::new().cancel_token(&token);
        let waiter = spawn(move || both(&client).acquire_with(&options));
        await_contenders(&testbed, B, 2);
        testbed.proxy.black_hole(Direction::Both);
        let cancelled = now();
        token.cancel();
        let (at, result) = join(&waiter);
        assert!(matches!(result, Err(Error::Cancelled { .. })), "{result:?}");
        over.push(cancelled..at);
        testbed.proxy.pass().unwrap();
        await_contenders(&testbed, A, 0);
        await_contenders(&testbed, B, 1);
    }
    over.into_iter().for_each(|took| assert_at_most("black hole: cancelled multi lock", took, AT_ONCE));
}

#[test]
fn what_was_taken_is_given_back_in_a_black_hole_without_a_wait_whatever_its_kind() {
    let outcomes: [fn() -> Result<bool>; 2] =
        [|| Ok(false), || Err(Error::Server { code: ErrorCode::NoAuth, operation: "create", path: "/refused".into() })];
    let mut over = Vec::new();
    for outcome in outcomes.repeat(2) {
        let testbed = Arc::new(testbed_with(LONG));
        let (last_testbed, (sender, begun)) = (testbed.clone(), bounded(1));
        let last = Foreign(move |_| {
            last_testbed.proxy.black_hole(Direction::Both);
            sender.send(now()).unwrap();
            outcome()
        });
        let mut locks = kinds(&testbed.client);
        locks.push(Arc::new(last));
        let result = InterProcessMultiLock::from_locks(locks).unwrap().acquire_timeout(LONG);
        over.push(since(begun.recv().unwrap()));
        assert!(!matches!(result, Ok(true)), "{result:?}");
        testbed.proxy.pass().unwrap();
        await_no_kinds(&testbed);
    }
    over.into_iter().for_each(|took| assert_at_most("black hole: five locks given back", took, AT_ONCE));
}

#[test]
fn a_guard_and_a_locker_that_are_dropped_in_a_black_hole_do_not_block() {
    let testbed = testbed_with(LONG);
    let lock = InterProcessMultiLock::from_locks(kinds(&testbed.client)).unwrap();
    let dropped_in_a_black_hole = |held: Box<dyn Droppable + '_>| {
        testbed.proxy.black_hole(Direction::Both);
        let begin = now();
        drop(held);
        let took = since(begin);
        testbed.proxy.pass().unwrap();
        await_no_kinds(&testbed);
        took
    };
    let mut over = Vec::new();
    for _ in 0..2 {
        over.push(dropped_in_a_black_hole(Box::new(lock.lock().unwrap())));
        over.push(dropped_in_a_black_hole(Box::new(Locker::new(&lock).unwrap())));
    }
    over.into_iter().for_each(|took| assert_at_most("black hole: guards and lockers dropped", took, AT_ONCE));
}

/// What is dropped at the end of a hold.
trait Droppable {}

impl<T> Droppable for T {}

#[test]
fn a_mere_try_in_a_black_hole_ends_with_the_connection_timeout() {
    const CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
    let testbed = testbed_of(LONG, |builder| builder.connection_timeout(CONNECTION_TIMEOUT));
    let mut over = Vec::new();
    let slow = Foreign(|_| {
        sleep(CONNECTION_TIMEOUT * 9 / 10);
        Ok(true)
    });
    let behind_a_slow_one: [Arc<dyn InterProcessLock>; 2] = [Arc::new(slow), Arc::new(mutex_at(&testbed.client, B))];
    let mut locks = kinds(&testbed.client);
    locks.push(Arc::new(both(&testbed.client)));
    locks.push(Arc::new(InterProcessMultiLock::from_locks(behind_a_slow_one).unwrap()));
    for lock in locks {
        testbed.proxy.black_hole(Direction::Both);
        let begin = now();
        let result = lock.acquire_timeout(Duration::ZERO);
        over.push((since(begin), CONNECTION_TIMEOUT));
        assert!(!matches!(result, Ok(true)), "{result:?}");
        testbed.proxy.pass().unwrap();
        testbed.client.sync().for_path("/").unwrap();
    }
    for took in over {
        assert_over_at_most("black hole: a mere try over the connection timeout", vec![took], 500 * MS);
    }
}

/// Makes the directories, so that the first acquire of both is one transaction.
fn make_directories(testbed: &Testbed) {
    let held = both(&testbed.observer).lock().unwrap();
    held.release().unwrap();
}

#[test]
fn while_a_member_is_refused_those_behind_it_stand_in_no_queue() {
    let testbed = testbed_with(LONG);
    make_directories(&testbed);
    let throttled = Fault::Refuse(ErrorCode::ThrottledOp.into());
    let lists = RequestMatch::ops([op::GET_CHILDREN, op::MULTI_READ]).path(|path| path == A).times(4);
    let refused = testbed.proxy.inject(lists, throttled);
    let client = testbed.client.clone();
    let waiter = spawn(move || both(&client).acquire());
    eventually("nobody is in the later queue", || {
        assert!(refused.hits() < 4 && waiter.is_empty(), "it stays in the later queue");
        children(&testbed.observer, A).len() == 1 && refused.hits() > 1 && children(&testbed.observer, B).is_empty()
    });
    join(&waiter).1.unwrap();
    assert_eq!((children(&testbed.observer, A).len(), children(&testbed.observer, B).len()), (1, 1));
}

#[test]
fn silent_servers_are_an_error_of_a_multi_lock_as_of_a_single_one() {
    let testbed = testbed_with(LONG);
    make_directories(&testbed);
    testbed.client.sync().for_path("/").unwrap();
    let acquires: [fn(&CuratorFramework, Duration) -> Result<bool>; 2] =
        [|client, time| mutex_at(client, A).acquire_timeout(time), |client, time| both(client).acquire_timeout(time)];
    for acquire in acquires {
        testbed.proxy.black_hole(Direction::Both);
        // Longer than an answer may take, and not so long that the session takes the connection for dead.
        let result = acquire(&testbed.client, LONG * 3 / 10);
        assert!(matches!(result, Err(Error::ConnectionLoss { .. })), "{result:?}");
        testbed.proxy.pass().unwrap();
        await_contenders(&testbed, A, 0);
        await_contenders(&testbed, B, 0);
        eventually("it answers", || testbed.client.sync().for_path("/").is_ok());
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}

#[test]
fn a_panic_in_the_release_of_a_member_leaves_no_znode() {
    let testbed = testbed_with(LONG);
    make_directories(&testbed);
    let last = mutex_at(&testbed.client, B);
    let bomb = Bomb;
    last.make_revocable(move |_: &InterProcessMutex| {
        let _ = &bomb;
    });
    let locks: [Arc<dyn InterProcessLock>; 2] = [Arc::new(mutex_at(&testbed.client, A)), Arc::new(last.clone())];
    let lock = InterProcessMultiLock::from_locks(locks).unwrap();
    lock.acquire().unwrap();
    let released = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lock.release()));
    assert!(matches!(released, Ok(Ok(()))), "it comes out of no release: {released:?}");
    await_contenders(&testbed, A, 0);
    await_contenders(&testbed, B, 0);
    assert!(!last.is_acquired_in_this_process());
}

/// The holder of /b never gives way before the multi lock has begun again.
#[test]
fn the_loss_of_a_member_ends_the_wait_for_the_next_one() {
    let begins_again = |testbed: &Testbed| children(&testbed.observer, A).len() == 2;
    let waits_no_more = |testbed: &Testbed| children(&testbed.observer, B).len() == 1;
    for lose in [expire, |testbed: &Testbed| delete_first_of(testbed, A)] {
        let testbed = testbed_with(LONG);
        let holder = Rival::queue(&testbed.observer, B);
        await_contenders(&testbed, B, 1);
        let client = testbed.client.clone();
        let waiter = spawn(move || both(&client).acquire_timeout(LONG));
        await_contenders(&testbed, B, 2);
        let rival = Rival::queue(&testbed.observer, A);
        await_contenders(&testbed, A, 2);
        lose(&testbed);
        eventually("it waits for a again, or gives up", || {
            begins_again(&testbed) && waits_no_more(&testbed) || !waiter.is_empty()
        });
        assert!(waiter.is_empty(), "it went on waiting for b: {:?}", join(&waiter).1);
        rival.go();
        holder.go();
        assert!(join(&waiter).1.unwrap());
    }
}

#[test]
fn a_multi_lock_that_has_lost_a_member_gives_up_in_time() {
    let testbed = testbed_with(LONG);
    let holder = Rival::queue(&testbed.observer, B);
    await_contenders(&testbed, B, 1);
    let client = testbed.client.clone();
    let timeout = 10_000 * MS;
    let waiter = spawn(move || {
        let begin = now();
        let result = both(&client).acquire_timeout(timeout);
        (since(begin), result)
    });
    await_contenders(&testbed, B, 2);
    let begun = now();
    let rival = Rival::queue(&testbed.observer, A);
    await_contenders(&testbed, A, 2);
    await_age(begun);
    delete_first_of(&testbed, A);
    holder.go();
    let (took, result) = join(&waiter).1;
    assert!(!result.unwrap(), "granted beside another holder");
    assert_at_most("a multi lock that has begun again", took, timeout + 500 * MS);
    rival.go();
    await_contenders(&testbed, A, 0);
    await_contenders(&testbed, B, 0);
}

/// Acquires a, and then a lock during whose acquire something happens to a, the first time. What is returned is certain.
fn with_something_in_between(
    session_timeout: Duration,
    happens: impl Fn(&Testbed, &InterProcessMutex) + Send + Sync + 'static,
) {
    let testbed = Arc::new(testbed_with(session_timeout));
    let first = Arc::new(mutex_at(&testbed.client, A));
    let (last_testbed, last_first) = (testbed.clone(), first.clone());
    let has_happened = std::sync::atomic::AtomicBool::new(false);
    let last = Foreign(move |_| {
        if !has_happened.swap(true, std::sync::atomic::Ordering::SeqCst) {
            happens(&last_testbed, &last_first);
        }
        Ok(true)
    });
    let locks: [Arc<dyn InterProcessLock>; 2] = [first, Arc::new(last)];
    let lock = InterProcessMultiLock::from_locks(locks).unwrap();
    let held = lock.lock().unwrap();
    let states: Vec<HoldState> = held.holds().iter().map(Hold::state).collect();
    assert_eq!(states, [HoldState::Held]);
    held.release().unwrap();
    await_contenders(&testbed, A, 0);
}

#[test]
fn a_member_lost_while_a_foreign_lock_was_acquired_is_acquired_again() {
    with_something_in_between(LONG, |testbed, first| {
        expire(testbed);
        eventually("it is lost", || first.hold().unwrap().is_lost());
        eventually("there is a session again", || testbed.client.is_connected());
    });
    with_something_in_between(LONG, |testbed, first| {
        delete_first_of(testbed, A);
        eventually("it is lost", || first.hold().unwrap().is_lost());
    });
    with_something_in_between(LONG, |testbed, _| {
        await_age(now());
        delete_first_of(testbed, A);
    });
}

#[test]
fn a_member_in_doubt_is_not_returned_before_it_is_certain_again() {
    // It stays in doubt for that long.
    with_something_in_between(3 * T, |testbed, first| {
        testbed.proxy.black_hole(Direction::Both);
        eventually("it is in doubt", || first.hold().unwrap().state() == HoldState::InDoubt);
        testbed.proxy.pass().unwrap();
    });
}

mod slow {
    use super::*;

    #[test]
    fn a_timed_multi_lock_in_a_black_hole_ends_by_its_deadline() {
        let testbed = testbed_with(LONG);
        let holder = mutex_at(&testbed.observer, B);
        holder.acquire().unwrap();
        // Not over before it is seen to wait.
        let timeout = 10_000 * MS;
        let mut over = Vec::new();
        for _ in 0..3 {
            let client = testbed.client.clone();
            let waiter = spawn(move || {
                let begin = now();
                let result = both(&client).acquire_timeout(timeout);
                (since(begin), result)
            });
            await_contenders(&testbed, B, 2);
            testbed.proxy.black_hole(Direction::Both);
            let (took, result) = join(&waiter).1;
            assert!(!matches!(result, Ok(true)), "{result:?}");
            over.push((took, timeout));
            testbed.proxy.pass().unwrap();
            await_contenders(&testbed, A, 0);
            await_contenders(&testbed, B, 1);
        }
        assert_over_at_most("black hole: timed multi lock over its deadline", over, AT_ONCE);
    }
}
