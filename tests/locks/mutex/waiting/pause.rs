//! A process that is paused longer than its session at the very moment of its turn.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use nix::sys::signal::{Signal, kill};

use curator_locks::{Error, InterProcessMutex};

use crate::support::{
    self, await_queue, builder,
    child::{self, ChildProcess},
    connect, eventually,
    history::shared_clock,
    queue, quick_server, sequence,
};

const SESSION: Duration = Duration::from_millis(1_000);
const ROUNDS: usize = 50;
const LANES: usize = 10;

/// In each lane a child waits. It is paused around the moment at which the lock becomes free, and goes on when its
/// session is gone and another client holds the lock.
#[test]
fn a_waiter_paused_beyond_its_session_at_its_hand_over_does_not_return_a_lock() {
    let server = quick_server().start().unwrap();
    let (first, second) = (connect(builder(&server, "pause")), connect(builder(&server, "pause")));
    let (done, too_late, returned_late) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for lane in 0..LANES {
            let (server, first, second) = (&server, &first, &second);
            let (done, too_late, returned_late) = (&done, &too_late, &returned_late);
            scope.spawn(move || {
                let path = format!("/locks/{lane}");
                let mut child = ChildProcess::start("waiter", &[&server.connect_string(), "pause", &path]);
                assert_eq!(child.hear(), "ready");
                // A container could be removed between two holds, and the numbers would begin anew.
                first.create().creating_parents_if_needed().for_path(&path).unwrap();
                let mut jitter = lane as u64;
                while done.load(Ordering::SeqCst) < ROUNDS {
                    jitter = jitter * 5 % 23;
                    let count = match round(&path, first, second, &mut child, Duration::from_micros(jitter * 50)) {
                        Round::Waited => done,
                        Round::HadIt => too_late,
                        Round::ReturnedLate => returned_late,
                    };
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    println!("{done:?} rounds, and {too_late:?} in which the child had the lock before it was paused");
    // Nothing can keep a pause from the few instructions between the last look and the caller's clock.
    let late = returned_late.into_inner();
    assert!(late <= ROUNDS / 20, "{late} times granted after a pause that began after the release");
}

enum Round {
    /// The child was paused before its turn, and queued again.
    Waited,
    /// It had the lock before it was paused.
    HadIt,
    /// The same, but it looked at the clock only after the pause.
    ReturnedLate,
}

fn round(
    path: &str,
    first: &curator_locks::CuratorFramework,
    second: &curator_locks::CuratorFramework,
    child: &mut ChildProcess,
    delay: Duration,
) -> Round {
    let (before, after) = (InterProcessMutex::new(first, path).unwrap(), InterProcessMutex::new(second, path).unwrap());
    before.acquire().unwrap();
    child.tell("acquire");
    let node = await_queue(first, path, 2)[1].clone();
    // Half of the rounds are paused before the release, half just after it was sent.
    let is_before = delay.as_micros().is_multiple_of(100);
    thread::scope(|scope| {
        if is_before {
            child.pause();
            child.await_stop();
            before.release().unwrap();
        } else {
            // The lock belongs to this thread, so it is the pause that gets another one.
            let pid = child.pid();
            scope.spawn(move || {
                thread::sleep(delay);
                kill(pid, Signal::SIGSTOP).unwrap();
            });
            before.release().unwrap();
        }
    });
    child.await_stop();
    eventually("the child's session is gone", || !queue(first, path).contains(&node));
    after.acquire().unwrap();
    let resumed_at = shared_clock();
    child.resume();
    // What it says now is what it had before the pause; else it queues again.
    let mut early = None;
    eventually("the child speaks or queues again", || {
        early = early.take().or_else(|| child.heard());
        early.is_some() || queue(first, path).len() == 2
    });
    if let Some(said) = early {
        let (at, granted, _) = parse(&said);
        let is_late = at > resumed_at;
        assert!(!(is_before && is_late), "granted {} ns after it was resumed: {said}", at - resumed_at);
        assert!(sequence(granted) < sequence(&after.lock_path().unwrap()), "{said}, while another one holds");
        after.release().unwrap();
        child.tell("release");
        assert!(child.hear().starts_with("lost"), "it was not told");
        return if is_late { Round::ReturnedLate } else { Round::HadIt };
    }
    assert_eq!(child.heard(), None, "granted while another one holds");
    let released_at = shared_clock();
    after.release().unwrap();
    let said = child.hear();
    let (at, granted, state) = parse(&said);
    assert!(at >= released_at && granted != node, "{said}");
    child.tell("release");
    let released = child.hear();
    if state == "lost" || released != "released" {
        // A session that short may end where the machine does not run the child; then its znode is gone.
        eventually("it is lost", || !queue(first, path).contains(&granted.to_owned()));
    }
    Round::Waited
}

fn parse(said: &str) -> (u64, &str, &str) {
    let parts: Vec<&str> = said.split(' ').collect();
    assert_eq!(parts.len(), 3, "{said}");
    (parts[0].parse().unwrap(), parts[1], parts[2])
}

/// The child.
pub(crate) fn waiter(arguments: &[String]) {
    let [address, namespace, path] = arguments else { panic!("{arguments:?}") };
    let retry = curator_locks::RetryForever::new(Duration::from_millis(20));
    let builder = support::builder_at(address, namespace).session_timeout(SESSION).retry_policy(retry);
    let client = connect(builder);
    let mutex = InterProcessMutex::new(&client, path).unwrap();
    child::say("ready");
    loop {
        child::listen();
        let held = loop {
            match mutex.lock() {
                // A machine that has no time for so short a session; it is gone from the queue then.
                Err(Error::Uncertain { .. }) => {}
                held => break held.unwrap(),
            }
        };
        let at = shared_clock();
        child::say(&format!("{at} {} {}", held.path(), if held.is_lost() { "lost" } else { "held" }));
        child::listen();
        match held.release() {
            Ok(()) => child::say("released"),
            Err(error) => child::say(&format!("lost: {error}")),
        }
    }
}
