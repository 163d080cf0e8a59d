//! A namespace in which peers contend.

use std::{cell::RefCell, time::Duration};

use curator_locks::{Builder, CreateMode, CuratorFramework, testing::TestingServer};

#[cfg(feature = "kerberos")]
use crate::login::SUPER;
use crate::{
    login::Login,
    peer::{Peer, Place},
    support::{self, eventually},
};

pub(crate) struct Arena {
    /// Looks on.
    pub(crate) client: CuratorFramework,
    pub(crate) place: Place,
    keepers: RefCell<Vec<String>>,
}

impl Arena {
    pub(crate) fn new(server: &TestingServer, session: Duration) -> Arena {
        Arena::of(server, session, Login::default(), |builder| builder)
    }

    /// Whose peers log in with SASL, and whose own client may do everything.
    #[cfg(feature = "kerberos")]
    pub(crate) fn with_login(server: &TestingServer, login: Login) -> Arena {
        Arena::of(server, support::SESSION, login, |builder| builder.authorization("digest", SUPER))
    }

    fn of(server: &TestingServer, session: Duration, login: Login, set_up: impl FnOnce(Builder) -> Builder) -> Arena {
        let namespace = support::namespace();
        let client = support::connect(set_up(support::builder(server, &namespace)));
        let place = Place { servers: server.connect_string(), namespace, session, login };
        Arena { client, place, keepers: RefCell::default() }
    }

    /// On the server that all share, with a session that outlasts the test.
    pub(crate) fn shared() -> Arena {
        Arena::new(support::server(), support::SESSION)
    }

    /// Keeps a directory while nobody queues, so that sequence numbers do not begin again. Curator takes every child for
    /// a contender, but this name sorts behind all of them.
    pub(crate) fn keep(&self, directory: &str) {
        let keeper = format!("{directory}/keeper");
        let create = self.client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        create.for_path(&keeper).unwrap();
        self.keepers.borrow_mut().push(keeper);
    }

    /// So many of each, in turn: of this crate, of Curator.
    pub(crate) fn peers(&self, of_each: usize) -> Vec<Peer> {
        self.start((0..of_each).flat_map(|_| [Peer::rust(&self.place, &[]), Peer::curator(&self.place, &[])]))
    }

    pub(crate) fn start(&self, peers: impl IntoIterator<Item = Peer>) -> Vec<Peer> {
        let mut peers: Vec<Peer> = peers.into_iter().collect();
        peers.iter_mut().for_each(Peer::await_ready);
        peers
    }

    /// The names in a directory, without the keeper's; none if there is no such directory.
    pub(crate) fn children(&self, directory: &str) -> Vec<String> {
        let children = match self.client.get_children().for_path(directory) {
            Err(error) if error.is_no_node() => Vec::new(),
            children => children.unwrap(),
        };
        children.into_iter().filter(|name| name != "keeper").collect()
    }

    #[track_caller]
    pub(crate) fn await_children(&self, directory: &str, count: usize) {
        eventually(&format!("{count} in {directory}"), || self.children(directory).len() == count);
    }

    /// No znode of a lock while the clients still live, and no directory afterwards: they are containers.
    #[track_caller]
    pub(crate) fn check_nothing_is_left(&self, directories: &[&str], peers: Vec<Peer>) {
        for directory in directories {
            eventually(&format!("{directory} is empty"), || self.children(directory).is_empty());
        }
        peers.into_iter().for_each(Peer::quit);
        for keeper in self.keepers.borrow().iter() {
            self.client.delete().for_path(keeper).unwrap();
        }
        eventually("the containers are gone", || self.client.check_exists().for_path("/").unwrap().is_none());
    }
}
