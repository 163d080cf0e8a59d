//! Several writes as one: all of them, or none.

use std::sync::Arc;

use super::{
    client::{call::Call, core::CuratorFramework},
    held::node::HeldNode,
};
use crate::{
    base::paths::ServerPath,
    error::{Error, LostReason, Result},
    proto::{
        request::Request,
        response::Response,
        types::{Acl, CreateMode, ErrorCode, Stat},
    },
    session::{
        api::{Session, SessionError},
        wait::{deadline::WaitBound, pending::submit_one},
    },
};

impl CuratorFramework {
    /// Begins a transaction: several operations that the server carries out together, or not at all. Java: `inTransaction`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use curator_locks::{CuratorFramework, Error, RetryOneTime};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "testing")]
    /// # let server = curator_locks::testing::TestingServer::start()?;
    /// # #[cfg(feature = "testing")]
    /// # let servers = server.connect_string();
    /// # #[cfg(not(feature = "testing"))]
    /// # let servers = "zk1:2181";
    /// # if cfg!(not(feature = "testing")) { return Ok(()) }
    /// # let client = CuratorFramework::builder()
    /// #     .connect_string(servers)
    /// #     .retry_policy(RetryOneTime::new(Duration::from_millis(100)))
    /// #     .build()?;
    /// # client.start()?;
    /// let results = client
    ///     .transaction()
    ///     .create().for_path_and_data("/account", "100")
    ///     .create().for_path_and_data("/journal", "")
    ///     .commit()?;
    /// assert_eq!(results[1].path, "/journal");
    ///
    /// let refused = client
    ///     .transaction()
    ///     .set_data().for_path_and_data("/account", "80")
    ///     .check().with_version(7).for_path("/journal")
    ///     .commit();
    /// assert!(matches!(refused, Err(Error::TransactionFailed { index: 1, operation: "check", .. })));
    /// assert_eq!(client.get_data().for_path("/account")?, b"100");
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self) -> Transaction {
        Transaction { client: self.clone(), steps: Vec::new(), guards: Vec::new(), broken: None }
    }
}

/// Operations that the server carries out together, or not at all. Java: `CuratorTransaction`.
///
/// Made by [`CuratorFramework::transaction`]. Nothing is sent before [`commit`](Transaction::commit). With
/// [`Hold::guard_transaction`](crate::Hold::guard_transaction) the server refuses it once a lock is gone.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// client.create().for_path_and_data("/cart", "2 books")?;
/// let results = client
///     .transaction()
///     .check().with_version(0).for_path("/cart")
///     .create().for_path_and_data("/order", "2 books")
///     .set_data().for_path_and_data("/cart", "")
///     .delete().for_path("/cart")
///     .commit()?;
/// assert_eq!(results.len(), 4);
/// assert!(client.check_exists().for_path("/cart")?.is_none());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until commit()"]
pub struct Transaction {
    client: CuratorFramework,
    steps: Vec<Request>,
    /// The paths of locks, and the znodes that must exist because of them.
    guards: Vec<(String, Arc<HeldNode>)>,
    /// The error of the first invalid path.
    broken: Option<Error>,
}

/// The result of one operation of a transaction. Java: `CuratorTransactionResult`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::TransactionResult;
///
/// let results: Vec<TransactionResult> = client.transaction().create().for_path("/order").commit()?;
/// let order = &results[0];
/// assert_eq!((order.operation, order.path.as_str()), ("create", "/order"));
/// assert_eq!(order.created.as_deref(), Some("/order"));
/// assert_eq!(order.stat, None);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionResult {
    /// `create`, `delete`, `set_data` or `check`.
    pub operation: &'static str,
    /// The path of the operation.
    pub path: String,
    /// The path of a znode that was created, with the sequence number if there is one.
    pub created: Option<String>,
    /// The stat of a znode whose data was set.
    pub stat: Option<Stat>,
}

impl Transaction {
    /// Adds the condition that a znode exists, or has a version. Java: `CuratorTransaction.check`.
    pub fn check(self) -> TransactionCheckBuilder {
        TransactionCheckBuilder { transaction: self, version: -1 }
    }

    /// Adds a create. Java: `CuratorTransaction.create`.
    pub fn create(self) -> TransactionCreateBuilder {
        TransactionCreateBuilder { transaction: self, mode: CreateMode::Persistent, acl: None }
    }

    /// Adds a delete. Java: `CuratorTransaction.delete`.
    pub fn delete(self) -> TransactionDeleteBuilder {
        TransactionDeleteBuilder { transaction: self, version: -1 }
    }

