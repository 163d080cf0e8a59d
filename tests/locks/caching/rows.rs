//! What each fault does to each kind of cached lock, while it is held and while it is idle: the same as without caching.
//!
//! A process that is paused is in `paused`.

use std::{cmp::Reverse, thread, time::Duration};

use curator_locks::{
    CuratorFramework, Error, Hold, LostReason, RetryNTimes,
    testing::{Direction, FaultProxy},
};

use crate::{
    kinds::{ALL, Entrant, Kind, Lock, PATH, are_valid, token},
    support::{
        PATIENCE, builder_at, children, connect, eventually, expire, namespace,
        scope::{client_in, closed_by_failure, scope},
        sequence, server,
    },
};

/// Where a session ends by itself, and where it does not. Both are longer than a busy machine stops a thread.
const SHORT: Duration = Duration::from_secs(15);
const LONG: Duration = PATIENCE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// For longer than the session lasts.
    BlackHole,
    Expiry,
    /// An administrator deletes the znode of the tenure.
    Delete,
    /// An administrator deletes the directory with all that is in it.
    DeleteDirectory,
}

/// One process with a cached lock, behind a proxy, and another one with a lock that cannot be held beside it.
struct Scene {
    kind: &'static Kind,
    proxy: FaultProxy,
    client: CuratorFramework,
    lock: Box<dyn Lock>,
    other: CuratorFramework,
    rival: Box<dyn Lock>,
}

impl Scene {
    fn new(kind: &'static Kind, session: Duration) -> Scene {
        let proxy = FaultProxy::start(server().connect_string()).unwrap();
        let retry = RetryNTimes::new(u32::MAX, Duration::from_millis(20));
        let builder = builder_at(&proxy.connect_string(), &namespace()).session_timeout(session).retry_policy(retry);
        let client = closed_by_failure(connect(builder.connection_timeout(Duration::from_secs(1))));
        let other = client_in(client.namespace());
        let (lock, rival) = ((kind.cached)(&client), (kind.rival)(&other));
        Scene { kind, proxy, client, lock, other, rival }
    }

    #[track_caller]
    fn await_queue(&self, length: usize) {
        eventually(&format!("{}: {length} in the queue", self.kind.name), || self.kind.queued(&self.other) == length);
    }

    /// `held`: what this process was granted last.
    fn suffer(&self, fault: Fault, held: &[Hold]) {
        match fault {
            Fault::BlackHole => {
                self.proxy.black_hole(Direction::Both);
            }
            Fault::Expiry => {
                let before = self.client.session_id();
                expire(&self.client);
                eventually("another session", || self.client.is_connected() && self.client.session_id() != before);
            }
            Fault::Delete => self.other.delete().for_path(held[0].path()).unwrap(),
            Fault::DeleteDirectory => {
                eventually("the directory is deleted", || self.delete_directory());
            }
        }
    }

    /// At one moment, so that nobody comes in between. `false`: somebody has come since the list.
    fn delete_directory(&self) -> bool {
        let mut deletes = self.other.transaction();
        for directory in self.kind.directories.iter().filter(|path| **path != PATH || self.kind.directory == PATH) {
            let mut names = children(&self.other, directory);
            // From the end: who waits hears that its place is gone before it hears of who was in front.
            names.sort_by_key(|name| Reverse(sequence(name)));
            for name in names {
                deletes = deletes.delete().for_path(&format!("{directory}/{name}"));
            }
        }
        for directory in self.kind.directories {
            deletes = deletes.delete().for_path(directory);
        }
        deletes.commit().is_ok()
    }

    fn heal(&self) {
        self.proxy.pass().unwrap();
    }
}

/// A busy machine, or a cut, may leave it in doubt for a while.
#[track_caller]
fn await_valid(kind: &Kind, held: &[Hold]) {
    eventually(&format!("{}: it is certain", kind.name), || are_valid(held));
}

