//! `WriteLock`, the lock of ZooKeeper's own recipes, against real servers.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod faults;
#[path = "../leaving.rs"]
mod leaving;
#[path = "../../support/mod.rs"]
mod support;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use curator_locks::{
    CreateMode, CuratorFramework, Error, LockQueue, RetryForever, RetryPolicy, RetrySleeper, Stat,
    testing::TestingServer,
    zookeeper_recipe::{LockListener, WriteLock, ZNodeName},
};
use support::{PATIENCE, builder, builder_at, children, client_in, connect, eventually, expire, namespace};

const DIR: &str = "/election/leader";

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Acquired,
    Released,
}
use Told::{Acquired, Released};

struct Listener(Sender<Told>);

impl LockListener for Listener {
    fn lock_acquired(&self) {
        let _ = self.0.send(Acquired);
    }

    fn lock_released(&self) {
        let _ = self.0.send(Released);
    }
}

fn candidate(client: &CuratorFramework) -> (WriteLock, Receiver<Told>) {
    let (sender, told) = unbounded();
    (WriteLock::with_listener(client, DIR, Listener(sender)).unwrap(), told)
}

fn next(told: &Receiver<Told>) -> Told {
    told.recv_timeout(PATIENCE).unwrap()
}

fn unlock(client: &CuratorFramework, lock: &WriteLock) {
    leaving::left(client, lock.id(), lock.unlock()).unwrap();
}

fn close(client: &CuratorFramework, lock: &WriteLock) {
    leaving::left(client, lock.id(), lock.close()).unwrap();
}

/// The names in the order of the queue.
fn queue(client: &CuratorFramework) -> Vec<String> {
    let mut names: Vec<ZNodeName> = children(client, DIR).into_iter().map(ZNodeName::new).collect();
    names.sort();
    names.iter().map(|name| format!("{DIR}/{name}")).collect()
}

#[test]
fn the_first_leads_and_each_one_that_leaves_is_followed_by_the_next() {
    let namespace = namespace();
    let clients = [client_in(&namespace), client_in(&namespace), client_in(&namespace)];
    let candidates: Vec<_> = clients.iter().map(candidate).collect();
    for (k, (lock, _)) in candidates.iter().enumerate() {
        assert_eq!(lock.lock().unwrap(), k == 0);
    }
    let ids: Vec<String> = candidates.iter().map(|(lock, _)| lock.id().unwrap()).collect();
    assert_eq!(queue(&clients[0]), ids);
    let mut token = None;
    for (k, (lock, told)) in candidates.iter().enumerate() {
        assert_eq!(next(told), Acquired);
        eventually("it is the owner", || lock.is_owner());
        assert!(lock.fencing_token() > token);
        token = lock.fencing_token();
        for (other, _) in candidates.iter().skip(k + 1) {
            assert!(!other.is_owner());
        }
        unlock(&clients[0], lock);
        assert!(!lock.is_owner() && lock.id().is_none());
        assert_eq!(next(told), Released);
    }
    assert_eq!(children(&clients[0], DIR), [""; 0]);
    assert!(candidates.iter().all(|(_, told)| told.is_empty()), "somebody was told more than once");
}

/// ZooKeeper's own recipe sets no watch then, and waits for ever.
#[test]
fn a_predecessor_that_vanishes_is_noticed_whenever_it_does() {
    let namespace = namespace();
    let clients = [client_in(&namespace), client_in(&namespace)];
    for _ in 0..100 {
        let (first, _) = candidate(&clients[0]);
        let (second, told) = candidate(&clients[1]);
        assert!(first.lock().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| unlock(&clients[0], &first));
            second.lock().unwrap();
        });
        assert_eq!(next(&told), Acquired);
        close(&clients[0], &second);
    }
}

#[test]
fn the_middle_one_may_leave_and_the_last_one_waits_for_the_first() {
    let client = client_in(&namespace());
    let candidates = [candidate(&client), candidate(&client), candidate(&client)];
    let [(first, _), (middle, told_middle), (last, told_last)] = &candidates;
    assert!(first.lock().unwrap());
    assert!(!middle.lock().unwrap());
    assert!(!last.lock().unwrap());
    unlock(&client, middle);
    assert!(told_last.recv_timeout(Duration::from_millis(200)).is_err());
    unlock(&client, first);
    assert_eq!(next(told_last), Acquired);
    assert!(told_middle.is_empty(), "it never was the owner");
}

