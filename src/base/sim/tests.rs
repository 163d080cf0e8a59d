//! The scheduler itself: what it finds, what it reports, and that it leaves nothing behind.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::{
    channel,
    clock::duration,
    me,
    run::{Ended, Limits, Outcome, Run},
    schedule::Schedule,
    select,
    sync::Mutex,
    thread::{current, park, park_timeout, sleep, start, yield_now},
};
use crate::base::clock;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn run(seed: u64, director: impl FnOnce(&Arc<Run>)) -> Ended {
    let limits = Limits { time: 100 * HOUR, steps: 1_000_000 };
    Run::run(seed, Schedule::FromSeed, None, limits, director)
}

/// Runs with one seed after the other, until a run ends so.
fn search(is_wanted: impl Fn(&Outcome) -> bool, director: impl Fn(&Arc<Run>)) -> Option<(u64, Ended)> {
    (0..1000).map(|seed| (seed, run(seed, &director))).find(|(_, ended)| is_wanted(&ended.outcome))
}

#[test]
fn who_sleeps_for_an_hour_takes_no_real_time() {
    let begin = Instant::now();
    let slept = AtomicU64::new(0);
    let ended = run(1, |_| {
        let begin = clock::now();
        sleep(24 * HOUR);
        slept.store(duration(clock::since(begin)), Relaxed);
    });
    assert_eq!(ended.outcome, Outcome::Done);
    assert!(slept.load(Relaxed) >= duration(24 * HOUR) && ended.time < 24 * HOUR + SECOND);
    assert!(begin.elapsed() < 60 * SECOND);
}

#[test]
fn two_locks_taken_crosswise_are_a_deadlock_in_some_schedules_and_in_others_not() {
    let crosswise = |_: &Arc<Run>| {
        let locks = Arc::new((Mutex::new(0), Mutex::new(0)));
        let (other, (done, ended)) = (locks.clone(), channel::bounded::<()>(0));
        // It has nothing to do with it, and never ends.
        start("clock", || {
            loop {
                sleep(SECOND);
            }
        })
        .unwrap();
        start("other", move || {
            let _second = other.1.lock();
            let _first = other.0.lock();
            drop(done);
        })
        .unwrap();
        {
            let _first = locks.0.lock();
            let _second = locks.1.lock();
        }
        let _ = ended.recv();
    };
    let (seed, ended) = search(|outcome| matches!(outcome, Outcome::Deadlock(_)), crosswise).unwrap();
    let Outcome::Deadlock(waiting) = &ended.outcome else { unreachable!() };
    assert_eq!(waiting.len(), 3, "{waiting:?}");
    assert!(waiting[0].what.starts_with("a lock of other at src/base/sim/tests.rs:"), "{waiting:?}");
    assert!(waiting[2].what.starts_with("a lock of the director at src/base/sim/tests.rs:"), "{waiting:?}");
    assert_eq!(ended.leaked, 0, "who waits for a lock at the end gets out");
    assert_eq!(run(seed, crosswise).hash, ended.hash, "the same seed does it again");
    search(|outcome| *outcome == Outcome::Done, crosswise).unwrap();
}

#[test]
fn a_wake_up_that_is_lost_between_look_and_sleep_is_found() {
    // The sleeper looks under the lock, and tells who wakes it only after that.
    let loses = |_: &Arc<Run>| {
        let state = Arc::new((Mutex::new(false), Mutex::new(None)));
        let other = state.clone();
        start("waker", move || {
            *other.0.lock() = true;
            if let Some(sleeper) = other.1.lock().take() {
                super::thread::Thread::unpark(&sleeper);
            }
        })
        .unwrap();
        let is_done = *state.0.lock();
        if !is_done {
            *state.1.lock() = Some(current());
            park();
        }
    };
    let (_, ended) = search(|outcome| matches!(outcome, Outcome::Deadlock(_)), loses).unwrap();
    let Outcome::Deadlock(waiting) = &ended.outcome else { unreachable!() };
    assert!(waiting[0].what.starts_with("an unpark at src/base/sim/tests.rs:"), "{waiting:?}");
}

#[test]
fn an_update_without_a_lock_is_lost_in_some_schedules() {
    let (lost, kept) = (AtomicBool::new(false), AtomicBool::new(false));
    for seed in 0..100 {
        run(seed, |_| {
            let number = Arc::new(AtomicU64::new(0));
            let (done, all) = channel::unbounded();
            for _ in 0..2 {
                let (number, done) = (number.clone(), done.clone());
                start("adder", move || {
                    let before = number.load(Relaxed);
                    clock::now();
                    number.store(before + 1, Relaxed);
                    done.send(()).unwrap();
                })
                .unwrap();
            }
            for _ in 0..2 {
                all.recv().unwrap();
            }
            if number.load(Relaxed) == 2 { &kept } else { &lost }.store(true, Relaxed);
        });
    }
    assert!(lost.load(Relaxed) && kept.load(Relaxed));
}

