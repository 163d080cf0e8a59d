//! `LeaderSelector` where nothing breaks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use curator_locks::{CuratorFramework, Error, ErrorCode, InterProcessMutex, LeaderSelector, LeaderState, Leadership};

use crate::{
    probe::*,
    support::{PATIENCE, another, await_queue, builder, client, connect, eventually, namespace, queue, server},
};

#[test]
fn each_leads_once_in_a_round_and_its_token_grows() {
    let first = client();
    let clients = [another(&first), another(&first), first];
    let all: Vec<_> = clients.iter().map(stubborn).collect();
    all.iter().for_each(|(selector, _)| selector.auto_requeue());
    for (k, (selector, _)) in all.iter().enumerate() {
        selector.start().unwrap();
        await_queue(&clients[0], PATH, k + 1);
    }
    let mut last = None;
    for round in 0..3 {
        for (selector, terms) in &all {
            let term = terms.next();
            assert!(selector.has_leadership(), "round {round}");
            assert_eq!(all.iter().filter(|(selector, _)| selector.has_leadership()).count(), 1);
            assert!(Some(term.leadership.fencing_token()) > last);
            last = Some(term.leadership.fencing_token());
            // The others stand behind it, and so will it.
            await_queue(&clients[0], PATH, 3);
        }
    }
}

#[test]
fn it_leads_once_for_each_queueing() {
    let client = client();
    let (selector, terms) = stubborn(&client);
    selector.start().unwrap();
    let term = terms.next();
    assert!(!selector.requeue().unwrap(), "it leads already");
    drop(term);
    eventually("nobody leads", || queue(&client, PATH).is_empty());
    eventually("it can be queued again", || selector.requeue().unwrap());
    let term = terms.next();
    assert!(term.leadership.has_leadership() && terms.terms.is_empty());
}

#[test]
fn what_is_called_out_of_order_is_an_error() {
    let client = client();
    let (selector, _terms) = selector(&client);
    assert_eq!(selector.state(), LeaderState::Latent);
    for result in [selector.requeue().map(drop), selector.close()] {
        assert!(matches!(result, Err(Error::NotInUse { state: "not started", .. })), "{result:?}");
    }
    selector.start().unwrap();
    assert_eq!(selector.state(), LeaderState::Started);
    assert!(matches!(selector.start(), Err(Error::AlreadyStarted)));
    selector.close().unwrap();
    assert_eq!(selector.state(), LeaderState::Closed);
    for result in [selector.requeue().map(drop), selector.close(), selector.start()] {
        assert!(matches!(result, Err(Error::NotInUse { state: "closed", .. })), "{result:?}");
    }
    assert!(matches!(LeaderSelector::new(&client, "relative", probe(true).0), Err(Error::InvalidPath { .. })));
    let latent = builder(server(), "").build().unwrap();
    assert!(matches!(self::selector(&latent).0.start(), Err(Error::NotStarted)));
}

#[test]
fn an_interrupted_leader_leads_until_it_has_returned_and_then_the_next() {
    let client = client();
    let other = another(&client);
    let ((first, terms), (second, terms_of_second)) = (stubborn(&client), stubborn(&other));
    first.start().unwrap();
    let term = terms.next();
    second.start().unwrap();
    await_queue(&client, PATH, 2);
    assert!(!term.leadership.is_cancelled());
    first.interrupt_leadership();
    assert!(term.leadership.is_cancelled() && term.leadership.cancel_token().is_cancelled());
    assert!(term.leadership.sleep(Duration::from_secs(3600)), "it sleeps though it was asked to stop");
    assert!(first.has_leadership() && term.leadership.has_leadership() && !second.has_leadership());
    let (leadership, released) = (term.leadership.clone(), Instant::now());
    drop(term);
    let term = terms_of_second.next();
    assert!(!leadership.has_leadership() && !first.has_leadership() && released <= Instant::now());
    assert!(term.leadership.has_leadership());
}

