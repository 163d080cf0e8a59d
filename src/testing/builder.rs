//! How a server is configured, and the files and the command that follow from it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{error::TestingError, install::Installation, kdc::TestingKdc, tls::TlsServerConfig};

/// Configures a [`TestingServer`](super::TestingServer). What is set twice takes the later value.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::testing::TestingServer;
///
/// # let directory = tempfile::tempdir()?;
/// # let kept = directory.path().join("data");
/// let server = TestingServer::builder()
///     .tick_time(Duration::from_millis(100))
///     .min_session_timeout(Duration::from_millis(500))
///     .max_session_timeout(Duration::from_secs(60))
///     .container_check_interval(Duration::from_millis(100))
///     .max_client_connections(100)
///     .force_sync(false)
///     .data_directory(kept) // stays; by default it goes with the server
///     .port(0) // a free one
///     .property("autopurge.purgeInterval", "0")
///     .system_property("zookeeper.extendedTypesEnabled", "true")
///     .jvm_option("-Xmx128m")
///     .sasl_user("shop", "secret")
///     .start()?;
/// assert!(server.is_running());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct TestingServerBuilder {
    tick_time: Option<Duration>,
    data_directory: Option<PathBuf>,
    pub(super) port: u16,
    pub(super) tls: Option<TlsServerConfig>,
    properties: Vec<(String, String)>,
    system_properties: Vec<(String, String)>,
    jvm_options: Vec<String>,
    /// The lines of the login module in the JAAS section `Server`.
    login_module: Vec<String>,
}

impl TestingServerBuilder {
    /// The server's tick. Sessions expire at multiples of it, so a shorter tick makes expiries more exact. Defaults to
    /// 500 ms.
    pub fn tick_time(mut self, tick: Duration) -> Self {
        self.tick_time = Some(tick);
        self
    }

    /// The shortest session timeout the server grants. Defaults to one tick.
    pub fn min_session_timeout(self, timeout: Duration) -> Self {
        self.property("minSessionTimeout", timeout.as_millis().to_string())
    }

    /// The longest session timeout the server grants. Defaults to 60 s, or 20 ticks if that is more.
    pub fn max_session_timeout(self, timeout: Duration) -> Self {
        self.property("maxSessionTimeout", timeout.as_millis().to_string())
    }

    /// How often the server looks for empty container znodes to delete. Defaults to ZooKeeper's 60 s.
    pub fn container_check_interval(self, interval: Duration) -> Self {
        self.system_property("znode.container.checkIntervalMs", interval.as_millis().to_string())
    }

    /// How many connections one address may have at a time. Defaults to 0: as many as it likes.
    pub fn max_client_connections(self, connections: u32) -> Self {
        self.property("maxClientCnxns", connections.to_string())
    }

    /// Whether the server waits for the disk (fsync) before it answers a write. Defaults to no, which is faster: an
    /// answered write still survives the death of the process, though not of the machine.
    pub fn force_sync(self, on: bool) -> Self {
        self.property("forceSync", if on { "yes" } else { "no" })
    }

