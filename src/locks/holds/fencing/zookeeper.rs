//! The newest token in ZooKeeper, for storage on any number of machines.

use crate::{
    base::log,
    error::{Error, Result},
    framework::{client::core::CuratorFramework, transaction::Transaction},
    locks::holds::fencing::{
        checker::{FencingError, not_stale},
        token::FencingToken,
    },
    proto::types::{ErrorCode, Stat},
};

/// A [`FencingChecker`](crate::FencingChecker) that keeps the newest token in a znode, for storage that is served by
/// several machines.
///
/// A check is one read, and one write that holds only if no token was shown in between; otherwise it begins again. The
/// answer was true at some moment of the call. A write to other storage that follows may still be overtaken: there the
/// storage's own comparison is better. Data in ZooKeeper itself can be written in the same moment, with
/// [`guard_transaction`](ZooKeeperFencingChecker::guard_transaction).
///
/// The znode is made when it is first needed. Do not delete it: a new one knows no token. Calls block and are tried
/// again as [every operation](crate::operations#when-the-connection-goes) of the client.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use curator_locks::ZooKeeperFencingChecker;
/// # client.create().for_path("/account")?;
/// # let held = curator_locks::InterProcessMutex::new(client, "/example")?.lock()?;
/// # let token = held.fencing_token();
/// let fence = ZooKeeperFencingChecker::new(&client, "/fences/account")?;
/// fence.check(token)?;
/// // Or in the moment in which the data is written:
/// fence.guard_transaction(token, client.transaction())?.set_data().for_path_and_data("/account", "80").commit()?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct ZooKeeperFencingChecker {
    client: CuratorFramework,
    path: String,
}

impl ZooKeeperFencingChecker {
    /// A checker with its token in the znode `path`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`].
    pub fn new(client: &CuratorFramework, path: &str) -> Result<ZooKeeperFencingChecker> {
        client.prefix.to_server(path)?;
        Ok(ZooKeeperFencingChecker { client: client.clone(), path: path.to_owned() })
    }

    /// Records the token of an exclusive lock.
    ///
    /// # Errors
    /// [`FencingError::Stale`] if a newer one was shown before, by whichever process; [`FencingError::Failed`] as
    /// [every operation on a znode](crate::operations#errors): whether it was recorded is unknown then, and it may be
    /// checked again.
    pub fn check(&self, token: FencingToken) -> Result<(), FencingError> {
        self.until_nobody_comes_between(token, || self.guard_transaction(token, self.client.transaction()))
    }

    /// Compares the token of a read lock with the newest one of a writer, and records nothing; see
    /// [`FencingChecker::check_shared`](crate::FencingChecker::check_shared).
    ///
    /// # Errors
    /// [`FencingError::Stale`] if a younger writer has shown its token before; [`FencingError::Failed`].
    pub fn check_shared(&self, token: FencingToken) -> Result<(), FencingError> {
        self.until_nobody_comes_between(token, || self.guard_shared(token, self.client.transaction()))
    }

    /// Makes the server refuse a transaction if a newer token is shown before it is carried out; otherwise the
    /// transaction records this one. One read. A refused [`commit`](Transaction::commit) fails with
    /// [`Error::TransactionFailed`] and `BadVersion` at the last operation so far: somebody has shown a token since
    /// this call, so begin again.
    ///
    /// # Errors
    /// As [`check`](ZooKeeperFencingChecker::check).
    pub fn guard_transaction(
        &self,
        token: FencingToken,
        transaction: Transaction,
    ) -> Result<Transaction, FencingError> {
        let (newest, version) = self.read_older(token)?;
        if newest == Some(token) {
            return Ok(transaction.check().with_version(version).for_path(&self.path));
        }
        Ok(transaction.set_data().with_version(version).for_path_and_data(&self.path, token.to_bytes()))
    }

    /// Like [`guard_transaction`](Self::guard_transaction), for a read lock's token, which is not recorded.
    ///
    /// # Errors
    /// As [`check_shared`](ZooKeeperFencingChecker::check_shared).
    pub fn guard_shared(&self, token: FencingToken, transaction: Transaction) -> Result<Transaction, FencingError> {
        let (_, version) = self.read_older(token)?;
        Ok(transaction.check().with_version(version).for_path(&self.path))
    }

    /// The newest token of an exclusive lock so far, as the client's server knows it.
    ///
    /// # Errors
    /// As [every operation on a znode](crate::operations#errors).
    pub fn newest(&self) -> Result<Option<FencingToken>> {
        Ok(self.read()?.and_then(|(newest, _)| newest))
    }

    /// Begins again when others come between. The write goes to the leader, so a server that lags behind is found out.
    fn until_nobody_comes_between(
        &self,
        token: FencingToken,
        guarded: impl Fn() -> Result<Transaction, FencingError>,
    ) -> Result<(), FencingError> {
        loop {
            match guarded()?.commit() {
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.code(), Some(ErrorCode::BadVersion | ErrorCode::NoNode)) => {
                    log::debug!("{}: somebody was faster than {token}", self.path);
                    self.client.sync().for_path(&self.path)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The stored token with its version, unless it is newer. A znode without a token is older than all.
    fn read_older(&self, token: FencingToken) -> Result<(Option<FencingToken>, i32), FencingError> {
        loop {
            if let Some((newest, version)) = self.read()? {
                not_stale(token, newest)?;
                return Ok((newest, version));
            }
            self.make()?;
        }
    }

    fn read(&self) -> Result<Option<(Option<FencingToken>, i32)>> {
        let mut stat = Stat::default();
        let data = match self.client.get_data().storing_stat_in(&mut stat).for_path(&self.path) {
            Ok(data) => data,
            Err(error) if error.is_no_node() => return Ok(None),
            Err(error) => return Err(error),
        };
        match <[u8; 16]>::try_from(data) {
            Ok(bytes) => Ok(Some((Some(FencingToken::from_bytes(bytes)), stat.version))),
            Err(data) if data.is_empty() => Ok(Some((None, stat.version))),
            Err(_) => {
                let rule = "a znode with 16 bytes or none".to_owned();
                Err(Error::InvalidArgument { name: "path", value: self.path.clone(), rule })
            }
        }
    }

    /// Makes the znode empty, so that it does not matter whether this create or another client's was carried out.
    fn make(&self) -> Result<()> {
        match self.client.create().creating_parents_if_needed().for_path_and_data(&self.path, "") {
            Err(error) if !error.is_node_exists() => Err(error),
            _ => Ok(()),
        }
    }
}
