//! The network between the processes and the servers, as the director breaks it.
//!
//! Each connection is two streams of bytes, each in order and with its own latencies; connections overtake each other. [`net`]
//! is the state, [`connection`] one connection, [`faults`] what can go wrong.

mod connection;
pub(crate) mod faults;
mod net;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    panic::Location,
    sync::Arc,
    time::Duration,
};

use faults::{Accepts, Counts, Cut, Death, Injected, Links, Logged, NameService, RequestFault, Rule, Way};
use net::{LONGEST_RESEND, Net};
use parking_lot::Mutex;

use super::ensemble::{Ensemble, Output};
use crate::base::sim::{
    Until, Wake, What, aside,
    caller::Me,
    run::{Events, Run},
};

/// The first server's address; the others' follow.
const FIRST: [u8; 4] = [10, 0, 0, 1];
const PORT: u16 = 2181;

/// How soon a name service answers.
const NAME_LATENCY: u64 = 2_000_000;
/// For how long a resolver waits for a name service that is silent.
const RESOLVER_PATIENCE: Duration = Duration::from_secs(30);
/// Connecting asks again after these times, as a system does.
const RETRIES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3)];

/// The network.
#[derive(Clone)]
pub(crate) struct Network(Arc<Shared>);

struct Shared {
    run: Arc<Run>,
    /// Locked for moments, in which no other thread runs: no call of the seam is made under it.
    net: Mutex<Net>,
    /// How many processes there are, for faults of all of them.
    processes: std::sync::atomic::AtomicUsize,
}

/// A client's end of a connection. It closes with its last handle.
pub(super) struct ClientEnd {
    network: Network,
    number: usize,
    key: usize,
}

impl Events for Network {
    fn happen(&self, now: u64) {
        self.0.net.lock().happen(now);
    }
}

