//! Who is told about a `WriteLock`.

/// Is told when a [`WriteLock`](crate::WriteLock) is acquired and released. Java: `LockListener` of ZooKeeper's lock
/// recipe.
///
/// Both run on the client's dispatch thread, one at a time, in order and under no lock; while one runs, the client's
/// other listeners wait, so that long work belongs to a thread of its own. They may use the lock.
pub trait LockListener: Send + Sync + 'static {
    /// The lock is this object's from now on.
    fn lock_acquired(&self);

    /// It is not any more: it was unlocked, or lost. Told once for each
    /// [`lock_acquired`](LockListener::lock_acquired), before anybody else can be told of an unlock.
    fn lock_released(&self);
}
