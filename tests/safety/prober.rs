//! One of the processes: it takes its lock again and again, and says when it believed that it holds it.

use std::{
    env,
    io::BufRead,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, CuratorFramework, Error, HoldState, InterProcessMultiLock, InterProcessMutex,
    InterProcessSemaphoreV2, LeaderLatch, Result, RetryForever,
};

use crate::{
    NAMESPACE, SESSION,
    kinds::{Kind, Lock, Look},
    support::{PATIENCE, builder_at, child::say, history::shared_clock},
};

/// How often a holder looks, and how often it says what it has seen.
const POLL: Duration = Duration::from_millis(2);
const TELLS: Duration = Duration::from_millis(20);

/// One hold of so many is a long one.
const LONG_ONES: u8 = 40;

/// A fenced holder's process is ended so long before its session may be.
const MARGIN: Duration = Duration::from_millis(200);

pub struct Prober {
    random: fastrand::Rng,
    quits: Arc<AtomicBool>,
    /// The session of what it holds.
    session: Box<dyn Fn() -> i64>,
    /// How often it says what it has seen.
    tells: Duration,
}

impl Prober {
    /// Right after an acquire has returned.
    pub fn returned(_: impl Fn() -> Look) {}

    /// Holds the lock for a moment, now and then for a long one. Says from when to when the hold was believed valid.
    pub fn watch(&mut self, look: impl Fn() -> Look) {
        let length = Duration::from_micros(match self.random.u8(..LONG_ONES) {
            0 => self.random.u64(300_000..3_000_000),
            _ => self.random.u64(500..15_000),
        });
        self.watch_for(length, look);
    }

    fn watch_for(&self, length: Duration, look: impl Fn() -> Look) {
        let (returned, session) = (shared_clock(), (self.session)());
        let mut belief: Option<(i64, u64, u64)> = None;
        let mut told = 0;
        let (at, token, valid_until) = loop {
            // The clock comes first: a hold that is valid later was valid then, whatever pause lies in between.
            let (at, seen) = (shared_clock(), look());
            let is_same = belief.is_some_and(|(token, ..)| seen.is_valid && token == seen.token);
            if let (Some((token, from, to)), false) = (belief, is_same) {
                say(&format!("claim {token} {from} {to} {session}"));
                belief = None;
            }
            if seen.is_valid {
                let (token, from, _) = belief.unwrap_or((seen.token, at, at));
                belief = Some((token, from, at));
                if Duration::from_nanos(at.saturating_sub(told)) >= self.tells {
                    say(&format!("claim {token} {from} {at} {session}"));
                    told = at;
                }
            }
            let over = at.saturating_sub(returned) >= length.as_nanos() as u64 || self.quits.load(Relaxed);
            if over {
                // A lost hold has no certain time.
                break (at, seen.token, seen.valid_until.filter(|_| seen.is_valid));
            }
            thread::sleep(POLL.min(length));
        };
        if let Some((token, from, to)) = belief {
            say(&format!("claim {token} {from} {to} {session}"));
        }
        let margin = valid_until.map_or(-1, |until| until.saturating_duration_since(Instant::now()).as_micros() as i64);
        say(&format!("release {token} {returned} {at} {margin}"));
    }
}

pub fn run(arguments: &[String]) {
    let [kind, side, address, path, seed] = arguments else { panic!("{arguments:?}") };
    let seed: u64 = seed.parse().unwrap();
    let client = builder_at(address, NAMESPACE)
        .session_timeout(SESSION)
        // Every second process.
        .quorum_heartbeats(seed.is_multiple_of(2))
        .retry_policy(RetryForever::new(Duration::from_millis(20)))
        .build()
        .unwrap();
    client.start().unwrap();
    let lock: Box<dyn Lock> = match kind.as_str() {
        "none" => Box::new(Nothing),
        "fenced" => Box::new(Fenced(InterProcessMutex::new(&client, path).unwrap())),
        "reentrant" => Box::new(Reentrant(InterProcessMutex::new(&client, path).unwrap())),
        "overlapping" => Box::new(Overlapping(
            [["a", "b"], ["c", "a"], ["b", "c"]]
                .map(|names| InterProcessMultiLock::new(&client, names.map(|name| format!("{path}/{name}"))).unwrap()),
        )),
        "leader" => Box::new(Leader { client: client.clone(), path: path.clone() }),
        "guarded" | "unguarded" => Box::new(Counter {
            mutex: InterProcessMutex::new(&client, path).unwrap(),
            client: client.clone(),
            path: counter(kind),
            is_guarded: kind == "guarded",
        }),
        "two_leases" => Box::new(InterProcessSemaphoreV2::new(&client, path, 2).unwrap()),
        kind => {
            let kind = Kind::named(kind);
            if side == "victim" { (kind.victim)(&client, path) } else { (kind.rival)(&client, path) }
        }
    };
    let (quits, closes) = until_told_to_quit();
    let (random, of) = (fastrand::Rng::with_seed(seed), client.clone());
    let mut prober = Prober { random, quits, session: Box::new(move || of.session_id()), tells: TELLS };
    // A panic in a thread of the client's is the end of this process.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    while !prober.quits.load(Relaxed) {
        say(&format!("session {}", client.session_id()));
        say(&format!("invoke {}", shared_clock()));
        match lock.hold(&mut prober) {
            Ok(()) => say(&format!("done {} ok", shared_clock())),
            Err(error) => say(&format!("done {} {error}", shared_clock())),
        }
        thread::sleep(Duration::from_micros(prober.random.u64(..10_000)));
    }
    drop(lock);
    // While the session lives, nothing but the lock takes its znodes away.
    say("idle");
    closes.recv().unwrap();
    client.close();
    say("bye");
}

