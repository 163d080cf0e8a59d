//! Starting threads.

use crate::error::{Error, Result};

#[cfg(test)]
thread_local! {
    /// Whether this thread can start no other, as where the system has none left.
    pub(crate) static HAS_NONE_LEFT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Starts a thread that is never joined.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let refused = |source: std::io::Error| {
        Err(Error::Io { what: format!("cannot start the thread {name}"), source: source.into() })
    };
    #[cfg(test)]
    if HAS_NONE_LEFT.get() {
        return refused(std::io::ErrorKind::WouldBlock.into());
    }
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop).or_else(refused)
}
