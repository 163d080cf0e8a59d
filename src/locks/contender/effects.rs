//! What a contender has brought about: its shell keeps it, and clears away what is of no use any more.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    machine::Contender,
    spec::{Ask, Do, Environment, Input, Leftover, Spec, View, WatchId},
};
use crate::{
    CuratorFramework, Error,
    framework::{HeldNode, RevocableNode, Znode},
    locks::LockInternals,
    paths::ServerPath,
    proto::Request,
    session::{Session, Watch},
};

/// A contender with its watches and its holds.
pub(super) struct Effects {
    pub(super) contender: Contender<Error>,
    /// The session that was connected last.
    pub(super) session: Option<Arc<dyn Session>>,
    /// The one in which znodes were made.
    owner: Option<Arc<dyn Session>>,
    watches: Vec<(WatchId, Watch)>,
    held: Vec<Arc<HeldNode>>,
}

/// What is to be cleared away, under no lock.
#[must_use = "znodes and watches stay otherwise"]
pub(super) struct Debris {
    watches: Vec<(WatchId, Watch)>,
    pub(super) held: Vec<Arc<HeldNode>>,
    leftovers: Vec<Leftover>,
    owner: Option<Arc<dyn Session>>,
}

impl Effects {
    pub(super) fn new() -> Effects {
        Effects { contender: Contender::default(), session: None, owner: None, watches: Vec::new(), held: Vec::new() }
    }

    pub(super) fn step(
        &mut self,
        spec: &Spec,
        env: &dyn Environment<Error>,
        is_time_up: bool,
        input: Input<Error>,
    ) -> (Do<Error>, Debris) {
        let view = view_of(self.session.as_ref(), is_time_up);
        let next = self.contender.step(spec, env, &view, input);
        let contender = &mut self.contender;
        let leftovers = contender.take_discarded();
        let watches = self.watches.extract_if(.., |(watch, _)| !contender.wants(*watch)).collect();
        let held = if contender.is_held() { Vec::new() } else { std::mem::take(&mut self.held) };
        (next, Debris { watches, held, leftovers, owner: self.owner.clone() })
    }

    /// Requests are about to be sent: in this session.
    pub(super) fn sends(&mut self, ask: &Ask) -> Option<Arc<dyn Session>> {
        if ask.requests.iter().any(|(request, _)| matches!(request, Request::Create { .. })) {
            self.owner.clone_from(&self.session);
        }
        self.session.clone()
    }

    pub(super) fn keep(&mut self, id: WatchId, watch: Watch) {
        self.watches.push((id, watch));
    }

    /// The own znodes become holds, the watch on them the holder's. The last one of them is handed out if it is watched.
    pub(super) fn hold(
        &mut self,
        lock: &LockInternals,
        spec: &Spec,
        writer: Option<&HeldNode>,
        revocable: Option<&Arc<RevocableNode>>,
    ) -> Option<Arc<HeldNode>> {
        let session = self.session.as_ref()?;
        let own = self.watches.iter().position(|(id, _)| matches!(id, WatchId::Own(_)));
        let mut watch = own.map(|index| self.watches.swap_remove(index).1);
        let is_watched = watch.is_some();
        for node in self.contender.nodes() {
            // The token of a writer that goes on as a reader stays: the reader's znode may be younger than those that
            // wait behind it, and tokens must not shrink from one grant to the next.
            let token = writer.map_or(node.czxid, HeldNode::token);
            let outlives_session = !spec.mode.is_ephemeral();
            let (path, has_waited) = (lock.child(&node.name), self.contender.has_waited());
            let znode = Znode { path, czxid: node.czxid, token, has_waited, outlives_session };
            let over = self.contender.seen_over();
            let registry = &lock.client().core.held;
            self.held.push(registry.add_znode(znode, session.clone(), over, watch.take(), revocable.cloned()));
        }
        self.held.last().filter(|_| is_watched).cloned()
    }

    /// A moment is over. The watch on the own znode reports to the hold by now.
    pub(super) fn dozed(&self) -> Input<Error> {
        let is_lost = self.held.iter().any(|held| held.lost().is_some());
        if is_lost { Input::Held { is_deleted: true } } else { Input::Woken }
    }

    /// Whether an event is that of the own znode, and of no earlier one.
    pub(super) fn is_of_own(&self, id: WatchId) -> bool {
        self.contender.own_watch() == Some(id)
    }

    pub(super) fn held(&self) -> &[Arc<HeldNode>] {
        &self.held
    }

    /// The lock is granted.
    pub(super) fn take_held(&mut self) -> Vec<Arc<HeldNode>> {
        // The last look may have gone over another connection than the first.
        self.held.iter().for_each(|held| held.seen_again(self.contender.seen_over()));
        std::mem::take(&mut self.held)
    }

    /// What may be left of requests that are about to be sent, if nobody wants their answers any more by then.
    pub(super) fn debris_of_requests(&self) -> Debris {
        let (watches, held) = (Vec::new(), Vec::new());
        Debris { watches, held, leftovers: self.contender.leftovers(), owner: self.owner.clone() }
    }

    /// All that is left.
    pub(super) fn take_debris(&mut self) -> Debris {
        let (watches, held) = (std::mem::take(&mut self.watches), std::mem::take(&mut self.held));
        Debris { watches, held, leftovers: self.contender.leftovers(), owner: self.owner.clone() }
    }
}

impl Debris {
    pub(super) fn clear_away(self, lock: &LockInternals, spec: &Spec) {
        // First the watches: after the deletes the server may be asked for nothing more.
        drop(self.watches);
        for held in self.held {
            lock.client().core.held.remove(&held);
        }
        for (leftover, owner) in self.leftovers.into_iter().zip(self.owner.iter().cycle()) {
            lock.clean_up(spec, owner, leftover);
        }
    }
}

/// What a contender sees of its session. The clock comes last: what it is compared with can only be older.
fn view_of(session: Option<&Arc<dyn Session>>, is_time_up: bool) -> View {
    let (session, connection, valid_until, timeout, is_ended) = match session {
        None => (0, 0, None, Duration::ZERO, false),
        Some(session) => {
            (session.id(), session.connection(), session.valid_until(), session.timeout(), session.is_ended())
        }
    };
    View { is_time_up, session, connection, valid_until, timeout, is_ended, now: Instant::now() }
}

/// Adds what the caller's provider says of a new znode.
pub(in crate::locks) fn with_acl(client: &CuratorFramework, mut request: Request) -> Request {
    if let Request::Create { path, acl, .. } = &mut request {
        *acl = client.leaf_acl(&ServerPath::from_server(path.as_str()));
    }
    request
}

/// How long to doze until the session may be certain again.
pub(super) fn moment(client: &CuratorFramework) -> Duration {
    (client.session_timeout() / 50).max(Duration::from_millis(5))
}
