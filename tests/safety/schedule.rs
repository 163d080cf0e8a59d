//! The plan of all faults and their moments, from a seed alone.

use std::time::Duration;

use crate::SESSION;

macro_rules! kinds {
    ($($kind:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind {
            $($kind,)*
        }

        const ALL: &[FaultKind] = &[$($kind,)*];
    };
}

kinds! {
    Pause,
    Kill,
    BlackHole,
    BlackHoleToServer,
    BlackHoleToClient,
    Cut,
    Reset,
    Refuse,
    Delay,
    LostReplyToCreate,
    LostReplyToDelete,
    LostReplyToMulti,
    Expiry,
    WallClock,
    PausedServer,
    KilledServer,
    KilledLeader,
    CutOffServer,
    ServerCutOffOneWay,
    CutOffLeader,
    IsolatedServer,
    RollingRestart,
    DeletedZnode,
    DeletedDirectory,
    Permits,
    Load,
}

use FaultKind::*;

impl FaultKind {
    /// Whether it concerns the servers, and so all processes.
    fn is_of_servers(self) -> bool {
        matches!(self, PausedServer | KilledServer | Load) || self.needs_several()
    }

    /// Whether it is something between servers.
    fn needs_several(self) -> bool {
        matches!(
            self,
            KilledLeader | CutOffServer | ServerCutOffOneWay | CutOffLeader | IsolatedServer | RollingRestart
        )
    }
}

/// The part of all that a fault concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One process, by its number.
    Process(usize),
    /// All of them.
    Servers,
    /// Those that an administrator gets in the way of.
    Touched,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    pub at: Duration,
    pub kind: FaultKind,
    pub target: Target,
    /// Which server, or which of several ways.
    pub number: usize,
    pub length: Duration,
}

/// The time between two faults, on the average.
const INTERVAL: Duration = Duration::from_millis(900);

/// One fault of so many is one of the servers: they take several seconds, one after the other.
const OF_SERVERS: usize = 8;

/// The faults that so many servers can have, with or without those that end processes.
pub fn kinds(servers: usize, kills: bool) -> Vec<FaultKind> {
    let can_be = |kind: &FaultKind| (servers > 1 || !kind.needs_several()) && (kills || *kind != Kill);
    ALL.iter().copied().filter(can_be).collect()
}

/// The same seed gives the same faults, of any length of the run the first ones.
pub fn plan(seed: u64, length: Duration, processes: usize, kinds: &[FaultKind]) -> Vec<Planned> {
    let (of_servers, others): (Vec<FaultKind>, Vec<FaultKind>) = kinds.iter().partition(|kind| kind.is_of_servers());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = INTERVAL;
    let mut planned = Vec::new();
    loop {
        at += INTERVAL.mul_f64(2.0 * random.f64());
        let kinds = if random.usize(..OF_SERVERS) == 0 { &of_servers } else { &others };
        let kind = kinds[random.usize(..kinds.len())];
        let (process, number, share) = (random.usize(..processes), random.usize(..3), random.f64());
        if at >= length {
            return planned;
        }
        let between = |from: f64, to: f64| SESSION.mul_f64(from + (to - from) * share);
        let (target, length) = match kind {
            Pause => (Target::Process(process), between(0.1, 1.6)),
            Kill | Cut | Reset | Expiry | WallClock => (Target::Process(process), Duration::ZERO),
            Refuse | Delay | BlackHole | BlackHoleToServer | BlackHoleToClient => {
                (Target::Process(process), between(0.1, 2.0))
            }
            LostReplyToCreate | LostReplyToDelete | LostReplyToMulti => (Target::Process(process), SESSION),
            PausedServer | CutOffServer | ServerCutOffOneWay | CutOffLeader | IsolatedServer | Load => {
                (Target::Servers, between(0.2, 1.5))
            }
            KilledServer | KilledLeader | RollingRestart => (Target::Servers, between(0.1, 1.0)),
            DeletedZnode | DeletedDirectory => (Target::Touched, Duration::ZERO),
            Permits => (Target::Touched, between(0.1, 1.0)),
        };
        planned.push(Planned { at, kind, target, number, length });
    }
}

#[test]
fn the_same_seed_plans_the_same_faults() {
    let hour = Duration::from_secs(3600);
    let (one, other) = (plan(7, hour, 30, ALL), plan(7, hour / 2, 30, ALL));
    assert_eq!(one[..other.len()], other[..]);
    assert!(one != plan(8, hour, 30, ALL) && one.len() > 3_000, "{}", one.len());
    let mut planned: Vec<FaultKind> = one.iter().map(|fault| fault.kind).collect();
    planned.sort_unstable();
    planned.dedup();
    assert_eq!(planned, ALL);
    assert!(plan(7, hour, 30, &kinds(1, true)).iter().all(|fault| !fault.kind.needs_several()));
}
