//! Several locks in one transaction: what it costs, whom it never keeps waiting, and what a lost reply leaves.

use std::{collections::HashSet, sync::OnceLock};

use curator_locks::{
    Acl, Dialect, InterProcessReadWriteLock, perms,
    testing::{Fault, FaultProxy, RequestMatch, RequestRecord, TestingServer, op},
};

use super::*;
use crate::support::{self, namespace, quick_server};

/// Answers that took so long are looked at once more.
const LONG_AGO: Duration = Duration::from_millis(20);

/// After an acquire that has met others so many go one by one.
const ALONE: usize = 8;

/// One server for all of these tests, which removes no directory while one runs.
fn server() -> &'static TestingServer {
    static SERVER: OnceLock<TestingServer> = OnceLock::new();
    let never = Duration::from_secs(3600);
    SERVER.get_or_init(|| quick_server().container_check_interval(never).start().unwrap())
}

/// A client behind a proxy, and another one that is not.
struct Scene {
    proxy: FaultProxy,
    client: CuratorFramework,
    other: CuratorFramework,
}

/// Returns the requests in the log, without the heartbeats, which are about the root.
fn requested(proxy: &FaultProxy) -> Vec<i32> {
    let is_heartbeat = |request: &RequestRecord| request.xid < 0 || request.path.as_deref() == Some("/");
    proxy.log().into_iter().filter(|request| !is_heartbeat(request)).map(|request| request.op).collect()
}

impl Scene {
    /// How many there were since the last call of [`Scene::operations`].
    fn requests(&self, op: i32) -> u64 {
        requested(&self.proxy).into_iter().filter(|operation| *operation == op).count() as u64
    }

    /// The directories of these locks are there already.
    fn with(paths: &[String]) -> Scene {
        Scene::of(paths, |builder| builder)
    }

    fn of(paths: &[String], change: impl FnOnce(curator_locks::Builder) -> curator_locks::Builder) -> Scene {
        let (proxy, namespace) = (FaultProxy::start(server().connect_string()).unwrap(), namespace());
        let other = connect(builder(server(), &namespace));
        for path in paths {
            other.create().creating_parents_if_needed().for_path(path).unwrap();
        }
        let client = connect(change(builder_at(&proxy.connect_string(), &namespace)));
        // Behind what the session itself asks at its begin. A Keeper is asked twice, and no transaction goes before it has told.
        eventually("the server has told what it is", || client.dialect().is_some());
        if client.dialect() == Some(Dialect::ZooKeeper) && !support::dialects::is_zookeeper() {
            // One of ZooKeeper 3.4 tells by refusing, which costs a connection, and the acquires that follow go one by one.
            for _ in 0..=ALONE + 1 {
                multi_at(&client, &["/told/a".into(), "/told/b".into()]).lock().unwrap().release().unwrap();
            }
        }
        client.sync().for_path("/").unwrap();
        proxy.clear_log();
        Scene { proxy, client, other }
    }

    /// The operations since the last call.
    fn operations(&self) -> Vec<i32> {
        let operations = requested(&self.proxy);
        self.proxy.clear_log();
        operations
    }

    fn left(&self, paths: &[String]) -> Vec<usize> {
        paths.iter().map(|path| children(&self.other, path).len()).collect()
    }

    fn await_left(&self, paths: &[String], left: &[usize]) {
        eventually("so many are left", || self.left(paths) == left);
    }
}

/// The requests for so many lists.
fn lists(count: usize) -> Vec<i32> {
    // One answer is no larger than the largest reply while each of so many directories has a sixty-fourth of that.
    let parts = |count: usize| if count == 1 { op::GET_CHILDREN } else { op::MULTI_READ };
    let together = (0..count.div_ceil(64)).map(|part| parts((count - 64 * part).min(64)));
    if support::dialects::is_zookeeper() { together.collect() } else { vec![op::GET_CHILDREN; count] }
}

fn paths(count: usize) -> Vec<String> {
    (0..count).map(|k| format!("/{}{}", char::from(b'a' + (k / 26) as u8), char::from(b'a' + (k % 26) as u8))).collect()
}

/// Holds the lock for long enough to see how many are in each queue.
fn held_for_a_look(scene: &Scene, lock: &InterProcessMultiLock, paths: &[String]) -> Vec<usize> {
    let held = lock.lock().unwrap();
    let left = scene.left(paths);
    held.release().unwrap();
    left
}

fn multi_at(client: &CuratorFramework, paths: &[String]) -> InterProcessMultiLock {
    InterProcessMultiLock::new(client, paths).unwrap()
}

