//! Paths, namespaces, chroots and foreign children.

use std::time::Duration;

use curator_locks::{
    CreateMode, Error, InterProcessMutex, InterProcessSemaphoreMutex, InterProcessUnfairMutex, LockInternals,
};

use crate::support::{self, PATIENCE, another, await_queue, builder_at, connect, mutex, queue};

#[test]
fn the_root_and_what_is_no_path_are_refused() {
    let client = support::client();
    for path in ["/", "", "a", "/a/", "/a//b", "/a/../b", "/a/./b", "/a\0b"] {
        let result = InterProcessMutex::new(&client, path);
        assert!(matches!(result, Err(Error::InvalidPath { .. })), "{path:?}: {result:?}");
        let result = InterProcessUnfairMutex::new(&client, path);
        assert!(matches!(result, Err(Error::InvalidPath { .. })), "{path:?}: {result:?}");
    }
}

#[test]
fn foreign_children_are_ignored_wherever_they_sort() {
    let client = support::client();
    let other = another(&client);
    let (ours, theirs) = (mutex(&client), mutex(&other));
    for name in ["!first", "zzz", "lock-", "lock-123", "_c_1-lock-00000000x1", "00"] {
        client.create().creating_parents_if_needed().for_path(&format!("/locks/m/{name}")).unwrap();
    }
    assert!(ours.acquire_timeout(PATIENCE).unwrap());
    assert_eq!(queue(&client, "/locks/m"), [ours.lock_path().unwrap()]);
    assert!(!theirs.acquire_timeout(Duration::from_millis(20)).unwrap());
    // Where the server is slow, the background sees to what the time left no time for.
    await_queue(&client, "/locks/m", 1);
    ours.release().unwrap();
    assert!(theirs.acquire_timeout(Duration::ZERO).unwrap());
    theirs.release().unwrap();
}

#[test]
fn a_child_with_a_sequence_number_is_a_contender_whatever_its_name() {
    let client = support::client();
    let mode = CreateMode::EphemeralSequential;
    let create = client.create().creating_parents_if_needed().with_mode(mode);
    let foreign = create.for_path("/locks/m/somebody-").unwrap();
    let mutex = mutex(&client);
    assert!(!mutex.acquire_timeout(Duration::from_millis(20)).unwrap());
    assert_eq!(await_queue(&client, "/locks/m", 1), [foreign.as_str()]);
    client.delete().for_path(&foreign).unwrap();
    assert!(mutex.acquire_timeout(PATIENCE).unwrap());
    mutex.release().unwrap();
}

#[test]
fn a_namespace_stands_in_front_of_every_path_and_is_not_seen() {
    let client = support::client();
    let everywhere = client.using_namespace("").unwrap();
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    let path = mutex.lock_path().unwrap();
    assert!(path.starts_with("/locks/m/_c_"), "{path}");
    let whole = format!("/{}{path}", client.namespace());
    assert!(everywhere.check_exists().for_path(&whole).unwrap().is_some());
    assert_eq!(LockInternals::participant_nodes(&client, "/locks/m").unwrap(), [path]);
    let elsewhere = client.using_namespace(format!("{}/inner", client.namespace())).unwrap();
    let other = InterProcessMutex::new(&elsewhere, "/locks/m").unwrap();
    assert!(other.acquire_timeout(Duration::ZERO).unwrap(), "another namespace is another lock");
    let same = InterProcessMutex::new(&everywhere, &format!("/{}/locks/m", client.namespace())).unwrap();
    assert!(!same.acquire_timeout(Duration::ZERO).unwrap(), "the same path is the same lock");
    other.release().unwrap();
    mutex.release().unwrap();
    assert!(client.using_namespace("a//b").is_err());
}

/// With a typo in it the process would take locks that nobody else knows of.
#[test]
fn a_chroot_that_does_not_exist_is_an_error_that_names_it() {
    let plain = support::client().using_namespace("").unwrap();
    let top = format!("/{}", support::namespace());
    let chroot = format!("{top}/inner");
    let connect_string = format!("{}{chroot}", support::server().connect_string());
    for namespace in ["", "names"] {
        let client = connect(builder_at(&connect_string, namespace));
        let refusals = [
            mutex(&client).acquire(),
            InterProcessUnfairMutex::new(&client, "/locks/u").unwrap().acquire(),
            InterProcessSemaphoreMutex::new(&client, "/locks/s").unwrap().acquire(),
            client.create().creating_parents_if_needed().for_path("/some/data").map(drop),
        ];
        for refused in refusals {
            assert!(matches!(&refused, Err(Error::InvalidPath { path, .. }) if *path == chroot), "{refused:?}");
        }
        assert!(plain.check_exists().for_path(&top).unwrap().is_none(), "nothing is left");
    }
    plain.create().creating_parents_if_needed().for_path(&chroot).unwrap();
    mutex(&connect(builder_at(&connect_string, "names"))).run(|_| ()).unwrap();
}

#[test]
fn a_chroot_is_made_where_that_is_wanted() {
    let plain = support::client().using_namespace("").unwrap();
    let chroot = format!("/{}/inner", support::namespace());
    let connect_string = format!("{}{chroot}", support::server().connect_string());
    for namespace in ["", "names"] {
        let client = connect(builder_at(&connect_string, namespace).create_chroot(true));
        let mutex = mutex(&client);
        mutex.acquire().unwrap();
        let path = mutex.lock_path().unwrap();
        let prefix = if namespace.is_empty() { chroot.clone() } else { format!("{chroot}/{namespace}") };
        assert!(path.starts_with("/locks/m/_c_"), "{path}");
        assert!(plain.check_exists().for_path(&format!("{prefix}{path}")).unwrap().is_some());
        mutex.release().unwrap();
    }
}