/// In ZooKeeper's own recipe both believe to be the owner, with one znode.
#[test]
fn two_objects_of_one_session_have_a_znode_each() {
    let client = client_in(&namespace());
    let ((one, _), (two, told)) = (candidate(&client), candidate(&client));
    assert!(one.lock().unwrap());
    assert!(!two.lock().unwrap());
    assert_ne!(one.id(), two.id());
    assert!(one.is_owner() && !two.is_owner());
    assert_eq!(queue(&client).len(), 2);
    unlock(&client, &one);
    assert_eq!(next(&told), Acquired);
    assert!(!one.is_owner());
    eventually("the second is the owner", || two.is_owner());
}

#[test]
fn names_data_and_directory_are_those_of_zookeepers_own_recipe() {
    let client = client_in(&namespace());
    let (lock, _) = candidate(&client);
    assert_eq!(lock.dir(), DIR);
    lock.lock().unwrap();
    let id = lock.id().unwrap();
    let name = ZNodeName::new(id.strip_prefix(&format!("{DIR}/")).unwrap());
    assert!(name.prefix().starts_with(&format!("x-{}-", client.session_id())), "{name}");
    assert_eq!(name.sequence(), Some(0));
    let mut stat = Stat::default();
    assert_eq!(client.get_data().storing_stat_in(&mut stat).for_path(&id).unwrap(), [0x12, 0x34]);
    assert_eq!(stat.ephemeral_owner, client.session_id());
    assert_eq!(lock.fencing_token().unwrap().value(), stat.czxid);
    close(&client, &lock);
    assert_eq!(children(&client, DIR), [""; 0]);
    assert!(client.check_exists().for_path(DIR).unwrap().is_some(), "the directory stays");
}

#[test]
fn others_can_read_what_an_object_says_of_itself() {
    let client = client_in(&namespace());
    let lock = WriteLock::new(&client, DIR).unwrap().with_data("host-17");
    assert!(lock.lock().unwrap());
    let queue = LockQueue::inspect(&client, DIR).unwrap();
    assert_eq!(queue.entries[0].data.as_deref(), Some(b"host-17".as_slice()));
    close(&client, &lock);
}

/// ZooKeeper's own recipe deletes first and tells afterwards.
#[test]
fn the_next_owner_is_told_when_the_listener_of_the_one_before_has_returned() {
    struct Slow(Sender<Instant>);
    impl LockListener for Slow {
        fn lock_acquired(&self) {}
        fn lock_released(&self) {
            std::thread::sleep(Duration::from_millis(300));
            let _ = self.0.send(Instant::now());
        }
    }
    let namespace = namespace();
    let clients = [client_in(&namespace), client_in(&namespace)];
    let (sender, stopped) = unbounded();
    let first = WriteLock::with_listener(&clients[0], DIR, Slow(sender)).unwrap();
    assert!(first.lock().unwrap());
    let (next_one, told) = candidate(&clients[1]);
    next_one.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| unlock(&clients[0], &first));
        assert_eq!(next(&told), Acquired);
        let leads = Instant::now();
        let stopped = stopped.recv_timeout(PATIENCE).unwrap();
        assert!(stopped < leads, "{:?} too early", stopped - leads);
    });
}

#[test]
fn a_lock_that_is_lost_while_its_end_is_told_is_kept_nowhere() {
    struct Stuck(Sender<Told>, Receiver<()>);
    impl LockListener for Stuck {
        fn lock_acquired(&self) {
            let _ = self.0.send(Acquired);
        }
        fn lock_released(&self) {
            let _ = self.0.send(Released);
            // Until the test is done with it.
            let _ = self.1.recv();
        }
    }
    let client = client_in(&namespace());
    let ((sender, told), (leave, leaves)) = (unbounded(), unbounded());
    let lock = WriteLock::with_listener(&client, DIR, Stuck(sender, leaves)).unwrap();
    assert!(lock.lock().unwrap());
    assert_eq!(next(&told), Acquired);
    let node = lock.id().unwrap();
    assert!(matches!(lock.unlock(), Err(Error::Timeout { .. })));
    client.delete().for_path(&node).unwrap();
    assert!(lock.lock().unwrap());
    assert!(matches!(lock.unlock(), Err(Error::Timeout { .. })));
    drop(leave);
    eventually("nothing is held", || client.metrics().held == 0);
    eventually("nothing is left", || children(&client, DIR).is_empty());
}

