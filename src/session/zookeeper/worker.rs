//! The thread that calls the package, which may not return for as long as the network is gone.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use ::zookeeper::{Acl as ZkAcl, CreateMode as ZkMode, Subscription, WatchedEvent, ZkError, ZkResult, ZooKeeper};

use super::{
    execute::{OnEvent, execute, session_error},
    leftovers::Leftovers,
    shared::{HandleShared, WorkerTask},
};
use crate::{
    base::panics::caught,
    proto::{request::Request, response::Response, types::EventType},
    session::{
        api::{SessionError, SessionEvent},
        machine::liveness::Origin,
    },
};

/// The source of handles.
#[derive(Clone)]
pub(super) enum Source {
    /// The program's own, which stays open.
    Given(Arc<ZooKeeper>),
    /// Made for one session, and closed with it.
    Made(Arc<dyn Fn() -> ZkResult<ZooKeeper> + Send + Sync>),
}

/// A handle of the package and what this session has put into it.
struct Handle {
    zookeeper: Arc<ZooKeeper>,
    subscription: Subscription,
}

pub(super) struct Worker {
    shared: Arc<HandleShared>,
    source: Source,
    handle: Option<Handle>,
    /// An ephemeral znode that tells which session the handle has.
    probe: String,
    has_probe: bool,
    leftovers: Leftovers,
    /// Every session that the handle was seen to have.
    owners: Vec<i64>,
    /// The last field: the session has not ended before the worker has let go of the handle.
    _end: WorkerEnd,
}

struct WorkerEnd(Arc<HandleShared>);

impl Worker {
    pub(super) fn new(shared: Arc<HandleShared>, source: Source, probe_directory: &str) -> Worker {
        Worker {
            _end: WorkerEnd(shared.clone()),
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
            match self.shared.next_task() {
                WorkerTask::Connect => {
                    if let Err(error) = self.connect() {
                        self.shared.not_connected(error);
                    }
                }
                WorkerTask::Heartbeat => self.heartbeat(),
                WorkerTask::Request(ticket, request) => self.request(ticket, &request),
                WorkerTask::Leave => break,
            }
        }
        self.leave();
    }

    fn zookeeper(&mut self) -> io::Result<Arc<ZooKeeper>> {
        if let Some(handle) = &self.handle {
            return Ok(handle.zookeeper.clone());
        }
        let zookeeper = match &self.source {
            Source::Given(zookeeper) => zookeeper.clone(),
            Source::Made(make) => {
                // The handle's first handshake goes unreported.
                self.shared.state.lock().handshake = Some(Origin::Created(Instant::now()));
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
        self.handle = Some(Handle { zookeeper: zookeeper.clone(), subscription });
        Ok(zookeeper)
    }

    /// Takes the session up over the connection that the handle has now, if it is still the same session.
    fn connect(&mut self) -> io::Result<()> {
        let zookeeper = self.zookeeper()?;
        let epoch = self.shared.state.lock().epoch;
        for (scheme, auth) in &self.shared.config.authorizations {
            match guarded(|| zookeeper.add_auth(scheme, auth.clone())) {
                Err(ZkError::AuthFailed) => {
                    let error = SessionError::AuthFailed(scheme.clone());
                    self.shared.end(error, Some(SessionEvent::AuthFailed(scheme.clone())));
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
        self.shared.connected(epoch, owner, sent);
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
            let sent = Instant::now();
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

    fn on_event(&self, ticket: u64) -> OnEvent {
        let shared = Arc::downgrade(&self.shared);
        Box::new(move |event: WatchedEvent| {
            if let Some(shared) = shared.upgrade() {
                shared.fired(ticket, EventType::from_wire(event.event_type as i32));
            }
        })
    }

    fn heartbeat(&mut self) {
        let Some(zookeeper) = self.handle.as_ref().map(|handle| handle.zookeeper.clone()) else { return };
        match guarded(|| self.prove(&zookeeper)) {
            Ok((owner, _)) if owner != self.shared.id() => self.replaced(owner),
            Ok((_, sent)) => self.shared.heartbeat_answered(sent),
            Err(error) => self.shared.disconnected(io::Error::other(error)),
        }
    }

    fn request(&mut self, ticket: u64, request: &Request) {
        let Some(zookeeper) = self.handle.as_ref().map(|handle| handle.zookeeper.clone()) else { return };
        if self.shared.state.lock().current.is_none() {
            // The request was answered when the connection ended. Which session the handle has by now is not known yet.
            return;
        }
        let on_event = request.watch_table().map(|_| self.on_event(ticket));
        let result = guarded(|| match request {
            Request::Sync { path } => {
                self.prove(&zookeeper).map(|(owner, _)| (owner, Response::Synced { path: path.clone() }))
            }
            request => execute(&zookeeper, request, on_event).map(|response| (owner_of(request, &response), response)),
        });
        // The package did not understand the answer, and the znode may be there.
        let result = match (request, result) {
            (Request::Create { .. }, Err(ZkError::MarshallingError)) => Err(ZkError::ConnectionLoss),
            (_, result) => result,
        };
        let owner = result.as_ref().map_or(0, |(owner, _)| *owner);
        let result = result.map(|(_, response)| response);
        self.leftovers.executed(request, &result);
        let id = self.shared.id();
        if owner != 0 && owner != id {
            // Carried out in another session: its znode is deleted on leaving.
            self.owners.push(owner);
            self.replaced(owner);
            return;
        }
        self.shared.replied(request, result.map_err(session_error));
    }

    /// Deletes what the session has left behind, as its handle lives on, and ends.
    fn leave(&mut self) {
        if let Some(Handle { zookeeper, subscription }) = self.handle.take() {
            if matches!(self.source, Source::Given(_)) {
                self.clean_up(&zookeeper);
            }
            zookeeper.remove_listener(subscription);
            // A handle of its own goes here, and with it the session at the server.
        }
    }

    fn clean_up(&mut self, zookeeper: &ZooKeeper) {
        if self.has_probe {
            self.leftovers.add(self.probe.clone());
        }
        // This long after the last answer the servers have ended the session themselves.
        let give_up = Instant::now() + self.shared.config.session_timeout.max(Duration::from_secs(1)) * 2;
        while let Err(error) = guarded(|| self.leftovers.delete(zookeeper, &self.owners)) {
            log::debug!("cannot clean up yet: {error}");
            if Instant::now() >= give_up || self.shared.state.lock().handle_closed {
                return;
            }
            self.shared.pause();
        }
    }
}

impl Drop for WorkerEnd {
    /// Also if a panic ends the thread: no caller must wait for a thread that is gone.
    fn drop(&mut self) {
        self.0.expired();
        self.0.finished();
    }
}

/// The package panics on an answer that it does not understand, which must not end the thread.
fn guarded<T>(run: impl FnOnce() -> ZkResult<T>) -> ZkResult<T> {
    caught("the package zookeeper", run).unwrap_or(Err(ZkError::MarshallingError))
}

/// The session in which an ephemeral znode was created; 0 where that does not apply.
fn owner_of(request: &Request, response: &Response) -> i64 {
    match (request, response) {
        (Request::Create { mode, .. }, Response::Created { stat: Some(stat), .. }) if mode.is_ephemeral() => {
            stat.ephemeral_owner
        }
        _ => 0,
    }
}
