//! Which server to try next, for how long, and when to pause: never a spin, never longer than a second.

use std::{io, net::SocketAddr, time::Duration};

use super::{connect_errors::ConnectErrors, handshakes::Handshakes, resolver::Resolver};
use crate::base::clock;

/// A first attempt gets no more than this, so that a dead server does not hold up the living ones.
const FIRST_LIMIT: Duration = Duration::from_secs(1);

/// After so many slow rounds the last attempt of a round gets more than its share of the time.
const SEVERAL: u32 = 3;

/// The longest pause between two rounds. Together with the attempts themselves this is how soon a server that comes
/// back is found.
const LONGEST_PAUSE_MS: u64 = 1000;

/// For these parts of its timeout, and of the time for which calls wait for a connection, a session that comes back gives way to
/// others of its process, all in all: it must not expire over that, and few calls may fail.
const OF_SESSION: u32 = 10;
const OF_CONNECTION: u32 = 3;

/// A connection that lived this long is worth another without a pause.
const LASTING: Duration = Duration::from_millis(250);

/// The next step of the search for a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextTry {
    /// Try this server, connection and handshake together, for that long, at the first address that answers: one, or two of
    /// different families.
    Try { host: String, addresses: Vec<SocketAddr>, limit: Duration },
    /// Every server was tried, or has no room: pause.
    Pause(Duration),
}

/// The round robin over the servers.
pub(crate) struct Rotation {
    hosts: Vec<(String, u16)>,
    resolver: Resolver,
    next_host: usize,
    round: Vec<(String, Vec<SocketAddr>)>,
    /// How many attempts the last round had.
    attempts: usize,
    /// A round is under way: when its servers are used up, the round has failed.
    in_round: bool,
    failed_rounds: u32,
    /// Those of them since a lone server has refused at once.
    slow_rounds: u32,
    is_slow_round: bool,
    longest: Duration,
    /// The shortest time that an attempt took which came to a connection.
    took: Option<Duration>,
    /// No attempt since the last connection, or of this round.
    is_first: bool,
    handshakes: Option<&'static Handshakes>,
    /// There was a connection, or a whole round without one: other sessions may come back at the same time.
    comes_back: bool,
    /// For how long it gives way to them yet, of this much after each connection.
    gives_way_for: Duration,
    gives_way: Duration,
    /// Since the last connection.
    errors: ConnectErrors,
}

impl Rotation {
    /// `connection_timeout` bounds one attempt; so does the session timeout, shared among the servers.
    pub(crate) fn new(
        hosts: &[(String, u16)],
        resolver: Resolver,
        handshakes: Option<&'static Handshakes>,
        connection_timeout: Duration,
        session_timeout: Duration,
    ) -> Self {
        let longest = connection_timeout.min(session_timeout);
        let gives_way = (session_timeout / OF_SESSION).min(connection_timeout / OF_CONNECTION);
        let mut rotation = Rotation {
            hosts: Vec::new(),
            resolver,
            next_host: 0,
            round: Vec::new(),
            attempts: 1,
            in_round: false,
            failed_rounds: 0,
            slow_rounds: 0,
            is_slow_round: false,
            longest,
            took: None,
            is_first: true,
            handshakes,
            comes_back: false,
            gives_way_for: gives_way,
            gives_way,
            errors: ConnectErrors::default(),
        };
        rotation.set_hosts(hosts);
        rotation
    }

    /// Begins anew with these servers.
    pub(crate) fn set_hosts(&mut self, hosts: &[(String, u16)]) {
        self.hosts = hosts.to_vec();
        self.took = None;
        fastrand::shuffle(&mut self.hosts);
        self.resolver.retain(hosts);
        self.next_host = 0;
        self.round.clear();
        self.in_round = false;
        (self.failed_rounds, self.slow_rounds) = (0, 0);
    }

    /// If the last round had nowhere to go: why.
    pub(crate) fn why_no_address(&self) -> Option<io::Error> {
        if self.attempts == 0 { self.errors.of_names() } else { None }
    }

