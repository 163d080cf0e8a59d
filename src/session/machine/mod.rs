//! The session as a plain state machine: (state, input, now) -> (state, actions). No thread, no socket, no clock.

pub(crate) mod actions;
pub(crate) mod liveness;
pub(crate) mod watches;

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use actions::Action;
use liveness::{Liveness, Origin, longest_round_trip};
use watches::Watches;

use super::{
    api::{NOT_ACCEPTED, OnReply, SessionConfig, SessionError, SessionEvent, WatchEvent, Watcher},
    dialect::{API_VERSION, Abilities, Dialect, FEATURE_FLAGS, questionable},
};
use crate::{
    error::Meaning,
    proto::{
        connect::{ConnectRequest, ConnectResponse},
        error::ProtoError,
        header::{XID_AUTH, XID_NOTIFICATION, XID_PING, XID_SET_WATCHES, decode_header, set_xid},
        op,
        request::Request,
        response::Response,
        types::{ErrorCode, Notification},
    },
};

/// The largest `setWatches` frame, well below the server's own frame limit of 1 MiB, if the client's limit is no lower.
const SET_WATCHES_CHUNK: usize = 128 * 1024;

/// The size of a `setWatches` frame without its paths: length, header, zxid, three counts.
const SET_WATCHES_FRAME: usize = 4 + 8 + 8 + 3 * 4;

/// Callers' requests are taken for writing in pieces of about this size. If the connection breaks meanwhile, the
/// requests behind them were never written, and wait for the next one.
const OUTPUT_CHUNK: usize = 64 * 1024;

/// The length in front of a frame, which no frame limit counts.
const PREFIX: usize = 4;

/// The reason of a server that takes no request without SASL.
const NOT_ASKED_FOR: &str = "the servers demand it, and this client has no credentials for it: see Builder::sasl()";

/// The handshake has 31 bits for the session timeout, in milliseconds.
const LONGEST_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// Whether there is a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Down,
    Up {
        read_only: bool,
    },
    /// There is a connection, but it takes nothing any more, and its end is about to be noticed.
    Failing,
}

/// Whether the session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The session is in use.
    Alive,
    /// The session is only taken up to be closed, at the longest until then, and not while a holder may rely on it.
    Leaving { until: Instant },
    /// The session is over.
    Ended,
}

struct Submitted<C> {
    ticket: u64,
    /// Empty once it is written.
    frame: Vec<u8>,
    op: i32,
    /// The operation that not every server knows, if it asks for one.
    questionable: Option<i32>,
    purpose: Purpose<C>,
}

enum Purpose<C> {
    /// A caller waits for the reply.
    Caller { completion: C, watch: Option<u64> },
    /// A heartbeat, and when it was sent.
    Heartbeat(Instant),
    /// No caller waits for the reply.
    Housekeeping,
    /// Its answer tells what kind of server this is.
    Probe(&'static str),
    /// The last request of the session.
    Close,
}

/// One session. `C` receives a reply, `W` the events of a watch.
pub(crate) struct Machine<C = OnReply, W = Watcher> {
    config: SessionConfig,
    link: Link,
    fate: Fate,
    /// The error of every request once the session is not alive.
    end: SessionError,
    session_id: i64,
    password: Vec<u8>,
    /// A server that can write has taken the session up. One that cannot gives sessions of its own, unknown to others.
    is_known: bool,
    timeout: Duration,
    /// The timeout that the session was made with. A leader that takes over goes by it, whatever a server grants when the
    /// session is resumed.
    made_with: Duration,
    last_zxid: i64,
    connections: u64,
    next_xid: i32,
    next_ticket: u64,
    /// Goes out before anything else on a new connection: credentials and watches.
    preamble: Vec<u8>,
    /// Schemes whose acceptance the server has not confirmed on this connection.
    unconfirmed_auths: VecDeque<String>,
    /// How many `setWatches` the server has not answered on this connection.
    unconfirmed_watches: usize,
    unsent: VecDeque<Submitted<C>>,
    /// The requests on the wire, each with its xid.
    in_flight: VecDeque<(i32, Submitted<C>)>,
    watches: Watches<W>,
    liveness: Liveness,
    /// What the servers know; `None`: they have not told yet.
    abilities: Option<Abilities>,
    /// Whether a server has refused an operation that it does not know, which ends a connection.
    has_learnt: bool,
    /// After the end: until when a holder may take its lock for held, if the servers keep the session's znodes.
    left_behind: Option<Instant>,
    /// After the end: until when a holder may rely on the session, so that it must not be closed.
    relied_on_until: Option<Instant>,
}

/// Returns the abilities of servers of this kind, without those that some of them have refused before.
fn abilities_of(dialect: Dialect, config: &SessionConfig) -> Abilities {
    let mut abilities = Abilities::from(dialect);
    abilities.reads_together &= !config.known.refuse_reads_together.load(Ordering::Relaxed);
    abilities
}

impl<C, W: Clone> Machine<C, W> {
    pub(crate) fn new(mut config: SessionConfig, now: Instant) -> Self {
        // A frame's length has 31 bits.
        config.max_frame_size = config.max_frame_size.min(i32::MAX as usize);
        let timeout = config.session_timeout.min(LONGEST_TIMEOUT);
        Machine {
            abilities: config.dialect.map(|dialect| abilities_of(dialect, &config)),
            has_learnt: false,
            left_behind: None,
            relied_on_until: None,
            config,
            link: Link::Down,
            fate: Fate::Alive,
            end: SessionError::Expired,
            session_id: 0,
            password: vec![0; 16],
            is_known: false,
            timeout,
            made_with: timeout,
            last_zxid: 0,
            connections: 0,
            next_xid: 1,
            next_ticket: 1,
            preamble: Vec::new(),
            unconfirmed_auths: VecDeque::new(),
            unconfirmed_watches: 0,
            unsent: VecDeque::new(),
            in_flight: VecDeque::new(),
            watches: Watches::new(),
            liveness: Liveness::new(timeout, now),
        }
    }

