//! Plain TCP.

use std::{
    io,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Connection, ReadHalf, Stream, Transport, WriteHalf};
use crate::base::{channel::bounded, clock, threads::start};

/// Connecting takes no longer than this, whatever time is left for the handshake. A network that swallows packets makes
/// the system ask again after 1, 3, 7, 15 s: one that has healed would be noticed that much later. A new attempt asks
/// at once.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// How long an address may be silent before the one of the other family is tried beside it (RFC 8305 names 0.25 s).
const HEAD_START: Duration = Duration::from_millis(250);

/// Plain TCP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp;

impl Transport for Tcp {
    fn connect(
        &self,
        _host: &str,
        addresses: &[SocketAddr],
        limit: Duration,
        _is_over: &dyn Fn() -> bool,
    ) -> io::Result<Connection> {
        let stream = connect_first(addresses, limit.clamp(Duration::from_millis(1), CONNECT_LIMIT))?;
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        let half = || Box::new(TcpHalf { stream: stream.clone(), timeout: Duration::MAX });
        Ok(Connection { reader: half(), writer: half(), stream })
    }
}

/// Connects to the first address that answers. Each but the first begins when the one before it has failed, or has not answered
/// for a moment.
fn connect_first(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    if let [address] = addresses {
        return connect(*address, limit);
    }
    let deadline = clock::now() + limit;
    let (tell, told) = bounded(addresses.len());
    let mut error = None;
    let mut waiting = addresses.iter().copied();
    let mut under_way = 0;
    loop {
        let next = waiting.next();
        if let Some(address) = next {
            let tell = tell.clone();
            // A connection that comes too late goes with the channel.
            start("zk-connect", move || _ = tell.send(connect(address, limit)))?;
            under_way += 1;
        }
        if under_way == 0 {
            return Err(error.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()));
        }
        let until = if waiting.len() == 0 { deadline } else { deadline.min(clock::now() + HEAD_START) };
        match told.recv_timeout(clock::until(until)) {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(failed)) => {
                error = Some(failed);
                under_way -= 1;
            }
            Err(_) if waiting.len() == 0 => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {}
        }
    }
}

fn connect(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    #[expect(clippy::disallowed_methods, reason = "a transport")]
    not_to_itself(TcpStream::connect_timeout(&address, limit)?, address)
}

/// Where nobody listens at a port of this machine that the system also gives to connections, one to it may get that port, and
/// is connected to itself. The client would take its own handshake for an answer: that of a server which knows no session.
fn not_to_itself(stream: TcpStream, address: SocketAddr) -> io::Result<TcpStream> {
    if stream.local_addr()? == address { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(stream) }
}

impl Stream for TcpStream {
    fn shut_down(&self) {
        // An error means that the peer was faster.
        let _ = self.shutdown(Shutdown::Both);
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer_addr().ok()
    }
}

/// For reading or for writing.
struct TcpHalf {
    stream: Arc<TcpStream>,
    /// The time-out that the socket is set to.
    timeout: Duration,
}

/// How far the socket's timeout may lie beyond the one asked for, and no more than an eighth: the timers of a session
/// may be that late. Setting it costs a system call, and under load the time left shrinks with every read.
const SLACK: Duration = Duration::from_millis(20);

impl TcpHalf {
    /// Sets the time-out of the socket, unless it is about right.
    fn set_timeout(
        &mut self,
        wanted: Duration,
        set: fn(&TcpStream, Option<Duration>) -> io::Result<()>,
    ) -> io::Result<()> {
        let wanted = wanted.max(Duration::from_millis(1));
        if self.timeout > wanted.saturating_add(SLACK.min(wanted / 8)) || self.timeout < wanted / 2 {
            set(&self.stream, Some(wanted))?;
            self.timeout = wanted;
        }
        Ok(())
    }
}

impl ReadHalf for TcpHalf {
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<Option<usize>> {
        self.set_timeout(timeout, TcpStream::set_read_timeout)?;
        match (&*self.stream).read(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl WriteHalf for TcpHalf {
    fn write(&mut self, bytes: &[u8], until: Instant) -> io::Result<usize> {
        let mut written = 0;
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            self.set_timeout(until.saturating_duration_since(clock::now()), TcpStream::set_write_timeout)?;
            match (&*self.stream).write(bytes.get(written..).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            if written >= bytes.len() || clock::now() >= until {
                return Ok(written);
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

#[cfg(all(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::machine::{Machine, since};

    /// An address that swallows what is sent to it, as long as the rest lives.
    fn silent() -> (SocketAddr, (Socket, Vec<TcpStream>)) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        // No thread accepts: once the queue is full, the system drops further connections.
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        let queue: Vec<_> = std::iter::from_fn(|| connect().ok()).take(100).collect();
        assert!(queue.len() < 100, "its queue has no end");
        (address, (socket, queue))
    }

    #[test]
    fn a_network_that_swallows_packets_is_asked_anew_soon() {
        let machine = Machine::watch();
        let (address, _queue) = silent();
        let begin = clock::now();
        let error = Tcp.connect("", &[address], Duration::from_secs(15), &|| false).err().unwrap();
        machine.assert_at_most("gave up", since(begin), CONNECT_LIMIT + Duration::from_millis(500));
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_connection_to_itself_counts_as_refused() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = socket.local_addr().unwrap();
        socket.connect(&address).unwrap();
        let error = not_to_itself(socket.into(), address.as_socket().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_address_that_is_silent_or_refuses_keeps_nobody_from_the_other_one() {
        let machine = Machine::watch();
        let (silent, _queue) = silent();
        let served = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = served.local_addr().unwrap();
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let limit = Duration::from_secs(15);
        for (other, at_most) in [(silent, HEAD_START), (gone, Duration::ZERO)] {
            let begin = clock::now();
            let stream = connect_first(&[other, address], limit).unwrap();
            machine.assert_at_most("connected", since(begin), at_most + Duration::from_secs(1));
            assert_eq!(stream.peer_addr().unwrap(), address);
        }
        assert_eq!(connect_first(&[gone, gone], limit).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let short = Duration::from_millis(300);
        assert!(connect_first(&[silent, gone], short).is_err());
    }
}
