//! `LeaderLatch` where nothing breaks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded, unbounded};
use curator_locks::{
    Acl, AclProvider, AcquireOptions, Builder, CancelToken, CloseMode, CuratorFramework, Error, ErrorCode, HoldState,
    LeaderLatch, LeaderLatchListener, LeaderState, Leadership, LostReason, Stat,
    testing::{Fault, FaultProxy, RequestMatch, op},
};
use parking_lot::Mutex;

use crate::{
    leaving::left,
    probe::{
        PATH,
        Told::{Ends, Leads},
        close, forbid_queueing, latch, notifying, without_server,
    },
    support::{
        PATIENCE, another, await_queue, builder, builder_at, client, connect, eventually, namespace, queue, server,
    },
};

/// What servers before 3.5.1 say to the create of a container.
const UNIMPLEMENTED: i32 = -6;

#[test]
fn each_leads_in_turn_and_is_told_once() {
    let first = client();
    let clients = [another(&first), another(&first), first];
    let all: Vec<_> = clients.iter().map(notifying).collect();
    for (k, (latch, _)) in all.iter().enumerate() {
        latch.start().unwrap();
        await_queue(&clients[0], PATH, k + 1);
    }
    let mut last = None;
    for (k, (latch, told)) in all.iter().enumerate() {
        assert!(latch.await_leadership_timeout(PATIENCE).unwrap());
        assert_eq!(told.next(), Leads);
        assert_eq!(all.iter().filter(|(latch, _)| latch.has_leadership()).count(), 1);
        let token = latch.leadership().unwrap().fencing_token();
        assert!(Some(token) > last);
        last = Some(token);
        assert_eq!(latch.participants().unwrap().len(), all.len() - k);
        close(&clients[0], latch);
        assert!(!latch.has_leadership());
        assert_eq!(told.next(), Ends, "it has been told when the close returns");
        assert_eq!(queue(&clients[0], PATH).len(), all.len() - k - 1, "and its znode is gone");
    }
    assert!(all.iter().all(|(_, told)| told.is_empty()), "somebody was told more than once");
}

#[test]
fn the_middle_one_may_leave_and_nobody_is_elected() {
    let client = client();
    let all = [latch(&client), latch(&client), latch(&client)];
    for (k, (latch, _)) in all.iter().enumerate() {
        latch.start().unwrap();
        await_queue(&client, PATH, k + 1);
    }
    let [(first, _), (middle, told_middle), (last, told_last)] = &all;
    first.await_leadership().unwrap();
    close(&client, middle);
    assert!(!last.await_leadership_timeout(Duration::from_millis(200)).unwrap());
    assert!(told_middle.is_empty() && told_last.is_empty());
    close(&client, first);
    last.await_leadership().unwrap();
}

#[test]
fn a_silent_close_tells_nobody_and_either_mode_can_be_asked_for() {
    let client = client();
    for (of_latch, of_call) in [
        (CloseMode::Silent, None),
        (CloseMode::NotifyLeader, Some(CloseMode::Silent)),
        (CloseMode::Silent, Some(CloseMode::NotifyLeader)),
    ] {
        let (latch, told) = latch(&client);
        let latch = latch.with_close_mode(of_latch);
        latch.start().unwrap();
        assert_eq!(told.next(), Leads);
        let node = latch.our_path();
        left(&client, node, of_call.map_or_else(|| latch.close(), |mode| latch.close_with(mode))).unwrap();
        if of_call == Some(CloseMode::NotifyLeader) {
            assert_eq!(told.next(), Ends);
        }
        assert!(told.is_empty());
        assert!(queue(&client, PATH).is_empty());
    }
}

/// Says what stands in the queue while it is told, and takes its time.
struct Slow {
    client: CuratorFramework,
    seen: crossbeam_channel::Sender<(usize, Instant)>,
}

impl LeaderLatchListener for Slow {
    fn is_leader(&self, _leadership: &Leadership) {}

    fn not_leader(&self) {
        thread::sleep(Duration::from_millis(300));
        let _ = self.seen.send((queue(&self.client, PATH).len(), Instant::now()));
    }
}

