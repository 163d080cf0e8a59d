//! Locks that have to be certain for some time from the grant on.

use std::time::Duration;

use crate::{
    error::{Error, Result},
    framework::held::certainty::{Certainty, Needs},
    locks::{
        acquire::{internals::LockInternals, last_look::last_look, owners::Owners},
        options::{acquire::AcquireOptions, wait::Wait},
    },
    session::wait::deadline::WaitEnd,
};

/// A session that is answered promptly is certain for 0.67 T less two round trips right after a heartbeat.
pub(in crate::locks) fn check_validity(wanted: Duration, timeout: Duration) -> Result<()> {
    if wanted <= timeout / 2 {
        return Ok(());
    }
    let rule = format!("at most half of the session timeout, which is {timeout:?}");
    Err(Error::InvalidArgument { name: "min_validity", value: format!("{wanted:?}"), rule })
}

impl LockInternals {
    pub(in crate::locks) fn uncertain(&self, wanted: Duration) -> Error {
        Error::Uncertain { path: self.base_path().to_owned(), wanted, after: self.client().session_timeout() }
    }

    pub(in crate::locks) fn still_taken(&self, ahead: Option<usize>) -> Error {
        Error::StillTaken { path: self.base_path().to_owned(), ahead }
    }

    /// Refuses options about one hold alone: a cached znode serves many holds.
    pub(in crate::locks) fn check_cached(&self, options: &AcquireOptions) -> Result<()> {
        let (name, rule) = if self.deaths.is_some() {
            ("unclean deaths", "one mark would stand for all holds of a lock that is cached")
        } else if options.hold_at_least.is_some() || options.hold_at_most.is_some() || !options.min_validity.is_zero() {
            ("options", "neither a validity nor a length of the hold for a lock that is cached")
        } else {
            return Ok(());
        };
        Err(Error::InvalidArgument { name, value: self.base_path().to_owned(), rule: rule.to_owned() })
    }

    /// Waits until the hold is certain for as long as wanted, where the thread may hold the lock already. `false`: the time
    /// was up first. [`Owners::enter_again`] reports a hold that was lost.
    pub(in crate::locks) fn may_enter_again(&self, owners: &Owners, wait: Wait<'_>) -> Result<bool> {
        let wanted = wait.options.min_validity;
        if wanted.is_zero() {
            return Ok(true);
        }
        let Some(held) = owners.current() else { return Ok(true) };
        check_validity(wanted, self.client().session_timeout())?;
        let bound = wait.io(self.client().core.config.connection_timeout);
        match last_look(&[held], wanted, bound, Needs::Nothing) {
            Ok(Certainty::Certain | Certainty::Gone) => Ok(true),
            Ok(Certainty::InDoubt) => Err(self.uncertain(wanted)),
            Err(WaitEnd::Cancelled) => Err(Error::Cancelled { path: self.base_path().to_owned() }),
            Err(WaitEnd::Deadline) if wait.options.timeout_is_error => Err(self.still_taken(None)),
            Err(WaitEnd::Deadline) => Ok(false),
        }
    }
}
