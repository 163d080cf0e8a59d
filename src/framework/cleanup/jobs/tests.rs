//! What the background thread is told, and what is sent, over a session whose replies the test gives.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use crate::{
    framework::events::event::event_channel,
    proto::request::Request,
    session::{api::Submission, fake::stub::StubSession},
};

struct Wanted {
    cleanup: Cleanup,
    received: Receiver<Event>,
    desk: Arc<StubSession>,
    now: Instant,
}

impl Wanted {
    fn new() -> Wanted {
        let (events, received) = event_channel();
        Wanted {
            cleanup: Cleanup::new(events, Counters::new()),
            received,
            desk: StubSession::new(),
            now: Instant::now(),
        }
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
                    self.cleanup.answered(&ids, &replies, self.now);
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
    let scene = Wanted::new();
    (0..JOBS).for_each(|k| scene.search(k));
    assert_eq!(scene.take(), (1, 0));
    let sent = scene.answer(|request| match request {
        Request::GetChildren { .. } => children((0..JOBS).rev().map(|k| format!("_c_{k:05}-lock-{k:010}"))),
        _ => Ok(Response::Done),
    });
    assert_eq!(sent.len(), 2, "one sync and one list: {sent:?}");
    // Its answer brings the deletes, for which there is one more look.
    assert_eq!(scene.take(), (1, 1));
    let sent = scene.answer(|_| Ok(Response::Done));
    assert_eq!(sent.len(), JOBS);
    for (k, request) in sent.iter().enumerate() {
        assert!(matches!(request, Request::Delete { path, .. } if *path == format!("/l/_c_{k:05}-lock-{k:010}")));
    }
    assert_eq!(scene.take(), (0, JOBS), "a look for each delete that was confirmed");
}

#[test]
fn a_search_that_comes_while_another_one_is_under_way_follows_it() {
    let scene = Wanted::new();
    scene.search(1);
    scene.take();
    scene.search(2);
    assert_eq!(scene.take(), (1, 0));
    assert_eq!(scene.answer(|_| children([])).len(), 2, "two searches in one directory at a time");
    assert_eq!(scene.take(), (1, 1));
    assert_eq!(scene.answer(|_| children([])).len(), 2);
    assert_eq!(scene.take(), (0, 1));
    assert!(scene.answer(|_| children([])).is_empty());
}

#[test]
fn a_job_ends_with_the_session_that_owned_its_znode() {
    let scene = Wanted::new();
    let mut job = Job::delete(ServerPath::from_server("/l/x"), Some(&scene.session()));
    let done = job.done();
    scene.cleanup.add(job);
    scene.search(1);
    scene.take();
    assert!(done.try_recv().unwrap_err().is_empty(), "before the reply");
    scene.desk.ended.store(true, Ordering::Release);
    scene.answer(|_| Err(SessionError::Expired));
    scene.search(2);
    scene.take();
    assert!(done.try_recv().unwrap_err().is_disconnected());
    assert!(scene.desk.submissions.lock().is_empty());
}

#[test]
fn what_the_server_refuses_is_tried_until_it_is_gone_with_a_growing_pause() {
    let mut scene = Wanted::new();
    let mut job = Job::delete(ServerPath::from_server("/l/x"), Some(&scene.session()));
    let done = job.done();
    scene.cleanup.add(job);
    let mut pauses = Vec::new();
    for code in [ErrorCode::NoAuth, ErrorCode::ThrottledOp, ErrorCode::SystemError].into_iter().cycle().take(10) {
        scene.take();
        assert_eq!(scene.answer(|_| Err(SessionError::Server(code))).len(), 1, "{code:?}");
        scene.take();
        let next = scene.cleanup.next_try().unwrap();
        assert!(!scene.cleanup.wake(next - Duration::from_millis(1)) && scene.cleanup.wake(next));
        pauses.push((next - scene.now).as_millis());
        scene.now = next;
        scene.cleanup.work(&scene.session());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000]);
    assert!(done.try_recv().unwrap_err().is_empty(), "still there");
    scene.answer(|_| Err(SessionError::ConnectionLoss(None)));
    scene.take();
    // A new connection ends the pause, and the next one is short again.
    scene.cleanup.wake_all();
    scene.cleanup.work(&scene.session());
    scene.answer(|_| Err(SessionError::Server(ErrorCode::NoAuth)));
    scene.take();
    assert_eq!(scene.cleanup.next_try(), Some(scene.now + FIRST_PAUSE));
    scene.cleanup.wake_all();
    scene.cleanup.work(&scene.session());
    scene.answer(|_| Err(SessionError::Server(ErrorCode::NoNode)));
    scene.take();
    assert!(done.try_recv().unwrap_err().is_disconnected());
    assert_eq!(scene.cleanup.next_try(), None);
}

#[test]
fn a_directory_whose_list_is_too_large_is_listed_once() {
    let scene = Wanted::new();
    (0..3).for_each(|k| scene.search(k));
    scene.take();
    // Comes while the list is under way.
    scene.search(3);
    scene.take();
    let too_large = |request: &Request| match request {
        Request::GetChildren { .. } => Err(SessionError::FrameTooLarge { size: 1001, limit: 1000 }),
        Request::GetEphemerals { prefix } => Ok(Response::Ephemerals(vec![format!("{prefix}lock-0000000007")])),
        _ => Ok(Response::Done),
    };
    let lists = |sent: &[Request]| sent.iter().filter(|sent| matches!(sent, Request::GetChildren { .. })).count();
    assert_eq!(lists(&scene.answer(too_large)), 1);
    scene.take();
    // And one that comes later.
    scene.search(4);
    let mut deleted = Vec::new();
    for _ in 0..3 {
        scene.take();
        let sent = scene.answer(too_large);
        assert_eq!(lists(&sent), 0);
        deleted.extend(sent.iter().filter_map(|sent| match sent {
            Request::Delete { path, .. } => Some(path.clone()),
            _ => None,
        }));
    }
    scene.take();
    deleted.sort();
    assert_eq!(deleted, [0, 1, 2, 3, 4].map(|k| format!("/l/_c_{k:05}-lock-0000000007")));
    assert!(scene.desk.submissions.lock().is_empty());
}
