//! Processes that contend, driven by lines: of this crate, of Curator, of ZooKeeper's own recipe, of kazoo.

use std::{cell::RefCell, process::Command, sync::Mutex, time::Duration};

use curator_locks::testing::{TestingServer, expire_session};
use nix::unistd::Pid;

use crate::{
    history::{Hold, Side},
    login::Login,
    support::{child::ChildProcess, history::shared_clock, peers},
};

/// How long a peer may say nothing. Those of other clients wait for a server that came back for as long as their session
/// timeout, and everybody in the queue with them.
const PATIENCE: Duration = Duration::from_secs(90);

/// Where a peer connects to.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) servers: String,
    pub(crate) namespace: String,
    pub(crate) session: Duration,
    /// As whom the peers log in.
    pub(crate) login: Login,
}

impl Place {
    /// The arguments of a client that knows no namespaces.
    fn arguments_below_chroot(&self) -> [String; 3] {
        let [servers, namespace, session] = self.arguments();
        [format!("{servers}/{namespace}"), String::new(), session]
    }

    fn arguments(&self) -> [String; 3] {
        [self.servers.clone(), self.namespace.clone(), self.session.as_millis().to_string()]
    }
}

/// Processes of Curator's without a client: to start one takes more of a processor than most tests do. They end with this
/// process, as what they read from is closed then.
static FREE: Mutex<Vec<ChildProcess>> = Mutex::new(Vec::new());

/// Killed when dropped.
pub(crate) struct Peer {
    pub(crate) side: Side,
    process: RefCell<ChildProcess>,
    pub(crate) session: i64,
    password: [u8; 16],
    /// Whether its process can have another client after this one.
    serves_again: bool,
}

impl Peer {
    pub(crate) fn rust(place: &Place, options: &[&str]) -> Peer {
        let arguments = place.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(options.iter().copied()).collect();
        Peer::begin(Side::Rust, ChildProcess::start_in(&place.login.environment(), "peer", &arguments))
    }

    pub(crate) fn curator(place: &Place, options: &[&str]) -> Peer {
        let options = options.iter().map(|option| (*option).to_owned());
        let arguments: Vec<String> = place.arguments().into_iter().chain(options).collect();
        let jvm_options = place.login.jvm_options();
        let serves_again = jvm_options.is_empty();
        let free = if serves_again { FREE.lock().unwrap().pop() } else { None };
        let peer = if let Some(mut free) = free {
            free.tell(&arguments.join("\t"));
            Peer::begin(Side::Java, free)
        } else {
            Peer::foreign(Side::Java, peers::curator(&jvm_options, &arguments))
        };
        Peer { serves_again, ..peer }
    }

    pub(crate) fn write_lock(place: &Place) -> Peer {
        Peer::foreign(Side::Java, peers::write_lock(&place.arguments_below_chroot()))
    }

    pub(crate) fn kazoo(place: &Place) -> Peer {
        Peer::foreign(Side::Kazoo, peers::kazoo(&place.arguments_below_chroot()))
    }

    /// A candidate of this crate, or of Curator.
    pub(crate) fn leader(side: Side, place: &Place, id: &str) -> Peer {
        let [servers, namespace, session] = place.arguments();
        if side == Side::Rust {
            let arguments = [&*servers, &namespace, &session, id];
            let child = ChildProcess::start_in(&place.login.environment(), "leader", &arguments);
            return Peer::begin(side, child);
        }
        let arguments = [servers, namespace, session, id.to_owned()];
        Peer::foreign(side, peers::curators_leader(&place.login.jvm_options(), &arguments))
    }

    fn foreign(side: Side, command: Command) -> Peer {
        let name = format!("{command:?}");
        let process = ChildProcess::run(command, "").unwrap_or_else(|error| {
            panic!("{name}: {error}; `ci/setup --peers` installs what the tests against other clients need")
        });
        Peer::begin(side, process)
    }

    fn begin(side: Side, process: ChildProcess) -> Peer {
        Peer { side, process: RefCell::new(process), session: 0, password: [0; 16], serves_again: false }
    }

