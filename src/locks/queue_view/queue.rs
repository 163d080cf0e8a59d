//! The holders and waiters of a lock, of whatever kind and whichever client.

use std::sync::Arc;

use crate::{
    base::paths::{ServerPath, name_of},
    error::{Error, Result},
    framework::{
        client::{call::Call, core::CuratorFramework},
        held::revocation::{request_in, without_request},
    },
    locks::{
        acquire::{
            internals::{children_of, directory_of},
            kinds::{SEMAPHORE_LEASES, SEMAPHORE_LOCKS, UNFAIR_HOLDER, is_lease},
        },
        holds::fencing::token::FencingToken,
        queue_view::{
            kinds::{EntryMode, EntryState, LockKind, NameStyle, TenureState},
            names::{self, Named, is_kazoo_lease},
        },
        recipe::{driver::sorted_contenders, znode_name::ZNodeName},
    },
    proto::{request::Request, response::Response},
    session::{api::Session, wait::deadline::WaitBound},
};

/// A lock as the servers see it: its kind, its holders and its waiters, for an operator's view.
///
/// It tells the kind from the names alone. So it knows the locks of this crate, of Curator, of kazoo and of ZooKeeper's
/// own recipe, but names do not tell:
/// - a [`Mutex`](LockKind::Mutex) from a `LeaderSelector`, kazoo's `Election`, a lone `WriteLock` of kazoo's and
///   Curator's deprecated `InterProcessSemaphore`;
/// - the number of leases of a [`Semaphore`](LockKind::Semaphore), except kazoo's;
/// - the waiters of an [`Unfair`](LockKind::Unfair) lock, which have no znodes;
/// - whether a lock that another client [keeps](crate::Caching) between holds is in use, which is then
///   [`HeldOrIdle`](TenureState::HeldOrIdle), and how many of its threads wait: they have no znodes. For tenures of its
///   own client it knows both.
///
/// ```
/// # use curator_locks::{CuratorFramework, InterProcessSemaphoreV2, RetryOneTime};
/// use curator_locks::{LockKind, LockQueue};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # #[cfg(feature = "testing")]
/// # let server = curator_locks::testing::TestingServer::start()?;
/// # #[cfg(feature = "testing")]
/// # let servers = server.connect_string();
/// # #[cfg(not(feature = "testing"))]
/// # let servers = "zk1:2181";
/// # if cfg!(not(feature = "testing")) { return Ok(()) }
/// # let client = CuratorFramework::builder()
/// #     .connect_string(servers)
/// #     .retry_policy(RetryOneTime::new(std::time::Duration::from_millis(100)))
/// #     .build()?;
/// # client.start()?;
/// let downloads = InterProcessSemaphoreV2::new(&client, "/downloads", 2)?;
/// let _lease = downloads.acquire()?;
///
/// let queue = LockQueue::inspect(&client, "/downloads")?;
/// assert_eq!(queue.kind, LockKind::Semaphore);
/// println!("{queue}"); // a table of 80 columns, as `zklock ls` prints it
/// for entry in &queue.entries {
///     println!("{} {} of session {:#x}", entry.state, entry.path, entry.session);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockQueue {
    /// The lock's path.
    pub path: String,
    /// The kind of lock.
    pub kind: LockKind,
    /// The holders first, then the waiters in the order in which they will hold.
    pub entries: Vec<QueueEntry>,
    /// How many may hold at a time, where the znodes say so: one, or the leases of kazoo's semaphore. `None`: any number of
    /// readers, or a semaphore whose limit only its users know.
    pub leases: Option<u64>,
    /// The names of children that are no contenders. Curator counts them all the same.
    pub others: Vec<String>,
    /// Warnings, in words: names that do not go together.
    pub notes: Vec<String>,
    /// How many threads of this client wait in lock objects [with caching](crate::Caching), behind one that has the
    /// lock or queues for it. They have no znodes, so they are no entries, and those of other clients cannot be seen.
    pub local_waiters: usize,
    /// Locks of other kinds at the same path, each with a queue of its own: they and this one do not exclude each other. If
    /// any of all is held, this one is. Their `others`, `local_waiters` and `beside` are empty: this one has them all.
    pub beside: Vec<LockQueue>,
}

