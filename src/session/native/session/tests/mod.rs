//! The session over real sockets, with a server made of a listener and a script.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod alone;
#[cfg(feature = "sasl")]
mod authenticating;
mod connecting;
mod cuts;
mod ending;
mod fake;
mod names;
mod traffic;
mod waiting;

use std::{
    net::Shutdown,
    sync::atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::{
    base::{
        channel::{Receiver, Sender, unbounded},
        clock,
    },
    machine::{Machine, since},
    proto::{request::Request, response::Response},
    session::{
        api::{Reply, SessionEvent, WatchEvent, Watcher},
        fake::server_side::{self as server, Frame},
        native::reader::LONGEST_READ,
        transport::Connection,
        wait::{
            deadline::WaitBound,
            pending::{Pending, Stopped, submit_one},
        },
    },
};
use fake::{Fake, Hello, Peer};

/// Longer than anything here should take.
const LONG: Duration = Duration::from_secs(20);

/// So often the client may have given up before this process got to greet it: at first it waits for a second.
const ATTEMPTS: usize = 5;

/// A session with its events.
struct Client {
    session: Arc<dyn Session>,
    events: Receiver<SessionEvent>,
}

impl Client {
    fn open(config: &SessionConfig) -> Client {
        Client::open_with(&NativeSessionFactory, config)
    }

    fn open_with(factory: &dyn SessionFactory, config: &SessionConfig) -> Client {
        let (sender, events) = unbounded();
        let observer: SessionObserver = Arc::new(move |event| {
            // The test may be over.
            let _ = sender.send(event);
        });
        Client { session: factory.open(config, observer).unwrap(), events }
    }

    /// A session that the server has just taken up.
    fn connected(fake: &Fake) -> (Client, Peer) {
        Client::connected_with(&fake.config(), fake)
    }

    fn connected_with(config: &SessionConfig, fake: &Fake) -> (Client, Peer) {
        let client = Client::open(config);
        let peer = client.welcome(fake);
        assert!(matches!(client.event(), SessionEvent::Connected { connection: 1, .. }));
        (client, peer)
    }

    /// Gives the session up, in which nothing is held.
    fn abandon(&self) {
        self.session.abandon();
        self.session.nobody_holds();
    }

    /// The next connection that the client keeps, with the usual session timeout.
    fn welcome(&self, fake: &Fake) -> Peer {
        self.welcome_for(fake, fake::USUAL_TIMEOUT).0
    }

    fn welcome_for(&self, fake: &Fake, timeout: Duration) -> (Peer, Hello) {
        for _ in 0..ATTEMPTS {
            let mut peer = fake.accept();
            let hello = peer.welcome_for(timeout);
            wait_until(LONG, || self.session.connection() != 0 || peer.has_ended());
            if self.session.connection() != 0 {
                return (peer, hello);
            }
        }
        panic!("the client takes no greeting");
    }

    fn event(&self) -> SessionEvent {
        self.events.recv_timeout(LONG).unwrap()
    }

    fn submit(&self, request: Request) -> (Ticket, Receiver<Reply>) {
        let (sender, reply) = bounded(1);
        let on_reply = Box::new(move |reply| sender.send(reply).unwrap_or_default());
        let tickets = self.session.submit(vec![Submission { request, watcher: None, on_reply }]);
        (tickets[0], reply)
    }

    fn wait_until_finished(&self, limit: Duration) {
        wait_until(limit, || self.session.is_finished());
    }
}

fn wait_until(limit: Duration, condition: impl Fn() -> bool) {
    // Without a limit nothing is measured, and nothing else runs where threads are counted.
    let machine = (limit < LONG).then(Machine::watch);
    let begun = clock::now();
    while !condition() {
        assert!(clock::since(begun) < LONG.max(limit), "it did not come to pass");
        std::thread::sleep(Duration::from_millis(1));
    }
    if let Some(machine) = machine {
        machine.assert_at_most("it came to pass", since(begun), limit);
    }
}

fn sync(path: &str) -> Request {
    Request::Sync { path: path.into() }
}

fn is_loss(reply: &Reply) -> bool {
    matches!(reply, Err(SessionError::ConnectionLoss(_)))
}

/// Asks, and waits for the answer.
fn wait(session: &Arc<dyn Session>, path: &str) -> Result<Reply, Stopped> {
    submit_one(session, sync(path)).wait(WaitBound::at(clock::now() + LONG))
}

fn is_synced(answer: &Result<Reply, Stopped>) -> bool {
    matches!(answer, Ok(Ok(Response::Synced { .. })))
}

fn hang_up(peer: &Peer) {
    peer.stream.shutdown(Shutdown::Both).unwrap();
}
