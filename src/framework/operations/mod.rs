//! Operations on znodes, in Curator's fluent form: `client.create().with_mode(...).for_path(path)`.
//!
//! | on a client | gives | which ends in |
//! |---|---|---|
//! | `create()` | [`CreateBuilder`] | the path |
//! | `delete()` | [`DeleteBuilder`] | nothing |
//! | `check_exists()` | [`ExistsBuilder`] | the stat, if there is a znode |
//! | `get_data()`, `set_data()` | [`GetDataBuilder`], [`SetDataBuilder`] | the data, the new stat |
//! | `get_children()` | [`GetChildrenBuilder`] | the names |
//! | `get_acl()`, `set_acl()` | [`GetAclBuilder`], [`SetAclBuilder`] | the ACL, the new stat |
//! | `sync()` | [`SyncBuilder`] | nothing |
//!
//! Several writes as one: [`CuratorFramework::transaction`].
//!
//! # When the connection goes
//! Each operation blocks until the server has answered: one round trip, unless it says otherwise. While the connection is
//! suspended a call waits for it, at most the client's [connection timeout](crate::Builder::connection_timeout), and is tried
//! again as the [retry policy](crate::RetryPolicy) says; if the session is lost, in the next one. A retry may find the result
//! of the first attempt, whose reply was lost: a create then ends with `NodeExists`, a delete with `NoNode`.
//!
//! # Errors
//! | every operation | when |
//! |---|---|
//! | [`Error::Server`] | the server refused it: see the operation for its codes |
//! | [`Error::ConnectionLoss`] | the retry policy is exhausted; `maybe_done` tells whether the server may have carried it out |
//! | [`Error::SessionExpired`] | the same, and the session has ended |
//! | [`Error::InvalidPath`], [`Error::FrameTooLarge`] | it cannot be sent, or its reply is above the limit |
//! | [`Error::AuthFailed`] | the servers do not accept the client's credentials |
//! | [`Error::NotStarted`], [`Error::ClientClosed`] | the client is not in use, or not any more |

mod create;

use super::{
    cleanup::jobs::Job,
    client::{call::Call, core::CuratorFramework},
};
use crate::{
    base::paths::ServerPath,
    error::{Error, Result},
    proto::{
        request::Request,
        response::Response,
        types::{Acl, ErrorCode, Stat},
    },
    session::wait::deadline::WaitBound,
};

pub use create::CreateBuilder;

impl CuratorFramework {
    /// Begins to delete a znode.
    pub fn delete(&self) -> DeleteBuilder<'_> {
        DeleteBuilder { client: self, version: -1, guaranteed: false, children: false }
    }

    /// Begins to ask whether a znode exists.
    pub fn check_exists(&self) -> ExistsBuilder<'_> {
        ExistsBuilder { client: self }
    }

    /// Begins to read a znode's data.
    pub fn get_data(&self) -> GetDataBuilder<'_> {
        GetDataBuilder { client: self, stat: None }
    }

    /// Begins to write a znode's data.
    pub fn set_data(&self) -> SetDataBuilder<'_> {
        SetDataBuilder { client: self, version: -1 }
    }

    /// Begins to list a znode's children.
    pub fn get_children(&self) -> GetChildrenBuilder<'_> {
        GetChildrenBuilder { client: self, stat: None }
    }

    /// Begins to read a znode's ACL.
    pub fn get_acl(&self) -> GetAclBuilder<'_> {
        GetAclBuilder { client: self }
    }

    /// Begins to write a znode's ACL.
    pub fn set_acl(&self) -> SetAclBuilder<'_> {
        SetAclBuilder { client: self, version: -1 }
    }

    /// Begins to bring the server that this client talks to up to date with the leader.
    pub fn sync(&self) -> SyncBuilder<'_> {
        SyncBuilder { client: self }
    }

    /// Sends one request until it is answered.
    fn ask(&self, operation: &'static str, path: &str, request: impl Fn(String) -> Request) -> Result<Response> {
        let server_path = self.prefix.to_server(path)?;
        let call = self.call(operation, path, WaitBound::default());
        call.retry(|session| call.ask(session, request(server_path.as_str().to_owned())))
    }
}

