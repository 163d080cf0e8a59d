//! How a client is configured.

use std::{fmt, sync::Arc, time::Duration};

use super::core::CuratorFramework;
#[cfg(feature = "sasl")]
use crate::session::sasl::Sasl;
#[cfg(feature = "tls")]
use crate::session::transport::{tls::Tls, tls_config::TlsConfig};
use crate::{
    base::paths::Prefix,
    error::{Error, Result},
    framework::{
        config::{
            Config,
            acl::AclProvider,
            ensemble::{EnsembleProvider, FixedEnsembleProvider},
            retry::RetryPolicy,
        },
        events::connection_state::ConnectionStateErrorPolicy,
    },
    session::{
        api::{SessionConfig, SessionFactory},
        dialect::Dialect,
        native::session::NativeSessions,
        servers::connect_string::ConnectString,
    },
};

/// The servers' own default (`jute.maxbuffer`).
const LARGEST_REQUEST: usize = 0xf_ffff;

const LARGEST_REPLY: usize = 4 * 1024 * 1024;

/// Configures a client. Java: `CuratorFrameworkFactory.Builder`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFramework, ExponentialBackoffRetry};
///
/// let client = CuratorFramework::builder()
///     .connect_string("zk1:2181,zk2:2181,zk3:2181/app")
///     .session_timeout(Duration::from_secs(60))
///     .connection_timeout(Duration::from_secs(15))
///     .retry_policy(ExponentialBackoffRetry::new(Duration::from_secs(1), 3))
///     .namespace("shop")
///     .build()?;
/// assert_eq!(client.namespace(), "shop");
/// # Ok::<(), curator_locks::Error>(())
/// ```
///
/// Everything else that can be set:
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{
///     ConnectionStateErrorPolicy, CreatorAllAclProvider, CuratorFramework, FixedEnsembleProvider, RetryNTimes,
///     unversioned::NativeSessionFactory,
/// };
///
/// let builder = CuratorFramework::builder()
///     .ensemble_provider(FixedEnsembleProvider::new("zk1:2181,zk2:2181,zk3:2181"))
///     .retry_policy(RetryNTimes::new(3, Duration::from_millis(500)))
///     .authorization("digest", "shop:secret")
///     .acl_provider(CreatorAllAclProvider)
///     .default_data("host-17")
///     .dont_use_container_parents()
///     .quorum_heartbeats(false)
///     .max_frame_size(4 << 20)
///     .max_close_wait(Duration::from_secs(2))
///     .simulated_session_expiration_percent(100)
///     .connection_state_error_policy(ConnectionStateErrorPolicy::Session)
///     .lock_recheck_interval(Some(Duration::from_secs(30)))
///     .max_hold_time(Duration::from_secs(600));
/// let client = builder.build()?;
///
/// let retry = RetryNTimes::new(3, Duration::from_millis(500));
/// let builder = CuratorFramework::builder().connect_string("zk1:2181").retry_policy(retry);
/// let client = builder.session_factory(NativeSessionFactory).build()?; // or a session of your own
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[must_use = "a builder does nothing until build()"]
#[derive(Default)]
pub struct Builder {
    config: Config,
    ensemble: Option<Arc<dyn EnsembleProvider>>,
    retry_policy: Option<Arc<dyn RetryPolicy>>,
    namespace: String,
    authorizations: Vec<(String, Vec<u8>)>,
    quorum_heartbeats: bool,
    dialect: Option<Dialect>,
    max_frame_size: Option<usize>,
    session_factory: Option<Arc<dyn SessionFactory>>,
    #[cfg(feature = "tls")]
    tls: Option<TlsConfig>,
    #[cfg(feature = "sasl")]
    sasl: Option<Sasl>,
}

impl Builder {
    /// The servers, `host:port,host:port/chroot`. The port defaults to 2181; IPv6 addresses stand in brackets. The
    /// chroot has to exist, see [`Builder::create_chroot`].
    pub fn connect_string(self, connect_string: impl Into<String>) -> Self {
        self.ensemble_provider(FixedEnsembleProvider::new(connect_string))
    }

    /// Asks this provider for the servers. The client asks again about once a second while it has no connection, so the
    /// answer may change.
    pub fn ensemble_provider(mut self, provider: impl EnsembleProvider) -> Self {
        self.ensemble = Some(Arc::new(provider));
        self
    }

    /// Whether the client follows the ensemble where it moves: it watches the servers' list of themselves, `/zookeeper/config`,
    /// and takes the addresses for clients there for its servers. Defaults to yes, as in Curator. Java: `ensembleTracker`.
    ///
    /// The client goes by that list only if it names the server that the client is connected to, by the name or an address
    /// by which it was reached. So the connect string stands where clients reach the servers by other addresses than those
    /// that the servers know (a load balancer, mapped ports, ports for TLS), and where the list is missing, is empty (a server alone)
    /// or lacks the address of some server (ensembles that are configured in static files). If the client may not read
    /// it, the log says so once.
    ///
    /// A client leaves a server that was removed from the ensemble for another one as soon as it hears of that. The session and its
    /// locks go on; the connection state is suspended for that moment. If the list leads nowhere for two seconds, the
    /// servers of the connect string are tried, too.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use curator_locks::{CuratorFramework, RetryOneTime};
    ///
    /// let client = CuratorFramework::builder()
    ///     .connect_string("load-balancer:2181")
    ///     .ensemble_tracker(false) // one read and one watch less in each session
    ///     .retry_policy(RetryOneTime::new(Duration::from_secs(1)))
    ///     .build()?;
    /// # Ok::<(), curator_locks::Error>(())
    /// ```
    pub fn ensemble_tracker(mut self, wanted: bool) -> Self {
        self.config.ensemble_tracker = wanted;
        self
    }

    /// Names the client in its own log lines, of connection states and of errors that no call returns, and in its `Debug`: for a process
    /// with several clients. Defaults to no name. The servers do not know it: for `zklock ls` give it to
    /// [`default_data`](Builder::default_data) or to the lock data as well. Must not be empty, or have control characters.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use curator_locks::{CuratorFramework, RetryOneTime};
    ///
    /// let client = CuratorFramework::builder()
    ///     .client_name("billing") // client billing: connection state LOST: session 0x1.. at zk1:2181 is gone with its locks
    ///     .connect_string("zk1:2181")
    ///     .retry_policy(RetryOneTime::new(Duration::from_secs(1)))
    ///     .build()?;
    /// assert!(format!("{client:?}").contains("billing"));
    /// # Ok::<(), curator_locks::Error>(())
    /// ```
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.config.client_name = Some(name.into());
        self
    }

    /// The session timeout to ask the server for, which has limits of its own. Defaults to 60 s.
    ///
    /// Choose at least two of the servers' ticks: with less, [`Hold::valid_until`](crate::Hold::valid_until) promises too
    /// much. Servers expire the session, and with it its locks, this long after they last heard from the client. 1 ms to
    /// 2^31-1 ms.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.config.session_timeout = timeout;
        self
    }

    /// Limits one attempt to connect, and how long a call waits for a connection before it asks the retry policy. Defaults
    /// to 15 s; 1 ms to 2^31-1 ms.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.config.connection_timeout = timeout;
        self
    }

    /// Decides whether and when a call is tried again after a lost connection or session. Required: there is no default.
    pub fn retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Some(Arc::new(policy));
        self
    }

    /// Puts `/namespace` in front of every path. Defaults to none.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Adds credentials, for instance `("digest", "user:password")`. They are sent on each connection and never logged.
    pub fn authorization(mut self, scheme: impl Into<String>, auth: impl Into<Vec<u8>>) -> Self {
        self.authorizations.push((scheme.into(), auth.into()));
        self
    }

    /// Says which ACL a new znode gets. Defaults to [`DefaultAclProvider`](crate::DefaultAclProvider): everybody may do
    /// everything.
    pub fn acl_provider(mut self, provider: impl AclProvider) -> Self {
        self.config.acl_provider = Arc::new(provider);
        self
    }

    /// The data of a new znode for which the caller gives none. Defaults to this machine's address as text, as in Curator.
    pub fn default_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.config.default_data = data.into();
        self
    }

    /// Makes missing parents as persistent znodes, which stay for ever. Without this call they are containers, which the
    /// server removes once they are empty.
    pub fn dont_use_container_parents(mut self) -> Self {
        self.config.container_parents = false;
        self
    }

    /// Says what kind of servers these are, so that the client does not ask. It asks each session anew, by one read behind the
    /// handshake: needed is this only for what a server does not tell, that it is ZooKeeper 3.4, or that it is a ClickHouse
    /// Keeper that knows containers (since 26.7).
    ///
    /// ```
    /// # use std::time::Duration;
    /// use curator_locks::{CuratorFramework, Dialect, RetryOneTime};
    ///
    /// let client = CuratorFramework::builder()
    ///     .connect_string("keeper1:9181,keeper2:9181,keeper3:9181")
    ///     .dialect(Dialect::Keeper)
    ///     .retry_policy(RetryOneTime::new(Duration::from_secs(1)))
    ///     .build()?;
    /// assert_eq!(client.dialect(), None); // there is no session so far
    /// # Ok::<(), curator_locks::Error>(())
    /// ```
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Makes each heartbeat a transaction that changes nothing, instead of a `sync`: a majority of the servers has to
    /// agree on it. Defaults to no.
    ///
    /// A leader that is cut off from the other servers, but not from its clients, answers a `sync` by itself, for up to
    /// 2 `syncLimit` + 1 ticks if its own packets are lost first and the others' later. They have another leader long
    /// before, which expires the sessions: [`Hold::valid_until`](crate::Hold::valid_until) promises too much then. With
    /// these heartbeats it does not rest on such a leader. They cost the servers one write to their logs for each client
    /// and each quarter of its session timeout. Otherwise a heartbeat is such a write only after a reconnect or a silence of the
    /// servers, until one is answered, and a connection that breaks before that proves nothing. The session over the package `zookeeper` writes at each heartbeat anyway.
    pub fn quorum_heartbeats(mut self, wanted: bool) -> Self {
        self.quorum_heartbeats = wanted;
        self
    }

    /// Whether the client makes the znode that the connect string ends with, where the servers have none. Defaults to no: the first
    /// acquire fails with [`Error::InvalidPath`], as with a typo in the chroot the process would take locks that nobody else knows
    /// of. The [namespace](Builder::namespace) is always made.
    ///
    /// ```
    /// # use curator_locks::{CuratorFramework, RetryOneTime};
    /// let client = CuratorFramework::builder()
    ///     .connect_string("zk1:2181,zk2:2181,zk3:2181/shop")
    ///     .retry_policy(RetryOneTime::new(std::time::Duration::from_secs(1)))
    ///     .create_chroot(true)
    ///     .build()?;
    /// # Ok::<(), curator_locks::Error>(())
    /// ```
    pub fn create_chroot(mut self, create: bool) -> Self {
        self.config.create_chroot = create;
        self
    }

    /// Refuses a lock where a lock of another kind is held or queued for at the same path: the acquire fails with
    /// [`Error::MixedKinds`] and holds nothing. Defaults to no. In Curator such locks are independent of each other, and so they are
    /// here: a mutex, a read/write lock or a leader does not exclude an unfair mutex or a semaphore, nor they each other.
    ///
    /// Each acquire looks before it queues, which costs a round trip, and fails if it may not look. A cached lock looks when its
    /// process queues. A lock of another kind that is acquired at the same moment, or later by a client that does not
    /// refuse, is not seen.
    ///
    /// By default a mutex, a read/write lock or a leader whose own list shows the names `lock` or `leases` looks in the
    /// background, and warns in the log once for each directory.
    ///
    /// ```
    /// # use curator_locks::{CuratorFramework, RetryOneTime};
    /// let client = CuratorFramework::builder()
    ///     .connect_string("zk1:2181,zk2:2181,zk3:2181")
    ///     .retry_policy(RetryOneTime::new(std::time::Duration::from_secs(1)))
    ///     .refuse_mixed_kinds(true)
    ///     .build()?;
    /// # Ok::<(), curator_locks::Error>(())
    /// ```
    pub fn refuse_mixed_kinds(mut self, refuse: bool) -> Self {
        self.config.refuse_mixed_kinds = refuse;
        self
    }

    /// The largest request or reply in bytes. Defaults to 1,048,575 for a request, the servers' limit unless their
    /// `jute.maxbuffer` says otherwise, and 4 MiB for a reply; 1,024 to 2^31-1.
    ///
    /// The client refuses a larger request with [`Error::FrameTooLarge`]. A server would end the connection instead, which
    /// would put every lock of this client in doubt.
    pub fn max_frame_size(mut self, bytes: usize) -> Self {
        self.max_frame_size = Some(bytes);
        self
    }

    /// How long [`CuratorFramework::close`] waits for the server's confirmation. Defaults to 900 ms; zero does not
    /// wait.
    pub fn max_close_wait(mut self, wait: Duration) -> Self {
        self.config.max_close_wait = wait;
        self
    }

    /// Gives the session up after this part of the session timeout without a connection, 1 to 100 per cent. Defaults to
    /// 100.
    ///
    /// Holders are told then. The session is closed, and its locks go to the next ones, when no holder is left that has not
    /// released, and at [`Hold::valid_until`](crate::Hold::valid_until) at the latest.
    pub fn simulated_session_expiration_percent(mut self, percent: u8) -> Self {
        self.config.expiration_percent = percent;
        self
    }

    /// Sets in which connection states a leader gives leadership up. Defaults to
    /// [`Standard`](ConnectionStateErrorPolicy::Standard): suspended and lost.
    pub fn connection_state_error_policy(mut self, policy: ConnectionStateErrorPolicy) -> Self {
        self.config.error_policy = policy;
        self
    }

    /// Makes a waiter read the queue this often although no event has come, so that a lost event is a delay and no hang.
    /// Defaults to 30 s; `None` switches it off.
    pub fn lock_recheck_interval(mut self, interval: Option<Duration>) -> Self {
        self.config.recheck_interval = interval;
        self
    }

    /// Logs a warning when this client holds a lock or lease for longer than this, then at 2x, 4x, 8x. It ends no hold:
    /// [`hold_at_most`](crate::AcquireOptions::hold_at_most) does. The client looks ten times a second. Defaults to no
    /// limit; must not be zero.
    pub fn max_hold_time(mut self, limit: Duration) -> Self {
        self.config.max_hold_time = Some(limit);
        self
    }

    /// Opens sessions with this factory. Defaults to this crate's own.
    pub fn session_factory(mut self, factory: impl SessionFactory) -> Self {
        self.session_factory = Some(Arc::new(factory));
        self
    }

    /// Encrypts the connections to the servers (feature `tls`). Defaults to plain TCP.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: TlsConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Proves to the servers who the client is (feature `sasl`), with a password or with Kerberos. Defaults to nothing.
    #[cfg(feature = "sasl")]
    pub fn sasl(mut self, sasl: impl Into<Sasl>) -> Self {
        self.sasl = Some(sasl.into());
        self
    }

    /// Checks the configuration and makes a client, without any I/O: [`CuratorFramework::start`] does that.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] or [`Error::InvalidPath`] for a setting that is missing or out of range.
    pub fn build(mut self) -> Result<CuratorFramework> {
        #[cfg_attr(not(any(feature = "tls", feature = "sasl")), expect(unused_mut, reason = "nothing can be set"))]
        let mut native = NativeSessions::default();
        // Dropping the one or the other in silence could send secrets in the clear.
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls {
            if self.session_factory.is_some() {
                let rule = "a session_factory() of your own brings its own transport: give one of the two";
                return Err(invalid("tls", String::new(), rule));
            }
            native.transport = Arc::new(Tls { config: tls.client_config()? });
        }
        #[cfg(feature = "sasl")]
        if let Some(sasl) = self.sasl {
            if self.session_factory.is_some() {
                let rule = "a session_factory() of your own authenticates by itself: give one of the two";
                return Err(invalid("sasl", String::new(), rule));
            }
            native.sasl = Some(sasl.authenticator()?);
        }
        let missing = |name, rule| invalid(name, String::new(), rule);
        let ensemble = self.ensemble.ok_or_else(|| {
            missing("connect_string", "a client needs servers: see connect_string(), or ensemble_provider()")
        })?;
        let retry_policy = self.retry_policy.ok_or_else(|| {
            missing("retry_policy", "there is no default: choose one, such as ExponentialBackoffRetry")
        })?;
        let hosts: ConnectString = ensemble.connection_string().parse()?;
        check_duration("session_timeout", self.config.session_timeout)?;
        check_duration("connection_timeout", self.config.connection_timeout)?;
        if let Some(name) = self.config.client_name.take_if(|name| name.is_empty() || name.contains(char::is_control)) {
            return Err(invalid("client_name", format!("{name:?}"), "must not be empty, or have control characters"));
        }
        if self.config.max_hold_time == Some(Duration::ZERO) {
            return Err(invalid("max_hold_time", "0".into(), "must be longer than nothing"));
        }
        if !(1..=100).contains(&self.config.expiration_percent) {
            let value = self.config.expiration_percent.to_string();
            return Err(invalid("simulated_session_expiration_percent", value, "must be 1 to 100"));
        }
        let max_frame_size = self.max_frame_size.unwrap_or(LARGEST_REPLY);
        if max_frame_size < 1024 || i32::try_from(max_frame_size).is_err() {
            let value = max_frame_size.to_string();
            return Err(invalid("max_frame_size", value, "must be 1024 to 2147483647 bytes"));
        }
        let prefix = Prefix::new(hosts.chroot(), &self.namespace)?;
        let session = SessionConfig {
            hosts,
            known: Arc::default(),
            dialect: self.dialect,
            successor: Arc::default(),
            session_timeout: self.config.session_timeout,
            connection_timeout: self.config.connection_timeout,
            authorizations: self.authorizations,
            quorum_heartbeats: self.quorum_heartbeats,
            max_frame_size,
            max_request_size: self.max_frame_size.unwrap_or(LARGEST_REQUEST),
            counters: Arc::default(),
        };
        let session_factory = self.session_factory.unwrap_or_else(|| Arc::new(native));
        Ok(CuratorFramework::new(self.config, ensemble, retry_policy, session, session_factory, prefix))
    }
}

