//! Holders that go without releasing, and the next one that hears of them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Acl, AclProvider, AcquireOptions, CancelToken, CuratorFramework, Error, FencingToken, Hold, InterProcessLock,
    InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, InterProcessUnfairMutex, LostReason,
};

use crate::{
    MS, T,
    support::{self, PATIENCE, another, builder_at, child::ChildProcess, connect, eventually},
};

const PATH: &str = "/locks/m";
const NO_DELAY: Duration = Duration::ZERO;

fn lock(client: &CuratorFramework, data: &str, delay: Duration) -> InterProcessMutex {
    InterProcessMutex::new(client, PATH).unwrap().with_lock_data(data).with_unclean_deaths(delay)
}

fn marks(client: &CuratorFramework, path: &str) -> usize {
    match client.get_children().for_path(&format!("{path}~holders")) {
        Ok(names) => names.len(),
        Err(error) if error.is_no_node() => 0,
        Err(error) => panic!("{error}"),
    }
}

/// What the dead have left: token and data.
fn heard(hold: &Hold) -> Vec<(FencingToken, String)> {
    let deaths = hold.unclean_deaths().iter();
    deaths.map(|death| (death.fencing_token, String::from_utf8(death.data.clone()).unwrap())).collect()
}

/// Holds the lock until it is killed.
pub fn child(arguments: &[String]) {
    let client = connect(builder_at(&arguments[0], &arguments[1]).session_timeout(T));
    let lock = lock(&client, "the child", NO_DELAY);
    let held = lock.lock().unwrap();
    support::child::say(&held.fencing_token().value().to_string());
    support::child::listen();
}

#[test]
fn whoever_comes_after_a_release_hears_nothing() {
    let client = support::client();
    let other = another(&client);
    let locks = [lock(&client, "one", Duration::from_secs(60)), lock(&other, "other", Duration::from_secs(60))];
    for round in 0..6 {
        let held = locks[round % 2].lock().unwrap();
        assert_eq!(heard(&held), []);
        assert_eq!(marks(&client, PATH), 1);
        if round % 3 == 0 { drop(held) } else { held.release().unwrap() }
    }
    eventually("no mark is left", || marks(&client, PATH) == 0);
}

#[test]
fn whoever_comes_after_a_killed_process_hears_of_it_once() {
    let client = support::client();
    let server = support::server().connect_string();
    let process = ChildProcess::start("dies", &[&server, client.namespace()]);
    let token = FencingToken::from_value(process.hear().parse().unwrap());
    let lock = lock(&client, "next", NO_DELAY);
    drop(process);
    let held = lock.lock().unwrap();
    assert_eq!(heard(&held), [(token, "the child".to_owned())]);
    let death = &held.unclean_deaths()[0];
    assert!(death.session != 0 && death.session != client.session_id() && death.since_millis > 1_600_000_000_000);
    assert!(held.fencing_token() > token);
    let again = lock.lock().unwrap();
    assert_eq!(heard(&again), heard(&held), "re-entered, it is the same hold");
    again.release().unwrap();
    held.release().unwrap();
    assert_eq!(heard(&lock.lock().unwrap()), [], "it was told");
}

#[test]
fn every_way_to_go_without_releasing_is_told() {
    type Go = fn(&CuratorFramework, &CuratorFramework, &InterProcessMutex);
    let ways: [(&str, Go); 3] = [
        ("the client is closed", |client, _, lock| {
            lock.acquire().unwrap();
            client.close();
        }),
        ("an administrator deletes the znode", |_, admin, lock| {
            let held = lock.lock().unwrap();
            admin.delete().for_path(held.path()).unwrap();
            eventually("the holder knows", || held.is_lost());
            assert!(matches!(held.release(), Err(Error::LockLost { .. })));
        }),
        ("the thread panics", |_, _, lock| {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _held = lock.lock().unwrap();
                panic!("while holding");
            }));
            assert!(panicked.is_err() && !lock.is_acquired_in_this_process());
        }),
    ];
    for (way, go) in ways {
        let next = support::client();
        let client = another(&next);
        go(&client, &next, &lock(&client, way, NO_DELAY));
        let next = lock(&next, "next", NO_DELAY);
        let held = next.lock().unwrap();
        assert_eq!(heard(&held).len(), 1, "{way}");
        assert_eq!(heard(&held)[0].1, way);
    }
}