#[test]
fn locks_that_nobody_else_wants_are_one_transaction_and_their_lists_and_one_transaction() {
    for count in [2, 10, 50, 65] {
        let paths = paths(count);
        let scene = Scene::with(&paths);
        let lock = multi_at(&scene.client, &paths);
        let mut expected = vec![op::MULTI];
        expected.extend(lists(count));
        expected.push(op::MULTI);
        for _ in 0..3 {
            let begun = Instant::now();
            let held = lock.lock().unwrap();
            assert_eq!(scene.left(&paths), vec![1; count]);
            let tokens: Vec<_> = held.holds().iter().map(Hold::fencing_token).collect();
            assert!(held.is_valid() && tokens.len() == count && tokens.iter().all(|token| *token == tokens[0]));
            held.release().unwrap();
            let is_slow = begun.elapsed() >= LONG_AGO;
            assert_eq!(scene.left(&paths), vec![0; count]);
            let mut operations = scene.operations();
            if is_slow {
                // Answers that took so long are looked at once more, and a hold that lasts is watched.
                operations.retain(|operation| [op::MULTI, op::MULTI_READ, op::GET_CHILDREN].contains(operation));
            }
            assert_eq!(operations, expected, "{count} locks");
        }
    }
}

#[test]
fn the_lists_are_on_their_way_before_the_transaction_is_answered() {
    let paths = paths(3);
    let scene = Scene::with(&paths);
    let held = scene.proxy.inject(RequestMatch::transactions().times(1), Fault::HoldReply);
    thread::scope(|scope| {
        let acquires = scope.spawn(|| multi_at(&scene.client, &paths).acquire());
        eventually("the lists are sent", || scene.requests(lists(3)[0]) == lists(3).len() as u64);
        assert!(!acquires.is_finished());
        held.release();
        acquires.join().unwrap().unwrap();
    });
}

#[test]
fn whoever_waits_stands_in_no_later_queue() {
    let paths = paths(3);
    let scene = Scene::with(&paths);
    let rival = InterProcessMutex::new(&scene.other, &paths[1]).unwrap();
    let held = rival.lock().unwrap();
    let lock = multi_at(&scene.client, &paths);
    thread::scope(|scope| {
        let waits = scope.spawn(|| held_for_a_look(&scene, &lock, &paths));
        scene.await_left(&paths, &[1, 2, 0]);
        // It takes one after the other, and would wait for ever for one that stands in front of it here.
        let third = InterProcessMutex::new(&scene.other, &paths[2]).unwrap();
        assert!(third.acquire_timeout(PATIENCE).unwrap());
        assert!(!waits.is_finished());
        third.release().unwrap();
        held.release().unwrap();
        assert_eq!(waits.join().unwrap(), [1, 1, 1]);
    });
    assert_eq!(scene.left(&paths), [0, 0, 0]);
}

#[test]
fn what_is_left_after_a_wait_goes_together_and_the_next_acquires_one_by_one() {
    let paths = paths(4);
    let scene = Scene::with(&paths);
    let rival = InterProcessMutex::new(&scene.other, &paths[1]).unwrap();
    let held = rival.lock().unwrap();
    let lock = multi_at(&scene.client, &paths);
    thread::scope(|scope| {
        let waits = scope.spawn(|| held_for_a_look(&scene, &lock, &paths));
        scene.await_left(&paths, &[1, 2, 0, 0]);
        // The waiter watches the znode in front of its own in the second queue, its own, and after a while the one that
        // it holds in the first.
        let watched = || {
            let log = scene.proxy.log().into_iter().filter(|request| request.op == op::GET_DATA);
            log.map(|request| request.path).collect::<HashSet<_>>().len()
        };
        eventually("it watches three znodes", || watched() == 3);
        scene.operations();
        held.release().unwrap();
        assert_eq!(waits.join().unwrap(), [1; 4]);
    });
    let after_the_wait = scene.operations();
    // The last look follows, as the first lock is held for a while by then.
    assert!(after_the_wait.starts_with(&[vec![op::MULTI], lists(2)].concat()), "{after_the_wait:?}");
    let creates = |operations: Vec<i32>| operations.iter().filter(|operation| **operation == op::CREATE).count();
    for _ in 0..ALONE {
        lock.acquire().unwrap();
        lock.release().unwrap();
        assert_eq!(creates(scene.operations()), 4);
    }
    lock.acquire().unwrap();
    lock.release().unwrap();
    assert_eq!(creates(scene.operations()), 0);
}

