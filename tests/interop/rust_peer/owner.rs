//! The thread to which the locks of the process belong.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::Receiver;
use curator_locks::{CuratorFramework, Error, HoldState, InterProcessMutex, Result, Revoker, Stat};

use super::locks::{CACHED, Held, Known, Locks};
use crate::support::{PATIENCE, child, history::shared_clock};

pub(super) struct Owner {
    client: CuratorFramework,
    locks: Locks,
    held: Vec<Box<dyn Held>>,
    is_stopped: Arc<AtomicBool>,
}

impl Owner {
    pub(super) fn new(client: CuratorFramework, is_stopped: Arc<AtomicBool>) -> Owner {
        Owner { locks: Locks::new(client.clone()), client, held: Vec::new(), is_stopped }
    }

    pub(super) fn obey(&mut self, words: &[&str]) -> Result<()> {
        match words {
            ["acquire", kind, path, timeout] => self.acquire(kind, path, timeout.parse().unwrap()),
            ["release"] => {
                self.release();
                Ok(())
            }
            ["hammer", kind, path, rounds] => {
                self.hammer(kind, path, rounds.parse().unwrap());
                Ok(())
            }
            ["count-hammer", path, rounds] => self.count_hammer(path, rounds.parse().unwrap()),
            ["revoke-all", path] => self.ask_all(path, Revoker::attempt_revoke),
            ["request-all", path] => {
                self.ask_all(path, |client, node| Revoker::request(client, node, "the operator", "maintenance"))
            }
            other => panic!("{other:?}"),
        }
    }

    /// A negative timeout is for ever.
    fn acquire(&mut self, kind: &str, path: &str, timeout: i64) -> Result<()> {
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        let held = self.locks.attempt(kind, path, timeout)?;
        let at = shared_clock();
        let Some(held) = held else {
            child::say(&format!("timeout {at}"));
            return Ok(());
        };
        for hold in held.holds() {
            // A release is its own answer.
            hold.on_state_change(|state| match state {
                HoldState::Released => {}
                state => child::say(&format!("state {} {state:?}", shared_clock())),
            });
        }
        held.announce_loss(true);
        child::say(&format!("acquired {at} {}", self.describe(&held.known()[0])));
        self.held.push(held);
        Ok(())
    }

    fn release(&mut self) {
        let held = self.held.pop().unwrap();
        let (at, until) = (shared_clock(), valid_until(&*held));
        held.announce_loss(false);
        match held.release() {
            Ok(()) => child::say(&format!("released {at}")),
            Err(error) if is_loss(&error) => child::say(&format!("lost {at} {until}")),
            Err(error) => child::say(&format!("error {error:?}")),
        }
    }

    /// `NODE TOKEN OWNER SESSION`
    fn describe(&self, known: &Known) -> String {
        let mut stat = Stat::default();
        let session = self.client.session_id();
        // It is gone if the session was lost meanwhile.
        let found = self.client.get_data().storing_stat_in(&mut stat).for_path(&known.path);
        let owner = found.map_or(0, |_| stat.ephemeral_owner);
        format!("{} {} {owner} {session}", known.path, known.token)
    }

