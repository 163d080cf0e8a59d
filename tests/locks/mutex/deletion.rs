//! An administrator deletes znodes of the queue.

use std::{sync::mpsc, thread, time::Duration};

use curator_locks::{
    CuratorFramework, Error, LostReason, RetryNTimes,
    testing::{Fault, FaultProxy, RequestMatch, op},
    unversioned::Request,
};

use crate::support::{
    self, PATIENCE, another, await_queue, builder, builder_at, connect, eventually, mutex, session::RawSession,
};

/// A client whose waiters queue again as often as it takes.
fn patient_client() -> CuratorFramework {
    let retry = RetryNTimes::new(u32::MAX, Duration::from_millis(1));
    connect(builder(support::server(), &support::namespace()).retry_policy(retry))
}

#[test]
fn when_a_waiters_znode_is_deleted_and_then_the_holders_exactly_one_other_waiter_is_granted() {
    const ROUNDS: usize = 1_000;
    let client = patient_client();
    let admin = RawSession::open(support::server());
    let mutex = mutex(&client);
    let at_server = |path: &str| format!("/{}{path}", client.namespace());
    // A holder says with which znode, and where it waits for the word to release.
    let (grants, granted) = mpsc::channel::<(String, mpsc::Sender<()>)>();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (mutex, grants) = (&mutex, grants.clone());
            scope.spawn(move || {
                let mut goes_on = true;
                while goes_on {
                    mutex.acquire().unwrap();
                    let (release, released) = mpsc::channel();
                    let is_heard = grants.send((mutex.lock_path().unwrap(), release)).is_ok();
                    goes_on = is_heard && released.recv().is_ok();
                    match mutex.release() {
                        Ok(()) | Err(Error::LockLost { reason: LostReason::NodeDeleted, .. }) => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
        let (mut holder, mut release) = granted.recv_timeout(PATIENCE).unwrap();
        for round in 0..ROUNDS {
            let queue = await_queue(&client, "/locks/m", 4);
            assert_eq!(queue[0], holder, "round {round}");
            assert!(granted.try_recv().is_err(), "round {round}: two holders");
            admin.delete(&[&at_server(&queue[1]), &at_server(&queue[0])]);
            let next = granted.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("round {round}: nobody is granted"));
            assert_eq!(next.0, queue[2], "round {round}");
            // The old holder goes to the end of the queue.
            release.send(()).unwrap();
            (holder, release) = next;
        }
        await_queue(&client, "/locks/m", 4);
        assert!(granted.try_recv().is_err(), "two holders");
        drop(granted);
        drop(release);
    });
}

/// An event of the predecessor that was must not count for the predecessor that is.
#[test]
fn a_late_event_of_an_earlier_predecessor_grants_nothing() {
    let client = patient_client();
    let admin = RawSession::open(support::server());
    let at_server = |path: &str| format!("/{}{path}", client.namespace());
    let holding = another(&client);
    let (held, wanted) = (mutex(&holding), mutex(&client));
    let (grants, granted) = mpsc::channel();
    for round in 0..100 {
        held.acquire().unwrap();
        thread::scope(|scope| {
            let contend = |grants: mpsc::Sender<()>| {
                wanted.acquire().unwrap();
                grants.send(()).unwrap();
                wanted.release().unwrap();
            };
            let grants = &grants;
            scope.spawn(move || contend(grants.clone()));
            await_queue(&holding, "/locks/m", 2);
            scope.spawn(move || contend(grants.clone()));
            let queue = await_queue(&holding, "/locks/m", 3);
            // The last one's data changes, so that it looks again, and then its predecessor goes.
            let (last, before) = (at_server(&queue[2]), at_server(&queue[1]));
            eventually("its watches", || support::server().four_letter_word("wchp").unwrap().contains(&last));
            for reply in admin.ask([
                Request::SetData { path: last, data: vec![1], version: -1 },
                Request::Delete { path: before, version: -1 },
            ]) {
                reply.unwrap();
            }
            await_queue(&holding, "/locks/m", 3);
            assert!(granted.recv_timeout(Duration::from_millis(20)).is_err(), "round {round}: two holders");
            held.release().unwrap();
            for _ in 0..2 {
                granted.recv_timeout(PATIENCE).unwrap();
            }
        });
    }
}

#[test]
fn a_waiter_whose_znode_is_deleted_queues_again_at_the_end() {
    let client = support::client();
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..2)
            .map(|k| {
                let waiter = scope.spawn(|| {
                    mutex.acquire().unwrap();
                    let path = mutex.lock_path().unwrap();
                    mutex.release().unwrap();
                    path
                });
                await_queue(&client, "/locks/m", k + 2);
                waiter
            })
            .collect();
        let before = await_queue(&client, "/locks/m", 3);
        client.delete().for_path(&before[1]).unwrap();
        eventually("the waiter stands at the end", || {
            let now = support::queue(&client, "/locks/m");
            now.len() == 3 && now[1] == before[2]
        });
        let now = await_queue(&client, "/locks/m", 3);
        mutex.release().unwrap();
        let paths: Vec<String> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        assert_eq!(paths, [now[2].clone(), now[1].clone()]);
    });
}

#[test]
fn a_waiter_whose_znode_is_always_deleted_gives_up_as_the_retry_policy_says() {
    // The first one, and one for each retry of `builder_at`.
    const ZNODES: usize = 6;
    let client = support::client();
    let proxy = FaultProxy::start(support::server().connect_string()).unwrap();
    let other = connect(builder_at(&proxy.connect_string(), client.namespace()));
    let (held, wanted) = (mutex(&client).lock().unwrap(), mutex(&other));
    // Deleted before it is watched: it does not wait, after which all retries would be allowed anew.
    let hold_back = || {
        let holder = held.path().rsplit('/').next().unwrap().to_owned();
        let watch = RequestMatch::op(op::GET_DATA).path(move |path| path.ends_with(&holder));
        proxy.inject(watch, Fault::HoldRequest)
    };
    let mut held_back = Some(hold_back());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wanted.acquire_timeout(PATIENCE));
        for k in 1..=ZNODES {
            let watch = held_back.take().unwrap();
            watch.wait_for_hits(1, PATIENCE).unwrap();
            client.delete().for_path(&await_queue(&client, "/locks/m", 2)[1]).unwrap();
            held_back = (k < ZNODES).then(hold_back);
            watch.release();
        }
        let error = waiting.join().unwrap().unwrap_err();
        assert!(error.is_no_node(), "{error:?}");
    });
    await_queue(&client, "/locks/m", 1);
}

#[test]
fn the_whole_directory_can_go_while_contenders_queue() {
    let client = patient_client();
    let mutex = mutex(&client);
    mutex.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            mutex.acquire().unwrap();
            match mutex.release() {
                // It may have been granted between the two deletes.
                Ok(()) | Err(Error::LockLost { reason: LostReason::NodeDeleted, .. }) => {}
                other => panic!("{other:?}"),
            }
        });
        await_queue(&client, "/locks/m", 2);
        client.delete().deleting_children_if_needed().for_path("/locks/m").unwrap();
        waiter.join().unwrap();
    });
    assert!(matches!(mutex.release(), Err(Error::LockLost { reason: LostReason::NodeDeleted, .. })));
}
