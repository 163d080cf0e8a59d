//! `zklock lock` and `zklock unlock`: the lock of a script.
//!
//! `zklock lock` starts the process that keeps the lock, prints what that says for the script's shell, and ends. The keeper outlives
//! it, in a process group of its own, and ends with the script.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::Stdio,
    thread,
};

use crossbeam_channel::{Receiver, never, select, unbounded};
use curator_locks::{AcquireOptions, CancelToken};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
    unistd::{Pid, getpid, getsid},
};

use super::{
    Job,
    child::{remove_marks, this_program},
    command::variables,
    family::{self, Family, Head, KEEPER, OUTER, SESSION},
    guard::Guard,
    hold::Held,
    process::{Process, Script},
    signals::{Signals, ends},
    who_of, with_locks,
};
use crate::{
    args::{Connection, Lock, Unlock},
    failure::{FAILED, Failure, Result, cannot},
    show,
};

/// The first argument that means: keep the lock of a script.
pub(crate) const KEEP: &str = "__keep";

/// What the keeper says last of the lock, and what it hears then.
const READY: &str = "ready ";
const TAKEN: &str = "taken";

/// To the keeper: which descriptor the script has free.
const DESCRIPTOR: &str = "ZKLOCK_DESCRIPTOR";

/// What ends the lock: another signal means that the script has to end.
const UNLOCK: Signal = Signal::SIGUSR1;

pub(crate) fn lock(connection: &Connection, args: &Lock) -> Result<u8> {
    if env::args_os().nth(1).is_some_and(|first| first == KEEP) {
        return keep(connection, args);
    }
    // It outlives this process, and not the script.
    let mut command = this_program();
    command.arg(KEEP).args(env::args_os().skip(1)).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    command
        .env(OUTER, env::var_os(SESSION).unwrap_or_default())
        .env(DESCRIPTOR, free_descriptor(args.script)?.to_string());
    remove_marks(&mut command);
    let mut keeper = command.spawn().map_err(cannot("start the process that keeps the lock"))?;
    let mut text = String::new();
    let output = keeper.stdout.take().ok_or_else(|| Failure::new("the process that keeps the lock has no output"))?;
    for line in BufReader::new(output).lines().map_while(io::Result::ok) {
        let Some(kept) = line.strip_prefix(READY) else {
            text += &format!("{line}\n");
            continue;
        };
        let earlier = kept_locks().into_iter().map(|kept| kept.line);
        let kept: Vec<String> = earlier.chain([kept.to_owned()]).collect();
        show::print(&format!("{text}{}", export(KEEPER, &kept.join("\n"))))?;
        let is_told = keeper.stdin.take().is_some_and(|mut keeper| writeln!(keeper, "{TAKEN}").is_ok());
        // Otherwise it has been killed.
        return if is_told { Ok(0) } else { Err(Failure::new("the process that keeps the lock is gone")) };
    }
    let status = keeper.wait().map_err(cannot("wait for the process that keeps the lock"))?;
    let status = status.code().or_else(|| Some(128 + status.signal()?)).and_then(|status| u8::try_from(status).ok());
    let status = status.filter(|status| *status != 0).unwrap_or(FAILED);
    // For a shell that evaluates this without a look at the status.
    show::print(&format!("exit {status}\n"))?;
    Ok(status)
}

pub(crate) fn unlock(args: &Unlock) -> Result<()> {
    let kept = kept_locks();
    let mut wanted = kept.iter().filter(|kept| args.path.as_ref().is_none_or(|path| *path == kept.path));
    let (kept, other) = (wanted.next(), wanted.next());
    if let (Some(kept), Some(other), None) = (kept, other, &args.path) {
        return Err(Failure::new(format!(
            "this script has the locks {} and {}: unlock which one?",
            kept.path, other.path
        )));
    }
    let Some(Kept { keeper, .. }) = kept else {
        let which = args.path.as_ref().map(|path| format!(" {path}")).unwrap_or_default();
        return Err(Failure::new(format!(
            "this script has no lock{which}: {KEEPER}, which `zklock lock` sets, names none"
        )));
    };
    keeper.signal(UNLOCK);
    // A signal may interrupt it.
    while !keeper.await_end(PollTimeout::NONE) {
        if !keeper.may_be_signalled() {
            return Err(Failure::new("the process that keeps the lock belongs to another user"));
        }
    }
    Ok(())
}

/// A lock of this script, as a line of [`KEEPER`] tells it.
struct Kept {
    line: String,
    keeper: Process,
    path: String,
}

fn kept_locks() -> Vec<Kept> {
    let kept = |line: &str| {
        let (place, path) = line.split_once(' ')?;
        let mut numbers = place.split('.');
        let keeper = Process::find(numbers.next()?, numbers.next()?)?;
        Some(Kept { line: line.to_owned(), keeper, path: path.to_owned() })
    };
    env::var(KEEPER).unwrap_or_default().lines().filter_map(kept).collect()
}

/// A descriptor for the script to open; a shell can name those of one digit. That of a lock which it has given back is free.
fn free_descriptor(script: i32) -> Result<u8> {
    let lines = env::var(KEEPER).unwrap_or_default();
    let kept = kept_locks();
    let of = |line: &str| line.split([' ', '.']).nth(2)?.parse::<u8>().ok();
    let is_kept = |number: &u8| kept.iter().any(|kept| of(&kept.line) == Some(*number));
    let was_kept = |number: &u8| lines.lines().any(|line| of(line) == Some(*number));
    let is_open = |number: &u8| fs::symlink_metadata(format!("/proc/{script}/fd/{number}")).is_ok();
    let mut free = (3..=9).rev().filter(|number| !is_kept(number) && (was_kept(number) || !is_open(number)));
    free.next().ok_or_else(|| {
        Failure::new("the script has no free descriptor from 3 to 9, one of which it needs for the lock")
    })
}

