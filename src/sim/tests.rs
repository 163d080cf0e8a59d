//! The simulator itself: what it runs, and that it does so again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;

use super::{
    network::faults::{Cut, Death, Links, Lost, NameService, RequestFault, Way},
    process::Process,
    world::{Report, World, WorldConfig},
};
use crate::{
    InterProcessMutex, LeaderLatch, LeaderLatchListener, Leadership,
    base::{
        clock,
        sim::{run::Outcome, thread::sleep},
        sync::Mutex,
    },
    proto::op,
};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// The session timeout.
const T: Duration = Duration::from_secs(3);
const PATH: &str = "/locks/one";

/// Who holds, and until when they say so: in true time.
#[derive(Default)]
struct Holds {
    claims: Mutex<Vec<(String, Duration, Duration)>>,
    grants: AtomicU64,
}

impl Holds {
    /// Adds a claim that begins now; another one must not stand.
    fn claim(&self, world: &World, process: &Process, until: Duration) {
        let mut claims = self.claims.lock();
        let now = world.now();
        if until <= now {
            // The process was kept from running since its look.
            return;
        }
        claims.retain(|(_, _, other)| *other > now);
        for (name, since, other) in claims.iter() {
            world.fail(format!(
                "at {now:?} {} holds until {until:?}, and {name} since {since:?} until {other:?}",
                process.name()
            ));
        }
        claims.push((process.name().to_owned(), now, until));
        self.grants.fetch_add(1, Relaxed);
    }

    fn stands(&self, world: &World, process: &Process) -> bool {
        self.claims.lock().iter().any(|(name, _, until)| name == process.name() && *until > world.now())
    }

    fn release(&self, process: &Process) {
        self.claims.lock().retain(|(name, ..)| name != process.name());
    }
}

/// Takes and releases a lock, whatever happens.
fn takes_turns(world: &World, process: &Process, holds: &Holds, rounds: usize) {
    let client = process.client(|builder| builder.session_timeout(T));
    let mutex = InterProcessMutex::new(&client, PATH).unwrap();
    for _ in 0..rounds {
        let Ok(Some(held)) = mutex.lock_timeout(Duration::from_secs(fastrand::u64(1..20))) else { continue };
        // What it said before it was asked holds for the moment at which it was asked.
        let until = process.true_time(held.valid_until());
        if held.is_valid() {
            holds.claim(world, process, until);
            sleep(fastrand::u32(1..100) * MILLISECOND);
            holds.release(process);
        }
        let _ = held.release();
    }
    client.close();
}

/// Holds a lock for as long as it is valid, or for some seconds, again and again, whatever sleeps its machine has.
fn holds_on(world: &World, process: &Process, holds: &Holds, is_over: &AtomicBool) {
    let client = process.client(|builder| builder.session_timeout(T));
    let mutex = InterProcessMutex::new(&client, PATH).unwrap();
    while !is_over.load(Relaxed) {
        let Ok(Some(held)) = mutex.lock_timeout(SECOND) else { continue };
        let node = held.path().to_owned();
        for _ in 0..fastrand::u32(1..100) {
            let until = || process.true_time(held.valid_until());
            let (before, was_until) = (world.now(), until());
            if !held.is_valid() || is_over.load(Relaxed) {
                break;
            }
            // It lies in the past once the lock is lost.
            let valid_until = was_until.max(until());
            let stands = world.ensemble(|ensemble, now, _| {
                let tree = ensemble.tree(ensemble.leader().unwrap());
                now >= valid_until || tree.nodes().any(|(path, _)| path == node)
            });
            if before >= valid_until || !stands {
                world.fail(format!("at {before:?} {node} was valid until {valid_until:?}"));
            }
            holds.release(process);
            holds.claim(world, process, valid_until);
            sleep(fastrand::u32(1..200) * MILLISECOND);
        }
        holds.release(process);
        let _ = held.release();
    }
    client.close();
}

