//! Carries out what was planned.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    Acl, CuratorFramework, perms,
    testing::{
        Direction, Fault, FaultProxy, InjectedFault, RequestMatch, TestingCluster, TestingError, expire_session, op,
    },
};
use nix::sys::signal::Signal;

use crate::{
    Group, Rule,
    party::Party,
    schedule::{FaultKind, Planned, Target},
    support::{self, PATIENCE, history::shared_clock, password_of},
    wall_clock::WallClock,
};

/// One that was done: from when to when, until all was as before.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub planned: Planned,
    pub from: u64,
    pub to: u64,
}

impl Done {
    pub fn concerns(&self, group: &Group, parties: &[Arc<Party>]) -> bool {
        match self.planned.target {
            Target::Servers => true,
            Target::Process(number) => parties[number].group.name == group.name,
            Target::Touched => matches!(group.rule, Rule::Touched),
        }
    }
}

pub struct Saboteur<'a> {
    pub parties: &'a [Arc<Party>],
    pub cluster: &'a TestingCluster,
    pub administrator: &'a CuratorFramework,
    /// One fault of the servers at a time: a quorum stays.
    servers: Mutex<()>,
    touched: Mutex<()>,
    /// And one of each process.
    processes: Vec<Mutex<()>>,
    done: Mutex<Vec<Done>>,
    /// The faults that could not be mended.
    broken: Mutex<Vec<String>>,
}