/// As Curator, which deletes first and tells afterwards, does not.
#[test]
fn the_next_leads_when_the_one_before_has_been_told_and_has_stopped() {
    let client = client();
    let others = another(&client);
    for with_executor in [false, true] {
        let (seen, of_slow) = unbounded();
        let first = LeaderLatch::new(&client, PATH).unwrap().with_close_mode(CloseMode::NotifyLeader);
        let slow = Slow { client: client.clone(), seen };
        if with_executor {
            first.add_listener_with_executor(slow, |task| drop(thread::spawn(task)));
        } else {
            first.add_listener(slow);
        }
        first.start().unwrap();
        first.await_leadership().unwrap();
        let (next, told) = latch(&others);
        next.start().unwrap();
        await_queue(&client, PATH, 2);
        let admin = client.clone();
        let closing = thread::spawn(move || close(&admin, &first));
        assert_eq!(told.next(), Leads);
        let leads = Instant::now();
        let (standing, stopped) = of_slow.recv_timeout(PATIENCE).unwrap();
        assert_eq!(standing, 2, "its znode was gone before it was told");
        assert!(stopped < leads, "the next one leads {:?} too early", stopped - leads);
        closing.join().unwrap();
        close(&client, &next);
    }
}

#[test]
fn a_listener_that_is_added_late_or_removed_is_not_told() {
    let client = client();
    let (latch, told) = notifying(&client);
    let (late, of_late) = unbounded();
    let (removed, of_removed) = unbounded();
    let id = latch.add_listener(crate::probe::Teller(removed));
    latch.remove_listener(id);
    latch.start().unwrap();
    assert_eq!(told.next(), Leads);
    latch.add_listener(crate::probe::Teller(late));
    close(&client, &latch);
    assert_eq!(told.next(), Ends);
    assert_eq!(of_late.try_iter().collect::<Vec<_>>(), [Ends]);
    assert!(of_removed.is_empty());
}

/// In Curator the other listeners hear nothing, and those who wait sleep on.
#[test]
fn a_listener_that_panics_and_an_executor_that_rejects_stand_in_nobodys_way() {
    struct Panics;
    impl LeaderLatchListener for Panics {
        fn is_leader(&self, _leadership: &Leadership) {
            panic!("on purpose");
        }
        fn not_leader(&self) {
            panic!("on purpose");
        }
    }
    let client = client();
    let latch = LeaderLatch::new(&client, PATH).unwrap().with_close_mode(CloseMode::NotifyLeader);
    let (dropped, rejected) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (drops, rejects) = (dropped.clone(), rejected.clone());
    latch.add_listener(Panics);
    latch.add_listener_with_executor(Panics, move |_| {
        drops.fetch_add(1, Ordering::SeqCst);
    });
    latch.add_listener_with_executor(Panics, move |_| {
        rejects.fetch_add(1, Ordering::SeqCst);
        panic!("full");
    });
    let (tell, told) = unbounded();
    latch.add_listener(crate::probe::Teller(tell));
    latch.start().unwrap();
    latch.await_leadership().unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Leads));
    close(&client, &latch);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Ends));
    assert_eq!((dropped.load(Ordering::SeqCst), rejected.load(Ordering::SeqCst)), (2, 2));
    assert!(queue(&client, PATH).is_empty());
}

/// On another thread; what it gives.
fn waiter(latch: &Arc<LeaderLatch>, options: AcquireOptions) -> Receiver<curator_locks::Result<bool>> {
    let (sender, result) = bounded(1);
    let latch = latch.clone();
    thread::spawn(move || sender.send(latch.await_leadership_with(&options)));
    result
}

