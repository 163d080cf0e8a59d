//! Closing a client, and dropping it, in every state that the other faults bring about.

use std::time::Instant;

use crossbeam_channel::Receiver;
use curator_locks::{
    ConnectionState::{Lost, Suspended},
    Error, Result,
    testing::{Direction, Fault, RequestMatch, expire_session, op},
};

use super::scene::*;

/// A call that is under way while the client is closed.
type Caller = Receiver<(Instant, Result<()>)>;

/// Brings a client into a state; gives what its callers are at.
type Trouble = fn(&Scene) -> Vec<Caller>;

fn nobody(_: &Scene) -> Vec<Caller> {
    Vec::new()
}

fn black_hole(scene: &Scene) -> Vec<Caller> {
    scene.proxy.black_hole(Direction::Both);
    Vec::new()
}

/// In mid-call: the server has it, and no reply comes.
fn create_under_way(scene: &Scene) -> Vec<Caller> {
    let fault = scene.proxy.inject(RequestMatch::creates(), Fault::HoldReply);
    let client = scene.client.clone();
    let caller = spawn(move || mutex(&client).acquire());
    fault.wait_for_hits(1, LONG).unwrap();
    vec![caller]
}

/// In mid-release, likewise.
fn delete_under_way(scene: &Scene) -> Vec<Caller> {
    let fault = scene.proxy.inject(RequestMatch::op(op::DELETE), Fault::HoldReply);
    let client = scene.client.clone();
    let caller = spawn(move || {
        let mutex = curator_locks::InterProcessMutex::new(&client, "/locks/other").unwrap();
        mutex.acquire()?;
        mutex.release()
    });
    fault.wait_for_hits(1, LONG).unwrap();
    vec![caller]
}

fn just_cut(scene: &Scene) -> Vec<Caller> {
    scene.proxy.cut();
    Vec::new()
}

fn refused(scene: &Scene) -> Vec<Caller> {
    scene.proxy.refuse();
    scene.proxy.cut();
    expect_state(&scene.states, Suspended);
    let client = scene.client.clone();
    vec![spawn(move || mutex(&client).acquire())]
}

fn silent(scene: &Scene) -> Vec<Caller> {
    scene.proxy.black_hole(Direction::Both);
    scene.proxy.cut();
    expect_state(&scene.states, Suspended);
    Vec::new()
}

fn lost(scene: &Scene) -> Vec<Caller> {
    refused(scene);
    expect_state(&scene.states, Lost);
    Vec::new()
}

fn expired(scene: &Scene) -> Vec<Caller> {
    let (id, password) = (scene.client.session_id(), scene.client.session_password());
    expire_session(&scene.server.connect_string(), id, &password).unwrap();
    Vec::new()
}

fn close_in(name: &str, trouble: Trouble) {
    let machine = Machine::watch();
    let scene = scene();
    let holder = mutex(&scene.observer);
    holder.acquire().unwrap();
    let (untimed, timed) = (scene.client.clone(), scene.client.clone());
    let mut callers =
        vec![spawn(move || mutex(&untimed).acquire()), spawn(move || mutex(&timed).acquire_timeout(LONG).map(drop))];
    wait_for_nodes(&scene.observer, 3);
    settle(&scene.client, &scene.states);
    callers.extend(trouble(&scene));
    let begin = Instant::now();
    scene.client.close();
    machine.assert_at_most(&format!("close, {name}"), since(begin), 1000 * MS);
    for caller in callers {
        let (at, result) = join(&caller);
        // The session may have ended with the delete under way: that is a lost lock, and the lock is gone.
        let may_be_lost = name == "delete_under_way" && matches!(result, Err(Error::LockLost { .. }));
        assert!(matches!(result, Err(Error::ClientClosed)) || may_be_lost, "{name}: {result:?}");
        machine.assert_at_most(&format!("caller woken, {name}"), begin..at.max(begin), 1000 * MS);
    }
    let begin = Instant::now();
    assert!(matches!(mutex(&scene.client).acquire(), Err(Error::ClientClosed)));
    machine.assert_at_most(&format!("acquire on a closed client, {name}"), since(begin), 100 * MS);
    scene.proxy.pass().unwrap();
    wait_for_nodes(&scene.observer, 1);
}

fn drop_in(name: &str, trouble: Trouble) {
    let machine = Machine::watch();
    let scene = scene();
    let mutex = mutex(&scene.client);
    mutex.acquire().unwrap();
    settle(&scene.client, &scene.states);
    trouble(&scene);
    let Scene { client, proxy, observer, server: _server, .. } = scene;
    let begin = Instant::now();
    drop(mutex);
    drop(client);
    machine.assert_at_most(&format!("drop, {name}"), since(begin), 1000 * MS);
    proxy.pass().unwrap();
    wait_for_nodes(&observer, 0);
}

macro_rules! in_state {
    ($($name:ident: $close:expr, $drop:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn close_returns_within_a_second_and_wakes_everybody() {
                close_in(stringify!($name), $close);
            }

            #[test]
            fn dropping_the_last_handle_returns_within_a_second() {
                drop_in(stringify!($name), $drop);
            }
        }
    )*};
}

/// A caller keeps its client, so nobody is in mid-call when the last handle goes; its request may still be.
fn request_under_way(scene: &Scene) -> Vec<Caller> {
    let fault = scene.proxy.inject(RequestMatch::op(op::DELETE), Fault::HoldReply);
    let held = mutex(&scene.client);
    let other = curator_locks::InterProcessMutex::new(&scene.client, "/locks/other").unwrap();
    drop(other.lock().unwrap());
    drop(held);
    fault.wait_for_hits(1, LONG).unwrap();
    Vec::new()
}

in_state! {
    connected: nobody, nobody;
    black_hole_not_noticed: black_hole, black_hole;
    create_under_way: create_under_way, request_under_way;
    delete_under_way: delete_under_way, request_under_way;
    just_cut: just_cut, just_cut;
    refused: refused, |scene| {
        scene.proxy.refuse();
        scene.proxy.cut();
        expect_state(&scene.states, Suspended);
        Vec::new()
    };
    silent: silent, silent;
    lost: lost, |scene| {
        scene.proxy.refuse();
        scene.proxy.cut();
        expect_state(&scene.states, Suspended);
        expect_state(&scene.states, Lost);
        Vec::new()
    };
    expired: expired, expired;
}

fn server_gone(leave: impl FnOnce(Scene)) {
    let scene = scene_alone(T);
    scene.server.kill().unwrap();
    leave(scene);
}

#[test]
fn close_returns_within_a_second_while_the_server_is_gone() {
    let machine = Machine::watch();
    server_gone(|scene| {
        let client = scene.client.clone();
        let caller = spawn(move || mutex(&client).acquire());
        let begin = Instant::now();
        scene.client.close();
        machine.assert_at_most("close, server gone", since(begin), 1000 * MS);
        let (at, result) = join(&caller);
        assert!(matches!(result, Err(Error::ClientClosed)), "{result:?}");
        machine.assert_at_most("caller woken, server gone", begin..at, 1000 * MS);
    });
}

#[test]
fn dropping_the_last_handle_returns_within_a_second_while_the_server_is_gone() {
    server_gone(|scene| {
        let machine = Machine::watch();
        let Scene { client, .. } = scene;
        let begin = Instant::now();
        drop(client);
        machine.assert_at_most("drop, server gone", since(begin), 1000 * MS);
    });
}
