//! A TCP port that stays ours while no server listens on it.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
};

use socket2::{Domain, Socket, Type};

/// A free port on 127.0.0.1, reserved until dropped.
///
/// Its socket is bound but never listens. The kernel then gives the port to nobody who asks for any port, neither to
/// listen nor to connect from, but lets a server bind it that names it and sets SO_REUSEADDR, as ZooKeeper does. So no
/// other program can take it between two lives of a server.
#[derive(Debug)]
pub(super) struct ReservedPort {
    _socket: Socket,
    number: u16,
}

impl ReservedPort {
    pub(super) fn new() -> io::Result<ReservedPort> {
        ReservedPort::of(0)
    }

    /// This one; 0 for any.
    pub(super) fn of(number: u16) -> io::Result<ReservedPort> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, number)).into())?;
        let address = socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("not an IP socket"))?;
        Ok(ReservedPort { number: address.port(), _socket: socket })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    pub(super) fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.number)
    }
}