#[test]
fn a_panic_is_the_outcome() {
    let ended = run(3, |_| {
        start("unlucky", || std::panic::resume_unwind(Box::new("on purpose"))).unwrap();
        sleep(HOUR);
    });
    assert_eq!(ended.outcome, Outcome::Panic { thread: "unlucky".into(), message: "on purpose".into() });
}

#[test]
fn threads_that_only_spin_are_a_livelock() {
    for seed in 0..20 {
        let limits = Limits { time: 10_000 * HOUR, steps: 10_000 };
        let ended = Run::run(seed, Schedule::FromSeed, None, limits, |_| {
            start("spinning", || {
                loop {
                    yield_now();
                }
            })
            .unwrap();
            loop {
                clock::now();
            }
        });
        assert!(matches!(&ended.outcome, Outcome::Livelock(waiting) if waiting.len() == 2), "{:?}", ended.outcome);
    }
}

#[test]
fn a_run_that_takes_too_long_tells_who_waits_for_what() {
    let limits = Limits { time: HOUR, steps: 1_000_000 };
    let ended = Run::run(1, Schedule::FromSeed, Some(Duration::ZERO), limits, |_| {
        start("patient", || {
            loop {
                sleep(SECOND);
            }
        })
        .unwrap();
        park();
    });
    let Outcome::OutOfTime(waiting) = &ended.outcome else { unreachable!("{:?}", ended.outcome) };
    assert!(
        waiting[0].to_string().starts_with("the director / the director waits for an unpark at src"),
        "{waiting:?}"
    );
}

#[test]
fn no_thread_stays_when_a_run_ends_whatever_it_waits_for() {
    // Other tests run beside this one, with threads of their own.
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("stays ")).count()
    };
    for seed in 0..300 {
        let ended = run(seed, |_| {
            let lock = Arc::new(Mutex::new(()));
            let (silent, receiver) = channel::bounded::<u8>(1);
            let (sender, full) = channel::bounded::<u8>(1);
            let _held = lock.lock();
            for (name, number) in
                [("stays 0", 0), ("stays 1", 1), ("stays 2", 2), ("stays 3", 3), ("stays 4", 4), ("stays 5", 5)]
            {
                let (lock, sender, receiver) = (lock.clone(), sender.clone(), receiver.clone());
                let other_ends = (silent.clone(), full.clone());
                start(name, move || {
                    let _open = &other_ends;
                    // A drop that needs a lock while the thread unwinds.
                    let _last = OnDrop(lock.clone());
                    match number {
                        0 => drop(lock.lock()),
                        1 => while receiver.recv().is_ok() {},
                        2 => while sender.send(1).is_ok() {},
                        3 => loop {
                            park();
                        },
                        4 => sleep(1000 * HOUR),
                        _ => loop {
                            yield_now();
                        },
                    }
                })
                .unwrap();
            }
            sleep(Duration::from_millis(1));
        });
        assert_eq!((ended.outcome, ended.leaked), (Outcome::Done, 0));
    }
    // A thread that was joined may be listed for a moment more.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while threads() > 0 && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(threads(), 0);
}

struct OnDrop(Arc<Mutex<()>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        drop(self.0.lock());
        park_timeout(SECOND);
    }
}

#[test]
fn a_process_that_stands_still_does_nothing_and_its_clock_runs_on_but_its_waits_last_longer_if_its_machine_sleeps() {
    for sleeps in [false, true] {
        let ended = run(7, |run| {
            let process = run.add_process("client", duration(1000 * SECOND));
            let (tell, told) = channel::unbounded();
            let ticks = move || loop {
                let begin = clock::now();
                sleep(SECOND);
                let _ = tell.send(clock::since(begin));
            };
            run.spawn(process, "ticks", ticks).unwrap();
            assert!(told.recv().unwrap() < SECOND + SECOND / 2);
            run.stand_still(process, HOUR, sleeps);
            let begin = run.time();
            let tick = told.recv().unwrap();
            assert!(run.time() - begin >= duration(HOUR) - duration(SECOND));
            assert!(tick > HOUR - 2 * SECOND, "{tick:?}");
            assert_eq!(run.time() - begin > duration(HOUR + SECOND / 2), sleeps, "{tick:?}");
            assert!(told.recv().unwrap() < 2 * SECOND, "and then it goes on as before");
        });
        assert_eq!(ended.outcome, Outcome::Done);
    }
}

