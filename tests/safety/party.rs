//! The processes, as the director sees them: started again whenever they end, behind proxies, and heard.

use std::{
    env,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus, Stdio},
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
    wall_clock::WallClock,
};

/// How often the thread of a process looks whether it is to end.
const POLL: Duration = Duration::from_millis(50);

/// How long another client does nothing after a few locks.
const PAUSE: Duration = Duration::from_millis(30);

/// The side whose servers answer as ClickHouse Keeper does.
pub const KEEPER: &str = "keeper";

/// The side whose command ignores that it is asked to end.
pub const DEAF: &str = "deaf";

/// The exit statuses of `zklock run` where its lock was lost, and where it could not do its work.
const LOST: i32 = 123;
const FAILED: i32 = 125;

const SIGKILL: i32 = Signal::SIGKILL as i32;

pub struct Party {
    pub number: usize,
    pub group: &'static Group,
    kind: &'static str,
    side: &'static str,
    seed: u64,
    /// One for each server.
    pub proxies: Vec<FaultProxy>,
    pub wall_clock: WallClock,
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
            wall_clock: WallClock::new(),
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
            let was_killed = self.is_killed.swap(false, SeqCst);
            // A fence ends its process.
            let may_be_killed = was_killed || self.kind == "fenced" || self.is_command();
            let is_well = |status: ExitStatus| match (status.code(), status.signal()) {
                (Some(0), _) => true,
                (Some(LOST | FAILED), _) => self.is_command(),
                (_, Some(SIGKILL)) => may_be_killed,
                _ => false,
            };
            if !self.is_foreign() && !status.is_some_and(is_well) {
                self.broken.lock().unwrap().push(format!("{} has ended with {status:?}", self.name()));
            }
            if has_said_goodbye {
                return;
            }
            let mut history = self.history.lock().unwrap();
            history.cut_short();
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
        let own = || Command::new(env::current_exe().unwrap());
        let foreign = |command| ChildProcess::run(self.wall_clock.rules(command), "").unwrap();
        match self.kind {
            "curator" => foreign(peers::curator(&[], &[servers, NAMESPACE.to_owned(), session])),
            "kazoo" => foreign(peers::kazoo(&[format!("{servers}/{NAMESPACE}"), String::new(), session])),
            "zklock" => {
                // One that waits for its lock does not see that this program has ended.
                let mut zklock = Command::new("setpriv");
                zklock.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_zklock")]);
                zklock.env("ZK_CONNECT", format!("{servers}/{NAMESPACE}")).env("HOME", "/nowhere");
                zklock.args(["--session-timeout", &format!("{session}ms"), "run", &self.path(), "--"]);
                if self.side == DEAF {
                    zklock.args(["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"]);
                }
                zklock.arg(own().get_program()).stderr(Stdio::null());
                ChildProcess::start_by(self.wall_clock.rules(zklock), "command", &[&seed.to_string()])
            }
            kind => {
                let arguments = [kind, self.side, &servers, &self.path(), &seed.to_string()];
                ChildProcess::start_by(self.wall_clock.rules(own()), "prober", &arguments)
            }
        }
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
            // They would keep all requests of an hour.
            self.proxies.iter().for_each(FaultProxy::clear_log);
            if self.closes.load(SeqCst) && !was_told_to_close && !self.is_foreign() {
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
                "ready" | "session" => self.session.store(number(1), SeqCst),
                // Such a client hears of a loss, and not until when its session lasts.
                "hold" => {
                    let (from, to, token, valid_until) =
                        (number(2) as u64, number(3) as u64, number(5), number(8) as u64);
                    history.invoked(from);
                    let (party, session, to_believed) = (self.number, self.session(), to.min(valid_until));
                    history.claimed(Claim { party, is_reader: false, token, session, from, to: to_believed });
                    history.released(token, from, to, -1);
                    history.done(to, "ok");
                }
                "error" => {
                    history.invoked(shared_clock());
                    history.done(shared_clock(), &said);
                }
                "invoke" => history.invoked(number(1) as u64),
                "claim" => {
                    let (token, from, to, session) = (number(1), number(2) as u64, number(3) as u64, number(4));
                    let (party, is_reader) = (self.number, self.is_reader());
                    history.claimed(Claim { party, is_reader, token, session, from, to });
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

    /// `false`: there is no process. It may have ended by itself: a fence does that.
    pub fn signal(&self, signal: Signal) -> bool {
        self.pid().is_some_and(|pid| kill(Pid::from_raw(pid), signal).is_ok())
    }

    pub fn kill(&self) -> bool {
        let is_there = self.pid().is_some();
        self.is_killed.fetch_or(is_there, SeqCst);
        is_there && self.signal(Signal::SIGKILL)
    }

    /// Whether it hands its znode on without giving it back.
    pub fn keeps(&self) -> bool {
        self.kind.starts_with("cached")
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
