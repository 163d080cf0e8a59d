//! `recipes.locks`.

use std::{sync::Arc, thread, time::Duration};

use crossbeam_channel::unbounded;
use curator_locks::{
    CuratorFramework, InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockInternals, LockInternalsDriver, LockInternalsSorter,
    Locker, PredicateResults, Revocable, RevocationListener, Revoker, SharedCount, StandardLockInternalsDriver,
};

use crate::{
    book, member,
    support::{PATIENCE, client},
};

const SOON: Duration = Duration::from_secs(20);

pub(crate) fn call() {
    let client = client();
    mutex(&client);
    revocation(&client);
    through_the_interface(&client);
    several_at_once(&client);
    read_write(&client);
    semaphore_mutex(&client);
    semaphore(&client);
    lockers(&client);
    internals(&client);
    drivers();
}

fn mutex(client: &CuratorFramework) {
    let mutex = member!(
        "locks.InterProcessMutex.<init>(CuratorFramework,String)",
        InterProcessMutex::new(client, "/mutex").unwrap()
    );
    member!("locks.InterProcessMutex.acquire()", mutex.acquire().unwrap());
    assert!(member!("locks.InterProcessMutex.isAcquiredInThisProcess()", mutex.is_acquired_in_this_process()));
    assert!(member!("locks.InterProcessMutex.isOwnedByCurrentThread()", mutex.is_owned_by_current_thread()));
    let path = member!("locks.InterProcessMutex.getLockPath()", mutex.lock_path().unwrap());
    let nodes = member!("locks.InterProcessMutex.getParticipantNodes()", mutex.participant_nodes().unwrap());
    assert_eq!(nodes, [path]);
    member!("locks.InterProcessMutex.release()", mutex.release().unwrap());
    assert!(member!("locks.InterProcessMutex.acquire(long,TimeUnit)", mutex.acquire_timeout(SOON).unwrap()));
    mutex.release().unwrap();
    let driver = StandardLockInternalsDriver::with_lock_name("own-");
    let own = member!(
        "locks.InterProcessMutex.<init>(CuratorFramework,String,LockInternalsDriver)",
        InterProcessMutex::with_driver(client, "/own", driver).unwrap()
    );
    let own = member!("locks.InterProcessMutex.getLockNodeBytes()", own.with_lock_data("host-17"));
    own.acquire().unwrap();
    assert_eq!(client.get_data().for_path(&own.lock_path().unwrap()).unwrap(), b"host-17");
    own.release().unwrap();
}

struct Asked(crossbeam_channel::Sender<()>);

impl RevocationListener<InterProcessMutex> for Asked {
    fn revocation_requested(&self, _mutex: &InterProcessMutex) {
        book("locks.RevocationListener.revocationRequested(Object)", "fn revocation_requested(&self, _mutex)");
        let _ = self.0.send(());
    }
}

/// Makes any lock revocable.
fn revocable<T: Revocable<InterProcessMutex>>(lock: &T, ask: &crossbeam_channel::Sender<()>) {
    let (one, other) = (Asked(ask.clone()), Asked(ask.clone()));
    member!("locks.Revocable.makeRevocable(RevocationListener)", lock.make_revocable(one));
    member!(
        "locks.Revocable.makeRevocable(RevocationListener,Executor)",
        lock.make_revocable_with_executor(other, |task| drop(thread::spawn(task)))
    );
}

fn revocation(client: &CuratorFramework) {
    let mutex = InterProcessMutex::new(client, "/revocable").unwrap();
    let (ask, asked) = unbounded();
    revocable(&mutex, &ask);
    let (one, other) = (Asked(ask.clone()), Asked(ask));
    member!(
        "locks.InterProcessMutex.makeRevocable(RevocationListener,Executor)",
        mutex.make_revocable_with_executor(one, |task| task())
    );
    member!("locks.InterProcessMutex.makeRevocable(RevocationListener)", mutex.make_revocable(other));
    mutex.acquire().unwrap();
    member!(
        "locks.Revoker.attemptRevoke(CuratorFramework,String)",
        Revoker::attempt_revoke(client, &mutex.lock_path().unwrap()).unwrap()
    );
    asked.recv_timeout(PATIENCE).unwrap();
    mutex.release().unwrap();
}

fn through_the_interface(client: &CuratorFramework) {
    let lock: &dyn InterProcessLock = &InterProcessMutex::new(client, "/interface").unwrap();
    member!("locks.InterProcessLock.acquire()", lock.acquire().unwrap());
    assert!(member!("locks.InterProcessLock.isAcquiredInThisProcess()", lock.is_acquired_in_this_process()));
    member!("locks.InterProcessLock.release()", lock.release().unwrap());
    assert!(member!("locks.InterProcessLock.acquire(long,TimeUnit)", lock.acquire_timeout(SOON).unwrap()));
    lock.release().unwrap();
}

