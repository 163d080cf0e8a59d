//! What a client counts of itself: each number after a scene that is known.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, Caching, CancelToken, CuratorFramework, Error, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreV2, LeaderLatch, LockGuard, Metrics,
    testing::{Fault, FaultProxy, RequestMatch, op},
};

use crate::support::{
    another, await_queue, builder, builder_at, client, connect, eventually, expire,
    logs::{catch_logs, has_logged},
    namespace, quick_server, server, watchers,
};

/// Waits until the numbers are so.
#[track_caller]
fn counted(client: &CuratorFramework, what: &str, is_so: impl Fn(&Metrics) -> bool) -> Metrics {
    let begin = Instant::now();
    loop {
        let metrics = client.metrics();
        if is_so(&metrics) {
            return metrics;
        }
        assert!(begin.elapsed() < support::PATIENCE, "{what}:\n{metrics}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_acquire_that_waits_is_one_grant_one_wait_and_one_hand_over() {
    let (one, two) = {
        let one = client();
        (another(&one), one)
    };
    let (holder, waiter) = (InterProcessMutex::new(&one, "/l").unwrap(), InterProcessMutex::new(&two, "/l").unwrap());
    let held = holder.lock().unwrap();
    let paused = thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.lock().unwrap().release().unwrap());
        await_queue(&one, "/l", 2);
        let begin = Instant::now();
        eventually("it watches", || watchers(&one, held.path()).contains(&two.session_id()));
        thread::sleep(Duration::from_millis(50));
        let paused = begin.elapsed();
        held.release().unwrap();
        waits.join().unwrap();
        paused
    });
    let of_holder = one.metrics();
    assert_eq!((of_holder.acquires.granted, of_holder.hand_overs.count, of_holder.held), (1, 0, 0));
    assert!(of_holder.holds.count == 1 && of_holder.holds.sum >= paused, "{of_holder}");
    let of_waiter = counted(&two, "its watches are gone", |metrics| metrics.watches == 0);
    assert_eq!((of_waiter.acquires.granted, of_waiter.waits.count, of_waiter.holds.count), (1, 1, 1));
    assert!(of_waiter.waits.sum >= paused, "{of_waiter}");
    assert_eq!(of_waiter.hand_overs.count, 1, "{of_waiter}");
    assert!(of_waiter.hand_overs.sum <= of_waiter.waits.sum, "{of_waiter}");
    assert!(of_waiter.watch_events > 0, "{of_waiter}");
}

#[test]
fn an_acquire_without_the_lock_is_counted_by_how_it_ended() {
    let one = client();
    let two = another(&one);
    let holder = InterProcessMutex::new(&one, "/l").unwrap();
    let other = InterProcessMutex::new(&two, "/l").unwrap();
    let _held = holder.lock().unwrap();
    assert!(other.try_lock().unwrap().is_none());
    assert!(!other.acquire_timeout(Duration::from_millis(10)).unwrap());
    let says_so = AcquireOptions::new().timeout(Duration::from_millis(10)).timeout_is_error();
    assert!(matches!(other.acquire_with(&says_so), Err(Error::StillTaken { .. })));
    let token = CancelToken::new();
    token.cancel();
    assert!(matches!(other.acquire_with(&AcquireOptions::new().cancel_token(&token)), Err(Error::Cancelled { .. })));
    assert!(matches!(other.acquire_with(&AcquireOptions::new().max_queue(0)), Err(Error::Busy { .. })));
    // A re-entry is no acquire.
    holder.acquire().unwrap();
    holder.release().unwrap();
    let (of_holder, of_other) = (one.metrics(), two.metrics());
    assert_eq!((of_holder.acquires.granted, of_holder.held, of_holder.holds.count), (1, 1, 0));
    let ended = of_other.acquires;
    assert_eq!((ended.granted, ended.timed_out, ended.cancelled, ended.failed), (0, 3, 1, 1), "{of_other}");
    assert_eq!((of_other.waits.count, of_other.held), (0, 0));
}

