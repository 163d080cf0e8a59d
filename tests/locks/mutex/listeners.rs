//! Connection states.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use curator_locks::{
    ConnectionState::{self, Connected, Lost, Reconnected, Suspended},
    CuratorFramework, Error,
};

use crate::support::{PATIENCE, SESSION, builder, connect, eventually, namespace, quick_server, server};

fn states_of(client: &CuratorFramework) -> mpsc::Receiver<ConnectionState> {
    let (tell, told) = mpsc::channel();
    client.add_connection_state_listener(move |_, state| {
        let _ = tell.send(state);
    });
    told
}

#[test]
fn listeners_hear_every_state_in_order_whatever_other_listeners_do() {
    let server = quick_server().start().unwrap();
    let client = builder(&server, "states").session_timeout(Duration::from_secs(2)).build().unwrap();
    client.add_connection_state_listener(|_, _| panic!("a listener that panics silences no other"));
    let heard = states_of(&client);
    assert_eq!(client.connection_state(), None);
    client.start().unwrap();
    let mut last = heard.recv_timeout(PATIENCE).unwrap();
    assert_eq!(last, Connected);
    // A machine that does not run this process for a while adds a suspension, or an end of the session.
    let mut hear_up_to = |states: &[ConnectionState]| {
        eventually("the client is in this state", || states.contains(&client.connection_state().unwrap()));
        while !states.contains(&last) || Some(last) != client.connection_state() {
            let next = heard.recv_timeout(PATIENCE).unwrap();
            let may_follow: &[ConnectionState] = match last {
                Suspended => &[Reconnected, Lost],
                Lost => &[Reconnected],
                _ => &[Suspended],
            };
            assert!(may_follow.contains(&next), "{next:?} after {last:?}");
            last = next;
        }
    };
    server.stop().unwrap();
    hear_up_to(&[Suspended, Lost]);
    server.restart().unwrap();
    hear_up_to(&[Reconnected]);
    let session = client.session_id();
    server.stop().unwrap();
    hear_up_to(&[Lost]);
    server.restart().unwrap();
    hear_up_to(&[Reconnected]);
    assert_ne!(client.session_id(), session);
}

#[test]
fn a_listener_that_was_removed_hears_nothing_more() {
    let client = builder(server(), &namespace()).build().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counting = count.clone();
    let id = client.add_connection_state_listener(move |_, _| {
        counting.fetch_add(1, Ordering::SeqCst);
    });
    let heard = states_of(&client);
    client.remove_connection_state_listener(id);
    client.start().unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), Connected);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn a_listener_may_use_the_client_and_close_it() {
    let client = builder(server(), &namespace()).build().unwrap();
    let (tell, told) = mpsc::channel();
    client.add_connection_state_listener(move |client, _| {
        let children = client.get_children().for_path("/");
        client.close();
        let _ = tell.send(children.map(drop));
    });
    client.start().unwrap();
    let result = told.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(&result, Err(error) if error.is_no_node()), "{result:?}");
    assert!(matches!(client.check_exists().for_path("/"), Err(Error::ClientClosed)));
}

#[test]
fn waiting_for_a_connection_ends_with_it_or_with_the_time() {
    let unreachable = builder(server(), "x").connect_string("127.0.0.1:1").build().unwrap();
    unreachable.start().unwrap();
    assert!(!unreachable.block_until_connected(Some(Duration::from_millis(50))).unwrap());
    assert!(!unreachable.is_connected());
    assert_eq!(unreachable.session_id(), 0);
    let client = connect(builder(server(), &namespace()));
    assert!(client.block_until_connected(None).unwrap());
    assert!(client.is_connected() && client.session_id() != 0 && client.session_password().len() == 16);
    assert_eq!(client.session_timeout(), SESSION);
}

#[test]
fn rejected_credentials_end_every_call() {
    let client = builder(server(), &namespace()).authorization("no-such-scheme", "x").build().unwrap();
    client.start().unwrap();
    let result = client.block_until_connected(Some(PATIENCE));
    // There may have been a connection for a moment.
    assert!(matches!(result, Ok(true) | Err(Error::AuthFailed { .. })), "{result:?}");
    eventually("calls fail", || matches!(client.check_exists().for_path("/"), Err(Error::AuthFailed { .. })));
}
