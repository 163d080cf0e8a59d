//! `zklock lock` and `zklock unlock`: the lock of a script.
//!
//! `zklock lock` starts the process that keeps the lock, prints what that says for the script's shell, and ends. The keeper outlives
//! it, in a process group of its own, and ends with the script.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::{
            fs::MetadataExt,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::Path,
    process::Stdio,
    sync::Arc,
    thread,
};

use crossbeam_channel::{Receiver, never, select, unbounded};
use curator_locks::{AcquireOptions, CancelToken};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
    unistd::{Pid, getpid, getppid, getsid},
};
use signal_hook::consts::SIGCHLD;

use super::{
    child::{KEEP, begin_helper, remove_marks, this_program},
    command::variables,
    family::{self, Family, Head},
    guard::Guard,
    hold::Held,
    job::{Job, who_of, with_locks},
    mark::{self, KEEPER, Mark, OUTER, Pipe},
    process::{Process, Script},
    signals::Signals,
};
use crate::{
    args::{Connection, Lock, Unlock},
    failure::{FAILED, Failure, Result, cannot},
    show,
};

/// The keeper's last word of the lock, and the answer to it.
const READY: &str = "ready";
const TAKEN: &str = "taken";

/// To the keeper: which descriptor the script has free.
const DESCRIPTOR: &str = "ZKLOCK_DESCRIPTOR";

/// `zklock unlock` writes this into the script's pipe.
const UNLOCK: &str = "\nunlock\n";

pub(crate) fn lock(connection: &Connection, args: &Lock) -> Result<u8> {
    if env::args_os().nth(1).is_some_and(|first| first == KEEP) {
        begin_helper();
        return keep(connection, args);
    }
    if args.script == getpid().as_raw() {
        return Err(Failure::new(
            "--for: this is zklock itself, which ends at once; take the number of the script before: me=$BASHPID",
        ));
    }
    let of = |file: &str| {
        let file = fs::read_link(format!("/proc/self/fd/{file}")).ok()?;
        file.to_str().filter(|file| file.starts_with("pipe:")).map(str::to_owned)
    };
    if of("1").is_some() && of("1") == of("2") {
        return Err(Failure::new(
            "standard error goes where the output goes, by 2>&1: the shell would wait for the process that keeps the lock",
        ));
    }
    // Where it is ignored nobody is told how a child ends.
    signal_hook::flag::register(SIGCHLD, Arc::default()).map_err(cannot("catch signals"))?;
    // It outlives this process, and not the script.
    let mut command = this_program();
    command.arg(KEEP).args(env::args_os().skip(1)).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let descriptor = free_descriptor(args.script)?.to_string();
    command.env(OUTER, env::var_os(KEEPER).unwrap_or_default()).env(DESCRIPTOR, descriptor);
    remove_marks(&mut command);
    let mut keeper = command.spawn().map_err(cannot("start the process that keeps the lock"))?;
    let mut text = String::new();
    let output = keeper.stdout.take().ok_or_else(|| Failure::new("the process that keeps the lock has no output"))?;
    for line in BufReader::new(output).lines().map_while(io::Result::ok) {
        if line != READY {
            text += &format!("{line}\n");
            continue;
        }
        // Its end tells the keeper that nobody has been told.
        let told = keeper.stdin.take().filter(|_| show::print(&text).is_ok_and(|is_read| is_read));
        return match told.map(|mut keeper| writeln!(keeper, "{TAKEN}")) {
            Some(Ok(())) => Ok(0),
            Some(Err(_)) => Err(Failure::new("the process that keeps the lock is gone")),
            None => Err(Failure::new("nobody reads the output, by which the script would have the lock")),
        };
    }
    let status = keeper.wait().map_err(cannot("wait for the process that keeps the lock"))?;
    let status = status.code().or_else(|| Some(128 + status.signal()?)).and_then(|status| u8::try_from(status).ok());
    // It has said why.
    Err(Failure { status: status.filter(|status| *status != 0).unwrap_or(FAILED), text: String::new() })
}

