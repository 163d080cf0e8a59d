//! What operators see: each row of each kind of lock, whoever holds and waits.

use std::{sync::Barrier, thread};

use curator_locks::{
    AcquireOptions, CancelToken, CreateMode, CuratorFramework, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreV2, InterProcessUnfairMutex, LeaderSelector, LeaderSelectorListener, Leadership, LockKind,
    LockQueue, zookeeper_recipe::WriteLock,
};
use serde_json::Value;

use crate::{
    arena::Arena,
    history::Side,
    peer::Peer,
    stderr_of, stdout_of,
    support::{self, eventually},
    terminal::Screen,
    zklock,
};

/// State with position, mode, whose names, data.
pub(crate) type Row = (String, String, String, String);

fn json(arguments: &[&str]) -> Value {
    let output = zklock(arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr_of(&output));
    serde_json::from_str(&stdout_of(&output)).unwrap()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn rows(lock: &Value) -> Vec<Row> {
    let row = |entry: &Value| {
        let position = entry["position"].as_u64().map(|position| format!(" {position}")).unwrap_or_default();
        // Some versions of kazoo's semaphore take bytes for text.
        let data = text(&entry["data"]).replace("b'kazoo'", "kazoo");
        (format!("{}{position}", text(&entry["state"])), text(&entry["mode"]), text(&entry["client"]), data)
    };
    lock["entries"].as_array().unwrap().iter().map(row).collect()
}

pub(crate) fn row(state: &str, mode: &str, client: &str, data: &str) -> Row {
    (state.into(), mode.into(), client.into(), data.into())
}

pub(crate) struct Scene {
    pub(crate) arena: Arena,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene { arena: Arena::shared() }
    }

    /// As one sees it who knows no namespaces.
    pub(crate) fn full(&self, path: &str) -> String {
        format!("/{}{path}", self.arena.place.namespace)
    }

    pub(crate) fn java(&self, data: &str) -> Peer {
        Peer::curator(&self.arena.place, &[&format!("data={data}")])
    }

    /// Waits until so many contend, and then each row has to be right; those of a semaphore in the end, as its two
    /// lists are read one after the other, and somebody may go on from one to the other meanwhile.
    #[track_caller]
    pub(crate) fn check(&self, path: &str, kind: &str, expected: &[Row]) {
        let mut seen = Value::Null;
        eventually(&format!("{path} has {expected:#?}"), || {
            seen = json(&["ls", "--json", &self.full(path)])[0].clone();
            let are_so_many = seen["entries"].as_array().map(Vec::len) == Some(expected.len());
            are_so_many && (kind != "semaphore" || rows(&seen) == expected)
        });
        assert_eq!(text(&seen["kind"]), kind, "{seen:#}");
        assert_eq!(rows(&seen), expected, "{path}");
        for entry in seen["entries"].as_array().unwrap() {
            assert!(text(&entry["session"]).starts_with("0x") && entry["token"].as_i64() > Some(0), "{entry:#}");
            assert!(entry["age_seconds"].as_f64() < Some(600.0), "{entry:#}");
        }
        let table = stdout_of(&zklock(["ls", &self.full(path)]).output().unwrap());
        for (row, line) in expected.iter().zip(table.lines().skip(2)) {
            let state = row.0.split(' ').next().unwrap();
            assert!(line.trim_start().starts_with(state) && line.contains(&row.3), "{table}");
        }
        assert!(!table.contains('\x1b'), "no colours in a pipe");
    }
}

#[test]
fn a_mutex_of_curator_kazoo_and_rust_contenders() {
    let scene = Scene::new();
    let peers = scene.arena.start([scene.java("of-java"), Peer::kazoo(&scene.arena.place)]);
    let path = "/m";
    let mut first = peers[0].acquire("mutex", path);
    let rust = support::connect(support::builder(support::server(), &scene.arena.place.namespace));
    let mutex = InterProcessMutex::new(&rust, path).unwrap().with_lock_data("of-rust");
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        scope.spawn(|| mutex.acquire_with(&AcquireOptions::new().cancel_token(&cancel)));
        scene.check(
            path,
            "mutex",
            &[row("holds", "exclusive", "curator", "of-java"), row("waits 0", "exclusive", "curator", "of-rust")],
        );
        peers[1].tell(&format!("acquire compatible {path} -1"));
        let all = [
            row("holds", "exclusive", "curator", "of-java"),
            row("waits 0", "exclusive", "curator", "of-rust"),
            row("waits 1", "exclusive", "kazoo", "kazoo"),
        ];
        scene.check(path, "mutex", &all);
        cancel.cancel();
    });
    peers[0].release(&mut first);
    let mut second = peers[1].await_acquired();
    scene.check(path, "mutex", &[row("holds", "exclusive", "kazoo", "kazoo")]);
    peers[1].release(&mut second);
    scene.check(path, "unused", &[]);
}

