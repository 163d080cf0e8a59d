//! One ZooKeeper server.

use std::{
    fs, io,
    net::{SocketAddrV4, TcpStream},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::{
    builder::TestingServerBuilder, error::TestingError, four_letter_word, install::Installation, port::ReservedPort,
    process::ServerProcess,
};

/// How long a server may take until it serves. It takes about 0.3 s; this is for machines under load.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a server may take to end when asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server may take to answer a four letter word.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The question whether a server serves.
const SRVR: &str = "srvr";

/// Short, because a question asked while the server starts may stay without an answer.
const SRVR_TIMEOUT: Duration = Duration::from_secs(1);

/// How soon the question is asked again, from the shortest to the longest: an answer takes the server's time, and where
/// that is scarce, frequent questions would keep it from starting.
const SRVR_INTERVALS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

const LOG_TAIL_LINES: usize = 40;

/// A real ZooKeeper server as a child process, on a free port of 127.0.0.1.
///
/// Dropping this value ends the server, also while a thread panics. So does the end of the process, even by `exit` or
/// SIGKILL. Unless the builder names a data directory, the data goes too. Any thread may call its methods.
///
/// ```
/// use std::time::Duration;
///
/// use curator_locks::testing::TestingServer;
///
/// let server = TestingServer::builder().tick_time(Duration::from_millis(200)).start()?;
/// println!("clients connect to {}", server.connect_string());
/// # Ok::<(), curator_locks::testing::TestingError>(())
/// ```
///
/// Its methods:
///
/// ```
/// use std::time::Duration;
/// use curator_locks::testing::TestingServer;
///
/// let server = TestingServer::start()?;
/// assert_eq!(server.connect_string(), format!("127.0.0.1:{}", server.port()));
/// assert_eq!((server.pid().is_some(), server.secure_connect_string()), (true, None)); // no port for TLS
/// println!("{} znodes, {} ephemeral", server.znode_count()?, server.ephemeral_count()?);
/// assert_eq!((server.watch_count()?, server.metric("zk_znode_count")?), (0, server.znode_count()?));
/// println!("{} packets so far", server.packets_received()?);
/// assert!(server.four_letter_word("srvr")?.contains("standalone"));
///
/// server.pause()?; // SIGSTOP: connections stay, and nobody answers
/// server.resume()?;
/// server.stop()?; // in good order; `kill` is SIGKILL
/// assert!(!server.is_running());
/// server.launch()?; // does not wait, as `restart` does
/// server.wait_until_serving(Duration::from_secs(60))?;
/// assert!(!server.log().is_empty());
/// server.kill()?;
/// server.restart()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TestingServer {
    port: ReservedPort,
    secure_port: Option<ReservedPort>,
    builder: TestingServerBuilder,
    installation: Installation,
    // Above the directory, so that the server is gone before its files are.
    process: Mutex<Option<ServerProcess>>,
    directory: TempDir,
}

impl TestingServerBuilder {
    /// Starts the server and waits until it serves.
    ///
    /// # Errors
    /// If ZooKeeper or Java is not installed, or the server ends or does not serve within 120 s: then with the end of
    /// its log.
    pub fn start(self) -> Result<TestingServer, TestingError> {
        let port = ReservedPort::of(self.port).map_err(TestingError::io("the port is not free"))?;
        let server = TestingServer::prepare(self, port)?;
        server.restart()?;
        Ok(server)
    }
}

impl TestingServer {
    /// Starts a server with the defaults of [`TestingServerBuilder`], and waits until it serves.
    ///
    /// # Errors
    /// As [`TestingServerBuilder::start`].
    pub fn start() -> Result<TestingServer, TestingError> {
        TestingServer::builder().start()
    }

    /// Configures a server before it is started.
    pub fn builder() -> TestingServerBuilder {
        TestingServerBuilder::default()
    }

