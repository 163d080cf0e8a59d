//! Sessions, servers and clients that end.

use std::time::Duration;

use curator_locks::{CuratorFramework, Error, HoldState, LostReason};

use super::super::{
    seam::{Fault, Machine, PATIENCE, RequestMatch, eventually, now, op, since},
    subject::{LOCK, Subject},
    world::{World, latent_client},
};
use super::Waiter;

/// For what does not wait, on a machine that is shared, whose server may stand still.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The lock of a session that has expired goes to the next; its former holder is told, and takes nothing from that one.
pub(crate) fn session_loss_of_holder(subject: &'static Subject) {
    let world = World::new(subject);
    let (holding, waiting) = (world.client(), world.client());
    let (held, wanted) = (world.lock(&holding), world.rival(&waiting));
    world.scope(|scope| {
        let guard = held.guard().unwrap();
        let waiter = Waiter::start(scope, &*wanted);
        world.await_waiters(1);
        world.expire(&holding);
        waiter.await_grant();
        for hold in guard.holds() {
            eventually("the holder is told", || hold.is_lost());
            assert_eq!(hold.state(), HoldState::Lost(LostReason::SessionExpired));
            assert!(hold.valid_until() <= now());
        }
        eventually("its client has a new session", || holding.is_connected());
        if subject.is_reentrant {
            let result = held.acquire();
            assert!(matches!(&result, Err(Error::LockLost { .. })), "a re-entry into a lost lock: {result:?}");
        }
        let result = guard.release();
        assert!(
            matches!(&result, Err(Error::LockLost { reason: LostReason::SessionExpired, .. })),
            "the release of a lost lock: {result:?}"
        );
        assert!(!held.is_acquired_in_this_process());
        assert!(wanted.is_acquired_in_this_process());
        world.await_waiters(0);
        assert!(!held.acquire_timeout(Duration::ZERO).unwrap(), "two holders");
        waiter.release();
        assert!(held.acquire_timeout(PATIENCE).unwrap());
        held.release().unwrap();
    });
    world.await_nothing();
}

/// A waiter whose session expires queues again in the next one, and gets the lock on a znode of that one.
pub(crate) fn session_loss_of_waiter(subject: &'static Subject) {
    let world = World::new(subject);
    let (holding, waiting) = (world.client(), world.client());
    let (held, wanted) = (world.rival(&holding), world.lock(&waiting));
    world.scope(|scope| {
        held.acquire().unwrap();
        let waiter = Waiter::start(scope, &*wanted);
        world.await_waiters(1);
        let before = waiting.session_id();
        world.expire(&waiting);
        eventually("its client has a new session", || waiting.is_connected() && waiting.session_id() != before);
        world.await_waiters(1);
        assert!(!waiter.is_granted(), "two holders");
        assert!(held.is_acquired_in_this_process());
        held.release().unwrap();
        waiter.await_grant();
        assert_eq!(world.newest_owner(), Some(waiting.session_id()));
        assert!(!held.acquire_timeout(Duration::ZERO).unwrap(), "two holders");
        waiter.release();
    });
    world.await_nothing();
}

/// A server says that the session has expired, or, on its own, that it does not know it: the lock is had all the same.
pub(crate) fn unknown_session(subject: &'static Subject) {
    const GONE: [i32; 2] = [-112, -12];
    for gone in GONE {
        let world = World::new(subject);
        let proxy = world.proxy();
        let lock = world.lock(&world.client_at(&proxy.connect_string()));
        let creates = RequestMatch::ops([op::CREATE, op::MULTI]).path(|path| path != "/");
        let refused = proxy.inject(creates, Fault::Refuse(gone));
        lock.acquire().unwrap();
        assert_eq!(refused.hits(), 1);
        lock.release().unwrap();
        world.await_nothing();
    }
}

/// The session timeout of a waiter whose servers vanish.
const SHORT_SESSION: Duration = Duration::from_secs(1);

/// The servers go for good while a waiter sleeps, or waits for the answer to any of its requests: in any case its acquire
/// ends with its session and the retry policy.
pub(crate) fn vanished_servers(subject: &'static Subject) {
    let mut answers = 0;
    while vanish_before_answer(subject, answers) {
        answers += 1;
    }
    println!("{answers} answers");
    assert!(answers > 1);
}

/// `false`: it sends no such request before it sleeps.
fn vanish_before_answer(subject: &'static Subject, request: u64) -> bool {
    let world = World::new(subject);
    let proxy = world.proxy();
    let (holding, waiting) = (world.client(), world.short_client_at(&proxy.connect_string(), SHORT_SESSION));
    let (held, wanted) = (world.rival(&holding), world.lock(&waiting));
    let is_of_lock = |path: &str| path.contains(LOCK);
    // All from there on: where the machine is late, a short session's connection may go with the first of these answers.
    let of_lock = RequestMatch::any().path(is_of_lock).skip(request).times(u64::MAX);
    let answer = proxy.inject(of_lock, Fault::HoldReply);
    // A server that knows no containers ends the connection once, and the next one may come after the last retry.
    let (mut early, mut has_ended_early) = (None, false);
    world.scope(|scope| {
        held.acquire().unwrap();
        let waiter = Waiter::start(scope, &*wanted);
        let sent = || proxy.log().iter().filter(|sent| sent.path.as_deref().is_some_and(is_of_lock)).count() as u64;
        eventually("it waits for the answer, or sleeps", || {
            early = early.take().or_else(|| waiter.granted.try_recv().ok());
            early.is_some() || answer.hits() > 0 || world.is_asleep(&waiting) && sent() <= request
        });
        proxy.refuse();
        proxy.reset();
        has_ended_early = early.is_some();
        let outcome = early.unwrap_or_else(|| waiter.outcome());
        assert!(matches!(&outcome, Err(Error::ConnectionLoss { .. })), "request {request}: {outcome:?}");
        held.release().unwrap();
    });
    world.await_nothing();
    answer.hits() > 0 || has_ended_early
}

