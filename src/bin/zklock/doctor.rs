//! `zklock doctor`: what is wrong with the set-up, and what to set.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use curator_locks::{
    Acl, ConnectString, CreateMode, CuratorFramework, ErrorCode, InterProcessMutex, RetryNTimes, perms,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    args::{Connection, Doctor},
    connection::Settings,
    failure::Result,
    hosts::{addresses, connect, four_letters},
    show, voice,
};

const PROBES: usize = 20;
/// Beyond that ages and schedules are misleading.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

/// In front of what was found.
const INDENT: usize = 20;

/// How a check went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    Mind,
    Wrong,
}

struct Report {
    is_wrong: bool,
    /// What was found so far, if it is wanted as one document.
    document: Option<Vec<Value>>,
}

impl Report {
    fn say(&mut self, verdict: Verdict, what: &str, found: &str) {
        let mark = match verdict {
            Verdict::Fine => show::paint(show::GREEN, "ok   "),
            Verdict::Mind => show::paint(show::YELLOW, "mind "),
            Verdict::Wrong => show::paint(show::RED, "WRONG"),
        };
        self.is_wrong |= verdict == Verdict::Wrong;
        let found = voice::in_flags(found);
        if let Some(document) = &mut self.document {
            let verdict = match verdict {
                Verdict::Fine => "ok",
                Verdict::Mind => "mind",
                Verdict::Wrong => "wrong",
            };
            document.push(json!({ "verdict": verdict, "check": what, "found": found }));
            return;
        }
        // Where it is no terminal, a program reads lines: one for each check.
        let width = show::columns().map_or(usize::MAX, |columns| columns.saturating_sub(INDENT));
        let found = show::wrapped(&found, width).join(&format!("\n{:INDENT$}", ""));
        // If nobody reads it, the status still tells.
        let _ = show::print(&format!("{mark}  {what:<12} {found}\n"));
    }

    /// The exit status. 0: nothing is wrong; 1: something is.
    fn finish(self) -> Result<u8> {
        if let Some(document) = self.document {
            show::print(&show::json(&Value::Array(document)))?;
        }
        Ok(u8::from(self.is_wrong))
    }
}

/// Less than a millisecond is not nothing.
fn brief(time: Duration) -> String {
    if time < Duration::from_millis(1) { "<1ms".to_owned() } else { show::brief(time) }
}

pub(crate) fn doctor(connection: &Connection, args: &Doctor) -> Result<u8> {
    let settings = Settings::of(connection)?;
    let mut report = Report { is_wrong: false, document: args.json.then(Vec::new) };
    let servers: ConnectString = settings.connect.parse()?;
    check_duplicates(&mut report, servers.hosts());
    check_encryption(&mut report, &settings);
    let mut ticks = None;
    for (host, port) in servers.hosts() {
        ticks = ticks.max(check_server(&mut report, &settings, host, *port));
    }
    let client = settings.client(RetryNTimes::new(2, Duration::from_millis(200)), None);
    let client = match client.and_then(|client| settings.await_connection(&client).map(|_| client)) {
        Ok(client) => client,
        Err(failure) => {
            report.say(Verdict::Wrong, "connection", &failure.text);
            return report.finish();
        }
    };
    report.say(Verdict::Fine, "connection", &format!("session {:#x}", client.session_id()));
    check_timeout(&mut report, &settings, &client, ticks);
    check_latency(&mut report, &client);
    check_dialect(&mut report, &client);
    check_making(&mut report, &client, &args.path);
    client.close();
    report.finish()
}

/// Says which entries of the connect string lead to one and the same address.
fn check_duplicates(report: &mut Report, servers: &[(String, u16)]) {
    let mut known: BTreeMap<SocketAddr, String> = BTreeMap::new();
    for (host, port) in servers {
        let name = format!("{host}:{port}");
        // Why a name has no address is said where the server is asked.
        let addresses: BTreeSet<SocketAddr> = addresses(host, *port).unwrap_or_default().into_iter().collect();
        let double = addresses.iter().find_map(|address| Some((address, known.get(address)?)));
        if let Some((address, other)) = double {
            let both = if *other == name {
                format!("{name} stands twice")
            } else {
                format!("{other} and {name} are both {address}")
            };
            let found =
                format!("{both} in --connect: one server for two, with twice the clients; is another one missing?");
            report.say(Verdict::Mind, "duplicate", &found);
        }
        for address in addresses {
            known.entry(address).or_insert_with(|| name.clone());
        }
    }
}

