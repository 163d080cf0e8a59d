//! Leaders that one thread starts and another one closes.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, thread, time::Duration};

use crate::{
    base::{
        channel::{Sender, unbounded},
        clock,
        threads::HAS_NONE_LEFT,
    },
    error::{Error, Result},
    framework::{client::core::CuratorFramework, config::retry::RetryOneTime},
    locks::{
        leader::{
            latch::LeaderLatch,
            leadership::{LeaderState, Leadership},
            selector::LeaderSelector,
        },
        zookeeper_recipe::WriteLock,
    },
    proto::{request::Request, response::Response, types::Stat},
    session::{
        api::{Reply, Session, SessionConfig, SessionEvent, SessionFactory, SessionObserver, Submission},
        fake::stub::StubSession,
        native::session::NativeSessionFactory,
    },
};

const ROUNDS: usize = 500;
const PATIENCE: Duration = Duration::from_secs(20);

/// A client whose servers are not there.
fn client() -> CuratorFramework {
    let retry = RetryOneTime::new(Duration::from_millis(1));
    let client = CuratorFramework::builder().connect_string("127.0.0.1:1").retry_policy(retry).build().unwrap();
    client.start().unwrap();
    client
}

/// Closes it as soon as it is in use, while another thread is still starting it.
fn close_while_it_starts(start: impl FnOnce() -> Result<()> + Send, close: impl Fn() -> Result<()>) {
    thread::scope(|scope| {
        let starting = scope.spawn(start);
        loop {
            match close() {
                Err(Error::NotInUse { state: "not started", .. }) => std::hint::spin_loop(),
                result => break result.unwrap(),
            }
        }
        // It was started before it was closed, or has seen the close.
        let started = starting.join().unwrap();
        assert!(matches!(started, Ok(()) | Err(Error::NotInUse { state: "closed", .. })), "{started:?}");
    });
}

/// Tells whom a session tells what happens to it.
struct Overheard(Sender<SessionObserver>);

impl SessionFactory for Overheard {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        let _ = self.0.send(observer.clone());
        NativeSessionFactory.open(config, observer)
    }
}

#[test]
fn a_latch_that_waits_for_a_connection_hears_that_none_will_come() {
    let (sender, observers) = unbounded();
    let builder = CuratorFramework::builder().connect_string("127.0.0.1:1").lock_recheck_interval(None);
    let retry = RetryOneTime::new(Duration::from_millis(1));
    let client = builder.retry_policy(retry).session_factory(Overheard(sender)).build().unwrap();
    client.start().unwrap();
    let latch = LeaderLatch::new(&client, "/leader").unwrap();
    latch.start().unwrap();
    observers.recv_timeout(PATIENCE).unwrap()(SessionEvent::AuthFailed {
        scheme: "digest".into(),
        detail: String::new(),
    });
    let awaited = latch.await_leadership_timeout(PATIENCE);
    assert!(matches!(awaited, Err(Error::AuthFailed { .. })), "{awaited:?}");
}

#[test]
fn a_latch_that_is_closed_while_it_starts_leaves_no_listener_behind() {
    let client = client();
    for _ in 0..ROUNDS {
        let latch = LeaderLatch::new(&client, "/leader").unwrap();
        close_while_it_starts(|| latch.start(), || latch.close());
        assert_eq!(latch.our_path(), None);
        assert_eq!(Arc::weak_count(&latch.candidate), 0, "the client still tells it of its connection");
    }
    client.close();
}

#[test]
fn a_selector_that_is_closed_while_it_starts_leaves_no_listener_and_no_task_behind() {
    let client = client();
    for _ in 0..ROUNDS {
        let never = |_: &CuratorFramework, _: &Leadership| Ok(());
        let selector = LeaderSelector::new(&client, "/leader", never).unwrap();
        close_while_it_starts(|| selector.start(), || selector.close());
        let shared = Arc::downgrade(&selector.shared);
        assert_eq!(shared.weak_count(), 1, "the client still tells it of its connection");
        drop(selector);
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }
    client.close();
}