/// The command of `zklock run`: it knows nothing of the lock but what its environment says, and believes while it runs.
pub fn run_command(arguments: &[String]) {
    let number = |name: &str| env::var(name).unwrap();
    let session = u64::from_str_radix(number("ZKLOCK_SESSION").trim_start_matches("0x"), 16).unwrap().cast_signed();
    say(&format!("session {session}"));
    let (quits, _closes) = until_told_to_quit();
    let token = number("ZKLOCK_TOKEN").parse().unwrap();
    let mut random = fastrand::Rng::with_seed(arguments[0].parse().unwrap());
    // For most of the time it is held longer than the session of a zklock lasts that stands still.
    let millis = if random.u8(..4) == 0 { random.u64(2_000..5_000) } else { random.u64(1..15) };
    let prober = Prober { random, quits, session: Box::new(move || session), tells: Duration::ZERO };
    let look = || Look { state: String::new(), is_valid: true, token, valid_until: None };
    prober.watch_for(Duration::from_millis(millis), look);
}

/// Whether it is to quit, and when it is to close its client. At the end of its input, the process ends.
fn until_told_to_quit() -> (Arc<AtomicBool>, Receiver<()>) {
    let quits = Arc::<AtomicBool>::default();
    let ((close, closes), told) = (channel(), quits.clone());
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if line == "close" {
                let _ = close.send(());
            } else {
                told.store(true, Relaxed);
            }
        }
        std::process::exit(0);
    });
    (quits, closes)
}

/// A control: whoever wants it has it.
struct Nothing;

impl Lock for Nothing {
    fn hold(&self, prober: &mut Prober) -> Result<()> {
        let token = shared_clock() as i64;
        prober.watch(|| Look { state: String::new(), is_valid: true, token, valid_until: None });
        Ok(())
    }
}

/// A mutex that its holder takes once more, and gives back once more.
struct Reentrant(InterProcessMutex);

impl Lock for Reentrant {
    fn hold(&self, prober: &mut Prober) -> Result<()> {
        let held = self.0.lock()?;
        let again = self.0.lock()?;
        assert_eq!(again.fencing_token(), held.fencing_token());
        again.release()?;
        prober.watch(|| Look::of([&*held]));
        held.release()
    }
}

/// Two of three paths, any two.
struct Overlapping([InterProcessMultiLock; 3]);

impl Lock for Overlapping {
    fn hold(&self, prober: &mut Prober) -> Result<()> {
        let held = self.0[prober.random.usize(..self.0.len())].lock()?;
        prober.watch(|| Look::of(held.holds()));
        held.release()
    }
}

/// A mutex whose holder's process is ended in time.
struct Fenced(InterProcessMutex);

impl Lock for Fenced {
    fn hold(&self, prober: &mut Prober) -> Result<()> {
        let Some(held) = self.0.lock_with(&AcquireOptions::new().self_fence(MARGIN))? else { return Ok(()) };
        prober.watch(|| Look::of([&*held]));
        held.release()
    }
}

/// Where the processes of this kind count.
pub fn counter(kind: &str) -> String {
    format!("/{kind}-counter")
}

/// Adds one to what stood in a znode when it got its mutex, whatever it believes by then.
struct Counter {
    client: CuratorFramework,
    mutex: InterProcessMutex,
    path: String,
    is_guarded: bool,
}

impl Lock for Counter {
    fn hold(&self, prober: &mut Prober) -> Result<()> {
        let held = self.mutex.lock()?;
        let read = String::from_utf8(self.client.get_data().for_path(&self.path)?).unwrap();
        let next = read.parse::<u64>().unwrap() + 1;
        prober.watch(|| Look::of([&*held]));
        say("update begins");
        if self.is_guarded {
            let transaction = held.guard_transaction(self.client.transaction())?;
            transaction.set_data().for_path_and_data(&self.path, next.to_string()).commit()?;
        } else {
            self.client.set_data().for_path_and_data(&self.path, next.to_string())?;
        }
        say(&format!("update {next}"));
        held.release()
    }
}

/// A candidate, anew for each term.
struct Leader {
    client: CuratorFramework,
    path: String,
}

impl Lock for Leader {
    fn hold(&self, prober: &mut Prober) -> Result<()> {
        let latch = LeaderLatch::new(&self.client, &self.path)?;
        latch.start()?;
        let deadline = Instant::now() + PATIENCE;
        while !latch.await_leadership_timeout(Duration::from_millis(200))? {
            if prober.quits.load(Relaxed) {
                return latch.close();
            }
            if Instant::now() > deadline {
                latch.close()?;
                return Err(Error::StillTaken { path: self.path.clone(), ahead: None });
            }
        }
        // Each term has its own hold: a latch whose session was lost queues again, and may lead again.
        prober.watch(|| match latch.leadership() {
            Some(leadership) => {
                let hold = leadership.hold();
                let is_valid = latch.has_leadership() && hold.state() == HoldState::Held;
                Look { is_valid, ..Look::of([hold]) }
            }
            None => Look { state: "[no leader]".into(), is_valid: false, token: 0, valid_until: None },
        });
        latch.close()
    }
}