/// Credentials need encryption.
fn check_encryption(report: &mut Report, settings: &Settings) {
    let (verdict, found) = match settings.exposed() {
        Some(why) => (
            Verdict::Mind,
            format!("not encrypted: {why}; use the servers' port for TLS (secureClientPort), and --tls-ca"),
        ),
        None if !settings.is_encrypted() => (Verdict::Fine, "none, and no credentials".to_owned()),
        None if settings.has_certificate() => (Verdict::Fine, "TLS, with a certificate for the client".to_owned()),
        None => (Verdict::Fine, "TLS".to_owned()),
    };
    report.say(verdict, "encryption", &found);
}

/// Asks one server for its version and mode. Returns its tick, if it tells.
fn check_server(report: &mut Report, settings: &Settings, host: &str, port: u16) -> Option<Duration> {
    let name = format!("{host}:{port}");
    let begun = Instant::now();
    let stream = match connect(host, port) {
        Ok(stream) => stream,
        Err(why) => {
            report.say(Verdict::Wrong, "server", &format!("{name}: {why}"));
            return None;
        }
    };
    let took = brief(begun.elapsed());
    drop(stream);
    if settings.is_encrypted() {
        report.say(Verdict::Fine, "server", &format!("{name}: connects, {took}"));
        return None;
    }
    match four_letters(host, port, "srvr") {
        Some(answer) if answer.contains("Mode: ") => {
            let line =
                |key: &str| answer.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("?").trim().to_owned();
            let version = line("Zookeeper version:");
            let version = version.split(['-', ',']).next().unwrap_or_default().to_owned();
            let found = format!("{name}: ZooKeeper {version}, {}, {took}", line("Mode:"));
            let is_old = version.starts_with("3.4.") || version.starts_with("3.3.");
            report.say(if is_old { Verdict::Wrong } else { Verdict::Fine }, "server", &found);
        }
        Some(answer) if answer.contains("not currently serving") => {
            report.say(Verdict::Wrong, "server", &format!("{name}: does not serve: no quorum"));
        }
        _ => {
            report.say(Verdict::Mind, "server", &format!("{name}: connects, but does not answer `srvr`"));
        }
    }
    let conf = four_letters(host, port, "conf")?;
    let millis = conf.lines().find_map(|line| line.strip_prefix("tickTime=")?.trim().parse().ok());
    millis.map(Duration::from_millis)
}

/// Says what kind of servers these are, and what that means for locks.
fn check_dialect(report: &mut Report, client: &CuratorFramework) {
    // They have told in front of what they have answered so far.
    match client.dialect() {
        Some(dialect) if !dialect.resumes_sessions() => {
            let found = format!(
                "{dialect}: each lost connection costs the session and its locks. Holders of this crate are told; those of Curator \
                 and kazoo go on beside the next holder"
            );
            report.say(Verdict::Mind, "dialect", &found);
        }
        Some(dialect) if !dialect.has_containers() => {
            report.say(Verdict::Fine, "dialect", &format!("{dialect}: directories of locks stay"));
        }
        Some(dialect) => report.say(Verdict::Fine, "dialect", &dialect.to_string()),
        None => report.say(Verdict::Mind, "dialect", "the servers have not told what they are"),
    }
}

fn check_timeout(report: &mut Report, settings: &Settings, client: &CuratorFramework, tick: Option<Duration>) {
    let (wanted, given) = (settings.session_timeout, client.session_timeout());
    if wanted == given {
        report.say(Verdict::Fine, "timeout", &format!("session timeout {given:?}"));
    } else {
        let found = format!(
            "asked for a session timeout of {wanted:?}, got {given:?}: see minSessionTimeout and maxSessionTimeout of the servers"
        );
        report.say(Verdict::Mind, "timeout", &found);
    }
    match tick {
        None => {
            let why = match settings.is_encrypted() {
                true => "it is not told over TLS",
                false => "4lw.commands.whitelist lacks conf",
            };
            let found = format!(
                "the servers' tickTime is not known ({why}): the session timeout of {given:?} has to be two ticks or more"
            );
            report.say(Verdict::Mind, "tick", &found);
        }
        Some(tick) if given < tick * 2 => report.say(
            Verdict::Wrong,
            "tick",
            &format!(
                "tickTime is {tick:?}, more than half of the session timeout: set --session-timeout to {:?} or more",
                tick * 2
            ),
        ),
        Some(tick) => report.say(Verdict::Fine, "tick", &format!("tickTime {tick:?}")),
    }
}

