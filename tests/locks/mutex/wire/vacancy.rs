//! A lock that nobody else wants is acquired without a list of children, and only then.

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

    /// Creates, lists, looks at the directory and those above it, deletes so far.
    fn requests(&self) -> [u64; 4] {
        [op::CREATE_2, op::GET_CHILDREN, op::EXISTS, op::DELETE].map(|op| self.proxy.requests(op))
    }

    fn lists(&self) -> u64 {
        self.proxy.requests(op::GET_CHILDREN)
    }
}

fn cycle(lock: &dyn InterProcessLock) {
    lock.acquire().unwrap();
    lock.release().unwrap();
}

/// A mutex that is acquired without a list from now on.
fn settled(client: &CuratorFramework) -> InterProcessMutex {
    let mutex = support::mutex(client);
    cycle(&mutex);
    cycle(&mutex);
    mutex
}

#[test]
fn the_third_hold_in_a_row_and_all_after_it_are_a_create_and_a_delete() {
    const CYCLES: u64 = 50;
    let counted = Counted::new();
    let mutex = support::mutex(&counted.client);
    let read_write = InterProcessReadWriteLock::new(&counted.client, "/locks/rw").unwrap();
    let locks: [(&str, &dyn InterProcessLock); 3] =
        [("mutex", &mutex), ("read", read_write.read_lock()), ("write", read_write.write_lock())];
    for (name, lock) in locks {
        cycle(lock);
        let before = counted.requests();
        cycle(lock);
        let between = counted.requests();
        assert_eq!([0, 1, 2, 3].map(|k| between[k] - before[k]), [1, 1, 1, 1], "the second hold of {name}");
        for _ in 0..CYCLES {
            cycle(lock);
        }
        let after = counted.requests();
        assert_eq!([0, 1, 2, 3].map(|k| after[k] - between[k]), [CYCLES, 0, 0, CYCLES], "{name}");
    }
}

