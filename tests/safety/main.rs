//! Processes of every kind of lock under faults of every kind, on three servers and on one: whether anybody believes that
//! it holds what another one believes it holds, whether all goes on when all is well again, and what those would have done
//! who do not look.
//!
//! `ci/safety [--soak] [MINUTES] [SEED]` runs it for as long as one wants, and says where its report lies.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod comparer;
mod faults;
mod growth;
mod history;
#[path = "../pauses/kinds.rs"]
mod kinds;
mod party;
mod prober;
mod report;
mod schedule;
mod wall_clock;
mod witness;

use std::{
    collections::BTreeSet,
    env,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use comparer::Stale;
use curator_locks::{
    CuratorFramework, Error, Result,
    testing::{TestingCluster, TestingServer},
};
use faults::{Done, Saboteur};
use history::Claim;
use party::{DEAF, KEEPER, Party};
use report::Findings;
use support::{PATIENCE, aside::Aside, builder_at, connect, eventually, history::shared_clock};

const SESSION: Duration = Duration::from_secs(2);
const NAMESPACE: &str = "safety";
const TICK: Duration = Duration::from_millis(200);

/// The time in which a lock has to go on when all is well again.
const RESUMED: Duration = SESSION.saturating_add(Duration::from_secs(1));

/// And the time that no lock may take, on however busy a machine.
const AT_MOST: Duration = Duration::from_secs(15);

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
    /// Other clients, as they are: the report has what happens to them, and nobody is blamed.
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

/// The kinds that count under their lock.
const COUNTERS: [&str; 2] = ["guarded", "unguarded"];

const V: &str = "victim";
const R: &str = "rival";

pub static GROUPS: [Group; 19] = [
    Group { name: "mutex", rule: Rule::One, parties: &[("reentrant", V), ("mutex", V), ("mutex", KEEPER)] },
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
    // Two of them exclude each other in one path, and the tokens of their other paths have no order.
    Group { name: "overlapping", rule: Rule::AtMost(1), parties: &[("overlapping", V); 3] },
    Group { name: "writelock", rule: Rule::One, parties: &[("zk_write_lock", V); 2] },
    Group { name: "leader", rule: Rule::One, parties: &[("leader", V); 3] },
    Group { name: "fenced", rule: Rule::One, parties: &[("fenced", V); 2] },
    Group { name: "zklock", rule: Rule::One, parties: &[("zklock", V), ("zklock", DEAF)] },
    Group { name: "guarded", rule: Rule::One, parties: &[("guarded", V); 2] },
    Group { name: "unguarded", rule: Rule::One, parties: &[("unguarded", V); 2] },
    Group { name: "touched", rule: Rule::Touched, parties: &[("mutex", V); 2] },
    Group { name: "curator", rule: Rule::Foreign, parties: &[("curator", V); 2] },
    Group { name: "curator-keeper", rule: Rule::Foreign, parties: &[("curator", KEEPER); 2] },
    Group { name: "kazoo", rule: Rule::Foreign, parties: &[("kazoo", V); 2] },
    Group { name: "none", rule: Rule::Nothing, parties: &[("none", V); 2] },
];

/// Runs what a child process is for; by itself it does nothing.
#[test]
fn child_process() {
    match support::child::role() {
        Some((role, arguments)) if role == "command" => prober::run_command(&arguments),
        Some((_, arguments)) => prober::run(&arguments),
        None => {}
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
        wrong.extend(findings.left.iter().filter(|left| !left.is_stale).map(|left| left.what.clone()));
        if soaks {
            wrong.extend(findings.growths.iter().filter(|growth| growth.grows).map(|growth| format!("{growth:?}")));
        }
        let [guarded, _] = &findings.counts;
        if guarded.lost > 0 || !(guarded.done..=guarded.begun).contains(&guarded.value) {
            wrong.push(format!("updates were lost: {guarded:?}"));
        }
        let resumed = findings.resumed_at(0.99);
        // The 99th percentile of fewer is the longest.
        if findings.resumed.len() >= 100 && resumed > RESUMED {
            wrong.push(format!("{resumed:?} from the end of the faults to the next grant: more than {RESUMED:?}"));
        }
        let longest = findings.resumed_at(1.0);
        if longest > AT_MOST {
            wrong.push(format!("{longest:?} from the end of the faults to the next grant: more than {AT_MOST:?}"));
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
    let party = |(number, (group, kind)): (usize, (&'static Group, _))| {
        Party::start(number, group, kind, cluster.servers(), seed ^ number as u64)
    };
    let parties: Vec<Arc<Party>> = kinds.enumerate().map(party).collect();
    let has_granted = |party: &Arc<Party>| !party.history.lock().unwrap().claims.is_empty();
    eventually("each has had its lock", || parties.iter().all(has_granted));
    let (begin, began) = (shared_clock(), Instant::now());
    // The last ones use no server.
    let harmed = parties.iter().filter(|party| !matches!(party.group.rule, Rule::Nothing)).count();
    let plan = schedule::plan(seed, length, harmed, &schedule::kinds(servers, !soaks));
    let addresses: Vec<String> = cluster.servers().iter().map(TestingServer::connect_string).collect();
    let outages_of = |address: &String| {
        let address = address.clone();
        Aside::run(move |is_over: &AtomicBool| witness::outages(&address, is_over))
    };
    let witnesses: Vec<_> = addresses.iter().map(outages_of).collect();
    let comparer = Aside::run(move |is_over: &AtomicBool| comparer::compare(&addresses, is_over));
    let cluster = Arc::new(cluster);
    let (asked, sampled) = (cluster.clone(), parties.clone());
    let sampler = Aside::run(move |is_over: &AtomicBool| {
        growth::growths(&sampled, |name| asked.servers()[0].metric(name), is_over)
    });
    let (done, unmended) = Saboteur::new(&parties, &cluster, &administrator).carry_out(&plan);
    // The time in which the locks of the last fault have to go on: the report measures it.
    thread::sleep(2 * SESSION);
    let (end, took) = (shared_clock(), began.elapsed());
    let outages: Vec<(u64, u64)> = witnesses.into_iter().flat_map(Aside::end).collect();
    let growths = sampler.end();
    let (left, stale) = finish(&parties, &cluster, &administrator, comparer, begin, end);
    let broken = parties.iter().flat_map(|party| party.broken.lock().unwrap().clone());
    let broken = broken.chain(unmended).map(|what| Left { what, is_stale: false });
    let left = left.into_iter().chain(broken).collect();
    let counts = COUNTERS.map(|kind| Count::of(kind, &parties, &administrator));
    let violations = GROUPS.iter().map(|group| {
        let is_checked = |party: &&Arc<Party>| group.rule.is_promised() && !party.keeps();
        let of_group = parties.iter().filter(|party| party.group.name == group.name).filter(is_checked);
        let repeated = of_group.flat_map(|party| party.history.lock().unwrap().repeated());
        history::check(group.rule, claims_of(group, &parties, careful)).into_iter().chain(repeated).collect()
    });
    let violations = violations.collect();
    let [careless, late] = [careless, late].map(|how| control(&parties, how));
    let resumed = resumed(&parties, &done, (&outages, &stale), begin, end);
    Findings {
        seed,
        servers,
        took,
        begin,
        parties,
        done,
        violations,
        careless,
        late,
        counts,
        resumed,
        stale,
        growths,
        left,
    }
}

/// Has all processes get their locks once more, give them back, and end. Returns what did not go as it should, and what the
/// servers have shown meanwhile that was deleted.
fn finish(
    parties: &[Arc<Party>],
    cluster: &TestingCluster,
    administrator: &CuratorFramework,
    comparer: Aside<Vec<Stale>>,
    begin: u64,
    end: u64,
) -> (Vec<Left>, Vec<Stale>) {
    let own: Vec<Arc<Party>> = parties.iter().filter(|party| !party.is_foreign()).cloned().collect();
    let why = |party: Arc<Party>| (party.group.name, shared_clock(), why(&party, cluster, begin));
    // That its session ends helps nobody yet.
    let goes_on = |party: &Party| party.history.lock().unwrap().claims.last().is_some_and(|claim| claim.from > end);
    let mut stuck: Vec<(&str, u64, String)> = missing(&own, goes_on).into_iter().map(why).collect();
    parties.iter().for_each(|party| party.quit());
    stuck.extend(missing(&own, |party| party.is_idle() || party.has_ended()).into_iter().map(why));
    // A process that is stuck has its znode yet.
    let is_stuck = |lock: &str| stuck.iter().any(|(stuck, ..)| *stuck == lock);
    let (kept, kept_at) = (kept(administrator, |group| !is_stuck(group.name)), shared_clock());
    parties.iter().for_each(|party| party.close());
    let open = missing(&own, Party::has_ended);
    for party in &own {
        let long = party.history.lock().unwrap().longest_wait(end);
        stuck.extend(long.filter(|(at, _)| *at < end).map(|(at, what)| (party.group.name, at, what)));
    }
    let stale = comparer.end();
    let stale_at = |lock: &str, at: u64| {
        // A waiter behind it has to go on soon after its end.
        let until = |stale: &Stale| stale.to + RESUMED.as_nanos() as u64;
        let is_of = move |stale: &&Stale| stale.lock == lock && (stale.from..=until(stale)).contains(&at);
        stale.iter().filter(is_of).collect::<Vec<&Stale>>()
    };
    let of_stuck = |(lock, at, what): (&str, u64, String)| Left { what, is_stale: !stale_at(lock, at).is_empty() };
    let mut left: Vec<Left> = stuck.into_iter().map(of_stuck).collect();
    for (lock, znode) in kept {
        let is_stale = stale_at(lock, kept_at).iter().any(|stale| stale.znode.contains(&znode.path));
        left.push(Left { what: format!("{znode:x?} is left"), is_stale });
    }
    left.extend(open.iter().map(|party| Left { what: format!("{} does not end", party.name()), is_stale: false }));
    (left, stale)
}

/// The rest of something that is to vanish, after as long as one can wait for it.
fn rest<T>(look: impl Fn() -> Vec<T>) -> Vec<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rest = look();
        if rest.is_empty() || Instant::now() > deadline {
            return rest;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn missing(all: &[Arc<Party>], is_so: impl Fn(&Party) -> bool) -> Vec<Arc<Party>> {
    rest(|| all.iter().filter(|party| !is_so(party)).cloned().collect())
}

/// The znodes of sessions that live, of locks whose processes are done with them.
fn kept(client: &CuratorFramework, is_asked: impl Fn(&Group) -> bool) -> Vec<(&'static str, Znode)> {
    let is_own = |group: &&Group| !matches!(group.rule, Rule::Foreign | Rule::Nothing);
    let look = || {
        client.sync().for_path("/")?;
        let mut kept = Vec::new();
        for group in GROUPS.iter().filter(is_own).filter(|group| is_asked(group)) {
            let of_sessions = znodes(client, group)?.into_iter().filter(|znode| znode.owner != 0);
            kept.extend(of_sessions.map(|znode| (group.name, znode)));
        }
        Ok(kept)
    };
    let nobody_knows = |error: Error| {
        let path = format!("nobody can tell what is left: {error}");
        vec![("", Znode { path, owner: 0, czxid: 0 })]
    };
    rest(|| look().unwrap_or_else(nobody_knows))
}

/// A process that did not go on or end as it should, or a znode that stayed.
#[derive(Debug)]
pub struct Left {
    pub what: String,
    /// It waited while a server showed a znode of its lock that was deleted, or is such a znode.
    pub is_stale: bool,
}

/// Tells of a process that does not go on when it last did, and how each server shows its lock.
fn why(party: &Party, cluster: &TestingCluster, begin: u64) -> String {
    let views: Vec<Result<Vec<Znode>>> = cluster.servers().iter().map(|server| view(server, party.group)).collect();
    let history = party.history.lock().unwrap();
    let since = |at: u64| Duration::from_nanos(at.saturating_sub(begin));
    let last = history.attempts.last().map(|attempt| (since(attempt.invoked), attempt.done.map(since)));
    let (name, session, claim) = (party.name(), party.session(), history.claims.last().map(|claim| since(claim.to)));
    let path = party.group.name;
    format!(
        "{name} of {path}, session {session:#x}, does not go on; its last acquire {last:?}, claim {claim:?}; {views:x?}"
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

/// One server's view of the lock of these.
fn view(server: &TestingServer, group: &Group) -> Result<Vec<Znode>> {
    let client = builder_at(&server.connect_string(), NAMESPACE).build()?;
    client.start()?;
    client.block_until_connected(Some(PATIENCE))?;
    znodes(&client, group)
}

fn znodes(client: &CuratorFramework, group: &Group) -> Result<Vec<Znode>> {
    let (mut znodes, mut paths) = (Vec::new(), vec![format!("/{}", group.name)]);
    while let Some(path) = paths.pop() {
        let below = match client.get_children().for_path(&path) {
            Err(error) if error.is_no_node() => continue,
            below => below?,
        };
        paths.extend(below.into_iter().map(|name| format!("{path}/{name}")));
        if let Some(stat) = client.check_exists().for_path(&path)? {
            znodes.push(Znode { path, owner: stat.ephemeral_owner, czxid: stat.czxid });
        }
    }
    Ok(znodes)
}

/// The counter of the processes of one kind, and their own account of it.
#[derive(Debug)]
pub struct Count {
    pub kind: &'static str,
    pub begun: usize,
    pub done: usize,
    /// Two have added to the same number so often.
    pub lost: usize,
    pub value: usize,
}

impl Count {
    fn of(kind: &'static str, parties: &[Arc<Party>], client: &CuratorFramework) -> Count {
        let (mut begun, mut done) = (0, Vec::new());
        for party in parties.iter().filter(|party| party.group.name == kind) {
            let updates = party.history.lock().unwrap().updates.clone();
            begun += updates.begun;
            done.extend(updates.done);
        }
        let path = prober::counter(kind);
        client.sync().for_path(&path).unwrap();
        let value = String::from_utf8(client.get_data().for_path(&path).unwrap()).unwrap().parse().unwrap();
        let lost = done.len() - done.iter().collect::<BTreeSet<_>>().len();
        Count { kind, begun, done: done.len(), lost, value }
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

/// How many violations there would have been of each lock.
fn control(parties: &[Arc<Party>], how: How) -> Vec<usize> {
    GROUPS.iter().map(|group| history::check(group.rule, claims_of(group, parties, how)).len()).collect()
}

/// A lock that nobody held at the end of its faults, and how long it took until somebody did.
#[derive(Debug, Clone, Copy)]
pub struct Resumed {
    pub lock: &'static str,
    /// From the begin on.
    pub at: Duration,
    pub time: Duration,
}

/// How long it took from the end of the faults to the first grant of each lock that nobody held then, where no other fault came
/// soon after.
fn resumed(
    parties: &[Arc<Party>],
    done: &[Done],
    (outages, stale): (&[(u64, u64)], &[Stale]),
    begin: u64,
    end: u64,
) -> Vec<Resumed> {
    let enough = RESUMED.as_nanos() as u64;
    let mut times = Vec::new();
    for group in GROUPS.iter().filter(|group| !matches!(group.rule, Rule::Foreign | Rule::Nothing)) {
        let claims = claims_of(group, parties, careful);
        let mut faults: Vec<(u64, u64)> =
            done.iter().filter(|fault| fault.concerns(group, parties)).map(|fault| (fault.from, fault.to)).collect();
        faults.extend(outages);
        faults.extend(stale.iter().filter(|stale| stale.lock == group.name).map(|stale| (stale.from, stale.to)));
        faults.sort_unstable();
        let mut healed = begin;
        for (from, to) in faults.into_iter().chain([(end, end)]) {
            if healed > begin && from > healed + enough {
                let later = claims.iter().filter(|claim| claim.to >= healed);
                let first = later.map(|claim| claim.from.max(healed)).min().unwrap_or(end);
                if first > healed {
                    let [at, time] = [healed - begin, first - healed].map(Duration::from_nanos);
                    times.push(Resumed { lock: group.name, at, time });
                }
            }
            healed = healed.max(to);
        }
    }
    times.sort_by_key(|resumed| resumed.time);
    times
}
