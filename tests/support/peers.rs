//! The programs of other clients, and what they need: see `tests/peers/README.md`.

use std::{
    env,
    ffi::OsString,
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use super::child::ChildProcess;

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

/// On Curator. The arguments are those of `tests/peers/README.md`.
pub fn curator(jvm_options: &[String], arguments: &[String]) -> Command {
    of_java(&curator_class_path(), jvm_options, "CuratorPeer", arguments)
}

/// On Curator's leader recipes.
pub fn curators_leader(jvm_options: &[String], arguments: &[String]) -> Command {
    of_java(&curator_class_path(), jvm_options, "LeaderPeer", arguments)
}

/// On ZooKeeper's own recipe.
pub fn write_lock(arguments: &[String]) -> Command {
    of_java(&debian_class_path(), &[], "WriteLockPeer", arguments)
}

pub fn kazoo(arguments: &[String]) -> Command {
    let python = env::var_os("KAZOO_PYTHON").unwrap_or_else(|| "/usr/bin/python3".into());
    let mut command = Command::new(python);
    command.arg("-B").arg(Path::new(SOURCES).join("kazoo_peer.py")).args(arguments);
    command
}

fn of_java(class_path: &OsString, options: &[String], class: &str, arguments: &[String]) -> Command {
    let mut command = java(class_path, options, class);
    command.args(arguments);
    command
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
    let server = super::server();
    let mut command = Command::new(tool("java"));
    command.args(JVM_OPTIONS).arg(option_with("-XX:ArchiveClassesAtExit=", archive));
    run_in(&mut command, jar, &curator_class_path(), "CuratorPeer");
    command.args([server.connect_string(), super::namespace(), super::SESSION.as_millis().to_string()]);
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