/// Deletes a znode. Java: `DeleteBuilder`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// client.create().creating_parents_if_needed().for_path("/carts/17")?;
/// assert!(client.delete().with_version(3).for_path("/carts/17").is_err()); // it has version 0
/// client.delete().guaranteed().deleting_children_if_needed().for_path("/carts")?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until for_path()"]
pub struct DeleteBuilder<'a> {
    client: &'a CuratorFramework,
    version: i32,
    guaranteed: bool,
    children: bool,
}

impl DeleteBuilder<'_> {
    /// Deletes only this version of the znode. Defaults to any.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = version;
        self
    }

    /// If the connection is lost, the call fails, but the client keeps deleting the znode in the background, over
    /// reconnects and new sessions, until it is gone or the client is closed. It deletes no children there: the znode goes
    /// once it has none. Not [with a version](DeleteBuilder::with_version), as the znode may be another one by then.
    pub fn guaranteed(mut self) -> Self {
        self.guaranteed = true;
        self
    }

    /// Deletes everything below the znode first. Not atomic: others may create and delete children meanwhile. Concurrent
    /// deletes by others, or by the server that removes an emptied container, are not errors.
    pub fn deleting_children_if_needed(mut self) -> Self {
        self.children = true;
        self
    }

    /// Deletes the znode. After a lost reply a retry finds none, and the call fails with `NoNode`, whoever has deleted it.
    ///
    /// # Errors
    /// [`Error::Server`] with `NoNode`, `NotEmpty`, `BadVersion` or `NoAuth`, [`Error::InvalidPath`], and the errors of
    /// every operation: [`Error::ConnectionLoss`], [`Error::SessionExpired`], [`Error::ClientClosed`].
    pub fn for_path(self, path: &str) -> Result<()> {
        let target = self.client.prefix.to_server(path)?;
        let call = self.client.call("delete", path, WaitBound::default());
        let result = self.delete(&call, &target);
        if self.guaranteed && self.version == -1 && result.as_ref().is_err_and(Error::is_retryable) {
            self.client.core.cleanup.add(Job::delete(target, None));
        }
        result
    }

    fn delete(&self, call: &Call<'_>, target: &ServerPath) -> Result<()> {
        let request = || Request::Delete { path: target.as_str().to_owned(), version: self.version };
        let mut seen = false;
        loop {
            let result = call.retry(|session| call.ask(session, request())).map(drop);
            match result {
                // Somebody may add a child in between, so this goes round until it works.
                Err(error) if self.children && error.code() == Some(ErrorCode::NotEmpty) => {
                    seen = true;
                    self.delete_children(call, target)?;
                }
                // The server may remove an emptied container before the next round does; so may another client.
                Err(error) if seen && error.is_no_node() => return Ok(()),
                result => return result,
            }
        }
    }

    fn delete_children(&self, call: &Call<'_>, target: &ServerPath) -> Result<()> {
        let list = || Request::GetChildren { path: target.as_str().to_owned(), watch: false, with_stat: false };
        let names = match call.retry(|session| call.ask(session, list())) {
            Ok(Response::Children { names, .. }) => names,
            Ok(other) => return Err(call.unexpected(&other)),
            Err(error) if error.is_no_node() => return Ok(()),
            Err(error) => return Err(error),
        };
        let any_version = DeleteBuilder { version: -1, ..self.clone() };
        for name in names {
            match any_version.delete(call, &target.join(&name)) {
                Err(error) if !error.is_no_node() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Asks whether a znode exists. Java: `ExistsBuilder`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// match client.check_exists().for_path("/currency")? {
///     Some(stat) => println!("written {} times", stat.version),
///     None => println!("there is none, and that is no error"),
/// }
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until for_path()"]
pub struct ExistsBuilder<'a> {
    client: &'a CuratorFramework,
}

impl ExistsBuilder<'_> {
    /// The znode's stat, `None` if there is no such znode.
    ///
    /// # Errors
    /// [`Error::InvalidPath`], and the errors of every operation: [`Error::ConnectionLoss`], [`Error::SessionExpired`],
    /// [`Error::ClientClosed`].
    pub fn for_path(self, path: &str) -> Result<Option<Stat>> {
        match self.client.ask("exists", path, |path| Request::Exists { path, watch: false }) {
            Ok(Response::Stat(stat)) => Ok(Some(stat)),
            Ok(other) => Err(self.client.call("exists", path, WaitBound::default()).unexpected(&other)),
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reads a znode's data. Java: `GetDataBuilder`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # client.create().for_path_and_data("/currency", "EUR")?;
/// let mut stat = curator_locks::Stat::default();
/// assert_eq!(client.get_data().storing_stat_in(&mut stat).for_path("/currency")?, b"EUR");
/// assert_eq!(stat.version, 0); // for a later `set_data().with_version(...)`
/// # Ok(()) });
/// ```
#[derive(Debug)]
#[must_use = "nothing is sent until for_path()"]
pub struct GetDataBuilder<'a> {
    client: &'a CuratorFramework,
    stat: Option<&'a mut Stat>,
}

impl<'a> GetDataBuilder<'a> {
    /// Also stores the znode's stat there.
    pub fn storing_stat_in(mut self, stat: &'a mut Stat) -> Self {
        self.stat = Some(stat);
        self
    }

    /// The znode's data.
    ///
    /// # Errors
    /// [`Error::Server`] with `NoNode` or `NoAuth`, [`Error::InvalidPath`], and the errors of every operation:
    /// [`Error::ConnectionLoss`], [`Error::SessionExpired`], [`Error::ClientClosed`].
    pub fn for_path(self, path: &str) -> Result<Vec<u8>> {
        match self.client.ask("get_data", path, |path| Request::GetData { path, watch: false })? {
            Response::Data { data, stat } => {
                if let Some(place) = self.stat {
                    *place = stat;
                }
                Ok(data)
            }
            other => Err(self.client.call("get_data", path, WaitBound::default()).unexpected(&other)),
        }
    }
}

/// Writes a znode's data. Java: `SetDataBuilder`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # client.create().for_path_and_data("/currency", "EUR")?;
/// let _ = client.set_data().with_version(0).for_path_and_data("/currency", "CHF"); // unless somebody has written
/// assert_eq!(client.set_data().for_path_and_data("/currency", "USD")?.data_length, 3); // whoever has written
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until for_path_and_data()"]
pub struct SetDataBuilder<'a> {
    client: &'a CuratorFramework,
    version: i32,
}

impl SetDataBuilder<'_> {
    /// Writes only over this version of the data. Defaults to any.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = version;
        self
    }

    /// Replaces the znode's data and returns the new stat. After a lost connection a retry may write the data a second
    /// time; with a version it fails with `BadVersion` instead.
    ///
    /// # Errors
    /// [`Error::Server`] with `NoNode`, `BadVersion` or `NoAuth`, [`Error::InvalidPath`], and the errors of every
    /// operation: [`Error::ConnectionLoss`], [`Error::SessionExpired`], [`Error::ClientClosed`].
    pub fn for_path_and_data(self, path: &str, data: impl Into<Vec<u8>>) -> Result<Stat> {
        let (data, version) = (data.into(), self.version);
        let request = |path| Request::SetData { path, data: data.clone(), version };
        match self.client.ask("set_data", path, request)? {
            Response::Stat(stat) => Ok(stat),
            other => Err(self.client.call("set_data", path, WaitBound::default()).unexpected(&other)),
        }
    }
}

