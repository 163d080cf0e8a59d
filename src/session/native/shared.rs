//! The state that callers and the reader thread of one session share: the machine, and the socket's writing half.

use std::{
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

#[cfg(feature = "sasl")]
use crate::session::sasl::mechanism::Authenticator;
use crate::{
    base::{
        channel::{Receiver, Sender},
        clock, log,
        sync::Mutex,
        threads::start,
    },
    session::{
        api::{SessionConfig, SessionError, SessionObserver},
        machine::{
            Machine,
            actions::{Action, carry_out},
        },
        servers::connect_string::ConnectString,
        transport::{Stream, Transport, WriteHalf},
    },
};

/// How long a thread that submits, or the one that reads, writes at most: its own requests and those of others. A
/// thread of its own writes the rest, if the peer is slow to take it or more keeps coming.
const LONGEST_WRITE: Duration = Duration::from_millis(20);

pub(super) struct Guarded {
    pub(super) machine: Machine,
    /// Whether some thread is writing. It looks for more before it stops, and clears this under the same lock under
    /// which it found nothing more, so a request is either seen by it or written by the thread that submitted it.
    pub(super) writing: bool,
    /// The connection that there is, or that a server may still refuse.
    pub(super) stream: Option<Arc<dyn Stream>>,
    /// Name and address of the server that the last connection was to.
    pub(super) server: Option<(String, SocketAddr)>,
}

pub(super) struct SessionShared {
    pub(super) config: SessionConfig,
    pub(super) transport: Arc<dyn Transport>,
    #[cfg(feature = "sasl")]
    pub(super) sasl: Option<Arc<dyn Authenticator>>,
    pub(super) observer: SessionObserver,
    pub(super) state: Mutex<Guarded>,
    /// The number of the connection, and its half for writing.
    pub(super) writer: Mutex<Option<(u64, Box<dyn WriteHalf>)>>,
    /// The error that ended the last connection, or the last attempt at one.
    pub(super) last_error: Mutex<Option<Arc<io::Error>>>,
    /// Servers to use instead, from the next attempt on.
    pub(super) new_hosts: Mutex<Option<ConnectString>>,
    /// Ends a pause of the reader thread.
    pub(super) wake: Sender<()>,
    /// Disconnected when the reader thread has ended.
    pub(super) done: Receiver<()>,
    /// Values that other threads read without the lock, under which a caller's recorder may run.
    pub(super) born: Instant,
    pub(super) id: AtomicI64,
    pub(super) timeout_ms: AtomicU64,
    pub(super) connection: AtomicU64,
    /// Nanoseconds since `born`; 0 for none.
    pub(super) valid_until: AtomicU64,
    pub(super) ended: AtomicBool,
    /// Nanoseconds since `born`; 0: the session has taken its znodes with it, or has not ended.
    pub(super) left_behind: AtomicU64,
}

impl Guarded {
    /// Ends the connection: both halves fail at once. The reader thread sees the end of the stream and does the rest.
    pub(super) fn hang_up(&self) {
        if let Some(stream) = &self.stream {
            stream.shut_down();
        }
    }

    fn write_failed(&mut self, connection: u64) {
        self.writing = false;
        if self.machine.write_failed(connection) {
            self.hang_up();
        }
    }
}

impl SessionShared {
    /// Runs one input through the machine, carries out its actions, and writes the output.
    pub(super) fn input<T>(self: &Arc<Self>, input: impl FnOnce(&mut Machine, &mut Vec<Action>) -> T) -> T {
        let mut actions = Vec::new();
        let mut state = self.state.lock();
        let watches = state.machine.watches();
        let result = input(&mut state.machine, &mut actions);
        if state.machine.watches() != watches {
            self.config.counters.watches.change(watches, state.machine.watches());
        }
        self.publish(&state.machine);
        let output = take_output(&mut state);
        drop(state);
        let carried_out = catch_unwind(AssertUnwindSafe(|| carry_out(actions, &self.observer)));
        if let Some(output) = output {
            // Also after a panic: no other thread may write before this is written, not even the session's last request.
            self.write(output);
        }
        if let Err(panic) = carried_out {
            resume_unwind(panic);
        }
        result
    }

    /// One of the published moments.
    pub(super) fn moment(&self, published: &AtomicU64) -> Option<Instant> {
        match published.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(self.born + Duration::from_nanos(nanos)),
        }
    }

    /// Copies the values that are read without the lock.
    fn publish(&self, machine: &Machine) {
        let nanos = |at: Instant| u64::try_from(at.saturating_duration_since(self.born).as_nanos()).unwrap_or(u64::MAX);
        let (is_alive, valid_until) = (machine.is_alive(), machine.valid_until().map_or(0, |at| nanos(at).max(1)));
        self.id.store(machine.session_id(), Ordering::Release);
        self.timeout_ms.store(millis(machine.timeout()), Ordering::Release);
        self.connection.store(if is_alive { machine.connection() } else { 0 }, Ordering::Release);
        self.valid_until.store(valid_until, Ordering::Release);
        // Before the end, so that nobody takes the znodes for gone.
        self.left_behind.store(machine.left_behind().map_or(0, |at| nanos(at).max(1)), Ordering::Release);
        self.ended.store(!is_alive, Ordering::Release);
    }

    /// Writes for a while, and leaves the rest to another thread. The caller has set `writing`.
    fn write(self: &Arc<Self>, output: Output) {
        let until = clock::now() + LONGEST_WRITE;
        let Some(rest) = self.write_until(output, Some(until)) else { return };
        let (shared, connection) = (self.clone(), rest.connection);
        let started = start("zk-session-writer", move || {
            shared.write_until(rest, None);
        });
        if let Err(error) = started {
            log::debug!("writing failed: {error}");
            self.state.lock().write_failed(connection);
        }
    }

    /// Writes until there is nothing more to write, or until then: returns the rest, and `writing` stays set.
    fn write_until(&self, mut output: Output, until: Option<Instant>) -> Option<Output> {
        loop {
            let written = self.write_once(&mut output, until);
            if let Ok(false) = written {
                return Some(output);
            }
            if let Err(error) = &written {
                log::debug!("writing failed: {error}");
            }
            let mut state = self.state.lock();
            match written {
                Ok(_) => state.writing = false,
                Err(_) => state.write_failed(output.connection),
            }
            output = take_output(&mut state)?;
            if until.is_some_and(|until| clock::now() >= until) {
                return Some(output);
            }
        }
    }

    /// `true`: all of it is written.
    fn write_once(&self, output: &mut Output, until: Option<Instant>) -> io::Result<bool> {
        let mut writer = self.writer.lock();
        let Some((_, half)) = writer.as_mut().filter(|(connection, _)| *connection == output.connection) else {
            // That connection is gone, and its requests have been answered.
            return Ok(true);
        };
        let written = half.write(&output.bytes, until.map_or(output.deadline, |until| until.min(output.deadline)))?;
        output.bytes.drain(..written.min(output.bytes.len()));
        if output.bytes.is_empty() {
            return Ok(true);
        }
        if until.is_some_and(|until| until < output.deadline) { Ok(false) } else { Err(does_not_take()) }
    }

    pub(super) fn leave(self: &Arc<Self>, error: SessionError, until: Instant) {
        self.input(|machine, actions| machine.leave(error, clock::now(), until, actions));
        let state = self.state.lock();
        let now = clock::now();
        if state.machine.is_over(now) || state.machine.rests_until(now).is_some() || state.machine.is_failing() {
            // The reader thread may wait for a server, to which there is nothing to say, or not yet.
            state.hang_up();
        }
        drop(state);
        // A full channel means that a wake-up is on its way already.
        let _ = self.wake.try_send(());
    }
}

struct Output {
    /// The bytes that are not written yet.
    bytes: Vec<u8>,
    connection: u64,
    /// A peer that takes nothing for a third of the session timeout is dead.
    deadline: Instant,
}

fn take_output(state: &mut Guarded) -> Option<Output> {
    if state.writing || !state.machine.has_output() {
        return None;
    }
    let mut bytes = Vec::new();
    state.machine.take_output(&mut bytes);
    state.writing = true;
    let deadline = clock::now() + state.machine.timeout() / 3;
    Some(Output { bytes, connection: state.machine.connection(), deadline })
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn does_not_take() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer does not take what is sent to it")
}
