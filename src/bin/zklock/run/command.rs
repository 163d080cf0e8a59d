//! The command, from its start to its end.

use std::{thread, time::Duration};

use crossbeam_channel::{Receiver, Sender, never, select, tick, unbounded};
use curator_locks::{CuratorFramework, HoldState};
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use super::{
    child,
    hold::Held,
    signals::Signals,
    terminal::Terminal,
    watchdog::{Watchdog, Word},
};
use crate::{
    args::Run,
    failure::{FAILED, LOST, Result, cannot},
};

/// How often it is looked whether the heartbeats have moved the end of the lock on.
const LOOKS: u32 = 40;
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Runs the command while the lock is held, and gives the exit status.
pub(super) fn supervise(
    client: &CuratorFramework,
    held: &Held<'_>,
    asked: &Receiver<()>,
    args: &Run,
    signals: &Signals,
) -> Result<u8> {
    let timeout = client.session_timeout();
    let (sender, changes) = unbounded();
    for hold in held.holds() {
        let sender = sender.clone();
        // The command may have ended.
        hold.on_state_change(move |state| {
            let _ = sender.send(state);
        });
    }
    let mut watchdog = Watchdog::start(timeout).map_err(cannot("start the watchdog"))?;
    let group = Pid::from_raw(watchdog.group());
    allow(&mut watchdog, held);
    let mut terminal = Terminal::new(watchdog.group());
    terminal.hand_over();
    let started = child::start(watchdog.group(), &args.command, &variables(client, held));
    let started = started.map_err(cannot("start the command"))?;
    let ends = await_changes(Pid::from_raw(i32::try_from(started.id()).unwrap_or(i32::MAX)))?;
    let looks = tick((timeout / LOOKS).min(LONGEST_PAUSE));
    let (mut words, mut was_ended) = (watchdog.words().clone(), false);
    let status = loop {
        select! {
            recv(ends) -> change => match change {
                Ok(WaitStatus::Exited(_, status)) => break u8::try_from(status).unwrap_or(FAILED),
                Ok(WaitStatus::Signaled(_, signal, _)) => break u8::try_from(128 + signal as i32).unwrap_or(FAILED),
                Ok(WaitStatus::Stopped(_, signal)) => stopped(signal, group, &terminal),
                Ok(_) => {}
                Err(_) => break FAILED,
            },
            recv(looks) -> _ => allow(&mut watchdog, held),
            recv(changes) -> state => match state {
                Ok(HoldState::Lost(_)) => watchdog.end_now(),
                _ => allow(&mut watchdog, held),
            },
            recv(asked) -> request => if request.is_ok() {
                anstream::eprintln!("zklock: somebody asks for the lock: the command gets TERM");
                pass_on(group, Signal::SIGTERM);
            },
            recv(signals.receiver()) -> signal => if let Some(signal) = signal.ok().and_then(|signal| Signal::try_from(signal).ok()) {
                if signal == Signal::SIGCONT {
                    terminal.hand_over();
                }
                pass_on(group, signal);
            },
            recv(words) -> word => if matches!(word, Ok(Word::Ends)) {
                was_ended = true;
            } else {
                // Nobody else would end the command in time; where the watchdog has killed it, this changes nothing.
                words = never();
                pass_on(group, Signal::SIGKILL);
            },
        }
    };
    drop(terminal);
    // Before the lock is given back; a command that ends by itself in time has not been ended.
    let was_ended = watchdog.finish() || was_ended || held.holds().iter().any(|hold| hold.is_lost());
    Ok(if was_ended { LOST } else { status })
}

/// The lock is held as long as each of its parts is.
fn allow(watchdog: &mut Watchdog, held: &Held<'_>) {
    let holds = held.holds();
    if holds.iter().any(|hold| hold.is_lost()) {
        watchdog.end_now();
    } else if let Some(until) = holds.iter().map(|hold| hold.valid_until()).min() {
        watchdog.allow_until(until);
    }
}

fn variables(client: &CuratorFramework, held: &Held<'_>) -> [(&'static str, String); 4] {
    let holds = held.holds();
    let lines =
        |line: fn(&curator_locks::Hold) -> String| holds.iter().map(|hold| line(hold)).collect::<Vec<_>>().join("\n");
    [
        ("ZKLOCK_PATH", lines(|hold| directory_of(hold.path()).to_owned())),
        ("ZKLOCK_NODE", lines(|hold| hold.path().to_owned())),
        ("ZKLOCK_TOKEN", lines(|hold| hold.fencing_token().to_string())),
        ("ZKLOCK_SESSION", format!("{:#x}", client.session_id())),
    ]
}

/// The lock's path; a semaphore's leases have a directory of their own.
fn directory_of(node: &str) -> &str {
    let directory = node.rsplit_once('/').map_or(node, |(directory, _)| directory);
    directory.strip_suffix("/leases").unwrap_or(directory)
}

/// Its end, and each time it is stopped.
fn await_changes(command: Pid) -> Result<Receiver<WaitStatus>> {
    let (sender, changes): (Sender<WaitStatus>, _) = unbounded();
    let wait = move || {
        loop {
            match waitpid(command, Some(WaitPidFlag::WUNTRACED)) {
                Err(Errno::EINTR) => {}
                Err(_) => return,
                Ok(status) => {
                    let is_end = matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
                    if sender.send(status).is_err() || is_end {
                        return;
                    }
                }
            }
        }
    };
    thread::Builder::new().name("command".into()).spawn(wait).map_err(cannot("start a thread"))?;
    Ok(changes)
}

/// A command that was stopped at the terminal keeps the lock, and its user would face a terminal that nobody reads: it goes
/// on. Who stops it with SIGSTOP knows how to let it go on.
fn stopped(signal: Signal, group: Pid, terminal: &Terminal) {
    if terminal.is_handed_over() && signal != Signal::SIGSTOP {
        anstream::eprintln!("zklock: a command that holds a lock cannot be suspended");
        pass_on(group, Signal::SIGCONT);
    }
}

fn pass_on(group: Pid, signal: Signal) {
    // The group is there as long as the watchdog is not waited for.
    let _ = killpg(group, signal);
}
