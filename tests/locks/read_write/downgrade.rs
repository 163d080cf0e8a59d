//! A writer becomes a reader without letting anybody in between.

use std::sync::mpsc::{self, TryRecvError};

use curator_locks::{
    CreateMode, CuratorFramework, Error, FencingToken, HoldState, InterProcessMutex, InterProcessReadWriteLock,
    LostReason, StandardLockInternalsDriver, Stat,
};

use crate::support::{
    PATIENCE, await_children, children, eventually, expire,
    scope::{client_in, scope},
    watchers,
};

const PATH: &str = "/lock";

#[test]
fn a_writer_becomes_a_reader() {
    let (one, two) = (client_in("becomes"), client_in("becomes"));
    let (mine, other) = (lock(&one), lock(&two));
    mine.write_lock().acquire().unwrap();
    mine.read_lock().acquire().unwrap();
    assert!(other.read_lock().try_lock().unwrap().is_none());
    mine.write_lock().release().unwrap();
    other.read_lock().try_lock().unwrap().expect("beside the reader").release().unwrap();
    assert!(other.write_lock().try_lock().unwrap().is_none());
    mine.read_lock().release().unwrap();
    other.write_lock().try_lock().unwrap().expect("free").release().unwrap();
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn the_read_node_is_ephemeral_and_has_the_writers_number() {
    let client = client_in("wire");
    let lock = lock(&client);
    // A container could be removed between two holds, and the numbers would begin anew.
    client.create().creating_parents_if_needed().for_path(PATH).unwrap();
    // So that the number is not the directory's first, nor that of the next child.
    for _ in 0..3 {
        lock.read_lock().acquire().unwrap();
        lock.read_lock().release().unwrap();
    }
    let writing = lock.write_lock().lock().unwrap();
    let reading = lock.read_lock().lock().unwrap();
    let (write_name, read_name) = (name(writing.path()), name(reading.path()));
    assert_eq!(&write_name[write_name.len() - 10..], "0000000003");
    assert_eq!(&read_name[39..], "-__READ__0000000003");
    assert_ne!(read_name[..39], write_name[..39], "a uuid of its own");
    let mut stat = Stat::default();
    client.get_data().storing_stat_in(&mut stat).for_path(reading.path()).unwrap();
    assert_eq!(stat.ephemeral_owner, client.session_id());
    writing.release().unwrap();
    reading.release().unwrap();
}

#[test]
fn the_readers_token_is_the_writers() {
    let (one, two) = (client_in("token"), client_in("token"));
    let (mine, other) = (lock(&one), lock(&two));
    let writing = mine.write_lock().lock().unwrap();
    let (tokens, token) = mpsc::channel::<FencingToken>();
    scope(|scope| {
        scope.spawn(|| {
            let held = other.write_lock().lock().unwrap();
            let tokens = tokens;
            tokens.send(held.fencing_token()).unwrap();
            held.release().unwrap();
        });
        await_children(&one, PATH, 2);
        // Younger than the node of the writer that waits, and yet granted before it.
        let reading = mine.read_lock().lock().unwrap();
        assert_eq!(reading.fencing_token(), writing.fencing_token());
        let granted = reading.fencing_token();
        writing.release().unwrap();
        reading.release().unwrap();
        assert!(token.recv_timeout(PATIENCE).unwrap() > granted);
    });
}

#[test]
fn a_mutex_behind_a_writer_that_downgrades_waits_for_the_reader() {
    let (one, two) = (client_in("mutex"), client_in("mutex"));
    let mine = lock(&one);
    for mutex in mutexes(&two) {
        mine.write_lock().acquire().unwrap();
        let writer = mine.write_lock().lock_path().unwrap();
        let downgrade = || {
            assert!(mine.read_lock().acquire_timeout(PATIENCE).unwrap(), "in front of the mutex");
            mine.write_lock().release().unwrap();
            mine.read_lock().lock_path().unwrap()
        };
        waits_for_the_heir(&one, &two, &mutex, &writer, downgrade, |_| mine.read_lock().release().unwrap());
    }
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

/// As locks of other clients are called, which may do whatever they like with their own numbers.
#[test]
fn a_mutex_behind_a_foreign_znode_waits_for_another_one_with_the_same_number() {
    let (one, two) = (client_in("foreign"), client_in("foreign"));
    for mutex in mutexes(&two) {
        let create = |name: &str, mode| {
            let path = format!("{PATH}/{name}");
            one.create().creating_parents_if_needed().with_mode(mode).for_path(&path).unwrap()
        };
        let delete = |path: &str| one.delete().for_path(path).unwrap();
        let first = create("kazoo__lock__", CreateMode::EphemeralSequential);
        let become_reader = || {
            let reader = create(&name(&first).replace("__lock__", "__rlock__"), CreateMode::Ephemeral);
            delete(&first);
            reader
        };
        waits_for_the_heir(&one, &two, &mutex, &first, become_reader, delete);
    }
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

/// One of the kind that everybody knows, and one that nobody does.
fn mutexes(client: &CuratorFramework) -> [InterProcessMutex; 2] {
    let driver = StandardLockInternalsDriver::with_lock_name("whatever-");
    let custom = InterProcessMutex::with_driver(client, PATH, driver).unwrap();
    [InterProcessMutex::new(client, PATH).unwrap(), custom]
}

/// A mutex of the client `two` waits for the znode `first`, which another znode replaces then: that one it waits for, too.
fn waits_for_the_heir(
    one: &CuratorFramework,
    two: &CuratorFramework,
    mutex: &InterProcessMutex,
    first: &str,
    replace: impl FnOnce() -> String,
    free: impl FnOnce(&str),
) {
    let (granted, is_granted) = mpsc::channel();
    scope(|scope| {
        scope.spawn(|| {
            let granted = granted;
            mutex.acquire().unwrap();
            granted.send(()).unwrap();
            mutex.release().unwrap();
        });
        eventually("the mutex waits", || watchers(one, first).contains(&two.session_id()));
        let successor = replace();
        eventually("the mutex waits for the successor", || {
            assert_eq!(is_granted.try_recv(), Err(TryRecvError::Empty), "a mutex beside {successor}");
            watchers(one, &successor).contains(&two.session_id())
        });
        assert_eq!(is_granted.try_recv(), Err(TryRecvError::Empty), "a mutex beside {successor}");
        free(&successor);
        is_granted.recv_timeout(PATIENCE).unwrap();
    });
}

#[test]
fn a_writer_whose_session_expired_gets_no_read_lock() {
    let (one, two) = (client_in("expired"), client_in("expired"));
    let (mine, other) = (lock(&one), lock(&two));
    let writing = mine.write_lock().lock().unwrap();
    let old = one.session_id();
    expire(&one);
    let theirs = other.write_lock().lock().unwrap();
    eventually("a session of its own again", || one.session_id() != old && one.is_connected());
    assert!(matches!(mine.read_lock().acquire(), Err(Error::LockLost { reason: LostReason::SessionExpired, .. })));
    assert!(matches!(mine.read_lock().acquire_timeout(PATIENCE), Err(Error::LockLost { .. })));
    assert!(!mine.read_lock().is_acquired_in_this_process());
    assert_eq!(children(&two, PATH), [name(theirs.path())]);
    theirs.release().unwrap();
    assert!(matches!(writing.release(), Err(Error::LockLost { .. })));
    // From here on it is a reader like any other.
    mine.read_lock().acquire().unwrap();
    mine.read_lock().release().unwrap();
}

#[test]
fn a_writer_whose_node_was_deleted_gets_no_read_lock() {
    let (one, two) = (client_in("deleted"), client_in("deleted"));
    let (mine, other) = (lock(&one), lock(&two));
    let writing = mine.write_lock().lock().unwrap();
    // Faster than the watch that would tell the holder: only the listing shows it.
    two.delete().for_path(writing.path()).unwrap();
    let theirs = other.write_lock().lock().unwrap();
    assert!(matches!(mine.read_lock().acquire(), Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })));
    eventually("the writer knows", || writing.state() == HoldState::Lost(LostReason::NodeDeleted));
    eventually("the read node does not stay", || children(&two, PATH) == [name(theirs.path())]);
    theirs.release().unwrap();
    drop(writing);
    mine.read_lock().acquire().unwrap();
    mine.read_lock().release().unwrap();
    assert_eq!(children(&two, PATH), Vec::<String>::new());
}

#[test]
fn a_writer_whose_directory_was_deleted_gets_no_read_lock() {
    let client = client_in("directory");
    let lock = lock(&client);
    lock.write_lock().acquire().unwrap();
    client.delete().deleting_children_if_needed().for_path(PATH).unwrap();
    assert!(matches!(lock.read_lock().acquire(), Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })));
    assert!(client.check_exists().for_path(PATH).unwrap().is_none());
}

