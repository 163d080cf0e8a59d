//! Watches given up while others are registered on the same znode.

use std::{sync::Barrier, thread, time::Duration};

use curator_locks::unversioned::{Request, WatchEvent};

use crate::support::{self, PATIENCE, await_queue, builder, connect, mutex, session::RawSession};

/// `removeWatches` takes every watch of a connection on a znode, also one whose registration is still on its way.
#[test]
fn giving_a_watch_up_never_takes_another_one_on_its_way() {
    const ROUNDS: usize = 10_000;
    let server = support::server();
    let (session, path) = (RawSession::open(server), format!("/{}", support::namespace()));
    let create = Request::Create {
        path: path.clone(),
        data: Vec::new(),
        acl: curator_locks::Acl::open_unsafe(),
        mode: curator_locks::CreateMode::Ephemeral,
    };
    session.ask([create])[0].as_ref().unwrap();
    let barrier = Barrier::new(2);
    let (give_up, given) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let (session, barrier) = (&session, &barrier);
        scope.spawn(move || {
            for (round, ticket) in given.into_iter().enumerate() {
                barrier.wait();
                spin(round % 7 * 20);
                session.0.unwatch(ticket);
            }
        });
        for round in 0..ROUNDS {
            let (ticket, reply, _events) = session.watch(&path);
            if round % 2 == 0 {
                reply.recv_timeout(PATIENCE).unwrap().unwrap();
            }
            give_up.send(ticket).unwrap();
            barrier.wait();
            spin(round % 11 * 10);
            let (_, reply, events) = session.watch(&path);
            reply.recv_timeout(PATIENCE).unwrap().unwrap();
            session.ask([Request::SetData { path: path.clone(), data: Vec::new(), version: -1 }])[0].as_ref().unwrap();
            match events.recv_timeout(PATIENCE) {
                Ok(WatchEvent::Node { .. }) => {}
                other => panic!("round {round}: {other:?}"),
            }
        }
        drop(give_up);
    });
}

fn spin(times: usize) {
    for _ in 0..times {
        std::hint::spin_loop();
    }
}

/// The first waiter's znode is deleted: it gives up its watch on the holder while the next one sets its own there.
#[test]
fn no_waiter_hangs_when_the_one_before_it_gives_the_same_watch_up() {
    const ROUNDS: usize = 300;
    let namespace = support::namespace();
    let retry = curator_locks::RetryNTimes::new(u32::MAX, Duration::from_millis(1));
    let client = connect(builder(support::server(), &namespace).retry_policy(retry));
    let holding = connect(builder(support::server(), &namespace));
    let (held, wanted) = (mutex(&holding), mutex(&client));
    let admin = RawSession::open(support::server());
    for round in 0..ROUNDS {
        held.acquire().unwrap();
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        wanted.acquire().unwrap();
                        wanted.release().unwrap();
                    })
                })
                .collect();
            let queue = await_queue(&holding, "/locks/m", 4);
            admin.delete(&[&format!("/{namespace}{}", queue[1])]);
            spin(round % 50 * 200);
            held.release().unwrap();
            for waiter in waiters {
                waiter.join().unwrap();
            }
        });
    }
}