    /// Writes the server's files.
    pub(super) fn prepare(builder: TestingServerBuilder, port: ReservedPort) -> Result<TestingServer, TestingError> {
        let installation = Installation::find()?;
        let directory = tempfile::Builder::new()
            .prefix("zookeeper-")
            .tempdir()
            .map_err(TestingError::io("no temporary directory for the server"))?;
        let secure_port =
            builder.tls.as_ref().map(|_| ReservedPort::new()).transpose().map_err(TestingError::io("no free port"))?;
        let server = TestingServer { port, secure_port, builder, installation, process: Mutex::new(None), directory };
        let data = server.data_directory();
        fs::create_dir_all(&data).map_err(TestingError::io(format!("cannot make {}", data.display())))?;
        let secure_port = server.secure_port.as_ref().map(ReservedPort::number);
        let text = server.builder.configuration(&data, server.port(), secure_port);
        fs::write(server.configuration_file(), text).map_err(TestingError::io("cannot write the configuration"))?;
        if let Some(jaas) = server.builder.jaas() {
            fs::write(server.jaas_file(), jaas).map_err(TestingError::io("cannot write the JAAS file"))?;
        }
        Ok(server)
    }

    /// The connect string for clients: `127.0.0.1:port`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.address().to_string()
    }

    /// The port for clients. It stays the same, and reserved, for the life of this value.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The connect string for clients that speak TLS, `127.0.0.1:port`; `None` unless the server has such a port.
    #[must_use]
    pub fn secure_connect_string(&self) -> Option<String> {
        self.secure_port.as_ref().map(|port| port.address().to_string())
    }

    /// Ends the server with SIGTERM, or SIGKILL if that is not enough; its data stays. If it does not run, does nothing.
    ///
    /// # Errors
    /// If the process cannot be ended.
    pub fn stop(&self) -> Result<(), TestingError> {
        self.end(|process| process.terminate(STOP_TIMEOUT))
    }

    /// Ends the server with SIGKILL, paused or not; its data stays. If it does not run, does nothing.
    ///
    /// # Errors
    /// If the process cannot be killed.
    pub fn kill(&self) -> Result<(), TestingError> {
        self.end(ServerProcess::kill)
    }

    /// Stops the server if it runs, starts it on the same port and data, and waits until it serves.
    ///
    /// # Errors
    /// If the process cannot be ended, or as [`TestingServerBuilder::start`].
    pub fn restart(&self) -> Result<(), TestingError> {
        self.launch()?;
        self.wait_until_serving(START_TIMEOUT)
    }

    /// Stops the server if it runs, and starts it on the same port and data, without waiting for it to serve.
    ///
    /// # Errors
    /// If the process cannot be ended, or not be started.
    pub fn launch(&self) -> Result<(), TestingError> {
        self.stop()?;
        let jaas = self.builder.jaas().map(|_| self.jaas_file());
        let command = self.builder.command(&self.installation, &self.configuration_file(), jaas.as_deref());
        let process = ServerProcess::spawn(&command, self.directory.path(), &self.log_file())
            .map_err(TestingError::io("cannot start the server"))?;
        *self.process.lock() = Some(process);
        Ok(())
    }

    /// Waits until the server serves clients.
    ///
    /// # Errors
    /// If the server ends or does not serve in time, with the end of its log.
    pub fn wait_until_serving(&self, timeout: Duration) -> Result<(), TestingError> {
        let deadline = Instant::now() + timeout;
        let (mut interval, longest) = SRVR_INTERVALS;
        loop {
            let answer = four_letter_word::ask(self.address(), SRVR, SRVR_TIMEOUT);
            // The secure port, if there is one, opens after the other.
            let is_open = || self.secure_port.as_ref().is_none_or(|port| TcpStream::connect(port.address()).is_ok());
            if answer.as_ref().is_ok_and(|answer| four_letter_word::is_serving(answer)) && is_open() {
                return Ok(());
            }
            if !self.is_running() {
                return Err(self.start_failed("the process ended"));
            }
            if Instant::now() >= deadline {
                return Err(self.start_failed(&format!("it did not serve in time, the last answer was {answer:?}")));
            }
            thread::sleep(interval);
            interval = (interval * 3 / 2).min(longest);
        }
    }

    /// Halts the process (SIGSTOP): its connections stay open, and nothing is answered, until [`resume`](Self::resume).
    ///
    /// # Errors
    /// If the server is not running.
    pub fn pause(&self) -> Result<(), TestingError> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets a paused process go on (SIGCONT). If it is not paused, does nothing.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn resume(&self) -> Result<(), TestingError> {
        self.signal(Signal::SIGCONT)
    }

    /// Whether there is a process, paused or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// The process id of the server's JVM, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let mut process = self.process.lock();
        process.as_mut().and_then(|process| matches!(process.is_running(), Ok(true)).then(|| process.pid()))
    }

    /// The server's log so far, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.log_file()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Asks the server one of its four letter words, for instance `mntr`, `cons` or `wchp`. All are allowed.
    ///
    /// # Errors
    /// If the server is not running or does not answer within 10 s.
    pub fn four_letter_word(&self, word: &str) -> io::Result<String> {
        four_letter_word::ask(self.address(), word, ANSWER_TIMEOUT)
    }

    /// A number out of the server's answer to `mntr`, for instance `zk_znode_count`.
    ///
    /// # Errors
    /// As [`four_letter_word`](Self::four_letter_word), and if there is no such number.
    pub fn metric(&self, name: &str) -> io::Result<u64> {
        four_letter_word::metric(&self.four_letter_word("mntr")?, name)
    }

    /// How many packets the server has received since it started, from all clients. Each question counts as one, this
    /// one included.
    ///
    /// # Errors
    /// As [`metric`](Self::metric).
    pub fn packets_received(&self) -> io::Result<u64> {
        self.metric("zk_packets_received")
    }

    /// How many watches the server keeps, for all clients.
    ///
    /// # Errors
    /// As [`metric`](Self::metric).
    pub fn watch_count(&self) -> io::Result<u64> {
        self.metric("zk_watch_count")
    }

    /// How many znodes there are, with the root and ZooKeeper's own.
    ///
    /// # Errors
    /// As [`metric`](Self::metric).
    pub fn znode_count(&self) -> io::Result<u64> {
        self.metric("zk_znode_count")
    }

    /// How many of the znodes are ephemeral.
    ///
    /// # Errors
    /// As [`metric`](Self::metric).
    pub fn ephemeral_count(&self) -> io::Result<u64> {
        self.metric("zk_ephemerals_count")
    }

    pub(super) fn data_directory(&self) -> PathBuf {
        self.builder.data_directory_in(self.directory.path())
    }

    pub(super) fn address(&self) -> SocketAddrV4 {
        self.port.address()
    }

    fn start_failed(&self, reason: &str) -> TestingError {
        let log = self.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains("Processing srvr command")).collect();
        let tail = lines.get(lines.len().saturating_sub(LOG_TAIL_LINES)..).unwrap_or_default();
        TestingError::StartFailed { reason: reason.into(), log_tail: tail.join("\n") }
    }

    fn end(&self, how: impl FnOnce(&mut ServerProcess) -> io::Result<()>) -> Result<(), TestingError> {
        let mut process = self.process.lock();
        if let Some(running) = process.as_mut() {
            how(running).map_err(TestingError::io("cannot end the server"))?;
        }
        *process = None;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<(), TestingError> {
        let mut process = self.process.lock();
        match process.as_mut().map(|process| process.signal(signal)) {
            Some(Ok(true)) => Ok(()),
            Some(Err(error)) => Err(TestingError::io("cannot signal the server")(error)),
            Some(Ok(false)) | None => Err(TestingError::NotRunning { port: self.port() }),
        }
    }

    fn configuration_file(&self) -> PathBuf {
        self.directory.path().join("zoo.cfg")
    }

    fn jaas_file(&self) -> PathBuf {
        self.directory.path().join("jaas.conf")
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }
}