#[test]
fn a_queue_of_the_library_prints_what_ls_prints() {
    let scene = Scene::new();
    let client = &scene.arena.client;
    let mutex = InterProcessMutex::new(client, "/printed")
        .unwrap()
        .with_lock_data("a worker's name that is too long for a row");
    let held = mutex.lock().unwrap();
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        scope.spawn(|| mutex.acquire_with(&AcquireOptions::new().cancel_token(&cancel)));
        support::await_queue(client, "/printed", 2);
        let (mut printed, mut listed) = (String::new(), String::new());
        // Their ages are the same most of the time from the first second on.
        eventually("both print the same", || {
            printed = LockQueue::inspect(client, "/printed").unwrap().to_string();
            printed = printed.replacen("/printed", &scene.full("/printed"), 1) + "\n";
            listed = stdout_of(&zklock(["ls", &scene.full("/printed")]).output().unwrap());
            printed == listed
        });
        assert_eq!(printed.lines().count(), 4, "{printed}");
        assert!(printed.lines().skip(1).all(|line| line.chars().count() <= 80), "{printed}");
        cancel.cancel();
    });
    held.release().unwrap();
}

#[test]
fn readers_and_writers_of_curator_and_rust() {
    let scene = Scene::new();
    let peers = scene.arena.start([scene.java("java-r"), scene.java("java-w")]);
    let path = "/rw";
    let mut reading = peers[0].acquire("read", path);
    let rust = support::connect(support::builder(support::server(), &scene.arena.place.namespace));
    let rw = InterProcessReadWriteLock::new(&rust, path).unwrap().with_lock_data("rust");
    let read = rw.read_lock();
    let held = read.lock().unwrap();
    peers[1].tell(&format!("acquire write {path} -1"));
    let (reader, writer) = (|data| row("holds", "read", "curator", data), row("waits 0", "write", "curator", "java-w"));
    scene.check(path, "read/write", &[reader("java-r"), reader("rust"), writer.clone()]);
    let other = InterProcessReadWriteLock::new(&rust, path).unwrap().with_lock_data("late");
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        scope.spawn(|| other.read_lock().acquire_with(&AcquireOptions::new().cancel_token(&cancel)));
        let late = row("waits 1", "read", "curator", "late");
        scene.check(path, "read/write", &[reader("java-r"), reader("rust"), writer, late]);
        cancel.cancel();
    });
    held.release().unwrap();
    peers[0].release(&mut reading);
    let mut writing = peers[1].await_acquired();
    scene.check(path, "read/write", &[row("holds", "write", "curator", "java-w")]);
    peers[1].release(&mut writing);
}

#[test]
fn leases_of_curator_and_rust_and_who_waits_for_one() {
    let scene = Scene::new();
    let peers = scene.arena.start([scene.java("java"), scene.java("late")]);
    let (path, kind) = ("/s", "semaphore:2");
    let mut of_java = peers[0].acquire(kind, path);
    let rust = support::connect(support::builder(support::server(), &scene.arena.place.namespace));
    let semaphore = InterProcessSemaphoreV2::new(&rust, path, 2).unwrap();
    semaphore.set_node_data("rust");
    let lease = semaphore.acquire().unwrap();
    let holds = |data| row("holds", "lease", "curator", data);
    scene.check(path, "semaphore", &[holds("java"), holds("rust")]);
    peers[1].tell(&format!("acquire {kind} {path} -1"));
    scene.check(path, "semaphore", &[holds("java"), holds("rust"), row("waits 0", "lease", "curator", "late")]);
    // It has made its lease's znode by now, and that is no third holder.
    scene.arena.await_children(&format!("{path}/leases"), 3);
    scene.check(path, "semaphore", &[holds("java"), holds("rust"), row("waits 0", "lease", "curator", "late")]);
    lease.close().unwrap();
    let mut of_late = peers[1].await_acquired();
    eventually("the place in the queue is given up", || {
        LockQueue::inspect(&scene.arena.client, path).unwrap().waiters().count() == 0
    });
    scene.check(path, "semaphore", &[holds("java"), holds("late")]);
    peers[0].release(&mut of_java);
    peers[1].release(&mut of_late);
}

