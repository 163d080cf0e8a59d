//! The servers' names, resolved without ever waiting long: a name service that says nothing must not hold up a session
//! that has little time left.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use super::connect_errors::ConnectErrors;
use crate::base::{
    channel::{Receiver, RecvTimeoutError, bounded},
    clock,
    collections::HashMap,
    log,
    sync::Mutex,
    threads::start,
};

/// How long a round waits for the look-ups that it has begun, all together.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(1);

/// Resolves a name to the servers that it stands for: the name and an address of each. May block for long.
pub(crate) type Resolve = Arc<dyn Fn(&str, u16) -> io::Result<Vec<(String, SocketAddr)>> + Send + Sync>;

/// The knowledge that sessions of a client leave to those that follow, about its servers.
#[derive(Debug, Default)]
pub struct KnownServers {
    /// The addresses that their names had when they last resolved: a session that begins while the name service is down has
    /// no other way to the servers.
    addresses: Mutex<HashMap<(String, u16), Known>>,
    /// They are of ZooKeeper 3.4, which tells so only by ending a connection.
    pub(crate) are_34: AtomicBool,
    /// They know no request of several reads, as ZooKeeper 3.5, which tells so in the same way.
    pub(crate) refuse_reads_together: AtomicBool,
}

#[derive(Debug)]
struct Known {
    /// When the look-up began that found them.
    asked: Instant,
    addresses: Vec<(String, SocketAddr)>,
}

impl KnownServers {
    fn of(&self, host: &(String, u16)) -> Vec<(String, SocketAddr)> {
        self.addresses.lock().get(host).map(|known| known.addresses.clone()).unwrap_or_default()
    }

    /// Remembers an answer, unless a look-up that began later has answered: a session that was given up may still wait
    /// for one that it began before the current session.
    fn learn(&self, host: &(String, u16), asked: Instant, addresses: &[(String, SocketAddr)]) {
        let mut known = self.addresses.lock();
        if known.get(host).is_none_or(|known| known.asked <= asked) {
            known.insert(host.clone(), Known { asked, addresses: addresses.to_vec() });
        }
    }

    fn retain(&self, hosts: &[(String, u16)]) {
        self.addresses.lock().retain(|host, _| hosts.contains(host));
    }
}

/// The look-ups of a session: host names to addresses.
pub(crate) struct Resolver {
    resolve: Resolve,
    /// One for each name at most, on a thread of its own.
    under_way: HashMap<(String, u16), LookUp>,
    /// For names that do not resolve now.
    known: Arc<KnownServers>,
}

struct LookUp {
    asked: Instant,
    answer: Receiver<io::Result<Vec<(String, SocketAddr)>>>,
}

impl Resolver {
    pub(crate) fn new(resolve: Resolve, known: Arc<KnownServers>) -> Resolver {
        Resolver { resolve, under_way: HashMap::default(), known }
    }

    /// The current addresses of the servers, or if they do not come in time, the last known ones. Notes which names have
    /// none.
    pub(crate) fn look_up(&mut self, hosts: &[(String, u16)], errors: &mut ConnectErrors) -> Vec<(String, SocketAddr)> {
        for host in hosts {
            if literal(host).is_none() && !self.under_way.contains_key(host) {
                self.begin(host);
            }
        }
        let mut found = Vec::new();
        for host in hosts {
            match literal(host) {
                Some(address) => found.push((host.0.clone(), address)),
                None => found.extend(from_anywhere(self.addresses(host, errors))),
            }
        }
        found
    }

    /// Forgets all but these hosts.
    pub(crate) fn retain(&mut self, hosts: &[(String, u16)]) {
        self.known.retain(hosts);
        self.under_way.retain(|host, _| hosts.contains(host));
    }

    fn begin(&mut self, host: &(String, u16)) {
        let asked = clock::now();
        let (sender, answer) = bounded(1);
        let (resolve, name) = (self.resolve.clone(), host.clone());
        let run = move || {
            // The receiver may be gone.
            let _ = sender.send(resolve(&name.0, name.1));
        };
        match start("zk-resolver", run) {
            Ok(()) => _ = self.under_way.insert(host.clone(), LookUp { asked, answer }),
            Err(error) => log::warn!("no thread to resolve {}: {error}", host.0),
        }
    }

    fn addresses(&mut self, host: &(String, u16), errors: &mut ConnectErrors) -> Vec<(String, SocketAddr)> {
        let Some(look_up) = self.under_way.get(host) else {
            return self.known.of(host);
        };
        let asked = look_up.asked;
        // A look-up may take minutes: only the round that has begun it waits for it.
        let answer = look_up.answer.recv_timeout(clock::until(asked + LOOK_UP_LIMIT));
        if !matches!(answer, Err(RecvTimeoutError::Timeout)) {
            self.under_way.remove(host);
        }
        let why = match answer {
            Ok(Ok(addresses)) if addresses.is_empty() => "has no address".to_owned(),
            Ok(Ok(addresses)) => {
                self.known.learn(host, asked, &addresses);
                return addresses;
            }
            Ok(Err(error)) => format!("cannot be resolved: {error}"),
            Err(RecvTimeoutError::Timeout) => "cannot be resolved so far: no answer".to_owned(),
            Err(RecvTimeoutError::Disconnected) => "resolving it panicked".to_owned(),
        };
        // Each round says so again; the code that looks after the connection warns once.
        log::debug!("{} {why}", host.0);
        errors.unresolved(&host.0, &why);
        self.known.of(host)
    }
}