#[test]
fn another_thread_hears_of_what_this_one_has_lost() {
    let client = support::client();
    let lock = lock(&client, "shared", NO_DELAY);
    let held = lock.lock().unwrap();
    client.delete().for_path(held.path()).unwrap();
    eventually("the holder knows", || held.is_lost());
    thread::scope(|scope| {
        let other = scope.spawn(|| heard(&lock.lock().unwrap()).len());
        assert_eq!(other.join().unwrap(), 1);
    });
}

#[test]
fn the_delay_comes_after_a_death_and_only_then() {
    const DELAY: Duration = Duration::from_secs(1);
    let client = support::client();
    // The one of them outlasts all that the machine may do meanwhile.
    let (next, later) = (lock(&client, "next", DELAY), lock(&client, "later", 2 * PATIENCE));
    let die = || {
        let other = another(&client);
        lock(&other, "dead", NO_DELAY).acquire().unwrap();
        other.close();
        eventually("its znode is gone", || support::queue(&client, PATH).is_empty());
    };
    die();
    let begin = Instant::now();
    assert!(!later.acquire_timeout(2 * DELAY).unwrap(), "the delay counts");
    assert!(begin.elapsed() < 2 * PATIENCE);
    eventually("nothing is left in the queue", || support::queue(&client, PATH).is_empty());
    assert_eq!(marks(&client, PATH), 1, "who has not got the lock leaves the news to the next");
    let token = CancelToken::new();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| later.acquire_with(&AcquireOptions::new().cancel_token(&token)));
        eventually("it waits with the lock", || support::queue(&client, PATH).len() == 1);
        thread::sleep(50 * MS);
        token.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled { .. })));
    });
    assert!(!later.is_acquired_in_this_process());
    let begin = Instant::now();
    let held = next.lock().unwrap();
    assert!(begin.elapsed() >= DELAY && held.is_valid());
    assert_eq!(heard(&held).len(), 1);
    held.release().unwrap();
    die();
    let begin = Instant::now();
    assert!(next.acquire_timeout(Duration::ZERO).unwrap());
    assert!(begin.elapsed() >= DELAY, "a mere try waits, too");
    next.release().unwrap();
    let begin = Instant::now();
    later.acquire().unwrap();
    assert!(begin.elapsed() < PATIENCE, "the delay counts without a death");
    later.release().unwrap();
}

#[test]
fn of_several_that_hold_side_by_side_only_the_dead_are_told() {
    let client = support::client();
    let mortal = another(&client);
    let semaphore = |client: &CuratorFramework, data: &str| {
        let semaphore = InterProcessSemaphoreV2::new(client, "/leases", 3).unwrap().with_unclean_deaths(NO_DELAY);
        semaphore.set_node_data(data);
        semaphore
    };
    let (ours, theirs) = (semaphore(&client, "lives"), semaphore(&mortal, "dies"));
    let lives = ours.acquire().unwrap();
    let dies = theirs.acquire_many(2).unwrap();
    let mut tokens: Vec<_> = dies.iter().map(|lease| lease.fencing_token()).collect();
    tokens.sort();
    assert!(lives.unclean_deaths().is_empty() && dies[0].unclean_deaths().is_empty());
    mortal.close();
    let next = ours.acquire_many(2).unwrap();
    let mut deaths = heard(&next[0]);
    deaths.sort_by_key(|(token, _)| *token);
    assert_eq!(deaths, tokens.iter().map(|token| (*token, "dies".to_owned())).collect::<Vec<_>>());
    ours.return_all(next).unwrap();
    let another = ours.acquire().unwrap();
    assert!(another.unclean_deaths().is_empty());
    ours.return_all([another, lives]).unwrap();
    eventually("no mark is left", || marks(&client, "/leases") == 0);
}

/// Leaves the mark of a holder that went, and no znode.
fn die(client: &CuratorFramework) {
    let mortal = another(client);
    lock(&mortal, "dead", NO_DELAY).acquire().unwrap();
    mortal.close();
    eventually("its znode is gone", || support::queue(client, PATH).is_empty());
}

/// The lock that listens, and another one behind it.
const OTHER: &str = "/locks/other";

fn other(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client, OTHER).unwrap()
}

fn multi(client: &CuratorFramework, delay: Duration) -> InterProcessMultiLock {
    let members: [Arc<dyn InterProcessLock>; 2] = [Arc::new(lock(client, "member", delay)), Arc::new(other(client))];
    InterProcessMultiLock::from_locks(members).unwrap()
}

