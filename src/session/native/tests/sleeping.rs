//! Waiters that sleep where what arrives wakes them.

use std::{
    fs::File,
    os::fd::OwnedFd,
    sync::atomic::AtomicUsize,
    thread::{self, JoinHandle, ThreadId},
};

use super::{
    reading::{LATE, MOMENT, PROMPT, flood, is_offered, opened, opened_for, turn},
    *,
};
use crate::{
    cancel::CancelToken,
    proto::EventType,
    session::{WaitEnd, WakeReceiver, Watch, submit, wakes},
};

/// Which thread was told what.
type Told = (ThreadId, WatchEvent);

/// A watch, and what it brings.
struct Watching {
    told: WakeReceiver<Told>,
    watch: Watch,
}

impl Watching {
    /// Asks for a watch; `None`: the connection was lost.
    fn ask(session: &Arc<dyn Session>, path: &str) -> Option<Watching> {
        let (pending, watching) = Watching::submit(session, path);
        match pending.wait(Stop::at(Instant::now() + LONG)) {
            Answer::Reply(Ok(_)) => Some(watching),
            Answer::Reply(Err(SessionError::ConnectionLoss(_))) => None,
            other => panic!("{other:?}"),
        }
    }

    fn submit(session: &Arc<dyn Session>, path: &str) -> (crate::session::Pending, Watching) {
        let (sender, told) = wakes();
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| sender.send((thread::current().id(), event.clone())));
        let request = Request::GetData { path: path.into(), watch: true };
        let (pending, watch) = submit(session, vec![(request, Some(watcher))]).pop().unwrap();
        (pending, Watching { told, watch: watch.unwrap() })
    }

    /// A watch that the server has set.
    fn set(client: &Client, peer: &mut Peer, path: &str) -> Watching {
        let (pending, watching) = Watching::submit(&client.session, path);
        let request = peer.request();
        assert_eq!(request.path(), path);
        peer.answer(&request);
        assert!(matches!(pending.wait(Stop::at(Instant::now() + LONG)), Answer::Reply(Ok(_))));
        watching
    }

    fn recv(&self, stop: Stop<'_>) -> Result<Told, WaitEnd> {
        self.told.recv(self.watch.session(), stop)
    }

    /// What comes, and who waited for it.
    fn next(&self) -> (ThreadId, Told) {
        (thread::current().id(), self.recv(Stop::at(Instant::now() + LONG)).unwrap())
    }
}

fn deleted(connection: u64) -> WatchEvent {
    WatchEvent::Node { event: EventType::NodeDeleted, connection }
}

fn delete(peer: &mut Peer, path: &str) {
    peer.send(&server::notification(server::DELETED, path));
}

fn is_asleep(shared: &Arc<Shared>) -> bool {
    shared.reading.lock().place.taken().is_some()
}

/// A waiter that waits for nothing of the session.
struct Sleeper {
    bell: Arc<Bell>,
    looks: Arc<AtomicUsize>,
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Sleeper {
    /// Returns when it has looked for the first time.
    fn new(client: &Client) -> Sleeper {
        let (bell, looks, is_done) = (Arc::<Bell>::default(), Arc::<AtomicUsize>::default(), Arc::default());
        let thread = thread::spawn({
            let (session, bell, looks) = (client.session.clone(), bell.clone(), looks.clone());
            let is_done: Arc<AtomicBool> = Arc::clone(&is_done);
            move || {
                session.sleep_until(&bell, Some(Instant::now() + LONG), &|| {
                    looks.fetch_add(1, Ordering::SeqCst);
                    is_done.load(Ordering::SeqCst)
                });
            }
        });
        wait_until(LONG, || looks.load(Ordering::SeqCst) == 1);
        Sleeper { bell, looks, is_done, thread }
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }

    /// Ends it, at once.
    fn wake(self) {
        assert!(!self.thread.is_finished(), "it did not sleep any more");
        let begun = Instant::now();
        self.is_done.store(true, Ordering::SeqCst);
        self.bell.ring();
        self.thread.join().unwrap();
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    }
}

#[test]
fn a_waiter_reads_its_own_event_and_leaves_what_follows_to_the_sessions_thread() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    for _ in 0..100 {
        let watching = Watching::set(&client, &mut peer, "/a");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| watching.next());
            wait_until(LONG, || is_asleep(&shared));
            delete(&mut peer, "/a");
            let (thread, told) = waiting.join().unwrap();
            assert_eq!(told, (thread, deleted(1)));
        });
        assert!(!is_asleep(&shared));
        let (_, reply) = client.submit(sync("/"));
        let request = peer.request();
        peer.answer(&request);
        assert!(reply.recv_timeout(PROMPT).unwrap().is_ok());
    }
}

