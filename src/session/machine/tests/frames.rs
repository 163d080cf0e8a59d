//! Frames into the state machine of a session that is in use: many requests on the wire, watches in place, connections
//! that end with the first frame that makes no sense.

use allocation_counter::measure;

use super::*;
use crate::{
    base::clock,
    proto::tests::{
        corpus::{KINDS, body, mutate, noise, notification, reply, requests},
        frames::{FRAMES, LIMIT, SEED},
    },
};

fn frame_config() -> SessionConfig {
    SessionConfig {
        hosts: "127.0.0.1:2181".parse().unwrap(),
        known: Default::default(),
        dialect: Some(Dialect::ZooKeeper),
        successor: Default::default(),
        session_timeout: Duration::from_secs(12),
        connection_timeout: Duration::from_secs(12),
        authorizations: vec![("digest".into(), b"user:secret".to_vec())],
        quorum_heartbeats: false,
        max_frame_size: LIMIT,
        max_request_size: LIMIT,
        counters: Default::default(),
    }
}

/// What the machine wants done.
enum Happened {
    /// The request has its answer: `true` for a reply that is no error.
    Answered(u32, bool),
    /// The request was withdrawn.
    Withdrawn(u32),
    /// The watcher is told something.
    Told(u32),
    /// The watcher is not called any more.
    Forgotten(u32),
    /// The client is told something.
    Raised,
}

impl Happened {
    fn of(action: Action<u32, u32>) -> Happened {
        match action {
            Action::Complete(tag, reply) => Happened::Answered(tag, reply.is_ok()),
            Action::DropCompletion(tag) => Happened::Withdrawn(tag),
            Action::Notify(tag, _) => Happened::Told(tag),
            Action::DropWatcher(tag) => Happened::Forgotten(tag),
            Action::Raise(_) | Action::Log(..) => Happened::Raised,
        }
    }

    fn rig(now: Instant) -> Rig<Happened> {
        Rig::noting(frame_config(), now, Happened::of)
    }
}

/// What has become of one request.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Open,
    Answered,
}

/// A session, and what a server that reads its requests knows.
struct World {
    rng: fastrand::Rng,
    requests: Vec<Request>,
    rig: Rig<Happened>,
    is_up: bool,
    /// Number and op code of what is on the wire.
    in_flight: VecDeque<(i32, i32)>,
    fates: Vec<Fate>,
    tickets: Vec<u64>,
    zxid: i64,
    most: u64,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    sessions: usize,
    connections: usize,
    frames_refused: usize,
    requests: usize,
    answered_well: usize,
    watchers_told: usize,
}

impl World {
    fn new() -> World {
        World {
            rng: fastrand::Rng::with_seed(SEED),
            requests: requests(),
            rig: Happened::rig(clock::now()),
            is_up: false,
            in_flight: VecDeque::new(),
            fates: Vec::new(),
            tickets: Vec::new(),
            zxid: 1,
            most: 0,
            tally: Tally::default(),
        }
    }

    /// One frame, after what it takes for the machine to be in use.
    fn step(&mut self) {
        self.rig.now += Duration::from_millis(self.rng.u64(..50));
        if self.rig.machine.is_over(self.rig.now) || self.fates.len() > 2000 {
            self.begin_anew();
        }
        if !self.is_up {
            self.connect();
        }
        for _ in 0..self.rng.usize(..3) {
            self.submit();
        }
        if self.is_up && !self.rig.timer_at(self.rig.now) {
            self.hang_up();
        }
        self.look();
        self.write();
        match self.rng.u16(..2000) {
            0 => self.hang_up(),
            1 => self.rig.leave(SessionError::Closed, None),
            // Nothing comes of it while the session lives.
            100..300 => self.rig.nobody_holds(),
            2..20 => self.withdraw_or_unwatch(),
            20 => {
                let xid = self.rng.i32(..);
                self.rig.input(|machine, actions| machine.frame_too_large(xid, LIMIT + 1, LIMIT, actions));
            }
            _ => {}
        }
        let frame = self.frame();
        let mut refused = false;
        let used = measure(|| refused = self.rig.receive(&frame).is_err()).bytes_max;
        assert!(used <= LIMIT as u64, "seed {SEED:#x}: {used} bytes for {frame:x?}");
        self.most = self.most.max(used);
        let _ = self.rig.machine.next_timer();
        if refused {
            self.tally.frames_refused += 1;
            self.hang_up();
        }
        self.look();
    }

    /// Whatever the frames were: at the end of the session every request has its answer.
    fn begin_anew(&mut self) {
        self.rig.leave(SessionError::Closed, None);
        self.look();
        let open = self.fates.iter().filter(|fate| **fate == Fate::Open).count();
        assert_eq!(open, 0, "requests without an end, seed {SEED:#x}");
        self.tally.sessions += 1;
        self.rig = Happened::rig(self.rig.now);
        self.fates.clear();
        self.tickets.clear();
        self.hang_up();
    }