/// One fault, from the seed; returns after it was healed.
fn breaks_something(world: &World, processes: &[Process], rng: &mut Rng) {
    let network = world.network();
    let process = &processes[rng.usize(..processes.len())];
    let server = rng.usize(..3);
    let links = [process.links(), Links::to(server), process.links().and_to(server)][rng.usize(..3)];
    let time = rng.u32(1..6000) * MILLISECOND;
    let lost = [Lost::RequestAndCut, Lost::AfterRequestCut, Lost::ReplyAndCut, Lost::ReplyStays, Lost::RequestStays];
    match rng.u8(0..9) {
        0 => network.cut(links, Cut::Fin),
        1 => network.cut(links, Cut::Reset),
        2 => network.black_hole(links, [Way::Both, Way::ToServer, Way::ToClient][rng.usize(..3)]),
        3 => network.delay(links, MILLISECOND..=rng.u32(2..900) * MILLISECOND),
        4 => network.refuse(links),
        5 => network.name_service(if rng.bool() { NameService::Fails } else { NameService::Silent }),
        6 => process.pause(time),
        7 => process.machine_sleeps(time),
        _ => {
            let op = [op::CREATE, op::GET_CHILDREN, op::DELETE, op::SYNC, op::GET_DATA][rng.usize(..5)];
            let lost = lost[rng.usize(..5)];
            network.inject(RequestFault { links, op: Some(op), skip: rng.u64(0..3), times: rng.u64(1..4), lost });
        }
    }
    world.sleep(time);
    network.heal(Links::all());
    network.name_service(NameService::Works);
}

/// Processes that take turns, beside faults.
fn turns(seed: u64, processes: usize, rounds: usize, faults: usize) -> (Report, u64) {
    let holds = Arc::new(Holds::default());
    let counted = holds.clone();
    let report = World::run(seed, WorldConfig::default(), |world| {
        let mut rng = world.rng();
        let processes: Vec<_> = (0..processes).map(|number| world.process(&format!("client {number}"))).collect();
        processes.iter().for_each(|process| process.set_clock_rate(rng.i64(-1000..=1000)));
        let begin = |process: &Process| {
            let (world, process, holds) = (world.clone(), process.clone(), holds.clone());
            process.clone().spawn("worker", move || takes_turns(&world, &process, &holds, rounds))
        };
        let workers: Vec<_> = processes.iter().map(begin).collect();
        for _ in 0..faults {
            world.sleep(rng.u32(1..2000) * MILLISECOND);
            breaks_something(world, &processes, &mut rng);
        }
        for worker in workers {
            worker.join();
        }
        // What was left to the background, or to the servers.
        world.sleep(2 * T + 10 * SECOND);
        let left = world.ensemble(|ensemble, _, _| {
            let leader = ensemble.leader().unwrap();
            let paths = ensemble.tree(leader).nodes().map(|(path, _)| path);
            paths.filter(|path| path.starts_with("/locks/one/")).map(str::to_owned).collect::<Vec<_>>()
        });
        if !left.is_empty() {
            world.fail(format!("left behind: {left:?}"));
        }
    });
    (report, counted.grants.load(Relaxed))
}

#[test]
fn processes_take_turns_in_virtual_time() {
    let (report, grants) = turns(1, 3, 20, 0);
    println!("{report}");
    report.assert_ok();
    assert_eq!(grants, 60);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let begin = clock::now();
    let (mut grants, mut steps, mut switches, mut time) = (0, 0, 0, Duration::ZERO);
    let seeds = std::env::var("SIM_SEEDS").map_or(20, |seeds| seeds.parse().unwrap());
    let first = std::env::var("SIM_FIRST").map_or(0, |first| first.parse().unwrap());
    let mut hashes = Vec::new();
    for seed in first..first + seeds {
        let ((one, count), (other, _)) = (turns(seed, 3, 8, 3), turns(seed, 3, 8, 3));
        assert_eq!(one.hash, other.hash, "{one}\n---\n{other}");
        one.assert_ok();
        grants += 2 * count;
        steps += 2 * one.steps;
        switches += 2 * one.switches;
        time += 2 * one.time;
        hashes.push(one.hash);
    }
    let took = clock::since(begin);
    println!("{seeds} seeds twice: {grants} grants, {steps} steps, {switches} switches, {time:?} in {took:?}");
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len() as u64, seeds, "each seed has a history of its own");
}

