//! A lock, and the processes that have to end before somebody else may have it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, after, never, unbounded};
use curator_locks::{CuratorFramework, Hold, HoldState, SelfFence};
use nix::sys::signal::Signal;

use super::{
    clock::{self, Limits},
    family::{Family, Head},
    hold::Held,
    signals::{Signals, ends},
    watchdog::Watchdog,
};
use crate::{
    failure::{Failure, LOST, Result, cannot},
    voice,
};

/// How often it looks whether the heartbeats have moved the end of the lock on, and whether the processes that the
/// command has left behind have ended.
const LOOKS: u32 = 40;
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

pub(super) struct Guard {
    holds: Arc<[Hold]>,
    watchdog: Watchdog,
    pub(super) family: Family,
    fences: Vec<SelfFence>,
    limits: Limits,
    /// The pause between two looks.
    pause: Duration,
    /// The time of the next look.
    pub(super) looks: Receiver<Instant>,
    /// Each change of a lock's state.
    pub(super) changes: Receiver<HoldState>,
    /// A message each time that the watchdog ends the family; closed once it is gone.
    pub(super) words: Receiver<()>,
    /// Whether the family was ended because the lock was lost or about to be lost.
    pub(super) was_ended: bool,
    /// Whether the family was ended because its watchdog was gone.
    pub(super) has_failed: bool,
}

fn lost() -> Failure {
    Failure { status: LOST, text: "the lock was lost before anything could run under it".to_owned() }
}

impl Guard {
    /// Starts the watchdog. The family has no head yet.
    pub(super) fn begin(client: &CuratorFramework, held: &Held, signals: &Signals, family: Family) -> Result<Guard> {
        let holds: Arc<[Hold]> = held.holds().into_iter().cloned().collect();
        let timeout = client.session_timeout();
        let (limits, pause) = (Limits::of(timeout), (timeout / LOOKS).min(LONGEST_PAUSE));
        signals.ignore_stops()?;
        // If the machine has slept while the lock was awaited, only a later heartbeat tells for how long it is held.
        while valid_until(&holds).ok_or_else(lost)? <= clock::now() + limits.term {
            if let Some(signal) = signals.receiver().recv_timeout(timeout / LOOKS).ok().filter(|signal| ends(*signal)) {
                return Err(Failure::ended_by(signal));
            }
        }
        let (sender, changes) = unbounded();
        for hold in &*holds {
            let sender = sender.clone();
            // The command may have ended.
            hold.on_state_change(move |state| {
                let _ = sender.send(state);
            });
        }
        let mut watchdog = Watchdog::start(timeout, family.mark()).map_err(cannot("start the watchdog"))?;
        let fences = held.self_fence();
        if !fences.is_empty() {
            watchdog.parent_is_fenced();
        }
        Ok(Guard {
            holds,
            words: watchdog.words().clone(),
            watchdog,
            family,
            fences,
            limits,
            pause,
            looks: after(pause),
            changes,
            was_ended: false,
            has_failed: false,
        })
    }

    /// Until when the family may be started: it gets KILL then.
    pub(super) fn allow(&mut self) -> Result<Duration> {
        let until = valid_until(&self.holds).ok_or_else(lost)?;
        self.watchdog.allow_until(until);
        Ok(until.saturating_sub(self.limits.kill))
    }

    /// The family runs from here on.
    pub(super) fn watch(&mut self, head: Head) {
        let holds = self.holds.clone();
        self.watchdog.watch(&head, (self.pause, self.limits), move || valid_until(&holds));
        self.family.set_head(head);
    }

    /// Whether the lock is held, and for how long.
    pub(super) fn look(&mut self) {
        let until = valid_until(&self.holds);
        // Before the watchdog kills it.
        let had_ended = until.is_none() && self.family.has_ended();
        match until {
            Some(_) => self.watchdog.look(),
            None => self.watchdog.end_now(),
        }
        let left = until.map(|until| until.saturating_sub(clock::now()));
        if left.is_some_and(|left| left > self.limits.prepare) {
            self.family.relax();
        } else {
            self.family.prepare();
        }
        let before = left.unwrap_or_default().saturating_sub(self.limits.kill);
        // A whole pause may be half of the time that is left then.
        self.looks = after(if before.is_zero() { self.pause } else { before.min(self.pause) });
        // The watchdog does it too, unless it was stopped; its word has come with TERM.
        if before.is_zero() {
            let has_ended = if until.is_none() { had_ended } else { self.family.has_ended() };
            if let (false, false, Some(what)) = (has_ended, self.was_ended, self.family.what()) {
                voice::say(format_args!("the lock is lost: {what} is killed"));
            }
            self.was_ended |= !has_ended;
            self.family.signal(Signal::SIGKILL);
            // Nothing is left that this process would have to die for.
            self.fences.clear();
        }
    }

    /// Whether what is done now is done under the lock.
    pub(super) fn is_covered(&self) -> bool {
        valid_until(&self.holds).is_some_and(|until| until > clock::now())
    }

    /// The watchdog has ended the family, or is gone itself. Returns whether it is time to look.
    pub(super) fn heard(&mut self, is_word: bool) -> bool {
        if is_word {
            self.was_ended = true;
            return true;
        }
        self.words = never();
        // Nothing else would end the family in time if this process stops.
        if !self.was_ended && !self.family.has_ended() {
            self.has_failed = true;
            voice::say(format_args!("the watchdog is gone: {} is killed", self.what()));
        }
        self.family.signal(Signal::SIGKILL);
        false
    }

    fn what(&self) -> &'static str {
        self.family.what().unwrap_or("what runs under the lock")
    }

    pub(super) fn asked_back(&mut self, request: &str) {
        voice::say(format_args!("{request}: {} gets TERM", self.what()));
        self.signal(Signal::SIGTERM);
    }

    /// Passes it on to the whole family, which it searches for.
    pub(super) fn signal(&mut self, signal: Signal) {
        self.watchdog.look();
        self.family.signal(signal);
    }

    /// Whether nothing of the family lives. That takes a search, during which nothing else is looked at.
    pub(super) fn is_gone(&mut self) -> bool {
        self.watchdog.look();
        self.family.is_gone()
    }

    /// The head of the family has ended. Says what else keeps the lock.
    pub(super) fn name_rest(&mut self) {
        self.watchdog.look();
        let left = self.family.names();
        if !left.is_empty() && !self.was_ended {
            let what = self.what();
            voice::say(format_args!(
                "{what} has ended, but keeps the lock by what it has started: {}",
                left.join(", ")
            ));
        }
    }

    /// Whether the family was ended because the lock was lost or about to be lost. From here on nobody ends it.
    pub(super) fn finish(self) -> bool {
        drop(self.fences);
        self.watchdog.finish() || self.was_ended
    }
}

/// The end of the lock by the watchdog's clock: it is held as long as each of its parts is. `None`: it is lost.
fn valid_until(holds: &[Hold]) -> Option<Duration> {
    // Read first: after a pause or a sleep in between the end comes early, and never late.
    let (now, instant) = (clock::now(), Instant::now());
    let is_lost = holds.iter().any(Hold::is_lost);
    let left = holds.iter().map(|hold| hold.valid_until().saturating_duration_since(instant)).min();
    left.filter(|_| !is_lost).map(|left| now + left)
}
