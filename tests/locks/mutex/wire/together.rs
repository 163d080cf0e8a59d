//! Writes of many callers that go to the server as one transaction.

use std::{
    collections::HashSet,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use curator_locks::{
    Acl, CreateMode, Error, ErrorCode, InterProcessMutex, RetryNTimes, perms,
    unversioned::{Request, Response, SessionError, Submission},
};

use crate::support::{self, PATIENCE, builder, connect, namespace, session::RawSession};

/// More than are on the wire before others wait, on a busy machine too.
const DIRECTORIES: usize = 200;

fn world(perms: i32) -> Vec<Acl> {
    vec![Acl { perms, scheme: "world".into(), id: "anyone".into() }]
}

fn create(path: String, mode: CreateMode) -> Request {
    Request::Create { path, data: Vec::new(), acl: Acl::open_unsafe(), mode }
}

fn list(path: &str) -> Request {
    Request::GetChildren { path: path.to_owned(), watch: false, with_stat: false }
}

fn delete(path: &str) -> Request {
    Request::Delete { path: path.to_owned(), version: -1 }
}

/// A session that knows how far away the server is, and directories of its own.
fn session() -> (RawSession, Vec<String>) {
    let session = RawSession::open(support::server());
    let root = format!("/{}", namespace());
    let directories: Vec<_> = (0..DIRECTORIES).map(|index| format!("{root}/{index}")).collect();
    let made = [&root].into_iter().chain(&directories).map(|path| create(path.clone(), CreateMode::Persistent));
    assert!(session.ask(made.collect::<Vec<_>>()).iter().all(Result::is_ok));
    for _ in 0..20 {
        assert!(session.ask([create(format!("{root}/warm"), CreateMode::Ephemeral)])[0].is_ok());
        session.delete(&[&format!("{root}/warm")]);
    }
    (session, directories)
}

/// The path and the transaction of a create, and the names that the list behind it has.
fn entered(replies: &[Result<Response, SessionError>]) -> (&str, i64, &[String]) {
    match replies {
        [Ok(Response::Created { path, czxid }), Ok(Response::Children { names, .. })] => (path, *czxid, names),
        other => panic!("{other:?}"),
    }
}

fn enter(directory: &str) -> Vec<Request> {
    vec![create(format!("{directory}/x-"), CreateMode::EphemeralSequential), list(directory)]
}

/// Submits one batch after the other without waiting, as many callers do.
fn ask_each(session: &RawSession, batches: Vec<Vec<Request>>) -> Vec<Vec<Result<Response, SessionError>>> {
    let submit = |batch: Vec<Request>| {
        let (senders, replies): (Vec<_>, Vec<_>) = batch.iter().map(|_| mpsc::channel()).unzip();
        let submission = |(request, sender): (Request, mpsc::Sender<_>)| Submission {
            request,
            watcher: None,
            on_reply: Box::new(move |reply| drop(sender.send(reply))),
        };
        session.0.submit(batch.into_iter().zip(senders).map(submission).collect());
        replies
    };
    let sent: Vec<Vec<_>> = batches.into_iter().map(submit).collect();
    let receive = |reply: mpsc::Receiver<_>| reply.recv_timeout(PATIENCE).unwrap();
    sent.into_iter().map(|replies| replies.into_iter().map(receive).collect()).collect()
}

fn refused(reply: &Result<Response, SessionError>, with: ErrorCode) -> bool {
    matches!(reply, Err(SessionError::Server(code)) if *code == with)
}

#[test]
fn many_creates_share_transactions_and_each_has_its_path_its_czxid_and_its_list() {
    let (session, directories) = session();
    // Two for each directory, one right behind the other.
    let batches = directories.iter().flat_map(|directory| [enter(directory), enter(directory)]).collect();
    let replies = ask_each(&session, batches);
    let (mut transactions, mut nodes) = (HashSet::new(), Vec::new());
    for (directory, replies) in directories.iter().zip(replies.chunks(2)) {
        let ((first, czxid, before), (second, later, after)) = (entered(&replies[0]), entered(&replies[1]));
        assert!(czxid < later, "{directory}: {czxid} and {later}");
        for (path, names) in [(first, before), (second, after), (first, after)] {
            let name = path.strip_prefix(&format!("{directory}/")).unwrap();
            assert!(names.iter().any(|other| other == name), "{path} in {names:?}");
        }
        let read = session.ask([Request::Exists { path: second.to_owned(), watch: false }]);
        assert!(matches!(&read[0], Ok(Response::Stat(stat)) if stat.czxid == later), "{second}: {read:?}");
        transactions.extend([czxid, later]);
        nodes.extend([first.to_owned(), second.to_owned()]);
    }
    assert!(transactions.len() < nodes.len(), "none went together");
    session.delete(&nodes.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn where_the_server_refuses_one_each_is_told_what_became_of_its_own() {
    const GONE: usize = 150;
    const MISSING: usize = 160;
    const FORBIDDEN: usize = 170;
    let (session, directories) = session();
    let admin = RawSession::open(support::server());
    let nodes: Vec<_> = directories
        .iter()
        .map(|directory| session.ask(enter(directory)))
        .map(|replies| entered(&replies).0.to_owned())
        .collect();
    // An administrator's doing: a znode is deleted, a directory too, and another one is closed to all.
    admin.delete(&[&nodes[GONE], &nodes[MISSING], &directories[MISSING]]);
    let (path, acl) = (directories[FORBIDDEN].clone(), world(perms::READ | perms::ADMIN));
    assert!(admin.ask([Request::SetAcl { path, acl, version: -1 }])[0].is_ok());
    let batches = directories.iter().zip(&nodes).flat_map(|(directory, node)| [enter(directory), vec![delete(node)]]);
    let replies = ask_each(&session, batches.collect());
    for (index, replies) in replies.chunks(2).enumerate() {
        let [entered, deleted] = replies else { panic!("{replies:?}") };
        match index {
            MISSING => {
                let mut all = entered.iter().chain(deleted);
                assert!(all.all(|reply| refused(reply, ErrorCode::NoNode)), "{replies:?}");
            }
            FORBIDDEN => {
                let mut writes = [&entered[0], &deleted[0]].into_iter();
                assert!(writes.all(|reply| refused(reply, ErrorCode::NoAuth)), "{replies:?}");
                assert!(matches!(&entered[1], Ok(Response::Children { names, .. }) if names.len() == 1), "{replies:?}");
            }
            _ => {
                let (path, _, names) = self::entered(entered);
                let name = path.strip_prefix(&format!("{}/", directories[index])).unwrap();
                assert!(names.iter().any(|other| other == name), "{path} in {names:?}");
                let is_gone = refused(&deleted[0], ErrorCode::NoNode);
                assert!(if index == GONE { is_gone } else { deleted[0].is_ok() }, "{deleted:?}");
            }
        }
    }
}

#[test]
fn threads_with_a_lock_each_keep_their_tokens_in_order_while_an_administrator_deletes() {
    const THREADS: usize = 64;
    const CYCLES: usize = 40;
    let client = connect(
        builder(support::server(), &namespace()).retry_policy(RetryNTimes::new(u32::MAX, Duration::from_millis(1))),
    );
    let admin = support::another(&client);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|index| {
                let client = &client;
                scope.spawn(move || {
                    let mutex = InterProcessMutex::new(client, &format!("/locks/{index}")).unwrap();
                    let (mut last, mut lost) = (None, 0);
                    for _ in 0..CYCLES {
                        let guard = mutex.lock().unwrap();
                        let token = Some(guard.fencing_token());
                        assert!(token > last, "{token:?} after {last:?}");
                        last = token;
                        match guard.release() {
                            Ok(()) => {}
                            Err(Error::LockLost { .. }) => lost += 1,
                            other => panic!("{other:?}"),
                        }
                    }
                    lost
                })
            })
            .collect();
        scope.spawn(|| {
            let mut index = 0;
            while !is_over.load(Ordering::Relaxed) {
                index = (index + 7) % THREADS;
                let directory = format!("/locks/{index}");
                for name in admin.get_children().for_path(&directory).unwrap_or_default() {
                    // It may be gone already.
                    drop(admin.delete().for_path(&format!("{directory}/{name}")));
                }
            }
        });
        let lost: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        is_over.store(true, Ordering::Relaxed);
        println!("{lost} of {} holds were deleted", THREADS * CYCLES);
    });
}
