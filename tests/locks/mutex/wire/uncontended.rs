//! What a lock costs that nobody else wants, and that whoever came since its last hold is seen.

use std::{sync::OnceLock, thread, time::Duration};

use curator_locks::{
    Acl, AcquireOptions, CancelToken, CreateMode, CuratorFramework, Error, ErrorCode, InterProcessLock,
    InterProcessMutex, InterProcessReadWriteLock, perms,
    testing::{Fault, FaultProxy, RequestMatch, TestingServer, op},
};

use crate::support::{
    self, PATIENCE, await_queue, builder, builder_at, connect, eventually, namespace, queue, sequence,
};

const PATH: &str = "/locks/m";

/// One server for all of these tests, which removes no directory while one runs.
fn server() -> &'static TestingServer {
    static SERVER: OnceLock<TestingServer> = OnceLock::new();
    let never = Duration::from_secs(3600);
    SERVER.get_or_init(|| support::quick_server().container_check_interval(never).start().unwrap())
}

fn another(client: &CuratorFramework) -> CuratorFramework {
    connect(builder(server(), client.namespace()))
}

/// A client whose requests are counted.
struct Counted {
    proxy: FaultProxy,
    client: CuratorFramework,
}

impl Counted {
    fn new() -> Counted {
        Counted::of(server(), &namespace())
    }

    fn of(server: &TestingServer, namespace: &str) -> Counted {
        let proxy = FaultProxy::start(("127.0.0.1", server.port())).unwrap();
        let client = connect(builder_at(&proxy.connect_string(), namespace));
        Counted { proxy, client }
    }

    /// Creates, lists, looks at the directories, deletes so far.
    fn requests(&self) -> [u64; 4] {
        [op::CREATE, op::GET_CHILDREN, op::EXISTS, op::DELETE].map(|op| self.proxy.requests(op))
    }

    fn lists(&self) -> u64 {
        self.proxy.requests(op::GET_CHILDREN)
    }
}

fn world(perms: i32) -> Vec<Acl> {
    vec![Acl { perms, scheme: "world".into(), id: "anyone".into() }]
}

fn cycle(lock: &dyn InterProcessLock) {
    lock.acquire().unwrap();
    lock.release().unwrap();
}

/// A mutex that nobody else wanted so far, and whose last hold had the number 1.
fn settled(client: &CuratorFramework) -> InterProcessMutex {
    let mutex = support::mutex(client);
    cycle(&mutex);
    cycle(&mutex);
    mutex
}

#[test]
fn a_hold_that_nobody_else_wants_is_a_create_a_list_and_a_delete_however_often_it_comes() {
    const CYCLES: u64 = 50;
    let counted = Counted::new();
    let mutex = support::mutex(&counted.client);
    let read_write = InterProcessReadWriteLock::new(&counted.client, "/locks/rw").unwrap();
    let locks: [(&str, &dyn InterProcessLock); 3] =
        [("mutex", &mutex), ("read", read_write.read_lock()), ("write", read_write.write_lock())];
    for (name, lock) in locks {
        cycle(lock);
        let before = counted.requests();
        for _ in 0..CYCLES {
            cycle(lock);
        }
        let after = counted.requests();
        assert_eq!([0, 1, 2, 3].map(|k| after[k] - before[k]), [CYCLES, CYCLES, 0, CYCLES], "{name}");
    }
}

#[test]
fn guards_that_are_dropped_cost_no_more() {
    const CYCLES: u64 = 50;
    let counted = Counted::new();
    let mutex = support::mutex(&counted.client);
    for _ in 0..CYCLES {
        drop(mutex.lock().unwrap());
    }
    // The first create and list find no directory, so all the way to it is looked at and made.
    assert_eq!(counted.requests()[..3], [CYCLES + 1, CYCLES + 1, 3]);
}

#[test]
fn whoever_comes_between_two_holds_is_seen() {
    let counted = Counted::new();
    let other = another(&counted.client);
    let (mutex, rival) = (settled(&counted.client), support::mutex(&other));
    rival.acquire().unwrap();
    assert!(!mutex.acquire_timeout(Duration::from_millis(200)).unwrap(), "two holders");
    rival.release().unwrap();
    mutex.acquire().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| rival.acquire());
        await_queue(&other, PATH, 2);
        mutex.release().unwrap();
        waiting.join().unwrap().unwrap();
        assert!(!mutex.acquire_timeout(Duration::from_millis(200)).unwrap(), "two holders");
    });
}

/// Removes the directory in which the numbers 0 and 1 were used, and makes it anew with a holder whose number is 1: the
/// next one gets 2, as if nobody had come.
fn make_anew(other: &CuratorFramework) -> InterProcessMutex {
    other.delete().for_path(PATH).unwrap();
    let filler = other.create().creating_parents_if_needed().with_mode(CreateMode::EphemeralSequential);
    let filler = filler.for_path(&format!("{PATH}/filler-")).unwrap();
    let rival = support::mutex(other);
    thread::scope(|scope| {
        scope.spawn(|| {
            await_queue(other, PATH, 2);
            other.delete().for_path(&filler).unwrap();
        });
        rival.acquire().unwrap();
    });
    let [holder] = <[String; 1]>::try_from(queue(other, PATH)).unwrap();
    assert_eq!(sequence(&holder), 1);
    rival
}

