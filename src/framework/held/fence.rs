//! Self-fencing: the kernel ends this process before a hold that asks for it can be another's.
//!
//! A timer of the system is set for the earliest moment that a fence asks for, over all clients of the process, and moved on
//! as heartbeats prove that the holds last. One thread does that, since such a timer cannot be handed to another one; the
//! threads that arm a fence or take it away only note it, unless the timer has to be set for an earlier moment. So the timer stays
//! for [`LINGER`] once the last fence is gone: short holds one after the other wake nobody.

use std::{
    collections::BTreeMap,
    io, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::base::{
    channel::{Receiver, Sender, bounded},
    clock,
    panics::caught,
    sync::Mutex,
    threads::{Thread, current, park, park_timeout, start},
    timer::DeathTimer,
    unlocked::drop_unlocked,
};

/// How soon the thread looks again after fences have come or gone.
const LINGER: Duration = Duration::from_millis(10);

/// A fence that goes so short before its moment waits until the timer is set anew.
const NEAR: Duration = Duration::from_millis(100);

/// How often in a session timeout the thread looks for new proofs.
const LOOKS: u32 = 20;

static FENCES: Mutex<Fences> = Mutex::new(Fences::new());

/// A fence, by the address of its hold and a number.
pub(crate) type FenceId = (usize, u64);

struct Fences {
    armed: BTreeMap<FenceId, Armed>,
    last: u64,
    /// For when the timer is set that kills, and that which aborts.
    set: [Option<Instant>; 2],
    thread: Option<Thread>,
    /// The process in which the thread was started, or 0.
    started_in: u32,
    /// How long the thread sleeps at most.
    sleeps: Duration,
    /// Fences have come or gone since the thread's last look.
    has_changed: bool,
    /// They wait until the timers are set.
    waiting: Vec<Sender<io::Result<()>>>,
}

/// For how long a hold is proved, and the session timeout. `None`: its client closed.
pub(super) type Prove = Arc<dyn Fn() -> Option<(Option<Instant>, Duration)> + Send + Sync>;

struct Armed {
    prove: Prove,
    /// The client of the hold, by an address.
    client: usize,
    margin: Duration,
    at: Instant,
    aborts: bool,
}

/// The answer that the timers are set; `None`: there is nothing to wait for.
pub(super) type IsSet = Option<Receiver<io::Result<()>>>;

/// Waits until the timers are set, and no longer than the hold is certain: looks at other holds may block.
pub(super) fn wait(is_set: IsSet, until: Instant) -> io::Result<()> {
    let not_set = |_| Err(io::Error::other("no thread has set the timer in time"));
    is_set.map_or(Ok(()), |is_set| is_set.recv_timeout(clock::until(until)).unwrap_or_else(not_set))
}

/// Arms a fence for the hold at this address, which `prove` must keep from being another one's. It is certain until then.
pub(super) fn arm(
    (client, address): (usize, usize),
    prove: Prove,
    margin: Duration,
    until: Instant,
    timeout: Duration,
) -> (FenceId, IsSet) {
    let mut fences = FENCES.lock();
    fences.last += 1;
    let (id, at) = ((address, fences.last), moment(until, margin));
    fences.armed.insert(id, Armed { prove, client, margin, at, aborts: false });
    fences.has_changed = true;
    let is_set = fences.awaits(at);
    if is_set.is_none() && fences.sleeps > timeout / LOOKS {
        fences.wake();
    }
    (id, is_set)
}

/// Lets the process end by SIGABRT for these.
pub(crate) fn abort(ids: &[FenceId]) -> io::Result<()> {
    let mut fences = FENCES.lock();
    let mut at = None;
    for id in ids {
        let Some(armed) = fences.armed.get_mut(id) else { continue };
        armed.aborts = true;
        at = at.into_iter().chain([armed.at]).min();
    }
    let Some(at) = at else { return Ok(()) };
    // The other timer must not stay set for these, and so not linger: a process that is stopped now would be killed.
    fences.has_changed = false;
    let is_set = fences.next_look();
    drop(fences);
    wait(Some(is_set), at)
}

pub(crate) fn disarm(ids: &[FenceId]) {
    let mut fences = FENCES.lock();
    let gone: Vec<Armed> = ids.iter().filter_map(|id| fences.armed.remove(id)).collect();
    let is_set = gone.iter().map(|armed| armed.at).min().and_then(|first| fences.gone(first));
    drop_unlocked(fences, gone);
    if let Some(is_set) = is_set {
        // Not for longer: the process has ended by then, or will not.
        let _ = is_set.recv_timeout(NEAR);
    }
}

/// Takes all fences of a hold away.
pub(super) fn disarm_all(address: usize) {
    let of_hold = (address, 0)..=(address, u64::MAX);
    let ids: Vec<FenceId> = FENCES.lock().armed.range(of_hold).map(|(id, _)| *id).collect();
    disarm(&ids);
}

/// Takes all fences of a client away, also those of holds that were lost.
pub(super) fn disarm_client(client: usize) {
    let ids: Vec<FenceId> =
        FENCES.lock().armed.iter().filter(|(_, armed)| armed.client == client).map(|(id, _)| *id).collect();
    disarm(&ids);
}

/// How many fences a hold has.
pub(super) fn count(address: usize) -> usize {
    FENCES.lock().armed.range((address, 0)..=(address, u64::MAX)).count()
}

fn moment(valid_until: Instant, margin: Duration) -> Instant {
    valid_until.checked_sub(margin).unwrap_or(valid_until)
}

/// Starts the thread that has the timers, once in a process: a fork takes along neither.
pub(super) fn begin() -> io::Result<()> {
    // Under the lock: nobody waits for a thread that could not be started.
    let mut fences = FENCES.lock();
    let process = std::process::id();
    if fences.started_in != process {
        let last = fences.last;
        // The sessions of those are the parent's, and not to be closed here.
        mem::forget(mem::replace(&mut *fences, Fences { last, ..Fences::new() }));
        start("curator-fence", keep_looking)?;
        fences.started_in = process;
    }
    Ok(())
}

fn keep_looking() {
    FENCES.lock().thread = Some(current());
    let mut timers = [None, None];
    loop {
        // The payload of a panic may panic when it is dropped. The timers would go with this thread.
        let looked = catch_unwind(AssertUnwindSafe(|| look(&mut timers)));
        match looked.unwrap_or(Some(LINGER)) {
            Some(time) => park_timeout(time),
            None => park(),
        }
    }
}

/// Moves the timers on. Returns for how long they stay right.
fn look(timers: &mut [Option<DeathTimer>; 2]) -> Option<Duration> {
    let armed: Vec<_> = FENCES.lock().armed.iter().map(|(id, armed)| (*id, armed.prove.clone())).collect();
    // A session may be the caller's own code. If it panics nothing is proved.
    let prove = |prove: &Prove| caught("a look at a fenced hold", || prove()).unwrap_or(Some((None, NEAR)));
    let proved: Vec<_> = armed.iter().map(|(id, its)| (*id, prove(its))).collect();
    let pace = proved.iter().filter_map(|(_, proof)| Some(proof.as_ref()?.1 / LOOKS)).min();
    let mut fences = FENCES.lock();
    let mut gone = Vec::new();
    for (id, proof) in proved {
        match (proof, fences.armed.get_mut(&id)) {
            (Some((Some(until), _)), Some(armed)) => armed.at = moment(until, armed.margin),
            (None, _) => gone.extend(fences.armed.remove(&id)),
            _ => {}
        }
    }
    let result = fences.set_timers(timers);
    let sleeps = if mem::take(&mut fences.has_changed) { Some(LINGER) } else { pace.map(|pace| fences.pace(pace)) };
    fences.sleeps = sleeps.unwrap_or(Duration::MAX);
    let waiting = mem::take(&mut fences.waiting);
    drop_unlocked(fences, [(gone, armed)]);
    for waiting in waiting {
        let answer = match &result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        // It may have given up.
        let _ = waiting.send(answer);
    }
    sleeps
}

impl Fences {
    const fn new() -> Fences {
        Fences {
            armed: BTreeMap::new(),
            last: 0,
            set: [None; 2],
            thread: None,
            started_in: 0,
            sleeps: Duration::MAX,
            has_changed: false,
            waiting: Vec::new(),
        }
    }

    fn set_timers(&mut self, timers: &mut [Option<DeathTimer>; 2]) -> io::Result<()> {
        let mut result = Ok(());
        for ((timer, set), aborts) in timers.iter_mut().zip(&mut self.set).zip([false, true]) {
            let fences = self.armed.values().filter(|armed| armed.aborts == aborts);
            let at = fences.map(|armed| armed.at).min();
            let lingers = at.is_none() && self.has_changed && set.is_some_and(|at| clock::until(at) > NEAR);
            if lingers || at == *set {
                continue;
            }
            match set_timer(timer, aborts, at) {
                Ok(()) => *set = at,
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// The shorter the time that is left, the sooner the thread looks for a new proof.
    fn pace(&self, longest: Duration) -> Duration {
        let left = self.set.iter().flatten().map(|at| clock::until(*at)).filter(|left| !left.is_zero()).min();
        left.map_or(longest, |left| longest.min((left / 4).max(LINGER)))
    }

    /// Wakes the thread unless the timer that kills is set for no later than that; the result tells when it is.
    fn awaits(&mut self, at: Instant) -> IsSet {
        let [kills, _] = self.set;
        if kills.is_some_and(|set| set <= at) { None } else { Some(self.next_look()) }
    }

    /// Notes that fences have gone, the first of which was for then; the result tells when the process will not end for it.
    fn gone(&mut self, first: Instant) -> Option<Receiver<io::Result<()>>> {
        self.has_changed = true;
        if clock::until(first) < NEAR {
            return Some(self.next_look());
        }
        if self.sleeps > LINGER {
            // It need not be woken again for the next one.
            self.sleeps = LINGER;
            self.wake();
        }
        None
    }

    /// Wakes the thread for a look now; the result tells when the timers are set.
    fn next_look(&mut self) -> Receiver<io::Result<()>> {
        let (sender, is_set) = bounded(1);
        self.waiting.push(sender);
        self.wake();
        is_set
    }

    fn wake(&self) {
        // A thread that is about to begin looks first.
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

fn set_timer(timer: &mut Option<DeathTimer>, aborts: bool, at: Option<Instant>) -> io::Result<()> {
    match timer {
        Some(timer) => timer.set(at),
        None if at.is_none() => Ok(()),
        None => timer.insert(DeathTimer::new(aborts)?).set(at),
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::{panic::panic_any, thread::panicking};

    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(panicking(), "on purpose");
        }
    }

    #[test]
    fn the_thread_goes_on_after_a_panic_that_panics_again() {
        const HOUR: Duration = Duration::from_secs(3600);
        begin().unwrap();
        let until = clock::now() + HOUR;
        let (bomb, is_set) = arm((1, 1), Arc::new(|| panic_any(Bomb)), Duration::ZERO, until, HOUR);
        // It falls into the look that was to set the timer.
        let first = is_set.map(|is_set| is_set.recv_timeout(NEAR));
        disarm(&[bomb]);
        let prove: Prove = Arc::new(move || Some((Some(until), HOUR)));
        let (second, is_set) = arm((1, 2), prove, HOUR / 2, until, HOUR);
        let answer = wait(is_set, clock::now() + HOUR / 180);
        disarm(&[second]);
        assert!(answer.is_ok() && first.is_none_or(|first| first.is_err()), "{answer:?}");
    }
}
