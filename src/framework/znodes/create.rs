//! How znodes are created: protected names, ACLs, parents.

use std::sync::Arc;

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
/// The text of version 8, and of the half byte behind it: the byte that follows is the [`Mark`].
const MARKED: &str = "80";

/// What a name tells this crate's contenders of its znode, beside the lock name: a byte of its uuid. To Curator and kazoo it is
/// part of a uuid as any other, which they leave out when they sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(unreachable_pub, reason = "the model check reaches it through a hidden door of the feature `testing`")]
pub struct Mark(u8);

#[allow(unreachable_pub, reason = "as above")]
impl Mark {
    /// A znode without a mark, as those of Curator and kazoo are.
    pub const NONE: Mark = Mark(0);
    /// Its process may keep it between holds, so it may be idle.
    pub const IDLE: Mark = Mark(1);
    /// A reader that goes past upgradable znodes.
    pub const PASSES: Mark = Mark(2);
    /// A writer to others; readers that go past it hold beside it.
    pub const UPGRADABLE: Mark = Mark(4);
    /// The writer that an upgradable one becomes: nobody goes past it.
    pub const UPGRADE: Mark = Mark(8);

    /// The mark in a name; none in a name of others.
    pub fn of(name: &str) -> Mark {
        let uuid = name.strip_prefix(PROTECTION).and_then(|uuid| uuid.get(VERSION_AT..VERSION_AT + 4));
        let digits = uuid.and_then(|text| text.strip_prefix(MARKED)).filter(|text| !text.starts_with('+'));
        Mark(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or_default())
    }

    /// Whether this mark has all of the other one.
    pub fn has(self, other: Mark) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both marks.
    #[must_use]
    pub fn and(self, other: Mark) -> Mark {
        Mark(self.0 | other.0)
    }

    /// A protection with this mark that is not unique: of znodes that nobody creates.
    pub fn sample(self) -> String {
        protection_of([0; 16], self)
    }
}

/// Curator's protection, in front of a lock's name. Its uuid is of version 8, which is for private use, Curator's is of
/// version 4: so that [`is_curators`] can tell.
pub(crate) fn protection(mark: Mark) -> String {
    protection_of(random::uuid().into_bytes(), mark)
}

fn protection_of(mut bytes: [u8; 16], mark: Mark) -> String {
    let mut hyphenated = uuid::Uuid::encode_buffer();
    // The rest stays as it is: 110 bits.
    [bytes[6], bytes[7]] = [0, mark.0];
    let own = uuid::Builder::from_bytes(bytes).with_version(uuid::Version::Custom).into_uuid();
    [PROTECTION, own.hyphenated().encode_lower(&mut hyphenated), "-"].concat()
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
        let chain: Vec<ServerPath> = directory.ancestors().chain([directory.clone()]).collect();
        let looks = chain.iter().map(|path| Request::Exists { path: path.as_str().to_owned(), watch: false });
        let replies = call.ask_all(session, looks);
        let (mut missing, mut is_below_ephemeral) = (Vec::new(), false);
        for (path, reply) in chain.into_iter().zip(replies) {
            match reply {
                Ok(found) => is_below_ephemeral = matches!(found, Response::Stat(stat) if stat.ephemeral_owner != 0),
                Err(error) if error.is_no_node() => missing.push(path),
                Err(error) => return Err(error),
            }
        }
        if is_below_ephemeral && !missing.is_empty() {
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
    ) -> Result<bool> {
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
