//! Operations on znodes.

use std::{thread, time::Duration};

use curator_locks::{Acl, CreateMode, Error, ErrorCode, Stat, perms, testing::TestingServer};

use crate::support::{self, another, builder, connect, eventually};

#[test]
fn znodes_of_every_kind_are_made_read_written_listed_and_deleted() {
    let client = support::client();
    assert_eq!(client.create().creating_parents_if_needed().for_path_and_data("/a/b", "1").unwrap(), "/a/b");
    let again = client.create().for_path("/a/b");
    assert!(again.as_ref().is_err_and(Error::is_node_exists), "{again:?}");
    let orphan = client.create().for_path("/no/parent");
    assert!(orphan.as_ref().is_err_and(Error::is_no_node), "{orphan:?}");
    let mut stat = Stat::default();
    assert_eq!(client.get_data().storing_stat_in(&mut stat).for_path("/a/b").unwrap(), b"1");
    assert_eq!((stat.version, stat.data_length), (0, 1));
    assert_eq!(client.set_data().with_version(0).for_path_and_data("/a/b", "23").unwrap().version, 1);
    let stale = client.set_data().with_version(0).for_path_and_data("/a/b", "4");
    assert_eq!(stale.unwrap_err().code(), Some(ErrorCode::BadVersion));
    assert_eq!(client.check_exists().for_path("/a/b").unwrap().unwrap().data_length, 2);
    assert_eq!(client.check_exists().for_path("/a/c").unwrap(), None);

    let ephemeral = client.create().with_mode(CreateMode::Ephemeral).for_path("/a/e").unwrap();
    let owner = client.check_exists().for_path(&ephemeral).unwrap().unwrap().ephemeral_owner;
    assert_eq!(owner, client.session_id());
    let sequential = client.create().with_mode(CreateMode::PersistentSequential).for_path("/a/s-").unwrap();
    assert_eq!(sequential, "/a/s-0000000002");
    let protected = client.create().with_protection().with_mode(CreateMode::EphemeralSequential);
    let protected = protected.for_path_and_data("/a/p-", "p").unwrap();
    assert!(protected.starts_with("/a/_c_") && protected.contains("-p-"), "{protected}");
    assert_eq!(client.get_data().for_path(&protected).unwrap(), b"p");
    assert_eq!(client.create().with_mode(CreateMode::Container).for_path("/a/container").unwrap(), "/a/container");

    let mut names = client.get_children().storing_stat_in(&mut stat).for_path("/a").unwrap();
    names.sort();
    let protected_name = protected.trim_start_matches("/a/");
    assert_eq!(names, [protected_name, "b", "container", "e", "s-0000000002"]);
    assert_eq!(stat.num_children, 5);

    let filled = client.delete().for_path("/a");
    assert_eq!(filled.unwrap_err().code(), Some(ErrorCode::NotEmpty));
    let wrong = client.delete().with_version(7).for_path("/a/b");
    assert_eq!(wrong.unwrap_err().code(), Some(ErrorCode::BadVersion));
    client.delete().guaranteed().for_path("/a/b").unwrap();
    let missing = client.delete().guaranteed().for_path("/a/b");
    assert!(missing.as_ref().is_err_and(Error::is_no_node), "{missing:?}");
    client.delete().deleting_children_if_needed().for_path("/a").unwrap();
    assert_eq!(client.check_exists().for_path("/a").unwrap(), None);
    client.sync().for_path("/").unwrap();
}

#[test]
fn parents_are_containers_unless_the_client_was_told_otherwise() {
    let client = support::client();
    client.create().creating_parents_if_needed().for_path("/a/b/leaf").unwrap();
    client.delete().for_path("/a/b/leaf").unwrap();
    eventually("the parents are gone", || client.check_exists().for_path("/a").unwrap().is_none());
    let client = connect(builder(support::server(), &support::namespace()).dont_use_container_parents());
    client.create().creating_parents_if_needed().for_path("/a/b/leaf").unwrap();
    client.delete().for_path("/a/b/leaf").unwrap();
    let gone = || client.check_exists().for_path("/a/b").unwrap().is_none();
    // Longer than several of the server's checks.
    thread::sleep(Duration::from_millis(500));
    assert!(!gone(), "a persistent parent was removed");
}