    /// So many times, or until told to stop: acquire, look at the own znodes, release. Cached locks are for threads that
    /// share them.
    fn hammer(&self, kind: &str, path: &str, rounds: usize) {
        // A request to give a lock back reaches one listener of a lock object.
        let threads = if kind.starts_with(CACHED) && !kind.ends_with("revocable") { 2 } else { 1 };
        let failures: usize = thread::scope(|scope| {
            let hammers = |_| {
                let (client, locks, is_stopped) = (self.client.clone(), self.locks.clone(), self.is_stopped.clone());
                scope.spawn(move || {
                    let mut owner = Owner { client, locks, held: Vec::new(), is_stopped };
                    owner.hammer_alone(kind, path, rounds / threads)
                })
            };
            let threads: Vec<_> = (0..threads).map(hammers).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        child::say(&format!("done {failures}"));
    }

    /// How often it failed.
    fn hammer_alone(&mut self, kind: &str, path: &str, rounds: usize) -> usize {
        let mut failures = 0;
        let mut done = 0;
        while done < rounds && !self.is_stopped() {
            match self.once(kind, path) {
                Ok(()) => done += 1,
                Err(error) => {
                    eprintln!("hammer: {error:?}");
                    failures += 1;
                }
            }
        }
        failures
    }

    fn once(&mut self, kind: &str, path: &str) -> Result<()> {
        let asked = kind.ends_with("revocable").then(|| self.make_revocable(kind, path)).transpose()?;
        let takes_two = kind.starts_with("semaphore:") && kind != "semaphore:1" && fastrand::u8(..4) == 0;
        let held =
            if takes_two { self.locks.attempt_two(kind, path)? } else { self.locks.attempt(kind, path, None)? };
        let held = held.expect("there is no timeout");
        let from = shared_clock();
        let lines = self.lines(&*held);
        if let Some(asked) = asked {
            let at = asked.recv_timeout(PATIENCE).expect("nobody asks for the lock");
            child::say(&format!("told {at} {}", lines[0]));
        }
        let next = if kind.ends_with("rw") && fastrand::bool() { held.downgrade()? } else { None };
        let to = end(held, from, &lines)?;
        if let Some(reading) = next {
            let lines = self.lines(&*reading);
            end(reading, to, &lines)?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    fn lines(&self, held: &dyn Held) -> Vec<String> {
        held.known().iter().map(|known| self.describe(known)).collect()
    }

    fn make_revocable(&mut self, kind: &str, path: &str) -> Result<Receiver<u64>> {
        let (sender, asked) = crossbeam_channel::unbounded();
        self.locks.mutex(kind, path)?.make_revocable(move |_: &InterProcessMutex| {
            // Nobody listens any more when the lock has been given back.
            let _ = sender.send(shared_clock());
        });
        Ok(asked)
    }

    /// Asks whoever is first for the lock, until told to stop.
    fn ask_all(&mut self, path: &str, ask: fn(&CuratorFramework, &str) -> Result<()>) -> Result<()> {
        let mutex = self.locks.mutex("mutex", path)?;
        let mut last = String::new();
        while !self.is_stopped() {
            let nodes = mutex.participant_nodes()?;
            let Some(first) = nodes.first() else { continue };
            let at = shared_clock();
            if *first != last {
                child::say(&format!("asked {at} {first}"));
                last.clone_from(first);
            }
            // Again and again: Curator loses a request that comes before its watch.
            ask(&self.client, first)?;
        }
        child::say("stopped");
        Ok(())
    }

    /// So many times, or until told to stop: one more than it was.
    fn count_hammer(&mut self, path: &str, rounds: usize) -> Result<()> {
        let count = self.locks.count(path)?;
        let mut done = 0;
        while done < rounds && !self.is_stopped() {
            let before = count.versioned_value();
            let from = shared_clock();
            match count.try_set_count(before, before.value() + 1) {
                Ok(false) => {}
                // Nobody knows whether it was written.
                Err(Error::ConnectionLoss { .. }) => done += 1,
                written => {
                    written?;
                    child::say(&format!("counted {from} {} {}", shared_clock(), before.value() + 1));
                    done += 1;
                }
            }
        }
        child::say("done 0");
        Ok(())
    }
}

/// Releases, says what was held, and gives when it ended.
fn end(held: Box<dyn Held>, from: u64, lines: &[String]) -> Result<u64> {
    let (mode, to, until) = (held.mode(), shared_clock(), valid_until(&*held));
    let released = held.release();
    let lost = released.as_ref().is_err_and(is_loss);
    for line in lines {
        child::say(&format!("hold {mode} {from} {to} {line} {until} {}", u8::from(lost)));
    }
    // That it was lost is an outcome, and part of the history.
    if lost { Ok(to) } else { released.map(|()| to) }
}

/// A multi lock loses all its locks at once.
fn is_loss(error: &Error) -> bool {
    match error {
        Error::Several { first, others } => is_loss(first) && others.iter().all(is_loss),
        error => matches!(error, Error::LockLost { .. }),
    }
}

/// On the shared clock.
fn valid_until(held: &dyn Held) -> u64 {
    let (now, shared_now) = (Instant::now(), shared_clock());
    let Some(until) = held.valid_until() else { return shared_now };
    let ahead = until.saturating_duration_since(now).as_nanos();
    let behind = now.saturating_duration_since(until).as_nanos();
    (u128::from(shared_now) + ahead).saturating_sub(behind) as u64
}