    fn connect(&mut self) {
        let response = ConnectResponse {
            timeout_ms: if self.rng.u8(..) == 0 { self.rng.i32(-1..1) } else { 12_000 },
            session_id: if self.rng.u8(..) == 0 { self.rng.i64(..) } else { 0x1234 },
            password: vec![7; 16],
            read_only: self.rng.u8(..9) == 0,
        };
        self.tally.connections += 1;
        self.is_up = self.rig.handshake(response).is_ok();
        if !self.is_up {
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        self.rig.disconnect();
        self.in_flight.clear();
        self.is_up = false;
    }

    fn submit(&mut self) {
        let request = &self.requests[self.rng.usize(..self.requests.len())];
        self.fates.push(Fate::Open);
        let tag = u32::try_from(self.fates.len() - 1).unwrap();
        self.tickets.push(self.rig.submit(request, tag));
        self.tally.requests += 1;
    }

    fn withdraw_or_unwatch(&mut self) {
        if let Some(ticket) = self.rng.choice(&self.tickets).copied() {
            if self.rng.bool() {
                self.rig.withdraw(ticket);
            }
            self.rig.unwatch(ticket);
        }
    }

    fn write(&mut self) {
        let mut out = Vec::new();
        if self.rig.machine.has_output() {
            self.rig.machine.take_output(&mut out);
        }
        let mut rest = &out[..];
        while let Some((length, after)) = rest.split_first_chunk() {
            let (frame, after) = after.split_at(usize::try_from(i32::from_be_bytes(*length)).unwrap());
            let xid = i32::from_be_bytes(*frame.first_chunk().unwrap());
            let op = i32::from_be_bytes(*frame[4..].first_chunk().unwrap());
            if xid > 0 {
                self.in_flight.push_back((xid, op));
            }
            rest = after;
        }
    }

    /// A frame as a server sends it, or one that no server would.
    fn frame(&mut self) -> Vec<u8> {
        self.zxid += 1;
        let rng = &mut self.rng;
        let err = *rng.choice(&[0, 0, 0, 0, -101, -110, -119, rng.clone().i32(..)]).unwrap();
        let mut frame = match (rng.u8(..20), self.in_flight.front().copied()) {
            // The reply that is expected, mostly a good one.
            (0..12, Some((xid, op))) => {
                self.in_flight.pop_front();
                let body = if err == 0 { body(op) } else { Vec::new() };
                reply(xid, self.zxid, err, &body)
            }
            // Another's reply, too early or to nobody.
            (12, Some(_)) => {
                let (xid, op) = self.in_flight[rng.usize(..self.in_flight.len())];
                reply(xid, self.zxid, 0, &body(op))
            }
            (13, _) => reply(rng.i32(..), rng.i64(..), err, &body(KINDS[rng.usize(..KINDS.len())])),
            // Pings, credentials, watches set again.
            (14, _) => reply(*rng.choice(&[-2, -4, -8]).unwrap(), self.zxid, if rng.bool() { 0 } else { -115 }, &[]),
            (15, _) => noise(rng),
            // Of kinds known and unknown, about znodes watched and not.
            _ => notification(rng.i32(-1..9), rng.i32(-1..9), if rng.bool() { "/locks/one" } else { "/other" }),
        };
        while rng.u8(..12) == 0 {
            mutate(rng, &mut frame);
        }
        frame
    }

    /// No request is answered twice, nobody is told of what does not exist.
    fn look(&mut self) {
        for happened in self.rig.take_log() {
            match happened {
                Happened::Answered(tag, is_good) => {
                    self.settle(tag);
                    self.tally.answered_well += usize::from(is_good);
                }
                Happened::Withdrawn(tag) => self.settle(tag),
                Happened::Told(tag) | Happened::Forgotten(tag) => {
                    assert!((tag as usize) < self.fates.len());
                    self.tally.watchers_told += 1;
                }
                Happened::Raised => {}
            }
        }
    }

    fn settle(&mut self, tag: u32) {
        let fate = &mut self.fates[tag as usize];
        assert!(*fate == Fate::Open, "request {tag} is answered twice, seed {SEED:#x}");
        *fate = Fate::Answered;
    }
}

mod slow {
    use super::*;

    #[test]
    fn a_million_random_and_mutated_frames_into_the_state_machine_do_no_harm() {
        let mut world = World::new();
        for _ in 0..FRAMES {
            world.step();
        }
        world.begin_anew();
        println!("state machine: seed: {SEED:#x}");
        println!("state machine: frames: {FRAMES}");
        println!("state machine: what they met: {:?}", &world.tally);
        println!("state machine: most bytes allocated at one time, beside the limit: {:?}", (world.most, LIMIT));
        let Tally { frames_refused, answered_well, sessions, .. } = world.tally;
        assert!(frames_refused > FRAMES / 100 && answered_well > FRAMES / 10 && sessions > 100, "{:?}", world.tally);
    }
}
