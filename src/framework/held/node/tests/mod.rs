//! When holders are looked at and told, over a session that only says what the test wants.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod asking;
mod gone;
mod looks;
mod revoked;
mod told;

use std::time::Duration;

use super::*;
use crate::{
    base::{
        channel::{Receiver, Sender, unbounded},
        clock,
    },
    framework::{
        client::core::CuratorFramework,
        config::retry::RetryNTimes,
        events::event::{Event, event_channel},
        held::{WATCH_AFTER, changes::StateChanges, registry::HeldNodes},
    },
    proto::{
        response::Response,
        types::{ErrorCode, EventType, Stat},
    },
    session::{
        api::{Reply, SessionConfig, SessionError, SessionEvent, SessionFactory, SessionObserver, Ticket, WatchEvent},
        fake::stub::StubSession,
        wait::pending::Watch,
    },
};

/// Longer than anything here should take.
const LONG: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(1);

const IN_DOUBT: HoldState = HoldState::InDoubt;
const DELETED: HoldState = HoldState::Lost(LostReason::NodeDeleted);
const EXPIRED: HoldState = HoldState::Lost(LostReason::SessionExpired);

/// Valid until then.
fn said(valid_until: Instant) -> Arc<StubSession> {
    let said = StubSession::new();
    *said.valid_until.lock() = Some(valid_until);
    said
}

/// The znodes, and what the client's thread does with them.
struct Rig {
    held: Arc<HeldNodes>,
    received: Receiver<Event>,
    said: Arc<StubSession>,
    begun: Instant,
}

impl Rig {
    fn new(max_hold_time: Option<Duration>) -> Rig {
        let (events, received) = event_channel();
        let begun = clock::now();
        let said = said(begun + LONG);
        let dispatcher = Arc::new(Dispatcher::new());
        dispatcher.start().unwrap();
        Rig { held: Arc::new(HeldNodes::new(max_hold_time, events, dispatcher, Arc::default())), received, said, begun }
    }

    fn hold(&self) -> Arc<HeldNode> {
        self.held.add(ServerPath::from_server("/held"), self.said.clone(), 3, 1, None)
    }

    /// A hold with its watch in place, that nobody listens to.
    fn watched(&self) -> Arc<HeldNode> {
        let node = self.hold();
        self.look_at(node.since + WATCH_AFTER);
        self.answer(Ok(ours()));
        self.is_woken();
        node
    }

    fn look_at(&self, now: Instant) -> Option<Instant> {
        let next = self.held.look(now);
        assert_eq!(self.held.planned_look(), next, "what is claimed is what is planned");
        next
    }

    /// Somebody else's word that the znode is gone, over the first connection.
    fn deletes(&self, node: &HeldNode) {
        node.znode().watched(&WatchEvent::Node { event: EventType::NodeDeleted, connection: 1 });
    }

    /// Whether the client's thread was told to look.
    fn is_woken(&self) -> bool {
        self.received.try_iter().filter(|event| matches!(event, Event::Look)).count() > 0
    }

    fn requests(&self) -> usize {
        self.said.submissions.lock().len()
    }

    fn answer(&self, reply: Reply) {
        let submission = self.said.submissions.lock().remove(0);
        (submission.on_reply)(reply);
    }
}

fn ours() -> Response {
    Response::Data { data: Vec::new(), stat: Stat { czxid: 3, ephemeral_owner: 7, ..Stat::default() } }
}

/// A hold whose znode is gone, and what its holder has been told.
fn deleted(rig: &Rig) -> (Arc<HeldNode>, StateChanges) {
    let node = rig.watched();
    let states = node.channel();
    rig.look_at(rig.begun);
    rig.is_woken();
    rig.deletes(&node);
    assert!(rig.is_woken());
    assert_eq!((node.state(rig.begun), node.lost()), (IN_DOUBT, Some(LostReason::NodeDeleted)), "before any look");
    assert!(node.evidence().is_gone && node.valid_until() <= clock::now());
    (node, states)
}

fn synced() -> Reply {
    Ok(Response::Synced { path: "/held".into() })
}
