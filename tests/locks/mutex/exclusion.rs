//! Never two holders, in the order of the queue, and nothing left behind.

use std::{
    fs::File,
    io::ErrorKind,
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use curator_locks::{CreateMode, CuratorFramework, InterProcessMutex};

use crate::support::{
    self,
    child::{self, ChildProcess},
    eventually,
    history::{Hold, check_history, shared_clock},
    mutex, queue, sequence,
};

const LOCK: &str = "/deep/down/locks/m";
const IN_TOTAL: usize = 2_000;

/// Keeps the directory while nobody queues, so that sequence numbers do not begin again.
fn with_keeper(client: &CuratorFramework) {
    let keeper = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
    keeper.for_path(&format!("{LOCK}/keeper")).unwrap();
}

fn hold(mutex: &InterProcessMutex, work: impl FnOnce()) -> Hold {
    let guard = mutex.lock().unwrap();
    let from = shared_clock();
    let (token, sequence) = (guard.fencing_token().value(), sequence(guard.path()));
    work();
    let to = shared_clock();
    guard.release().unwrap();
    Hold { token, sequence, from, to }
}

/// What held and waited leaves the queue empty, and then the server removes the containers.
fn check_nothing_is_left(client: &CuratorFramework) {
    assert_eq!(client.get_children().for_path(LOCK).unwrap(), ["keeper"]);
    client.delete().for_path(&format!("{LOCK}/keeper")).unwrap();
    eventually("the lock's directory and its parents are gone", || {
        client.check_exists().for_path("/deep").unwrap().is_none()
    });
    eventually("the namespace is gone", || client.check_exists().for_path("/").unwrap().is_none());
}

#[test]
fn twenty_processes_on_one_path_never_hold_it_together_and_go_in_order() {
    let client = support::client();
    with_keeper(&client);
    let directory = tempfile::tempdir().unwrap();
    let witness = directory.path().join("held").display().to_string();
    let arguments = [support::server().connect_string(), client.namespace().to_owned(), witness];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = child::race((0..20).map(|_| ChildProcess::start("contender", &arguments)).collect());
    let hold_of = |said: &Vec<u64>| {
        let token = i64::try_from(said[0]).unwrap();
        Hold { token, sequence: said[1], from: said[2], to: said[3] }
    };
    let holds: Vec<Hold> = said.iter().map(hold_of).collect();
    assert_eq!(holds.len(), IN_TOTAL);
    check_history(holds);
    check_nothing_is_left(&client);
}

/// One of the twenty processes.
pub(crate) fn contender(arguments: &[String]) {
    let [address, namespace, witness] = arguments else { panic!("{arguments:?}") };
    let client = support::connect(support::builder_at(address, namespace));
    let mutex = InterProcessMutex::new(&client, LOCK).unwrap();
    child::say("ready");
    child::listen();
    let witness = Path::new(witness);
    let work = || {
        // Only one process at a time can make the file.
        match File::create_new(witness) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => panic!("two holders"),
            file => drop(file.unwrap()),
        }
        std::fs::remove_file(witness).unwrap();
    };
    let holds: Vec<Hold> = (0..IN_TOTAL / 20).map(|_| hold(&mutex, work)).collect();
    for Hold { token, sequence, from, to } in holds {
        child::say(&format!("{token} {sequence} {from} {to}"));
    }
    child::say("done");
    child::listen();
}

#[test]
fn the_lock_of_a_process_that_is_killed_goes_to_the_next() {
    let client = support::client();
    let arguments = [support::server().connect_string(), client.namespace().to_owned()];
    let holder = ChildProcess::start("holder", &[&arguments[0], &arguments[1]]);
    assert_eq!(holder.hear(), "held");
    let mutex = mutex(&client);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock().unwrap().fencing_token());
        // Or the holder did not run for so long that its session has expired.
        eventually("it waits", || queue(&client, "/locks/m").len() == 2 || waiter.is_finished());
        drop(holder);
        waiter.join().unwrap();
    });
}

/// Holds the lock until it is killed.
pub(crate) fn holder(arguments: &[String]) {
    let [address, namespace] = arguments else { panic!("{arguments:?}") };
    let timeout = std::time::Duration::from_secs(3);
    let client = support::connect(support::builder_at(address, namespace).session_timeout(timeout));
    let mutex = mutex(&client);
    let _held = mutex.lock().unwrap();
    child::say("held");
    child::listen();
}

mod slow {
    use super::*;

    #[test]
    fn a_hundred_threads_on_one_mutex_never_hold_it_together_and_go_in_order() {
        let client = support::client();
        with_keeper(&client);
        let mutex = InterProcessMutex::new(&client, LOCK).unwrap();
        let (barrier, is_held) = (Barrier::new(100), AtomicBool::new(false));
        let work = || {
            assert!(!is_held.swap(true, Ordering::SeqCst), "two holders");
            thread::yield_now();
            is_held.store(false, Ordering::SeqCst);
        };
        let run = || {
            barrier.wait();
            (0..IN_TOTAL / 100).map(|_| hold(&mutex, work)).collect::<Vec<_>>()
        };
        let holds: Vec<Hold> = thread::scope(|scope| {
            let threads: Vec<_> = (0..100).map(|_| scope.spawn(run)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(holds.len(), IN_TOTAL);
        check_history(holds);
        assert!(!mutex.is_acquired_in_this_process());
        check_nothing_is_left(&client);
    }
}
