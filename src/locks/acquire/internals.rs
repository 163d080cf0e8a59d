//! The part that all kinds of lock share: a directory, a driver, and how the znodes are named.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    base::{
        clock,
        paths::ServerPath,
        sync::Mutex,
        telemetry::{named::NamedLock, spans::in_acquire_span},
    },
    error::{Error, LostReason, Result},
    framework::{
        client::core::CuratorFramework,
        held::{
            holds::DirectoryHolds,
            node::{HeldNode, RevocableNode, Revocation},
        },
    },
    locks::{
        holds::{death::UncleanDeaths, hold::Hold},
        options::{
            acquire::{AcquireOptions, Wait},
            wait_strategy::WaitStrategy,
        },
        recipe::{
            driver::{LockInternalsDriver, LockInternalsSorter, sorted_children, sorted_contenders},
            spec::{Recipe, Spec},
        },
    },
    proto::types::{CreateMode, ErrorCode},
};

/// A lock's directory, whose children queue in the order that a driver decides: the part that the recipes share. Java:
/// `LockInternals`.
///
/// This looks at a queue:
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{InterProcessMutex, LockInternals, StandardLockInternalsDriver};
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
/// let held = mutex.lock()?;
/// let sorter = StandardLockInternalsDriver::new();
/// assert_eq!(LockInternals::participant_nodes(&client, "/locks/order-42")?, [held.path()]);
/// assert_eq!(LockInternals::sorted_children(&client, "/locks/order-42", "lock-", &sorter)?.len(), 1);
/// held.release()?;
/// mutex.internals().clean()?; // removes the empty directory
/// # Ok(()) });
/// ```
pub struct LockInternals {
    client: CuratorFramework,
    pub(in crate::locks) recipe: Recipe,
    base_path: String,
    directory: ServerPath,
    /// The holds of this process's threads in the directory.
    pub(in crate::locks) thread_holds: Arc<DirectoryHolds>,
    /// The listener that the next hold tells about requests to give it back.
    pub(super) revocation: Mutex<Option<Arc<Revocation>>>,
    pub(in crate::locks) strategy: WaitStrategy,
    /// Whether a thread that holds the lock may acquire it once more.
    pub(in crate::locks) is_reentrant: bool,
    /// The data of the znodes created from now on.
    data: Mutex<Vec<u8>>,
    pub(in crate::locks) deaths: Option<UncleanDeaths>,
    /// Its series in the facade `metrics`, if it has a name there.
    pub(in crate::locks) named: Option<Arc<NamedLock>>,
}

impl fmt::Debug for LockInternals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockInternals").field("base_path", &self.base_path).finish_non_exhaustive()
    }
}

impl LockInternals {
    pub(in crate::locks) fn new(client: &CuratorFramework, base_path: &str, recipe: Recipe) -> Result<LockInternals> {
        let base = directory_of(client, base_path)?;
        let directory = recipe.below.map(|name| base.join(name)).unwrap_or(base);
        Ok(LockInternals {
            client: client.clone(),
            base_path: base_path.into(),
            thread_holds: client.core.holds.of(&directory),
            directory,
            recipe,
            revocation: Mutex::default(),
            strategy: WaitStrategy::default(),
            is_reentrant: true,
            data: Mutex::new(client.core.config.default_data.clone()),
            deaths: None,
            named: None,
        })
    }

    /// Makes a lock object with the same settings but for this change. The two share nothing: neither holds of threads, nor
    /// listeners of requests to give the lock back.
    pub(in crate::locks) fn configured(&self, change: impl FnOnce(&mut LockInternals)) -> LockInternals {
        let mut internals = LockInternals {
            client: self.client.clone(),
            recipe: self.recipe.clone(),
            base_path: self.base_path.clone(),
            directory: self.directory.clone(),
            thread_holds: self.thread_holds.clone(),
            data: Mutex::new(self.data.lock().clone()),
            revocation: Mutex::default(),
            deaths: self.deaths.as_ref().map(UncleanDeaths::anew),
            strategy: self.strategy,
            is_reentrant: self.is_reentrant,
            named: self.named.clone(),
        };
        change(&mut internals);
        internals
    }

