//! Injects the faults of a plan at their times, and heals everything in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    slice,
    time::Duration,
};

use super::{
    notes::Notes,
    plan::{Direction, Fault, Kind, LOWERED, Link, Loss, Plan, Target},
};
use crate::{
    Acl,
    proto::types::perms,
    sim::{
        check::history::{At, Ending, Facts},
        ensemble::{
            Ensemble, Output, Throttle, Tree, Txn,
            faults::{Isolated, Tail},
            looks::Happened,
        },
        network::faults::{Accepts, Cut, Death, Links, Lost, NameService, RequestFault, Way},
        process::Process,
        world::World,
    },
};

/// How long the servers may take to be at work again after the last fault.
const TO_WORK: Duration = Duration::from_secs(5);

/// The thread that knows true time, and brings the faults about.
pub(super) struct Director<'a> {
    pub(super) world: &'a World,
    pub(super) plan: &'a Plan,
    pub(super) notes: &'a Notes,
    pub(super) processes: Vec<Process>,
    /// What ends when, by the number of the fault.
    ends: BTreeMap<(At, usize), Fault>,
    /// Processes that can reach no server.
    away: BTreeSet<usize>,
    /// Until when processes stand still.
    paused_until: At,
    begun: At,
    /// When the last fault that takes time ended.
    last_end: At,
    /// The server that each fault was about.
    servers: BTreeMap<usize, usize>,
}

