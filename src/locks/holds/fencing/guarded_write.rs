//! Writes that a lost lock cannot make.

#[cfg(doc)]
use crate::error::Error;
use crate::{error::Result, framework::transaction::Transaction, locks::holds::hold::Hold};

impl Hold {
    /// Makes the server refuse a transaction once this lock is gone: the server checks the lock's own znode in the same
    /// moment in which it writes. No clock and no pause of this process can get in between, and no administrator who
    /// deletes the znode. Does no I/O; [`commit`](Transaction::commit) fails with [`Error::LockLost`] then, and the
    /// [state](Hold::state) says so soon after.
    ///
    /// Every hold with a znode of its own can do this, so readers and each of a semaphore's leases, too. The protected
    /// data has to be in the same ZooKeeper; for all other storage see [`FencingChecker`](crate::FencingChecker).
    ///
    /// With [`Caching`](crate::Caching) the znode is the process's, so it does not tell two of its threads apart. Of an
    /// [upgrade](crate::InterProcessUpgradableLock#upgrade) both znodes are checked.
    ///
    /// # Errors
    /// None at present: every hold has a znode with a name of its own.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use std::time::Duration;
    /// # use curator_locks::{Error, InterProcessMutex};
    /// client.create().for_path_and_data("/balance", "100")?;
    /// let mutex = InterProcessMutex::new(&client, "/locks/balance")?;
    /// let held = mutex.lock()?;
    /// let write = |balance: &str| {
    ///     held.guard_transaction(client.transaction())?.set_data().for_path_and_data("/balance", balance).commit()
    /// };
    /// write("80")?;
    /// client.delete().for_path(held.path())?; // what an administrator should not do
    /// assert!(matches!(write("60"), Err(Error::LockLost { .. })));
    /// assert_eq!(client.get_data().for_path("/balance")?, b"80");
    /// # Ok(()) });
    /// ```
    pub fn guard_transaction(&self, transaction: Transaction) -> Result<Transaction> {
        let lock = self.path().rsplit_once('/').map_or("/", |(lock, _)| lock).to_owned();
        // An upgrade holds by the znode of the upgradable lock as well.
        let nodes = std::iter::once(self.node()).chain(self.node().rests_on());
        Ok(nodes.fold(transaction, |transaction, node| transaction.guarded_by(lock.clone(), node)))
    }
}
