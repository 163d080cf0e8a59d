//! `TestingServer`.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    panic,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use curator_locks::testing::{TestingError, TestingServer};

use crate::support::{
    eventually,
    raw::{NO_NODE, OK, RawClient},
};

const SESSION: Duration = Duration::from_secs(60);

fn process_exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn is_stopped(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ")
}

fn connect(server: &TestingServer) -> RawClient {
    RawClient::connect(&server.connect_string(), SESSION).unwrap()
}

#[test]
fn a_server_serves_within_seconds() {
    let begin = Instant::now();
    let server = TestingServer::start().unwrap();
    println!("serving after {:?}", begin.elapsed());
    assert!(server.is_running());
    assert_eq!(server.connect_string(), format!("127.0.0.1:{}", server.port()));
    assert_eq!(connect(&server).create("/a", false).unwrap(), OK);
    assert!(server.log().contains("clientPortAddress"), "{}", server.log());
}

#[test]
fn many_servers_start_at_once_on_ports_of_their_own() {
    let starts: Vec<_> = (0..4).map(|_| std::thread::spawn(TestingServer::start)).collect();
    let servers: Vec<TestingServer> = starts.into_iter().map(|start| start.join().unwrap().unwrap()).collect();
    let mut ports: Vec<u16> = servers.iter().map(TestingServer::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 4);
}

#[test]
fn session_timeouts_from_1_to_60_s_are_granted_as_asked() {
    let server = TestingServer::start().unwrap();
    for seconds in [1, 3, 60] {
        let timeout = Duration::from_secs(seconds);
        assert_eq!(RawClient::connect(&server.connect_string(), timeout).unwrap().timeout, timeout);
    }
}

#[test]
fn session_timeouts_are_held_to_the_configured_range() {
    let (low, high) = (Duration::from_secs(2), Duration::from_secs(4));
    let server = TestingServer::builder().min_session_timeout(low).max_session_timeout(high).start().unwrap();
    let granted = |timeout| RawClient::connect(&server.connect_string(), timeout).unwrap().timeout;
    assert_eq!(granted(Duration::from_secs(1)), low);
    assert_eq!(granted(Duration::from_secs(9)), high);
}

#[test]
fn a_restart_keeps_port_data_and_sessions() {
    let server = TestingServer::start().unwrap();
    let address = server.connect_string();
    let mut client = connect(&server);
    assert_eq!(client.create("/kept", false).unwrap(), OK);
    assert_eq!(client.create("/session", true).unwrap(), OK);
    server.restart().unwrap();
    assert_eq!(server.connect_string(), address);
    let mut client = RawClient::resume(&address, SESSION, client.session_id, &client.password).unwrap();
    assert_ne!(client.session_id, 0, "the session is gone");
    assert_eq!(client.exists("/kept").unwrap(), OK);
    assert_eq!(client.exists("/session").unwrap(), OK);
    assert_eq!(client.exists("/never").unwrap(), NO_NODE);
}

#[test]
fn what_was_answered_survives_kill() {
    let server = TestingServer::start().unwrap();
    let mut client = connect(&server);
    for i in 0..100 {
        assert_eq!(client.create(&format!("/n{i}"), false).unwrap(), OK);
    }
    server.kill().unwrap();
    assert!(!server.is_running());
    assert!(client.ping().is_err());
    server.restart().unwrap();
    assert_eq!(connect(&server).exists("/n99").unwrap(), OK);
}

#[test]
fn the_port_is_nobody_elses_while_the_server_is_stopped() {
    let server = TestingServer::start().unwrap();
    server.stop().unwrap();
    assert!(!server.is_running());
    assert!(TcpStream::connect(server.connect_string()).is_err());
    let others: Vec<TcpListener> = (0..2000).map_while(|_| TcpListener::bind("127.0.0.1:0").ok()).collect();
    assert!(others.iter().all(|other| other.local_addr().unwrap().port() != server.port()));
    server.restart().unwrap();
}

#[test]
fn stop_and_kill_do_nothing_to_a_stopped_server_but_pause_says_so() {
    let server = TestingServer::start().unwrap();
    server.stop().unwrap();
    server.stop().unwrap();
    server.kill().unwrap();
    assert!(matches!(server.pause(), Err(TestingError::NotRunning { .. })));
    assert!(matches!(server.resume(), Err(TestingError::NotRunning { .. })));
    assert!(server.four_letter_word("ruok").is_err());
    assert_eq!(server.pid(), None);
}

#[test]
fn a_server_killed_by_somebody_else_is_seen_to_be_gone() {
    let server = TestingServer::start().unwrap();
    kill(server.pid().unwrap());
    eventually("the server is seen to be gone", || !server.is_running());
    assert!(matches!(server.pause(), Err(TestingError::NotRunning { .. })));
    server.restart().unwrap();
}

#[test]
fn a_paused_server_answers_nothing_until_it_goes_on() {
    let server = TestingServer::start().unwrap();
    let mut client = connect(&server);
    server.pause().unwrap();
    let pid = server.pid().unwrap();
    eventually("the server is stopped", || is_stopped(pid));
    assert!(server.is_running());
    client.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(client.ping().is_err());
    server.resume().unwrap();
    client.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(client.receive().unwrap().code, OK);
}

