//! The server has done it, and nobody hears of it; or has not, and nobody knows.

use super::testbed::*;
use crate::{
    ConnectionState::{Reconnected, Suspended},
    Error,
};

fn lock_nodes() -> RequestMatch {
    RequestMatch::creates().path(|path| path.contains("-lock-"))
}

/// How the creates of contenders ended at the server, in order.
fn creates(testbed: &Testbed) -> Vec<Option<i32>> {
    let creates = testbed.proxy.log().into_iter();
    creates
        .filter(|record| record.path.as_ref().is_some_and(|path| path.contains("-lock-")))
        .filter(|record| record.op == op::CREATE)
        .map(|record| record.error)
        .collect()
}

/// One acquire, whatever befalls it: one znode, which is the holder's; nobody gets in beside it; nothing is left.
fn one_node_that_works(testbed: &Testbed) {
    let mutex = mutex(&testbed.client);
    let begin = now();
    let held = mutex.lock().unwrap();
    figure("acquired after", elapsed(begin));
    assert!(held.is_valid());
    let names = nodes(&testbed.observer);
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(held.path(), format!("{LOCK}/{}", names[0]));
    let stat = testbed.observer.check_exists().for_path(held.path()).unwrap().unwrap();
    assert_eq!((stat.ephemeral_owner, stat.czxid), (testbed.client.session_id(), held.fencing_token().value()));
    let other = super::testbed::mutex(&testbed.observer);
    assert!(!other.acquire_timeout(Duration::ZERO).unwrap());
    held.release().unwrap();
    assert_eq!(nodes(&testbed.observer), [""; 0]);
    assert!(other.acquire_timeout(Duration::ZERO).unwrap());
    other.release().unwrap();
    figure("creates of the contender, and how they ended at the server", creates(testbed));
}

/// Runs the same on a thread of its own, so that the test can do something meanwhile.
fn one_node_meanwhile(testbed: Testbed, meanwhile: impl FnOnce(&Testbed)) -> Testbed {
    scope(|scope| {
        let one_node = scope.start(|| one_node_that_works(&testbed));
        meanwhile(&testbed);
        one_node.join().unwrap();
    });
    testbed
}

fn held_reply(testbed: &Testbed) -> InjectedFault {
    testbed.proxy.inject(lock_nodes(), Fault::HoldReply)
}

#[test]
fn create_applied_and_its_reply_dropped_once() {
    let testbed = testbed_with(LONG);
    make_directory(&testbed.observer);
    let fault = testbed.proxy.inject(lock_nodes(), Fault::CutInsteadOfReply);
    one_node_that_works(&testbed);
    assert_eq!(fault.hits(), 1);
    assert_eq!(creates(&testbed), [Some(0)]);
}

/// The reply to the create is dropped, and then the reply to this request of the search for it.
fn create_and_search(search: RequestMatch) {
    let testbed = testbed_with(LONG);
    make_directory(&testbed.observer);
    let fault = testbed.proxy.inject(lock_nodes(), Fault::CutInsteadOfReply);
    let search = testbed.proxy.inject(search, Fault::CutInsteadOfReply);
    one_node_that_works(&testbed);
    assert_eq!((fault.hits(), search.hits()), (1, 1));
    assert_eq!(creates(&testbed), [Some(0)]);
}

#[test]
fn create_applied_and_its_reply_dropped_then_that_of_the_searchs_sync() {
    create_and_search(RequestMatch::op(op::SYNC).path(|path| path.ends_with(LOCK)));
}

#[test]
fn create_applied_and_its_reply_dropped_then_that_of_the_searchs_listing() {
    // The first listing goes out with the create.
    create_and_search(RequestMatch::op(op::GET_CHILDREN).skip(1));
}

#[test]
fn create_applied_and_its_reply_dropped_then_that_of_the_look_at_what_was_found() {
    create_and_search(RequestMatch::op(op::EXISTS).path(|path| path.contains("-lock-")));
}

/// Two creates of one acquire, both carried out, and nobody hears of either: an administrator removes what the first
/// has made before it is searched for.
#[test]
fn create_applied_and_its_reply_dropped_twice_in_a_row() {
    let testbed = testbed_with(LONG / 2);
    make_directory(&testbed.observer);
    let first = held_reply(&testbed);
    let second = testbed.proxy.inject(lock_nodes(), Fault::CutInsteadOfReply);
    let testbed = one_node_meanwhile(testbed, |testbed| {
        first.wait_for_hits(1, LONG).unwrap();
        for name in nodes(&testbed.observer) {
            testbed.observer.delete().for_path(&format!("{LOCK}/{name}")).unwrap();
        }
        testbed.proxy.cut();
    });
    assert_eq!((first.hits(), second.hits()), (1, 1));
    assert_eq!(creates(&testbed), [Some(0), Some(0)]);
}

#[test]
fn create_not_applied_then_applied_and_its_reply_dropped() {
    let testbed = testbed_with(LONG);
    make_directory(&testbed.observer);
    let never = testbed.proxy.inject(lock_nodes(), Fault::CutInsteadOfRequest);
    let lost = testbed.proxy.inject(lock_nodes(), Fault::CutInsteadOfReply);
    one_node_that_works(&testbed);
    assert_eq!((never.hits(), lost.hits()), (1, 1));
    assert_eq!(creates(&testbed), [None, Some(0)]);
}

#[test]
fn create_not_applied_twice_in_a_row() {
    let testbed = testbed_with(LONG);
    make_directory(&testbed.observer);
    let never = testbed.proxy.inject(lock_nodes().times(2), Fault::CutInsteadOfRequest);
    one_node_that_works(&testbed);
    assert_eq!(never.hits(), 2);
    assert_eq!(creates(&testbed), [None, None, Some(0)]);
}

