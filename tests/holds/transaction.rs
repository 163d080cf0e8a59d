//! Several writes as one, and writes that a lost lock cannot make.
//!
//! `RACES` is the number of races with an administrator who deletes the lock, for guarded and for unguarded writes:
//!
//! ```text
//! RACES=10000 cargo test --all-features --test holds transaction -- --nocapture
//! ```

use std::{
    env,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use curator_locks::{
    CreateMode, CuratorFramework, Error, ErrorCode, HoldState, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreV2, InterProcessUnfairMutex, LostReason, Stat, Transaction,
    testing::{Fault, RequestMatch, TestingServer},
};

use crate::{
    behind_proxy_for,
    support::{self, SESSION, another, eventually, mutex},
};

#[test]
fn all_operations_are_carried_out_and_each_tells_what_it_did() {
    let client = support::client();
    client.create().creating_parents_if_needed().for_path_and_data("/a", "old").unwrap();
    client.create().for_path_and_data("/gone", "").unwrap();
    let results = client
        .transaction()
        .check()
        .with_version(0)
        .for_path("/a")
        .create()
        .with_mode(CreateMode::PersistentSequential)
        .for_path_and_data("/b-", "new")
        .set_data()
        .with_version(0)
        .for_path_and_data("/a", "changed")
        .delete()
        .for_path("/gone")
        .commit()
        .unwrap();
    let operations: Vec<_> = results.iter().map(|result| (result.operation, result.path.as_str())).collect();
    assert_eq!(operations, [("check", "/a"), ("create", "/b-"), ("set_data", "/a"), ("delete", "/gone")]);
    let created = results[1].created.clone().unwrap();
    assert!(created.starts_with("/b-00000"), "{created}");
    assert_eq!(client.get_data().for_path(&created).unwrap(), b"new");
    assert_eq!(results[2].stat.as_ref().map(|stat| stat.version), Some(1));
    assert_eq!(client.get_data().for_path("/a").unwrap(), b"changed");
    assert_eq!(client.check_exists().for_path("/gone").unwrap(), None);
    assert_eq!(client.transaction().commit().unwrap(), []);
}

#[test]
fn one_operation_that_fails_takes_all_back_and_is_named() {
    let client = support::client();
    client.create().creating_parents_if_needed().for_path_and_data("/a", "old").unwrap();
    let write = || client.transaction().set_data().for_path_and_data("/a", "changed");
    let rows: [(&str, Transaction, ErrorCode); 4] = [
        ("check", write().check().with_version(3).for_path("/a"), ErrorCode::BadVersion),
        ("create", write().create().for_path("/a"), ErrorCode::NodeExists),
        ("delete", write().delete().for_path("/none"), ErrorCode::NoNode),
        ("set_data", write().set_data().for_path_and_data("/none", ""), ErrorCode::NoNode),
    ];
    for (name, transaction, expected) in rows {
        match transaction.create().for_path("/after").commit() {
            Err(Error::TransactionFailed { index: 1, operation, path, code, codes }) => {
                assert_eq!((operation, code), (name, expected));
                assert!(path == "/a" || path == "/none");
                assert_eq!(codes, [None, Some(expected), Some(ErrorCode::RuntimeInconsistency)]);
            }
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(client.get_data().for_path("/a").unwrap(), b"old");
        assert_eq!(client.check_exists().for_path("/after").unwrap(), None);
    }
    let broken = write().delete().for_path("no path").commit();
    assert!(matches!(broken, Err(Error::InvalidPath { .. })), "{broken:?}");
    assert_eq!(client.get_data().for_path("/a").unwrap(), b"old");
}

#[test]
fn a_transaction_whose_reply_is_lost_is_not_sent_again() {
    let (proxy, client) = behind_proxy_for(SESSION);
    client.create().creating_parents_if_needed().for_path("/log").unwrap();
    let append = || {
        let entry = client.transaction().create().with_mode(CreateMode::PersistentSequential);
        entry.for_path("/log/entry-").commit()
    };
    let rows = [(Fault::CutInsteadOfReply, 1), (Fault::CutInsteadOfRequest, 0)];
    for (fault, written) in rows {
        let before = client.get_children().for_path("/log").unwrap().len();
        let injected = proxy.inject(RequestMatch::transactions(), fault);
        let lost = append();
        assert!(matches!(lost, Err(Error::ConnectionLoss { .. })), "{fault:?}: {lost:?}");
        assert_eq!(injected.hits(), 1);
        assert_eq!(client.get_children().for_path("/log").unwrap().len(), before + written, "{fault:?}");
    }
    append().unwrap();
}

#[test]
fn a_guarded_write_is_refused_once_the_lock_is_gone_and_the_holder_hears_of_it() {
    let client = support::client();
    let admin = another(&client);
    client.create().creating_parents_if_needed().for_path_and_data("/data", "old").unwrap();
    let read_write = InterProcessReadWriteLock::new(&client, "/read-write").unwrap();
    let semaphore = InterProcessSemaphoreV2::new(&client, "/semaphore", 2).unwrap();
    let mutex = mutex(&client);
    let (alone, reading) = (mutex.lock().unwrap(), read_write.read_lock().lock().unwrap());
    let (lease, other_lease) = (semaphore.acquire().unwrap(), semaphore.acquire().unwrap());
    for hold in [&*alone, &*reading, &*lease] {
        let write = || {
            let guarded = hold.guard_transaction(client.transaction()).unwrap();
            guarded.set_data().for_path_and_data("/data", hold.path()).commit()
        };
        let results = write().unwrap();
        assert_eq!(results.len(), 1, "the guard is no operation of the caller's");
        admin.delete().for_path(hold.path()).unwrap();
        admin.set_data().for_path_and_data("/data", "another's").unwrap();
        let refused = write();
        assert!(matches!(refused, Err(Error::LockLost { .. })), "{refused:?}");
        assert_eq!(client.get_data().for_path("/data").unwrap(), b"another's");
        eventually("the holder knows", || hold.state() == HoldState::Lost(LostReason::NodeDeleted));
    }
    let guarded = other_lease.guard_transaction(client.transaction()).unwrap();
    let failed = guarded.set_data().with_version(77).for_path_and_data("/data", "").commit();
    assert!(
        matches!(failed, Err(Error::TransactionFailed { index: 0, code: ErrorCode::BadVersion, .. })),
        "{failed:?}"
    );
    // Two guards: both have to stand.
    let guarded = lease.guard_transaction(other_lease.guard_transaction(client.transaction()).unwrap()).unwrap();
    assert!(matches!(guarded.delete().for_path("/data").commit(), Err(Error::LockLost { .. })));
    other_lease.close().unwrap();
}

#[test]
fn a_released_lock_guards_nothing() {
    let client = support::client();
    client.create().creating_parents_if_needed().for_path("/data").unwrap();
    let mutex = mutex(&client);
    let guard = mutex.lock().unwrap();
    let (hold, transaction) = (curator_locks::Hold::clone(&guard), client.transaction());
    let guarded = hold.guard_transaction(transaction).unwrap().delete().for_path("/data");
    guard.release().unwrap();
    assert!(matches!(guarded.commit(), Err(Error::LockLost { .. })));
}

/// The next holder's znode is another one, also without a queue.
#[test]
fn a_lost_unfair_lock_guards_nothing_for_the_next_holder() {
    let client = support::client();
    client.create().creating_parents_if_needed().for_path("/data").unwrap();
    let unfair = InterProcessUnfairMutex::new(&client, "/unfair").unwrap();
    let held = unfair.lock().unwrap();
    let guard = || held.guard_transaction(client.transaction()).unwrap().set_data();
    guard().for_path_and_data("/data", "first").commit().unwrap();
    client.delete().for_path(held.path()).unwrap();
    let next = thread::scope(|scope| scope.spawn(|| unfair.try_lock().unwrap().unwrap().release()).join().unwrap());
    next.unwrap();
    let refused = guard().for_path_and_data("/data", "late").commit();
    assert!(matches!(refused, Err(Error::LockLost { .. })), "{refused:?}");
}

/// How the races have ended.
#[derive(Default)]
struct Tally {
    written: AtomicUsize,
    refused: AtomicUsize,
    /// Writes with a later transaction id than the delete of the lock.
    too_late: AtomicUsize,
}

const LANES: usize = 6;

/// One holder writes again and again, until it is refused or was too late, and an administrator deletes its lock.
fn race(
    holder: &CuratorFramework,
    admin: &CuratorFramework,
    lane: usize,
    is_guarded: bool,
    races: usize,
) -> [usize; 3] {
    let (lock, data) = (format!("/locks/{lane}"), format!("/data-{lane}"));
    // To stay, so that it tells of the delete.
    holder.create().creating_parents_if_needed().with_mode(CreateMode::Persistent).for_path(&lock).unwrap();
    holder.create().for_path(&data).unwrap();
    let mutex = InterProcessMutex::new(holder, &lock).unwrap();
    let (tally, barrier) = (Tally::default(), Barrier::new(2));
    let count = |of: &AtomicUsize| of.fetch_add(1, Ordering::Relaxed);
    for number in 0..races {
        let held = mutex.lock().unwrap();
        let last_write = thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                admin.delete().for_path(held.path()).unwrap();
            });
            barrier.wait();
            let mut last_write = None;
            for write in 0..3 {
                let transaction = match is_guarded {
                    true => held.guard_transaction(holder.transaction()).unwrap(),
                    false => holder.transaction(),
                };
                match transaction.set_data().for_path_and_data(&data, format!("{number}.{write}")).commit() {
                    Ok(_) => last_write = Some(count(&tally.written)),
                    Err(Error::LockLost { .. }) => {
                        count(&tally.refused);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            last_write
        });
        let (mut of_lock, mut of_data) = (Stat::default(), Stat::default());
        holder.get_children().storing_stat_in(&mut of_lock).for_path(&lock).unwrap();
        holder.get_data().storing_stat_in(&mut of_data).for_path(&data).unwrap();
        if last_write.is_some() && of_data.mzxid > of_lock.pzxid {
            count(&tally.too_late);
        }
        // Lost, as it should be.
        assert!(matches!(held.release(), Err(Error::LockLost { .. })));
    }
    [tally.written, tally.refused, tally.too_late].map(AtomicUsize::into_inner)
}

fn races(is_guarded: bool) -> [usize; 3] {
    let races: usize = env::var("RACES").map_or(1200, |races| races.parse().unwrap());
    let holder = support::client();
    let admin = another(&holder);
    let tallies: Vec<[usize; 3]> = thread::scope(|scope| {
        let (holder, admin) = (&holder, &admin);
        let race = |lane| scope.spawn(move || race(holder, admin, lane, is_guarded, races.div_ceil(LANES)));
        let racing: Vec<_> = (0..LANES).map(race).collect();
        racing.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    let sum = |k: usize| tallies.iter().map(|tally| tally[k]).sum();
    let [written, refused, too_late] = [sum(0), sum(1), sum(2)];
    println!("guarded: {is_guarded}, {races} races: {written} writes, {refused} refused, too late in {too_late}");
    [written, refused, too_late]
}

#[test]
fn no_guarded_write_comes_after_the_loss_of_its_lock_and_unguarded_ones_do() {
    let [written, refused, too_late] = races(true);
    assert_eq!(too_late, 0);
    assert!(written > 0 && refused > 0, "{written} {refused}");
    let [written, refused, too_late] = races(false);
    assert!(written > 0 && refused == 0 && too_late > 0, "without the guard it has to go wrong");
}

#[test]
fn other_servers_that_do_not_know_the_lock_refuse_the_write_and_end_no_hold() {
    let client = support::client();
    let elsewhere = TestingServer::start().unwrap();
    let stranger = support::connect(support::builder(&elsewhere, &support::namespace()));
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    let write = held.guard_transaction(stranger.transaction()).unwrap().create().for_path_and_data("/a", "");
    assert_eq!(write.commit().unwrap_err().code(), Some(ErrorCode::NoNode));
    assert!(held.is_valid());
    held.release().unwrap();
    assert!(support::queue(&client, "/locks/m").is_empty());
}
