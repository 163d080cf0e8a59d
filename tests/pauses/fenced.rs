//! Holders that write without looking at their lock, in processes that are stopped: with a self-fence none of them writes
//! after the next holder's grant.
//!
//! `PAUSES` is the number of holders over all kinds, half as many of them without a fence; `FAULTS` the number of healthy holders of the
//! other test, and `HEALTHY` the seconds for which they hold (with `LONGEST_RUN` above them, where they are more than 900):
//!
//! ```text
//! PAUSES=1000 cargo test --all-features --test pauses -- --nocapture fenced
//! ```

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use curator_locks::{
    AcquireOptions, Caching, CuratorFramework, Error, Hold, HoldState, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, InterProcessUnfairMutex,
    LeaderLatch, LeaderSelector, Leadership, RetryForever, testing::TestingServer,
};

use crate::support::{
    builder_at,
    child::{ChildProcess, listen, say},
    connect, eventually,
    lanes::{self, SESSION, TICK},
};

const MARGIN: Duration = Duration::from_millis(200);
const MS: Duration = Duration::from_millis(1);
/// For those whose session a busy machine must not keep from being proved.
const LONG: Duration = Duration::from_secs(10);
/// A watched holder tells when it has less left than so many twentieths of that.
const MARGINS: u32 = 7;

/// Nine kinds of holds, and how the next holder gets it.
const KINDS: [&str; 9] =
    ["mutex", "read", "write", "lease", "unfair", "multi", "cached_mutex", "cached_read", "leader"];

fn client_of(address: &str, session: Duration) -> CuratorFramework {
    let retry = RetryForever::new(Duration::from_millis(20));
    connect(builder_at(address, "fenced").session_timeout(session).retry_policy(retry))
}

/// Takes the lock, and works with its hold.
fn hold(kind: &str, client: &CuratorFramework, path: &str, options: &AcquireOptions, work: &dyn Fn(&[Hold])) {
    let read_write = || InterProcessReadWriteLock::new(client, path).unwrap();
    // The second hold of a cached lock is granted without the servers.
    macro_rules! with {
        ($lock:expr, $holds:expr) => {{
            let lock = $lock;
            // On a machine that is busy no heartbeat may come through in time.
            while kind.starts_with("cached") && lock.lock().and_then(|held| held.release()).is_err() {}
            let held = loop {
                match lock.lock_with(options) {
                    Err(Error::Uncertain { .. }) => {}
                    locked => break locked.unwrap().unwrap(),
                }
            };
            #[allow(clippy::redundant_closure_call, reason = "how each shows its holds")]
            work(&$holds(&held));
            held.release().unwrap();
        }};
    }
    match kind {
        "mutex" => with!(InterProcessMutex::new(client, path).unwrap(), |held: &Hold| vec![held.clone()]),
        "cached_mutex" => {
            let mutex = InterProcessMutex::new(client, path).unwrap().with_caching(Caching::new());
            with!(mutex, |held: &Hold| vec![held.clone()]);
        }
        "read" => with!(read_write().read_lock().clone(), |held: &Hold| vec![held.clone()]),
        "write" => with!(read_write().write_lock().clone(), |held: &Hold| vec![held.clone()]),
        "cached_read" => {
            let cached = read_write().with_caching(Caching::new());
            with!(cached.read_lock().clone(), |held: &Hold| vec![held.clone()]);
        }
        "unfair" => with!(InterProcessUnfairMutex::new(client, path).unwrap(), |held: &Hold| vec![held.clone()]),
        "multi" => {
            let both = InterProcessMultiLock::new(client, [format!("{path}/a"), format!("{path}/b")]).unwrap();
            with!(both, |held: &curator_locks::MultiLockGuard| held.holds().to_vec());
        }
        "lease" => {
            let semaphore = InterProcessSemaphoreV2::new(client, path, 1).unwrap();
            let leases = semaphore.acquire_with(1, options).unwrap().unwrap();
            work(&[(*leases[0]).clone()]);
            semaphore.return_all(leases).unwrap();
        }
        _ => panic!("no kind {kind}"),
    }
}