#[test]
fn what_arrived_before_the_waiter_came_wakes_it_too() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    for _ in 0..50 {
        let watching = Watching::set(&client, &mut peer, "/a");
        let turn = turn(&shared);
        delete(&mut peer, "/a");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| watching.next());
            wait_until(LONG, || is_asleep(&shared));
            drop(turn);
            let (thread, told) = waiting.join().unwrap();
            assert_eq!(told, (thread, deleted(1)));
        });
    }
}

#[test]
fn no_arrival_is_taken_for_the_bell_however_often_the_interest_was_switched_on() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let watching = Watching::set(&client, &mut peer, "/a");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watching.next());
        wait_until(LONG, || is_asleep(&shared));
        let turn = turn(&shared);
        // As 32 bits come to after a day or two.
        shared.reading.lock().number = usize::MAX - 1;
        drop(turn);
        delete(&mut peer, "/a");
        let (thread, told) = waiting.join().unwrap();
        assert_eq!(told, (thread, deleted(1)));
    });
}

#[test]
fn a_caller_that_reads_its_reply_wakes_no_sleeper() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let sleeper = Sleeper::new(&client);
    for _ in 0..50 {
        let mut caller = turn(&shared);
        let (_, reply) = client.submit(sync("/a"));
        let request = peer.request();
        peer.answer(&request);
        while !caller.read() {}
        assert!(reply.try_recv().unwrap().is_ok());
        drop(caller);
    }
    thread::sleep(MOMENT);
    assert_eq!(sleeper.looks(), 1);
    // What nobody else reads it does read.
    let (_, reply) = client.submit(sync("/a"));
    let request = peer.request();
    peer.answer(&request);
    assert!(reply.recv_timeout(PROMPT).unwrap().is_ok());
    wait_until(LONG, || sleeper.looks() > 1);
    sleeper.wake();
}

#[test]
fn the_sessions_thread_keeps_its_hands_off_while_a_waiter_sleeps() {
    const TIMEOUT: Duration = Duration::from_millis(900);
    let fake = Fake::new();
    let client = Client::open(&fake.config());
    let mut peer = fake.accept();
    peer.welcome_for(TIMEOUT);
    assert!(matches!(client.event(), SessionEvent::Connected { .. }));
    let watching = Watching::set(&client, &mut peer, "/a");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watching.next());
        // It keeps the timers all the same.
        for _ in 0..8 {
            let heartbeat = peer.request();
            assert_eq!(heartbeat.path(), "/");
            peer.answer(&heartbeat);
        }
        delete(&mut peer, "/a");
        let (thread, told) = waiting.join().unwrap();
        assert_eq!(told, (thread, deleted(1)));
    });
    // And finds that the server says nothing any more.
    let sleeper = Sleeper::new(&client);
    let begun = Instant::now();
    assert_eq!(client.event(), SessionEvent::Disconnected);
    assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
    sleeper.wake();
}

#[test]
fn a_sleep_ends_at_its_deadline_whether_the_server_says_nothing_or_never_stops() {
    for is_loud in [false, true] {
        let fake = Fake::new();
        let (client, mut peer) = Client::connected(&fake);
        let watching = Watching::set(&client, &mut peer, "/a");
        let noise = is_loud.then(|| flood(&peer));
        for patience in [0, 1, 5, 25, 100, 250].map(Duration::from_millis) {
            let deadline = Instant::now() + patience;
            assert_eq!(watching.recv(Stop::at(deadline)).unwrap_err(), WaitEnd::Deadline);
            let now = Instant::now();
            assert!(now >= deadline);
            assert!(now - deadline < LATE, "{patience:?}, loud: {is_loud}: {:?} late", now - deadline);
        }
        drop((watching, client));
        hang_up(&peer);
        noise.map(JoinHandle::join).transpose().unwrap();
    }
}

#[test]
fn a_sleep_ends_when_it_is_cancelled_whether_the_server_says_nothing_or_never_stops() {
    for is_loud in [false, true] {
        let fake = Fake::new();
        let (client, mut peer) = Client::connected(&fake);
        let watching = Watching::set(&client, &mut peer, "/a");
        let noise = is_loud.then(|| flood(&peer));
        for pause in [0, 3, 8, 40].map(Duration::from_millis) {
            let token = CancelToken::new();
            thread::scope(|scope| {
                let cancelling = scope.spawn(|| {
                    thread::sleep(pause);
                    let now = Instant::now();
                    token.cancel();
                    now
                });
                let stop = Stop { cancel: Some(&token), deadline: None };
                assert_eq!(watching.recv(stop).unwrap_err(), WaitEnd::Cancelled);
                let ended = Instant::now();
                let late = ended.saturating_duration_since(cancelling.join().unwrap());
                assert!(late < LATE, "after {pause:?}, loud: {is_loud}: {late:?} late");
            });
        }
        drop((watching, client));
        hang_up(&peer);
        noise.map(JoinHandle::join).transpose().unwrap();
    }
}