impl Network {
    pub(super) fn new(run: &Arc<Run>, ensemble: Ensemble, latency: RangeInclusive<Duration>, seed: u64) -> Network {
        let net = Mutex::new(Net::new(run.clone(), ensemble, latency, seed));
        Network(Arc::new(Shared { run: run.clone(), net, processes: 1.into() }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Net, u64) -> T) -> T {
        let now = self.0.run.time();
        aside(|| work(&mut self.0.net.lock(), now))
    }

    pub(super) fn has_process(&self, number: usize) {
        self.0.processes.fetch_max(number + 1, std::sync::atomic::Ordering::Relaxed);
    }

    fn processes(&self) -> usize {
        self.0.processes.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Begins what is to happen without any connection.
    pub(super) fn begin(&self) {
        self.with(|net, _| net.plan());
    }

    pub(super) fn finish(&self) {
        self.with(|net, _| net.finish());
    }

    pub(super) fn ensemble<T>(&self, look: impl FnOnce(&mut Ensemble, Duration, &mut Vec<Output>) -> T) -> T {
        self.with(|net, now| {
            let mut out = Vec::new();
            let seen = look(&mut net.ensemble, Duration::from_nanos(now), &mut out);
            net.answer(out, now);
            net.plan();
            seen
        })
    }

    fn say(&self, line: &str) {
        self.0.run.note(line);
    }

    /// Ends the connections of these links.
    pub(crate) fn cut(&self, links: Links, how: Cut) {
        self.say(&format!("cut {links:?} {how:?}"));
        self.with(|net, now| net.cut(links, how, now));
    }

    /// The same by a proxy near the client, which hears of it at once, whatever else is wrong with the links.
    pub(crate) fn sever(&self, links: Links, how: Cut) {
        self.say(&format!("sever {links:?} {how:?}"));
        self.with(|net, now| net.sever(links, how, now));
    }

    /// Swallows what is sent on these links, until they are healed: then it is sent again, as TCP does.
    pub(crate) fn black_hole(&self, links: Links, way: Way) {
        self.say(&format!("black hole {links:?} {way:?}"));
        let processes = self.processes();
        self.with(|net, now| {
            net.change(links, processes, |link| {
                if way.is_to_server() {
                    link.hole_to_server.get_or_insert(now);
                }
                if way.is_to_client() {
                    link.hole_to_client.get_or_insert(now);
                }
            });
            net.counts.fault("black hole", 1);
        });
    }

    /// Delivers all that is sent on these links so late; `None`: no later than ever.
    pub(crate) fn delay(&self, links: Links, latency: impl Into<Option<RangeInclusive<Duration>>>) {
        let latency = latency.into();
        self.say(&format!("delay {links:?} {latency:?}"));
        let processes = self.processes();
        self.with(|net, _| {
            net.change(links, processes, |link| link.set_delay(latency.clone()));
            net.counts.fault("delay", 1);
        });
    }

    /// Refuses new connections.
    pub(crate) fn refuse(&self, links: Links) {
        self.say(&format!("refuse {links:?}"));
        let processes = self.processes();
        self.with(|net, _| {
            net.change(links, processes, |link| link.refuses = true);
            net.counts.fault("refusal", 1);
        });
    }

    /// Ends black holes, delays and refusals.
    pub(crate) fn heal(&self, links: Links) {
        self.say(&format!("heal {links:?}"));
        let processes = self.processes();
        self.with(|net, now| net.heal(links, processes, now, LONGEST_RESEND));
    }

    /// As [`heal`](Network::heal); what black holes have swallowed comes at once.
    pub(crate) fn pass(&self, links: Links) {
        let processes = self.processes();
        self.with(|net, now| net.heal(links, processes, now, 0));
    }

    /// Forgets the faults of requests that have not come.
    /// Whether a fault still waits for its requests.
    pub(crate) fn injects(&self) -> bool {
        self.with(|net, _| !net.rules.is_empty())
    }

    pub(crate) fn inject_no_more(&self) {
        self.with(|net, _| net.rules.clear());
    }

    pub(crate) fn name_service(&self, how: NameService) {
        self.say(&format!("name service {how:?}"));
        self.with(|net, _| {
            net.names = how;
            net.counts.fault("name service", u64::from(how != NameService::Works));
        });
    }

    /// Injects a fault of single requests.
    pub(crate) fn inject(&self, fault: RequestFault) -> Injected {
        self.inject_into(fault, None)
    }

    /// The same for those alone that this accepts.
    pub(crate) fn inject_into(&self, fault: RequestFault, accepts: Option<Accepts>) -> Injected {
        let (rule, injected) = Rule::new(fault, accepts);
        self.with(|net, _| net.add_rule(rule));
        injected
    }

    /// Ends a fault of single requests. Replies that it holds go on.
    pub(crate) fn release(&self, injected: &Injected) {
        self.with(|net, now| net.release(injected, now));
    }

    /// Begins to keep the requests of a process.
    pub(crate) fn keep_log(&self, process: usize) {
        self.with(|net, _| _ = net.logs.entry(process).or_default());
    }

    /// The requests of that process so far, or since they were forgotten; handshakes aside.
    pub(crate) fn log(&self, process: usize) -> Vec<Logged> {
        self.with(|net, _| net.logs.get(&process).cloned().unwrap_or_default())
    }

    pub(crate) fn forget_log(&self, process: usize) {
        self.with(|net, _| net.logs.entry(process).or_default().clear());
    }

    /// How many connections it has made.
    pub(crate) fn connections(&self, process: usize) -> u64 {
        self.with(|net, _| net.made.get(&process).copied().unwrap_or_default())
    }

    pub(crate) fn counts(&self) -> Counts {
        self.with(|net, _| net.counts.clone())
    }

    pub(super) fn process_died(&self, process: usize, how: Death) {
        self.with(|net, now| {
            net.process_died(process, how == Death::Reset, now);
            net.counts.fault("process killed", 1);
        });
    }

    pub(super) fn count(&self, kind: &'static str) {
        self.with(|net, _| net.counts.fault(kind, 1));
    }

    /// The addresses of a server of this name, from zk1 on. By `p7-zk1` it is reached over the links of process 7, whoever
    /// connects, as if there were a proxy.
    pub(super) fn resolve(&self, me: &Me, name: &str) -> io::Result<Vec<SocketAddr>> {
        let at = Location::caller();
        let until = Until::TrueTime(self.0.run.time() + NAME_LATENCY);
        me.wait(&[], until, What { label: "the name service", at });
        let how = self.with(|net, _| net.names);
        match how {
            NameService::Works => {}
            NameService::Fails => return Err(io::Error::other("the name service does not know it")),
            NameService::Silent => {
                let grace = u64::try_from(RESOLVER_PATIENCE.as_nanos()).unwrap_or(u64::MAX);
                let until = Until::TrueTime(self.0.run.time() + grace);
                me.wait(&[], until, What { label: "a silent name service", at });
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let (proxy, name) = name.strip_prefix('p').and_then(|name| name.split_once('-')).unwrap_or(("0", name));
        let proxy = proxy.parse().map_err(|_| io::ErrorKind::NotFound)?;
        let number = name.strip_prefix("zk").and_then(|number| number.parse::<usize>().ok());
        let number = number.filter(|number| *number > 0).ok_or(io::ErrorKind::NotFound)?;
        Ok(vec![address_of(proxy, number - 1)])
    }

    /// Connects to the server at this address, for at most `limit`.
    pub(super) fn connect(&self, me: &Me, address: SocketAddr, limit: Duration) -> io::Result<Arc<ClientEnd>> {
        let at = Location::caller();
        let (proxy, server) = server_at(address)?;
        let process = if proxy == 0 { me.process() } else { proxy };
        let begin = self.0.run.time();
        let wait = |until: Duration| {
            let until = begin.saturating_add(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX));
            me.wait(&[], Until::TrueTime(until), What { label: "a connection", at });
        };
        for retry in RETRIES.into_iter().take_while(|retry| *retry < limit) {
            wait(retry);
            let (latency, is_hole) =
                self.with(|net, _| (net.latency(process, server), net.link(process, server).is_hole()));
            let answered = Duration::from_nanos(self.0.run.time() - begin + 2 * latency);
            if is_hole || answered > limit {
                continue;
            }
            wait(answered);
            let connected = self.with(|net, now| {
                let number = net.connect(process, server, now)?;
                net.conn(number).map(|conn| (number, conn.key()))
            });
            let (number, key) = connected.ok_or(io::ErrorKind::ConnectionRefused)?;
            return Ok(Arc::new(ClientEnd { network: self.clone(), number, key }));
        }
        wait(limit);
        Err(io::ErrorKind::TimedOut.into())
    }
}

fn address_of(proxy: u8, server: usize) -> SocketAddr {
    let [a, b, _, d] = FIRST;
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, proxy, d.wrapping_add(u8::try_from(server).unwrap_or(0)))), PORT)
}

