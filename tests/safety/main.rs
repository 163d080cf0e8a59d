//! Processes of every kind of lock under faults of every kind, on three servers and on one: whether anybody believes that it holds
//! what another one believes it holds, whether all goes on when all is well again, and what those would have done who do
//! not look.
//!
//! `ci/safety [MINUTES] [SEED]` runs it for as long as one wants, and says where its report lies.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod growth;
mod history;
#[path = "../pauses/kinds.rs"]
mod kinds;
mod party;
mod prober;
mod report;
mod schedule;
mod witness;

use std::{
    env,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    CuratorFramework,
    testing::{TestingCluster, TestingServer},
};
use faults::{Done, Saboteur};
use growth::Sampler;
use history::{Claim, Updates};
use party::Party;
use report::Findings;
use support::{PATIENCE, builder_at, connect, eventually, history::shared_clock};
use witness::Witnesses;

const SESSION: Duration = Duration::from_secs(2);
const NAMESPACE: &str = "safety";
const TICK: Duration = Duration::from_millis(200);

/// The time in which a lock has to go on when all is well again.
const RESUMED: Duration = SESSION.saturating_add(Duration::from_secs(1));

/// The rule for the claims of a group.
#[derive(Debug, Clone, Copy)]
pub enum Rule {
    /// One at a time, and each has a larger token.
    One,
    /// One at a time. Where a process hands the lock on, its token stays.
    Cached,
    AtMost(usize),
    /// Readers beside each other, and nobody beside a writer.
    ReadWrite,
    /// An administrator deletes its znodes: nobody can promise anything but that it goes on.
    Touched,
    /// Other clients, as they are: what happens to them is told, and nobody is blamed.
    Foreign,
    /// A control: there is no lock.
    Nothing,
}

impl Rule {
    /// Whether this crate promises it.
    pub fn is_promised(self) -> bool {
        !matches!(self, Rule::Touched | Rule::Foreign | Rule::Nothing)
    }
}

/// Those that want one lock: each a kind, and a side of it.
#[derive(Debug)]
pub struct Group {
    pub name: &'static str,
    pub rule: Rule,
    pub parties: &'static [(&'static str, &'static str)],
}

impl Group {
    /// Whether nobody has a token while an older znode is there.
    fn is_queue(&self) -> bool {
        matches!(self.rule, Rule::One | Rule::Cached | Rule::Foreign)
    }
}

/// The kinds that count under their lock.
const COUNTERS: [&str; 2] = ["guarded", "unguarded"];

const V: &str = "victim";
const R: &str = "rival";

pub static GROUPS: [Group; 16] = [
    Group { name: "mutex", rule: Rule::One, parties: &[("mutex", V), ("mutex", V), ("mutex", V)] },
    Group { name: "cached", rule: Rule::Cached, parties: &[("cached_mutex", V), ("cached_mutex", V), ("mutex", V)] },
    Group {
        name: "readwrite",
        rule: Rule::ReadWrite,
        parties: &[("read", V), ("read", R), ("cached_read", V), ("cached_write", V), ("cached_write", R)],
    },
    Group { name: "semaphoremutex", rule: Rule::One, parties: &[("semaphore_mutex", V), ("semaphore_mutex", V)] },
    Group { name: "leases", rule: Rule::AtMost(2), parties: &[("two_leases", V); 4] },
    Group { name: "unfair", rule: Rule::One, parties: &[("unfair", V); 3] },
    Group { name: "multi", rule: Rule::Cached, parties: &[("multi", V), ("multi", V), ("cached_multi", V)] },
    Group { name: "writelock", rule: Rule::One, parties: &[("zk_write_lock", V); 2] },
    Group { name: "leader", rule: Rule::One, parties: &[("leader", V); 3] },
    Group { name: "fenced", rule: Rule::One, parties: &[("fenced", V); 2] },
    Group { name: "guarded", rule: Rule::One, parties: &[("guarded", V); 2] },
    Group { name: "unguarded", rule: Rule::One, parties: &[("unguarded", V); 2] },
    Group { name: "touched", rule: Rule::Touched, parties: &[("mutex", V); 2] },
    Group { name: "curator", rule: Rule::Foreign, parties: &[("curator", V); 2] },
    Group { name: "kazoo", rule: Rule::Foreign, parties: &[("kazoo", V); 2] },
    Group { name: "none", rule: Rule::Nothing, parties: &[("none", V); 2] },
];

