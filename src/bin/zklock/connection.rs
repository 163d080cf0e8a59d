//! The client, by the command line, the environment and a file.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use curator_locks::{CreatorAllAclProvider, CuratorFramework, RetryPolicy};
use serde::Deserialize;

use crate::{
    args::{Connection, duration},
    failure::{Failure, Result, cannot},
    login::Login,
};

const SESSION_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);

/// The files that are looked for, below the user's own directory and below `/etc`.
const FILE: &str = "zklock.toml";

/// The configuration file; the command line and the environment come first.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    connect: Option<String>,
    session_timeout: Option<String>,
    connection_timeout: Option<String>,
    auth: Vec<String>,
    creator_acl: bool,
    create_chroot: bool,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    sasl_user: Option<String>,
    sasl_password: Option<String>,
    kerberos: bool,
    keytab: Option<PathBuf>,
    principal: Option<String>,
    server_principal: Option<String>,
}

/// The settings of the connection.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) connect: String,
    pub(crate) session_timeout: Duration,
    pub(crate) connection_timeout: Duration,
    auth: Vec<String>,
    creator_acl: bool,
    create_chroot: bool,
    tls: Option<Tls>,
    login: Login,
}

#[derive(Debug)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "a program without TLS says that it has none"))]
struct Tls {
    ca: PathBuf,
    identity: Option<(PathBuf, PathBuf)>,
}

impl Settings {
    pub(crate) fn of(args: &Connection) -> Result<Settings> {
        let file = read_file(args.config.as_deref())?;
        // A command under `zklock run` has ZK_CONNECT in its environment; a file that its own zklock is told to read says more.
        let (named, other) = if args.config.is_some() { (file.connect, None) } else { (None, file.connect) };
        let in_environment = || env::var("ZK_CONNECT").ok().filter(|servers| !servers.is_empty());
        let connect = args.connect.clone().or(named).or_else(in_environment).or(other).ok_or_else(|| {
            Failure::new("which servers? Say --connect HOST:PORT, or set ZK_CONNECT, or write connect = \"HOST:PORT\" into ~/.config/zklock.toml")
        })?;
        let time = |arg: Option<Duration>, text: Option<String>, default| match (arg, text) {
            (Some(time), _) => Ok(time),
            (None, Some(text)) => duration(&text).map_err(cannot(format!("read the duration {text:?} of the file"))),
            (None, None) => Ok(default),
        };
        #[cfg(feature = "tls")]
        let (ca, cert, key) = (args.tls_ca.clone(), args.tls_cert.clone(), args.tls_key.clone());
        #[cfg(not(feature = "tls"))]
        let (ca, cert, key) = (None, None, None);
        let identity = match (cert.or(file.tls_cert), key.or(file.tls_key)) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(Failure::new("a certificate and its key belong together: tls-cert and tls-key")),
        };
        let tls = match (ca.or(file.tls_ca), identity) {
            (Some(ca), identity) => Some(Tls { ca, identity }),
            (None, None) => None,
            // A certificate without tls-ca must not mean that nothing is encrypted.
            (None, Some(_)) => return Err(Failure::new("a certificate without tls-ca: whom to trust?")),
        };
        let login = Login {
            user: file.sasl_user,
            password: file.sasl_password,
            kerberos: file.kerberos,
            keytab: file.keytab,
            principal: file.principal,
            server_principal: file.server_principal,
        };
        let login = login.overridden_by(args).checked()?;
        Ok(Settings {
            connect,
            session_timeout: time(args.session_timeout, file.session_timeout, SESSION_TIMEOUT)?,
            connection_timeout: time(args.connection_timeout, file.connection_timeout, CONNECTION_TIMEOUT)?,
            auth: if args.auth.is_empty() { file.auth } else { args.auth.clone() },
            creator_acl: args.creator_acl || file.creator_acl,
            create_chroot: args.create_chroot || file.create_chroot,
            tls,
            login,
        })
    }

    /// Below a chroot that is not there every lock would look free.
    pub(crate) fn check_chroot(&self, client: &CuratorFramework) -> Result<()> {
        let chroot = self.connect.find('/').and_then(|at| self.connect.get(at..)).filter(|chroot| *chroot != "/");
        match chroot {
            Some(chroot) if !self.create_chroot && client.check_exists().for_path("/")?.is_none() => {
                Err(Failure::new(format!("the servers have no znode {chroot}, with which --connect ends")))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Credentials that somebody on the way can read or guess, or whose session somebody can take over, because nothing is
    /// encrypted.
    pub(crate) fn exposed(&self) -> Option<&'static str> {
        if self.is_encrypted() {
            return None;
        }
        let has_password = self.auth.iter().any(|auth| auth.starts_with("digest:"));
        let of_auth = has_password.then_some("the password of --auth goes to the servers as it is");
        of_auth.or_else(|| self.login.exposed())
    }

    /// Whether the client shows the servers a certificate of its own.
    pub(crate) fn has_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.identity.is_some())
    }

    /// A client that is started, and not connected yet.
    pub(crate) fn client(&self, policy: impl RetryPolicy, data: Option<&str>) -> Result<CuratorFramework> {
        let mut builder = CuratorFramework::builder()
            .connect_string(&self.connect)
            .session_timeout(self.session_timeout)
            .connection_timeout(self.connection_timeout)
            .create_chroot(self.create_chroot)
            .retry_policy(policy);
        for auth in &self.auth {
            let (scheme, credentials) = auth
                .split_once(':')
                .ok_or_else(|| Failure::new("--auth is SCHEME:CREDENTIALS, for instance digest:user:password"))?;
            builder = builder.authorization(scheme, credentials);
        }
        if self.creator_acl {
            builder = builder.acl_provider(CreatorAllAclProvider);
        }
        if let Some(data) = data {
            builder = builder.default_data(data);
        }
        if let Some(tls) = &self.tls {
            builder = encrypted(builder, tls)?;
        }
        builder = self.login.log_in(builder)?;
        let client = builder.build()?;
        client.start()?;
        Ok(client)
    }

    /// Waits for a connection, or says why there is none.
    pub(crate) fn await_connection(&self, client: &CuratorFramework) -> Result<()> {
        self.await_connection_for(self.connection_timeout, client, || false)
    }

    /// Waits for a connection for the connection timeout, or a shorter `time`, or until `is_over`.
    pub(crate) fn await_connection_for(
        &self,
        time: Duration,
        client: &CuratorFramework,
        is_over: impl Fn() -> bool,
    ) -> Result<()> {
        let time = time.min(self.connection_timeout);
        let begun = Instant::now();
        while !client.block_until_connected(Some(Duration::from_millis(50)))? {
            if is_over() || begun.elapsed() >= time {
                let why = client.connection_error().map_or_else(|| "no answer".to_owned(), |why| why.to_string());
                return Err(Failure::new(format!("no connection to {} within {time:?}: {why}", self.connect)));
            }
        }
        Ok(())
    }
}

