//! Several locks as one.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{AcquireOptions, InterProcessLock, InterProcessMutex};
use crate::{CuratorFramework, Error, Result};

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
/// # use curator_locks::{CuratorFramework, InterProcessMultiLock, Locker};
/// # fn example(client: &CuratorFramework) -> curator_locks::Result<()> {
/// let both = InterProcessMultiLock::new(client, ["/accounts/17", "/accounts/4"])?;
/// if both.acquire_timeout(Duration::from_secs(5))? {
///     both.release()?;
/// }
/// let locker = Locker::new(&both)?; // or as a value that releases them
/// locker.close()
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

    /// Acquires all locks, waiting as long as it takes.
    ///
    /// # Errors
    /// The error of the first lock that fails, as [`InterProcessLock::acquire`]; then none is held.
    pub fn acquire(&self) -> Result<()> {
        self.acquire_with(&AcquireOptions::new()).map(drop)
    }

    /// Acquires all locks unless the time is up first: then `false`, and none is held. Zero means not to wait for
    /// others.
    ///
    /// # Errors
    /// The error of the first lock that fails, as [`InterProcessLock::acquire_timeout`]; then none is held.
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        self.acquire_with(&AcquireOptions::new().timeout(timeout))
    }

    /// Acquires all locks with a timeout for all together, a cancel token, both or neither. `false`: the time was up
    /// first, and none is held.
    ///
    /// # Errors
    /// The error of the first lock that fails, as [`InterProcessLock::acquire_with`]; then none is held.
    pub fn acquire_with(&self, options: &AcquireOptions) -> Result<bool> {
        // Without one if the time is longer than this clock runs.
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.acquire_each(|lock| lock.acquire_with(&AcquireOptions { timeout: left(), cancel: options.cancel.clone() }))
    }

    /// Releases all locks, the last one first, all of them even if one fails.
    ///
    /// # Errors
    /// The error of the lock that failed, as [`InterProcessLock::release`]; [`Error::Several`] with all of them if it was
    /// more than one. If the caller owns none of them, or has lost all of them, the first [`Error::NotOwner`] or
    /// [`Error::LockLost`] alone, as from a single lock.
    pub fn release(&self) -> Result<()> {
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

    /// Whether all locks are held through this object.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.locks.iter().all(|lock| lock.is_acquired_in_this_process())
    }

    fn acquire_each(&self, acquire: impl Fn(&dyn InterProcessLock) -> Result<bool>) -> Result<bool> {
        let mut taken = Taken(Vec::with_capacity(self.locks.len()));
        for (index, lock) in self.locks.iter().enumerate() {
            match acquire(&**lock) {
                Ok(true) => taken.0.push((index, &**lock)),
                Ok(false) => {
                    log::debug!("the time was up at {}", name_of(&**lock, index));
                    return Ok(false);
                }
                Err(error) => return Err(naming(&**lock, index, error)),
            }
        }
        taken.0.clear();
        Ok(true)
    }
}

/// The locks acquired so far. Dropping it releases them, the last one first; after a panic too.
struct Taken<'a>(Vec<(usize, &'a dyn InterProcessLock)>);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (index, lock) in self.0.drain(..).rev() {
            if let Err(error) = lock.release() {
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

impl InterProcessLock for InterProcessMultiLock {
    fn acquire(&self) -> Result<()> {
        InterProcessMultiLock::acquire(self)
    }

    fn acquire_timeout(&self, timeout: Duration) -> Result<bool> {
        InterProcessMultiLock::acquire_timeout(self, timeout)
    }

    fn acquire_with(&self, options: &AcquireOptions) -> Result<bool> {
        InterProcessMultiLock::acquire_with(self, options)
    }

    fn release(&self) -> Result<()> {
        InterProcessMultiLock::release(self)
    }

    fn is_acquired_in_this_process(&self) -> bool {
        InterProcessMultiLock::is_acquired_in_this_process(self)
    }
}

impl fmt::Debug for InterProcessMultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.locks.iter().enumerate().map(|(index, lock)| name_of(&**lock, index));
        f.debug_tuple("InterProcessMultiLock").field(&names.collect::<Vec<_>>()).finish()
    }
}
