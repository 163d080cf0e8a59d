//! A step of one thread.

use std::mem;

use super::{
    process::{Node, Omitted, Process, Request, Sought, Task, Thread, Told, base, limits},
    world::World,
};
use crate::locks::threads::caching::local_queue::{Mode, Turn};

impl World {
    pub(super) fn step(&mut self, p: usize, t: usize) -> Result<(), String> {
        let limits = limits();
        let task = self.task(p, t);
        let process = &mut self.processes[p];
        match process.threads[t] {
            Thread::Outside { rounds } => {
                process.last_waiter += 1;
                (process.waiters[t], process.modes[t]) = (process.last_waiter, task.mode());
                let (turn, next) = process.local_queue.enter(process.waiters[t], task.mode(), task.only_tries());
                process.turned(t, rounds, turn);
                process.follow(next);
            }
            Thread::Queueing { rounds, znode: Sought::Unsent } => {
                process.outgoing.push_back(Request::Create(t, task.mode()));
                process.threads[t] = Thread::Queueing { rounds, znode: Sought::Sent };
                let next = process.local_queue.created(process.waiters[t]);
                process.follow(next);
            }
            Thread::Queueing { rounds, znode: Sought::Stands(czxid) } => {
                if !self.znodes.iter().any(|znode| znode.czxid == czxid) {
                    process.threads[t] = Thread::Queueing { rounds, znode: Sought::Unsent };
                    return Ok(());
                }
                let (turn, number, next) = process
                    .local_queue
                    .granted(process.waiters[t], process.tells_in_order, base())
                    .ok_or("granted to nobody")?;
                let seen_over = process.connection;
                process.nodes.push(Node { number, czxid, seen_over, is_watched: false, is_gone: false });
                process.outgoing.push_back(Request::Watch { tenure: number, czxid });
                process.turned(t, rounds, turn);
                if let Thread::Looking { has_seen, .. } = &mut process.threads[t] {
                    *has_seen = true;
                }
                process.follow(next);
            }
            Thread::Looking { rounds, tenure, grant, has_seen, confirmed_over } => {
                let (evidence, connection) = (process.evidence(tenure, self.omitted), process.connection);
                let is_confirmed = Turn::Hold { tenure, grant }.is_first() || confirmed_over == process.connection;
                if Process::is_certain(&evidence, is_confirmed) {
                    let before = mem::replace(&mut process.entered, tenure);
                    if before == tenure && !process.tells_in_order {
                        return Err("a tenure outlasts its first hold, and what happens to it is told too late".into());
                    }
                    process.threads[t] = Thread::Inside { rounds, tenure, grant };
                    return self.entered(p, t, tenure, grant, has_seen || confirmed_over == connection);
                } else if evidence.is_gone {
                    let (who, only_tries) = (process.waiters[t], task.only_tries());
                    let (turn, next) = process.local_queue.enter_again(who, task.mode(), (tenure, grant), only_tries);
                    process.turned(t, rounds, turn);
                    process.follow(next);
                } else {
                    self.ask(p, t, tenure);
                }
            }
            Thread::Inside { rounds, tenure, grant } if task == Task::WriteThenRead => {
                let next = process.local_queue.ends_with_turn(tenure);
                process.follow(next);
                process.threads[t] = Thread::Downgrading { rounds, tenure, grant, znode: Sought::Unsent };
            }
            Thread::Inside { rounds, tenure, grant } => {
                process.threads[t] = Thread::Outside { rounds: rounds - 1 };
                let next = process.local_queue.release(tenure, grant, &limits, base());
                process.follow(next);
            }
            Thread::Downgrading { rounds, tenure, grant, znode } => {
                let evidence = process.evidence(tenure, Omitted::Nothing);
                let czxid = process.node(tenure).map_or(0, |node| node.czxid);
                if evidence.is_gone {
                    process.threads[t] = Thread::Outside { rounds: rounds - 1 };
                    if let Sought::Stands(czxid) = znode {
                        process.outgoing.push_back(Request::Delete(czxid));
                    }
                } else if let Sought::Stands(czxid) = znode {
                    let session = process.session;
                    process.threads[t] = Thread::Reading { rounds, czxid, session };
                } else {
                    process.outgoing.push_back(Request::CreateBehind(t, czxid));
                    process.threads[t] = Thread::Downgrading { rounds, tenure, grant, znode: Sought::Sent };
                    return Ok(());
                }
                let next = process.local_queue.release(tenure, grant, &limits, base());
                process.follow(next);
            }
            Thread::Reading { rounds, czxid, session } => {
                process.threads[t] = Thread::Outside { rounds: rounds - 1 };
                if session == process.session {
                    process.outgoing.push_back(Request::Delete(czxid));
                }
            }
            Thread::Waiting { .. } | Thread::Queueing { .. } => {}
        }
        Ok(())
    }

    /// Asks the server whether the znode stands; events from before the answer are told before it.
    pub(super) fn ask(&mut self, p: usize, t: usize, tenure: u64) {
        while !self.processes[p].outgoing.is_empty() {
            self.serve(p);
        }
        while !self.processes[p].incoming.is_empty() {
            self.deliver(p);
        }
        let czxid = self.processes[p].node(tenure).map(|node| node.czxid);
        let stands = self.znodes.iter().any(|znode| Some(znode.czxid) == czxid);
        let process = &mut self.processes[p];
        let connection = process.connection;
        if stands {
            if let Some(node) = process.node(tenure) {
                node.seen_over = connection;
            }
            if let Thread::Looking { confirmed_over, .. } = &mut process.threads[t] {
                *confirmed_over = connection;
            }
        } else {
            process.gone(tenure);
        }
    }

    pub(super) fn entered(
        &mut self,
        p: usize,
        t: usize,
        tenure: u64,
        grant: u64,
        has_asked: bool,
    ) -> Result<(), String> {
        let czxid = self.processes[p].node(tenure).map_or(0, |node| node.czxid);
        if self.forgiven.contains(&czxid) {
            let process = &self.processes[p];
            let tells = |told: &Told| matches!(told, Told::Deleted(of) | Told::Watched(of, _) if *of == tenure);
            let asks = |request: &Request| matches!(request, Request::Watch { tenure: of, .. } if *of == tenure);
            // A thread that has just asked may have a watch that is yet to come, as any lock has in its first moments.
            let is_told = process.incoming.iter().any(tells) || has_asked && process.outgoing.iter().any(asks);
            return if is_told {
                Ok(())
            } else {
                Err("the znode is gone, and nothing will tell its holder".to_owned())
            };
        }
        // Readers beside each other are in no order.
        let is_writer = self.task(p, t).mode() == Mode::Exclusive;
        let before = if is_writer { self.last } else { self.last_write };
        if (czxid, grant) <= before {
            return Err(format!("the token {:?} is no greater than {before:?}", (czxid, grant)));
        }
        self.last = self.last.max((czxid, grant));
        if is_writer {
            self.last_write = (czxid, grant);
        }
        Ok(())
    }
}
