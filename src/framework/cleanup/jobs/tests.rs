//! What the background thread is told, and what is sent, over a session whose replies the test gives.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::atomic::Ordering;

use super::*;
use crate::{
    base::clock,
    framework::events::event::event_channel,
    proto::request::Request,
    session::{api::Submission, fake::stub::StubSession},
};

struct Rig {
    cleanup: Cleanup,
    received: Receiver<Event>,
    desk: Arc<StubSession>,
    now: Instant,
}

impl Rig {
    fn new() -> Rig {
        let (events, received) = event_channel();
        Rig { cleanup: Cleanup::new(events, Arc::default()), received, desk: StubSession::new(), now: clock::now() }
    }

    fn session(&self) -> Arc<dyn Session> {
        self.desk.clone()
    }

    fn search(&self, k: usize) {
        let parent = ServerPath::from_server("/l");
        self.cleanup.add(Job::protected(parent, format!("_c_{k:05}-"), Some(&self.session())));
    }

    /// What the client's thread does with what it has been told: how many looks, and how many answers.
    fn take(&self) -> (usize, usize) {
        let (mut looks, mut answers) = (0, 0);
        for event in self.received.try_iter() {
            match event {
                Event::CleanUp => {
                    looks += 1;
                    self.cleanup.work(&self.session());
                }
                Event::CleanedUp(ids, replies) => {
                    answers += 1;
                    self.cleanup.answered(&ids, replies, self.now);
                }
                _ => panic!("something else"),
            }
        }
        (looks, answers)
    }

    /// Answers what was sent.
    fn answer(&self, reply: impl Fn(&Request) -> Reply) -> Vec<Request> {
        let sent = std::mem::take(&mut *self.desk.submissions.lock());
        let answer = |submission: Submission| {
            (submission.on_reply)(reply(&submission.request));
            submission.request
        };
        sent.into_iter().map(answer).collect()
    }
}

fn children(names: impl IntoIterator<Item = String>) -> Reply {
    Ok(Response::Children { names: names.into_iter().collect(), stat: None })
}

#[test]
fn a_crowd_of_jobs_costs_a_look_for_all_of_them() {
    const JOBS: usize = 1000;
    let rig = Rig::new();
    (0..JOBS).for_each(|k| rig.search(k));
    assert_eq!(rig.take(), (1, 0));
    let sent = rig.answer(|request| match request {
        Request::GetChildren { .. } => children((0..JOBS).rev().map(|k| format!("_c_{k:05}-lock-{k:010}"))),
        _ => Ok(Response::Done),
    });
    assert_eq!(sent.len(), 2, "one sync and one list: {sent:?}");
    // Its answer brings the deletes, for which there is one more look.
    assert_eq!(rig.take(), (1, 1));
    let sent = rig.answer(|_| Ok(Response::Done));
    assert_eq!(sent.len(), JOBS);
    for (k, request) in sent.iter().enumerate() {
        assert!(matches!(request, Request::Delete { path, .. } if *path == format!("/l/_c_{k:05}-lock-{k:010}")));
    }
    assert_eq!(rig.take(), (0, JOBS), "a look for each delete that was confirmed");
}

#[test]
fn a_search_that_comes_while_another_one_is_under_way_follows_it() {
    let rig = Rig::new();
    rig.search(1);
    rig.take();
    rig.search(2);
    assert_eq!(rig.take(), (1, 0));
    assert_eq!(rig.answer(|_| children([])).len(), 2, "two searches in one directory at a time");
    assert_eq!(rig.take(), (1, 1));
    assert_eq!(rig.answer(|_| children([])).len(), 2);
    assert_eq!(rig.take(), (0, 1));
    assert!(rig.answer(|_| children([])).is_empty());
}

#[test]
fn a_job_ends_with_the_session_that_owned_its_znode() {
    let rig = Rig::new();
    let mut job = Job::delete(ServerPath::from_server("/l/x"), Some(&rig.session()));
    let done = job.done();
    rig.cleanup.add(job);
    rig.search(1);
    rig.take();
    assert!(done.try_recv().unwrap_err().is_empty(), "before the reply");
    rig.desk.ended.store(true, Ordering::Release);
    rig.answer(|_| Err(SessionError::Expired));
    rig.search(2);
    rig.take();
    assert!(done.try_recv().unwrap_err().is_disconnected());
    assert!(rig.desk.submissions.lock().is_empty());
}

