//! Creating a znode so that it is never made twice and never forgotten, whatever becomes of the reply.

use std::{fmt, sync::Arc};

use crate::{
    base::paths::ServerPath,
    error::Result,
    framework::{
        cleanup::jobs::Job,
        client::{
            call::{Call, Failure},
            core::{Core, CuratorFramework},
        },
        config::acl::{leaf_acl, parent_acl},
    },
    proto::{
        request::Request,
        response::Response,
        types::{Acl, CreateMode},
    },
    session::{
        api::Session,
        wait::pending::{submit, submit_one},
    },
};

/// What to create.
pub(crate) struct Creation<'a> {
    pub(crate) client: &'a CuratorFramework,
    pub(crate) parent: ServerPath,
    /// The name without protection and sequence number.
    pub(crate) name: &'a str,
    pub(crate) data: &'a [u8],
    pub(crate) mode: CreateMode,
    /// `None`: what the ACL provider says.
    pub(crate) acl: Option<&'a [Acl]>,
    /// Make missing parents.
    pub(crate) make_parents: bool,
}

/// In front of the uuid.
const PROTECTION: &str = "_c_";
/// Where the version stands in a uuid's text.
const VERSION_AT: usize = 14;
/// Behind the version of this crate's uuids: of a znode that goes with its hold.
const FOR_ONE_HOLD: u8 = 0;
/// The same, of one that may stay where nobody holds it.
const MAY_STAY_IDLE: u8 = 1;
/// The text of version 8 and [`MAY_STAY_IDLE`].
const IDLE_MARK: &str = "8001";

/// Curator's protection, in front of a lock's name. Its uuid is of version 8, which is everybody's own, where Curator's is
/// of version 4: so that [`is_curators`] can tell. To Curator and kazoo it is a uuid as any other.
pub(crate) fn protection(_session_id: i64) -> String {
    protection_with(FOR_ONE_HOLD)
}

/// [`protection`] of a znode that its process keeps between holds, which [`may_stay_idle`] tells.
pub(crate) fn protection_of_cached(_session_id: i64) -> String {
    protection_with(MAY_STAY_IDLE)
}

fn protection_with(mark: u8) -> String {
    let mut hyphenated = uuid::Uuid::encode_buffer();
    let mut bytes = uuid::Uuid::new_v4().into_bytes();
    // The rest stays random: 110 bits.
    [bytes[6], bytes[7]] = [0, mark];
    let own = uuid::Builder::from_bytes(bytes).with_version(uuid::Version::Custom).into_uuid();
    [PROTECTION, own.hyphenated().encode_lower(&mut hyphenated), "-"].concat()
}

/// Whether a name says that its process keeps the znode between holds, so that nobody may be inside.
pub(crate) fn may_stay_idle(name: &str) -> bool {
    let mark = name.strip_prefix(PROTECTION).and_then(|uuid| uuid.get(VERSION_AT..)?.get(..IDLE_MARK.len()));
    mark == Some(IDLE_MARK)
}

/// Whether Curator itself has given a znode its protected name.
pub(crate) fn is_curators(name: &str) -> bool {
    name.strip_prefix(PROTECTION).is_some_and(|uuid| uuid.as_bytes().get(VERSION_AT) == Some(&b'4'))
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
    fn doubtful(creation: &Creation<'_>, session: &Arc<dyn Session>, prefix: &str) -> Claim {
        let what = Claimed::Doubtful { parent: creation.parent.clone(), prefix: prefix.to_owned() };
        Claim {
            core: creation.client.core.clone(),
            session: session.clone(),
            what,
            is_ephemeral: creation.mode.is_ephemeral(),
        }
    }

    /// The znode exists, at this path.
    pub(crate) fn created(&mut self, path: &str) {
        self.what = Claimed::Node(ServerPath::from_server(path));
    }

    pub(crate) fn path(&self) -> Option<&ServerPath> {
        match &self.what {
            Claimed::Node(path) => Some(path),
            Claimed::Doubtful { .. } | Claimed::Nothing => None,
        }
    }

    /// Somebody else looks after the znode from here on, or there is none.
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
struct Attempts {
    /// A create whose outcome is unknown, and the prefix it used.
    doubt: Option<Claim>,
    prefix: String,
}

impl Creation<'_> {
    /// Creates the znode, retrying as the policy says.
    pub(crate) fn run(&self, call: &Call<'_>) -> Result<Claim> {
        let mut progress = Attempts::default();
        self.retry(call, |session| self.attempt(call, session, &mut progress))
    }

    /// Retries as the policy says, and makes missing parents.
    pub(crate) fn retry<T>(&self, call: &Call<'_>, attempt: impl FnMut(&Arc<dyn Session>) -> Result<T>) -> Result<T> {
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

    fn attempt(&self, call: &Call<'_>, session: &Arc<dyn Session>, progress: &mut Attempts) -> Result<Claim> {
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
        progress.prefix = protection(session.id());
        self.create(call, session, progress)
    }

    fn create(&self, call: &Call<'_>, session: &Arc<dyn Session>, progress: &mut Attempts) -> Result<Claim> {
        let create = self.request(&progress.prefix);
        let mut claim = Claim::doubtful(self, session, &progress.prefix);
        match call.reply_or_failure(submit_one(session, create)) {
            Ok(Response::Created { path, .. }) => {
                claim.created(&path);
                Ok(claim)
            }
            Ok(other) => Err(call.unexpected(&other)),
            Err(Failure { error, maybe_done: true }) => {
                progress.doubt = Some(claim);
                Err(error)
            }
            Err(Failure { error, maybe_done: false }) => {
                claim.keep();
                Err(error)
            }
        }
    }

    /// The request for a znode with this protection prefix.
    fn request(&self, prefix: &str) -> Request {
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
    fn search(&self, call: &Call<'_>, session: &Arc<dyn Session>, prefix: &str) -> Result<Option<Claim>> {
        let parent = self.parent.as_str().to_owned();
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
                let mut claim = Claim::doubtful(self, session, prefix);
                claim.created(path.as_str());
                Ok(Some(claim))
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
        let looks = chain.iter().map(|path| Request::Exists { path: path.as_str().to_owned(), watch: false });
        let replies = call.ask_all(session, looks);
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
        let containers = self.core.knows_containers();
        let replies = call.ask_all(session, missing.iter().map(|path| self.parent_creation(path, containers)));
        let codes = replies.iter().filter_map(|reply| reply.as_ref().err()?.code());
        if containers && self.core.lacks_containers(codes) {
            return self.make_missing(call, session, missing);
        }
        let mut made_last = false;
        for reply in replies {
            made_last = match reply {
                Ok(_) => true,
                Err(error) if error.is_node_exists() => false,
                Err(error) => return Err(error),
            };
        }
        Ok(made_last)
    }

    /// The request for a parent that is made on the way: a container if the servers know them, unless the client was told
    /// otherwise; with the ACL that the provider names.
    pub(crate) fn parent_creation(&self, path: &ServerPath, containers: bool) -> Request {
        let acl = parent_acl(&*self.core.config.acl_provider, &self.prefix.acl_path(path));
        let is_container = containers && (self.core.config.container_parents || self.prefix.is_within(path));
        let mode = if is_container { CreateMode::Container } else { CreateMode::Persistent };
        Request::Create { path: path.as_str().to_owned(), data: Vec::new(), acl, mode, with_stat: false }
    }
}