/// A hold that lasts so long is watched.
const WATCHED_AFTER: Duration = Duration::from_millis(100);

#[test]
fn a_cycle_that_nobody_disturbs_is_one_create_one_list_and_one_delete() {
    let client = client();
    // The server could remove a container between two cycles.
    client.create().creating_parents_if_needed().for_path("/l").unwrap();
    let mutex = InterProcessMutex::new(&client, "/l").unwrap();
    let mut slow = 0;
    let mut cycle = || {
        let begin = Instant::now();
        mutex.acquire().unwrap();
        mutex.release().unwrap();
        slow += u64::from(begin.elapsed() >= WATCHED_AFTER);
    };
    (0..4).for_each(|_| cycle());
    let before = client.metrics().requests;
    (0..10).for_each(|_| cycle());
    let after = client.metrics().requests;
    assert_eq!((after.create - before.create, after.delete - before.delete), (10, 10));
    assert_eq!((after.write, after.multi), (before.write, before.multi));
    let reads = after.read - before.read;
    assert!((10..=10 + slow).contains(&reads), "{reads} reads, {slow} slow cycles");
}

#[test]
fn a_semaphore_that_queues_and_waits_is_one_acquire_and_holds_no_place() {
    let one = client();
    let two = another(&one);
    let held = InterProcessSemaphoreV2::new(&one, "/s", 1).unwrap().acquire().unwrap();
    let waiter = InterProcessSemaphoreV2::new(&two, "/s", 1).unwrap();
    let paused = thread::scope(|scope| {
        let waits = scope.spawn(|| drop(waiter.acquire().unwrap()));
        counted(&two, "it watches for leases", |metrics| metrics.watches > 0);
        let begin = Instant::now();
        assert_eq!(two.metrics().held, 0, "a place in the queue is no lock");
        thread::sleep(Duration::from_millis(20));
        let paused = begin.elapsed();
        drop(held);
        waits.join().unwrap();
        paused
    });
    let metrics = counted(&two, "given back", |metrics| metrics.held == 0);
    assert_eq!((metrics.acquires.granted, metrics.waits.count, metrics.holds.count), (1, 1, 1), "{metrics}");
    assert_eq!(metrics.acquires.timed_out + metrics.acquires.failed, 0, "{metrics}");
    assert!(metrics.waits.sum >= paused, "{metrics}");
}

/// An idle lock stays, however slow this machine is.
fn caching() -> Caching {
    Caching::new().keep_idle(support::PATIENCE * 60)
}

#[test]
fn grants_of_a_kept_znode_count_and_its_time_is_one_hold() {
    let client = client();
    let cached = InterProcessMutex::new(&client, "/c").unwrap().with_caching(caching());
    for _ in 0..100 {
        cached.acquire().unwrap();
        cached.release().unwrap();
    }
    let metrics = client.metrics();
    assert_eq!((metrics.acquires.granted, metrics.acquires.cached), (1, 99), "{metrics}");
    assert_eq!((metrics.waits.count, metrics.held, metrics.holds.count), (1, 1, 0), "{metrics}");
    drop(cached);
    counted(&client, "given back", |metrics| metrics.held == 0 && metrics.holds.count == 1);
    assert_eq!(client.metrics().requests.delete, 1);
}

#[test]
fn a_thread_that_waits_for_a_kept_znode_is_timed() {
    let client = client();
    let cached = InterProcessMutex::new(&client, "/c").unwrap().with_caching(Caching::new());
    cached.acquire().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| drop(cached.lock().unwrap()));
        eventually("it waits", || cached.local_waiters() == 1);
        let begin = Instant::now();
        thread::sleep(Duration::from_millis(20));
        let paused = begin.elapsed();
        cached.release().unwrap();
        waits.join().unwrap();
        let metrics = client.metrics();
        assert_eq!((metrics.acquires.cached, metrics.waits.count), (1, 2), "{metrics}");
        assert!(metrics.waits.sum >= paused, "{metrics}");
    });
}

