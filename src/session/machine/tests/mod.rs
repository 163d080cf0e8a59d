//! Every input in every state, on a clock that the tests move.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod auth;
mod dialects;
mod frames;
mod liveness;
mod model;
mod model_server;
mod requests;
mod the_end;
mod watching;

use super::*;
use crate::{
    base::clock,
    session::fake::server_side::{self as server, Frame},
};

/// The session's id; the first bit of the server's number makes it negative.
const ID: i64 = -0x1122_3344_5566_7788;
const T: Duration = Duration::from_secs(12);

/// A machine with everything around it that a test wants to see. Requests and watchers are known by the tags given to
/// them.
struct Rig<L = String> {
    machine: Machine<u32, u32>,
    now: Instant,
    /// What happened, in words unless a test wants it otherwise.
    log: Vec<L>,
    note: fn(Action<u32, u32>) -> L,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(server::config())
    }

    fn with(config: SessionConfig) -> Rig {
        Rig::noting(config, clock::now(), words)
    }

    /// A session with its first connection, and nothing in the log.
    fn connected() -> Rig {
        let mut rig = Rig::new();
        rig.connect();
        rig.take_log();
        rig
    }
}

impl<L> Rig<L> {
    fn noting(config: SessionConfig, now: Instant, note: fn(Action<u32, u32>) -> L) -> Rig<L> {
        Rig { machine: Machine::new(config, now), now, log: Vec::new(), note }
    }

    fn input<T>(&mut self, input: impl FnOnce(&mut Machine<u32, u32>, &mut Vec<Action<u32, u32>>) -> T) -> T {
        let mut actions = Vec::new();
        let result = input(&mut self.machine, &mut actions);
        self.log.extend(actions.into_iter().map(self.note));
        result
    }

    fn connect(&mut self) {
        self.handshake(response(ID)).unwrap();
    }

    fn handshake(&mut self, response: ConnectResponse) -> Result<(), ProtoError> {
        let now = self.now;
        self.input(|machine, actions| machine.connected(response, now, now, actions))
    }

    fn disconnect(&mut self) {
        self.input(|machine, actions| machine.disconnected(None, actions));
    }

    fn submit(&mut self, request: &Request, tag: u32) -> u64 {
        let watcher = request.watch_table().map(|_| tag);
        self.input(|machine, actions| machine.submit(request, request.encode(0), tag, watcher, actions))
    }

    fn withdraw(&mut self, ticket: u64) -> bool {
        self.input(|machine, actions| machine.withdraw(ticket, actions))
    }

    fn unwatch(&mut self, ticket: u64) {
        self.input(|machine, actions| machine.unwatch(ticket, actions));
    }

    /// `None`: with all the time it takes.
    fn leave(&mut self, error: SessionError, until: Option<Instant>) {
        let (now, until) = (self.now, until.unwrap_or(self.now + 100 * T));
        self.input(|machine, actions| machine.leave(error, now, until, actions));
    }

    fn nobody_holds(&mut self) {
        self.input(|machine, _| machine.nobody_holds());
    }

    /// Everything that is written now.
    fn written(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while self.machine.has_output() {
            let mut out = Vec::new();
            self.machine.take_output(&mut out);
            frames.extend(server::frames(&out));
        }
        frames
    }

    fn receive(&mut self, frame: &[u8]) -> Result<(), ProtoError> {
        let now = self.now;
        self.input(|machine, actions| machine.frame(frame, now, actions))
    }

    /// Everything that is written now is answered with success.
    fn answer_all(&mut self) -> Vec<Frame> {
        let frames = self.written();
        for frame in &frames {
            self.receive(&server::answer(frame, 1, 0)).unwrap();
        }
        frames
    }

    /// A request with a watch, answered with success.
    fn watch(&mut self, request: &Request, tag: u32) -> u64 {
        let ticket = self.submit(request, tag);
        self.answer_all();
        ticket
    }

    fn timer_at(&mut self, at: Instant) -> bool {
        self.now = at;
        self.machine.timer(at).is_ok()
    }

    fn take_log(&mut self) -> Vec<L> {
        std::mem::take(&mut self.log)
    }
}

fn words(action: Action<u32, u32>) -> String {
    match action {
        Action::Complete(tag, Ok(_)) => format!("{tag} ok"),
        Action::Complete(tag, Err(SessionError::Server(code))) => format!("{tag} {code:?}"),
        Action::Complete(tag, Err(SessionError::ConnectionLoss(_))) => format!("{tag} lost"),
        Action::Complete(tag, Err(SessionError::AuthFailed { scheme, .. })) => format!("{tag} refused {scheme}"),
        Action::Complete(tag, Err(error)) => format!("{tag} {error:?}"),
        Action::Notify(tag, WatchEvent::Node { event, connection }) => {
            format!("watcher {tag} {event:?} over {connection}")
        }
        Action::Notify(tag, event) => format!("watcher {tag} {event:?}"),
        Action::Raise(SessionEvent::AuthFailed { scheme, .. }) => format!("raise refused {scheme}"),
        Action::Raise(event) => format!("raise {event:?}"),
        Action::DropCompletion(tag) => format!("drop {tag}"),
        Action::DropWatcher(tag) => format!("drop watcher {tag}"),
        Action::Log(level, text) => format!("{level} {text}"),
    }
}

fn response(session_id: i64) -> ConnectResponse {
    let timeout_ms = i32::try_from(T.as_millis()).unwrap();
    ConnectResponse { timeout_ms, session_id, password: vec![7; 16], read_only: false }
}

fn sync(path: &str) -> Request {
    Request::Sync { path: path.into() }
}

fn get_data(path: &str) -> Request {
    Request::GetData { path: path.into(), watch: true }
}

fn exists(path: &str) -> Request {
    Request::Exists { path: path.into(), watch: true }
}

fn children(path: &str) -> Request {
    Request::GetChildren { path: path.into(), watch: true, with_stat: false }
}

/// The result of an operation that failed, in the reply to a transaction: type, done, error, and the error again.
fn failed(code: i32) -> Vec<u8> {
    [&(-1_i32).to_be_bytes()[..], &[0], &code.to_be_bytes(), &code.to_be_bytes()].concat()
}

fn ops(frames: &[Frame]) -> Vec<i32> {
    frames.iter().map(|frame| frame.op).collect()
}

fn paths(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(Frame::path).collect()
}
