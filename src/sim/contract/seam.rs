//! What the cases have of the machine and of the servers: simulated ones.

pub(crate) use std::thread::Scope;
use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::{subject::Sessions, subject_of, world::play_role};
pub(crate) use crate::base::{
    channel::{Receiver, Sender, unbounded},
    clock::{now, since as elapsed},
    sim::thread::{ScopedThread, Start, scope, sleep},
};
pub(crate) use crate::sim::proxy::{Direction, Fault, FaultProxy, InjectedFault, RequestMatch, op};
use crate::{
    Builder, CuratorFramework, Result, RetryNTimes,
    sim::{ensemble::faults::Tail, network::faults::Death, process::Process, transport::Simulated, world::World},
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than any wait, so that a session ends only where a case ends it.
pub(crate) const SESSION: Duration = Duration::from_secs(40);

const POLL: Duration = Duration::from_millis(5);

/// By then all has come that is on its way.
const ARRIVAL: Duration = Duration::from_millis(200);

/// The run that the calling thread is of.
pub(super) fn here() -> World {
    World::here().unwrap()
}

/// Waits for an observed state.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) -> Instant {
    let deadline = now() + PATIENCE;
    while !is_so() {
        assert!(now() < deadline, "not within {PATIENCE:?}: {what}");
        sleep(POLL);
    }
    now()
}

/// True time.
pub(crate) fn shared_clock() -> u64 {
    u64::try_from(here().now().as_nanos()).unwrap()
}

/// No thread is kept waiting for a processor.
pub(crate) struct Machine;

impl Machine {
    pub(crate) fn watch() -> Machine {
        Machine
    }

    pub(crate) fn lateness(&self, _during: &Range<Instant>) -> Duration {
        Duration::ZERO
    }

    #[track_caller]
    pub(crate) fn assert_at_most(&self, what: &str, took: Range<Instant>, limit: Duration) {
        let took = took.end.saturating_duration_since(took.start);
        assert!(took <= limit, "{what}: {took:?}, more than {limit:?}");
    }
}

pub(crate) fn since(begin: Instant) -> Range<Instant> {
    begin..now()
}

/// A namespace that nobody else in the run uses.
pub(crate) fn namespace() -> String {
    format!("test-{}", here().rng().u64(..))
}

/// As `tests/support` has it.
pub(crate) fn builder_at(connect_string: &str, namespace: &str) -> Builder {
    CuratorFramework::builder()
        .connect_string(connect_string)
        .session_timeout(SESSION)
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(5, Duration::from_millis(20)))
        .lock_recheck_interval(None)
        .ensemble_tracker(false)
        .namespace(namespace)
        .session_factory(Simulated(here().network()))
}

#[track_caller]
pub(crate) fn connect(builder: Builder) -> CuratorFramework {
    let client = builder.build().unwrap();
    client.start().unwrap();
    assert!(client.block_until_connected(Some(PATIENCE)).unwrap(), "not connected");
    client
}

/// Locks at servers of other kinds are no part of a run.
pub(crate) fn configured(_sessions: Sessions, _address: &str, _session: Duration, builder: Builder) -> Builder {
    builder
}

/// No listener is told late.
pub(crate) fn left(_client: &CuratorFramework, _node: Option<String>, result: Result<()>) -> Result<()> {
    result
}

/// The one server of the run.
#[derive(Clone, Copy)]
pub(crate) struct Server;

pub(crate) type Turn = ();

impl Server {
    pub(crate) fn shared() -> Server {
        Server
    }

    pub(crate) fn restartable() -> (Turn, Server) {
        ((), Server)
    }

    pub(crate) fn stop(self) {
        here().ensemble(|ensemble, now, out| ensemble.crash(0, Tail::Kept, now, out));
    }

    pub(crate) fn restart(self) {
        here().ensemble(|ensemble, now, _| ensemble.restart(0, now));
    }

    pub(crate) fn connect_string(self) -> String {
        here().connect_string()
    }

    pub(crate) fn proxy(self) -> FaultProxy {
        FaultProxy::start(&here())
    }

    pub(crate) fn watchers(self, path: &str) -> Vec<i64> {
        here().ensemble(|ensemble, _, _| {
            let watches = ensemble.watches(0).into_iter().filter(|(watched, _)| *watched == path);
            watches.map(|(_, session)| session).collect()
        })
    }

    pub(crate) fn expire(self, client: &CuratorFramework) {
        let session = client.session_id();
        assert!(here().ensemble(|ensemble, now, out| ensemble.expire(session, now, out)));
    }

    pub(crate) fn has_session(self, id: &str) -> bool {
        let id = i64::from_str_radix(id.trim_start_matches("0x"), 16).unwrap();
        here().ensemble(|ensemble, _, _| ensemble.tree(0).sessions.contains_key(&id))
    }
}

/// A process of the run that plays a role; killed when dropped.
pub(crate) struct ChildProcess {
    process: Process,
    tell: Sender<String>,
    said: Receiver<String>,
}

impl ChildProcess {
    pub(crate) fn start(role: &str, arguments: &[&str]) -> ChildProcess {
        let process = here().process(role);
        let ((tell, told), (say, said)) = (unbounded(), unbounded());
        let parent = Parent { say, told };
        let (role, subject) = (role.to_owned(), subject_of(arguments[0]));
        let arguments: Vec<String> = arguments[1..].iter().map(|argument| (*argument).to_owned()).collect();
        process.spawn("main", move || play_role(&role, subject, &arguments, &parent));
        ChildProcess { process, tell, said }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        self.tell.send(line.to_owned()).unwrap();
    }

    #[track_caller]
    pub(crate) fn hear(&self) -> String {
        self.said.recv_timeout(PATIENCE).expect("the child says nothing")
    }

    pub(crate) fn heard(&self) -> Option<String> {
        self.said.try_recv().ok()
    }

    pub(crate) fn pause(&self) {
        self.process.pause(Duration::MAX);
    }

    pub(crate) fn await_stop(&self) {}

    pub(crate) fn sleeps_within(&self, _: Duration) -> bool {
        sleep(ARRIVAL);
        true
    }

    pub(crate) fn resume(&self) {
        self.process.go_on();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.process.kill(Death::Reset);
    }
}

/// Lets all go once all are ready. Gives the lines of numbers that each says until it is done.
pub(crate) fn race(mut children: Vec<ChildProcess>) -> Vec<Vec<u64>> {
    children.iter().for_each(|child| assert_eq!(child.hear(), "ready"));
    children.iter_mut().for_each(|child| child.tell("go"));
    let numbers = |line: String| line.split(' ').map(|number| number.parse().unwrap()).collect();
    let said = |child: &ChildProcess| {
        let lines = std::iter::repeat_with(|| child.hear()).take_while(|line| line != "done");
        lines.map(numbers).collect::<Vec<Vec<u64>>>()
    };
    children.iter().flat_map(said).collect()
}

/// The parent of a process that plays a role.
pub(crate) struct Parent {
    say: Sender<String>,
    told: Receiver<String>,
}

impl Parent {
    pub(crate) fn say(&self, what: &str) {
        // It may listen no more.
        let _ = self.say.send(what.to_owned());
    }

    pub(crate) fn listen(&self) -> String {
        self.told.recv().unwrap_or_else(|_| {
            loop {
                // It is killed.
                sleep(PATIENCE);
            }
        })
    }
}