impl<'a> Saboteur<'a> {
    pub fn new(
        parties: &'a [Arc<Party>],
        cluster: &'a TestingCluster,
        administrator: &'a CuratorFramework,
    ) -> Saboteur<'a> {
        let processes = parties.iter().map(|_| Mutex::default()).collect();
        let (servers, touched, done, broken) = Default::default();
        Saboteur { parties, cluster, administrator, servers, touched, processes, done, broken }
    }

    /// Does each at its time, beside the others. Returns when all is as before what was done, and what could not be mended.
    pub fn carry_out(&self, plan: &[Planned]) -> (Vec<Done>, Vec<String>) {
        let begin = Instant::now();
        thread::scope(|scope| {
            for planned in plan {
                thread::sleep((begin + planned.at).saturating_duration_since(Instant::now()));
                scope.spawn(move || {
                    if catch_unwind(AssertUnwindSafe(|| self.do_one(planned))).is_err() {
                        self.broken.lock().unwrap().push(format!("{planned:?} was not mended"));
                    }
                });
            }
        });
        let mut done = std::mem::take(&mut *self.done.lock().unwrap());
        done.sort_by_key(|done| done.from);
        (done, std::mem::take(&mut *self.broken.lock().unwrap()))
    }

    fn do_one(&self, planned: &Planned) {
        let _alone = match planned.target {
            // One that is still broken needs no other fault.
            Target::Process(number) => self.processes[number].lock(),
            Target::Servers => self.servers.lock(),
            Target::Touched => self.touched.lock(),
        };
        let from = shared_clock();
        let was_done = match planned.target {
            Target::Process(number) => self.harm_process(planned, &self.parties[number]),
            Target::Servers => self.harm_servers(planned),
            Target::Touched => self.get_in_the_way(planned),
        };
        if was_done {
            self.done.lock().unwrap().push(Done { planned: *planned, from, to: shared_clock() });
        }
    }

    /// `false`: there was nothing to harm. A process may just not be there, or send no such request.
    fn harm_process(&self, planned: &Planned, party: &Party) -> bool {
        let length = planned.length;
        let each = |fault: &dyn Fn(&FaultProxy)| party.proxies.iter().for_each(fault);
        let for_a_while = |fault: &dyn Fn(&FaultProxy)| {
            each(fault);
            thread::sleep(length);
            each(&|proxy| proxy.pass().unwrap());
            true
        };
        let lose_reply = |requests: &dyn Fn() -> RequestMatch| {
            let lose = |proxy: &FaultProxy| proxy.inject(requests().times(1), Fault::CutInsteadOfReply);
            let injected: Vec<_> = party.proxies.iter().map(lose).collect();
            let end = Instant::now() + length;
            while injected.iter().all(|fault| fault.hits() == 0) && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
            injected.iter().for_each(InjectedFault::release);
            injected.iter().any(|fault| fault.hits() > 0)
        };
        match planned.kind {
            FaultKind::Pause => {
                let is_stopped = party.signal(Signal::SIGSTOP);
                thread::sleep(length);
                party.signal(Signal::SIGCONT);
                is_stopped
            }
            FaultKind::Kill => party.kill(),
            FaultKind::BlackHole => for_a_while(&|proxy| proxy.black_hole(Direction::Both)),
            FaultKind::BlackHoleToServer => for_a_while(&|proxy| proxy.black_hole(Direction::ToServer)),
            FaultKind::BlackHoleToClient => for_a_while(&|proxy| proxy.black_hole(Direction::ToClient)),
            FaultKind::Refuse => for_a_while(&FaultProxy::refuse),
            FaultKind::Delay => {
                let delay = [10, 80, 300].map(Duration::from_millis)[planned.number];
                for_a_while(&|proxy| proxy.delay(delay))
            }
            FaultKind::Cut => party.proxies.iter().map(FaultProxy::cut).sum::<usize>() > 0,
            FaultKind::Reset => party.proxies.iter().map(FaultProxy::reset).sum::<usize>() > 0,
            FaultKind::LostReplyToCreate => lose_reply(&RequestMatch::creates),
            FaultKind::LostReplyToDelete => lose_reply(&|| RequestMatch::op(op::DELETE)),
            FaultKind::LostReplyToMulti => lose_reply(&RequestMatch::transactions),
            FaultKind::Expiry => {
                let session = party.session();
                if session == 0 {
                    return false;
                }
                let from = shared_clock();
                // The session may have ended by itself, and the servers may be away.
                let ended = expire_session(&self.cluster.connect_string(), session, &password_of(session));
                let may_be_done = !matches!(ended, Err(TestingError::Refused(_)));
                if may_be_done {
                    party.history.lock().unwrap().ended_from_outside.push((session, from, shared_clock()));
                }
                may_be_done
            }
            FaultKind::WallClock => {
                party.wall_clock.step_to([-3600, 3600, 1][planned.number])
                    && party.pid().is_some_and(WallClock::has_ruled)
            }
            other => panic!("{other:?} is no fault of a process"),
        }
    }

    fn harm_servers(&self, planned: &Planned) -> bool {
        let (servers, length) = (self.cluster.servers(), planned.length);
        let leader = || self.cluster.wait_for_leader(PATIENCE).unwrap();
        let number = planned.number % servers.len();
        let one = &servers[number];
        let restart = |number: usize| {
            servers[number].kill().unwrap();
            thread::sleep(length);
            servers[number].launch().unwrap();
            servers[number].wait_until_serving(PATIENCE).unwrap();
        };
        match planned.kind {
            FaultKind::PausedServer => {
                one.pause().unwrap();
                thread::sleep(length);
                one.resume().unwrap();
            }
            FaultKind::KilledServer => restart(number),
            FaultKind::KilledLeader => restart(leader()),
            FaultKind::RollingRestart => (0..servers.len()).for_each(restart),
            FaultKind::CutOffServer
            | FaultKind::ServerCutOffOneWay
            | FaultKind::CutOffLeader
            | FaultKind::IsolatedServer => {
                let number = if planned.kind == FaultKind::CutOffLeader { leader() } else { number };
                let one_way =
                    [Direction::ToServer, Direction::ToClient][usize::from(length.subsec_micros().is_multiple_of(2))];
                match planned.kind {
                    FaultKind::IsolatedServer => self.cluster.isolate(number).unwrap(),
                    FaultKind::ServerCutOffOneWay => self.cluster.sever_way(number, one_way).unwrap(),
                    // It hears its clients.
                    _ => self.cluster.sever(number).unwrap(),
                }
                thread::sleep(length);
                self.cluster.mend(number).unwrap();
            }
            FaultKind::Load => {
                let ends = AtomicBool::new(false);
                thread::scope(|scope| {
                    for _ in 0..8 {
                        scope.spawn(|| {
                            while !ends.load(Relaxed) {
                                std::hint::spin_loop();
                            }
                        });
                    }
                    thread::sleep(length);
                    ends.store(true, Relaxed);
                });
            }
            other => panic!("{other:?} is no fault of the servers"),
        }
        self.cluster.wait_until_serving(PATIENCE).unwrap();
        true
    }

    /// Harms the locks that an administrator gets in the way of. `false`: the servers are away, or there is nothing.
    fn get_in_the_way(&self, planned: &Planned) -> bool {
        let (client, mut was_done) = (self.administrator, false);
        for group in crate::GROUPS.iter().filter(|group| matches!(group.rule, Rule::Touched)) {
            let path = format!("/{}", group.name);
            match planned.kind {
                FaultKind::DeletedZnode => {
                    let mut names = names_below(client, &path);
                    names.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
                    let first = names.first().map(|first| client.delete().for_path(&format!("{path}/{first}")));
                    was_done |= first.is_some_and(|deleted| deleted.is_ok());
                }
                FaultKind::DeletedDirectory => {
                    for name in names_below(client, &path) {
                        was_done |= client.delete().for_path(&format!("{path}/{name}")).is_ok();
                    }
                    was_done |= client.delete().for_path(&path).is_ok();
                }
                FaultKind::Permits => {
                    let acl = |perms| vec![Acl { perms, scheme: "world".into(), id: "anyone".into() }];
                    was_done |= client.set_acl().for_path(&path, acl(perms::READ | perms::ADMIN)).is_ok();
                    thread::sleep(planned.length);
                    support::eventually("the permits are back", || {
                        match client.set_acl().for_path(&path, acl(perms::ALL)) {
                            Ok(_) => true,
                            Err(error) => error.is_no_node(),
                        }
                    });
                }
                other => panic!("{other:?} is nothing that an administrator does"),
            }
        }
        was_done
    }
}

/// None where the servers do not answer or there is no such path.
fn names_below(client: &CuratorFramework, path: &str) -> Vec<String> {
    client.get_children().for_path(path).unwrap_or_default()
}
