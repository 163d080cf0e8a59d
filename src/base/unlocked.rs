//! Letting go of a lock before what it guarded is dropped.

/// Unlocks, and only then drops what was taken out from behind the lock.
///
/// The value may run anyone's code when it is dropped: a caller's listener or task, with all that it owns, or a watch,
/// whose end may send a request. Each of them may need the very lock.
pub(crate) fn drop_unlocked<G, T>(guard: G, taken: T) {
    drop(guard);
    drop(taken);
}