/// A leader has no options: its term is fenced when it begins.
fn lead(client: &CuratorFramework, path: &str, margin: Option<Duration>, work: &(dyn Fn(&[Hold]) + Sync)) {
    loop {
        let latch = LeaderLatch::new(client, path).unwrap();
        latch.start().unwrap();
        latch.await_leadership().unwrap();
        let term = latch.leadership().unwrap();
        match margin.map(|margin| term.self_fence(margin)).transpose() {
            // As above, and the term may be over by then.
            Err(Error::Uncertain { .. } | Error::LockLost { .. }) => latch.close().unwrap(),
            fence => {
                let _fence = fence.unwrap();
                work(&[term.hold().clone()]);
                return latch.close().unwrap();
            }
        }
    }
}

/// Fences come and go in many threads, of two clients, and some are dropped by a thread that has not armed them.
fn storms(clients: &[CuratorFramework; 2], path: &str, time: Duration) {
    let (sender, fences) = std::sync::mpsc::sync_channel::<curator_locks::SelfFence>(4);
    let until = Instant::now() + time;
    thread::scope(|scope| {
        scope.spawn(move || fences.into_iter().for_each(drop));
        for number in 0..6 {
            let (client, sender, path) = (&clients[number % 2], sender.clone(), format!("{path}/{number}"));
            scope.spawn(move || {
                let fenced = AcquireOptions::new().self_fence(MARGIN);
                let mutex = InterProcessMutex::new(client, &path).unwrap();
                let mutex = if number < 3 { mutex } else { mutex.with_caching(Caching::new()) };
                let of_any = InterProcessSemaphoreMutex::new(client, &format!("{path}-any")).unwrap();
                let both = InterProcessMultiLock::new(client, [format!("{path}-a"), format!("{path}-b")]).unwrap();
                while Instant::now() < until {
                    let outer = mutex.lock_with(&fenced).unwrap().unwrap();
                    let inner = mutex.lock_with(&fenced).unwrap().unwrap();
                    sender.send(outer.self_fence(MARGIN * 2).unwrap()).unwrap();
                    let aborts = outer.self_fence(MARGIN).unwrap().aborting().unwrap();
                    drop((inner, aborts));
                    outer.release().unwrap();
                    assert!(of_any.acquire_with(&fenced).unwrap());
                    of_any.release().unwrap();
                    let both = both.lock_with(&fenced).unwrap().unwrap();
                    sender.send(both.self_fence(MARGIN).unwrap()).unwrap();
                    if fastrand::u8(..) < 16 {
                        thread::sleep(MS * fastrand::u32(0..200));
                    }
                    both.release().unwrap();
                }
            });
        }
        drop(sender);
    });
}

pub fn child(arguments: &[String]) {
    let [kind, address, path, file, session, margin] = arguments else { panic!("{arguments:?}") };
    let session = Duration::from_millis(session.parse().unwrap());
    let margin = margin.parse().ok().map(Duration::from_millis);
    let client = client_of(address, session);
    let options = margin.map_or_else(AcquireOptions::new, |margin| AcquireOptions::new().self_fence(margin));
    let work = |holds: &[Hold]| {
        say("holds");
        match file.as_str() {
            "" => waits(&client, holds),
            file => writes(Path::new(file)),
        }
    };
    match kind.as_str() {
        "leader" => lead(&client, path, margin, &work),
        "storm" => {
            storms(&[client.clone(), client_of(address, session * 2)], path, LONG);
            say("holds");
        }
        "dropped" => {
            let mutex = InterProcessMutex::new(&client, path).unwrap().with_caching(Caching::new());
            assert!(mutex.acquire_with(&options).unwrap());
            drop(mutex);
            work(&[]);
        }
        "selector" => leads_as_selector(&client, path, margin),
        kind => hold(kind, &client, path, &options, &work),
    }
    say("released");
    listen();
}

/// Writes and writes, and looks at nothing.
fn writes(file: &Path) {
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    loop {
        file.write_all(b".").unwrap();
        thread::sleep(MS / 4);
    }
}

