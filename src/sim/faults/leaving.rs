//! Closing a client, and dropping it, in every state that the other faults bring about.

use super::testbed::*;
use crate::{
    ConnectionState::{Lost, Suspended},
    Error, Result,
};

/// A call that is under way while the client is closed.
type Caller = Receiver<(Instant, Result<()>)>;

/// Brings a client into a state; gives what its callers are at.
type Trouble = fn(&Testbed) -> Vec<Caller>;

fn nobody(_: &Testbed) -> Vec<Caller> {
    Vec::new()
}

fn black_hole(testbed: &Testbed) -> Vec<Caller> {
    testbed.proxy.black_hole(Direction::Both);
    Vec::new()
}

/// In mid-call: the server has it, and no reply comes.
fn create_under_way(testbed: &Testbed) -> Vec<Caller> {
    let fault = testbed.proxy.inject(RequestMatch::creates(), Fault::HoldReply);
    let client = testbed.client.clone();
    let caller = spawn(move || mutex(&client).acquire());
    fault.wait_for_hits(1, LONG).unwrap();
    vec![caller]
}

/// In mid-release, likewise.
fn delete_under_way(testbed: &Testbed) -> Vec<Caller> {
    let fault = testbed.proxy.inject(RequestMatch::op(op::DELETE), Fault::HoldReply);
    let client = testbed.client.clone();
    let caller = spawn(move || {
        let mutex = crate::InterProcessMutex::new(&client, "/locks/other").unwrap();
        mutex.acquire()?;
        mutex.release()
    });
    fault.wait_for_hits(1, LONG).unwrap();
    vec![caller]
}

fn just_cut(testbed: &Testbed) -> Vec<Caller> {
    testbed.proxy.cut();
    Vec::new()
}

fn refused(testbed: &Testbed) -> Vec<Caller> {
    testbed.proxy.refuse();
    testbed.proxy.cut();
    expect_state(&testbed.states, Suspended);
    let client = testbed.client.clone();
    vec![spawn(move || mutex(&client).acquire())]
}

fn silent(testbed: &Testbed) -> Vec<Caller> {
    testbed.proxy.black_hole(Direction::Both);
    testbed.proxy.cut();
    expect_state(&testbed.states, Suspended);
    Vec::new()
}

fn lost(testbed: &Testbed) -> Vec<Caller> {
    refused(testbed);
    expect_state(&testbed.states, Lost);
    Vec::new()
}

fn expired(testbed: &Testbed) -> Vec<Caller> {
    testbed.expire();
    Vec::new()
}

fn close_in(name: &str, trouble: Trouble) {
    let testbed = testbed();
    let holder = mutex(&testbed.observer);
    holder.acquire().unwrap();
    let (untimed, timed) = (testbed.client.clone(), testbed.client.clone());
    let mut callers =
        vec![spawn(move || mutex(&untimed).acquire()), spawn(move || mutex(&timed).acquire_timeout(LONG).map(drop))];
    wait_for_nodes(&testbed.observer, 3);
    callers.extend(trouble(&testbed));
    let begin = now();
    testbed.client.close();
    assert_at_most(&format!("close, {name}"), since(begin), 1000 * MS);
    for caller in callers {
        let (at, result) = join(&caller);
        // The session may have ended with the delete under way: that is a lost lock, and the lock is gone.
        let may_be_lost = name == "delete_under_way" && matches!(result, Err(Error::LockLost { .. }));
        assert!(matches!(result, Err(Error::ClientClosed)) || may_be_lost, "{name}: {result:?}");
        assert_at_most(&format!("caller woken, {name}"), begin..at.max(begin), 1000 * MS);
    }
    let begin = now();
    assert!(matches!(mutex(&testbed.client).acquire(), Err(Error::ClientClosed)));
    assert_at_most(&format!("acquire on a closed client, {name}"), since(begin), 100 * MS);
    testbed.proxy.pass().unwrap();
    wait_for_nodes(&testbed.observer, 1);
}

fn drop_in(name: &str, trouble: Trouble) {
    let testbed = testbed();
    let mutex = mutex(&testbed.client);
    mutex.acquire().unwrap();
    trouble(&testbed);
    let Testbed { client, proxy, observer, .. } = testbed;
    let begin = now();
    drop(mutex);
    drop(client);
    assert_at_most(&format!("drop, {name}"), since(begin), 1000 * MS);
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
fn request_under_way(testbed: &Testbed) -> Vec<Caller> {
    let fault = testbed.proxy.inject(RequestMatch::op(op::DELETE), Fault::HoldReply);
    let held = mutex(&testbed.client);
    let other = crate::InterProcessMutex::new(&testbed.client, "/locks/other").unwrap();
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
    refused: refused, |testbed| {
        testbed.proxy.refuse();
        testbed.proxy.cut();
        expect_state(&testbed.states, Suspended);
        Vec::new()
    };
    silent: silent, silent;
    lost: lost, |testbed| {
        testbed.proxy.refuse();
        testbed.proxy.cut();
        expect_state(&testbed.states, Suspended);
        expect_state(&testbed.states, Lost);
        Vec::new()
    };
    expired: expired, expired;
}