#[test]
fn who_waits_for_leadership_gets_it_or_an_end() {
    let client = client();
    let (first, _) = latch(&client);
    assert!(matches!(first.await_leadership(), Err(Error::NotInUse { state: "not started", .. })));
    first.start().unwrap();
    first.await_leadership().unwrap();
    assert!(first.await_leadership_timeout(Duration::ZERO).unwrap());

    let second = Arc::new(latch(&client).0);
    second.start().unwrap();
    await_queue(&client, PATH, 2);
    assert!(!second.await_leadership_timeout(Duration::ZERO).unwrap());
    assert!(!second.await_leadership_timeout(Duration::from_millis(50)).unwrap());
    let token = CancelToken::new();
    let cancelled = waiter(&second, AcquireOptions::new().cancel_token(&token));
    token.cancel();
    assert!(matches!(cancelled.recv_timeout(PATIENCE).unwrap(), Err(Error::Cancelled { .. })));
    let all: Vec<_> = (0..10).map(|_| waiter(&second, AcquireOptions::new())).collect();
    assert!(all.iter().all(crossbeam_channel::Receiver::is_empty));
    close(&client, &first);
    for result in all {
        assert!(result.recv_timeout(PATIENCE).unwrap().unwrap());
    }

    let third = Arc::new(latch(&client).0);
    third.start().unwrap();
    await_queue(&client, PATH, 2);
    let waiting = waiter(&third, AcquireOptions::new());
    eventually("it waits", || third.our_path().is_some());
    close(&client, &third);
    assert!(matches!(waiting.recv_timeout(PATIENCE).unwrap(), Err(Error::NotInUse { state: "closed", .. })));

    let fourth = Arc::new(latch(&client).0);
    fourth.start().unwrap();
    let waiting = waiter(&fourth, AcquireOptions::new());
    client.close();
    assert!(matches!(waiting.recv_timeout(PATIENCE).unwrap(), Err(Error::ClientClosed)));
}

#[test]
fn what_is_called_out_of_order_is_an_error() {
    let client = client();
    let (latch, _) = latch(&client);
    assert_eq!(latch.state(), LeaderState::Latent);
    assert!(matches!(latch.close(), Err(Error::NotInUse { state: "not started", .. })));
    latch.start().unwrap();
    assert!(matches!(latch.start(), Err(Error::AlreadyStarted)));
    assert_eq!(latch.state(), LeaderState::Started);
    close(&client, &latch);
    assert_eq!(latch.state(), LeaderState::Closed);
    for result in [latch.start(), latch.close(), latch.await_leadership()] {
        assert!(matches!(result, Err(Error::NotInUse { state: "closed", .. })), "{result:?}");
    }
    assert!(matches!(LeaderLatch::new(&client, "relative"), Err(Error::InvalidPath { .. })));
    let latent = builder(server(), "").build().unwrap();
    assert!(matches!(self::latch(&latent).0.start(), Err(Error::NotStarted)));
}

#[test]
fn everybody_can_read_who_leads_and_who_waits() {
    let client = client();
    let (onlooker, _) = latch(&client);
    assert!(onlooker.participants().unwrap().is_empty() && onlooker.leader().unwrap().is_none());
    let ids = ["one", "", "Zürich"];
    let all = [latch(&client).0.with_id(ids[0]), latch(&client).0, latch(&client).0.with_id(ids[2])];
    for (k, latch) in all.iter().enumerate() {
        assert_eq!(latch.id(), ids[k]);
        latch.start().unwrap();
        await_queue(&client, PATH, k + 1);
    }
    let seen = onlooker.participants().unwrap();
    assert_eq!(seen.iter().map(|one| one.id().into_owned()).collect::<Vec<_>>(), ids);
    assert_eq!(seen.iter().filter(|one| one.is_leader()).count(), 1);
    assert_eq!(seen[1].data.as_deref(), Some(b"".as_slice()), "not the client's default data");
    assert_eq!(onlooker.leader().unwrap().unwrap().id(), "one");
    all[0].await_leadership().unwrap();
    assert_eq!(all[0].our_path().as_ref(), Some(&seen[0].path));
    eventually("the second one knows its place", || all[1].our_path().as_ref() == Some(&seen[1].path));
    assert_eq!((all[0].last_path_is_leader(), all[1].last_path_is_leader()), (Some(seen[0].path.clone()), None));
    let name = seen[0].path.rsplit('/').next().unwrap();
    assert!(name.starts_with("_c_") && name[39..].starts_with("-latch-"), "{name}");
    let mut stat = Stat::default();
    client.get_data().storing_stat_in(&mut stat).for_path(&seen[0].path).unwrap();
    assert_eq!(stat.ephemeral_owner, client.session_id());
    assert_eq!(stat.czxid, all[0].leadership().unwrap().fencing_token().value());
    all.iter().for_each(|latch| close(&client, latch));
    // It was a container.
    eventually("the directory is gone", || client.check_exists().for_path(PATH).unwrap().is_none());
}

