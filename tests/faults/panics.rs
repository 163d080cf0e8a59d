//! User code that panics on a thread of the client: the client goes on.

use std::{
    panic::catch_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crossbeam_channel::unbounded;
use curator_locks::{
    Acl, AclProvider, AcquireOptions, Caching,
    ConnectionState::{Connected, Reconnected, Suspended},
    EnsembleProvider, Error, InterProcessLock, InterProcessMultiLock, LeaderLatch, Locker, RetryNTimes, Revoker,
    testing::expire_session,
    unversioned::{
        NativeSessionFactory, Request, Session, SessionConfig, SessionEvent, SessionFactory, Submission, WatchEvent,
        Watcher,
    },
    zookeeper_recipe::{LockListener, WriteLock},
};

use super::scene::*;

/// Says where the servers are, or panics.
#[derive(Clone)]
struct Moody {
    servers: String,
    panics: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl EnsembleProvider for Moody {
    fn connection_string(&self) -> String {
        self.asked.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics.load(Ordering::SeqCst), "no servers today");
        self.servers.clone()
    }

    fn close(&self) {
        assert!(!self.panics.load(Ordering::SeqCst), "never closed");
    }
}

fn moody(scene: &Scene) -> Moody {
    Moody { servers: scene.proxy.connect_string(), panics: Arc::default(), asked: Arc::default() }
}

#[test]
fn an_ensemble_provider_that_panics_ends_neither_the_client_nor_the_session() {
    let scene = scene_with(LONG);
    let moody = moody(&scene);
    let client = scene.builder(LONG).ensemble_provider(moody.clone()).build().unwrap();
    let states = states_of(&client);
    start(&client);
    expect_state(&states, Connected);
    let mutex = mutex(&client);
    let held = mutex.lock().unwrap();
    let (session, asked) = (client.session_id(), moody.asked.load(Ordering::SeqCst));
    moody.panics.store(true, Ordering::SeqCst);
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(&states, Suspended);
    eventually("it was asked more than once", || moody.asked.load(Ordering::SeqCst) > asked + 1);
    scene.proxy.pass().unwrap();
    expect_state(&states, Reconnected);
    assert_eq!(client.session_id(), session);
    eventually("held again", || held.is_valid());
    held.release().unwrap();
    // It panics once more, on the caller's thread, which has nothing to do with it.
    client.close();
    figure("a provider that panics: asked", moody.asked.load(Ordering::SeqCst));
}

#[test]
fn a_lost_session_is_replaced_though_the_ensemble_provider_panics() {
    let scene = scene();
    let moody = moody(&scene);
    let client = scene.builder(T).ensemble_provider(moody.clone()).build().unwrap();
    start(&client);
    let before = client.session_id();
    moody.panics.store(true, Ordering::SeqCst);
    scene.proxy.refuse();
    scene.proxy.cut();
    eventually("the session is given up", || client.session_id() != before);
    scene.proxy.pass().unwrap();
    assert!(client.block_until_connected(Some(LONG)).unwrap());
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    moody.panics.store(false, Ordering::SeqCst);
    figure("a provider that panics: asked", moody.asked.load(Ordering::SeqCst));
}

#[test]
fn a_connection_state_listener_that_panics_silences_nobody() {
    let scene = scene_with(LONG);
    let client = scene.builder(LONG).build().unwrap();
    client.add_connection_state_listener(|_, state| panic!("not {state} again"));
    let states = states_of(&client);
    start(&client);
    expect_state(&states, Connected);
    scene.proxy.cut();
    expect_state(&states, Suspended);
    expect_state(&states, Reconnected);
    figure("a listener that panics: states that the next one was told", 3);
}

#[test]
fn a_listener_of_a_hold_that_panics_silences_nobody() {
    let scene = scene_with(LONG);
    let mutex = mutex(&scene.client);
    let held = mutex.lock().unwrap();
    let (sender, told) = unbounded();
    held.on_state_change(|state| panic!("not {state:?} again"));
    held.on_state_change(move |state| sender.send(state).unwrap_or_default());
    let (id, password) = (scene.client.session_id(), scene.client.session_password());
    expire_session(&scene.server.connect_string(), id, &password).unwrap();
    while !matches!(told.recv_timeout(LONG).unwrap(), curator_locks::HoldState::Lost(_)) {}
    assert!(held.is_lost());
    drop(held);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    figure("a hold's listener that panics: the next one was told", "LOST");
}

#[test]
fn a_revocation_listener_that_panics_is_asked_again() {
    let scene = scene_with(LONG);
    let mutex = mutex(&scene.client);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    mutex.make_revocable(move |_: &curator_locks::InterProcessMutex| {
        count.fetch_add(1, Ordering::SeqCst);
        panic!("never");
    });
    let held = mutex.lock().unwrap();
    for requests in 1..=2 {
        Revoker::attempt_revoke(&scene.observer, held.path()).unwrap();
        eventually("it is asked", || asked.load(Ordering::SeqCst) == requests);
    }
    held.release().unwrap();
    figure("a revocation listener that panics: asked", asked.load(Ordering::SeqCst));
}

/// Panics while it is told to.
struct Closed(Arc<AtomicBool>);

impl AclProvider for Closed {
    fn default_acl(&self) -> Vec<Acl> {
        assert!(!self.0.load(Ordering::SeqCst), "no access today");
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, _path: &str) -> Option<Vec<Acl>> {
        None
    }
}

struct Tells(crossbeam_channel::Sender<&'static str>);

impl LockListener for Tells {
    fn lock_acquired(&self) {
        self.0.send("acquired").unwrap();
    }

    fn lock_released(&self) {
        self.0.send("released").unwrap();
        panic!("never");
    }
}

/// A lock that nobody waits for makes its znode anew by itself, and asks for the ACL on the client's own thread.
#[test]
fn an_acl_provider_and_a_lock_listener_that_panic_in_the_background_keep_nothing_from_going_on() {
    let scene = scene_with(LONG);
    let panics = Arc::new(AtomicBool::new(false));
    let client = scene
        .builder(LONG)
        .acl_provider(Closed(panics.clone()))
        .retry_policy(RetryNTimes::new(20, 100 * MS))
        .lock_recheck_interval(Some(200 * MS))
        .build()
        .unwrap();
    let states = states_of(&client);
    start(&client);
    expect_state(&states, Connected);
    let (sender, told) = unbounded();
    let lock = WriteLock::with_listener(&client, "/locks/election", Tells(sender)).unwrap();
    lock.lock().unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), "acquired");
    panics.store(true, Ordering::SeqCst);
    expire_session(&scene.server.connect_string(), client.session_id(), &client.session_password()).unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), "released");
    while next_state(&states).1 != Reconnected {}
    // Time for some attempts that fail.
    assert!(told.recv_timeout(Duration::from_secs(1)).is_err());
    panics.store(false, Ordering::SeqCst);
    assert_eq!(told.recv_timeout(LONG).unwrap(), "acquired");
    assert!(lock.is_owner());
    lock.close().unwrap();
    figure("an ACL provider that panics in the background: the lock came back", "acquired");
}