#[test]
fn a_paused_server_can_be_stopped_killed_and_dropped() {
    let server = TestingServer::start().unwrap();
    server.pause().unwrap();
    server.stop().unwrap();
    server.restart().unwrap();
    server.pause().unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    let pid = server.pid().unwrap();
    server.pause().unwrap();
    drop(server);
    assert!(!process_exists(pid));
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_file() {
    let server = TestingServer::start().unwrap();
    let (pid, directory) = (server.pid().unwrap(), working_directory(&server));
    assert!(process_exists(pid) && directory.exists());
    drop(server);
    assert!(!process_exists(pid) && !directory.exists());
}

#[test]
fn a_server_is_gone_after_a_panic() {
    let mut pid = None;
    let result = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let server = TestingServer::start().unwrap();
        pid = server.pid();
        panic!("the test fails");
    }));
    assert!(result.is_err());
    assert!(!process_exists(pid.unwrap()));
}

#[test]
fn a_given_data_directory_stays_and_serves_the_next_server() {
    let directory = tempfile();
    let data = directory.path().join("made/on/demand");
    let start = || TestingServer::builder().data_directory(&data).start().unwrap();
    assert_eq!(connect(&start()).create("/kept", false).unwrap(), OK);
    assert_eq!(connect(&start()).exists("/kept").unwrap(), OK);
}

#[test]
fn a_server_that_does_not_start_shows_the_end_of_its_log() {
    let error = TestingServer::builder().property("tickTime", "soon").start().unwrap_err();
    assert!(matches!(error, TestingError::StartFailed { .. }), "{error}");
    assert!(error.to_string().contains("the process ended"), "{error}");
    assert!(error.to_string().contains("For input string: \"soon\""), "{error}");
    let error = TestingServer::builder().jvm_option("-XX:+NoSuchOption").start().unwrap_err();
    assert!(error.to_string().contains("NoSuchOption"), "{error}");
}

#[test]
fn the_counters_are_the_servers_own() {
    let server = TestingServer::start().unwrap();
    let mut client = connect(&server);
    let (znodes, packets) = (server.znode_count().unwrap(), server.packets_received().unwrap());
    assert_eq!(server.packets_received().unwrap(), packets + 1, "a question counts as one packet");
    assert_eq!(client.create("/ephemeral", true).unwrap(), OK);
    assert_eq!(client.watch("/ephemeral").unwrap(), OK);
    assert_eq!(client.watch("/missing").unwrap(), NO_NODE);
    assert_eq!(server.packets_received().unwrap(), packets + 1 + 3 + 1);
    assert_eq!(server.ephemeral_count().unwrap(), 1);
    assert_eq!(server.watch_count().unwrap(), 2);
    assert_eq!(server.znode_count().unwrap(), znodes + 1);
}

#[test]
fn system_properties_and_jvm_options_reach_the_server() {
    let server = TestingServer::builder()
        .container_check_interval(Duration::from_millis(1500))
        .system_property("zookeeper.some", "thing")
        .jvm_option("-Xmx128m")
        .start()
        .unwrap();
    eventually("the check interval in the log", || server.log().contains("Using checkIntervalMs=1500"));
    let command = fs::read_to_string(format!("/proc/{}/cmdline", server.pid().unwrap())).unwrap();
    assert!(command.contains("-Dzookeeper.some=thing\0") && command.contains("-Xmx128m\0"), "{command}");
}

/// What the child process of the next two tests runs; by itself it does nothing.
#[test]
fn child_with_a_server() {
    let Some(how) = env::var_os("TESTING_CHILD") else { return };
    let server = TestingServer::start().unwrap();
    println!("child: {} {}", server.pid().unwrap(), working_directory(&server).display());
    if how == "exit" {
        std::process::exit(3);
    }
    server.pause().unwrap();
    std::thread::park();
}

#[test]
fn a_server_is_gone_after_kill_of_the_test_process() {
    let (mut child, pid, directory) = child_with("kill");
    assert!(process_exists(pid) && directory.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the paused server is gone", || !process_exists(pid));
    eventually("its files are gone", || !directory.exists());
}

#[test]
fn a_server_is_gone_after_exit_of_the_test_process() {
    let (mut child, pid, directory) = child_with("exit");
    assert_eq!(child.wait().unwrap().code(), Some(3));
    eventually("the server is gone", || !process_exists(pid));
    eventually("its files are gone", || !directory.exists());
}

/// Runs `child_with_a_server` in a process of its own; gives its server's pid and directory.
fn child_with(how: &str) -> (Child, u32, PathBuf) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "server::child_with_a_server", "--nocapture"])
        .env("TESTING_CHILD", how)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find_map(|line| line.split_once("child: ").map(|(_, rest)| rest.to_owned()));
    let line = line.unwrap();
    let (pid, directory) = line.split_once(' ').unwrap();
    (child, pid.parse().unwrap(), directory.into())
}

fn working_directory(server: &TestingServer) -> PathBuf {
    fs::read_link(format!("/proc/{}/cwd", server.pid().unwrap())).unwrap()
}

fn kill(pid: u32) {
    assert!(Command::new("sh").args(["-c", &format!("kill -KILL {pid}")]).status().unwrap().success());
}

fn tempfile() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}