#[test]
fn after_a_lost_reply_the_first_finds_its_own_and_the_others_go_anew() {
    for fault in [Fault::CutInsteadOfReply, Fault::CutInsteadOfRequest, Fault::CutAfterRequest] {
        let paths = paths(5);
        let scene = Scene::with(&paths);
        let lock = multi_at(&scene.client, &paths);
        let lost = scene.proxy.inject(RequestMatch::transactions().times(1), fault);
        lock.acquire().unwrap();
        // A reply may overtake the cut that follows its request.
        lost.wait_for_hits(1, PATIENCE).unwrap();
        assert_eq!((lost.hits(), scene.left(&paths)), (1, vec![1; 5]), "{fault:?}");
        let resumes = scene.client.dialect().unwrap().resumes_sessions();
        if fault == Fault::CutInsteadOfReply {
            // In another session there is no such znode, and the first one is created by itself.
            let creates = u64::from(!resumes);
            assert_eq!((scene.requests(op::CREATE), scene.requests(op::MULTI)), (creates, 2));
        }
        let lost = scene.proxy.inject(RequestMatch::transactions().times(1), fault);
        match lock.release() {
            // The next session deletes what the lost one has left.
            Err(Error::LockLost { .. }) if !resumes => scene.await_left(&paths, &[0; 5]),
            released => released.unwrap(),
        }
        lost.wait_for_hits(1, PATIENCE).unwrap();
        assert_eq!((lost.hits(), scene.left(&paths)), (1, vec![0; 5]), "{fault:?}");
        assert!(!lock.is_acquired_in_this_process());
    }
}

#[test]
fn a_lost_reply_beside_a_rival_keeps_no_place_behind_the_one_that_is_waited_for() {
    let paths = paths(3);
    let scene = Scene::with(&paths);
    let held = InterProcessMutex::new(&scene.other, &paths[0]).unwrap().lock().unwrap();
    let lock = multi_at(&scene.client, &paths);
    scene.proxy.inject(RequestMatch::transactions().times(1), Fault::CutInsteadOfReply);
    thread::scope(|scope| {
        let waits = scope.spawn(|| held_for_a_look(&scene, &lock, &paths));
        scene.await_left(&paths, &[2, 0, 0]);
        assert!(!waits.is_finished());
        held.release().unwrap();
        assert_eq!(waits.join().unwrap(), [1, 1, 1]);
    });
    scene.await_left(&paths, &[0, 0, 0]);
}

#[test]
fn a_transaction_without_an_answer_ends_with_the_time_and_leaves_nothing() {
    let paths = paths(4);
    let scene = Scene::with(&paths);
    let lock = multi_at(&scene.client, &paths);
    for cancels in [false, true] {
        let silent = scene.proxy.inject(RequestMatch::transactions().times(1), Fault::HoldReply);
        let token = CancelToken::new();
        thread::scope(|scope| {
            let options = AcquireOptions::new().cancel_token(&token);
            let options = if cancels { options } else { options.timeout(Duration::from_millis(300)) };
            let lock = &lock;
            let acquires = scope.spawn(move || lock.acquire_with(&options));
            silent.wait_for_hits(1, PATIENCE).unwrap();
            if cancels {
                token.cancel();
            }
            let acquired = acquires.join().unwrap();
            match (cancels, &acquired) {
                (false, Ok(false)) | (true, Err(Error::Cancelled { .. })) => {}
                _ => panic!("{acquired:?}"),
            }
        });
        silent.release();
        scene.await_left(&paths, &[0; 4]);
    }
}

#[test]
fn a_lock_that_times_out_leaves_nothing_behind_it_nor_in_front() {
    let paths = paths(4);
    let scene = Scene::with(&paths);
    let held = InterProcessMutex::new(&scene.other, &paths[2]).unwrap().lock().unwrap();
    let lock = multi_at(&scene.client, &paths);
    let comes_to_the_held_one = |timeout: Duration| {
        assert!(!lock.acquire_timeout(timeout).unwrap());
        scene.await_left(&paths, &[0, 0, 1, 0]);
        lock.timed_out_at().as_ref() == Some(&paths[2])
    };
    assert!(comes_to_the_held_one(Duration::ZERO));
    // Where the first answers take that long, the time is up earlier.
    let mut timeouts = (0..8).map(|doubled| Duration::from_millis(100 << doubled));
    assert!(timeouts.any(comes_to_the_held_one));
    held.release().unwrap();
}

