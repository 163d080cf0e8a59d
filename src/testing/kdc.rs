//! A Kerberos realm for tests: MIT's key distribution centre as a child process.

use std::{
    env,
    ffi::OsString,
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::{error::TestingError, port::ReservedPort, process::ServerProcess};

const REALM: &str = "TESTS.EXAMPLE";

/// How long the centre may take until it answers. It takes some milliseconds; this is for machines under load.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long it may take to end when asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(5);

/// Where Debian puts its programs, which is in the path of root alone.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// A Kerberos realm of its own: MIT's key distribution centre as a child process, on a free port of 127.0.0.1, with its own
/// `krb5.conf`.
///
/// It ends as a [`TestingServer`](super::TestingServer) does. A process belongs to the realm if its environment says so
/// ([`environment`](TestingKdc::environment)): MIT's library reads it once, so give it to child processes, or to all of a program of
/// tests. It needs Debian's packages `krb5-kdc`, `krb5-admin-server` and `krb5-user`, or the same programs from elsewhere in
/// `PATH`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::testing::{TestingKdc, TestingServer};
///
/// let kdc = TestingKdc::start(Duration::from_secs(600))?; // how long its tickets are good for
/// let server = TestingServer::builder().kerberos(&kdc)?.start()?;
/// println!("a client with {:?} logs in with {:?}", kdc.environment(), kdc.keytab("shop")?);
/// assert!(kdc.configuration().exists() && kdc.kadmin("listprincs")?.contains(&format!("shop@{}", kdc.realm())));
/// kdc.stop()?; // as if it were away
/// kdc.launch()?; // on the same port
/// println!("tickets so far: {}", kdc.log().matches("ISSUE").count());
/// # drop(server);
/// # Ok::<(), curator_locks::testing::TestingError>(())
/// ```
#[derive(Debug)]
pub struct TestingKdc {
    port: ReservedPort,
    // Above the directory, so that the centre is gone before its files are.
    process: Mutex<Option<ServerProcess>>,
    directory: TempDir,
    /// Held while a principal is made: it can be made once.
    principals: Mutex<()>,
}

impl TestingKdc {
    /// Makes a realm whose tickets are good for this long, and can be renewed for a day; waits until it answers.
    ///
    /// # Errors
    /// If MIT's programs are not installed, or one of them fails.
    pub fn start(ticket_lifetime: Duration) -> Result<TestingKdc, TestingError> {
        let port = ReservedPort::new().map_err(TestingError::io("no free port"))?;
        let directory = tempfile::Builder::new()
            .prefix("kerberos-")
            .tempdir()
            .map_err(TestingError::io("no temporary directory for the Kerberos realm"))?;
        let kdc = TestingKdc { port, process: Mutex::new(None), directory, principals: Mutex::new(()) };
        let seconds = ticket_lifetime.as_secs().max(1);
        kdc.write("krb5.conf", &kdc.client_configuration(seconds))?;
        kdc.write("kdc.conf", &kdc.centre_configuration(seconds))?;
        kdc.run("kdb5_util", &["create", "-s", "-r", REALM, "-P", "master"])?;
        kdc.launch()?;
        Ok(kdc)
    }

    /// The realm's name.
    #[must_use]
    pub fn realm(&self) -> &str {
        REALM
    }

    /// The realm's `krb5.conf`.
    #[must_use]
    pub fn configuration(&self) -> PathBuf {
        self.file("krb5.conf")
    }

    /// The variables of a process that belongs to the realm, and has a credential cache of its own in this directory:
    /// `KRB5_CONFIG`, `KRB5CCNAME`.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let cache = self.file(&format!("cache-{}", uuid::Uuid::new_v4().simple()));
        [
            ("KRB5_CONFIG", self.configuration().display().to_string()),
            ("KRB5CCNAME", format!("FILE:{}", cache.display())),
        ]
    }

    /// A file with the keys of a principal, `shop` or `zookeeper/host`. The first time, the principal is made, with a random key.
    ///
    /// # Errors
    /// If `kadmin.local` refuses.
    pub fn keytab(&self, principal: &str) -> Result<PathBuf, TestingError> {
        let keytab = self.file(&format!("{}.keytab", principal.replace('/', "_")));
        let _one_at_a_time = self.principals.lock();
        if !keytab.exists() {
            self.kadmin(&format!("addprinc -randkey +requires_preauth {principal}"))?;
            self.kadmin(&format!("ktadd -norandkey -k {} {principal}", keytab.display()))?;
        }
        Ok(keytab)
    }

    /// Runs a command of `kadmin.local`, for instance `cpw -randkey shop`, and gives what it says.
    ///
    /// # Errors
    /// If it fails.
    pub fn kadmin(&self, command: &str) -> Result<String, TestingError> {
        self.run("kadmin.local", &["-r", REALM, "-q", command])
    }

    /// Starts the centre if it does not run, and waits until it answers.
    ///
    /// # Errors
    /// If it cannot be started, or does not answer in time.
    pub fn launch(&self) -> Result<(), TestingError> {
        let mut process = self.process.lock();
        if process.is_none() {
            let mut command: Vec<OsString> = vec!["env".into()];
            command.extend(self.variables().map(|(name, value)| format!("{name}={}", value.display()).into()));
            command.extend([program("krb5kdc")?.into(), "-n".into(), "-r".into(), REALM.into()]);
            let spawned = ServerProcess::spawn(&command, self.directory.path(), &self.file("output.log"));
            *process = Some(spawned.map_err(TestingError::io("cannot start krb5kdc"))?);
        }
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(self.port.address()).is_err() {
            if Instant::now() >= deadline {
                return Err(TestingError::Refused(format!("krb5kdc does not answer; its log: {}", self.log())));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends the centre; the realm stays, for the next [`launch`](TestingKdc::launch).
    ///
    /// # Errors
    /// If the process cannot be ended.
    pub fn stop(&self) -> Result<(), TestingError> {
        let Some(mut process) = self.process.lock().take() else { return Ok(()) };
        process.terminate(STOP_TIMEOUT).map_err(TestingError::io("cannot end krb5kdc"))
    }

    /// The centre's log so far: a line with `ISSUE` for each ticket.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.file("kdc.log")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), TestingError> {
        fs::write(self.file(name), text).map_err(TestingError::io(format!("cannot write {name}")))
    }

    fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [("KRB5_CONFIG", self.file("krb5.conf")), ("KRB5_KDC_PROFILE", self.file("kdc.conf"))]
    }

    /// The clients' side. Names are what they are, and a centre that is away is noticed within moments.
    fn client_configuration(&self, seconds: u64) -> String {
        format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
             dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n ticket_lifetime = {seconds}s\n \
             renew_lifetime = 1d\n[realms]\n {REALM} = {{\n  kdc = {}\n }}\n",
            self.port.address()
        )
    }

    fn centre_configuration(&self, seconds: u64) -> String {
        let directory = self.directory.path().display();
        format!(
            "[kdcdefaults]\n kdc_listen = \"\"\n[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n  \
             key_stash_file = {directory}/stash\n  acl_file = {directory}/acl\n  kdc_listen = \"\"\n  kdc_tcp_listen = {}\n  \
             max_life = {seconds}s\n  max_renewable_life = 1d\n  supported_enctypes = aes256-cts:normal aes128-cts:normal\n \
             }}\n[logging]\n kdc = FILE:{directory}/kdc.log\n",
            self.port.address()
        )
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Result<String, TestingError> {
        let mut command = Command::new(program(name)?);
        command.args(arguments).envs(self.variables()).env("LC_ALL", "C").stdin(Stdio::null());
        let output = command.output().map_err(TestingError::io(format!("cannot run {name}")))?;
        let [said, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        // `kadmin.local` succeeds whatever its command comes to.
        let is_refused = errors.lines().any(|line| !line.starts_with("No policy") && line.contains(" while "));
        if output.status.success() && !is_refused {
            return Ok(said);
        }
        Err(TestingError::Refused(format!("{name} {}: {said}{errors}", arguments.join(" "))))
    }
}

fn program(name: &str) -> Result<PathBuf, TestingError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = SYSTEM_DIRECTORIES.map(|directory| Path::new(directory).to_owned());
    let mut candidates = env::split_paths(&path).chain(system).map(|directory| directory.join(name));
    candidates.find(|file| file.is_file()).ok_or_else(|| TestingError::NotInstalled {
        what: "MIT's Kerberos",
        searched: format!("PATH, /usr/sbin and /usr/local/sbin ({name})"),
        remedy: "apt-get install krb5-kdc krb5-admin-server krb5-user".to_owned(),
    })
}
