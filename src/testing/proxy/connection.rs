//! One client's connection, and the server's behind it.

use std::{
    io::{self, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use socket2::SockRef;

use super::{dialect::OwnAnswer, rule::Rule};

/// How soon a thread that writes to a full socket notices that the connection was ended.
const WRITE_POLL: Duration = Duration::from_millis(50);

/// Which way bytes go.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, RetryOneTime};
/// use curator_locks::testing::{Direction, FaultProxy};
///
/// # let server = curator_locks::testing::TestingServer::start()?;
/// let proxy = FaultProxy::start(server.connect_string())?;
/// let retry = RetryOneTime::new(Duration::from_millis(100));
/// let client = CuratorFrameworkFactory::new_client(proxy.connect_string(), retry)?;
/// client.start()?;
/// assert!(client.block_until_connected(Some(Duration::from_secs(30)))?);
/// proxy.black_hole(Direction::ToClient); // requests are done, and the client never hears of it
/// proxy.pass()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
    /// Both ways.
    Both,
}

impl Direction {
    pub(super) fn includes(self, other: Direction) -> bool {
        self == Direction::Both || self == other
    }
}

/// How a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Fin,
    Reset,
}

/// A request on its way, in the order of the connection.
#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) xid: i32,
    /// Its place in the log.
    pub(super) place: usize,
    /// The rule's action on its reply.
    pub(super) rule: Option<Arc<Rule>>,
    /// The answer that the client gets instead of the server's.
    pub(super) own: Option<OwnAnswer>,
}

#[derive(Debug)]
pub(super) struct Proxied {
    pub(super) number: u64,
    client: TcpStream,
    server: OnceLock<TcpStream>,
    /// Set under the relay's lock, because threads wait for it there.
    ended: AtomicBool,
    pending: Mutex<Vec<OpenRequest>>,
}

impl Proxied {
    pub(super) fn new(number: u64, client: TcpStream) -> io::Result<Proxied> {
        prepare(&client)?;
        let (server, ended) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Proxied { number, client, server, ended, pending: Mutex::default() })
    }

    /// The relay's lock is held, so that no [`end`](Self::end) comes in between and misses the socket.
    pub(super) fn set_server(&self, server: TcpStream) -> io::Result<()> {
        prepare(&server)?;
        if self.is_ended() || self.server.set(server).is_err() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Where bytes of this direction come from.
    pub(super) fn source(&self, direction: Direction) -> io::Result<&TcpStream> {
        match direction {
            Direction::ToClient => self.server.get().ok_or_else(|| io::ErrorKind::NotConnected.into()),
            Direction::ToServer | Direction::Both => Ok(&self.client),
        }
    }

    /// Where bytes of this direction go.
    pub(super) fn sink(&self, direction: Direction) -> io::Result<&TcpStream> {
        match direction {
            Direction::ToClient => self.source(Direction::ToServer),
            Direction::ToServer | Direction::Both => self.source(Direction::ToClient),
        }
    }

    /// Writes all of it, unless the connection is ended meanwhile.
    pub(super) fn write(&self, direction: Direction, mut bytes: &[u8]) -> io::Result<()> {
        let mut sink = self.sink(direction)?;
        while !bytes.is_empty() {
            match sink.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if is_timeout(&error) && !self.is_ended() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Ends both sides and wakes the threads that read from them. `false`: it was ended before. The relay's lock is
    /// held.
    pub(super) fn end(&self, ending: Ending) -> bool {
        if self.ended.swap(true, Ordering::SeqCst) {
            return false;
        }
        for stream in [Some(&self.client), self.server.get()].into_iter().flatten() {
            // It fails where the other side was faster.
            let _ = match ending {
                Ending::Fin => stream.shutdown(Shutdown::Both),
                // A shutdown for writing would send FIN first. The last thread to go closes the socket: then, RST.
                Ending::Reset => SockRef::from(stream)
                    .set_linger(Some(Duration::ZERO))
                    .and_then(|()| stream.shutdown(Shutdown::Read)),
            };
        }
        true
    }

    pub(super) fn await_reply(&self, request: OpenRequest) {
        self.pending.lock().push(request);
    }

    /// Forgets the oldest request with this number; gives its place in the log, and what is to be done to the reply.
    pub(super) fn take_reply(&self, xid: i32) -> Option<OpenRequest> {
        let mut pending = self.pending.lock();
        let index = pending.iter().position(|pending| pending.xid == xid)?;
        Some(pending.remove(index))
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_POLL))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
