//! A side as a child process, told what to do line by line.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use crate::sides::Outcome;

/// No command takes longer, on any side.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    CuratorLocks,
    Curator,
    Kazoo,
    ZooKeeperCrate,
    BareSocket,
    /// This crate without caching, where the other figure is with it.
    CuratorLocksPlain,
    /// What needs no server, in one program.
    Limits,
    ParkingLot,
    Channels,
}

impl Kind {
    /// Those that have locks on a server.
    pub const ALL: [Kind; 5] = [Kind::CuratorLocks, Kind::Curator, Kind::Kazoo, Kind::ZooKeeperCrate, Kind::BareSocket];

    /// All of which there are figures.
    pub const EVERY: [Kind; 8] = [
        Kind::CuratorLocks,
        Kind::CuratorLocksPlain,
        Kind::Curator,
        Kind::Kazoo,
        Kind::ZooKeeperCrate,
        Kind::BareSocket,
        Kind::ParkingLot,
        Kind::Channels,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::CuratorLocks => "curator-locks",
            Kind::Curator => "curator",
            Kind::Kazoo => "kazoo",
            Kind::ZooKeeperCrate => "zookeeper-crate",
            Kind::BareSocket => "bare-socket",
            Kind::CuratorLocksPlain => "curator-locks-plain",
            Kind::Limits => "limits",
            Kind::ParkingLot => "parking_lot",
            Kind::Channels => "channels",
        }
    }

    fn command(self) -> Outcome<Command> {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
        Ok(match self {
            Kind::Curator => {
                let mut command = Command::new("java");
                command.args(["-Xmx1g", "-XX:-UsePerfData", "-cp", &class_path()?]).arg(peers.join("CuratorPeer.java"));
                command
            }
            Kind::Kazoo => {
                let mut command = Command::new(python());
                command.arg(peers.join("kazoo_peer.py"));
                command
            }
            _ => {
                let mut command = Command::new(env::current_exe()?);
                command.args(["side", self.name()]);
                command
            }
        })
    }
}

/// The one that sees kazoo: where nothing else is said that is Debian's, whatever comes first in `PATH`.
pub fn python() -> OsString {
    env::var_os("KAZOO_PYTHON").unwrap_or_else(|| "/usr/bin/python3".into())
}

/// Named one by one, because the directory holds the jars of the whole distribution.
fn class_path() -> Outcome<String> {
    const JARS: [&str; 18] = [
        "curator-recipes",
        "curator-framework",
        "curator-client",
        "zookeeper",
        "zookeeper-jute",
        "guava",
        "failureaccess",
        "slf4j-api",
        "slf4j-nop",
        "netty-buffer",
        "netty-codec",
        "netty-common",
        "netty-handler",
        "netty-resolver",
        "netty-transport",
        "netty-transport-native-epoll",
        "netty-transport-native-unix-common",
        "jackson-databind",
    ];
    let jars = JARS.map(|name| PathBuf::from(format!("/usr/share/java/{name}.jar")));
    let present: Vec<PathBuf> = jars.into_iter().filter(|jar| jar.exists()).collect();
    Ok(env::join_paths(present)?.into_string().map_err(|_| "the class path is no text")?)
}

/// Killed when dropped.
pub struct Peer {
    pub kind: Kind,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Peer {
    pub fn start(kind: Kind, address: &str) -> Outcome<Peer> {
        let mut child =
            kind.command()?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| {
                format!("cannot start {}: {error}; ci/setup --peers installs the peers", kind.name())
            })?;
        let (stdin, stdout) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Nobody listens any more if the bench has failed.
                let _ = sender.send(line);
            }
        });
        let mut peer = Peer { kind, child, stdin, lines };
        peer.ask(&format!("connect {address}"))?;
        Ok(peer)
    }

    pub fn ask(&mut self, command: &str) -> Outcome<Vec<u64>> {
        self.tell(command)?;
        self.hear(command)
    }

    pub fn tell(&mut self, command: &str) -> Outcome<()> {
        Ok(writeln!(self.stdin, "{command}")?)
    }

    pub fn hear(&mut self, command: &str) -> Outcome<Vec<u64>> {
        let name = self.kind.name();
        let reply = self.lines.recv_timeout(PATIENCE).map_err(|_| format!("{name} does not answer {command:?}"))?;
        let numbers = match reply.split_once(' ') {
            Some(("ok", numbers)) => numbers,
            _ if reply == "ok" => "",
            _ => return Err(format!("{name}, {command:?}: {reply}").into()),
        };
        Ok(numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
    }

    /// A number out of the process's status: `Threads`, or `VmRSS` in KiB.
    pub fn status(&self, key: &str) -> Outcome<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let number = line.and_then(|rest| rest.split_whitespace().next()).ok_or("no such line")?;
        Ok(number.parse()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
