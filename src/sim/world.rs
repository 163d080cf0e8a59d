//! One run: processes, network and servers, and a report of what has come of it.

use std::{
    any::Any,
    ops::RangeInclusive,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use parking_lot::Mutex;

use super::{
    ensemble::{Ensemble, EnsembleConfig, Output},
    network::{Network, faults::Counts},
    process::Process,
};
use crate::base::sim::{
    Until, What,
    clock::duration,
    me,
    run::{self, Ended, Limits, Outcome, Run},
    schedule::Schedule,
};

/// What a run is like, besides its seed.
#[derive(Debug, Clone)]
pub(crate) struct WorldConfig {
    pub(crate) servers: EnsembleConfig,
    pub(crate) schedule: Schedule,
    /// For how long single threads stand still at most now and then; `None`: as the seed says.
    pub(crate) stall: Option<Duration>,
    /// The latency of good links, one way.
    pub(crate) latency: RangeInclusive<Duration>,
    /// The run is given up then, in true time.
    pub(crate) longest: Duration,
    pub(crate) most_steps: u64,
}

impl Default for WorldConfig {
    fn default() -> Self {
        WorldConfig {
            servers: EnsembleConfig::default(),
            schedule: Schedule::FromSeed,
            stall: None,
            latency: Duration::from_micros(50)..=Duration::from_millis(5),
            longest: Duration::from_secs(2 * 3600),
            most_steps: 50_000_000,
        }
    }
}

/// A run under way.
#[derive(Clone)]
pub(crate) struct World(Arc<Parts>);

struct Parts {
    run: Arc<Run>,
    network: Network,
    servers: usize,
    rng: Mutex<Rng>,
    violations: Mutex<Vec<String>>,
}

/// What a run has come to.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    /// Of all that has happened, in order.
    pub(crate) hash: u64,
    pub(crate) steps: u64,
    pub(crate) switches: u64,
    /// In true time.
    pub(crate) time: Duration,
    pub(crate) outcome: Outcome,
    pub(crate) violations: Vec<String>,
    pub(crate) counts: Counts,
    /// The last lines of the history.
    pub(crate) tail: Vec<String>,
}

impl World {
    /// Runs the director on the calling thread, until it returns; then ends all that it has begun.
    pub(crate) fn run(seed: u64, config: WorldConfig, director: impl FnOnce(&World)) -> Report {
        let begun = World::begin(seed, &config);
        let directed = catch_unwind(AssertUnwindSafe(|| director(&begun.world)));
        begun.end(directed.err())
    }

    /// Begins a run whose director the calling thread is.
    pub(crate) fn begin(seed: u64, config: &WorldConfig) -> Begun {
        let limits = Limits { time: config.longest, steps: config.most_steps };
        let of_threads = Run::begin(seed, config.schedule, config.stall, limits);
        let world = World::new(&of_threads.run, seed, config);
        Begun { of_threads, world, seed }
    }

    fn new(run: &Arc<Run>, seed: u64, config: &WorldConfig) -> World {
        let mut rng = Rng::with_seed(seed ^ 0x5eed_0f7e_5eed_0f7e);
        let ensemble = Ensemble::new(config.servers.clone(), rng.u64(..));
        let servers = ensemble.servers();
        let network = Network::new(run, ensemble, config.latency.clone(), rng.u64(..));
        run.set_events(Arc::new(network.clone()));
        network.begin();
        let violations = Mutex::default();
        let parts = Arc::new(Parts { run: run.clone(), network, servers, rng: Mutex::new(rng), violations });
        let surroundings: Arc<dyn Any + Send + Sync> = parts.clone();
        run.surround(Arc::downgrade(&surroundings));
        World(parts)
    }

    /// The run that the calling thread is of.
    pub(crate) fn here() -> Option<World> {
        me()?.run.surroundings()?.downcast().ok().map(World)
    }

    pub(super) fn sim(&self) -> &Arc<Run> {
        &self.0.run
    }

    /// True time since the begin.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.0.run.time())
    }

    /// Sleeps in true time.
    #[track_caller]
    pub(crate) fn sleep(&self, time: Duration) {
        if let Some(me) = me() {
            let until = self.0.run.time().saturating_add(duration(time));
            me.wait(&[], Until::TrueTime(until), What::here("the end of a sleep"));
        }
    }

    /// Another generator for each call, all from the seed.
    pub(crate) fn rng(&self) -> Rng {
        Rng::with_seed(self.0.rng.lock().u64(..))
    }

    /// A new process.
    pub(crate) fn process(&self, name: &str) -> Process {
        Process::new(self, name)
    }

    pub(crate) fn connect_string(&self) -> String {
        (1..=self.0.servers).map(|number| format!("zk{number}:2181")).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn network(&self) -> Network {
        self.0.network.clone()
    }

    /// Looks at the servers, or does something to them; what they have to say to clients is sent.
    pub(crate) fn ensemble<T>(&self, look: impl FnOnce(&mut Ensemble, Duration, &mut Vec<Output>) -> T) -> T {
        self.0.network.ensemble(look)
    }

    /// Puts a line into the history, and into its hash.
    pub(crate) fn note(&self, line: &str) {
        self.0.run.note(line);
    }

    /// Records that a rule was broken.
    pub(crate) fn fail(&self, why: String) {
        self.note(&format!("VIOLATION: {why}"));
        self.0.violations.lock().push(why);
    }
}

/// A run under way, for its director.
pub(crate) struct Begun {
    of_threads: run::Begun,
    pub(crate) world: World,
    seed: u64,
}

impl Begun {
    /// Ends all that the run has begun. By the panic its director has unwound, if it has.
    pub(crate) fn end(self, panic: Option<Box<dyn Any + Send>>) -> Report {
        let Begun { of_threads, world, seed } = self;
        world.0.network.finish();
        let Ended { outcome, hash, steps, switches, time, tail, leaked } = of_threads.end(panic);
        let mut violations = std::mem::take(&mut *world.0.violations.lock());
        if leaked > 0 {
            violations.push(format!("{leaked} threads did not end"));
        }
        let counts = world.0.network.counts();
        Report { seed, hash, steps, switches, time, outcome, violations, counts, tail }
    }
}

impl Report {
    pub(crate) fn is_ok(&self) -> bool {
        self.outcome == Outcome::Done && self.violations.is_empty()
    }

    /// # Panics
    /// If the run has not ended well: says why, and with which seed it does so again.
    #[track_caller]
    pub(crate) fn assert_ok(&self) {
        assert!(self.is_ok(), "{self}");
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { seed, hash, steps, switches, time, counts, .. } = self;
        for line in &self.tail {
            writeln!(f, "{line}")?;
        }
        for violation in &self.violations {
            writeln!(f, "VIOLATION: {violation}")?;
        }
        match &self.outcome {
            Outcome::Done => writeln!(f, "the director has returned")?,
            Outcome::Panic { thread, message } => writeln!(f, "PANIC of {thread}: {message}")?,
            Outcome::Deadlock(waiting) | Outcome::Livelock(waiting) | Outcome::OutOfTime(waiting) => {
                writeln!(f, "{}", self.outcome.name())?;
                for waiting in waiting {
                    writeln!(f, "  {waiting}")?;
                }
            }
        }
        write!(f, "seed {seed}: hash {hash:016x}, {steps} steps, {switches} switches, {time:?}, {counts:?}")
    }
}
