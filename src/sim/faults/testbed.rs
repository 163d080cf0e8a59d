//! A server, a fault proxy in front of it, clients on either side, and waiting for what can be observed.

pub(super) use std::time::{Duration, Instant};
use std::{cell::RefCell, fmt::Debug, ops::Range, thread::panicking};

use crate::{
    Builder, ConnectionState, CreateMode, CuratorFramework, InterProcessMutex, RetryNTimes,
    base::threads,
    sim::{
        ensemble::EnsembleConfig,
        transport::Simulated,
        world::{Begun, World, WorldConfig},
    },
};
pub(super) use crate::{
    base::{
        channel::{Receiver, Sender, bounded, unbounded},
        clock::{now, since as elapsed},
        sim::thread::{Start, scope, sleep},
    },
    sim::proxy::{Direction, Fault, FaultProxy, InjectedFault, RequestMatch, op},
};

/// The session timeout of most tests.
pub(super) const T: Duration = Duration::from_secs(3);
pub(super) const MS: Duration = Duration::from_millis(1);
/// Longer than anything here takes.
pub(super) const LONG: Duration = Duration::from_secs(60);
pub(super) const LOCK: &str = "/locks/one";

/// What a client said about its connection, and when.
pub(super) type States = Receiver<(Instant, ConnectionState)>;

thread_local! {
    static BEGUN: RefCell<Option<Begun>> = const { RefCell::new(None) };
}

/// Ends the run of the thread that drops it, which has to have come to a good end.
pub(super) struct End;

impl Drop for End {
    fn drop(&mut self) {
        let Some(begun) = BEGUN.take() else { return };
        let report = begun.end(None);
        println!("{report}");
        if !panicking() {
            report.assert_ok();
        }
    }
}

/// A run, from its begin to its end.
pub(super) struct Testbed {
    pub(super) proxy: FaultProxy,
    /// Behind the proxy.
    pub(super) client: CuratorFramework,
    pub(super) states: States,
    /// Not behind the proxy, with a long session.
    pub(super) observer: CuratorFramework,
    pub(super) world: World,
    /// Dropped last.
    _end: End,
}

impl Testbed {
    /// Another client behind the proxy, to be configured further.
    pub(super) fn builder(&self, session_timeout: Duration) -> Builder {
        builder_of(&self.world, &self.proxy.connect_string(), session_timeout)
    }

    /// Ends the session of the client behind the proxy, as if it had expired.
    pub(super) fn expire(&self) {
        let session = self.client.session_id();
        assert!(self.world.ensemble(|ensemble, now, out| ensemble.expire(session, now, out)));
    }
}

/// A server, a client behind a proxy, and an observer with a connection of its own.
pub(super) fn testbed() -> Testbed {
    testbed_with(T)
}

pub(super) fn testbed_with(session_timeout: Duration) -> Testbed {
    testbed_of(session_timeout, |builder| builder)
}

/// As `testbed_with`, with a client that is configured further.
pub(super) fn testbed_of(session_timeout: Duration, configure: fn(Builder) -> Builder) -> Testbed {
    let (world, end) = begin(1, EnsembleConfig { servers: 1, tick: 100 * MS, ..EnsembleConfig::default() });
    let proxy = FaultProxy::start(&world);
    let client = configure(builder_of(&world, &proxy.connect_string(), session_timeout)).build().unwrap();
    let states = states_of(&client);
    let observer = builder_of(&world, &world.connect_string(), LONG).build().unwrap();
    start(&client);
    start(&observer);
    assert_eq!(next_state(&states).1, ConnectionState::Connected);
    Testbed { proxy, client, states, observer, world, _end: end }
}

/// Begins a run, with the calling thread for its director.
pub(super) fn begin(seed: u64, servers: EnsembleConfig) -> (World, End) {
    let servers = EnsembleConfig { container_interval: 100 * MS, max_session_timeout: 2 * LONG, ..servers };
    let config = WorldConfig { servers, stall: Some(Duration::ZERO), longest: 30 * LONG, ..WorldConfig::default() };
    let begun = World::begin(seed, &config);
    let world = begun.world.clone();
    BEGUN.set(Some(begun));
    (world, End)
}