#[test]
fn the_end_of_a_session_ends_every_sleep_at_once_although_the_server_says_nothing() {
    for is_close in [true, false] {
        let fake = Fake::new();
        let (shared, client, mut peer) = opened(&fake);
        let watching: Vec<_> = ["/a", "/b", "/c"].map(|path| Watching::set(&client, &mut peer, path)).into();
        thread::scope(|scope| {
            let waiting: Vec<_> = watching.iter().map(|watching| scope.spawn(|| watching.next())).collect();
            wait_until(LONG, || is_asleep(&shared));
            let begun = Instant::now();
            if is_close {
                client.session.close(Instant::now());
            } else {
                client.session.abandon();
            }
            for waiting in waiting {
                assert_eq!(waiting.join().unwrap().1, (thread::current().id(), WatchEvent::Ended));
            }
            assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        });
        drop(watching);
        assert_eq!(peer.answer_all(), [server::CLOSE]);
        client.wait_until_finished(PROMPT);
    }
}

#[test]
fn a_close_whose_confirmation_a_sleeper_reads_is_over_at_once() {
    let fake = Fake::new();
    let (_, client, mut peer) = opened(&fake);
    let sleeper = Sleeper::new(&client);
    thread::scope(|scope| {
        let closing = scope.spawn(|| client.session.close(Instant::now() + LONG));
        let close = peer.request();
        assert_eq!(close.op, server::CLOSE);
        peer.answer(&close);
        let begun = Instant::now();
        closing.join().unwrap();
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    });
    sleeper.wake();
    assert!(client.session.is_finished());
}

#[test]
fn a_waiter_hears_of_a_cut_at_once_and_reads_the_next_connection_as_well() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let watching = Watching::set(&client, &mut peer, "/a");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watching.next().1.1);
        wait_until(LONG, || is_asleep(&shared));
        let begun = Instant::now();
        hang_up(&peer);
        assert_eq!(waiting.join().unwrap(), WatchEvent::Disconnected);
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        let waiting = scope.spawn(|| watching.next().1.1);
        peer = fake.accept();
        peer.welcome();
        assert_eq!(waiting.join().unwrap(), WatchEvent::Reconnected { connection: 2 });
        let set_watches = peer.request();
        assert_eq!(set_watches.op, server::SET_WATCHES);
        wait_until(LONG, || is_offered(&shared));
        let waiting = scope.spawn(|| watching.next());
        wait_until(LONG, || is_asleep(&shared));
        peer.answer(&set_watches);
        delete(&mut peer, "/a");
        let (thread, told) = waiting.join().unwrap();
        assert_eq!(told, (thread, deleted(2)));
    });
}

#[test]
fn a_sleep_outlasts_connections_however_they_end() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let watching = Watching::set(&client, &mut peer, "/a");
    let sleeper = Sleeper::new(&client);
    for number in 2..14 {
        let begun = Instant::now();
        match number % 4 {
            0 => hang_up(&peer),
            // Nobody has asked for this.
            1 => peer.send(&server::reply(99, 7, 0, b"")),
            2 => {
                assert!(shared.state.lock().machine.write_failed(number - 1));
                shared.state.lock().hang_up();
            }
            _ => drop(std::mem::replace(&mut peer.stream, std::net::TcpStream::connect(fake.address()).unwrap())),
        }
        assert_eq!(client.event(), SessionEvent::Disconnected);
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        if number % 4 == 3 {
            // The one that stood in for a moment.
            drop(fake.accept());
        }
        peer = fake.accept();
        peer.welcome();
        assert_eq!(client.event(), SessionEvent::Connected { connection: number, read_only: false });
        let set_watches = peer.request();
        peer.answer(&set_watches);
        assert!(is_asleep(&shared));
    }
    delete(&mut peer, "/a");
    let told = std::iter::from_fn(|| Some(watching.recv(Stop::at(Instant::now() + LONG)).unwrap()));
    let event = told.into_iter().find(|(_, event)| matches!(event, WatchEvent::Node { .. })).unwrap();
    assert_eq!(event, (sleeper.thread.thread().id(), deleted(13)));
    sleeper.wake();
}

