//! Others come, and the server does not say so.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use curator_locks::{Acl, CuratorFramework, Error, perms};

use crate::{
    kinds::{ALL, Held, Kind, Lock, PATH},
    over::Over,
    support::{
        PATIENCE, builder, connect, eventually, namespace,
        scope::{closed_by_failure, scope},
        server,
    },
    wire::{Wire, Wiring},
};

const THREADS: usize = 3;

/// One process whose threads pass a cached lock on among themselves, and one that may always read the directory.
struct Scene {
    kind: &'static Kind,
    wire: Arc<Wire>,
    lock: Box<dyn Lock>,
    other: CuratorFramework,
    rival: Box<dyn Lock>,
    grants: AtomicUsize,
}

impl Scene {
    fn new(kind: &'static Kind) -> Scene {
        let (wire, namespace) = (Arc::<Wire>::default(), namespace());
        let builder = |namespace: &str| builder(server(), namespace);
        let client = closed_by_failure(connect(builder(&namespace).session_factory(Wiring(wire.clone()))));
        let other = closed_by_failure(connect(builder(&namespace).authorization("digest", b"rival:secret".to_vec())));
        let (lock, rival) = ((kind.cached)(&client), (kind.rival)(&other));
        Scene { kind, wire, lock, other, rival, grants: AtomicUsize::new(0) }
    }

    /// Up to the first error.
    fn pass_on(&self, is_over: &AtomicBool) -> Result<(), Error> {
        while !is_over.load(Ordering::SeqCst) {
            let held = self.lock.hold()?;
            self.grants.fetch_add(1, Ordering::SeqCst);
            // Readers overlap: there is always one.
            eventually("others come", || {
                self.kind.is_shared || self.lock.waiters() > 0 || is_over.load(Ordering::SeqCst)
            });
            held.release()?;
        }
        Ok(())
    }

    /// Threads pass the lock on among themselves, and nothing tells them of new children. How each of them ends.
    fn while_passed_on(&self, meanwhile: impl FnOnce()) -> Vec<Result<(), Error>> {
        let is_over = AtomicBool::new(false);
        scope(|scope| {
            let _over = Over(&is_over);
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| self.pass_on(&is_over))).collect();
            self.deafen();
            meanwhile();
            is_over.store(true, Ordering::SeqCst);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Nothing tells of new children from here on.
    fn deafen(&self) {
        eventually("it is passed on", || self.grants.load(Ordering::SeqCst) > 10);
        self.wire.is_deaf.store(true, Ordering::SeqCst);
    }

    fn forbid_reading(&self) {
        let everybody = Acl { perms: perms::ALL & !perms::READ, ..Acl::open_unsafe().remove(0) };
        let acl = [Acl::creator_all(), vec![everybody]].concat();
        for directory in self.kind.directories.iter().filter(|path| **path != PATH || self.kind.directory == PATH) {
            self.other.set_acl().for_path(directory, acl.clone()).unwrap();
        }
    }

    #[track_caller]
    fn rival_is_granted(&self) {
        let before = self.grants.load(Ordering::SeqCst);
        let held = self.rival.hold_within(PATIENCE).unwrap();
        println!("{}: {} grants meanwhile", self.kind.name, self.grants.load(Ordering::SeqCst) - before);
        held.unwrap_or_else(|| panic!("{}: passed on for ever", self.kind.name)).release().unwrap();
    }
}

fn for_every_kind(row: impl Fn(&Scene) + Sync) {
    thread::scope(|scope| {
        let row = &row;
        let rows: Vec<_> = ALL.iter().map(|kind| scope.spawn(move || row(&Scene::new(kind)))).collect();
        rows.into_iter().for_each(|row| row.join().unwrap());
    });
}

/// It could not know in time that somebody has deleted the znode.
#[test]
fn a_lock_over_a_session_that_tells_in_no_order_keeps_no_znode_from_one_hold_to_the_next() {
    for_every_kind(|scene| {
        scene.wire.is_in_disorder.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            scene.lock.hold().unwrap().release().unwrap();
            eventually("nothing is kept", || scene.kind.is_gone(&scene.other));
        }
    });
}

