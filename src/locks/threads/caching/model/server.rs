//! The server: it answers, tells, and loses connections and sessions.

use super::{
    process::{Request, Sought, Thread, Told},
    world::{World, Znode},
};
use crate::locks::threads::caching::local_queue::Mode;

impl World {
    pub(super) fn serve(&mut self, p: usize) {
        let Some(request) = self.processes[p].outgoing.pop_front() else { return };
        if !self.lives(p) {
            self.processes[p].outgoing.push_front(request);
            return self.cut(p);
        }
        let told = match request {
            Request::Create(t, mode) => {
                self.zxid += 1;
                let (czxid, session) = (self.zxid, self.processes[p].session);
                self.znodes.push(Znode { czxid, session, mode, of: (p, t) });
                self.children_changed();
                Told::Created(t, czxid)
            }
            Request::CreateBehind(t, writer) => {
                // Without the writer the create is taken back at once.
                let Some(place) = self.znodes.iter().position(|znode| znode.czxid == writer) else { return };
                self.zxid += 1;
                let (czxid, session) = (self.zxid, self.processes[p].session);
                self.znodes.insert(place + 1, Znode { czxid, session, mode: Mode::Shared, of: (p, t) });
                self.children_changed();
                Told::Created(t, czxid)
            }
            Request::Delete(czxid) => return self.remove(czxid),
            Request::Watch { tenure, czxid } => {
                let stands = self.znodes.iter().any(|znode| znode.czxid == czxid);
                if stands {
                    self.processes[p].own.push((czxid, tenure));
                }
                Told::Watched(tenure, stands)
            }
            Request::List { tenure, czxid } => {
                self.processes[p].children = Some(tenure);
                let own = self.znodes.iter().find(|znode| znode.czxid == czxid).map(|own| own.mode);
                let is_beside = |mode| mode == Mode::Shared && own == Some(Mode::Shared);
                Told::Listed(tenure, self.znodes.iter().all(|znode| znode.czxid == czxid || is_beside(znode.mode)))
            }
        };
        self.processes[p].incoming.push_back(told);
    }

    pub(super) fn remove(&mut self, czxid: i64) {
        let before = self.znodes.len();
        self.znodes.retain(|znode| znode.czxid != czxid);
        if self.znodes.len() == before {
            return;
        }
        for process in self.processes.iter_mut().filter(|process| process.connection != 0) {
            let told: Vec<_> = process.own.extract_if(.., |(of, _)| *of == czxid).collect();
            process.incoming.extend(told.into_iter().map(|(_, tenure)| Told::Deleted(tenure)));
        }
        self.children_changed();
    }

    pub(super) fn children_changed(&mut self) {
        for process in &mut self.processes {
            if process.connection == 0 {
                process.has_missed = true;
            } else if let Some(tenure) = process.children.take() {
                process.incoming.push_back(Told::ChildrenChanged(tenure));
            }
        }
    }

    pub(super) fn deliver(&mut self, p: usize) {
        let process = &mut self.processes[p];
        let Some(told) = process.incoming.pop_front() else { return };
        match told {
            Told::Created(t, czxid) => match &mut process.threads[t] {
                Thread::Queueing { znode: znode @ Sought::Sent, .. }
                | Thread::Downgrading { znode: znode @ Sought::Sent, .. } => *znode = Sought::Stands(czxid),
                // The thread has given up.
                _ => process.outgoing.push_back(Request::Delete(czxid)),
            },
            Told::Watched(tenure, true) => {
                if let Some(node) = process.node(tenure) {
                    node.is_watched = true;
                }
            }
            Told::Watched(tenure, false) | Told::Deleted(tenure) => process.gone(tenure),
            Told::Listed(_, true) => {}
            Told::Listed(tenure, false) => process.rivals_came(tenure),
            Told::ChildrenChanged(tenure) if process.local_queue.looks_for_rivals(tenure) => {
                if let Some(czxid) = process.node(tenure).map(|node| node.czxid) {
                    process.outgoing.push_back(Request::List { tenure, czxid });
                }
            }
            Told::ChildrenChanged(tenure) => process.rivals_came(tenure),
        }
    }

