//! How znodes are created: protected names, ACLs, parents.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    base::{paths::ServerPath, random},
    error::{Error, Result},
    framework::{
        cleanup::jobs::Job,
        client::{call::Call, core::CuratorFramework},
        config::acl::{leaf_acl, parent_acl},
    },
    proto::{
        request::Request,
        response::Response,
        types::{Acl, CreateMode, ErrorCode},
    },
    session::api::{Session, SessionError},
};

/// The text in front of the uuid.
const PROTECTION: &str = "_c_";
/// The position of the version in a uuid's text.
const VERSION_AT: usize = 14;
/// The text of version 8, and of the byte behind it in a name whose znode may stay while it is idle.
const IDLE_MARK: &str = "8001";

/// Curator's protection, in front of a lock's name. Its uuid is of version 8, which is for private use, Curator's is of
/// version 4: so that [`is_curators`] can tell. To Curator and kazoo it is a uuid as any other.
///
/// `stays_idle`: its process may keep the znode between holds, which [`may_stay_idle`] tells.
pub(crate) fn protection(stays_idle: bool) -> String {
    let mut hyphenated = uuid::Uuid::encode_buffer();
    let mut bytes = random::uuid().into_bytes();
    // The rest stays random: 110 bits.
    [bytes[6], bytes[7]] = [0, u8::from(stays_idle)];
    let own = uuid::Builder::from_bytes(bytes).with_version(uuid::Version::Custom).into_uuid();
    [PROTECTION, own.hyphenated().encode_lower(&mut hyphenated), "-"].concat()
}

/// Whether a name says that its process keeps the znode between holds, so that it may be idle.
pub(crate) fn may_stay_idle(name: &str) -> bool {
    let mark = name.strip_prefix(PROTECTION).and_then(|uuid| uuid.get(VERSION_AT..)?.get(..IDLE_MARK.len()));
    mark == Some(IDLE_MARK)
}

/// Whether Curator itself has given a znode its protected name.
pub(crate) fn is_curators(name: &str) -> bool {
    name.strip_prefix(PROTECTION).is_some_and(|uuid| uuid.as_bytes().get(VERSION_AT) == Some(&b'4'))
}

impl CuratorFramework {
    /// The ACL of a znode that a call makes, as the provider says.
    pub(crate) fn leaf_acl(&self, path: &ServerPath) -> Vec<Acl> {
        leaf_acl(&*self.core.config.acl_provider, &self.prefix.acl_path(path))
    }

    /// Makes a directory and all that is missing above it, of containers or of persistent znodes; but not the chroot, unless the
    /// client is to. `true` if this call made the directory itself.
    pub(crate) fn make_directory(
        &self,
        call: &Call<'_>,
        session: &Arc<dyn Session>,
        directory: &ServerPath,
        containers: bool,
    ) -> Result<bool> {
        let made = self.make_directories(call, session, &[directory], containers)?;
        Ok(made.contains(directory))
    }

    /// The same for several, in as many round trips as for one. Returns what this call made.
    pub(crate) fn make_directories(
        &self,
        call: &Call<'_>,
        session: &Arc<dyn Session>,
        directories: &[&ServerPath],
        containers: bool,
    ) -> Result<Vec<ServerPath>> {
        let chains = directories.iter().flat_map(|directory| directory.ancestors().chain([(*directory).clone()]));
        // A znode comes behind those above it.
        let chain: BTreeSet<ServerPath> = chains.collect();
        let looks = chain.iter().map(|path| Request::Exists { path: path.as_str().to_owned(), watch: false });
        let replies = call.ask_all(session, looks);
        let (mut missing, mut ephemeral) = (Vec::new(), Vec::new());
        for (path, reply) in chain.into_iter().zip(replies) {
            match reply {
                Ok(Response::Stat(stat)) if stat.ephemeral_owner != 0 => ephemeral.push(path),
                Ok(_) => {}
                Err(error) if error.is_no_node() => missing.push(path),
                Err(error) => return Err(error),
            }
        }
        let is_below_ephemeral = |path: &ServerPath| path.parent().is_some_and(|parent| ephemeral.contains(&parent));
        if missing.iter().any(is_below_ephemeral) {
            // The server would refuse the creates one by one.
            return Err(call.error(SessionError::Server(ErrorCode::NoChildrenForEphemerals)));
        }
        if let Some(path) = missing.iter().find(|path| path.as_str() == self.prefix.chroot())
            && !self.core.config.create_chroot
            && self.is_missing(call, session, path)?
        {
            let rule = "the servers have no such znode, and the chroot of a connect string is not made on the fly: mend the \
                        connect string, or make it, for instance by Builder::create_chroot(true)";
            return Err(Error::InvalidPath { path: path.as_str().to_owned(), rule: rule.to_owned() });
        }
        let made = self.make_missing(call, session, &missing, containers);
        if made.is_err() {
            // Some containers may be there. The server removes only those that had a child once.
            for path in missing {
                self.core.cleanup.add(Job::never_used(path));
            }
        }
        made
    }

    /// Whether the znode is missing at the leader as well: a server that lags does not know what has just been made.
    fn is_missing(&self, call: &Call<'_>, session: &Arc<dyn Session>, path: &ServerPath) -> Result<bool> {
        let looks = [
            Request::Sync { path: path.as_str().to_owned() },
            Request::Exists { path: path.as_str().to_owned(), watch: false },
        ];
        match call.ask_all(session, looks).pop() {
            Some(Err(error)) if error.is_no_node() => Ok(true),
            Some(Err(error)) => Err(error),
            _ => Ok(false),
        }
    }

    fn make_missing(
        &self,
        call: &Call<'_>,
        session: &Arc<dyn Session>,
        missing: &[ServerPath],
        containers: bool,
    ) -> Result<Vec<ServerPath>> {
        let are_containers = containers && session.has_containers();
        let replies = call.ask_all(
            session,
            missing.iter().map(|path| {
                // The chroot stays: with a container, it would be gone for others when nobody uses it.
                let is_of_chroot = path.as_str().len() <= self.prefix.chroot().len();
                self.parent_creation(path, containers && !is_of_chroot)
            }),
        );
        let mut codes = replies.iter().filter_map(|reply| reply.as_ref().err()?.code());
        // The servers do not know containers, as one of them has just said: the parents are persistent then.
        let is_refused = |code| code == ErrorCode::Unimplemented || !session.has_containers();
        if are_containers && codes.any(is_refused) {
            return self.make_missing(call, session, missing, false);
        }
        let mut made = Vec::new();
        for (path, reply) in missing.iter().zip(replies) {
            match reply {
                Ok(_) => made.push(path.clone()),
                Err(error) if error.is_node_exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(made)
    }

    /// The request for a parent that is made on the way, with the ACL that the provider names; a container if `containers`,
    /// unless the client was told otherwise.
    pub(crate) fn parent_creation(&self, path: &ServerPath, containers: bool) -> Request {
        let acl = parent_acl(&*self.core.config.acl_provider, &self.prefix.acl_path(path));
        let are_wanted = containers && (self.core.config.container_parents || self.prefix.is_within(path));
        let is_container = are_wanted && self.core.current_session().is_none_or(|session| session.has_containers());
        if are_wanted && !is_container {
            self.core.parents_stay(path);
        }
        let mode = if is_container { CreateMode::Container } else { CreateMode::Persistent };
        Request::Create { path: path.as_str().to_owned(), data: Vec::new(), acl, mode }
    }
}