pub(crate) fn unlock(args: &Unlock) -> Result<()> {
    let shell = getppid().as_raw();
    // The environment from before its own locks names those under which the script itself runs: they are somebody else's.
    let is_own = |mark: &Mark| !mark::is_below(shell, &mark.to_string()).unwrap_or_default();
    let is_wanted = |mark: &Mark| args.path.as_ref().is_none_or(|path| mark.paths.contains(path));
    let kept = Mark::all(KEEPER).into_iter().filter(|mark| is_own(mark) && is_wanted(mark)).rev();
    let mut kept = kept.filter_map(|mark| Some((Process::find(mark.pid, mark.start)?, mark.pipe?, mark.paths)));
    let (found, other) = (kept.next(), kept.next());
    if let (Some((.., one)), Some((.., other)), None) = (&found, &other, &args.path) {
        let (one, other) = (one.join(", "), other.join(", "));
        return Err(Failure::new(format!("this script has the locks {other} and {one}: unlock which one?")));
    }
    let Some((keeper, pipe, _)) = found else {
        let which = args.path.as_ref().map(|path| format!(" {path}")).unwrap_or_default();
        return Err(Failure::new(format!("this script has no lock{which} that `zklock lock` has taken for it")));
    };
    let place = format!("/proc/{}/fd/{}", keeper.pid, pipe.reader);
    let mut pipe =
        fs::File::options().write(true).open(place).map_err(cannot("reach the process that keeps the lock"))?;
    pipe.write_all(UNLOCK.as_bytes()).map_err(cannot("reach the process that keeps the lock"))?;
    // A signal may interrupt it.
    while !keeper.await_end(PollTimeout::NONE) {}
    Ok(())
}

/// A descriptor for the script to open; a shell can name those of one digit. That of a lock which it has given back is free.
fn free_descriptor(script: i32) -> Result<u8> {
    let earlier = Mark::all(KEEPER);
    let is_used = |process: &str, number: u8| {
        let Ok(file) = fs::read_link(format!("/proc/{process}/fd/{number}")) else { return false };
        let is_it = |pipe: Pipe| pipe.descriptor == number && file == Path::new(&pipe_name(pipe.inode));
        let is_given_back = |mark: &Mark| mark.pipe.is_some_and(is_it) && Process::find(mark.pid, mark.start).is_none();
        !earlier.iter().any(is_given_back)
    };
    // A subshell may have opened others than the script.
    let is_free = |number: &u8| !is_used(&script.to_string(), *number) && !is_used("self", *number);
    (3..=9).rev().find(is_free).ok_or_else(|| {
        Failure::new("the script has no free descriptor from 3 to 9, one of which it needs for the lock")
    })
}

fn pipe_name(inode: u64) -> String {
    format!("pipe:[{inode}]")
}

/// A line for the shell.
fn assign(name: &str, value: &str) -> String {
    format!("{name}='{}'\n", value.replace('\'', r"'\''"))
}

