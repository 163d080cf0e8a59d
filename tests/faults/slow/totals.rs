//! What is left of ten thousand sessions, and of a hundred thousand acquires. In processes of their own, whose threads
//! and descriptors nobody else uses.

use curator_locks::{Error, InterProcessMutex};

use crate::scene::*;

/// Threads and file descriptors of this process.
fn in_use() -> (usize, usize) {
    let count = |path| std::fs::read_dir(path).unwrap().count();
    (count("/proc/self/task"), count("/proc/self/fd"))
}

fn wait_for_as_few(before: (usize, usize)) {
    // Threads end a moment after the close.
    eventually("as few threads and descriptors as before", || in_use().0 <= before.0 && in_use().1 <= before.1);
}

#[test]
fn ten_thousand_sessions_leave_no_thread_no_file_descriptor_no_node_and_no_watch() {
    alone("slow::totals::ten_thousand_sessions_leave_no_thread_no_file_descriptor_no_node_and_no_watch", || {
        let scene = scene_alone(LONG);
        let server = &scene.server;
        let connect_string = server.connect_string();
        let sessions = |count: usize| {
            std::thread::scope(|scope| {
                for number in 0..8 {
                    let connect_string = &connect_string;
                    scope.spawn(move || {
                        for _ in 0..count / 8 {
                            let client = client_of(connect_string, LONG / 2);
                            start(&client);
                            // Never released: the end of the session sees to it.
                            let mutex = InterProcessMutex::new(&client, &format!("/sessions/{number}")).unwrap();
                            mutex.acquire().unwrap();
                            client.close();
                        }
                    });
                }
            });
        };
        let counts =
            || (server.znode_count().unwrap(), server.ephemeral_count().unwrap(), server.watch_count().unwrap());
        let at_first = counts();
        sessions(80);
        eventually("the server is as at first", || counts() == at_first);
        let before = in_use();
        sessions(10_000);
        wait_for_as_few(before);
        figure("10,000 sessions: threads and descriptors before and after", (before, in_use()));
        eventually("the server is as at first", || counts() == at_first);
        figure("10,000 sessions: nodes, ephemeral ones and watches before and after", (at_first, counts()));
    });
}

const ACQUIRES: usize = 100_000;

#[test]
fn a_hundred_thousand_timed_out_acquires_leave_no_thread_no_file_descriptor_no_node_and_no_watch() {
    alone(
        "slow::totals::a_hundred_thousand_timed_out_acquires_leave_no_thread_no_file_descriptor_no_node_and_no_watch",
        timed_out_acquires,
    );
}

fn timed_out_acquires() {
    let scene = scene_alone(LONG);
    let holder = mutex(&scene.observer);
    holder.acquire().unwrap();
    // The holder's own watch is armed after 100 ms.
    eventually("the holder's watch", || scene.server.watch_count().unwrap() == 1);
    let counts = || (scene.server.znode_count().unwrap(), scene.server.watch_count().unwrap());
    let (before, at_first) = (in_use(), counts());
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
    wait_for_as_few(before);
    figure("100,000 timed-out acquires: threads and descriptors before and after", (before, in_use()));
    eventually("the server is as at first", || counts() == at_first);
    figure("100,000 timed-out acquires: nodes and watches before and after", (at_first, counts()));
    holder.release().unwrap();
}