/// An acquire beside a rival's hold with the number 1. `meanwhile` is called once it is under way.
fn assert_waits<T>(
    counted: &Counted,
    mutex: &InterProcessMutex,
    other: &CuratorFramework,
    meanwhile: impl FnOnce() -> T,
) {
    let (watches, token) = (counted.proxy.requests(op::GET_DATA), CancelToken::new());
    thread::scope(|scope| {
        let trying = scope.spawn(|| mutex.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        let _kept = meanwhile();
        let nodes = await_queue(other, PATH, 2);
        assert_eq!(sequence(&nodes[1]), 2);
        let has_decided = || counted.proxy.requests(op::GET_DATA) > watches || trying.is_finished();
        eventually("it waits, or is granted", has_decided);
        token.cancel();
        assert!(matches!(trying.join().unwrap(), Err(Error::Cancelled { .. })), "two holders");
    });
}

#[test]
fn a_directory_that_was_made_anew_is_not_mistaken_for_the_old_one() {
    let counted = Counted::new();
    let other = another(&counted.client);
    let mutex = settled(&counted.client);
    let _rival = make_anew(&other);
    assert_waits(&counted, &mutex, &other, || ());
}

/// Servers keep the end of a directory back from whoever may not read it any more (CVE-2024-23944): no watch would tell.
#[test]
fn a_directory_that_was_made_anew_unseen_is_not_mistaken_for_the_old_one() {
    let counted = Counted::new();
    let other = another(&counted.client);
    let mutex = settled(&counted.client);
    other.set_acl().for_path(PATH, world(perms::ALL & !perms::READ)).unwrap();
    let _rival = make_anew(&other);
    assert_waits(&counted, &mutex, &other, || ());
}

#[test]
fn who_may_not_read_the_directory_any_more_is_granted_nothing() {
    let counted = Counted::new();
    let other = another(&counted.client);
    let mutex = settled(&counted.client);
    other.set_acl().for_path(PATH, world(perms::ALL & !perms::READ)).unwrap();
    assert_eq!(mutex.acquire().unwrap_err().code(), Some(ErrorCode::NoAuth));
    other.set_acl().for_path(PATH, world(perms::ALL)).unwrap();
    eventually("its znode is gone", || queue(&other, PATH).is_empty());
}

#[test]
fn a_directory_that_is_made_anew_while_the_create_is_under_way_is_not_mistaken_for_the_old_one() {
    let counted = Counted::new();
    let other = another(&counted.client);
    let mutex = settled(&counted.client);
    let create = counted.proxy.inject(RequestMatch::op(op::CREATE), Fault::HoldRequest);
    assert_waits(&counted, &mutex, &other, || {
        create.wait_for_hits(1, PATIENCE).unwrap();
        let rival = make_anew(&other);
        create.release();
        rival
    });
}

#[test]
fn a_hold_whose_delete_was_refused_is_not_taken_for_gone() {
    let counted = Counted::new();
    let mutex = settled(&counted.client);
    let lock = mutex.lock().unwrap();
    let set = |perms| counted.client.set_acl().for_path(PATH, world(perms)).unwrap();
    set(perms::READ | perms::CREATE | perms::ADMIN);
    assert_eq!(lock.release().unwrap_err().code(), Some(ErrorCode::NoAuth));
    let before = counted.lists();
    let mut time = Duration::from_millis(200);
    // Longer where this machine takes longer to send the first request.
    while counted.lists() == before {
        assert!(time < PATIENCE, "it does not look who is there");
        assert!(!mutex.acquire_timeout(time).unwrap(), "in front of what still stands");
        time *= 2;
    }
    set(perms::ALL);
}

#[test]
fn a_connection_that_ends_with_the_create_under_way_leaves_the_grant_to_a_list() {
    let counted = Counted::new();
    let mutex = settled(&counted.client);
    let before = counted.lists();
    let fault = counted.proxy.inject(RequestMatch::op(op::CREATE), Fault::CutInsteadOfReply);
    mutex.acquire().unwrap();
    assert_eq!(fault.hits(), 1);
    assert!(counted.lists() > before);
    assert_eq!(queue(&counted.client, PATH).len(), 1);
    mutex.release().unwrap();
}

/// A frame limit of the client's is no matter of how large the data of a directory is that nobody wants.
#[test]
fn a_directory_with_much_data_costs_no_connection() {
    let namespace = namespace();
    let other = connect(builder(server(), &namespace));
    other.create().creating_parents_if_needed().for_path_and_data(PATH, vec![0; 100_000]).unwrap();
    let proxy = FaultProxy::start(("127.0.0.1", server().port())).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace).max_frame_size(10_000));
    let connections = proxy.connections();
    let mutex = settled(&client);
    cycle(&mutex);
    cycle(&mutex);
    assert_eq!(proxy.connections(), connections);
}

#[test]
fn an_emptied_directory_is_removed_by_the_server_and_made_anew() {
    let counted = Counted::of(support::server(), &namespace());
    let mutex = settled(&counted.client);
    for _ in 0..5 {
        // With those above it: one of them could go while the next one is made in it.
        eventually("the directory is gone", || counted.client.check_exists().for_path("/").unwrap().is_none());
        let before = counted.lists();
        mutex.acquire().unwrap();
        assert_eq!(counted.lists() - before, 2, "with the create that found no directory, and with the one after that");
        mutex.release().unwrap();
        cycle(&mutex);
    }
}
