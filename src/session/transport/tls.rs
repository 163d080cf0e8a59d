//! TLS over TCP.

use std::{
    io,
    io::{Read, Write},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};

use super::{Connection, ReadHalf, Transport, WriteHalf, hung_up, invalid_data, tcp::Tcp};
use crate::base::{clock, sync::Mutex};

/// How much is encrypted at a time, and how much is read from the socket at a time.
const CHUNK: usize = 16 * 1024;

/// How often to ask whether a handshake is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// The likely reasons of a server that ends the connection instead of shaking hands.
const HUNG_UP: &str =
    "the server ended the connection in the TLS handshake: not a secureClientPort, or it wants a client certificate";

/// TLS over TCP.
///
/// The two halves share the state of the connection under a lock that is held only while bytes are encrypted or
/// decrypted, never while a socket is waited for: the reader is not held up by a writer that is stuck. Only the writer
/// sends. Messages of the reader's side (an answer to a change of keys) wait in the state until then, and go first; so
/// the bytes leave in the order in which they were encrypted.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
}

impl Transport for Tls {
    fn connect(
        &self,
        host: &str,
        addresses: &[SocketAddr],
        limit: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Connection> {
        let deadline = clock::now() + limit;
        let name = ServerName::try_from(host.to_owned()).map_err(invalid_data)?;
        let mut tls = ClientConnection::new(self.config.clone(), name).map_err(invalid_data)?;
        let Connection { mut reader, mut writer, stream } = Tcp.connect(host, addresses, limit, is_over)?;
        shake_hands(&mut tls, &mut *reader, &mut *writer, deadline, is_over)?;
        let state = Arc::new(Mutex::new(tls));
        Ok(Connection {
            reader: Box::new(TlsReader { tcp: reader, state: state.clone(), encrypted: Vec::new(), is_closed: false }),
            writer: Box::new(TlsWriter { tcp: writer, state, encrypted: Vec::new(), sent: 0, chunk: 0 }),
            stream,
        })
    }
}

fn shake_hands(
    tls: &mut ClientConnection,
    reader: &mut dyn ReadHalf,
    writer: &mut dyn WriteHalf,
    deadline: Instant,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut encrypted = vec![0; CHUNK];
    loop {
        send(tls, writer, deadline)?;
        if !tls.is_handshaking() {
            return Ok(());
        }
        let timeout = deadline.saturating_duration_since(clock::now()).min(LOOK);
        if timeout.is_zero() || is_over() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to the TLS handshake"));
        }
        let Some(count) = reader.read(&mut encrypted, timeout).map_err(|error| hung_up(error, HUNG_UP))? else {
            continue;
        };
        if count == 0 {
            return Err(hung_up(io::ErrorKind::UnexpectedEof.into(), HUNG_UP));
        }
        let mut received = encrypted.get(..count).unwrap_or_default();
        while !received.is_empty() {
            // After `close_notify` nothing more is taken.
            if tls.read_tls(&mut received)? == 0 {
                return Err(hung_up(io::ErrorKind::UnexpectedEof.into(), HUNG_UP));
            }
            if let Err(error) = tls.process_new_packets() {
                // Tells the server's log why. The error stays the same if that fails.
                let _ = send(tls, writer, deadline);
                return Err(refusal(error));
            }
        }
    }
}

fn send(tls: &mut ClientConnection, writer: &mut dyn WriteHalf, deadline: Instant) -> io::Result<()> {
    let mut encrypted = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut encrypted)?;
    }
    if writer.write(&encrypted, deadline)? < encrypted.len() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not take the TLS handshake"));
    }
    Ok(())
}

struct TlsReader {
    tcp: Box<dyn ReadHalf>,
    state: Arc<Mutex<ClientConnection>>,
    /// Received, but not taken by the state yet, which has limited room.
    encrypted: Vec<u8>,
    is_closed: bool,
}

impl ReadHalf for TlsReader {
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<Option<usize>> {
        let now = clock::now();
        let until = now.checked_add(timeout).unwrap_or(now);
        let mut is_over = false;
        loop {
            if let Some(count) = self.decrypt(buffer)? {
                return Ok(Some(count));
            }
            let left = until.saturating_duration_since(clock::now());
            // A record that comes byte by byte must not keep the reader from its timers.
            if is_over || !self.receive(left)? {
                return Ok(None);
            }
            is_over = left.is_zero();
        }
    }
}

