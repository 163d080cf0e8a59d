//! The storage's side of fencing.

use std::{error, fmt};

use crate::{base::sync::Mutex, locks::holds::fencing::token::FencingToken};

/// Refuses holders whose lock has passed on: the part of fencing that belongs to the storage.
///
/// A checker remembers the newest token of an exclusive lock that it was shown, and refuses older ones. The protected
/// storage has one checker, and asks it in the same critical section as it reads or writes; with the newest token kept
/// beside the data it survives a restart ([`resume`](FencingChecker::resume)). If the storage can compare by itself, a
/// column and a condition do the same: `UPDATE ... WHERE newest <= $token`, with [16 bytes](FencingToken::to_bytes)
/// where locks are [cached](crate::Caching).
///
/// | token of | ask | why |
/// |---|---|---|
/// | a mutex, a write lock, a semaphore mutex, the one lease of a semaphore | [`check`](FencingChecker::check) | a later holder comes after it |
/// | a read lock | [`check_shared`](FencingChecker::check_shared) | it is valid beside younger readers, and over when a younger writer has written |
/// | a lease of several | neither | an old lease may be valid beside any number of younger ones, so no token tells that it is over. Only its own znode does: write to ZooKeeper with [`Hold::guard_transaction`](crate::Hold::guard_transaction), or give the protected data a lock of its own |
///
/// This checker is for one process. [`FileFencingChecker`](crate::FileFencingChecker) is for several processes of one
/// machine, and [`ZooKeeperFencingChecker`](crate::ZooKeeperFencingChecker) for several machines; both follow the same
/// rules.
///
/// ```
/// use curator_locks::{FencingChecker, FencingToken};
///
/// let checker = FencingChecker::new();
/// let (early, late) = (FencingToken::from_value(7), FencingToken::from_value(12));
/// assert!(checker.check(early).is_ok());
/// assert!(checker.check(late).is_ok()); // the lock has passed on
/// assert!(checker.check(late).is_ok()); // as often as its holder likes
/// assert_eq!(checker.check(early).unwrap_err().newest, late);
///
/// let [reader, younger_reader, writer] = [15, 16, 20].map(FencingToken::from_value);
/// assert!(checker.check_shared(younger_reader).is_ok());
/// assert!(checker.check_shared(reader).is_ok()); // readers hold together
/// assert!(checker.check(writer).is_ok()); // has waited for both
/// assert!(checker.check_shared(reader).is_err());
/// ```
#[derive(Debug, Default)]
pub struct FencingChecker {
    newest: Mutex<Option<FencingToken>>,
}

/// A token that is older than one that was shown before: its holder has lost the lock.
///
/// ```
/// use curator_locks::{FencingChecker, FencingToken, StaleToken};
///
/// let checker = FencingChecker::resume(FencingToken::from_value(12)); // read beside the data, after a restart
/// let stale: StaleToken = checker.check(FencingToken::from_value(7)).expect_err("the lock has passed on");
/// assert_eq!((stale.token.value(), stale.newest.value()), (7, 12));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleToken {
    /// The token that was refused.
    pub token: FencingToken,
    /// The newest one.
    pub newest: FencingToken,
}

impl FencingChecker {
    /// A checker that has seen no token yet.
    #[must_use]
    pub fn new() -> FencingChecker {
        FencingChecker::default()
    }

    /// A checker that goes on from the newest token seen before a restart.
    #[must_use]
    pub fn resume(newest: FencingToken) -> FencingChecker {
        FencingChecker { newest: Mutex::new(Some(newest)) }
    }

    /// Records the token of an exclusive lock. Waits for nothing but another check.
    ///
    /// # Errors
    /// [`StaleToken`] if a newer one was shown before: here, not to [`check_shared`](FencingChecker::check_shared).
    pub fn check(&self, token: FencingToken) -> Result<(), StaleToken> {
        let mut newest = self.newest.lock();
        not_stale(token, *newest)?;
        *newest = Some(token);
        Ok(())
    }

    /// Compares the token of a read lock with the newest one of a writer, and records nothing: so the storage has
    /// nothing to write for a read, and a writer that has lost its lock to readers is kept out by the next writer only.
    /// A reader that was a writer before (a downgrade) shows the writer's token, and passes. Does not block.
    ///
    /// # Errors
    /// [`StaleToken`] if a younger writer has shown its token before.
    pub fn check_shared(&self, token: FencingToken) -> Result<(), StaleToken> {
        not_stale(token, self.newest())
    }