#[test]
fn one_that_starts_without_a_server_leads_when_there_is_one_and_is_told_once() {
    let (server, client) = without_server();
    let (latch, told) = latch(&client);
    latch.start().unwrap();
    // The retry policy is exhausted by then.
    assert!(!latch.await_leadership_timeout(Duration::from_millis(1500)).unwrap());
    server.restart().unwrap();
    assert!(latch.await_leadership_timeout(PATIENCE).unwrap());
    assert_eq!(told.next(), Leads);
    assert!(told.is_empty());
}

/// Curator logs it, and whoever waits hangs.
#[test]
fn who_waits_hears_what_the_servers_refuse_and_the_latch_tries_again() {
    let client = client();
    let admin = forbid_queueing(&client);
    let (latch, _) = latch(&client);
    let begin = Instant::now();
    latch.start().unwrap();
    for _ in 0..2 {
        let error = latch.await_leadership().unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::NoAuth), "{error}");
    }
    assert!(begin.elapsed() >= Duration::from_millis(500), "no pause between attempts");
    admin.delete().for_path(PATH).unwrap();
    eventually("it leads", || latch.await_leadership().is_ok());
}

#[test]
fn missing_parents_of_whatever_mode_are_open_where_the_provider_names_lists_for_the_queue_alone() {
    struct OfTheQueueAlone;
    impl AclProvider for OfTheQueueAlone {
        fn default_acl(&self) -> Vec<Acl> {
            Vec::new()
        }
        fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
            path.contains("latch-").then(Acl::open_unsafe)
        }
    }
    let builders = [|builder: Builder| builder, Builder::dont_use_container_parents];
    for mode in builders {
        let client = connect(mode(builder(server(), &namespace())).acl_provider(OfTheQueueAlone));
        let (latch, _) = latch(&client);
        latch.start().unwrap();
        assert!(latch.await_leadership_timeout(PATIENCE).unwrap());
        assert_eq!(client.get_acl().for_path(PATH).unwrap(), Acl::open_unsafe());
    }
}

#[test]
fn servers_without_containers_get_persistent_parents() {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let refused = proxy.inject(RequestMatch::op(op::CREATE_CONTAINER).times(u64::MAX), Fault::Refuse(UNIMPLEMENTED));
    let client = connect(builder_at(&proxy.connect_string(), &namespace()));
    let (latch, _) = latch(&client);
    latch.start().unwrap();
    assert!(latch.await_leadership_timeout(PATIENCE).unwrap());
    assert!(refused.hits() > 0);
    client.create().creating_parents_if_needed().for_path("/a/b/c").unwrap();
}

/// A listener that needs a lock.
struct Locks(Arc<Mutex<()>>, crossbeam_channel::Sender<()>);

impl LeaderLatchListener for Locks {
    fn is_leader(&self, _leadership: &Leadership) {
        let _ = self.1.send(());
        drop(self.0.lock());
    }

    fn not_leader(&self) {
        drop(self.0.lock());
    }
}

/// What a listener does may need a lock that is held by whoever closes the latch.
#[test]
fn a_close_under_a_lock_that_a_listener_wants_is_no_deadlock() {
    let client = client();
    let (lock, (entered, enters)) = (Arc::new(Mutex::new(())), unbounded());
    let latch = LeaderLatch::new(&client, PATH).unwrap().with_close_mode(CloseMode::NotifyLeader);
    latch.add_listener(Locks(lock.clone(), entered));
    let held = lock.lock();
    latch.start().unwrap();
    enters.recv_timeout(PATIENCE).unwrap();
    let result = latch.close();
    assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
    assert!(!latch.has_leadership());
    assert_eq!(queue(&client, PATH).len(), 1, "the listener has yet to be told");
    drop(held);
    await_queue(&client, PATH, 0);
}

