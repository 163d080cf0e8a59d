//! The access control list of a new znode.

use crate::proto::types::Acl;

/// Names the access control lists of the znodes that a client makes. Java: `ACLProvider`.
///
/// Asked each time that a znode is made, and under no lock. On which thread:
///
/// | whose znode | thread |
/// |---|---|
/// | of a call that blocks (`acquire`, `lock`, `create`), and missing parents on the way | the calling thread; a panic goes on to the caller |
/// | of a [`LeaderLatch`](crate::LeaderLatch), a [`LeaderSelector`](crate::LeaderSelector) or a [`WriteLock`](crate::zookeeper_recipe::WriteLock) | the object's own thread; a panic is logged, and the attempt to queue fails |
///
/// Several threads may ask at a time. Answer from memory: a timed call takes as much longer as this does.
///
/// ```
/// use curator_locks::{Acl, AclProvider};
///
/// struct SecretsAreOurs;
/// impl AclProvider for SecretsAreOurs {
///     fn default_acl(&self) -> Vec<Acl> {
///         Acl::open_unsafe()
///     }
///     fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
///         path.starts_with("/secrets/").then(Acl::creator_all)
///     }
/// }
/// assert_eq!(SecretsAreOurs.acl_for_path("/secrets/a"), Some(Acl::creator_all()));
/// ```
pub trait AclProvider: Send + Sync + 'static {
    /// The list for a path for which [`acl_for_path`](AclProvider::acl_for_path) gives none. If it is empty, missing
    /// parents are open to the world, and creating the znode itself fails.
    fn default_acl(&self) -> Vec<Acl>;

    /// The list for one path, `None` for the default: so for all paths, unless a provider says otherwise.
    ///
    /// The path has the namespace in front but not the chroot. A lock's own znode comes with its `_c_<uuid>-` prefix and
    /// without its sequence number, each missing parent with its own path.
    fn acl_for_path(&self, _path: &str) -> Option<Vec<Acl>> {
        None
    }
}

/// Lets everybody do everything: the default of a client. Java: `DefaultACLProvider`.
///
/// ```
/// use curator_locks::{Acl, AclProvider, DefaultAclProvider};
///
/// assert_eq!(DefaultAclProvider.default_acl(), Acl::open_unsafe());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DefaultAclProvider;

impl AclProvider for DefaultAclProvider {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }
}

/// The creator of a znode may do everything with it, and all others nothing. Java: `CreatorAllACLProvider`.
///
/// It needs an [authorization](crate::Builder::authorization) or SASL (`Builder::sasl`), and all processes that share a lock need the same one.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CreatorAllAclProvider, CuratorFramework, RetryOneTime};
///
/// let client = CuratorFramework::builder()
///     .connect_string("zk1:2181")
///     .retry_policy(RetryOneTime::new(Duration::from_secs(1)))
///     .authorization("digest", "shop:secret")
///     .acl_provider(CreatorAllAclProvider)
///     .build()?;
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CreatorAllAclProvider;

impl AclProvider for CreatorAllAclProvider {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::creator_all()
    }
}

/// The list of the znode that a call makes.
pub(crate) fn leaf_acl(provider: &dyn AclProvider, path: &str) -> Vec<Acl> {
    provider.acl_for_path(path).unwrap_or_else(|| provider.default_acl())
}

/// The list of a parent that is made on the way.
pub(crate) fn parent_acl(provider: &dyn AclProvider, path: &str) -> Vec<Acl> {
    provider.acl_for_path(path).unwrap_or_else(|| match provider.default_acl() {
        none if none.is_empty() => Acl::open_unsafe(),
        default => default,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers for `/known` with a list of its own, and with `default` for everything else.
    struct Fixed {
        default: Vec<Acl>,
    }

    impl AclProvider for Fixed {
        fn default_acl(&self) -> Vec<Acl> {
            self.default.clone()
        }

        fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
            (path == "/known").then(Acl::read_unsafe)
        }
    }

    #[test]
    fn the_path_counts_before_the_default() {
        let provider = Fixed { default: Acl::creator_all() };
        for acl_of in [leaf_acl, parent_acl] {
            assert_eq!(acl_of(&provider, "/known"), Acl::read_unsafe());
            assert_eq!(acl_of(&provider, "/other"), Acl::creator_all());
        }
    }

    #[test]
    fn without_any_answer_only_parents_are_open() {
        let provider = Fixed { default: Vec::new() };
        assert_eq!(leaf_acl(&provider, "/other"), Vec::new());
        assert_eq!(parent_acl(&provider, "/other"), Acl::open_unsafe());
        assert_eq!(parent_acl(&provider, "/known"), Acl::read_unsafe());
    }

    #[test]
    fn the_providers_of_the_crate_treat_all_paths_alike() {
        for acl_of in [leaf_acl, parent_acl] {
            assert_eq!(acl_of(&DefaultAclProvider, "/a"), Acl::open_unsafe());
            assert_eq!(acl_of(&CreatorAllAclProvider, "/a"), Acl::creator_all());
        }
    }
}
