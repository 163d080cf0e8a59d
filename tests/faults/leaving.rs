//! Closing a client, and dropping it, while its server is gone. In the simulator (`src/sim/faults`) they are closed and dropped
//! in every state that the other faults bring about.

use std::time::Instant;

use curator_locks::Error;

use super::scene::*;

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