#[test]
fn whoever_waits_for_leadership_waits_for_no_listener() {
    let client = client();
    let [first, second] = [PATH, "/another"].map(|path| LeaderLatch::new(&client, path).unwrap());
    let (lock, (entered, enters)) = (Arc::new(Mutex::new(())), unbounded());
    first.add_listener(Locks(lock.clone(), entered));
    let held = lock.lock();
    first.start().unwrap();
    enters.recv_timeout(PATIENCE).unwrap();
    second.start().unwrap();
    let begin = Instant::now();
    assert!(second.await_leadership_timeout(PATIENCE).unwrap());
    assert!(begin.elapsed() < PATIENCE, "it leads only when somebody asks");
    drop(held);
}

#[test]
fn a_listener_may_close_the_latch() {
    struct Closes(Mutex<Option<Arc<LeaderLatch>>>, crossbeam_channel::Sender<&'static str>);
    impl LeaderLatchListener for Closes {
        fn is_leader(&self, _leadership: &Leadership) {
            let latch = self.0.lock().take().unwrap();
            latch.close().unwrap();
            assert!(!latch.has_leadership());
            let _ = self.1.send("closed");
        }
        fn not_leader(&self) {
            let _ = self.1.send("told");
        }
    }
    let client = client();
    let latch = Arc::new(LeaderLatch::new(&client, PATH).unwrap().with_close_mode(CloseMode::NotifyLeader));
    let (say, said) = unbounded();
    let slot = Closes(Mutex::new(Some(latch.clone())), say);
    latch.add_listener(slot);
    latch.start().unwrap();
    assert_eq!([0, 1].map(|_| said.recv_timeout(PATIENCE).unwrap()), ["closed", "told"]);
    await_queue(&client, PATH, 0);
}

#[test]
fn a_term_closes_its_latch_whoever_calls_it_and_as_the_latch_itself_would() {
    /// Closes in the first call, and keeps the term.
    struct Closes(crossbeam_channel::Sender<&'static str>, Mutex<Option<Leadership>>);
    impl LeaderLatchListener for Closes {
        fn is_leader(&self, leadership: &Leadership) {
            leadership.close().unwrap();
            assert!(!leadership.has_leadership());
            *self.1.lock() = Some(leadership.clone());
            let _ = self.0.send("closed");
        }
        fn not_leader(&self) {
            let again = self.1.lock().as_ref().unwrap().close();
            assert!(matches!(again, Err(Error::NotInUse { state: "closed", .. })), "{again:?}");
            let _ = self.0.send("told");
        }
    }
    let client = client();
    for (mode, expected) in [(CloseMode::NotifyLeader, &["closed", "told"][..]), (CloseMode::Silent, &["closed"])] {
        let latch = LeaderLatch::new(&client, PATH).unwrap().with_close_mode(mode);
        let (say, said) = unbounded();
        latch.add_listener(Closes(say, Mutex::new(None)));
        latch.start().unwrap();
        let heard: Vec<_> = expected.iter().map(|_| said.recv_timeout(PATIENCE).unwrap()).collect();
        assert_eq!(heard, expected);
        await_queue(&client, PATH, 0);
        assert_eq!(latch.state(), LeaderState::Closed);
        drop(latch);
        assert_eq!(said.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "told, or kept");
    }
    // From any thread, and after the latch has gone.
    let (latch, _) = latch(&client);
    latch.start().unwrap();
    latch.await_leadership().unwrap();
    let term = latch.leadership().unwrap();
    term.close().unwrap();
    assert!(queue(&client, PATH).is_empty() && !latch.has_leadership());
    drop(latch);
    term.close().unwrap();
}

#[test]
fn a_timed_wait_for_a_latch_that_is_not_in_use_is_an_error_and_not_false() {
    let client = client();
    let (latch, _) = latch(&client);
    for state in ["not started", "closed"] {
        let result = latch.await_leadership_timeout(Duration::ZERO);
        assert!(matches!(&result, Err(Error::NotInUse { state: named, .. }) if *named == state), "{result:?}");
        if state == "not started" {
            latch.start().unwrap();
            latch.close().unwrap();
        }
    }
}

#[test]
fn a_dropped_latch_leaves_nothing_and_tells_as_its_close_would() {
    let client = client();
    let ((leader, told), (waiter, _)) = (notifying(&client), latch(&client));
    leader.start().unwrap();
    assert_eq!(told.next(), Leads);
    waiter.start().unwrap();
    await_queue(&client, PATH, 2);
    drop(waiter);
    await_queue(&client, PATH, 1);
    drop(leader);
    assert_eq!(told.next(), Ends);
    await_queue(&client, PATH, 0);
}

#[test]
fn closing_the_client_is_told_and_ends_leadership() {
    let client = client();
    let (latch, told) = latch(&client);
    latch.start().unwrap();
    assert_eq!(told.next(), Leads);
    let term = latch.leadership().unwrap();
    client.close();
    assert!(!latch.has_leadership() && !term.has_leadership());
    assert_eq!(told.next(), Ends);
    assert!(matches!(latch.await_leadership(), Err(Error::ClientClosed)));
}

#[test]
fn a_term_that_its_client_has_closed_is_forgotten_although_a_listener_still_runs() {
    struct Rests;
    impl LeaderLatchListener for Rests {
        fn is_leader(&self, _leadership: &Leadership) {}
        fn not_leader(&self) {
            thread::sleep(Duration::from_millis(300));
        }
    }
    let client = client();
    let (latch, told) = latch(&client);
    latch.add_listener(Rests);
    latch.start().unwrap();
    assert_eq!(told.next(), Leads);
    client.close();
    eventually("its hold is forgotten", || client.metrics().held == 0);
    assert_eq!(told.next(), Ends);
}

/// CURATOR-645 and its like: whoever is looked for may go at that very moment.
#[test]
fn never_two_leaders_and_never_none_while_everybody_comes_and_goes() {
    let namespace = namespace();
    let clients = [0, 1, 2].map(|_| connect(builder(server(), &namespace)));
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                for _ in 0..20 {
                    let (latch, told) = notifying(client);
                    latch.start().unwrap();
                    assert_eq!(told.next(), Leads);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two leaders");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    close(client, &latch);
                    assert_eq!(told.next(), Ends);
                }
            });
        }
    });
    await_queue(&clients[0], PATH, 0);
}

