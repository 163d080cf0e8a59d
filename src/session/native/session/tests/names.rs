//! Names that come to mean other servers.

use std::net::SocketAddr;

use super::*;
use crate::base::sync::Mutex;

/// How often a resolver still gives the old address.
const STALE: usize = 2;

/// Names by a table that a test changes.
#[derive(Default)]
struct Table {
    /// The answers of the next look-ups of the name, and all after them.
    answers: Mutex<Vec<SocketAddr>>,
    #[cfg(feature = "dns-srv")]
    name_server: Option<crate::session::servers::srv::tests::NameServer>,
}

impl Transport for Table {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = format!("{host}:{port}").parse() {
            return Ok(vec![address]);
        }
        let mut answers = self.answers.lock();
        Ok(vec![if answers.len() > 1 { answers.remove(0) } else { answers[0] }])
    }

    #[cfg(feature = "dns-srv")]
    fn resolve_service(&self, service: &str) -> io::Result<Vec<(String, u16)>> {
        self.name_server.as_ref().unwrap().look_up(service)
    }

    fn connect(
        &self,
        host: &str,
        addresses: &[SocketAddr],
        limit: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Connection> {
        Tcp.connect(host, addresses, limit, is_over)
    }
}

fn open(table: &Arc<Table>, hosts: &str) -> Client {
    let config = SessionConfig { hosts: hosts.parse().unwrap(), ..server::config() };
    Client::open_with(&NativeSessions::over(table.clone()), &config)
}

/// The server goes, and the session goes on at the other one.
fn goes_on_at(client: &Client, old: (Fake, Peer), new: &Fake) -> Peer {
    drop(old);
    let (peer, hello) = client.welcome_for(new, fake::USUAL_TIMEOUT);
    assert_eq!(hello.session_id, fake::ID);
    peer
}

#[test]
fn a_name_is_followed_to_another_address_although_its_resolver_was_stale() {
    let (old, new) = (Fake::new(), Fake::new());
    let table = Arc::<Table>::default();
    table.answers.lock().push(old.address());
    let client = open(&table, "zk:2181");
    let peer = client.welcome(&old);
    let mut answers = vec![old.address(); STALE];
    answers.push(new.address());
    *table.answers.lock() = answers;
    let _peer = goes_on_at(&client, (old, peer), &new);
    assert_eq!(table.answers.lock().len(), 1);
}

#[test]
fn a_connection_is_found_in_a_list_by_the_name_or_the_address_of_its_server() {
    let fake = Fake::new();
    let table = Arc::<Table>::default();
    table.answers.lock().push(fake.address());
    let (name, ip, port) = ("zk".to_owned(), fake.address().ip().to_string(), fake.address().port());
    let client = open(&table, "zk:2181");
    let _peer = client.welcome(&fake);
    let (tell, told) = unbounded();
    let locate = |lists: [Vec<(String, u16)>; 2]| {
        let tell = tell.clone();
        client.session.locate(lists, Box::new(move |at| tell.send(at).unwrap_or_default()));
        told.recv_timeout(LONG).unwrap()
    };
    let other = || vec![(ip.clone(), port ^ 1)];
    assert_eq!(locate([other(), vec![(name, port)]]), Some(1));
    assert_eq!(locate([vec![(ip.clone(), port)], other()]), Some(0));
    assert_eq!(locate([vec![("another-name".to_owned(), 1)], other()]), Some(0), "it has that address");
    assert_eq!(locate([other(), Vec::new()]), None);
}

#[test]
fn a_session_leaves_a_connection_and_goes_on_over_another() {
    let fake = Fake::new();
    let (client, mut peer) = Client::connected(&fake);
    client.session.reconnect();
    assert_eq!(client.event(), SessionEvent::Disconnected);
    peer.wait_for_the_end();
    let (_peer, hello) = client.welcome_for(&fake, fake::USUAL_TIMEOUT);
    assert_eq!(hello.session_id, fake::ID);
}

#[cfg(feature = "dns-srv")]
#[test]
fn a_service_of_srv_records_is_followed_to_other_servers() {
    use crate::session::servers::srv::tests::NameServer;

    let (old, new) = (Fake::new(), Fake::new());
    let name_server = NameServer::start();
    let set = |name_server: &NameServer, fake: &Fake| {
        name_server.set(&[(&fake.address().ip().to_string(), fake.address().port())]);
    };
    set(&name_server, &old);
    let table = Arc::new(Table { name_server: Some(name_server), ..Table::default() });
    let client = open(&table, "dnssrv:_zk._tcp.example");
    let peer = client.welcome(&old);
    set(table.name_server.as_ref().unwrap(), &new);
    let _peer = goes_on_at(&client, (old, peer), &new);
}
