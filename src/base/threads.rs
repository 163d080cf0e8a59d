//! Starting threads.

use crate::error::{Error, Result};

/// Starts a thread that nobody joins.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map(drop)
        .map_err(|error| Error::Io { what: format!("cannot start the thread {name}"), source: error.into() })
}