/// One contender of a [`LockQueue`].
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{EntryMode, InterProcessMutex, LockQueue, NameStyle, QueueEntry};
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?.with_lock_data("host-17");
/// let held = mutex.lock()?;
/// let queue = LockQueue::inspect(&client, "/locks/order-42")?;
/// assert!(queue.is_held() && queue.shows_waiters() && queue.waiters().count() == 0);
/// let holder: &QueueEntry = queue.holders().next().ok_or("nobody holds it")?;
/// assert!(holder.holds());
/// assert_eq!((holder.mode, holder.names, holder.path.as_str()), (EntryMode::Exclusive, NameStyle::Curator, held.path()));
/// assert_eq!((holder.fencing_token, holder.data.as_deref()), (held.fencing_token(), Some(b"host-17".as_slice())));
/// held.release()?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct QueueEntry {
    /// Whether it holds or waits.
    pub state: EntryState,
    /// The mode in which it holds or wants the lock.
    pub mode: EntryMode,
    /// The library or recipe whose names it uses.
    pub names: NameStyle,
    /// The path of its znode, as the client sees it: without the namespace and the chroot. For a waiter of a semaphore: the
    /// path of its place in the queue.
    pub path: String,
    /// The session it belongs to; 0 if its znode is not ephemeral, so that it stays until somebody deletes it.
    pub session: i64,
    /// The czxid of its znode: its fencing token.
    pub fencing_token: FencingToken,
    /// Since when it has been queueing or holding: milliseconds since the epoch, by the server's clock. For a tenure:
    /// since when its znode has been there, whichever threads have held by it.
    pub since_millis: i64,
    /// The data of its znode, without a [request](crate::Revoker::request) to give the lock back; `__REVOKE__` after a bare
    /// request, which replaces them; `None` if this client may not read it.
    pub data: Option<Vec<u8>>,
    /// Whether somebody has [asked](crate::Revoker) for it back. Whether its holder listens is not to be seen.
    pub is_asked_back: bool,
}

impl LockQueue {
    /// Looks at the lock in the directory `path`: two round trips, one for the names and one for all the rest; more where
    /// locks of several kinds are [beside](LockQueue::beside) each other, or znodes that this client may not read. It looks into the lock's own directories and no deeper. A directory
    /// that does not exist is [`Unused`](LockKind::Unused).
    ///
    /// While the connection is suspended or lost the call is tried again as the retry policy says.
    ///
    /// For an operator's view, and not for decisions: the lock may have changed by the time the answer arrives.
    ///
    /// # Errors
    /// [`Error::InvalidPath`], and as every operation on a znode.
    pub fn inspect(client: &CuratorFramework, path: &str) -> Result<LockQueue> {
        let directory = directory_of(client, path)?;
        let call = client.call("inspect", path, WaitBound::default());
        let mut queue = call.retry(|session| QueueScan { client, call: &call, session }.directory(path, &directory))?;
        queue.add_own_usage(client, &directory);
        Ok(queue)
    }

    /// The contenders in the directory itself, in the order of their numbers.
    pub(in crate::locks) fn contenders(client: &CuratorFramework, path: &str) -> Result<Vec<QueueEntry>> {
        let directory = directory_of(client, path)?;
        let mut children = children_of(client, path)?;
        children.retain(|name| names::is_contender(name));
        let call = client.call("participants", path, WaitBound::default());
        let scan = |session: &_| QueueScan { client, call: &call, session }.sequence(path, &directory, &children);
        Ok(call.retry(scan)?.entries)
    }

    pub(super) fn new(path: &str, kind: LockKind) -> LockQueue {
        LockQueue {
            path: path.to_owned(),
            kind,
            entries: Vec::new(),
            leases: None,
            others: Vec::new(),
            notes: Vec::new(),
            local_waiters: 0,
            beside: Vec::new(),
        }
    }

