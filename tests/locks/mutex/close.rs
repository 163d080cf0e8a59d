//! The client's end.

use std::{
    sync::mpsc,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use curator_locks::{
    CreateMode, CuratorFramework, CuratorFrameworkState, Error, HoldState, LostReason, testing::TestingServer,
};

use crate::{
    kept::{Kept, and_kept},
    support::{
        self, PATIENCE, SESSION, another, await_queue, builder, connect, eventually,
        machine::{Machine, since},
        mutex, queue,
    },
};

/// At once, beside what the threads are kept from running.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Whose client began to be closed then.
fn assert_told_at_once<const N: usize>(
    machine: &Machine,
    begin: Instant,
    waiters: [ScopedJoinHandle<'_, (curator_locks::Result<()>, Duration)>; N],
) {
    let (mut limit, of_this) = (AT_ONCE, Kept::from_now());
    for waiter in waiters {
        let (result, kept) = waiter.join().unwrap();
        assert!(matches!(result, Err(Error::ClientClosed)), "{result:?}");
        limit += kept;
    }
    machine.assert_at_most("closed, and the waiters told", since(begin), limit + of_this.so_far());
}

#[test]
fn without_a_server_closing_still_wakes_whoever_waits_at_once() {
    let machine = Machine::watch();
    let server = TestingServer::start().unwrap();
    let client = connect(builder(&server, "close").max_close_wait(Duration::from_secs(20)));
    let other = connect(builder(&server, "close"));
    let (held, wanted) = (mutex(&other), mutex(&client));
    held.acquire().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| and_kept(|| wanted.acquire()));
        await_queue(&other, "/locks/m", 2);
        server.stop().unwrap();
        eventually("the connection is gone", || !client.is_connected());
        let reading = scope.spawn(|| and_kept(|| client.get_children().for_path("/").map(drop)));
        let connecting = scope.spawn(|| and_kept(|| client.block_until_connected(None).map(drop)));
        let begin = Instant::now();
        scope.spawn(|| client.close());
        assert_told_at_once(&machine, begin, [waiting, reading, connecting]);
        server.restart().unwrap();
    });
}

/// Its close returns once the server has ended the session, however slow that is.
fn client_that_waits_for_its_end() -> CuratorFramework {
    connect(builder(support::server(), &support::namespace()).max_close_wait(PATIENCE))
}

#[test]
fn a_holder_is_told_that_its_client_was_closed() {
    let client = client_that_waits_for_its_end();
    let other = another(&client);
    let held = mutex(&client);
    let guard = held.lock().unwrap();
    let changes = guard.state_changes();
    let (tell, told) = mpsc::channel();
    guard.on_state_change(move |state| tell.send(state).unwrap());
    client.close();
    let lost = HoldState::Lost(LostReason::ClientClosed);
    assert_eq!(guard.state(), lost);
    assert_eq!(changes.recv_timeout(PATIENCE).unwrap(), lost);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), lost);
    let result = guard.release();
    assert!(matches!(result, Err(Error::LockLost { reason: LostReason::ClientClosed, .. })), "{result:?}");
    assert!(queue(&other, "/locks/m").is_empty());
}

#[test]
fn closing_ends_the_session_and_a_closed_client_says_so() {
    let client = client_that_waits_for_its_end();
    let other = another(&client);
    client.create().with_mode(CreateMode::Ephemeral).creating_parents_if_needed().for_path("/mine").unwrap();
    client.close();
    client.close();
    assert_eq!(client.state(), CuratorFrameworkState::Stopped);
    assert_eq!(other.check_exists().for_path("/mine").unwrap(), None);
    let mutex = mutex(&client);
    assert!(matches!(mutex.acquire(), Err(Error::ClientClosed)));
    assert!(matches!(mutex.acquire_timeout(Duration::ZERO), Err(Error::ClientClosed)));
    assert!(matches!(mutex.participant_nodes(), Err(Error::ClientClosed)));
    assert!(matches!(client.block_until_connected(None), Err(Error::ClientClosed)));
    assert!(matches!(client.start(), Err(Error::ClientClosed)));
}

#[test]
fn a_client_that_was_never_started_says_so() {
    let client = builder(support::server(), "never").build().unwrap();
    assert_eq!(client.state(), CuratorFrameworkState::Latent);
    assert!(matches!(client.block_until_connected(Some(Duration::ZERO)), Err(Error::NotStarted)));
    assert!(matches!(client.check_exists().for_path("/"), Err(Error::NotStarted)));
    client.close();
    assert_eq!(client.state(), CuratorFrameworkState::Stopped);
    assert!(matches!(client.start(), Err(Error::ClientClosed)));
}

#[test]
fn a_second_start_is_refused() {
    let client = support::client();
    assert!(matches!(client.start(), Err(Error::AlreadyStarted)));
    assert_eq!(client.state(), CuratorFrameworkState::Started);
}

/// In a process of its own, because other tests have clients too.
#[test]
fn the_last_handle_closes_the_session_and_ends_its_threads() {
    let machine = Machine::watch();
    let other = support::client();
    let arguments = [support::server().connect_string(), other.namespace().to_owned()];
    let mut child =
        support::child::ChildProcess::start("dropper", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(child.hear(), "held");
    await_queue(&other, "/locks/m", 1);
    child.tell("drop");
    let dropped = Instant::now();
    assert_eq!(child.hear(), "no threads");
    await_queue(&other, "/locks/m", 0);
    // Long before the session would have expired.
    machine.assert_at_most("dropped, and its znode gone", since(dropped), SESSION / 2);
}

pub(crate) fn dropper(arguments: &[String]) {
    let [address, namespace] = arguments else { panic!("{arguments:?}") };
    let client = support::connect(support::builder_at(address, namespace));
    let clone = client.using_namespace("elsewhere").unwrap();
    client.add_connection_state_listener(|_, _| {});
    let held = mutex(&client);
    held.acquire().unwrap();
    // A thread has its name once it runs.
    eventually("its threads run", || own_threads().len() == 3);
    support::child::say("held");
    support::child::listen();
    drop((client, held));
    assert_eq!(own_threads().len(), 3, "{:?}", own_threads());
    drop(clone);
    eventually("no thread of the client is left", || own_threads().is_empty());
    support::child::say("no threads");
    support::child::listen();
}

fn own_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| name.starts_with("curator-") || name.starts_with("zk-session"))
        .collect()
}