    /// The next step. Names are resolved anew at the start of each round.
    pub(crate) fn step(&mut self) -> NextTry {
        if self.round.is_empty() {
            if self.in_round {
                // The servers are used up, and none of them took the session for long.
                self.in_round = false;
                self.comes_back = true;
                self.failed_rounds = self.failed_rounds.saturating_add(1);
                self.slow_rounds = if self.is_slow_round { self.slow_rounds.saturating_add(1) } else { 0 };
                return NextTry::Pause(pause());
            }
            self.begin_round();
        }
        self.in_round = true;
        if let Some(pause) = self.give_way() {
            self.round.clear();
            self.in_round = false;
            return NextTry::Pause(pause);
        }
        match self.round.pop() {
            Some((host, addresses)) => {
                let limit = self.limit(self.round.is_empty());
                self.is_first = false;
                NextTry::Try { host, addresses, limit }
            }
            None => self.step(),
        }
    }

    /// After an outage, puts the next server of the round that has room at its end, or the one with the least to wait. If there is
    /// none with room: how long to pause, after which others may serve again, too.
    fn give_way(&mut self) -> Option<Duration> {
        let handshakes = self.handshakes.filter(|_| self.comes_back)?;
        let now = clock::now();
        let wait =
            |addresses: &[SocketAddr]| addresses.first().map_or(Duration::ZERO, |first| handshakes.wait(*first, now));
        let waits = self.round.iter().map(|(_, addresses)| wait(addresses)).enumerate();
        let (next, wait) = waits.rev().min_by_key(|(_, wait)| *wait)?;
        if !wait.is_zero() && !self.gives_way_for.is_zero() {
            let pause = pause().min(self.gives_way_for);
            self.gives_way_for -= pause;
            return Some(pause);
        }
        let server = self.round.remove(next);
        server.1.first().into_iter().for_each(|first| handshakes.take(*first, now));
        self.round.push(server);
        None
    }

    /// The server did not take the session.
    pub(crate) fn refused(&mut self, host: &str, addresses: &[SocketAddr], error: &io::Error) -> io::Error {
        if let Some((handshakes, first)) = self.handshakes.filter(|_| self.comes_back).zip(addresses.first()) {
            handshakes.give_back(*first);
        }
        self.is_slow_round |= error.kind() == io::ErrorKind::TimedOut;
        self.errors.refused(host, addresses, error)
    }

    fn begin_round(&mut self) {
        let (later, sooner) = self.hosts.split_at(self.next_host.min(self.hosts.len()));
        let found = self.resolver.look_up(&[sooner, later].concat(), &mut self.errors);
        self.next_host = (self.next_host + 1) % self.hosts.len().max(1);
        self.round = paired(found, !self.failed_rounds.is_multiple_of(2));
        self.attempts = self.round.len();
        (self.is_first, self.is_slow_round) = (true, self.attempts != 1);
        self.round.reverse();
    }

    /// Doubles from round to round, for servers that are slow, up to the server's share of the time: one that accepts and
    /// says nothing must not keep the session from those that have come back meanwhile.
    ///
    /// A lone server that refuses is not slow. ZooKeeper 3.8.0 alone never answers nor closes a connection that came before its
    /// database was loaded (a `NullPointerException` ends the closing): after the refusals of its start the session would sleep
    /// over its end there.
    ///
    /// Once some slow rounds have failed, the last attempt of each gets longer than its share: connecting takes two round trips, and
    /// sessions work with round trips of up to 0.3 of their timeout. Among five servers the share of a session of 3 s would
    /// never do on such a link. Once connected over it, it knows how long that takes, and gives the first attempt half more: a
    /// session of 3 s with three servers and a round trip of 0.6 s expired with each cut, as the fourth round came after 17 s.
    /// The others get no more, as dead servers may be among them.
    fn limit(&self, is_last: bool) -> Duration {
        let share = self.longest / u32::try_from(self.attempts.max(1)).unwrap_or(u32::MAX);
        let most = share.max(FIRST_LIMIT).min(self.longest);
        let limit = share.min(FIRST_LIMIT).saturating_mul(1 << self.slow_rounds.min(16)).min(most);
        let two_round_trips = self.longest / 3 * 2;
        let known = self.took.filter(|_| self.is_first).map_or(Duration::ZERO, |took| took * 3 / 2);
        let is_one_of_several = is_last && self.attempts > 1 && self.slow_rounds >= SEVERAL;
        limit.max(if is_one_of_several { two_round_trips } else { known.min(two_round_trips) })
    }

