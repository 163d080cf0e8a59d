//! Tests that count what a whole process has, each in a process of its own.

use std::{fs, process::Command};

use super::*;
use crate::base::clock;

const ALONE: &str = "CURATOR_LOCKS_TEST_ALONE";

/// Runs one of these tests in a process where nothing else runs. `true`: this is that process.
fn is_alone(test: &str) -> bool {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        return true;
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = format!("{module}::{test}");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--test-threads=1", "--nocapture"])
        .env(ALONE, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Open files but for the one that counts.
fn files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// How much processor time this process has used.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[test]
fn two_hundred_sessions_leave_no_thread_and_no_file() {
    if !is_alone("two_hundred_sessions_leave_no_thread_and_no_file") {
        return;
    }
    let (threads_before, files_before) = (threads(), files());
    for number in 0..200 {
        let fake = Fake::new();
        let (client, peer) = Client::connected(&fake);
        match number % 4 {
            0 => {
                client.abandon();
                assert_eq!(peer.answer_all(), [0; 0]);
                let mut peer = fake.accept();
                peer.welcome();
                assert_eq!(peer.answer_all(), [server::CLOSE]);
                continue;
            }
            // Nobody answers.
            1 => {
                client.session.close(clock::now());
                continue;
            }
            2 => drop(client),
            _ => {
                let server = std::thread::spawn(|| peer.answer_all());
                client.session.close(clock::now() + LONG);
                assert_eq!(server.join().unwrap(), [server::CLOSE]);
                continue;
            }
        }
        assert_eq!(peer.answer_all(), [server::CLOSE]);
    }
    wait_until(LONG, || threads() == threads_before && files() == files_before);
}

#[test]
fn a_writer_that_is_stuck_leaves_no_thread_and_no_file() {
    if !is_alone("a_writer_that_is_stuck_leaves_no_thread_and_no_file") {
        return;
    }
    let (threads_before, files_before) = (threads(), files());
    for _ in 0..3 {
        let fake = Fake::new();
        let (client, peer) = Client::connected(&fake);
        let large = sync(&"x".repeat(1024 * 1024));
        let replies: Vec<_> = (0..20).map(|_| client.submit(large.clone()).1).collect();
        // Its reader, and one writer. (A thread is still counted for a moment after it has ended.)
        wait_until(LONG, || threads() == threads_before + 2);
        client.session.close(clock::now());
        for reply in replies {
            assert!(matches!(reply.recv_timeout(LONG).unwrap(), Err(SessionError::Closed)));
        }
        drop(peer);
        client.wait_until_finished(LONG);
    }
    wait_until(LONG, || threads() == threads_before && files() == files_before);
}

#[test]
fn a_session_that_waits_uses_no_processor_time() {
    if !is_alone("a_session_that_waits_uses_no_processor_time") {
        return;
    }
    let fake = Fake::new();
    // One idle, one that leaves a silent server, one that finds no server, one that leaves without one.
    let (idle, _peer) = Client::connected(&fake);
    let (leaving, _silent) = Client::connected(&fake);
    leaving.session.abandon();
    let _nowhere = Client::open(&Fake::new().config());
    let (homeless, peer) = Client::connected(&fake);
    drop((peer, fake));
    homeless.session.abandon();
    let before = processor_time();
    assert!(idle.events.recv_timeout(Duration::from_secs(2)).is_err());
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(200), "{used:?}");
}

fn is_synced_by(client: &Client, peer: &mut Peer) -> bool {
    let (_, reply) = client.submit(sync("/"));
    let request = peer.request();
    peer.answer(&request);
    reply.recv_timeout(LONG).unwrap().is_ok()
}

mod slow {
    use super::*;

    #[test]
    fn connections_that_come_and_go_leave_no_file_and_cost_no_processor_time() {
        if !is_alone("slow::connections_that_come_and_go_leave_no_file_and_cost_no_processor_time") {
            return;
        }
        let (threads_before, files_before) = (threads(), files());
        let fake = Fake::new();
        let (client, mut peer) = Client::connected(&fake);
        assert!(is_synced_by(&client, &mut peer));
        let files_of_one = files();
        for connection in 2..30 {
            drop(peer);
            assert_eq!(client.event(), SessionEvent::Disconnected);
            peer = client.welcome(&fake);
            assert_eq!(client.event(), SessionEvent::Connected { connection, read_only: false });
            assert!(is_synced_by(&client, &mut peer));
            assert_eq!(files(), files_of_one);
        }
        drop((peer, fake));
        assert_eq!(client.event(), SessionEvent::Disconnected);
        let before = processor_time();
        std::thread::sleep(Duration::from_secs(1));
        let used = processor_time() - before;
        assert!(used < Duration::from_millis(100), "{used:?}");
        drop(client);
        wait_until(LONG, || threads() == threads_before && files() == files_before);
    }
}
