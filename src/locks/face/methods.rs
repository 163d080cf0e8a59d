//! The methods that every lock has, once.

use std::time::Duration;

use crate::error::Error;

/// Without a timeout an acquire ends with the lock or with an error.
pub(in crate::locks) fn no_end() -> Error {
    Error::Timeout { what: "acquire".into(), after: Duration::MAX }
}

/// Enters a lock, and fences its holds if the options ask for that.
macro_rules! enter_fenced {
    ($lock:ident, $options:expr) => {
        $crate::locks::holds::fence::fenced(
            $options,
            |options| $lock.enter(options),
            |held| $lock.holds_of(held),
            |held| drop($lock.guard(held)),
        )
    };
}
pub(in crate::locks) use enter_fenced;

/// The methods of a lock, and [`InterProcessLock`](crate::InterProcessLock) from them.
///
/// The lock brings `enter(&AcquireOptions) -> Result<Option<H>>`, `keep(H)` for a call without a guard, `guard(H)`,
/// `holds_of(&H) -> Vec<Hold>`, `give_back(&[Hold]) -> Result<()>` and `abandon(&[Hold])` for these holds or, if none is named,
/// what the caller holds, and `is_acquired() -> bool`. The attributes are those of `acquire`. In braces follow those
/// methods of the trait that differ from one lock to another.
macro_rules! lock_methods {
    ($lock:ident, $guard:ident, $(#[$acquire:meta])* { $($of_trait:item)* }) => {
        impl $lock {
            $(#[$acquire])*
            pub fn acquire(&self) -> $crate::error::Result<()> {
                self.acquire_with(&$crate::locks::options::acquire::AcquireOptions::new()).map(drop)
            }

            /// Acquires the lock unless the time is up first: then `false`, and it leaves the queue.
            ///
            /// The time bounds everything: the wait for a connection, retries and the wait for others, over a
            /// suspension and a new session. Zero means not to wait for others: a lock that is taken costs a read and
            /// no write. Its requests still need their time, which the client's [connection
            /// timeout](crate::Builder::connection_timeout) bounds.
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            #[must_use = "`false` means that the time was up and the lock is not held"]
            pub fn acquire_timeout(&self, timeout: std::time::Duration) -> $crate::error::Result<bool> {
                self.acquire_with(&$crate::locks::options::acquire::AcquireOptions::new().timeout(timeout))
            }

            /// Acquires the lock with a timeout, a cancel token, both or neither. `false`: the time was up first. A
            /// cancellation ends the wait at once, and it leaves the queue.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire`], and [`Error::Cancelled`](crate::error::Error::Cancelled).")]
            #[must_use = "`false` means that the time was up and the lock is not held"]
            pub fn acquire_with(&self, options: &$crate::locks::options::acquire::AcquireOptions) -> $crate::error::Result<bool> {
                let held = $crate::locks::face::methods::enter_fenced!(self, options)?;
                Ok(held.map(|held| self.keep(held)).is_some())
            }

            /// Gives the lock back, once for each time it was acquired. The last time is one round trip.
            /// Each release of a lost lock says that it was lost.
            ///
            /// Without the server's confirmation it reports [`Error::ConnectionLoss`](crate::Error::ConnectionLoss) after
            /// at most the session timeout, and the background goes on; another call waits for that.
            ///
            /// # Errors
            /// As [`InterProcessLock::release`](crate::InterProcessLock::release).
            pub fn release(&self) -> $crate::error::Result<()> {
                self.give_back(&[])
            }

            /// Acquires the lock, waiting as long as it takes, as a guard. That borrows nothing: it may outlive the lock
            /// object. Dropping it releases the lock in the background, and
            #[doc = concat!("waits for nothing; [`", stringify!($guard), "::release`] waits, and says how it went.")]
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire`].")]
            pub fn lock(&self) -> $crate::error::Result<$guard> {
                let guard = self.lock_with(&$crate::locks::options::acquire::AcquireOptions::new())?;
                guard.ok_or_else($crate::locks::face::methods::no_end)
            }

            /// Acquires the lock as a guard unless the time is up first: then `None`, and it leaves the queue. The time
            #[doc = concat!("bounds the same as in [`", stringify!($lock), "::acquire_timeout`].")]
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            #[must_use = "the lock is released at once if the guard is not kept, as by `let _ =`, and is not held if there is none"]
            pub fn lock_timeout(&self, timeout: std::time::Duration) -> $crate::error::Result<Option<$guard>> {
                self.lock_with(&$crate::locks::options::acquire::AcquireOptions::new().timeout(timeout))
            }

            /// Acquires the lock as a guard unless it would have to wait for others. Blocks for its own requests, at most
            /// the client's connection timeout.
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            #[must_use = "the lock is released at once if the guard is not kept, as by `let _ =`, and is not held if there is none"]
            pub fn try_lock(&self) -> $crate::error::Result<Option<$guard>> {
                self.lock_timeout(std::time::Duration::ZERO)
            }

            /// Acquires the lock as a guard, with a timeout, a cancel token, both or neither. `None`: the time was up
            /// first.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire_with`].")]
            #[must_use = "the lock is released at once if the guard is not kept, as by `let _ =`, and is not held if there is none"]
            pub fn lock_with(&self, options: &$crate::locks::options::acquire::AcquireOptions) -> $crate::error::Result<Option<$guard>> {
                let held = $crate::locks::face::methods::enter_fenced!(self, options)?;
                Ok(held.map(|held| self.guard(held)))
            }

            /// Acquires the lock, waiting as long as it takes, calls `work` with the guard, and releases the lock, however `work`
            /// ends: a panic of it releases the lock in the background.
            ///
            /// While the connection is suspended, and after a loss, `work` goes on: nobody can end it from outside. It asks
            /// [`is_valid`](crate::Hold::is_valid) of its guard before each step that must not overlap another holder's.
            ///
            /// Work that can fail returns a `Result` of its own: `lock.run(|held| -> Result<_, MyError> { .. })??`.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire`]; then `work` was not called. And")]
            /// [`Error::LockLost`](crate::error::Error::LockLost) if the lock was lost before `work` came to its end, or
            /// [`Error::Uncertain`](crate::error::Error::Uncertain) if it was in doubt then, and no server has said within the session
            /// timeout that it stood; the result of `work` is dropped.
            pub fn run<T>(&self, work: impl FnOnce(&$guard) -> T) -> $crate::error::Result<T> {
                let held = $crate::locks::face::methods::enter_fenced!(self, &$crate::locks::options::acquire::AcquireOptions::new())?;
                let held = held.ok_or_else($crate::locks::face::methods::no_end)?;
                Self::run_in(&self.holds_of(&held), self.guard(held), work)
            }

            /// As
            #[doc = concat!("[`run`](", stringify!($lock), "::run), unless the time is up before the lock is acquired: then `None`, and `work` was not")]
            /// called.
            ///
            /// # Errors
            #[doc = concat!("As [`run`](", stringify!($lock), "::run).")]
            pub fn run_timeout<T>(
                &self,
                timeout: std::time::Duration,
                work: impl FnOnce(&$guard) -> T,
            ) -> $crate::error::Result<Option<T>> {
                let options = $crate::locks::options::acquire::AcquireOptions::new().timeout(timeout);
                let held = $crate::locks::face::methods::enter_fenced!(self, &options)?;
                held.map(|held| Self::run_in(&self.holds_of(&held), self.guard(held), work)).transpose()
            }

            fn run_in<T>(
                holds: &[$crate::locks::holds::hold::Hold],
                guard: $guard,
                work: impl FnOnce(&$guard) -> T,
            ) -> $crate::error::Result<T> {
                let result = work(&guard);
                let stand = $crate::locks::acquire::last_look::stand(holds);
                match (stand, guard.release()) {
                    // The background goes on with a delete that no server has confirmed: the lock stood at the end of the work.
                    (Ok(()), Err(error)) if !error.is_retryable() => Err(error),
                    (stand, _) => stand.map(|()| result),
                }
            }

            /// Whether this process holds the lock through this object, or has given it back without the server's
            /// confirmation so far.
            #[must_use]
            pub fn is_acquired_in_this_process(&self) -> bool {
                self.is_acquired()
            }
        }

        impl $crate::locks::face::lock::InterProcessLock for $lock {
            fn acquire(&self) -> $crate::error::Result<()> {
                $lock::acquire(self)
            }

            fn acquire_timeout(&self, timeout: std::time::Duration) -> $crate::error::Result<bool> {
                $lock::acquire_timeout(self, timeout)
            }

            fn acquire_with(&self, options: &$crate::locks::options::acquire::AcquireOptions) -> $crate::error::Result<bool> {
                $lock::acquire_with(self, options)
            }

            fn acquire_holds(
                &self,
                options: &$crate::locks::options::acquire::AcquireOptions,
            ) -> $crate::error::Result<Option<Vec<$crate::locks::holds::hold::Hold>>> {
                let held = $crate::locks::face::methods::enter_fenced!(self, options)?;
                Ok(held.map(|held| {
                    let holds = self.holds_of(&held);
                    self.keep(held);
                    holds
                }))
            }

            fn release(&self) -> $crate::error::Result<()> {
                self.give_back(&[])
            }

            fn release_holds(&self, holds: &[$crate::locks::holds::hold::Hold]) -> $crate::error::Result<()> {
                self.give_back(holds)
            }

            fn abandon_holds(&self, holds: &[$crate::locks::holds::hold::Hold]) {
                self.abandon(holds);
            }

            fn is_acquired_in_this_process(&self) -> bool {
                self.is_acquired()
            }

            $($of_trait)*
        }
    };
}

/// The methods of a lock whose holds are counted by [`Owners`](crate::locks::acquire::owners::Owners).
///
/// The lock brings `enter(&AcquireOptions) -> Result<Option<Arc<HeldNode>>>`, `keep(Arc<HeldNode>)`,
/// `guard(Arc<HeldNode>)`, `hold() -> Option<Hold>`, and `parts()`: the internals, and the owners. In braces may follow other
/// methods of the trait.
macro_rules! owned_lock_methods {
    ($lock:ident, $guard:ident, $(#[$acquire:meta])* $({ $($of_trait:item)* })?) => {
        $crate::locks::face::methods::lock_methods! { $lock, $guard, $(#[$acquire])* {
            fn path(&self) -> Option<&str> {
                Some(self.parts().0.base_path())
            }

            fn holds(&self) -> Vec<$crate::locks::holds::hold::Hold> {
                self.hold().into_iter().collect()
            }

            $($($of_trait)*)?
        } }

        impl $lock {
            fn holds_of(&self, held: &std::sync::Arc<$crate::framework::held::node::HeldNode>) -> Vec<$crate::locks::holds::hold::Hold> {
                vec![self.parts().0.hold(held.clone())]
            }

            fn give_back(&self, named: &[$crate::locks::holds::hold::Hold]) -> $crate::error::Result<()> {
                let (internals, owners) = self.parts();
                owners.release(internals, named)
            }

            fn abandon(&self, named: &[$crate::locks::holds::hold::Hold]) {
                let (internals, owners) = self.parts();
                owners.abandon(internals, named);
            }

            fn is_acquired(&self) -> bool {
                self.parts().1.is_any()
            }
        }

        impl std::fmt::Debug for $lock {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let path = self.parts().0.base_path();
                f.debug_struct(stringify!($lock)).field("path", &path).finish_non_exhaustive()
            }
        }
    };
}

/// The methods of a lock that belongs to the thread that acquired it.
///
/// The lock brings `parts() -> (&Arc<LockInternals>, &Arc<Owners>)`, `enter(&AcquireOptions) ->
/// Result<Option<Arc<HeldNode>>>`, and `inner() -> &InterProcessMutex`, which does the work.
macro_rules! thread_lock_methods {
    ($lock:ident, $(#[$acquire:meta])*) => {
        $crate::locks::face::methods::owned_lock_methods! { $lock, LockGuard, $(#[$acquire])* {
            fn batched(&self) -> Option<&dyn $crate::locks::acquire::batch::Batched> {
                Some(self.inner())
            }
        } }

        impl $lock {
            /// Whether the calling thread holds the lock through this object.
            #[must_use]
            pub fn is_owned_by_current_thread(&self) -> bool {
                self.parts().1.current().is_some()
            }

            /// The path of the calling thread's znode, if it holds the lock through this object.
            #[must_use]
            pub fn lock_path(&self) -> Option<String> {
                let (internals, owners) = self.parts();
                owners.current().map(|held| internals.client_path(&held))
            }

            /// The calling thread's hold, if it holds the lock through this object: for callers that acquire without a
            /// guard.
            #[must_use]
            pub fn hold(&self) -> Option<$crate::locks::holds::hold::Hold> {
                let (internals, owners) = self.parts();
                owners.current().map(|held| internals.hold(held))
            }

            fn keep(&self, _held: std::sync::Arc<$crate::framework::held::node::HeldNode>) {
                // `enter` has counted it for the thread.
            }

            fn guard(&self, held: std::sync::Arc<$crate::framework::held::node::HeldNode>) -> LockGuard {
                let (internals, owners) = self.parts();
                LockGuard::new(internals, owners, held)
            }
        }
    };
}

/// The methods of a lock that belongs to the thread that acquired it, and whose `mutex` does the work.
macro_rules! mutex_lock_methods {
    ($lock:ident, $(#[$acquire:meta])*) => {
        $crate::locks::face::methods::thread_lock_methods! { $lock, $(#[$acquire])* }

        impl $lock {
            fn parts(&self) -> (&std::sync::Arc<LockInternals>, &std::sync::Arc<$crate::locks::acquire::owners::Owners>) {
                self.mutex.parts()
            }

            fn enter(
                &self,
                options: &$crate::locks::options::acquire::AcquireOptions,
            ) -> $crate::error::Result<Option<std::sync::Arc<$crate::framework::held::node::HeldNode>>> {
                self.mutex.enter(options)
            }

            fn inner(&self) -> &InterProcessMutex {
                &self.mutex
            }
        }
    };
}

/// [`Revocable`](crate::Revocable), and its methods without the trait. `$mutex` does the work of `$this` lock, and `$lock_of` makes
/// a lock of a mutex for its listener. The attributes are those of `make_revocable`.
macro_rules! revocable_methods {
    ($lock:ident, |$this:ident| $mutex:expr, $lock_of:expr, $(#[$make_revocable:meta])*) => {
        impl $lock {
            $(#[$make_revocable])*
            pub fn make_revocable(&self, listener: impl $crate::locks::face::revocation::RevocationListener<$lock>) {
                self.make_revocable_with_executor(listener, |task| task());
            }

            #[doc = concat!("As [`make_revocable`](", stringify!($lock), "::make_revocable), but `executor` runs the listener. It is called on the")]
            /// dispatch thread, with a task that it may run there or hand to a thread.
            pub fn make_revocable_with_executor(
                &self,
                listener: impl $crate::locks::face::revocation::RevocationListener<$lock>,
                executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
            ) {
                let $this = self;
                $mutex.revocable(listener, executor, $lock_of);
            }
        }

        impl $crate::locks::face::revocation::Revocable<$lock> for $lock {
            fn make_revocable_with_executor(
                &self,
                listener: impl $crate::locks::face::revocation::RevocationListener<$lock>,
                executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
            ) {
                $lock::make_revocable_with_executor(self, listener, executor);
            }
        }
    };
}

/// The events that a lock can listen for: requests to give it back, and unclean deaths of holders. `$internals` are those of
/// `$this` lock whose znodes are holds. The lock brings `configured(&self, impl Fn(&mut LockInternals)) -> Self`.
macro_rules! listening_methods {
    ($lock:ident, |$this:ident| $internals:expr) => {
        impl $lock {
            /// Calls the listener when somebody asks for the lock back, with a name and a reason
            /// ([`Revoker::request`](crate::Revoker::request)) or as Curator does
            /// ([`Revoker::attempt_revoke`](crate::Revoker::attempt_revoke)). The listener is for every acquire that
            /// begins from now on, while it waits and while it holds, and stays over releases; a second call replaces
            /// it, and so does `make_revocable` where the lock has that. A waiter for a semaphore, or by
            /// [`WatchParent`](crate::WaitStrategy::WatchParent), is told only when it holds.
            ///
            /// It runs on the client's dispatch thread, under no lock, and may give the hold back by
            /// [`RevocationRequest::release`](crate::RevocationRequest::release): `release` of a lock that belongs to its thread is for
            /// that thread. Nothing is released by itself. Costs one read per acquire.
            pub fn on_revocation(
                &self,
                listener: impl Fn(&$crate::locks::face::revocation::RevocationRequest) + Send + Sync + 'static,
            ) {
                let ($this, listener) = (self, std::sync::Arc::new(listener));
                $internals.iter().for_each(|internals| internals.on_revocation(true, listener.clone()));
            }

            /// If a holder dies without releasing, the next holder is told
            /// ([`Hold::unclean_deaths`](crate::Hold::unclean_deaths)) and first waits `delay`, so that writes still in
            /// flight can arrive. Without such a death there is no delay.
            ///
            /// Only holders that called this on their own lock object are reported, in any process of this crate; all
            /// contenders should call it. A mere try waits for `delay`, too, and a multi lock once, for all its members.
            /// An acquire that comes to nothing leaves the report to the next one. It may be taken for a death itself
            /// if its process, client or session ends before it has returned, and so may a holder that is cut off in the
            /// midst of its release. Readers or leases beside each other may all be told of one death. A thread that
            /// panics with a guard counts: as with std's poisoning, the protected data may be half done; unlike there,
            /// the lock can be had, and a holder that asks is told.
            ///
            /// Each hold leaves a mark in a directory beside the lock's (`~holders`), which costs two writes and no
            /// round trip more than one. A lock without this pays nothing. If the lock is lost during the delay, the
            /// acquire fails with [`Error::LockLost`](crate::Error::LockLost); a multi lock begins again. Not together with
            /// [`Caching`](crate::Caching), where one mark would stand for many holds: each acquire fails with
            /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) then. Call this right after `new`: it makes
            /// another lock object.
            ///
            /// ```
            /// # curator_locks::docs::example(|client| {
            /// # use std::time::Duration;
            /// # use curator_locks::InterProcessMutex;
            /// let mutex = InterProcessMutex::new(&client, "/locks/account")?
            ///     .with_lock_data("host-7")
            ///     .with_unclean_deaths(Duration::from_secs(5));
            /// let held = mutex.lock()?;
            /// for death in held.unclean_deaths() {
            ///     println!("{:?} died with token {}: look at its work", death.data, death.fencing_token);
            /// }
            /// held.release()?;
            /// # Ok(()) });
            /// ```
            #[must_use]
            pub fn with_unclean_deaths(self, delay: std::time::Duration) -> Self {
                self.configured(|internals| internals.listen_for_deaths(delay))
            }

            /// Gives the lock a name in the facade `metrics` (feature `metrics`), which then gets
            /// `curator_locks_named_acquire_seconds{lock, outcome}` and `curator_locks_named_hold_seconds{lock, end}` of it
            /// beside the [totals](crate::docs::operations#numbers). Without the feature nothing changes. The facade is
            /// `metrics` 0.24: a recorder for another version of it gets nothing.
            ///
            /// Each name is series of its own, for ever: name what is few, such as `orders`, and no lock of a path that
            /// is made of an order's number. Locks may share a name. Install the recorder first. Call this right after
            /// `new`: it makes another lock object. Does no I/O, and cannot fail.
            ///
            /// ```
            /// # curator_locks::docs::example(|client| {
            /// # use curator_locks::InterProcessMutex;
            /// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?.with_metrics_name("orders");
            /// mutex.run(|_| println!("seen as lock=\"orders\""))?;
            /// # Ok(()) });
            /// ```
            #[must_use]
            pub fn with_metrics_name(self, name: impl Into<String>) -> Self {
                let named = std::sync::Arc::new($crate::base::telemetry::named::NamedLock::new(name.into()));
                self.configured(|internals| internals.named = Some(named.clone()))
            }
        }
    };
}

pub(in crate::locks) use listening_methods;
pub(in crate::locks) use lock_methods;
pub(in crate::locks) use mutex_lock_methods;
pub(in crate::locks) use owned_lock_methods;
pub(in crate::locks) use revocable_methods;
pub(in crate::locks) use thread_lock_methods;