#[test]
fn readers_writers_and_leases_of_kazoo() {
    let scene = Scene::new();
    let peers = scene.arena.start((0..3).map(|_| Peer::kazoo(&scene.arena.place)));
    let mut reading = peers[0].acquire("read", "/k");
    let mut also = peers[1].acquire("read", "/k");
    peers[2].tell("acquire write /k -1");
    let reader = row("holds", "read", "kazoo", "kazoo");
    scene.check("/k", "read/write", &[reader.clone(), reader, row("waits 0", "exclusive", "kazoo", "kazoo")]);
    peers[0].release(&mut reading);
    peers[1].release(&mut also);
    let mut writing = peers[2].await_acquired();
    peers[2].release(&mut writing);

    let mut first = peers[0].acquire("semaphore:2", "/ks");
    let mut second = peers[1].acquire("semaphore:2", "/ks");
    peers[2].tell("acquire semaphore:2 /ks -1");
    let holds = row("holds", "lease", "kazoo", "kazoo");
    scene.check("/ks", "semaphore", &[holds.clone(), holds, row("waits 0", "lease", "kazoo", "kazoo")]);
    assert_eq!(LockQueue::inspect(&scene.arena.client, "/ks").unwrap().leases, Some(2));
    let tree = json(&["tree", "--json", &scene.full("")]);
    let paths: Vec<String> = tree["locks"].as_array().unwrap().iter().map(|lock| text(&lock["path"])).collect();
    assert_eq!(paths, [scene.full("/ks")], "its queue is shown with it");
    peers[0].release(&mut first);
    let mut third = peers[2].await_acquired();
    peers[1].release(&mut second);
    peers[2].release(&mut third);
}

#[test]
fn each_kind_at_a_path_is_a_queue_of_its_own_and_what_is_held_is_never_free() {
    let scene = Scene::new();
    let client = &scene.arena.client;
    let kazoo = scene.arena.start([Peer::kazoo(&scene.arena.place)]);
    // Containers would be removed before long.
    for directory in ["/s/locks", "/s/leases"] {
        client.create().creating_parents_if_needed().for_path(directory).unwrap();
    }
    let semaphore = InterProcessSemaphoreV2::new(client, "/s", 1).unwrap();
    let free = LockQueue::inspect(client, "/s").unwrap();
    assert_eq!((free.kind, free.is_held(), free.beside.len()), (LockKind::Semaphore, false, 0));

    let unfair = InterProcessUnfairMutex::new(client, "/s").unwrap().with_lock_data("the one").lock().unwrap();
    let kinds = || {
        let queue = LockQueue::inspect(client, "/s").unwrap();
        let beside = queue.beside.iter().map(|other| (other.kind, other.is_held()));
        [(queue.kind, queue.is_held())].into_iter().chain(beside).collect::<Vec<_>>()
    };
    assert_eq!(kinds(), [(LockKind::Unfair, true)]);
    scene.check("/s", "unfair", &[row("holds", "exclusive", "unfair", "the one")]);
    let lease = semaphore.acquire().unwrap();
    assert_eq!(kinds(), [(LockKind::Unfair, true), (LockKind::Semaphore, true)]);
    unfair.release().unwrap();
    assert_eq!(kinds(), [(LockKind::Semaphore, true)]);

    // kazoo counts every child as a lease.
    let mut leased = kazoo[0].acquire("semaphore:9", "/s");
    let mutex = InterProcessMutex::new(client, "/s").unwrap().lock().unwrap();
    assert_eq!(kinds(), [LockKind::Mutex, LockKind::Semaphore, LockKind::Semaphore].map(|kind| (kind, true)));
    let shown = stdout_of(&zklock(["ls", &scene.full("/s")]).output().unwrap());
    assert!(shown.matches("1 holds").count() == 3 && shown.contains("do not exclude each other"), "{shown}");
    let tree = json(&["tree", "--json", &scene.full("")]);
    assert_eq!(tree["locks"].as_array().unwrap().len(), 3, "{tree:#}");
    mutex.release().unwrap();
    semaphore.return_lease(lease).unwrap();
    scene.check("/s", "semaphore", &[row("holds", "lease", "kazoo", "kazoo")]);
    kazoo[0].release(&mut leased);
}

