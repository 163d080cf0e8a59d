//! One contender, one step at a time: rules that no schedule needs, or few, each as a fact.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use curator_locks::{
    ErrorCode, Stat,
    unversioned::{
        EventType, Response, WatchEvent,
        contender::{Contender, Environment, Failed, Input, Leftover, Reaction, Spec, View, WatchId},
    },
};

use super::{
    rules::Lock,
    thread::{Error, Failure, connection_lost, refused},
    trace,
};

mod creating;
mod granting;
mod sole;
mod waiting;

type Answer = Result<Response, Failure>;

/// The session in which it begins, over its first connection.
const SESSION: i64 = 10;

/// The session timeout.
const T: Duration = Duration::from_secs(3600);

struct Process {
    leases: usize,
    lists_with_create: bool,
    granted: Vec<String>,
    uniques: Cell<u8>,
}

impl Environment<Error> for Process {
    fn unique(&self) -> String {
        self.uniques.set(self.uniques.get() + 1);
        format!("u{}-", self.uniques.get())
    }

    fn max_leases(&self) -> usize {
        self.leases
    }

    fn lists_with_create(&self) -> bool {
        self.lists_with_create
    }

    fn was_granted_here(&self, name: &str) -> bool {
        self.granted.iter().any(|granted| granted == name)
    }

    fn node_gone(&self) -> Error {
        "the own znode is gone"
    }
}

/// A contender and all that it sees.
struct OneContender {
    contender: Contender,
    spec: Spec,
    view: View,
    process: Process,
}

impl OneContender {
    fn of(lock: &Lock) -> OneContender {
        let now = Instant::now();
        let view = View {
            now,
            is_time_up: false,
            session: SESSION,
            connection: 1,
            valid_until: Some(now + T),
            timeout: T,
            is_ended: false,
            is_lost: false,
        };
        let process =
            Process { leases: lock.limit(), lists_with_create: true, granted: Vec::new(), uniques: Cell::new(0) };
        OneContender { contender: Contender::default(), spec: lock.spec.clone(), view, process }
    }

    /// Takes a step, and says what is wanted next.
    fn step(&mut self, input: Input<Error>) -> String {
        trace::next(&self.contender.step(&self.spec, &self.process, &self.view, input))
    }

    /// Its first requests.
    fn begin(&mut self) -> String {
        assert_eq!(self.step(Input::Begin), "connect");
        self.step(Input::Connected)
    }

    fn told<const N: usize>(&mut self, answers: [Answer; N]) -> String {
        self.step(Input::Answers(answers.into()))
    }

    fn event(&mut self, watch: WatchId, event: EventType) -> String {
        let connection = self.view.connection;
        self.step(Input::Event(watch, WatchEvent::Node { event, connection }))
    }

    /// It begins, and is in the queue with this number, behind these.
    fn behind(lock: &Lock, others: &[u32], number: u32) -> (OneContender, String) {
        let mut one = OneContender::of(lock);
        one.begin();
        let next = one.told([created(1, number), listed(others, number)]);
        (one, next)
    }

    /// It is in the queue behind one that holds the lock, and sleeps.
    fn asleep(lock: &Lock) -> OneContender {
        let (mut one, next) = OneContender::behind(lock, &[3], 7);
        assert_eq!(next, "read /main/lock-0000000003 and watch; read /main/u1-lock-0000000007 and watch");
        assert_eq!(one.told([data(9), data(SESSION)]), "sleep");
        one
    }

    /// The own znode is first, and in the registry.
    fn registered(lock: &Lock) -> OneContender {
        let (one, next) = OneContender::behind(lock, &[], 7);
        assert_eq!(next, "hold");
        one
    }

    /// The connection is gone, and the session goes on over another one.
    fn reconnect(&mut self) {
        self.view.connection += 1;
    }

    fn lose_session(&mut self) {
        (self.view.session, self.view.connection) = (SESSION + 1, 1);
    }

    /// The servers may have expired the session.
    fn doubt(&mut self) {
        self.view.valid_until = Some(self.view.now);
    }

    /// What it leaves behind, by names.
    fn discarded(&mut self) -> Vec<String> {
        let name = |leftover| match leftover {
            Leftover::Node(node) => node.name,
            Leftover::Doubt(unique) => format!("{unique}?"),
        };
        self.contender.take_discarded().into_iter().map(name).collect()
    }
}

fn own(unique: u8, number: u32) -> String {
    format!("u{unique}-lock-{number:010}")
}

fn other(number: u32) -> String {
    format!("lock-{number:010}")
}

/// The transaction that creates a znode with this number.
fn czxid(number: u32) -> i64 {
    100 + i64::from(number)
}

fn created(unique: u8, number: u32) -> Answer {
    Ok(Response::Created { path: format!("/main/{}", own(unique, number)), czxid: czxid(number) })
}

fn names(names: Vec<String>) -> Answer {
    Ok(Response::Children { names, stat: None })
}

/// These, and the first own one with this number.
fn listed(others: &[u32], number: u32) -> Answer {
    names(others.iter().map(|number| other(*number)).chain([own(1, number)]).collect())
}

fn data(owner: i64) -> Answer {
    Ok(Response::Data { data: Vec::new(), stat: Stat { ephemeral_owner: owner, ..Stat::default() } })
}

fn stands(number: u32, owner: i64) -> Answer {
    Ok(Response::Stat(Stat { czxid: czxid(number), ephemeral_owner: owner, ..Stat::default() }))
}

fn synced() -> Answer {
    Ok(Response::Synced { path: "/main".to_owned() })
}

fn no_node() -> Answer {
    Err(refused(ErrorCode::NoNode))
}

/// The connection is lost before the answer.
fn lost() -> Answer {
    Err(connection_lost(true))
}

/// The answer is above the frame limit.
fn too_large() -> Answer {
    Err(Failed { error: "too large", code: None, maybe_done: false, reaction: Reaction::Final })
}
