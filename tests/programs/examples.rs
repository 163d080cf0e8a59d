//! Each example, alone and on servers that others use: what it prints, and that it leaves nothing behind. And the examples of
//! the documentation.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/examples.rs"]
mod examples;
#[path = "../support/mod.rs"]
mod support;

use std::process::Command;

use curator_locks::testing::TestingServer;

use crate::{
    examples::example,
    support::{builder, child, connect, eventually, mutex, quick_server},
};

/// What it says at least. Some of them print from several threads.
const EXAMPLES: [(&str, &[&str]); 9] = [
    (
        "mutex",
        &[
            "2 clients x 50 rounds: the file says 100",
            "the other client, without waiting: false",
            "the other client, after 200 ms: false",
            "the other client, when it is free: true",
        ],
    ),
    (
        "cache",
        &[
            "round 1: 4 readers, filled 1 times, all read the same: true",
            "round 2: 4 readers, filled 0 times, all read the same: true",
        ],
    ),
    (
        "connection_limit",
        &[
            "8 threads made 24 queries, never more than 3 at a time: true",
            "8 threads made 24 queries, never more than 5 at a time: true",
        ],
    ),
    ("transfer", &["60 transfers of 3 tellers, none waits for ever", "sum of all accounts: 300"]),
    (
        "leader",
        &[
            "the others see first as the leader",
            "first leads no more",
            "second leads",
            "second may work: true",
            "second may work after it has closed: false",
            "the selector has done 3 pieces of work",
        ],
    ),
    (
        "revocation",
        &["held by the nightly job", "the nightly job stops for the operator: a repair", "the operator has it"],
    ),
    (
        "fencing",
        &[
            "the first holder has written 100",
            "the second holder has written 80",
            "the first holder is refused",
            "the account has 80",
            "its release: the lock was lost",
        ],
    ),
    (
        "tests_of_your_service",
        &[
            "ok: a reply that is lost makes no second contender",
            "ok: a server that is killed and comes back takes no lock away",
            "ok: an order is not vouched for when the session has ended",
            "ok: a holder whose network is silent knows before the next one has the lock",
        ],
    ),
    (
        "job_runner",
        &[
            "runner-1 died over job-1: its half of the work is thrown away",
            "job-1: done once, by one runner: true",
            "job-6: done once, by one runner: true",
        ],
    ),
];

#[track_caller]
fn check(name: &str, servers: Option<&str>, expected: &[&str]) {
    let mut command = example(name);
    command.envs(servers.map(|servers| ("ZK_CONNECT", servers)));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}: {output:?}");
    for line in expected {
        assert!(said.lines().any(|said| said == *line), "{name} does not say {line:?}: {output:?}");
    }
}

#[test]
fn each_is_tested() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut programs: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned())).collect();
    programs.sort();
    let mut tested = EXAMPLES.map(|(name, _)| name);
    tested.sort_unstable();
    assert_eq!(programs, tested);
}

/// Takes the role that `ci/test` gives it; without one it does nothing.
#[test]
fn child_process() {
    let Some((role, arguments)) = child::role() else { return };
    match role.as_str() {
        "docs" => run_docs(),
        "archive" => archive_classes(&arguments[0]),
        other => panic!("no role {other}"),
    }
}

/// The examples of the documentation, with one server for all.
fn run_docs() {
    let server = TestingServer::start().unwrap();
    let mut docs = Command::new(env!("CARGO"));
    docs.args(["test", "--all-features", "--doc"]).env("CURATOR_LOCKS_EXAMPLES_SERVER", server.connect_string());
    assert!(docs.status().unwrap().success(), "an example fails");
}

/// The classes of a server, as Java keeps them in memory: it maps them when the next one starts.
fn archive_classes(file: &str) {
    let server = TestingServer::builder().jvm_option(format!("-XX:ArchiveClassesAtExit={file}")).start().unwrap();
    let client = connect(builder(&server, "archive"));
    mutex(&client).run(|_| ()).unwrap();
    drop(client);
    // In good order: Java writes the file when it ends.
    server.stop().unwrap();
}

mod slow {
    use super::*;

    #[test]
    fn each_runs_alone() {
        for (name, expected) in EXAMPLES {
            check(name, None, expected);
        }
    }

    #[test]
    fn each_leaves_nothing_on_servers_that_others_use() {
        let server = quick_server().start().unwrap();
        let before = server.znode_count().unwrap();
        for (name, expected) in EXAMPLES {
            check(name, Some(&server.connect_string()), expected);
        }
        eventually("the containers are gone", || server.znode_count().unwrap() == before);
    }
}
