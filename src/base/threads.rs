//! Starting threads, and what puts them to sleep and wakes them.

use std::{
    io,
    sync::{Arc, Weak},
    thread::ThreadId,
};

#[cfg(not(test))]
pub(crate) use std::thread::{Thread, current, park, park_timeout};

use super::log;
#[cfg(test)]
pub(crate) use super::sim::thread::{Thread, current, park, park_timeout};
use crate::error::{Error, Result};

#[cfg(test)]
thread_local! {
    /// Whether this thread can start no other, as where the system has none left.
    pub(crate) static HAS_NONE_LEFT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The calling thread. A [`std::thread::current`] for each call would count references.
#[expect(clippy::disallowed_methods, reason = "simulated threads are threads, too")]
pub(crate) fn thread_id() -> ThreadId {
    thread_local! {
        static ID: ThreadId = std::thread::current().id();
    }
    // A thread that is about to end may hold a lock in another thread-local value.
    ID.try_with(|id| *id).unwrap_or_else(|_| std::thread::current().id())
}

/// Lives as long as its thread.
struct ThreadLife {
    /// Each lock that only this thread can release has a clone.
    token: Arc<()>,
    name: Option<String>,
}

impl Drop for ThreadLife {
    fn drop(&mut self) {
        let held = Arc::weak_count(&self.token);
        if held > 0 {
            let name = self.name.as_deref().unwrap_or("without a name");
            // A logger may have lost its own thread-local values already, and panic. Out of here that would end the process.
            log::warn!("the thread {name} ends without a release of its locks ({held}): nobody else can release them");
        }
    }
}

/// Ends with the calling thread. `None`: that is ending right now.
#[expect(clippy::disallowed_methods, reason = "simulated threads are threads, too")]
pub(crate) fn life() -> Option<Weak<()>> {
    thread_local! {
        static LIFE: ThreadLife =
            ThreadLife { token: Arc::default(), name: std::thread::current().name().map(str::to_owned) };
    }
    LIFE.try_with(|life| Arc::downgrade(&life.token)).ok()
}

/// Starts a thread that is never joined.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let refused =
        |source: io::Error| Error::Io { what: format!("cannot start the thread {name}"), source: source.into() };
    start(name, run).map_err(refused)
}

/// As [`spawn`], for callers that have an error of their own to report.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[cfg(test)]
    if HAS_NONE_LEFT.get() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    #[cfg(test)]
    if super::sim::is_simulated() {
        return super::sim::thread::start(name, run);
    }
    #[expect(clippy::disallowed_methods, reason = "every thread starts here")]
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}
