//! Several locks as one.

use std::{fmt, marker::PhantomData, sync::Arc, time::Instant};

use super::{AcquireOptions, Hold, InterProcessLock, InterProcessMutex, methods::lock_methods};
use crate::{CuratorFramework, Error, Result, panics::caught};

/// Several locks as one: all of them or none. Java: `InterProcessMultiLock`.
///
/// Made from paths, it acquires them in sorted order, whatever the order given, so that two multi locks over overlapping
/// paths cannot wait for each other. Made from locks, it keeps the order given: then all who use overlapping sets have to
/// agree on one.
///
/// One deadline bounds all. If one lock fails, those acquired before it are released again, the last one first. It is
/// re-entrant where its locks are. What happens when the connection goes is up to its locks.
///
/// ```no_run
/// # use std::time::Duration;
/// # use curator_locks::{CuratorFramework, InterProcessMultiLock};
/// # fn example(client: &CuratorFramework) -> curator_locks::Result<()> {
/// let both = InterProcessMultiLock::new(client, ["/accounts/17", "/accounts/4"])?;
/// if both.acquire_timeout(Duration::from_secs(5))? {
///     both.release()?;
/// }
/// let held = both.lock()?; // or as a guard
/// held.release()
/// # }
/// ```
pub struct InterProcessMultiLock {
    /// In the order in which they are acquired.
    locks: Vec<Arc<dyn InterProcessLock>>,
}

impl InterProcessMultiLock {
    /// One [`InterProcessMutex`] for each path, in sorted order. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for a path that is no path, or `/`; [`Error::InvalidArgument`] for a path given twice, or
    /// for none at all.
    pub fn new<P: AsRef<str>>(
        client: &CuratorFramework,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<InterProcessMultiLock> {
        let paths: Vec<P> = paths.into_iter().collect();
        let mut paths: Vec<&str> = paths.iter().map(AsRef::as_ref).collect();
        paths.sort_unstable();
        if let Some(path) = paths.windows(2).find_map(|pair| pair.first().filter(|path| pair.last() == Some(path))) {
            let rule = "each path once: a lock acquired twice looks like two locks".into();
            return Err(Error::InvalidArgument { name: "paths", value: (*path).to_owned(), rule });
        }
        let mutex = |path: &str| InterProcessMutex::new(client, path).map(|mutex| Arc::new(mutex) as _);
        InterProcessMultiLock::from_locks(paths.into_iter().map(mutex).collect::<Result<Vec<_>>>()?)
    }

    /// These locks, in this order. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there are none.
    pub fn from_locks(locks: impl IntoIterator<Item = Arc<dyn InterProcessLock>>) -> Result<InterProcessMultiLock> {
        let locks: Vec<_> = locks.into_iter().collect();
        if locks.is_empty() {
            let rule = "at least one lock".into();
            return Err(Error::InvalidArgument { name: "locks", value: "none".into(), rule });
        }
        Ok(InterProcessMultiLock { locks })
    }

    fn enter(&self, options: &AcquireOptions) -> Result<Option<Taken<'_>>> {
        // None: no timeout, or one that is longer than this clock runs.
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut taken = Taken(Vec::with_capacity(self.locks.len()));
        for (index, lock) in self.locks.iter().enumerate() {
            let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match lock.acquire_with(&AcquireOptions { timeout, ..options.clone() }) {
                Ok(true) => taken.0.push((index, &**lock)),
                Ok(false) => {
                    log::debug!("the time was up at {}", name_of(&**lock, index));
                    return Ok(None);
                }
                Err(error) => return Err(naming(&**lock, index, error)),
            }
        }
        Ok(Some(taken))
    }

    fn keep(&self, mut taken: Taken<'_>) {
        taken.0.clear();
    }

