//! `InterProcessSemaphoreMutex`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use curator_locks::{
    AcquireOptions, CuratorFramework, Error, Hold, HoldState, InterProcessLock, InterProcessMultiLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, Locker, Result, testing::expire_session,
};

use crate::support::{PATIENCE, children, client_in, eventually, server};

const SHORT: Duration = Duration::from_millis(200);

/// Waits until there is the holder and nobody else. Where the server is slow, an acquire whose time is up leaves its znodes
/// to the background.
fn await_one(client: &CuratorFramework) {
    eventually("only the holder is left", || {
        children(client, "/m/leases").len() == 1 && children(client, "/m/locks").is_empty()
    });
}

#[test]
fn it_is_not_reentrant_and_a_timed_failure_keeps_what_is_held() {
    let client = client_in("m_reentrant");
    let mutex = InterProcessSemaphoreMutex::new(&client, "/m").unwrap();
    mutex.acquire().unwrap();
    assert!(!mutex.acquire_timeout(SHORT).unwrap());
    assert!(!mutex.acquire_timeout(Duration::ZERO).unwrap());
    assert!(mutex.is_acquired_in_this_process());
    await_one(&client);
    mutex.release().unwrap();
    assert!(!mutex.is_acquired_in_this_process());
    assert!(mutex.acquire_timeout(Duration::ZERO).unwrap());
    mutex.release().unwrap();
}

#[test]
fn any_thread_may_release_and_a_second_release_is_refused() {
    let client = client_in("m_threads");
    let mutex = InterProcessSemaphoreMutex::new(&client, "/m").unwrap();
    assert!(matches!(mutex.release(), Err(Error::NotOwner { path, .. }) if path == "/m"));
    mutex.acquire().unwrap();
    thread::scope(|scope| scope.spawn(|| mutex.release().unwrap()).join().unwrap());
    assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
    // It waits for itself until another thread releases it.
    mutex.acquire().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            eventually("it waits", || children(&client, "/m/leases").len() == 2);
            mutex.release().unwrap();
        });
        mutex.acquire().unwrap();
    });
    mutex.release().unwrap();
}

#[test]
fn releasing_threads_never_lose_the_lease_that_another_thread_has_just_got() {
    let client = client_in("m_376");
    let mutex = InterProcessSemaphoreMutex::new(&client, "/m").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert!(mutex.acquire_timeout(PATIENCE).unwrap());
                    // Another thread acquires while this one waits for the reply (CURATOR-376).
                    mutex.release().unwrap();
                }
            });
        }
    });
    assert!(!mutex.is_acquired_in_this_process());
    assert_eq!(children(&client, "/m/leases"), [""; 0]);
}

#[test]
fn a_guard_may_go_to_another_thread_and_is_released_once() {
    let client = client_in("m_guard");
    let mutex = InterProcessSemaphoreMutex::new(&client, "/m").unwrap().with_lock_data(b"who".to_vec());
    let guard = mutex.lock().unwrap();
    assert_eq!(client.get_data().for_path(guard.path()).unwrap(), b"who");
    assert!(mutex.is_acquired_in_this_process());
    assert!(mutex.try_lock().unwrap().is_none());
    assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })), "the guard holds it");
    assert!(guard.is_valid());
    let token = guard.fencing_token();
    thread::scope(|scope| scope.spawn(move || guard.release().unwrap()).join().unwrap());
    assert!(!mutex.is_acquired_in_this_process());
    let guard = mutex.lock_timeout(PATIENCE).unwrap().unwrap();
    assert!(guard.fencing_token() > token);
    drop(guard);
    eventually("the dropped guard is released", || children(&client, "/m/leases").is_empty());
}

/// This thread acquires, its session expires, and another thread acquires through the same object. What this thread ends
/// then is its own hold.
fn overtaken(namespace: &str, stale: impl FnOnce(&Arc<InterProcessSemaphoreMutex>, &mut dyn FnMut())) {
    let (client, other) = (client_in(namespace), client_in(namespace));
    let mutex = Arc::new(InterProcessSemaphoreMutex::new(&client, "/m").unwrap());
    let theirs = InterProcessSemaphoreMutex::new(&other, "/m").unwrap();
    thread::scope(|scope| {
        let (go, told) = mpsc::channel::<()>();
        let (mut told, mut second) = (Some(told), None);
        stale(&mutex, &mut || {
            expire_session(&server().connect_string(), client.session_id(), &client.session_password()).unwrap();
            eventually("it is lost", || mutex.hold().is_some_and(|hold| hold.is_lost()));
            let (say, granted) = mpsc::channel();
            let (mutex, told) = (mutex.clone(), told.take().unwrap());
            second = Some(scope.spawn(move || {
                mutex.acquire().unwrap();
                say.send(()).unwrap();
                let _ = told.recv();
                assert!(mutex.hold().unwrap().is_valid());
                mutex.release()
            }));
            granted.recv_timeout(PATIENCE).unwrap();
        });
        // The other thread's lease.
        await_one(&client);
        assert!(!theirs.acquire_timeout(SHORT).unwrap(), "two holders");
        drop(go);
        second.unwrap().join().unwrap().unwrap();
    });
    assert!(!mutex.is_acquired_in_this_process());
    assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
}

fn assert_lost(result: Result<()>) {
    assert!(matches!(&result, Err(Error::LockLost { .. })), "{result:?}");
}

