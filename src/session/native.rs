//! This crate's own session: callers write to the socket, and one thread reads it.

mod reader;
mod search;
mod troubles;

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use parking_lot::Mutex;

use super::{
    ConnectString, OnReply, Session, SessionConfig, SessionError, SessionFactory, SessionObserver, Submission, Ticket,
    Watcher,
    machine::{Actions, Machine},
    transport::{Closer, Tcp, Transport, WriteHalf},
};
use crate::{Error, Result, proto::ProtoError};
use reader::Reader;

/// How long a thread that submits, or the one that reads, writes at most: its own requests and those of others. What then
/// is left, because the peer is slow to take it or because more keeps coming, a thread of its own writes.
const WRITE_PATIENCE: Duration = Duration::from_millis(20);

/// An abandoned session is taken up again within so many session timeouts, or not at all. By then either the servers
/// have expired it, or all of them are down, and will expire it one session timeout after they are back.
const LEAVE_WITHIN: u32 = 10;

/// How long the thread of a session that nobody waits for goes on, to close it at the server.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// Opens sessions of this crate's own making.
#[derive(Debug, Clone, Copy, Default)]
pub struct NativeSessionFactory;

impl SessionFactory for NativeSessionFactory {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        open_over(Arc::new(Tcp), config, observer)
    }
}

/// Opens a session whose connections are this transport's.
pub(crate) fn open_over(
    transport: Arc<dyn Transport>,
    config: &SessionConfig,
    observer: SessionObserver,
) -> Result<Arc<dyn Session>> {
    Ok(Arc::new(NativeSession::open(config.clone(), transport, observer)?))
}

/// One session and the thread that reads for it.
///
/// Two locks, never nested. `state` orders requests and is held for moments. `writer` is held while bytes go to the
/// kernel; the reader thread takes it to hand over a new connection, after it has shut the old one down, so a write that
/// was stuck there has failed by then; and to write, for moments, what follows from what it read.
///
/// Observer and watchers are called without a lock, in the order of the actions of one input. The reader thread carries
/// out what it read before it reads on, so all that the servers bring about, session events too, comes in the order in
/// which it happened.
struct NativeSession {
    shared: Arc<Shared>,
}

impl fmt::Debug for NativeSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeSession").field("id", &self.id()).finish_non_exhaustive()
    }
}

struct State {
    machine: Machine<OnReply, Watcher>,
    /// Some thread is writing, and looks for more before it stops: it clears this under the same lock under which it
    /// found nothing more, so a request is either seen by it or written by whoever submitted it.
    writing: bool,
    closer: Option<Closer>,
}

struct Writer {
    connection: u64,
    half: Option<Box<dyn WriteHalf>>,
}

struct Shared {
    config: SessionConfig,
    transport: Arc<dyn Transport>,
    observer: SessionObserver,
    state: Mutex<State>,
    writer: Mutex<Writer>,
    /// What ended the last connection, or the last attempt at one.
    last_error: Mutex<Option<Arc<io::Error>>>,
    /// Servers to use instead, from the next attempt on.
    new_hosts: Mutex<Option<ConnectString>>,
    /// Ends a pause of the reader thread.
    wake: Sender<()>,
    /// Disconnected when the reader thread has ended.
    done: Receiver<()>,
    born: Instant,
    id: AtomicI64,
    connection: AtomicU64,
    timeout_ms: AtomicU64,
    /// Nanoseconds since `born`; 0 for none.
    valid_until: AtomicU64,
    ended: AtomicBool,
}