#[test]
fn what_a_waiter_leaves_whose_thread_does_not_run_the_sessions_thread_reads() {
    const TIMEOUT: Duration = Duration::from_millis(900);
    let fake = Fake::new();
    let (shared, client, mut peer) = opened_for(&fake, TIMEOUT);
    let watching = Watching::set(&client, &mut peer, "/a");
    // In the place, but its thread is stopped, or gets no time from the system.
    let stopped = shared.sleeper().unwrap();
    delete(&mut peer, "/a");
    // The connection does not count as dead, as the server answers.
    for _ in 0..6 {
        let heartbeat = peer.request();
        assert_eq!(heartbeat.path(), "/");
        peer.answer(&heartbeat);
    }
    assert_eq!(watching.recv(Stop::at(Instant::now() + LONG)).unwrap().1, deleted(1));
    assert_eq!(client.session.connection(), 1);
    assert!(client.events.is_empty());
    // Its end is noticed, too.
    hang_up(&peer);
    assert_eq!(client.events.recv_timeout(2 * READ_PATIENCE).unwrap(), SessionEvent::Disconnected);
    drop(stopped);
}

#[test]
fn a_second_waiter_is_woken_by_the_one_that_reads_which_sleeps_on() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let [first, second] = ["/a", "/b"].map(|path| Watching::set(&client, &mut peer, path));
    thread::scope(|scope| {
        let reading = scope.spawn(|| first.next());
        wait_until(LONG, || is_asleep(&shared));
        let waiting = scope.spawn(|| second.next());
        thread::sleep(MOMENT);
        delete(&mut peer, "/b");
        assert_eq!(waiting.join().unwrap().1, (reading.thread().id(), deleted(1)));
        assert!(is_asleep(&shared));
        delete(&mut peer, "/a");
        let (thread, told) = reading.join().unwrap();
        assert_eq!(told, (thread, deleted(1)));
    });
}

#[test]
fn a_ring_right_after_the_look_ends_the_sleep_that_follows() {
    let fake = Fake::new();
    let (_, client, _peer) = opened(&fake);
    for nth in 1..4 {
        let (bell, looks) = (Bell::default(), AtomicUsize::new(0));
        let begun = Instant::now();
        client.session.sleep_until(&bell, Some(Instant::now() + LONG), &|| {
            let look = 1 + looks.fetch_add(1, Ordering::SeqCst);
            // It comes to pass as soon as this look has seen that it has not.
            if look <= nth {
                bell.ring();
            }
            look > nth
        });
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        assert_eq!(looks.into_inner(), nth + 1);
    }
}

#[test]
fn a_ring_leaves_the_right_to_read_where_it_is() {
    let fake = Fake::new();
    let (shared, client, _peer) = opened(&fake);
    let sleeper = Sleeper::new(&client);
    let number = shared.reading.lock().number;
    for looks in 2..20 {
        sleeper.bell.ring();
        wait_until(LONG, || sleeper.looks() == looks);
    }
    // The session's thread has it once in a while.
    assert!(shared.reading.lock().number < number + 10);
    sleeper.wake();
}

#[test]
fn no_ring_is_lost_whenever_it_comes() {
    const ROUNDS: usize = 20_000;
    let fake = Fake::new();
    let (client, _peer) = Client::connected(&fake);
    let (sender, receiver) = wakes();
    let received = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                for _ in 0..fastrand::u32(0..2_000) {
                    std::hint::spin_loop();
                }
                sender.send(round);
                while received.load(Ordering::SeqCst) != round {
                    thread::yield_now();
                }
            }
        });
        for round in 1..=ROUNDS {
            assert_eq!(receiver.recv(&client.session, Stop::at(Instant::now() + LONG)), Ok(round));
            received.store(round, Ordering::SeqCst);
        }
    });
}

#[test]
fn a_sleep_ends_when_nobody_is_left_to_send() {
    let fake = Fake::new();
    let (shared, client, _peer) = opened(&fake);
    let (sender, receiver) = wakes::<()>();
    let other = sender.clone();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| receiver.recv(&client.session, Stop::default()));
        wait_until(LONG, || is_asleep(&shared));
        drop(sender);
        thread::sleep(MOMENT);
        assert!(!waiting.is_finished());
        drop(other);
        assert_eq!(waiting.join().unwrap(), Err(WaitEnd::Deadline));
    });
}