#[test]
fn a_job_of_a_session_that_leaves_its_znodes_goes_on_in_the_next_one() {
    let mut rig = Rig::new();
    let (first, mut job) = (rig.desk.clone(), Job::delete(ServerPath::from_server("/l/x"), Some(&rig.session())));
    let done = job.done();
    rig.cleanup.add(job);
    rig.search(1);
    rig.take();
    *first.left_behind.lock() = Some(rig.now);
    first.ended.store(true, Ordering::Release);
    rig.answer(|_| Err(SessionError::Expired));
    rig.take();
    rig.desk = StubSession::new();
    assert!(rig.cleanup.wake(None), "a new connection");
    rig.cleanup.work(&rig.session());
    let found = "_c_00001-lock-0000000007";
    let sent = rig.answer(|request| match request {
        Request::GetChildren { .. } => children([found.to_owned()]),
        _ => Ok(Response::Done),
    });
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert!(done.try_recv().unwrap_err().is_empty(), "before the answer is taken");
    rig.take();
    assert!(done.try_recv().unwrap_err().is_disconnected());
    let sent = rig.answer(|_| Ok(Response::Done));
    assert_eq!(sent.iter().map(Request::path).collect::<Vec<_>>(), [format!("/l/{found}")]);
}

#[test]
fn what_the_server_refuses_is_tried_until_it_is_gone_with_a_growing_pause() {
    let mut rig = Rig::new();
    let mut job = Job::delete(ServerPath::from_server("/l/x"), Some(&rig.session()));
    let done = job.done();
    rig.cleanup.add(job);
    let mut pauses = Vec::new();
    for code in [ErrorCode::NoAuth, ErrorCode::ThrottledOp, ErrorCode::SystemError].into_iter().cycle().take(10) {
        rig.take();
        assert_eq!(rig.answer(|_| Err(SessionError::Server(code))).len(), 1, "{code:?}");
        rig.take();
        let next = rig.cleanup.next_try().unwrap();
        assert!(!rig.cleanup.wake(Some(next - Duration::from_millis(1))) && rig.cleanup.wake(Some(next)));
        pauses.push((next - rig.now).as_millis());
        rig.now = next;
        rig.cleanup.work(&rig.session());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000]);
    assert!(done.try_recv().unwrap_err().is_empty(), "still there");
    rig.answer(|_| Err(SessionError::ConnectionLoss(None)));
    rig.take();
    // A new connection ends the pause, and the next one is short again.
    rig.cleanup.wake(None);
    rig.cleanup.work(&rig.session());
    rig.answer(|_| Err(SessionError::Server(ErrorCode::NoAuth)));
    rig.take();
    assert_eq!(rig.cleanup.next_try(), Some(rig.now + FIRST_PAUSE));
    rig.cleanup.wake(None);
    rig.cleanup.work(&rig.session());
    rig.answer(|_| Err(SessionError::Server(ErrorCode::NoNode)));
    rig.take();
    assert!(done.try_recv().unwrap_err().is_disconnected());
    assert_eq!(rig.cleanup.next_try(), None);
}

#[test]
fn a_directory_whose_list_is_too_large_is_listed_once_for_all_jobs_that_wait() {
    let rig = Rig::new();
    (0..3).for_each(|k| rig.search(k));
    rig.take();
    let too_large = |request: &Request| match request {
        Request::GetChildren { .. } => Err(SessionError::FrameTooLarge { size: 1001, limit: 1000 }),
        Request::GetEphemerals { prefix } => Ok(Response::Ephemerals(vec![format!("{prefix}lock-0000000007")])),
        _ => Ok(Response::Done),
    };
    let lists = |sent: &[Request]| sent.iter().filter(|sent| matches!(sent, Request::GetChildren { .. })).count();
    assert_eq!(lists(&rig.answer(too_large)), 1);
    rig.take();
    let mut deleted = Vec::new();
    for _ in 0..3 {
        rig.take();
        let sent = rig.answer(too_large);
        assert_eq!(lists(&sent), 0);
        deleted.extend(sent.iter().filter_map(|sent| match sent {
            Request::Delete { path, .. } => Some(path.clone()),
            _ => None,
        }));
    }
    rig.take();
    deleted.sort();
    assert_eq!(deleted, [0, 1, 2].map(|k| format!("/l/_c_{k:05}-lock-0000000007")));
    assert!(rig.desk.submissions.lock().is_empty());
}