    /// A connection has ended that was there from the begin, and lasted for that long. Servers that give another session each
    /// time, and soon hang up, must not have one opened after the other without a pause.
    pub(crate) fn first_connection_ended(&mut self, lasted: Duration) {
        self.comes_back = true;
        self.gives_way_for = self.gives_way;
        self.in_round = lasted < LASTING;
    }

    /// A server accepted the session, and the connection ended after that time. The servers left in the round come
    /// next, and no pause follows them. A connection that did not last counts as a failed attempt, or a server that
    /// accepts and hangs up would be tried thousands of times a second. `took`: from the begin of the attempt.
    pub(crate) fn connection_ended(&mut self, took: Duration, lasted: Duration) {
        self.took = Some(self.took.map_or(took, |shortest| shortest.min(took)));
        self.is_first = lasted >= LASTING;
        (self.failed_rounds, self.slow_rounds) = (0, 0);
        self.comes_back = true;
        self.gives_way_for = self.gives_way;
        self.errors = ConnectErrors::default();
        if lasted >= LASTING {
            self.in_round = false;
        }
    }
}

/// Puts an IPv6 and an IPv4 address of one name together, which may be two ways to one server: of the two, one may lead nowhere.
/// `is_turned`: the other one of them first, as the first may lead to what is no server.
fn paired(found: Vec<(String, SocketAddr)>, is_turned: bool) -> Vec<(String, Vec<SocketAddr>)> {
    let mut servers: Vec<(String, Vec<SocketAddr>)> = Vec::new();
    for (name, address) in found {
        let is_other_way = |server: &&mut (String, Vec<SocketAddr>)| {
            server.0 == name && matches!(server.1.as_slice(), [first] if is_other_family(*first, address))
        };
        match servers.iter_mut().find(is_other_way) {
            Some((_, ways)) if is_turned => ways.insert(0, address),
            Some((_, ways)) => ways.push(address),
            None => servers.push((name, vec![address])),
        }
    }
    servers
}

fn is_other_family(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.is_ipv4() != other.is_ipv4()
}