#[test]
fn a_release_that_comes_late_ends_its_own_hold_and_no_other() {
    overtaken("m_late_release", |mutex, overtake| {
        mutex.acquire().unwrap();
        overtake();
        assert_lost(mutex.release());
    });
    overtaken("m_late_acquire", |mutex, overtake| {
        mutex.acquire().unwrap();
        overtake();
        assert!(!mutex.acquire_timeout(SHORT).unwrap());
        assert_lost(mutex.release());
    });
}

/// Has another thread acquire the mutex and go, and deletes its lease.
fn lost_by_a_thread(
    client: &CuratorFramework,
    mutex: &InterProcessSemaphoreMutex,
    options: &AcquireOptions,
) -> Vec<Hold> {
    let acquire = || mutex.acquire_holds(options).unwrap().unwrap();
    let holds = thread::scope(|scope| scope.spawn(acquire).join().unwrap());
    client.delete().for_path(holds[0].path()).unwrap();
    eventually("it is lost", || !mutex.is_acquired_in_this_process());
    holds
}

#[test]
fn what_threads_have_lost_and_never_release_does_not_count_as_held_for_ever() {
    let client = client_in("m_never_released");
    let mutex = InterProcessSemaphoreMutex::new(&client, "/m").unwrap();
    (0..40).for_each(|_| drop(lost_by_a_thread(&client, &mutex, &AcquireOptions::new())));
    let held = client.metrics().held;
    assert!(held <= 33, "{held}");
}

#[test]
fn a_fenced_hold_that_was_lost_can_be_given_back_after_any_number_of_losses() {
    let client = client_in("m_fenced_and_lost");
    let mutex = InterProcessSemaphoreMutex::new(&client, "/m").unwrap();
    // It would end this process 40 s later.
    let fenced = lost_by_a_thread(&client, &mutex, &AcquireOptions::new().self_fence(SHORT));
    (0..40).for_each(|_| drop(lost_by_a_thread(&client, &mutex, &AcquireOptions::new())));
    assert_lost(mutex.release_holds(&fenced));
    assert!(matches!(mutex.release_holds(&fenced), Err(Error::NotOwner { .. })));
}

#[test]
fn it_shares_the_path_with_a_semaphore_of_one_lease() {
    let client = client_in("m_semaphore");
    let mutex = InterProcessSemaphoreMutex::new(&client, "/m").unwrap();
    let semaphore = InterProcessSemaphoreV2::new(&client, "/m", 1).unwrap();
    let lease = semaphore.acquire().unwrap();
    assert!(!mutex.acquire_timeout(SHORT).unwrap());
    await_one(&client);
    assert_eq!(mutex.participant_nodes().unwrap(), [lease.node_name()]);
    lease.close().unwrap();
    assert!(mutex.acquire_timeout(PATIENCE).unwrap());
    assert!(semaphore.acquire_timeout(SHORT).unwrap().is_none());
    mutex.release().unwrap();
}

/// A mutex whose first acquire is overtaken right at its return: one thread releases it, and another one acquires it.
struct Overtaken {
    mutex: InterProcessSemaphoreMutex,
    is_first: AtomicBool,
}

impl Overtaken {
    fn new(client: &CuratorFramework) -> Overtaken {
        Overtaken { mutex: InterProcessSemaphoreMutex::new(client, "/m").unwrap(), is_first: AtomicBool::new(true) }
    }

    fn theirs(&self) -> Hold {
        self.mutex.hold().expect("the other thread's")
    }
}

impl InterProcessLock for Overtaken {
    fn acquire(&self) -> Result<()> {
        self.acquire_holds(&AcquireOptions::new()).map(drop)
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        Ok(self.acquire_holds(&AcquireOptions::new().timeout(timeout))?.is_some())
    }

    fn acquire_holds(&self, options: &AcquireOptions) -> Result<Option<Vec<Hold>>> {
        let holds = self.mutex.acquire_holds(options)?;
        if holds.is_some() && self.is_first.swap(false, Ordering::SeqCst) {
            thread::scope(|scope| {
                let others = scope.spawn(|| self.mutex.release().and_then(|()| self.mutex.acquire()));
                others.join().unwrap().unwrap();
            });
        }
        Ok(holds)
    }

    fn release(&self) -> Result<()> {
        self.mutex.release()
    }

    fn release_holds(&self, holds: &[Hold]) -> Result<()> {
        self.mutex.release_holds(holds)
    }

    fn abandon_holds(&self, holds: &[Hold]) {
        self.mutex.abandon_holds(holds);
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.mutex.is_acquired_in_this_process()
    }

    fn holds(&self) -> Vec<Hold> {
        self.mutex.holds()
    }
}

#[test]
fn a_locker_names_the_hold_that_its_acquire_has_got_and_not_one_that_came_after_it() {
    let client = client_in("m_overtaken");
    let lock = Overtaken::new(&client);
    let locker = Locker::new(&lock).unwrap();
    let theirs = lock.theirs();
    assert_ne!(locker.holds()[0].path(), theirs.path());
    assert_eq!(locker.holds()[0].state(), HoldState::Released);
    let closed = locker.close();
    assert!(matches!(closed, Err(Error::NotOwner { .. })), "{closed:?}");
    assert!(theirs.is_valid(), "the locker has ended another thread's hold");
}

#[test]
fn a_multi_lock_takes_no_hold_that_came_after_its_own() {
    let client = client_in("m_overtaken_multi");
    let lock = Arc::new(Overtaken::new(&client));
    let multi = InterProcessMultiLock::from_locks([lock.clone() as Arc<dyn InterProcessLock>]).unwrap();
    assert!(multi.lock_timeout(PATIENCE / 6).unwrap().is_none(), "it has taken another thread's hold for its own");
    assert!(lock.theirs().is_valid());
}