#[test]
fn each_loss_is_counted_once_with_its_reason() {
    let client = client();
    let mutex = InterProcessMutex::new(&client, "/l").unwrap();
    let held = mutex.lock().unwrap();
    let session = client.session_id();
    expire(&client);
    eventually("lost", || held.is_lost());
    drop(held);
    let is_another = || client.is_connected() && ![0, session].contains(&client.session_id());
    let metrics = counted(&client, "a new session", |metrics| metrics.connections.lost == 1 && is_another());
    assert_eq!((metrics.losses.session_expired, metrics.connections.lost, metrics.held), (1, 1, 0), "{metrics}");
    assert_eq!((metrics.holds.count, metrics.losses.node_deleted), (1, 0), "{metrics}");

    let held = mutex.lock().unwrap();
    client.delete().for_path(held.path()).unwrap();
    counted(&client, "deleted", |metrics| metrics.losses.node_deleted == 1);
    assert!(matches!(held.release(), Err(Error::LockLost { .. })));
    let metrics = client.metrics();
    assert_eq!((metrics.losses.node_deleted, metrics.holds.count), (1, 2), "{metrics}");
}

/// The watch on the own znode comes after 100 ms. Before that only the release can find that the znode is gone.
#[test]
fn a_release_that_finds_no_znode_is_a_loss_also_where_the_guard_is_dropped() {
    catch_logs(log::LevelFilter::Debug);
    let client = client();
    let administrator = another(&client);
    let mutex = InterProcessMutex::new(&client, "/l").unwrap();
    // Until the delete was faster than the watch.
    let lost = |release: &dyn Fn(LockGuard)| {
        eventually("a release finds the znode gone", || {
            let held = mutex.lock().unwrap();
            let node = held.path().rsplit('/').next().unwrap().to_owned();
            let before = client.metrics().losses.node_deleted;
            administrator.delete().for_path(held.path()).unwrap();
            release(held);
            counted(&client, "a loss", |metrics| metrics.losses.node_deleted == before + 1);
            has_logged(&["WARN", &node, "was lost before it was released"])
        });
    };
    lost(&|held| drop(held));
    lost(&|held| assert!(matches!(held.release(), Err(Error::LockLost { .. }))));
}

#[test]
fn a_cut_connection_is_a_suspension_a_reconnect_a_doubt_and_what_was_under_way_is_unanswered() {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()));
    let mutex = InterProcessMutex::new(&client, "/l").unwrap();
    let held = mutex.lock().unwrap();
    // The watch on the own znode comes after a while, and could be under way when the connection ends.
    counted(&client, "it watches", |metrics| metrics.watches == 1);
    client.check_exists().for_path("/").unwrap();
    let before = client.metrics();
    assert_eq!((before.connections.connected, before.connections.suspended, before.doubts), (1, 0, 0), "{before}");
    let lost_reply = proxy.inject(RequestMatch::any().path(|path| path.ends_with("/x")), Fault::CutInsteadOfReply);
    assert!(client.check_exists().for_path("/x").unwrap().is_none());
    assert_eq!(lost_reply.hits(), 1);
    let after = counted(&client, "reconnected", |metrics| metrics.connections.reconnected == 1);
    assert_eq!((after.connections.suspended, after.connections.lost), (1, 0), "{after}");
    assert_eq!(after.requests_unanswered, before.requests_unanswered + 1, "{after}");
    counted(&client, "confirmed after the reconnect", |metrics| metrics.doubts == 1);
    eventually("held again", || held.is_valid());
    assert_eq!((client.metrics().losses.session_expired, client.metrics().held), (0, 1));
}

#[test]
fn what_waits_for_a_connection_to_be_cleaned_up_is_outstanding_until_it_is_gone() {
    let proxy = FaultProxy::start(server().connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()));
    let mutex = InterProcessMutex::new(&client, "/l").unwrap();
    let held = mutex.lock().unwrap();
    proxy.refuse();
    let cut = proxy.inject(RequestMatch::op(op::DELETE), Fault::CutInsteadOfRequest);
    drop(held);
    cut.wait_for_hits(1, support::PATIENCE).unwrap();
    counted(&client, "one job", |metrics| metrics.clean_up_jobs == 1);
    proxy.pass().unwrap();
    counted(&client, "none", |metrics| metrics.clean_up_jobs == 0);
    await_queue(&client, "/l", 0);
}

