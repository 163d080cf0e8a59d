//! Creates.

use std::sync::Arc;

#[cfg(doc)]
use crate::error::Error;
use crate::{
    base::paths::ServerPath,
    error::Result,
    framework::{
        cleanup::jobs::Job,
        client::{call::Call, core::CuratorFramework},
        znodes::create::{Mark, protection},
    },
    proto::{
        request::Request,
        response::Response,
        types::{Acl, CreateMode},
    },
    session::{
        api::Session,
        wait::{deadline::WaitBound, pending::submit_one},
    },
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

    /// Makes missing parents, as containers unless the client was told otherwise.
    pub fn creating_parents_if_needed(mut self) -> Self {
        self.parents = true;
        self
    }

    /// [`CreateBuilder::creating_parents_if_needed`] under Curator's other name for it.
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
    /// [`Error::Server`] with `NodeExists`, `NoNode` (no parent) or `NoAuth`, [`Error::InvalidPath`], and the errors of
    /// every operation: [`Error::ConnectionLoss`], [`Error::SessionExpired`], [`Error::ClientClosed`].
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
        let call = client.call("create", path, WaitBound::default());
        let parent = target.parent().unwrap_or_else(|| ServerPath::from_server("/"));
        let name = target.name();
        let server_path =
            Creation { wanted: &self, call: &call, parent, name, data: &data, made_parents: false, doubt: None }
                .run()?;
        Ok(client.prefix.to_client(&server_path))
    }
}

/// A create that is under way.
struct Creation<'a> {
    wanted: &'a CreateBuilder<'a>,
    call: &'a Call<'a>,
    parent: ServerPath,
    /// The name without protection and sequence number.
    name: &'a str,
    data: &'a [u8],
    /// Whether this call has made the parent, and it has no child yet.
    made_parents: bool,
    /// A protected create whose outcome is unknown: its session and its prefix. Its znode is deleted in the background
    /// unless it is found.
    doubt: Option<(Arc<dyn Session>, String)>,
}

impl Drop for Creation<'_> {
    /// Also if the caller's retry policy or ACL provider panics.
    fn drop(&mut self) {
        if self.made_parents {
            self.wanted.client.core.cleanup.add(Job::never_used(self.parent.clone()));
        }
        self.clear_doubt();
    }
}

impl Creation<'_> {
    /// Retries as the policy says, and makes missing parents. Returns the znode's path.
    fn run(&mut self) -> Result<String> {
        let (client, call) = (self.wanted.client, self.call);
        let mut retries = 0;
        let mut missing_parents = 0;
        loop {
            let mut error = match call.session().and_then(|session| self.attempt(&session)) {
                Ok(created) => {
                    self.made_parents = false;
                    return Ok(created);
                }
                Err(error) => error,
            };
            if error.is_no_node() && self.wanted.parents {
                // Once is normal. Again means that the server removed the parents in between, as empty containers.
                missing_parents += 1;
                if missing_parents > 1 {
                    call.allow_again(&mut retries, error)?;
                }
                match call.session().and_then(|session| client.make_directory(call, &session, &self.parent, true)) {
                    Ok(made) => {
                        self.made_parents |= made;
                        continue;
                    }
                    // A parent that was there a moment ago has been removed: the create finds out, and it is made anew.
                    Err(removed) if removed.is_no_node() => continue,
                    Err(other) => error = other,
                }
            }
            if !error.is_retryable() {
                return Err(error);
            }
            call.allow_retry(&mut retries, error)?;
        }
    }

    fn attempt(&mut self, session: &Arc<dyn Session>) -> Result<String> {
        if !self.wanted.protected {
            return self.created(self.call.ask(session, self.request(""))?);
        }
        if let Some((sender, prefix)) = &self.doubt {
            if Arc::ptr_eq(sender, session) || !self.wanted.mode.is_ephemeral() {
                let found = self.search(session, prefix)?;
                self.doubt = None;
                if let Some(path) = found {
                    return Ok(path.into_string());
                }
            }
            // A znode of an earlier session must not be found: it is about to vanish with that session (CURATOR-498).
            self.clear_doubt();
        }
        let prefix = protection(Mark::NONE);
        let create = self.request(&prefix);
        self.doubt = Some((session.clone(), prefix));
        let reply = self.call.reply_or_doubt(submit_one(session, create));
        if matches!(reply, Ok(Response::Created { .. }) | Err((_, false))) {
            self.doubt = None;
        }
        self.created(reply.map_err(|(error, _)| error)?)
    }

    /// The request for a znode with this protection prefix.
    fn request(&self, prefix: &str) -> Request {
        let path = self.parent.join(&[prefix, self.name].concat());
        let acl = self.wanted.acl.clone().unwrap_or_else(|| self.wanted.client.leaf_acl(&path));
        Request::Create { path: path.into_string(), data: self.data.to_vec(), acl, mode: self.wanted.mode }
    }

    fn created(&self, reply: Response) -> Result<String> {
        match reply {
            Response::Created { path, .. } => Ok(path),
            other => Err(self.call.unexpected(&other)),
        }
    }

    /// Looks for the znode that an earlier attempt in the same session may have made. The sync makes sure that the
    /// server asked has seen it, also if the create was sent to another server.
    fn search(&self, session: &Arc<dyn Session>, prefix: &str) -> Result<Option<ServerPath>> {
        let parent = self.parent.as_str().to_owned();
        let sync = Request::Sync { path: parent.clone() };
        let list = Request::GetChildren { path: parent, watch: false, with_stat: false };
        let mut replies = self.call.ask_all(session, [sync, list]).into_iter();
        let mut reply = || replies.next().unwrap_or_else(|| Err(self.call.connection_loss()));
        reply()?;
        let children = match reply() {
            Ok(Response::Children { names, .. }) => names,
            Ok(other) => return Err(self.call.unexpected(&other)),
            Err(error) if error.is_no_node() => return Ok(None),
            Err(error) => return Err(error),
        };
        // The prefix is of one attempt in one session, so nobody else has made it.
        Ok(children.iter().find(|name| name.starts_with(prefix)).map(|name| self.parent.join(name)))
    }

    /// An ephemeral znode goes with its session, if that does not leave it behind.
    fn clear_doubt(&mut self) {
        let Some((session, prefix)) = self.doubt.take() else { return };
        let is_ephemeral = self.wanted.mode.is_ephemeral();
        if !(is_ephemeral && session.has_taken_its_znodes()) {
            let job = Job::protected(self.parent.clone(), prefix, is_ephemeral.then_some(&session));
            self.wanted.client.core.cleanup.add(job);
        }
    }
}