/// `SLEEPS=10000` makes it longer.
#[test]
fn no_lock_is_valid_past_its_end_after_a_sleep_of_the_machine() {
    const IN_A_RUN: u64 = 25;
    let sleeps: u64 = std::env::var("SLEEPS").map_or(250, |sleeps| sleeps.parse().unwrap());
    let (mut grants, mut late) = (0, 0);
    for seed in 0..sleeps.div_ceil(IN_A_RUN) {
        let holds = Arc::new(Holds::default());
        let (counted, missed) = (holds.clone(), Arc::new(AtomicU64::new(0)));
        let its_missed = missed.clone();
        let report = World::run(seed, WorldConfig::default(), |world| {
            let mut rng = world.rng();
            let processes = ["laptop", "rival"].map(|name| world.process(name));
            let is_over = Arc::new(AtomicBool::new(false));
            let tasks = processes.each_ref().map(|process| {
                let (world, its, holds, is_over) = (world.clone(), process.clone(), holds.clone(), is_over.clone());
                process.spawn("holder", move || holds_on(&world, &its, &holds, &is_over))
            });
            for _ in 0..IN_A_RUN {
                world.sleep(rng.u32(1..6000) * MILLISECOND);
                let slept = rng.u32(1..9000) * MILLISECOND;
                processes[0].machine_sleeps(slept);
                let held = holds.stands(world, &processes[0]);
                world.sleep(slept);
                // By a clock that stands meanwhile the laptop would believe in its lock all the same.
                its_missed.fetch_add(u64::from(held && holds.stands(world, &processes[1])), Relaxed);
            }
            is_over.store(true, Relaxed);
            for task in tasks {
                task.join();
            }
        });
        report.assert_ok();
        grants += counted.grants.load(Relaxed);
        late += missed.load(Relaxed);
    }
    println!("{sleeps} sleeps, {grants} looks at a valid lock; it was another's in {late} sleeps of its holder");
    assert!(late * 10 > sleeps, "{late} of {sleeps}");
}

#[test]
fn a_reply_that_is_lost_is_lost_once() {
    let report = World::run(5, WorldConfig::default(), |world| {
        let process = world.process("client");
        let client = process.client(|builder| builder.session_timeout(T));
        let lost = Lost::ReplyAndCut;
        let fault = world.network().inject(RequestFault {
            links: process.links(),
            op: Some(op::DELETE),
            skip: 1,
            times: 1,
            lost,
        });
        let worker = process.spawn("worker", move || {
            let mutex = InterProcessMutex::new(&client, PATH).unwrap();
            for _ in 0..4 {
                mutex.acquire().unwrap();
                mutex.release().unwrap();
            }
        });
        worker.join();
        let counts = world.network().counts();
        assert_eq!((fault.hits(), counts.connections, counts.faults["reply lost, cut"]), (1, 2, 1));
    });
    report.assert_ok();
}

/// TCP keeps the order. Otherwise a watch's event would come before the reply that says that there is a watch.
#[test]
fn nothing_overtakes_what_a_black_hole_has_swallowed() {
    for seed in 0..100 {
        let config = WorldConfig { stall: Some(Duration::ZERO), ..WorldConfig::default() };
        let report = World::run(seed, config, move |world| {
            let (holder, waiter) = (world.process("holder"), world.process("waiter"));
            let (network, delay) = (world.network(), T / 20);
            let [holds, waits] =
                [&holder, &waiter].map(|its| its.client(|builder| builder.session_timeout(T).connection_timeout(T)));
            assert!(waits.block_until_connected(Some(100 * SECOND)).unwrap());
            network.delay(waiter.links(), delay..=delay);
            let mutex = InterProcessMutex::new(&holds, PATH).unwrap();
            mutex.acquire().unwrap();
            let worker = waiter.spawn("worker", move || {
                assert!(
                    InterProcessMutex::new(&waits, PATH).unwrap().acquire_timeout(100 * SECOND).unwrap(),
                    "a wake-up"
                );
            });
            // Some reply or other is lost, and the event is on its way when all is well again.
            sleep(delay * (10 + seed as u32 % 50) / 10);
            network.black_hole(waiter.links(), Way::ToClient);
            sleep(delay * 3 / 2);
            mutex.release().unwrap();
            sleep(delay / 2);
            network.heal(waiter.links());
            worker.join();
        });
        report.assert_ok();
    }
}

