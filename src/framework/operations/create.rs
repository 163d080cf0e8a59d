//! Creates.

#[cfg(doc)]
use crate::error::Error;
use crate::{
    base::paths::ServerPath,
    error::Result,
    framework::{
        client::{call::Call, core::CuratorFramework},
        znodes::create::Creation,
    },
    proto::{
        request::Request,
        response::Response,
        types::{Acl, CreateMode},
    },
    session::wait::deadline::Stop,
};

impl CuratorFramework {
    /// Begins to create a znode.
    pub fn create(&self) -> CreateBuilder<'_> {
        CreateBuilder { client: self, mode: CreateMode::Persistent, acl: None, parents: false, protected: false }
    }
}

/// Creates a znode. Java: `CreateBuilder`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::CreateMode;
///
/// let sequential = client.create().creating_parents_if_needed().with_mode(CreateMode::EphemeralSequential);
/// let order = sequential.with_protection().for_path_and_data("/shop/order-", "3 apples")?;
/// assert!(order.contains("-order-")); // behind an id, by which it is found again after a lost reply
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until for_path()"]
pub struct CreateBuilder<'a> {
    client: &'a CuratorFramework,
    mode: CreateMode,
    acl: Option<Vec<Acl>>,
    parents: bool,
    protected: bool,
}

impl CreateBuilder<'_> {
    /// What kind of znode. Defaults to persistent.
    pub fn with_mode(mut self, mode: CreateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Its ACL. Defaults to what the client's ACL provider says.
    pub fn with_acl(mut self, acl: Vec<Acl>) -> Self {
        self.acl = Some(acl);
        self
    }

    /// Makes missing parents, as containers unless the client was told otherwise.
    pub fn creating_parents_if_needed(mut self) -> Self {
        self.parents = true;
        self
    }

    /// The same as [`CreateBuilder::creating_parents_if_needed`], under Curator's other name for it.
    pub fn creating_parent_containers_if_needed(self) -> Self {
        self.creating_parents_if_needed()
    }

    /// Puts a unique id in front of the name, so that the znode is found again when the reply was lost.
    pub fn with_protection(mut self) -> Self {
        self.protected = true;
        self
    }

    /// Creates the znode with the client's default data. Returns its path, with the sequence number if there is one.
    ///
    /// After a lost reply a retry finds a znode of its own in the way and fails with `NodeExists`, or makes a second one
    /// with another number: [`with_protection`](CreateBuilder::with_protection) finds the first one instead.
    ///
    /// # Errors
    /// [`Error::Server`] with `NodeExists`, `NoNode` (no parent) or `NoAuth`, [`Error::InvalidPath`], and what every
    /// operation can end with: [`Error::ConnectionLoss`], [`Error::SessionExpired`], [`Error::ClientClosed`].
    pub fn for_path(self, path: &str) -> Result<String> {
        let data = self.client.core.config.default_data.clone();
        self.for_path_and_data(path, data)
    }

    /// Creates the znode with this data. Returns its path, with the sequence number if there is one.
    ///
    /// # Errors
    /// As [`CreateBuilder::for_path`].
    pub fn for_path_and_data(self, path: &str, data: impl Into<Vec<u8>>) -> Result<String> {
        let client = self.client;
        let data = data.into();
        let target = client.prefix.to_server(path)?;
        let call = client.call("create", path, Stop::default());
        let server_path =
            if self.protected { self.protected(&call, &target, &data)? } else { self.plain(&call, &target, &data)? };
        Ok(client.prefix.to_client(&server_path))
    }

    fn creation<'b>(&'b self, target: &'b ServerPath, data: &'b [u8]) -> Creation<'b> {
        Creation {
            client: self.client,
            parent: target.parent().unwrap_or_else(|| ServerPath::from_server("/")),
            name: target.name(),
            data,
            mode: self.mode,
            acl: self.acl.as_deref(),
            make_parents: self.parents,
        }
    }

    fn protected(&self, call: &Call<'_>, target: &ServerPath, data: &[u8]) -> Result<String> {
        let claim = self.creation(target, data).run(call)?;
        let path = claim.path().map(|path| path.as_str().to_owned()).unwrap_or_default();
        claim.keep();
        Ok(path)
    }

    fn plain(&self, call: &Call<'_>, target: &ServerPath, data: &[u8]) -> Result<String> {
        let acl = match &self.acl {
            Some(acl) => acl.clone(),
            None => self.client.leaf_acl(target),
        };
        self.creation(target, data).retry(call, |session| {
            let create = Request::Create {
                path: target.as_str().to_owned(),
                data: data.to_vec(),
                acl: acl.clone(),
                mode: self.mode,
                with_stat: false,
            };
            match call.ask(session, create)? {
                Response::Created { path, .. } => Ok(path),
                other => Err(call.unexpected(&other)),
            }
        })
    }
}
