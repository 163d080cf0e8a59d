//! A bare session, for requests sent back to back.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use curator_locks::{
    testing::TestingServer,
    unversioned::{
        NativeSessionFactory, Request, Response, Session, SessionConfig, SessionError, SessionFactory, Submission,
        Ticket, WatchEvent, Watcher,
    },
};

use super::PATIENCE;

pub struct RawSession(pub Arc<dyn Session>);

impl RawSession {
    pub fn open(server: &TestingServer) -> RawSession {
        let config = SessionConfig {
            hosts: server.connect_string().parse().unwrap(),
            known: Arc::default(),
            dialect: Some(curator_locks::Dialect::ZooKeeper),
            successor: Arc::default(),
            session_timeout: Duration::from_secs(20),
            connection_timeout: Duration::from_secs(10),
            authorizations: Vec::new(),
            quorum_heartbeats: false,
            max_frame_size: 4 * 1024 * 1024,
            max_request_size: 4 * 1024 * 1024,
            counters: Default::default(),
        };
        RawSession(NativeSessionFactory.open(&config, Arc::new(|_| {})).unwrap())
    }

    /// Sends all requests in one write, and gives the replies.
    pub fn ask(&self, requests: impl IntoIterator<Item = Request>) -> Vec<Result<Response, SessionError>> {
        let mut replies = Vec::new();
        let batch = requests.into_iter().map(|request| {
            let (sender, reply) = mpsc::channel();
            replies.push(reply);
            Submission { request, watcher: None, on_reply: Box::new(move |reply| drop(sender.send(reply))) }
        });
        self.0.submit(batch.collect());
        replies.into_iter().map(|reply| reply.recv_timeout(PATIENCE).unwrap()).collect()
    }

    pub fn delete(&self, paths: &[&str]) {
        let replies = self.ask(paths.iter().map(|path| Request::Delete { path: (*path).to_owned(), version: -1 }));
        for (path, reply) in paths.iter().zip(replies) {
            assert!(reply.is_ok(), "{path}: {reply:?}");
        }
    }

    /// Watches a znode's data. Gives the ticket, and where the reply and the events go.
    pub fn watch(
        &self,
        path: &str,
    ) -> (Ticket, mpsc::Receiver<Result<Response, SessionError>>, mpsc::Receiver<WatchEvent>) {
        let (reply_to, reply) = mpsc::channel();
        let (event_to, events) = mpsc::channel();
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| drop(event_to.send(event.clone())));
        let request = Request::GetData { path: path.to_owned(), watch: true };
        let on_reply = Box::new(move |reply| drop(reply_to.send(reply)));
        let tickets = self.0.submit(vec![Submission { request, watcher: Some(watcher), on_reply }]);
        (tickets[0], reply, events)
    }
}