/// Lists a znode's children. Java: `GetChildrenBuilder`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # client.create().creating_parents_if_needed().for_path("/carts/17")?;
/// let names = client.get_children().for_path("/carts")?;
/// assert_eq!(names, ["17"]); // names, not paths
/// # Ok(()) });
/// ```
#[derive(Debug)]
#[must_use = "nothing is sent until for_path()"]
pub struct GetChildrenBuilder<'a> {
    client: &'a CuratorFramework,
    stat: Option<&'a mut Stat>,
}

impl<'a> GetChildrenBuilder<'a> {
    /// Also stores the znode's stat there.
    pub fn storing_stat_in(mut self, stat: &'a mut Stat) -> Self {
        self.stat = Some(stat);
        self
    }

    /// The names of the znode's children, in no order.
    ///
    /// # Errors
    /// [`Error::Server`] with `NoNode` or `NoAuth`, [`Error::InvalidPath`], [`Error::FrameTooLarge`] for a list beyond
    /// the limit, and the errors of every operation: [`Error::ConnectionLoss`], [`Error::SessionExpired`],
    /// [`Error::ClientClosed`].
    pub fn for_path(self, path: &str) -> Result<Vec<String>> {
        let with_stat = self.stat.is_some();
        match self.client.ask("get_children", path, |path| Request::GetChildren { path, watch: false, with_stat })? {
            Response::Children { names, stat } => {
                if let (Some(place), Some(stat)) = (self.stat, stat) {
                    *place = stat;
                }
                Ok(names)
            }
            other => Err(self.client.call("get_children", path, WaitBound::default()).unexpected(&other)),
        }
    }
}