fn keep(connection: &Connection, args: &Lock) -> Result<u8> {
    let ended =
        |_| Failure::new(format!("--for {}: that process has ended, or is not to be seen from here", args.script));
    let process = Process::open(args.script).map_err(ended)?;
    if getsid(None).map(Pid::as_raw) != Ok(process.session) {
        return Err(Failure::new(format!(
            "--for {}: that process belongs to another session than this one, and may not be ended with the lock: is it $$ of the \
             script?",
            args.script
        )));
    }
    // All that the script starts inherits its end. The second end here keeps the first from being closed without one.
    let (reader, _writer) = io::pipe().map_err(cannot("make a pipe"))?;
    if !process.may_be_signalled() {
        return Err(Failure::new(format!(
            "--for {}: that process has other rights than this one, and may not be ended with the lock",
            args.script
        )));
    }
    let pipe = Pipe {
        inode: fs::metadata(format!("/proc/self/fd/{}", reader.as_raw_fd())).map_err(cannot("see a pipe"))?.ino(),
        reader: reader.as_raw_fd(),
        descriptor: env::var(DESCRIPTOR).ok().and_then(|number| number.parse().ok()).unwrap_or_default(),
    };
    let signals = Signals::catch()?;
    let events = listen(process.try_clone().map_err(cannot("watch the script"))?, reader, signals.ending())?;
    let description = format!("{} {}", who_of(process.pid), family::name(process.pid));
    let status = with_locks(
        connection,
        &args.wanted,
        || description,
        &signals,
        |job| {
            job.look_before()?;
            let held = job.acquire(job.begun, job.time(), &AcquireOptions::new().min_validity(job.least()))?;
            let script = Script { process: Some(process), pipe: pipe_name(pipe.inode), keeper: getpid().as_raw() };
            let kept = job.keep(&held, script, pipe, &events);
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
    fn keep(&self, held: &Held, script: Script, pipe: Pipe, events: &Receiver<Event>) -> Result<()> {
        let mark = Mark::new(self.client.session_id(), Some(pipe), &self.locks.paths);
        let mut guard = Guard::begin(self.client, held, self.signals, Family::new(mark.to_string()))?;
        if let Err(failure) = guard.allow() {
            guard.finish();
            return Err(failure);
        }
        guard.watch(Head::Script(script));
        // The script's own, and not for what it starts, which may outlast the lock: it may be exported for others already.
        let variables = variables(self.client, &self.locks.paths, held);
        let names: Vec<_> = variables.iter().map(|(name, _)| *name).collect();
        let values: String = variables.iter().map(|(name, value)| assign(name, value)).collect();
        let Pipe { reader, descriptor, .. } = pipe;
        let open = format!("exec {descriptor}>/proc/{}/fd/{reader} || exit {FAILED}\n", mark.pid);
        let below = format!("export {}", assign(KEEPER, &mark::with(OUTER, &mark)));
        // Nobody may read it any more: an event says so.
        let _ = show::print(&format!("{open}{below}unset {}\n{values}{READY}\n", names.join(" ")));
        let (mut events, mut has_ended) = (events.clone(), false);
        while !(has_ended && guard.is_gone()) {
            select! {
                recv(events) -> event => match event {
                    Ok(Event::Taken) => {}
                    Ok(Event::Left | Event::Unlocked) => break,
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
                recv(self.signals.receiver()) -> signal => {
                    // Others have no sense for a script that has not asked for them.
                    let ends = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
                    let signal = signal.ok().and_then(|signal| Signal::try_from(signal).ok());
                    if let Some(signal) = signal.filter(|signal| ends.contains(signal)) {
                        guard.signal(signal);
                    }
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

/// A change for those for whom the lock is kept.
#[derive(Debug)]
enum Event {
    /// The script was told that it has the lock.
    Taken,
    /// `zklock lock` ended before that.
    Left,
    /// `zklock unlock` was called.
    Unlocked,
    /// The script has ended.
    Ended,
}

/// Reports each event, and ends the wait for the lock if it is not needed any more.
fn listen(script: Process, mut pipe: io::PipeReader, ending: CancelToken) -> Result<Receiver<Event>> {
    let (sender, events) = unbounded();
    let listen = move || {
        let (stdin, mut is_read) = (io::stdin(), false);
        // The end of what was written, as a word may come in pieces, and beside what the script writes by mistake.
        let mut written = Vec::new();
        loop {
            let mut wanted = vec![script.end(), PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
            if !is_read {
                wanted.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            }
            let _ = poll(&mut wanted, PollTimeout::NONE);
            let mut is_there = wanted.iter().map(|of| of.any() == Some(true));
            let (has_ended, is_written, is_said) = (is_there.next(), is_there.next(), is_there.next());
            let event = if has_ended == Some(true) {
                Event::Ended
            } else if is_said == Some(true) {
                is_read = true;
                let mut said = String::new();
                // Without an answer it has not been told.
                let _ = stdin.lock().read_to_string(&mut said);
                if said.trim_end() == TAKEN { Event::Taken } else { Event::Left }
            } else if is_written == Some(true) {
                let mut said = [0; 512];
                let count = pipe.read(&mut said).unwrap_or_default();
                written.extend_from_slice(said.get(..count).unwrap_or_default());
                if !written.windows(UNLOCK.len()).any(|part| part == UNLOCK.as_bytes()) {
                    written.drain(..written.len().saturating_sub(UNLOCK.len()));
                    continue;
                }
                written.clear();
                Event::Unlocked
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
