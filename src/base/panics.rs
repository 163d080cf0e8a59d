//! Runs the caller's code where a panic must not spread: on the client's own threads, and in drops.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::log;

/// Runs code of the caller's; after a panic, logs it and returns `None`. For threads that have to go on because they tell
/// holders of losses, and for drops, which a panic must not leave while the thread unwinds.
pub(crate) fn caught<T>(what: &str, run: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => Some(value),
        Err(panic) => {
            log::error!("{what} panicked: {}", message(&*panic));
            None
        }
    }
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_is_handed_out_and_what_panicked_is_not() {
        assert_eq!(caught("a test", || 7), Some(7));
        assert_eq!(caught::<()>("a test", || panic!("on purpose")), None);
    }

    #[test]
    fn the_message_of_a_panic_is_found() {
        for (panic, found) in [
            (Box::new("text") as Box<dyn Any + Send>, "text"),
            (Box::new(String::from("made")), "made"),
            (Box::new(7), "no message"),
        ] {
            assert_eq!(message(&*panic), found);
        }
    }
}
