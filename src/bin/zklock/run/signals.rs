//! Signals that go on to the command.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crossbeam_channel::{Receiver, unbounded};
use curator_locks::CancelToken;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::getpgrp,
};
use parking_lot::Mutex;
use signal_hook::{
    consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGUSR1, SIGUSR2},
    iterator,
};

use crate::{
    failure::{Result, cannot},
    voice,
};

pub(super) const NOT_SUSPENDED: &str = "a command that holds a lock cannot be suspended";

const FORWARDED: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT];

/// The C library's own.
const INTERNAL: [i32; 2] = [32, 33];

/// Whoever sends these wants an end.
const TELL_TO_END: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// The signals that this process gets, from the first moment on.
pub(crate) struct Signals {
    receiver: Receiver<i32>,
    handle: iterator::Handle,
    heard: Arc<Heard>,
    ignores_internal: bool,
}

/// The thread that gets the signals leaves these for the others.
#[derive(Default)]
struct Heard {
    /// Cancelled once one has come that would end a program.
    ending: Mutex<CancelToken>,
    /// Whether somebody wants an end: unlike USR1 and USR2, these signals have no other sense.
    is_told_to_end: AtomicBool,
}

impl Signals {
    pub(crate) fn catch() -> Result<Signals> {
        let ignored = ignored();
        // The first thread changes that.
        let ignores_internal = INTERNAL.iter().all(|signal| ignored & bit(*signal) != 0);
        if ignored & bit(SIGCHLD) != 0 {
            // Otherwise the kernel would not tell how the command ends.
            signal_hook::flag::register(SIGCHLD, Arc::default()).map_err(cannot("catch signals"))?;
        }
        // Under nohup the command, too, is to ignore HUP, which it inherits only from one that ignores it.
        let caught = FORWARDED.into_iter().filter(|signal| ignored & bit(*signal) == 0);
        let mut signals = iterator::Signals::new(caught).map_err(cannot("catch signals"))?;
        let ((sender, receiver), handle, heard) = (unbounded(), signals.handle(), Arc::new(Heard::default()));
        let of_thread = Arc::clone(&heard);
        let pass_on = move || {
            for signal in signals.forever() {
                if signal == SIGTSTP {
                    voice::say(NOT_SUSPENDED);
                    // Nor is the rest of its job, which waits for it. All of them have got the signal.
                    let _ = killpg(getpgrp(), Signal::SIGCONT);
                } else {
                    of_thread.is_told_to_end.fetch_or(TELL_TO_END.contains(&signal), Ordering::SeqCst);
                    // The receiver may be gone at the end of the program.
                    let _ = sender.send(signal);
                    // After the send, so that the thread whose wait this ends finds the signal.
                    if ends(signal) {
                        let ending = of_thread.ending.lock().clone();
                        ending.cancel();
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("signals".into()).spawn(pass_on);
        thread.map_err(cannot("start a thread"))?;
        Ok(Signals { receiver, handle, heard, ignores_internal })
    }

    /// From here on neither Ctrl-Z nor a neighbour that reads the terminal stops this process, which would stop the
    /// heartbeats of a lock that a command works under. The command does not inherit it.
    pub(crate) fn ignore_stops(&self) -> Result<()> {
        let ignored = ignored();
        let may_stop = |signal: i32| ignored & bit(signal) == 0;
        let told = if may_stop(SIGTSTP) { self.handle.add_signal(SIGTSTP) } else { Ok(()) };
        let unheard = may_stop(SIGTTIN).then(|| signal_hook::flag::register(SIGTTIN, Arc::default())).transpose();
        told.and(unheard.map(drop)).map_err(cannot("catch signals"))
    }

    /// Whether this process was started to ignore the signals that are the C library's own.
    pub(crate) fn ignores_internal(&self) -> bool {
        self.ignores_internal
    }

    /// Cancelled once one has come that would end a program, since the last [`begin_anew`](Signals::begin_anew).
    pub(crate) fn ending(&self) -> CancelToken {
        self.heard.ending.lock().clone()
    }

    /// Forgets the signals that were for a command that has ended. Whether none of them wanted an end of it all: one that comes
    /// just now either is seen here, or cancels the next wait.
    pub(crate) fn begin_anew(&self) -> bool {
        *self.heard.ending.lock() = CancelToken::new();
        self.receiver.try_iter().for_each(drop);
        !self.heard.is_told_to_end.load(Ordering::SeqCst)
    }

    pub(crate) fn receiver(&self) -> &Receiver<i32> {
        &self.receiver
    }

    /// The first one so far that would end a program; those before it are passed over.
    pub(crate) fn take_ending(&self) -> Option<i32> {
        self.receiver.try_iter().find(|signal| ends(*signal))
    }
}

/// Whether the signal ends a program that does not handle it.
pub(crate) fn ends(signal: i32) -> bool {
    signal != SIGCONT
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signals that this process was started to ignore, a bit for each.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
