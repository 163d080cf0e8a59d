//! The end of threads that go on until they are told.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells them when it is dropped: also where the test fails while their scope waits for them.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
