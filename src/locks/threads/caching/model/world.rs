//! Two processes, and the server between them.

use super::process::{Omitted, Process, ROUNDS, Task, Tasks};
use crate::locks::threads::caching::local_queue::Mode;

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// The znodes, in the order of the queue.
    pub(super) znodes: Vec<Znode>,
    pub(super) zxid: i64,
    pub(super) sessions: u8,
    pub(super) dead: Vec<u8>,
    pub(super) processes: Vec<Process>,
    pub(super) faults: u8,
    pub(super) omitted: Omitted,
    pub(super) tasks: Tasks,
    /// The znodes that somebody deleted while they were first: their owners may not know yet.
    pub(super) forgiven: Vec<i64>,
    /// The largest token of all, and of a writer.
    pub(super) last: (i64, u64),
    pub(super) last_write: (i64, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Znode {
    pub(super) czxid: i64,
    pub(super) session: u8,
    pub(super) mode: Mode,
    /// The process and the thread whose create it was.
    pub(super) of: (usize, usize),
}

impl World {
    pub(super) fn new(tasks: Tasks, processes: Vec<Process>, faults: u8, omitted: Omitted) -> World {
        let (znodes, dead, forgiven) = (Vec::new(), Vec::new(), Vec::new());
        let (last, last_write) = ((0, 0), (0, 0));
        World { znodes, zxid: 0, sessions: 2, dead, processes, faults, omitted, tasks, forgiven, last, last_write }
    }

    /// The task of a thread, in the round that it is in.
    pub(super) fn task(&self, p: usize, t: usize) -> Task {
        let rounds = usize::from(self.processes[p].threads[t].rounds());
        self.tasks[p][t][rounds.saturating_sub(1) % ROUNDS]
    }

    pub(super) fn stands(&self, czxid: i64) -> bool {
        self.znodes.iter().any(|znode| znode.czxid == czxid)
    }

    /// A writer is granted the lock as the first of all, a reader if no writer is in front.
    pub(super) fn is_granted(&self, czxid: i64) -> bool {
        let in_front = self.znodes.iter().take_while(|znode| znode.czxid != czxid);
        let own = self.znodes.iter().find(|znode| znode.czxid == czxid);
        own.is_some_and(|own| in_front.into_iter().all(|other| own.mode == Mode::Shared && other.mode == Mode::Shared))
    }

    pub(super) fn lives(&self, p: usize) -> bool {
        !self.dead.contains(&self.processes[p].session)
    }
}