/// Reads a znode's ACL. Java: `GetACLBuilder`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::Acl;
///
/// assert_eq!(client.get_acl().for_path("/")?, Acl::open_unsafe()); // a new server lets everybody do everything
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until for_path()"]
pub struct GetAclBuilder<'a> {
    client: &'a CuratorFramework,
}

impl GetAclBuilder<'_> {
    /// The znode's ACL.
    ///
    /// # Errors
    /// As [`GetDataBuilder::for_path`].
    pub fn for_path(self, path: &str) -> Result<Vec<Acl>> {
        match self.client.ask("get_acl", path, |path| Request::GetAcl { path })? {
            Response::Acl { acl, .. } => Ok(acl),
            other => Err(self.client.call("get_acl", path, WaitBound::default()).unexpected(&other)),
        }
    }
}

/// Writes a znode's ACL. Java: `SetACLBuilder`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::Acl;
///
/// # client.create().for_path("/currency")?;
/// client.set_acl().for_path("/currency", Acl::read_unsafe())?;
/// assert!(client.set_data().for_path_and_data("/currency", "EUR").is_err()); // NoAuth, from now on
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until for_path()"]
pub struct SetAclBuilder<'a> {
    client: &'a CuratorFramework,
    version: i32,
}

impl SetAclBuilder<'_> {
    /// Writes only over this version of the ACL. Defaults to any.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = version;
        self
    }

    /// Replaces the znode's ACL and returns the new stat. After a lost connection as
    /// [`SetDataBuilder::for_path_and_data`].
    ///
    /// # Errors
    /// As [`SetDataBuilder::for_path_and_data`], and `InvalidAcl`.
    pub fn for_path(self, path: &str, acl: Vec<Acl>) -> Result<Stat> {
        let version = self.version;
        match self.client.ask("set_acl", path, |path| Request::SetAcl { path, acl: acl.clone(), version })? {
            Response::Stat(stat) => Ok(stat),
            other => Err(self.client.call("set_acl", path, WaitBound::default()).unexpected(&other)),
        }
    }
}

/// Brings a server up to date with the leader. Java: `SyncBuilder`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # client.create().for_path_and_data("/currency", "EUR")?;
/// // Another client has written "/currency", and has told us so.
/// client.sync().for_path("/currency")?;
/// assert_eq!(client.get_data().for_path("/currency")?, b"EUR"); // nothing older
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until for_path()"]
pub struct SyncBuilder<'a> {
    client: &'a CuratorFramework,
}

impl SyncBuilder<'_> {
    /// Returns when the server that this client talks to has seen everything that the leader had seen before.
    ///
    /// # Errors
    /// [`Error::InvalidPath`], and the errors of every operation: [`Error::ConnectionLoss`], [`Error::SessionExpired`],
    /// [`Error::ClientClosed`].
    pub fn for_path(self, path: &str) -> Result<()> {
        self.client.ask("sync", path, |path| Request::Sync { path }).map(drop)
    }
}