/// A connected client, for a look.
pub(crate) fn connect(args: &Connection) -> Result<CuratorFramework> {
    let settings = Settings::of(args)?;
    let client = settings.client(curator_locks::RetryOneTime::new(Duration::from_millis(200)), None)?;
    settings.await_connection(&client)?;
    settings.check_chroot(&client)?;
    Ok(client)
}

#[cfg(feature = "tls")]
fn encrypted(builder: curator_locks::Builder, tls: &Tls) -> Result<curator_locks::Builder> {
    let mut config = curator_locks::TlsConfig::new().root_certificates_file(&tls.ca)?;
    if let Some((certificate, key)) = &tls.identity {
        config = config.client_certificate_files(certificate, key)?;
    }
    Ok(builder.tls(config))
}

#[cfg(not(feature = "tls"))]
fn encrypted(_: curator_locks::Builder, _: &Tls) -> Result<curator_locks::Builder> {
    Err(Failure::new("this zklock was built without TLS: build it with the features cli and tls"))
}

fn read_file(named: Option<&Path>) -> Result<File> {
    let of_user = || {
        let home = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        home.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".config"))).map(|home| home.join(FILE))
    };
    let candidates = match named {
        Some(path) => vec![path.to_owned()],
        None => of_user().into_iter().chain([Path::new("/etc").join(FILE)]).collect(),
    };
    for path in candidates {
        match fs::read_to_string(&path) {
            Ok(text) => return toml::from_str(&text).map_err(cannot(format!("understand {}", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {}
            Err(error) => return Err(cannot(format!("read {}", path.display()))(error)),
        }
    }
    Ok(File::default())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    const PIECES: [&str; 20] = [
        "connect",
        "session-timeout",
        "auth",
        "kerberos",
        "keytab",
        "[connect]",
        "[[auth]]",
        "sasl-user",
        " = ",
        "\"zk1:2181\"",
        "\"10s\"",
        "true",
        "[\"digest:a:b\"]",
        "-1",
        "1e400",
        "'''",
        "\"\\u0000\"",
        "{",
        "\n",
        "#",
    ];

    proptest! {
        #[test]
        fn no_text_of_a_file_panics(
            pieces in vec(prop_oneof![4 => select(&PIECES[..]).prop_map(str::to_owned), 1 => any::<String>()], 0..12),
        ) {
            if let Ok(file) = toml::from_str::<File>(&pieces.concat()) {
                let _ = file.session_timeout.map(|time| duration(&time));
            }
        }
    }
}