/// CURATOR-518.
#[test]
fn one_that_is_interrupted_twice_leads_again_each_time() {
    let client = client();
    let (selector, terms) = stubborn(&client);
    selector.auto_requeue();
    selector.start().unwrap();
    for _ in 0..5 {
        let term = terms.next();
        assert!(!term.leadership.is_cancelled(), "it was interrupted before");
        selector.interrupt_leadership();
        selector.interrupt_leadership();
        assert!(term.leadership.is_cancelled());
        let leadership = term.leadership.clone();
        drop(term);
        eventually("its term is over", || !leadership.has_leadership());
    }
}

#[test]
fn a_waiter_that_is_closed_leaves_and_the_leader_leads_on() {
    let client = client();
    let ((leader, terms), (waiter, of_waiter)) = (stubborn(&client), stubborn(&client));
    leader.start().unwrap();
    let term = terms.next();
    waiter.start().unwrap();
    await_queue(&client, PATH, 2);
    waiter.close().unwrap();
    await_queue(&client, PATH, 1);
    assert!(leader.has_leadership() && !term.leadership.is_cancelled());
    drop(term);
    await_queue(&client, PATH, 0);
    assert!(of_waiter.terms.is_empty() && of_waiter.failures.is_empty());
}

#[test]
fn a_leader_that_is_closed_is_told_at_once_and_the_next_leads_when_it_has_returned() {
    let client = client();
    let ((leader, terms), (next, terms_of_next)) = (stubborn(&client), stubborn(&client));
    leader.auto_requeue();
    leader.start().unwrap();
    let term = terms.next();
    next.start().unwrap();
    await_queue(&client, PATH, 2);
    leader.close().unwrap();
    assert!(!leader.has_leadership() && !term.leadership.has_leadership() && term.leadership.is_cancelled());
    assert_eq!(queue(&client, PATH).len(), 2, "it works on, so it keeps its place");
    assert!(terms_of_next.terms.is_empty());
    drop(term);
    let _term = terms_of_next.next();
    await_queue(&client, PATH, 1);
    assert!(terms.terms.is_empty(), "it was closed, and leads again");
}

#[test]
fn a_dropped_selector_leaves_nothing() {
    let client = client();
    let ((leader, terms), (waiter, _)) = (selector(&client), selector(&client));
    leader.start().unwrap();
    let term = terms.next();
    waiter.start().unwrap();
    await_queue(&client, PATH, 2);
    drop(waiter);
    await_queue(&client, PATH, 1);
    drop(leader);
    assert!(term.leadership.is_cancelled());
    await_queue(&client, PATH, 0);
}

