//! Who waits for whom.

use std::{sync::mpsc, time::Duration};

use curator_locks::{Error, InterProcessReadWriteLock};

use crate::support::{
    PATIENCE, await_children, children, eventually,
    scope::{client_in, scope},
    watchers,
};

const PATH: &str = "/lock";
/// Long enough for a call that would not wait to be done, and short enough to be waited for.
const SHORT: Duration = Duration::from_millis(300);

#[test]
fn readers_hold_together_and_a_writer_alone() {
    let (one, two) = (client_in("together"), client_in("together"));
    let (first, second) = (lock(&one), lock(&two));
    let reading = first.read_lock().lock().unwrap();
    let beside = second.read_lock().try_lock().unwrap().expect("a reader beside a reader");
    assert!(second.write_lock().try_lock().unwrap().is_none());
    beside.release().unwrap();
    reading.release().unwrap();
    let writing = second.write_lock().lock().unwrap();
    assert!(first.read_lock().try_lock().unwrap().is_none());
    assert!(first.write_lock().try_lock().unwrap().is_none());
    writing.release().unwrap();
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn participant_nodes_list_readers_and_writers_apart() {
    let client = client_in("participants");
    let holder = lock(&client);
    let held = holder.write_lock().lock().unwrap();
    let lock = lock(&client);
    scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| lock.read_lock().acquire().and_then(|()| lock.read_lock().release()).unwrap());
        }
        for _ in 0..7 {
            scope.spawn(|| lock.write_lock().acquire().and_then(|()| lock.write_lock().release()).unwrap());
        }
        await_children(&client, PATH, 28);
        let (readers, writers) =
            (lock.read_lock().participant_nodes().unwrap(), lock.write_lock().participant_nodes().unwrap());
        assert_eq!((readers.len(), writers.len()), (20, 8));
        assert!(readers.iter().all(|path| path.starts_with("/lock/_c_") && path.contains("-__READ__")), "{readers:?}");
        assert!(writers.iter().all(|path| path.starts_with("/lock/_c_") && path.contains("-__WRIT__")), "{writers:?}");
        assert_eq!(writers[0], held.path());
        held.release().unwrap();
    });
    assert_eq!(children(&client, PATH), Vec::<String>::new());
}

