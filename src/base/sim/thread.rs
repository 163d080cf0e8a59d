//! Simulated threads, as the code that runs on them sees them.

use std::{
    cell::RefCell,
    io,
    panic::Location,
    sync::Weak,
    thread::{Scope, ScopedJoinHandle},
    time::Duration,
};

use super::{
    Until, What,
    caller::Me,
    clock::{duration, instant, nanos},
    me,
    run::Run,
};

/// A thread that can be unparked.
#[derive(Clone)]
pub struct Thread(Handle);

#[derive(Clone)]
enum Handle {
    Real(std::thread::Thread),
    Simulated(Weak<Run>, usize),
}

impl Thread {
    #[track_caller]
    pub fn unpark(&self) {
        match &self.0 {
            Handle::Real(thread) => thread.unpark(),
            Handle::Simulated(run, id) => {
                if let Some(run) = run.upgrade() {
                    run.unpark(*id);
                }
                if let Some(me) = me() {
                    me.point_in_drop();
                }
            }
        }
    }
}

pub fn current() -> Thread {
    Thread(match me() {
        None => Handle::Real(std::thread::current()),
        Some(me) => Handle::Simulated(std::sync::Arc::downgrade(&me.run), me.id),
    })
}

#[track_caller]
pub fn park() {
    match me() {
        None => std::thread::park(),
        Some(me) => park_simulated(&me, None, Location::caller()),
    }
}

#[track_caller]
pub fn park_timeout(time: Duration) {
    match me() {
        None => std::thread::park_timeout(time),
        Some(me) => park_simulated(&me, Some(time), Location::caller()),
    }
}

fn park_simulated(me: &Me, time: Option<Duration>, at: &'static Location<'static>) {
    let until = time.map_or(Until::Woken, |time| in_time(me, time, at));
    me.point(at);
    if !me.take_unparked() {
        me.wait(&[Me::park_key(me.id)], until, What { label: "an unpark", at });
        me.take_unparked();
    }
}

/// When this time will have passed on the clock of the thread's process.
pub(super) fn in_time(me: &Me, time: Duration, at: &'static Location<'static>) -> Until {
    Until::Shows(instant(nanos(me.now(at)).saturating_add(duration(time)).min(LATEST)))
}

/// Five hundred years.
const LATEST: u64 = u64::MAX - (1 << 60);

/// Sleeps; a thread of the real world does that on the real clock.
#[track_caller]
pub(crate) fn sleep(time: Duration) {
    let Some(me) = me() else { return std::thread::sleep(time) };
    let at = Location::caller();
    let until = in_time(&me, time, at);
    me.wait(&[], until, What { label: "the end of a sleep", at });
}

/// Lets others go first.
#[track_caller]
pub(crate) fn yield_now() {
    match me() {
        None => std::thread::yield_now(),
        Some(me) => me.yield_now(Location::caller()),
    }
}

/// Starts a thread of the calling thread's process.
#[track_caller]
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let Some(me) = me() else { return Err(io::ErrorKind::Unsupported.into()) };
    me.run.spawn(me.process(), name, run)?;
    me.point(Location::caller());
    Ok(())
}

thread_local! {
    /// The threads that the calling one has started in scopes, by their numbers.
    static SCOPED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A simulated thread that may borrow.
pub(crate) struct ScopedThread<'scope, T> {
    id: usize,
    handle: ScopedJoinHandle<'scope, T>,
}

/// The standard library's scope, as simulated threads start others in it.
pub(crate) trait Start<'scope> {
    fn start<T: Send + 'scope>(&'scope self, run: impl FnOnce() -> T + Send + 'scope) -> ScopedThread<'scope, T>;
}

impl<'scope> Start<'scope> for Scope<'scope, '_> {
    #[track_caller]
    fn start<T: Send + 'scope>(&'scope self, run: impl FnOnce() -> T + Send + 'scope) -> ScopedThread<'scope, T> {
        let me = me().unwrap_or_else(|| unreachable!("a simulated thread starts it"));
        let started = me.run.spawn_scoped(self, me.process(), run);
        let (id, handle) = started.unwrap_or_else(|error| unreachable!("no thread: {error}"));
        SCOPED.with_borrow_mut(|ids| ids.push(id));
        me.point(Location::caller());
        ScopedThread { id, handle }
    }
}

impl<T> ScopedThread<'_, T> {
    /// Waits for its end. Its panic is an error, as the standard library's is.
    pub(crate) fn join(self) -> std::thread::Result<T> {
        await_end(self.id);
        self.handle.join()
    }
}

/// As [`std::thread::scope`]. A simulated thread must not wait for the others without their having a turn, also where it
/// unwinds.
pub(crate) fn scope<'env, T>(run: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    struct Unwinding(usize);
    impl Drop for Unwinding {
        fn drop(&mut self) {
            if std::thread::panicking() {
                await_scoped(self.0);
            }
        }
    }
    let first = SCOPED.with_borrow(Vec::len);
    std::thread::scope(|scope| {
        let _unwinding = Unwinding(first);
        let value = run(scope);
        await_scoped(first);
        value
    })
}

/// Waits for the threads of a scope, from this one on.
fn await_scoped(first: usize) {
    while let Some(id) = SCOPED.with_borrow(|ids| ids.get(first).copied()) {
        await_end(id);
        SCOPED.with_borrow_mut(|ids| ids.remove(first));
    }
}

fn await_end(id: usize) {
    let Some(me) = me() else { return };
    while !me.run.has_thread_ended(id) {
        me.wait(&[Run::end_key(id)], Until::Woken, What::here("the end of a scoped thread"));
    }
}