#[test]
fn a_multi_lock_that_gives_up_leaves_the_news_to_the_next() {
    let client = support::client();
    let rival = another(&client);
    die(&client);
    let (multi, taken) = (multi(&client, NO_DELAY), other(&rival).lock().unwrap());
    for _ in 0..2 {
        // It has the first member, and so has heard, when the second one is in its queue.
        let token = CancelToken::new();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| multi.acquire_with(&AcquireOptions::new().cancel_token(&token)));
            eventually("it waits for the second member", || support::queue(&client, OTHER).len() == 2);
            token.cancel();
            assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled { .. })));
        });
        eventually("it has given the first member back", || support::queue(&client, PATH).is_empty());
        assert_eq!(marks(&client, PATH), 1, "that of the dead");
    }
    taken.release().unwrap();
    let held = multi.lock().unwrap();
    assert_eq!(heard(&held.holds()[0]).len(), 1);
    held.release().unwrap();
    assert_eq!(heard(&lock(&rival, "next", NO_DELAY).lock().unwrap()), [], "it was told");
}

#[test]
fn the_delay_ends_with_the_lock_or_its_client() {
    type End = fn(&CuratorFramework, &CuratorFramework);
    type IsExpected = fn(&Error) -> bool;
    let ends: [(End, IsExpected); 2] = [
        (
            |admin, _| admin.delete().for_path(&support::queue(admin, PATH)[0]).unwrap(),
            |error| matches!(error, Error::LockLost { reason: LostReason::NodeDeleted, .. }),
        ),
        (|_, client| client.close(), |error| matches!(error, Error::ClientClosed)),
    ];
    let admin = support::client();
    die(&admin);
    for (end, is_expected) in ends {
        let client = another(&admin);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(&client, "next", 2 * PATIENCE).acquire());
            eventually("it has left its own mark", || marks(&admin, PATH) == 2);
            let begin = Instant::now();
            end(&admin, &client);
            let error = waiting.join().unwrap().unwrap_err();
            assert!(is_expected(&error) && begin.elapsed() < PATIENCE, "{error}");
        });
        eventually("nothing is left in the queue", || support::queue(&admin, PATH).is_empty());
    }
}

#[test]
fn what_a_multi_lock_loses_before_it_has_all_is_no_death() {
    let client = support::client();
    let rival = another(&client);
    let (multi, taken) = (multi(&client, 2 * PATIENCE), other(&rival).lock().unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| multi.lock().map(|held| heard(&held.holds()[0])));
        for _ in 0..2 {
            eventually("it waits for the second member", || support::queue(&client, OTHER).len() == 2);
            let [first] = &support::queue(&client, PATH)[..] else { panic!("one has the first member") };
            client.delete().for_path(first).unwrap();
            eventually("it has the first member again", || {
                let queue = support::queue(&client, PATH);
                queue.len() == 1 && queue[0] != *first && marks(&client, PATH) == 1
            });
        }
        taken.release().unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), []);
    });
    eventually("no mark is left", || marks(&client, PATH) == 0);
}

#[test]
fn a_mere_try_of_several_locks_waits_once_and_tells() {
    let (server, namespace) = (support::server().connect_string(), support::client().namespace().to_owned());
    let client = connect(builder_at(&server, &namespace).connection_timeout(PATIENCE / 20));
    die(&client);
    // The delay is longer than requests may take.
    let held = multi(&client, PATIENCE / 15).try_lock().unwrap().unwrap();
    assert_eq!(heard(&held.holds()[0]).len(), 1);
}

#[test]
fn an_acquire_that_cannot_be_fenced_leaves_the_news_to_the_next() {
    let client = support::client();
    die(&client);
    let margin = client.session_timeout() / 10;
    let refused = AcquireOptions::new().self_fence(margin * 10);
    assert!(matches!(lock(&client, "fenced", NO_DELAY).acquire_with(&refused), Err(Error::InvalidArgument { .. })));
    assert!(matches!(multi(&client, NO_DELAY).acquire_with(&refused), Err(Error::InvalidArgument { .. })));
    // It would end this process at once.
    let refused = AcquireOptions::new().self_fence(margin).hold_at_most(margin / 2);
    assert!(matches!(lock(&client, "fenced", NO_DELAY).acquire_with(&refused), Err(Error::Uncertain { .. })));
    assert!(matches!(multi(&client, NO_DELAY).acquire_with(&refused), Err(Error::Uncertain { .. })));
    let held = lock(&client, "next", NO_DELAY).lock().unwrap();
    assert_eq!(heard(&held).len(), 1);
}

