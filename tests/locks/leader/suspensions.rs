//! `LeaderSelector` where the client is suspended at the very moment of a grant: the test tells the client of it, so that
//! the servers go on to answer.

use std::{
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, unbounded};
use curator_locks::{
    ConnectionState, CuratorFramework, Result,
    unversioned::{NativeSessionFactory, Session, SessionConfig, SessionEvent, SessionFactory, SessionObserver},
};

use crate::{
    probe::{PATH, Told::Leads, close, latch, stubborn},
    support::{PATIENCE, another, await_queue, builder, client, connect, eventually, namespace, queue, server},
};

/// What the client is told of its connection, besides what is true.
#[derive(Clone, Default)]
struct Rumours(Arc<OnceLock<SessionObserver>>);

impl SessionFactory for Rumours {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        let _ = self.0.set(observer.clone());
        NativeSessionFactory.open(config, observer)
    }
}

impl Rumours {
    /// A client that hears them.
    fn client(namespace: &str) -> (Rumours, CuratorFramework) {
        let rumours = Rumours::default();
        let client = connect(builder(server(), namespace).session_factory(rumours.clone()));
        (rumours, client)
    }

    /// Returns when the last listener has heard it.
    fn suspend(&self, last: &Receiver<ConnectionState>) {
        self.0.get().unwrap()(SessionEvent::Disconnected);
        while last.recv_timeout(PATIENCE).unwrap() != ConnectionState::Suspended {}
    }

    fn reconnect(&self, client: &CuratorFramework) {
        self.0.get().unwrap()(SessionEvent::Connected { connection: 1, read_only: false });
        eventually("it is connected", || client.is_connected());
    }
}

/// What the client tells the listeners that it has so far, and after them this one.
fn last_to_hear(client: &CuratorFramework) -> Receiver<ConnectionState> {
    let (tell, told) = unbounded();
    client.add_connection_state_listener(move |_, state| {
        let _ = tell.send(state);
    });
    told
}

/// Curator's `RaceAtStateChanged`: leadership is cancelled between the grant and `take_leadership`.
#[test]
fn a_grant_that_comes_while_the_client_is_suspended_is_given_back_and_nobody_leads() {
    let other = client();
    let (rumours, client) = Rumours::client(other.namespace());
    let ((leader, terms), (waiter, terms_of_waiter)) = (stubborn(&other), stubborn(&client));
    leader.start().unwrap();
    let term = terms.next();
    waiter.start().unwrap();
    let (nodes, last) = (await_queue(&other, PATH, 2), last_to_hear(&client));
    rumours.suspend(&last);
    drop(term);
    eventually("it has given its turn back", || !queue(&other, PATH).contains(&nodes[1]));
    assert!(terms_of_waiter.terms.is_empty() && !waiter.has_leadership());
    rumours.reconnect(&client);
    assert!(terms_of_waiter.next().leadership.has_leadership(), "in another turn");
}

/// By the client's policy it may not lead then, and nobody else does: it keeps its place.
#[test]
fn a_latch_whose_turn_comes_while_the_client_is_suspended_leads_when_that_is_over() {
    let other = client();
    let (rumours, client) = Rumours::client(other.namespace());
    let ((leader, _), (waiter, told)) = (latch(&other), latch(&client));
    leader.start().unwrap();
    leader.await_leadership().unwrap();
    waiter.start().unwrap();
    let (nodes, last) = (await_queue(&other, PATH, 2), last_to_hear(&client));
    rumours.suspend(&last);
    close(&other, &leader);
    eventually("it has its turn", || client.metrics().held == 1);
    assert!(!waiter.await_leadership_timeout(Duration::from_millis(300)).unwrap() && told.is_empty());
    rumours.reconnect(&client);
    assert_eq!(told.next(), Leads);
    assert!(waiter.has_leadership());
    assert_eq!((waiter.our_path(), queue(&other, PATH)), (nodes.last().cloned(), nodes[1..].to_vec()));
}

/// CURATOR-54: a suspension right before `take_leadership` was missed, and the leader led on over it.
#[test]
fn a_suspension_around_the_grant_ends_the_term_or_prevents_it() {
    const ROUNDS: u32 = 40;
    let (rumours, client) = Rumours::client(&namespace());
    let observer = another(&client);
    let (leader, terms) = stubborn(&client);
    leader.start().unwrap();
    let last = last_to_hear(&client);
    drop(terms.next());
    let (mut ended, mut prevented) = (0, 0);
    for round in 0..ROUNDS {
        eventually("it queues again", || leader.requeue().unwrap());
        thread::sleep(Duration::from_micros(100) * (round % 20));
        rumours.suspend(&last);
        let mut begun = Vec::new();
        // A grant that is under way comes to its end: the znode is given back, or its term was told.
        eventually("no term lasts over it", || {
            begun.extend(terms.terms.try_iter());
            begun.iter().all(|term| term.leadership.is_cancelled()) && !leader.has_leadership()
        });
        rumours.reconnect(&client);
        match begun.pop() {
            Some(term) => {
                assert!(!term.leadership.has_leadership(), "a term that has ended stays so");
                ended += 1;
            }
            None => {
                drop(terms.next());
                prevented += 1;
            }
        }
    }
    assert_eq!(ended + prevented, ROUNDS);
    leader.close().unwrap();
    await_queue(&observer, PATH, 0);
}
