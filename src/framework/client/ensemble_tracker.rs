//! Follows the servers' list of themselves, which changes with the ensemble. Java: `EnsembleTracker`.

use std::sync::Arc;

use crate::{
    base::log,
    framework::events::event::{Event, EventSender, ServersEvent},
    proto::{request::Request, response::Response, types::ErrorCode},
    session::{
        api::{Session, SessionError, Submission, WatchEvent},
        servers::dynamic_config::{CONFIG, Hosts, client_addresses},
    },
};

/// After so many looks for servers in vain, a second apart, the connect string is tried besides the list: of a list of addresses
/// nothing may be left where all servers have moved meanwhile, and names lead on.
const LOOKS: u32 = 2;

/// The servers to use from now on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) hosts: Hosts,
    /// The server that the client is connected to is none of them any more.
    pub(super) was_removed: bool,
}

pub(super) struct EnsembleTracker {
    /// Off also once the client may not read the list.
    is_on: bool,
    events: EventSender,
    /// The number of the session that watches the list.
    watched_in: u64,
    /// The servers' addresses for clients, plain and for TLS, as they were told last.
    lists: [Hosts; 2],
    /// The list that the client goes by, which has named a server that it was connected to. Of others nobody knows whether they
    /// lead to a server: there may be a load balancer, or a translation of addresses, in between.
    follows: Option<usize>,
    /// The list that it went by before the connect string was tried besides.
    strayed_from: Option<usize>,
    /// The lists for which it has left a server that the connect string had led to.
    came_back_to: Option<[Hosts; 2]>,
    /// Looks for servers in vain since the last connection.
    looks: u32,
}

impl EnsembleTracker {
    pub(super) fn new(is_on: bool, events: EventSender) -> EnsembleTracker {
        EnsembleTracker {
            is_on,
            events,
            watched_in: 0,
            lists: Default::default(),
            follows: None,
            strayed_from: None,
            came_back_to: None,
            looks: 0,
        }
    }

    /// There is a connection. The list is read once in each session, and watched; the session keeps the watch.
    pub(super) fn connected(&mut self, session: &Arc<dyn Session>, generation: u64) {
        self.looks = 0;
        if !self.is_on {
            return;
        }
        if self.watched_in != generation {
            self.watched_in = generation;
            self.read(session, generation);
        } else {
            // The connection may be one to a server that was removed meanwhile.
            self.locate(session, generation);
        }
    }

    /// Takes news in, and says where to go.
    pub(super) fn take(&mut self, session: &Arc<dyn Session>, generation: u64, event: ServersEvent) -> Option<Move> {
        match event {
            ServersEvent::Changed => self.read(session, generation),
            ServersEvent::Told(Ok(Response::Data { data, .. })) => {
                self.lists = client_addresses(&data);
                self.locate(session, generation);
            }
            ServersEvent::Told(Err(SessionError::Server(ErrorCode::NoAuth))) => {
                self.is_on = false;
                log::warn!("the client may not read {CONFIG}, so it does not hear of servers that come and go");
            }
            // The next connection asks again.
            ServersEvent::Told(Err(SessionError::ConnectionLoss(_))) => self.watched_in = 0,
            ServersEvent::Located(lists, at) if lists == self.lists => return self.located(at),
            // No such znode, or news that are out of date.
            ServersEvent::Told(_) | ServersEvent::Located(..) => {}
        }
        None
    }

    /// A look for servers was in vain. Whether to try the connect string besides the list.
    pub(super) fn leads_nowhere(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        // Where the next connection goes decides whether to follow the list again.
        let strays = self.looks >= LOOKS && self.follows.is_some();
        if strays {
            self.strayed_from = self.follows.take();
        }
        strays
    }

    /// The connect string has changed, and is newer than the list.
    pub(super) fn forget(&mut self) {
        (self.follows, self.strayed_from) = (None, None);
    }