    /// The newest token of an exclusive lock so far.
    #[must_use]
    pub fn newest(&self) -> Option<FencingToken> {
        *self.newest.lock()
    }
}

/// The rule of all checkers.
pub(super) fn not_stale(token: FencingToken, newest: Option<FencingToken>) -> Result<(), StaleToken> {
    newest.filter(|newest| *newest > token).map_or(Ok(()), |newest| Err(StaleToken { token, newest }))
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the fencing token {} is stale: somebody has had the lock since, with {}", self.token, self.newest)
    }
}

impl error::Error for StaleToken {}

/// The error of a check by a [`FileFencingChecker`](crate::FileFencingChecker) or a
/// [`ZooKeeperFencingChecker`](crate::ZooKeeperFencingChecker).
///
/// ```
/// use curator_locks::{FencingError, FencingToken, FileFencingChecker};
///
/// # let directory = tempfile::tempdir()?;
/// # let file = directory.path().join("newest");
/// let fence = FileFencingChecker::open(file)?;
/// fence.check(FencingToken::from_value(12))?;
/// match fence.check(FencingToken::from_value(7)) {
///     Err(FencingError::Stale(stale)) => println!("refused: {stale}"),
///     Err(error) => println!("nobody gets through for now: {error}"),
///     Ok(()) => unreachable!("7 is older than 12"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, thiserror::Error)]
pub enum FencingError {
    /// The holder has lost the lock.
    #[error(transparent)]
    Stale(#[from] StaleToken),
    /// The newest token cannot be read or written.
    #[error("the fencing token cannot be checked")]
    Failed(#[from] crate::error::Error),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[allow(clippy::disallowed_methods, reason = "real threads, in real time")]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_token_passes() {
        let checker = FencingChecker::resume(FencingToken::from_value(10));
        assert!(checker.check(FencingToken::from_value(9)).is_err());
        checker.check(FencingToken::from_value(10)).unwrap();
        checker.check(FencingToken::from_value(11)).unwrap();
        let error = checker.check(FencingToken::from_value(10)).unwrap_err();
        assert_eq!((error.token.value(), error.newest.value()), (10, 11));
        assert!(error.to_string().contains("10") && error.to_string().contains("11"));
        assert_eq!(checker.newest(), Some(FencingToken::from_value(11)));
        assert_eq!(FencingChecker::new().newest(), None);
    }

    #[test]
    fn of_two_grants_of_one_znode_the_later_one_passes() {
        let checker = FencingChecker::new();
        let [first, second] = [1, 2].map(|grant| FencingToken::of_grant(10, grant));
        checker.check(first).unwrap();
        checker.check(second).unwrap();
        assert_eq!(checker.check(first), Err(StaleToken { token: first, newest: second }));
    }

    #[test]
    fn readers_pass_beside_younger_readers_and_not_after_a_younger_writer() {
        let checker = FencingChecker::new();
        let [writer, reader, younger_reader, next_writer] = [5, 6, 7, 9].map(FencingToken::from_value);
        checker.check_shared(reader).unwrap();
        checker.check(writer).unwrap();
        // Downgraded.
        checker.check_shared(writer).unwrap();
        checker.check_shared(younger_reader).unwrap();
        checker.check_shared(reader).unwrap();
        assert_eq!(checker.newest(), Some(writer), "readers take nothing down");
        checker.check(next_writer).unwrap();
        for reader in [writer, reader, younger_reader] {
            assert_eq!(checker.check_shared(reader), Err(StaleToken { token: reader, newest: next_writer }));
        }
    }

    #[test]
    fn of_threads_with_all_tokens_the_last_to_pass_has_the_newest() {
        let checker = FencingChecker::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let checker = &checker;
                scope.spawn(move || {
                    for token in 1..1_000 {
                        let token = FencingToken::from_value(token * 4 + thread);
                        if checker.check(token).is_ok() {
                            assert!(checker.newest().unwrap() >= token);
                        }
                    }
                });
            }
        });
        assert_eq!(checker.newest(), Some(FencingToken::from_value(999 * 4 + 3)));
    }
}
