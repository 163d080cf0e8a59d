//! The servers' names, resolved without ever waiting long: a name service that says nothing must not hold up a session
//! that has little time left.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

/// How long a round waits for the look-ups that it has begun, all together.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(1);

/// Resolves a name; may block for long.
pub(crate) type Resolve = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// A name and a port.
type Host = (String, u16);

/// What the session knows about names, and the look-ups under way.
pub(crate) struct Names {
    resolve: Resolve,
    /// One for each name at most, on a thread of its own.
    under_way: HashMap<Host, LookUp>,
    /// What each name stood for the last time, for when nobody answers.
    known: HashMap<Host, Vec<SocketAddr>>,
    /// Which names had no address in the last round, and why.
    unresolved: Vec<(String, String)>,
}

struct LookUp {
    answer: Receiver<io::Result<Vec<SocketAddr>>>,
    /// A round has waited for it before. It may take minutes, so no round waits for it again.
    is_late: bool,
}

impl Names {
    pub(crate) fn new(resolve: Resolve) -> Names {
        Names { resolve, under_way: HashMap::new(), known: HashMap::new(), unresolved: Vec::new() }
    }

    /// The addresses of a server: those of now, or where they are not to be had in time, those of the last time.
    pub(crate) fn look_up(&mut self, hosts: &[Host]) -> Vec<(String, SocketAddr)> {
        for host in hosts {
            if literal(host).is_none() && !self.under_way.contains_key(host) {
                self.begin(host);
            }
        }
        let deadline = Instant::now() + LOOK_UP_LIMIT;
        self.unresolved.clear();
        let mut found = Vec::new();
        for host in hosts {
            let addresses = match literal(host) {
                Some(address) => vec![address],
                None => self.addresses(host, deadline),
            };
            found.extend(addresses.into_iter().map(|address| (host.0.clone(), address)));
        }
        found
    }

    /// Which names the last look-up found no address for, and why.
    pub(crate) fn unresolved(&self) -> &[(String, String)] {
        &self.unresolved
    }

    /// Forgets all but these hosts.
    pub(crate) fn retain(&mut self, hosts: &[Host]) {
        self.known.retain(|host, _| hosts.contains(host));
        self.under_way.retain(|host, _| hosts.contains(host));
    }

    fn begin(&mut self, host: &Host) {
        let (sender, answer) = bounded(1);
        let (resolve, name) = (self.resolve.clone(), host.clone());
        let run = move || {
            // Nobody may wait for it any more.
            let _ = sender.send(resolve(&name.0, name.1));
        };
        match std::thread::Builder::new().name("zk-resolver".into()).spawn(run) {
            Ok(_) => _ = self.under_way.insert(host.clone(), LookUp { answer, is_late: false }),
            Err(error) => log::warn!("no thread to resolve {}: {error}", host.0),
        }
    }

    fn addresses(&mut self, host: &Host, deadline: Instant) -> Vec<SocketAddr> {
        let Some(look_up) = self.under_way.get_mut(host) else {
            return self.known.get(host).cloned().unwrap_or_default();
        };
        let deadline = if look_up.is_late { Instant::now() } else { deadline };
        let answer = look_up.answer.recv_deadline(deadline);
        look_up.is_late = true;
        if !matches!(answer, Err(RecvTimeoutError::Timeout)) {
            self.under_way.remove(host);
        }
        let why = match answer {
            Ok(Ok(addresses)) => {
                self.known.insert(host.clone(), addresses.clone());
                return addresses;
            }
            Ok(Err(error)) => format!("cannot be resolved: {error}"),
            Err(RecvTimeoutError::Timeout) => "cannot be resolved so far: no answer".to_owned(),
            Err(RecvTimeoutError::Disconnected) => "resolving it panicked".to_owned(),
        };
        // Each round says so again: whoever looks after the connection warns once.
        log::debug!("{} {why}", host.0);
        self.unresolved.push((host.0.clone(), why));
        self.known.get(host).cloned().unwrap_or_default()
    }
}

/// The address of a host that needs no look-up.
fn literal(host: &Host) -> Option<SocketAddr> {
    host.0.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, host.1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::machine::{Machine, since};

    fn hosts(names: &[&str]) -> Vec<Host> {
        names.iter().map(|name| ((*name).to_owned(), 7)).collect()
    }

    fn found(names: &mut Names, hosts: &[Host]) -> Vec<String> {
        names.look_up(hosts).into_iter().map(|(name, address)| format!("{name}={address}")).collect()
    }

    #[test]
    fn addresses_need_no_look_up() {
        let mut names = Names::new(Arc::new(|name, _| panic!("{name} is looked up")));
        let hosts = hosts(&["127.0.0.1", "::1"]);
        assert_eq!(found(&mut names, &hosts), ["127.0.0.1=127.0.0.1:7", "::1=[::1]:7"]);
    }

    #[test]
    fn a_name_that_hangs_holds_up_one_round_and_is_looked_up_once() {
        let machine = Machine::watch();
        let (answers, gate) = crossbeam_channel::unbounded::<()>();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let mut names = Names::new(Arc::new(move |name, port| {
            if name == "slow" {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = gate.recv();
            }
            Ok(vec![SocketAddr::new([127, 0, 0, 9].into(), port)])
        }));
        let hosts = hosts(&["slow", "fast"]);
        let begin = Instant::now();
        assert_eq!(found(&mut names, &hosts), ["fast=127.0.0.9:7"]);
        machine.assert_at_most("one round", since(begin), LOOK_UP_LIMIT + Duration::from_millis(500));
        let begin = Instant::now();
        for _ in 0..5 {
            assert_eq!(found(&mut names, &hosts), ["fast=127.0.0.9:7"]);
        }
        machine.assert_at_most("five rounds without a wait", since(begin), LOOK_UP_LIMIT);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        drop(answers);
        while found(&mut names, &hosts).len() < 2 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_last_answer_serves_while_there_is_no_other() {
        let asked = AtomicUsize::new(0);
        let mut names = Names::new(Arc::new(move |_, port| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(vec![SocketAddr::new([127, 0, 0, 1].into(), port)]),
            1 => Err(io::ErrorKind::NotFound.into()),
            2 => panic!("a bug in a resolver"),
            _ => Ok(vec![SocketAddr::new([127, 0, 0, 2].into(), port)]),
        }));
        let hosts = hosts(&["zk"]);
        for expected in ["zk=127.0.0.1:7", "zk=127.0.0.1:7", "zk=127.0.0.1:7", "zk=127.0.0.2:7"] {
            assert_eq!(found(&mut names, &hosts), [expected]);
        }
        names.retain(&[]);
        assert!(names.known.is_empty());
    }
}