#[test]
fn directories_called_as_those_of_a_semaphore_are_none_beside_another_lock() {
    let scene = Scene::new();
    let client = &scene.arena.client;
    let (app, order) = (InterProcessMutex::new(client, "/app"), InterProcessMutex::new(client, "/app/locks/order"));
    let (app, order) = (app.unwrap().lock().unwrap(), order.unwrap().lock().unwrap());
    let queue = LockQueue::inspect(client, "/app").unwrap();
    assert_eq!((queue.kind, queue.beside.len(), queue.others), (LockKind::Mutex, 0, vec!["locks".to_owned()]));
    let tree = json(&["tree", "--json", &scene.full("")]);
    assert_eq!(tree["locks"].as_array().unwrap().len(), 2, "{tree:#}");
    order.release().unwrap();
    app.release().unwrap();

    let leased = InterProcessMutex::new(client, "/house/leases").unwrap().lock().unwrap();
    let queue = LockQueue::inspect(client, "/house").unwrap();
    assert_eq!((queue.kind, queue.is_held(), queue.others), (LockKind::Unused, false, vec!["leases".to_owned()]));
    let tree = json(&["tree", "--json", &scene.full("/house")]);
    assert_eq!(
        (text(&tree["locks"][0]["path"]), tree["locks"].as_array().unwrap().len()),
        (scene.full("/house/leases"), 1)
    );
    leased.release().unwrap();
}

#[test]
fn unfair_locks_write_locks_and_latches() {
    let scene = Scene::new();
    let client = &scene.arena.client;
    let unfair = InterProcessUnfairMutex::new(client, "/u").unwrap().with_lock_data("the one");
    let held = unfair.lock().unwrap();
    scene.check("/u", "unfair", &[row("holds", "exclusive", "unfair", "the one")]);
    let table = stdout_of(&zklock(["ls", &scene.full("/u")]).output().unwrap());
    assert!(table.contains("waiters of this kind are not to be seen"), "{table}");
    held.release().unwrap();

    let java = scene.arena.start([Peer::write_lock(&scene.arena.place)]);
    let lock = WriteLock::new(client, "/w").unwrap();
    assert!(lock.lock().unwrap());
    java[0].tell("acquire zk-write-lock /w -1");
    let kinds = |queue: &LockQueue| queue.entries.iter().map(|entry| entry.state.to_string()).collect::<Vec<_>>();
    eventually("both are seen", || kinds(&LockQueue::inspect(client, "/w").unwrap()) == ["holds", "waits"]);
    let queue = LockQueue::inspect(client, "/w").unwrap();
    assert_eq!((queue.kind, queue.entries[0].session), (LockKind::WriteLock, client.session_id()));
    lock.close().unwrap();

    let latch = |data: &str| {
        let create =
            client.create().creating_parents_if_needed().with_protection().with_mode(CreateMode::EphemeralSequential);
        create.for_path_and_data("/l/latch-", data).unwrap()
    };
    let _nodes = [latch("leads"), latch("follows")];
    let expected = [row("holds", "exclusive", "curator", "leads"), row("waits 0", "exclusive", "curator", "follows")];
    scene.check("/l", "leader-latch", &expected);
}

struct Leads;

impl LeaderSelectorListener for Leads {
    fn take_leadership(
        &self,
        _client: &CuratorFramework,
        leadership: &Leadership,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        while leadership.has_leadership() {
            thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(())
    }
}

#[test]
fn candidates_of_curators_and_rusts_leader_selectors() {
    let scene = Scene::new();
    let java = scene.arena.start([Peer::leader(Side::Java, &scene.arena.place, "of-java")]);
    java[0].tell("selector /s");
    java[0].hear("leads");
    let selector = LeaderSelector::new(&scene.arena.client, "/s", Leads).unwrap();
    selector.set_id("of-rust");
    selector.start().unwrap();
    let expected = [row("holds", "exclusive", "curator", "of-java"), row("waits 0", "exclusive", "curator", "of-rust")];
    scene.check("/s", "mutex", &expected);
    selector.close().unwrap();
    scene.check("/s", "mutex", &expected[..1]);
}

#[test]
fn the_tree_shows_every_lock_and_sessions_that_wait_in_a_circle() {
    let scene = Scene::new();
    let namespace = &scene.arena.place.namespace;
    let clients: Vec<_> = (0..2).map(|_| support::connect(support::builder(support::server(), namespace))).collect();
    let paths = ["/a/one", "/b/two"];
    scene.arena.client.create().creating_parents_if_needed().for_path("/data/no/lock").unwrap();
    let (cancel, both) = (CancelToken::new(), Barrier::new(2));
    thread::scope(|scope| {
        for (index, client) in clients.iter().enumerate() {
            let (cancel, both) = (&cancel, &both);
            scope.spawn(move || {
                let mutex = |path| InterProcessMutex::new(client, path).unwrap();
                let (own, others) = (mutex(paths[index]), mutex(paths[1 - index]));
                let _held = own.lock().unwrap();
                both.wait();
                let _ = others.acquire_with(&AcquireOptions::new().cancel_token(cancel));
            });
        }
        let mut tree = Value::Null;
        eventually("both wait", || {
            tree = json(&["tree", "--json", &scene.full("")]);
            let locks = tree["locks"].as_array().unwrap();
            locks.len() == 2 && locks.iter().all(|lock| lock["entries"].as_array().unwrap().len() == 2)
        });
        let circle: Vec<String> = tree["circles"][0].as_array().unwrap().iter().map(text).collect();
        let mut sessions: Vec<String> = clients.iter().map(|client| format!("{:#x}", client.session_id())).collect();
        sessions.sort_unstable();
        let mut sorted = circle.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, sessions);
        let shown = stdout_of(&zklock(["tree", &scene.full("")]).output().unwrap());
        assert!(shown.contains("wait for each other") && shown.contains("/a/one"), "{shown}");
        cancel.cancel();
    });
}