    /// The first lock that is held, or else the first one, with all others beside it.
    fn of_kinds(path: &str, mut kinds: Vec<LockQueue>) -> LockQueue {
        if kinds.is_empty() {
            return LockQueue::new(path, LockKind::Unused);
        }
        let first = kinds.iter().position(LockQueue::is_held).unwrap_or_default();
        let mut queue = kinds.remove(first);
        if !kinds.is_empty() {
            queue.notes.push("locks of several kinds are used at this path, and do not exclude each other".to_owned());
        }
        LockQueue { beside: kinds, ..queue }
    }

    /// Adds what only this client knows: how it uses its cached znodes there, and how many threads wait without one.
    fn add_own_usage(&mut self, client: &CuratorFramework, directory: &ServerPath) {
        for (znodes, waiting) in client.core.holds.of(directory).caches().iter().map(|cache| cache.usage()) {
            self.local_waiters += waiting;
            for (node, threads) in znodes {
                let path = client.prefix.to_client(node.as_str());
                let mut entries =
                    self.entries.iter_mut().chain(self.beside.iter_mut().flat_map(|kind| &mut kind.entries));
                if let Some(entry) = entries.find(|entry| entry.holds() && entry.path == path) {
                    let tenure = if threads == 0 { TenureState::Idle } else { TenureState::Held(threads) };
                    entry.state = EntryState::Cached(tenure);
                }
            }
        }
    }

    /// The entries that have the lock: they hold it, or [keep](EntryState::Cached) it.
    pub fn holders(&self) -> impl Iterator<Item = &QueueEntry> {
        self.entries.iter().filter(|entry| entry.holds())
    }

    /// The entries that wait, the next one first.
    pub fn waiters(&self) -> impl Iterator<Item = &QueueEntry> {
        self.entries.iter().filter(|entry| !entry.holds())
    }

    /// Whether somebody has the lock, or a lease: holds it, or [keeps](EntryState::Cached) it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.entries.iter().any(QueueEntry::holds)
    }

    /// Whether waiters are among the entries: not for a kind whose waiters have no znodes.
    #[must_use]
    pub fn shows_waiters(&self) -> bool {
        self.kind != LockKind::Unfair
    }
}

impl QueueEntry {
    /// Whether it has the lock: holds it, or [keeps](EntryState::Cached) it.
    #[must_use]
    pub fn holds(&self) -> bool {
        !matches!(self.state, EntryState::Waits(_))
    }
}

/// The names in a directory; `None`: there is no such directory, or it may not be looked into.
type Names = Option<Vec<String>>;

struct QueueScan<'a> {
    client: &'a CuratorFramework,
    call: &'a Call<'a>,
    session: &'a Arc<dyn Session>,
}