#[test]
fn the_directory_is_persistent() {
    let server = TestingServer::builder().container_check_interval(Duration::from_millis(100)).start().unwrap();
    let client = connect(builder(&server, ""));
    let (lock, _) = candidate(&client);
    lock.lock().unwrap();
    close(&client, &lock);
    // A container that was used for as long is removed before.
    client.create().with_mode(CreateMode::Container).for_path("/container").unwrap();
    client.create().for_path("/container/child").unwrap();
    client.delete().for_path("/container/child").unwrap();
    eventually("the container is gone", || client.check_exists().for_path("/container").unwrap().is_none());
    assert!(client.check_exists().for_path(DIR).unwrap().is_some());
}

/// Names as a Java process makes them, in front of and behind our own.
#[test]
fn contenders_of_zookeepers_own_recipe_are_waited_for_in_its_order() {
    let client = client_in(&namespace());
    client.create().creating_parents_if_needed().for_path(DIR).unwrap();
    let java = |session: i64| {
        let path = format!("{DIR}/x-{session}-");
        client.create().with_mode(CreateMode::EphemeralSequential).for_path_and_data(&path, [0x12, 0x34]).unwrap()
    };
    let in_front = java(72_057_594_037_927_936);
    client.create().for_path(&format!("{DIR}/a-remark-without-a-number")).unwrap();
    let (lock, told) = candidate(&client);
    assert!(!lock.lock().unwrap());
    let behind = java(-5);
    assert!(told.recv_timeout(Duration::from_millis(100)).is_err());
    client.delete().for_path(&in_front).unwrap();
    assert_eq!(next(&told), Acquired);
    client.delete().for_path(&behind).unwrap();
    close(&client, &lock);
    assert_eq!(next(&told), Released);
}

#[test]
fn a_second_lock_only_tells_and_an_unlock_of_nothing_does_nothing() {
    let client = client_in(&namespace());
    let ((one, told), (two, _)) = (candidate(&client), candidate(&client));
    unlock(&client, &one);
    assert!(one.lock().unwrap() && one.lock().unwrap());
    assert!(!two.lock().unwrap() && !two.lock().unwrap());
    assert_eq!(queue(&client).len(), 2);
    assert_eq!(next(&told), Acquired);
    assert!(told.is_empty());
    unlock(&client, &one);
    unlock(&client, &one);
    assert_eq!(next(&told), Released);
    assert!(told.is_empty());
    assert!(!one.lock().unwrap(), "it queues anew, behind the other one");
}

/// Its listener has returned from both before the znode goes.
#[test]
fn an_owner_that_unlocks_at_once_has_been_told_of_its_beginning_and_of_its_end() {
    let client = client_in(&namespace());
    let (lock, told) = candidate(&client);
    for _ in 0..20 {
        assert!(lock.lock().unwrap());
        unlock(&client, &lock);
        assert_eq!([next(&told), next(&told)], [Acquired, Released]);
        assert!(told.is_empty());
    }
}

#[test]
fn a_closed_object_has_no_znode_and_queues_no_more() {
    let client = client_in(&namespace());
    let ((owner, told), (waiter, _)) = (candidate(&client), candidate(&client));
    owner.lock().unwrap();
    waiter.lock().unwrap();
    close(&client, &waiter);
    close(&client, &owner);
    assert_eq!([next(&told), next(&told)], [Acquired, Released]);
    assert_eq!(children(&client, DIR), [""; 0]);
    assert!(!owner.lock().unwrap());
    assert_eq!(children(&client, DIR), [""; 0]);
}

#[test]
fn dropped_objects_leave_nothing() {
    let client = client_in(&namespace());
    let ((owner, _), (waiter, _)) = (candidate(&client), candidate(&client));
    owner.lock().unwrap();
    waiter.lock().unwrap();
    drop(waiter);
    drop(owner);
    eventually("nothing is left", || children(&client, DIR).is_empty());
}

#[test]
fn an_owner_whose_znode_is_deleted_is_told_and_queues_again() {
    let namespace = namespace();
    let (client, admin) = (client_in(&namespace), client_in(&namespace));
    let ((owner, told), (other, told_other)) = (candidate(&client), candidate(&client));
    owner.lock().unwrap();
    other.lock().unwrap();
    assert_eq!(next(&told), Acquired);
    admin.delete().for_path(&owner.id().unwrap()).unwrap();
    assert_eq!(next(&told), Released);
    assert_eq!(next(&told_other), Acquired);
    eventually("it queues again", || queue(&admin).len() == 2);
    unlock(&client, &other);
    assert_eq!(next(&told), Acquired);
}

