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
#[cfg(target_os = "linux")]
mod keeper;
mod mark;
#[cfg(target_os = "linux")]
mod process;
mod signals;
mod terminal;
mod waiting;
mod watchdog;

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, select, tick};
use curator_locks::{AcquireOptions, CuratorFramework, Error, RetryForever};
use nix::unistd::{Pid, gethostname, getpid};

use self::{
    command::Ended,
    hold::{Held, Locks},
    signals::Signals,
    waiting::Found,
};
use crate::{
    args::{Connection, Run, Wanted},
    connection::Settings,
    failure::{Failure, LOST, Result},
    voice,
};

#[cfg(target_os = "linux")]
pub(crate) use self::keeper::{KEEP, lock, unlock};
pub(crate) use self::{
    child::{EXEC, exec},
    watchdog::{WATCH, watch},
};

/// The retry interval: while the command waits for its turn, an outage is waited out.
const RETRY: Duration = Duration::from_millis(500);

/// The rest of a time that is as good as up.
const LEAST: Duration = Duration::from_millis(1);

/// How long the look for locks of other kinds may take that comes before the wait. The one behind it tells.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// How often it is looked whether a lock that is kept after the command is still held.
const LOOK: Duration = Duration::from_millis(250);

pub(crate) fn run(connection: &Connection, args: &Run) -> Result<u8> {
    if args.is_ambiguous() {
        return Err(Failure::new(
            "which word begins the command? write -- in front of it; more paths come with --also",
        ));
    }
    with_locks(connection, &args.wanted, || describe(args), &Signals::catch()?, |job| job.run(args))
}

/// Connects, for as long as the lock may be waited for.
fn with_locks(
    connection: &Connection,
    wanted: &Wanted,
    describe: impl FnOnce() -> String,
    signals: &Signals,
    work: impl FnOnce(&Job<'_>) -> Result<u8>,
) -> Result<u8> {
    let begun = Instant::now();
    let settings = Settings::of(connection)?;
    let data = wanted.data.clone().unwrap_or_else(describe);
    let client = settings.client(RetryForever::new(RETRY), Some(&data))?;
    let time = wanted.timeout.filter(|time| !time.is_zero()).unwrap_or(Duration::MAX);
    if let Err(failure) = settings.await_connection_for(time, &client, || signals.ending().is_cancelled()) {
        return Err(signals.take_ending().map_or(failure, Failure::ended_by));
    }
    let locks = Locks::new(&client, wanted)?;
    let status = work(&Job { begun, client: &client, connect: &settings.connect, wanted, locks: &locks, signals });
    drop(locks);
    client.close();
    status
}

/// The locks that are needed, what they are for, and what ends both.
struct Job<'a> {
    begun: Instant,
    client: &'a CuratorFramework,
    connect: &'a str,
    wanted: &'a Wanted,
    locks: &'a Locks,
    signals: &'a Signals,
}