impl NativeSession {
    fn open(config: SessionConfig, transport: Arc<dyn Transport>, observer: SessionObserver) -> Result<NativeSession> {
        let now = Instant::now();
        let (wake, pauses) = bounded(1);
        let (alive, done) = bounded(0);
        let machine = Machine::new(config.clone(), now);
        let timeout_ms = millis(machine.timeout());
        let shared = Arc::new(Shared {
            config,
            transport,
            observer,
            state: Mutex::new(State { machine, writing: false, closer: None }),
            writer: Mutex::new(Writer { connection: 0, half: None }),
            last_error: Mutex::new(None),
            new_hosts: Mutex::new(None),
            wake,
            done,
            born: now,
            id: AtomicI64::new(0),
            connection: AtomicU64::new(0),
            timeout_ms: AtomicU64::new(timeout_ms),
            valid_until: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let reader = Reader { shared: shared.clone(), pauses, _alive: alive };
        std::thread::Builder::new()
            .name("zk-session".into())
            .spawn(move || reader.run())
            .map_err(|error| Error::Io { what: "cannot start the session's thread".into(), source: Arc::new(error) })?;
        Ok(NativeSession { shared })
    }
}

impl Drop for NativeSession {
    fn drop(&mut self) {
        // Nobody can use the session any more: the thread closes it if a server is at hand. One that was abandoned is
        // on its way already, and takes the time that needs.
        if !self.is_ended() {
            self.shared.leave(SessionError::Closed, Some(Instant::now() + LEAVE_TIME));
        }
    }
}

impl Session for NativeSession {
    fn submit(&self, batch: Vec<Submission>) -> Vec<Ticket> {
        let encoded: Vec<_> = batch
            .into_iter()
            .map(|submission| {
                let frame = submission.request.encode(0);
                (submission, frame)
            })
            .collect();
        self.shared.input(|machine, actions| {
            let submit = |(Submission { request, watcher, on_reply }, frame)| {
                Ticket(machine.submit(&request, frame, on_reply, watcher, actions))
            };
            encoded.into_iter().map(submit).collect()
        })
    }

    fn withdraw(&self, ticket: Ticket) -> bool {
        self.shared.input(|machine, actions| machine.withdraw(ticket.0, actions))
    }

    fn unwatch(&self, ticket: Ticket) {
        self.shared.input(|machine, actions| machine.unwatch(ticket.0, actions));
    }

    fn tells_in_order(&self) -> bool {
        true
    }

    fn id(&self) -> i64 {
        self.shared.id.load(Ordering::Acquire)
    }

    fn password(&self) -> Vec<u8> {
        let state = self.shared.state.lock();
        if state.machine.session_id() == 0 { Vec::new() } else { state.machine.password().to_vec() }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.shared.timeout_ms.load(Ordering::Acquire))
    }

    fn connection(&self) -> u64 {
        self.shared.connection.load(Ordering::Acquire)
    }

    fn valid_until(&self) -> Option<Instant> {
        match self.shared.valid_until.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(self.shared.born + Duration::from_nanos(nanos)),
        }
    }

    fn last_error(&self) -> Option<Arc<io::Error>> {
        if self.connection() != 0 { None } else { self.shared.last_error.lock().clone() }
    }

    fn is_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    fn update_hosts(&self, hosts: &ConnectString) {
        *self.shared.new_hosts.lock() = Some(hosts.clone());
        // A full channel means that a wake-up is on its way already.
        let _ = self.shared.wake.try_send(());
    }

    fn is_finished(&self) -> bool {
        self.shared.done.try_recv() == Err(TryRecvError::Disconnected)
    }

    fn abandon(&self) {
        let until = Instant::now() + self.timeout() * LEAVE_WITHIN;
        self.shared.leave(SessionError::Expired, Some(until));
    }

    fn close(&self, deadline: Instant) {
        // Who does not wait wants the session closed all the same, and not to expire with its znodes in the way of others.
        let until = deadline.max(Instant::now() + LEAVE_TIME);
        self.shared.leave(SessionError::Closed, Some(until));
        // Nothing is ever sent on it: the channel ends when the reader thread does.
        let timed_out = self.shared.done.recv_deadline(deadline) == Err(RecvTimeoutError::Timeout);
        if timed_out && Instant::now() >= until {
            // The reader thread finds that there is no time left.
            self.shared.state.lock().hang_up();
        }
    }
}

impl State {
    /// Ends the connection. The reader thread sees the end of the stream and does the rest.
    fn hang_up(&self) {
        if let Some(closer) = &self.closer {
            closer.close();
        }
    }
}

impl Shared {
    /// Runs one input through the machine, carries out what follows from it, and writes what there is to write.
    fn input<T>(
        self: &Arc<Self>,
        input: impl FnOnce(&mut Machine<OnReply, Watcher>, &mut Actions<OnReply, Watcher>) -> T,
    ) -> T {
        let mut actions = Vec::new();
        let mut state = self.state.lock();
        let result = input(&mut state.machine, &mut actions);
        self.publish(&state.machine);
        let output = take_output(&mut state);
        drop(state);
        let carried_out = catch_unwind(AssertUnwindSafe(|| self.carry_out(actions)));
        if let Some(output) = output {
            // Also after a panic: nobody else may write before this is written, not even the session's last request.
            self.write(output);
        }
        if let Err(panic) = carried_out {
            resume_unwind(panic);
        }
        result
    }