#[test]
fn where_no_thread_can_be_had_the_caller_hears_of_it_and_nothing_is_begun() {
    let client = client();
    let is_refused = |result: Result<()>| assert!(matches!(result, Err(Error::Io { .. })), "{result:?}");
    let never = |_: &CuratorFramework, _: &Leadership| Ok(());
    let latch = LeaderLatch::new(&client, "/leader").unwrap();
    let selector = LeaderSelector::new(&client, "/selector", never).unwrap();
    let lock = WriteLock::new(&client, "/lock").unwrap();
    HAS_NONE_LEFT.set(true);
    is_refused(latch.start());
    is_refused(selector.start());
    is_refused(lock.lock().map(drop));
    HAS_NONE_LEFT.set(false);
    assert_eq!((latch.state(), lock.id()), (LeaderState::Latent, None));
    assert_eq!(Arc::weak_count(&latch.candidate), 0, "the client still tells it of its connection");
    assert_eq!(Arc::strong_count(&latch.candidate), 1, "something of the candidacy is left");
    lock.unlock().unwrap();
    latch.start().unwrap();
    assert!(selector.requeue().unwrap());
    client.close();
}

#[test]
fn the_thread_of_a_candidate_ends_with_its_close_its_drop_and_its_client() {
    let client = client();
    let candidate = |latch: &LeaderLatch| Arc::downgrade(&latch.candidate);
    let [closed, dropped, last] = [(); 3].map(|()| LeaderLatch::new(&client, "/leader").unwrap());
    for latch in [&closed, &dropped, &last] {
        latch.start().unwrap();
    }
    let ended = |threads: &dyn Fn() -> usize| {
        let begun = clock::now();
        while threads() > 0 {
            assert!(clock::since(begun) < PATIENCE, "its thread lives on");
            thread::yield_now();
        }
    };
    closed.close().unwrap();
    ended(&|| Arc::strong_count(&closed.candidate) - 1);
    let of_dropped = candidate(&dropped);
    drop(dropped);
    ended(&|| of_dropped.strong_count());
    assert_eq!(Arc::strong_count(&last.candidate), 2);
    client.close();
    ended(&|| Arc::strong_count(&last.candidate) - 1);
}

/// The next request that is sent.
fn sent(session: &StubSession) -> Submission {
    let begun = clock::now();
    loop {
        let mut submissions = session.submissions.lock();
        if !submissions.is_empty() {
            return submissions.remove(0);
        }
        drop(submissions);
        assert!(clock::since(begun) < PATIENCE, "nothing is sent");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_latch_that_is_closed_while_it_is_granted_leaves_no_znode_behind() {
    const NODE: &str = "/leader/_c_0-latch-0000000000";
    let (client, session) = (client(), StubSession::new());
    client.core.set_session(session.clone());
    let latch = Arc::new(LeaderLatch::new(&client, "/leader").unwrap());
    latch.start().unwrap();
    let stat = Stat { czxid: 3, ephemeral_owner: 7, ..Stat::default() };
    let answer = |submission: Submission| {
        let reply: Reply = Ok(match &submission.request {
            Request::Create { .. } => Response::Created { path: NODE.into(), czxid: 3 },
            Request::GetChildren { .. } => {
                Response::Children { names: vec![NODE.rsplit('/').next().unwrap().into()], stat: None }
            }
            Request::Sync { path } => Response::Synced { path: path.clone() },
            _ => Response::Stat(stat),
        });
        (submission.on_reply)(reply);
    };
    // The last answer is that the znode stands: the session was in doubt.
    let last = loop {
        let submission = sent(&session);
        match submission.request {
            Request::Exists { .. } => break submission,
            _ => answer(submission),
        }
    };
    let (of_hook, closed) = (session.clone(), latch.clone());
    // In the midst of the step that grants the lock.
    *session.when_asked.lock() = Some(Box::new(move || {
        *of_hook.valid_until.lock() = Some(clock::now() + PATIENCE);
        thread::spawn(move || drop(closed.close()));
        // It waits for the step by then; if it does not, it gives the place in the queue back.
        thread::sleep(Duration::from_millis(200));
    }));
    answer(last);
    while !matches!(sent(&session).request, Request::Delete { path, .. } if path == NODE) {}
    client.close();
}