#[test]
fn a_waiter_whose_znode_is_deleted_queues_again() {
    let namespace = namespace();
    let (client, admin) = (client_in(&namespace), client_in(&namespace));
    let ((owner, _), (waiter, told)) = (candidate(&client), candidate(&client));
    owner.lock().unwrap();
    waiter.lock().unwrap();
    admin.delete().for_path(&waiter.id().unwrap()).unwrap();
    unlock(&client, &owner);
    assert_eq!(next(&told), Acquired);
}

#[test]
fn a_directory_that_is_removed_is_made_again() {
    let namespace = namespace();
    let (client, admin) = (client_in(&namespace), client_in(&namespace));
    let (owner, told) = candidate(&client);
    owner.lock().unwrap();
    assert_eq!(next(&told), Acquired);
    admin.delete().deleting_children_if_needed().for_path("/election").unwrap();
    assert_eq!(next(&told), Released);
    assert_eq!(next(&told), Acquired);
    // Where the administrator's delete found a directory that was made again already, this comes once more.
    eventually("it stands in the queue", || queue(&admin) == owner.id().into_iter().collect::<Vec<_>>());
}

#[test]
fn a_listener_may_use_the_lock() {
    let client = client_in(&namespace());
    struct Once {
        lock: parking_lot::Mutex<Option<Arc<WriteLock>>>,
        told: Sender<Told>,
    }
    struct Handle(Arc<Once>);
    impl LockListener for Handle {
        fn lock_acquired(&self) {
            let lock = self.0.lock.lock().take().unwrap();
            lock.unlock().unwrap();
            let _ = self.0.told.send(Acquired);
        }
        fn lock_released(&self) {
            let _ = self.0.told.send(Released);
        }
    }
    let (sender, told) = unbounded();
    let once = Arc::new(Once { lock: parking_lot::Mutex::new(None), told: sender });
    let lock = Arc::new(WriteLock::with_listener(&client, DIR, Handle(once.clone())).unwrap());
    *once.lock.lock() = Some(lock.clone());
    lock.lock().unwrap();
    assert_eq!([next(&told), next(&told)], [Acquired, Released]);
    eventually("nothing is left", || children(&client, DIR).is_empty());
}

#[test]
fn closing_the_client_is_told_to_the_owner() {
    let client = client_in(&namespace());
    let (owner, told) = candidate(&client);
    owner.lock().unwrap();
    assert_eq!(next(&told), Acquired);
    client.close();
    assert_eq!(next(&told), Released);
    assert!(!owner.is_owner());
    assert!(matches!(owner.lock(), Err(Error::ClientClosed)));
}

/// No session will come, however often the retry policy wants to try.
#[test]
fn a_call_ends_when_the_credentials_are_rejected() {
    let client = CuratorFramework::builder()
        .connect_string(support::server().connect_string())
        .connection_timeout(Duration::from_secs(1))
        .retry_policy(RetryForever::new(Duration::from_millis(10)))
        .authorization("no-such-scheme", "x")
        .namespace(namespace())
        .build()
        .unwrap();
    client.start().unwrap();
    let (sender, outcome) = unbounded();
    let (lock, _) = candidate(&client);
    std::thread::spawn(move || {
        // The first may have come before the rejection.
        let _ = lock.lock();
        let _ = lock.unlock();
        let _ = sender.send(lock.lock());
    });
    let outcome = outcome.recv_timeout(PATIENCE).expect("the call hangs");
    client.close();
    assert!(matches!(outcome, Err(Error::AuthFailed { .. })), "{outcome:?}");
}

#[test]
fn never_two_owners_while_everybody_comes_and_goes() {
    let namespace = namespace();
    let clients = [client_in(&namespace), client_in(&namespace), client_in(&namespace)];
    let inside = AtomicI64::new(0);
    let tokens = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                for _ in 0..30 {
                    let (lock, told) = candidate(client);
                    lock.lock().unwrap();
                    assert_eq!(next(&told), Acquired);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two owners");
                    tokens.lock().push(lock.fencing_token().unwrap());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    close(client, &lock);
                }
            });
        }
    });
    let tokens = tokens.into_inner();
    assert!(tokens.is_sorted() && tokens.iter().collect::<HashSet<_>>().len() == 90);
    assert_eq!(children(&clients[0], DIR), [""; 0]);
}
