//! The locks that a command or a script needs, from the command line to the grant.

use std::time::{Duration, Instant};

use curator_locks::{AcquireOptions, CuratorFramework, Error, RetryForever};
use nix::unistd::{Pid, gethostname, getpid};

use super::{
    clock,
    hold::{Held, Locks},
    signals::Signals,
    waiting::{self, Found},
};
use crate::{
    args::{Connection, Wanted},
    connection::Settings,
    failure::{Failure, Result},
    voice,
};

/// The retry interval: while the command waits for its turn, an outage is waited out.
const RETRY: Duration = Duration::from_millis(500);

/// The rest of a time that is as good as up.
const LEAST: Duration = Duration::from_millis(1);

/// How long the look for locks of other kinds may take that comes before the wait. The one behind it tells.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// Connects, for as long as the lock may be waited for.
pub(super) fn with_locks(
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
pub(super) struct Job<'a> {
    pub(super) begun: Instant,
    pub(super) client: &'a CuratorFramework,
    pub(super) connect: &'a str,
    wanted: &'a Wanted,
    pub(super) locks: &'a Locks,
    pub(super) signals: &'a Signals,
}

impl Job<'_> {
    /// How long the locks may be waited for; `None`: for ever.
    pub(super) fn time(&self) -> Option<Duration> {
        self.wanted.nonblock.then_some(Duration::ZERO).or(self.wanted.timeout)
    }

    /// Waits for a connection, or for a signal that ends that.
    pub(super) fn await_connection(&self) -> Result<()> {
        let ending = self.signals.ending();
        while !self.client.block_until_connected(Some(RETRY))? {
            if ending.is_cancelled() {
                return Err(self.signals.take_ending().map_or_else(|| Failure::new("cancelled"), Failure::ended_by));
            }
        }
        Ok(())
    }

    /// Whether nobody has asked for the end meanwhile. What was asked of the lock that is lost does not concern the next one.
    pub(super) fn may_go_on(&self) -> bool {
        self.locks.asked.try_iter().for_each(drop);
        self.signals.begin_anew()
    }

    pub(super) fn look_for_other_kinds(&self, time: Duration) -> Found {
        if self.wanted.mixed {
            return Found::Nothing;
        }
        waiting::other_kind(self.client, &self.locks.paths, &self.wanted.kind, (time, &self.signals.ending()))
    }

    /// A look before the wait, for what need not be waited for. Where there is no answer yet, the look behind the wait tells.
    pub(super) fn look_before(&self) -> Result<()> {
        match self.look_for_other_kinds(FIRST_LOOK.min(self.wanted.timeout.unwrap_or(FIRST_LOOK))) {
            Found::Other(path, other) => return Err(refuse(&path, &other)),
            Found::Itself(path) if !self.wanted.nonblock => voice::say(format_args!(
                "{path}: what runs this holds the lock already, and does not give it back before: it waits for itself"
            )),
            Found::Itself(_) | Found::Nothing | Found::NoAnswer => {}
        }
        Ok(())
    }

    pub(super) fn least(&self) -> Duration {
        clock::Limits::least(self.client.session_timeout())
    }

    /// Waits for the locks; for so long since `begun`.
    pub(super) fn acquire(&self, begun: Instant, time: Option<Duration>, options: &AcquireOptions) -> Result<Held> {
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

/// This process, for people on other machines.
pub(crate) fn who() -> String {
    who_of(getpid())
}

pub(super) fn who_of(pid: Pid) -> String {
    let host = gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{host} pid {pid}")
}
