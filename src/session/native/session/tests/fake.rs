//! The server: a listener, and one object for each connection that the test speaks through.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::AtomicU16,
};

use super::*;
use crate::{base::clock, proto::frame::FrameBuffer};

pub(super) const ID: i64 = 0x1234_5678;

pub(super) struct Fake {
    listener: TcpListener,
}

/// What a handshake asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) last_zxid: i64,
    pub(super) session_id: i64,
}

impl Fake {
    /// At an address of its own: a client whose server is gone goes on to look for it, and would take for it who listens at
    /// the same port now.
    pub(super) fn new() -> Fake {
        static FAKES: AtomicU16 = AtomicU16::new(1);
        let [.., process] = std::process::id().to_be_bytes();
        let [high, low] = FAKES.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let listener = TcpListener::bind(SocketAddr::from(([127, process, high, low], 0))).unwrap();
        listener.set_nonblocking(true).unwrap();
        Fake { listener }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub(super) fn config(&self) -> SessionConfig {
        SessionConfig { hosts: self.address().to_string().parse().unwrap(), ..server::config() }
    }

    pub(super) fn accept(&self) -> Peer {
        self.accept_until(clock::now() + LONG).unwrap_or_else(|| panic!("nobody connects"))
    }

    pub(super) fn accept_until(&self, deadline: Instant) -> Option<Peer> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Some(Peer::new(stream)),
                Err(_) if clock::now() >= deadline => return None,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// What a server grants, unless a test wants something else.
pub(super) const USUAL_TIMEOUT: Duration = Duration::from_secs(12);

pub(super) struct Peer {
    pub(super) stream: TcpStream,
    buffer: FrameBuffer,
}

impl Peer {
    fn new(stream: TcpStream) -> Peer {
        stream.set_nonblocking(false).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Peer { stream, buffer: FrameBuffer::new(64 * 1024 * 1024) }
    }

    /// The next frame; `None` at the end of the stream.
    fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(frame) = self.buffer.next_frame().unwrap() {
                return Some(frame.to_vec());
            }
            match self.stream.read(self.buffer.space()) {
                Ok(0) => return None,
                Ok(count) => self.buffer.filled(count),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing comes: {error}"),
            }
        }
    }

    pub(super) fn hello(&mut self) -> Hello {
        let frame = self.frame().unwrap();
        let long = |at: usize| i64::from_be_bytes(*frame[at..].first_chunk().unwrap());
        Hello { last_zxid: long(4), session_id: long(16) }
    }

    /// Shakes hands, with the usual session timeout.
    pub(super) fn welcome(&mut self) -> Hello {
        self.welcome_for(USUAL_TIMEOUT)
    }

    pub(super) fn welcome_for(&mut self, timeout: Duration) -> Hello {
        let hello = self.hello();
        self.send(&Peer::greeting(i32::try_from(timeout.as_millis()).unwrap(), ID));
        hello
    }

    pub(super) fn greeting(timeout_ms: i32, session_id: i64) -> Vec<u8> {
        let (version, password) = (0_i32.to_be_bytes(), server::prefixed(&[7; 16]));
        [&version[..], &timeout_ms.to_be_bytes(), &session_id.to_be_bytes(), &password, &[0]].concat()
    }

    pub(super) fn send(&mut self, frame: &[u8]) {
        // The client may be gone.
        let _ = self.stream.write_all(&server::prefixed(frame));
    }

    pub(super) fn request(&mut self) -> Frame {
        self.next_request().unwrap_or_else(|| panic!("the client hung up"))
    }

    /// `None` at the end of the stream. Transactions are answered on the way: they are the heartbeats of a session that was
    /// resumed, and come at a moment of their own.
    pub(super) fn next_request(&mut self) -> Option<Frame> {
        loop {
            let request = Frame::decode(&self.frame()?);
            if request.op != server::MULTI {
                return Some(request);
            }
            self.answer(&request);
        }
    }

    pub(super) fn answer(&mut self, request: &Frame) {
        self.send(&server::answer(request, 1, 0));
    }

    /// Answers whatever comes, until the client hangs up. Gives the operations.
    pub(super) fn answer_all(mut self) -> Vec<i32> {
        let mut ops = Vec::new();
        while let Some(request) = self.next_request() {
            self.answer(&request);
            ops.push(request.op);
        }
        ops
    }

    /// Whether nothing more will come. What has come already is still there.
    pub(super) fn has_ended(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let seen = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        seen.map_or_else(|error| error.kind() != io::ErrorKind::WouldBlock, |count| count == 0)
    }

    pub(super) fn wait_for_the_end(&mut self) {
        while self.frame().is_some() {}
    }
}