fn pause() -> Duration {
    Duration::from_millis(fastrand::u64(0..=LONGEST_PAUSE_MS))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn rotation(hosts: usize) -> Rotation {
        let hosts: Vec<_> = (0..hosts).map(|k| (format!("127.0.0.{}", k + 1), 2181)).collect();
        Rotation::new(&hosts, resolver(), None, Duration::from_secs(15), Duration::from_secs(60))
    }

    fn resolver() -> Resolver {
        Resolver::new(Arc::new(|_, _| Err(io::ErrorKind::NotFound.into())), Arc::default())
    }

    fn address(step: &NextTry) -> SocketAddr {
        match step {
            NextTry::Try { addresses, .. } => *addresses.first().unwrap_or_else(|| unreachable!("no address")),
            NextTry::Pause(pause) => unreachable!("a pause of {pause:?}"),
        }
    }

    #[test]
    fn a_round_tries_every_server_once_and_then_pauses() {
        let mut rotation = rotation(3);
        for _ in 0..50 {
            let mut tried: Vec<_> = (0..3).map(|_| address(&rotation.step())).collect();
            tried.sort();
            tried.dedup();
            assert_eq!(tried.len(), 3);
            assert!(matches!(rotation.step(), NextTry::Pause(pause) if pause <= Duration::from_secs(1)));
        }
    }

    /// The next step. If it is an attempt, the server fails that way.
    fn fails(rotation: &mut Rotation, kind: io::ErrorKind) -> Option<Duration> {
        let NextTry::Try { host, addresses, limit } = rotation.step() else { return None };
        rotation.refused(&host, &addresses, &kind.into());
        Some(limit)
    }

    fn seconds(rotation: &mut Rotation, kind: io::ErrorKind, steps: usize) -> Vec<u64> {
        (0..steps).filter_map(|_| fails(rotation, kind)).map(|limit| limit.as_secs()).collect()
    }

    #[test]
    fn attempts_that_take_too_long_get_longer_up_to_the_connection_timeout() {
        assert_eq!(seconds(&mut rotation(1), io::ErrorKind::TimedOut, 12), [1, 2, 4, 8, 15, 15]);
    }

    #[test]
    fn a_lone_server_that_refuses_is_given_no_longer_the_next_time() {
        let mut rotation = rotation(1);
        for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::UnexpectedEof] {
            assert_eq!(seconds(&mut rotation, kind, 20), [1; 10], "{kind}");
            assert_eq!(seconds(&mut rotation, io::ErrorKind::TimedOut, 6), [1, 2, 4]);
            assert_eq!(seconds(&mut rotation, kind, 4), [8, 1], "{kind}");
        }
    }

    #[test]
    fn several_servers_that_refuse_are_given_their_share_in_the_end() {
        let mut rotation = rotation(3);
        let limits = seconds(&mut rotation, io::ErrorKind::ConnectionRefused, 20);
        assert_eq!(limits, [1, 1, 1, 2, 2, 2, 4, 4, 4, 5, 5, 10, 5, 5, 10]);
    }

    #[test]
    fn no_attempt_but_the_last_gets_longer_than_a_servers_share_but_a_second_at_least() {
        for (servers, share) in [(3, Duration::from_secs(5)), (30, FIRST_LIMIT)] {
            let mut rotation = rotation(servers);
            let (mut longest, mut last) = (Duration::ZERO, Duration::ZERO);
            for k in 0..20 * (servers + 1) {
                match fails(&mut rotation, io::ErrorKind::TimedOut) {
                    Some(limit) if k % (servers + 1) < servers - 1 => longest = longest.max(limit),
                    Some(limit) => last = last.max(limit),
                    None => {}
                }
            }
            // Two round trips of a link on which a session still works.
            assert_eq!((longest, last), (share, Duration::from_secs(10)));
        }
    }

    #[test]
    fn after_a_connection_over_a_slow_link_the_first_attempt_gets_half_more_than_that_took() {
        let mut rotation = rotation(30);
        let limit = |rotation: &mut Rotation| match rotation.step() {
            NextTry::Try { limit, .. } => limit.as_secs_f64(),
            NextTry::Pause(pause) => unreachable!("a pause of {pause:?}"),
        };
        for (took, first) in [(20.0, 10.0), (4.0, 6.0), (8.0, 6.0), (0.1, 0.5), (4.0, 0.5)] {
            limit(&mut rotation);
            rotation.connection_ended(Duration::from_secs_f64(took), LASTING);
            assert_eq!([limit(&mut rotation), limit(&mut rotation)], [first, 0.5], "{took} s");
        }
    }

    #[test]
    fn addresses_of_both_families_of_a_name_are_tried_side_by_side() {
        let found = |texts: &[(&str, &str)]| {
            let address = |text: &str| text.parse().unwrap_or_else(|_| unreachable!("{text}"));
            texts.iter().map(|(name, text)| ((*name).to_owned(), address(text))).collect::<Vec<(String, SocketAddr)>>()
        };
        let both =
            found(&[("a", "[::1]:1"), ("a", "[::2]:1"), ("a", "1.1.1.1:1"), ("b", "1.1.1.2:1"), ("b", "[::3]:2")]);
        let ways = |is_turned| {
            let shown = |ways: &Vec<SocketAddr>| ways.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            paired(both.clone(), is_turned).iter().map(|(_, ways)| shown(ways)).collect::<Vec<_>>()
        };
        assert_eq!(ways(false), ["[::1]:1 1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:2"]);
        assert_eq!(ways(true), ["1.1.1.1:1 [::1]:1", "[::2]:1", "1.1.1.2:1", "[::3]:2"]);
    }

    #[test]
    fn many_servers_share_the_connection_timeout() {
        let mut rotation = rotation(30);
        assert!(matches!(rotation.step(), NextTry::Try { limit, .. } if limit == Duration::from_millis(500)));
    }

    #[test]
    fn after_a_connection_that_worked_the_next_server_follows_without_a_pause() {
        let mut rotation = rotation(3);
        let first = address(&rotation.step());
        rotation.connection_ended(Duration::ZERO, LASTING);
        assert_ne!(address(&rotation.step()), first);
        let mut last = self::rotation(1);
        address(&last.step());
        last.connection_ended(Duration::ZERO, LASTING);
        assert!(matches!(last.step(), NextTry::Try { .. }));
    }

    #[test]
    fn a_server_that_accepts_and_hangs_up_is_not_tried_in_a_spin() {
        let mut rotation = rotation(1);
        address(&rotation.step());
        rotation.connection_ended(Duration::ZERO, Duration::from_millis(1));
        assert!(matches!(rotation.step(), NextTry::Pause(_)));
    }

    /// A session of a process with others, among three servers.
    fn among_others(handshakes: &'static Handshakes, session: Duration) -> Rotation {
        let hosts: Vec<_> = (1..=3).map(|k| (format!("127.0.0.{k}"), 2181)).collect();
        Rotation::new(&hosts, resolver(), Some(handshakes), Duration::from_secs(15), session)
    }

    #[test]
    fn sessions_that_come_back_give_way_and_those_that_begin_do_not() {
        static HANDSHAKES: Handshakes = Handshakes::new();
        let session = Duration::from_secs(60);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..1000 {
            let mut rotation = among_others(&HANDSHAKES, session);
            address(&rotation.step());
            rotation.connection_ended(Duration::ZERO, LASTING);
            match rotation.step() {
                NextTry::Pause(pause) => assert!(pause <= Duration::from_secs(1)),
                step => *counts.entry(address(&step)).or_insert(0) += 1,
            }
        }
        let spread = counts.values().max().zip(counts.values().min());
        assert!(counts.len() == 3 && spread.is_some_and(|(most, least)| most - least <= 20), "{counts:?}");
        assert!(matches!(among_others(&HANDSHAKES, session).step(), NextTry::Try { .. }));
    }

    #[test]
    fn a_session_gives_way_for_a_tenth_of_its_time() {
        static HANDSHAKES: Handshakes = Handshakes::new();
        let mut rotation = among_others(&HANDSHAKES, Duration::from_secs(4));
        address(&rotation.step());
        rotation.connection_ended(Duration::ZERO, LASTING);
        for last in 1..=3 {
            (0..1000).for_each(|_| HANDSHAKES.take(SocketAddr::from(([127, 0, 0, last], 2181)), clock::now()));
        }
        let pauses =
            std::iter::from_fn(|| if let NextTry::Pause(pause) = rotation.step() { Some(pause) } else { None });
        assert_eq!(pauses.sum::<Duration>(), Duration::from_millis(400));
    }

    #[test]
    fn a_name_that_does_not_resolve_is_a_pause_and_no_spin() {
        let hosts = [("no.such.host.invalid".into(), 2181)];
        let mut rotation = Rotation::new(&hosts, resolver(), None, Duration::from_secs(1), Duration::from_secs(3));
        assert!(matches!(rotation.step(), NextTry::Pause(_)));
        assert!(matches!(rotation.step(), NextTry::Pause(_)));
    }
}
