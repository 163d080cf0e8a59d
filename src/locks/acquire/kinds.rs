//! Locks of other kinds at the same path: they and this one do not exclude each other.

use std::sync::Arc;

use crate::{
    error::{Error, Result},
    framework::client::call::Call,
    locks::{acquire::internals::LockInternals, recipe::driver::sorted_contenders},
    proto::{request::Request, response::Response},
    session::api::Session,
};

/// The directory of an unfair lock's holder, below the lock's path. Its parent, which is never removed while the lock is in use,
/// keeps clients out that know the lock as one ephemeral znode `<path>/lock`: they find the name taken, and nothing can be
/// created below theirs.
pub(in crate::locks) const UNFAIR_HOLDER: &str = "lock/holder";
/// The directory of a semaphore's queue, below the semaphore's path.
pub(in crate::locks) const SEMAPHORE_LOCKS: &str = "locks";
/// The directory of a semaphore's leases, below the semaphore's path.
pub(in crate::locks) const SEMAPHORE_LEASES: &str = "leases";

impl LockInternals {
    /// Whether the names in the lock's directory may be those of a lock of another kind.
    pub(super) fn shows_other_kinds(&self, names: &[String]) -> bool {
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        self.recipe.below.is_none() && (has("lock") || has(SEMAPHORE_LEASES))
    }

    /// Looks whether a lock of another kind is held or waited for there, where a list has shown its names: a directory may be
    /// called so and have nothing to do with it. That is one round trip, once for each directory unless such a lock is refused.
    pub(super) fn check_kinds(&self, call: &Call<'_>, session: &Arc<dyn Session>) -> Result<()> {
        let is_refused = self.client().core.config.refuse_mixed_kinds;
        if !self.client().core.holds.is_first_look(self.directory()) && !is_refused {
            return Ok(());
        }
        let names = [UNFAIR_HOLDER, SEMAPHORE_LEASES, SEMAPHORE_LOCKS].map(|below| {
            let path = self.directory().join(below).into_string();
            Request::GetChildren { path, watch: false, with_stat: false }
        });
        let mut names = call.ask_all(session, names).into_iter().map(|names| match names {
            Ok(Response::Children { names, .. }) => names,
            _ => Vec::new(),
        });
        let is_unfair = names.next().is_some_and(|holders| !holders.is_empty());
        let is_semaphore = names.any(|names| !sorted_contenders(&names).is_empty());
        let found = match (is_unfair, is_semaphore) {
            (true, _) => "an unfair lock",
            (_, true) => "a semaphore",
            _ => return Ok(()),
        };
        let (path, kind) = (self.base_path().to_owned(), self.recipe.kind.name());
        if is_refused {
            return Err(Error::MixedKinds { path, kind, found });
        }
        log::warn!("{path} is the path of a {kind} and of {found}, which do not exclude each other");
        Ok(())
    }
}