/// Does with its hold what it is told to, until it is told to release it.
fn waits(client: &CuratorFramework, holds: &[Hold]) {
    let mut fence = None;
    loop {
        match listen().as_str() {
            "release" => return,
            "fence" => fence = Some(holds[0].self_fence(MARGIN).unwrap()),
            "abort" => fence = fence.map(|fence| curator_locks::SelfFence::aborting(fence).unwrap()),
            "unfence" => fence = None,
            "forget" => std::mem::forget(fence.take()),
            "watch" => (1..=MARGINS).for_each(|twentieths| {
                holds[0].on_deadline(LONG * twentieths / 20, move |_| say(&twentieths.to_string()));
            }),
            "refused" => {
                let Err(Error::Io { source, .. }) = holds[0].self_fence(MARGIN) else { panic!("it is fenced") };
                assert_eq!(source.kind(), io::ErrorKind::Unsupported, "{source}");
            }
            "close" => client.close(),
            "close late" => {
                let fence = holds[0].self_fence(LONG / 3).unwrap();
                eventually("the end is near", || {
                    holds[0].valid_until().saturating_duration_since(Instant::now()) < LONG / 3 + MS * 120
                });
                client.close();
                std::mem::forget(fence);
            }
            "spin" => loop {
                std::hint::spin_loop();
            },
            "lost" => _ = eventually("it hears of the loss", || holds[0].is_lost()),
            other => panic!("{other}"),
        }
        say("done");
    }
}

fn leads_as_selector(client: &CuratorFramework, path: &str, margin: Option<Duration>) {
    let take = move |_: &CuratorFramework, term: &Leadership| {
        let _fence = margin.map(|margin| term.self_fence(margin).unwrap());
        say("holds");
        // Its end is told, and acknowledged by the return.
        while !term.sleep(MS * 10) {}
        Ok(())
    };
    let selector = LeaderSelector::new(client, path, take).unwrap();
    selector.auto_requeue();
    selector.start().unwrap();
    say("started");
    listen();
    selector.close().unwrap();
}

/// The outcome of one holder.
#[derive(Debug, Clone, Copy, Default)]
struct Came {
    holders: usize,
    /// Those that another one followed while their process stood still, or that were ended.
    followed: usize,
    /// Writes after the next holder's grant, and the holders that wrote so.
    late: u64,
    guilty: usize,
    /// Processes that a fence has ended.
    ended: usize,
}

impl Came {
    fn and(self, other: Came) -> Came {
        Came {
            holders: self.holders + other.holders,
            followed: self.followed + other.followed,
            late: self.late + other.late,
            guilty: self.guilty + other.guilty,
            ended: self.ended + other.ended,
        }
    }
}

/// A lock of its own for each.
fn a_path(kind: &str) -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    format!("/{kind}-{}", NUMBER.fetch_add(1, SeqCst))
}

fn start(
    kind: &str,
    server: &TestingServer,
    path: &str,
    file: &str,
    session: Duration,
    margin: Option<Duration>,
) -> ChildProcess {
    let millis = |time: Duration| time.as_millis().to_string();
    let margin = margin.map_or_else(|| "none".to_owned(), millis);
    ChildProcess::start("fenced", &[kind, &server.connect_string(), path, file, &millis(session), &margin])
}

/// One holder, which is stopped at a random moment for up to three session timeouts, and the next one.
fn try_one(kind: &'static str, server: &TestingServer, rival: &CuratorFramework, margin: Option<Duration>) -> Came {
    let path = a_path(kind);
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join("written");
    let under_way = |_| {
        let mut holder = start(kind, server, &path, file.to_str().unwrap(), SESSION, margin);
        let said = holder.rest().next();
        if let Some(said) = said {
            assert_eq!(said, "holds");
            return Some(holder);
        }
        // A machine that keeps it from running for as long as its session lasts has its fence end it. Without one its acquire fails.
        let status = await_end(&mut holder).unwrap();
        assert_eq!(status.signal(), margin.map(|_| nix::libc::SIGKILL), "{status}");
        None
    };
    let mut holder = (0..10).find_map(under_way).unwrap();
    eventually("it writes", || file.exists());
    let written = || fs::metadata(&file).unwrap().len();
    let next = thread::spawn({
        let (rival, path, file) = (rival.clone(), path.clone(), file.clone());
        let next = if kind.ends_with("read") { "write" } else { kind.trim_start_matches("cached_") };
        move || {
            let at_grant = AtomicU64::new(0);
            let note = |_: &[Hold]| at_grant.store(fs::metadata(&file).unwrap().len(), SeqCst);
            match next {
                "leader" => lead(&rival, &path, None, &note),
                next => hold(next, &rival, &path, &AcquireOptions::new(), &note),
            }
            at_grant.into_inner()
        }
    });
    thread::sleep(SESSION.mul_f64(fastrand::f64()));
    holder.pause();
    thread::sleep(SESSION.mul_f64(3.0 * fastrand::f64()));
    holder.resume();
    // The lines that it writes as it goes on.
    thread::sleep(MS * 50);
    let (after, status) = (written(), holder.status());
    let followed = next.is_finished();
    holder.kill();
    let at_grant = next.join().unwrap();
    let late = if followed { written().max(after).saturating_sub(at_grant) } else { 0 };
    Came {
        holders: 1,
        followed: usize::from(followed),
        late,
        guilty: usize::from(late > 0),
        ended: usize::from(status.and_then(|status| status.signal()) == Some(nix::libc::SIGKILL)),
    }
}