impl<'a> Director<'a> {
    pub(super) fn new(world: &'a World, plan: &'a Plan, notes: &'a Notes, processes: Vec<Process>) -> Director<'a> {
        let (ends, away, servers) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let (begun, none) = (world.now(), At::ZERO);
        let director =
            Director { world, plan, notes, processes, ends, away, paused_until: none, begun, last_end: none, servers };
        for process in 0..director.processes.len() {
            director.set_latency(process);
        }
        director
    }

    /// Works the plan's faults off, and looks at what is promised in between.
    pub(super) fn run(&mut self) {
        let begin = self.begun;
        for (number, planned) in self.plan.faults.iter().enumerate() {
            self.until(begin + planned.at);
            self.begin(number, &planned.fault);
        }
        self.until(begin + self.plan.lasts);
        self.heal();
    }

    /// Sleeps until then, ends the faults that are over meanwhile, and samples promises and deletes.
    pub(super) fn until(&mut self, at: At) {
        let often = self.plan.timeout / 40;
        loop {
            let now = self.world.now();
            while let Some(end) = self.ends.first_entry().filter(|end| end.key().0 <= now) {
                let ((_, number), fault) = (*end.key(), end.remove());
                self.end(number, &fault);
            }
            self.audit();
            if now >= at {
                return;
            }
            let next = self.ends.keys().next().map_or(at, |(end, _)| at.min(*end));
            self.world.sleep(next.saturating_sub(now).min(often));
        }
    }

    /// Notes what is promised now, and which znodes have gone.
    pub(super) fn audit(&self) {
        self.notes.sample();
        let (happened, stands) = self.world.ensemble(|ensemble, _, _| {
            let of_locks = |tree: &Tree| tree.nodes().map(|(path, _)| path.to_owned()).collect::<BTreeSet<String>>();
            (ensemble.take_journal(), ensemble.leader().map(|leader| of_locks(ensemble.tree(leader))))
        });
        self.notes.facts(|facts| {
            for (at, happened) in &happened {
                match happened {
                    Happened::Committed(entry) => {
                        if let Txn::CloseSession { .. } = entry.txn {
                            facts.ended.insert(entry.session, *at);
                        }
                        changed(&entry.txn, (*at, entry.zxid), facts);
                    }
                    Happened::Expired(session) => facts.expired.push((*at, *session)),
                    _ => {}
                }
            }
            // No journal has the deletes that a leader took over from the one before.
            if let Some(stands) = stands {
                facts.made.retain(|path, _| facts.gone.contains_key(path) || stands.contains(path));
            }
        });
    }

    fn servers<T>(&self, act: impl FnOnce(&mut Ensemble, Duration, &mut Vec<Output>) -> T) -> T {
        self.world.ensemble(act)
    }

    fn server(&mut self, number: usize, target: Target) -> usize {
        let server = match target {
            Target::Server(server) => server,
            Target::Leader => self.servers(|ensemble, _, _| ensemble.leader()).unwrap_or(0),
        };
        self.servers.insert(number, server);
        server
    }

    fn links(&self, link: Link) -> Vec<Links> {
        let processes =
            (0..self.processes.len()).filter(|process| link.process.is_none_or(|wanted| wanted == *process));
        let of = |process: usize| Links { server: link.server, ..self.of_process(process) };
        processes.filter(|process| !self.away.contains(process)).map(of).collect()
    }

    fn of_process(&self, process: usize) -> Links {
        self.processes[process].links()
    }

    fn set_latency(&self, process: usize) {
        let latency = self.plan.processes[process].latency;
        self.world.network().delay(self.of_process(process), latency..=latency + latency / 4);
    }

    fn lasts(&mut self, number: usize, fault: &Fault, lasts: Duration) -> (At, At) {
        let now = self.world.now();
        self.ends.insert((now + lasts, number), fault.clone());
        (now, now + lasts)
    }

    fn begin(&mut self, number: usize, fault: &Fault) {
        self.notes.count(&format!("faults: {}", fault.name()));
        self.world.note(fault.name());
        let network = self.world.network();
        match fault {
            Fault::Cut { link, is_reset } => {
                let how = if *is_reset { Cut::Reset } else { Cut::Fin };
                self.links(*link).into_iter().for_each(|links| network.cut(links, how));
            }
            Fault::BlackHole { link, way, lasts } => {
                let way = match way {
                    Direction::Both => Way::Both,
                    Direction::ToServer => Way::ToServer,
                    Direction::ToClient => Way::ToClient,
                };
                self.links(*link).into_iter().for_each(|links| network.black_hole(links, way));
                self.lasts(number, fault, *lasts);
            }
            Fault::Delay { link, latency, lasts } => {
                self.links(*link).into_iter().for_each(|links| network.delay(links, *latency / 2..=*latency));
                self.lasts(number, fault, *lasts);
            }
            Fault::Refuse { link, lasts } => {
                for links in self.links(*link) {
                    network.refuse(links);
                    network.cut(links, Cut::Reset);
                }
                self.lasts(number, fault, *lasts);
            }
            Fault::Away { process, lasts } => {
                if self.away.insert(*process) {
                    let links = self.of_process(*process);
                    network.refuse(links);
                    if number.is_multiple_of(2) {
                        network.cut(links, Cut::Reset);
                    } else {
                        network.black_hole(links, Way::Both);
                    }
                    let (from, to) = self.lasts(number, fault, *lasts);
                    self.notes.facts(|facts| facts.away.push((*process, from, to)));
                }
            }
            Fault::Lose { process, op, times, how } => {
                let lost = match how {
                    Loss::RequestAndCut => Lost::RequestAndCut,
                    Loss::AfterRequestCut => Lost::AfterRequestCut,
                    Loss::ReplyAndCut => Lost::ReplyAndCut,
                    Loss::ReplyStays => Lost::ReplyStays,
                    Loss::RequestStays => Lost::RequestStays,
                };
                let links = self.of_process(*process);
                // Heartbeats are about the root, and would use up every other one.
                let spares = number.is_multiple_of(2);
                let accepts: Accepts = Box::new(move |_, path| !spares || path != Some("/"));
                let fault = RequestFault { links, op: Some(*op), skip: 0, times: *times, lost };
                network.inject_into(fault, Some(accepts));
            }
            Fault::Names { lasts, is_silent } => {
                network.name_service(if *is_silent { NameService::Silent } else { NameService::Fails });
                self.lasts(number, fault, *lasts);
            }
            Fault::Permits { .. }
            | Fault::DeleteZnode { .. }
            | Fault::DeleteDirectory { .. }
            | Fault::Expire { .. } => {
                self.administer(number, fault);
            }
            Fault::Pause { process, lasts } | Fault::MachineSleeps { process, lasts } => {
                let now = self.world.now();
                let times = (*process, now, now + *lasts);
                let sleeps = matches!(fault, Fault::MachineSleeps { .. });
                self.notes.sample();
                self.notes.facts(|facts| facts.paused.push(times));
                if sleeps {
                    self.processes[*process].machine_sleeps(*lasts);
                } else {
                    self.processes[*process].pause(*lasts);
                }
                self.paused_until = self.paused_until.max(now + *lasts);
            }
            Fault::Kill { process, is_silent } => {
                self.notes.died(*process);
                self.processes[*process].kill(if *is_silent { Death::Silent } else { Death::Reset });
            }
            _ => self.strike_servers(number, fault),
        }
    }

    fn strike_servers(&mut self, number: usize, fault: &Fault) {
        match fault {
            Fault::Crash { server, lasts, is_hard } => {
                let (server, tail) = (self.server(number, *server), if *is_hard { Tail::Lost } else { Tail::Kept });
                self.servers(|ensemble, now, out| ensemble.crash(server, tail, now, out));
                self.lasts(number, fault, *lasts);
            }
            Fault::StopUntilLeft { lasts } => {
                let server = self.server(number, Target::Leader);
                self.servers(|ensemble, now, _| ensemble.pause(server, now));
                self.lasts(number, fault, *lasts);
            }
            Fault::StopServer { server, lasts } => {
                let server = self.server(number, *server);
                self.servers(|ensemble, now, _| ensemble.pause(server, now));
                self.lasts(number, fault, *lasts);
            }
            Fault::StopUntilDue { longer } => {
                let (server, due) = self.wait_for_due();
                self.server(number, Target::Server(server));
                self.servers(|ensemble, now, _| ensemble.pause(server, now));
                self.lasts(number, fault, due + *longer);
            }
            Fault::StopAll { lasts } => {
                self.servers(|ensemble, now, _| (0..ensemble.servers()).for_each(|server| ensemble.pause(server, now)));
                self.lasts(number, fault, *lasts);
            }
            Fault::Elect => {
                let to = number % self.plan.servers;
                self.servers(|ensemble, now, out| ensemble.transfer_leadership(to, now, out));
            }
            Fault::Isolate { server, lasts } => {
                let server = self.server(number, *server);
                let how = [Isolated::Both, Isolated::In, Isolated::Out][number % 3];
                self.servers(|ensemble, now, _| ensemble.isolate(server, how, now));
                let times = self.lasts(number, fault, *lasts);
                if self.leads(server) {
                    self.notes.facts(|facts| facts.isolated.push(times));
                }
            }
            Fault::Lag { server, lasts } => {
                let (server, lag) = (self.server(number, Target::Server(*server)), *lasts);
                self.servers(|ensemble, _, _| ensemble.set_lag(server, lag));
                self.lasts(number, fault, self.plan.timeout);
            }
            Fault::Throttle { lasts } => {
                let throttle =
                    if number.is_multiple_of(2) { Throttle::Refuse } else { Throttle::Delay(self.plan.timeout / 10) };
                self.servers(|ensemble, _, _| {
                    (0..ensemble.servers()).for_each(|server| ensemble.set_throttle(server, throttle));
                });
                self.lasts(number, fault, *lasts);
            }
            Fault::Lower { lasts } => {
                // A session that is made meanwhile keeps this timeout, and locks work up to a round trip of 0.3 of it.
                let slowest = self.plan.processes.iter().map(|process| process.latency).max().unwrap_or_default();
                let most = (self.plan.timeout / LOWERED).max(slowest * 10).min(self.plan.timeout);
                self.servers(|ensemble, _, _| ensemble.grant_at_most(most));
                self.world.network().cut(Links::all(), Cut::Reset);
                let (from, to) = self.lasts(number, fault, *lasts);
                self.notes.facts(|facts| facts.lowered.push((from, to, most)));
            }
            _ => {}
        }
    }

    /// Waits, a session timeout at most, for a follower with a session that is due so soon that its client still waits for an
    /// answer then. Which follower, and for how long its client waits at most.
    fn wait_for_due(&mut self) -> (usize, Duration) {
        let (timeout, begin) = (self.plan.timeout, self.world.now());
        let soon = timeout * 13 / 20;
        loop {
            let now = self.world.now();
            let first = self.servers(|ensemble, _, _| ensemble.first_due_at_a_follower());
            let (due, server) = first.map_or((soon, 0), |(due, server)| (due.saturating_sub(now), server));
            if due < soon || now > begin + timeout {
                return (server, due.min(soon));
            }
            self.until(now + timeout / 80);
        }
    }

    fn end(&mut self, number: usize, fault: &Fault) {
        self.last_end = self.world.now();
        let network = self.world.network();
        match fault {
            Fault::BlackHole { link, .. } | Fault::Delay { link, .. } | Fault::Refuse { link, .. } => {
                self.links(*link).into_iter().for_each(|links| network.heal(links));
                (0..self.processes.len())
                    .filter(|process| !self.away.contains(process))
                    .for_each(|process| self.set_latency(process));
            }
            Fault::Away { process, .. } => {
                self.away.remove(process);
                network.heal(self.of_process(*process));
                self.set_latency(*process);
            }
            Fault::Names { .. } => network.name_service(NameService::Works),
            Fault::Permits { place, .. } => self.give_back(number, *place, fault),
            _ => self.end_at_servers(number, fault),
        }
    }

    /// Whether a server leads others, which it may be cut off from.
    fn leads(&self, server: usize) -> bool {
        self.plan.servers > 1 && self.servers(|ensemble, _, _| ensemble.believes_to_lead(server))
    }

    fn end_at_servers(&mut self, number: usize, fault: &Fault) {
        let server = self.servers.get(&number).copied().unwrap_or(0);
        let most = self.plan.timeout;
        if let Fault::Isolate { lasts, .. } = fault
            && self.leads(server)
        {
            // It has become the leader meanwhile.
            let now = self.world.now();
            self.notes.facts(|facts| facts.isolated.push((now.saturating_sub(*lasts), now)));
        }
        self.servers(|ensemble, now, out| match fault {
            Fault::Crash { .. } => ensemble.restart(server, now),
            Fault::StopServer { .. } | Fault::StopUntilDue { .. } | Fault::StopUntilLeft { .. } => {
                ensemble.resume(server, now, out);
            }
            Fault::StopAll { .. } => (0..ensemble.servers()).for_each(|server| ensemble.resume(server, now, out)),
            Fault::Isolate { .. } => ensemble.mend(server, now),
            Fault::Lag { .. } => ensemble.set_lag(server, Duration::ZERO),
            Fault::Throttle { .. } => {
                (0..ensemble.servers()).for_each(|server| ensemble.set_throttle(server, Throttle::Off));
            }
            Fault::Lower { .. } => ensemble.grant_at_most(most),
            _ => {}
        });
        if let Fault::StopUntilLeft { .. } = fault {
            for other in (0..self.plan.servers).filter(|other| *other != server) {
                let links = self.links(Link { process: None, server: Some(other) });
                links.into_iter().for_each(|links| self.world.network().refuse(links));
            }
            // A handshake that waited is too old to be believed for long.
            self.world.network().cut(Links::all(), Cut::Reset);
            let link = Link { process: None, server: None };
            let lasts = self.plan.timeout * 3 / 2;
            self.lasts(number, &Fault::Refuse { link, lasts }, lasts);
        }
        if matches!(fault, Fault::Lower { .. }) {
            // Sessions get their timeouts back with their next connection.
            self.world.network().cut(Links::all(), Cut::Reset);
        }
    }

    /// Ends all faults. From here on everybody has to be served.
    fn heal(&mut self) {
        for ((_, number), fault) in std::mem::take(&mut self.ends) {
            self.end(number, &fault);
        }
        self.world.network().inject_no_more();
        let now = self.world.now();
        self.notes.facts(|facts| {
            facts.isolated.iter_mut().for_each(|(_, to)| *to = (*to).min(now));
            facts.lowered.iter_mut().for_each(|(_, to, _)| *to = (*to).min(now));
            facts.away.iter_mut().for_each(|(_, _, to)| *to = (*to).min(now));
        });
        let servers = self.plan.servers;
        self.servers(|ensemble, now, out| {
            for server in 0..servers {
                ensemble.mend(server, now);
                ensemble.resume(server, now, out);
                ensemble.restart(server, now);
            }
        });
        let healed = self.paused_until.max(self.world.now()) + TO_WORK * 2;
        while !self.ends.is_empty() {
            self.until(self.world.now() + Duration::from_millis(500));
        }
        self.until(self.world.now() + TO_WORK);
        // A leader that was cut off may have been asked before.
        for (number, planned) in self.plan.faults.iter().enumerate() {
            if let Fault::Permits { place, .. } = planned.fault {
                self.permit(place, number, Acl::open_unsafe());
            }
        }
        self.notes.facts(|facts| facts.healed = Some(healed));
    }

    /// A directory of a place: mostly the one in which its contenders are.
    fn directory(&self, place: usize, number: usize) -> String {
        let path = &self.plan.places[place].path;
        match self.plan.places[place].kind {
            Kind::SemaphoreMutex | Kind::Semaphore(_) if number % 4 == 2 => format!("{path}/locks"),
            Kind::SemaphoreMutex | Kind::Semaphore(_) | Kind::Unfair if number % 4 == 3 => path.clone(),
            Kind::SemaphoreMutex | Kind::Semaphore(_) => format!("{path}/leases"),
            Kind::Unfair => format!("{path}/lock/holder"),
            _ => path.clone(),
        }
    }

    fn administer(&mut self, number: usize, fault: &Fault) {
        match fault {
            Fault::DeleteZnode { place, rank } => {
                // A semaphore has two directories.
                let below =
                    if rank % 2 == 0 { self.directory(*place, 0) } else { self.plan.places[*place].path.clone() };
                let mut paths = self.contenders(&below);
                paths.sort_by_key(|path| path.get(path.len().saturating_sub(10)..).map(str::to_owned));
                if let Some(path) = paths.get(*rank) {
                    self.delete(number, path);
                }
            }
            Fault::DeleteDirectory { place, times } => {
                let directory = self.directory(*place, number);
                for _ in 0..*times {
                    self.delete(number, &directory);
                    let now = self.world.now();
                    self.world.sleep(Duration::from_millis(1 + u64::from(*times)));
                    self.paused_until = self.paused_until.max(now);
                }
            }
            Fault::Expire { process } => {
                if let Some(session) = self.session(*process + number) {
                    self.notes.sample();
                    let at = self.world.now();
                    let is_calm = self.is_calm(number);
                    self.notes.facts(|facts| {
                        facts.closed.entry(session).or_default().push(Ending { at, is_calm });
                    });
                    self.servers(|ensemble, now, out| ensemble.expire(session, now, out));
                }
            }
            Fault::Permits { place, lasts, only_read } => {
                let left = if *only_read { perms::ALL & !perms::READ } else { perms::READ };
                let acl = Acl::open_unsafe().into_iter().map(|acl| Acl { perms: left, ..acl }).collect();
                self.permit(*place, number, acl);
                self.lasts(number, fault, *lasts);
            }
            _ => {}
        }
    }

    /// Whether nothing is wrong beside this fault, was so for two session timeouts, and will be so for a while.
    fn is_calm(&self, number: usize) -> bool {
        let at = |number: usize| self.plan.faults.get(number).map(|planned| planned.at);
        let now = at(number).unwrap_or_default();
        let before = number.checked_sub(1).and_then(at).unwrap_or_default();
        let last = self.last_end.max(self.paused_until).saturating_sub(self.begun);
        let since = now.saturating_sub(before.max(last));
        let next = at(number + 1).is_none_or(|next| next >= now + Duration::from_secs(2));
        let is_whole = self.ends.is_empty() && !self.world.network().injects();
        is_whole && self.plan.stall.is_zero() && since > self.plan.timeout * 2 && next
    }

    /// `false`: there was no leader to ask.
    fn permit(&self, place: usize, number: usize, acl: Vec<Acl>) -> bool {
        let directory = self.directory(place, number);
        self.servers(|ensemble, now, out| ensemble.set_acl(&directory, acl, now, out))
    }

    /// Gives permits back, later if there is no leader.
    fn give_back(&mut self, number: usize, place: usize, fault: &Fault) {
        if !self.permit(place, number, Acl::open_unsafe()) {
            self.ends.insert((self.world.now() + Duration::from_millis(500), number), fault.clone());
        }
    }

    /// The ephemeral znodes below a directory.
    fn contenders(&self, directory: &str) -> Vec<String> {
        self.servers(|ensemble, _, _| {
            let Some(leader) = ensemble.leader() else { return Vec::new() };
            let below = format!("{directory}/");
            let nodes = ensemble.tree(leader).nodes();
            nodes
                .filter(|(path, node)| node.owner() != 0 && path.starts_with(&below))
                .map(|(path, _)| path.to_owned())
                .collect()
        })
    }

    /// An administrator deletes a znode and everything below it.
    fn delete(&self, number: usize, path: &str) {
        let is_calm = self.is_calm(number);
        let mut paths = self.contenders(path);
        paths.push(path.to_owned());
        self.notes.sample();
        let now = self.world.now();
        self.notes.facts(|facts| {
            for path in paths {
                facts.deleted.entry(path).or_default().push(Ending { at: now, is_calm });
            }
        });
        self.servers(|ensemble, now, out| ensemble.delete(path, now, out));
    }

    /// One of the sessions.
    fn session(&self, index: usize) -> Option<i64> {
        self.servers(|ensemble, _, _| {
            let sessions = &ensemble.tree(ensemble.leader()?).sessions;
            sessions.keys().nth(index % sessions.len().max(1)).copied()
        })
    }
}

/// Notes the znodes that a transaction makes and removes.
fn changed(txn: &Txn, (at, zxid): (At, i64), facts: &mut Facts) {
    let paths = match txn {
        Txn::Delete { path } => slice::from_ref(path),
        Txn::CloseSession { paths } => paths,
        Txn::Multi(txns) => return txns.iter().for_each(|txn| changed(txn, (at, zxid), facts)),
        Txn::Create(create) => {
            facts.made.insert(create.path.clone(), at);
            return;
        }
        _ => return,
    };
    for path in paths {
        facts.gone.insert(path.clone(), (at, zxid));
    }
}
