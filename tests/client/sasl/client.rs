//! A client in a process of its own, and how a test drives it.

use std::{
    fmt::Display,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    CreatorAllAclProvider, CuratorFramework, InterProcessMutex, Kerberos, LockGuard, RetryNTimes, Sasl,
    testing::TestingKdc,
};

use crate::support::{
    PATIENCE,
    child::{ChildProcess, listen, say},
};

/// How a client is set up: its servers, and `key=value` for each setting.
pub(crate) struct Client {
    process: ChildProcess,
}

impl Client {
    /// In the environment of a realm, with an empty credential cache of its own unless it is given one.
    pub(crate) fn start(environment: &[(&'static str, String)], servers: &str, settings: &[&str]) -> Client {
        let arguments: Vec<&str> = [servers].into_iter().chain(settings.iter().copied()).collect();
        Client { process: ChildProcess::start_in(environment, "client", &arguments) }
    }

    /// The client's answer to this line.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.process.tell(line);
        self.process.hear_within(2 * PATIENCE)
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, line: &str, answer: &str) {
        assert_eq!(self.ask(line), answer, "{line}");
    }

    pub(crate) fn tell(&mut self, line: &str) {
        self.process.tell(line);
    }

    #[track_caller]
    pub(crate) fn hear(&mut self) -> String {
        self.process.hear()
    }
}

/// Fills the credential cache of this environment.
#[track_caller]
pub(crate) fn kinit(environment: &[(&'static str, String)], arguments: &[&str]) {
    let mut command = Command::new("kinit");
    let output = command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value))).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Fills it with a ticket of this principal.
#[track_caller]
pub(crate) fn log_in(kdc: &TestingKdc, environment: &[(&'static str, String)], principal: &str) {
    let keytab = kdc.keytab(principal).unwrap().display().to_string();
    kinit(environment, &["-k", "-t", &keytab, principal]);
}

/// The child's side.
pub(crate) fn run(arguments: &[String]) {
    let (servers, settings) = arguments.split_first().unwrap();
    let client = match build(servers, settings) {
        Ok(client) => client,
        Err(error) => {
            listen();
            return say(&format!("error {error}"));
        }
    };
    let mut held: Option<LockGuard> = None;
    let begun = Instant::now();
    loop {
        let line = listen();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "connect" => say(&connect(&client)),
            "lock" => {
                let locked = InterProcessMutex::new(&client, rest).and_then(|mutex| mutex.lock());
                say(&answered(locked.map(|guard| {
                    held = Some(guard);
                    "locked"
                })));
            }
            "release" => say(&answered(held.take().unwrap().release().map(|()| "released"))),
            "valid" => {
                let guard = held.as_ref().unwrap();
                while !guard.is_valid() && !guard.is_lost() && begun.elapsed() < 10 * PATIENCE {
                    thread::sleep(Duration::from_millis(5));
                }
                say(if guard.is_valid() { "valid" } else { "lost" });
            }
            "why" => say(&why(&client)),
            "session" => say(&format!("{:#x}", client.session_id())),
            "connected" => say(&client.is_connected().to_string()),
            "end" => {
                drop(held.take());
                drop(client);
                return say(&ended());
            }
            "identity" => say(&answered(identity(&client))),
            "read" => say(&answered(client.get_children().for_path(rest).map(|names| names.len()))),
            other => panic!("{other}"),
        }
    }
}

fn connect(client: &CuratorFramework) -> String {
    let connected = client.block_until_connected(Some(PATIENCE));
    answered(connected.map(|is_connected| match is_connected {
        true => "connected".to_owned(),
        false => {
            format!("not connected: {}", client.connection_error().map_or_else(String::new, |why| why.to_string()))
        }
    }))
}

/// Whether no thread of the client is left.
fn ended() -> String {
    let is_left = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
        let names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
        names.into_iter().any(|name| name.starts_with("zk-") || name.starts_with("curator-"))
    };
    let begun = Instant::now();
    while is_left() && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    if is_left() { "threads are left" } else { "ended" }.to_owned()
}

/// Why there is no connection, while the client goes on trying.
fn why(client: &CuratorFramework) -> String {
    loop {
        if let Some(error) = client.connection_error() {
            return error.to_string();
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn answered<T: Display>(result: curator_locks::Result<T>) -> String {
    result.map_or_else(|error| format!("error {error}"), |value| value.to_string())
}

/// As whom the servers know it: the owner of what it creates.
fn identity(client: &CuratorFramework) -> curator_locks::Result<String> {
    let path = format!("/identity-{}", std::process::id());
    client.create().creating_parents_if_needed().for_path(&path)?;
    let acl = client.get_acl().for_path(&path)?;
    client.delete().for_path(&path)?;
    Ok(acl.iter().map(|entry| format!("{}:{}", entry.scheme, entry.id)).collect::<Vec<_>>().join(","))
}

fn build(servers: &str, settings: &[String]) -> curator_locks::Result<CuratorFramework> {
    let setting = |wanted: &str| {
        settings
            .iter()
            .filter_map(|line| line.split_once('='))
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    };
    let mut builder = CuratorFramework::builder()
        .connect_string(servers)
        .session_timeout(
            setting("session").map_or(Duration::from_secs(40), |ms| Duration::from_millis(ms.parse().unwrap())),
        )
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(5, Duration::from_millis(20)))
        .lock_recheck_interval(None)
        .namespace(setting("namespace").unwrap_or_default());
    if setting("creator").is_some() {
        builder = builder.acl_provider(CreatorAllAclProvider);
    }
    if let Some(ca) = setting("tls") {
        builder = builder.tls(curator_locks::TlsConfig::new().root_certificates_file(ca)?);
    }
    let client = match setting("digest").and_then(|user| user.split_once(':')) {
        Some((user, password)) => builder.sasl(Sasl::digest(user, password)).build()?,
        None if setting("plain").is_some() => builder.build()?,
        None => builder.sasl(kerberos(&setting)).build()?,
    };
    client.start()?;
    Ok(client)
}

fn kerberos<'a>(setting: &dyn Fn(&str) -> Option<&'a str>) -> Kerberos {
    let mut kerberos = Sasl::kerberos();
    if let Some(keytab) = setting("keytab") {
        kerberos = kerberos.keytab(keytab);
    }
    if let Some(principal) = setting("principal") {
        kerberos = kerberos.principal(principal);
    }
    if let Some(service) = setting("service") {
        kerberos = kerberos.service(service);
    }
    if let Some(principal) = setting("server") {
        kerberos = kerberos.server_principal(principal);
    }
    kerberos.canonicalize_hostname(setting("canonicalize") != Some("false"))
}