#[test]
fn containers_that_the_server_removes_meanwhile_are_no_error() {
    let server = support::quick_server().container_check_interval(Duration::from_millis(1)).start().unwrap();
    let client = connect(builder(&server, "removed"));
    for _ in 0..100 {
        client.create().creating_parents_if_needed().for_path("/a/b/c").unwrap();
        client.delete().deleting_children_if_needed().for_path("/a").unwrap();
        assert_eq!(client.check_exists().for_path("/a").unwrap(), None);
    }
    let missing = client.delete().deleting_children_if_needed().for_path("/a");
    assert!(missing.as_ref().is_err_and(Error::is_no_node), "{missing:?}");
}

#[test]
fn acls_are_set_read_and_kept() {
    let client = support::client();
    client.create().creating_parents_if_needed().for_path("/acl").unwrap();
    assert_eq!(client.get_acl().for_path("/acl").unwrap(), Acl::open_unsafe());
    let acl = vec![Acl { perms: perms::READ | perms::ADMIN, scheme: "world".into(), id: "anyone".into() }];
    assert_eq!(client.set_acl().with_version(0).for_path("/acl", acl.clone()).unwrap().aversion, 1);
    assert_eq!(client.get_acl().for_path("/acl").unwrap(), acl);
    let denied = client.set_data().for_path_and_data("/acl", "x");
    assert_eq!(denied.unwrap_err().code(), Some(ErrorCode::NoAuth));
    let given = client.create().with_acl(Acl::read_unsafe()).for_path("/given").unwrap();
    assert_eq!(client.get_acl().for_path(&given).unwrap(), Acl::read_unsafe());
}

#[test]
fn what_its_creator_alone_may_do_needs_the_creators_credentials() {
    let namespace = support::namespace();
    let own = |builder: curator_locks::Builder| {
        connect(builder.authorization("digest", "user:secret").acl_provider(curator_locks::CreatorAllAclProvider))
    };
    let client = own(builder(support::server(), &namespace));
    let mutex = support::mutex(&client);
    mutex.acquire().unwrap();
    let stranger = another(&client);
    let denied = support::mutex(&stranger).acquire();
    assert_eq!(denied.unwrap_err().code(), Some(ErrorCode::NoAuth));
    mutex.release().unwrap();
    let friend = own(builder(support::server(), &namespace));
    support::mutex(&friend).acquire().unwrap();
}

#[test]
fn a_guaranteed_delete_goes_on_until_the_server_is_back() {
    let server = TestingServer::start().unwrap();
    let base = builder(&server, "guaranteed").connection_timeout(Duration::from_millis(200));
    let client = connect(base.retry_policy(curator_locks::RetryOneTime::new(Duration::from_millis(10))));
    client.create().creating_parents_if_needed().for_path("/gone").unwrap();
    client.create().creating_parents_if_needed().for_path("/kept").unwrap();
    client.create().creating_parents_if_needed().for_path("/version").unwrap();
    server.stop().unwrap();
    eventually("the connection is gone", || !client.is_connected());
    assert!(client.delete().guaranteed().with_version(0).for_path("/version").is_err());
    let result = client.delete().guaranteed().for_path("/gone");
    assert!(matches!(result, Err(Error::ConnectionLoss { .. })), "{result:?}");
    assert!(client.delete().for_path("/kept").is_err());
    server.restart().unwrap();
    eventually("the server is back", || client.check_exists().for_path("/").is_ok());
    eventually("it is deleted", || client.check_exists().for_path("/gone").is_ok_and(|stat| stat.is_none()));
    assert!(client.check_exists().for_path("/kept").unwrap().is_some());
    assert!(client.check_exists().for_path("/version").unwrap().is_some(), "it may have been another one by then");
}

#[test]
fn a_protected_persistent_znode_is_made_once() {
    let client = support::client();
    let create = || client.create().with_protection().creating_parents_if_needed();
    let (first, second) = (create().for_path("/dir/x").unwrap(), create().for_path("/dir/x").unwrap());
    assert_ne!(first, second);
    assert_eq!(client.get_children().for_path("/dir").unwrap().len(), 2);
}
