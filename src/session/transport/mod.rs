//! The byte stream under a session.

#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(feature = "tls")]
pub(crate) mod tls_config;

use std::{
    fmt, io,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    sync::Arc,
    time::{Duration, Instant},
};

#[cfg(feature = "tls")]
pub use tls_config::TlsConfig;

/// Opens connections.
pub(crate) trait Transport: Send + Sync + 'static {
    /// The addresses of a host; called on a thread of its own, as it may block for long.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }

    /// Connects to one address of `host`, for at most `limit`.
    fn connect(&self, host: &str, address: SocketAddr, limit: Duration) -> io::Result<Connection>;
}

/// One connection, in halves that two threads use at the same time.
pub(crate) struct Connection {
    pub(crate) reader: Box<dyn ReadHalf>,
    pub(crate) writer: Box<dyn WriteHalf>,
    pub(crate) closer: Closer,
}

/// The half of the thread that reads.
pub(crate) trait ReadHalf: Send {
    /// Reads what is there, waiting at most about `patience` for something: `None` if nothing came. 0 is the end.
    fn read(&mut self, buffer: &mut [u8], patience: Duration) -> io::Result<Option<usize>>;
}

/// The half of whoever submits requests.
pub(crate) trait WriteHalf: Send {
    /// Writes what the peer takes until then, and says how much that was. Tries once even if the time is up.
    fn write(&mut self, bytes: &[u8], until: Instant) -> io::Result<usize>;
}

/// Ends a connection from any thread; both halves fail at once.
#[derive(Clone)]
pub(crate) struct Closer(Arc<TcpStream>);

impl Closer {
    pub(crate) fn close(&self) {
        // An error means that the peer was faster.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closer")
    }
}

/// Plain TCP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp;

impl Transport for Tcp {
    fn connect(&self, _host: &str, address: SocketAddr, limit: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, limit.max(Duration::from_millis(1)))?;
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        Ok(Connection {
            reader: Box::new(TcpReader { stream: stream.clone(), timeout: Duration::MAX }),
            writer: Box::new(TcpWriter { stream: stream.clone(), timeout: Duration::MAX }),
            closer: Closer(stream),
        })
    }
}

struct TcpReader {
    stream: Arc<TcpStream>,
    /// What the socket is set to.
    timeout: Duration,
}

/// How far the socket's timeout may lie beyond what was asked for, and no more than an eighth: so late the timers of a
/// session may be. Setting it costs a system call, and under load the patience shrinks with every read.
const SLACK: Duration = Duration::from_millis(20);

fn is_far_off(set: Duration, wanted: Duration) -> bool {
    set > wanted.saturating_add(SLACK.min(wanted / 8)) || set < wanted / 2
}

impl ReadHalf for TcpReader {
    fn read(&mut self, buffer: &mut [u8], patience: Duration) -> io::Result<Option<usize>> {
        let patience = patience.max(Duration::from_millis(1));
        if is_far_off(self.timeout, patience) {
            self.stream.set_read_timeout(Some(patience))?;
            self.timeout = patience;
        }
        match (&*self.stream).read(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

struct TcpWriter {
    stream: Arc<TcpStream>,
    /// What the socket is set to.
    timeout: Duration,
}

impl WriteHalf for TcpWriter {
    fn write(&mut self, bytes: &[u8], until: Instant) -> io::Result<usize> {
        let mut written = 0;
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            let patience = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            if is_far_off(self.timeout, patience) {
                self.stream.set_write_timeout(Some(patience))?;
                self.timeout = patience;
            }
            match (&*self.stream).write(bytes.get(written..).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            if written >= bytes.len() || Instant::now() >= until {
                return Ok(written);
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
