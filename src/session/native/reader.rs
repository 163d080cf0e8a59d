//! The thread of a session: it connects, reads, and keeps the timers.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use super::shared::{SessionShared, does_not_take};
#[cfg(feature = "sasl")]
use crate::session::sasl::{exchange::Exchange, mechanism::Failure};
use crate::{
    base::{
        channel::{Receiver, Sender},
        clock, log,
    },
    proto::{connect::ConnectResponse, error::ProtoError, frame::FrameBuffer},
    session::{
        servers::{
            resolver::Resolver,
            rotation::{NextTry, Rotation},
        },
        successor::Established,
        transport::{Connection, ReadHalf, WriteHalf, hung_up, invalid_data, resolve_all},
    },
};

/// No wait for bytes lasts longer: nothing wakes this thread from a peer that says nothing, and a session that leaves may
/// have no time left.
pub(super) const LONGEST_READ: Duration = Duration::from_secs(1);

/// The likely reasons of a server that does not go on.
struct ReplyPhase {
    /// Where it closes the connection instead of answering.
    hung_up: &'static str,
    /// Where it says nothing.
    silent: &'static str,
}

const HANDSHAKE: ReplyPhase = ReplyPhase {
    hung_up: "the server closed the connection instead of answering the handshake: it does not serve yet or has no quorum, has \
              too many connections (maxClientCnxns), or this is its port for TLS",
    silent: "no answer to the handshake: is this the client port of a ZooKeeper server, and does the server run?",
};

#[cfg(feature = "sasl")]
const SASL: ReplyPhase = ReplyPhase {
    hung_up: "the server closed the connection while the client authenticated itself with SASL",
    silent: "the server answered the handshake, and then not the client's SASL token",
};

/// The thread that connects, reads, and keeps the timers.
pub(super) struct ReaderThread {
    pub(super) shared: Arc<SessionShared>,
    pub(super) pauses: Receiver<()>,
    /// Dropped with the thread, whichever way it ends.
    pub(super) _alive: Sender<()>,
}

