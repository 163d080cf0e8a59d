//! The creates of several contenders of one thread, sent as one transaction. Each contender receives its own answers as if
//! it had been alone.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use crate::{
    base::{
        clock,
        collections::HashSet,
        paths::{ServerPath, name_of},
    },
    error::{Error, Meaning, Result},
    framework::{
        cleanup::jobs::Job,
        client::{
            call::Call,
            core::{Core, CuratorFramework},
        },
        znodes::create::protection,
    },
    locks::{
        acquire::{internals::LockInternals, owners::Owners},
        holds::hold::Hold,
        options::acquire::{AcquireOptions, Wait},
        recipe::spec::{Leftover, Node},
    },
    proto::{request::Request, response::Response},
    session::{
        api::{Session, SessionError},
        wait::{
            deadline::WaitBound,
            pending::{Pending, Stopped, Watch, submit_together},
        },
    },
};

/// How many acquires of a client's multi locks go one by one after one has met others: what goes as one transaction then
/// has to be withdrawn, and those who came behind it have waited for nothing.
const ONE_BY_ONE: u32 = 8;

/// A lock whose creates can go as one transaction with those of others.
#[allow(unreachable_pub, reason = "a hidden method of a public trait names it")]
pub trait Batched {
    fn of_batch(&self) -> (&Arc<LockInternals>, &Arc<Owners>);

    /// Whether the calling thread's next acquire begins with a create and a list, and waits for nobody but those in front.
    fn is_plain(&self) -> bool;

    /// Acquires the lock by what the batch has sent for it, if there is anything.
    fn enter_batched(&self, options: &AcquireOptions, batch: &Batch) -> Result<Option<Vec<Hold>>>;
}

/// The contenders of one acquire whose creates went as one transaction, until each of them takes its own answers. Dropping
/// it withdraws the others.
#[allow(unreachable_pub, reason = "as above")]
pub struct Batch {
    shares: RefCell<VecDeque<Share>>,
    /// Whether locks may go together. `None`: two that could were not met yet.
    may_go: Cell<Option<bool>>,
    /// When the last transaction was sent, unless some of it were withdrawn.
    sent: Cell<Option<Instant>>,
    /// The locks whose directories were made for a transaction that failed for want of one. `None`: none has failed so.
    made: RefCell<Option<Vec<Arc<LockInternals>>>>,
    /// Lists that went as one request have come to nothing: those of the rest go one by one.
    lists_failed: Cell<bool>,
}

/// Replies that are on their way.
type Sent = Vec<(Pending, Option<Watch>)>;

/// One contender's part.
struct Share {
    lock: Arc<LockInternals>,
    session: Arc<dyn Session>,
    /// The connection over which the requests went, or an earlier one.
    connection: u64,
    unique: String,
    path: ServerPath,
    /// The replies to come: to the create and to the list. None once the contender has them.
    sent: Sent,
}

impl Batch {
    /// Makes the batch of one acquire. Where that looks before it writes, all its locks go one by one.
    pub(in crate::locks) fn new(options: &AcquireOptions) -> Batch {
        let looks_first = options.is_mere_try() || options.max_ahead.is_some();
        let may_go = Cell::new(looks_first.then_some(false));
        Batch {
            shares: RefCell::default(),
            may_go,
            sent: Cell::default(),
            made: RefCell::default(),
            lists_failed: Cell::default(),
        }
    }

    /// Whether locks of this client may go together: it does not look before it writes, and its last acquires met nobody.
    fn may_go(&self, core: &Core) -> bool {
        let met_nobody =
            || core.one_by_one.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err();
        let may_go = self.may_go.get().unwrap_or_else(met_nobody);
        self.may_go.set(Some(may_go));
        may_go && !core.config.refuse_mixed_kinds
    }