#[test]
fn a_rival_whose_coming_nobody_tells_is_granted_the_lock_and_the_others_go_on() {
    for_every_kind(|scene| {
        let ended = scene.while_passed_on(|| {
            for _ in 0..3 {
                scene.rival_is_granted();
            }
            let before = scene.grants.load(Ordering::SeqCst);
            eventually("they go on", || scene.grants.load(Ordering::SeqCst) > before + 10);
        });
        ended.into_iter().for_each(Result::unwrap);
    });
}

#[test]
fn a_process_that_may_not_read_the_directory_any_more_ends_its_tenure() {
    for_every_kind(|scene| {
        let ended = scene.while_passed_on(|| {
            scene.forbid_reading();
            scene.rival_is_granted();
        });
        for ended in ended {
            // It may have been over first.
            assert!(ended.is_ok() || format!("{ended:?}").contains("NoAuth"), "{ended:?}");
        }
    });
}

/// By an administrator who had taken away the right to read it and the directory.
#[test]
fn a_znode_whose_deletion_nobody_tells_is_not_passed_on_for_ever() {
    for_every_kind(|scene| {
        let hold = || {
            let held = scene.lock.hold().unwrap();
            let path = held.holds()[0].path().to_owned();
            // It may have been found gone.
            let _ = held.release();
            path
        };
        let first = hold();
        eventually("its own watch is set", || scene.wire.watched.load(Ordering::SeqCst) > 0);
        for is_deaf in [&scene.wire.is_deaf, &scene.wire.is_deaf_to_deletes] {
            is_deaf.store(true, Ordering::SeqCst);
        }
        // With something else in it the directory stays, and can be listed.
        let (directory, _) = first.rsplit_once('/').unwrap();
        scene.other.create().for_path(&format!("{directory}/notes")).unwrap();
        scene.other.delete().for_path(&first).unwrap();
        let (begin, mut grants) = (Instant::now(), 0);
        eventually(&format!("{}: another znode", scene.kind.name), || {
            grants += 1;
            hold() != first
        });
        println!("{}: {grants} grants of a znode that is gone, {:?}", scene.kind.name, begin.elapsed());
    });
}

/// An administrator deletes it while the watch on it is still on its way, and a rival is faster than the news.
#[test]
fn a_znode_without_a_watch_is_asked_for_before_another_thread_holds_by_it() {
    for_every_kind(|scene| {
        for is_so in [&scene.wire.is_slow_to_watch, &scene.wire.is_deaf] {
            is_so.store(true, Ordering::SeqCst);
        }
        let held = scene.lock.hold().unwrap();
        let znodes = held.holds();
        eventually("it was seen who else is there", || scene.wire.listed.load(Ordering::SeqCst) >= znodes.len());
        eventually("the watches are on their way", || scene.wire.under_way.lock().len() >= znodes.len());
        // Those of the next contender are not.
        scene.wire.is_slow_to_watch.store(false, Ordering::SeqCst);
        scope(|scope| {
            let next = || scope.spawn(|| scene.lock.hold_within(PATIENCE).unwrap().map(Held::release));
            // Readers would not wait.
            let waiter = (!scene.kind.is_shared).then(next);
            eventually("another thread waits", || waiter.is_none() || scene.lock.waiters() > 0);
            znodes.iter().for_each(|hold| scene.other.delete().for_path(hold.path()).unwrap());
            let rival = scene.rival.hold_within(PATIENCE).unwrap().expect("the znodes are gone");
            let next = waiter.map(|waiter| (drop(held.release()), waiter).1).unwrap_or_else(next);
            eventually("the other thread queues behind the rival", || {
                scene.kind.queued(&scene.other) == 2 || next.is_finished()
            });
            assert!(!next.is_finished(), "{}: two holders", scene.kind.name);
            rival.release().unwrap();
            next.join().unwrap().expect("no timeout").unwrap();
        });
    });
}