impl CuratorFramework {
    /// Begins to configure a client.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("session_timeout", &self.config.session_timeout)
            .field("connection_timeout", &self.config.connection_timeout)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// Makes clients under Curator's names. Java: `CuratorFrameworkFactory`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, ExponentialBackoffRetry};
///
/// let retry = ExponentialBackoffRetry::new(Duration::from_secs(1), 3);
/// let client = CuratorFrameworkFactory::new_client("zk1:2181,zk2:2181", retry)?;
/// assert_eq!(client.session_timeout(), Duration::from_secs(60));
/// let (session, connection) = (Duration::from_secs(20), Duration::from_secs(5));
/// let quicker = CuratorFrameworkFactory::new_client_with_timeouts("zk1:2181,zk2:2181", session, connection, retry)?;
/// assert_eq!(quicker.session_timeout(), session);
/// let same = CuratorFrameworkFactory::builder().connect_string("zk1:2181,zk2:2181").retry_policy(retry).build()?;
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct CuratorFrameworkFactory;

impl CuratorFrameworkFactory {
    /// A client with the default timeouts: 60 s for the session, 15 s for a connection. Does no I/O.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new_client(connect_string: impl Into<String>, retry_policy: impl RetryPolicy) -> Result<CuratorFramework> {
        Builder::default().connect_string(connect_string).retry_policy(retry_policy).build()
    }

    /// A client with these timeouts, in Java's order: of the session, and of a connection. Does no I/O. Java: `newClient`
    /// with four arguments.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new_client_with_timeouts(
        connect_string: impl Into<String>,
        session_timeout: Duration,
        connection_timeout: Duration,
        retry_policy: impl RetryPolicy,
    ) -> Result<CuratorFramework> {
        let builder = Builder::default().connect_string(connect_string).retry_policy(retry_policy);
        builder.session_timeout(session_timeout).connection_timeout(connection_timeout).build()
    }

    /// Begins to configure a client.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

fn invalid(name: &'static str, value: String, rule: &str) -> Error {
    Error::InvalidArgument { name, value, rule: rule.into() }
}

fn check_duration(name: &'static str, value: Duration) -> Result<()> {
    match i32::try_from(value.as_millis()) {
        Ok(1..) => Ok(()),
        _ => Err(invalid(name, format!("{value:?}"), "must be 1 ms to 2147483647 ms")),
    }
}