impl ReaderThread {
    pub(super) fn run(&self) {
        let config = &self.shared.config;
        let transport = self.shared.transport.clone();
        let resolver =
            Resolver::new(Arc::new(move |host, port| resolve_all(&*transport, host, port)), config.known.clone());
        let hosts = config.hosts.hosts();
        let handshakes = self.shared.transport.handshakes();
        let mut rotation =
            Rotation::new(hosts, resolver, handshakes, config.connection_timeout, config.session_timeout);
        self.begin_as_successor(&mut rotation);
        while !self.is_over() {
            let rests_until = self.shared.state.lock().machine.rests_until(clock::now());
            if let Some(until) = rests_until {
                self.pause(clock::until(until));
                continue;
            }
            if let Some(hosts) = self.shared.new_hosts.lock().take() {
                rotation.set_hosts(hosts.hosts());
            }
            match rotation.step() {
                NextTry::Pause(pause) => {
                    if let Some(error) = rotation.why_no_address() {
                        *self.shared.last_error.lock() = Some(Arc::new(error));
                    }
                    self.pause(pause);
                }
                NextTry::Try { host, addresses, limit } => {
                    let began = clock::now();
                    match self.connect(&host, &addresses, limit) {
                        Ok(Some((reader, buffer))) => {
                            let took = clock::since(began);
                            rotation.connection_ended(took, self.serve_until_end(reader, buffer));
                        }
                        Ok(None) => {}
                        Err(error) => {
                            log::debug!("{host} ({addresses:?}) does not take the session: {error}");
                            self.disconnected(Some(rotation.refused(&host, &addresses, &error)));
                        }
                    }
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.shared.state.lock().machine.is_over(clock::now())
    }

    fn pause(&self, pause: Duration) {
        let leaves_at = self.shared.state.lock().machine.leaves_at();
        // The wake-up, a time-out: either way the loop looks at the state.
        let _ = self.pauses.recv_timeout(leaves_at.map_or(pause, |at| pause.min(clock::until(at))));
    }

    /// Begins with the connection that the client's last session has left, if it has left one.
    fn begin_as_successor(&self, rotation: &mut Rotation) {
        let left = if self.is_over() { None } else { self.shared.config.successor.take() };
        let Some((connection, buffer, response, sent)) = left.and_then(Established::take) else { return };
        let Connection { reader, writer, stream } = connection;
        self.shared.state.lock().stream = Some(stream);
        let lasted = match self.connected(writer, response, sent) {
            Ok(()) => self.serve_until_end(reader, buffer),
            Err(error) => {
                self.disconnected(Some(error));
                Duration::ZERO
            }
        };
        rotation.first_connection_ended(lasted);
    }

    /// Serves one connection. Returns how long it has lasted; without end if the server has refused an operation by it, as
    /// ZooKeeper 3.4 and 3.5 do once to each client: it serves, so that the next connection needs no pause.
    fn serve_until_end(&self, reader: Box<dyn ReadHalf>, buffer: FrameBuffer) -> Duration {
        let since = clock::now();
        self.serve(reader, buffer);
        if self.shared.state.lock().machine.take_refusal() { Duration::MAX } else { clock::since(since) }
    }

    /// Connects and shakes hands. The first frames after the handshake may be in the buffer already. `None`: the session is
    /// over by that.
    fn connect(
        &self,
        host: &str,
        addresses: &[std::net::SocketAddr],
        limit: Duration,
    ) -> io::Result<Option<(Box<dyn ReadHalf>, FrameBuffer)>> {
        let deadline = clock::now() + limit;
        let Connection { mut reader, mut writer, stream } =
            self.shared.transport.connect(host, addresses, limit, &|| self.is_over())?;
        let sent = clock::now();
        let request = {
            let mut state = self.shared.state.lock();
            if state.machine.is_over(sent) || state.machine.rests_until(sent).is_some() {
                // A handshake would make a session that is never closed, or one last longer that nobody uses.
                return Err(io::ErrorKind::Interrupted.into());
            }
            state.stream = Some(stream.clone());
            state.server = stream.peer().map(|peer| (host.to_owned(), peer));
            state.machine.connect_request().encode()
        };
        if writer.write(&request, deadline).map_err(|error| hung_up(error, HANDSHAKE.hung_up))? < request.len() {
            return Err(does_not_take());
        }
        let mut buffer = FrameBuffer::new(self.shared.config.max_frame_size);
        let reply = |frame: &[u8]| ConnectResponse::decode(frame).map_err(no_server);
        let response = self.first_frame(&mut *reader, &mut buffer, deadline, &HANDSHAKE, reply)?;
        log::debug!("{host} ({addresses:?}) answered the handshake with session {:#x}", response.session_id);
        #[cfg(feature = "sasl")]
        if response.timeout_ms > 0 {
            self.authenticate(host, &mut *reader, &mut *writer, &mut buffer, deadline)?;
        }
        if self.shared.state.lock().machine.is_replaced_by(&response) {
            // First the holders: a logger may take its time.
            self.replaced(Established::new(Connection { reader, writer, stream }, buffer, response, sent));
            log::warn!(
                "{host} ({addresses:?}) resumes no session, and has given another one: all locks of the old one are lost"
            );
            return Ok(None);
        }
        self.connected(writer, response, sent)?;
        Ok(Some((reader, buffer)))
    }

    /// The session is over, and leaves its connection to the next one, which begins as soon as the client is told.
    fn replaced(&self, established: Established) {
        let successor = &self.shared.config.successor;
        // The end of this thread shuts down the stream that it finds here.
        self.shared.state.lock().stream = None;
        successor.put(established);
        if !self.shared.input(|machine, actions| machine.replaced(clock::now(), actions)) {
            // Nobody waits for the next session of a client that is closed.
            drop(successor.take());
        }
    }

    /// Waits for a frame that comes before the session goes on.
    fn first_frame<T>(
        &self,
        reader: &mut dyn ReadHalf,
        buffer: &mut FrameBuffer,
        deadline: Instant,
        stage: &ReplyPhase,
        take: impl Fn(&[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            if let Some(frame) = buffer.next_frame().map_err(no_server)? {
                return take(frame);
            }
            let now = clock::now();
            if now >= deadline || self.is_over() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, stage.silent));
            }
            // In steps, so that a close does not wait for a server that says nothing.
            let timeout = deadline.saturating_duration_since(now).min(Duration::from_millis(100));
            match reader.read(buffer.space(), timeout).map_err(|error| hung_up(error, stage.hung_up))? {
                Some(0) => return Err(hung_up(io::ErrorKind::UnexpectedEof.into(), stage.hung_up)),
                Some(count) => buffer.filled(count),
                None => {}
            }
        }
    }

    /// The rounds of SASL, within the time of the handshake. The machine hears nothing of the connection before they are
    /// over, so that every request, the watches and all other credentials are held back.
    #[cfg(feature = "sasl")]
    fn authenticate(
        &self,
        host: &str,
        reader: &mut dyn ReadHalf,
        writer: &mut dyn WriteHalf,
        buffer: &mut FrameBuffer,
        deadline: Instant,
    ) -> io::Result<()> {
        let Some(sasl) = &self.shared.sasl else { return Ok(()) };
        if !self.shared.state.lock().machine.authenticates() {
            return Ok(());
        }
        let begun =
            sasl.begin(host, deadline, &|| self.is_over()).map_err(|failure| self.not_authenticated(failure))?;
        let (mut exchange, mut request) = Exchange::begin(begun.0, &begun.1);
        loop {
            if writer.write(&request, deadline).map_err(|error| hung_up(error, SASL.hung_up))? < request.len() {
                return Err(does_not_take());
            }
            let reply = self.first_frame(reader, buffer, deadline, &SASL, |frame| Ok(frame.to_vec()))?;
            match exchange.reply(&reply).map_err(|failure| self.not_authenticated(failure))? {
                Some(next) => request = next,
                None => return Ok(()),
            }
        }
    }

    #[cfg(feature = "sasl")]
    fn not_authenticated(&self, failure: Failure) -> io::Error {
        match failure {
            Failure::Refused(why) => {
                let (scheme, detail) = ("sasl".to_owned(), why.clone());
                self.shared.input(|machine, actions| machine.auth_failed(scheme, detail, clock::now(), actions));
                io::Error::new(io::ErrorKind::PermissionDenied, why)
            }
            Failure::Protocol(why) => invalid_data(why),
            Failure::NotNow(why) => io::Error::new(io::ErrorKind::TimedOut, why),
        }
    }

    fn connected(&self, half: Box<dyn WriteHalf>, response: ConnectResponse, sent: Instant) -> io::Result<()> {
        // The half goes in under a number that is not current yet, so no thread writes before the machine says so.
        let number = self.shared.state.lock().machine.next_connection();
        *self.shared.writer.lock() = Some((number, half));
        let taken = self.shared.input(|machine, actions| machine.connected(response, sent, clock::now(), actions));
        if taken.is_err() {
            *self.shared.writer.lock() = None;
        }
        taken.map_err(invalid_data)
    }

    /// Reads until the connection ends.
    fn serve(&self, mut reader: Box<dyn ReadHalf>, mut buffer: FrameBuffer) {
        let cause = self.read_on(&mut *reader, &mut buffer).err();
        // First the shutdown: it frees a writer that is stuck.
        self.shared.state.lock().hang_up();
        if let Some(error) = &cause {
            log::debug!("the connection ended: {error}");
        }
        self.disconnected(cause);
        *self.shared.writer.lock() = None;
    }

    /// Hands on the received frames, the first time those behind the reply to the handshake, and reads more, each time until
    /// the next timer. `Ok`: the session is over.
    fn read_on(&self, reader: &mut dyn ReadHalf, buffer: &mut FrameBuffer) -> io::Result<()> {
        loop {
            self.take_frames(buffer)?;
            let Some(timeout) = self.keep_timers()? else { return Ok(()) };
            match reader.read(buffer.space(), timeout)? {
                Some(0) => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
                }
                Some(count) => buffer.filled(count),
                None => {}
            }
        }
    }

