//! Writes that a lost lock cannot make.

use crate::{
    error::{Error, Result},
    framework::transaction::Transaction,
    locks::{api::holds::hold::Hold, contender::driver::sequence_for},
};

impl Hold {
    /// Has the server refuse a transaction once this lock is gone: it checks the lock's own znode in the same moment in
    /// which it writes. No clock and no pause of this process can get in between, and no administrator who deletes the
    /// znode. Does no I/O; [`commit`](Transaction::commit) fails with [`Error::LockLost`] then, and the
    /// [state](Hold::state) says so soon after.
    ///
    /// It works for every hold with a znode of its own, so for readers and each of a semaphore's leases, too. What the lock
    /// guards has to be in the same ZooKeeper; for all other storage see [`FencingChecker`](crate::FencingChecker).
    ///
    /// With [`Caching`](crate::Caching) the znode is the process's, so it says nothing of two threads of one process.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an [`InterProcessUnfairMutex`](crate::InterProcessUnfairMutex): the next holder's
    /// znode has the same name, so that its existence proves nothing.
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
        if sequence_for(self.node().path().name(), "").is_none() {
            let rule = "its znode's name is used again by the next holder: use the fencing token".to_owned();
            return Err(Error::InvalidArgument { name: "hold", value: self.path().to_owned(), rule });
        }
        let lock = self.path().rsplit_once('/').map_or("/", |(lock, _)| lock).to_owned();
        Ok(transaction.guarded_by(lock, self.node()))
    }
}