fn told(child: &mut ChildProcess, what: &str) {
    child.tell(what);
    assert_eq!(child.hear(), "done", "{what}");
}

fn await_end(child: &mut ChildProcess) -> Option<ExitStatus> {
    let mut status = None;
    eventually("it has ended", || {
        status = child.status();
        status.is_some()
    });
    status
}

fn await_signal(child: &mut ChildProcess, signal: i32) {
    let status = await_end(child);
    assert_eq!(status.and_then(|status| status.signal()), Some(signal));
}

fn held(kind: &str, server: &TestingServer, session: Duration, margin: Option<Duration>) -> (ChildProcess, String) {
    let path = a_path(kind);
    let child = start(kind, server, &path, "", session, margin);
    assert_eq!(child.hear(), "holds");
    (child, path)
}

fn server() -> TestingServer {
    TestingServer::builder().tick_time(TICK).start().unwrap()
}

#[test]
fn a_fence_that_cannot_be_had_says_why() {
    let server = server();
    let client = client_of(&server.connect_string(), LONG);
    let mutex = InterProcessMutex::new(&client, "/why").unwrap();
    let held = mutex.lock().unwrap();
    let large = held.self_fence(client.session_timeout());
    assert!(matches!(large, Err(Error::InvalidArgument { name: "margin", .. })), "{large:?}");
    let hold = (*held).clone();
    client.delete().for_path(held.path()).unwrap();
    eventually("it is lost", || hold.is_lost());
    assert!(matches!(hold.self_fence(MARGIN), Err(Error::LockLost { .. })));
    drop(held);
    let held = mutex.lock().unwrap();
    let hold = (*held).clone();
    held.release().unwrap();
    assert!(matches!(hold.self_fence(MARGIN), Err(Error::NotOwner { .. })));
    assert_eq!(hold.state(), HoldState::Released);
    // An acquire whose fence cannot be had holds nothing.
    let refused = mutex.acquire_with(&AcquireOptions::new().self_fence(client.session_timeout()));
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })) && !mutex.is_acquired_in_this_process());
}

/// It is immune from its own signals, and would believe in a fence that is none.
#[test]
fn the_first_process_of_a_container_cannot_be_fenced() {
    let server = server();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--pid", "--fork", "--kill-child"]).arg(env::current_exe().unwrap());
    let arguments = ["mutex", &server.connect_string(), "/first", "", "10000", "none"];
    let mut first = ChildProcess::start_by(command, "fenced", &arguments);
    assert_eq!(first.hear(), "holds");
    first.tell("refused");
    assert_eq!(first.hear(), "done");
}

mod slow {
    use super::*;

