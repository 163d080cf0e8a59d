//! The thread that calls the package, which may not return for as long as the network is gone.

use std::{
    io, mem,
    sync::Arc,
    time::{Duration, Instant},
};

use ::zookeeper::{Acl as ZkAcl, CreateMode as ZkMode, Subscription, WatchedEvent, ZkError, ZkResult, ZooKeeper};

use super::{
    execute::{execute, session_error},
    leftovers::Leftovers,
    shared::{HandleShared, lost},
};
use crate::{
    base::{clock, log, panics::caught},
    proto::{request::Request, response::Response, types::EventType},
    session::{
        api::{NOT_ACCEPTED, SessionError, SessionEvent},
        machine::{
            actions::Action,
            liveness::{Origin, longest_round_trip},
        },
    },
};

/// How long after a failed attempt to take the session up the next one follows, unless the handle reports something.
const RETRY: Duration = Duration::from_millis(100);

/// The source of handles.
#[derive(Clone)]
pub(super) enum Source {
    /// The program's own, which stays open.
    Given(Arc<ZooKeeper>),
    /// Made for one session, and closed with it.
    Made(Arc<dyn Fn() -> ZkResult<ZooKeeper> + Send + Sync>),
}

pub(super) struct Worker {
    shared: Arc<HandleShared>,
    source: Source,
    /// The handle, and what listens to its states.
    handle: Option<(Arc<ZooKeeper>, Subscription)>,
    /// An ephemeral znode that tells which session the handle has.
    probe: String,
    has_probe: bool,
    leftovers: Leftovers,
    /// Every session that the handle was seen to have.
    owners: Vec<i64>,
}

impl Worker {
    pub(super) fn new(shared: Arc<HandleShared>, source: Source, probe_directory: &str) -> Worker {
        Worker {
            shared,
            source,
            handle: None,
            probe: format!("{probe_directory}/_curator_locks_{}", uuid::Uuid::new_v4()),
            has_probe: false,
            leftovers: Leftovers::default(),
            owners: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let mut state = self.shared.state.lock();
            if state.ended.is_some() {
                break;
            }
            if !state.up {
                let at = state.next_attempt;
                if clock::now() < at {
                    let _ = self.shared.work.wait_for(&mut state, clock::until(at));
                    continue;
                }
                drop(state);
                if let Err(error) = self.connect() {
                    log::debug!("the handle does not take the session up: {error}");
                    let mut state = self.shared.state.lock();
                    state.last_error = Some(Arc::new(error));
                    state.next_attempt = clock::now() + RETRY;
                }
            } else if mem::take(&mut state.heartbeat_due) {
                drop(state);
                self.heartbeat();
            } else if let Some((ticket, (request, on_reply))) = state.queue.pop_first() {
                state.current = Some((ticket, on_reply));
                drop(state);
                self.request(ticket, &request);
            } else {
                self.shared.work.wait(&mut state);
            }
        }
        self.leave();
    }

    fn zookeeper(&mut self) -> io::Result<Arc<ZooKeeper>> {
        if let Some((zookeeper, _)) = &self.handle {
            return Ok(zookeeper.clone());
        }
        let zookeeper = match &self.source {
            Source::Given(zookeeper) => zookeeper.clone(),
            Source::Made(make) => {
                // The handle's first handshake goes unreported.
                self.shared.state.lock().handshake = Some(Origin::Created(clock::now()));
                let made = caught("connecting by the package zookeeper", || make());
                let made = made.ok_or_else(|| io::Error::other("the package zookeeper panicked; the log says why"))?;
                Arc::new(made.map_err(io::Error::other)?)
            }
        };
        let shared = Arc::downgrade(&self.shared);
        let subscription = zookeeper.add_listener(move |state| {
            if let Some(shared) = shared.upgrade() {
                shared.handle_reports(state);
            }
        });
        self.handle = Some((zookeeper.clone(), subscription));
        Ok(zookeeper)
    }

    /// Takes the session up over the connection that the handle has now, if it is still the same session.
    fn connect(&mut self) -> io::Result<()> {
        let zookeeper = self.zookeeper()?;
        let epoch = self.shared.state.lock().epoch;
        for (scheme, auth) in &self.shared.config.authorizations {
            match guarded(|| zookeeper.add_auth(scheme, auth.clone())) {
                Err(ZkError::AuthFailed) => {
                    let (scheme, detail) = (scheme.clone(), NOT_ACCEPTED.to_owned());
                    let error = SessionError::AuthFailed { scheme: scheme.clone(), detail: detail.clone() };
                    self.shared.end(error, Some(SessionEvent::AuthFailed { scheme, detail }));
                    return Ok(());
                }
                result => result.map_err(io::Error::other)?,
            }
        }
        let (owner, sent) = guarded(|| self.prove(&zookeeper)).map_err(io::Error::other)?;
        let id = self.shared.id();
        if id != 0 && owner != id {
            self.replaced(owner);
            return Ok(());
        }
        let mut state = self.shared.state.lock();
        // Lost again meanwhile: the next attempt asks anew.
        if state.ended.is_none() && epoch == state.epoch {
            state.connected(owner, sent, self.shared.config.session_timeout);
            self.shared.news.notify_all();
        }
        Ok(())
    }

