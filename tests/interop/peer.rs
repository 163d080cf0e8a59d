//! Processes that contend, driven by lines: of this crate, of Curator, of ZooKeeper's own recipe, of kazoo.

use std::{
    cell::RefCell,
    env,
    ffi::OsString,
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use curator_locks::testing::{TestingServer, expire_session};
use nix::unistd::Pid;

use crate::{
    history::{Hold, Side},
    login::Login,
    support::{self, child::ChildProcess, history::shared_clock},
};

/// Debian's, in the order of who needs whom: Curator, ZooKeeper and its recipe, and what they stand on.
const DEBIAN_JARS: [&str; 15] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "zookeeper-recipes-lock",
    "guava",
    "failureaccess",
    "slf4j-api",
    "slf4j-simple",
    "jackson-core",
    "jackson-databind",
    "jackson-annotations",
    "netty-common",
    "netty-handler",
];
/// How long a peer may say nothing. Those of other clients wait for a server that came back for as long as their session
/// timeout, and everybody in the queue with them.
const PATIENCE: Duration = Duration::from_secs(90);

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers");

/// Small and quick to start.
const JVM_OPTIONS: [&str; 8] = [
    "-Xmx96m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    // It would warn, where a peer speaks, of an archive of another Java.
    "-Xlog:disable",
    "-Djava.net.preferIPv4Stack=true",
];

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
    /// What a client that knows no namespaces connects to.
    fn chroot(&self) -> String {
        format!("{}/{}", self.servers, self.namespace)
    }

    fn arguments(&self) -> [String; 3] {
        [self.servers.clone(), self.namespace.clone(), self.session.as_millis().to_string()]
    }
}

/// Killed when dropped.
pub(crate) struct Peer {
    pub(crate) side: Side,
    process: RefCell<ChildProcess>,
    pub(crate) session: i64,
    password: [u8; 16],
}

impl Peer {
    pub(crate) fn rust(place: &Place, options: &[&str]) -> Peer {
        let arguments = place.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(options.iter().copied()).collect();
        Peer::begin(Side::Rust, ChildProcess::start_in(&place.login.environment(), "peer", &arguments))
    }

    pub(crate) fn curator(place: &Place, options: &[&str]) -> Peer {
        let mut command = java(&curator_class_path(), &place.login.jvm_options(), "CuratorPeer");
        command.args(place.arguments()).args(options);
        Peer::foreign(Side::Java, command)
    }

    pub(crate) fn write_lock(place: &Place) -> Peer {
        let mut command = java(&debian_class_path(), &[], "WriteLockPeer");
        command.args([place.chroot(), String::new(), place.session.as_millis().to_string()]);
        Peer::foreign(Side::Java, command)
    }

    pub(crate) fn kazoo(place: &Place) -> Peer {
        let python = env::var_os("KAZOO_PYTHON").unwrap_or_else(|| "/usr/bin/python3".into());
        let mut command = Command::new(python);
        command.arg("-B").arg(Path::new(SOURCES).join("kazoo_peer.py"));
        command.args([place.chroot(), String::new(), place.session.as_millis().to_string()]);
        Peer::foreign(Side::Kazoo, command)
    }

    /// A candidate of this crate, or of Curator.
    pub(crate) fn leader(side: Side, place: &Place, id: &str) -> Peer {
        let [servers, namespace, session] = place.arguments();
        if side == Side::Rust {
            let arguments = [&*servers, &namespace, &session, id];
            let child = ChildProcess::start_in(&place.login.environment(), "leader", &arguments);
            return Peer::begin(side, child);
        }
        let mut command = java(&curator_class_path(), &place.login.jvm_options(), "LeaderPeer");
        command.args([&servers, &namespace, &session, id]);
        Peer::foreign(side, command)
    }

    fn foreign(side: Side, command: Command) -> Peer {
        let name = format!("{command:?}");
        let process = ChildProcess::run(command, "").unwrap_or_else(|error| {
            panic!("{name}: {error}; `ci/setup --peers` installs what the tests against other clients need")
        });
        Peer::begin(side, process)
    }

    fn begin(side: Side, process: ChildProcess) -> Peer {
        Peer { side, process: RefCell::new(process), session: 0, password: [0; 16] }
    }

    /// Waits until it has connected. Apart from the start, so that several start at a time.
    #[track_caller]
    pub(crate) fn await_ready(&mut self) {
        self.hear_session("ready");
    }