    /// Hands every complete frame to the machine, under one lock. The actions are carried out after that, so a thread
    /// that waits for several replies is woken once.
    fn take_frames(&self, buffer: &mut FrameBuffer) -> io::Result<()> {
        self.shared.input(|machine, actions| {
            let now = clock::now();
            loop {
                match buffer.next_frame() {
                    Ok(Some(frame)) => machine.frame(frame, now, actions).map_err(invalid_data)?,
                    Ok(None) => return Ok(()),
                    Err(ProtoError::FrameTooLarge { size, limit }) => {
                        // The next four bytes tell whose reply it is.
                        let Some(xid) = buffer.peek_xid() else { return Ok(()) };
                        machine.frame_too_large(xid, size, limit, actions);
                        return Err(invalid_data(ProtoError::FrameTooLarge { size, limit }));
                    }
                    Err(error) => return Err(invalid_data(error)),
                }
            }
        })
    }

    /// How long this thread may wait now; `None` if the session is over.
    fn keep_timers(&self) -> io::Result<Option<Duration>> {
        let now = clock::now();
        let (mut next_timer, is_over, is_failing) = {
            let state = self.shared.state.lock();
            (state.machine.next_timer(), state.machine.is_over(now), state.machine.is_failing())
        };
        if is_over {
            return Ok(None);
        }
        if is_failing {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "nothing goes over this connection any more"));
        }
        if now >= next_timer {
            let next = self.shared.input(|machine, _| machine.timer(now).map(|()| machine.next_timer()));
            next_timer = next.map_err(|why| io::Error::new(io::ErrorKind::TimedOut, why))?;
        }
        Ok(Some(next_timer.saturating_duration_since(now).min(LONGEST_READ)))
    }

    fn disconnected(&self, cause: Option<io::Error>) {
        let cause = cause.map(Arc::new);
        if cause.is_some() {
            self.shared.last_error.lock().clone_from(&cause);
        }
        self.shared.state.lock().stream = None;
        self.shared.input(|machine, actions| machine.disconnected(cause.as_ref(), actions));
    }
}

impl Drop for ReaderThread {
    /// Also if a panic ends the thread: no caller must wait for a reply that is never read.
    fn drop(&mut self) {
        self.shared.input(|machine, actions| machine.expired(actions));
        self.shared.state.lock().hang_up();
        *self.shared.writer.lock() = None;
    }
}

/// The error of a first answer that no ZooKeeper server gives.
fn no_server(error: ProtoError) -> io::Error {
    invalid_data(format!("this is not the client port of a ZooKeeper server, which answers otherwise ({error})"))
}
