//! Over servers that speak ZooKeeper and are none.

use std::time::{Duration, Instant};

use curator_locks::{
    InterProcessMutex,
    testing::{Dialect, FaultProxy},
};

use crate::{LOST, Running, path, stderr_of, stdout_of, support, zklock_at};

fn start(dialect: Dialect) -> FaultProxy {
    FaultProxy::start_as(support::server().connect_string(), dialect).unwrap()
}

#[test]
fn a_command_runs_under_a_lock_of_any_server_and_the_doctor_says_which_it_is() {
    for dialect in Dialect::ALL {
        let (server, path) = (start(dialect), path());
        let run = zklock_at(&server.connect_string(), ["run", &path, "--", "echo", "done"]).output().unwrap();
        assert_eq!(
            (stdout_of(&run).as_str(), run.status.code()),
            ("done\n", Some(0)),
            "{dialect}: {}",
            stderr_of(&run)
        );
        let doctor = ["doctor", "--session-timeout", "60s", "--path", &path];
        let said = stdout_of(&zklock_at(&server.connect_string(), doctor).output().unwrap());
        let line = said.lines().find(|line| line.contains("dialect")).unwrap_or_else(|| panic!("{said}"));
        // That it is an old ZooKeeper it tells only by refusing something.
        let found = if dialect == Dialect::ZooKeeper34 { Dialect::ZooKeeper } else { dialect };
        assert!(line.contains(&found.to_string()), "{line}");
        assert_eq!(line.starts_with("mind"), !dialect.resumes_sessions(), "{line}");
        assert!(!said.contains("WRONG"), "{said}");
    }
}

#[test]
fn a_cut_from_a_keeper_ends_the_command_and_then_the_lock_is_free() {
    let (server, path) = (start(Dialect::KeeperBefore267), path());
    let session = Duration::from_secs(40);
    let arguments =
        ["run", "--session-timeout", "40s", &path, "--", "sh", "-c", "echo $$; while :; do sleep 0.01; done"];
    let (mut run, _) = Running::under_way(|| zklock_at(&server.connect_string(), arguments));
    let since = Instant::now();
    server.cut();
    assert_eq!(run.status(), LOST);
    let client = support::connect(support::builder(support::server(), ""));
    let mutex = InterProcessMutex::new(&client, &path).unwrap();
    mutex.acquire().unwrap();
    assert!(since.elapsed() < session / 2, "not when the session has expired: {:?}", since.elapsed());
    mutex.release().unwrap();
    client.close();
}
