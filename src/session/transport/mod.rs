//! The byte stream under a session.

pub(crate) mod tcp;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(feature = "tls")]
pub(crate) mod tls_config;

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::{Duration, Instant},
};

use super::servers::{
    handshakes::{Handshakes, OF_THIS_PROCESS},
    srv,
};

/// Opens connections.
pub(crate) trait Transport: Send + Sync + 'static {
    /// The addresses of a host; called on a thread of its own, as it may block for long.
    #[expect(clippy::disallowed_methods, reason = "a transport")]
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }

    /// The handshakes of all sessions that come back to servers over this transport; `None`: they need no order.
    fn handshakes(&self) -> Option<&'static Handshakes> {
        Some(&OF_THIS_PROCESS)
    }

    /// Hosts and ports of a service; called as [`resolve`](Transport::resolve) is.
    fn resolve_service(&self, service: &str) -> io::Result<Vec<(String, u16)>> {
        srv::look_up(service)
    }

    /// Connects to the first of these addresses of `host` that answers, for at most `limit`. While it waits for the server's answer, it gives up soon
    /// after `is_over` says so.
    fn connect(
        &self,
        host: &str,
        addresses: &[SocketAddr],
        limit: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Connection>;
}

/// Resolves a host, or SRV records and then the hosts that they name.
pub(crate) fn resolve_all(transport: &dyn Transport, host: &str, port: u16) -> io::Result<Vec<(String, SocketAddr)>> {
    let named = |host: &str, port| {
        let addresses = transport.resolve(host, port)?;
        Ok::<_, io::Error>(addresses.into_iter().map(|address| (host.to_owned(), address)).collect())
    };
    let Some(service) = host.strip_prefix(srv::PREFIX) else { return named(host, port) };
    let servers = transport.resolve_service(service)?;
    let (found, failed): (Vec<_>, Vec<_>) =
        servers.iter().map(|(host, port)| named(host, *port)).partition(Result::is_ok);
    let all: Vec<(String, SocketAddr)> = found.into_iter().flatten().flatten().collect();
    match failed.into_iter().next() {
        Some(error) if all.is_empty() => error,
        _ => Ok(all),
    }
}

/// One connection, in halves that two threads use at the same time.
pub(crate) struct Connection {
    pub(crate) reader: Box<dyn ReadHalf>,
    pub(crate) writer: Box<dyn WriteHalf>,
    pub(crate) stream: Arc<dyn Stream>,
}

/// What both halves go through.
pub(crate) trait Stream: Send + Sync {
    /// Fails both halves at once, from any thread.
    fn shut_down(&self);

    /// The address of the server, if known.
    fn peer(&self) -> Option<SocketAddr> {
        None
    }
}

/// The half of the thread that reads.
pub(crate) trait ReadHalf: Send {
    /// Reads what is there, waiting at most about `timeout` for something: `None` if nothing came. 0 is the end.
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<Option<usize>>;
}

/// The half of the threads that submit requests.
pub(crate) trait WriteHalf: Send {
    /// Writes what the peer takes until then, and says how much that was. Tries once even if the time is up.
    fn write(&mut self, bytes: &[u8], until: Instant) -> io::Result<usize>;
}

/// The end of the connection instead of an answer, in whatever way it came, and what that may mean.
pub(super) fn hung_up(error: io::Error, meaning: &str) -> io::Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        kind @ (BrokenPipe | ConnectionReset | UnexpectedEof) => io::Error::new(kind, meaning),
        _ => error,
    }
}

pub(super) fn invalid_data(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
