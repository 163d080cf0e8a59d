//! Acquires of every kind that are cancelled at any step: while they make the directory, create, list, watch, wait, or
//! get no answer at all.
//!
//! `CANCELS` is their number for each kind:
//!
//! ```text
//! CANCELS=1250 cargo test --all-features --test holds cancelled -- --nocapture
//! ```

use std::{
    env,
    ops::Range,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, Caching, CancelToken, CuratorFramework, Error, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, InterProcessUnfairMutex, Result,
    testing::{Direction, FaultProxy},
};

use crate::{
    MS, behind_proxy_for,
    support::{
        SESSION, another, children, eventually,
        machine::{Machine, ProcessorWaits, since},
    },
};

/// How long after the cancel every call has returned, beside what the machine is late by.
const LIMIT: Duration = Duration::from_millis(50);
const PATH: &str = "/locks/c";

/// Acquires the lock and gives it back; whether it got it.
type Attempt = Box<dyn Fn(&AcquireOptions) -> Result<bool> + Sync>;
type Kind = (&'static str, fn(&CuratorFramework) -> Attempt);

macro_rules! kinds {
    ($($name:literal: |$client:ident| $lock:expr, |$of:ident, $options:ident| $acquire:expr;)*) => {
        [$(($name, |$client| {
            let $of = $lock;
            Box::new(move |$options| Ok($acquire?.map(drop).is_some()))
        })),*]
    };
}

const KINDS: [Kind; 8] = kinds! {
    "mutex": |client| InterProcessMutex::new(client, PATH).unwrap(), |lock, options| lock.lock_with(options);
    "cached_mutex": |client| InterProcessMutex::new(client, PATH).unwrap().with_caching(Caching::new()),
        |lock, options| lock.lock_with(options);
    "read": |client| InterProcessReadWriteLock::new(client, PATH).unwrap().read_lock().clone(),
        |lock, options| lock.lock_with(options);
    "write": |client| InterProcessReadWriteLock::new(client, PATH).unwrap().write_lock().clone(),
        |lock, options| lock.lock_with(options);
    "semaphore_mutex": |client| InterProcessSemaphoreMutex::new(client, PATH).unwrap(),
        |lock, options| lock.lock_with(options);
    "leases": |client| InterProcessSemaphoreV2::new(client, PATH, 2).unwrap(),
        |semaphore, options| semaphore.acquire_with(2, options);
    "unfair": |client| InterProcessUnfairMutex::new(client, PATH).unwrap(), |lock, options| lock.lock_with(options);
    "multi": |client| InterProcessMultiLock::new(client, ["/locks/c/a", "/locks/c/b"]).unwrap(),
        |lock, options| lock.lock_with(options);
};

/// Holds the lock against one of this kind until it is dropped.
fn hold(kind: &str, client: &CuratorFramework) -> Box<dyn std::any::Any> {
    match kind {
        "read" | "write" => {
            Box::new(InterProcessReadWriteLock::new(client, PATH).unwrap().write_lock().lock().unwrap())
        }
        "semaphore_mutex" | "leases" => {
            Box::new(InterProcessSemaphoreMutex::new(client, PATH).unwrap().lock().unwrap())
        }
        "unfair" => Box::new(InterProcessUnfairMutex::new(client, PATH).unwrap().lock().unwrap()),
        // The last of several, so that the first is given back.
        "multi" => Box::new(InterProcessMutex::new(client, "/locks/c/b").unwrap().lock().unwrap()),
        _ => Box::new(InterProcessMutex::new(client, PATH).unwrap().lock().unwrap()),
    }
}

/// What stands below a path, whatever it is, directories of locks aside.
fn leftovers(client: &CuratorFramework, path: &str) -> Vec<String> {
    let below = children(client, path).into_iter().map(|name| format!("{path}/{name}"));
    below
        .flat_map(|path| {
            let is_ephemeral =
                client.check_exists().for_path(&path).unwrap().is_some_and(|stat| stat.ephemeral_owner != 0);
            if is_ephemeral { vec![path] } else { leftovers(client, &path) }
        })
        .collect()
}

struct Cancelled {
    /// From the cancel to the return.
    took: Range<Instant>,
    /// How long the calling thread and the one that cancels were kept waiting for a processor in that time. A wait that the cancel
    /// came into counts as a whole.
    kept_waiting: Duration,
}

/// Cancels one acquire after a while. `None`: it was over before.
fn cancel_one(attempt: &Attempt, delay: Duration) -> Option<Cancelled> {
    let token = CancelToken::new();
    let options = AcquireOptions::new().cancel_token(&token);
    let waits = OnceLock::new();
    thread::scope(|scope| {
        let acquiring = scope.spawn(|| {
            let own = waits.get_or_init(ProcessorWaits::of_this_thread);
            (attempt(&options), Instant::now(), own.total().unwrap_or_default())
        });
        thread::sleep(delay);
        let before = waits.get().and_then(ProcessorWaits::total).unwrap_or_default();
        let canceller = ProcessorWaits::of_this_thread();
        let own = || canceller.total().unwrap_or_default();
        let (own_before, begin) = (own(), Instant::now());
        token.cancel();
        let own = own().saturating_sub(own_before);
        let (result, returned, waited) = acquiring.join().unwrap();
        match result {
            Ok(true) => None,
            Err(Error::Cancelled { .. }) => {
                Some(Cancelled { took: begin..returned.max(begin), kept_waiting: own + waited.saturating_sub(before) })
            }
            other => panic!("{other:?}"),
        }
    })
}

/// How many of them returned late.
fn of_kind((kind, attempt): Kind, count: usize, machine: &Machine) -> usize {
    // A session that no silence here ends.
    let (proxy, client): (FaultProxy, CuratorFramework) = behind_proxy_for(SESSION);
    let observer = another(&client);
    let attempt = attempt(&client);
    let (mut span, mut slowest, mut cancelled, mut granted) = (2 * MS, Duration::ZERO, 0, 0);
    let mut late = Vec::new();
    while cancelled < count {
        let round = cancelled + granted;
        let held = (round % 3 == 1).then(|| hold(kind, &observer));
        if round % 3 == 2 {
            proxy.black_hole(Direction::ToClient);
        }
        let delay = span.mul_f64(fastrand::f64());
        let outcome = cancel_one(&attempt, delay);
        if round % 3 == 2 {
            proxy.pass().unwrap();
        }
        drop(held);
        // Moves so that a cancel comes at any step, and seldom too late.
        let factor = if outcome.is_none() { 0.8 } else { 1.1 };
        span = span.mul_f64(factor).clamp(MS / 5, 20 * MS);
        let Some(Cancelled { took, kept_waiting }) = outcome else {
            granted += 1;
            continue;
        };
        cancelled += 1;
        let lateness = machine.lateness(&took).max(kept_waiting);
        let over = (took.end - took.start).saturating_sub(lateness);
        slowest = slowest.max(over);
        if over > LIMIT {
            let scene = ["free", "held", "silent"][round % 3];
            late.push(format!(
                "{scene}, cancelled after {delay:?}: {:?}, {over:?} of it not the machine's",
                took.end - took.start
            ));
        }
    }
    drop(attempt);
    client.sync().for_path("/").unwrap();
    let begin = Instant::now();
    eventually("nothing is left", || leftovers(&observer, "/locks").is_empty());
    println!(
        "{kind}: {cancelled} cancelled beside {granted} grants, the slowest returned {slowest:?} after the cancel beside \
         what the machine was late by; nothing left {:?} later",
        since(begin).end - begin
    );
    println!("{kind}: later than {LIMIT:?}: {late:#?}");
    late.len()
}

#[test]
fn an_acquire_that_is_cancelled_at_any_step_returns_at_once_and_leaves_nothing() {
    let count = env::var("CANCELS").map_or(30, |count| count.parse().unwrap());
    let machine = Machine::watch();
    // One after the other: side by side they would be late by each other.
    let late: usize = KINDS.map(|kind| of_kind(kind, count, &machine)).iter().sum();
    assert_eq!(late, 0, "of {} cancelled acquires returned later than {LIMIT:?}", KINDS.len() * count);
}