    /// Waits until it has connected. Apart from the start, so that several start at a time.
    #[track_caller]
    pub(crate) fn await_ready(&mut self) {
        self.hear_session("ready");
    }

    #[track_caller]
    pub(crate) fn hear_session(&mut self, word: &str) {
        // Where its process had another client before, listeners of that one may still tell of a change.
        let said = loop {
            let line = self.line();
            if let Some(said) = line.strip_prefix(&format!("{word} ")) {
                break said.to_owned();
            }
            let is_late = line.starts_with("count-is ") || line.starts_with("value-is ");
            assert!(self.serves_again && is_late, "{:?} says: {line}", self.side);
        };
        let (session, password) = said.split_once(' ').unwrap();
        self.session = session.parse().unwrap();
        self.password = u128::from_str_radix(password, 16).unwrap().to_be_bytes();
    }

    /// Ends the session that it spoke of last.
    pub(crate) fn expire(&self, server: &TestingServer) {
        expire_session(&server.connect_string(), self.session, &self.password).unwrap();
    }

    pub(crate) fn tell(&self, line: &str) {
        self.process.borrow_mut().tell(line);
    }

    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.process.borrow().hear_within(PATIENCE)
    }

    /// What it has said already.
    pub(crate) fn heard(&self) -> Option<String> {
        self.process.borrow().heard()
    }

    /// The next line, which has to begin with this word; what follows it.
    #[track_caller]
    pub(crate) fn hear(&self, word: &str) -> String {
        let line = self.line();
        let (first, rest) = line.split_once(' ').unwrap_or((&line, ""));
        assert_eq!(first, word, "{:?} says: {line}", self.side);
        rest.to_owned()
    }

    #[track_caller]
    pub(crate) fn ask(&self, line: &str, word: &str) -> String {
        self.tell(line);
        self.hear(word)
    }

    /// Waits for an acquire that was told before, and gives what is held from here on.
    #[track_caller]
    pub(crate) fn await_acquired(&self) -> Hold {
        Hold::acquired(self.side, &self.hear("acquired"))
    }

    #[track_caller]
    pub(crate) fn acquire(&self, kind: &str, path: &str) -> Hold {
        self.tell(&format!("acquire {kind} {path} -1"));
        self.await_acquired()
    }

    #[track_caller]
    pub(crate) fn release(&self, hold: &mut Hold) {
        hold.to = self.ask("release", "released").parse().unwrap();
    }

    /// The next thing it held since it was told to hammer.
    #[track_caller]
    pub(crate) fn await_hold(&self) -> Hold {
        Hold::parse(self.side, &self.hear("hold"))
    }

    /// What it held and said until it died.
    pub(crate) fn rest(&self) -> Vec<Hold> {
        let process = self.process.borrow();
        let holds = process.rest().filter_map(|line| Some(Hold::parse(self.side, line.strip_prefix("hold ")?)));
        holds.collect()
    }

    /// What it held since it was told to hammer, and how many acquires failed.
    #[track_caller]
    pub(crate) fn finish(&self, holds: &mut Vec<Hold>) -> usize {
        loop {
            let line = self.line();
            match line.split_once(' ') {
                Some(("hold", rest)) => holds.push(Hold::parse(self.side, rest)),
                // Of what it held before: each lock of a multi lock tells by itself.
                Some(("state", _)) => {}
                Some(("done", failures)) => return failures.parse().unwrap(),
                _ => panic!("{:?} says: {line}", self.side),
            }
        }
    }

    pub(crate) fn quit(self) {
        self.tell(if self.serves_again { "leave" } else { "quit" });
        // Its listeners may still tell of what came before.
        loop {
            match &*self.line() {
                "bye" => return,
                "free" => return FREE.lock().unwrap().push(self.process.into_inner()),
                _ => {}
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.process.borrow().pid()
    }

    /// Kills it, and gives the moment from which on it cannot do anything. What it said before can still be heard.
    pub(crate) fn kill(&self) -> u64 {
        self.process.borrow_mut().kill();
        shared_clock()
    }

    pub(crate) fn pause(&self) {
        let process = self.process.borrow();
        process.pause();
        process.await_stop();
    }

    pub(crate) fn resume(&self) {
        self.process.borrow().resume();
    }
}
