//! Locks that a process keeps between holds, as another process sees them.

use std::{
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, Caching, CancelToken, CuratorFramework, EntryState, InterProcessMutex, InterProcessReadWriteLock,
    LockQueue, TenureState,
};

use crate::{
    NOT_HAD,
    peer::Peer,
    stderr_of, stdout_of,
    support::{
        self, eventually,
        machine::{Machine, since},
    },
    views::{Scene, row},
    zklock,
};

/// Idle for longer than any test.
fn lasting() -> Caching {
    Caching::new().keep_idle(Duration::from_secs(3600))
}

fn another(scene: &Scene) -> CuratorFramework {
    support::client_in(&scene.arena.place.namespace)
}

fn idle(scene: &Scene, path: &str) -> InterProcessMutex {
    let mutex = InterProcessMutex::new(&scene.arena.client, path).unwrap().with_lock_data("rust");
    let mutex = mutex.with_caching(lasting());
    mutex.lock().unwrap().release().unwrap();
    mutex
}

#[test]
fn what_a_process_keeps_is_cached_whether_or_not_a_thread_is_inside() {
    let scene = Scene::new();
    let client = &scene.arena.client;
    let mutex = InterProcessMutex::new(client, "/m").unwrap().with_lock_data("rust").with_caching(lasting());
    let catalogue = InterProcessReadWriteLock::new(client, "/rw").unwrap().with_lock_data("rust");
    let catalogue = catalogue.with_caching(lasting());
    let cached = |mode| [row("cached", mode, "curator", "rust")];

    let held = mutex.lock().unwrap();
    scene.check("/m", "mutex", &cached("exclusive"));
    held.release().unwrap();
    scene.check("/m", "mutex", &cached("exclusive"));
    let table = stdout_of(&zklock(["ls", &scene.full("/m")]).output().unwrap());
    assert!(table.contains("  mutex, 1 held or kept idle\n"), "{table}");

    let held = catalogue.read_lock().lock().unwrap();
    scene.check("/rw", "read/write", &cached("read"));
    held.release().unwrap();
    scene.check("/rw", "read/write", &cached("read"));
    let held = catalogue.write_lock().lock().unwrap();
    scene.check("/rw", "read/write", &cached("write"));
    held.release().unwrap();
    scene.check("/rw", "read/write", &cached("write"));
    let tree = stdout_of(&zklock(["tree", &scene.full("")]).output().unwrap());
    assert_eq!(tree.matches("1 held or kept idle").count(), 2, "{tree}");
}

#[test]
fn beside_plain_contenders_each_has_a_state_of_its_own() {
    let scene = Scene::new();
    let (reader, writer) = (another(&scene), another(&scene));
    let catalogue = |client, data| InterProcessReadWriteLock::new(client, "/rw").unwrap().with_lock_data(data);
    let kept = catalogue(&scene.arena.client, "kept").with_caching(lasting());
    let (plain, late) = (catalogue(&reader, "plain"), catalogue(&writer, "late").with_caching(lasting()));
    let cancel = CancelToken::new();
    let options = AcquireOptions::new().cancel_token(&cancel);
    thread::scope(|scope| {
        let inside = kept.read_lock().lock().unwrap();
        let beside = plain.read_lock().lock().unwrap();
        scope.spawn(|| drop(late.write_lock().lock_with(&options)));
        let expected = [
            row("cached", "read", "curator", "kept"),
            row("holds", "read", "curator", "plain"),
            row("waits 0", "write", "curator", "late"),
        ];
        scene.check("/rw", "read/write", &expected);
        let table = stdout_of(&zklock(["ls", &scene.full("/rw")]).output().unwrap());
        assert!(table.contains("  read/write, 1 holds, 1 held or kept idle, 1 waits\n"), "{table}");
        cancel.cancel();
        inside.release().unwrap();
        beside.release().unwrap();
    });
}

#[test]
fn an_idle_lock_is_given_up_when_asked_for_and_a_mere_try_is_refused() {
    let scene = Scene::new();
    let (full, machine) = (scene.full("/m"), Machine::watch());
    let states = || LockQueue::inspect(&scene.arena.client, "/m").unwrap().entries.into_iter().map(|entry| entry.state);
    for why in [&[][..], &["--why", "maintenance"]] {
        let _mutex = idle(&scene, "/m");
        let begin = Instant::now();
        let tried = zklock(["run", "--nonblock", &full, "--", "true"]).output().unwrap();
        let (said, late) = (stderr_of(&tried), machine.lateness(&since(begin)));
        assert_eq!(tried.status.code(), Some(NOT_HAD), "{said}");
        // Who holds it is told if the servers say so within a second.
        assert!(said.contains("(or kept idle)") || late > Duration::from_millis(300), "{said}");
        let broken = zklock(["break", &format!("{full}/{}", node(&scene, "/m"))]).output().unwrap();
        let said = stdout_of(&broken);
        assert!(!broken.status.success() && said.contains("nobody may be inside"), "{said}");
        assert!(states().eq([EntryState::Cached(TenureState::Idle)]), "it has stayed");

        let asked = zklock(["revoke"].into_iter().chain(why.iter().copied()).chain([full.as_str()])).output().unwrap();
        assert!(asked.status.success(), "{}", stderr_of(&asked));
        eventually("the idle lock is given up", || states().count() == 0);
    }
    let _mutex = idle(&scene, "/m");
    let run = zklock(["run", &full, "--", "true"]).output().unwrap();
    assert!(run.status.success(), "{}", stderr_of(&run));
}

fn node(scene: &Scene, path: &str) -> String {
    let queue = LockQueue::inspect(&scene.arena.client, path).unwrap();
    queue.entries[0].path.rsplit('/').next().unwrap().to_owned()
}

#[test]
fn java_and_python_queue_behind_a_cached_lock_as_behind_any_other() {
    let scene = Scene::new();
    let peers = scene.arena.start([scene.java("of-java"), Peer::kazoo(&scene.arena.place)]);
    let path = "/m";
    let mutex = idle(&scene, path);
    let held = mutex.lock().unwrap();
    peers[0].tell(&format!("acquire mutex {path} -1"));
    let cached = row("cached", "exclusive", "curator", "rust");
    let java = |state| row(state, "exclusive", "curator", "of-java");
    scene.check(path, "mutex", &[cached.clone(), java("waits 0")]);
    peers[1].tell(&format!("acquire compatible {path} -1"));
    scene.check(path, "mutex", &[cached, java("waits 0"), row("waits 1", "exclusive", "kazoo", "kazoo")]);
    held.release().unwrap();
    let mut second = peers[0].await_acquired();
    scene.check(path, "mutex", &[java("holds"), row("waits 0", "exclusive", "kazoo", "kazoo")]);
    peers[0].release(&mut second);
    let mut third = peers[1].await_acquired();
    peers[1].release(&mut third);
}