    /// Where the server keeps its data. It makes a missing directory, and nobody removes it. Defaults to a temporary
    /// directory that goes with the server.
    pub fn data_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_directory = Some(path.into());
        self
    }

    /// The port of 127.0.0.1 to listen on, which nobody else may have. Defaults to 0: any free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Opens a second port, for clients that speak TLS: see
    /// [`secure_connect_string`](super::TestingServer::secure_connect_string). Defaults to none.
    pub fn secure_client_port(mut self, tls: TlsServerConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Lets clients authenticate themselves with SASL, DIGEST-MD5, as this user, besides others that were given before. Defaults to
    /// nobody.
    pub fn sasl_user(self, user: &str, password: &str) -> Self {
        let line = format!("user_{user}=\"{password}\"");
        self.login(&["org.apache.zookeeper.server.auth.DigestLoginModule required"], line)
    }

    /// Lets clients authenticate themselves with SASL as principals of this Kerberos realm. The server is
    /// `zookeeper/127.0.0.1` there.
    ///
    /// # Errors
    /// If the realm's tools refuse to make its keytab.
    pub fn kerberos(self, kdc: &TestingKdc) -> Result<Self, TestingError> {
        let principal = "zookeeper/127.0.0.1";
        let keytab = kdc.keytab(principal)?;
        let line = format!("keyTab=\"{}\" principal=\"{principal}@{}\"", keytab.display(), kdc.realm());
        let module =
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false";
        let configuration = kdc.configuration().display().to_string();
        Ok(self.login(&[module], line).system_property("java.security.krb5.conf", configuration))
    }

    fn login(mut self, module: &[&str], line: String) -> Self {
        if self.login_module.is_empty() {
            self.login_module.extend(module.iter().map(|line| (*line).to_owned()));
            self = self.property("authProvider.1", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider");
        }
        self.login_module.push(line);
        self
    }

    /// The text of the JAAS file, if there is to be one.
    pub(super) fn jaas(&self) -> Option<String> {
        (!self.login_module.is_empty()).then(|| format!("Server {{\n  {};\n}};\n", self.login_module.join("\n  ")))
    }

    /// A line `key=value` in the server's configuration file; overrides what stands there by default, or was set before.
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((key.into(), value.into()));
        self
    }

    /// A Java system property: `-Dkey=value`.
    pub fn system_property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.system_properties.push((key.into(), value.into()));
        self
    }

    /// An option for the JVM, for instance `-Xmx1g`. Defaults are chosen for a quick start and little memory.
    pub fn jvm_option(mut self, option: impl Into<String>) -> Self {
        self.jvm_options.push(option.into());
        self
    }

    /// Where the data goes, given the server's own directory.
    pub(super) fn data_directory_in(&self, directory: &Path) -> PathBuf {
        self.data_directory.clone().unwrap_or_else(|| directory.join("data"))
    }

    /// The configuration file's text. The server keeps the last value of a key.
    pub(super) fn configuration(&self, data_directory: &Path, port: u16, secure_port: Option<u16>) -> String {
        let tick = self.tick_time.unwrap_or(Duration::from_millis(500));
        let longest = Duration::from_secs(60).max(tick * 20);
        let defaults = [
            ("dataDir", data_directory.display().to_string()),
            ("clientPort", port.to_string()),
            ("clientPortAddress", "127.0.0.1".into()),
            ("tickTime", tick.as_millis().to_string()),
            ("minSessionTimeout", tick.as_millis().to_string()),
            ("maxSessionTimeout", longest.as_millis().to_string()),
            ("maxClientCnxns", "0".into()),
            ("initLimit", "10".into()),
            ("syncLimit", "5".into()),
            ("4lw.commands.whitelist", "*".into()),
            ("admin.enableServer", "false".into()),
            ("forceSync", "no".into()),
            // In KiB. The default of 64 MiB makes every new log a large file.
            ("preAllocSize", "4096".into()),
        ];
        let secure = self.tls.iter().flat_map(|tls| tls.properties(secure_port.unwrap_or_default()));
        let written = defaults.into_iter().chain(secure).map(|(key, value)| (key.to_owned(), value));
        let lines = written.chain(self.properties.iter().cloned());
        // A backslash would begin an escape.
        lines.map(|(key, value)| format!("{key}={}\n", value.replace('\\', "\\\\"))).collect()
    }

    /// The command that runs the server. Of an option given twice, the JVM takes the later.
    pub(super) fn command(
        &self,
        installation: &Installation,
        configuration: &Path,
        jaas: Option<&Path>,
    ) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![installation.java.clone().into()];
        command.extend(JVM_OPTIONS.map(OsString::from));
        command.extend(jaas.map(|file| format!("-Djava.security.auth.login.config={}", file.display()).into()));
        command.extend(self.system_properties.iter().map(|(key, value)| format!("-D{key}={value}").into()));
        command.extend(self.jvm_options.iter().map(OsString::from));
        command.extend(["-cp".into(), installation.class_path.clone()]);
        command.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".into());
        command.push(configuration.into());
        command
    }
}

const JVM_OPTIONS: [&str; 9] = [
    // Small and quick to start; a test server does not live long enough for the second compiler.
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    // Its file of counters would stay behind after kill -9.
    "-XX:-UsePerfData",
    // The port is reserved by an IPv4 socket.
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    // Empty containers go all at one check, not spread over a minute.
    "-Dznode.container.maxPerMinute=1000000",
    "-Dzookeeper.jmx.log4j.disable=true",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server::TestingServer;

    fn value_of<'a>(configuration: &'a str, key: &str) -> Option<&'a str> {
        configuration
            .lines()
            .filter_map(|line| line.split_once('='))
            .filter(|(k, _)| *k == key)
            .map(|(_, v)| v)
            .next_back()
    }

    #[test]
    fn session_timeouts_follow_the_tick_unless_set() {
        let builder = TestingServer::builder().tick_time(Duration::from_secs(4));
        let text = builder.configuration(Path::new("/data"), 1, None);
        assert_eq!(value_of(&text, "minSessionTimeout"), Some("4000"));
        assert_eq!(value_of(&text, "maxSessionTimeout"), Some("80000"));
        let text = builder.max_session_timeout(Duration::from_secs(5)).configuration(Path::new("/data"), 1, None);
        assert_eq!(value_of(&text, "maxSessionTimeout"), Some("5000"));
    }

    #[test]
    fn a_property_overrides_the_default_line() {
        let text = TestingServer::builder().property("syncLimit", "10").configuration(Path::new("/data"), 1, None);
        assert_eq!(value_of(&text, "syncLimit"), Some("10"));
    }
}
