//! A server, clients and an observer for one case.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use curator_locks::{Builder, CuratorFramework, RetryForever, RetryNTimes, RetryPolicy};

use super::{
    cases, history,
    seam::{self, FaultProxy, Parent, SESSION, Scope, Server, Turn, builder_at, connect, eventually, namespace},
    subject::{LOCK, Lock, Queue, Subject},
};

pub(crate) struct World {
    pub(crate) subject: &'static Subject,
    pub(crate) server: Server,
    pub(crate) namespace: String,
    /// Over this crate's own session, whatever the lock has.
    pub(crate) observer: CuratorFramework,
    clients: Mutex<Vec<CuratorFramework>>,
    proxies: Mutex<Vec<Arc<FaultProxy>>>,
}

impl World {
    pub(crate) fn new(subject: &'static Subject) -> World {
        World::on(Server::shared(), subject)
    }

    /// One whose server the case may stop.
    pub(crate) fn restartable(subject: &'static Subject) -> (Turn, World) {
        let (turn, server) = Server::restartable();
        (turn, World::on(server, subject))
    }

    fn on(server: Server, subject: &'static Subject) -> World {
        let namespace = namespace();
        let observer = connect(builder_at(&server.connect_string(), &namespace));
        World { subject, server, namespace, observer, clients: Mutex::default(), proxies: Mutex::default() }
    }

    /// A proxy before the server. It lasts until the clients are closed: a handle of the package that finds no server any more tries
    /// again without a pause until its session timeout has passed, on a whole processor.
    pub(crate) fn proxy(&self) -> Arc<FaultProxy> {
        let proxy = Arc::new(self.server.proxy());
        self.proxies.lock().unwrap().push(proxy.clone());
        proxy
    }

    /// A client of its own session.
    pub(crate) fn client(&self) -> CuratorFramework {
        self.client_at(&self.server.connect_string())
    }