    fn guard(&self, taken: Taken<'_>) -> MultiLockGuard<'_> {
        self.keep(taken);
        MultiLockGuard { locks: self, holds: self.known_holds(), is_open: true, not_send: PhantomData }
    }

    /// Releases all locks, the last one first, all of them even if one fails. The error is that of the lock that failed,
    /// or [`Error::Several`]; if the caller owns none of them, or has lost all of them, the first [`Error::NotOwner`] or
    /// [`Error::LockLost`] alone, as from a single lock.
    fn give_back(&self) -> Result<()> {
        let mut errors: Vec<Error> = Vec::new();
        for (index, lock) in self.locks.iter().enumerate().rev() {
            if let Err(error) = lock.release() {
                log::debug!("releasing {}: {error}", name_of(&**lock, index));
                errors.push(naming(&**lock, index, error));
            }
        }
        let all_are = |kind: fn(&Error) -> bool| errors.len() == self.locks.len() && errors.iter().all(kind);
        let is_one = all_are(|error| matches!(error, Error::NotOwner { .. }))
            || all_are(|error| matches!(error, Error::LockLost { .. }));
        let mut errors = errors.into_iter();
        match errors.next() {
            None => Ok(()),
            Some(first) if is_one || errors.len() == 0 => Err(first),
            Some(first) => Err(Error::Several { first: Box::new(first), others: errors.collect() }),
        }
    }

    fn is_acquired(&self) -> bool {
        self.locks.iter().all(|lock| lock.is_acquired_in_this_process())
    }

    /// Several paths are no path.
    #[expect(clippy::unused_self, reason = "what each lock has")]
    fn base_path(&self) -> Option<&str> {
        None
    }

    fn known_holds(&self) -> Vec<Hold> {
        self.locks.iter().flat_map(|lock| lock.holds()).collect()
    }
}

lock_methods! { InterProcessMultiLock, MultiLockGuard,
    /// Acquires all locks, waiting as long as it takes.
    ///
    /// # Errors
    /// The error of the first lock that fails, as [`InterProcessLock::acquire`], naming its path; then none is held.
    /// [`release`](Self::release) releases all, the last one first, even if one fails: then it is that lock's error, or
    /// [`Error::Several`].
}

/// The locks acquired so far. Dropping it releases them, the last one first; after a panic too.
struct Taken<'a>(Vec<(usize, &'a dyn InterProcessLock)>);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (index, lock) in self.0.drain(..).rev() {
            // Not to keep those after it from being released.
            if let Some(Err(error)) = caught("releasing a lock", || lock.release()) {
                log::warn!("releasing {}: {error}", name_of(lock, index));
            }
        }
    }
}

fn name_of(lock: &dyn InterProcessLock, index: usize) -> String {
    lock.path().map_or_else(|| format!("lock {index} of a multi lock"), str::to_owned)
}

/// Adds the lock's name to an error that has none.
fn naming(lock: &dyn InterProcessLock, index: usize, error: Error) -> Error {
    match error {
        Error::Timeout { what, after } => Error::Timeout { what: format!("{}: {what}", name_of(lock, index)), after },
        Error::Protocol(what) => Error::Protocol(format!("{}: {what}", name_of(lock, index))),
        Error::Io { what, source } => Error::Io { what: format!("{}: {what}", name_of(lock, index)), source },
        // The others name the path, or are about the client and not about this lock.
        other => other,
    }
}

impl fmt::Debug for InterProcessMultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.locks.iter().enumerate().map(|(index, lock)| name_of(&**lock, index));
        f.debug_tuple("InterProcessMultiLock").field(&names.collect::<Vec<_>>()).finish()
    }
}

/// All locks of an [`InterProcessMultiLock`], held: dropping it releases them, the last one first, and blocks for that as
/// [`release`](MultiLockGuard::release) does.
///
/// Its holder is told what the locks tell: it is valid as long as all of them are.
///
/// ```no_run
/// # use std::time::{Duration, Instant};
/// # use curator_locks::InterProcessMultiLock;
/// # fn example(both: &InterProcessMultiLock) -> curator_locks::Result<()> {
/// let held = both.lock()?;
/// for hold in held.holds() {
///     println!("{} with token {}", hold.path(), hold.fencing_token());
/// }
/// if held.is_valid() && held.valid_until() > Some(Instant::now() + Duration::from_secs(1)) {
///     // time enough for a second of work
/// }
/// held.release()
/// # }
/// ```
#[must_use = "the locks are released at once if the guard is not kept"]
pub struct MultiLockGuard<'a> {
    locks: &'a InterProcessMultiLock,
    holds: Vec<Hold>,
    is_open: bool,
    /// The locks may belong to the thread that acquired them.
    not_send: PhantomData<*const ()>,
}

impl MultiLockGuard<'_> {
    /// Releases all locks and reports how that went: one round trip for each, the last one first. While the connection is
    /// gone, at most the session timeout for each.
    ///
    /// # Errors
    /// As [`InterProcessMultiLock::release`].
    pub fn release(mut self) -> Result<()> {
        self.is_open = false;
        self.locks.give_back()
    }

    /// What is known about each lock, in the order of acquiring. Locks of other kinds than this crate's tell nothing.
    #[must_use]
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Whether all locks that tell are held for certain right now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.holds.iter().all(Hold::is_valid)
    }

    /// Whether one of the locks is gone for certain.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.holds.iter().any(Hold::is_lost)
    }

    /// Up to here none of the locks can have been given to anybody else; see [`Hold::valid_until`]. `None` if no lock tells.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.holds.iter().map(Hold::valid_until).min()
    }
}

impl Drop for MultiLockGuard<'_> {
    fn drop(&mut self) {
        if self.is_open
            && let Some(Err(error)) = caught("releasing a multi lock on drop", || self.locks.give_back())
        {
            log::warn!("releasing a multi lock on drop: {error}");
        }
    }
}

impl fmt::Debug for MultiLockGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLockGuard").field(&self.holds).finish()
    }
}
