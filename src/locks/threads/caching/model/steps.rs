//! A step of one thread.

use std::mem;

use super::{
    process::{Node, Omitted, Request, Sought, Thread, Told, Wish, base, limits},
    world::World,
};
use crate::locks::threads::caching::{
    look::is_certain,
    turns::{Mode, Turn},
};

impl World {
    pub(super) fn step(&mut self, p: usize, t: usize) -> Result<(), String> {
        let limits = limits();
        let wish = self.wish(p, t);
        let process = &mut self.processes[p];
        match process.threads[t] {
            Thread::Outside { rounds } => {
                process.last_waiter += 1;
                (process.waiters[t], process.modes[t]) = (process.last_waiter, wish.mode());
                let (turn, next) = process.turns.come(process.waiters[t], wish.mode(), wish.only_tries());
                process.turned(t, rounds, turn);
                process.follow(next);
            }
            Thread::Seeking { rounds, znode: Sought::Unsent } => {
                process.outbox.push_back(Request::Create(t, wish.mode()));
                process.threads[t] = Thread::Seeking { rounds, znode: Sought::Sent };
                let next = process.turns.created(process.waiters[t]);
                process.follow(next);
            }
            Thread::Seeking { rounds, znode: Sought::Stands(czxid) } => {
                if !self.znodes.iter().any(|znode| znode.czxid == czxid) {
                    process.threads[t] = Thread::Seeking { rounds, znode: Sought::Unsent };
                    return Ok(());
                }
                let (turn, number, next) = process
                    .turns
                    .granted(process.waiters[t], process.tells_in_order, base())
                    .ok_or("granted to nobody")?;
                let seen_over = process.connection;
                process.nodes.push(Node { number, czxid, seen_over, is_watched: false, is_gone: false });
                process.outbox.push_back(Request::Watch { tenure: number, czxid });
                process.turned(t, rounds, turn);
                if let Thread::Looking { has_seen, .. } = &mut process.threads[t] {
                    *has_seen = true;
                }
                process.follow(next);
            }
            Thread::Looking { rounds, tenure, grant, has_seen, confirmed_over } => {
                let footing = process.footing(tenure, self.omitted);
                let is_confirmed = Turn::Hold { tenure, grant }.is_first() || confirmed_over == process.connection;
                if is_certain(&footing, is_confirmed) {
                    let before = mem::replace(&mut process.entered, tenure);
                    if before == tenure && !process.tells_in_order {
                        return Err("a tenure outlasts its first hold, and what happens to it is told too late".into());
                    }
                    process.threads[t] = Thread::Inside { rounds, tenure, grant };
                    return self.entered(p, t, tenure, grant, has_seen || confirmed_over == footing.connection);
                } else if footing.is_gone {
                    let (who, only_tries) = (process.waiters[t], wish.only_tries());
                    let (turn, next) = process.turns.come_again(who, wish.mode(), (tenure, grant), only_tries);
                    process.turned(t, rounds, turn);
                    process.follow(next);
                } else {
                    self.ask(p, t, tenure);
                }
            }
            Thread::Inside { rounds, tenure, grant } if wish == Wish::WriteThenRead => {
                let next = process.turns.ends_with_turn(tenure);
                process.follow(next);
                process.threads[t] = Thread::Downgrading { rounds, tenure, grant, znode: Sought::Unsent };
            }
            Thread::Inside { rounds, tenure, grant } => {
                process.threads[t] = Thread::Outside { rounds: rounds - 1 };
                let next = process.turns.release(tenure, grant, &limits, base());
                process.follow(next);
            }
            Thread::Downgrading { rounds, tenure, grant, znode } => {
                let footing = process.footing(tenure, Omitted::Nothing);
                let czxid = process.node(tenure).map_or(0, |node| node.czxid);
                if footing.is_gone {
                    process.threads[t] = Thread::Outside { rounds: rounds - 1 };
                    if let Sought::Stands(czxid) = znode {
                        process.outbox.push_back(Request::Delete(czxid));
                    }
                } else if let Sought::Stands(czxid) = znode {
                    let session = process.session;
                    process.threads[t] = Thread::Reading { rounds, czxid, session };
                } else {
                    process.outbox.push_back(Request::CreateBehind(t, czxid));
                    process.threads[t] = Thread::Downgrading { rounds, tenure, grant, znode: Sought::Sent };
                    return Ok(());
                }
                let next = process.turns.release(tenure, grant, &limits, base());
                process.follow(next);
            }
            Thread::Reading { rounds, czxid, session } => {
                process.threads[t] = Thread::Outside { rounds: rounds - 1 };
                if session == process.session {
                    process.outbox.push_back(Request::Delete(czxid));
                }
            }
            Thread::Waiting { .. } | Thread::Seeking { .. } => {}
        }
        Ok(())
    }

    /// The server is asked whether the znode stands; what comes before the answer is told before it.
    pub(super) fn ask(&mut self, p: usize, t: usize, tenure: u64) {
        while !self.processes[p].outbox.is_empty() {
            self.serve(p);
        }
        while !self.processes[p].inbox.is_empty() {
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
            // Whoever has just asked may have a watch that is yet to come, as any lock has in its first moments.
            let is_told = process.inbox.iter().any(tells) || has_asked && process.outbox.iter().any(asks);
            return if is_told {
                Ok(())
            } else {
                Err("the znode is gone, and nothing will tell its holder".to_owned())
            };
        }
        // Readers beside each other are in no order.
        let is_writer = self.wish(p, t).mode() == Mode::Exclusive;
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