#[test]
fn one_that_is_refused_is_named_and_one_without_a_directory_gets_it() {
    let paths = paths(4);
    let scene = Scene::with(&paths);
    let nobody_creates = vec![Acl { perms: perms::READ, scheme: "world".into(), id: "anyone".into() }];
    scene.other.set_acl().for_path(&paths[2], nobody_creates).unwrap();
    match multi_at(&scene.client, &paths).acquire() {
        Err(Error::Server { code: ErrorCode::NoAuth, path, .. }) => assert_eq!(path, paths[2]),
        other => panic!("{other:?}"),
    }
    scene.await_left(&paths, &[0; 4]);
    let paths = [&paths[..2], &["/b/new".to_owned(), "/c/new".to_owned()]].concat();
    let scene = Scene::with(&paths[..2]);
    let held = multi_at(&scene.client, &paths).lock().unwrap();
    assert_eq!(scene.left(&paths), [1; 4]);
    held.release().unwrap();
    assert_eq!(scene.left(&paths), [0; 4]);
    let operations = scene.operations();
    // The first one goes alone behind the failure, and the others together.
    assert_eq!(operations.iter().filter(|operation| **operation == op::MULTI).count(), 3, "{operations:?}");
}

#[test]
fn missing_directories_are_made_together_and_the_next_acquires_are_one_transaction() {
    let (paths, scene) = (["/aa/a", "/ab/b", "/ac/c", "/ac/d"].map(str::to_owned), Scene::with(&[]));
    let lock = multi_at(&scene.client, &paths);
    let acquired = |expected: &[i32]| {
        let held = lock.lock().unwrap();
        assert_eq!(scene.left(&paths), [1; 4]);
        let operations = scene.operations();
        assert!(operations.starts_with(expected), "{operations:?}");
        held.release().unwrap();
        assert_eq!(scene.left(&paths), [0; 4]);
        scene.operations();
    };
    let together = |count: usize| [vec![op::MULTI], lists(count)].concat();
    // Eight znodes are missing, the namespace among them: each group is one round trip.
    let looks = vec![op::EXISTS; 8];
    let is_made = |operation: &i32| [op::CREATE, op::CREATE_CONTAINER].contains(operation);
    let held = lock.lock().unwrap();
    let operations = scene.operations();
    let (made, rest): (Vec<i32>, Vec<i32>) = operations.into_iter().partition(|operation| is_made(operation));
    let is_namespace_there = scene.client.dialect() == Some(Dialect::ZooKeeper34);
    assert_eq!(made.len(), 8 + 1 - usize::from(is_namespace_there), "{made:?}");
    let expected = [together(4), looks, vec![op::GET_CHILDREN], together(3)].concat();
    assert!(rest.starts_with(&expected), "{rest:?}");
    held.release().unwrap();
    scene.operations();
    for _ in 0..2 {
        acquired(&together(4));
    }
}

#[test]
fn directories_that_were_made_for_locks_that_are_not_reached_are_left_to_the_servers() {
    let paths = ["/aa", "/ab/b", "/ac/c"].map(str::to_owned);
    let scene = Scene::with(&paths[..1]);
    let held = InterProcessMutex::new(&scene.other, &paths[0]).unwrap().lock().unwrap();
    let uses = || scene.other.check_exists().for_path(&paths[1]).unwrap().map(|stat| stat.cversion);
    let (token, lock) = (CancelToken::new(), multi_at(&scene.client, &paths));
    thread::scope(|scope| {
        let options = AcquireOptions::new().cancel_token(&token);
        let waits = scope.spawn(move || lock.acquire_with(&options));
        eventually("they are made", || uses().is_some());
        token.cancel();
        assert!(matches!(waits.join().unwrap(), Err(Error::Cancelled { .. })));
    });
    // A server removes a container that had a child once.
    eventually("they were used once", || uses().is_some_and(|uses| uses > 0));
    held.release().unwrap();
}

#[test]
fn a_transaction_is_no_larger_than_the_limit() {
    let paths = paths(50);
    let scene = Scene::of(&paths, |builder| builder.max_frame_size(1024));
    let connections = scene.proxy.connections();
    let held = multi_at(&scene.client, &paths).lock().unwrap();
    assert_eq!(scene.left(&paths), vec![1; 50]);
    let parts = scene.requests(op::MULTI);
    assert!((6..20).contains(&parts), "{parts}");
    held.release().unwrap();
    assert_eq!(scene.left(&paths), vec![0; 50]);
    // A part of one is no transaction.
    assert!(scene.proxy.connections() == connections && scene.requests(op::CREATE) <= 1);
}

