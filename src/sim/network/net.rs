//! The network's state: what is on its way, and the servers at its other end.

use std::{
    collections::BTreeMap,
    io,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;

use super::{
    connection::{Conn, End, HeldBack, Item, ReplyFault, cut, int_at, path_of},
    faults::{Counts, Cut, Injected, Link, Links, Logged, Lost, NameService, Rule},
};
use crate::{
    base::sim::run::Run,
    proto::request::Request,
    sim::ensemble::{ConnId, Ensemble, Output},
};

/// How long the system tries before it sends again what a black hole has swallowed, at most.
pub(super) const LONGEST_RESEND: u64 = 60_000_000_000;
/// How many bytes a client's system takes that the server's has not.
const SEND_BUFFER: usize = 256 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

struct Delivery {
    conn: usize,
    way: Way,
    item: Item,
}

pub(super) struct Net {
    run: Arc<Run>,
    pub(super) ensemble: Ensemble,
    rng: Rng,
    /// The latencies of good links.
    latency: RangeInclusive<Duration>,
    /// By process and server.
    links: BTreeMap<(usize, usize), Link>,
    conns: BTreeMap<usize, Conn>,
    next_conn: usize,
    by_id: BTreeMap<ConnId, usize>,
    queue: BTreeMap<(u64, u64), Delivery>,
    sent: u64,
    pub(super) rules: Vec<Rule>,
    pub(super) names: NameService,
    pub(super) counts: Counts,
    /// By process: the requests of proxies, and how many connections each process has made.
    pub(super) logs: BTreeMap<usize, Vec<Logged>>,
    pub(super) made: BTreeMap<usize, u64>,
    is_over: bool,
}

impl Net {
    pub(super) fn new(run: Arc<Run>, ensemble: Ensemble, latency: RangeInclusive<Duration>, seed: u64) -> Net {
        Net {
            run,
            ensemble,
            rng: Rng::with_seed(seed),
            latency,
            links: BTreeMap::new(),
            conns: BTreeMap::new(),
            next_conn: 0,
            by_id: BTreeMap::new(),
            queue: BTreeMap::new(),
            sent: 0,
            rules: Vec::new(),
            names: NameService::Works,
            counts: Counts::default(),
            logs: BTreeMap::new(),
            made: BTreeMap::new(),
            is_over: false,
        }
    }

    pub(super) fn link(&mut self, process: usize, server: usize) -> &mut Link {
        let (latency, rng) = (&self.latency, &mut self.rng);
        self.links.entry((process, server)).or_insert_with(|| {
            // Each link has its own usual latency, and one in some is much nearer or farther.
            let typical = between(rng, latency);
            Link::new(typical..=typical + typical / 4)
        })
    }

    pub(super) fn latency(&mut self, process: usize, server: usize) -> u64 {
        let range = self.link(process, server).latency().clone();
        nanos(between(&mut self.rng, &range))
    }

    /// Makes a connection to a server that was reached; `None`: refused.
    pub(super) fn connect(&mut self, process: usize, server: usize, now: u64) -> Option<usize> {
        if self.is_over || self.link(process, server).refuses {
            return None;
        }
        let id = self.ensemble.connect(server, Duration::from_nanos(now))?;
        let conn = self.next_conn;
        self.next_conn += 1;
        self.conns.insert(conn, Conn::new(process, server, id));
        self.by_id.insert(id, conn);
        self.counts.connections += 1;
        *self.made.entry(process).or_default() += 1;
        self.say(|| format!("connection {conn}: process {process} to server {server}"));
        self.plan();
        Some(conn)
    }

    pub(super) fn conn(&mut self, conn: usize) -> Option<&mut Conn> {
        self.conns.get_mut(&conn)
    }

    /// The client writes: how much its system takes now.
    pub(super) fn write(&mut self, number: usize, bytes: &[u8], now: u64) -> io::Result<usize> {
        let Some(conn) = self.conns.get_mut(&number).filter(|_| !self.is_over) else {
            return Err(io::ErrorKind::ConnectionReset.into());
        };
        if conn.is_closed || conn.end == Some(End::Reset) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(SEND_BUFFER.saturating_sub(conn.to_server.on_the_way));
        if count > 0 {
            conn.to_server.on_the_way += count;
            let bytes = bytes.get(..count).unwrap_or_default().to_vec();
            self.send(number, Way::ToServer, Item::Bytes(bytes), now);
            self.plan();
        }
        Ok(count)
    }

    /// The client closes its end.
    pub(super) fn close(&mut self, number: usize, now: u64) {
        let Some(conn) = self.conns.get_mut(&number).filter(|conn| !conn.is_closed) else { return };
        conn.is_closed = true;
        let key = conn.key();
        self.run.wake(key);
        if !self.is_over {
            self.send(number, Way::ToServer, Item::Fin, now);
            self.plan();
        }
    }

    /// No thread refers to the client's end any more.
    pub(super) fn forget(&mut self, number: usize, now: u64) {
        self.close(number, now);
        self.forget_if_over(number);
    }

    fn forget_if_over(&mut self, number: usize) {
        let is_over = |conn: &Conn| conn.is_closed && conn.id.is_none() && conn.to_server.held.is_empty();
        if self.conns.get(&number).is_some_and(is_over) {
            self.conns.remove(&number);
        }
    }

    /// Puts something on its way. Nothing overtakes what was sent before it on the same way.
    fn send(&mut self, number: usize, way: Way, item: Item, now: u64) {
        let Some(conn) = self.conns.get(&number) else { return };
        let latency = self.latency(conn.process, conn.server);
        self.send_at(number, way, item, now + latency);
    }

    fn send_at(&mut self, number: usize, way: Way, item: Item, at: u64) {
        let is_split = matches!(&item, Item::Bytes(bytes) if bytes.len() > 1) && self.rng.u8(..) < 16;
        let Some(conn) = self.conns.get_mut(&number) else { return };
        let pipe = if way == Way::ToServer { &mut conn.to_server } else { &mut conn.to_client };
        if let (Way::ToClient, Some(held)) = (way, &mut pipe.held_back) {
            return held.items.push_back(item);
        }
        let mut at = at.max(pipe.last + 1);
        let mut parts = vec![item];
        if is_split && let Some(Item::Bytes(bytes)) = parts.first_mut() {
            let rest = bytes.split_off(self.rng.usize(1..bytes.len()));
            parts.push(Item::Bytes(rest));
        }
        for part in parts {
            self.sent += 1;
            self.queue.insert((at, self.sent), Delivery { conn: number, way, item: part });
            pipe.last = at;
            at += 1 + self.rng.u64(0..50_000);
        }
    }

    /// Tells the run when something is due next.
    pub(super) fn plan(&mut self) {
        let delivery = self.queue.first_key_value().map(|((at, _), _)| *at);
        let tick = self.ensemble.next_wake().map(nanos);
        self.run.set_next_event([delivery, tick].into_iter().flatten().min());
    }

    /// Delivers what has arrived, and lets the servers do what is due.
    pub(super) fn happen(&mut self, now: u64) {
        if self.is_over {
            return;
        }
        loop {
            let tick = self.ensemble.next_wake().map_or(u64::MAX, nanos);
            let delivery = self.queue.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            if delivery.min(tick) > now {
                break;
            }
            if tick < delivery {
                let mut out = Vec::new();
                self.ensemble.tick(Duration::from_nanos(now), &mut out);
                self.answer(out, now);
            } else if let Some((_, delivery)) = self.queue.pop_first() {
                self.deliver(delivery, now);
            }
        }
        self.plan();
    }

    fn deliver(&mut self, Delivery { conn: number, way, item }: Delivery, now: u64) {
        let Some(conn) = self.conns.get(&number) else { return };
        let (process, server) = (conn.process, conn.server);
        let link = self.link(process, server);
        let hole = if way == Way::ToServer { link.hole_to_server } else { link.hole_to_client };
        self.run.mix(number as u64 ^ now.rotate_left(20));
        let Some(conn) = self.conns.get_mut(&number) else { return };
        if hole.is_some() {
            let pipe = if way == Way::ToServer { &mut conn.to_server } else { &mut conn.to_client };
            // A reset is not sent again.
            if !matches!(item, Item::Reset) {
                pipe.held.push_back(item);
            }
            return;
        }
        if let Item::Bytes(bytes) = &item {
            self.counts.bytes += bytes.len() as u64;
            self.run.mix(hash(bytes));
        }
        match way {
            Way::ToServer => self.arrive_at_server(number, item, now),
            Way::ToClient => self.arrive_at_client(number, item),
        }
    }

    fn arrive_at_client(&mut self, number: usize, item: Item) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        if conn.end.is_some() || self.run.is_dead(conn.process) {
            return;
        }
        match item {
            Item::Bytes(bytes) => conn.received.extend(bytes),
            Item::Fin => conn.end = Some(End::Fin),
            Item::Reset => {
                conn.received.clear();
                conn.end = Some(End::Reset);
            }
        }
        let key = conn.key();
        self.run.wake(key);
    }

    fn arrive_at_server(&mut self, number: usize, item: Item, now: u64) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        if let Some(held) = &mut conn.to_server.held_back {
            return held.items.push_back(item);
        }
        let key = conn.key();
        match item {
            Item::Bytes(bytes) => {
                conn.to_server.on_the_way -= bytes.len();
                self.run.wake(key);
                let Some(conn) = self.conns.get_mut(&number) else { return };
                if conn.id.is_none() {
                    // The server has closed it: its system answers with a reset.
                    return self.send(number, Way::ToClient, Item::Reset, now);
                }
                for frame in conn.frames(&bytes) {
                    self.request(number, &frame, now);
                }
            }
            Item::Fin | Item::Reset => {
                self.end_at_server(number, now);
                self.forget_if_over(number);
            }
        }
    }

    /// The server sees the end of the connection.
    fn end_at_server(&mut self, number: usize, now: u64) {
        let Some(id) = self.conns.get_mut(&number).and_then(|conn| conn.id.take()) else { return };
        self.by_id.remove(&id);
        let mut out = Vec::new();
        self.ensemble.disconnected(id, Duration::from_nanos(now), &mut out);
        self.answer(out, now);
    }

    /// A request has come to the server, if no fault is in its way.
    fn request(&mut self, number: usize, frame: &[u8], now: u64) {
        let Some(conn) = self.conns.get_mut(&number) else { return };
        let (process, server) = (conn.process, conn.server);
        let Some(id) = conn.id else { return };
        if let Some(held) = &mut conn.to_server.held_back {
            return held.requests.push(frame.to_vec());
        }
        let is_handshake = !std::mem::replace(&mut conn.has_shaken_hands, true);
        let header = int_at(frame, 4).zip(int_at(frame, 8)).filter(|_| !is_handshake);
        self.counts.requests += 1;
        self.run.whisper(|| format!("{number:>4} > {}", readable(frame)));
        if let Some((log, (xid, op))) = self.logs.get_mut(&process).zip(header) {
            log.push(Logged { connection: number, xid, op, path: path_of(frame), error: None });
        }
        let lost = header.and_then(|(_, op)| {
            let mut rules = self.rules.iter_mut();
            rules.find_map(|rule| rule.matches(process, server, op, frame))
        });
        if let Some(((lost, hits), (xid, op))) = lost.zip(header) {
            self.say(|| format!("connection {number}: {lost:?} of xid {xid}, operation {op}"));
            self.rules.retain(|rule| !rule.is_used_up());
            self.counts.fault(name_of(lost), 1);
            match lost {
                Lost::RequestAndCut => return self.cut_one(number, Cut::Fin, now),
                Lost::RequestStays => return,
                Lost::ReplyAndCut => self.lose_reply(number, xid, ReplyFault::Cut),
                Lost::ReplyStays => self.lose_reply(number, xid, ReplyFault::Drop),
                Lost::RequestHeld => {
                    let held = HeldBack { requests: vec![frame.to_vec()], ..HeldBack::of(hits) };
                    if let Some(conn) = self.conns.get_mut(&number) {
                        conn.to_server.held_back = Some(held);
                    }
                    return;
                }
                Lost::ReplyHeld => self.lose_reply(number, xid, ReplyFault::Hold(hits)),
                Lost::Refused(code) => {
                    self.lose_reply(number, xid, ReplyFault::Refuse(code, hits));
                    // Asked something harmless, so that the reply comes in its turn.
                    let harmless = Request::Exists { path: "/".into(), watch: false }.encode(xid);
                    return self.receive(id, &harmless, now);
                }
                Lost::AfterRequestCut => {}
            }
            self.receive(id, frame, now);
            if lost == Lost::AfterRequestCut {
                self.cut_one(number, Cut::Fin, now);
            }
            return;
        }
        self.receive(id, frame, now);
    }

    fn lose_reply(&mut self, number: usize, xid: i32, fault: ReplyFault) {
        if let Some(conn) = self.conns.get_mut(&number) {
            conn.replies.insert(xid, fault);
        }
    }

    fn receive(&mut self, id: ConnId, frame: &[u8], now: u64) {
        let mut out = Vec::new();
        self.ensemble.receive(id, frame, Duration::from_nanos(now), &mut out);
        self.answer(out, now);
    }

    /// Sends what the servers have to say.
    pub(super) fn answer(&mut self, out: Vec<Output>, now: u64) {
        for output in out {
            match output {
                Output::Send { conn: id, bytes } => {
                    if let Some(number) = self.by_id.get(&id).copied() {
                        self.reply(number, bytes, now);
                    }
                }
                Output::Close { conn: id } => {
                    let Some(number) = self.by_id.remove(&id) else { continue };
                    if let Some(conn) = self.conns.get_mut(&number) {
                        conn.id = None;
                    }
                    self.send(number, Way::ToClient, Item::Fin, now);
                    self.forget_if_over(number);
                }
            }
        }
    }

    fn reply(&mut self, number: usize, bytes: Vec<u8>, now: u64) {
        self.run.whisper(|| format!("{number:>4} < {}", readable(&bytes)));
        let Some(conn) = self.conns.get_mut(&number) else { return };
        if let Some(log) = self.logs.get_mut(&conn.process) {
            for frame in cut(&bytes).0 {
                let of = |logged: &&mut Logged| logged.connection == number && Some(logged.xid) == int_at(&frame, 4);
                if let Some(logged) = log.iter_mut().rev().find(of).filter(|logged| logged.error.is_none()) {
                    logged.error = int_at(&frame, 16);
                }
            }
        }
        if conn.replies.is_empty() {
            return self.send(number, Way::ToClient, Item::Bytes(bytes), now);
        }
        for frame in cut(&bytes).0 {
            let Some(conn) = self.conns.get_mut(&number) else { return };
            match int_at(&frame, 4).and_then(|xid| conn.replies.remove(&xid)) {
                None => self.send(number, Way::ToClient, Item::Bytes(frame), now),
                Some(ReplyFault::Drop) => {}
                Some(ReplyFault::Cut) => return self.cut_one(number, Cut::Fin, now),
                Some(ReplyFault::Refuse(code, hits)) => {
                    hits.fetch_add(1, Relaxed);
                    let header = frame.get(4..16).unwrap_or_default();
                    let refusal = [&16i32.to_be_bytes(), header, &code.to_be_bytes()].concat();
                    self.send(number, Way::ToClient, Item::Bytes(refusal), now);
                }
                Some(ReplyFault::Hold(hits)) => {
                    hits.fetch_add(1, Relaxed);
                    conn.to_client.held_back.get_or_insert(HeldBack::of(hits));
                    self.send(number, Way::ToClient, Item::Bytes(frame), now);
                }
            }
        }
    }

    /// Ends a fault, and lets the replies go on that it holds.
    pub(super) fn release(&mut self, injected: &Injected, now: u64) {
        self.rules.retain(|rule| !rule.is(injected));
        let is_it = |hits: &Arc<AtomicU64>| Arc::ptr_eq(hits, &injected.0);
        let (mut replies, mut requests) = (Vec::new(), Vec::new());
        for (number, conn) in &mut self.conns {
            conn.replies.retain(|_, fault| !matches!(fault, ReplyFault::Hold(hits) if is_it(hits)));
            if let Some(held) = conn.to_client.held_back.take_if(|held| is_it(&held.hits)) {
                replies.extend(held.items.into_iter().map(|item| (*number, item)));
            }
            if let Some(held) = conn.to_server.held_back.take_if(|held| is_it(&held.hits)) {
                requests.push((*number, held));
            }
        }
        for (number, item) in replies {
            self.send(number, Way::ToClient, item, now);
        }
        for (number, held) in requests {
            for request in held.requests {
                if let Some(id) = self.conns.get(&number).and_then(|conn| conn.id) {
                    self.receive(id, &request, now);
                }
            }
            held.items.into_iter().for_each(|item| self.arrive_at_server(number, item, now));
        }
        self.plan();
    }

    /// Cuts a connection in the midst: either side sees its end once what was sent before has come.
    fn cut_one(&mut self, number: usize, how: Cut, now: u64) {
        self.say(|| format!("connection {number}: cut ({how:?})"));
        if let Some(conn) = self.conns.get_mut(&number) {
            (conn.to_client.held_back, conn.to_server.held_back) = (None, None);
        }
        match how {
            Cut::Fin => {
                self.end_at_server(number, now);
                self.send(number, Way::ToClient, Item::Fin, now);
            }
            Cut::Reset => {
                // A reset overtakes nothing, but what was on its way is of no use any more.
                self.queue.retain(|_, delivery| delivery.conn != number);
                self.end_at_server(number, now);
                self.send(number, Way::ToClient, Item::Reset, now);
            }
        }
    }

    fn numbers(&self, links: Links) -> Vec<usize> {
        let of = self.conns.iter().filter(|(_, conn)| links.has(conn.process, conn.server));
        of.map(|(number, _)| *number).collect()
    }

    pub(super) fn cut(&mut self, links: Links, how: Cut, now: u64) {
        let open: Vec<_> = self
            .numbers(links)
            .into_iter()
            .filter(|number| self.conns.get(number).is_some_and(|c| c.id.is_some()))
            .collect();
        self.counts.fault(if how == Cut::Fin { "cut" } else { "reset" }, open.len() as u64);
        for number in open {
            self.cut_one(number, how, now);
        }
        self.plan();
    }

    /// Ends connections for both sides at once. What is on its way is lost.
    pub(super) fn sever(&mut self, links: Links, how: Cut, now: u64) {
        for number in self.numbers(links) {
            let Some(conn) = self.conns.get_mut(&number) else { continue };
            (conn.to_client.held_back, conn.to_server.held_back) = (None, None);
            conn.to_client.held.clear();
            conn.to_server.held.clear();
            self.queue.retain(|_, delivery| delivery.conn != number);
            self.end_at_server(number, now);
            self.arrive_at_client(number, if how == Cut::Fin { Item::Fin } else { Item::Reset });
            self.forget_if_over(number);
        }
        self.plan();
    }

    /// Changes links, those that there are and those to come.
    pub(super) fn change(&mut self, links: Links, processes: usize, mut change: impl FnMut(&mut Link)) {
        for process in (0..processes).filter(|process| links.process.is_none_or(|wanted| wanted == *process)) {
            for server in 0..self.ensemble.servers() {
                if links.has(process, server) {
                    change(self.link(process, server));
                }
            }
        }
    }

    /// Ends what is wrong with links. What black holes have swallowed is sent again, sooner or later, at most so late.
    pub(super) fn heal(&mut self, links: Links, processes: usize, now: u64, latest: u64) {
        let mut longest = BTreeMap::new();
        for number in self.numbers(links) {
            let Some(conn) = self.conns.get(&number) else { continue };
            let (process, server) = (conn.process, conn.server);
            let link = self.link(process, server);
            let since = link.hole_to_server.into_iter().chain(link.hole_to_client).min();
            if let Some(since) = since {
                longest.insert(number, now.saturating_sub(since).min(latest));
            }
        }
        self.change(links, processes, |link| {
            link.set_delay(None);
            (link.hole_to_server, link.hole_to_client, link.refuses) = (None, None, false);
        });
        for (number, longest) in longest {
            for way in [Way::ToServer, Way::ToClient] {
                let at = now + self.rng.u64(0..=longest);
                let Some(conn) = self.conns.get_mut(&number) else { continue };
                let pipe = if way == Way::ToServer { &mut conn.to_server } else { &mut conn.to_client };
                let mut items = std::mem::take(&mut pipe.held);
                if items.is_empty() {
                    continue;
                }
                // Items that were sent shortly before this, and are still on their way, come behind those that were lost.
                let is_behind = |on_its_way: &Delivery| {
                    on_its_way.conn == number && on_its_way.way == way && !matches!(on_its_way.item, Item::Reset)
                };
                let behind = self.queue.iter().filter(|(_, delivery)| is_behind(delivery));
                let behind: Vec<_> = behind.map(|(key, _)| *key).collect();
                items.extend(behind.iter().filter_map(|key| self.queue.remove(key)).map(|delivery| delivery.item));
                for item in items {
                    self.send_at(number, way, item, at);
                }
            }
        }
        self.plan();
    }

    pub(super) fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// The process is dead: its system ends its connections, or nothing ever does.
    pub(super) fn process_died(&mut self, process: usize, resets: bool, now: u64) {
        for number in self.numbers(Links { process: Some(process), server: None }) {
            if resets {
                self.send(number, Way::ToServer, Item::Reset, now);
            }
        }
        self.plan();
    }

    /// The end of the run: nothing is sent any more.
    pub(super) fn finish(&mut self) {
        self.is_over = true;
        self.queue.clear();
        for conn in self.conns.values_mut() {
            conn.end = Some(End::Own);
        }
    }

    /// A line for who looks closely.
    fn say(&self, line: impl FnOnce() -> String) {
        self.run.note(&line());
    }
}

fn name_of(lost: Lost) -> &'static str {
    match lost {
        Lost::RequestAndCut => "request lost, cut",
        Lost::AfterRequestCut => "cut after a request",
        Lost::ReplyAndCut => "reply lost, cut",
        Lost::ReplyStays => "reply lost",
        Lost::RequestStays => "request lost",
        Lost::Refused(_) => "request refused",
        Lost::RequestHeld => "request held",
        Lost::ReplyHeld => "reply held",
    }
}

/// The numbers at a frame's begin (for a request its xid and operation), and what in it looks like text.
fn readable(frame: &[u8]) -> String {
    let numbers: Vec<_> = [4, 8, 12, 16].into_iter().filter_map(|at| int_at(frame, at)).collect();
    let text = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { ' ' };
    let text: String = frame.get(8..).unwrap_or_default().iter().map(text).collect();
    let words: Vec<_> = text.split_whitespace().filter(|word| word.len() > 3).collect();
    format!("{numbers:?} {}", words.join(" "))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn between(rng: &mut Rng, range: &RangeInclusive<Duration>) -> Duration {
    Duration::from_nanos(rng.u64(nanos(*range.start())..=nanos(*range.end()).max(nanos(*range.start()))))
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
