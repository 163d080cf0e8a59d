//! The lock of simulated threads.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    panic::Location,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use super::{What, caller::Me, me};

/// `parking_lot`'s; a simulated thread never blocks in it.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    /// How many simulated threads wait for it, or have waited when their run ended.
    waiting: AtomicUsize,
    /// The simulated thread that has it, by its number and one; 0 for none.
    holder: AtomicUsize,
    /// The run of that thread, by its address.
    run: AtomicUsize,
    inner: parking_lot::Mutex<T>,
}

pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    /// `None` only while this is dropped.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        let [waiting, holder, run] = [const { AtomicUsize::new(0) }; 3];
        Mutex { waiting, holder, run, inner: parking_lot::Mutex::new(value) }
    }
}

impl<T: ?Sized> Mutex<T> {
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let inner = match me() {
            None => self.inner.lock(),
            Some(me) => self.lock_simulated(&me, Location::caller()),
        };
        MutexGuard { lock: self, inner: Some(inner) }
    }

    fn lock_simulated(&self, me: &Me, at: &'static Location<'static>) -> parking_lot::MutexGuard<'_, T> {
        me.point(at);
        loop {
            if let Some(guard) = self.inner.try_lock() {
                return self.held_by(me, guard);
            }
            if self.holder.load(Acquire) == 0 || self.run.load(Relaxed) != Arc::as_ptr(&me.run).addr() {
                // What all runs of the process share is another one's, which goes on by itself.
                let guard = self.inner.lock();
                return self.held_by(me, guard);
            }
            self.waiting.fetch_add(1, Relaxed);
            let holder = self.holder.load(Relaxed).checked_sub(1);
            me.wait_for_lock(self.key(), holder, What { label: "a lock", at });
            self.waiting.fetch_sub(1, Relaxed);
        }
    }

    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let me = me();
        if let Some(me) = &me {
            me.point(Location::caller());
        }
        let inner = self.inner.try_lock()?;
        let inner = if let Some(me) = me { self.held_by(&me, inner) } else { inner };
        Some(MutexGuard { lock: self, inner: Some(inner) })
    }

    fn held_by<'a>(&self, me: &Me, guard: parking_lot::MutexGuard<'a, T>) -> parking_lot::MutexGuard<'a, T> {
        // In this order: a thread of another run must not take the number for one of its own run.
        self.run.store(Arc::as_ptr(&me.run).addr(), Relaxed);
        self.holder.store(me.id + 1, Release);
        guard
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    fn key(&self) -> usize {
        (&raw const self.waiting).addr()
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.holder.store(0, Release);
        self.inner = None;
        let Some(me) = me() else { return };
        if self.lock.waiting.load(Relaxed) > 0 {
            me.run.wake(self.lock.key());
        }
        me.point_in_drop();
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("it is dropped"),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(inner) => inner,
            None => unreachable!("it is dropped"),
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