    /// Adds a write of a znode's data. Java: `CuratorTransaction.setData`.
    pub fn set_data(self) -> TransactionSetDataBuilder {
        TransactionSetDataBuilder { transaction: self, version: -1 }
    }

    /// Makes the server refuse the transaction unless this znode, on which a lock stands, exists.
    pub(crate) fn guarded_by(mut self, lock: String, held: &Arc<HeldNode>) -> Transaction {
        self.guards.push((lock, held.clone()));
        self
    }

    fn add(mut self, path: &str, op: impl FnOnce(&CuratorFramework, ServerPath) -> Request) -> Transaction {
        match self.client.prefix.to_server(path) {
            Ok(target) => self.steps.push(op(&self.client, target)),
            Err(error) => self.broken = self.broken.or(Some(error)),
        }
        self
    }

    /// Sends the operations, which the server carries out together or not at all, and returns their results in order. Java:
    /// `commit`.
    ///
    /// If the reply is lost, it is unknown whether the server carried it out: the call fails with [`Error::ConnectionLoss`] and
    /// never sends the transaction again. Read the written data back; a version, or a znode of its own, tells.
    ///
    /// Blocks until the server has answered. While the connection is gone it waits for it as the retry policy says. A
    /// transaction without operations does nothing.
    ///
    /// # Errors
    /// [`Error::TransactionFailed`], with the operation that failed, if the server refused it: nothing was written.
    /// [`Error::LockLost`] if a [guard](crate::Hold::guard_transaction) refused it: nothing was written. The first
    /// [`Error::InvalidPath`] of its operations, before anything is sent. [`Error::ConnectionLoss`],
    /// [`Error::SessionExpired`] and [`Error::ClientClosed`]: its outcome is unknown.
    pub fn commit(self) -> Result<Vec<TransactionResult>> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let Some(first) = self.steps.first() else { return Ok(Vec::new()) };
        let path = self.client.prefix.to_client(first.path());
        let call = self.client.call("transaction", &path, WaitBound::default());
        // A name with a unique id: as long as it exists, it is this hold's znode.
        let stands = |held: &HeldNode| Request::Check { path: held.path().as_str().to_owned(), version: -1 };
        let ops: Vec<_> = self.guards.iter().map(|(_, held)| stands(held)).chain(self.steps.iter().cloned()).collect();
        call.retry(|session| match call.reply_or_doubt(submit_one(session, Request::Multi(ops.clone()))) {
            Err((error, false)) => Err(error),
            Err((error, true)) => Ok(Err(error)),
            Ok(reply) => Ok(self.finish(&call, session, reply)),
        })?
    }

    fn finish(&self, call: &Call<'_>, session: &Arc<dyn Session>, reply: Response) -> Result<Vec<TransactionResult>> {
        let results = match reply {
            Response::Multi(results) if results.len() == self.guards.len() + self.steps.len() => results,
            other => return Err(call.unexpected(&other)),
        };
        if results.iter().any(Result::is_err) {
            let codes: Vec<_> = results.into_iter().map(|result| result.err().flatten()).collect();
            return Err(self.refused(session, &codes));
        }
        let of_steps = self.steps.iter().zip(results.into_iter().skip(self.guards.len()).flatten());
        Ok(of_steps.map(|(step, response)| self.result(step, response)).collect())
    }

    fn result(&self, step: &Request, response: Response) -> TransactionResult {
        let (created, stat) = match response {
            Response::Created { path, .. } => (Some(self.client.prefix.to_client(&path)), None),
            Response::Stat(stat) => (None, Some(stat)),
            _ => (None, None),
        };
        let path = self.client.prefix.to_client(step.path());
        TransactionResult { operation: step.operation(), path, created, stat }
    }

    /// The first real code is the cause: the server gives 0 to those before it, and an inconsistency to those after it.
    fn refused(&self, session: &Arc<dyn Session>, codes: &[Option<ErrorCode>]) -> Error {
        let cause = codes.iter().enumerate().find_map(|(index, code)| code.map(|code| (index, code)));
        let (index, code) = cause.unwrap_or((self.guards.len(), ErrorCode::RuntimeInconsistency));
        let guards = self.guards.len();
        if let Some((lock, held)) = self.guards.get(index) {
            return refused_for(lock, held, session, code);
        }
        let (index, codes) = (index - guards, codes.iter().skip(guards).copied().collect());
        let step = self.steps.get(index);
        Error::TransactionFailed {
            index,
            operation: step.map_or("transaction", Request::operation),
            path: step.map(|step| self.client.prefix.to_client(step.path())).unwrap_or_default(),
            code,
            codes,
        }
    }
}