#[test]
fn a_reader_of_another_client_gets_in_when_the_holders_session_expires() {
    let (one, two) = (client_in("killed"), client_in("killed"));
    let (mine, other) = (lock(&one), lock(&two));
    let writing = mine.write_lock().lock().unwrap();
    let old = writing.path().to_owned();
    scope(|scope| {
        let reader = scope.spawn(|| {
            let held = other.read_lock().lock().unwrap();
            let path = held.path().to_owned();
            held.release().unwrap();
            path
        });
        eventually("the reader waits", || watchers(&two, &old).contains(&two.session_id()));
        expire(&one);
        assert_ne!(reader.join().unwrap(), old);
    });
    assert!(two.check_exists().for_path(&old).unwrap().is_none());
    eventually("the holder knows", || writing.is_lost());
}

#[test]
fn the_reader_outlives_its_writer_guard_in_any_order() {
    let client = client_in("order");
    let lock = lock(&client);
    for reader_first in [true, false] {
        let writing = lock.write_lock().lock().unwrap();
        let reading = lock.read_lock().lock().unwrap();
        if reader_first {
            drop(reading);
            assert!(writing.is_valid());
            writing.release().unwrap();
        } else {
            drop(writing);
            assert!(reading.is_valid());
            reading.release().unwrap();
        }
        await_children(&client, PATH, 0);
    }
}