/// The session ends with the first create's znode; the next one's reply is dropped as well.
#[test]
fn create_applied_and_its_reply_dropped_twice_with_an_expiry_in_between() {
    let testbed = testbed_with(LONG / 2);
    make_directory(&testbed.observer);
    let before = testbed.client.session_id();
    let first = held_reply(&testbed);
    let second = testbed.proxy.inject(lock_nodes(), Fault::CutInsteadOfReply);
    let testbed = one_node_meanwhile(testbed, |testbed| {
        first.wait_for_hits(1, LONG).unwrap();
        testbed.expire();
        testbed.proxy.cut();
    });
    assert_ne!(testbed.client.session_id(), before);
    assert_eq!((first.hits(), second.hits()), (1, 1));
    assert_eq!(creates(&testbed), [Some(0), Some(0)]);
}

#[test]
fn create_applied_and_its_reply_dropped_with_an_expiry_in_between() {
    // Long enough for the client not to give the silent connection up by itself.
    let testbed = testbed_with(LONG / 2);
    make_directory(&testbed.observer);
    let first = testbed.client.session_id();
    testbed.proxy.black_hole(Direction::ToClient);
    let client = testbed.client.clone();
    let locked = spawn(move || {
        let mutex = mutex(&client);
        let held = mutex.lock().unwrap();
        let path = held.path().to_owned();
        assert!(held.is_valid());
        held.release().unwrap();
        path
    });
    wait_for_nodes(&testbed.observer, 1);
    let orphan = nodes(&testbed.observer);
    testbed.expire();
    // The reply dies with its connection.
    testbed.proxy.reset();
    testbed.proxy.pass().unwrap();
    let path = join(&locked).1;
    assert_ne!(testbed.client.session_id(), first);
    assert!(!path.ends_with(&orphan[0]), "granted on a znode of the session before");
    wait_for_nodes(&testbed.observer, 0);
    figure("creates, and how they ended at the server", creates(&testbed));
}

/// A create that was held up in the network while the session went on over another connection must not come to pass
/// later.
#[test]
fn create_held_up_past_the_reconnect_makes_no_second_node() {
    // The client has to notice.
    let testbed = testbed_with(3 * T);
    make_directory(&testbed.observer);
    let held_up = testbed.proxy.inject(lock_nodes(), Fault::HoldRequest);
    let mutex = mutex(&testbed.client);
    let held = mutex.lock().unwrap();
    held_up.wait_for_hits(1, LONG).unwrap();
    held_up.release();
    held.release().unwrap();
    // Whatever is sent on the new connection comes after it.
    testbed.client.sync().for_path(LOCK).unwrap();
    testbed.observer.sync().for_path(LOCK).unwrap();
    assert_eq!(nodes(&testbed.observer), [""; 0]);
    figure("creates, and how they ended at the server", creates(&testbed));
}

#[test]
fn create_whose_caller_gave_up_leaves_nothing() {
    let testbed = testbed_with(LONG);
    make_directory(&testbed.observer);
    let mutex = mutex(&testbed.client);
    for fault in [Fault::CutInsteadOfReply, Fault::CutAfterRequest, Fault::CutInsteadOfRequest] {
        testbed.proxy.inject(lock_nodes(), fault);
        testbed.proxy.delay(100 * MS);
        let result = mutex.acquire_timeout(150 * MS);
        assert!(matches!(result, Ok(false) | Err(Error::ConnectionLoss { .. })), "{result:?}");
        testbed.proxy.delay(Duration::ZERO);
        eventually("the client is connected", || testbed.client.is_connected());
        wait_for_nodes(&testbed.observer, 0);
    }
    figure("creates, and how they ended at the server", creates(&testbed));
}

#[test]
fn delete_applied_and_its_reply_dropped() {
    let testbed = testbed_with(LONG);
    let mutex = mutex(&testbed.client);
    mutex.acquire().unwrap();
    let fault = testbed.proxy.inject(RequestMatch::op(op::DELETE), Fault::CutInsteadOfReply);
    let begin = now();
    mutex.release().unwrap();
    figure("delete applied, reply dropped: released after", elapsed(begin));
    assert_eq!(fault.hits(), 1);
    assert!(!mutex.is_acquired_in_this_process());
    assert_eq!(nodes(&testbed.observer), [""; 0]);
    assert!(matches!(mutex.release(), Err(Error::NotOwner { .. })));
}

fn delete_not_applied(release: impl FnOnce(crate::LockGuard)) {
    let testbed = testbed_with(LONG);
    let mutex = mutex(&testbed.client);
    let held = mutex.lock().unwrap();
    let fault = testbed.proxy.inject(RequestMatch::op(op::DELETE), Fault::CutInsteadOfRequest);
    release(held);
    fault.wait_for_hits(1, LONG).unwrap();
    expect_state(&testbed.states, Suspended);
    let reconnected = expect_state(&testbed.states, Reconnected);
    let gone = wait_for_nodes(&testbed.observer, 0);
    assert_at_most("delete not applied: node gone after the reconnect", reconnected..gone, 1000 * MS);
    eventually("nothing is held", || !mutex.is_acquired_in_this_process());
}

#[test]
fn delete_not_applied_and_the_connection_lost() {
    delete_not_applied(|held| held.release().unwrap());
}

#[test]
fn delete_not_applied_and_the_connection_lost_when_a_guard_is_dropped() {
    delete_not_applied(drop);
}
