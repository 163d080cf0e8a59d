//! Messages to the client's own thread.

use std::time::Instant;

use crate::{
    base::channel::{Receiver, Sender, unbounded},
    session::{
        api::{Reply, SessionEvent},
        servers::dynamic_config::Hosts,
    },
};

/// A task that does not block.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// A message to the thread.
pub(crate) enum Event {
    /// Something happened to the session with this number.
    Session(u64, SessionEvent),
    /// The servers' list of themselves, as the session with this number sees it.
    Servers(u64, ServersEvent),
    /// Look at the held znodes.
    Look,
    /// There is something to clean up.
    CleanUp,
    /// The replies to the requests of some jobs.
    CleanedUp(Vec<u64>, Vec<Reply>),
    /// A task to run at this time.
    Run(Instant, Task),
    /// The client is closed.
    Stop,
}

/// An event about the servers' list of themselves.
pub(crate) enum ServersEvent {
    Changed,
    Told(Reply),
    /// The index of the list that names the server that the client is connected to.
    Located([Hosts; 2], Option<usize>),
}

/// Tells the client's own thread. Never blocks.
#[derive(Clone)]
pub(crate) struct EventSender(Sender<Event>);

/// The channel to the client's own thread.
pub(crate) fn event_channel() -> (EventSender, Receiver<Event>) {
    let (sender, receiver) = unbounded();
    (EventSender(sender), receiver)
}

impl EventSender {
    pub(crate) fn send(&self, event: Event) {
        // The send fails when the client is gone, which has the receiver.
        let _ = self.0.send(event);
    }
}