/// Runs the row for every kind at once.
fn for_every_kind(row: impl Fn(&'static Kind) + Sync) {
    thread::scope(|scope| {
        let row = &row;
        let rows: Vec<_> = ALL.iter().map(|kind| scope.spawn(move || row(kind))).collect();
        rows.into_iter().for_each(|row| row.join().unwrap());
    });
}

/// One thread holds the lock, one more of its process waits for it or holds it too, and somebody elsewhere waits: all three
/// are served, the holder is told, and nobody is let in beside it before that.
fn while_held(kind: &'static Kind, fault: Fault) {
    let scene = Scene::new(kind, if fault == Fault::BlackHole { SHORT } else { LONG });
    let (lock, rival) = (&*scene.lock, &*scene.rival);
    scope(|scope| {
        let holder = Entrant::start(scope, lock);
        let held = holder.granted();
        await_valid(kind, &held);
        let mut second = Entrant::start(scope, lock);
        if kind.is_shared {
            await_valid(kind, &second.granted());
        } else {
            eventually("one waits in the process", || lock.waiters() == 1);
        }
        let rival = Entrant::start(scope, rival);
        scene.await_queue(2);
        scene.suffer(fault, &held);
        let mut theirs = None;
        if fault == Fault::BlackHole {
            let holds = rival.granted();
            assert!(!(are_valid(&held) && are_valid(&holds)), "{}: two holders", kind.name);
            theirs = Some(holds);
            scene.heal();
        }
        eventually("the holder is told", || held.iter().any(Hold::is_lost));
        let left = holder.leave();
        let Err(Error::LockLost { reason, .. }) = &left else { panic!("{}: {left:?}", kind.name) };
        let is_deleted = matches!(fault, Fault::Delete | Fault::DeleteDirectory);
        assert_eq!(*reason == LostReason::NodeDeleted, is_deleted, "{}: {reason:?}", kind.name);
        if kind.is_shared {
            let left = second.leave();
            assert!(matches!(&left, Err(Error::LockLost { .. })), "{}: {left:?}", kind.name);
            second = Entrant::start(scope, lock);
        }
        let (first, next) = if fault == Fault::DeleteDirectory {
            // Both have lost their places.
            eventually("one is let in", || rival.is_granted() || second.is_granted());
            if rival.is_granted() { (rival, second) } else { (second, rival) }
        } else {
            (rival, second)
        };
        let theirs = theirs.unwrap_or_else(|| first.granted());
        assert!(are_valid(&theirs) && token(&theirs) > token(&held), "{}", kind.name);
        scene.await_queue(2);
        assert!(!next.is_granted(), "{}: two holders", kind.name);
        first.leave().unwrap();
        let last = next.granted();
        await_valid(kind, &last);
        assert!(token(&last) > token(&theirs), "{}", kind.name);
        next.leave().unwrap();
    });
    drop(scene.lock);
    eventually("nothing is left", || kind.is_gone(&scene.other));
}

#[test]
fn a_black_hole_takes_the_lock_from_its_holder_before_anybody_else_has_it() {
    for_every_kind(|kind| while_held(kind, Fault::BlackHole));
}

#[test]
fn an_expired_session_is_told_and_the_lock_goes_to_whoever_waits() {
    for_every_kind(|kind| while_held(kind, Fault::Expiry));
}

#[test]
fn a_deleted_znode_is_told_and_the_lock_goes_to_whoever_waits() {
    for_every_kind(|kind| while_held(kind, Fault::Delete));
}

#[test]
fn a_deleted_directory_is_told_and_all_queue_in_a_new_one() {
    for_every_kind(|kind| while_held(kind, Fault::DeleteDirectory));
}

#[test]
fn a_cut_connection_leaves_the_lock_to_its_holder() {
    for_every_kind(|kind| {
        let scene = Scene::new(kind, LONG);
        let (lock, rival) = (&*scene.lock, &*scene.rival);
        scope(|scope| {
            let holder = Entrant::start(scope, lock);
            let held = holder.granted();
            let rival = Entrant::start(scope, rival);
            scene.await_queue(2);
            for _ in 0..3 {
                let connections = scene.proxy.connections();
                scene.proxy.cut();
                eventually("another connection", || scene.proxy.connections() > connections);
                await_valid(kind, &held);
                assert!(!rival.is_granted(), "{}: two holders", kind.name);
            }
            holder.leave().unwrap();
            let theirs = rival.granted();
            assert!(token(&theirs) > token(&held), "{}", kind.name);
            let again = Entrant::start(scope, lock);
            scene.await_queue(2);
            scene.proxy.cut();
            assert!(!again.is_granted(), "{}: two holders", kind.name);
            rival.leave().unwrap();
            let last = again.granted();
            assert!(are_valid(&last) && token(&last) > token(&theirs), "{}", kind.name);
            again.leave().unwrap();
        });
    });
}

/// Nobody holds the lock, and its znode stands. Somebody elsewhere is let in, and nobody beside it.
fn while_idle(kind: &'static Kind, fault: Fault) {
    let scene = Scene::new(kind, if fault == Fault::BlackHole { SHORT } else { LONG });
    let (lock, rival) = (&*scene.lock, &*scene.rival);
    let held = lock.hold().unwrap();
    let before = held.holds();
    held.release().unwrap();
    scope(|scope| {
        scene.suffer(fault, &before);
        let rival = Entrant::start(scope, rival);
        let theirs = rival.granted();
        assert!(are_valid(&theirs) && token(&theirs) > token(&before), "{}", kind.name);
        if fault == Fault::BlackHole {
            let held = lock.hold_within(Duration::from_millis(300));
            assert!(!matches!(held, Ok(Some(_))), "{}: two holders", kind.name);
            scene.heal();
        }
        let mut again = Entrant::start(scope, lock);
        if matches!(fault, Fault::Delete | Fault::DeleteDirectory) {
            // As long as nobody has told the process, it hands out the znode that it knows.
            eventually("it queues anew", || again.is_granted() || kind.queued(&scene.other) == 2);
            while again.is_granted() {
                let held = again.granted();
                assert_eq!(held[0].path(), before[0].path(), "{}: two holders", kind.name);
                eventually("it is told", || held.iter().any(Hold::is_lost));
                assert!(again.leave().is_err());
                again = Entrant::start(scope, lock);
                eventually("it queues anew", || again.is_granted() || kind.queued(&scene.other) == 2);
            }
        }
        scene.await_queue(2);
        assert!(!again.is_granted(), "{}: two holders", kind.name);
        rival.leave().unwrap();
        let last = again.granted();
        await_valid(kind, &last);
        assert!(token(&last) > token(&theirs), "{}", kind.name);
        again.leave().unwrap();
    });
}

#[test]
fn an_idle_lock_in_a_black_hole_goes_with_its_session_and_is_not_handed_out_any_more() {
    for_every_kind(|kind| while_idle(kind, Fault::BlackHole));
}

#[test]
fn an_idle_lock_whose_session_has_expired_is_not_handed_out_any_more() {
    for_every_kind(|kind| while_idle(kind, Fault::Expiry));
}

#[test]
fn an_idle_lock_whose_znode_is_deleted_is_had_behind_whoever_has_come() {
    for_every_kind(|kind| while_idle(kind, Fault::Delete));
}

#[test]
fn an_idle_lock_whose_directory_is_deleted_is_had_behind_whoever_has_come() {
    for_every_kind(|kind| while_idle(kind, Fault::DeleteDirectory));
}

#[test]
fn an_idle_lock_is_handed_out_after_a_cut_and_goes_when_somebody_comes() {
    for_every_kind(|kind| {
        let scene = Scene::new(kind, LONG);
        let mut last = None;
        for _ in 0..3 {
            let held = scene.lock.hold().unwrap();
            let holds = held.holds();
            await_valid(kind, &holds);
            assert!(Some(token(&holds)) > last, "{}", kind.name);
            held.release().unwrap();
            last = Some(token(&holds));
            scene.proxy.cut();
        }
        let held = scene.rival.hold().unwrap();
        assert!(Some(token(&held.holds())) > last, "{}", kind.name);
        held.release().unwrap();
    });
}
