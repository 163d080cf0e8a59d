//! One lease of a semaphore.

use std::sync::Arc;

use crate::{
    error::Result,
    framework::held::{node::HeldNode, revocation::without_request},
    locks::{
        acquire::internals::LockInternals,
        face::guard::guard_of_hold,
        holds::hold::{Hold, note_panic},
    },
};

/// One of a semaphore's leases: dropping it gives it back. Java: `Lease`.
///
/// A lease belongs to no thread: any may give it back. It dereferences to [`Hold`], the holder's knowledge of it.
///
/// While the connection is suspended the lease is held, and [in doubt](crate::HoldState::InDoubt) once
/// [`valid_until`](Hold::valid_until) has passed; it is [lost](crate::HoldState::Lost) when the session is.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # let semaphore = &curator_locks::InterProcessSemaphoreV2::new(client, "/example", 3)?;
/// let lease = semaphore.acquire()?;
/// println!("{} until at least {:?}", lease.node_name(), lease.valid_until());
/// lease.close()?;
/// # Ok(()) });
/// ```
#[must_use = "the lease is given back at once if it is not kept"]
pub struct Lease {
    pub(super) leases: Arc<LockInternals>,
    hold: Hold,
    is_open: bool,
}

impl Lease {
    pub(in crate::locks) fn new(leases: &Arc<LockInternals>, held: Arc<HeldNode>) -> Lease {
        Lease { leases: leases.clone(), hold: leases.hold(held), is_open: true }
    }

    /// The name of the lease's znode in the directory `leases`.
    #[must_use]
    pub fn node_name(&self) -> &str {
        self.hold.node().path().name()
    }

    /// The data of the lease's znode, read from the server: one round trip.
    ///
    /// # Errors
    /// [`Error::Server`](crate::Error::Server) with `NoNode` if the lease was lost, and the errors of every operation.
    pub fn data(&self) -> Result<Vec<u8>> {
        let data = self.leases.client().get_data().for_path(self.hold.path())?;
        Ok(without_request(&data).to_vec())
    }

    /// Gives the lease back and reports how that went. Blocks for one round trip; while the connection is gone, as the
    /// retry policy says, at most the session timeout.
    ///
    /// # Errors
    /// [`Error::LockLost`](crate::Error::LockLost) if it was lost before;
    /// [`Error::ConnectionLoss`](crate::Error::ConnectionLoss) if the server did not confirm: the client keeps deleting
    /// the znode in the background until it is gone.
    pub fn close(mut self) -> Result<()> {
        self.is_open = false;
        self.leases.release(self.hold.node()).0
    }

    /// The held znode, for a caller that gives the lease back by itself.
    pub(in crate::locks) fn into_node(mut self) -> Arc<HeldNode> {
        self.is_open = false;
        self.hold.node().clone()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_open {
            note_panic(&self.hold);
            self.leases.release_in_background(self.hold.node());
        }
    }
}

guard_of_hold! { Lease, |lease| &lease.hold }
