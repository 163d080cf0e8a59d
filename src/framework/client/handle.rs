//! The methods of a client.

use std::{
    fmt, io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

#[cfg(doc)]
use super::builder::Builder;
use super::{
    background::Background,
    core::{CuratorFramework, CuratorFrameworkState, ListenerId},
};
use crate::{
    base::{clock, paths::Prefix, telemetry::Metrics, unlocked::drop_unlocked},
    error::{Error, Result},
    framework::events::connection_state::{ConnectionState, ConnectionStateErrorPolicy},
    session::{dialect::Dialect, wait::deadline::WaitBound},
};

impl CuratorFramework {
    /// Starts the client: from here on it connects, and reconnects, by itself. Returns at once, also without a server in
    /// reach: the client then tries until there is one, or it is closed. Java: `start`.
    ///
    /// # Errors
    /// [`Error::AlreadyStarted`], [`Error::ClientClosed`]; [`Error::Io`] if no thread can be had, and the error of an
    /// [`EnsembleProvider::start`](crate::EnsembleProvider::start) of your own: then the client is closed.
    pub fn start(&self) -> Result<()> {
        {
            let mut link = self.core.link.lock();
            match link.life {
                CuratorFrameworkState::Latent => link.life = CuratorFrameworkState::Started,
                CuratorFrameworkState::Started => return Err(Error::AlreadyStarted),
                CuratorFrameworkState::Stopped => return Err(Error::ClientClosed),
            }
        }
        let started = self
            .core
            .ensemble
            .start()
            .and_then(|()| self.core.dispatcher.start())
            .and_then(|()| Background::start(self.core.clone(), Arc::downgrade(&self.last), self.prefix.clone()));
        if started.is_err() {
            self.core.close(Duration::ZERO);
            // There may be no background thread to do it.
            self.core.dispatcher.stop();
        }
        started
    }

    /// Blocks until there is a connection, over suspensions and lost sessions. Returns `false` if the time is up first;
    /// [`connection_error`](Self::connection_error) then says why. `None` waits for ever. Listeners hear of the
    /// connection on a thread of their own, perhaps a moment later. Java: `blockUntilConnected`.
    ///
    /// # Errors
    /// [`Error::NotStarted`]; [`Error::ClientClosed`], also when it is closed meanwhile; [`Error::AuthFailed`].
    pub fn block_until_connected(&self, timeout: Option<Duration>) -> Result<bool> {
        let deadline = timeout.and_then(|timeout| clock::now().checked_add(timeout));
        Ok(self.core.connected_session(None, WaitBound { deadline, cancel: None })?.is_ok())
    }

    /// Closes the session, and with it gives up every lock that was acquired through this client. Waits for the server's
    /// confirmation at most [`Builder::max_close_wait`]. Every blocked call fails with [`Error::ClientClosed`], and every
    /// holder is told [`ClientClosed`](crate::LostReason::ClientClosed). A second call does nothing. Java: `close`.
    ///
    /// If no server can confirm it, the locks stay taken until the servers have expired the session.
    pub fn close(&self) {
        self.core.close(self.core.config.max_close_wait);
    }

    /// The stage of the client's life.
    #[must_use]
    pub fn state(&self) -> CuratorFrameworkState {
        self.core.link.lock().life
    }

    /// The last connection state that was raised; `None` before the first connection.
    #[must_use]
    pub fn connection_state(&self) -> Option<ConnectionState> {
        self.core.link.lock().state
    }

    /// The policy that says in which connection states a leader gives leadership up, as configured.
    #[must_use]
    pub fn connection_state_error_policy(&self) -> ConnectionStateErrorPolicy {
        self.core.config.error_policy
    }

    /// Whether there is a connection right now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.core.link.lock().session.as_ref().is_some_and(|session| session.connection() != 0)
    }

    /// The kind of server that the session lives at. The client finds it out one or two round trips after a server has
    /// taken the session up, unless [`Builder::dialect`] names it; `None` before that, and where the session cannot tell.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// use curator_locks::Dialect;
    ///
    /// client.check_exists().for_path("/")?; // by its answer the server has told
    /// assert_eq!(client.dialect(), Some(Dialect::ZooKeeper));
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn dialect(&self) -> Option<Dialect> {
        self.core.current_session()?.dialect()
    }

    /// Why there is no connection, as far as known: each server's answer to the last attempt, or the end of the last
    /// connection. `None` while there is one, and before the first attempt has failed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn example(client: &curator_locks::CuratorFramework) -> curator_locks::Result<()> {
    /// if !client.block_until_connected(Some(Duration::from_secs(10)))? {
    ///     match client.connection_error() {
    ///         Some(error) => eprintln!("no connection: {error}"),
    ///         None => eprintln!("no connection so far"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// # #[cfg(feature = "testing")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// #     let server = curator_locks::testing::TestingServer::start()?;
    /// #     let retry = curator_locks::RetryOneTime::new(std::time::Duration::from_millis(100));
    /// #     let client = curator_locks::CuratorFrameworkFactory::new_client(server.connect_string(), retry)?;
    /// #     client.start()?;
    /// #     Ok(example(&client)?)
    /// # }
    /// # #[cfg(not(feature = "testing"))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub fn connection_error(&self) -> Option<Arc<io::Error>> {
        self.core.current_session().and_then(|session| session.last_error())
    }

    /// The client's counters so far: waits, holds, losses, requests. Handles of one client share the numbers. Reads
    /// atomics, and never blocks.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.core.counters.read()
    }

    /// A client that puts another namespace in front of its paths, on the same session. Empty for none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a namespace that makes no valid path.
    pub fn using_namespace(&self, namespace: impl AsRef<str>) -> Result<CuratorFramework> {
        let prefix = Arc::new(Prefix::new(self.prefix.chroot(), namespace.as_ref())?);
        Ok(CuratorFramework { core: self.core.clone(), prefix, last: self.last.clone() })
    }

    /// The namespace, empty if there is none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.prefix.namespace()
    }

    /// The id of the current session; 0 before a server gave one.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.core.link.lock().session.as_ref().map_or(0, |session| session.id())
    }

    /// The password of the current session; a client that has it and the id can take the session over.
    #[must_use]
    pub fn session_password(&self) -> Vec<u8> {
        self.core.link.lock().session.as_ref().map(|session| session.password()).unwrap_or_default()
    }

    /// The session timeout: as negotiated, or before that as configured.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        let link = self.core.link.lock();
        link.session.as_ref().map_or(self.core.config.session_timeout, |session| session.timeout())
    }

    /// Calls the listener on every change of the connection state, in order, on the client's dispatch thread and under
    /// no lock. A listener may use the client, also close it; while it runs, others wait.
    pub fn add_connection_state_listener(
        &self,
        listener: impl Fn(&CuratorFramework, ConnectionState) + Send + Sync + 'static,
    ) -> ListenerId {
        let id = ListenerId(self.core.next_listener.fetch_add(1, Ordering::Relaxed));
        self.core.listeners.lock().push((id, Arc::new(listener)));
        id
    }

    /// Removes a listener. A call that is under way may still reach it.
    pub fn remove_connection_state_listener(&self, id: ListenerId) {
        let mut listeners = self.core.listeners.lock();
        let removed = listeners.iter().position(|(other, _)| *other == id).map(|at| listeners.remove(at));
        drop_unlocked(listeners, removed);
    }

    /// Calls the listener with every error that no call returns: a latch that cannot queue, a leader that has failed, a
    /// session that cannot be opened, credentials that the servers reject. Each is logged as well. In order, on the
    /// client's dispatch thread and under no lock, as connection states. Java: `getUnhandledErrorListenable`.
    ///
    /// While the connection is suspended or lost, nothing is told of that here: the connection states say it.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// use curator_locks::LeaderLatch;
    ///
    /// let (tell, told) = crossbeam_channel::unbounded();
    /// let id = client.add_unhandled_error_listener(move |message, error| {
    ///     tell.send(format!("{message}: {error}")).unwrap_or_default()
    /// });
    /// # client.create().with_mode(curator_locks::CreateMode::Ephemeral).for_path("/ephemeral")?;
    /// let latch = LeaderLatch::new(&client, "/ephemeral/below")?; // a path at which nobody may create
    /// latch.start()?;
    /// println!("{}", told.recv()?); // although nobody awaits the latch
    /// client.remove_unhandled_error_listener(id);
    /// # Ok(()) });
    /// ```
    pub fn add_unhandled_error_listener(
        &self,
        listener: impl Fn(&str, &(dyn std::error::Error + Send + Sync + 'static)) + Send + Sync + 'static,
    ) -> ListenerId {
        let id = ListenerId(self.core.next_listener.fetch_add(1, Ordering::Relaxed));
        self.core.error_listeners.lock().push((id, Arc::new(listener)));
        id
    }

    /// Removes a listener. A call that is under way may still reach it.
    pub fn remove_unhandled_error_listener(&self, id: ListenerId) {
        let mut listeners = self.core.error_listeners.lock();
        let removed: Vec<_> = listeners.extract_if(.., |(other, _)| *other == id).collect();
        drop_unlocked(listeners, removed);
    }
}

impl fmt::Debug for CuratorFramework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuratorFramework")
            .field("client_name", &self.core.config.client_name)
            .field("namespace", &self.namespace())
            .field("state", &self.state())
            .field("connection_state", &self.connection_state())
            .finish_non_exhaustive()
    }
}
