//! A session that a server has given where another one was to be resumed: the next session of the client.

use std::{
    fmt, mem,
    time::{Duration, Instant},
};

use super::transport::Connection;
use crate::{
    base::{clock, sync::Mutex},
    proto::{connect::ConnectResponse, frame::FrameBuffer, request::Request},
};

/// How long the last request of a session that nobody wants may take to go out.
const LONGEST_WRITE: Duration = Duration::from_millis(20);

/// A connection with a session that no session of the client uses yet.
pub(crate) struct Established {
    /// `None` once it is used.
    connection: Option<Connection>,
    /// Its frames, from the first one after the answer to the handshake.
    buffer: FrameBuffer,
    response: ConnectResponse,
    /// When the handshake was sent.
    sent: Instant,
}

impl Established {
    pub(crate) fn new(connection: Connection, buffer: FrameBuffer, response: ConnectResponse, sent: Instant) -> Self {
        Established { connection: Some(connection), buffer, response, sent }
    }

    /// Takes it apart, to be used.
    pub(crate) fn take(mut self) -> Option<(Connection, FrameBuffer, ConnectResponse, Instant)> {
        let buffer = mem::replace(&mut self.buffer, FrameBuffer::new(0));
        Some((self.connection.take()?, buffer, self.response.clone(), self.sent))
    }
}

impl Drop for Established {
    /// Closes a session that nobody uses: it would stay until it expires.
    fn drop(&mut self) {
        if let Some(Connection { writer, .. }) = &mut self.connection {
            // If this does not reach the server, the session expires.
            let _ = writer.write(&Request::CloseSession.encode(1), clock::now() + LONGEST_WRITE);
        }
    }
}

/// The place where a session that ends leaves a connection for the next one. ClickHouse Keeper resumes no session: it answers
/// with another one, which is as good as a new one.
#[derive(Default)]
pub struct Successor(Mutex<Option<Established>>);

impl Successor {
    pub(crate) fn put(&self, established: Established) {
        let before = self.0.lock().replace(established);
        // Not under the lock: it writes.
        drop(before);
    }

    pub(crate) fn take(&self) -> Option<Established> {
        self.0.lock().take()
    }
}

impl fmt::Debug for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Successor").finish_non_exhaustive()
    }
}