/// A line for the shell.
fn export(name: &str, value: &str) -> String {
    format!("export {name}='{}'\n", value.replace('\'', r"'\''"))
}

fn keep(connection: &Connection, args: &Lock) -> Result<u8> {
    let script = Process::open(args.script).map_err(cannot(format!("find the script, --for {}", args.script)))?;
    if getsid(None).map(Pid::as_raw) != Ok(script.session) {
        return Err(Failure::new(format!(
            "--for {}: that process belongs to another session than this one, and may not be ended with the lock: is it $$ of the \
             script?",
            args.script
        )));
    }
    let own = Process::open(getpid().as_raw()).map_err(cannot("find this process"))?;
    let descriptor = env::var(DESCRIPTOR).unwrap_or_default();
    let mark = format!("{}.{}.{descriptor} {}", own.pid, own.start, args.wanted.path);
    // All that the script starts inherits its end of this pipe, into which nobody writes.
    let (reader, _) = io::pipe().map_err(cannot("make a pipe"))?;
    let place = format!("/proc/{}/fd/{}", own.pid, reader.as_raw_fd());
    let pipe = fs::read_link(&place).map_err(cannot(format!("read {place}")))?.display().to_string();
    let signals = Signals::catch()?;
    let events = listen(script.try_clone().map_err(cannot("watch the script"))?, signals.ending())?;
    let description = format!("{} {}", who_of(script.pid), family::name(script.pid));
    let status = with_locks(
        connection,
        &args.wanted,
        || description,
        &signals,
        |job| {
            job.look_before()?;
            let held = job.acquire(job.begun, job.patience(), &AcquireOptions::new().min_validity(job.least()))?;
            let script = Script { process: script, pipe, keeper: own.pid.as_raw() };
            let kept = job.keep(&held, script, (&mark, &format!("exec {descriptor}>{place}\n")), &events);
            if let Err(error) = held.release() {
                log::warn!("{error}");
            }
            kept.map(|()| 0)
        },
    );
    // Why the wait was given up is known to whoever did it.
    if let (Err(_), Ok(Event::Left | Event::Ended)) = (&status, events.try_recv()) {
        return Err(Failure { status: FAILED, text: String::new() });
    }
    status
}

impl Job<'_> {
    /// Keeps the lock until the script and what it has started since have ended, or somebody asks for the end of it.
    fn keep(&self, held: &Held, script: Script, (mark, open): (&str, &str), events: &Receiver<Event>) -> Result<()> {
        let family = Family::new([format!("{KEEPER}={mark}")]);
        let mut guard = Guard::begin(self.client, held, self.signals, family)?;
        if let Err(failure) = guard.allow() {
            guard.finish();
            return Err(failure);
        }
        guard.watch(Head::Script(script));
        let variables = variables(self.client, self.connect, &self.locks.paths, held);
        let text: String = variables.iter().map(|(name, value)| export(name, value)).collect();
        // Nobody may read it any more: an event says so.
        let _ = show::print(&format!("{open}{text}{READY}{mark}\n"));
        let (mut events, mut has_ended) = (events.clone(), false);
        while !(has_ended && guard.family.is_gone()) {
            select! {
                recv(events) -> event => match event {
                    Ok(Event::Taken) => {}
                    Ok(Event::Left) => break,
                    Ok(Event::Ended) | Err(_) => {
                        has_ended = true;
                        events = never();
                        guard.name_rest();
                    }
                },
                recv(guard.looks) -> _ => guard.look(),
                recv(guard.changes) -> _ => guard.look(),
                recv(self.locks.asked) -> request => if let Ok(request) = request {
                    guard.asked_back(&request);
                },
                recv(self.signals.receiver()) -> signal => match signal.ok().map(Signal::try_from) {
                    Some(Ok(UNLOCK)) => break,
                    Some(Ok(signal)) if ends(signal as i32) => guard.family.signal(signal),
                    _ => {}
                },
                recv(guard.words) -> word => if guard.heard(word.is_ok()) {
                    guard.look();
                },
            }
        }
        guard.finish();
        Ok(())
    }
}

/// What happens to those for whom the lock is kept.
#[derive(Debug)]
enum Event {
    /// The script was told that it has the lock.
    Taken,
    /// `zklock lock` ended before that.
    Left,
    /// The script has ended.
    Ended,
}

/// Reports each event once, and ends the wait for the lock if it is not needed any more.
fn listen(script: Process, ending: CancelToken) -> Result<Receiver<Event>> {
    let (sender, events) = unbounded();
    let listen = move || {
        let (stdin, mut is_read) = (io::stdin(), false);
        loop {
            let mut wanted = vec![script.end()];
            if !is_read {
                wanted.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            }
            let _ = poll(&mut wanted, PollTimeout::NONE);
            let event = if script.has_ended() {
                Event::Ended
            } else if !is_read && wanted.get(1).is_some_and(|stdin| stdin.any() == Some(true)) {
                is_read = true;
                let mut said = String::new();
                // Without an answer it has not been told.
                let _ = stdin.lock().read_to_string(&mut said);
                if said.trim_end() == TAKEN { Event::Taken } else { Event::Left }
            } else {
                continue;
            };
            let (is_end, is_needed) = (matches!(event, Event::Ended), matches!(event, Event::Taken));
            // Before the wait ends, which then tells why. The receiver may be gone at the end of the program.
            let _ = sender.send(event);
            if !is_needed {
                ending.cancel();
            }
            if is_end {
                return;
            }
        }
    };
    thread::Builder::new().name("script".into()).spawn(listen).map_err(cannot("start a thread"))?;
    Ok(events)
}