/// Runs what a child process is for; by itself it does nothing.
#[test]
fn child_process() {
    if let Some((_, arguments)) = support::child::role() {
        prober::run(&arguments);
    }
}

mod slow {
    use super::*;

    #[test]
    fn nobody_believes_beside_another_whatever_goes_wrong_and_all_go_on_when_it_is_well_again() {
        let number = |name: &str, default: u64| env::var(name).map_or(default, |value| value.parse().unwrap());
        let (length, seed) = (Duration::from_secs(number("SAFETY_SECONDS", 20)), number("SAFETY_SEED", 1));
        let soaks = env::var_os("SAFETY_SOAK").is_some();
        let findings = run(length, seed, number("SAFETY_SERVERS", 3) as usize, soaks);
        report::write(&findings);
        println!("{}", report::table(&findings));
        let mut wrong: Vec<String> = Vec::new();
        for (group, violations) in GROUPS.iter().zip(&findings.violations) {
            let is_control = matches!(group.rule, Rule::Nothing);
            if (is_control || group.rule.is_promised()) && is_control == violations.is_empty() {
                let first = violations.first().map_or("a control in which nothing is found", |first| &first.what);
                wrong.push(format!("{}: {} violations: {first}", group.name, violations.len()));
            }
        }
        wrong.extend(findings.left.iter().cloned());
        if soaks {
            wrong.extend(findings.growths.iter().filter(|growth| growth.grows).map(|growth| format!("{growth:?}")));
        }
        let [guarded, _] = &findings.counts;
        if !(guarded.updates.done..=guarded.updates.begun).contains(&guarded.value) {
            wrong.push(format!("T2: {guarded:?}"));
        }
        let resumed = findings.resumed_at(0.99);
        // Of fewer, it is the longest.
        if findings.resumed.len() >= 100 && resumed > RESUMED {
            wrong.push(format!("{resumed:?} from the end of the faults to the next grant: more than {RESUMED:?}"));
        }
        assert!(wrong.is_empty(), "seed {seed}: {}", wrong.join("\n"));
    }
}