impl Job<'_> {
    /// How long the locks may be waited for; `None`: for ever.
    fn time(&self) -> Option<Duration> {
        self.wanted.nonblock.then_some(Duration::ZERO).or(self.wanted.timeout)
    }

    /// Runs the command under the locks, and again where they were lost and that is wanted. The exit status.
    fn run(&self, args: &Run) -> Result<u8> {
        self.look_before()?;
        let options = self.options(args)?;
        let time = self.time();
        let mut held = self.acquire(self.begun, time, &options)?;
        for left in (0..args.retry_lost).rev() {
            let ended = self.work(held, args, true)?;
            if !ended.was_lost || !self.may_go_on() {
                return Ok(ended.status);
            }
            let times = if left == 0 { "for the last time".to_owned() } else { format!("and {left} more at most") };
            voice::say(format_args!("the lock was lost: the command runs again once the lock is had again, {times}"));
            // One that does not wait for others waits for the end of an outage, and for what its own lost hold has left behind.
            if time.is_some_and(|time| time.is_zero()) {
                self.await_connection()?;
            }
            let time = time.map(|time| if time.is_zero() { self.client.session_timeout() } else { time });
            held = self.acquire(Instant::now(), time, &options)?;
        }
        self.work(held, args, false).map(|ended| ended.status)
    }

    /// Waits for a connection, or for a signal that ends that.
    fn await_connection(&self) -> Result<()> {
        let ending = self.signals.ending();
        while !self.client.block_until_connected(Some(RETRY))? {
            if ending.is_cancelled() {
                return Err(self.signals.take_ending().map_or_else(|| Failure::new("cancelled"), Failure::ended_by));
            }
        }
        Ok(())
    }

    /// Whether nobody has asked for the end meanwhile. What was asked of the lock that is lost does not concern the next one.
    fn may_go_on(&self) -> bool {
        self.locks.asked.try_iter().for_each(drop);
        self.signals.begin_anew()
    }

    fn look_for_other_kinds(&self, time: Duration) -> Found {
        if self.wanted.mixed {
            return Found::Nothing;
        }
        waiting::other_kind(self.client, &self.locks.paths, &self.wanted.kind, (time, &self.signals.ending()))
    }

    /// A look before the wait, for what need not be waited for. Where there is no answer yet, the look behind the wait tells.
    fn look_before(&self) -> Result<()> {
        match self.look_for_other_kinds(FIRST_LOOK.min(self.wanted.timeout.unwrap_or(FIRST_LOOK))) {
            Found::Other(path, other) => return Err(refuse(&path, &other)),
            Found::Itself(path) if !self.wanted.nonblock => voice::say(format_args!(
                "{path}: what runs this holds the lock already, and does not give it back before: it waits for itself"
            )),
            Found::Itself(_) | Found::Nothing | Found::NoAnswer => {}
        }
        Ok(())
    }

    fn least(&self) -> Duration {
        clock::Limits::least(self.client.session_timeout())
    }

    fn options(&self, args: &Run) -> Result<AcquireOptions> {
        let least = self.least();
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

    /// Waits for the locks; for so long since `begun`.
    fn acquire(&self, begun: Instant, time: Option<Duration>, options: &AcquireOptions) -> Result<Held> {
        let Job { client, wanted, locks, signals, .. } = self;
        let line = waiting::Line::begin(client, wanted.quiet, locks.paths.clone());
        let acquired = acquire_within(locks, time, begun, &options.clone().cancel_token(&signals.ending()));
        drop(line);
        match (acquired, signals.take_ending()) {
            // Dropping what was acquired gives it back.
            (Ok(Some(held)), None) => match self.look_for_other_kinds(client.session_timeout()) {
                Found::Nothing | Found::Itself(_) => Ok(held),
                Found::Other(path, other) => Err(refuse(&path, &other)),
                Found::NoAnswer => Err(signals.take_ending().map_or_else(|| unknown(client), Failure::ended_by)),
            },
            // Dropping what was acquired gives it back.
            (Ok(_) | Err(Error::Cancelled { .. }), Some(signal)) => Err(Failure::ended_by(signal)),
            (Ok(None), None) => Err(not_had(client, locks, wanted)),
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Runs the command under the locks, and gives them back: at once where it is run again if they were lost.
    fn work(&self, held: Held, args: &Run, is_repeated: bool) -> Result<Ended> {
        let since = Instant::now();
        let ended = command::supervise(self, &held, args);
        if let (Some(at_least), Ok(Ended { is_interrupted: false, was_lost, .. })) = (args.at_least, &ended)
            && !(is_repeated && *was_lost)
        {
            keep(&held, at_least.saturating_sub(since.elapsed()), self.signals.receiver());
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
}

/// Two jobs that take locks of different kinds at one path would run beside each other. Whoever acquires looks once more when it
/// holds: of two that begin at the same moment at least one sees the other.
fn refuse(path: &str, other: &str) -> Failure {
    Failure::new(format!(
        "{path} is the path of {other}, which this one does not exclude: choose the same kind or another path; --mixed \
         takes the lock all the same"
    ))
}

/// No answer is no leave to run the command: the other job would be beside it.
fn unknown(client: &CuratorFramework) -> Failure {
    Failure::new(format!(
        "the servers have not said within {:?} whether a lock of another kind is used at the path, so nothing runs under it; \
         --mixed takes it without asking",
        client.session_timeout()
    ))
}

/// Servers that answer too late to make the lock certain for long enough delay the command, as unreachable ones do.
fn acquire_within(
    locks: &Locks,
    time: Option<Duration>,
    begun: Instant,
    options: &AcquireOptions,
) -> curator_locks::Result<Option<Held>> {
    // Zero would mean not to wait at all.
    let left = |timeout: Duration| timeout.saturating_sub(begun.elapsed()).max(timeout.min(LEAST));
    loop {
        let bounded = time.map(|timeout| options.clone().timeout(left(timeout)));
        match locks.acquire(bounded.as_ref().unwrap_or(options)) {
            Err(error @ Error::Uncertain { .. }) if time.is_none_or(|timeout| begun.elapsed() < timeout) => {
                log::warn!("{error}; waiting again");
            }
            acquired => return acquired,
        }
    }
}

fn not_had(client: &CuratorFramework, locks: &Locks, wanted: &Wanted) -> Failure {
    let path = locks.stopped_at().unwrap_or_else(|| wanted.path.clone());
    let text = match (waiting::holders(client, &path), wanted.timeout.filter(|time| !time.is_zero())) {
        (Some(holders), Some(timeout)) => format!("{path}: still held by {holders} after {timeout:?}"),
        // The servers did not answer in time, or did so too late for the lock to be certain.
        (None, Some(timeout)) => format!("{path}: not had within {timeout:?}"),
        (Some(holders), None) => format!("{path}: held by {holders}"),
        (None, None) => format!("{path}: held"),
    };
    Failure { status: wanted.conflict_exit_code, text }
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

/// This process, for people on other machines.
pub(crate) fn who() -> String {
    who_of(getpid())
}

fn who_of(pid: Pid) -> String {
    let host = gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{host} pid {pid}")
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