/// Panics for these paths, while it is told to.
struct ClosedAt(fn(&str) -> bool, Arc<AtomicBool>);

impl AclProvider for ClosedAt {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        assert!(!self.1.load(Ordering::SeqCst) || !(self.0)(path), "no access today");
        None
    }
}

#[test]
fn an_election_whose_acl_provider_panics_fails_and_can_be_entered_later() {
    const DIR: &str = "/locks/election";
    let contender = |path: &str| path.contains("/x-");
    let directory = |path: &str| path.ends_with(DIR);
    for closed in [contender as fn(&str) -> bool, directory] {
        let scene = scene_with(LONG);
        let panics = Arc::new(AtomicBool::new(true));
        let client = scene.builder(LONG).acl_provider(ClosedAt(closed, panics.clone())).build().unwrap();
        start(&client);
        let election = Arc::new(WriteLock::new(&client, DIR).unwrap());
        // On a thread of its own, in case that it never returns.
        let lock = || {
            let election = election.clone();
            join(&spawn(move || election.lock())).1
        };
        for _ in 0..3 {
            let result = lock();
            assert!(matches!(result, Err(Error::InvalidArgument { name: "acl_provider", .. })), "{result:?}");
            assert_eq!(election.id(), None);
        }
        panics.store(false, Ordering::SeqCst);
        assert!(lock().unwrap());
        assert_eq!(children(&scene.observer, DIR).len(), 1);
        election.close().unwrap();
    }
}

/// A retry policy is asked on the thread of the call: what it throws is the caller's, and nothing is left of the call.
#[test]
fn a_retry_policy_that_panics_leaves_nothing_of_the_call() {
    struct Never;
    impl curator_locks::RetryPolicy for Never {
        fn allow_retry(&self, _: u32, _: Duration, _: &dyn curator_locks::RetrySleeper) -> bool {
            panic!("never again");
        }
    }
    let scene = scene_with(LONG);
    make_directory(&scene.observer);
    let client = scene.builder(LONG).retry_policy(Never).build().unwrap();
    start(&client);
    let creates = curator_locks::testing::RequestMatch::creates();
    let fault = scene.proxy.inject(creates, curator_locks::testing::Fault::CutInsteadOfReply);
    let caller = client.clone();
    assert!(std::thread::spawn(move || mutex(&caller).acquire()).join().is_err());
    assert_eq!(fault.hits(), 1);
    wait_for_nodes(&scene.observer, 0);
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    figure("a retry policy that panics: znodes left", nodes(&scene.observer).len());
}

