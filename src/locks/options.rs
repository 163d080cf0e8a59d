//! How to acquire a lock.

use std::time::Duration;

use crate::CancelToken;

/// Options of one acquire.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{AcquireOptions, CancelToken};
///
/// let token = CancelToken::new();
/// let options = AcquireOptions::new().timeout(Duration::from_secs(5)).cancel_token(&token);
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
pub struct AcquireOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<CancelToken>,
}

impl AcquireOptions {
    /// Waits for ever, and cannot be cancelled.
    pub fn new() -> Self {
        AcquireOptions::default()
    }

    /// Waits at most this long; zero means not to wait for others at all. Defaults to no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Ends the wait when this token is cancelled. Defaults to none.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}
