//! Each znode gets the ACL that the provider gives for its own path.

use std::sync::{Arc, Mutex};

use curator_locks::{
    Acl, AclProvider, CuratorFramework, InterProcessLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, perms,
};

use crate::support::{self, builder, connect, namespace};

/// Gives an ACL that tells how deep the path is, and writes down what it is asked for.
#[derive(Clone, Default)]
struct ByDepth(Arc<Mutex<Vec<String>>>);

fn perms_of(path: &str) -> i32 {
    [perms::ALL, perms::ALL & !perms::ADMIN, perms::ALL, perms::READ | perms::CREATE | perms::DELETE]
        [path.matches('/').count() % 4]
}

impl AclProvider for ByDepth {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        self.0.lock().unwrap().push(path.to_owned());
        let acl = Acl::open_unsafe().into_iter().map(|acl| Acl { perms: perms_of(path), ..acl });
        Some(acl.collect())
    }
}

fn check(make: impl FnOnce(&CuratorFramework) -> Box<dyn InterProcessLock>, directory: &str) {
    let (asked, namespace) = (ByDepth::default(), namespace());
    let client = connect(builder(support::server(), &namespace).acl_provider(asked.clone()));
    let root = client.using_namespace("").unwrap();
    let lock = make(&client);
    lock.acquire().unwrap();
    let directory = format!("/{namespace}{directory}");
    let node = format!("{directory}/{}", root.get_children().for_path(&directory).unwrap()[0]);
    let mut paths: Vec<String> =
        directory.match_indices('/').skip(1).map(|(at, _)| directory[..at].to_owned()).collect();
    paths.extend([directory, node.clone()]);
    for path in &paths {
        let acl = root.get_acl().for_path(path).unwrap();
        assert_eq!(acl.iter().map(|acl| acl.perms).collect::<Vec<_>>(), [perms_of(path)], "{path}");
    }
    // Of the znode itself, the provider sees the name without the number, which the server gives.
    let unnumbered = paths.iter().map(|path| if *path == node { &path[..path.len() - 10] } else { &path[..] });
    let asked = asked.0.lock().unwrap().clone();
    for path in unnumbered {
        assert!(asked.iter().any(|asked| asked == path), "not asked for {path}: {asked:?}");
    }
    lock.release().unwrap();
}

#[test]
fn each_parent_and_each_node_of_a_lock_has_the_acl_of_its_own_path() {
    check(|client| Box::new(InterProcessMutex::new(client, "/deep/down/lock").unwrap()), "/deep/down/lock");
    check(|client| Box::new(InterProcessMutex::new(client, "/lock").unwrap()), "/lock");
}

#[test]
fn each_parent_and_each_node_of_a_semaphore_has_the_acl_of_its_own_path() {
    check(|client| Box::new(InterProcessSemaphoreMutex::new(client, "/deep/lock").unwrap()), "/deep/lock/leases");
}

#[test]
fn parents_that_exist_keep_their_acls() {
    let namespace = namespace();
    let plain = connect(builder(support::server(), &namespace));
    plain.create().creating_parents_if_needed().for_path("/deep/down").unwrap();
    let client = connect(builder(support::server(), &namespace).acl_provider(ByDepth::default()));
    let lock = InterProcessReadWriteLock::new(&client, "/deep/down/lock").unwrap();
    lock.write_lock().acquire().unwrap();
    for path in ["/deep", "/deep/down"] {
        assert_eq!(client.get_acl().for_path(path).unwrap(), Acl::open_unsafe(), "{path}");
    }
    let acl = client.get_acl().for_path("/deep/down/lock").unwrap();
    assert_eq!(acl[0].perms, perms_of("/namespace/deep/down/lock"));
    lock.write_lock().release().unwrap();
}
