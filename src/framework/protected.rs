//! Creating a znode so that it is never made twice and never forgotten, whatever becomes of the reply.

use std::{fmt, sync::Arc};

use super::{
    CuratorFramework,
    acl::{leaf_acl, parent_acl},
    call::{Call, Failure},
    cleanup::Job,
    client::Core,
    vacancy::{Plan, Vacancy},
};
use crate::{
    Error, ErrorCode, Result,
    paths::ServerPath,
    proto::{Acl, CreateMode, Request, Response, Stat},
    session::{Session, submit},
};

/// What to create.
pub(crate) struct Creation<'a> {
    pub(crate) client: &'a CuratorFramework,
    pub(crate) parent: ServerPath,
    /// Makes what the name begins with, unique for each attempt, from the session's id.
    pub(crate) unique: fn(i64) -> String,
    /// The name without protection and sequence number, for instance `lock-`.
    pub(crate) name: &'a str,
    pub(crate) data: &'a [u8],
    pub(crate) mode: CreateMode,
    /// `None`: what the ACL provider says.
    pub(crate) acl: Option<&'a [Acl]>,
    /// Make missing parents.
    pub(crate) make_parents: bool,
    /// Send for the parent's children in the same write.
    pub(crate) list: bool,
    /// Knows at times what the list would say.
    pub(crate) vacancy: Option<&'a Vacancy>,
}

/// Curator's protection, in front of a lock's name.
pub(crate) fn protection(_session_id: i64) -> String {
    let mut hyphenated = uuid::Uuid::encode_buffer();
    ["_c_", uuid::Uuid::new_v4().hyphenated().encode_lower(&mut hyphenated), "-"].concat()
}

/// A znode that this process has created and is responsible for.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) stat: Stat,
    /// Deletes the znode unless it is kept.
    pub(crate) claim: Claim,
    /// The children of the parent, the new one among them.
    pub(crate) listing: Option<Listing>,
}

/// A list of children.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) children: Vec<String>,
    /// The connection that was asked.
    pub(crate) connection: u64,
}

/// The one owner of a znode's clean-up, from the moment its create is sent. Unless it is kept, the znode is deleted in
/// the background until it is known to be gone or its session has ended.
pub(crate) struct Claim {
    core: Arc<Core>,
    session: Arc<dyn Session>,
    /// The end of the session is the end of the znode.
    is_ephemeral: bool,
    what: Claimed,
}

enum Claimed {
    /// A create was sent and its outcome is unknown.
    Doubtful { parent: ServerPath, prefix: String },
    /// It exists.
    Node(ServerPath),
    /// Nothing to clean up.
    Nothing,
}

impl Claim {
    /// For a create that is about to be sent.
    pub(super) fn doubtful(creation: &Creation<'_>, session: &Arc<dyn Session>, prefix: &str) -> Claim {
        let mut claim = Claim::new(creation.client, session, &creation.parent, prefix);
        claim.is_ephemeral = creation.mode.is_ephemeral();
        claim
    }

    /// For an ephemeral znode whose create is about to be sent, with a name that nothing else begins with.
    pub(crate) fn new(
        client: &CuratorFramework,
        session: &Arc<dyn Session>,
        parent: &ServerPath,
        prefix: &str,
    ) -> Claim {
        let what = Claimed::Doubtful { parent: parent.clone(), prefix: prefix.to_owned() };
        Claim { core: client.core.clone(), session: session.clone(), what, is_ephemeral: true }
    }

    /// For a znode that exists.
    pub(crate) fn node(
        client: &CuratorFramework,
        session: &Arc<dyn Session>,
        path: ServerPath,
        is_ephemeral: bool,
    ) -> Claim {
        Claim { core: client.core.clone(), session: session.clone(), is_ephemeral, what: Claimed::Node(path) }
    }

    /// It exists, here.
    pub(crate) fn created(&mut self, path: &str) {
        self.what = Claimed::Node(ServerPath::from_server(path));
    }

    pub(crate) fn session(&self) -> &Arc<dyn Session> {
        &self.session
    }

    pub(crate) fn path(&self) -> Option<&ServerPath> {
        match &self.what {
            Claimed::Node(path) => Some(path),
            Claimed::Doubtful { .. } | Claimed::Nothing => None,
        }
    }

