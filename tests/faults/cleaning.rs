//! What the background deletes, whatever the server makes of it.

use curator_locks::{
    Acl, CreateMode, Error, perms,
    testing::{Fault, RequestMatch, op},
};

use super::scene::*;

/// Whoever may not delete in a directory for a moment deletes when it may.
#[test]
fn a_delete_that_is_refused_for_a_moment_is_repeated_until_the_znode_is_gone() {
    let scene = scene_with(LONG);
    make_directory(&scene.observer);
    let mutex = mutex(&scene.client);
    let acl = |perms| Acl::open_unsafe().into_iter().map(|entry| Acl { perms, ..entry }).collect::<Vec<_>>();
    let held = mutex.lock().unwrap();
    scene.observer.set_acl().for_path(LOCK, acl(perms::ALL & !perms::DELETE)).unwrap();
    drop(held);
    // One by the guard, and one by the job that it leaves.
    eventually("two deletes are refused", || {
        let log = scene.proxy.log();
        log.iter().filter(|record| record.op == op::DELETE && record.error == Some(-102)).count() >= 2
    });
    assert_eq!(nodes(&scene.observer).len(), 1);
    scene.observer.set_acl().for_path(LOCK, Acl::open_unsafe()).unwrap();
    wait_for_nodes(&scene.observer, 0);
    figure("deletes", scene.proxy.requests(op::DELETE));
    mutex.acquire().unwrap();
    mutex.release().unwrap();
}

/// A znode that its process has lost sight of would stand in everybody's way for as long as that process lives, also when
/// the crowd has gone. To list the directory again would end the connection of all locks of the process.
#[test]
fn an_acquire_whose_create_lost_its_reply_in_a_crowded_directory_blocks_nobody_when_the_crowd_has_gone() {
    let scene = scene_with(LONG);
    make_directory(&scene.observer);
    let crowd = || (0..100).map(|number| format!("{LOCK}/others-with-a-long-name-of-no-contender-{number:040}-"));
    crowd().for_each(|path| drop(scene.observer.create().for_path(&path).unwrap()));
    let client = scene.builder(LONG).max_frame_size(4096).build().unwrap();
    start(&client);
    let lost = scene.proxy.inject(RequestMatch::creates(), Fault::CutInsteadOfReply);
    let acquired = mutex(&client).acquire();
    assert!(matches!(acquired, Err(Error::FrameTooLarge { limit: 4096, .. })), "{acquired:?}");
    assert_eq!(lost.hits(), 1);
    eventually("the clean-up has done what it can", || client.metrics().clean_up_jobs == 0);
    crowd().for_each(|path| scene.observer.delete().for_path(&path).unwrap());
    let next = mutex(&scene.observer);
    assert!(next.acquire_timeout(crate::support::PATIENCE).unwrap(), "{:?}", nodes(&scene.observer));
    next.release().unwrap();
    assert!(client.is_connected());
}

/// The list of its directory does not fit into a frame of this client, so its own znodes are asked for.
#[test]
fn a_create_whose_reply_is_lost_in_a_crowded_directory_leaves_nothing() {
    const CROWD: usize = 100;
    let scene = scene_with(LONG);
    make_directory(&scene.observer);
    for number in 0..CROWD {
        scene.observer.create().for_path(&format!("{LOCK}/others-with-a-long-name-{number:040}")).unwrap();
    }
    let client = scene.builder(LONG).max_frame_size(4096).build().unwrap();
    start(&client);
    for _ in 0..2 {
        let before = scene.proxy.requests(op::GET_CHILDREN);
        let lost = scene.proxy.inject(RequestMatch::creates(), Fault::CutInsteadOfReply);
        let created = client
            .create()
            .with_mode(CreateMode::EphemeralSequential)
            .with_protection()
            .for_path(&format!("{LOCK}/mine-"));
        assert!(matches!(created, Err(Error::FrameTooLarge { limit: 4096, .. })), "{created:?}");
        assert_eq!(lost.hits(), 1);
        wait_for_nodes(&scene.observer, CROWD);
        // One by the call, and one by its clean-up: each of them ends the connection of all locks. One of them goes out
        // again if it was on its way when the other one ended the connection.
        let asked = scene.proxy.requests(op::GET_CHILDREN) - before;
        assert!((2..=3).contains(&asked), "{asked} lists");
    }
    figure("connections", scene.proxy.connections());
}