fn lock(client: &CuratorFramework) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client, PATH).unwrap()
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

mod slow {
    use super::*;

    #[test]
    fn a_queued_writer_waits_for_the_reader_1000_times() {
        const ROUNDS: usize = 1_000;
        let (one, two) = (client_in("contending"), client_in("contending"));
        let (mine, other) = (lock(&one), lock(&two));
        let (go, may_queue) = mpsc::channel::<()>();
        let (granted, is_granted) = mpsc::channel::<()>();
        scope(|scope| {
            scope.spawn(|| {
                let (may_queue, granted) = (may_queue, granted);
                while may_queue.recv().is_ok() {
                    let held = other.write_lock().lock().unwrap();
                    granted.send(()).unwrap();
                    held.release().unwrap();
                }
            });
            let go = go;
            for round in 0..ROUNDS {
                let writing = mine.write_lock().lock().unwrap();
                go.send(()).unwrap();
                eventually("the other writer waits", || watchers(&one, writing.path()).contains(&two.session_id()));
                let reading =
                    mine.read_lock().lock_timeout(PATIENCE).unwrap().expect("granted in front of the other writer");
                writing.release().unwrap();
                // It has seen the writer go, looked again, and waits for the reader now.
                eventually("the other writer waits for the reader", || {
                    assert_eq!(
                        is_granted.try_recv(),
                        Err(TryRecvError::Empty),
                        "round {round}: a writer beside a reader"
                    );
                    watchers(&one, reading.path()).contains(&two.session_id())
                });
                assert_eq!(is_granted.try_recv(), Err(TryRecvError::Empty), "round {round}: a writer beside a reader");
                reading.release().unwrap();
                is_granted.recv_timeout(PATIENCE).unwrap();
            }
        });
        assert_eq!(children(&one, PATH), Vec::<String>::new());
    }
}
