//! `zklock run`: a command while a lock is held. `zklock lock`: a script's.
//!
//! Three processes: this one holds the lock and knows its state ([`hold`]), the command, which leads a process group
//! ([`family`]), and a watchdog ([`watchdog`]), which ends that group by its own clock, or if this process dies. The lock of a
//! script is held in the background ([`keeper`]), and the script is in the command's place.

mod child;
mod clock;
mod command;
mod family;
mod guard;
mod hold;
mod job;
#[cfg(target_os = "linux")]
mod keeper;
mod mark;
#[cfg(target_os = "linux")]
mod process;
mod signals;
mod stat;
mod terminal;
mod waiting;
mod watchdog;

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, select, tick};
use curator_locks::AcquireOptions;

use self::{
    command::Ended,
    hold::Held,
    job::{Job, with_locks},
    signals::Signals,
};
use crate::{
    args::{Connection, Run},
    failure::{Failure, LOST, Result},
    voice,
};

#[cfg(target_os = "linux")]
pub(crate) use self::{
    child::KEEP,
    keeper::{lock, unlock},
};
pub(crate) use self::{
    child::{EXEC, WATCH, exec},
    job::who,
    watchdog::watch,
};

/// How often it is looked whether a lock that is kept after the command is still held.
const LOOK: Duration = Duration::from_millis(250);

pub(crate) fn run(connection: &Connection, args: &Run) -> Result<u8> {
    if args.is_ambiguous() {
        return Err(Failure::new(
            "which word begins the command? write -- in front of it; more paths come with --also",
        ));
    }
    with_locks(connection, &args.wanted, || describe(args), &Signals::catch()?, |job| repeat(job, args))
}

/// Runs the command under the locks, and again where they were lost and that is wanted. The exit status.
fn repeat(job: &Job<'_>, args: &Run) -> Result<u8> {
    job.look_before()?;
    let options = options(job, args)?;
    let time = job.time();
    let mut held = job.acquire(job.begun, time, &options)?;
    for left in (0..args.retry_lost).rev() {
        let ended = work(job, held, args, true)?;
        if !ended.was_lost || !job.may_go_on() {
            return Ok(ended.status);
        }
        let times = if left == 0 { "for the last time".to_owned() } else { format!("and {left} more at most") };
        voice::say(format_args!("the lock was lost: the command runs again once the lock is had again, {times}"));
        // One that does not wait for others waits for the end of an outage, and for what its own lost hold has left behind.
        if time.is_some_and(|time| time.is_zero()) {
            job.await_connection()?;
        }
        let time = time.map(|time| if time.is_zero() { job.client.session_timeout() } else { time });
        held = job.acquire(Instant::now(), time, &options)?;
    }
    work(job, held, args, false).map(|ended| ended.status)
}

fn options(job: &Job<'_>, args: &Run) -> Result<AcquireOptions> {
    let least = job.least();
    let options = AcquireOptions::new().min_validity(least);
    let Some(most) = args.at_most else { return Ok(options) };
    if args.at_least.is_some_and(|least| least > most) {
        return Err(Failure::new("--at-least is longer than --at-most"));
    }
    if most <= least {
        return Err(Failure::new(format!("--at-most {most:?} leaves no time: it has to be longer than {least:?}")));
    }
    Ok(options.hold_at_most(most))
}

/// Runs the command under the locks, and gives them back: at once where it is run again if they were lost.
fn work(job: &Job<'_>, held: Held, args: &Run, is_repeated: bool) -> Result<Ended> {
    let since = Instant::now();
    let ended = command::supervise(job, &held, args);
    if let (Some(at_least), Ok(Ended { is_interrupted: false, was_lost, .. })) = (args.at_least, &ended)
        && !(is_repeated && *was_lost)
    {
        keep(&held, at_least.saturating_sub(since.elapsed()), job.signals.receiver());
    }
    if let Err(error) = held.release() {
        // The command has run: its status tells.
        log::warn!("{error}");
    }
    match ended {
        Err(Failure { status: LOST, text }) => {
            voice::say(text);
            Ok(Ended { status: LOST, is_interrupted: false, was_lost: true })
        }
        ended => ended,
    }
}

/// The data that others see: where the command runs, and its name, without its arguments, which may be secret.
fn describe(args: &Run) -> String {
    let line = args.shell.as_ref().map(|line| line.to_string_lossy().into_owned());
    // Where a line begins with assignments, their values may be secret, and only a shell can tell where they end.
    let is_name = |word: &&str| !word.is_empty() && !word.contains('=');
    let first = |line: &str| {
        line.split(|c: char| c.is_whitespace() || "<>|;&()$`".contains(c)).next().filter(is_name).map(str::to_owned)
    };
    let first = line.as_deref().and_then(first);
    let command = || args.line().first().map(|command| command.to_string_lossy().into_owned());
    let command = first.or_else(command).filter(|command| is_name(&command.as_str())).unwrap_or_default();
    format!("{} {command}", who()).trim_end().to_owned()
}

/// Keeps the lock, until a signal or its loss.
fn keep(held: &Held, time: Duration, signals: &Receiver<i32>) {
    let (end, looks) = (after(time), tick(LOOK));
    while !held.holds().iter().any(|hold| hold.is_lost()) {
        select! {
            recv(end) -> _ => return,
            recv(looks) -> _ => {}
            recv(signals) -> signal => if !signal.is_ok_and(|signal| !signals::ends(signal)) { return },
        }
    }
}
