//! Guards that outlive their lock objects, and locks that can be cloned.

use std::{thread, time::Duration};

use curator_locks::{
    CuratorFramework, Error, InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, InterProcessUnfairMutex, Lease, LockGuard, MultiLockGuard,
    SemaphoreMutexGuard,
};

use crate::{
    MS,
    support::{self, another, mutex},
};

/// May be kept for as long as its thread lives.
struct Holder {
    guard: Option<LockGuard>,
}

fn holder(client: &CuratorFramework) -> Holder {
    // The lock object is gone when this returns.
    Holder { guard: Some(mutex(client).lock().unwrap()) }
}

#[test]
fn a_guard_outlives_its_lock_object() {
    let client = support::client();
    let other = mutex(&another(&client));
    let mut holder = holder(&client);
    assert!(!other.acquire_timeout(Duration::ZERO).unwrap());
    assert!(holder.guard.as_ref().unwrap().is_valid());
    holder.guard.take().unwrap().release().unwrap();
    assert!(other.acquire_timeout(Duration::ZERO).unwrap());
    other.release().unwrap();
    drop(mutex(&client).lock_timeout(Duration::ZERO).unwrap().unwrap());
    other.acquire().unwrap();
    assert!(mutex(&client).lock_timeout(20 * MS).unwrap().is_none());
    other.release().unwrap();
}

#[test]
fn a_guard_counts_as_the_threads_hold() {
    let client = support::client();
    let mutex = mutex(&client);
    let outer = mutex.lock().unwrap();
    let inner = mutex.clone().lock().unwrap();
    assert_eq!(outer.path(), inner.path());
    drop(outer);
    assert!(mutex.is_owned_by_current_thread());
    inner.release().unwrap();
    assert!(!mutex.is_owned_by_current_thread());
}

#[test]
fn a_guard_that_no_thread_owns_goes_to_a_thread_of_no_scope() {
    let client = support::client();
    let lock = InterProcessSemaphoreMutex::new(&client, "/semaphore").unwrap();
    let guard = lock.lock().unwrap();
    assert!(matches!(lock.release(), Err(Error::NotOwner { .. })), "a guard's hold is the guard's");
    assert!(lock.is_acquired_in_this_process());
    thread::spawn(move || guard.release()).join().unwrap().unwrap();
    assert!(!lock.is_acquired_in_this_process());
    let guard = lock.lock().unwrap();
    drop(lock);
    thread::spawn(move || guard.release()).join().unwrap().unwrap();
}

#[test]
fn a_clone_is_the_same_lock() {
    let client = support::client();
    let first = mutex(&client);
    let second = first.clone();
    first.acquire().unwrap();
    second.acquire().unwrap();
    first.release().unwrap();
    assert!(first.is_owned_by_current_thread());
    second.release().unwrap();
    assert!(!first.is_owned_by_current_thread());

    let first = InterProcessSemaphoreMutex::new(&client, "/semaphore").unwrap();
    let second = first.clone();
    first.acquire().unwrap();
    drop(first);
    assert!(second.is_acquired_in_this_process());
    second.release().unwrap();
    second.acquire().unwrap();
    second.release().unwrap();

    let first = InterProcessMultiLock::new(&client, ["/a", "/b"]).unwrap();
    let second = first.clone();
    first.acquire().unwrap();
    second.release().unwrap();
    assert!(!first.is_acquired_in_this_process());
    let guard = second.lock().unwrap();
    drop(second);
    assert!(first.is_acquired_in_this_process());
    guard.release().unwrap();

    let first = InterProcessUnfairMutex::new(&client, "/unfair").unwrap();
    let second = first.clone();
    first.acquire().unwrap();
    second.release().unwrap();
}

#[test]
fn what_belongs_to_a_thread_can_be_looked_at_from_another() {
    fn is_shared<T: Sync>(_: &T) {}
    fn is_sent<T: Send + Sync + 'static>(_: &T) {}
    fn is_a_lock<T: InterProcessLock + Clone + 'static>(_: &T) {}
    let client = support::client();
    let locks = (
        mutex(&client),
        InterProcessReadWriteLock::new(&client, "/read-write").unwrap(),
        InterProcessUnfairMutex::new(&client, "/unfair").unwrap(),
        InterProcessSemaphoreMutex::new(&client, "/semaphore").unwrap(),
        InterProcessSemaphoreV2::new(&client, "/leases", 2).unwrap(),
        InterProcessMultiLock::new(&client, ["/a", "/b"]).unwrap(),
    );
    let (mutex, read_write, unfair, semaphore, leases, multi) = locks.clone();
    is_a_lock::<InterProcessMutex>(&mutex);
    is_a_lock(read_write.read_lock());
    is_a_lock(&unfair);
    is_a_lock(&semaphore);
    is_a_lock(&multi);
    let guard: LockGuard = mutex.lock().unwrap();
    is_shared(&guard);
    let reads: LockGuard = read_write.read_lock().lock().unwrap();
    let alone: LockGuard = unfair.lock().unwrap();
    let all: MultiLockGuard = multi.lock().unwrap();
    is_shared(&all);
    let one: SemaphoreMutexGuard = semaphore.lock().unwrap();
    is_sent(&one);
    let lease: Lease = leases.acquire().unwrap();
    is_sent(&lease);
    thread::scope(|scope| {
        let valid = scope.spawn(|| [&guard, &reads, &alone].map(|guard| guard.is_valid()));
        assert_eq!(valid.join().unwrap(), [true; 3]);
    });
}
