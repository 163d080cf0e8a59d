//! The modelled ensemble as the servers of a row.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::dialogue::{Came, Servers, named};
use crate::sim::ensemble::{ConnId, Ensemble, EnsembleConfig, Output, faults::Isolated};

#[derive(Debug, Default)]
struct Stream {
    bytes: VecDeque<u8>,
    has_ended: bool,
}

pub(super) struct Model {
    ensemble: Ensemble,
    now: Duration,
    conns: Vec<ConnId>,
    streams: BTreeMap<ConnId, Stream>,
}

impl Model {
    pub(super) fn new(config: EnsembleConfig, seed: u64) -> Model {
        let ensemble = Ensemble::new(config, seed);
        Model { ensemble, now: Duration::ZERO, conns: Vec::new(), streams: BTreeMap::new() }
    }

    fn server(&self, at: &str) -> usize {
        let leader = self.ensemble.leader().unwrap();
        named(at, leader, self.ensemble.servers())
    }

    fn deliver(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Send { conn, bytes } => self.streams.get_mut(&conn).unwrap().bytes.extend(bytes),
                Output::Close { conn } => self.streams.get_mut(&conn).unwrap().has_ended = true,
            }
        }
    }

    /// Goes on to what happens next. `false`: nothing happens by then.
    fn step(&mut self, end: Duration) -> bool {
        let Some(wake) = self.ensemble.next_wake().filter(|wake| *wake <= end) else { return false };
        self.now = wake.max(self.now);
        let mut out = Vec::new();
        self.ensemble.tick(self.now, &mut out);
        self.deliver(out);
        true
    }

    fn frame(&mut self, conn: usize) -> Option<Came> {
        let stream = self.streams.get_mut(&self.conns[conn]).unwrap();
        if stream.bytes.len() < 4 {
            return stream.has_ended.then_some(Came::End);
        }
        let length: Vec<u8> = stream.bytes.drain(..4).collect();
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        Some(Came::Frame(stream.bytes.drain(..length).collect()))
    }
}

impl Servers for Model {
    fn connect(&mut self, at: &str) -> usize {
        let server = self.server(at);
        let conn = self.ensemble.connect(server, self.now).unwrap();
        self.streams.insert(conn, Stream::default());
        self.conns.push(conn);
        self.conns.len() - 1
    }

    fn write(&mut self, conn: usize, bytes: &[u8]) {
        let mut out = Vec::new();
        // Cut anywhere, as a network may.
        for piece in bytes.chunks(1 + bytes.len() / 3) {
            self.ensemble.receive(self.conns[conn], piece, self.now, &mut out);
        }
        self.deliver(out);
    }

    fn read(&mut self, conn: usize, grace: Duration) -> Came {
        let deadline = self.now + grace;
        loop {
            if let Some(came) = self.frame(conn) {
                return came;
            }
            if !self.step(deadline) {
                return Came::Nothing;
            }
        }
    }

    fn hang_up(&mut self, conn: usize) {
        let mut out = Vec::new();
        self.ensemble.disconnected(self.conns[conn], self.now, &mut out);
        self.deliver(out);
    }

    fn cut_off(&mut self, at: &str) {
        let server = self.server(at);
        self.ensemble.isolate(server, Isolated::Both, self.now);
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }
}