    pub(crate) fn session_id(&self) -> i64 {
        self.session_id
    }

    pub(crate) fn password(&self) -> &[u8] {
        &self.password
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The number of the live connection, 0 while there is none.
    pub(crate) fn connection(&self) -> u64 {
        if self.link == Link::Down { 0 } else { self.connections }
    }

    /// The number that the next connection will have.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections + 1
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.fate == Fate::Alive
    }

    /// Whether nothing is left to do: the threads that serve the session may end.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        match self.fate {
            Fate::Alive => false,
            Fate::Leaving { until } => now >= until,
            Fate::Ended => true,
        }
    }

    /// How many watches there are, at the server or on their way.
    pub(crate) fn watches(&self) -> usize {
        self.watches.len()
    }

    pub(crate) fn valid_until(&self) -> Option<Instant> {
        if self.is_alive() { self.liveness.valid_until() } else { None }
    }

    /// Whether a server has refused what it does not know since the last call.
    pub(crate) fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.has_learnt)
    }

    pub(crate) fn abilities(&self) -> Option<Abilities> {
        self.abilities
    }

    /// Until when a holder may take its lock for held, although the session has ended: the servers keep its znodes.
    pub(crate) fn left_behind(&self) -> Option<Instant> {
        self.left_behind
    }

    /// Takes a request in. The encoded frame is handed in so that encoding happens outside the lock.
    pub(crate) fn submit(
        &mut self,
        request: &Request,
        frame: Vec<u8>,
        completion: C,
        watcher: Option<W>,
        actions: &mut Vec<Action<C, W>>,
    ) -> u64 {
        let ticket = self.take_ticket();
        if let Err(error) = self.check(request, frame.len(), watcher.is_some()) {
            actions.push(Action::Complete(completion, Err(error)));
            actions.extend(watcher.map(Action::DropWatcher));
            return ticket;
        }
        let watch = request.watch_table().zip(watcher).map(|(table, watcher)| {
            self.watches.request(ticket, table, request.path(), watcher);
            ticket
        });
        self.config.counters.requested(request);
        let purpose = Purpose::Caller { completion, watch };
        let questionable = questionable(request);
        self.unsent.push_back(Submitted { ticket, frame, op: request.op_code(), questionable, purpose });
        ticket
    }

    /// Whether the request may go out.
    fn check(&self, request: &Request, frame: usize, has_watcher: bool) -> Result<(), SessionError> {
        if !self.is_alive() {
            return Err(self.end.clone());
        }
        let limit = self.request_limit();
        // A watch has to fit into a frame of `setWatches`, too: with one that does not, no other connection would last.
        let set_again = if has_watcher { SET_WATCHES_FRAME + PREFIX + request.path().len() } else { 0 };
        let size = frame.max(set_again).saturating_sub(PREFIX);
        if size > limit {
            return Err(SessionError::FrameTooLarge { size, limit });
        }
        // A watch without a watcher would stay at the server for ever.
        if is_out_of_place(request) || request.watch_table().is_some() != has_watcher {
            return Err(SessionError::Server(ErrorCode::BadArguments));
        }
        match questionable(request) {
            Some(operation) if !self.may_know(operation) => Err(SessionError::Server(ErrorCode::Unimplemented)),
            _ => Ok(()),
        }
    }

    /// Whether the server knows the operation, or has yet to tell. One that does not would end the connection.
    fn may_know(&self, operation: i32) -> bool {
        self.abilities.is_none_or(|abilities| abilities.knows(operation))
    }

    /// The largest request that may go out, without its length.
    fn request_limit(&self) -> usize {
        self.config.max_frame_size.min(self.config.max_request_size)
    }

    /// Takes a request back that was not written yet.
    pub(crate) fn withdraw(&mut self, ticket: u64, actions: &mut Vec<Action<C, W>>) -> bool {
        // Tickets are given in the order of the queue.
        let Ok(index) = self.unsent.binary_search_by_key(&ticket, |unsent| unsent.ticket) else { return false };
        if let Some(Submitted { purpose: Purpose::Caller { completion, .. }, .. }) = self.unsent.remove(index) {
            actions.push(Action::DropCompletion(completion));
        }
        let forgotten = self.watches.forget(ticket);
        self.forgotten(forgotten, actions);
        true
    }

    pub(crate) fn unwatch(&mut self, ticket: u64, actions: &mut Vec<Action<C, W>>) {
        let forgotten = self.watches.give_up(ticket);
        self.forgotten(forgotten, actions);
    }

    fn forgotten(&mut self, forgotten: Option<(W, Option<Request>)>, actions: &mut Vec<Action<C, W>>) {
        let Some((watcher, removal)) = forgotten else { return };
        actions.push(Action::DropWatcher(watcher));
        // Without a connection there is no server that holds the watch.
        let (Some(removal), Link::Up { .. }, true) = (removal, self.link, self.is_alive()) else { return };
        // Otherwise the watch lapses: it goes with its znode, or with the connection. What comes of it until then finds no
        // watcher.
        if self.may_know(removal.op_code()) {
            self.queue_own(&removal, Purpose::Housekeeping);
        }
    }

    fn queue_own(&mut self, request: &Request, purpose: Purpose<C>) {
        let ticket = self.take_ticket();
        let own = self.own(ticket, request, purpose);
        self.unsent.push_back(own);
    }

    fn own(&self, ticket: u64, request: &Request, purpose: Purpose<C>) -> Submitted<C> {
        self.config.counters.requested(request);
        Submitted { ticket, frame: request.encode(0), op: request.op_code(), questionable: None, purpose }
    }

    /// Asks what the servers know, before all that waits for the connection. So every reply to a caller comes after the
    /// answer, and only a request that is sent before any reply may have to wait for it ([`Machine::is_held_back`]).
    fn probe(&mut self, path: &'static str) {
        self.queue_before(&Request::GetData { path: path.to_owned(), watch: false }, Purpose::Probe(path));
    }

    /// Puts a request of the session before all that waits for the connection.
    fn queue_before(&mut self, request: &Request, purpose: Purpose<C>) {
        // No ticket: those of the queue are in order.
        let own = self.own(0, request, purpose);
        let before = self.unsent.iter().take_while(|unsent| unsent.ticket == 0).count();
        self.unsent.insert(before, own);
    }

    /// Whether a request waits until the server has told whether it knows what it is asked for.
    fn is_held_back(&self, request: &Submitted<C>) -> bool {
        request.questionable.is_some() && self.abilities.is_none()
    }

    fn take_ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    /// Puts a request in front of all others on this connection, under one of the numbers that replies to such have.
    fn queue_first(&mut self, request: &Request, xid: i32) {
        self.config.counters.requested(request);
        self.preamble.extend(request.encode(xid));
    }

    /// Whether there is something to write to the connection.
    pub(crate) fn has_output(&self) -> bool {
        let is_next = || self.unsent.front().is_some_and(|next| !self.is_held_back(next));
        matches!(self.link, Link::Up { .. }) && (!self.preamble.is_empty() || is_next())
    }

    /// Moves the next bytes into `out`, in order: the preamble, then requests up to a limit. From here on they count as
    /// on the wire.
    pub(crate) fn take_output(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.preamble);
        let mut taken = 0;
        while let Some(mut request) = self.next_unsent(taken) {
            let xid = self.next_xid;
            self.next_xid = if xid == i32::MAX { 1 } else { xid + 1 };
            set_xid(&mut request.frame, xid);
            taken += request.frame.len();
            out.append(&mut std::mem::take(&mut request.frame));
            self.in_flight.push_back((xid, request));
        }
    }

    /// The next request to write, if it belongs to the same piece as the `taken` bytes before it.
    fn next_unsent(&mut self, taken: usize) -> Option<Submitted<C>> {
        let next = self.unsent.front().filter(|next| !self.is_held_back(next))?;
        if taken > 0 && taken + next.frame.len() > OUTPUT_CHUNK { None } else { self.unsent.pop_front() }
    }

    /// Writing to this connection failed. `true`: it is the live one, and has to be closed. Requests not taken for
    /// writing yet wait for the next one.
    pub(crate) fn write_failed(&mut self, connection: u64) -> bool {
        let is_live = self.connection() == connection && connection != 0;
        if is_live {
            self.link = Link::Failing;
        }
        is_live
    }

    /// The first thing to say on a new connection.
    pub(crate) fn connect_request(&self) -> ConnectRequest {
        ConnectRequest {
            last_zxid_seen: self.last_zxid,
            timeout_ms: i32::try_from(self.wanted_timeout().as_millis()).unwrap_or(i32::MAX),
            session_id: self.session_to_resume(),
            password: if self.is_known { self.password.clone() } else { vec![0; 16] },
            // A server without a quorum grants no lock.
            read_only: false,
        }
    }

    fn wanted_timeout(&self) -> Duration {
        if self.is_known { self.made_with } else { self.config.session_timeout }
    }

    /// The id of the session to resume; 0: a new one is wanted.
    fn session_to_resume(&self) -> i64 {
        if self.is_known { self.session_id } else { 0 }
    }

    /// Whether a server has answered the handshake with another session than the one that was to be resumed. ClickHouse
    /// Keeper does so (ClickHouse#116690).
    pub(crate) fn is_replaced_by(&self, response: &ConnectResponse) -> bool {
        let wanted = self.session_to_resume();
        let is_session = response.timeout_ms > 0 && response.session_id != 0 && !response.read_only;
        wanted != 0 && is_session && response.session_id != wanted
    }

    /// The servers have put another session in the place of this one, and will never resume it. It is over, and its znodes
    /// stay until it has expired, or the next session has deleted them. `false`: it was over before.
    pub(crate) fn replaced(&mut self, now: Instant, actions: &mut Vec<Action<C, W>>) -> bool {
        let was_alive = self.is_alive();
        if was_alive {
            self.left_behind = Some(self.valid_until().unwrap_or(now));
        }
        self.expired(actions);
        was_alive
    }

    /// A server answered the handshake, which was sent at `sent`.
    pub(crate) fn connected(
        &mut self,
        response: ConnectResponse,
        sent: Instant,
        now: Instant,
        actions: &mut Vec<Action<C, W>>,
    ) -> Result<(), ProtoError> {
        if self.rests_until(now).is_some() {
            return Err(ProtoError::Unexpected { what: "handshake of a session that was given up", value: 0 });
        }
        let wanted = self.session_to_resume();
        if response.timeout_ms <= 0 {
            // Only a session that there was can have expired. Another one would be asked for at once, and end so again.
            if wanted == 0 {
                return Err(ProtoError::Unexpected { what: "timeout of a new session", value: response.timeout_ms });
            }
            self.expired(actions);
            return Ok(());
        }
        if wanted == 0 && response.session_id == 0 {
            return Err(ProtoError::Unexpected { what: "id of a new session", value: 0 });
        }
        if wanted != 0 && response.session_id != wanted {
            return Err(ProtoError::WrongSession { wanted, given: response.session_id });
        }
        // For its users the session goes on from a server's own one to one that all servers know.
        let resumed = self.session_id != 0;
        self.is_known |= !response.read_only;
        self.session_id = response.session_id;
        self.password = response.password;
        let granted = Duration::from_millis(u64::from(response.timeout_ms.unsigned_abs()));
        actions.extend(self.granted(granted, wanted != 0).map(|text| Action::Log(log::Level::Warn, text)));
        self.link = Link::Up { read_only: response.read_only };
        self.connections += 1;
        let origin = match (response.read_only, wanted) {
            (true, _) => Origin::Unknown,
            (false, 0) => Origin::Created(sent),
            (false, _) => Origin::Resumed(sent),
        };
        self.liveness.connected(self.timeout, origin, now);
        self.preamble.clear();
        if !self.is_alive() {
            self.queue_own(&Request::CloseSession, Purpose::Close);
            return Ok(());
        }
        if self.abilities.is_none() {
            self.probe(API_VERSION);
        }
        self.queue_auths();
        if resumed {
            self.queue_set_watches();
            let event = WatchEvent::Reconnected { connection: self.connections };
            self.notify_all(&event, actions);
        }
        let event = SessionEvent::Connected { connection: self.connections, read_only: response.read_only };
        actions.push(Action::Raise(event));
        Ok(())
    }

    /// A server grants a session timeout. For how long the session is certain rests on all servers granting the same
    /// one, always: returns a warning where this one differs.
    fn granted(&mut self, timeout: Duration, is_resumed: bool) -> Option<String> {
        let (id, before, is_first) = (self.session_id, self.timeout, self.connections == 0);
        if !is_resumed {
            self.made_with = timeout;
        }
        self.timeout = timeout.min(self.made_with);
        if timeout.as_millis() == before.as_millis() {
            return None;
        }
        Some(if is_first {
            format!(
                "session {id:#x}: the server grants a session timeout of {timeout:?} where {before:?} was asked for"
            )
        } else {
            format!(
                "session {id:#x}: the server grants a session timeout of {timeout:?} where it was {before:?}: all servers \
                 have to grant the same one, always, or locks may have two holders"
            )
        })
    }

    fn queue_auths(&mut self) {
        self.unconfirmed_auths.clear();
        for (scheme, auth) in self.config.authorizations.clone() {
            let request = Request::Auth { scheme: scheme.clone(), auth };
            self.queue_first(&request, XID_AUTH);
            self.unconfirmed_auths.push_back(scheme);
        }
    }

    fn queue_set_watches(&mut self) {
        let most = SET_WATCHES_CHUNK.min(self.request_limit().saturating_add(PREFIX));
        let mut paths = self.watches.rearm().into_iter();
        let mut chunk = [Vec::new(), Vec::new(), Vec::new()];
        let mut size = 0;
        loop {
            let next = paths.next();
            let added = next.as_ref().map_or(most, |(path, _)| PREFIX + path.len());
            if size > 0 && SET_WATCHES_FRAME + size + added > most {
                let [data, exist, child] = std::mem::take(&mut chunk);
                let request = Request::SetWatches { relative_zxid: self.last_zxid, data, exist, child };
                self.queue_first(&request, XID_SET_WATCHES);
                self.unconfirmed_watches += 1;
                size = 0;
            }
            let Some((path, list)) = next else { return };
            size += added;
            if let Some(list) = chunk.get_mut(list) {
                list.push(path);
            }
        }
    }

    /// The connection is gone, or an attempt to take the session up came to nothing.
    pub(crate) fn disconnected(&mut self, cause: Option<&Arc<io::Error>>, actions: &mut Vec<Action<C, W>>) {
        let was_up = self.link != Link::Down;
        self.link = Link::Down;
        self.preamble.clear();
        self.unconfirmed_watches = 0;
        self.liveness.disconnected();
        if self.fate == Fate::Ended {
            return;
        }
        // Only a caller's request is worth keeping: a heartbeat or a removal belongs to the connection.
        self.unsent.retain(|unsent| matches!(unsent.purpose, Purpose::Caller { .. }));
        let mut is_heartbeat_unanswered = false;
        for (_, request) in std::mem::take(&mut self.in_flight) {
            match request.purpose {
                Purpose::Caller { .. } => self.config.counters.requests_unanswered.count(),
                Purpose::Heartbeat(_) => is_heartbeat_unanswered = true,
                Purpose::Housekeeping | Purpose::Probe(_) | Purpose::Close => {}
            }
            self.fail(request, SessionError::ConnectionLoss(cause.cloned()), actions);
        }
        if is_heartbeat_unanswered {
            self.config.counters.heartbeats_late.count();
        }
        if !was_up {
            return;
        }
        self.watches.disconnected();
        if self.is_alive() {
            self.notify_all(&WatchEvent::Disconnected, actions);
            actions.push(Action::Raise(SessionEvent::Disconnected));
        }
    }

    fn fail(&mut self, request: Submitted<C>, error: SessionError, actions: &mut Vec<Action<C, W>>) {
        if let Purpose::Caller { completion, watch } = request.purpose {
            if let Some(ticket) = watch {
                let forgotten = self.watches.forget(ticket);
                self.forgotten(forgotten, actions);
            }
            actions.push(Action::Complete(completion, Err(error)));
        }
    }

    /// One frame from the server. An error ends the connection.
    pub(crate) fn frame(
        &mut self,
        frame: &[u8],
        now: Instant,
        actions: &mut Vec<Action<C, W>>,
    ) -> Result<(), ProtoError> {
        let (header, body) = decode_header(frame)?;
        self.liveness.received(now);
        match header.xid {
            XID_NOTIFICATION => {
                let notification = Notification::decode(body)?;
                self.config.counters.watch_events.count();
                let event = WatchEvent::Node { event: notification.event, connection: self.connections };
                let fired = self.watches.fire(notification.event, &notification.path);
                actions.extend(fired.into_iter().map(|watcher| Action::Notify(watcher, event.clone())));
                Ok(())
            }
            // Watches that are not set again would never fire: better another connection.
            XID_SET_WATCHES if header.err != 0 => {
                Err(ProtoError::Unexpected { what: "error in the reply to setWatches", value: header.err })
            }
            // A server that can write was not asked for one.
            XID_PING => {
                if self.link == (Link::Up { read_only: true }) {
                    self.liveness.ping_answered(now);
                }
                Ok(())
            }
            XID_SET_WATCHES => {
                self.unconfirmed_watches = self.unconfirmed_watches.saturating_sub(1);
                Ok(())
            }
            XID_AUTH => self.auth_answered(header.err, now, actions),
            xid => {
                self.reply(xid, (header.err, header.zxid), body, now, actions)?;
                // Only replies move it: in a multi several notifications share one zxid, and a connection may end
                // between them. And only good ones: with a zxid out of thin air no server would take the session up.
                self.last_zxid = self.last_zxid.max(header.zxid);
                Ok(())
            }
        }
    }

    fn auth_answered(&mut self, err: i32, now: Instant, actions: &mut Vec<Action<C, W>>) -> Result<(), ProtoError> {
        let Some(scheme) = self.unconfirmed_auths.pop_front() else {
            return Err(ProtoError::Unexpected { what: "xid of a reply", value: XID_AUTH });
        };
        if err != 0 && self.is_alive() {
            self.auth_failed(scheme, NOT_ACCEPTED.to_owned(), now, actions);
        }
        Ok(())
    }

    /// The credentials of this scheme are not accepted, and are no better the next time.
    pub(crate) fn auth_failed(
        &mut self,
        scheme: String,
        detail: String,
        now: Instant,
        actions: &mut Vec<Action<C, W>>,
    ) {
        let error = SessionError::AuthFailed { scheme: scheme.clone(), detail: detail.clone() };
        if !self.is_alive() {
            self.end = error;
            return;
        }
        self.relied_on_until = self.relied_on(now);
        self.end(error, actions);
        actions.push(Action::Raise(SessionEvent::AuthFailed { scheme, detail }));
        // The server hangs up now. To close the session, which may own znodes from before, most servers need no
        // credentials; after a session timeout the servers do it themselves.
        self.close_at_server(self.relied_on_until.unwrap_or(now) + self.timeout);
    }

    /// Whether the next connection begins with SASL. A session whose credentials were not accepted is closed without.
    #[cfg(feature = "sasl")]
    pub(crate) fn authenticates(&self) -> bool {
        !matches!(self.end, SessionError::AuthFailed { .. })
    }

    fn reply(
        &mut self,
        xid: i32,
        (err, zxid): (i32, i64),
        body: &[u8],
        now: Instant,
        actions: &mut Vec<Action<C, W>>,
    ) -> Result<(), ProtoError> {
        if self.unconfirmed_watches > 0 {
            // They went out first, and a server answers in order: whoever waits for one of these watches would wait in vain.
            return Err(ProtoError::Unexpected {
                what: "reply before the one to setWatches, with the xid",
                value: xid,
            });
        }
        let request = match self.in_flight.pop_front() {
            Some((expected, request)) if expected == xid => request,
            other => {
                other.into_iter().for_each(|request| self.in_flight.push_front(request));
                // A server refuses what it does not know at once, in front of what it has still to do, and ends the connection.
                let early = self.in_flight.iter().position(|(sent, _)| *sent == xid).filter(|_| err != 0);
                if let Some((index, refused)) = early.and_then(|index| Some((index, self.in_flight.remove(index)?))) {
                    self.learn(&refused.1, &Err(err.into()));
                    self.in_flight.insert(index, refused);
                }
                return Err(ProtoError::Unexpected { what: "xid of a reply", value: xid });
            }
        };
        let reply = match (err, request.op) {
            // A failed multi has code and body; the body tells which operation failed.
            (0, op) | (_, op @ op::MULTI) if !body.is_empty() || err == 0 => match Response::decode(op, zxid, body) {
                Ok(response) => Ok(response),
                Err(error) => {
                    self.in_flight.push_front((xid, request));
                    return Err(error);
                }
            },
            (err, _) => Err(err.into()),
        };
        if is_session_gone(&reply) && self.is_alive() {
            self.in_flight.push_front((xid, request));
            self.expired(actions);
            return Ok(());
        }
        if matches!(reply, Err(ErrorCode::SessionClosedRequireSaslAuth)) && self.is_alive() {
            self.in_flight.push_front((xid, request));
            self.auth_failed("sasl".to_owned(), NOT_ASKED_FOR.to_owned(), now, actions);
            return Ok(());
        }
        self.answered(request, reply, now, actions)
    }

    fn answered(
        &mut self,
        request: Submitted<C>,
        reply: Result<Response, ErrorCode>,
        now: Instant,
        actions: &mut Vec<Action<C, W>>,
    ) -> Result<(), ProtoError> {
        self.learn(&request, &reply);
        match request.purpose {
            Purpose::Caller { completion, watch } => {
                if let Some(ticket) = watch {
                    let forgotten = self.book_watch(ticket, request.op, &reply);
                    self.forgotten(forgotten, actions);
                }
                actions.push(Action::Complete(completion, reply.map_err(SessionError::Server)));
            }
            Purpose::Heartbeat(sent) => {
                if let Some(response) = reply.ok().filter(is_agreed_on) {
                    self.liveness.heartbeat_answered(sent, now, matches!(response, Response::Multi(_)));
                    let took = now.saturating_duration_since(sent);
                    self.config.counters.heartbeat_answered(took, took > longest_round_trip(self.timeout));
                } else {
                    self.liveness.heartbeat_refused(sent, now);
                }
            }
            Purpose::Housekeeping => {}
            Purpose::Probe(path) if self.is_alive() => self.probed(path, &reply, actions),
            Purpose::Probe(_) => {}
            Purpose::Close => match reply {
                _ if is_session_gone(&reply) => self.fate = Fate::Ended,
                // Servers that demand SASL refuse the close of a client that is not let in, each time.
                Ok(_) | Err(ErrorCode::SessionClosedRequireSaslAuth) => self.fate = Fate::Ended,
                // A server that can only read cannot close a session: try another.
                Err(code) => {
                    return Err(ProtoError::Unexpected {
                        what: "error in the reply to closeSession",
                        value: code.into(),
                    });
                }
            },
        }
        Ok(())
    }

    /// A server that refuses what not every server knows is not asked for it again.
    fn learn(&mut self, request: &Submitted<C>, reply: &Result<Response, ErrorCode>) {
        let Some(code) = refusal(reply) else { return };
        let operation = request.questionable.or_else(|| (request.op == op::REMOVE_WATCHES).then_some(request.op));
        if let (Some(abilities), Some(operation)) = (&mut self.abilities, operation) {
            let before = *abilities;
            abilities.refused(operation, code);
            self.has_learnt |= *abilities != before;
            self.config.known.are_34.fetch_or(abilities.dialect == Dialect::ZooKeeper34, Ordering::Relaxed);
            let refuses = abilities.dialect == Dialect::ZooKeeper && !abilities.reads_together;
            self.config.known.refuse_reads_together.fetch_or(refuses, Ordering::Relaxed);
        }
    }

    /// The server tells what it knows.
    fn probed(&mut self, path: &'static str, reply: &Result<Response, ErrorCode>, actions: &mut Vec<Action<C, W>>) {
        let abilities = match (path, reply) {
            (API_VERSION, Ok(_)) => return self.probe(FEATURE_FLAGS),
            (API_VERSION, Err(_)) if self.config.known.are_34.load(Ordering::Relaxed) => Dialect::ZooKeeper34.into(),
            (API_VERSION, Err(_)) => abilities_of(Dialect::ZooKeeper, &self.config),
            (_, Ok(Response::Data { data, .. })) => Abilities::by_flags(Some(data)),
            _ => Abilities::by_flags(None),
        };
        let text = format!("session {:#x}: the server is {}", self.session_id, abilities.dialect);
        actions.push(Action::Log(log::Level::Debug, text));
        self.abilities = Some(abilities);
        let is_known = |unsent: &Submitted<C>| unsent.questionable.is_none_or(|asked| abilities.knows(asked));
        let (known, unknown) = std::mem::take(&mut self.unsent).into_iter().partition(is_known);
        self.unsent = known;
        // None of them leaves a watch.
        for unsent in VecDeque::into_iter(unknown) {
            self.fail(unsent, SessionError::Server(ErrorCode::Unimplemented), actions);
        }
    }

    fn book_watch(
        &mut self,
        ticket: u64,
        op: i32,
        reply: &Result<Response, ErrorCode>,
    ) -> Option<(W, Option<Request>)> {
        match reply {
            Ok(_) => self.watches.armed(ticket, false),
            // `exists` alone leaves a watch on a znode that is not there.
            Err(ErrorCode::NoNode) if op == op::EXISTS => self.watches.armed(ticket, true),
            Err(_) => self.watches.forget(ticket),
        }
    }

    /// A frame above the limit is on its way; `xid` is from its header. The connection ends after this.
    pub(crate) fn frame_too_large(&mut self, xid: i32, size: usize, limit: usize, actions: &mut Vec<Action<C, W>>) {
        if self.in_flight.front().is_none_or(|(expected, _)| *expected != xid) {
            return;
        }
        if let Some((_, request)) = self.in_flight.pop_front() {
            self.fail(request, SessionError::FrameTooLarge { size, limit }, actions);
        }
    }

    /// Time has passed. An error says why the connection is dead.
    pub(crate) fn timer(&mut self, now: Instant) -> Result<(), &'static str> {
        if self.link == Link::Down {
            return Ok(());
        }
        if let Some(why) = self.liveness.why_dead(now) {
            self.link = Link::Failing;
            return Err(why);
        }
        if self.is_alive() && self.liveness.take_heartbeat(now) {
            self.queue_heartbeat(now);
        }
        Ok(())
    }

    fn queue_heartbeat(&mut self, now: Instant) {
        match self.link {
            Link::Up { read_only: false } => {
                let path = "/".to_owned();
                let heartbeat = if self.config.quorum_heartbeats || self.liveness.needs_majority() {
                    Request::Multi(vec![Request::Check { path, version: -1 }])
                } else {
                    Request::Sync { path }
                };
                self.queue_before(&heartbeat, Purpose::Heartbeat(now));
            }
            // Only a quorum can sync.
            Link::Up { read_only: true } => self.queue_first(&Request::Ping, XID_PING),
            Link::Failing | Link::Down => {}
        }
    }

    /// When `timer` has something to do next.
    pub(crate) fn next_timer(&self) -> Instant {
        match self.fate {
            Fate::Alive => self.liveness.next_timer(),
            // No heartbeats: the session need not be kept alive any more.
            Fate::Leaving { until } => until.min(self.liveness.dead_at()),
            Fate::Ended => self.liveness.dead_at(),
        }
    }

    /// When the session gives up leaving; `None` while it does not.
    pub(crate) fn leaves_at(&self) -> Option<Instant> {
        if let Fate::Leaving { until } = self.fate { Some(until) } else { None }
    }

    /// The session is over, and nothing is left to do for it.
    pub(crate) fn expired(&mut self, actions: &mut Vec<Action<C, W>>) {
        if self.is_alive() {
            self.end(SessionError::Expired, actions);
            actions.push(Action::Raise(SessionEvent::Expired));
        }
        self.fate = Fate::Ended;
    }

    /// The client gives the session up, or closes it. Every request fails with `error` from now on. The session is closed
    /// at a server if the client reaches one until then; one that is given up, not while a holder may rely on it.
    pub(crate) fn leave(&mut self, error: SessionError, now: Instant, until: Instant, actions: &mut Vec<Action<C, W>>) {
        let is_given_up = matches!(error, SessionError::Expired);
        match self.fate {
            Fate::Ended => {}
            Fate::Leaving { until: earlier } => {
                self.fate = Fate::Leaving { until: until.min(earlier) };
                if !is_given_up {
                    self.nobody_holds();
                }
            }
            Fate::Alive => {
                self.relied_on_until = self.relied_on(now).filter(|_| is_given_up);
                let resumes = self.abilities.is_none_or(|known| known.dialect.resumes_sessions());
                if self.relied_on_until.is_some() || self.link == Link::Down && !resumes && is_given_up {
                    // Nobody can take it up again to close it.
                    self.left_behind = self.valid_until();
                }
                self.end(error, actions);
                self.close_at_server(until);
            }
        }
    }

    fn close_at_server(&mut self, until: Instant) {
        if !self.is_known {
            self.fate = Fate::Ended;
            return;
        }
        self.fate = Fate::Leaving { until };
        if self.relied_on_until.is_some() {
            // To be taken up again would only make it last longer.
            self.link = if self.link == Link::Down { Link::Down } else { Link::Failing };
        } else if matches!(self.link, Link::Up { .. }) {
            self.queue_own(&Request::CloseSession, Purpose::Close);
        }
    }

    /// Until when a holder may rely on what it was told, if that is not over.
    fn relied_on(&self, now: Instant) -> Option<Instant> {
        self.valid_until().filter(|until| now < *until)
    }

    /// No holder relies on the session any more.
    pub(crate) fn nobody_holds(&mut self) {
        self.relied_on_until = None;
    }

    /// Whether the connection has to be closed, as nothing can be said over it any more.
    pub(crate) fn is_failing(&self) -> bool {
        self.link == Link::Failing
    }

    /// Until when the session must neither be closed nor taken up, as a holder may rely on it.
    pub(crate) fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.relied_on_until.filter(|until| now < *until)
    }

    /// Ends every request and watch. Requests on the wire stay in order, so that the reply to the close is known.
    fn end(&mut self, error: SessionError, actions: &mut Vec<Action<C, W>>) {
        self.end = error;
        actions.extend(self.watches.end().into_iter().map(|(watcher, is_given_up)| match is_given_up {
            true => Action::DropWatcher(watcher),
            false => Action::Notify(watcher, WatchEvent::Ended),
        }));
        let error = &self.end;
        for (_, request) in &mut self.in_flight {
            if let Purpose::Caller { completion, .. } = std::mem::replace(&mut request.purpose, Purpose::Housekeeping) {
                actions.push(Action::Complete(completion, Err(error.clone())));
            }
        }
        for unsent in self.unsent.drain(..) {
            if let Purpose::Caller { completion, .. } = unsent.purpose {
                actions.push(Action::Complete(completion, Err(error.clone())));
            }
        }
    }

    fn notify_all(&self, event: &WatchEvent, actions: &mut Vec<Action<C, W>>) {
        actions.extend(self.watches.watchers().into_iter().map(|watcher| Action::Notify(watcher, event.clone())));
    }
}

