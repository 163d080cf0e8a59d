//! Acquires that learn too late what became of them.

use std::{sync::Arc, time::Duration};

use curator_locks::{
    CuratorFramework, Error, Hold, HoldState, InterProcessLock, InterProcessMultiLock, InterProcessMutex,
};

use super::super::{
    seam::{
        ChildProcess, Direction, Fault, FaultProxy, Parent, RequestMatch, Start, elapsed, eventually, now, scope,
        shared_clock, sleep, unbounded,
    },
    subject::{LOCK, Lock, Subject},
    world::{World, client_of},
};
use super::Waiter;

/// Of the process that is paused.
const SHORT_SESSION: Duration = Duration::from_secs(1);

/// In each direction. A session is never certain whose heartbeats take longer than a third of the session timeout.
const SLOW: Duration = Duration::from_millis(180);

/// The child says it back.
const ASK: &str = "still there?";

/// A process that is paused before it reads the answer to any request of its acquire, until its session is gone and
/// somebody else holds the lock, does not return the lock.
pub(crate) fn old_answer(subject: &'static Subject) {
    // Beside each other: they wait for the ends of sessions.
    scope(|scope| {
        for moment in [Moment::Free, Moment::BecomesFree, Moment::InDoubt] {
            scope.start(move || {
                let (mut stage, mut answers) = (Stage::new(subject), 0);
                while let Some(paused) = stage.pause_before_answer(moment, answers) {
                    answers += u64::from(paused);
                }
                println!("{answers} answers, {moment:?}");
                assert!(answers > 0 || moment != Moment::Free);
            });
        }
        scope.start(|| Stage::new(subject).pause_before_event());
    });
}

/// When the requests are sent that the child is paused over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The lock is free.
    Free,
    /// The lock becomes free.
    BecomesFree,
    /// The lock becomes free, and the client is not sure of its session, so that it asks once more.
    InDoubt,
}

struct Stage {
    world: World,
    proxy: Arc<FaultProxy>,
    child: ChildProcess,
    /// The child's session.
    session: String,
    rival: Box<dyn Lock>,
}

impl Stage {
    fn new(subject: &'static Subject) -> Stage {
        let world = World::new(subject);
        let proxy = world.proxy();
        let child = ChildProcess::start("paused", &[subject.name, &proxy.connect_string(), &world.namespace]);
        let session = child.hear();
        let rival = world.rival(&world.client());
        Stage { world, proxy, child, session, rival }
    }

    /// Pauses the child before the answer to this request, counted from that moment. `None`: it is granted without; `false`:
    /// its connection or its session was gone before it was paused.
    fn pause_before_answer(&mut self, moment: Moment, request: u64) -> Option<bool> {
        if moment != Moment::Free {
            self.have_it_wait();
        }
        if moment == Moment::InDoubt {
            self.proxy.delay(SLOW);
            // Not to wait for something: it is the time after which the last quick heartbeat proves nothing any more.
            sleep(SHORT_SESSION);
        }
        let of_lock = RequestMatch::any().path(|path| path.contains(LOCK)).skip(request);
        let held = self.proxy.inject(of_lock, Fault::HoldReply);
        let connections = self.proxy.connections();
        if moment == Moment::Free {
            self.child.tell("acquire");
        } else {
            self.rival.release().unwrap();
        }
        let (begin, mut granted) = (now(), None);
        eventually("it is granted, or waits for the answer", || {
            if elapsed(begin) > SHORT_SESSION {
                // A client need not take a lock before it is sure of its session again.
                self.proxy.delay(Duration::ZERO);
            }
            granted = granted.take().or_else(|| self.child.heard());
            granted.is_some() || held.hits() > 0
        });
        // Some are sent beside an acquire that does not wait for them: the watch of a cached lock, what a semaphore gives
        // back.
        let granted = granted.or_else(|| self.says_without_more());
        let paused = match granted {
            Some(said) => {
                held.release();
                self.release(&said);
                // A client that waits in vain for an answer asks again on another connection.
                (self.proxy.connections() > connections).then_some(false)
            }
            None => Some(self.pause_beyond_session(|stage| {
                held.release();
                stage.proxy.delay(Duration::ZERO);
            })),
        };
        self.proxy.delay(Duration::ZERO);
        paused
    }