#[test]
fn heartbeats_are_timed_and_late_ones_counted() {
    let server = quick_server().start().unwrap();
    let proxy = FaultProxy::start(server.connect_string()).unwrap();
    let timeout = Duration::from_secs(3);
    let client = connect(builder_at(&proxy.connect_string(), &namespace()).session_timeout(timeout));
    let prompt = counted(&client, "one heartbeat", |metrics| metrics.heartbeats.count > 0);
    let now = client.metrics();
    assert!(now.requests.sync >= prompt.heartbeats.count, "{prompt} {now}");
    // Both ways: a third, where 0.3 is late and two thirds are the end.
    proxy.delay(timeout / 6);
    counted(&client, "a late one, timed or lost with its connection", |metrics| {
        let is_told = metrics.heartbeats.sum >= timeout * 3 / 10 || metrics.connections.suspended > 0;
        metrics.heartbeats_late > prompt.heartbeats_late && is_told
    });
}

#[test]
fn a_leader_is_told_and_not_waited_for() {
    let client = client();
    let latch = LeaderLatch::new(&client, "/leader").unwrap();
    latch.start().unwrap();
    eventually("leads", || latch.has_leadership());
    let metrics = client.metrics();
    assert_eq!((metrics.acquires.told, metrics.acquires.granted, metrics.waits.count), (1, 0, 0), "{metrics}");
    assert_eq!(metrics.held, 1);
    latch.close().unwrap();
    counted(&client, "the term is over", |metrics| metrics.held == 0 && metrics.holds.count == 1);
}

#[test]
fn a_snapshot_prints_a_line_for_each_number() {
    let client = client();
    let lock = InterProcessReadWriteLock::new(&client, "/rw").unwrap();
    lock.read_lock().acquire().unwrap();
    lock.read_lock().release().unwrap();
    let printed = client.metrics().to_string();
    assert!(printed.starts_with("acquires:      1 granted, 0 cached, 0 told, 0 timed out"), "{printed}");
    assert!(printed.contains("\nheld now:      0\n") && printed.contains("\nclean-up jobs: 0"), "{printed}");
    assert_eq!(printed.lines().count(), 12, "{printed}");
}

