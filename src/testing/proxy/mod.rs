//! A TCP proxy that knows ZooKeeper's frames, and breaks the network between a client and its server.

mod carry;
pub(super) mod connection;
mod dialect;
mod frame;
mod injected;
pub mod op;
mod relay;
mod requests;
mod rule;

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;

use super::{error::TestingError, port::ReservedPort};
use crate::session::dialect::Dialect;
use connection::Ending;
use relay::Relay;

pub use connection::Direction;
pub use injected::InjectedFault;
pub use requests::RequestRecord;
pub use rule::{Fault, RequestMatch};

/// How soon it is tried again to accept after an error: that of a client that has gone already, or of a process that has
/// too many files open for now.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A proxy in front of one server, on a free port of 127.0.0.1, that passes everything on until told otherwise.
///
/// Faults of the network hold until [`pass`](Self::pass), also for connections that are yet to come. Faults of single
/// requests are given to [`inject`](Self::inject). Dropping the proxy closes its connections and ends its threads.
///
/// ```
/// use curator_locks::testing::{Direction, Fault, FaultProxy, RequestMatch, TestingServer};
///
/// let server = TestingServer::start()?;
/// let proxy = FaultProxy::start(server.connect_string())?;
/// // ... connect a client to proxy.connect_string(), then:
/// proxy.black_hole(Direction::Both);
/// proxy.pass()?;
/// // The next create is done by the server, but the client loses its connection instead of seeing the reply.
/// let fault = proxy.inject(RequestMatch::creates(), Fault::CutInsteadOfReply);
/// assert_eq!(fault.hits(), 0);
/// # Ok::<(), curator_locks::testing::TestingError>(())
/// ```
///
/// The network as a client sees it:
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, RetryOneTime};
/// use curator_locks::testing::{FaultProxy, op};
///
/// # let server = curator_locks::testing::TestingServer::start()?;
/// let proxy = FaultProxy::start(server.connect_string())?;
/// let retry = RetryOneTime::new(Duration::from_millis(100));
/// let client = CuratorFrameworkFactory::new_client(proxy.connect_string(), retry)?;
/// client.start()?;
/// assert!(client.block_until_connected(Some(Duration::from_secs(30)))?);
/// assert_eq!((proxy.connections(), proxy.open_connections()), (1, 1));
/// proxy.clear_log();
/// client.check_exists().for_path("/")?;
/// assert_eq!(proxy.requests(op::EXISTS), 1);
/// proxy.delay(Duration::from_millis(10)); // each way, until `pass`
/// proxy.refuse(); // no connection from now on
/// assert_eq!(proxy.cut(), 1); // with FIN; `reset` does it with RST
/// assert_eq!(proxy.open_connections(), 0);
/// proxy.reset();
/// proxy.pass()?;
/// let cut = proxy.cut_after(3); // after the third request from now on
/// assert!(client.block_until_connected(Some(Duration::from_secs(30)))?);
/// let any_protocol = FaultProxy::start_opaque(server.connect_string())?;
/// assert_ne!(any_protocol.port(), proxy.port());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    port: ReservedPort,
    relay: Arc<Relay>,
    acceptor: Mutex<Option<Acceptor>>,
}

impl FaultProxy {
    /// Starts a proxy for ZooKeeper's client protocol in front of `server`, for instance a server's connect string.
    ///
    /// # Errors
    /// If `server` is no address, or there is no free port.
    pub fn start(server: impl ToSocketAddrs) -> Result<FaultProxy, TestingError> {
        FaultProxy::start_with(server, true, Dialect::ZooKeeper)
    }

