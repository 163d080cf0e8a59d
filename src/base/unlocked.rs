//! Letting go of a lock before what it guarded is dropped.

use super::panics::caught;

/// Unlocks, and only then drops what was taken out from behind the lock.
///
/// The value may run anyone's code when it is dropped: a caller's listener or task, with all that it owns, or a watch,
/// whose end may send a request. Each of them may need the very lock; and if it panics, what the caller of this is about to do
/// is done all the same: a delete that is not sent leaves a lock to nobody. Each is dropped by itself: a second panic while
/// the first one unwinds would end the process.
pub(crate) fn drop_unlocked<G, T>(guard: G, taken: impl IntoIterator<Item = T>) {
    drop(guard);
    for one in taken {
        caught("what was dropped", || drop(one));
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    struct PanicsInItsDrop;

    impl Drop for PanicsInItsDrop {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[test]
    fn several_that_panic_as_they_are_dropped_do_not_end_the_process() {
        drop_unlocked((), [PanicsInItsDrop, PanicsInItsDrop]);
    }
}