#[cfg(feature = "metrics")]
mod facade {
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::{Arc, Mutex, atomic::AtomicU64},
    };

    use curator_locks::{HoldState, InterProcessSemaphoreMutex, InterProcessUnfairMutex, LostReason};
    use metrics::{
        Counter, Gauge, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder,
    };

    use super::*;

    /// Keeps what it is told, by name and label.
    #[derive(Default)]
    struct Kept {
        counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
        gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
        times: Mutex<BTreeMap<String, Arc<Times>>>,
        /// Units and texts, by name.
        described: Mutex<BTreeMap<String, (Option<Unit>, String)>>,
    }

    #[derive(Default)]
    struct Times(Mutex<Vec<f64>>);

    impl HistogramFn for Times {
        fn record(&self, value: f64) {
            self.0.lock().unwrap().push(value);
        }
    }

    fn name(key: &Key) -> String {
        let labels = key.labels().map(|label| format!("{{{}={}}}", label.key(), label.value()));
        format!("{}{}", key.name(), labels.collect::<String>())
    }

    fn kept<T: Default>(all: &Mutex<BTreeMap<String, Arc<T>>>, key: &Key) -> Arc<T> {
        all.lock().unwrap().entry(name(key)).or_default().clone()
    }

    impl Recorder for Kept {
        fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
            self.describe(&name, unit, &text);
        }

        fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
            self.describe(&name, unit, &text);
        }

        fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
            self.describe(&name, unit, &text);
        }

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            kept(&self.counters, key).into()
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            kept(&self.gauges, key).into()
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
            kept(&self.times, key).into()
        }
    }

    impl Kept {
        /// One name has one text.
        fn describe(&self, name: &KeyName, unit: Option<Unit>, text: &str) {
            let known = self.described.lock().unwrap().insert(name.as_str().to_owned(), (unit, text.to_owned()));
            assert!(known.is_none_or(|known| known == (unit, text.to_owned())), "{}", name.as_str());
        }

        /// The names of all that was registered, without their labels.
        fn names(&self) -> BTreeSet<String> {
            let all = [&self.counters, &self.gauges].map(|all| all.lock().unwrap().keys().cloned().collect::<Vec<_>>());
            let times = self.times.lock().unwrap().keys().cloned().collect::<Vec<_>>();
            let bare = |name: &String| name.split('{').next().unwrap_or_default().to_owned();
            all.iter().flatten().chain(&times).map(bare).collect()
        }

        fn count(&self, name: &str) -> u64 {
            self.counters.lock().unwrap()[name].load(std::sync::atomic::Ordering::Relaxed)
        }

        fn level(&self, name: &str) -> f64 {
            f64::from_bits(self.gauges.lock().unwrap()[name].load(std::sync::atomic::Ordering::Relaxed))
        }

        fn times(&self, name: &str) -> Vec<f64> {
            self.times.lock().unwrap()[name].0.lock().unwrap().clone()
        }
    }

    #[test]
    fn each_number_has_a_unit_and_a_text_that_is_a_sentence_of_its_own() {
        let kept = Kept::default();
        with_local_recorder(&kept, || builder(server(), "described").build().unwrap());
        let described = kept.described.lock().unwrap();
        assert_eq!(described.keys().cloned().collect::<BTreeSet<_>>(), kept.names());
        let texts: BTreeSet<&str> = described.values().map(|(_, text)| text.as_str()).collect();
        assert!(described.len() >= 15 && texts.len() == described.len(), "{texts:?}");
        assert!(texts.iter().all(|text| text.ends_with('.') && !text.contains(['[', '`', '\n'])), "{texts:?}");
        for (name, (unit, _)) in &*described {
            let expected = if name.ends_with("_seconds") { Unit::Seconds } else { Unit::Count };
            assert_eq!(*unit, Some(expected), "{name}");
        }
    }

    #[test]
    fn the_facade_is_told_the_same_numbers_of_all_clients_together() {
        let kept = Kept::default();
        let namespace = namespace();
        let build = || builder(server(), &namespace).build().unwrap();
        let clients = with_local_recorder(&kept, || [build(), build()]);
        clients.iter().for_each(support::start);
        let mutexes: Vec<_> = clients.iter().map(|client| InterProcessMutex::new(client, "/m").unwrap()).collect();
        mutexes[0].acquire().unwrap();
        assert!(mutexes[1].try_lock().unwrap().is_none());
        assert_eq!(kept.level("curator_locks_held"), 1.0);
        mutexes[0].release().unwrap();
        mutexes[1].acquire().unwrap();
        mutexes[1].release().unwrap();
        let acquires = |outcome: &str| kept.count(&format!("curator_locks_acquires_total{{outcome={outcome}}}"));
        assert_eq!((acquires("granted"), acquires("timed_out"), acquires("failed")), (2, 1, 0));
        assert_eq!(kept.level("curator_locks_held"), 0.0);
        let of_clients = || clients.iter().map(CuratorFramework::metrics);
        let waits = kept.times("curator_locks_wait_seconds");
        let summed: Duration = of_clients().map(|metrics| metrics.waits.sum).sum();
        assert!(waits.len() == 2 && (waits.iter().sum::<f64>() - summed.as_secs_f64()).abs() < 1e-5, "{waits:?}");
        assert_eq!(kept.times("curator_locks_hold_seconds").len(), 2);
        let creates: u64 = of_clients().map(|metrics| metrics.requests.create).sum();
        assert_eq!(kept.count("curator_locks_requests_total{kind=create}"), creates);
        assert_eq!(kept.count("curator_locks_connection_states_total{state=connected}"), 2);
    }

    #[test]
    fn a_lock_that_has_a_name_is_told_by_it_and_no_other_is() {
        let kept = Kept::default();
        let client = with_local_recorder(&kept, || builder(server(), &namespace()).build().unwrap());
        support::start(&client);
        let unnamed = InterProcessMutex::new(&client, "/m").unwrap();
        let read_write = InterProcessReadWriteLock::new(&client, "/rw").unwrap();
        let semaphore = InterProcessSemaphoreV2::new(&client, "/s", 2).unwrap();
        let semaphore_mutex = InterProcessSemaphoreMutex::new(&client, "/sm").unwrap();
        let unfair = InterProcessUnfairMutex::new(&client, "/u").unwrap();
        let (mutex, read_write, semaphore, semaphore_mutex, unfair) = with_local_recorder(&kept, || {
            let mutex = unnamed.clone().with_metrics_name("m").with_caching(Caching::default());
            let read_write = read_write.with_metrics_name("rw");
            let semaphore = semaphore.with_metrics_name("s");
            (mutex, read_write, semaphore, semaphore_mutex.with_metrics_name("sm"), unfair.with_metrics_name("u"))
        });
        unnamed.run(|_| assert!(!mutex.acquire_timeout(Duration::ZERO).unwrap())).unwrap();
        mutex.run(|_| ()).unwrap();
        mutex.run(|_| mutex.run(|_| ()).unwrap()).unwrap();
        read_write.read_lock().run(|_| ()).unwrap();
        read_write.write_lock().run(|_| ()).unwrap();
        let leases = semaphore.acquire_many(2).unwrap();
        assert!(semaphore.acquire_timeout(Duration::ZERO).unwrap().is_none());
        semaphore.return_all(leases).unwrap();
        semaphore_mutex.run(|_| ()).unwrap();
        let held = unfair.lock().unwrap();
        client.delete().for_path(held.path()).unwrap();
        eventually("its loss is told", || held.state() == HoldState::Lost(LostReason::NodeDeleted));
        drop(held);
        drop(mutex);
        client.close();
        let acquires = |lock: &str, outcome: &str| {
            kept.times(&format!("curator_locks_named_acquire_seconds{{lock={lock}}}{{outcome={outcome}}}")).len()
        };
        let holds = |lock: &str, end: &str| {
            kept.times(&format!("curator_locks_named_hold_seconds{{lock={lock}}}{{end={end}}}")).len()
        };
        let outcomes = |lock| ["granted", "cached", "timed_out", "cancelled", "failed"].map(|one| acquires(lock, one));
        assert_eq!(outcomes("m"), [1, 1, 1, 0, 0], "a re-entry counts as none");
        assert_eq!(outcomes("rw"), [2, 0, 0, 0, 0]);
        assert_eq!(outcomes("s"), [1, 0, 1, 0, 0]);
        assert_eq!(outcomes("sm"), [1, 0, 0, 0, 0]);
        assert_eq!(outcomes("u"), [1, 0, 0, 0, 0]);
        let ends = |lock| ["released", "lost"].map(|end| holds(lock, end));
        assert_eq!((ends("rw"), ends("s"), ends("sm"), ends("u")), ([2, 0], [2, 0], [1, 0], [0, 1]));
        assert_eq!(kept.count("curator_locks_acquires_total{outcome=granted}"), 7, "the totals have them all");
    }
}