    /// Writes to the probe, which goes through the leader, and tells to whom it belongs. Also stands in for `sync`:
    /// when the server has carried out this write, it has carried out everything before it.
    fn prove(&mut self, zookeeper: &ZooKeeper) -> ZkResult<(i64, Instant)> {
        loop {
            if !self.has_probe {
                match zookeeper.create(&self.probe, Vec::new(), ZkAcl::open_unsafe().clone(), ZkMode::Ephemeral) {
                    // After a lost reply the probe is there already: no other client knows its name.
                    Ok(_) | Err(ZkError::NodeExists) => self.has_probe = true,
                    Err(error) => return Err(error),
                }
            }
            let sent = clock::now();
            match zookeeper.set_data(&self.probe, Vec::new(), None) {
                Ok(stat) => {
                    if !self.owners.contains(&stat.ephemeral_owner) {
                        self.owners.push(stat.ephemeral_owner);
                    }
                    return Ok((stat.ephemeral_owner, sent));
                }
                // The probe's session has ended, or somebody deleted it: the next one tells.
                Err(ZkError::NoNode) => self.has_probe = false,
                Err(error) => return Err(error),
            }
        }
    }

    fn replaced(&self, owner: i64) {
        log::debug!("the handle has replaced session {:#x} by {owner:#x}", self.shared.id());
        self.shared.expired();
    }

    fn heartbeat(&mut self) {
        let Ok(zookeeper) = self.zookeeper() else { return };
        let sent = match guarded(|| self.prove(&zookeeper)) {
            Ok((owner, _)) if owner != self.shared.id() => return self.replaced(owner),
            Ok((_, sent)) => sent,
            Err(error) => return self.shared.disconnected(io::Error::other(error)),
        };
        let now = clock::now();
        let mut state = self.shared.state.lock();
        // Only the worker takes the session up: it was up all the time.
        if state.is_up() {
            state.liveness.received(now);
            state.liveness.heartbeat_answered(sent, now, true);
            let (took, config) = (now.saturating_duration_since(sent), &self.shared.config);
            config.counters.heartbeat_answered(took, took > longest_round_trip(config.session_timeout));
        }
    }

    fn request(&mut self, ticket: u64, request: &Request) {
        let Ok(zookeeper) = self.zookeeper() else { return };
        if self.shared.state.lock().current.is_none() {
            // The request was answered when the connection ended. Which session the handle has by now is not known yet.
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        let on_event = move |event: WatchedEvent| {
            if let Some(shared) = shared.upgrade() {
                let fired = shared.state.lock().fired(ticket, EventType::from(event.event_type as i32));
                shared.carry_out(fired.into_iter().collect());
            }
        };
        let on_event = request.watch_table().map(|_| on_event);
        // The session that owns the ephemeral znode which the request has made; 0 where there is none.
        let mut owner = 0;
        let result = guarded(|| match request {
            Request::Sync { path } => {
                (owner, _) = self.prove(&zookeeper)?;
                Ok(Response::Synced { path: path.clone() })
            }
            request => execute(&zookeeper, request, on_event, &mut owner),
        });
        // The package did not understand the answer, and the znode may be there.
        let result = match (request, result) {
            (Request::Create { .. }, Err(ZkError::MarshallingError)) => Err(ZkError::ConnectionLoss),
            (_, result) => result,
        };
        self.leftovers.executed(request, &result);
        if matches!(result, Err(ZkError::Unimplemented)) {
            // Every server implements what the package sends: so it calls a code that it has no name for, which may be that of a
            // session that the server does not know.
            match guarded(|| self.prove(&zookeeper)) {
                Ok((of_probe, _)) => owner = of_probe,
                Err(error) => return self.shared.disconnected(io::Error::other(error)),
            }
        }
        let id = self.shared.id();
        if owner != 0 && owner != id {
            // Carried out in another session: its znode is deleted on leaving.
            self.owners.push(owner);
            self.replaced(owner);
            return;
        }
        let reply = match result.map_err(session_error) {
            Err(SessionError::ConnectionLoss(_)) => return self.shared.disconnected(lost()),
            reply => reply,
        };
        let mut state = self.shared.state.lock();
        // Across the end of a connection it is unknown in which session the request was carried out: its outcome counts as
        // unknown then, which was told already.
        let Some((_, on_reply)) = state.current.take() else { return };
        state.liveness.received(clock::now());
        let of_watch = state.book_watch(ticket, request, &reply);
        drop(state);
        let actions = std::iter::once(Action::Complete(on_reply, reply)).chain(of_watch).collect();
        self.shared.carry_out(actions);
    }

    /// Deletes what the session has left behind, as its handle lives on, and ends.
    fn leave(&mut self) {
        let mut state = self.shared.state.lock();
        while let Some(until) = state.relied_on_until.filter(|until| clock::now() < *until) {
            let _ = self.shared.work.wait_for(&mut state, clock::until(until));
        }
        drop(state);
        if let Some((zookeeper, subscription)) = self.handle.take() {
            if matches!(self.source, Source::Given(_)) {
                self.clean_up(&zookeeper);
            }
            zookeeper.remove_listener(subscription);
            // A handle of its own goes here, and with it the session at the server.
        }
    }

    fn clean_up(&mut self, zookeeper: &ZooKeeper) {
        if self.has_probe {
            self.leftovers.nodes.insert(self.probe.clone());
        }
        // This long after the last answer the servers have ended the session themselves.
        let give_up = clock::now() + self.shared.config.session_timeout.max(Duration::from_secs(1)) * 2;
        while let Err(error) = guarded(|| self.leftovers.delete(zookeeper, &self.owners)) {
            log::debug!("cannot clean up yet: {error}");
            if clock::now() >= give_up || self.shared.state.lock().handle_closed {
                return;
            }
            let _ = self.shared.work.wait_for(&mut self.shared.state.lock(), RETRY);
        }
    }
}

/// The package panics on an answer that it does not understand, which must not end the thread.
fn guarded<T>(run: impl FnOnce() -> ZkResult<T>) -> ZkResult<T> {
    caught("the package zookeeper", run).unwrap_or(Err(ZkError::MarshallingError))
}