/// For a lock that nobody waits for it is asked on the client's own thread, and the caller waits for the answer.
#[test]
fn a_retry_policy_that_panics_about_an_error_ends_the_call_of_a_lock_that_is_told() {
    struct Undecided;
    impl curator_locks::RetryPolicy for Undecided {
        fn allow_retry(&self, _: u32, _: Duration, _: &dyn curator_locks::RetrySleeper) -> bool {
            true
        }

        fn allows_error(&self, _: &curator_locks::Error) -> bool {
            panic!("what is that");
        }
    }
    let scene = scene_with(LONG);
    make_directory(&scene.observer);
    let client = scene.builder(LONG).retry_policy(Undecided).build().unwrap();
    start(&client);
    let creates = curator_locks::testing::RequestMatch::creates();
    let fault = scene.proxy.inject(creates, curator_locks::testing::Fault::CutInsteadOfReply);
    let lock = Arc::new(WriteLock::new(&client, LOCK).unwrap());
    let caller = lock.clone();
    let outcome = spawn(move || caller.lock());
    let (_, outcome) = outcome.recv_timeout(LONG).expect("the call hangs");
    assert!(outcome.is_err());
    assert_eq!(fault.hits(), 1);
    wait_for_nodes(&scene.observer, 0);
    assert!(lock.lock().unwrap());
    lock.close().unwrap();
}

/// A session that has a watch on `/`, whose watcher panics when it is told anything. So does the observer at the end.
fn session_that_panics(server: &str) -> Arc<dyn Session> {
    let config = SessionConfig {
        hosts: server.parse().unwrap(),
        known: Arc::default(),
        dialect: Some(curator_locks::Dialect::ZooKeeper),
        successor: Arc::default(),
        session_timeout: LONG,
        connection_timeout: LONG,
        authorizations: Vec::new(),
        quorum_heartbeats: false,
        max_frame_size: 1 << 20,
        max_request_size: 1 << 20,
        counters: Default::default(),
    };
    let observer = Arc::new(|event| assert!(matches!(event, SessionEvent::Connected { .. }), "not {event:?}"));
    let session = NativeSessionFactory.open(&config, observer).unwrap();
    watch(&session, Arc::new(|event| panic!("not {event:?} again")));
    session
}

fn watch(session: &Arc<dyn Session>, watcher: Watcher) {
    let (sender, reply) = unbounded();
    let request = Request::GetData { path: "/".into(), watch: true };
    let on_reply = Box::new(move |reply| drop(sender.send(reply)));
    session.submit(vec![Submission { request, watcher: Some(watcher), on_reply }]);
    reply.recv_timeout(LONG).unwrap().unwrap();
}

/// A panic of a callback ends the session's thread, and the end of the session calls the others while the thread unwinds.
#[test]
fn callbacks_that_panic_while_their_thread_unwinds_end_the_session_and_not_the_process() {
    alone("panics::callbacks_that_panic_while_their_thread_unwinds_end_the_session_and_not_the_process", || {
        let scene = scene_with(LONG);
        let session = session_that_panics(&scene.server.connect_string());
        let (sender, told) = unbounded();
        watch(&session, Arc::new(move |event| drop(sender.send(event.clone()))));
        let request = Request::Sync { path: "/".into() };
        session.submit(vec![Submission { request, watcher: None, on_reply: Box::new(|_| panic!("on purpose")) }]);
        assert_eq!(told.recv_timeout(LONG).unwrap(), WatchEvent::Ended);
        eventually("the session's thread has ended", || session.is_finished());
        assert!(session.is_ended());
        figure("callbacks that panic one after the other: the last one was told", WatchEvent::Ended);
    });
}

#[test]
fn a_session_whose_watchers_panic_may_be_dropped_while_a_thread_unwinds() {
    alone("panics::a_session_whose_watchers_panic_may_be_dropped_while_a_thread_unwinds", || {
        let scene = scene_with(LONG);
        let session = session_that_panics(&scene.server.connect_string());
        let (sender, told) = unbounded();
        watch(&session, Arc::new(move |event| drop(sender.send(event.clone()))));
        let unwinding = std::thread::spawn(move || {
            let _dropped = session;
            panic!("on purpose");
        });
        assert!(unwinding.join().is_err());
        assert_eq!(told.recv_timeout(LONG).unwrap(), WatchEvent::Ended);
        figure("a session dropped by a panic: the last watcher was told", WatchEvent::Ended);
    });
}

/// Somebody else's lock, whose release panics.
struct Sticky;

impl InterProcessLock for Sticky {
    fn acquire(&self) -> curator_locks::Result<()> {
        Ok(())
    }