#[test]
fn everybody_can_read_who_leads_and_who_waits() {
    let client = client();
    let (onlooker, _) = selector(&client);
    assert!(onlooker.participants().unwrap().is_empty() && onlooker.leader().unwrap().is_none());
    let all: Vec<_> = (0..3).map(|_| stubborn(&client)).collect();
    for (k, (selector, _)) in all.iter().enumerate() {
        selector.set_id(format!("number {k}"));
        assert_eq!(selector.id(), format!("number {k}"));
        selector.start().unwrap();
        await_queue(&client, PATH, k + 1);
    }
    let _term = all[0].1.next();
    let seen = onlooker.participants().unwrap();
    assert_eq!(seen.iter().map(|one| one.id().into_owned()).collect::<Vec<_>>(), ["number 0", "number 1", "number 2"]);
    assert_eq!(seen.iter().map(curator_locks::Participant::is_leader).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(onlooker.leader().unwrap().unwrap(), seen[0]);
    assert_eq!(seen[0].fencing_token, all[0].0.leadership().unwrap().fencing_token());
}

#[test]
fn an_id_counts_from_the_next_queueing_on_and_an_empty_one_is_the_clients_data() {
    let client = connect(builder(server(), &namespace()).default_data("of the client"));
    let (selector, terms) = stubborn(&client);
    selector.auto_requeue();
    selector.start().unwrap();
    let term = terms.next();
    selector.set_id("Zürich");
    assert_eq!(selector.leader().unwrap().unwrap().id(), "of the client");
    drop(term);
    let _term = terms.next();
    assert_eq!(selector.leader().unwrap().unwrap().id(), "Zürich");
    let node = queue(&client, PATH).remove(0);
    assert_eq!(node, selector.leadership().unwrap().path());
    let name = node.rsplit('/').next().unwrap();
    assert!(name.starts_with("_c_") && name[39..].starts_with("-lock-"), "{name}");
    // Foreign data may be anything.
    client.set_data().for_path_and_data(&node, [b'a', 0xFF]).unwrap();
    assert_eq!(selector.leader().unwrap().unwrap().id(), "a\u{FFFD}");
}

#[test]
fn a_selector_and_a_mutex_stand_in_one_queue() {
    let client = client();
    let mutex = InterProcessMutex::new(&client, PATH).unwrap();
    let held = mutex.lock().unwrap();
    let (selector, terms) = stubborn(&client);
    selector.start().unwrap();
    await_queue(&client, PATH, 2);
    assert!(!selector.has_leadership());
    held.release().unwrap();
    let term = terms.next();
    assert!(mutex.try_lock().unwrap().is_none());
    drop(term);
    assert!(mutex.lock_timeout(PATIENCE).unwrap().is_some());
}

#[test]
fn a_leader_that_panics_gives_leadership_up() {
    let client = client();
    let (first, calls) = (AtomicBool::new(true), Arc::new(AtomicUsize::new(0)));
    let count = calls.clone();
    let selector = LeaderSelector::new(&client, PATH, move |_: &CuratorFramework, _: &Leadership| {
        count.fetch_add(1, Ordering::SeqCst);
        assert!(!first.swap(false, Ordering::SeqCst), "on purpose");
        Ok(())
    });
    let selector = selector.unwrap();
    selector.start().unwrap();
    eventually("it led once, and can be queued again", || selector.requeue().unwrap());
    eventually("it leads again", || calls.load(Ordering::SeqCst) == 2);
    await_queue(&client, PATH, 0);
}

/// Curator drops it.
#[test]
fn an_error_of_a_leader_ends_its_term_and_is_told() {
    let client = client();
    let (tell, told) = crossbeam_channel::unbounded();
    client.add_unhandled_error_listener(move |message, error| {
        tell.send((message.to_owned(), error.to_string())).unwrap_or_default();
    });
    let terms = AtomicUsize::new(0);
    let selector = LeaderSelector::new(&client, PATH, move |client: &CuratorFramework, _: &Leadership| {
        if terms.fetch_add(1, Ordering::SeqCst) == 0 {
            client.get_data().for_path("/what-it-needs")?;
        }
        Err("it has enough".into())
    });
    let selector = selector.unwrap();
    selector.start().unwrap();
    let (message, error) = told.recv_timeout(PATIENCE).unwrap();
    assert!(message.starts_with(PATH) && error.contains("/what-it-needs"), "{message}: {error}");
    eventually("it can be queued again", || selector.requeue().unwrap());
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().1, "it has enough");
    await_queue(&client, PATH, 0);
}

#[test]
fn a_leader_closes_its_selector_by_its_term() {
    let client = client();
    let (tell, told) = crossbeam_channel::unbounded();
    let lead = move |_: &CuratorFramework, leadership: &Leadership| {
        leadership.close()?;
        tell.send((leadership.has_leadership(), leadership.clone()))?;
        Ok(())
    };
    let selector = LeaderSelector::new(&client, PATH, lead).unwrap();
    selector.auto_requeue();
    selector.start().unwrap();
    let (leads, term) = told.recv_timeout(PATIENCE).unwrap();
    assert!(!leads);
    await_queue(&client, PATH, 0);
    assert_eq!(selector.state(), LeaderState::Closed);
    assert!(matches!(selector.requeue(), Err(Error::NotInUse { state: "closed", .. })));
    assert!(matches!(term.close(), Err(Error::NotInUse { .. })));
    drop(selector);
    eventually("nothing of the selector is left", || term.close().is_ok());
    assert!(told.is_empty(), "it led again");
}