fn several_at_once(client: &CuratorFramework) {
    let locks: Vec<Arc<dyn InterProcessLock>> = vec![Arc::new(InterProcessMutex::new(client, "/m/3").unwrap())];
    let of_locks =
        member!("locks.InterProcessMultiLock.<init>(List)", InterProcessMultiLock::from_locks(locks).unwrap());
    of_locks.acquire().unwrap();
    of_locks.release().unwrap();
    let multi = member!(
        "locks.InterProcessMultiLock.<init>(CuratorFramework,List)",
        InterProcessMultiLock::new(client, ["/m/1", "/m/2"]).unwrap()
    );
    member!("locks.InterProcessMultiLock.acquire()", multi.acquire().unwrap());
    assert!(member!("locks.InterProcessMultiLock.isAcquiredInThisProcess()", multi.is_acquired_in_this_process()));
    member!("locks.InterProcessMultiLock.release()", multi.release().unwrap());
    assert!(member!("locks.InterProcessMultiLock.acquire(long,TimeUnit)", multi.acquire_timeout(SOON).unwrap()));
    multi.release().unwrap();
}

fn read_write(client: &CuratorFramework) {
    let lock = member!(
        "locks.InterProcessReadWriteLock.<init>(CuratorFramework,String)",
        InterProcessReadWriteLock::new(client, "/rw").unwrap()
    );
    let lock = member!(
        "locks.InterProcessReadWriteLock.<init>(CuratorFramework,String,byte[])",
        lock.with_lock_data("host-17")
    );
    let write = member!("locks.InterProcessReadWriteLock.writeLock()", lock.write_lock());
    write.acquire().unwrap();
    member!("locks.InterProcessReadWriteLock$WriteLock.getLockPath()", write.lock_path().unwrap());
    write.release().unwrap();
    let read = member!("locks.InterProcessReadWriteLock.readLock()", lock.read_lock());
    read.acquire().unwrap();
    let path = member!("locks.InterProcessReadWriteLock$ReadLock.getLockPath()", read.lock_path().unwrap());
    assert_eq!(client.get_data().for_path(&path).unwrap(), b"host-17");
    read.release().unwrap();
}

fn semaphore_mutex(client: &CuratorFramework) {
    let mutex = member!(
        "locks.InterProcessSemaphoreMutex.<init>(CuratorFramework,String)",
        InterProcessSemaphoreMutex::new(client, "/sm").unwrap()
    );
    member!("locks.InterProcessSemaphoreMutex.acquire()", mutex.acquire().unwrap());
    assert!(member!("locks.InterProcessSemaphoreMutex.isAcquiredInThisProcess()", mutex.is_acquired_in_this_process()));
    member!("locks.InterProcessSemaphoreMutex.release()", mutex.release().unwrap());
    assert!(member!("locks.InterProcessSemaphoreMutex.acquire(long,TimeUnit)", mutex.acquire_timeout(SOON).unwrap()));
    mutex.release().unwrap();
}

fn semaphore(client: &CuratorFramework) {
    let count = SharedCount::new(client, "/limit", 2).unwrap();
    count.start().unwrap();
    let shared = member!(
        "locks.InterProcessSemaphoreV2.<init>(CuratorFramework,String,SharedCountReader)",
        InterProcessSemaphoreV2::with_shared_count(client, "/s", &count).unwrap()
    );
    let semaphore = member!(
        "locks.InterProcessSemaphoreV2.<init>(CuratorFramework,String,int)",
        InterProcessSemaphoreV2::new(client, "/s", 2).unwrap()
    );
    member!("locks.InterProcessSemaphoreV2.setNodeData(byte[])", semaphore.set_node_data("host-17"));
    let [_, leases] = member!("locks.InterProcessSemaphoreV2.LOCK_SCHEMA", InterProcessSemaphoreV2::LOCK_SCHEMA);
    let lease = member!("locks.InterProcessSemaphoreV2.acquire()", semaphore.acquire().unwrap());
    assert_eq!(member!("locks.Lease.getData()", lease.data().unwrap()), b"host-17");
    let name = member!("locks.Lease.getNodeName()", lease.node_name()).to_owned();
    assert!(client.check_exists().for_path(&format!("/s/{leases}/{name}")).unwrap().is_some());
    let nodes = member!("locks.InterProcessSemaphoreV2.getParticipantNodes()", semaphore.participant_nodes().unwrap());
    assert_eq!(nodes, [name]);
    let other = member!(
        "locks.InterProcessSemaphoreV2.acquire(long,TimeUnit)",
        semaphore.acquire_timeout(SOON).unwrap().unwrap()
    );
    assert!(shared.acquire_timeout(Duration::ZERO).unwrap().is_none());
    member!("locks.InterProcessSemaphoreV2.returnLease(Lease)", semaphore.return_lease(lease).unwrap());
    member!("locks.Lease.close()", other.close().unwrap());
    let two = member!("locks.InterProcessSemaphoreV2.acquire(int)", semaphore.acquire_many(2).unwrap());
    member!("locks.InterProcessSemaphoreV2.returnAll(Collection)", semaphore.return_all(two).unwrap());
    let two = member!(
        "locks.InterProcessSemaphoreV2.acquire(int,long,TimeUnit)",
        semaphore.acquire_many_timeout(2, SOON).unwrap().unwrap()
    );
    semaphore.return_all(two).unwrap();
}

