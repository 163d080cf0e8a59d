//! The memory and the like that processes and servers have in use, second after second, and whether it grows.

use std::{
    collections::BTreeMap,
    fs,
    io::Result,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::party::Party;

const INTERVAL: Duration = Duration::from_secs(1);

/// Fewer samples say nothing.
const ENOUGH: usize = 60;

/// The things in use: the name of each, how much more of it is no growth, and a share of it that is none either.
const USES: [(&str, f64, f64); 5] = [
    ("KiB of memory", 2048.0, 0.1),
    ("descriptors", 2.0, 0.05),
    ("threads", 2.0, 0.05),
    ("watches", 4.0, 0.1),
    ("znodes", 4.0, 0.1),
];

/// At each second from the begin, by what is used and by whom.
type Samples = BTreeMap<(usize, String), Vec<(f64, f64)>>;

/// How much more of something was in use at the end than at the begin, by the line that fits its samples best.
#[derive(Debug)]
pub struct Growth {
    pub what: &'static str,
    pub whose: String,
    pub mean: f64,
    pub more: f64,
    pub samples: usize,
    pub grows: bool,
}

/// Looks at the processes of our own, and asks a server by this. Gives the growth of each, the largest first.
pub fn growths(parties: &[Arc<Party>], ask: impl Fn(&str) -> Result<u64>, is_over: &AtomicBool) -> Vec<Growth> {
    let (begin, mut samples) = (Instant::now(), Samples::new());
    while !is_over.load(Relaxed) {
        let at = begin.elapsed().as_secs_f64();
        let mut add = |what: usize, whose: String, count: Option<u64>| {
            if let Some(count) = count {
                samples.entry((what, whose)).or_default().push((at, count as f64));
            }
        };
        for party in parties.iter().filter(|party| !party.is_foreign()) {
            let Some(pid) = party.pid() else { continue };
            // Another process begins anew.
            let whose = || format!("{} ({pid})", party.name());
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                line.split_whitespace().next()?.parse().ok()
            };
            add(0, whose(), field("VmRSS:"));
            add(1, whose(), fs::read_dir(format!("/proc/{pid}/fd")).ok().map(|files| files.count() as u64));
            add(2, whose(), field("Threads:"));
        }
        add(3, "a server".to_owned(), ask("zk_watch_count").ok());
        add(4, "a server".to_owned(), ask("zk_znode_count").ok());
        thread::sleep(INTERVAL);
    }
    let growth = |((what, whose), samples): ((usize, String), Vec<(f64, f64)>)| growth(what, whose, &samples);
    let mut growths: Vec<Growth> = samples.into_iter().filter_map(growth).collect();
    growths.sort_by(|one, other| other.more.total_cmp(&one.more));
    growths
}

fn growth(what: usize, whose: String, samples: &[(f64, f64)]) -> Option<Growth> {
    // A process has after the first quarter what it needs once.
    let later = &samples[samples.len() / 4..];
    if later.len() < ENOUGH {
        return None;
    }
    let count = later.len() as f64;
    let (sum_at, sum) = later.iter().fold((0.0, 0.0), |(sum_at, sum), (at, used)| (sum_at + at, sum + used));
    let (mean_at, mean) = (sum_at / count, sum / count);
    let together: f64 = later.iter().map(|(at, used)| (at - mean_at) * (used - mean)).sum();
    let alone: f64 = later.iter().map(|(at, _)| (at - mean_at).powi(2)).sum();
    let more = together / alone * (later[later.len() - 1].0 - later[0].0);
    let (what, least, share) = USES[what];
    Some(Growth { what, whose, mean, more, samples: later.len(), grows: more > least && more > mean * share })
}

#[test]
fn what_grows_is_found_and_what_goes_up_and_down_is_not() {
    let growth_of = |used: fn(u32) -> f64| {
        let samples: Vec<(f64, f64)> = (0..1_000).map(|at| (f64::from(at), used(at))).collect();
        growth(1, String::new(), &samples).unwrap()
    };
    assert!(growth_of(|at| 20.0 + f64::from(at) / 100.0).grows);
    assert!(!growth_of(|at| 20.0 + f64::from(at % 10)).grows);
    assert!(!growth_of(|at| if at < 200 { f64::from(at) } else { 200.0 }).grows, "it is had after a while");
    assert!(growth(1, String::new(), &[(0.0, 1.0); 30]).is_none());
}
