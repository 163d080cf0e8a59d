//! The byte streams of simulated processes, as the session knows them.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::network::{ClientEnd, Network};
use crate::{
    base::sim::{Until, caller::Me, clock::instant, me},
    error::Result,
    session::{
        api::{Session, SessionConfig, SessionFactory, SessionObserver},
        native::session::NativeSessions,
        servers::handshakes::Handshakes,
        transport::{Connection, ReadHalf, Stream, Transport, WriteHalf},
    },
};

/// As `tcp::CONNECT_LIMIT`.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// Opens sessions over the simulated network.
#[derive(Clone)]
pub(super) struct Simulated(pub(super) Network);

impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Simulated")
    }
}

impl SessionFactory for Simulated {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        NativeSessions::over(Arc::new(self.clone())).open(config, observer)
    }
}

impl Transport for Simulated {
    fn resolve(&self, host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
        self.0.resolve(&*simulated()?, host)
    }

    /// A run has few sessions, and shares nothing with others.
    fn handshakes(&self) -> Option<&'static Handshakes> {
        None
    }

    fn connect(
        &self,
        _host: &str,
        addresses: &[SocketAddr],
        limit: Duration,
        _is_over: &dyn Fn() -> bool,
    ) -> io::Result<Connection> {
        let limit = limit.clamp(Duration::from_millis(1), CONNECT_LIMIT);
        let address = addresses.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let end = self.0.connect(&*simulated()?, *address, limit)?;
        let half = || Box::new(Half(end.clone()));
        Ok(Connection { reader: half(), writer: half(), stream: end })
    }
}

/// The simulated thread that calls. At the end of a run a thread may be one no more.
fn simulated() -> io::Result<std::rc::Rc<Me>> {
    me().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

struct Half(Arc<ClientEnd>);

impl ReadHalf for Half {
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<Option<usize>> {
        let me = simulated()?;
        let wait = timeout.max(Duration::from_millis(1));
        let until =
            Until::Shows(me.now(std::panic::Location::caller()).checked_add(wait).unwrap_or_else(|| instant(u64::MAX)));
        self.0.read(&me, buffer, until)
    }
}

impl WriteHalf for Half {
    fn write(&mut self, bytes: &[u8], until: Instant) -> io::Result<usize> {
        self.0.write(&*simulated()?, bytes, Until::Shows(until))
    }
}

impl Stream for ClientEnd {
    fn shut_down(&self) {
        self.close();
    }
}