    pub(crate) fn set_data(&self, data: impl Into<Vec<u8>>) {
        *self.data.lock() = data.into();
    }

    pub(crate) fn directory(&self) -> &ServerPath {
        &self.directory
    }

    /// Sets the listener that serves the acquires from now on, up to the next release.
    pub(crate) fn make_revocable(&self, revocation: Revocation) {
        let before = self.revocation.lock().replace(Arc::new(revocation));
        // The caller's listener is dropped under no lock.
        drop(before);
    }

    pub(crate) fn revocable_node(&self) -> Option<Arc<RevocableNode>> {
        self.revocation.lock().clone().map(RevocableNode::new)
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    pub(crate) fn client(&self) -> &CuratorFramework {
        &self.client
    }

    pub(crate) fn driver(&self) -> &dyn LockInternalsDriver {
        &*self.recipe.driver
    }

    /// Returns the path of a held znode as the caller sees it.
    pub(crate) fn client_path(&self, held: &HeldNode) -> String {
        self.client.prefix.to_client(held.path().as_str())
    }

    pub(crate) fn hold(&self, held: Arc<HeldNode>) -> Hold {
        let (path, heard) = (self.client_path(&held), self.deaths.as_ref().and_then(|deaths| deaths.heard_by(&held)));
        Hold::new(held, path, heard)
    }

    /// Removes the lock's directory, unless somebody uses it. Java: `LockInternals.clean`.
    ///
    /// Servers remove it by themselves if it is a container, which it is unless the client was built with
    /// [`dont_use_container_parents`](crate::Builder::dont_use_container_parents).
    ///
    /// # Errors
    /// As [every operation on a znode](crate::operations#errors); not for a directory that is in use or gone.
    pub fn clean(&self) -> Result<()> {
        match self.client.delete().for_path(&self.base_path) {
            Err(Error::Server { code: ErrorCode::NotEmpty | ErrorCode::NoNode | ErrorCode::BadVersion, .. }) => Ok(()),
            result => result,
        }
    }

    /// Returns the contenders' paths in the order of the queue, the holder first; none if there is no such directory. Java:
    /// `LockInternals.getParticipantNodes`.
    ///
    /// # Errors
    /// As [every operation on a znode](crate::operations#errors).
    pub fn participant_nodes(client: &CuratorFramework, base_path: &str) -> Result<Vec<String>> {
        let children = children_of(client, base_path)?;
        let base_path = base_path.strip_suffix('/').unwrap_or(base_path);
        Ok(sorted_contenders(&children).into_iter().map(|name| format!("{base_path}/{name}")).collect())
    }

    /// Returns the names of all children in the order of a sorter. Java: `LockInternals.getSortedChildren`.
    ///
    /// # Errors
    /// As [every operation on a znode](crate::operations#errors).
    pub fn sorted_children(
        client: &CuratorFramework,
        base_path: &str,
        lock_name: &str,
        sorter: &dyn LockInternalsSorter,
    ) -> Result<Vec<String>> {
        let children = children_of(client, base_path)?;
        Ok(sorted_children(&children, lock_name, sorter).into_iter().map(str::to_owned).collect())
    }

    /// Describes one acquire of this kind of lock.
    pub(in crate::locks) fn spec(&self, wait: Wait<'_>) -> Spec {
        let is_sole = self.recipe.is_sole;
        Spec {
            directory: self.directory.as_str().to_owned(),
            driver: self.recipe.driver.clone(),
            name: self.driver().lock_name().to_owned(),
            is_sole,
            count: 1,
            mode: if is_sole { CreateMode::Ephemeral } else { CreateMode::EphemeralSequential },
            data: self.data.lock().clone(),
            waits: (!wait.only_try).then_some(self.strategy),
            looks_first: wait.only_try || wait.options.max_ahead.is_some(),
            must_be_empty: None,
            companion: None,
            holds_queue_head: false,
            min_validity: wait.options.min_validity,
            counts: wait.options.counts_ahead(),
            max_ahead: wait.options.max_ahead,
        }
    }

    pub(in crate::locks) fn node_gone(&self) -> Error {
        Error::Server { code: ErrorCode::NoNode, operation: "acquire", path: self.base_path.clone() }
    }

    pub(crate) fn child(&self, name: &str) -> ServerPath {
        self.directory.join(name)
    }

    pub(crate) fn lost(&self, reason: LostReason) -> Error {
        Error::LockLost { path: self.base_path.clone(), reason }
    }

    pub(in crate::locks) fn uncertain(&self, wanted: Duration) -> Error {
        Error::Uncertain { path: self.base_path().to_owned(), wanted, after: self.client().session_timeout() }
    }

    pub(in crate::locks) fn still_taken(&self, ahead: Option<usize>) -> Error {
        Error::StillTaken { path: self.base_path().to_owned(), ahead }
    }

    /// Refuses options about one hold alone: a cached znode serves many holds.
    pub(in crate::locks) fn check_cached(&self, options: &AcquireOptions) -> Result<()> {
        let (name, rule) = if self.deaths.is_some() {
            ("unclean deaths", "one mark would stand for all holds of a lock that is cached")
        } else if options.hold_at_least.is_some() || options.hold_at_most.is_some() || !options.min_validity.is_zero() {
            ("options", "neither a validity nor a length of the hold for a lock that is cached")
        } else {
            return Ok(());
        };
        Err(Error::InvalidArgument { name, value: self.base_path().to_owned(), rule: rule.to_owned() })
    }

    /// Counts and traces one acquire as a whole: its parts are not counted. If a cached znode serves, that costs one
    /// atomic add. `nodes` takes the held znodes out of a result.
    pub(in crate::locks) fn observed<T>(
        &self,
        kind: &'static str,
        nodes: fn(&T) -> &[Arc<HeldNode>],
        acquire: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let named = self.named.as_ref().map(|named| (named, clock::now()));
        in_acquire_span(self.base_path(), kind, acquire, |acquired| {
            let acquires = &self.client.core.counters.acquires;
            let (counter, outcome) = match acquired {
                Ok(Some(held)) => {
                    let nodes = nodes(held);
                    nodes.iter().for_each(|node| node.trace(self.base_path()));
                    let is_cached = nodes.iter().any(|node| node.is_handed_out() && node.grant_number() > 1);
                    if is_cached { (&acquires.cached, "cached") } else { (&acquires.granted, "granted") }
                }
                Ok(None) | Err(Error::StillTaken { .. }) => (&acquires.timed_out, "timed_out"),
                Err(Error::Cancelled { .. }) => (&acquires.cancelled, "cancelled"),
                Err(_) => (&acquires.failed, "failed"),
            };
            counter.count();
            if let Some((named, since)) = named {
                named.ended(outcome, clock::since(since));
            }
            outcome
        })
    }
}

/// Returns a lock's directory as the server knows it.
pub(in crate::locks) fn directory_of(client: &CuratorFramework, base_path: &str) -> Result<ServerPath> {
    let directory = client.prefix.to_server(base_path)?;
    if base_path == "/" {
        let rule = "a lock needs a directory of its own, for instance /locks/name".into();
        return Err(Error::InvalidPath { path: base_path.into(), rule });
    }
    Ok(directory)
}

/// Reads the names of a znode's children: none if there is no such znode.
pub(in crate::locks) fn children_of(client: &CuratorFramework, base_path: &str) -> Result<Vec<String>> {
    match client.get_children().for_path(base_path) {
        Err(error) if error.is_no_node() => Ok(Vec::new()),
        result => result,
    }
}
