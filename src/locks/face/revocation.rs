//! Requests to give a lock back that say who asks and why.

use std::sync::{Arc, Weak};

use crate::{
    error::LostReason,
    framework::held::{
        node::{HeldNode, Revocation},
        revocation::RevokeWord,
    },
    locks::{acquire::internals::LockInternals, holds::hold::Hold},
};

/// A request to give a lock back. The listeners of
/// [`InterProcessMutex::on_revocation`](crate::InterProcessMutex::on_revocation) and its like for every kind get it.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use curator_locks::{InterProcessSemaphoreV2, Revoker};
/// let downloads = InterProcessSemaphoreV2::new(client, "/downloads", 3)?;
/// downloads.on_revocation(|request| {
///     println!("{} wants it: {}", request.who().unwrap_or("somebody"), request.why().unwrap_or("no reason given"));
///     request.release();
/// });
/// let lease = downloads.acquire()?;
///
/// // Elsewhere:
/// Revoker::request(client, lease.path(), "the operator", "maintenance at noon")?;
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct RevocationRequest {
    word: RevokeWord,
    lock: Weak<LockInternals>,
    held: Option<Arc<HeldNode>>,
}

impl RevocationRequest {
    /// The name of the asker, if the request gives one: Curator's requests do not.
    #[must_use]
    pub fn who(&self) -> Option<&str> {
        self.word.who.as_deref().filter(|who| !who.is_empty())
    }

    /// The reason, if the request gives one.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        self.word.why.as_deref().filter(|why| !why.is_empty())
    }

    /// The hold that is asked for; `None` if the request has come to a waiter, or if the lock object is gone.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        Some(self.lock.upgrade()?.hold(self.held.clone()?))
    }

    /// Gives the lock back from the listener, whichever thread holds it: the hold is [`Lost`](crate::HoldState::Lost)
    /// with [`Revoked`](LostReason::Revoked) first, of which its holder is told, and then the client deletes its znode
    /// in the background. The holder's own release then fails with [`Error::LockLost`](crate::Error::LockLost). A
    /// holder that cannot stop at any moment should rather set a flag. Does nothing for a waiter, or for a lock that
    /// was given back. The znode stays as long as [`hold_at_least`](crate::AcquireOptions::hold_at_least) says.
    pub fn release(&self) {
        let (Some(lock), Some(held)) = (self.lock.upgrade(), &self.held) else { return };
        if held.lose_unless_over(LostReason::Revoked) && !lock.stays(held) {
            lock.client().core.clean_up(lock.deletion_of_held(held));
        }
    }
}

impl Hold {
    /// The name and the reason of the last request for this lock; `None` without a request, or if the lock does not
    /// listen for any ([`InterProcessMutex::on_revocation`](crate::InterProcessMutex::on_revocation),
    /// [`make_revocable`](crate::InterProcessMutex::make_revocable)). Both are empty if the request does not give them.
    #[must_use]
    pub fn revocation(&self) -> Option<(String, String)> {
        let word = self.node().revocable()?.last()?;
        Some((word.who.unwrap_or_default(), word.why.unwrap_or_default()))
    }
}

impl LockInternals {
    /// Every hold from now on, and every wait, tells this listener; up to the next release unless it is lasting.
    pub(in crate::locks) fn on_revocation(
        self: &Arc<LockInternals>,
        is_lasting: bool,
        listener: Arc<dyn Fn(&RevocationRequest) + Send + Sync>,
    ) {
        // Weak, as the lock that keeps the listener keeps the client, too.
        let (core, lock) = (Arc::downgrade(&self.client().core), Arc::downgrade(self));
        let tell = move |word: &RevokeWord, held| {
            let Some(core) = core.upgrade() else { return };
            let (request, listener) =
                (RevocationRequest { word: word.clone(), lock: lock.clone(), held }, listener.clone());
            core.dispatcher.run(move || listener(&request));
        };
        self.make_revocable(match is_lasting {
            true => Revocation::lasting(tell),
            false => Revocation::new(move || tell(&RevokeWord::default(), None)),
        });
    }
}