#[test]
fn a_member_that_somebody_deleted_keeps_no_other_from_being_released() {
    let paths = paths(4);
    let scene = Scene::with(&paths);
    let lock = multi_at(&scene.client, &paths);
    let (held, connections) = (lock.lock().unwrap(), scene.proxy.connections());
    // The release comes before the news.
    let [znode] = <[String; 1]>::try_from(children(&scene.other, &paths[1])).unwrap();
    let silent = scene.proxy.inject(RequestMatch::ops([op::EXISTS, op::GET_DATA]), Fault::DropRequest);
    scene.other.delete().for_path(&format!("{}/{znode}", paths[1])).unwrap();
    let released = held.release();
    let is_told = matches!(&released, Err(Error::LockLost { path, .. }) if *path == paths[1]);
    // A server that answers too late is taken for lost, and its answer with it: then nobody knows who has deleted it.
    let is_unknown = scene.proxy.connections() > connections && released.is_ok();
    assert!(is_told || is_unknown, "{released:?}");
    drop(silent);
    assert_eq!(scene.left(&paths), [0; 4]);
}

#[test]
fn locks_that_were_lost_are_released_without_a_connection() {
    let machine = Machine::watch();
    let paths = paths(3);
    let scene = Scene::of(&paths, |builder| builder.session_timeout(Duration::from_secs(2)));
    let held = multi_at(&scene.client, &paths).lock().unwrap();
    scene.proxy.refuse();
    scene.proxy.cut();
    eventually("it is lost", || held.holds().iter().all(Hold::is_lost));
    let begin = Instant::now();
    assert!(matches!(held.release(), Err(Error::LockLost { .. })));
    machine.assert_at_most("lost locks given back", since(begin), Duration::from_secs(1));
    scene.await_left(&paths, &[0; 3]);
}

#[test]
fn a_lock_that_is_held_already_is_only_counted() {
    let paths = paths(4);
    let scene = Scene::with(&paths);
    let lock = multi_at(&scene.client, &paths);
    let held = lock.lock().unwrap();
    scene.operations();
    lock.acquire().unwrap();
    lock.release().unwrap();
    assert_eq!((scene.operations(), scene.left(&paths)), (Vec::new(), vec![1; 4]));
    held.release().unwrap();
    assert_eq!(scene.left(&paths), [0; 4]);
}

#[test]
fn two_of_one_directory_and_locks_of_other_kinds_and_clients_go_by_themselves() {
    let paths = paths(3);
    let scene = Scene::with(&paths);
    let books = InterProcessReadWriteLock::new(&scene.client, &paths[0]).unwrap();
    let theirs = connect(builder(server(), scene.client.namespace()));
    let inner = multi_at(&scene.client, &["/inner-a".to_owned(), "/inner-b".to_owned()]);
    let members: [Arc<dyn InterProcessLock>; 7] = [
        Arc::new(books.write_lock().clone()),
        Arc::new(books.read_lock().clone()),
        Arc::new(InterProcessMutex::new(&scene.client, &paths[1]).unwrap()),
        Arc::new(InterProcessSemaphoreMutex::new(&scene.client, "/s").unwrap()),
        Arc::new(InterProcessMutex::new(&scene.client, &paths[2]).unwrap()),
        Arc::new(InterProcessMutex::new(&theirs, "/theirs").unwrap()),
        Arc::new(inner),
    ];
    let lock = InterProcessMultiLock::from_locks(members).unwrap();
    for _ in 0..2 {
        let held = lock.lock().unwrap();
        assert_eq!((held.holds().len(), scene.left(&paths)), (8, vec![2, 1, 1]));
        held.release().unwrap();
        assert_eq!(scene.left(&paths), [0; 3]);
    }
}

#[test]
fn missing_directories_are_made_as_each_client_wants_its_parents() {
    let scene = Scene::of(&[], curator_locks::Builder::dont_use_container_parents);
    let root = scene.client.using_namespace("").unwrap();
    let members: [Arc<dyn InterProcessLock>; 2] = [
        Arc::new(InterProcessMutex::new(&scene.client, "/one").unwrap()),
        Arc::new(InterProcessMutex::new(&root, "/short").unwrap()),
    ];
    let both = InterProcessMultiLock::from_locks(members).unwrap();
    both.lock().unwrap().release().unwrap();
    let containers = scene.proxy.log().into_iter().filter(|request| request.op == op::CREATE_CONTAINER);
    let made: Vec<_> = containers.filter_map(|request| request.path).collect();
    assert_eq!(made, [format!("/{}", scene.client.namespace())], "all but a namespace stay");
}
