//! What is known of holders that went without releasing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::{base::paths::ServerPath, framework::held::node::HeldNode, locks::holds::fencing::token::FencingToken};

/// A holder that went without releasing its lock: its process or machine died, its session was lost, somebody deleted its
/// znode and it heard of that before its release, or its thread panicked.
///
/// What the lock protects may be half done. The next holder is told, if the lock was asked to
/// ([`InterProcessMutex::with_unclean_deaths`](crate::InterProcessMutex::with_unclean_deaths)), by
/// [`Hold::unclean_deaths`](crate::Hold::unclean_deaths).
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// use curator_locks::{InterProcessMutex, UncleanDeath};
///
/// let mutex = || InterProcessMutex::new(&client, "/locks/order-42").map(|lock| lock.with_unclean_deaths(Duration::ZERO));
/// let lost = mutex()?.with_lock_data("host-17");
/// let held = lost.lock()?;
/// client.delete().for_path(held.path())?; // somebody deletes its znode
/// while !held.is_lost() {
///     std::thread::yield_now();
/// }
/// # let token = held.fencing_token();
/// let _ = held.release();
///
/// let next = mutex()?;
/// let held = next.lock()?;
/// let death: &UncleanDeath = &held.unclean_deaths()[0];
/// assert_eq!((death.data.as_slice(), death.session), (b"host-17".as_slice(), client.session_id()));
/// # assert_eq!(death.fencing_token, token);
/// held.release()?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UncleanDeath {
    /// Its fencing token.
    pub fencing_token: FencingToken,
    /// What its znode carried: the lock data.
    pub data: Vec<u8>,
    /// Its session.
    pub session: i64,
    /// Since when it held the lock: milliseconds since the epoch, by the server's clock.
    pub since_millis: i64,
}

/// What a lock that listens for unclean deaths knows.
#[derive(Debug)]
pub(in crate::locks) struct UncleanDeaths {
    /// How long the next holder waits before it has the lock.
    pub(in crate::locks) delay: Duration,
    pub(in crate::locks) directory: ServerPath,
    /// What this object's holds have heard, by the czxid of their znodes.
    pub(in crate::locks) holders: Mutex<HashMap<i64, Arc<[UncleanDeath]>>>,
}

impl UncleanDeaths {
    /// The same for another lock object, which has heard nothing so far.
    pub(in crate::locks) fn anew(&self) -> UncleanDeaths {
        UncleanDeaths { delay: self.delay, directory: self.directory.clone(), holders: Mutex::default() }
    }

    /// What a hold has heard.
    pub(in crate::locks) fn heard_by(&self, held: &HeldNode) -> Option<Arc<[UncleanDeath]>> {
        self.holders.lock().get(&held.czxid()).cloned()
    }

    /// The hold has come to its end. Its mark, if it has left one.
    pub(in crate::locks) fn mark_of(&self, held: &HeldNode) -> Option<ServerPath> {
        self.holders.lock().remove(&held.czxid()).map(|_| self.mark_path(held))
    }

    /// Where a hold leaves its mark.
    pub(in crate::locks) fn mark_path(&self, held: &HeldNode) -> ServerPath {
        self.directory.join(&format!("{:x}", held.czxid()))
    }
}
