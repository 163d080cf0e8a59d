//! A session whose knowledge and replies a test sets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    base::sync::Mutex,
    session::{
        api::{Reply, Session, Submission, Ticket},
        servers::connect_string::ConnectString,
    },
};

/// Connected, but not known to be valid until any time.
pub(crate) struct StubSession {
    pub(crate) connection: AtomicU64,
    pub(crate) valid_until: Mutex<Option<Instant>>,
    pub(crate) timeout: Mutex<Duration>,
    pub(crate) ended: AtomicBool,
    pub(crate) left_behind: Mutex<Option<Instant>>,
    /// Whether requests count as written.
    pub(crate) written: AtomicBool,
    pub(crate) submissions: Mutex<Vec<Submission>>,
    pub(crate) withdrawn: Mutex<Vec<Ticket>>,
    pub(crate) unwatched: Mutex<Vec<Ticket>>,
    /// Called once, by the next call that asks for the connection.
    pub(crate) when_asked: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Where it says to find itself.
    pub(crate) located: Mutex<Option<usize>>,
}

impl StubSession {
    pub(crate) fn new() -> Arc<StubSession> {
        Arc::new(StubSession {
            connection: AtomicU64::new(1),
            valid_until: Mutex::default(),
            timeout: Mutex::new(Duration::from_secs(20)),
            ended: AtomicBool::new(false),
            left_behind: Mutex::default(),
            written: AtomicBool::new(true),
            submissions: Mutex::default(),
            withdrawn: Mutex::default(),
            unwatched: Mutex::default(),
            when_asked: Mutex::default(),
            located: Mutex::default(),
        })
    }

    /// Answers the first of the requests.
    pub(crate) fn answer(&self, reply: Reply) {
        let submission = self.submissions.lock().remove(0);
        (submission.on_reply)(reply);
    }
}

impl Session for StubSession {
    fn submit(&self, batch: Vec<Submission>) -> Vec<Ticket> {
        let mut submissions = self.submissions.lock();
        let first = submissions.len() as u64;
        submissions.extend(batch);
        (first..submissions.len() as u64).map(Ticket).collect()
    }

    fn withdraw(&self, ticket: Ticket) -> bool {
        self.withdrawn.lock().push(ticket);
        !self.written.load(Ordering::Acquire)
    }

    fn unwatch(&self, ticket: Ticket) {
        self.unwatched.lock().push(ticket);
    }

    fn id(&self) -> i64 {
        7
    }

    fn password(&self) -> Vec<u8> {
        Vec::new()
    }

    fn timeout(&self) -> Duration {
        *self.timeout.lock()
    }

    fn connection(&self) -> u64 {
        let when_asked = self.when_asked.lock().take();
        if let Some(when_asked) = when_asked {
            when_asked();
        }
        self.connection.load(Ordering::Acquire)
    }

    fn valid_until(&self) -> Option<Instant> {
        *self.valid_until.lock()
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn left_behind(&self) -> Option<Instant> {
        *self.left_behind.lock()
    }

    fn update_hosts(&self, _hosts: &ConnectString) {}

    fn locate(&self, _lists: [Vec<(String, u16)>; 2], then: Box<dyn FnOnce(Option<usize>) + Send>) {
        let located = *self.located.lock();
        then(located);
    }

    fn is_finished(&self) -> bool {
        self.is_ended()
    }

    fn abandon(&self) {}

    fn close(&self, _deadline: Instant) {}
}