    /// Sends the creates of the first of these locks as one transaction, and their lists behind: up to the first lock that
    /// has to go by itself. Sends nothing if that leaves one, if there is no connection, or if some of the batch are left.
    ///
    /// Two znodes of one directory never go together, as their tokens would be the same.
    pub(in crate::locks) fn send<'a>(&self, locks: impl Iterator<Item = Option<&'a dyn Batched>>, wait: Wait<'_>) {
        if self.may_go.get() == Some(false) || !self.shares.borrow().is_empty() {
            return;
        }
        let (mut run, mut directories): (Vec<&Arc<LockInternals>>, HashSet<&ServerPath>) = Default::default();
        let plain = |lock: Option<&'a dyn Batched>| lock.filter(|lock| lock.is_plain()).map(|lock| lock.of_batch().0);
        for lock in locks.map_while(plain) {
            // One namespace: missing directories are made together, and below it.
            let is_of = |of: &CuratorFramework, client: &CuratorFramework| {
                Arc::ptr_eq(&of.core, &client.core) && of.prefix == client.prefix
            };
            let is_of_client = run.first().is_none_or(|first| is_of(first.client(), lock.client()));
            // A search for a znode of an earlier acquire there lists the directory by itself.
            let is_searched = lock.client().core.cleanup.is_searching(lock.directory());
            if !is_of_client || is_searched || !directories.insert(lock.directory()) {
                break;
            }
            run.push(lock);
        }
        // One alone needs no transaction.
        let [first, _, ..] = run[..] else { return };
        let core = &first.client().core;
        let Some(session) = core.current_session() else { return };
        let connection = session.connection();
        let is_refused = wait.options.check_validity(session.timeout()).is_err();
        if connection == 0 || is_refused || wait.bound.is_over().is_some() || !self.may_go(core) {
            return;
        }
        let at_a_time = if self.lists_failed.get() { 1 } else { core.reads_at_a_time(&session) };
        let (mut shares, mut creates) = (VecDeque::with_capacity(run.len()), Vec::with_capacity(run.len()));
        let mut lists: Vec<Vec<Request>> = Vec::new();
        for lock in run {
            let (unique, spec) = (protection(false), lock.spec(wait));
            let path = lock.child(&[&unique, &*spec.name].concat());
            let acl = lock.client().leaf_acl(&path);
            creates.push(Request::Create { path: path.as_str().to_owned(), data: spec.data, acl, mode: spec.mode });
            let list = Request::GetChildren { path: spec.directory, watch: false, with_stat: false };
            match lists.last_mut().filter(|group| group.len() < at_a_time) {
                Some(group) => group.push(list),
                None => lists.push(vec![list]),
            }
            let (lock, session) = (lock.clone(), session.clone());
            shares.push_back(Share { lock, session, connection, unique, path, sent: Vec::new() });
        }
        self.sent.set(Some(clock::now()));
        let (created, listed) = submit_together(&session, creates, lists, core.transaction_limit(&session));
        for (share, (create, list)) in shares.iter_mut().zip(created.into_iter().zip(listed)) {
            share.sent = vec![(create, None), (list, None)];
        }
        *self.shares.borrow_mut() = shares;
    }

    /// The prefix of the znode that was sent for this lock in this session, if any was.
    pub(super) fn unique(&self, lock: &LockInternals, session: Option<&Arc<dyn Session>>) -> Option<String> {
        let shares = self.shares.borrow();
        let is_its = |share: &&Share| {
            std::ptr::eq(&*share.lock, lock) && session.is_some_and(|of| Arc::ptr_eq(of, &share.session))
        };
        shares.iter().find(is_its).map(|share| share.unique.clone())
    }

    /// Takes the replies out that are on their way to the contender that asks for this create. The first one waits for the
    /// replies to all, so that its thread is woken once. Says whether the connection is still the one over which they came.
    pub(super) fn take(&self, create: &Request, call: &Call<'_>) -> Option<(Sent, bool)> {
        let mut shares = self.shares.borrow_mut();
        let index = shares.iter().position(|share| share.path.as_str() == create.path())?;
        if let Some(last) = shares.back_mut() {
            call.await_last(&mut last.sent);
        }
        let mut share = shares.remove(index)?;
        // The contender would take a list for one that came over its own connection.
        Some((std::mem::take(&mut share.sent), share.session.connection() == share.connection))
    }

    /// When the requests went that no contender has asked about again.
    pub(in crate::locks) fn sent(&self) -> Option<Instant> {
        self.sent.get()
    }

    /// Withdraws all that is left, as a contender in front is not granted by what was sent for it. Nobody waits while it stands
    /// in a later queue, or two that take the same locks, one of them one after the other, would wait for each other; and
    /// nobody is granted a lock by a list from before a wait.
    pub(super) fn withdraw(&self) {
        self.sent.set(None);
        drop(self.shares.take());
    }

    /// Withdraws all that is left, as this lock's transaction has failed for want of a directory, and makes the directories of all of
    /// them: the others go together again. The second time they go one by one, and the one that failed is named. Whether it has
    /// made that of this lock.
    pub(super) fn lacks_directories(&self, lock: &LockInternals, call: &Call<'_>) -> bool {
        let behind: Vec<_> = self.shares.borrow().iter().map(|share| share.lock.clone()).collect();
        self.withdraw();
        let Some(session) = call.session().ok().filter(|_| self.made.borrow().is_none()) else {
            self.failed(lock);
            return false;
        };
        let directories: Vec<_> = behind.iter().map(|lock| lock.directory()).chain([lock.directory()]).collect();
        // What is wrong with one of them shows where it is made by itself.
        let made = lock.client().make_directories(call, &session, &directories, true).unwrap_or_default();
        let is_made = |lock: &LockInternals| made.contains(lock.directory());
        *self.made.borrow_mut() = Some(behind.into_iter().filter(|lock| is_made(lock)).collect());
        is_made(lock)
    }

    /// Notes that a list has come to nothing, and what may be the reason.
    pub(super) fn lost_a_list(&self, lock: &LockInternals, failed: Option<&Error>) {
        self.lists_failed.set(true);
        if matches!(failed, Some(Error::FrameTooLarge { .. })) {
            lock.client().core.lists_are_large.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the directory was made for this lock, which cares for it from here on.
    pub(super) fn take_directory(&self, lock: &LockInternals) -> bool {
        let mut made = self.made.borrow_mut();
        let Some(made) = made.as_mut() else { return false };
        let index = made.iter().position(|of| std::ptr::eq(&**of, lock));
        index.map(|index| made.swap_remove(index)).is_some()
    }

    /// Notes that others stand in the way: the next acquires go one by one.
    pub(super) fn met_others(&self, lock: &LockInternals) {
        lock.client().core.one_by_one.store(ONE_BY_ONE, Ordering::Relaxed);
    }

    /// Ends the batch, as a transaction has failed as a whole: the locks go one by one, and the one that failed is named.
    pub(super) fn failed(&self, lock: &LockInternals) {
        self.may_go.set(Some(false));
        self.met_others(lock);
        self.withdraw();
    }
}

impl Drop for Batch {
    /// The servers remove a container that was used, and never one that was not.
    fn drop(&mut self) {
        for lock in self.made.take().into_iter().flatten() {
            lock.client().core.cleanup.add(Job::never_used(lock.directory().clone()));
        }
    }
}

impl Drop for Share {
    /// Takes a znode out of the queue whose contender has not begun.
    fn drop(&mut self) {
        let Some((create, _)) = std::mem::take(&mut self.sent).into_iter().next() else { return };
        let leftover = match create.wait(WaitBound::at(clock::now())) {
            Ok(Ok(Response::Created { path, czxid })) => {
                Leftover::Node(Node { name: name_of(&path).to_owned(), czxid })
            }
            // It was not carried out.
            Ok(Err(SessionError::Server(code)))
                if !matches!(code.meaning(), Meaning::Unknown | Meaning::SessionGone) =>
            {
                return;
            }
            Err(Stopped { sent: false, .. }) => return,
            Ok(_) | Err(_) => Leftover::Doubt(std::mem::take(&mut self.unique)),
        };
        self.lock.clean_up(&self.session, leftover);
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batch").field(&self.shares.borrow().len()).finish()
    }
}
