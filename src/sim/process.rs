//! A client's process of a run.

use std::{
    io,
    panic::Location,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    network::faults::{Death, Links},
    transport::Simulated,
    world::World,
};
use crate::{
    base::sim::{
        Until, What,
        clock::{duration, instant, nanos},
        me,
        run::Run,
    },
    framework::{
        client::{builder::Builder, core::CuratorFramework},
        config::retry::ExponentialBackoffRetry,
    },
};

/// A process of a client, with its own clock.
#[derive(Clone)]
pub(crate) struct Process {
    world: World,
    number: usize,
    name: Arc<str>,
}

/// A thread of a process, which can be joined.
pub(crate) struct Task<T> {
    run: Arc<Run>,
    id: usize,
    result: Arc<Mutex<Option<T>>>,
}

impl Process {
    pub(super) fn new(world: &World, name: &str) -> Process {
        // The clock shows the time since the machine's start: it differs, and no behaviour depends on it.
        let shows = Duration::from_secs(1_000 + world.rng().u64(0..100_000));
        let number = world.sim().add_process(name, duration(shows));
        world.network().has_process(number);
        Process { world: world.clone(), number, name: name.into() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// All links between this process and the servers.
    pub(crate) fn links(&self) -> Links {
        Links { process: Some(self.number), server: None }
    }

    /// Starts a thread of the process.
    pub(crate) fn spawn<T: Send + 'static>(&self, name: &str, run: impl FnOnce() -> T + Send + 'static) -> Task<T> {
        let result = Arc::new(Mutex::new(None));
        let place = result.clone();
        let body = move || {
            let value = run();
            *place.lock() = Some(value);
        };
        let started = self.world.sim().spawn(self.number, name, body);
        let id = started.unwrap_or_else(|error: io::Error| unreachable!("no thread for {name}: {error}"));
        if let Some(me) = me() {
            me.point(Location::caller());
        }
        Task { run: self.world.sim().clone(), id, result }
    }

    /// Runs as if the calling thread belonged to the process: it sees its clock, and threads that start meanwhile are of it.
    pub(crate) fn enter<T>(&self, run: impl FnOnce() -> T) -> T {
        match me() {
            Some(me) => me.within(self.number, run),
            None => run(),
        }
    }

    /// Builds a client whose sessions go over the simulated network, and starts it in the process. It is for threads of the
    /// process alone: times are of its clock.
    pub(crate) fn client(&self, change: impl FnOnce(Builder) -> Builder) -> CuratorFramework {
        self.enter(|| {
            let builder = CuratorFramework::builder()
                .connect_string(self.world.connect_string())
                .session_timeout(Duration::from_secs(6))
                .connection_timeout(Duration::from_secs(4))
                .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(100), 3))
                .lock_recheck_interval(None)
                // The modelled servers stay where they are.
                .ensemble_tracker(false)
                .session_factory(Simulated(self.world.network()));
            let built = change(builder).build();
            let client = built.unwrap_or_else(|error| unreachable!("the client is well configured: {error}"));
            if let Err(error) = client.start() {
                unreachable!("the client starts: {error}");
            }
            client
        })
    }

    /// Stops all threads for that time (SIGSTOP); its clock runs on.
    pub(crate) fn pause(&self, time: Duration) {
        self.world.note(&format!("{} stands still for {time:?}", self.name));
        self.world.network().count("pause");
        self.world.sim().stand_still(self.number, time, false);
    }

    /// Ends a pause, however long it was to be.
    pub(crate) fn go_on(&self) {
        self.world.sim().go_on(self.number);
    }

    /// As [`pause`](Process::pause), and waits last longer by that time: the system's timers stand still.
    pub(crate) fn machine_sleeps(&self, time: Duration) {
        self.world.note(&format!("the machine of {} sleeps for {time:?}", self.name));
        self.world.network().count("machine sleeps");
        self.world.sim().stand_still(self.number, time, true);
    }

    /// Lets the clock run faster than true time by so many millionths.
    pub(crate) fn set_clock_rate(&self, ppm: i64) {
        self.world.note(&format!("the clock of {} goes {ppm} ppm fast", self.name));
        self.world.sim().set_clock_rate(self.number, ppm);
    }

    /// Ends the process: none of its threads runs again.
    pub(crate) fn kill(&self, how: Death) {
        self.world.note(&format!("{} is killed ({how:?})", self.name));
        self.world.network().process_died(self.number, how);
        self.world.sim().kill(self.number);
    }

    /// What its clock shows.
    pub(crate) fn now(&self) -> Instant {
        let run = self.world.sim();
        instant(run.clock(self.number).shows(run.time()))
    }

    /// The true time at which its clock shows that, at its present rate.
    pub(crate) fn true_time(&self, at: Instant) -> Duration {
        Duration::from_nanos(self.world.sim().clock(self.number).when(nanos(at)))
    }
}

impl<T> Task<T> {
    /// Waits for the end of the thread; `None` if its process was killed, or the run is over.
    ///
    /// A panic of the thread ends the run.
    pub(crate) fn join(self) -> Option<T> {
        while !self.is_finished() {
            let me = me()?;
            me.wait(&[Run::end_key(self.id)], Until::Woken, What::here("the end of a thread"));
        }
        self.result.lock().take()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.run.has_thread_ended(self.id)
    }
}
