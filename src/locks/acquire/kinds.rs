//! Locks of other kinds at the same path: they and this one do not exclude each other.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::{
    base::log,
    error::{Error, Result},
    framework::client::call::Call,
    locks::{
        acquire::internals::{LockInternals, directory_of},
        recipe::driver::sorted_contenders,
    },
    proto::{request::Request, response::Response},
    session::api::{Reply, Session, Submission},
};

/// The directory of an unfair lock's holder, below the lock's path. Its parent, which is never removed while the lock is in use,
/// keeps clients out that know the lock as one ephemeral znode `<path>/lock`: they find the name taken, and nothing can be
/// created below theirs.
pub(in crate::locks) const UNFAIR_HOLDER: &str = "lock/holder";
/// The directory of a semaphore's queue, below the semaphore's path.
pub(in crate::locks) const SEMAPHORE_LOCKS: &str = "locks";
/// The directory of a semaphore's leases, below the semaphore's path.
pub(in crate::locks) const SEMAPHORE_LEASES: &str = "leases";

/// Where the holders of locks with directories of their own stand.
const HOLDERS: [(&str, &str); 2] = [(UNFAIR_HOLDER, "an unfair lock"), (SEMAPHORE_LEASES, "a semaphore")];

/// Whether a name there is a holder's. A mutex at such a path has other names.
fn is_holder(below: &str, name: &str) -> bool {
    if below == UNFAIR_HOLDER { name.ends_with("-lock") } else { is_lease(name) }
}

/// Whether a znode in a semaphore's directory of leases is one: a semaphore is in use where there is one. A mutex may stand at
/// `<path>/leases`, and its contenders have other names.
pub(in crate::locks) fn is_lease(name: &str) -> bool {
    name.contains("-lease-")
}

fn list(path: String) -> Request {
    Request::GetChildren { path, watch: false, with_stat: false }
}

impl LockInternals {
    /// Whether the names in the lock's directory may be those of a lock of another kind.
    pub(super) fn shows_other_kinds(&self, names: &[String]) -> bool {
        self.recipe.below.is_none() && names.iter().any(|name| name == "lock" || name == SEMAPHORE_LEASES)
    }

    /// Warns if a lock of another kind is held there, where a list has shown its names: a directory may be called so and have
    /// nothing to do with it. It is looked for in the background, as a lock that is granted may wait for nothing more; and so
    /// long as nothing is found, again at the next acquire.
    pub(super) fn warn_of_other_kinds(&self, session: &Arc<dyn Session>) {
        let core = &self.client().core;
        if core.config.refuse_mixed_kinds || !core.holds.is_first_look(self.directory()) {
            return;
        }
        let has_warned = Arc::new(AtomicBool::new(false));
        let submissions = HOLDERS.into_iter().enumerate().map(|(index, (below, found))| {
            let (core, directory, path) = (core.clone(), self.directory().clone(), self.base_path().to_owned());
            let has_warned = has_warned.clone();
            let request = list(directory.join(below).into_string());
            let on_reply = move |reply: Reply| {
                if let Ok(Response::Children { names, .. }) = reply
                    && names.iter().any(|name| is_holder(below, name))
                {
                    has_warned.store(true, Relaxed);
                    log::warn!("{path} is the path of {found} and of a queue, which do not exclude each other");
                }
                // The replies come in the order of the requests.
                if index + 1 == HOLDERS.len() && !has_warned.load(Relaxed) {
                    core.holds.look_again(&directory);
                }
            };
            Submission { request, watcher: None, on_reply: Box::new(on_reply) }
        });
        session.submit(submissions.collect());
    }

    /// Fails if a lock of another kind is held at the same path, or stands in its queue, where the client refuses that.
    pub(super) fn refuse_other_kinds(&self, call: &Call<'_>) -> Result<()> {
        if !self.client().core.config.refuse_mixed_kinds {
            return Ok(());
        }
        let base = directory_of(self.client(), self.base_path())?;
        let own = self.recipe.below;
        let found = call.retry(|session| {
            let paths = HOLDERS.map(|(below, _)| base.join(below)).into_iter().chain([base.clone()]);
            let names = call.ask_all(session, paths.map(|path| list(path.into_string())));
            let names = names.into_iter().map(|names| match names {
                Ok(Response::Children { names, .. }) => Ok(names),
                Ok(other) => Err(call.unexpected(&other)),
                Err(error) if error.is_no_node() => Ok(Vec::new()),
                Err(error) => Err(error),
            });
            let names = names.collect::<Result<Vec<_>>>()?;
            let is_queue = names.last().is_some_and(|names| !sorted_contenders(names).is_empty());
            let mut others = HOLDERS.into_iter().zip(&names).filter(|((below, _), names)| {
                let is_own = own == Some(below) || own == Some(SEMAPHORE_LOCKS) && *below == SEMAPHORE_LEASES;
                !is_own && names.iter().any(|name| is_holder(below, name))
            });
            let other = others.next().map(|((_, found), _)| found);
            Ok(other.or((own.is_some() && is_queue).then_some("a queue of mutexes, readers and writers or leaders")))
        })?;
        match found {
            Some(found) => Err(Error::MixedKinds { path: self.base_path().to_owned(), found }),
            None => Ok(()),
        }
    }
}