    /// Copies what others read without the lock.
    fn publish(&self, machine: &Machine<OnReply, Watcher>) {
        let valid_until = machine.valid_until().map_or(0, |at| {
            u64::try_from(at.saturating_duration_since(self.born).as_nanos()).unwrap_or(u64::MAX).max(1)
        });
        self.id.store(machine.session_id(), Ordering::Release);
        self.connection.store(if machine.is_alive() { machine.connection() } else { 0 }, Ordering::Release);
        self.timeout_ms.store(millis(machine.timeout()), Ordering::Release);
        self.valid_until.store(valid_until, Ordering::Release);
        self.ended.store(!machine.is_alive(), Ordering::Release);
    }

    fn carry_out(&self, actions: Actions<OnReply, Watcher>) {
        super::carry_out(actions, &self.observer);
    }

    /// Writes for a while, and leaves the rest to another thread. The caller has set `writing`.
    fn write(self: &Arc<Self>, output: Output) {
        let until = Instant::now() + WRITE_PATIENCE;
        let Some(rest) = self.write_until(output, Some(until)) else { return };
        let (shared, connection) = (self.clone(), rest.connection);
        let spawned = std::thread::Builder::new().name("zk-session-writer".into()).spawn(move || {
            shared.write_until(rest, None);
        });
        if let Err(error) = spawned {
            let mut state = self.state.lock();
            state.writing = false;
            self.write_failed(&mut state, connection, &error);
        }
    }

    /// Writes until there is nothing more to write, or until then: gives what is left, and `writing` stays set.
    fn write_until(&self, mut output: Output, until: Option<Instant>) -> Option<Output> {
        loop {
            let written = self.write_once(&mut output, until);
            if let Ok(false) = written {
                return Some(output);
            }
            let mut state = self.state.lock();
            state.writing = false;
            if let Err(error) = written {
                self.write_failed(&mut state, output.connection, &error);
            }
            output = take_output(&mut state)?;
            if until.is_some_and(|until| output.taken >= until) {
                return Some(output);
            }
        }
    }

    /// `true`: all of it is written.
    fn write_once(&self, output: &mut Output, until: Option<Instant>) -> io::Result<bool> {
        let mut writer = self.writer.lock();
        let is_current = output.connection == writer.connection;
        let Some(half) = writer.half.as_mut().filter(|_| is_current) else {
            // That connection is gone, and what was to be written to it has been answered.
            return Ok(true);
        };
        let rest = output.bytes.get(output.written..).unwrap_or_default();
        output.written += half.write(rest, until.map_or(output.deadline, |until| until.min(output.deadline)))?;
        if output.written >= output.bytes.len() {
            return Ok(true);
        }
        if until.is_some_and(|until| until < output.deadline) { Ok(false) } else { Err(does_not_take()) }
    }

    fn write_failed(&self, state: &mut State, connection: u64, error: &io::Error) {
        log::debug!("writing failed: {error}");
        if state.machine.write_failed(connection) {
            state.hang_up();
        }
    }

    fn leave(self: &Arc<Self>, error: SessionError, until: Option<Instant>) {
        self.input(|machine, actions| machine.leave(error, until, actions));
        let state = self.state.lock();
        if state.machine.is_over(Instant::now()) {
            // There is nothing to close at a server, but the reader thread may wait for what it says.
            state.hang_up();
        }
        drop(state);
        // A full channel means that a wake-up is on its way already.
        let _ = self.wake.try_send(());
    }
}

struct Output {
    bytes: Vec<u8>,
    /// How many of them are written.
    written: usize,
    connection: u64,
    taken: Instant,
    /// A peer that does not take what is sent to it for a third of the session timeout is dead.
    deadline: Instant,
}

fn take_output(state: &mut State) -> Option<Output> {
    if state.writing || !state.machine.has_output() {
        return None;
    }
    let mut bytes = Vec::new();
    state.machine.take_output(&mut bytes);
    state.writing = true;
    let taken = Instant::now();
    let deadline = taken + state.machine.timeout() / 3;
    Some(Output { bytes, written: 0, connection: state.machine.connection(), taken, deadline })
}

fn does_not_take() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer does not take what is sent to it")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn invalid_data(error: ProtoError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