fn run(length: Duration, seed: u64, servers: usize, soaks: bool) -> Findings {
    let cluster = TestingCluster::builder(servers).tick_time(TICK).severable(true).start().unwrap();
    cluster.wait_until_serving(PATIENCE).unwrap();
    let administrator = connect(builder_at(&cluster.connect_string(), NAMESPACE));
    // kazoo makes no chroot.
    for kind in COUNTERS {
        administrator.create().creating_parents_if_needed().for_path_and_data(&prober::counter(kind), "0").unwrap();
    }
    let kinds = GROUPS.iter().flat_map(|group| group.parties.iter().map(move |party| (group, *party)));
    let started = kinds
        .enumerate()
        .map(|(number, (group, kind))| Party::start(number, group, kind, cluster.servers(), seed ^ number as u64));
    let (parties, threads): (Vec<Arc<Party>>, Vec<_>) = started.unzip();
    let has_granted = |party: &Arc<Party>| !party.history.lock().unwrap().claims.is_empty();
    eventually("each has had its lock", || parties.iter().all(has_granted));
    let (begin, began) = (shared_clock(), Instant::now());
    let plan = schedule::plan(seed, length, parties.len(), &schedule::kinds(servers, !soaks));
    let witnesses = Witnesses::of(cluster.servers());
    let cluster = Arc::new(cluster);
    let asked = cluster.clone();
    let sampler = Sampler::start(&parties, move |name| asked.servers()[0].metric(name));
    let done = Saboteur::new(&parties, &cluster, &administrator).carry_out(&plan);
    // The time in which the locks of the last fault have to go on: the report measures it.
    thread::sleep(2 * SESSION);
    let (end, took, outages) = (shared_clock(), began.elapsed(), witnesses.outages());
    let growths = sampler.growths();
    parties.iter().for_each(|party| party.quit());
    let (mut left, mut brought_back) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    for (party, thread) in parties.iter().zip(threads) {
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        if thread.is_finished() {
            thread.join().unwrap();
        } else {
            let views: Vec<Vec<Znode>> = cluster.servers().iter().map(|server| view(server, party.group)).collect();
            let what = stuck(party, &views, begin);
            let claims = claims_of(party.group, &parties, careful);
            if party.group.is_queue() && views.iter().any(|view| shows_deleted(view, &claims)) {
                brought_back.push(what);
            } else {
                left.push(what);
            }
        }
    }
    if left.is_empty() && brought_back.is_empty() {
        let ephemerals = || cluster.servers().iter().map(|server| server.ephemeral_count().unwrap()).max();
        eventually("no znode of a session is left", || ephemerals() == Some(0));
    }
    let counts = COUNTERS.map(|kind| Count::of(kind, &parties, &administrator));
    let violations = GROUPS.iter().map(|group| history::check(group.rule, claims_of(group, &parties, careful)));
    let (violations, controls) = (violations.collect(), [careless, late].map(|how| control(&parties, how)));
    let resumed = resumed(&parties, &done, &outages, begin, end);
    Findings {
        seed,
        servers,
        took,
        begin,
        parties,
        done,
        violations,
        controls,
        counts,
        resumed,
        growths,
        left,
        brought_back,
    }
}

/// A process that did not end, and what each server shows of its lock.
fn stuck(party: &Party, views: &[Vec<Znode>], begin: u64) -> String {
    let history = party.history.lock().unwrap();
    let since = |at: u64| Duration::from_nanos(at.saturating_sub(begin));
    let last = history.attempts.last().map(|attempt| (since(attempt.invoked), attempt.done.map(since)));
    let (name, session, claim) = (party.name(), party.session(), history.claims.last().map(|claim| since(claim.to)));
    let path = party.group.name;
    format!(
        "{name} of {path}, session {session:#x}, waits for ever; its last acquire {last:?}, claim {claim:?}; {views:x?}"
    )
}

/// As a server shows it.
#[derive(Debug)]
#[allow(dead_code, reason = "a report prints it whole")]
struct Znode {
    path: String,
    owner: i64,
    czxid: i64,
}

/// Whether a server shows a znode of a queue that is older than one which was granted: it was deleted before that, and has
/// been brought back. Whoever queues there waits behind it, whatever its client.
fn shows_deleted(view: &[Znode], claims: &[Claim]) -> bool {
    let newest = claims.iter().map(|claim| claim.token).max().unwrap_or_default();
    // What lies deeper is not of one queue.
    let is_queued = |znode: &&Znode| znode.owner != 0 && znode.path.matches('/').count() == 2;
    view.iter().filter(is_queued).any(|znode| znode.czxid < newest)
}

/// What one server shows below the path of these.
fn view(server: &TestingServer, group: &Group) -> Vec<Znode> {
    let client = connect(builder_at(&server.connect_string(), NAMESPACE));
    let (mut znodes, mut paths) = (Vec::new(), vec![format!("/{}", group.name)]);
    while let Some(path) = paths.pop() {
        let below = client.get_children().for_path(&path).unwrap_or_default();
        paths.extend(below.into_iter().map(|name| format!("{path}/{name}")));
        if let Some(stat) = client.check_exists().for_path(&path).ok().flatten() {
            znodes.push(Znode { path, owner: stat.ephemeral_owner, czxid: stat.czxid });
        }
    }
    znodes
}

