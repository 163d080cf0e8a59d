//! A session between the client and the native one, with faults that a test asks for.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use curator_locks::{
    ConnectString, Result,
    unversioned::{
        EventType, NativeSessionFactory, Request, Session, SessionConfig, SessionError, SessionFactory,
        SessionObserver, Submission, Ticket, WatchEvent, Watcher,
    },
};
use parking_lot::Mutex;

/// A connection that refuses to take the next create, panics over the next delete, or does not tell of new children, and
/// what it was given.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) refuses: AtomicBool,
    pub(crate) panics: AtomicBool,
    /// As a server that tells nobody what it may not read (CVE-2024-23944), to whom the directory was closed after it had
    /// set its watch.
    pub(crate) is_deaf: AtomicBool,
    /// The same for a znode that is deleted.
    pub(crate) is_deaf_to_deletes: AtomicBool,
    /// How many watches on a znode itself, and on the children of a directory, have been set.
    pub(crate) watched: AtomicUsize,
    pub(crate) listed: AtomicUsize,
    /// Whether requests for a watch on a znode itself stay on their way, and those that do.
    pub(crate) is_slow_to_watch: AtomicBool,
    pub(crate) under_way: Mutex<Vec<Submission>>,
    /// Watches and replies come in whatever order.
    pub(crate) is_in_disorder: AtomicBool,
    /// What went out.
    pub(crate) log: Mutex<Vec<String>>,
}

pub(crate) struct Wiring(pub(crate) Arc<Wire>);

impl SessionFactory for Wiring {
    fn open(&self, config: &SessionConfig, observer: SessionObserver) -> Result<Arc<dyn Session>> {
        let session = NativeSessionFactory.open(config, observer)?;
        Ok(Arc::new(Wired { session, wire: self.0.clone() }))
    }
}

struct Wired {
    session: Arc<dyn Session>,
    wire: Arc<Wire>,
}

impl Wired {
    fn deafened(&self, sent: Submission) -> Submission {
        let hears = sent.watcher.map(|watcher| {
            let wire = self.wire.clone();
            Arc::new(move |event: &WatchEvent| {
                let is_unheard = match event {
                    WatchEvent::Node { event: EventType::NodeChildrenChanged, .. } => &wire.is_deaf,
                    WatchEvent::Node { event: EventType::NodeDeleted, .. } => &wire.is_deaf_to_deletes,
                    _ => return watcher(event),
                };
                if !is_unheard.load(Ordering::SeqCst) {
                    watcher(event);
                }
            }) as Watcher
        });
        let is_of_znode = watches_znode(&sent.request);
        let is_of_children = matches!(sent.request, Request::GetChildren { watch: true, .. });
        let (wire, on_reply) = (self.wire.clone(), sent.on_reply);
        let on_reply = Box::new(move |reply| {
            on_reply(reply);
            wire.watched.fetch_add(usize::from(is_of_znode), Ordering::SeqCst);
            wire.listed.fetch_add(usize::from(is_of_children), Ordering::SeqCst);
        });
        Submission { watcher: hears, on_reply, ..sent }
    }
}

fn watches_znode(request: &Request) -> bool {
    matches!(request, Request::Exists { watch: true, .. } | Request::GetData { watch: true, .. })
}

impl Session for Wired {
    fn submit(&self, batch: Vec<Submission>) -> Vec<Ticket> {
        if batch.iter().all(|sent| watches_znode(&sent.request)) && self.wire.is_slow_to_watch.load(Ordering::SeqCst) {
            let count = batch.len() as u64;
            self.wire.under_way.lock().extend(batch);
            return (0..count).map(|k| Ticket(u64::MAX - k)).collect();
        }
        let creates = batch.iter().any(|sent| matches!(sent.request, Request::Create { .. }));
        if creates && self.wire.refuses.swap(false, Ordering::SeqCst) {
            self.wire.log.lock().push("refused".to_owned());
            let count = batch.len() as u64;
            batch.into_iter().for_each(|sent| (sent.on_reply)(Err(SessionError::ConnectionLoss(None))));
            return (0..count).map(|k| Ticket(u64::MAX - k)).collect();
        }
        for Submission { request, .. } in &batch {
            match request {
                Request::Create { .. } => self.wire.log.lock().push("create".to_owned()),
                Request::Delete { .. } => self.wire.log.lock().push("delete".to_owned()),
                _ => {}
            }
        }
        let deletes = batch.iter().any(|sent| matches!(sent.request, Request::Delete { .. }));
        let tickets = self.session.submit(batch.into_iter().map(|sent| self.deafened(sent)).collect());
        assert!(!(deletes && self.wire.panics.swap(false, Ordering::SeqCst)), "this session panics");
        tickets
    }

    fn withdraw(&self, ticket: Ticket) -> bool {
        self.session.withdraw(ticket)
    }

    fn unwatch(&self, ticket: Ticket) {
        self.session.unwatch(ticket);
    }

    fn tells_in_order(&self) -> bool {
        self.session.tells_in_order() && !self.wire.is_in_disorder.load(Ordering::SeqCst)
    }

    fn id(&self) -> i64 {
        self.session.id()
    }

    fn password(&self) -> Vec<u8> {
        self.session.password()
    }

    fn timeout(&self) -> Duration {
        self.session.timeout()
    }

    fn connection(&self) -> u64 {
        self.session.connection()
    }

    fn valid_until(&self) -> Option<Instant> {
        self.session.valid_until()
    }

    fn last_error(&self) -> Option<Arc<io::Error>> {
        self.session.last_error()
    }

    fn is_ended(&self) -> bool {
        self.session.is_ended()
    }

    fn update_hosts(&self, hosts: &ConnectString) {
        self.session.update_hosts(hosts);
    }

    fn is_finished(&self) -> bool {
        self.session.is_finished()
    }

    fn abandon(&self) {
        self.session.abandon();
    }

    fn close(&self, deadline: Instant) {
        self.session.close(deadline);
    }
}
