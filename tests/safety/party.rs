//! The processes, as the director sees them: started again whenever they end, behind proxies, and heard.

use std::{
    env,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use curator_locks::testing::{Dialect, FaultProxy, TestingServer};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    Group, NAMESPACE, SESSION,
    history::{Claim, History},
    support::{child::ChildProcess, eventually, history::shared_clock, peers},
};

/// How often the thread of a process looks whether it is to end.
const POLL: Duration = Duration::from_millis(50);

/// How long another client does nothing after a few locks.
const PAUSE: Duration = Duration::from_millis(30);

/// The side whose servers answer as ClickHouse Keeper does.
pub const KEEPER: &str = "keeper";

pub struct Party {
    pub number: usize,
    pub group: &'static Group,
    kind: &'static str,
    side: &'static str,
    seed: u64,
    /// One for each server.
    pub proxies: Vec<FaultProxy>,
    /// 0 while it is not there.
    pid: AtomicI32,
    session: AtomicI64,
    quits: AtomicBool,
    /// It has nothing of its lock any more.
    is_idle: AtomicBool,
    has_ended: AtomicBool,
    closes: AtomicBool,
    is_killed: AtomicBool,
    /// How its processes ended that nobody had killed.
    pub broken: Mutex<Vec<String>>,
    pub history: Mutex<History>,
}

impl Party {
    pub fn start(
        number: usize,
        group: &'static Group,
        (kind, side): (&'static str, &'static str),
        servers: &[TestingServer],
        seed: u64,
    ) -> Arc<Party> {
        let dialect = if side == KEEPER { Dialect::Keeper } else { Dialect::ZooKeeper };
        let proxy = |server: &TestingServer| FaultProxy::start_as(("127.0.0.1", server.port()), dialect).unwrap();
        let proxies = servers.iter().map(proxy).collect();
        let (pid, session, quits, is_idle, has_ended, closes, is_killed, broken, history) = Default::default();
        let party = Arc::new(Party {
            number,
            group,
            kind,
            side,
            seed,
            proxies,
            pid,
            session,
            quits,
            is_idle,
            has_ended,
            closes,
            is_killed,
            broken,
            history,
        });
        let runs = party.clone();
        thread::spawn(move || {
            runs.run();
            runs.has_ended.store(true, SeqCst);
        });
        party
    }

    pub fn is_reader(&self) -> bool {
        matches!((self.kind, self.side), ("read" | "cached_read", "victim") | ("cached_write", "rival"))
    }

    /// The name of its lane in a picture.
    pub fn name(&self) -> String {
        let mode = if self.is_reader() { " reader" } else { "" };
        format!("{} {}{mode}", self.kind, self.number)
    }

    /// Starts the process again until it is to quit, and it has said goodbye.
    fn run(&self) {
        for life in 0_u64.. {
            let servers: Vec<String> = self.proxies.iter().map(FaultProxy::connect_string).collect();
            if self.is_command() {
                self.history.lock().unwrap().invoked(shared_clock());
            }
            let mut child = self.begin(servers.join(","), self.seed ^ life << 32);
            self.pid.store(child.pid().as_raw(), SeqCst);
            let has_said_goodbye = self.hear(&mut child);
            let mut status = None;
            eventually("it has ended", || {
                status = child.status();
                status.is_some()
            });
            self.pid.store(0, SeqCst);
            let was_killed = self.is_killed.swap(false, SeqCst) || matches!(self.kind, "fenced" | "zklock");
            if !self.is_foreign() && !status.is_some_and(|status| status.success() || was_killed) {
                self.broken.lock().unwrap().push(format!("{} has ended with {status:?}", self.name()));
            }
            if has_said_goodbye {
                return;
            }
            let mut history = self.history.lock().unwrap();
            match status.and_then(|status| status.code()) {
                Some(0) if self.is_command() => history.done(shared_clock(), "ok"),
                Some(code) if self.is_command() => history.done(shared_clock(), &format!("status {code}")),
                _ => history.ended(shared_clock()),
            }
            drop(history);
            if self.quits.load(SeqCst) {
                return;
            }
            if self.is_command() {
                thread::sleep(PAUSE);
            }
        }
    }