/// Connecting takes two round trips, which is more than a server's share of the session timeout here.
#[test]
fn a_client_on_a_slow_link_keeps_its_session_over_cuts() {
    let lost = Arc::new(AtomicU64::new(0));
    for seed in 0..20 {
        let (lost, config) = (lost.clone(), WorldConfig { stall: Some(Duration::ZERO), ..WorldConfig::default() });
        let report = World::run(seed, config, move |world| {
            let process = world.process("client");
            world.network().delay(process.links(), T / 10..=T / 10);
            let (its, its_world) = (process.clone(), world.clone());
            let worker = process.spawn("worker", move || {
                let client = its.client(|builder| builder.session_timeout(T));
                assert!(client.block_until_connected(Some(100 * SECOND)).unwrap());
                let session = client.session_id();
                for _ in 0..5 {
                    its_world.network().cut(its.links(), Cut::Fin);
                    sleep(2 * T);
                }
                lost.fetch_add(u64::from(client.session_id() != session), Relaxed);
            });
            worker.join();
        });
        report.assert_ok();
    }
    assert_eq!(lost.load(Relaxed), 0, "sessions of 20");
}

/// Counts how often it was told.
struct Counts(Arc<AtomicU64>);

impl LeaderLatchListener for Counts {
    fn is_leader(&self, _leadership: &Leadership) {
        self.0.fetch_add(1, Relaxed);
    }

    fn not_leader(&self) {}
}

#[test]
fn a_leader_whose_client_is_closed_is_told_of_no_other_term() {
    for seed in 0..100 {
        let config = WorldConfig { stall: Some(Duration::ZERO), ..WorldConfig::default() };
        let report = World::run(seed, config, |world| {
            let process = world.process("client");
            let (its, told) = (process.clone(), Arc::new(AtomicU64::new(0)));
            let worker = process.spawn("worker", move || {
                let client = its.client(|builder| builder.session_timeout(T));
                let latch = LeaderLatch::new(&client, PATH).unwrap();
                latch.add_listener(Counts(told.clone()));
                latch.start().unwrap();
                latch.await_leadership().unwrap();
                client.close();
                sleep(SECOND);
                told.load(Relaxed)
            });
            let told = worker.join().unwrap();
            // None, if the client was closed before the listener's turn.
            assert!(told <= 1, "{told}");
        });
        report.assert_ok();
    }
}

#[test]
fn who_dies_holding_is_followed_once_its_session_is_over() {
    for how in [Death::Reset, Death::Silent] {
        let report = World::run(5, WorldConfig::default(), |world| {
            let (victim, successor) = (world.process("victim"), world.process("successor"));
            let its = victim.clone();
            victim.spawn("worker", move || {
                let client = its.client(|builder| builder.session_timeout(T));
                let mutex = InterProcessMutex::new(&client, PATH).unwrap();
                let _held = mutex.lock().unwrap();
                sleep(1000 * SECOND);
            });
            world.sleep(5 * SECOND);
            victim.kill(how);
            let (died, its, its_world) = (world.now(), successor.clone(), world.clone());
            let waited = successor.spawn("worker", move || {
                let client = its.client(|builder| builder.session_timeout(T));
                InterProcessMutex::new(&client, PATH).unwrap().lock().unwrap().release().unwrap();
                its_world.now() - died
            });
            let waited = waited.join().unwrap();
            assert!(waited > T / 3 && waited < 2 * T, "{how:?}: {waited:?}");
        });
        report.assert_ok();
    }
}

#[test]
fn who_waits_for_ever_is_reported_with_its_place() {
    let config = WorldConfig { longest: 60 * SECOND, ..WorldConfig::default() };
    let report = World::run(5, config, |world| {
        let process = world.process("client");
        let its = process.clone();
        let holder = process.spawn("holder", move || {
            let client = its.client(|builder| builder);
            let mutex = InterProcessMutex::new(&client, PATH).unwrap();
            mutex.acquire().unwrap();
            sleep(1000 * SECOND);
            client
        });
        holder.join();
    });
    let Outcome::OutOfTime(waiting) = &report.outcome else { panic!("{report}") };
    let of = |name: &str| waiting.iter().find(|waiting| waiting.thread == name).unwrap().to_string();
    assert!(of("holder").contains("waits for the end of a sleep at src/sim/tests.rs"), "{report}");
    assert!(of("zk-session").starts_with("client / zk-session waits for bytes from a server"), "{report}");
    assert!(of("curator-client").contains("a message at src/framework/client/background.rs"), "{report}");
}