    /// Starts a proxy that takes the bytes as they come, for any other protocol: it sees no requests. A server that
    /// refuses is tried again for 5 s before the client's connection is closed.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_opaque(server: impl ToSocketAddrs) -> Result<FaultProxy, TestingError> {
        FaultProxy::start_with(server, false, Dialect::ZooKeeper)
    }

    /// Starts one that answers as servers of another kind than its ZooKeeper server do: it ends the connection at what they do
    /// not know, resumes no session if they do not, and tells their version.
    ///
    /// It passes on whatever such a server knows. So its sequence numbers, watches and errors are ZooKeeper's, and with
    /// [`Dialect::Keeper`] its containers go as ZooKeeper's do.
    ///
    /// # Errors
    /// As [`start`](FaultProxy::start).
    ///
    /// ```
    /// use std::time::Duration;
    /// use curator_locks::{CuratorFrameworkFactory, InterProcessMutex, RetryNTimes};
    /// use curator_locks::testing::{Dialect, FaultProxy, TestingServer};
    ///
    /// let server = TestingServer::start()?;
    /// let keeper = FaultProxy::start_as(server.connect_string(), Dialect::KeeperBefore267)?;
    /// let retry = RetryNTimes::new(10, Duration::from_millis(100));
    /// let client = CuratorFrameworkFactory::new_client(keeper.connect_string(), retry)?;
    /// client.start()?;
    /// let mutex = InterProcessMutex::new(&client, "/order-42")?;
    /// let guard = mutex.lock()?;
    /// keeper.cut(); // and with the connection goes the session
    /// while guard.is_valid() {
    ///     std::thread::yield_now(); // the holder is told
    /// }
    /// drop(guard);
    /// assert!(mutex.acquire_timeout(Duration::from_secs(30))?); // in the next session
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_as(server: impl ToSocketAddrs, dialect: Dialect) -> Result<FaultProxy, TestingError> {
        FaultProxy::start_with(server, true, dialect)
    }

    fn start_with(server: impl ToSocketAddrs, framed: bool, dialect: Dialect) -> Result<FaultProxy, TestingError> {
        let server = server
            .to_socket_addrs()
            .and_then(|mut addresses| addresses.next().ok_or_else(|| io::ErrorKind::InvalidInput.into()))
            .map_err(TestingError::io("the proxy's server is not an address"))?;
        let port = ReservedPort::new().map_err(TestingError::io("no free port"))?;
        let proxy =
            FaultProxy { port, relay: Arc::new(Relay::new(server, framed, dialect)), acceptor: Mutex::new(None) };
        proxy.accept()?;
        Ok(proxy)
    }

    /// The connect string for clients: `127.0.0.1:port`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.port.address().to_string()
    }

    /// The proxy's port. It stays the same, and reserved, for the life of this value.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Heals the network: connections are accepted, and everything is passed on at once, first of all what a black
    /// hole has kept. Injected faults stay.
    ///
    /// # Errors
    /// If the proxy cannot listen.
    pub fn pass(&self) -> Result<(), TestingError> {
        self.relay.change(|network| (network.black_hole, network.delay) = (None, Duration::ZERO));
        self.accept()
    }

    /// Closes every connection on both sides in the orderly way (FIN). Gives their number. New ones are accepted.
    pub fn cut(&self) -> usize {
        self.relay.end_all(Ending::Fin)
    }

    /// Aborts every connection on both sides (RST). Gives their number. New ones are accepted.
    pub fn reset(&self) -> usize {
        self.relay.end_all(Ending::Reset)
    }

    /// Refuses new connections, as if nobody listened. Those that there are stay; see [`cut`](Self::cut).
    pub fn refuse(&self) {
        *self.acceptor.lock() = None;
    }

    /// Delivers everything this much later, in each direction. The order stays, and so does the throughput.
    pub fn delay(&self, delay: Duration) {
        self.relay.change(|network| network.delay = delay);
    }

    /// Delivers nothing any more in this direction, without closing anything. Like TCP, which sends again what was not
    /// acknowledged, [`pass`](Self::pass) then delivers all of it. New connections come about (the kernel accepts them), but
    /// their bytes go nowhere either: in a hole to the server a new connection reaches it only with `pass`, and never if its
    /// client has closed it by then. A second hole, in the other direction, leaves the first one as it is.
    pub fn black_hole(&self, direction: Direction) {
        self.relay.change(|network| {
            let both = network.black_hole.is_some_and(|before| before != direction);
            network.black_hole = Some(if both { Direction::Both } else { direction });
        });
    }

    /// Closes the connection right after it has passed on the `k`-th request from now (1 is the next), counted over
    /// all connections, pings not counted.
    pub fn cut_after(&self, k: u64) -> InjectedFault {
        self.inject(RequestMatch::any().skip(k.saturating_sub(1)), Fault::CutAfterRequest)
    }

    /// Does `fault` to the requests that match. Of several matching faults, the one injected first is done.
    pub fn inject(&self, requests: RequestMatch, fault: Fault) -> InjectedFault {
        InjectedFault::new(&self.relay, requests, fault)
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.relay.state.lock().accepted
    }

    /// How many connections there are now.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.relay.state.lock().connections.len()
    }

    /// How many requests with this operation code (see [`op`]) have come from clients so far.
    #[must_use]
    pub fn requests(&self, op: i32) -> u64 {
        self.relay.state.lock().log.counts.get(&op).copied().unwrap_or_default()
    }

    /// The requests that have come from clients since the start, or since [`clear_log`](Self::clear_log), in order.
    #[must_use]
    pub fn log(&self) -> Vec<RequestRecord> {
        self.relay.state.lock().log.records.clone()
    }

    /// Empties the log of requests. The counters stay.
    pub fn clear_log(&self) {
        self.relay.state.lock().log.clear();
    }

    fn accept(&self) -> Result<(), TestingError> {
        let mut acceptor = self.acceptor.lock();
        if acceptor.is_none() {
            let started = Acceptor::start(self.port.address().into(), Arc::clone(&self.relay));
            *acceptor = Some(started.map_err(TestingError::io("the proxy cannot listen"))?);
        }
        Ok(())
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.refuse();
        self.relay.end_all(Ending::Fin);
    }
}

/// The thread that accepts. Dropping it ends the thread, and closes the listening socket.
#[derive(Debug)]
struct Acceptor {
    address: SocketAddr,
    bound: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    fn start(address: SocketAddr, relay: Arc<Relay>) -> io::Result<Acceptor> {
        let listener = TcpListener::bind(address)?;
        let bound = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&bound);
        let thread = thread::Builder::new().name("fault-proxy".into()).spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok(_) if stopped.load(Ordering::SeqCst) => {}
                    Ok((client, _)) => carry::begin(&relay, client),
                    Err(_) => thread::sleep(ACCEPT_PAUSE),
                }
            }
        })?;
        Ok(Acceptor { address, bound, thread: Some(thread) })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.bound.store(true, Ordering::SeqCst);
        // Nothing but a connection ends a blocking accept everywhere.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
