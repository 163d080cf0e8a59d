//! What is told to those who want to lead while the network fails, and when.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use curator_locks::{
    ConnectionState::{Connected, Reconnected, Suspended},
    CreateMode, CuratorFramework, Error, HoldState, LostReason,
    testing::Direction,
    zookeeper_recipe::{LockListener, WriteLock},
};

use super::scene::*;
use crate::support::logs::{catch_logs, has_logged};

const DIR: &str = "/locks/election";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Acquired,
    Released,
}
use Told::{Acquired, Released};

struct Tells(Sender<(Instant, Told)>);

impl LockListener for Tells {
    fn lock_acquired(&self) {
        let _ = self.0.send((Instant::now(), Acquired));
    }

    fn lock_released(&self) {
        let _ = self.0.send((Instant::now(), Released));
    }
}

fn candidate(client: &CuratorFramework) -> (WriteLock, Receiver<(Instant, Told)>) {
    let (sender, told) = unbounded();
    (WriteLock::with_listener(client, DIR, Tells(sender)).unwrap(), told)
}

fn expect(told: &Receiver<(Instant, Told)>, expected: Told) -> Instant {
    let (at, what) = told.recv_timeout(LONG).expect("something is told");
    assert_eq!(what, expected);
    at
}

#[test]
fn an_owner_in_a_black_hole_is_told_so_before_the_next_one_is_told() {
    // Side by side, because each takes longer than a session.
    let rounds: Vec<_> = (0..8).map(|_| spawn(depose)).collect();
    rounds.iter().for_each(|round| join(round).1);
}

fn depose() {
    // A machine that stands still does not end such a session before the black hole does.
    let (machine, scene) = (Machine::watch(), scene_with(3 * T));
    let ((owner, told), (next, told_next)) = (candidate(&scene.client), candidate(&scene.observer));
    assert!(owner.lock().unwrap() && !next.lock().unwrap());
    expect(&told, Acquired);
    // At any phase of the heartbeat.
    std::thread::sleep(fastrand::u32(..T.as_millis() as u32) * MS);
    eventually("it leads", || owner.is_owner());
    let hold = owner.hold().unwrap();
    scene.proxy.black_hole(Direction::Both);
    let begin = Instant::now();
    let mut told_since = told.iter().filter(|(at, what)| *what == Released && *at >= begin);
    let (released, _) = told_since.next().unwrap();
    // Who looks late sees that the session is given up, too.
    assert!(matches!(hold.state(), HoldState::InDoubt | HoldState::Lost(LostReason::SuspendedTooLong)));
    assert!(!owner.is_owner() && owner.hold().is_none() && owner.fencing_token().is_none());
    let (valid_until, acquired) = (hold.valid_until(), expect(&told_next, Acquired));
    figure(
        "black hole: valid until, released, the next one acquired",
        [valid_until, released, acquired].map(|at| at.saturating_duration_since(begin)),
    );
    assert!(released >= valid_until, "it was its own for {:?} more", valid_until - released);
    assert!(valid_until < acquired, "two leaders for {:?}", valid_until - acquired);
    machine.assert_at_most("black hole: released after valid_until", valid_until..released, acquired - valid_until);
}

#[test]
fn a_connection_that_is_back_in_time_is_told_to_no_owner() {
    let scene = scene_with(LONG);
    let (owner, told) = candidate(&scene.client);
    assert!(owner.lock().unwrap());
    expect(&told, Acquired);
    for _ in 0..20 {
        scene.proxy.cut();
        expect_state(&scene.states, Suspended);
        expect_state(&scene.states, Reconnected);
        eventually("it is certain again", || owner.is_owner());
    }
    owner.close().unwrap();
    // The first that it is told since.
    expect(&told, Released);
    assert!(told.is_empty());
}

/// What is in the directory besides the contenders makes its list larger than this.
const FRAME_LIMIT: usize = 16 * 1024;
const REMARKS: usize = 200;

fn fill(admin: &CuratorFramework) {
    for k in 0..REMARKS {
        let path = format!("{DIR}/{k}-{:x<100}", "");
        let create = admin.create().creating_parents_if_needed().with_mode(CreateMode::Persistent);
        create.for_path(&path).unwrap();
    }
}