    fn acquire_timeout(&self, _: Duration) -> curator_locks::Result<bool> {
        Ok(true)
    }

    fn release(&self) -> curator_locks::Result<()> {
        panic!("never")
    }

    fn is_acquired_in_this_process(&self) -> bool {
        true
    }
}

#[test]
fn a_lock_whose_release_panics_ends_no_process_when_a_panic_drops_its_guard() {
    alone("panics::a_lock_whose_release_panics_ends_no_process_when_a_panic_drops_its_guard", || {
        let by_locker = std::thread::spawn(|| {
            let _locker = Locker::new(&Sticky).unwrap();
            panic!("on purpose");
        });
        assert!(by_locker.join().is_err());
        let by_guard = std::thread::spawn(|| {
            let locks = InterProcessMultiLock::from_locks([Arc::new(Sticky) as _]).unwrap();
            let _guard = locks.lock().unwrap();
            panic!("on purpose");
        });
        assert!(by_guard.join().is_err());
        figure("a release that panics while a thread unwinds: processes ended", 0);
    });
}

/// A logger that panics, as one does that prints where nobody reads any more.
struct Breaks(AtomicUsize);

impl log::Log for Breaks {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("nobody reads this");
    }

    fn flush(&self) {}
}

struct PanicsInItsDrop;

impl Drop for PanicsInItsDrop {
    fn drop(&mut self) {
        panic!("not in order");
    }
}

#[test]
fn a_logger_and_the_drop_of_a_listener_that_panic_keep_no_lock_from_anybody() {
    alone("panics::a_logger_and_the_drop_of_a_listener_that_panic_keep_no_lock_from_anybody", || {
        static LOGGER: Breaks = Breaks(AtomicUsize::new(0));
        let scene = scene_with(T);
        std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
        log::set_logger(&LOGGER).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        let cached = mutex(&scene.client).with_caching(Caching::new().keep_idle(Duration::ZERO));
        for (mutex, is_cached) in [(mutex(&scene.client), false), (cached, true)] {
            let options = AcquireOptions::new();
            let hold = |options: &AcquireOptions| {
                let asked = PanicsInItsDrop;
                mutex.make_revocable(move |_: &curator_locks::InterProcessMutex| {
                    let _ = &asked;
                });
                let held = mutex.lock_with(options).unwrap().unwrap();
                let (changes, near) = (PanicsInItsDrop, PanicsInItsDrop);
                held.on_state_change(move |_| {
                    let _ = &changes;
                });
                held.on_deadline(MS, move |_| {
                    let _ = &near;
                });
                held
            };
            hold(&options).release().unwrap();
            await_children(&scene.observer, LOCK, 0);
            let held = hold(&options);
            let with_a_guard = move || held.is_valid().then(|| panic!("with a guard"));
            assert!(catch_unwind(with_a_guard).is_err());
            await_children(&scene.observer, LOCK, 0);
            if !is_cached {
                let held = hold(&options.clone().hold_at_most(100 * MS));
                eventually("it was held for too long", || held.is_lost());
                await_children(&scene.observer, LOCK, 0);
                held.release().unwrap_err();
            }
            let (held, session) = (hold(&options), scene.client.session_id());
            let password = scene.client.session_password();
            expire_session(&scene.server.connect_string(), session, &password).unwrap();
            eventually("it is lost", || held.is_lost());
            drop(held);
            eventually("there is another session", || scene.client.session_id() != session);
        }
        let latch = LeaderLatch::new(&scene.client, LOCK).unwrap();
        latch.start().unwrap();
        eventually("it leads", || latch.has_leadership());
        scene.proxy.cut();
        eventually("it leads again", || latch.has_leadership());
        latch.close().unwrap();
        scene.client.close();
        await_children(&scene.observer, LOCK, 0);
        let lines = LOGGER.0.load(Ordering::SeqCst);
        assert!(lines > 0);
        figure("a logger that panics: lines", lines);
    });
}

/// Without `AssertUnwindSafe`, as around the standard library's locks.
#[test]
fn a_panic_of_the_callers_code_may_be_caught_around_a_lock() {
    let scene = scene_with(LONG);
    let client = &scene.client;
    let mutex = mutex(client);
    let both = InterProcessMultiLock::new(client, ["/a", "/b"]).unwrap();
    assert!(catch_unwind(|| mutex.run(|_| panic!("its own code"))).is_err());
    let (held, guards) = (mutex.lock().unwrap(), both.lock().unwrap());
    assert!(catch_unwind(move || held.is_valid().then(|| panic!("with a guard"))).is_err());
    assert!(catch_unwind(move || guards.is_valid().then(|| panic!("with guards"))).is_err());
    // Each has released its lock.
    mutex.lock().unwrap().release().unwrap();
    both.lock().unwrap().release().unwrap();
    client.close();
}