#[test]
fn a_latch_that_was_given_up_for_good_says_so_to_whoever_waits_later() {
    let client = client();
    let latch = LeaderLatch::new(&client, PATH).unwrap().with_id("x".repeat(2 << 20));
    latch.start().unwrap();
    for _ in 0..2 {
        let refused = latch.await_leadership_timeout(PATIENCE);
        assert!(matches!(refused, Err(Error::FrameTooLarge { .. })), "{refused:?}");
    }
    latch.close().unwrap();
    assert!(matches!(latch.await_leadership(), Err(Error::NotInUse { .. })));
}

/// The candidate queues again before the servers have said why its znode is gone, and ends when its client is closed.
#[test]
fn whoever_keeps_the_hold_of_a_leader_is_told_why_it_is_lost() {
    type Ends = fn(&CuratorFramework, &CuratorFramework, &str);
    let ways: [(Ends, LostReason); 2] = [
        (|admin, _, path| admin.delete().for_path(path).unwrap(), LostReason::NodeDeleted),
        (|_, client, _| client.close(), LostReason::ClientClosed),
    ];
    for (ends, reason) in ways {
        for _ in 0..5 {
            let client = client();
            let (admin, (latch, _told)) = (another(&client), latch(&client));
            latch.start().unwrap();
            assert!(latch.await_leadership_timeout(PATIENCE).unwrap());
            let hold = latch.leadership().unwrap().hold().clone();
            let (path, states) = (hold.path().to_owned(), hold.state_changes());
            ends(&admin, &client, &path);
            loop {
                match states.recv_timeout(PATIENCE).expect("it is told") {
                    HoldState::InDoubt => {}
                    state => break assert_eq!(state, HoldState::Lost(reason)),
                }
            }
            assert!(states.recv_timeout(PATIENCE).is_err(), "and the channel ends");
        }
    }
}
