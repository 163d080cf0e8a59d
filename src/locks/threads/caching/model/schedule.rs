//! The actions that can happen next, and the rules that hold after each.

use std::time::Duration;

use super::{
    process::{Omitted, Process, Request, Sought, Task, Thread, Told, base, limits},
    world::World,
};
use crate::locks::threads::caching::local_queue::{Mode, Turn};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Step(usize, usize),
    /// A mere try gives up.
    GiveUp(usize, usize),
    Serve(usize),
    Deliver(usize),
    Tick(usize),
    Heartbeat(usize),
    Reconnect(usize),
    Expire(usize),
    Fault(Fault, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection breaks.
    Cut,
    /// The process is paused, or its heartbeats are not answered, for longer than the session timeout.
    Pause,
    /// An administrator deletes the first znode.
    Delete,
    /// The first thread that waits in any way gives up.
    Leave,
    /// A thread that looks for long in vain gives up.
    Doubt,
}

pub(super) const FAULTS: [Fault; 5] = [Fault::Cut, Fault::Pause, Fault::Delete, Fault::Leave, Fault::Doubt];

impl World {
    /// All that can happen without a fault.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (p, process) in self.processes.iter().enumerate() {
            actions.extend((0..process.threads.len()).filter(|t| self.can_step(p, *t)).map(|t| Action::Step(p, t)));
            let gives_up = |t: &usize| process.threads[*t].may_leave() && self.task(p, *t).only_tries();
            actions.extend((0..process.threads.len()).filter(gives_up).map(|t| Action::GiveUp(p, t)));
            if process.connection != 0 && !process.outgoing.is_empty() {
                actions.push(Action::Serve(p));
            }
            if process.connection != 0 && !process.incoming.is_empty() {
                actions.push(Action::Deliver(p));
            }
            if process.idle().is_some() {
                actions.push(Action::Tick(p));
            }
            if process.connection != 0 && !process.is_valid {
                actions.push(Action::Heartbeat(p));
            }
            if process.connection == 0 {
                actions.push(Action::Reconnect(p));
            }
            if !process.is_valid && self.lives(p) {
                actions.push(Action::Expire(p));
            }
        }
        actions
    }

    pub(super) fn can_step(&self, p: usize, t: usize) -> bool {
        let process = &self.processes[p];
        match process.threads[t] {
            Thread::Outside { rounds } => rounds > 0,
            Thread::Inside { .. } | Thread::Reading { .. } => true,
            Thread::Waiting { .. } | Thread::Queueing { znode: Sought::Sent, .. } => false,
            Thread::Queueing { znode: Sought::Unsent, .. } => process.connection != 0,
            // Granted, or gone.
            Thread::Queueing { znode: Sought::Stands(czxid), .. } => {
                let is_granted = self.is_granted(czxid) && process.is_valid;
                process.connection != 0 && self.lives(p) && (!self.stands(czxid) || is_granted)
            }
            Thread::Downgrading { tenure, znode, .. } => {
                let is_gone = process.evidence(tenure, Omitted::Nothing).is_gone;
                let has_answer = match znode {
                    Sought::Unsent => true,
                    Sought::Sent => false,
                    Sought::Stands(_) => process.is_valid && self.lives(p),
                };
                is_gone || process.connection != 0 && has_answer
            }
            Thread::Looking { tenure, grant, confirmed_over, .. } => {
                let evidence = process.evidence(tenure, self.omitted);
                let is_confirmed = Turn::Hold { tenure, grant }.is_first() || confirmed_over == process.connection;
                let is_seen = evidence.is_seen && (evidence.is_watched || is_confirmed);
                evidence.is_gone
                    || Process::is_certain(&evidence, is_confirmed)
                    || process.connection != 0 && self.lives(p) && !is_seen
            }
        }
    }

    pub(super) fn faults(&self) -> Vec<Action> {
        let all = FAULTS.iter().flat_map(|fault| [0, 1].map(|p| (*fault, p)));
        let is_possible = |(fault, p): &(Fault, usize)| {
            let process = &self.processes[*p];
            match fault {
                Fault::Cut => process.connection != 0,
                Fault::Pause => process.is_valid,
                Fault::Delete => *p == 0 && !self.znodes.is_empty(),
                Fault::Leave => process.threads.iter().any(Thread::may_leave),
                Fault::Doubt => process.threads.iter().any(|thread| matches!(thread, Thread::Looking { .. })),
            }
        };
        if self.faults == 0 {
            Vec::new()
        } else {
            all.filter(is_possible).map(|(fault, p)| Action::Fault(fault, p)).collect()
        }
    }

    pub(super) fn apply(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Step(p, t) => {
                let read = self.processes[p].read_by_others(t).filter(|_| self.task(p, t) == Task::TryWrite);
                self.step(p, t)?;
                if read.is_some() && self.processes[p].local_queue.number() != read {
                    return Err(format!("the mere try of {p}.{t} ends what others read by"));
                }
            }
            Action::GiveUp(p, t) => self.leave(p, t),
            Action::Serve(p) => self.serve(p),
            Action::Deliver(p) => self.deliver(p),
            Action::Tick(p) => {
                let process = &mut self.processes[p];
                let limits = limits();
                let later = base() + Duration::from_secs(60);
                let next = process.local_queue.tick(&limits, later);
                process.follow(next);
            }
            Action::Heartbeat(p) => {
                if self.lives(p) {
                    self.processes[p].is_valid = true;
                } else {
                    self.cut(p);
                }
            }
            Action::Reconnect(p) => self.reconnect(p),
            Action::Expire(p) => {
                let session = self.processes[p].session;
                self.dead.push(session);
                while let Some(znode) = self.znodes.iter().find(|znode| znode.session == session).copied() {
                    self.remove(znode.czxid);
                }
            }
            Action::Fault(fault, p) => self.fail(fault, p),
        }
        self.check()
    }

    pub(super) fn fail(&mut self, fault: Fault, p: usize) {
        self.faults -= 1;
        match fault {
            Fault::Cut => self.cut(p),
            Fault::Pause => self.processes[p].is_valid = false,
            Fault::Delete => {
                let first = self.znodes[0].czxid;
                self.forgiven.push(first);
                self.remove(first);
            }
            Fault::Leave => {
                let t = self.processes[p].threads.iter().position(Thread::may_leave).unwrap();
                self.leave(p, t);
            }
            Fault::Doubt => {
                let is_looking = |thread: &Thread| matches!(thread, Thread::Looking { .. });
                let t = self.processes[p].threads.iter().position(is_looking).unwrap();
                let process = &mut self.processes[p];
                let Thread::Looking { tenure, .. } = process.threads[t] else { return };
                let next = process.local_queue.gone(tenure);
                process.follow(next);
                self.leave(p, t);
            }
        }
    }

    /// A thread gives up, for good: an answer to its create is for no other thread.
    pub(super) fn leave(&mut self, p: usize, t: usize) {
        let limits = limits();
        let process = &mut self.processes[p];
        let before = process.threads[t];
        process.threads[t] = Thread::Outside { rounds: 0 };
        if let Thread::Queueing { znode, .. } = before
            && let Some(next) = process.local_queue.hand_over(process.waiters[t])
        {
            process.follow(next);
            return self.take_over(p, t, znode);
        }
        if let Thread::Queueing { znode: Sought::Stands(czxid), .. } = before {
            process.outgoing.push_back(Request::Delete(czxid));
        }
        let next = match before {
            Thread::Looking { tenure, grant, .. } => process.local_queue.release(tenure, grant, &limits, base()),
            _ => process.local_queue.leave(process.waiters[t]),
        };
        process.follow(next);
    }

    /// The next delegate takes over the contender of the one before.
    pub(super) fn take_over(&mut self, p: usize, before: usize, found: Sought) {
        let process = &mut self.processes[p];
        let is_new = |thread: &Thread| matches!(thread, Thread::Queueing { znode: Sought::Unsent, .. });
        let successor = process.threads.iter().position(is_new).unwrap();
        if let Thread::Queueing { znode, .. } = &mut process.threads[successor] {
            *znode = found;
        }
        for request in &mut process.outgoing {
            if let Request::Create(t, _) = request {
                *t = if *t == before { successor } else { *t };
            }
        }
        for told in &mut process.incoming {
            if let Told::Created(t, _) = told {
                *t = if *t == before { successor } else { *t };
            }
        }
        for znode in self.znodes.iter_mut().filter(|znode| znode.of == (p, before)) {
            znode.of = (p, successor);
        }
    }

    /// A certain writer is alone.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut holders, mut writes) = (Vec::new(), false);
        for (p, process) in self.processes.iter().enumerate() {
            for (t, thread) in process.threads.iter().enumerate() {
                if let Thread::Reading { czxid, session, .. } = thread
                    && *session == process.session
                    && process.is_valid
                    && !self.forgiven.contains(czxid)
                {
                    holders.push((p, t));
                }
                let (Thread::Inside { tenure, .. } | Thread::Downgrading { tenure, .. }) = thread else { continue };
                let Some(node) = process.nodes.iter().find(|node| node.number == *tenure) else {
                    return Err(format!("the znode of the holder {p}.{t} was given back"));
                };
                if !node.is_gone && process.is_valid && !self.forgiven.contains(&node.czxid) {
                    holders.push((p, t));
                    writes |= self.task(p, t).mode() == Mode::Exclusive;
                }
            }
            process.local_queue.check(&limits())?;
            if process.is_out_of_order {
                return Err(format!("a thread of process {p} overtakes another one"));
            }
        }
        if writes && holders.len() > 1 { Err(format!("a writer among the holders {holders:?}")) } else { Ok(()) }
    }

    /// Whether all have ended well, and left nothing.
    pub(super) fn check_rest(&self) -> Result<(), String> {
        for (p, process) in self.processes.iter().enumerate() {
            if let Some(t) = process.threads.iter().position(|thread| !matches!(thread, Thread::Outside { rounds: 0 }))
            {
                return Err(format!("{p}.{t} waits for what nothing will bring: {:?}", process.threads[t]));
            }
            if !process.nodes.is_empty() {
                return Err(format!("process {p} has forgotten a znode"));
            }
        }
        self.znodes.first().map_or(Ok(()), |znode| Err(format!("{znode:?} is left behind")))
    }
}
