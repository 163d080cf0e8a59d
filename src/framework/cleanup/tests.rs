//! What the background thread is told, and what is sent, over a session whose replies the test gives.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use crossbeam_channel::unbounded;

use super::*;
use crate::session::stub::StubSession;

struct Scene {
    cleanup: Cleanup,
    inbox: Receiver<Event>,
    desk: Arc<StubSession>,
}

impl Scene {
    fn new() -> Scene {
        let (events, inbox) = unbounded();
        Scene { cleanup: Cleanup::new(events), inbox, desk: StubSession::new() }
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
        for event in self.inbox.try_iter() {
            match event {
                Event::CleanUp => {
                    looks += 1;
                    self.cleanup.work(&self.session());
                }
                Event::CleanedUp(ids, reply) => {
                    answers += 1;
                    assert!(!self.cleanup.answered(&ids, &reply));
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
    let scene = Scene::new();
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
    let scene = Scene::new();
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
    let scene = Scene::new();
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