/// The error of a transaction that the server refused because of the znode of a lock.
fn refused_for(lock: &str, held: &HeldNode, session: &Arc<dyn Session>, code: ErrorCode) -> Error {
    let refused = Error::Server { code, operation: "check", path: lock.to_owned() };
    if code != ErrorCode::NoNode {
        return refused;
    }
    if Arc::ptr_eq(session, held.session()) {
        // Tells the holder, too.
        held.znode().seen(session.connection(), Err(SessionError::Server(ErrorCode::NoNode)));
    } else if held.lost().is_none() {
        // Another client may ask other servers: that says nothing of the lock.
        return refused;
    }
    Error::LockLost { path: lock.to_owned(), reason: held.lost().unwrap_or(LostReason::NodeDeleted) }
}

/// Adds a condition to a transaction.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// client.create().for_path("/cart")?;
/// client.transaction().check().for_path("/cart").commit()?;
/// assert!(client.transaction().check().with_version(7).for_path("/cart").commit().is_err());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is added until for_path()"]
pub struct TransactionCheckBuilder {
    transaction: Transaction,
    version: i32,
}

impl TransactionCheckBuilder {
    /// The znode has to have this version. Defaults to any: it has to exist.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = version;
        self
    }

    /// The znode. Its ACL has to allow the caller to read it.
    pub fn for_path(self, path: &str) -> Transaction {
        let version = self.version;
        self.transaction.add(path, |_, path| Request::Check { path: path.into_string(), version })
    }
}

/// Adds a create to a transaction.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{Acl, CreateMode};
///
/// let results = client
///     .transaction()
///     .create().with_acl(Acl::open_unsafe()).for_path("/orders")
///     .create().with_mode(CreateMode::PersistentSequential).for_path_and_data("/orders/o-", "2 books")
///     .commit()?;
/// assert_eq!(results[1].created.as_deref(), Some("/orders/o-0000000000"));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is added until for_path()"]
pub struct TransactionCreateBuilder {
    transaction: Transaction,
    mode: CreateMode,
    acl: Option<Vec<Acl>>,
}

impl TransactionCreateBuilder {
    /// The kind of znode. Defaults to persistent.
    pub fn with_mode(mut self, mode: CreateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the znode's ACL. Defaults to that of the client's ACL provider.
    pub fn with_acl(mut self, acl: Vec<Acl>) -> Self {
        self.acl = Some(acl);
        self
    }

    /// The znode, with the client's default data. Parents are not made.
    pub fn for_path(self, path: &str) -> Transaction {
        let data = self.transaction.client.core.config.default_data.clone();
        self.for_path_and_data(path, data)
    }

    /// The znode and its data. Parents are not made.
    pub fn for_path_and_data(self, path: &str, data: impl Into<Vec<u8>>) -> Transaction {
        let (mode, acl, data) = (self.mode, self.acl, data.into());
        self.transaction.add(path, |client, path| {
            let acl = acl.unwrap_or_else(|| client.leaf_acl(&path));
            Request::Create { path: path.into_string(), data, acl, mode }
        })
    }
}

/// Adds a delete to a transaction.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// client.create().for_path("/cart")?;
/// client.transaction().delete().with_version(0).for_path("/cart").commit()?;
/// assert!(client.transaction().delete().for_path("/cart").commit().is_err()); // it is gone
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is added until for_path()"]
pub struct TransactionDeleteBuilder {
    transaction: Transaction,
    version: i32,
}

impl TransactionDeleteBuilder {
    /// Deletes only this version of the znode. Defaults to any.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = version;
        self
    }

    /// The znode.
    pub fn for_path(self, path: &str) -> Transaction {
        let version = self.version;
        self.transaction.add(path, |_, path| Request::Delete { path: path.into_string(), version })
    }
}

/// Adds a write of a znode's data to a transaction.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// client.create().for_path("/cart")?;
/// let results = client.transaction().set_data().with_version(0).for_path_and_data("/cart", "2 books").commit()?;
/// assert_eq!(results[0].stat.as_ref().map(|stat| stat.version), Some(1));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is added until for_path_and_data()"]
pub struct TransactionSetDataBuilder {
    transaction: Transaction,
    version: i32,
}

impl TransactionSetDataBuilder {
    /// Writes only over this version of the data. Defaults to any.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = version;
        self
    }

    /// The znode and its new data.
    pub fn for_path_and_data(self, path: &str, data: impl Into<Vec<u8>>) -> Transaction {
        let (version, data) = (self.version, data.into());
        self.transaction.add(path, |_, path| Request::SetData { path: path.into_string(), data, version })
    }
}