    fn read(&self, session: &Arc<dyn Session>, generation: u64) {
        let (changed, told) = (self.events.clone(), self.events.clone());
        let watcher = Arc::new(move |event: &WatchEvent| {
            if let WatchEvent::Node { .. } = event {
                changed.send(Event::Servers(generation, ServersEvent::Changed));
            }
        });
        let on_reply = Box::new(move |reply| told.send(Event::Servers(generation, ServersEvent::Told(reply))));
        let request = Request::GetData { path: CONFIG.to_owned(), watch: true };
        session.submit(vec![Submission { request, watcher: Some(watcher), on_reply }]);
    }

    fn locate(&self, session: &Arc<dyn Session>, generation: u64) {
        if self.lists.iter().all(Vec::is_empty) {
            return;
        }
        let (events, lists) = (self.events.clone(), self.lists.clone());
        let then = move |at| events.send(Event::Servers(generation, ServersEvent::Located(lists, at)));
        session.locate(self.lists.clone(), Box::new(then));
    }

    fn located(&mut self, at: Option<usize>) -> Option<Move> {
        // While the servers had no leader the connect string may have led to one that was removed. Once for each list: one that
        // leads nowhere again is none.
        let strayed_from = self.strayed_from.take().filter(|_| self.came_back_to.as_ref() != Some(&self.lists));
        let (followed, was_removed) = (at.or(self.follows).or(strayed_from), at.is_none());
        if at.is_none() && self.follows.is_none() && strayed_from.is_some() {
            self.came_back_to = Some(self.lists.clone());
        }
        let Some(hosts) = followed.and_then(|index| self.lists.get(index)).filter(|hosts| !hosts.is_empty()) else {
            log::debug!("the servers know themselves by other addresses than this client: {:?}", self.lists);
            return None;
        };
        if was_removed {
            log::info!("the server of this client was removed from the ensemble");
        }
        self.follows = followed;
        Some(Move { hosts: hosts.clone(), was_removed })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::{
        base::channel::Receiver,
        framework::events::event::event_channel,
        proto::types::{EventType, Stat},
        session::fake::stub::StubSession,
    };

    struct Followed {
        tracker: EnsembleTracker,
        events: Receiver<Event>,
        stub: Arc<StubSession>,
        session: Arc<dyn Session>,
    }

    impl Followed {
        fn new() -> Followed {
            let (events, received) = event_channel();
            let stub = StubSession::new();
            Followed { tracker: EnsembleTracker::new(true, events), events: received, session: stub.clone(), stub }
        }

        fn connected(&mut self, generation: u64) {
            self.tracker.connected(&self.session, generation);
        }

        fn asked(&self) -> usize {
            self.stub.submissions.lock().len()
        }

        /// Hands on all that has come; where it leads to.
        fn settle(&mut self, generation: u64) -> Vec<Move> {
            let mut moves = Vec::new();
            while let Ok(Event::Servers(of, event)) = self.events.try_recv() {
                assert_eq!(of, generation);
                moves.extend(self.tracker.take(&self.session, generation, event));
            }
            moves
        }

        fn told(&mut self, servers: &[&str], at: Option<usize>) -> Vec<Move> {
            self.stub.located.lock().clone_from(&at);
            let lines = servers.iter().enumerate().map(|(id, name)| format!("server.{id}={name}:1:2;2181\n"));
            let data = lines.collect::<String>().into_bytes();
            self.stub.answer(Ok(Response::Data { data, stat: Stat::default() }));
            self.settle(1)
        }

        fn changed(&mut self, watcher: &crate::session::api::Watcher) {
            watcher(&WatchEvent::Node { event: EventType::NodeDataChanged, connection: 1 });
            assert!(self.settle(1).is_empty());
        }

        fn watcher(&self) -> crate::session::api::Watcher {
            self.stub.submissions.lock().last().and_then(|submission| submission.watcher.clone()).unwrap()
        }
    }

    fn to(servers: &[&str], was_removed: bool) -> Vec<Move> {
        vec![Move { hosts: servers.iter().map(|name| ((*name).to_owned(), 2181)).collect(), was_removed }]
    }

    #[test]
    fn the_list_is_read_once_a_session_and_again_when_it_has_changed() {
        let mut followed = Followed::new();
        followed.connected(1);
        let watcher = followed.watcher();
        assert_eq!(followed.told(&["a", "b"], Some(0)), to(&["a", "b"], false));
        followed.connected(1);
        assert_eq!(followed.asked(), 0, "a reconnect asks for nothing");
        assert_eq!(followed.settle(1), to(&["a", "b"], false));
        for event in [WatchEvent::Disconnected, WatchEvent::Reconnected { connection: 2 }, WatchEvent::Ended] {
            watcher(&event);
        }
        assert!(followed.settle(1).is_empty() && followed.asked() == 0);
        followed.changed(&watcher);
        assert_eq!(followed.told(&["b", "c"], Some(0)), to(&["b", "c"], false));
        followed.connected(2);
        assert_eq!(followed.asked(), 1);
    }

    #[test]
    fn who_was_connected_to_a_server_that_goes_leaves_it() {
        let mut followed = Followed::new();
        followed.connected(1);
        let watcher = followed.watcher();
        assert_eq!(followed.told(&["a", "b"], Some(0)), to(&["a", "b"], false));
        followed.changed(&watcher);
        assert_eq!(followed.told(&["b", "c"], None), to(&["b", "c"], true));
    }

    #[test]
    fn a_list_that_does_not_name_the_server_is_not_followed_before_it_does() {
        let mut followed = Followed::new();
        followed.connected(1);
        assert!(followed.told(&["a", "b"], None).is_empty());
        *followed.stub.located.lock() = Some(0);
        followed.connected(1);
        assert_eq!(followed.settle(1), to(&["a", "b"], false));
    }

    #[test]
    fn a_list_without_a_server_or_an_address_changes_nothing() {
        let mut followed = Followed::new();
        followed.connected(1);
        let watcher = followed.watcher();
        assert_eq!(followed.told(&["a"], Some(0)), to(&["a"], false));
        followed.changed(&watcher);
        assert!(followed.told(&[], Some(0)).is_empty());
    }

    #[test]
    fn no_right_to_read_ends_it_and_a_lost_reply_does_not() {
        let mut followed = Followed::new();
        followed.connected(1);
        followed.stub.answer(Err(SessionError::ConnectionLoss(None)));
        assert!(followed.settle(1).is_empty());
        followed.connected(1);
        assert_eq!(followed.asked(), 1);
        followed.stub.answer(Err(SessionError::Server(ErrorCode::NoAuth)));
        assert!(followed.settle(1).is_empty());
        followed.connected(2);
        assert_eq!(followed.asked(), 0);
    }

    #[test]
    fn a_server_without_the_list_is_asked_once_a_session() {
        let mut followed = Followed::new();
        followed.connected(1);
        followed.stub.answer(Err(SessionError::Server(ErrorCode::NoNode)));
        assert!(followed.settle(1).is_empty());
        followed.connected(1);
        assert_eq!(followed.asked(), 0);
    }

    #[test]
    fn a_removed_server_that_the_connect_string_led_to_is_left_once_for_each_list() {
        let mut followed = Followed::new();
        followed.connected(1);
        assert_eq!(followed.told(&["a"], Some(0)), to(&["a"], false));
        *followed.stub.located.lock() = None;
        for leaves in [true, false, false] {
            let tries_others = (0..3).filter(|_| followed.tracker.leads_nowhere()).count();
            assert_eq!(tries_others, usize::from(followed.tracker.strayed_from.is_some()));
            followed.connected(1);
            assert_eq!(followed.settle(1), if leaves { to(&["a"], true) } else { Vec::new() });
        }
    }

    #[test]
    fn a_list_that_leads_nowhere_is_given_up_and_found_again() {
        let mut followed = Followed::new();
        followed.connected(1);
        assert_eq!(followed.told(&["a"], Some(0)), to(&["a"], false));
        assert!(!followed.tracker.leads_nowhere());
        assert!(followed.tracker.leads_nowhere());
        assert!(!followed.tracker.leads_nowhere(), "once");
        followed.connected(1);
        assert_eq!(followed.settle(1), to(&["a"], false));
    }
}