    /// What the child says by what it has received.
    fn says_without_more(&mut self) -> Option<String> {
        // On a slow link a heartbeat or an answer wakes it every few milliseconds: a machine that is late never sees it asleep.
        if !self.child.sleeps_within(SHORT_SESSION) {
            self.proxy.delay(Duration::ZERO);
            eventually("every thread sleeps", || self.child.sleeps_within(SHORT_SESSION));
        }
        self.child.tell(ASK);
        let said = self.child.hear();
        (said != ASK).then(|| {
            assert_eq!(self.child.hear(), ASK);
            said
        })
    }

    /// Pauses the child before it learns that the lock is free.
    fn pause_before_event(&mut self) {
        loop {
            self.have_it_wait();
            self.proxy.black_hole(Direction::ToClient);
            self.rival.release().unwrap();
            if self.pause_beyond_session(|stage| stage.proxy.pass().unwrap()) {
                return;
            }
        }
    }

    fn have_it_wait(&mut self) {
        self.rival.acquire().unwrap();
        self.child.tell("acquire");
        self.world.await_waiters(1);
    }

    /// What was held back is there when the child goes on; its session is not, and the rival holds the lock. `false`: on
    /// a machine that does not run the child, its session was gone before, and it may have gone on with another one; or the answer to
    /// a heartbeat came just before the pause, and it was granted without the request.
    fn pause_beyond_session(&mut self, deliver: impl FnOnce(&Stage)) -> bool {
        self.child.pause();
        self.child.await_stop();
        let paused_at = shared_clock();
        let is_in_time = self.has_session();
        deliver(self);
        if !is_in_time {
            self.child.resume();
            let said = self.child.hear();
            self.release(&said);
            return false;
        }
        eventually("the child's session is gone", || !self.has_session());
        self.rival.acquire().unwrap();
        let of_rival = self.world.znodes().len();
        self.child.resume();
        let mut granted = None;
        eventually("it waits behind the rival, or is granted", || {
            granted = granted.take().or_else(|| self.child.heard());
            granted.is_some() || self.world.are_waiters(1) || self.world.znodes().len() > of_rival
        });
        let is_earlier = granted.as_deref().is_some_and(|said| grant_of(said).0 < paused_at);
        assert!(is_earlier || granted.is_none(), "granted while another holds it: {granted:?}, paused at {paused_at}");
        if is_earlier {
            println!("granted just before its pause: {granted:?}");
        }
        self.rival.release().unwrap();
        let said = granted.unwrap_or_else(|| self.child.hear());
        self.release(&said);
        !is_earlier
    }

    /// Whether the server knows the session.
    fn has_session(&self) -> bool {
        self.world.server.has_session(&self.session)
    }

    fn release(&mut self, said: &str) {
        let (_, session, states) = grant_of(said);
        // It may be in doubt, on a machine that has other work: a heartbeat comes late then.
        assert!(!states.contains("Lost"), "what the holder knew at the return: {states}");
        session.clone_into(&mut self.session);
        self.child.tell("release");
        let released = self.child.hear();
        if released != "released" {
            // A session that short may end where the machine does not run the child.
            eventually(&format!("its session has ended: {released}"), || {
                // Or the background has given it back.
                !self.has_session() || self.world.znodes().is_empty()
            });
        }
        self.world.await_nothing();
    }
}

/// What the child says of a grant: when the acquire returned, in which session, and what it knew of each hold.
fn grant_of(said: &str) -> (u64, &str, &str) {
    let (at, grant) = said.split_once(' ').unwrap();
    let (session, states) = grant.split_once(' ').unwrap();
    (at.parse().unwrap(), session, states)
}

/// The process that is paused. What holds the lock and what answers are two threads.
pub(crate) fn paused_child(subject: &'static Subject, address: &str, namespace: &str, parent: &Parent) {
    let client = client_of(subject, address, namespace, SHORT_SESSION);
    let lock = (subject.make)(&client);
    let session = || format!("0x{:x}", client.session_id());
    parent.say(&session());
    let (go_on, told) = unbounded();
    scope(|scope| {
        scope.start(|| {
            while told.recv().is_ok() {
                let guard = loop {
                    match lock.guard() {
                        // A link that is slow for as long as a session, or a machine.
                        Err(Error::Uncertain { .. } | Error::ConnectionLoss { .. }) => {}
                        guard => break guard.unwrap(),
                    }
                };
                // Before it looks at the states, so that a hold that was granted before a pause is not seen behind it.
                let at = shared_clock();
                let states: Vec<HoldState> = guard.holds().into_iter().map(Hold::state).collect();
                parent.say(&format!("{at} {} {states:?}", session()));
                told.recv().unwrap();
                parent.say(&guard.release().map_or_else(|error| error.to_string(), |()| "released".into()));
            }
        });
        loop {
            if parent.listen() == ASK { parent.say(ASK) } else { go_on.send(()).unwrap() }
        }
    });
}