/// What the processes of a kind have added to their counter, and what it shows. Less than was done: updates were lost.
#[derive(Debug)]
pub struct Count {
    pub kind: &'static str,
    pub updates: Updates,
    pub value: usize,
}

impl Count {
    fn of(kind: &'static str, parties: &[Arc<Party>], client: &CuratorFramework) -> Count {
        let mut updates = Updates::default();
        for party in parties.iter().filter(|party| party.group.name == kind) {
            let of_party = party.history.lock().unwrap().updates;
            updates = Updates { begun: updates.begun + of_party.begun, done: updates.done + of_party.done };
        }
        let path = prober::counter(kind);
        client.sync().for_path(&path).unwrap();
        let value = String::from_utf8(client.get_data().for_path(&path).unwrap()).unwrap().parse().unwrap();
        Count { kind, updates, value }
    }
}

type How = fn(&Party) -> Vec<Claim>;

fn careful(party: &Party) -> Vec<Claim> {
    party.history.lock().unwrap().promised().0
}

fn careless(party: &Party) -> Vec<Claim> {
    party.history.lock().unwrap().until_release(party.is_reader(), party.number)
}

fn late(party: &Party) -> Vec<Claim> {
    party.history.lock().unwrap().too_long()
}

fn claims_of(group: &Group, parties: &[Arc<Party>], how: How) -> Vec<Claim> {
    parties.iter().filter(|party| party.group.name == group.name).flat_map(|party| how(party)).collect()
}

#[test]
fn a_znode_older_than_a_grant_was_brought_back() {
    let claim = Claim { party: 0, is_reader: false, token: 1255, from: 1, to: 2 };
    let shows = |path: &str, czxid| shows_deleted(&[Znode { path: path.to_owned(), owner: 7, czxid }], &[claim]);
    assert!(shows("/mutex/lock-1", 258) && !shows("/mutex/lock-2", 1255) && !shows("/mutex/lock-3", 1256));
    assert!(!shows("/semaphoremutex/locks/lock-1", 258), "a waiter of its other queue");
}

/// How many violations there would have been of all locks together.
fn control(parties: &[Arc<Party>], how: How) -> usize {
    let is_lock = |group: &&Group| group.rule.is_promised();
    let of = |group: &Group| history::check(group.rule, claims_of(group, parties, how)).len();
    GROUPS.iter().filter(is_lock).map(of).sum()
}

/// How long it took from the end of the faults to the first grant of each lock that nobody held then, where no other fault came
/// soon after.
fn resumed(
    parties: &[Arc<Party>],
    done: &[Done],
    outages: &[(u64, u64)],
    begin: u64,
    end: u64,
) -> Vec<(&'static str, Duration)> {
    let enough = RESUMED.as_nanos() as u64;
    let mut times = Vec::new();
    for group in GROUPS.iter().filter(|group| !matches!(group.rule, Rule::Foreign | Rule::Nothing)) {
        let claims = claims_of(group, parties, careful);
        let mut faults: Vec<(u64, u64)> =
            done.iter().filter(|fault| fault.concerns(group, parties)).map(|fault| (fault.from, fault.to)).collect();
        faults.extend(outages);
        faults.sort_unstable();
        let mut healed = begin;
        for (from, to) in faults.into_iter().chain([(end, end)]) {
            if healed > begin && from > healed + enough {
                let later = claims.iter().filter(|claim| claim.to >= healed);
                let first = later.map(|claim| claim.from.max(healed)).min().unwrap_or(end);
                if first > healed {
                    times.push((group.name, Duration::from_nanos(first - healed)));
                }
            }
            healed = healed.max(to);
        }
    }
    times.sort_by_key(|(_, time)| *time);
    times
}