    #[test]
    fn no_fenced_holder_writes_after_the_next_ones_grant() {
        let begin = Instant::now();
        let holders = lanes::tries("PAUSES", 54);
        let server = server();
        let address = server.connect_string();
        let kinds: Vec<(&'static str, Option<Duration>)> = KINDS
            .iter()
            .filter(|kind| lanes::is_chosen(kind))
            .flat_map(|kind| [(*kind, Some(MARGIN)), (*kind, None)])
            .collect();
        let tries = (holders / kinds.len()).max(1);
        let came = lanes::run(&kinds, tries, 4, |(kind, margin), _, is_another| {
            let rival = client_of(&address, SESSION);
            let mut came = Came::default();
            while is_another() {
                came = came.and(try_one(kind, &server, &rival, *margin));
            }
            came
        });
        let mut sums = [Came::default(); 2];
        println!(
            "\n| kind | fence | holders | followed | ended | wrote late | late writes |\n|---|---|---|---|---|---|---|"
        );
        for ((kind, margin), lanes) in kinds.iter().zip(came) {
            let came = lanes.into_iter().fold(Came::default(), Came::and);
            let Came { holders, followed, late, guilty, ended } = came;
            println!("| {kind} | {} | {holders} | {followed} | {ended} | {guilty} | {late} |", margin.is_some());
            let sum = &mut sums[usize::from(margin.is_none())];
            *sum = sum.and(came);
        }
        println!("with {:?}, without {:?}, {:?}", sums[0], sums[1], begin.elapsed());
        assert_eq!((sums[0].late, sums[0].guilty), (0, 0), "{sums:?}");
        assert!(sums[0].ended > 0 && sums[0].followed > 0, "{sums:?}");
        assert!(sums[1].guilty * 5 > sums[1].holders && sums[1].ended == 0, "a control that cannot fail: {sums:?}");
    }

    #[test]
    fn a_healthy_session_is_not_ended() {
        let begin = Instant::now();
        let (count, seconds) = (lanes::tries("FAULTS", 9), lanes::tries("HEALTHY", 15));
        let server = server();
        let mut holders: Vec<_> =
            (0..count).map(|number| held(KINDS[number % KINDS.len()], &server, LONG, Some(LONG / 10)).0).collect();
        let mut watched: Vec<_> =
            (0..count).map(|number| held(KINDS[number % KINDS.len()], &server, LONG, None).0).collect();
        watched.iter_mut().for_each(|child| told(child, "watch"));
        thread::sleep(Duration::from_secs(seconds.try_into().unwrap()));
        let ended = holders.iter_mut().filter_map(ChildProcess::status).count();
        // How near to their end they came, by their own clocks: the machine has kept them from the servers.
        let least =
            |child: &ChildProcess| std::iter::from_fn(|| child.heard()).map(|said| said.parse::<u32>().unwrap()).min();
        let least: Vec<_> = watched.iter().filter_map(least).collect();
        let within = |margin: &u32| least.iter().filter(|least| *least <= margin).count();
        let near = within(&2);
        println!(
            "{count} fenced holders for {seconds} s: {ended} ended; of as many without a fence had at some time less than 1/20, \
             2/20 ... {MARGINS}/20 of the session timeout left: {:?}",
            (1..=MARGINS).map(|margin| within(&margin)).collect::<Vec<_>>()
        );
        for holder in &mut holders {
            if holder.status().is_none() {
                holder.tell("release");
            }
            let said = holder.rest().next();
            let ended = said.is_none().then(|| await_end(holder));
            assert!(said.is_some() || near > 0, "{ended:?} {:?} after {:?}", holder.pid(), begin.elapsed());
        }
        assert!(ended == 0 || near > 0);
    }

    #[test]
    fn a_stopped_and_a_spinning_holder_end_in_time() {
        let server = server();
        let (mut stopped, path) = held("mutex", &server, SESSION, Some(MARGIN));
        let (mut aborts, _) = held("mutex", &server, SESSION, None);
        told(&mut aborts, "fence");
        told(&mut aborts, "abort");
        let client = client_of(&server.connect_string(), LONG);
        let znode = || client.get_children().for_path(&path).unwrap().len();
        stopped.pause();
        aborts.pause();
        await_signal(&mut stopped, nix::libc::SIGKILL);
        assert_eq!(znode(), 1, "before the servers let another one in");
        // That signal waits for a stopped process to go on.
        assert!(aborts.status().is_none());
        eventually("its time is up", || znode() == 0);
        aborts.resume();
        await_signal(&mut aborts, nix::libc::SIGABRT);
        let (mut spins, _) = held("lease", &server, SESSION, Some(MARGIN));
        spins.tell("spin");
        server.pause().unwrap();
        await_signal(&mut spins, nix::libc::SIGKILL);
        server.resume().unwrap();
    }

    #[test]
    fn a_release_and_a_drop_take_the_fence_away() {
        let server = server();
        let mut kept: Vec<_> = KINDS.iter().map(|kind| held(kind, &server, LONG, Some(MARGIN)).0).collect();
        for child in &mut kept {
            child.tell("release");
            assert_eq!(child.hear(), "released");
        }
        let (mut dropped, _) = held("mutex", &server, LONG, None);
        told(&mut dropped, "fence");
        told(&mut dropped, "unfence");
        kept.push(dropped);
        // The timer stays for a moment.
        thread::sleep(MS * 200);
        kept.iter().for_each(ChildProcess::pause);
        thread::sleep(LONG * 3 / 2);
        kept.iter().for_each(ChildProcess::resume);
        thread::sleep(MS * 100);
        assert!(kept.iter_mut().all(|child| child.status().is_none()));
    }

    #[test]
    fn fences_that_come_and_go_in_many_threads_end_nobody() {
        let server = server();
        let (mut storm, _) = held("storm", &server, LONG, None);
        assert_eq!(storm.hear(), "released");
        thread::sleep(MS * 200);
        storm.pause();
        thread::sleep(LONG * 5 / 2);
        storm.resume();
        thread::sleep(MS * 100);
        assert!(storm.status().is_none());
    }

    #[test]
    fn a_loss_has_to_be_acknowledged_in_time() {
        let server = server();
        let client = client_of(&server.connect_string(), LONG);
        let lose = |path: &str| {
            let name = client.get_children().for_path(path).unwrap().remove(0);
            client.delete().for_path(&format!("{path}/{name}")).unwrap();
        };
        let (mut ignores, its_path) = held("mutex", &server, LONG, None);
        told(&mut ignores, "fence");
        lose(&its_path);
        told(&mut ignores, "lost");
        await_signal(&mut ignores, nix::libc::SIGKILL);
        let (mut acknowledges, its_path) = held("mutex", &server, LONG, None);
        told(&mut acknowledges, "fence");
        lose(&its_path);
        told(&mut acknowledges, "lost");
        told(&mut acknowledges, "unfence");
        let [mut ignored, mut closed] = [(), ()].map(|()| {
            let (mut leads, its_path) = held("leader", &server, LONG, None);
            told(&mut leads, "fence");
            told(&mut leads, "forget");
            lose(&its_path);
            told(&mut leads, "lost");
            leads
        });
        closed.tell("release");
        assert_eq!(closed.hear(), "released");
        await_signal(&mut ignored, nix::libc::SIGKILL);
        let selector = start("selector", &server, "/selector", "", LONG, Some(MARGIN));
        // Its listener may begin first.
        let said = [selector.hear(), selector.hear()];
        assert!(said.contains(&"holds".to_owned()), "{said:?}");
        let name = client.get_children().for_path("/selector").unwrap().remove(0);
        client.delete().for_path(&format!("/selector/{name}")).unwrap();
        assert_eq!(selector.hear(), "holds", "it leads again");
        thread::sleep(LONG * 3 / 2);
        let mut alive = [acknowledges, closed, selector];
        assert!(alive.iter_mut().all(|child| child.status().is_none()));
    }

    #[test]
    fn a_hold_whose_lock_object_is_gone_stays_fenced() {
        let server = server();
        let mut kept: Vec<_> = (0..2).map(|_| held("dropped", &server, SESSION, Some(MARGIN)).0).collect();
        let mut closed = kept.remove(0);
        told(&mut closed, "close");
        // The timer stays for a moment.
        thread::sleep(MS * 200);
        kept[0].pause();
        closed.pause();
        await_signal(&mut kept[0], nix::libc::SIGKILL);
        thread::sleep(SESSION);
        closed.resume();
        thread::sleep(MS * 100);
        assert!(closed.status().is_none());
    }

    #[test]
    fn closing_the_client_takes_the_fences_of_its_holds_away() {
        let server = server();
        let client = client_of(&server.connect_string(), LONG);
        let (mut lost, path) = held("mutex", &server, LONG, Some(MARGIN));
        let name = client.get_children().for_path(&path).unwrap().remove(0);
        client.delete().for_path(&format!("{path}/{name}")).unwrap();
        told(&mut lost, "lost");
        told(&mut lost, "close");
        let mut late: Vec<_> = (0..4).map(|_| held("mutex", &server, LONG, None).0).collect();
        server.pause().unwrap();
        late.iter_mut().for_each(|child| child.tell("close late"));
        thread::sleep(LONG * 3 / 2);
        server.resume().unwrap();
        assert!(late.iter_mut().all(|child| child.status().is_none()), "closed shortly before the end");
        assert!(lost.status().is_none(), "lost, and closed then");
    }
}