/// The process that stands for the proxy there, or 0, and the server.
fn server_at(address: SocketAddr) -> io::Result<(usize, usize)> {
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[..2] == FIRST[..2] && ip.octets()[3] >= FIRST[3] => {
            Ok((usize::from(ip.octets()[2]), usize::from(ip.octets()[3] - FIRST[3])))
        }
        _ => Err(io::ErrorKind::HostUnreachable.into()),
    }
}

impl ClientEnd {
    /// Reads what has come; `None`: nothing in time.
    pub(super) fn read(&self, me: &Me, buffer: &mut [u8], until: Until) -> io::Result<Option<usize>> {
        let at = Location::caller();
        me.point(at);
        loop {
            let read = self.network.with(|net, _| match net.conn(self.number) {
                Some(conn) => conn.read(buffer),
                None => Some(Ok(0)),
            });
            if let Some(read) = read {
                return read.map(Some);
            }
            if me.wait(&[self.key], until, What { label: "bytes from a server", at }) == Wake::TimedOut {
                return Ok(None);
            }
        }
    }

    /// Writes what the system takes until then, and says how much that was.
    pub(super) fn write(&self, me: &Me, bytes: &[u8], until: Until) -> io::Result<usize> {
        let at = Location::caller();
        let mut written = 0;
        me.point(at);
        loop {
            let rest = bytes.get(written..).unwrap_or_default();
            written += self.network.with(|net, now| net.write(self.number, rest, now))?;
            if written >= bytes.len()
                || me.wait(&[self.key], until, What { label: "room in the send buffer", at }) == Wake::TimedOut
            {
                return Ok(written);
            }
        }
    }

    pub(super) fn close(&self) {
        self.network.with(|net, now| net.close(self.number, now));
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.network.with(|net, now| net.forget(self.number, now));
    }
}