fn lockers(client: &CuratorFramework) {
    let mutex = InterProcessMutex::new(client, "/locker").unwrap();
    let locker = member!("locks.Locker.<init>(InterProcessLock)", Locker::new(&mutex).unwrap());
    member!("locks.Locker.close()", locker.close().unwrap());
    let locker =
        member!("locks.Locker.<init>(InterProcessLock,long,TimeUnit)", Locker::with_timeout(&mutex, SOON).unwrap());
    drop(locker);
    assert!(!mutex.is_acquired_in_this_process());
}

fn internals(client: &CuratorFramework) {
    let mutex = InterProcessMutex::new(client, "/internals").unwrap();
    mutex.acquire().unwrap();
    let path = mutex.lock_path().unwrap();
    let nodes = member!(
        "locks.LockInternals.getParticipantNodes(CuratorFramework,String,String,LockInternalsSorter)",
        LockInternals::participant_nodes(client, "/internals").unwrap()
    );
    assert_eq!(nodes, [path.as_str()]);
    let driver = StandardLockInternalsDriver::new();
    let names = member!(
        "locks.LockInternals.getSortedChildren(CuratorFramework,String,String,LockInternalsSorter)",
        LockInternals::sorted_children(client, "/internals", "lock-", &driver).unwrap()
    );
    assert_eq!(names, [path.rsplit('/').next().unwrap()]);
    mutex.release().unwrap();
    member!("locks.LockInternals.clean()", mutex.internals().clean().unwrap());
}

fn drivers() {
    let driver = member!("locks.StandardLockInternalsDriver.<init>()", StandardLockInternalsDriver::new());
    let children = ["b-lock-0000000001", "a-lock-0000000002"].map(String::from);
    let mut names = children.to_vec();
    member!(
        "locks.LockInternals.getSortedChildren(String,LockInternalsSorter,List)",
        names
            .sort_by(|one, other| { driver.fix_for_sorting(one, "lock-").cmp(driver.fix_for_sorting(other, "lock-")) })
    );
    assert_eq!(names, children);
    let number = |fixed: &str| assert_eq!(fixed, "0000000001");
    number(member!(
        "locks.StandardLockInternalsDriver.fixForSorting(String,String)",
        driver.fix_for_sorting(&children[0], "lock-")
    ));
    let sorter: &dyn LockInternalsSorter = &driver;
    number(member!(
        "locks.LockInternalsSorter.fixForSorting(String,String)",
        sorter.fix_for_sorting(&children[0], "lock-")
    ));
    /// With the trait's own rule.
    struct Standard;
    impl LockInternalsSorter for Standard {}
    number(member!(
        "locks.StandardLockInternalsDriver.standardFixForSorting(String,String)",
        Standard.fix_for_sorting(&children[0], "lock-")
    ));
    let first = member!(
        "locks.StandardLockInternalsDriver.getsTheLock(CuratorFramework,List,String,int)",
        driver.decide(&children, &children[0], 1)
    );
    let name =
        member!("locks.StandardLockInternalsDriver.createsTheLock(CuratorFramework,String,byte[])", driver.lock_name());
    assert_eq!(name, "lock-");
    let any: &dyn LockInternalsDriver = &driver;
    let second = member!(
        "locks.LockInternalsDriver.getsTheLock(CuratorFramework,List,String,int)",
        any.decide(&children, &children[1], 1)
    );
    member!("locks.LockInternalsDriver.createsTheLock(CuratorFramework,String,byte[])", any.lock_name());
    let granted = member!("locks.PredicateResults.<init>(String,boolean)", PredicateResults::new(None, true));
    assert!(member!("locks.PredicateResults.getsTheLock()", granted.gets_the_lock()));
    assert_eq!(first, granted.into());
    let behind = PredicateResults::new(Some(children[0].clone()), false).with_predecessor_first(true);
    assert_eq!(member!("locks.PredicateResults.getPathToWatch()", behind.path_to_watch()), Some(children[0].as_str()));
    assert_eq!(second, behind.into());
}