/// Of a client whose link is slow: to and fro it takes two fifths of this.
const SLOW_SESSION: Duration = Duration::from_secs(2);

/// On a link on which no heartbeat makes the session certain, an acquire gives its place up after a session timeout and says
/// so. Those behind it wait no longer than that.
pub(crate) fn slow_link(subject: &'static Subject) {
    let world = World::new(subject);
    let proxy = world.proxy();
    let (slow, prompt) = (world.short_client_at(&proxy.connect_string(), SLOW_SESSION), world.client());
    let (lock, rival) = (world.lock(&slow), world.rival(&prompt));
    let probe = InterProcessMutex::new(&slow, OTHER).unwrap();
    let probe = probe.lock().unwrap();
    proxy.delay(SLOW_SESSION / 5);
    eventually("nothing is certain any more", || probe.valid_until() <= now());
    world.scope(|scope| {
        // On a machine that is late, the connection may be given up before it stands anywhere.
        let waiter = loop {
            let (waiter, mut early) = (Waiter::start(scope, &*lock), None);
            eventually("it stands first, or has given up", || {
                early = early.take().or_else(|| waiter.granted.try_recv().ok());
                early.is_some() || !world.znodes().is_empty()
            });
            match early {
                None => break waiter,
                Some(outcome) => assert!(matches!(&outcome, Err(Error::ConnectionLoss { .. })), "{outcome:?}"),
            }
        };
        let next = Waiter::start(scope, &*rival);
        let outcome = waiter.outcome();
        assert!(matches!(&outcome, Err(Error::Uncertain { .. })), "{outcome:?}");
        let holds = next.await_grant();
        assert!(holds.iter().all(Hold::is_valid), "{holds:?}");
        assert!(!lock.is_acquired_in_this_process());
        next.release();
    });
    world.await_nothing();
}

/// Where the second member stands.
const OTHER: &str = "/other";

/// A multi lock that loses its first member while it waits for the second does not return with it lost: it begins anew.
pub(crate) fn lost_member(subject: &'static Subject) {
    let expired = |world: &World, client: &CuratorFramework| world.expire(client);
    let deleted = |world: &World, client: &CuratorFramework| world.delete_all_of(client);
    for lose in [expired as fn(&World, &CuratorFramework), deleted] {
        lose_member(subject, lose);
    }
}

fn lose_member(subject: &'static Subject, lose: fn(&World, &CuratorFramework)) {
    let world = World::new(subject);
    let (client, other) = (world.client(), world.client());
    let first: Arc<dyn Lock> = world.lock(&client).into();
    let second = InterProcessMutex::new(&client, OTHER).unwrap();
    let both = InterProcessMultiLock::from_locks([first as Arc<dyn InterProcessLock>, Arc::new(second)]).unwrap();
    let (second, first) = (InterProcessMutex::new(&other, OTHER).unwrap(), world.rival(&other));
    world.scope(|scope| {
        second.acquire().unwrap();
        let waiter = Waiter::start(scope, &both);
        eventually("it has the first and waits for the second", || world.children(OTHER).len() == 2);
        // It waits before the loss, so that it has the first before the multi lock can have it again, unless that is unfair.
        let rival = Waiter::start(scope, &*first);
        world.await_waiters(1);
        lose(&world, &client);
        let mut rivals = None;
        eventually("somebody has the first", || {
            rivals = rivals.take().or_else(|| rival.ended());
            rivals.is_some() || world.is_sole_of(&client)
        });
        second.release().unwrap();
        let rival = if rivals.map(Result::unwrap).is_some() {
            let mut outcome = None;
            eventually("it waits for the first", || {
                outcome = outcome.take().or_else(|| waiter.ended());
                outcome.is_some() || world.are_waiters(1)
            });
            assert!(outcome.is_none(), "somebody else holds a member: {outcome:?}");
            rival.release();
            None
        } else {
            Some(rival)
        };
        let holds = waiter.await_grant();
        assert!(holds.iter().all(Hold::is_valid), "{holds:?}");
        waiter.release();
        if let Some(rival) = rival {
            rival.await_grant();
            rival.release();
        }
    });
    world.await_nothing();
    eventually("the second is free", || world.children(OTHER).is_empty());
}