#[test]
fn an_executor_runs_one_leader_at_a_time() {
    let client = client();
    let (probe, terms) = probe(false);
    let tasks = Arc::new(AtomicUsize::new(0));
    let count = tasks.clone();
    let executor = move |task: Box<dyn FnOnce() + Send>| {
        count.fetch_add(1, Ordering::SeqCst);
        thread::Builder::new().name("of the executor".into()).spawn(task).unwrap();
    };
    let selector = LeaderSelector::with_executor(&client, PATH, executor, probe).unwrap();
    selector.auto_requeue();
    selector.start().unwrap();
    for _ in 0..3 {
        let term = terms.next();
        assert!(!selector.requeue().unwrap());
        assert!(terms.terms.is_empty(), "two at a time");
        drop(term);
    }
    assert_eq!(tasks.load(Ordering::SeqCst), 1);
}

/// In Curator it recurses into the mutex that it holds.
#[test]
fn an_executor_that_runs_each_task_in_place_leads_one_term_after_the_other() {
    let client = client();
    let (probe, terms) = probe(true);
    let selector = LeaderSelector::with_executor(&client, PATH, |task| task(), probe).unwrap();
    selector.auto_requeue();
    thread::scope(|scope| {
        // It returns when the selector is closed.
        let starting = scope.spawn(|| selector.start());
        for _ in 0..3 {
            let term = terms.next();
            assert!(selector.has_leadership() && terms.terms.is_empty());
            drop(term);
        }
        selector.close().unwrap();
        starting.join().unwrap().unwrap();
    });
    await_queue(&client, PATH, 0);
}

#[test]
fn an_executor_that_drops_a_task_is_an_error_and_leaves_no_znode() {
    let client = client();
    let (probe, terms) = probe(true);
    let accepts = Arc::new(AtomicBool::new(false));
    let does_accept = accepts.clone();
    let executor = move |task: Box<dyn FnOnce() + Send>| {
        if does_accept.load(Ordering::SeqCst) {
            thread::spawn(task);
        }
    };
    let selector = LeaderSelector::with_executor(&client, PATH, executor, probe).unwrap();
    let result = selector.start();
    assert!(matches!(result, Err(Error::InvalidArgument { name: "executor", .. })), "{result:?}");
    accepts.store(true, Ordering::SeqCst);
    assert!(selector.requeue().unwrap());
    terms.next();
    accepts.store(false, Ordering::SeqCst);
    selector.interrupt_leadership();
    eventually("it is not queued", || selector.requeue().is_err());
    await_queue(&client, PATH, 0);
}

#[test]
fn one_that_starts_without_a_server_leads_when_there_is_one() {
    let (server, client) = without_server();
    let (selector, terms) = selector(&client);
    selector.start().unwrap();
    // The retry policy is exhausted by then.
    thread::sleep(Duration::from_millis(1500));
    server.restart().unwrap();
    assert!(terms.next().leadership.has_leadership());
    assert!(terms.failures.is_empty());
}

/// CURATOR-365 for the error, and no attempt follows the other without a pause.
#[test]
fn what_the_servers_refuse_is_told_and_tried_again_later() {
    let client = client();
    let admin = forbid_queueing(&client);
    let (selector, terms) = selector(&client);
    let begin = Instant::now();
    selector.start().unwrap();
    for _ in 0..3 {
        let error = terms.failures.recv_timeout(PATIENCE).unwrap();
        assert_eq!(error.code(), Some(ErrorCode::NoAuth), "{error}");
    }
    assert!(begin.elapsed() >= Duration::from_secs(2), "three attempts in {:?}", begin.elapsed());
    assert!(!selector.requeue().unwrap(), "it still wants to lead");
    admin.delete().for_path(PATH).unwrap();
    terms.next();
}

#[test]
fn closing_the_client_ends_the_term_and_the_queueing() {
    let client = client();
    let (leader, terms) = selector(&client);
    leader.auto_requeue();
    leader.start().unwrap();
    let term = terms.next();
    let (waiter, of_waiter) = selector(&client);
    waiter.start().unwrap();
    await_queue(&client, PATH, 2);
    client.close();
    assert!(!leader.has_leadership() && !term.leadership.has_leadership());
    eventually("it is asked to stop", || term.leadership.cancel_token().is_cancelled());
    for failures in [&terms.failures, &of_waiter.failures] {
        let error = failures.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(error, Error::ClientClosed), "{error}");
        // It is not tried again and again.
        assert!(failures.recv_timeout(Duration::from_millis(300)).is_err());
    }
    leader.close().unwrap();
}
