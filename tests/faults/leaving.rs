//! Closing and dropping a client, in every state, and what is left of it.

use std::time::Instant;

use curator_locks::{
    ConnectionState::{Lost, Suspended},
    Error,
    testing::Direction,
};

use super::support::*;

/// Brings a scene into a state.
type Trouble = fn(&Scene);

const TROUBLES: [(&str, Trouble); 5] = [
    ("connected", |_| {}),
    ("black hole, not yet noticed", |scene| scene.proxy.black_hole(Direction::Both)),
    ("suspended, servers refuse", |scene| {
        scene.proxy.refuse();
        scene.proxy.cut();
        expect_state(&scene.states, Suspended);
    }),
    ("suspended, servers silent", |scene| {
        scene.proxy.black_hole(Direction::Both);
        scene.proxy.cut();
        expect_state(&scene.states, Suspended);
    }),
    ("lost", |scene| {
        scene.proxy.refuse();
        scene.proxy.cut();
        expect_state(&scene.states, Suspended);
        expect_state(&scene.states, Lost);
    }),
];

#[test]
fn close_returns_within_a_second_in_every_state_and_wakes_every_waiter() {
    for (name, trouble) in TROUBLES {
        let scene = scene();
        let holder = mutex(&scene.observer);
        holder.acquire().unwrap();
        let (untimed, timed) = (scene.client.clone(), scene.client.clone());
        let waiters =
            [spawn(move || mutex(&untimed).acquire()), spawn(move || mutex(&timed).acquire_timeout(LONG).map(drop))];
        wait_for_nodes(&scene.observer, 3);
        trouble(&scene);
        let begin = Instant::now();
        scene.client.close();
        assert_at_most(&format!("close, {name}"), begin.elapsed(), 1000 * MS);
        for waiter in waiters {
            let (at, result) = join(&waiter);
            // After a loss the retries may have been exhausted before the close.
            assert!(
                matches!(result, Err(Error::ClientClosed)) || (name == "lost" && result.is_err()),
                "{name}: {result:?}"
            );
            assert_at_most(&format!("waiter woken, {name}"), at.saturating_duration_since(begin), 1000 * MS);
        }
        let begin = Instant::now();
        assert!(matches!(mutex(&scene.client).acquire(), Err(Error::ClientClosed)));
        assert_at_most("acquire on a closed client", begin.elapsed(), 100 * MS);
    }
}

#[test]
fn dropping_the_last_handle_returns_within_a_second_in_every_state() {
    for (name, trouble) in TROUBLES {
        let scene = scene();
        trouble(&scene);
        let Scene { client, server: _server, proxy: _proxy, .. } = scene;
        let begin = Instant::now();
        drop(client);
        assert_at_most(&format!("drop, {name}"), begin.elapsed(), 1000 * MS);
    }
}

#[test]
fn ten_thousand_sessions_leave_no_thread_and_no_file_descriptor() {
    let scene = scene();
    let connect_string = scene.server.connect_string();
    let cycle = |count: usize| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..count / 8 {
                        let client = client_of(&connect_string, T);
                        start(&client);
                        client.close();
                    }
                });
            }
        });
    };
    cycle(80);
    let before = in_use();
    cycle(10_000);
    // Threads end a moment after the close.
    wait_until("as few threads and descriptors as before", || {
        let now = in_use();
        now.0 <= before.0 + 2 && now.1 <= before.1 + 2
    });
    figure("after 10,000 sessions: threads and descriptors (before, after)", (before, in_use()));
    wait_until("the sessions are closed at the server", || scene.server.ephemeral_count().unwrap() == 0);
}

fn in_use() -> (usize, usize) {
    let count = |path| std::fs::read_dir(path).unwrap().count();
    (count("/proc/self/task"), count("/proc/self/fd"))
}

const ACQUIRES: usize = 100_000;

#[test]
fn a_hundred_thousand_timed_out_acquires_leave_no_node_and_no_watch() {
    let scene = scene_with(LONG);
    let holder = mutex(&scene.observer);
    holder.acquire().unwrap();
    let watches = scene.server.watch_count().unwrap();
    let before = in_use();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mutex = mutex(&scene.client);
                for _ in 0..ACQUIRES / 16 {
                    // A server under load may not even answer the create in time, whose outcome is unknown then.
                    match mutex.acquire_timeout(MS) {
                        Ok(acquired) => assert!(!acquired),
                        Err(error) => assert!(matches!(error, Error::ConnectionLoss { .. }), "{error}"),
                    }
                }
            });
        }
    });
    wait_for_nodes(&scene.observer, 1);
    // The holder's own watch is armed after 100 ms.
    wait_until("no watch is left", || scene.server.watch_count().unwrap() <= watches + 1);
    figure("after 100,000 timed-out acquires: threads and descriptors (before, after)", (before, in_use()));
    assert!(in_use().0 <= before.0 + 1);
    holder.release().unwrap();
}