    /// The messages on their way to the process are lost, but for their outcome.
    pub(super) fn cut(&mut self, p: usize) {
        let process = &mut self.processes[p];
        process.connection = 0;
        let unread = std::mem::take(&mut process.incoming);
        for told in unread {
            match told {
                Told::Listed(tenure, _) => process.rivals_came(tenure),
                // The session sets such a watch again.
                Told::ChildrenChanged(tenure) => {
                    process.children = Some(tenure);
                    process.has_missed = true;
                }
                Told::Deleted(tenure) => {
                    if let Some(czxid) = process.node(tenure).map(|node| node.czxid) {
                        process.own.push((czxid, tenure));
                    }
                }
                Told::Watched(tenure, _) => process.own.retain(|(_, of)| *of != tenure),
                Told::Created(..) => {}
            }
        }
        let unanswered = std::mem::take(&mut process.outgoing);
        for request in unanswered {
            match request {
                // The background goes on until the znode is known to be gone.
                Request::Delete(_) => process.outgoing.push_back(request),
                // Another contender may be there.
                Request::List { tenure, .. } => process.rivals_came(tenure),
                Request::Create(..) | Request::CreateBehind(..) | Request::Watch { .. } => {}
            }
        }
    }

    pub(super) fn reconnect(&mut self, p: usize) {
        if !self.lives(p) {
            return self.end(p);
        }
        let znodes = &self.znodes;
        let process = &mut self.processes[p];
        process.connections += 1;
        process.connection = process.connections;
        process.is_valid = true;
        let stands = |czxid: i64| znodes.iter().any(|znode| znode.czxid == czxid);
        let missed: Vec<_> = process.own.extract_if(.., |(czxid, _)| !stands(*czxid)).collect();
        process.incoming.extend(missed.into_iter().map(|(_, tenure)| Told::Deleted(tenure)));
        // The registry of held znodes asks again for the watch.
        let unwatched = process.nodes.iter().filter(|node| !node.is_gone && !node.is_watched);
        let again = unwatched.map(|node| Request::Watch { tenure: node.number, czxid: node.czxid });
        process.outgoing.extend(again);
        if std::mem::take(&mut process.has_missed)
            && let Some(tenure) = process.children.take()
        {
            process.incoming.push_back(Told::ChildrenChanged(tenure));
        }
        // A contender whose create got no answer looks for its znode.
        let mut known: Vec<i64> = process.nodes.iter().map(|node| node.czxid).collect();
        known.extend(process.outgoing.iter().filter_map(|request| match request {
            Request::Delete(czxid) => Some(*czxid),
            _ => None,
        }));
        let session = process.session;
        for thread in &process.threads {
            if let Thread::Queueing { znode: Sought::Stands(czxid), .. }
            | Thread::Downgrading { znode: Sought::Stands(czxid), .. }
            | Thread::Reading { czxid, .. } = thread
            {
                known.push(*czxid);
            }
        }
        let lost =
            znodes.iter().filter(|znode| znode.session == session && znode.of.0 == p && !known.contains(&znode.czxid));
        for znode in lost {
            match &mut process.threads[znode.of.1] {
                Thread::Queueing { znode: sought @ Sought::Sent, .. }
                | Thread::Downgrading { znode: sought @ Sought::Sent, .. } => *sought = Sought::Stands(znode.czxid),
                _ => process.outgoing.push_back(Request::Delete(znode.czxid)),
            }
        }
        for thread in &mut process.threads {
            if let Thread::Queueing { znode: sought @ Sought::Sent, .. }
            | Thread::Downgrading { znode: sought @ Sought::Sent, .. } = thread
            {
                *sought = Sought::Unsent;
            }
        }
    }

    /// The process learns that its session is gone; the next one begins.
    pub(super) fn end(&mut self, p: usize) {
        self.sessions += 1;
        let process = &mut self.processes[p];
        process.session = self.sessions;
        process.outgoing.clear();
        process.own.clear();
        process.children = None;
        process.has_missed = false;
        for node in &mut process.nodes {
            node.is_gone = true;
        }
        for thread in &mut process.threads {
            if let Thread::Queueing { znode, .. } | Thread::Downgrading { znode, .. } = thread {
                *znode = Sought::Unsent;
            }
        }
        let numbers: Vec<u64> = process.nodes.iter().map(|node| node.number).collect();
        for number in numbers {
            process.gone(number);
        }
        process.connections += 1;
        process.connection = process.connections;
        process.is_valid = true;
    }
}
