//! Letting go of a lock before what it guarded is dropped.

use super::panics::caught;

/// Unlocks, and only then drops what was taken out from behind the lock.
///
/// The value may run anyone's code when it is dropped: a caller's listener or task, with all that it owns, or a watch,
/// whose end may send a request. Each of them may need the very lock; and if it panics, what the caller of this is about to do
/// is done all the same: a delete that is not sent leaves a lock to nobody.
pub(crate) fn drop_unlocked<G, T>(guard: G, taken: T) {
    drop(guard);
    caught("what was dropped", || drop(taken));
}
