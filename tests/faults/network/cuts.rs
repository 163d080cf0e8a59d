//! Connections that end, servers that go away and come back.

use std::time::{Duration, Instant};

use curator_locks::{
    ConnectionState::{Reconnected, Suspended},
    HoldState,
    testing::{Fault, RequestMatch, RequestRecord, op},
};

use super::scene::*;

#[test]
fn a_node_deleted_while_disconnected_wakes_its_watcher_after_the_reconnect() {
    let machine = Machine::watch();
    let scene = scene_alone(LONG / 2);
    let witness = Witness::of(&scene.server);
    let holder = mutex(&scene.observer);
    holder.acquire().unwrap();
    let client = scene.client.clone();
    let waiter = spawn(move || {
        let mutex = mutex(&client);
        mutex.acquire().unwrap();
        let at = Instant::now();
        mutex.release().unwrap();
        at
    });
    wait_for_nodes(&scene.observer, 2);
    eventually("both are watched", || scene.server.watch_count().unwrap() >= 2);
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(&scene.states, Suspended);
    holder.release().unwrap();
    scene.proxy.pass().unwrap();
    let reconnected = expect_state(&scene.states, Reconnected);
    let acquired = join(&waiter).1;
    witness.assert_at_most(&machine, "granted after the reconnect", reconnected..acquired, 500 * MS);
}

/// After a reconnect a holder asks whether its znode is still there. Once: a server that is slow to answer must not be
/// asked again and again, for each znode held.
#[test]
fn a_held_node_is_asked_for_once_after_a_reconnect_however_slow_the_answer() {
    let scene = scene_with(LONG);
    let mutex = mutex(&scene.client);
    let held = mutex.lock().unwrap();
    let is_watch = |request: &RequestRecord| {
        request.op == op::GET_DATA && request.path.as_ref().is_some_and(|path| path.contains("-lock-"))
    };
    eventually("the holder's watch", || scene.proxy.log().iter().any(is_watch));
    // Its reply comes before that to this one.
    scene.client.sync().for_path("/").unwrap();
    let asked = scene.proxy.requests(op::EXISTS);
    let slow = scene.proxy.inject(RequestMatch::op(op::EXISTS), Fault::HoldReply);
    scene.proxy.cut();
    slow.wait_for_hits(1, LONG).unwrap();
    assert_eq!(held.state(), HoldState::InDoubt);
    std::thread::sleep(1000 * MS);
    let asked = scene.proxy.requests(op::EXISTS) - asked;
    figure("asked for the held znode within 1 s without an answer", asked);
    assert_eq!(asked, 1);
    slow.release();
    eventually("held again", || held.is_valid());
    held.release().unwrap();
}

/// In a session that lasts longer than any server takes to start.
fn server_away(away: Duration) {
    // An attempt that a server leaves unanswered while it starts holds the next one up for so long.
    let scene = scene_alone_of(LONG, |builder| builder.connection_timeout(1000 * MS));
    let mutex = mutex(&scene.client);
    let held = mutex.lock().unwrap();
    let session = scene.client.session_id();
    scene.server.stop().unwrap();
    let gone = Instant::now();
    expect_state(&scene.states, Suspended);
    let attempts = scene.proxy.connections();
    let usage = process_cpu();
    // It takes about half a second from here until the server serves.
    std::thread::sleep((away - 500 * MS).saturating_sub(gone.elapsed()));
    let attempts = scene.proxy.connections() - attempts;
    let share = (process_cpu() - usage).as_secs_f64() / gone.elapsed().as_secs_f64();
    let rate = attempts as f64 / gone.elapsed().as_secs_f64();
    // Not before: its threads would count as work of this process.
    let machine = Machine::watch();
    scene.server.restart().unwrap();
    let back = Instant::now();
    let witness = Witness::of(&scene.server);
    figure("server away", back - gone);
    let reconnected = expect_state(&scene.states, Reconnected);
    figure("server away: attempts per second", rate);
    figure("server away: share of a core, of the whole process", share);
    witness.assert_at_most(&machine, "server away: reconnected after", back..reconnected, 1500 * MS);
    assert!(rate <= 10.0, "{rate} attempts per second");
    assert!(share < 0.02, "{share} of a core");
    assert_eq!(scene.client.session_id(), session);
    eventually("held again", || held.is_valid());
    held.release().unwrap();
}

/// What this process has used of the processor, all threads together: two clients, and the proxy.
fn process_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[test]
fn a_server_away_for_4_s_is_found_again_in_time() {
    let name = "cuts::a_server_away_for_4_s_is_found_again_in_time";
    alone(name, || server_away(4000 * MS));
}

mod slow {
    use super::*;

    #[test]
    fn a_server_away_for_20_s_is_found_again_in_time() {
        let name = "cuts::slow::a_server_away_for_20_s_is_found_again_in_time";
        alone(name, || server_away(20_000 * MS));
    }
}