    #[track_caller]
    pub(crate) fn hear_session(&mut self, word: &str) {
        let said = self.hear(word);
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
        self.tell("quit");
        // Its listeners may still tell of what came before.
        while self.line() != "bye" {}
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

fn java(class_path: &OsString, options: &[String], class: &str) -> Command {
    let Compiled { jar, archive } = compiled();
    let mut command = Command::new(tool("java"));
    command.args(JVM_OPTIONS);
    // Made for one class path.
    if let Some(archive) = archive.as_ref().filter(|_| *class_path == curator_class_path()) {
        command.arg(option_with("-XX:SharedArchiveFile=", archive));
    }
    command.args(options);
    run_in(&mut command, jar, class_path, class);
    command
}

fn run_in(command: &mut Command, jar: &Path, class_path: &OsString, class: &str) {
    let mut class_path_with_peers = jar.to_owned().into_os_string();
    class_path_with_peers.push(":");
    class_path_with_peers.push(class_path);
    // Both libraries log each lost connection as an error. Set to "warn" to see why a peer does what it does.
    let level = env::var("PEER_LOG").unwrap_or_else(|_| "off".into());
    command.arg(format!("-Dorg.slf4j.simpleLogger.defaultLogLevel={level}"));
    command.arg("-cp").arg(class_path_with_peers).arg(class);
    // `ci/test` sets it for the servers, and Java would speak of it.
    command.env_remove("JDK_JAVA_OPTIONS");
}

fn option_with(option: &str, path: &Path) -> OsString {
    let mut whole = OsString::from(option);
    whole.push(path);
    whole
}

struct Compiled {
    jar: PathBuf,
    /// Classes as Java keeps them in memory, with which a peer starts in half of the processor time; Java makes one only of jars.
    archive: Option<PathBuf>,
}

/// Where the compiled peers are. One process at a time makes what has changed, so that none runs half of it.
fn compiled() -> &'static Compiled {
    static COMPILED: OnceLock<Compiled> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
        std::fs::create_dir_all(&directory).unwrap();
        let lock = File::create(directory.join("lock")).unwrap();
        lock.lock().unwrap();
        let sources = [
            (curator_class_path(), "CuratorPeer.java"),
            (curator_class_path(), "LeaderPeer.java"),
            (debian_class_path(), "WriteLockPeer.java"),
        ];
        let changed = sources.map(|(class_path, source)| compile(&directory, &class_path, source)).contains(&true);
        let (jar, archive) = (directory.join("peers.jar"), directory.join("curator.jsa"));
        if changed || !jar.exists() {
            let mut command = Command::new(tool("jar"));
            let classes = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
            let classes = classes.filter(|name| name.as_encoded_bytes().ends_with(b".class"));
            command.current_dir(&directory).args(["--create", "--file", "peers.jar"]).args(classes);
            succeed(&mut command);
            let _ = std::fs::remove_file(&archive);
        }
        if !archive.exists() {
            archive_classes(&jar, &archive);
        }
        Compiled { jar, archive: Some(archive).filter(|archive| archive.exists()) }
    })
}

/// Makes the archive from a peer that does what most of them do. Without it peers start more slowly, and that is all.
fn archive_classes(jar: &Path, archive: &Path) {
    let server = support::server();
    let mut command = Command::new(tool("java"));
    command.args(JVM_OPTIONS).arg(option_with("-XX:ArchiveClassesAtExit=", archive));
    run_in(&mut command, jar, &curator_class_path(), "CuratorPeer");
    command.args([server.connect_string(), support::namespace(), support::SESSION.as_millis().to_string()]);
    let mut peer = ChildProcess::run(command, "").unwrap();
    for kind in ["mutex", "write", "semaphore:1"] {
        peer.tell(&format!("acquire {kind} /{kind} -1"));
        peer.tell("release");
    }
    peer.tell("quit");
    // It closes its output when it ends, which it does behind the archive.
    peer.rest().for_each(drop);
}

/// Whether there was something to compile.
fn compile(directory: &Path, class_path: &OsString, source: &str) -> bool {
    let (done, modified) = (directory.join(source), |path: &Path| std::fs::metadata(path)?.modified());
    let source = Path::new(SOURCES).join(source);
    let is_for_this = std::fs::read(&done).is_ok_and(|of| of == class_path.as_encoded_bytes());
    if is_for_this && modified(&done).is_ok_and(|done| done > modified(&source).unwrap()) {
        return false;
    }
    let mut command = Command::new(tool("javac"));
    command.args(["-nowarn", "-proc:none", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-d"]).arg(directory);
    command.arg("-cp").arg(class_path).arg(source);
    succeed(&mut command);
    std::fs::write(done, class_path.as_encoded_bytes()).unwrap();
    true
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; see `ci/setup --peers`"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}\n`ci/setup --peers` installs what is missing");
}

fn tool(name: &str) -> PathBuf {
    match env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin").join(name)) {
        Some(path) if path.exists() => path,
        _ => name.into(),
    }
}

/// Debian's, unless `CURATOR_CLASSPATH` names another Curator with all that it needs.
fn curator_class_path() -> OsString {
    env::var_os("CURATOR_CLASSPATH").filter(|path| !path.is_empty()).unwrap_or_else(debian_class_path)
}

fn debian_class_path() -> OsString {
    let jars = DEBIAN_JARS.map(|jar| Path::new("/usr/share/java").join(format!("{jar}.jar")));
    env::join_paths(jars.iter().filter(|jar| jar.exists())).unwrap()
}