#[test]
fn one_directory_is_not_called_several() {
    let scene = Scene::new();
    let held = InterProcessMutex::new(&scene.arena.client, "/app/one").unwrap().lock().unwrap();
    let more_than = |limit: &str| stdout_of(&zklock(["tree", "--limit", limit, &scene.full("")]).output().unwrap());
    assert!(more_than("1").contains("there are more than 1 directory: "), "{}", more_than("1"));
    assert!(more_than("2").contains("there are more than 2 directories: "), "{}", more_than("2"));
    assert!(more_than("3").contains("1 holds"), "{}", more_than("3"));
    held.release().unwrap();
}

#[test]
fn znodes_that_may_not_be_read_are_shown_without_their_data() {
    let scene = Scene::new();
    let builder = support::builder(support::server(), &scene.arena.place.namespace).authorization("digest", "a:b");
    let insider = support::connect(builder.acl_provider(curator_locks::CreatorAllAclProvider));
    scene.arena.client.create().creating_parents_if_needed().for_path("/open/lock").unwrap();
    let mutex = InterProcessMutex::new(&insider, "/open/lock").unwrap();
    let held = mutex.lock().unwrap();
    let queue = LockQueue::inspect(&scene.arena.client, "/open/lock").unwrap();
    assert_eq!((queue.entries.len(), queue.entries[0].data.as_ref()), (1, None));
    assert_eq!(queue.entries[0].fencing_token, held.fencing_token());
    let table = stdout_of(&zklock(["ls", "--hosts", &scene.full("/open/lock")]).output().unwrap());
    assert!(table.contains(" HOST ") && table.contains(" 127.0.0.1 "), "{table}");
    assert_eq!(json(&["ls", "--json", "--hosts", &scene.full("/open/lock")])[0]["entries"][0]["host"], "127.0.0.1");
    assert!(table.contains("(not readable)"), "{table}");
    held.release().unwrap();
}

#[test]
fn the_doctor_finds_a_server_in_order_and_a_tick_that_is_too_long() {
    // So that 0.3 of the session is longer than a busy server takes to answer.
    let mut at_fine = zklock(["doctor", "--session-timeout", "60s"]);
    let fine = at_fine.output().unwrap();
    let said = stdout_of(&fine);
    assert!(fine.status.success() && said.contains("standalone") && said.contains("containers"), "{said}");
    let mut at_short = zklock(["doctor", "--session-timeout", "500ms", "--connect", &slow_tick().connect_string()]);
    let short = at_short.output().unwrap();
    let said = stdout_of(&short);
    assert!(short.status.code() == Some(1) && said.contains("more than half of the session timeout"), "{said}");
    // What is one line for a program is several at a terminal, none of which its edge breaks.
    for (command, last) in
        [(&at_fine, "by default each 60 s"), (&at_short, "\n                    set --session-timeout")]
    {
        let screen = Screen::of((80, 24));
        let mut run = screen.run(command);
        screen.await_text(last);
        run.wait().unwrap();
        let shown = anstream::adapter::strip_str(&screen.text()).to_string();
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    }
    let document = zklock(["doctor", "--json", "--session-timeout", "60s"]).output().unwrap();
    let document: Value = serde_json::from_str(&stdout_of(&document)).unwrap();
    let verdict = |check: &str| {
        let found = document.as_array().unwrap().iter().find(|row| row["check"] == check);
        text(&found.unwrap_or_else(|| panic!("no {check}: {document}"))["verdict"])
    };
    assert_eq!([verdict("connection"), verdict("lock"), verdict("tick")], ["ok"; 3], "{document}");
    let nobody = zklock(["doctor", "--connect", "127.0.0.1:1", "--connection-timeout", "1s"]).output().unwrap();
    assert!(stdout_of(&nobody).contains("Connection refused"), "{}", stdout_of(&nobody));
    assert_eq!(nobody.status.code(), Some(1));
}

