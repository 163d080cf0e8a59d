//! Storage that refuses holders whose lock has passed on: over several processes, and over several machines.

use std::{fs, io::Write, path::Path, thread};

use curator_locks::{
    CuratorFramework, Error, ErrorCode, FencingError, FencingToken, FileFencingChecker, InterProcessReadWriteLock,
    ZooKeeperFencingChecker,
    testing::{Fault, RequestMatch},
};

use crate::{
    behind_proxy_for,
    support::{self, SESSION, another, child::ChildProcess, mutex},
};

const PROCESSES: i64 = 3;
const TOKENS: i64 = 60;

fn token(value: i64) -> FencingToken {
    FencingToken::from_value(value)
}

fn is_stale<T>(result: Result<T, FencingError>, newest: i64) -> bool {
    matches!(result, Err(FencingError::Stale(stale)) if stale.newest == token(newest))
}

/// Shows every third token, each with a line in the journal.
pub fn child(arguments: &[String]) {
    let directory = Path::new(&arguments[0]);
    let first: i64 = arguments[1].parse().unwrap();
    let fence = FileFencingChecker::open(directory.join("fence")).unwrap();
    support::child::say("ready");
    support::child::listen();
    let mut refused = 0;
    for value in (first..TOKENS).step_by(usize::try_from(PROCESSES).unwrap()) {
        let write = || {
            let mut journal = fs::OpenOptions::new().append(true).create(true).open(directory.join("journal")).unwrap();
            writeln!(journal, "{value}").unwrap();
        };
        match fence.fenced(token(value), write) {
            Ok(()) => {}
            Err(FencingError::Stale(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    support::child::say(&refused.to_string());
}

#[test]
fn of_processes_with_one_file_none_writes_behind_a_newer_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut children: Vec<ChildProcess> =
        (0..PROCESSES).map(|first| ChildProcess::start("fenced", &[path, &(first + 1).to_string()])).collect();
    children.iter_mut().for_each(|child| assert_eq!(child.hear(), "ready"));
    children.iter_mut().for_each(|child| child.tell("go"));
    let refused: i64 = children.iter_mut().map(|child| child.hear().parse::<i64>().unwrap()).sum();
    let journal = fs::read_to_string(directory.path().join("journal")).unwrap();
    let written: Vec<i64> = journal.lines().map(|line| line.parse().unwrap()).collect();
    assert!(written.is_sorted(), "{written:?}");
    assert_eq!(i64::try_from(written.len()).unwrap() + refused, TOKENS - 1);
    let fence = FileFencingChecker::open(directory.path().join("fence")).unwrap();
    assert_eq!(fence.newest().unwrap(), Some(token(*written.last().unwrap())));
}

fn fence(client: &CuratorFramework) -> ZooKeeperFencingChecker {
    ZooKeeperFencingChecker::new(client, "/fences/account").unwrap()
}

#[test]
fn of_clients_with_one_znode_none_passes_behind_a_newer_token() {
    let client = support::client();
    let clients = [another(&client), another(&client), client];
    let fences = clients.each_ref().map(fence);
    assert_eq!(fences[0].newest().unwrap(), None);
    thread::scope(|scope| {
        for (first, fence) in (1..).zip(&fences) {
            scope.spawn(move || {
                for value in (first..60).step_by(3) {
                    match fence.check(token(value)) {
                        Ok(()) => assert!(fence.newest().unwrap() >= Some(token(value))),
                        Err(FencingError::Stale(stale)) => assert!(stale.newest > token(value)),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let [one, other, _] = fences;
    assert_eq!(one.newest().unwrap(), Some(token(59)));
    other.check(token(59)).unwrap();
    assert!(is_stale(other.check(token(58)), 59));
    other.check_shared(token(59)).unwrap();
    other.check_shared(token(100)).unwrap();
    assert!(is_stale(one.check_shared(token(58)), 59), "a reader is over when a younger writer has written");
    one.check(token(60)).unwrap();
}

#[test]
fn a_check_whose_reply_is_lost_may_be_made_again() {
    let (proxy, client) = behind_proxy_for(SESSION);
    let fence = fence(&client);
    fence.check(token(5)).unwrap();
    proxy.inject(RequestMatch::transactions(), Fault::CutInsteadOfReply);
    let lost = fence.check(token(7));
    assert!(matches!(lost, Err(FencingError::Failed(Error::ConnectionLoss { .. }))), "{lost:?}");
    fence.check(token(7)).unwrap();
    assert!(is_stale(fence.check(token(5)), 7));
}

#[test]
fn what_is_in_zookeeper_is_written_in_the_moment_of_the_check() {
    let client = support::client();
    let fence = fence(&client);
    client.create().creating_parents_if_needed().for_path_and_data("/account", "100").unwrap();
    let write = |token| {
        let guarded = fence.guard_transaction(token, client.transaction()).unwrap();
        guarded.set_data().for_path_and_data("/account", token.to_string())
    };
    write(token(5)).commit().unwrap();
    let overtaken = write(token(6));
    write(token(7)).commit().unwrap();
    match overtaken.commit() {
        Err(Error::TransactionFailed { index: 0, code: ErrorCode::BadVersion, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(is_stale(fence.guard_transaction(token(6), client.transaction()), 7));
    assert_eq!(client.get_data().for_path("/account").unwrap(), b"7");
    let reader = fence.guard_shared(token(9), client.transaction()).unwrap().check().for_path("/account");
    reader.commit().unwrap();
    assert_eq!(fence.newest().unwrap(), Some(token(7)));
}

#[test]
fn a_znode_of_somebody_else_is_no_fence() {
    let client = support::client();
    client.create().creating_parents_if_needed().for_path_and_data("/fences/account", "10.0.0.1").unwrap();
    let refused = fence(&client).check(token(5));
    assert!(matches!(refused, Err(FencingError::Failed(Error::InvalidArgument { .. }))), "{refused:?}");
    assert!(matches!(ZooKeeperFencingChecker::new(&client, "fence"), Err(Error::InvalidPath { .. })));
}

#[test]
fn tokens_of_real_locks_are_told_apart_by_all_checkers() {
    let client = support::client();
    let directory = tempfile::tempdir().unwrap();
    let (file, znode) = (FileFencingChecker::open(directory.path().join("fence")).unwrap(), fence(&client));
    let mutex = mutex(&client);
    let [early, late] = [0, 1].map(|_| {
        let held = mutex.lock().unwrap();
        let token = held.fencing_token();
        held.release().unwrap();
        assert_eq!(FencingToken::from_bytes(token.to_bytes()), token);
        token
    });
    file.check(late).unwrap();
    znode.check(late).unwrap();
    assert!(is_stale(file.check(early), late.value()) && is_stale(znode.check(early), late.value()));
    // Readers beside each other, and none behind a younger writer.
    let lock = InterProcessReadWriteLock::new(&client, "/read-write").unwrap();
    let read = lock.read_lock().lock().unwrap();
    let reader = read.fencing_token();
    znode.check_shared(reader).unwrap();
    read.release().unwrap();
    let write = lock.write_lock().lock().unwrap();
    znode.check(write.fencing_token()).unwrap();
    assert!(znode.check_shared(reader).is_err());
    write.release().unwrap();
}
