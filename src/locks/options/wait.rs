//! How one attempt to get a lock waits.

use std::time::{Duration, Instant};

use crate::{
    base::clock,
    locks::options::acquire::AcquireOptions,
    session::wait::deadline::{WaitBound, WaitEnd},
};

/// How long a call whose time is up still waits for the reply to a request under way, so that a server which answers at
/// all leaves nothing in doubt.
const GRACE: Duration = Duration::from_millis(20);

/// How one attempt to get a lock waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait<'a> {
    /// The end of the wait for others.
    pub(crate) bound: WaitBound<'a>,
    /// Whether the call does not wait for others at all, and does not write if the lock is taken.
    pub(crate) only_try: bool,
    pub(crate) options: &'a AcquireOptions,
    /// When the call began, if that was before this attempt.
    pub(crate) since: Option<Instant>,
}

impl<'a> Wait<'a> {
    /// The wait that these options ask for, from now on, unless their call has begun before.
    pub(in crate::locks) fn of(options: &'a AcquireOptions) -> Wait<'a> {
        let bound = WaitBound { deadline: options.deadline(), cancel: options.cancellation() };
        Wait { bound, only_try: options.is_mere_try(), options, since: None }
    }

    /// The bound on requests. A mere try still waits for its own requests, as a lock that is free should be got.
    pub(crate) fn io(&self, connection_timeout: Duration) -> WaitBound<'a> {
        let deadline = if self.only_try {
            self.bound.deadline.unwrap_or_else(clock::now).checked_add(connection_timeout)
        } else {
            // A deadline at the end of the clock's range is as good as one a moment later.
            self.bound.deadline.map(|deadline| deadline.checked_add(GRACE).unwrap_or(deadline))
        };
        WaitBound { deadline, cancel: self.bound.cancel }
    }

    /// How long to wait for a connection; `None` for a mere try, which ends with its requests.
    pub(in crate::locks) fn waits_until(&self) -> Option<WaitBound<'a>> {
        (!self.only_try).then_some(self.bound)
    }

    /// Whether the time to wait is up. A mere try has none: it ends with its requests.
    pub(crate) fn is_over(&self) -> bool {
        !self.only_try && self.bound.is_over() == Some(WaitEnd::Deadline)
    }
}