fn check_latency(report: &mut Report, client: &CuratorFramework) {
    let mut took: Vec<Duration> = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let begun = Instant::now();
        if let Err(error) = client.sync().for_path("/") {
            report.say(Verdict::Wrong, "latency", &error.to_string());
            return;
        }
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    let (middle, worst) = (took.get(PROBES / 2).copied().unwrap_or_default(), took.last().copied().unwrap_or_default());
    let limit = client.session_timeout() * 3 / 10;
    let found = format!("sync takes {middle:.1?}, at worst {worst:.1?}");
    if worst >= limit {
        let found =
            format!("{found}: above 0.3 of the session timeout no lock stays certain; set a longer --session-timeout");
        report.say(Verdict::Wrong, "latency", &found);
    } else {
        report.say(Verdict::Fine, "latency", &found);
    }
}

/// Makes a lock and releases it, and looks at the clock of the server.
fn check_making(report: &mut Report, client: &CuratorFramework, path: &str) {
    let held = InterProcessMutex::new(client, path).and_then(|mutex| {
        let is_new = client.check_exists().for_path(path)?.is_none();
        let begun = Instant::now();
        let now = Timestamp::now();
        mutex.acquire()?;
        let node = mutex.lock_path().unwrap_or_default();
        let made = client.check_exists().for_path(&node)?.map(|stat| stat.ctime);
        let took = begun.elapsed();
        let acl = client.get_acl().for_path(&node)?;
        mutex.release()?;
        Ok((is_new, now, made, took, acl))
    });
    let (is_new, now, made, took, acl) = match held {
        Ok(held) => held,
        Err(error) => {
            report.say(Verdict::Wrong, "lock", &error.to_string());
            if error.code() == Some(ErrorCode::NoAuth) {
                report.say(Verdict::Mind, "lock", "say --auth, or --path with a directory that this client may use");
            }
            return;
        }
    };
    report.say(Verdict::Fine, "lock", &format!("acquired and released at {path}, in {}", brief(took)));
    let may_delete = |entry: &Acl| entry.perms & perms::DELETE != 0 && entry.scheme == "world";
    if acl.iter().any(may_delete) {
        report.say(Verdict::Mind, "permissions", "anybody may take locks away: set --auth and --creator-acl");
    } else {
        let whose: Vec<&str> = acl.iter().map(|entry| entry.scheme.as_str()).collect();
        report.say(Verdict::Fine, "permissions", &format!("locks are made for: {}", whose.join(", ")));
    }
    if let Some(made) = made {
        let apart = Duration::from_millis(made.abs_diff(now.as_millisecond()));
        let (verdict, found) = match apart.saturating_sub(took) > CLOCK_TOLERANCE {
            true => (Verdict::Mind, format!("{} off this machine's", show::brief(apart))),
            false => (Verdict::Fine, format!("within {} of this machine's", brief(apart + took))),
        };
        report.say(verdict, "clock", &format!("{found}; only ages depend on it"));
    }
    check_containers(report, client, path);
    if is_new {
        // If somebody else uses it by now, it stays.
        let _ = client.delete().for_path(path);
    }
}

/// Directories of locks go by themselves only where servers know containers.
fn check_containers(report: &mut Report, client: &CuratorFramework, path: &str) {
    let probe = format!("{path}-container");
    match client.create().with_mode(CreateMode::Container).for_path_and_data(&probe, []) {
        Ok(_) => {
            report.say(Verdict::Fine, "containers", "known; removed when empty, by default each 60 s");
            let _ = client.delete().for_path(&probe);
        }
        Err(error) if error.code() == Some(ErrorCode::Unimplemented) => {
            report.say(Verdict::Mind, "containers", "not used at this server: directories of locks stay for ever");
        }
        Err(error) => report.say(Verdict::Mind, "containers", &error.to_string()),
    }
}