    fn begin(&self, servers: String, seed: u64) -> ChildProcess {
        let session = SESSION.as_millis().to_string();
        let command = match self.kind {
            "curator" => peers::curator(&[], &[servers, NAMESPACE.to_owned(), session]),
            "kazoo" => peers::kazoo(&[format!("{servers}/{NAMESPACE}"), String::new(), session]),
            "zklock" => {
                let mut zklock = Command::new(env!("CARGO_BIN_EXE_zklock"));
                zklock.env("ZK_CONNECT", format!("{servers}/{NAMESPACE}")).env("HOME", "/nowhere");
                zklock.args(["--session-timeout", &format!("{session}ms"), "run", &self.path(), "--"]);
                zklock.arg(env::current_exe().unwrap()).stderr(Stdio::null());
                return ChildProcess::start_by(zklock, "command", &[&seed.to_string()]);
            }
            kind => {
                return ChildProcess::start("prober", &[kind, self.side, &servers, &self.path(), &seed.to_string()]);
            }
        };
        ChildProcess::run(command, "").unwrap()
    }

    pub fn is_foreign(&self) -> bool {
        matches!(self.kind, "curator" | "kazoo")
    }

    /// Whether each of its processes is one hold.
    fn is_command(&self) -> bool {
        self.kind == "zklock"
    }

    fn path(&self) -> String {
        format!("/{}", self.group.name)
    }

    /// Notes all that it says. Returns whether it has said goodbye.
    fn hear(&self, child: &mut ChildProcess) -> bool {
        let (mut was_told, mut was_told_to_close) = (false, false);
        loop {
            if self.closes.load(SeqCst) && !was_told_to_close {
                child.tell_if_it_lives("close");
                was_told_to_close = true;
            }
            if self.quits.load(SeqCst) && !was_told {
                child.tell_if_it_lives(if self.is_foreign() { "stop" } else { "quit" });
                was_told = true;
            }
            let said = match child.heard_within(POLL) {
                Ok(said) => said,
                Err(true) => continue,
                Err(false) => return false,
            };
            let words: Vec<&str> = said.split(' ').collect();
            if self.is_foreign() && matches!(words[0], "ready" | "done" | "error") {
                // A few at a time, or the processors would have nothing else to do.
                thread::sleep(PAUSE);
                child.tell_if_it_lives(&match self.quits.load(SeqCst) {
                    true => "quit".to_owned(),
                    false => format!("hammer mutex {} 3 slow", self.path()),
                });
            }
            let number = |index: usize| words[index].parse::<i64>().unwrap();
            let mut history = self.history.lock().unwrap();
            match words[0] {
                "ready" => self.session.store(number(1), SeqCst),
                // Such a client hears of a loss, and not until when its session lasts.
                "hold" => {
                    let (from, to, token, valid_until) =
                        (number(2) as u64, number(3) as u64, number(5), number(8) as u64);
                    history.invoked(from);
                    let claim = Claim { party: self.number, is_reader: false, token, from, to: to.min(valid_until) };
                    history.claimed(claim);
                    history.released(token, from, to, -1);
                    history.done(to, "ok");
                }
                "error" => {
                    history.invoked(shared_clock());
                    history.done(shared_clock(), &said);
                }
                "session" => self.session.store(number(1), SeqCst),
                "invoke" => history.invoked(number(1) as u64),
                "claim" => {
                    let (token, from, to) = (number(1), number(2) as u64, number(3) as u64);
                    history.claimed(Claim { party: self.number, is_reader: self.is_reader(), token, from, to });
                }
                "done" if self.is_foreign() => {}
                "release" => history.released(number(1), number(2) as u64, number(3) as u64, number(4)),
                "done" => history.done(number(1) as u64, said.splitn(3, ' ').nth(2).unwrap_or_default()),
                "update" if words[1] == "begins" => history.updates.begun += 1,
                "update" => history.updates.done.push(number(1)),
                "idle" => self.is_idle.store(true, SeqCst),
                "bye" => return true,
                _ if self.is_foreign() => {}
                _ => panic!("{said}"),
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // It may have ended by itself: a fence does that.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    pub fn kill(&self) {
        self.is_killed.store(true, SeqCst);
        self.signal(Signal::SIGKILL);
    }

    /// `None` while it is not there.
    pub fn pid(&self) -> Option<i32> {
        Some(self.pid.load(SeqCst)).filter(|pid| *pid != 0)
    }

    pub fn session(&self) -> i64 {
        self.session.load(SeqCst)
    }

    pub fn quit(&self) {
        self.quits.store(true, SeqCst);
    }

    pub fn is_idle(&self) -> bool {
        self.is_idle.load(SeqCst)
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }

    pub fn close(&self) {
        self.closes.store(true, SeqCst);
    }
}