#[cfg(feature = "tracing")]
mod spans {
    use std::{
        collections::BTreeMap,
        fmt,
        sync::{
            Arc, Mutex,
            atomic::{AtomicU64, Ordering},
        },
    };

    use tracing::{
        Event, Metadata, Subscriber,
        field::{Field, Visit},
        span::{Attributes, Id, Record},
        subscriber::with_default,
    };

    use super::*;

    type Fields = BTreeMap<&'static str, String>;

    /// Keeps this crate's spans: what is recorded, what was inside which, and whether they have ended.
    #[derive(Clone, Default)]
    struct Kept {
        spans: Arc<Mutex<BTreeMap<u64, Fields>>>,
        next: Arc<AtomicU64>,
    }

    struct Fill<'a>(&'a mut Fields);

    impl Visit for Fill<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.insert(field.name(), format!("{value:?}"));
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            self.0.insert(field.name(), value.to_owned());
        }
    }

    impl Subscriber for Kept {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "curator_locks"
        }

        fn new_span(&self, attributes: &Attributes<'_>) -> Id {
            let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
            let mut fields = Fields::from([("name", attributes.metadata().name().to_owned())]);
            attributes.record(&mut Fill(&mut fields));
            self.spans.lock().unwrap().insert(id, fields);
            Id::from_u64(id)
        }

        fn record(&self, id: &Id, values: &Record<'_>) {
            values.record(&mut Fill(self.spans.lock().unwrap().get_mut(&id.into_u64()).unwrap()));
        }

        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}

        fn try_close(&self, id: Id) -> bool {
            self.spans.lock().unwrap().get_mut(&id.into_u64()).unwrap().insert("closed", String::new());
            true
        }
    }

    impl Kept {
        fn named(&self, name: &str) -> Vec<Fields> {
            let spans = self.spans.lock().unwrap();
            spans.values().filter(|fields| fields["name"] == name).cloned().collect()
        }
    }

    /// The first use of a span in the code finds out who listens, and if another test comes to it while a listener is added, it
    /// may find nobody. Each listener that is added lets it be found out again.
    fn kept(client: &CuratorFramework) -> Kept {
        let mutex = InterProcessMutex::new(client, "/first").unwrap();
        eventually("a listener hears of both spans", || {
            let first = Kept::default();
            with_default(first.clone(), || drop(mutex.lock().unwrap()));
            ["acquire", "hold"].iter().all(|name| !first.named(name).is_empty())
        });
        Kept::default()
    }

    #[test]
    fn each_acquire_and_each_hold_is_a_span() {
        let one = client();
        let two = another(&one);
        let kept = kept(&one);
        let holder = InterProcessMutex::new(&one, "/m").unwrap();
        let other = InterProcessReadWriteLock::new(&two, "/m").unwrap();
        with_default(kept.clone(), || {
            let held = holder.lock().unwrap();
            let token = held.fencing_token().to_string();
            assert!(!other.write_lock().acquire_timeout(Duration::from_millis(10)).unwrap());
            let acquires = kept.named("acquire");
            let shown: Vec<_> =
                acquires.iter().map(|span| (&*span["path"], &*span["kind"], &*span["outcome"])).collect();
            assert_eq!(shown, [("/m", "mutex", "granted"), ("/m", "write lock", "timed_out")]);
            assert!(acquires.iter().all(|span| span.contains_key("closed") && span["waited"].ends_with('s')));
            let holds = kept.named("hold");
            assert_eq!((holds.len(), &*holds[0]["path"], &*holds[0]["token"]), (1, "/m", &*token));
            assert!(!holds[0].contains_key("closed"));
            held.release().unwrap();
            assert_eq!(kept.named("hold")[0]["end"], "released");
            assert!(kept.named("hold")[0].contains_key("closed"));
        });
    }

    #[test]
    fn grants_of_a_kept_znode_are_spans_and_a_lost_hold_says_why() {
        let client = client();
        let kept = kept(&client);
        let cached = InterProcessMutex::new(&client, "/c").unwrap().with_caching(caching());
        with_default(kept.clone(), || {
            (0..2).for_each(|_| drop(cached.lock().unwrap()));
            let held = cached.lock().unwrap();
            expire(&client);
            eventually("lost", || held.is_lost());
            drop(held);
        });
        let outcomes: Vec<_> = kept.named("acquire").iter().map(|span| span["outcome"].clone()).collect();
        assert_eq!(outcomes, ["granted", "cached", "cached"]);
        let ends: Vec<_> = kept.named("hold").iter().map(|span| span["end"].clone()).collect();
        assert!(ends[..2] == ["released", "released"] && ends[2].starts_with("lost: "), "{ends:?}");
    }
}