    /// From here on somebody else sees to the znode, or there is none.
    pub(crate) fn keep(mut self) {
        self.what = Claimed::Nothing;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_ephemeral && self.session.is_ended() {
            return;
        }
        let session = self.is_ephemeral.then_some(&self.session);
        let job = match std::mem::replace(&mut self.what, Claimed::Nothing) {
            Claimed::Doubtful { parent, prefix } => Job::protected(parent, prefix, session),
            Claimed::Node(path) => Job::delete(path, session),
            Claimed::Nothing => return,
        };
        self.core.clean_up(job);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// What is known after the attempts so far.
#[derive(Default)]
struct Progress {
    /// A create whose outcome is unknown, and the prefix it used.
    doubt: Option<Claim>,
    prefix: String,
}

impl Creation<'_> {
    /// Creates the znode, retrying as the policy says.
    pub(crate) fn run(&self, call: &Call<'_>) -> Result<Created> {
        let mut progress = Progress::default();
        self.retry(call, |session| self.attempt(call, session, &mut progress))
    }

    /// Retries as the policy says, and makes missing parents.
    pub(super) fn retry<T>(&self, call: &Call<'_>, attempt: impl FnMut(&Arc<dyn Session>) -> Result<T>) -> Result<T> {
        let mut made_parents = false;
        let result = self.retry_with_parents(call, attempt, &mut made_parents);
        if result.is_err() && made_parents {
            self.client.core.clean_up(Job::never_used(self.parent.clone()));
        }
        result
    }

    fn retry_with_parents<T>(
        &self,
        call: &Call<'_>,
        mut attempt: impl FnMut(&Arc<dyn Session>) -> Result<T>,
        made_parents: &mut bool,
    ) -> Result<T> {
        let mut retries = 0;
        let mut missing_parents = 0;
        loop {
            let mut error = match call.session().and_then(|session| attempt(&session)) {
                Ok(created) => return Ok(created),
                Err(error) => error,
            };
            if error.is_no_node() && self.make_parents {
                // Once is normal. Again means that the server removed the parents in between, as empty containers.
                missing_parents += 1;
                if missing_parents > 1 {
                    call.allow_again(&mut retries, error)?;
                }
                match call.session().and_then(|session| self.client.make_directory(call, &session, &self.parent)) {
                    Ok(made) => {
                        *made_parents |= made;
                        continue;
                    }
                    // One that was there a moment ago has been removed: the create finds out, and it is made anew.
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

    fn attempt(&self, call: &Call<'_>, session: &Arc<dyn Session>, progress: &mut Progress) -> Result<Created> {
        match &progress.doubt {
            Some(doubt) if Arc::ptr_eq(&doubt.session, session) || !self.mode.is_ephemeral() => {
                let found = self.search(call, session, &progress.prefix)?;
                if let Some(doubt) = progress.doubt.take() {
                    doubt.keep();
                }
                if let Some(created) = found {
                    return Ok(created);
                }
            }
            // What an earlier session made ends with it, and must not be found: it is about to vanish (CURATOR-498).
            Some(_) => progress.doubt = None,
            None => {}
        }
        progress.prefix = (self.unique)(session.id());
        self.create(call, session, progress)
    }

    fn create(&self, call: &Call<'_>, session: &Arc<dyn Session>, progress: &mut Progress) -> Result<Created> {
        let create = self.request(&progress.prefix);
        let parent = || self.parent.as_str().to_owned();
        let plan = self.vacancy.map_or(Plan::List, |vacancy| vacancy.plan(session));
        // A server that is slow to answer creates must not be asked for lists that come too late, too: they grow with each
        // znode that is left in doubt meanwhile. Whoever has its znode in time asks for the list then.
        let is_slow = self.client.core.cleanup.is_searching(&self.parent);
        let list = (self.list && !is_slow && !matches!(plan, Plan::Nothing(_)))
            .then(|| (Request::GetChildren { path: parent(), watch: false, with_stat: false }, None));
        // Not getData: the directory may have more data than a frame can take, which would end the connection. What
        // `exists` leaves on a directory that is gone goes with the watch.
        let watch = match &plan {
            Plan::ListAndWatch(guarding) if list.is_some() => {
                Some((Request::Exists { path: parent(), watch: true }, Some(guarding.watcher())))
            }
            _ => None,
        };
        let connection = session.connection();
        let mut claim = Claim::doubtful(self, session, &progress.prefix);
        let mut sent = submit(session, std::iter::once((create, None)).chain(list).chain(watch));
        call.await_last(&mut sent);
        let mut replies = sent.into_iter();
        let reply = replies.next().map(|(pending, _)| call.reply_or_failure(pending));
        let stat = match reply {
            Some(Ok(Response::Created { path, stat: Some(stat) })) => {
                claim.created(&path);
                stat
            }
            Some(Ok(other)) => return Err(call.unexpected(&other)),
            Some(Err(Failure { error, maybe_done: true })) => {
                progress.doubt = Some(claim);
                return Err(error);
            }
            Some(Err(Failure { error, maybe_done: false })) => {
                claim.keep();
                return Err(error);
            }
            None => return Err(call.connection_loss()),
        };
        if let Plan::Nothing(expectation) = &plan {
            let listing = claim.path().and_then(|path| expectation.listing(session, path));
            return Ok(Created { stat, claim, listing });
        }
        let listing = replies.next().and_then(|(pending, _)| match call.reply(pending) {
            Ok(Response::Children { names, .. }) => Some(Listing { children: names, connection }),
            // Whoever needs the list asks again.
            _ => None,
        });
        if let (Plan::ListAndWatch(guarding), Some(vacancy), Some((pending, Some(watch)))) =
            (plan, self.vacancy, replies.next())
            && call.reply(pending).is_ok()
        {
            vacancy.guarded(guarding, watch);
        }
        Ok(Created { stat, claim, listing })
    }

    /// The request for a znode with this protection prefix.
    pub(super) fn request(&self, prefix: &str) -> Request {
        let path = self.parent.join(&[prefix, self.name].concat());
        let acl = match self.acl {
            Some(acl) => acl.to_vec(),
            None => self.client.leaf_acl(&path),
        };
        let (mode, data) = (self.mode, self.data.to_vec());
        Request::Create { path: path.into_string(), data, acl, mode, with_stat: true }
    }

    /// Looks for what an earlier attempt in the same session may have made. The sync makes sure that the server asked
    /// has seen it, also if it is another one than the server that was sent the create.
    fn search(&self, call: &Call<'_>, session: &Arc<dyn Session>, prefix: &str) -> Result<Option<Created>> {
        let parent = self.parent.as_str().to_owned();
        let connection = session.connection();
        let sync = Request::Sync { path: parent.clone() };
        let list = Request::GetChildren { path: parent, watch: false, with_stat: false };
        let mut replies = submit(session, vec![(sync, None), (list, None)]).into_iter().map(|(pending, _)| pending);
        let mut reply = || replies.next().map_or_else(|| Err(call.connection_loss()), |pending| call.reply(pending));
        reply()?;
        let children = match reply() {
            Ok(Response::Children { names, .. }) => names,
            Ok(other) => return Err(call.unexpected(&other)),
            Err(error) if error.is_no_node() => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(name) = children.iter().find(|name| name.starts_with(prefix)) else { return Ok(None) };
        let path = self.parent.join(name);
        let exists = Request::Exists { path: path.as_str().to_owned(), watch: false };
        match call.ask(session, exists) {
            Ok(Response::Stat(stat)) if !self.mode.is_ephemeral() || stat.ephemeral_owner == session.id() => {
                let claim = Claim::node(self.client, session, path, self.mode.is_ephemeral());
                Ok(Some(Created { stat, claim, listing: Some(Listing { children, connection }) }))
            }
            Ok(_) => Ok(None),
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl CuratorFramework {
    /// The ACL of a znode that a call makes, as the provider says.
    pub(crate) fn leaf_acl(&self, path: &ServerPath) -> Vec<Acl> {
        leaf_acl(&*self.core.config.acl_provider, &self.prefix.acl_path(path))
    }

    /// Makes a directory and all that is missing above it. `true` if this call made the directory itself.
    pub(crate) fn make_directory(
        &self,
        call: &Call<'_>,
        session: &Arc<dyn Session>,
        directory: &ServerPath,
    ) -> Result<bool> {
        let mut chain: Vec<ServerPath> = directory.ancestors().collect();
        chain.push(directory.clone());
        let looks = chain.iter().map(|path| (Request::Exists { path: path.as_str().to_owned(), watch: false }, None));
        let replies: Vec<_> = submit(session, looks).into_iter().map(|(pending, _)| call.reply(pending)).collect();
        let mut missing = Vec::new();
        for (path, reply) in chain.into_iter().zip(replies) {
            match reply {
                Ok(_) => {}
                Err(error) if error.is_no_node() => missing.push(path),
                Err(error) => return Err(error),
            }
        }
        let made = self.make_missing(call, session, &missing);
        if made.is_err() {
            // Some may be there. The server removes only those that had a child once.
            for path in missing {
                self.core.clean_up(Job::never_used(path));
            }
        }
        made
    }

    fn make_missing(&self, call: &Call<'_>, session: &Arc<dyn Session>, missing: &[ServerPath]) -> Result<bool> {
        let creates = missing.iter().map(|path| (self.parent_creation(path), None));
        let mut made_last = false;
        let replies: Vec<_> = submit(session, creates).into_iter().map(|(pending, _)| call.reply(pending)).collect();
        for (path, reply) in missing.iter().zip(replies) {
            made_last = match reply {
                Ok(_) => true,
                Err(error) if error.is_node_exists() => false,
                Err(Error::Server { code: ErrorCode::Unimplemented, .. }) => {
                    self.make_persistent(call, session, path)?
                }
                Err(error) => return Err(error),
            };
        }
        Ok(made_last)
    }

    fn parent_creation(&self, path: &ServerPath) -> Request {
        let acl = parent_acl(&*self.core.config.acl_provider, &self.prefix.acl_path(path));
        let mode = if self.core.config.container_parents || self.prefix.is_within(path) {
            CreateMode::Container
        } else {
            CreateMode::Persistent
        };
        Request::Create { path: path.as_str().to_owned(), data: Vec::new(), acl, mode, with_stat: true }
    }

    /// For servers that know no containers.
    fn make_persistent(&self, call: &Call<'_>, session: &Arc<dyn Session>, path: &ServerPath) -> Result<bool> {
        let mut request = self.parent_creation(path);
        if let Request::Create { mode, .. } = &mut request {
            *mode = CreateMode::Persistent;
        }
        match call.ask(session, request) {
            Ok(_) => Ok(true),
            Err(error) if error.is_node_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
