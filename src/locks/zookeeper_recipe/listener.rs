//! The listener of a `WriteLock`.

/// A listener that is told when a [`WriteLock`](crate::locks::zookeeper_recipe::WriteLock) is acquired and released.
/// Java: `LockListener` of ZooKeeper's lock recipe.
///
/// Both run on the client's dispatch thread, one at a time, in order and under no lock; while one runs, the client's
/// other listeners wait, so that long work belongs to a thread of its own. They may use the lock.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::zookeeper_recipe::{LockListener, WriteLock};
///
/// struct Tell(crossbeam_channel::Sender<&'static str>);
/// impl LockListener for Tell {
///     fn lock_acquired(&self) {
///         let _ = self.0.send("acquired");
///     }
///     fn lock_released(&self) {
///         let _ = self.0.send("released");
///     }
/// }
///
/// let (tell, told) = crossbeam_channel::unbounded();
/// let lock = WriteLock::new(&client, "/locks/order-42")?;
/// lock.set_lock_listener(Tell(tell));
/// lock.lock()?;
/// assert_eq!(told.recv()?, "acquired");
/// assert!(lock.is_owner() && lock.id() == lock.hold().map(|hold| hold.path().to_owned()));
/// println!("{} with token {:?}", lock.dir(), lock.fencing_token());
/// lock.unlock()?;
/// assert_eq!(told.recv()?, "released");
/// # Ok(()) });
/// ```
pub trait LockListener: Send + Sync + 'static {
    /// The lock is this object's from now on. Called again after a doubt that has passed.
    fn lock_acquired(&self);

    /// The lock was unlocked or lost, or is in doubt: another object may be told that it has the lock from now on. Called
    /// once for each [`lock_acquired`](LockListener::lock_acquired), at [`Hold::valid_until`](crate::Hold::valid_until) at
    /// the latest, unless the process is paused or an earlier listener is still running.
    fn lock_released(&self);
}
