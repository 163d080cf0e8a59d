//! Draws a plan from a seed.

use std::time::Duration;

use fastrand::Rng;

use super::plan::{
    Act, Direction, Fault, Kind, LOWERED, Link, Loss, Place, Plan, Planned, ProcessPlan, Retries, Strategy, Target,
    Way, What, With,
};
use crate::proto::op;

/// The requests whose loss is of interest.
const OPS: [i32; 13] = [
    op::CREATE,
    op::CLOSE_SESSION,
    op::CREATE_CONTAINER,
    op::DELETE,
    op::EXISTS,
    op::GET_DATA,
    op::GET_CHILDREN,
    op::SYNC,
    op::MULTI,
    op::MULTI_READ,
    op::SET_DATA,
    op::SET_WATCHES,
    op::REMOVE_WATCHES,
];

impl Plan {
    /// Draws a plan.
    pub(crate) fn of(seed: u64) -> Plan {
        let rng = Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
        let (timeout, aim) = (Duration::ZERO, Aim::Anything);
        let mut draw = Draw { rng, timeout, takes_permits: false, hears_of_deaths: false, aim, has_long_names: false };
        draw.plan(seed)
    }
}

/// A plan is made to bring this about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    Anything,
    /// Threads of one process pass a cached lock on among themselves, and only permits are taken away: others come now and
    /// then, and no watch tells of them.
    Unseen,
    /// A follower stands still until sessions are due, just before it hands touches on: those of sessions that were taken up
    /// again over slow links, which the leader answers for while it expires them, or those that came all at once.
    Due,
    /// A leader stands still until the others have left it, and answers for a tick more when it goes on: sessions that were taken up
    /// again just before, and come to it in that tick. After that nobody hears of them until they are due.
    Left,
}

struct Draw {
    rng: Rng,
    timeout: Duration,
    takes_permits: bool,
    /// A death is told if both sides listen.
    hears_of_deaths: bool,
    aim: Aim,
    has_long_names: bool,
}

impl Draw {
    fn plan(&mut self, seed: u64) -> Plan {
        self.aim = match self.rng.u32(0..12) {
            0 => Aim::Unseen,
            1 | 2 => Aim::Due,
            3 => Aim::Left,
            _ => Aim::Anything,
        };
        let servers = if self.servers_stand() { 3 } else { self.of(&[1, 1, 3, 3, 3, 5]) };
        // The others have to have chosen a leader before sessions are in doubt.
        let shortest = if self.is_left() { 6_000 } else { 2_000 };
        self.timeout = Duration::from_millis(self.rng.u64(shortest..8_000));
        self.takes_permits = self.is_unseen() || self.one_in(6);
        self.hears_of_deaths = self.one_in(2);
        self.has_long_names = self.one_in(4);
        // A frame holds the long paths of a transaction, and not the watches of all threads.
        let max_frame = self.one_in(if self.has_long_names { 2 } else { 12 }).then_some(2048);
        let places = self.places();
        let processes: Vec<ProcessPlan> =
            (0..self.rng.usize(2..5)).map(|number| self.process(number, &places)).collect();
        let ticks = match self.aim {
            Aim::Due => 2,
            Aim::Left => 3,
            _ => self.of(&[2, 2, 4, 8]),
        };
        let thousandths = self.of(&[0, 0, 5, 50]);
        let disk = self.of(&[1, 1, 5, 20]);
        let sync_limit = if self.is_left() { 2 } else { self.of(&[2, 5]) };
        let lasts = self.timeout * self.rng.u32(6..25);
        let faults = self.faults(servers, &places, processes.len(), lasts);
        let stall = if self.one_in(4) { Duration::from_millis(self.of(&[20, 1_000, 6_000])) } else { Duration::ZERO };
        // Promises hold from a timeout of two ticks on, and leave a fortieth of it for late messages. They bear an expiry of a
        // fifth of it, and two sessions of each process may end at one tick.
        let timeout = self.timeout;
        let is_lowered = faults.iter().any(|planned| matches!(planned.fault, Fault::Lower { .. }));
        let granted = if is_lowered { timeout / LOWERED } else { timeout };
        let shortest = processes.iter().map(|process| process.timeout).fold(granted, Duration::min);
        let (tick, late) = (shortest / ticks, (thousandths, shortest / 40));
        let is_slow = self.is_due() || self.one_in(3);
        let expiry = if is_slow { shortest / 40 } else { Duration::from_micros(200) };
        let disk = Duration::from_millis(disk);
        Plan {
            seed,
            servers,
            timeout,
            tick,
            late,
            sync_limit,
            disk,
            expiry,
            max_frame,
            places,
            processes,
            faults,
            lasts,
            stall,
        }
    }