#[test]
fn the_doctor_minds_credentials_that_are_not_encrypted_and_servers_that_stand_twice() {
    let server = support::server().connect_string();
    let verdict = |check: &str, words: &[&str]| {
        let output = zklock([&["doctor", "--json", "--session-timeout", "60s"], words].concat()).output().unwrap();
        let said = stdout_of(&output);
        let document: Value = serde_json::from_str(&said).unwrap();
        let found = document.as_array().unwrap().iter().find(|row| row["check"] == check).cloned();
        assert!(!said.contains("secret"), "{said}");
        found.map(|row| (text(&row["verdict"]), text(&row["found"])))
    };
    let minds = |check: &str, words: &[&str], part: &str| match verdict(check, words) {
        Some((verdict, found)) => assert!(verdict == "mind" && found.contains(part), "{words:?}: {verdict}, {found}"),
        None => panic!("{words:?}: no {check}"),
    };
    assert_eq!(verdict("encryption", &[]), Some(("ok".to_owned(), "none, and no credentials".to_owned())));
    minds("encryption", &["--auth", "digest:shop:secret"], "the password of --auth");
    assert_eq!(verdict("duplicate", &[]), None);
    let twice = format!("{server},{server}");
    minds("duplicate", &["--connect", &twice], &format!("{server} stands twice"));
    let names = format!("{server},{}", server.replace("127.0.0.1", "localhost"));
    minds("duplicate", &["--connect", &names], &format!("are both {server}"));
}

#[test]
fn the_doctor_removes_what_it_made_and_nothing_else() {
    let client = support::client();
    let there = |path: &str| client.check_exists().for_path(path).unwrap().is_some();
    let full = |path: &str| format!("/{}{path}", client.namespace());
    let doctor = |path: &str| {
        let output = zklock(["doctor", "--session-timeout", "60s", "--path", &full(path)]).output().unwrap();
        assert!(stdout_of(&output).contains("acquired and released"), "{}", stdout_of(&output));
    };
    for path in ["/kept", "/kept-container"] {
        client.create().creating_parents_if_needed().for_path(path).unwrap();
    }
    doctor("/kept");
    assert_eq!((there("/kept"), there("/kept-container")), (true, true));
    doctor("/made");
    assert_eq!((there("/made"), there("/made-container")), (false, false));
}

fn slow_tick() -> &'static curator_locks::testing::TestingServer {
    static SERVER: std::sync::OnceLock<curator_locks::testing::TestingServer> = std::sync::OnceLock::new();
    SERVER.get_or_init(|| {
        let builder = curator_locks::testing::TestingServer::builder().tick_time(std::time::Duration::from_millis(400));
        builder.min_session_timeout(std::time::Duration::from_millis(500)).start().unwrap()
    })
}

#[test]
fn a_row_fits_eighty_columns_and_a_long_one_names_the_znode() {
    let (scene, data) = (Scene::new(), "host ".repeat(30));
    let mutex = InterProcessMutex::new(&scene.arena.client, "/wide").unwrap().with_lock_data(data.as_str());
    let held = mutex.lock().unwrap();
    let said = |words: &[&str]| stdout_of(&zklock(words).output().unwrap());
    let path = scene.full("/wide");
    let short = said(&["ls", &path]);
    assert!(short.lines().skip(1).all(|line| line.chars().count() <= 80), "{short}");
    assert!(short.contains("  holds  ") && short.contains("host host") && !short.contains("NODE"), "{short}");
    assert!(zklock(["revoke", &path, "--why", "maintenance"]).status().unwrap().success());
    let asked = said(&["ls", &path]);
    assert!(asked.contains("  asked  ") && asked.contains("host host"), "{asked}");
    let name = held.path().rsplit_once('/').unwrap().1.to_owned();
    let long = said(&["ls", "-l", &path]);
    assert!(long.contains("NODE") && long.contains("SINCE") && long.contains(&name), "{long}");
}