#[test]
fn every_kind_of_lock_tells() {
    type Acquire = fn(&CuratorFramework) -> Vec<String>;
    fn told(hold: &Hold) -> Vec<String> {
        heard(hold).into_iter().map(|(_, data)| data).collect()
    }
    let kinds: [(&str, Acquire); 4] = [
        ("write", |client| {
            let lock = InterProcessReadWriteLock::new(client, "/l").unwrap().with_lock_data("x");
            told(&lock.with_unclean_deaths(NO_DELAY).write_lock().lock().map(keep).unwrap())
        }),
        ("read", |client| {
            let lock = InterProcessReadWriteLock::new(client, "/l").unwrap().with_lock_data("x");
            told(&lock.with_unclean_deaths(NO_DELAY).read_lock().lock().map(keep).unwrap())
        }),
        ("unfair", |client| {
            let lock = InterProcessUnfairMutex::new(client, "/l").unwrap().with_lock_data("x");
            told(&lock.with_unclean_deaths(NO_DELAY).lock().map(keep).unwrap())
        }),
        ("semaphore", |client| {
            let lock = InterProcessSemaphoreMutex::new(client, "/l").unwrap().with_lock_data("x");
            let held = lock.with_unclean_deaths(NO_DELAY).lock().unwrap();
            let hold = Hold::clone(&held);
            std::mem::forget(held);
            told(&hold)
        }),
    ];
    for (kind, acquire) in kinds {
        let client = support::client();
        let mortal = another(&client);
        assert_eq!(acquire(&mortal), [""; 0], "{kind}");
        mortal.close();
        assert_eq!(acquire(&client).len(), 1, "{kind}");
    }
}

/// Cannot say who may read a mark.
struct NoMarks;

impl AclProvider for NoMarks {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        assert!(!path.contains("~holders"), "no marks");
        None
    }
}

#[test]
fn a_lock_whose_mark_makes_the_acl_provider_panic_is_given_back() {
    let client = support::client();
    let broken = connect(support::builder(support::server(), client.namespace()).acl_provider(NoMarks));
    let mutex = lock(&broken, "broken", NO_DELAY);
    assert!(catch_unwind(AssertUnwindSafe(|| mutex.acquire())).is_err());
    assert!(!mutex.is_acquired_in_this_process());
    eventually("nothing is left in the queue", || support::queue(&client, PATH).is_empty());
}

/// Never gives it back.
fn keep(guard: curator_locks::LockGuard) -> Hold {
    let hold = Hold::clone(&guard);
    std::mem::forget(guard);
    hold
}

#[test]
fn a_lock_that_was_not_asked_to_listen_leaves_no_mark() {
    let client = support::client();
    let lock = InterProcessMutex::new(&client, PATH).unwrap();
    let held = lock.lock_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(marks(&client, PATH), 0);
    assert!(held.unclean_deaths().is_empty());
    assert!(client.check_exists().for_path(&format!("{PATH}~holders")).unwrap().is_none());
}

/// What a hold may last counts from the return of the acquire, not over the pause that follows a death.
#[test]
fn a_pause_after_a_death_is_no_part_of_the_hold() {
    let client = support::client();
    let other = another(&client);
    let dead = lock(&client, "dead", NO_DELAY).lock().unwrap();
    support::expire(&client);
    eventually("it is dead", || dead.is_lost());
    let patient = lock(&other, "patient", Duration::from_secs(3600));
    let until = AcquireOptions::new().timeout(PATIENCE / 10).hold_at_least(Duration::from_secs(3600));
    assert!(patient.lock_with(&until).unwrap().is_none(), "the pause is longer than its time");
    let most = 300 * MS;
    let next = lock(&other, "next", most * 2);
    let held =
        next.lock_with(&AcquireOptions::new().timeout(PATIENCE).hold_at_most(most)).unwrap().expect("nobody holds it");
    assert_eq!(heard(&held).len(), 1);
    eventually("it was held for too long", || held.is_lost());
    assert!(matches!(held.release(), Err(Error::LockLost { reason: LostReason::HeldTooLong, .. })));
}