pub(super) fn builder_of(world: &World, connect_string: &str, session_timeout: Duration) -> Builder {
    CuratorFramework::builder()
        .connect_string(connect_string)
        .session_timeout(session_timeout)
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(50, 200 * MS))
        .lock_recheck_interval(None)
        .ensemble_tracker(false)
        .session_factory(Simulated(world.network()))
}

/// Its calls end soon without a connection.
pub(super) fn hasty(builder: Builder) -> Builder {
    builder.connection_timeout(1000 * MS).retry_policy(RetryNTimes::new(3, 200 * MS))
}

#[track_caller]
pub(super) fn start(client: &CuratorFramework) {
    client.start().unwrap();
    assert!(client.block_until_connected(Some(LONG)).unwrap(), "not connected");
}

/// Makes the lock's directory, to stay: the first create of a contender is carried out then.
pub(super) fn make_directory(client: &CuratorFramework) {
    client.create().creating_parents_if_needed().with_mode(CreateMode::Persistent).for_path(LOCK).unwrap();
}

pub(super) fn states_of(client: &CuratorFramework) -> States {
    let (sender, states) = unbounded();
    client.add_connection_state_listener(move |_, state| {
        let _ = sender.send((now(), state));
    });
    states
}

pub(super) fn next_state(states: &States) -> (Instant, ConnectionState) {
    states.recv_timeout(LONG).expect("a connection state")
}

/// Waits for this state as the very next one.
#[track_caller]
pub(super) fn expect_state(states: &States, expected: ConnectionState) -> Instant {
    let (at, state) = next_state(states);
    assert_eq!(state, expected);
    at
}

pub(super) fn mutex(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client, LOCK).unwrap()
}

/// Waits for an observed state, and tells when it was seen.
#[track_caller]
pub(super) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) -> Instant {
    let deadline = now() + LONG;
    while !is_so() {
        assert!(now() < deadline, "not within {LONG:?}: {what}");
        sleep(5 * MS);
    }
    now()
}

/// The names below a path; none if there is no such path.
pub(super) fn children(client: &CuratorFramework, path: &str) -> Vec<String> {
    match client.get_children().for_path(path) {
        Err(error) if error.is_no_node() => Vec::new(),
        result => result.unwrap(),
    }
}

/// The contenders' znodes, as the server has them.
pub(super) fn nodes(observer: &CuratorFramework) -> Vec<String> {
    children(observer, LOCK)
}

/// Until as many contenders stand in the queue.
#[track_caller]
pub(super) fn wait_for_nodes(observer: &CuratorFramework, count: usize) -> Instant {
    eventually(&format!("{count} in the queue"), || nodes(observer).len() == count)
}

/// Runs something on a thread of its own, and hands out its result when it is there.
pub(super) fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Receiver<(Instant, T)> {
    let (sender, result) = unbounded();
    let started = threads::spawn("caller", move || {
        let value = run();
        let _ = sender.send((now(), value));
    });
    started.unwrap();
    result
}

/// The result of a spawned thread.
pub(super) fn join<T>(result: &Receiver<(Instant, T)>) -> (Instant, T) {
    result.recv_timeout(LONG).expect("the thread ends")
}

pub(super) fn since(begin: Instant) -> Range<Instant> {
    begin..now()
}

/// Time is virtual: this is what the crate itself takes, and the network.
#[track_caller]
pub(super) fn assert_at_most(what: &str, took: Range<Instant>, limit: Duration) {
    assert_over_at_most(what, [(took, Duration::ZERO)], limit);
}

/// The same for what each took beyond a time of its own.
#[track_caller]
pub(super) fn assert_over_at_most(
    what: &str,
    took: impl IntoIterator<Item = (Range<Instant>, Duration)>,
    limit: Duration,
) {
    for (span, own) in took {
        let over = span.end.saturating_duration_since(span.start).saturating_sub(own);
        figure(what, over);
        assert!(over <= limit, "{what}: {over:?}, more than {limit:?}");
    }
}

pub(super) fn figure(name: &str, value: impl Debug) {
    println!("{name}: {value:?}");
}