/// Whether only the session itself may send the request, as the server answers it under a number of its own or ends the
/// session; or the request stands on the wrong side of a multi.
fn is_out_of_place(request: &Request) -> bool {
    use Request::{Auth, Check, CloseSession, Create, Delete, Multi, Ping, SetData, SetWatches};
    match request {
        Ping | Auth { .. } | SetWatches { .. } | CloseSession | Check { .. } => true,
        Multi(_) if request.op_code() == op::MULTI_READ => false,
        Multi(ops) => ops.iter().any(|op| !matches!(op, Create { .. } | Delete { .. } | SetData { .. } | Check { .. })),
        _ => false,
    }
}

/// Why the server has not carried the request out. A multi is refused in its body, for the first of its operations that
/// has a code.
fn refusal(reply: &Result<Response, ErrorCode>) -> Option<ErrorCode> {
    match reply {
        Err(code) => Some(*code),
        Ok(Response::Multi(results)) => results.iter().find_map(|result| result.as_ref().err().copied()?),
        Ok(_) => None,
    }
}

fn is_session_gone(reply: &Result<Response, ErrorCode>) -> bool {
    refusal(reply).is_some_and(|code| code.meaning() == Meaning::SessionGone)
}

/// A heartbeat transaction counts even with NoAuth, but with no other error.
fn is_agreed_on(heartbeat: &Response) -> bool {
    let Response::Multi(results) = heartbeat else { return true };
    results.iter().all(|result| matches!(result, Ok(_) | Err(Some(ErrorCode::NoAuth))))
}

#[cfg(test)]
mod tests;