    /// The same, of another address than the server's own.
    pub(crate) fn client_at(&self, address: &str) -> CuratorFramework {
        let client = client_of(self.subject, address, &self.namespace, SESSION);
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    /// One that tries everything again, and pauses between the tries.
    pub(crate) fn persistent_client_at(&self, address: &str, pause: Duration) -> CuratorFramework {
        self.client_with(address, RetryForever::new(pause))
    }

    pub(crate) fn client_with(&self, address: &str, policy: impl RetryPolicy + 'static) -> CuratorFramework {
        let builder = builder_at(address, &self.namespace).retry_policy(policy);
        let client = connected(self.subject, address, SESSION, builder);
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    /// The same with a session so short that it ends within the test, behind a network that fails.
    pub(crate) fn short_client_at(&self, address: &str, session: Duration) -> CuratorFramework {
        let builder = builder_at(address, &self.namespace)
            .connection_timeout(session / 2)
            .retry_policy(RetryNTimes::new(1, session / 50));
        let client = connected(self.subject, address, session, builder);
        self.clients.lock().unwrap().push(client.clone());
        client
    }

    pub(crate) fn lock(&self, client: &CuratorFramework) -> Box<dyn Lock> {
        (self.subject.make)(client)
    }

    pub(crate) fn rival(&self, client: &CuratorFramework) -> Box<dyn Lock> {
        (self.subject.rival)(client)
    }

    /// A scope for threads that wait for locks: if the case fails meanwhile, its clients are closed, so that
    /// all threads end and the test does, too.
    pub(crate) fn scope<'env, T>(&'env self, case: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
        seam::scope(|scope| match catch_unwind(AssertUnwindSafe(|| case(scope))) {
            Ok(value) => value,
            Err(panic) => {
                let clients = self.clients.lock().unwrap().clone();
                clients.iter().for_each(CuratorFramework::close);
                resume_unwind(panic)
            }
        })
    }

    /// Ends the client's session at the server, as if it had expired there.
    pub(crate) fn expire(&self, client: &CuratorFramework) {
        self.server.expire(client);
    }

    /// The paths of all znodes of the lock.
    pub(crate) fn znodes(&self) -> Vec<String> {
        let directories = self.subject.directories();
        directories
            .iter()
            .flat_map(|path| self.children(path).into_iter().map(move |name| format!("{path}/{name}")))
            .collect()
    }

    pub(crate) fn children(&self, path: &str) -> Vec<String> {
        match self.observer.get_children().for_path(path) {
            Err(error) if error.is_no_node() => Vec::new(),
            result => result.unwrap(),
        }
    }

    /// Waits until so many wait behind one holder, and nothing else is there.
    #[track_caller]
    pub(crate) fn await_waiters(&self, count: usize) {
        eventually(&format!("{count} wait behind one holder"), || self.are_waiters(count));
    }

    /// Whether so many wait behind one holder, and nothing else is there.
    pub(crate) fn are_waiters(&self, count: usize) -> bool {
        let children = |directory: &str| self.children(&format!("{LOCK}/{directory}")).len();
        match self.subject.queue {
            Queue::Directory => self.children(LOCK).len() == count + 1,
            // While they wait for the first, they have nothing in the second.
            Queue::Two => children("a") == count + 1 && children("b") == 1,
            Queue::Leases => children("locks") == count && children("leases") == 1 + count.min(1),
            Queue::Sole => self.znodes().len() == 1 && self.watchers() == count,
        }
    }

    /// Deletes all znodes of the lock that are this client's.
    pub(crate) fn delete_all_of(&self, client: &CuratorFramework) {
        self.znodes_of(client).iter().for_each(|path| self.observer.delete().for_path(path).unwrap());
    }

    /// The paths of all znodes of the lock that are this client's.
    fn znodes_of(&self, client: &CuratorFramework) -> Vec<String> {
        let owner = |path: &str| self.observer.check_exists().for_path(path).unwrap().map(|stat| stat.ephemeral_owner);
        self.znodes().into_iter().filter(|path| owner(path) == Some(client.session_id())).collect()
    }

    /// Whether the lock is this client's, of a kind that whoever comes first has: not the one that has waited longest.
    pub(crate) fn is_sole_of(&self, client: &CuratorFramework) -> bool {
        matches!(self.subject.queue, Queue::Sole) && !self.znodes_of(client).is_empty()
    }

    /// Whether this client waits behind one holder, and has sent what it sends before it sleeps.
    pub(crate) fn is_asleep(&self, client: &CuratorFramework) -> bool {
        let watches = |path: &String| self.server.watchers(&format!("/{}{path}", self.namespace));
        let watched = if matches!(self.subject.queue, Queue::Sole) { self.znodes() } else { self.znodes_of(client) };
        self.are_waiters(1) && watched.iter().any(|path| watches(path).contains(&client.session_id()))
    }

    /// Waits until this client watches its own znode, which it does last before it sleeps.
    #[track_caller]
    pub(crate) fn await_watch_of_own(&self, client: &CuratorFramework) {
        let watchers = |path: &String| self.server.watchers(&format!("/{}{path}", self.namespace));
        eventually("it watches its znode", || {
            self.znodes_of(client).iter().any(|path| watchers(path).contains(&client.session_id()))
        });
    }

    /// Waits until no znode is left.
    #[track_caller]
    pub(crate) fn await_nothing(&self) {
        eventually("no znode is left", || self.znodes().is_empty());
    }

    /// How many sessions but its owner's watch the one znode that the lock is.
    fn watchers(&self) -> usize {
        let Some(path) = self.znodes().pop() else { return 0 };
        let Some(stat) = self.observer.check_exists().for_path(&path).unwrap() else { return 0 };
        let sessions = self.server.watchers(&format!("/{}{path}", self.namespace));
        sessions.into_iter().filter(|session| *session != stat.ephemeral_owner).count()
    }

    /// The session that owns the newest znode of the lock; with [`Queue::Leases`] the newest lease.
    pub(crate) fn newest_owner(&self) -> Option<i64> {
        let directory = self.subject.directories().into_iter().next()?;
        let paths = self.children(&directory).into_iter().map(|name| format!("{directory}/{name}"));
        let stats = paths.filter_map(|path| self.observer.check_exists().for_path(&path).unwrap());
        stats.max_by_key(|stat| stat.czxid).map(|stat| stat.ephemeral_owner)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for proxy in self.proxies.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let _ = proxy.pass();
        }
        let clients = self.clients.get_mut().unwrap_or_else(PoisonError::into_inner);
        clients.iter().for_each(CuratorFramework::close);
        self.observer.close();
    }
}

/// A client as this lock's cases have it, also in a child process.
pub(crate) fn client_of(subject: &Subject, address: &str, namespace: &str, session: Duration) -> CuratorFramework {
    connected(subject, address, session, builder_at(address, namespace))
}

fn connected(subject: &Subject, address: &str, session: Duration, builder: Builder) -> CuratorFramework {
    connect(seam::configured(subject.sessions, address, session, builder.session_timeout(session)))
}

/// A client that was not started.
pub(crate) fn latent_client(world: &World) -> CuratorFramework {
    builder_at(&world.server.connect_string(), &world.namespace).build().unwrap()
}

/// The part of a child process.
pub(crate) fn play_role(role: &str, subject: &'static Subject, arguments: &[String], parent: &Parent) {
    match role {
        "contender" => history::contender(subject, arguments, parent),
        "paused" => cases::paused_child(subject, &arguments[0], &arguments[1], parent),
        other => panic!("no role {other}"),
    }
}