#[test]
fn a_clock_that_goes_fast_wakes_its_process_early() {
    let ended = run(7, |run| {
        let process = run.add_process("fast", duration(1000 * SECOND));
        run.set_clock_rate(process, 100_000);
        let (tell, told) = channel::bounded(1);
        run.spawn(process, "sleeps", move || {
            sleep(110 * SECOND);
            tell.send(()).unwrap();
        })
        .unwrap();
        told.recv().unwrap();
        let time = run.time();
        assert!((duration(100 * SECOND)..duration(101 * SECOND)).contains(&time), "{time}");
    });
    assert_eq!(ended.outcome, Outcome::Done);
}

#[test]
fn a_process_that_was_killed_never_runs_again() {
    let ended = run(7, |run| {
        let process = run.add_process("victim", 0);
        let count = Arc::new(AtomicU64::new(0));
        let counts = count.clone();
        run.spawn(process, "counts", move || {
            loop {
                counts.fetch_add(1, Relaxed);
                sleep(SECOND);
            }
        })
        .unwrap();
        sleep(10 * SECOND + SECOND / 2);
        run.kill(process);
        let seen = count.load(Relaxed);
        assert!((9..=11).contains(&seen), "{seen}");
        sleep(HOUR);
        assert_eq!(count.load(Relaxed), seen);
    });
    assert_eq!((ended.outcome, ended.leaked), (Outcome::Done, 0));
}

#[test]
fn a_channel_without_room_hands_over_from_thread_to_thread() {
    for seed in 0..100 {
        let ended = run(seed, |_| {
            let (sender, receiver) = channel::bounded(0);
            assert!(sender.try_send(0).is_err(), "no receiver waits");
            let was_taken = Arc::new(AtomicBool::new(false));
            let taken = was_taken.clone();
            start("sender", move || {
                sender.send(1).unwrap();
                taken.store(true, Relaxed);
                assert_eq!(sender.send(2), Err(channel::SendError(2)));
            })
            .unwrap();
            sleep(SECOND);
            assert!(!was_taken.load(Relaxed), "it is not taken yet");
            assert_eq!(receiver.recv(), Ok(1));
            sleep(SECOND);
            assert!(was_taken.load(Relaxed));
            drop(receiver);
            sleep(SECOND);
        });
        assert_eq!(ended.outcome, Outcome::Done);
    }
}

#[test]
fn a_select_takes_what_comes_first_and_ends_in_time() {
    for seed in 0..100 {
        let ended = run(seed, |_| {
            let (first, second) = (channel::unbounded::<u8>(), channel::unbounded::<u8>());
            let begin = clock::now();
            let end = select::select! {
                recv(first.1) -> _ => unreachable!(),
                recv(second.1) -> _ => unreachable!(),
                default(HOUR) => clock::since(begin),
            };
            assert!((HOUR..HOUR + 60 * SECOND).contains(&end), "{end:?}");
            let sender = second.0.clone();
            start("sender", move || {
                sleep(SECOND);
                sender.send(7).unwrap();
            })
            .unwrap();
            let message = select::select_biased! {
                recv(first.1) -> _ => unreachable!(),
                recv(second.1) -> message => message,
            };
            assert_eq!(message, Ok(7));
            drop(first.0);
            let ended = select::select! {
                recv(first.1) -> message => message.is_err(),
                recv(second.1) -> _ => false,
            };
            assert!(ended);
        });
        assert_eq!(ended.outcome, Outcome::Done);
    }
}

#[test]
fn what_a_run_does_depends_on_nothing_but_its_seed() {
    let noisy = |run: &Arc<Run>| {
        let (sender, receiver) = channel::unbounded();
        for number in 0..4_u64 {
            let (sender, run) = (sender.clone(), run.clone());
            start("noisy", move || {
                for _ in 0..20 {
                    sleep(Duration::from_micros(fastrand::u64(0..1000)));
                    sender.send(number).unwrap();
                    run.mix(fastrand::u64(..));
                }
            })
            .unwrap();
        }
        drop(sender);
        for number in receiver.iter() {
            run.mix(number);
        }
    };
    let mut hashes: Vec<_> = (0..200).map(|seed| run(seed, noisy).hash).collect();
    let again: Vec<_> = (0..200).map(|seed| run(seed, noisy).hash).collect();
    assert_eq!(hashes, again);
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 200, "each seed has a history of its own");
}

#[test]
fn a_change_of_threads_costs_microseconds() {
    let begin = Instant::now();
    let ended = run(0, |_| {
        let (there, back) = (channel::unbounded(), channel::unbounded());
        let (receiver, sender) = (there.1, back.0);
        start("echo", move || {
            for message in receiver.iter() {
                sender.send(message).unwrap();
            }
        })
        .unwrap();
        for number in 0..20_000_u32 {
            there.0.send(number).unwrap();
            assert_eq!(back.1.recv(), Ok(number));
        }
    });
    let took = begin.elapsed();
    println!("{} switches, {} steps: {took:?}", ended.switches, ended.steps);
    assert!(ended.switches >= 40_000);
    assert!(me().is_none(), "an ordinary thread again");
}
