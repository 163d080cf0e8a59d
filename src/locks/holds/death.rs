//! Holders that went without releasing.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    base::{collections::HashMap, paths::ServerPath, sync::Mutex},
    framework::held::node::HeldNode,
    locks::holds::fencing::token::FencingToken,
};

/// A holder that went without releasing its lock: its process or machine died, its session was lost, somebody deleted
/// its znode and it was told of that before its release, its thread panicked, or the lock was given back under it
/// ([`RevocationRequest::release`](crate::RevocationRequest::release),
/// [`AcquireOptions::hold_at_most`](crate::AcquireOptions::hold_at_most)).
///
/// The protected data may be half done. The next holder is told by
/// [`Hold::unclean_deaths`](crate::Hold::unclean_deaths), if the lock listens for deaths
/// ([`InterProcessMutex::with_unclean_deaths`](crate::InterProcessMutex::with_unclean_deaths)).
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
    /// The holder's fencing token.
    pub fencing_token: FencingToken,
    /// The data of its znode: the lock data.
    pub data: Vec<u8>,
    /// The id of its session.
    pub session: i64,
    /// When its hold began: milliseconds since the epoch, by the server's clock.
    pub since_millis: i64,
}

/// The state of a lock that listens for unclean deaths.
#[derive(Debug)]
pub(in crate::locks) struct UncleanDeaths {
    /// How long the next holder waits before it has the lock.
    pub(in crate::locks) delay: Duration,
    pub(in crate::locks) directory: ServerPath,
    /// The deaths that this object's holds have heard of, by the czxid of the holds' znodes.
    pub(in crate::locks) holders: Mutex<HashMap<i64, Arc<Heard>>>,
}

/// The deaths that a hold has heard of.
#[derive(Debug)]
pub(in crate::locks) struct Heard {
    pub(in crate::locks) deaths: Arc<[UncleanDeath]>,
    held: Weak<HeldNode>,
    /// Whether the caller has the hold, and so was told.
    pub(in crate::locks) is_handed_out: AtomicBool,
}

impl Heard {
    pub(in crate::locks) fn new(held: &Arc<HeldNode>, deaths: Arc<[UncleanDeath]>) -> Heard {
        Heard { deaths, held: Arc::downgrade(held), is_handed_out: AtomicBool::new(false) }
    }

    /// Whether the hold is not lost, as far as this process knows.
    pub(in crate::locks) fn stands(&self) -> bool {
        self.held.upgrade().is_some_and(|held| held.lost().is_none())
    }
}

impl UncleanDeaths {
    /// The settings for another lock object, whose holds were told of no death yet.
    pub(in crate::locks) fn anew(&self) -> UncleanDeaths {
        UncleanDeaths { delay: self.delay, directory: self.directory.clone(), holders: Mutex::default() }
    }

    /// Finds the deaths that a hold has heard of.
    pub(in crate::locks) fn heard_by(&self, held: &HeldNode) -> Option<Arc<Heard>> {
        self.holders.lock().get(&held.czxid()).cloned()
    }

    /// Forgets a hold that has come to its end. Returns its mark, if it has left one, and whether the caller had the hold.
    pub(in crate::locks) fn mark_of(&self, held: &HeldNode) -> Option<(ServerPath, bool)> {
        let heard = self.holders.lock().remove(&held.czxid())?;
        Some((self.mark_path(held), heard.is_handed_out.load(Ordering::Acquire)))
    }

    /// The path of a hold's mark.
    pub(in crate::locks) fn mark_path(&self, held: &HeldNode) -> ServerPath {
        self.directory.join(&format!("{:x}", held.czxid()))
    }
}