struct Limited {
    scene: Scene,
    /// Behind the proxy, alone.
    client: CuratorFramework,
    states: States,
}

impl Limited {
    fn new() -> Limited {
        let scene = scene_with(LONG);
        scene.client.close();
        let client = scene.builder(LONG).max_frame_size(FRAME_LIMIT).build().unwrap();
        let states = states_of(&client);
        start(&client);
        expect_state(&states, Connected);
        Limited { scene, client, states }
    }

    /// What comes of it costs the client one connection at most, and leaves nothing in the directory.
    fn costs_one_connection(&self, doing: impl FnOnce()) {
        self.scene.proxy.clear_log();
        doing();
        // Not to wait for something: nothing more is to happen in that time.
        std::thread::sleep(Duration::from_secs(5));
        eventually("it is connected", || self.client.is_connected());
        // A connection that a server was too slow to take has carried none.
        let carried: BTreeSet<_> = self.scene.proxy.log().iter().map(|request| request.connection).collect();
        let states: Vec<_> = self.states.try_iter().map(|(_, state)| state).collect();
        figure("too large: connections and states in 5 s", (&carried, &states));
        assert!(carried.len() <= 2, "requests on {carried:?}");
        assert!(states.len() <= 2, "{states:?}");
        eventually("nothing is left of it", || children(&self.scene.observer, DIR).len() == REMARKS);
    }
}

#[test]
fn a_directory_that_is_too_large_is_an_error_and_no_end_of_the_connection_again_and_again() {
    let limited = Limited::new();
    fill(&limited.scene.observer);
    let other = mutex(&limited.client);
    let held = other.lock().unwrap();
    let (lock, told) = candidate(&limited.client);
    limited.costs_one_connection(|| {
        let result = lock.lock();
        assert!(matches!(result, Err(Error::FrameTooLarge { limit: FRAME_LIMIT, .. })), "{result:?}");
        assert_eq!(lock.id(), None);
    });
    assert!(told.is_empty());
    eventually("what else the client holds is certain", || held.is_valid());
    held.release().unwrap();
}

#[test]
fn a_directory_that_becomes_too_large_ends_an_election_with_a_message() {
    let limited = Limited::new();
    catch_logs(log::LevelFilter::Error);
    let ((owner, _), (waiter, told)) = (candidate(&limited.scene.observer), candidate(&limited.client));
    assert!(owner.lock().unwrap() && !waiter.lock().unwrap());
    fill(&limited.scene.observer);
    limited.costs_one_connection(|| {
        owner.close().unwrap();
        eventually("it has given up", || waiter.id().is_none());
        eventually("it says so", || has_logged(&[DIR, "given up", "max_frame_size"]));
    });
    assert!(told.is_empty() && !waiter.is_owner());
    limited.scene.observer.delete().deleting_children_if_needed().for_path(DIR).unwrap();
    assert!(waiter.lock().unwrap(), "it may be asked to queue again");
}

mod slow {
    use super::*;

    #[test]
    fn an_owner_that_hears_the_servers_again_within_its_session_leads_on_with_the_same_znode() {
        // The client gives it up as long after the doubt as it lasts.
        let scene = scene_with(4 * T);
        let ((owner, told), (next, told_next)) = (candidate(&scene.client), candidate(&scene.observer));
        assert!(owner.lock().unwrap() && !next.lock().unwrap());
        expect(&told, Acquired);
        let (id, session, hold) = (owner.id(), scene.client.session_id(), owner.hold().unwrap());
        // The servers hear it all the time, so that its session lives.
        scene.proxy.black_hole(Direction::ToClient);
        let begin = Instant::now();
        let released = expect(&told, Released);
        assert_eq!(hold.state(), HoldState::InDoubt);
        scene.proxy.pass().unwrap();
        let again = expect(&told, Acquired);
        figure("one way black hole: released, and acquired again", (released - begin, again - begin));
        assert!(owner.is_owner());
        assert_eq!((owner.id(), scene.client.session_id()), (id, session));
        owner.close().unwrap();
        expect(&told, Released);
        expect(&told_next, Acquired);
        assert!(told.is_empty() && told_next.is_empty());
    }
}
