//! What a holder is told, and until when.

use std::{hint, sync::Barrier, thread};

use super::*;
use crate::base::{
    channel::{never, select},
    clock,
};

#[test]
fn a_released_hold_says_so_for_good_and_wakes_only_who_listens() {
    let rig = Rig::new(None);
    let node = rig.watched();
    let states = node.channel();
    let (tell, told) = unbounded();
    let tell_again = tell.clone();
    node.listen(Arc::new(move |state| tell.send(state).unwrap()));
    rig.look_at(rig.begun);
    rig.is_woken();
    node.released();
    assert!(!rig.is_woken(), "the client's own thread has nothing to do with it");
    assert_eq!(states.iter().collect::<Vec<_>>(), [HoldState::Released], "and the end of the channel");
    assert_eq!(told.recv_timeout(LONG).unwrap(), HoldState::Released);
    // What comes after that is not about this hold.
    node.released();
    rig.deletes(&node);
    node.lose(LostReason::NodeDeleted);
    rig.said.ended.store(true, Ordering::Release);
    rig.held.lose_all(None, LostReason::ClientClosed);
    rig.look_at(rig.begun);
    assert_eq!((node.state(rig.begun), node.lost()), (HoldState::Released, None));
    assert!(node.valid_until() <= clock::now());
    // Who asks after that is told, too.
    assert_eq!(node.channel().iter().collect::<Vec<_>>(), [HoldState::Released]);
    node.listen(Arc::new(move |state| tell_again.send(state).unwrap()));
    assert_eq!(told.recv_timeout(LONG).unwrap(), HoldState::Released);
    assert!(told.recv_timeout(LONG).is_err(), "both listeners are gone, after one message each");
    assert!(!rig.is_woken());
}

#[test]
fn a_lost_hold_stays_lost_after_its_release_and_is_told_as_lost() {
    for loses in [
        (|_, node| node.lose(LostReason::NodeDeleted)) as fn(&Rig, &HeldNode),
        |rig, node| rig.deletes(node),
        |rig, _| rig.said.ended.store(true, Ordering::Release),
    ] {
        let rig = Rig::new(None);
        let node = rig.watched();
        let states = node.channel();
        loses(&rig, &node);
        let reason = node.lost().unwrap();
        node.released();
        assert_eq!((node.state(rig.begun), node.lost()), (HoldState::Lost(reason), Some(reason)));
        assert_eq!(states.iter().collect::<Vec<_>>(), [HoldState::Lost(reason)]);
    }
}

#[test]
fn who_asks_for_changes_again_and_again_keeps_nothing_and_wakes_the_client_once() {
    let rig = Rig::new(None);
    let node = rig.watched();
    let first = node.channel();
    let begin = clock::now();
    for _ in 0..100_000 {
        drop(node.channel());
        assert_eq!(node.inner.lock().subscribers.len(), 1);
    }
    println!("100,000 channels: {:?}", clock::since(begin));
    assert_eq!(rig.received.try_iter().count(), 1, "a look for the first of them");
    let (second, shared) = (node.channel(), first.clone());
    drop(first);
    // Each of them is told of all.
    *rig.said.valid_until.lock() = Some(rig.begun);
    rig.look_at(clock::now());
    node.released();
    for states in [second, shared] {
        assert_eq!(states.iter().collect::<Vec<_>>(), [IN_DOUBT, HoldState::Released]);
    }
}

#[test]
fn changes_can_be_selected_on() {
    let rig = Rig::new(None);
    let node = rig.hold();
    let (states, never) = (node.channel(), never::<()>());
    node.released();
    select! {
        recv(states) -> state => assert_eq!(state, Ok(HoldState::Released)),
        recv(never) -> _ => panic!("never"),
    }
}

#[test]
fn what_is_granted_while_the_client_is_closed_is_lost_at_once() {
    let rig = Rig::new(None);
    rig.held.lose_all(None, LostReason::ClientClosed);
    // After the thread's last look.
    rig.look_at(rig.begun);
    let states = rig.hold().channel();
    assert_eq!(states.iter().collect::<Vec<_>>(), [HoldState::Lost(LostReason::ClientClosed)]);
}

/// The client's thread looks while the session's thread hears why the znode is gone.
#[test]
fn a_loss_in_the_midst_of_a_look_is_told() {
    for round in 0..3000 {
        let rig = Rig::new(None);
        let node = rig.watched();
        let (states, (warnings, _subscription)) =
            (node.channel(), HeldNode::deadline_channel(std::slice::from_ref(&node), MOMENT));
        let both = Barrier::new(2);
        let late = thread::scope(|scope| {
            rig.deletes(&node);
            let loses = scope.spawn(|| {
                both.wait();
                (0..round % 300).for_each(|_| hint::spin_loop());
                node.lose(LostReason::NodeDeleted);
            });
            both.wait();
            if round % 2 == 0 {
                rig.look_at(rig.begun);
            }
            let late = node.channel();
            loses.join().unwrap();
            late
        });
        rig.look_at(rig.begun);
        assert_eq!(states.iter().last(), Some(DELETED), "round {round}");
        assert_eq!(late.iter().last(), Some(DELETED), "round {round}, who asks meanwhile");
        assert_eq!(warnings.iter().last(), Some(crate::DeadlineEvent::Near), "round {round}");
    }
}