#[test]
fn a_callback_that_panics_while_a_sleeper_reads_ends_the_session_and_not_the_waiter() {
    let fake = Fake::new();
    let (shared, client, mut peer) = opened(&fake);
    let watching = Watching::set(&client, &mut peer, "/a");
    let on_reply = Box::new(|_| panic!("on purpose"));
    client.session.submit(vec![Submission { request: sync("/b"), watcher: None, on_reply }]);
    let request = peer.request();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watching.next());
        wait_until(LONG, || is_asleep(&shared));
        peer.answer(&request);
        let (thread, told) = waiting.join().unwrap();
        assert_eq!(told, (thread, WatchEvent::Ended));
    });
    assert_eq!(client.event(), SessionEvent::Expired);
    client.wait_until_finished(PROMPT);
    peer.wait_for_the_end();
}

/// Connections that can be read, but whose arrivals the system does not tell of.
struct Untold;

impl Transport for Untold {
    fn connect(&self, host: &str, address: std::net::SocketAddr, limit: Duration) -> io::Result<Connection> {
        let file = OwnedFd::from(File::open("/proc/self/stat")?);
        Ok(Connection { stream: Some(Arc::new(file.into())), ..Tcp.connect(host, address, limit)? })
    }
}

#[test]
fn where_the_system_does_not_tell_of_arrivals_the_sessions_thread_reads_alone() {
    let fake = Fake::new();
    let (sender, events) = unbounded();
    let observer: SessionObserver = Arc::new(move |event| sender.send(event).unwrap_or_default());
    let client = Client { session: open_over(Arc::new(Untold), &fake.config(), observer).unwrap(), events };
    let mut peer = fake.accept();
    peer.welcome();
    assert!(matches!(client.event(), SessionEvent::Connected { connection: 1, .. }));
    let watching = Watching::set(&client, &mut peer, "/a");
    // There is no use for a thread that wants to sleep.
    client.session.sleep_until(&Bell::default(), None, &|| false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watching.next());
        thread::sleep(MOMENT);
        delete(&mut peer, "/a");
        let (thread, told) = waiting.join().unwrap();
        assert_eq!(told.1, deleted(1));
        assert_ne!(told.0, thread);
    });
    assert_eq!(client.session.connection(), 1);
}

#[test]
fn waiters_whose_connections_are_cut_at_random_miss_nothing() {
    const WAITERS: usize = 4;
    const CALLERS: usize = 2;
    const CONNECTIONS: usize = 10;
    let fake = Fake::new();
    let (client, first) = Client::connected(&fake);
    let (is_over, told) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let (session, is_over, told) = (&client.session, &is_over, &told);
        let mut threads: Vec<_> = (0..WAITERS)
            .map(|waiter| {
                scope.spawn(move || {
                    for round in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        told.fetch_add(
                            usize::from(one_wait(session, &format!("/{waiter}/{round}"))),
                            Ordering::Relaxed,
                        );
                    }
                })
            })
            .collect();
        threads.extend((0..CALLERS).map(|_| {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    wait(session, "/");
                }
            })
        }));
        let mut peer = first;
        for connection in 0..CONNECTIONS {
            serve(peer, 200 + 30 * connection, |number| number % 3 == 0);
            peer = fake.accept();
            peer.welcome();
        }
        // The last one reports everything, so that the waiters see that it is over.
        let over = scope.spawn(move || {
            let limit = Instant::now() + LONG;
            while told.load(Ordering::Relaxed) < 10 * CONNECTIONS && Instant::now() < limit {
                thread::sleep(Duration::from_millis(1));
            }
            is_over.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            session.close(Instant::now() + LONG);
        });
        serve(peer, usize::MAX, |_| true);
        over.join().unwrap();
    });
    assert!(told.into_inner() >= 10 * CONNECTIONS);
}

/// Watches, and waits for the event as a lock does. `true`: it came.
fn one_wait(session: &Arc<dyn Session>, path: &str) -> bool {
    let Some(watching) = Watching::ask(session, path) else { return false };
    loop {
        match watching.next().1.1 {
            WatchEvent::Node { .. } => return true,
            WatchEvent::Disconnected => {}
            WatchEvent::Reconnected { .. } => return false,
            WatchEvent::Ended => panic!("the session has ended"),
        }
    }
}

/// Answers so many requests, reports the end of a watched znode now and then, and hangs up.
fn serve(mut peer: Peer, requests: usize, reports: impl Fn(usize) -> bool) {
    let mut watched = Vec::new();
    for number in 0..requests {
        let Some(request) = peer.next_request() else { return };
        peer.answer(&request);
        if request.op == server::GET_DATA {
            watched.push(request.path());
        }
        if reports(number)
            && let Some(path) = watched.pop()
        {
            delete(&mut peer, &path);
        }
    }
    // Or by the drop, which resets the connection if something is still to be read.
    if requests.is_multiple_of(4) {
        hang_up(&peer);
    }
}
