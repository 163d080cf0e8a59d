//! Somebody asks for a lock, and says who it is and why.

use std::sync::mpsc;

use curator_locks::{
    CuratorFramework, Error, Hold, HoldState, InterProcessLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, InterProcessUnfairMutex, LockQueue, LostReason,
    RevocationRequest, Revoker,
};

use crate::support::{self, PATIENCE, another, eventually, mutex, queue};

const PATH: &str = "/locks/m";

type Listener = Box<dyn Fn(&RevocationRequest) + Send + Sync>;
/// A lock with its data, which tells the listener.
type Kind = fn(&CuratorFramework, Listener) -> Box<dyn InterProcessLock>;

const KINDS: [(&str, Kind); 5] = [
    ("mutex", |client, listener| {
        let lock = InterProcessMutex::new(client, PATH).unwrap().with_lock_data("host-7");
        lock.on_revocation(listener);
        Box::new(lock)
    }),
    ("read", |client, listener| {
        let lock = InterProcessReadWriteLock::new(client, PATH).unwrap().with_lock_data("host-7");
        lock.on_revocation(listener);
        Box::new(lock.read_lock().clone())
    }),
    ("write", |client, listener| {
        let lock = InterProcessReadWriteLock::new(client, PATH).unwrap().with_lock_data("host-7");
        lock.on_revocation(listener);
        Box::new(lock.write_lock().clone())
    }),
    ("unfair", |client, listener| {
        let lock = InterProcessUnfairMutex::new(client, PATH).unwrap().with_lock_data("host-7");
        lock.on_revocation(listener);
        Box::new(lock)
    }),
    ("semaphore", |client, listener| {
        let lock = InterProcessSemaphoreMutex::new(client, PATH).unwrap().with_lock_data("host-7");
        lock.on_revocation(listener);
        Box::new(lock)
    }),
];

#[test]
fn every_kind_hears_who_asks_and_why_and_keeps_its_data() {
    for (kind, lock) in KINDS {
        let client = support::client();
        let admin = another(&client);
        let (tell, told) = mpsc::channel();
        let lock = lock(
            &client,
            Box::new(move |request| {
                let text = |part: Option<&str>| part.map(str::to_owned);
                let path = request.hold().map(|hold| hold.path().to_owned());
                tell.send((text(request.who()), text(request.why()), path)).unwrap();
            }),
        );
        // Over releases.
        for _ in 0..2 {
            lock.acquire().unwrap();
            let hold = lock.holds().remove(0);
            assert_eq!(hold.revocation(), None, "{kind}");
            Revoker::request(&admin, hold.path(), "the operator", "maintenance at noon").unwrap();
            let expected =
                (Some("the operator".into()), Some("maintenance at noon".into()), Some(hold.path().to_owned()));
            assert_eq!(told.recv_timeout(PATIENCE).unwrap(), expected, "{kind}");
            assert_eq!(hold.revocation(), Some(("the operator".into(), "maintenance at noon".into())));
            let data = admin.get_data().for_path(hold.path()).unwrap();
            assert!(String::from_utf8(data).unwrap().contains("host-7"), "{kind}: the data are gone");
            assert!(hold.is_valid(), "{kind}: nothing is released by itself");
            // As Curator asks.
            Revoker::attempt_revoke(&admin, hold.path()).unwrap();
            assert_eq!(told.recv_timeout(PATIENCE).unwrap(), (None, None, Some(hold.path().to_owned())), "{kind}");
            lock.release().unwrap();
            Revoker::request(&admin, hold.path(), "too late", "").unwrap();
            Revoker::attempt_revoke(&admin, hold.path()).unwrap();
        }
    }
}

#[test]
fn the_listener_may_give_the_lock_back_whichever_thread_holds_it() {
    for (kind, lock) in KINDS {
        let client = support::client();
        let admin = another(&client);
        let lock = lock(&client, Box::new(RevocationRequest::release));
        lock.acquire().unwrap();
        let hold = lock.holds().remove(0);
        let changes = hold.state_changes();
        Revoker::request(&admin, hold.path(), "the operator", "now").unwrap();
        assert_eq!(changes.recv_timeout(PATIENCE).unwrap(), HoldState::Lost(LostReason::Revoked), "{kind}");
        eventually("the znode is gone", || admin.check_exists().for_path(hold.path()).unwrap().is_none());
        let release = lock.release();
        assert!(matches!(release, Err(Error::LockLost { reason: LostReason::Revoked, .. })), "{kind}: {release:?}");
        assert_eq!(hold.revocation(), Some(("the operator".into(), "now".into())));
        lock.acquire().unwrap();
        lock.release().unwrap();
    }
}

#[test]
fn each_of_several_leases_is_asked_for_by_itself() {
    let client = support::client();
    let admin = another(&client);
    let semaphore = InterProcessSemaphoreV2::new(&client, "/leases", 3).unwrap();
    semaphore.set_node_data("host-7");
    semaphore.on_revocation(RevocationRequest::release);
    let leases = semaphore.acquire_many(3).unwrap();
    for lease in leases.iter().rev().take(2) {
        Revoker::request(&admin, lease.path(), "the operator", "").unwrap();
        assert!(lease.data().map_or_else(|error| error.is_no_node(), |data| data == b"host-7"));
        eventually("it is given back", || lease.state() == HoldState::Lost(LostReason::Revoked));
    }
    assert!(leases[0].is_valid() && leases[0].revocation().is_none());
    eventually("their znodes are gone", || support::children(&admin, "/leases/leases").len() == 1);
}

#[test]
fn a_waiter_hears_of_it_and_those_who_look_see_the_data_alone() {
    let client = support::client();
    let admin = another(&client);
    let held = mutex(&admin);
    let held = held.lock().unwrap();
    let (tell, told) = mpsc::channel();
    let (_, lock) = KINDS[0];
    let lock = lock(
        &client,
        Box::new(move |request| {
            request.release();
            tell.send(request.hold().is_none()).unwrap();
        }),
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.acquire().and_then(|()| lock.release()));
        let waiter = support::await_queue(&admin, PATH, 2).remove(1);
        Revoker::request(&admin, &waiter, "the operator", "go away").unwrap();
        assert!(told.recv_timeout(PATIENCE).unwrap(), "it holds nothing");
        let queue = LockQueue::inspect(&admin, PATH).unwrap();
        assert_eq!(queue.entries[1].data.as_deref(), Some(b"host-7".as_slice()));
        held.release().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn to_ask_a_directory_is_an_error() {
    let client = support::client();
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    for path in [PATH, "/locks"] {
        for asked in [Revoker::request(&client, path, "", ""), Revoker::attempt_revoke(&client, path)] {
            assert!(matches!(asked, Err(Error::InvalidArgument { name: "path", .. })), "{path}: {asked:?}");
        }
    }
    assert_eq!(queue(&client, PATH), [held.path().to_owned()]);
    assert_eq!(Hold::clone(&held).revocation(), None);
}