#[test]
fn upgrading_a_read_lock_is_refused_at_once_and_a_mere_try_is_false() {
    let client = client_in("upgrade");
    let lock = lock(&client);
    lock.read_lock().acquire().unwrap();
    let timed = lock.write_lock().acquire_timeout(PATIENCE);
    assert!(matches!(timed, Err(Error::WouldDeadlock { .. })), "{timed:?}");
    assert!(lock.write_lock().try_lock().unwrap().is_none());
    match lock.write_lock().acquire() {
        Err(Error::WouldDeadlock { waiting_for, held }) => {
            assert_eq!(waiting_for, "the write lock of /lock");
            assert_eq!(held, format!("the read lock of /lock ({})", lock.read_lock().lock_path().unwrap()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(children(&client, PATH).len(), 1, "only the reader's own node");
    lock.read_lock().release().unwrap();
    lock.write_lock().acquire().unwrap();
    lock.write_lock().release().unwrap();
}

#[test]
fn another_threads_write_hold_gives_no_right_to_read() {
    let client = client_in("other-thread");
    let lock = lock(&client);
    lock.write_lock().acquire().unwrap();
    scope(|scope| {
        let reads = scope.spawn(|| lock.read_lock().acquire_timeout(SHORT).unwrap());
        assert!(!reads.join().unwrap());
    });
    assert!(lock.write_lock().is_owned_by_current_thread());
    lock.write_lock().release().unwrap();
    await_children(&client, PATH, 0);
}

#[test]
fn both_locks_are_reentrant_each_with_its_own_count() {
    let (one, two) = (client_in("reentrant"), client_in("reentrant"));
    let (mine, other) = (lock(&one), lock(&two));
    for _ in 0..2 {
        mine.write_lock().acquire().unwrap();
        mine.read_lock().acquire().unwrap();
    }
    assert_eq!(children(&one, PATH).len(), 2, "one node for each lock");
    mine.write_lock().release().unwrap();
    mine.read_lock().release().unwrap();
    assert!(other.read_lock().try_lock().unwrap().is_none(), "the write lock is held once more");
    mine.write_lock().release().unwrap();
    other.read_lock().try_lock().unwrap().expect("only readers are left").release().unwrap();
    assert!(other.write_lock().try_lock().unwrap().is_none(), "the read lock is held once more");
    mine.read_lock().release().unwrap();
    assert!(matches!(mine.read_lock().release(), Err(Error::NotOwner { .. })));
    assert!(matches!(mine.write_lock().release(), Err(Error::NotOwner { .. })));
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn readers_do_not_overtake_a_queued_writer() {
    let (one, two, three) = (client_in("overtake"), client_in("overtake"), client_in("overtake"));
    let (first, second, third) = (lock(&one), lock(&two), lock(&three));
    let (events, order) = mpsc::channel();
    let reading = first.read_lock().lock().unwrap();
    scope(|scope| {
        let said = events.clone();
        scope.spawn(|| {
            let said = said;
            let held = second.write_lock().lock().unwrap();
            said.send("writer").unwrap();
            held.release().unwrap();
        });
        await_children(&one, PATH, 2);
        assert!(third.read_lock().try_lock().unwrap().is_none(), "a try does not overtake");
        let said = events.clone();
        scope.spawn(|| {
            let said = said;
            let held = third.read_lock().lock().unwrap();
            said.send("reader").unwrap();
            held.release().unwrap();
        });
        let writer = || second.write_lock().participant_nodes().unwrap().first().cloned();
        eventually("the reader waits for the writer", || {
            writer().is_some_and(|writer| watchers(&one, &writer).contains(&three.session_id()))
        });
        assert!(order.try_recv().is_err(), "nobody was granted so far");
        reading.release().unwrap();
        assert_eq!([order.recv_timeout(PATIENCE), order.recv_timeout(PATIENCE)], [Ok("writer"), Ok("reader")]);
    });
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn a_reader_watches_the_last_writer_in_front_of_it() {
    let (one, two, three) = (client_in("last-writer"), client_in("last-writer"), client_in("last-writer"));
    let (first, second, third) = (lock(&one), lock(&two), lock(&three));
    let writing = first.write_lock().lock().unwrap();
    scope(|scope| {
        scope.spawn(|| second.write_lock().acquire().and_then(|()| second.write_lock().release()).unwrap());
        await_children(&one, PATH, 2);
        let writers = first.write_lock().participant_nodes().unwrap();
        scope.spawn(|| third.read_lock().acquire().and_then(|()| third.read_lock().release()).unwrap());
        eventually("the reader waits", || watchers(&one, &writers[1]).contains(&three.session_id()));
        assert!(!watchers(&one, &writers[0]).contains(&three.session_id()), "one wake-up is enough");
        writing.release().unwrap();
    });
    assert_eq!(children(&one, PATH), Vec::<String>::new());
}

#[test]
fn lock_data_is_copied_and_stands_in_the_nodes_of_both_locks() {
    let client = client_in("data");
    let mut data = b"who I am".to_vec();
    let lock = InterProcessReadWriteLock::new(&client, PATH).unwrap().with_lock_data(data.clone());
    data.clear();
    lock.write_lock().acquire().unwrap();
    lock.read_lock().acquire().unwrap();
    for path in [lock.write_lock().lock_path().unwrap(), lock.read_lock().lock_path().unwrap()] {
        assert_eq!(client.get_data().for_path(&path).unwrap(), b"who I am");
    }
    lock.write_lock().release().unwrap();
    lock.read_lock().release().unwrap();
}

fn lock(client: &curator_locks::CuratorFramework) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(client, PATH).unwrap()
}