/// Over a restart of the server the holder keeps the lock and the waiter its place.
pub(crate) fn server_restart(subject: &'static Subject) {
    let (_turn, world) = World::restartable(subject);
    let (holding, waiting) = (world.client(), world.client());
    let (held, wanted) = (world.lock(&holding), world.rival(&waiting));
    world.scope(|scope| {
        let guard = held.guard().unwrap();
        let waiter = Waiter::start(scope, &*wanted);
        world.await_waiters(1);
        let sessions = [holding.session_id(), waiting.session_id()];
        let mut before = world.znodes();
        world.server.stop();
        let clients = [&holding, &waiting, &world.observer];
        eventually("the connections are gone", || clients.iter().all(|client| !client.is_connected()));
        world.server.restart();
        eventually("all are connected again", || clients.iter().all(|client| client.is_connected()));
        assert_eq!([holding.session_id(), waiting.session_id()], sessions);
        world.await_waiters(1);
        let mut after = world.znodes();
        before.sort();
        after.sort();
        assert_eq!(before, after);
        for hold in guard.holds() {
            eventually("the holder knows that it holds", || hold.is_valid());
        }
        assert!(!waiter.is_granted(), "two holders");
        guard.release().unwrap();
        waiter.await_grant();
        waiter.release();
    });
    world.await_nothing();
}

/// A waiter whose client is closed ends at once with an error, and leaves nothing.
pub(crate) fn close_of_waiter(subject: &'static Subject) {
    let machine = Machine::watch();
    let world = World::new(subject);
    let (holding, waiting) = (world.client(), world.client());
    let (held, wanted) = (world.rival(&holding), world.lock(&waiting));
    world.scope(|scope| {
        held.acquire().unwrap();
        let waiter = Waiter::start(scope, &*wanted);
        world.await_waiters(1);
        let begin = now();
        waiting.close();
        let result = waiter.outcome();
        assert!(matches!(&result, Err(Error::ClientClosed)), "{result:?}");
        machine.assert_at_most("told", since(begin), AT_ONCE);
        assert!(!wanted.is_acquired_in_this_process());
        world.await_waiters(0);
        assert!(held.is_acquired_in_this_process());
        held.release().unwrap();
    });
    world.await_nothing();
}

/// The lock of a client that is closed goes to the next at once, and its holder is told.
pub(crate) fn close_of_holder(subject: &'static Subject) {
    let machine = Machine::watch();
    let world = World::new(subject);
    let (holding, waiting) = (world.client(), world.client());
    let (held, wanted) = (world.lock(&holding), world.rival(&waiting));
    world.scope(|scope| {
        let guard = held.guard().unwrap();
        let waiter = Waiter::start(scope, &*wanted);
        world.await_waiters(1);
        let begin = now();
        holding.close();
        waiter.await_grant();
        machine.assert_at_most("told", since(begin), AT_ONCE);
        for hold in guard.holds() {
            assert_eq!(hold.state(), HoldState::Lost(LostReason::ClientClosed));
        }
        if !guard.holds().is_empty() {
            let result = guard.release();
            assert!(matches!(&result, Err(Error::LockLost { reason: LostReason::ClientClosed, .. })), "{result:?}");
        }
        assert!(!held.is_acquired_in_this_process());
        world.await_waiters(0);
        waiter.release();
    });
    world.await_nothing();
}

/// A client that was not started yet, or is closed, says so.
pub(crate) fn client_that_is_not_open(subject: &'static Subject) {
    let machine = Machine::watch();
    let world = World::new(subject);
    let (latent, closed) = (latent_client(&world), world.client());
    closed.close();
    let is_refused = |client: &CuratorFramework, is_it: fn(&Error) -> bool| {
        let lock = world.lock(client);
        let results = [
            lock.acquire(),
            lock.acquire_timeout(Duration::ZERO).map(drop),
            lock.acquire_timeout(Duration::from_secs(60)).map(drop),
            lock.guard().map(drop),
        ];
        for result in results {
            assert!(result.as_ref().is_err_and(is_it), "{result:?}");
        }
        assert!(!lock.is_acquired_in_this_process());
    };
    let begin = now();
    is_refused(&latent, |error| matches!(error, Error::NotStarted));
    is_refused(&closed, |error| matches!(error, Error::ClientClosed));
    machine.assert_at_most("told", since(begin), AT_ONCE);
    world.await_nothing();
}
