//! The number that storage checks.

use std::fmt;

/// A number that grows with every grant of one lock, over all processes.
///
/// Hand it to whatever the lock protects, and have that refuse a smaller number than it has seen before: then a holder
/// that was paused for too long does no harm. It is the transaction id in which the lock's znode was created (czxid),
/// so it keeps growing when the lock's directory was removed and made anew, which restarts the sequence numbers. The
/// storage's side is a [`FencingChecker`](crate::FencingChecker); [the chapter on guarantees](crate::docs::guarantees#fencing) has an example.
///
/// ```no_run
/// # use curator_locks::{FencingToken, InterProcessMutex};
/// # fn write_to_storage(_: FencingToken) {}
/// # fn example(mutex: &InterProcessMutex) -> curator_locks::Result<()> {
/// let held = mutex.lock()?;
/// write_to_storage(held.fencing_token());
/// held.release()
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(i64);

impl FencingToken {
    pub(crate) fn new(czxid: i64) -> Self {
        FencingToken(czxid)
    }

    /// A token that came as a number, for instance over the network to the storage.
    #[must_use]
    pub fn from_value(value: i64) -> FencingToken {
        FencingToken(value)
    }

    /// The number as such.
    #[must_use]
    pub fn value(self) -> i64 {
        self.0
    }

    /// 16 bytes that sort as the tokens do.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.0.cast_unsigned()) << 64).to_be_bytes()
    }

    /// The token that [`to_bytes`](FencingToken::to_bytes) made these of.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> FencingToken {
        FencingToken(u64::try_from(u128::from_be_bytes(bytes) >> 64).unwrap_or(u64::MAX).cast_signed())
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