impl QueueScan<'_> {
    /// Each kind of lock that is found there is a queue of its own.
    fn directory(&self, path: &str, directory: &ServerPath) -> Result<LockQueue> {
        let beside = ServerPath::from_server(format!("{}-__lock__", directory.as_str()));
        let (locks, leases) = (directory.join(SEMAPHORE_LOCKS), directory.join(SEMAPHORE_LEASES));
        let sole = directory.join(UNFAIR_HOLDER);
        let ([children, queued, leased, kazoo_queued, holder], data) =
            self.list([directory, &locks, &leases, &beside, &sole])?;
        let (contenders, others): (Vec<String>, Vec<String>) =
            children.unwrap_or_default().into_iter().partition(|name| names::is_contender(name));
        let (kazoo_leases, mut others): (Vec<String>, Vec<String>) =
            others.into_iter().partition(|name| is_kazoo_lease(name));
        let mut queues = Vec::new();
        if !contenders.is_empty() {
            queues.push(self.sequence(path, directory, &contenders)?);
        }
        if !kazoo_leases.is_empty() {
            let leases = data.and_then(|data| String::from_utf8(data).ok()?.parse().ok());
            let queued = kazoo_queued.unwrap_or_default();
            let queue = self.semaphore(path, (&beside, &queued), (directory, &kazoo_leases))?;
            queues.push(LockQueue { leases, ..queue });
        }
        if let Some(holder) = &holder {
            others.retain(|name| name != "lock");
            if !holder.is_empty() {
                queues.push(self.unfair(path, &sole, holder)?);
            }
        }
        let mut leased_names = leased.as_deref().map(sorted_contenders).unwrap_or_default();
        // Contenders of another lock, whose path ends in `leases`.
        let is_others = !leased_names.is_empty() && !leased_names.iter().any(|name| is_lease(name));
        leased_names.retain(|name| is_lease(name));
        let queued_names = queued.as_deref().map(sorted_contenders).unwrap_or_default();
        // Beside another kind, a directory may be called `locks` or `leases` and have nothing to do with a semaphore.
        let is_semaphore = match queues.is_empty() {
            true => queued.is_some() || leased.is_some(),
            false => !leased_names.is_empty() || leased.is_some() && !queued_names.is_empty(),
        };
        if is_semaphore && !is_others {
            others.retain(|name| name != SEMAPHORE_LOCKS && name != SEMAPHORE_LEASES);
            let queued = queued.unwrap_or_default();
            queues.push(self.semaphore(path, (&locks, &queued), (&leases, &leased_names))?);
        }
        // Beside another kind, a lock without a holder means nothing.
        if holder.is_some() && queues.is_empty() {
            queues.push(LockQueue { leases: Some(1), ..LockQueue::new(path, LockKind::Unfair) });
        }
        others.sort_unstable();
        Ok(LockQueue { others, ..LockQueue::of_kinds(path, queues) })
    }

    /// Lists the names in each of these directories, and reads the data of the first one.
    fn list(&self, directories: [&ServerPath; 5]) -> Result<([Names; 5], Option<Vec<u8>>)> {
        let [lock, ..] = directories;
        let children =
            |path: &ServerPath| Request::GetChildren { path: path.as_str().to_owned(), watch: false, with_stat: false };
        let requests = directories.into_iter().map(children);
        let requests = requests.chain([Request::GetData { path: lock.as_str().to_owned(), watch: false }]);
        let (mut names, mut data) = ([const { None }; 5], None);
        for (index, reply) in self.call.ask_all(self.session, requests).into_iter().enumerate() {
            match (reply, names.get_mut(index)) {
                (Ok(Response::Children { names: found, .. }), Some(names)) => *names = Some(found),
                (Ok(Response::Data { data: found, .. }), None) => data = Some(found),
                (Ok(other), _) => return Err(self.call.unexpected(&other)),
                (Err(error), _) if error.is_no_node() => {}
                // The other directories matter only where this client may look.
                (Err(error), _) if index > 0 && is_refused(&error) => {}
                (Err(error), _) => return Err(error),
            }
        }
        Ok((names, data))
    }

    /// Reads these znodes, of contenders in this state; those that have gone in between are left out.
    fn read(&self, nodes: impl IntoIterator<Item = (ServerPath, EntryState)>) -> Result<Vec<QueueEntry>> {
        let (nodes, states): (Vec<ServerPath>, Vec<EntryState>) = nodes.into_iter().unzip();
        let reads = nodes.iter().map(|node| Request::GetData { path: node.as_str().to_owned(), watch: false });
        let mut replies = self.call.ask_all(self.session, reads);
        let is_unreadable = |reply: &Result<Response>| reply.as_ref().is_err_and(is_refused);
        let unreadable = nodes.iter().zip(&replies).filter(|(_, reply)| is_unreadable(reply)).map(|(node, _)| node);
        // No permission is needed to ask whether a znode exists.
        let asks = unreadable.map(|node| Request::Exists { path: node.as_str().to_owned(), watch: false });
        let stats = self.call.ask_all(self.session, asks);
        for (reply, stat) in replies.iter_mut().filter(|reply| is_unreadable(reply)).zip(stats) {
            *reply = stat;
        }
        let entries = nodes.into_iter().zip(states).zip(replies).filter_map(|((node, state), reply)| {
            let (stat, data) = match reply {
                Ok(Response::Data { data, stat }) => (stat, Some(data)),
                Ok(Response::Stat(stat)) => (stat, None),
                Ok(other) => return Some(Err(self.call.unexpected(&other))),
                Err(error) if error.is_no_node() => return None,
                Err(error) => return Some(Err(error)),
            };
            let Named { mode, style, .. } = Named::of(node.name());
            Some(Ok(QueueEntry {
                state,
                mode,
                names: style,
                path: self.client.prefix.to_client(node.as_str()),
                session: stat.ephemeral_owner,
                fencing_token: FencingToken::from_value(stat.czxid),
                since_millis: stat.ctime,
                is_asked_back: data.as_ref().is_some_and(|data| request_in(data).is_some()),
                data: data.map(|data| without_request(&data).to_vec()),
            }))
        });
        entries.collect()
    }

    /// Contenders in one directory, in the order of their numbers.
    fn sequence(&self, path: &str, directory: &ServerPath, children: &[String]) -> Result<LockQueue> {
        let named: Vec<Named> = children.iter().map(|name| Named::of(name)).collect();
        let mut queue = LockQueue::new(path, names::kind_of(&named));
        queue.notes = names::notes_on(queue.kind, &named);
        queue.leases = (queue.kind != LockKind::ReadWrite).then_some(1);
        let mut sorted = sorted_contenders(children);
        if queue.kind == LockKind::WriteLock {
            sorted.sort_by_cached_key(|name| ZNodeName::new(*name));
        }
        queue.entries = self.read(sorted.into_iter().map(|name| (directory.join(name), EntryState::Holds)))?;
        let named: Vec<Named> = queue.entries.iter().map(|entry| Named::of(name_of(&entry.path))).collect();
        for (entry, state) in queue.entries.iter_mut().zip(names::states(&named)) {
            entry.state = state;
        }
        // A reader that a downgrade left may hold behind writers that wait.
        queue.entries.sort_by_key(|entry| !entry.holds());
        Ok(queue)
    }

    /// The leases, and the queue of the waiters. The first waiter may have made its lease's znode already.
    fn semaphore(
        &self,
        path: &str,
        (locks, queued): (&ServerPath, &[String]),
        (leases, leased): (&ServerPath, &[impl AsRef<str>]),
    ) -> Result<LockQueue> {
        let mut queue = LockQueue::new(path, LockKind::Semaphore);
        let waiters = sorted_contenders(queued).into_iter().map(|name| (locks.join(name), EntryState::Waits(0)));
        let holders = leased.iter().map(|name| (leases.join(name.as_ref()), EntryState::Holds));
        let (mut holders, mut waiters): (Vec<QueueEntry>, Vec<QueueEntry>) =
            self.read(waiters.chain(holders))?.into_iter().partition(QueueEntry::holds);
        // The names of kazoo's leases have no order.
        holders.sort_by_key(|holder| holder.fencing_token);
        if let Some(first) = waiters.first() {
            holders.retain(|held| held.session != first.session || held.fencing_token <= first.fencing_token);
        }
        for (position, waiter) in waiters.iter_mut().enumerate() {
            waiter.state = EntryState::Waits(position);
        }
        holders.append(&mut waiters);
        holders.iter_mut().for_each(|entry| entry.mode = EntryMode::Lease);
        queue.entries = holders;
        Ok(queue)
    }

    /// Any znode in its directory keeps all other contenders out.
    fn unfair(&self, path: &str, directory: &ServerPath, names: &[String]) -> Result<LockQueue> {
        let mut queue = LockQueue { leases: Some(1), ..LockQueue::new(path, LockKind::Unfair) };
        queue.entries = self.read(names.iter().map(|name| (directory.join(name), EntryState::Holds)))?;
        for entry in &mut queue.entries {
            (entry.mode, entry.names) = (EntryMode::Exclusive, NameStyle::Unfair);
        }
        Ok(queue)
    }
}

fn is_refused(error: &Error) -> bool {
    error.code() == Some(crate::proto::types::ErrorCode::NoAuth)
}
