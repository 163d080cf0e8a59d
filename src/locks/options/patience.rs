//! How one attempt to get a lock waits.

use std::time::{Duration, Instant};

use crate::{
    locks::options::{acquire::AcquireOptions, terms::Terms},
    session::wait::deadline::{Stop, WaitEnd},
};

/// How long a call whose time is up still waits for the reply to what is under way, so that a server which answers at
/// all leaves nothing in doubt.
const GRACE: Duration = Duration::from_millis(20);

/// How one attempt to get a lock waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    /// The end of the wait for others.
    pub(crate) stop: Stop<'a>,
    /// Do not wait for others at all, and do not write if the lock is taken.
    pub(crate) only_try: bool,
    pub(crate) terms: &'a Terms,
    /// When the call began, where that was before this.
    pub(crate) since: Option<Instant>,
}

impl<'a> Patience<'a> {
    /// From the moment of this call on, unless it is part of one that has begun before.
    pub(in crate::locks) fn of(options: &'a AcquireOptions) -> Patience<'a> {
        let stop = Stop { deadline: options.deadline(), cancel: options.cancellation() };
        Patience { stop, only_try: options.is_mere_try(), terms: &options.terms, since: None }
    }

    /// The bound on requests. A mere try still waits for its own requests, as a lock that is free should be got.
    pub(crate) fn io(&self, connection_timeout: Duration) -> Stop<'a> {
        let deadline = if self.only_try {
            self.stop.deadline.unwrap_or_else(Instant::now).checked_add(connection_timeout)
        } else {
            // A deadline at the end of the clock's range is as good as one a moment later.
            self.stop.deadline.map(|deadline| deadline.checked_add(GRACE).unwrap_or(deadline))
        };
        Stop { deadline, cancel: self.stop.cancel }
    }

    /// How long to wait for a connection; `None` for a mere try, which ends with its requests.
    pub(in crate::locks) fn waits_until(&self) -> Option<Stop<'a>> {
        (!self.only_try).then_some(self.stop)
    }

    /// Whether the time to wait is up. A mere try has none: it ends with its requests.
    pub(crate) fn is_over(&self) -> bool {
        !self.only_try && self.stop.is_over() == Some(WaitEnd::Deadline)
    }
}
