//! One of the processes: it wants to lead, and writes down what it believed.

use std::{io::BufRead, thread, time::Duration};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select, unbounded};
use curator_locks::{
    CloseMode, CuratorFramework, FencingToken, LeaderLatch, LeaderLatchListener, LeaderSelector, Leadership,
    RetryForever,
    zookeeper_recipe::{LockListener, WriteLock},
};
use parking_lot::Mutex;

use super::{SESSION, holder::Holder};
use crate::support::{PATIENCE, builder_at, child::say, history::shared_clock};

/// How often it asks.
const POLL: Duration = Duration::from_millis(2);

/// A process that does not run for so long may be told late.
const LATE: Duration = Duration::from_millis(100);

const WITNESSES: usize = 2;

pub trait Candidate {
    /// The token of the term in which it leads right now.
    fn leads(&self) -> Option<i64>;

    /// Gives leadership up, and wants it again, behind all others.
    fn resign(&self);
}

/// What the listener was told, and when.
pub fn told(what: &str) {
    say(&format!("{what} {}", shared_clock()));
}

pub fn run(arguments: &[String]) {
    let [kind, address, path] = arguments else { panic!("{arguments:?}") };
    let client = builder_at(address, "table")
        .session_timeout(SESSION)
        .connection_timeout(SESSION / 2)
        .retry_policy(RetryForever::new(Duration::from_millis(20)))
        .build()
        .unwrap();
    client.start().unwrap();
    assert!(client.block_until_connected(Some(PATIENCE)).unwrap());
    let orders = orders();
    let candidate: Box<dyn Candidate> = match kind.as_str() {
        "latch" => Box::new(Latch::join(&client, path)),
        "selector" => Box::new(Selector::join(&client, path)),
        "write_lock" => Box::new(write_lock(&client, path)),
        kind => Box::new(Holder::join(kind, &client, path).unwrap_or_else(|| panic!("no kind {kind}"))),
    };
    (0..WITNESSES).for_each(|_| drop(thread::spawn(witness)));
    say("ready");
    watch(&*candidate, &orders);
}

/// Says when this process was not run: then its listener cannot have been told in time.
fn witness() {
    loop {
        let begin = shared_clock();
        thread::sleep(POLL);
        let woken = shared_clock();
        if u128::from(woken - begin) > LATE.as_nanos() {
            say(&format!("late {begin} {woken}"));
        }
    }
}

/// Asks all the time whether it leads, and says from when to when.
fn watch(candidate: &dyn Candidate, orders: &Receiver<String>) -> ! {
    let mut belief: Option<(u64, u64, i64)> = None;
    let tell = |(from, to, token): (u64, u64, i64)| {
        if from <= to {
            say(&format!("asked {from} {to} {token}"));
        }
    };
    loop {
        let order = orders.recv_timeout(POLL);
        // The clock comes first: who leads later led then, whatever pause lies in between.
        let (at, token) = (shared_clock(), candidate.leads());
        belief = match (belief, token) {
            (Some((from, _, of)), Some(token)) if of == token => Some((from, at, token)),
            (before, token) => {
                before.into_iter().for_each(tell);
                // Who has led by now did so before this, and until it is asked again nothing else is known.
                token.map(|token| (shared_clock(), at, token))
            }
        };
        match order.as_deref() {
            Ok("resign") => candidate.resign(),
            Ok("finish") => {
                belief.take().into_iter().for_each(tell);
                say("finished");
            }
            Ok(order) => panic!("{order}"),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::process::exit(0),
        }
    }
}

/// Ends the process at the end of its input, whatever it waits for.
fn orders() -> Receiver<String> {
    let (sender, orders) = unbounded();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        std::process::exit(0);
    });
    orders
}

struct Selector {
    selector: LeaderSelector,
    resigns: Sender<()>,
}

impl Selector {
    fn join(client: &CuratorFramework, path: &str) -> Selector {
        let (resigns, resigned) = bounded(1);
        let selector = LeaderSelector::new(client, path, move |_: &CuratorFramework, leadership: &Leadership| {
            let _ = resigned.try_recv();
            told("leads");
            select! {
                recv(leadership.cancelled()) -> _ => {}
                recv(resigned) -> _ => {}
            }
            told("ends");
            Ok(())
        });
        let selector = selector.unwrap();
        selector.auto_requeue();
        selector.start().unwrap();
        Selector { selector, resigns }
    }
}

impl Candidate for Selector {
    fn leads(&self) -> Option<i64> {
        self.selector.leadership().map(|leadership| leadership.fencing_token().value())
    }

    fn resign(&self) {
        let _ = self.resigns.try_send(());
    }
}

struct Latch {
    client: CuratorFramework,
    path: String,
    latch: Mutex<LeaderLatch>,
}

impl Latch {
    fn join(client: &CuratorFramework, path: &str) -> Latch {
        Latch { client: client.clone(), path: path.to_owned(), latch: Mutex::new(latch(client, path)) }
    }
}

fn latch(client: &CuratorFramework, path: &str) -> LeaderLatch {
    let latch = LeaderLatch::new(client, path).unwrap().with_close_mode(CloseMode::NotifyLeader);
    latch.add_listener(Listener);
    latch.start().unwrap();
    latch
}

impl Candidate for Latch {
    fn leads(&self) -> Option<i64> {
        self.latch.lock().leadership().map(|leadership| leadership.fencing_token().value())
    }

    fn resign(&self) {
        let mut current = self.latch.lock();
        // Whatever the server says: the background goes on.
        let _ = current.close();
        *current = latch(&self.client, &self.path);
    }
}

struct Listener;

impl LeaderLatchListener for Listener {
    fn is_leader(&self, _leadership: &Leadership) {
        told("leads");
    }

    fn not_leader(&self) {
        told("ends");
    }
}

impl LockListener for Listener {
    fn lock_acquired(&self) {
        told("leads");
    }

    fn lock_released(&self) {
        told("ends");
    }
}

impl Candidate for WriteLock {
    fn leads(&self) -> Option<i64> {
        self.fencing_token().map(FencingToken::value)
    }

    fn resign(&self) {
        // Whatever the server says: the background goes on.
        let _ = self.unlock();
        queue(self);
    }
}

fn write_lock(client: &CuratorFramework, path: &str) -> WriteLock {
    let lock = WriteLock::with_listener(client, path, Listener).unwrap();
    queue(&lock);
    lock
}

/// The call ends with a session that is lost.
fn queue(lock: &WriteLock) {
    while let Err(error) = lock.lock() {
        assert!(error.is_retryable(), "{error}");
    }
}
