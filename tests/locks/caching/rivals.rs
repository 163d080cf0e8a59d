//! Others come.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crossbeam_channel::unbounded;
use curator_locks::Revoker;

use crate::{
    local::{cached, cached_with, caching, pass_on},
    over::Over,
    support::{self, PATIENCE, another, await_queue, eventually, mutex, queue},
};

const PATH: &str = "/locks/m";

#[test]
fn an_idle_lock_goes_at_once_when_somebody_comes() {
    let client = support::client();
    let other = another(&client);
    let (kept, plain) = (cached(&client), mutex(&other));
    for _ in 0..20 {
        kept.acquire().unwrap();
        kept.release().unwrap();
        // It would be kept for an hour.
        assert!(plain.acquire_timeout(PATIENCE).unwrap());
        plain.release().unwrap();
    }
}

/// Each of two processes whose threads always want the lock gets it again and again.
#[test]
fn busy_processes_take_turns() {
    let client = support::client();
    let other = another(&client);
    let caching = caching().max_grants(8);
    let (one, two) = (cached_with(&client, caching), cached_with(&other, caching));
    let is_over = AtomicBool::new(false);
    let grants = parking_lot::Mutex::new(Vec::new());
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for (k, lock) in [&one, &two].into_iter().enumerate() {
            for _ in 0..4 {
                let (is_over, grants) = (&is_over, &grants);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let held = lock.lock().unwrap();
                        grants.lock().push((k, held.fencing_token()));
                        assert!(held.is_valid());
                        held.release().unwrap();
                    }
                });
            }
        }
        eventually("many turns", || {
            let grants = grants.lock();
            grants.windows(2).filter(|pair| pair[0].0 != pair[1].0).count() > 50
        });
    });
    let grants = grants.into_inner();
    assert!(grants.windows(2).all(|pair| pair[0].1 < pair[1].1), "tokens shrink, or there were two holders");
    let turns = 1 + grants.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
    println!("{} grants in {turns} turns", grants.len());
}

/// The limit counts from when the process knows of the other one.
#[test]
fn threads_that_wait_when_a_tenure_ends_queue_again_before_its_znode_goes() {
    let client = support::client();
    let other = another(&client);
    let (kept, plain) = (cached_with(&client, caching().max_grants(0)), mutex(&other));
    kept.acquire().unwrap();
    let first = queue(&client, PATH);
    thread::scope(|scope| {
        let local = scope.spawn(|| pass_on(&kept, &first[0]));
        eventually("it waits", || kept.local_waiters() == 1);
        let rival = scope.spawn(|| {
            let held = plain.lock().unwrap();
            // Behind it stands the other process again.
            let behind = await_queue(&client, PATH, 2);
            assert!(behind[0] == held.path() && !first.contains(&behind[1]), "{behind:?}");
            (held.fencing_token(), held.release())
        });
        await_queue(&client, PATH, 2);
        kept.release().unwrap();
        let ours = pass_on(&kept, &first[0]);
        let (rival, released) = rival.join().unwrap();
        released.unwrap();
        assert!(rival < ours.1.min(local.join().unwrap().1));
    });
}

#[test]
fn a_request_to_give_the_lock_back_reaches_the_holder_and_ends_an_idle_tenure() {
    let client = support::client();
    let lock = cached(&client);
    let asked = std::sync::Arc::new(AtomicBool::new(false));
    let flag = asked.clone();
    lock.make_revocable(move |_: &curator_locks::InterProcessMutex| flag.store(true, Ordering::SeqCst));
    let held = lock.lock().unwrap();
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    eventually("the holder is asked", || asked.load(Ordering::SeqCst));
    held.release().unwrap();
    await_queue(&client, PATH, 0);

    lock.acquire().unwrap();
    lock.release().unwrap();
    let node = queue(&client, PATH).remove(0);
    eventually("its znode is watched", || {
        support::server().four_letter_word("wchp").unwrap().contains(&format!("/{}{node}\n", client.namespace()))
    });
    asked.store(false, Ordering::SeqCst);
    Revoker::attempt_revoke(&client, &node).unwrap();
    await_queue(&client, PATH, 0);
    assert!(!asked.load(Ordering::SeqCst), "a release ends the listener's time");
}

#[test]
fn a_request_to_a_process_that_queues_ends_the_tenure_that_follows() {
    let client = support::client();
    let (lock, plain) = (cached(&client), mutex(&another(&client)));
    let (asked, is_asked) = unbounded();
    lock.on_revocation(move |request| asked.send(request.hold().is_none()).unwrap());
    let held = plain.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().unwrap().release().unwrap());
        let nodes = await_queue(&client, PATH, 2);
        Revoker::attempt_revoke(&client, &nodes[1]).unwrap();
        assert_eq!(is_asked.recv_timeout(PATIENCE), Ok(true));
        held.release().unwrap();
        waiter.join().unwrap();
    });
    // It would be kept for an hour.
    await_queue(&client, PATH, 0);
}

#[test]
fn a_listener_for_the_next_hold_hears_of_no_request_for_the_znode_that_is_idle() {
    let client = support::client();
    let lock = cached(&client);
    lock.lock().unwrap().release().unwrap();
    let node = queue(&client, PATH).remove(0);
    eventually("its znode is watched", || {
        support::server().four_letter_word("wchp").unwrap().contains(&format!("/{}{node}\n", client.namespace()))
    });
    let (asked, is_asked) = unbounded();
    lock.on_revocation(move |request| asked.send(request.hold().map(|hold| hold.fencing_token())).unwrap());
    Revoker::attempt_revoke(&client, &node).unwrap();
    await_queue(&client, PATH, 0);
    let held = lock.lock().unwrap();
    Revoker::attempt_revoke(&client, held.path()).unwrap();
    // Listeners are told in order.
    assert_eq!(is_asked.recv_timeout(PATIENCE), Ok(Some(held.fencing_token())));
    held.release().unwrap();
}

#[test]
fn a_request_says_who_asks_and_its_listener_may_release_the_hold() {
    let client = support::client();
    let lock = cached(&client);
    let asked = std::sync::Arc::new(parking_lot::Mutex::new(None));
    let says = asked.clone();
    lock.on_revocation(move |request| {
        *says.lock() = Some((request.who().map(str::to_owned), request.hold().map(|hold| hold.fencing_token())));
        request.release();
    });
    lock.lock().unwrap().release().unwrap();
    let held = lock.lock().unwrap();
    Revoker::request(&client, held.path(), "operator", "maintenance").unwrap();
    eventually("the hold is lost", || held.is_lost());
    assert_eq!(asked.lock().take(), Some((Some("operator".to_owned()), Some(held.fencing_token()))));
    assert_eq!(held.revocation().map(|(who, _)| who).as_deref(), Some("operator"));
    assert!(held.release().is_err());
    await_queue(&client, PATH, 0);
}