impl TlsReader {
    /// Hands out the received bytes, if they make up a record. 0 is the end.
    fn decrypt(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut tls = self.state.lock();
        loop {
            match tls.reader().read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The stream ended without `close_notify`. Frames carry their length, so nothing can be cut off unseen.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                Err(error) => return Err(error),
            }
            if self.encrypted.is_empty() {
                return Ok(self.is_closed.then_some(0));
            }
            let mut rest = self.encrypted.as_slice();
            let count = tls.read_tls(&mut rest)?;
            self.encrypted.drain(..count);
            tls.process_new_packets().map_err(invalid_data)?;
        }
    }

    /// Waits for more from the socket, without the lock. `false`: nothing came.
    fn receive(&mut self, timeout: Duration) -> io::Result<bool> {
        self.encrypted.resize(CHUNK, 0);
        let received = self.tcp.read(&mut self.encrypted, timeout);
        self.encrypted.truncate(received.as_ref().map_or(0, |count| count.unwrap_or(0)));
        let count = received?;
        self.is_closed |= count == Some(0);
        Ok(count.is_some())
    }
}

struct TlsWriter {
    tcp: Box<dyn WriteHalf>,
    state: Arc<Mutex<ClientConnection>>,
    /// One chunk, encrypted.
    encrypted: Vec<u8>,
    /// How much of it is sent.
    sent: usize,
    /// The length of the chunk before it was encrypted.
    chunk: usize,
}

impl WriteHalf for TlsWriter {
    /// A chunk counts as written when all of it is sent. One that was not is encrypted already: the next call has to
    /// begin with the same bytes.
    fn write(&mut self, bytes: &[u8], until: Instant) -> io::Result<usize> {
        let (mut written, mut has_tried) = (0, false);
        loop {
            let rest = self.encrypted.get(self.sent..).unwrap_or_default();
            self.sent += self.tcp.write(rest, until)?;
            if self.sent < self.encrypted.len() {
                return Ok(written);
            }
            written += std::mem::take(&mut self.chunk);
            let next = bytes.get(written..).and_then(|rest| rest.chunks(CHUNK).next());
            // Once in any case, as late as it may be.
            match next.filter(|_| !std::mem::replace(&mut has_tried, true) || clock::now() < until) {
                Some(chunk) => self.encrypt(chunk)?,
                None => return Ok(written),
            }
        }
    }
}

impl TlsWriter {
    fn encrypt(&mut self, mut chunk: &[u8]) -> io::Result<()> {
        self.encrypted.clear();
        (self.sent, self.chunk) = (0, chunk.len());
        let mut tls = self.state.lock();
        while !chunk.is_empty() {
            let count = tls.writer().write(chunk)?;
            chunk = chunk.get(count..).unwrap_or_default();
            while tls.wants_write() {
                tls.write_tls(&mut self.encrypted)?;
            }
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

/// Why the handshake failed, and what to do where that is known.
fn refusal(error: rustls::Error) -> io::Error {
    use rustls::{AlertDescription as Alert, CertificateError, Error};
    let hint = match &error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "none of the root certificates has issued it; see root_certificates_pem()"
        }
        Error::AlertReceived(Alert::BadCertificate | Alert::CertificateRequired | Alert::UnknownCA) => {
            "the server wants a client certificate of an authority that it trusts; see client_certificate_pem()"
        }
        Error::InvalidMessage(_) => "what answers does not speak TLS; is this the secureClientPort?",
        _ => return invalid_data(error),
    };
    invalid_data(format!("{error}: {hint}"))
}

#[cfg(all(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;
    use crate::testing::TestingAuthority;

    #[test]
    fn a_handshake_that_is_not_wanted_any_more_waits_for_no_server() {
        let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = silent.local_addr().unwrap();
        let trusted = TestingAuthority::new("authority").unwrap().trusted().unwrap();
        let tls = Tls { config: trusted.client_config().unwrap() };
        let is_over = Mutex::new(false);
        let limit = Duration::from_secs(600);
        thread::scope(|scope| {
            let connecting =
                scope.spawn(|| tls.connect("127.0.0.1", &[address], limit, &|| *is_over.lock()).err().unwrap());
            let _accepted = silent.accept().unwrap();
            *is_over.lock() = true;
            assert_eq!(connecting.join().unwrap().kind(), io::ErrorKind::TimedOut);
        });
    }
}
