//! Looking for a server that can write while the connection is with one that cannot, as ZooKeeper's own client does.
//!
//! One server at a time is asked `isro`, over a connection of its own and on a thread of its own, which ends with the
//! answer. The first one that says `rw` ends the connection, and the next one goes there.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::shared::does_not_take;
use crate::session::transport::{Closer, Connection, Transport};

/// When the first server is asked. Each pause is twice as long as the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two questions.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long connecting takes at most, and then the answer, as in ZooKeeper's own client.
const LIMIT: Duration = Duration::from_secs(1);

/// A server, by name and address.
pub(super) type Server = (String, SocketAddr);

pub(super) struct Search {
    transport: Arc<dyn Transport>,
    limit: Duration,
    /// Before the next question.
    pause: Duration,
    next: Instant,
    /// How many questions there were.
    asked: usize,
    /// The thread of the last question.
    asking: Option<JoinHandle<()>>,
    found: Arc<Mutex<Option<Server>>>,
}

impl Search {
    pub(super) fn new(transport: Arc<dyn Transport>, connection_timeout: Duration) -> Search {
        let limit = connection_timeout.min(LIMIT);
        let (next, found) = (Instant::now(), Arc::default());
        Search { transport, limit, pause: FIRST_PAUSE, next, asked: 0, asking: None, found }
    }

    /// The connection is with a server that can only read.
    pub(super) fn begin(&mut self, now: Instant) {
        self.next = now + self.pause;
    }

    /// The connection is with a server that can write.
    pub(super) fn is_over(&mut self) {
        self.pause = FIRST_PAUSE;
        // Who is asked still may answer, but that is of no use later.
        self.found = Arc::default();
    }

    /// How long until the next question.
    pub(super) fn until_next(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// Asks the next one of the servers if it is time for that. If it can write, the connection is closed.
    pub(super) fn look(&mut self, now: Instant, hosts: &[(String, u16)], connection: &Closer) {
        if now < self.next {
            return;
        }
        if self.found.lock().is_some() {
            // The search found it after the connection before had ended.
            connection.close();
            return;
        }
        if self.asking.as_ref().is_some_and(|asking| !asking.is_finished()) {
            self.next = now + self.pause;
            return;
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.next = now + self.pause;
        let host = hosts.get(self.asked.checked_rem(hosts.len()).unwrap_or_default()).cloned();
        self.asked = self.asked.wrapping_add(1);
        if let Some(host) = host {
            self.ask(host, connection.clone());
        }
    }

    fn ask(&mut self, (host, port): (String, u16), connection: Closer) {
        let (transport, limit, found) = (self.transport.clone(), self.limit, self.found.clone());
        let run = move || match find_writable(&*transport, &host, port, limit) {
            Ok(Some(address)) => {
                // In this order: whoever sees the end of the connection looks for the reason.
                *found.lock() = Some((host, address));
                connection.close();
            }
            Ok(None) => {}
            Err(error) => log::debug!("{host}:{port} does not say whether it can write: {error}"),
        };
        match thread::Builder::new().name("zk-search".into()).spawn(run) {
            Ok(asking) => self.asking = Some(asking),
            Err(error) => log::warn!("no thread to look for a server that can write: {error}"),
        }
    }

    /// Where a server that can write is, if the connection has ended because of that.
    pub(super) fn take_found(&mut self) -> Option<Server> {
        self.found.lock().take()
    }
}

/// Asks any one of a name's addresses.
fn find_writable(transport: &dyn Transport, host: &str, port: u16, limit: Duration) -> io::Result<Option<SocketAddr>> {
    let addresses = transport.resolve(host, port)?;
    let Some(address) = fastrand::choice(addresses) else { return Ok(None) };
    let connection = transport.connect(host, address, limit, &|| false)?;
    let closer = connection.closer.clone();
    let can_write = ask_isro(connection, Instant::now() + limit);
    closer.close();
    Ok(can_write?.then_some(address))
}

fn ask_isro(connection: Connection, deadline: Instant) -> io::Result<bool> {
    const QUESTION: &[u8] = b"isro";
    let Connection { mut reader, mut writer, .. } = connection;
    if writer.write(QUESTION, deadline)? < QUESTION.len() {
        return Err(does_not_take());
    }
    let (mut answer, mut length) = ([0; 2], 0);
    while let Some(rest) = answer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        let left = deadline.saturating_duration_since(Instant::now());
        match reader.read(rest, left)? {
            Some(0) => break,
            Some(count) => length += count,
            None if left.is_zero() => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to isro")),
            None => {}
        }
    }
    Ok(answer == *b"rw")
}

#[cfg(test)]
mod tests;