#[test]
fn guards_that_are_dropped_need_no_list_either() {
    const CYCLES: u64 = 50;
    let counted = Counted::new();
    let mutex = support::mutex(&counted.client);
    for _ in 0..CYCLES {
        drop(mutex.lock().unwrap());
    }
    // The first create and list find no directory, so all the way to it is looked at and made.
    assert_eq!(counted.requests()[..3], [CYCLES + 1, 3, 3 + 1]);
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

#[test]
fn whoever_comes_and_goes_between_two_holds_costs_a_list_in_each_of_the_next_eight() {
    let counted = Counted::new();
    let rival = support::mutex(&another(&counted.client));
    let mutex = settled(&counted.client);
    cycle(&rival);
    let before = counted.requests();
    for _ in 0..10 {
        cycle(&mutex);
    }
    // The watch was given up, and is asked for once again.
    assert_eq!(counted.requests(), [before[0] + 10, before[1] + 9, before[2] + 1, before[3] + 10]);
}

#[test]
fn where_others_come_and_go_the_list_is_sent_for_with_the_create() {
    let counted = Counted::new();
    let rival = support::mutex(&another(&counted.client));
    let mutex = settled(&counted.client);
    cycle(&rival);
    // It does not know yet, and pays with a round trip.
    cycle(&mutex);
    let connections = counted.proxy.connections();
    for _ in 0..5 {
        cycle(&rival);
        let before = counted.lists();
        let reply = counted.proxy.inject(RequestMatch::op(op::CREATE_2), Fault::HoldReply);
        thread::scope(|scope| {
            scope.spawn(|| cycle(&mutex));
            reply.wait_for_hits(1, PATIENCE).unwrap();
            eventually("the list is asked for", || counted.lists() > before);
            reply.release();
        });
        // Not because of another connection, after the silence of this one.
        assert_eq!((counted.lists(), counted.proxy.connections()), (before + 1, connections));
    }
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

#[test]
fn a_directory_that_was_made_anew_is_not_mistaken_for_the_old_one() {
    let counted = Counted::new();
    let other = another(&counted.client);
    let mutex = settled(&counted.client);
    let _rival = make_anew(&other);
    let (lists, token) = (counted.lists(), CancelToken::new());
    thread::scope(|scope| {
        let trying = scope.spawn(|| mutex.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        let nodes = await_queue(&other, PATH, 2);
        assert_eq!(sequence(&nodes[1]), 2);
        eventually("it looks who is there, or is granted", || counted.lists() > lists || trying.is_finished());
        token.cancel();
        assert!(matches!(trying.join().unwrap(), Err(Error::Cancelled { .. })), "two holders");
    });
}

#[test]
fn a_directory_that_is_made_anew_while_the_create_is_under_way_is_not_mistaken_for_the_old_one() {
    let counted = Counted::new();
    let other = another(&counted.client);
    let mutex = settled(&counted.client);
    let lists = counted.lists();
    let create = counted.proxy.inject(RequestMatch::op(op::CREATE_2), Fault::HoldRequest);
    let token = CancelToken::new();
    thread::scope(|scope| {
        let trying = scope.spawn(|| mutex.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        create.wait_for_hits(1, PATIENCE).unwrap();
        assert_eq!(counted.lists(), lists, "the lock is not settled");
        let rival = make_anew(&other);
        create.release();
        let nodes = await_queue(&other, PATH, 2);
        assert_eq!(sequence(&nodes[1]), 2);
        eventually("it looks who is there, or is granted", || counted.lists() > lists || trying.is_finished());
        token.cancel();
        assert!(matches!(trying.join().unwrap(), Err(Error::Cancelled { .. })), "two holders");
        rival.release().unwrap();
    });
    assert!(counted.lists() > lists);
}

#[test]
fn a_hold_whose_delete_was_refused_is_not_taken_for_gone() {
    let counted = Counted::new();
    let mutex = settled(&counted.client);
    let lock = mutex.lock().unwrap();
    let world = |perms| vec![Acl { perms, scheme: "world".into(), id: "anyone".into() }];
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
fn a_change_of_the_directorys_data_costs_a_list_and_no_more() {
    let counted = Counted::new();
    let other = another(&counted.client);
    let mutex = settled(&counted.client);
    other.set_data().for_path_and_data(PATH, "changed").unwrap();
    // A read by the same client: what the server had to tell it before has arrived when the reply does.
    counted.client.check_exists().for_path(PATH).unwrap();
    let before = counted.requests();
    cycle(&mutex);
    let between = counted.requests();
    assert_eq!([0, 1, 2, 3].map(|k| between[k] - before[k]), [1, 1, 1, 1], "a list, and a watch anew");
    cycle(&mutex);
    let after = counted.requests();
    assert_eq!([0, 1, 2, 3].map(|k| after[k] - between[k]), [1, 0, 0, 1]);
}

#[test]
fn nothing_is_known_over_another_connection() {
    let counted = Counted::new();
    let mutex = settled(&counted.client);
    let connections = counted.proxy.connections();
    counted.proxy.cut();
    eventually("it is connected again", || {
        counted.proxy.connections() > connections && counted.client.check_exists().for_path(PATH).is_ok()
    });
    let before = counted.lists();
    mutex.acquire().unwrap();
    assert_eq!(counted.lists() - before, 1);
    mutex.release().unwrap();
    cycle(&mutex);
    let before = counted.lists();
    cycle(&mutex);
    assert_eq!(counted.lists(), before, "settled again");
}

#[test]
fn a_connection_that_ends_with_the_create_under_way_leaves_the_grant_to_a_list() {
    let counted = Counted::new();
    let mutex = settled(&counted.client);
    let before = counted.lists();
    let fault = counted.proxy.inject(RequestMatch::op(op::CREATE_2), Fault::CutInsteadOfReply);
    mutex.acquire().unwrap();
    assert_eq!(fault.hits(), 1);
    assert!(counted.lists() > before);
    assert_eq!(queue(&counted.client, PATH).len(), 1);
    mutex.release().unwrap();
}

#[test]
fn a_lock_that_is_dropped_leaves_no_watch() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, &namespace()));
    let mutex = settled(&client);
    assert_eq!(server.watch_count().unwrap(), 1);
    cycle(&mutex);
    drop(mutex);
    eventually("the watch is gone", || server.watch_count().unwrap() == 0);
    // Nor is one left by a lock that is used once.
    cycle(&support::mutex(&client));
    assert_eq!(server.watch_count().unwrap(), 0);
}

#[test]
fn a_watch_that_says_nothing_any_more_is_not_set_again() {
    let server = TestingServer::start().unwrap();
    let counted = Counted::of(&server, &namespace());
    let _mutex = settled(&counted.client);
    assert_eq!(server.watch_count().unwrap(), 1);
    let connections = counted.proxy.connections();
    counted.proxy.cut();
    eventually("it is connected again", || {
        counted.proxy.connections() > connections && counted.client.check_exists().for_path(PATH).is_ok()
    });
    // The server takes a moment to see the end of the other connection.
    eventually("no watch", || server.watch_count().unwrap() == 0);
}

#[test]
fn a_directory_that_is_gone_is_not_watched() {
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, &namespace()));
    let other = connect(builder(&server, client.namespace()));
    let mutex = support::mutex(&client);
    cycle(&mutex);
    other.delete().for_path(PATH).unwrap();
    // The create of the second hold finds no directory, and so does what would watch it.
    cycle(&mutex);
    eventually("no watch", || server.watch_count().unwrap() == 0);
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
    let lists = proxy.requests(op::GET_CHILDREN);
    cycle(&mutex);
    assert_eq!(proxy.requests(op::GET_CHILDREN), lists);
}

#[test]
fn two_locks_of_one_client_on_one_path_share_the_watch() {
    let server = TestingServer::start().unwrap();
    let counted = Counted::of(&server, &namespace());
    let (one, other) = (settled(&counted.client), settled(&counted.client));
    assert_eq!(server.watch_count().unwrap(), 1);
    drop(other);
    // It takes a while until it trusts in being alone again.
    for _ in 0..9 {
        cycle(&one);
    }
    let before = counted.lists();
    cycle(&one);
    assert_eq!(counted.lists(), before);
    // The watch of the one that is left still tells.
    assert_eq!(server.watch_count().unwrap(), 1);
    drop(one);
    eventually("the watch is gone", || server.watch_count().unwrap() == 0);
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
        // In the create that found no directory, and in the one after that at most.
        assert!((1..=2).contains(&(counted.lists() - before)), "without a look at the new directory");
        mutex.release().unwrap();
        cycle(&mutex);
    }
}