    fn is_unseen(&self) -> bool {
        self.aim == Aim::Unseen
    }

    fn is_due(&self) -> bool {
        self.aim == Aim::Due
    }

    /// Whether the plan is about a server that stands still.
    fn servers_stand(&self) -> bool {
        self.is_due() || self.is_left()
    }

    fn is_left(&self) -> bool {
        self.aim == Aim::Left
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.rng.usize(0..choices.len())]
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.u64(range))
    }

    /// So many hundredths of the session timeout.
    fn part(&mut self, percent: std::ops::Range<u64>) -> Duration {
        let millis = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        Duration::from_micros(millis * 10 * self.rng.u64(percent))
    }

    fn places(&mut self) -> Vec<Place> {
        let kinds = [
            Kind::Mutex,
            Kind::Mutex,
            Kind::Mutex,
            Kind::ReadWrite,
            Kind::ReadWrite,
            Kind::SemaphoreMutex,
            Kind::Semaphore(self.rng.usize(2..4)),
            Kind::Unfair,
            Kind::Unfair,
            Kind::Latch,
            Kind::Selector,
            Kind::WriteLock,
        ];
        let cached = [Kind::Mutex, Kind::ReadWrite, Kind::SemaphoreMutex];
        let kinds = if self.aim == Aim::Anything { &kinds[..] } else { &cached[..] };
        let count = self.rng.usize(1..4);
        let name = if self.has_long_names { "a-name-that-is-long-".repeat(20) } else { String::new() };
        let place = |(index, kind): (usize, Kind)| Place { kind, path: format!("/sim/{name}l{index}") };
        (0..count).map(|_| self.of(kinds)).collect::<Vec<_>>().into_iter().enumerate().map(place).collect()
    }

    fn process(&mut self, number: usize, places: &[Place]) -> ProcessPlan {
        let timeout = if !self.servers_stand() && self.one_in(3) { self.timeout / 2 } else { self.timeout };
        let is_busy = self.is_unseen() && number == 0;
        let threads = match self.aim {
            Aim::Unseen if is_busy => 3..6,
            Aim::Due | Aim::Left => 1..3,
            _ if self.has_long_names => 1..9,
            _ => 1..4,
        };
        let threads = self.rng.usize(threads);
        let places = if is_busy { &places[..1] } else { places };
        // A round trip of 0.3 of the timeout is what locks work with.
        let (is_slow, hundredths) = if self.is_due() { (number != 0, 6..9) } else { (self.one_in(6), 1..12) };
        let latency = match is_slow {
            true => timeout * self.rng.u32(hundredths) / 100,
            false => Duration::from_micros(self.rng.u64(50..5_000)),
        };
        let is_cached = is_busy || self.one_in(3);
        ProcessPlan {
            timeout,
            // A connection takes two round trips, and a network that swallows the first packet one second more.
            connection_timeout: self.millis(1_000..4_000) + latency * 12,
            gives_up_at: if self.is_left() { 100 } else { self.of(&[100, 100, 100, 100, 50, 10]) },
            retries: self.of(&[Retries::Once, Retries::Thrice, Retries::Backoff, Retries::Forever]),
            needs_quorum: self.one_in(3),
            is_cached,
            gives_back: self.one_in(3),
            hears_of_deaths: (!is_cached && self.hears_of_deaths).then(|| self.part(0..5)),
            has_plain_as_well: !is_busy,
            rate: if self.one_in(2) { 0 } else { self.rng.i64(-5_000..5_000) },
            latency,
            strategy: self.of(&[
                Strategy::Predecessor,
                Strategy::Predecessor,
                Strategy::Predecessor,
                Strategy::Parent,
                Strategy::Poll,
            ]),
            // A watch on what may not be read any more is used up without a word.
            looks_again: self.takes_permits,
            panics: self.one_in(6).then(|| self.rng.u64(10..60)),
            threads: (0..threads).map(|_| self.thread(places, is_busy)).collect(),
        }
    }

    fn thread(&mut self, places: &[Place], is_busy: bool) -> Vec<Act> {
        (0..self.rng.usize(1..5)).map(|_| self.act(places, is_busy)).collect()
    }

    fn act(&mut self, places: &[Place], is_busy: bool) -> Act {
        let what = self.what(places);
        // Nobody makes clients without a rest: those that are closed as they connect leave the servers a session each.
        let rests = matches!(what, What::Renew) || !is_busy && (self.is_unseen() || !self.one_in(3));
        let rest = match rests {
            true if self.is_unseen() => self.part(50..250),
            true => self.millis(1..800),
            false => Duration::ZERO,
        };
        Act { rest, what }
    }

    fn what(&mut self, places: &[Place]) -> What {
        if self.one_in(60) {
            return What::Renew;
        }
        let place = self.rng.usize(0..places.len());
        if self.one_in(15) {
            return What::Ask { place };
        }
        let hold = match self.rng.u32(0..12) {
            _ if self.servers_stand() => self.part(100..300),
            0..3 => Duration::ZERO,
            // A hold that outlasts a session is for the clocks.
            3 => self.part(40..150),
            _ => self.millis(1..600),
        };
        let way = if self.servers_stand() { Way::Wait } else { self.way() };
        let kind = places[place].kind;
        let members: Vec<usize> = (0..places.len()).filter(|place| is_member(places[*place].kind)).collect();
        if members.len() > 1 && is_member(kind) && self.one_in(3) {
            return What::Several { places: members, way, hold };
        }
        match kind {
            Kind::Semaphore(limit) => What::Leases { place, count: self.rng.usize(1..=limit), way, hold },
            kind if kind.is_leader() => What::Lead { place, lasts: self.part(10..400), term: self.millis(10..2_000) },
            kind => {
                let is_reader = kind == Kind::ReadWrite && self.rng.bool();
                let with = [
                    With::Plain,
                    With::Guard,
                    With::Again,
                    With::Listener,
                    With::Listener,
                    With::Write,
                    With::Downgrade,
                ];
                What::Lock { place, is_reader, way, hold, with: self.of(&with) }
            }
        }
    }

    fn way(&mut self) -> Way {
        match self.rng.u32(0..12) {
            0..4 => Way::Wait,
            4..6 => Way::Timed(self.millis(1..4_000)),
            6 => Way::Timed(self.millis(1..50)),
            7 => Way::Try,
            8 => Way::Cancelled(self.millis(0..2_000)),
            9 => Way::Queue(self.rng.usize(0..3)),
            10 => Way::Valid(self.part(1..15)),
            _ => Way::Bounded(self.millis(0..300), self.millis(50..900)),
        }
    }

    fn faults(&mut self, servers: usize, places: &[Place], processes: usize, whole: Duration) -> Vec<Planned> {
        // Some runs are calm, so that waits and hand-overs are seen, too.
        let seldom = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX) * 4;
        let between = if self.is_unseen() { seldom } else { self.of(&[800, 1_500, 3_000, 10_000]) };
        let (mut faults, mut at) = (Vec::new(), Duration::ZERO);
        while self.is_due() {
            at += self.part(50..150);
            let link = Link { process: None, server: None };
            let (fault, stops_after, longer) = if self.rng.bool() {
                (Fault::Cut { link, is_reset: true }, self.part(45..60), self.part(0..2))
            } else {
                let lasts = self.part(35..60);
                (Fault::BlackHole { link, way: Direction::ToServer, lasts }, lasts + self.part(1..10), self.part(5..25))
            };
            faults.push(Planned { at, fault });
            at += stops_after;
            faults.push(Planned { at, fault: Fault::StopUntilDue { longer } });
            at += self.timeout;
            if at >= whole {
                return faults;
            }
        }
        while self.is_left() {
            let link = Link { process: None, server: None };
            at += self.part(50..150);
            faults.push(Planned { at, fault: Fault::Cut { link, is_reset: true } });
            // What was proved before is certain for 0.95 of the timeout.
            let lasts = self.part(78..91);
            at += self.part(1..5);
            faults.push(Planned { at, fault: Fault::StopUntilLeft { lasts } });
            at += lasts + self.part(3..15);
            let lasts = self.part(90..130);
            faults.push(Planned { at, fault: Fault::BlackHole { link, way: Direction::Both, lasts } });
            at += self.timeout * 2;
            if at >= whole {
                return faults;
            }
        }
        loop {
            // One that comes while the one before is being dealt with meets what no fault meets alone.
            at += if self.one_in(4) { self.part(0..12) } else { self.millis(1..between * 2) };
            if at >= whole {
                return faults;
            }
            let fault = self.fault(servers, places, processes);
            faults.push(Planned { at, fault });
        }
    }

    /// How long a fault lasts: short, as long as a session is certain, as long as it lasts, or long.
    fn lasts(&mut self) -> Duration {
        match self.rng.u32(0..8) {
            0..3 => self.part(1..40),
            3 => self.part(40..90),
            4..7 => self.part(90..125),
            _ => self.part(125..300),
        }
    }

    fn link(&mut self, servers: usize, processes: usize) -> Link {
        let process = (!self.one_in(6)).then(|| self.rng.usize(0..processes));
        Link { process, server: self.one_in(3).then(|| self.rng.usize(0..servers)) }
    }

    fn target(&mut self, servers: usize) -> Target {
        if self.rng.bool() { Target::Leader } else { Target::Server(self.rng.usize(0..servers)) }
    }

    fn fault(&mut self, servers: usize, places: &[Place], processes: usize) -> Fault {
        let (process, place) = (self.rng.usize(0..processes), self.rng.usize(0..places.len()));
        let (link, lasts) = (self.link(servers, processes), self.lasts());
        // The number of the permits.
        let number = if self.is_unseen() { 57 } else { self.rng.u32(0..74) };
        match number {
            0..8 => Fault::Cut { link, is_reset: self.rng.bool() },
            8..14 => {
                let way = self.of(&[Direction::Both, Direction::Both, Direction::ToServer, Direction::ToClient]);
                Fault::BlackHole { link, way, lasts }
            }
            14..16 => Fault::Delay { link, latency: self.part(1..35), lasts: lasts * 2 },
            16..18 => Fault::Refuse { link, lasts },
            18 => Fault::Away { process, lasts: self.timeout * self.rng.u32(1..12) },
            19..28 => self.loss(process),
            28 => Fault::Names { lasts, is_silent: self.rng.bool() },
            29..33 => Fault::Crash { server: self.target(servers), lasts, is_hard: self.rng.bool() },
            33..37 => Fault::StopServer { server: self.target(servers), lasts },
            37 => Fault::StopAll { lasts },
            38..40 => Fault::Elect,
            40..42 => Fault::Isolate { server: self.target(servers), lasts: lasts * 2 },
            42 => Fault::Lag { server: self.rng.usize(0..servers), lasts: self.part(1..20) },
            43 => Fault::Throttle { lasts },
            44..47 => Fault::Expire { process },
            47..53 => Fault::DeleteZnode { place, rank: self.rng.usize(0..3) },
            53..57 => Fault::DeleteDirectory { place, times: self.rng.u32(1..20) },
            57..60 if !self.takes_permits => Fault::Pause { process, lasts },
            57..60 => Fault::Permits { place, lasts, only_read: self.rng.bool() },
            60..67 => Fault::Pause { process, lasts },
            67..70 => Fault::MachineSleeps { process, lasts },
            70 => Fault::Kill { process, is_silent: self.rng.bool() },
            _ => Fault::Lower { lasts: self.timeout },
        }
    }

    fn loss(&mut self, process: usize) -> Fault {
        let how = [
            Loss::RequestAndCut,
            Loss::AfterRequestCut,
            Loss::ReplyAndCut,
            Loss::ReplyAndCut,
            Loss::ReplyStays,
            Loss::RequestStays,
        ];
        Fault::Lose { process, op: self.of(&OPS), times: self.rng.u64(1..3), how: self.of(&how) }
    }
}

/// Whether several locks may be taken at once with it.
fn is_member(kind: Kind) -> bool {
    matches!(kind, Kind::Mutex | Kind::SemaphoreMutex | Kind::ReadWrite | Kind::Unfair)
}