/// Begins with any of them: a name that has the addresses of several servers sends not all sessions to the first.
fn from_anywhere(mut addresses: Vec<(String, SocketAddr)>) -> Vec<(String, SocketAddr)> {
    if addresses.len() > 1 {
        let first = fastrand::usize(..addresses.len());
        addresses.rotate_left(first);
    }
    addresses
}

/// Whether one of these is the server that was reached by this name and at this address. May block for long.
pub(crate) fn is_among(
    hosts: &[(String, u16)],
    (name, address): &(String, SocketAddr),
    resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> bool {
    let canonical = |address: &SocketAddr| (address.ip().to_canonical(), address.port());
    let has_address = |host: &(String, u16)| match literal(host) {
        Some(literal) => canonical(&literal) == canonical(address),
        None => resolve(&host.0, host.1).is_ok_and(|all| all.iter().any(|one| canonical(one) == canonical(address))),
    };
    hosts.iter().any(|(host, port)| host == name && *port == address.port()) || hosts.iter().any(has_address)
}

/// The address of a host that needs no look-up.
fn literal(host: &(String, u16)) -> Option<SocketAddr> {
    host.0.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, host.1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::machine::{Machine, since};

    fn hosts(names: &[&str]) -> Vec<(String, u16)> {
        names.iter().map(|name| ((*name).to_owned(), 7)).collect()
    }

    fn resolver(resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Resolver {
        let named = move |name: &str, port| {
            let addresses = resolve(name, port)?;
            Ok(addresses.into_iter().map(|address| (name.to_owned(), address)).collect())
        };
        Resolver::new(Arc::new(named), Arc::default())
    }

    fn found(resolver: &mut Resolver, hosts: &[(String, u16)]) -> Vec<String> {
        resolver
            .look_up(hosts, &mut ConnectErrors::default())
            .into_iter()
            .map(|(name, address)| format!("{name}={address}"))
            .collect()
    }

    #[test]
    fn addresses_need_no_look_up() {
        let mut resolver = resolver(|name, _| panic!("{name} is looked up"));
        let hosts = hosts(&["127.0.0.1", "::1"]);
        assert_eq!(found(&mut resolver, &hosts), ["127.0.0.1=127.0.0.1:7", "::1=[::1]:7"]);
    }

    #[test]
    fn a_name_that_hangs_holds_up_one_round_and_is_looked_up_once() {
        let machine = Machine::watch();
        let (answers, gate) = crate::base::channel::unbounded::<()>();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let mut resolver = resolver(move |name, port| {
            if name == "slow" {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = gate.recv();
            }
            Ok(vec![SocketAddr::new([127, 0, 0, 9].into(), port)])
        });
        let hosts = hosts(&["slow", "fast"]);
        let begin = clock::now();
        assert_eq!(found(&mut resolver, &hosts), ["fast=127.0.0.9:7"]);
        machine.assert_at_most("one round", since(begin), LOOK_UP_LIMIT + Duration::from_millis(500));
        let begin = clock::now();
        for _ in 0..5 {
            assert_eq!(found(&mut resolver, &hosts), ["fast=127.0.0.9:7"]);
        }
        machine.assert_at_most("five rounds without a wait", since(begin), LOOK_UP_LIMIT);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        drop(answers);
        while found(&mut resolver, &hosts).len() < 2 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_last_answer_serves_while_there_is_no_other() {
        let asked = AtomicUsize::new(0);
        let mut resolver = resolver(move |_, port| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(vec![SocketAddr::new([127, 0, 0, 1].into(), port)]),
            1 => Err(io::ErrorKind::NotFound.into()),
            2 => panic!("a bug in a resolver"),
            3 => Ok(Vec::new()),
            _ => Ok(vec![SocketAddr::new([127, 0, 0, 2].into(), port)]),
        });
        let hosts = hosts(&["zk"]);
        for _ in 0..4 {
            assert_eq!(found(&mut resolver, &hosts), ["zk=127.0.0.1:7"]);
        }
        assert_eq!(found(&mut resolver, &hosts), ["zk=127.0.0.2:7"]);
        resolver.retain(&[]);
        assert!(resolver.known.addresses.lock().is_empty());
    }

    #[test]
    fn a_server_is_known_by_the_name_or_the_address_that_it_was_reached_by() {
        let server = ("zk1".to_owned(), SocketAddr::from(([10, 0, 0, 1], 7)));
        let among = |names: &[&str]| {
            is_among(&hosts(names), &server, |name, port| match name {
                "other-name" => Ok(vec![SocketAddr::new([10, 0, 0, 1].into(), port)]),
                "zk1" => panic!("looked up, although its name tells"),
                _ => Err(io::ErrorKind::NotFound.into()),
            })
        };
        assert!(among(&["gone", "zk1"]) && among(&["10.0.0.1"]) && among(&["gone", "other-name"]));
        assert!(among(&["::ffff:10.0.0.1"]) && !among(&["10.0.0.2", "gone"]) && !among(&[]));
        assert!(!is_among(&[("zk1".to_owned(), 8)], &server, |_, port| Ok(vec![([10, 0, 0, 1], port).into()])));
    }

    #[test]
    fn an_answer_to_an_older_question_replaces_no_newer_one() {
        let (known, hosts) = (KnownServers::default(), hosts(&["zk"]));
        let address = |last: u8| vec![("zk".to_owned(), SocketAddr::new([127, 0, 0, last].into(), 7))];
        let (earlier, later) = (clock::now(), clock::now() + Duration::from_secs(1));
        for (asked, answer, expected) in [(earlier, 1, 1), (later, 2, 2), (earlier, 3, 2), (later, 4, 4)] {
            known.learn(&hosts[0], asked, &address(answer));
            assert_eq!(known.of(&hosts[0]), address(expected));
        }
    }
}
