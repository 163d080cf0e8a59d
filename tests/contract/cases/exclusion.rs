//! Who is kept out, who comes first, and what is another lock.

use std::{sync::Mutex, time::Duration};

use super::super::{
    history::{Interval, check, contend, contend_in_processes},
    seam::{self, PATIENCE, Start, eventually, scope, unbounded},
    subject::{LOCK, Lock, Subject},
    world::World,
};
use super::Waiter;

/// Two clients never hold it together, and each gets it after the other.
pub(crate) fn exclusion_of_its_own_kind(subject: &'static Subject) {
    let world = World::new(subject);
    let locks = [world.lock(&world.client()), world.lock(&world.client())];
    for (one, other) in [(0, 1), (1, 0)] {
        let (one, other) = (&locks[one], &locks[other]);
        one.acquire().unwrap();
        assert!(!other.acquire_timeout(Duration::ZERO).unwrap());
        assert!(!other.acquire_timeout(Duration::from_millis(30)).unwrap());
        assert!(one.is_acquired_in_this_process() && !other.is_acquired_in_this_process());
        one.release().unwrap();
        assert!(other.acquire_timeout(PATIENCE).unwrap());
        other.release().unwrap();
    }
    world.await_nothing();
}

/// Threads of one client never hold the lock together; where an object serves any number of threads, they share it.
pub(crate) fn exclusion_over_threads(subject: &'static Subject) {
    const THREADS: usize = 6;
    let world = World::new(subject);
    let client = world.client();
    let objects = if subject.is_one_contender { THREADS } else { 2 };
    let locks: Vec<_> = (0..objects).map(|k| subject.contender(&client, k)).collect();
    let contenders = (0..THREADS).map(|k| &locks[k % objects]);
    check(THREADS, contend_together(&world, contenders));
    world.await_nothing();
}

/// Clients, each with a session of its own, never hold the lock together.
pub(crate) fn exclusion_over_clients(subject: &'static Subject) {
    const CLIENTS: usize = 4;
    let world = World::new(subject);
    let locks: Vec<_> = (0..CLIENTS).map(|k| subject.contender(&world.client(), k)).collect();
    check(CLIENTS, contend_together(&world, &locks));
    world.await_nothing();
}

fn contend_together<'a>(
    world: &World,
    contenders: impl IntoIterator<Item = &'a (Box<dyn Lock>, bool)>,
) -> Vec<Interval> {
    let contenders: Vec<_> = contenders.into_iter().collect();
    let (go, begin) = unbounded::<()>();
    world.scope(|scope| {
        let begin = &begin;
        let run = move |(lock, is_shared): &'a (Box<dyn Lock>, bool)| {
            // All begin when nobody can send any more.
            let _ = begin.recv();
            contend(&**lock, *is_shared)
        };
        let threads: Vec<_> = contenders.into_iter().map(|contender| scope.start(move || run(contender))).collect();
        drop(go);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Processes never hold the lock together.
pub(crate) fn exclusion_over_processes(subject: &'static Subject) {
    const PROCESSES: usize = 3;
    let world = World::new(subject);
    check(PROCESSES, contend_in_processes(&world, PROCESSES));
    world.await_nothing();
}

/// Waiters of several clients get the lock in the order in which they came.
pub(crate) fn fifo(subject: &'static Subject) {
    const WAITERS: usize = 6;
    let world = World::new(subject);
    let clients = [world.client(), world.client()];
    let held = world.rival(&world.client());
    let locks: Vec<_> = (0..WAITERS).map(|k| subject.contender(&clients[k / 2 % 2], k).0).collect();
    let order = Mutex::new(Vec::new());
    world.scope(|scope| {
        held.acquire().unwrap();
        for (k, lock) in locks.iter().enumerate() {
            let order = &order;
            scope.start(move || {
                lock.acquire().unwrap();
                order.lock().unwrap().push(k);
                lock.release().unwrap();
            });
            world.await_waiters(k + 1);
        }
        assert!(order.lock().unwrap().is_empty());
        held.release().unwrap();
    });
    assert_eq!(*order.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
    world.await_nothing();
}

/// The namespace stands in front of the path, and the same path elsewhere is another lock.
pub(crate) fn namespace(subject: &'static Subject) {
    let world = World::new(subject);
    let client = world.client();
    let elsewhere = client.using_namespace(seam::namespace()).unwrap();
    let (here, there) = (world.lock(&client), world.rival(&elsewhere));
    here.acquire().unwrap();
    assert!(there.acquire_timeout(PATIENCE).unwrap(), "it is another lock");
    let root = world.observer.using_namespace("").unwrap();
    for namespace in [client.namespace(), elsewhere.namespace()] {
        let children = |path: &String| match root.get_children().for_path(&format!("/{namespace}{path}")) {
            Err(error) if error.is_no_node() => 0,
            children => children.unwrap().len(),
        };
        assert!(subject.directories().iter().map(children).sum::<usize>() > 0, "nothing in {namespace}");
    }
    assert!(!world.rival(&world.client()).acquire_timeout(Duration::ZERO).unwrap(), "it is the same lock");
    there.release().unwrap();
    here.release().unwrap();
    world.await_nothing();
}

/// When nobody uses the lock any more, the server removes its directory, the parents and the namespace.
pub(crate) fn container_cleanup(subject: &'static Subject) {
    let world = World::new(subject);
    let (held, wanted) = (world.rival(&world.client()), world.lock(&world.client()));
    world.scope(|scope| {
        held.acquire().unwrap();
        let waiter = Waiter::start(scope, &*wanted);
        world.await_waiters(1);
        held.release().unwrap();
        waiter.await_grant();
        waiter.release();
    });
    let is_gone = |path: &str| world.observer.check_exists().for_path(path).unwrap().is_none();
    for path in [LOCK, "/deep/down", "/deep", "/"] {
        eventually(&format!("{path} is gone"), || is_gone(path));
    }
    // And it is made again.
    scope(|scope| scope.start(|| wanted.acquire().and_then(|()| wanted.release())).join().unwrap()).unwrap();
    eventually("the namespace is gone again", || is_gone("/"));
}
