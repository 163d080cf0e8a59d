//! The methods that every lock has, once.

/// The methods of a lock, and [`InterProcessLock`](crate::InterProcessLock) from them.
///
/// The lock brings `enter(&AcquireOptions) -> Result<Option<H>>`, `keep(H)` for a call without a guard, `guard(H)`,
/// `told(&H) -> Vec<Hold>`, `give_back(&[Hold]) -> Result<()>` and `abandon(&[Hold])` for these holds or, if none is named,
/// what the caller holds, `is_acquired() -> bool`, `base_path() -> Option<&str>`, `last_wait() -> Option<String>` and
/// `known_holds() -> Vec<Hold>`. The attributes are those of `acquire`.
macro_rules! lock_methods {
    ($lock:ident, $guard:ident, $(#[$acquire:meta])*) => {
        impl $lock {
            $(#[$acquire])*
            pub fn acquire(&self) -> $crate::error::Result<()> {
                self.acquire_with(&$crate::locks::api::options::acquire::AcquireOptions::new()).map(drop)
            }

            /// Acquires the lock unless the time is up first: then `false`, and nothing is left in the queue.
            ///
            /// The time bounds everything: the wait for a connection, retries and the wait for others, over a suspension and a
            /// new session. Zero means not to wait for others: a lock that is taken costs a read and no write. Its requests still need
            /// their time, which the client's [connection timeout](crate::framework::Builder::connection_timeout) bounds.
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            #[must_use = "`false` means that the time was up and the lock is not held"]
            pub fn acquire_timeout(&self, timeout: std::time::Duration) -> $crate::error::Result<bool> {
                self.acquire_with(&$crate::locks::api::options::acquire::AcquireOptions::new().timeout(timeout))
            }

            /// Acquires the lock with a timeout, a cancel token, both or neither. `false`: the time was up first. A
            /// cancellation ends the wait at once, and nothing is left in the queue.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire`], and [`Error::Cancelled`](crate::error::Error::Cancelled).")]
            #[must_use = "`false` means that the time was up and the lock is not held"]
            pub fn acquire_with(&self, options: &$crate::locks::api::options::acquire::AcquireOptions) -> $crate::error::Result<bool> {
                Ok(self.enter(options)?.map(|held| self.keep(held)).is_some())
            }

            /// Gives the lock back, once for each time it was acquired. The last time is one round trip for each znode. Each
            /// release of a lost lock says that it was lost.
            ///
            /// Without the server's confirmation it reports [`Error::ConnectionLoss`](crate::Error::ConnectionLoss) after
            /// at most the session timeout, and the background goes on; another call waits for that.
            ///
            /// # Errors
            /// As [`InterProcessLock::release`](crate::InterProcessLock::release).
            pub fn release(&self) -> $crate::error::Result<()> {
                self.give_back(&[])
            }

            /// Acquires the lock, waiting as long as it takes, as a guard. Dropping that releases the lock in the background, and
            #[doc = concat!("waits for nothing; [`", stringify!($guard), "::release`] waits, and says how it went.")]
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire`].")]
            pub fn lock(&self) -> $crate::error::Result<$guard<'_>> {
                self.lock_owned()
            }

            /// Acquires the lock as a guard unless the time is up first: then `None`, and nothing is left in the queue. The time
            #[doc = concat!("bounds what that of [`", stringify!($lock), "::acquire_timeout`] does.")]
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            #[must_use = "the lock is released at once if the guard is not kept, and is not held if there is none"]
            pub fn lock_timeout(&self, timeout: std::time::Duration) -> $crate::error::Result<Option<$guard<'_>>> {
                self.lock_with(&$crate::locks::api::options::acquire::AcquireOptions::new().timeout(timeout))
            }

            /// Acquires the lock as a guard unless it would have to wait for others. Blocks for its own requests, at most
            /// the client's connection timeout.
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            #[must_use = "the lock is released at once if the guard is not kept, and is not held if there is none"]
            pub fn try_lock(&self) -> $crate::error::Result<Option<$guard<'_>>> {
                self.lock_timeout(std::time::Duration::ZERO)
            }

            /// Acquires the lock as a guard, with a timeout, a cancel token, both or neither. `None`: the time was up first.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire_with`].")]
            #[must_use = "the lock is released at once if the guard is not kept, and is not held if there is none"]
            pub fn lock_with(&self, options: &$crate::locks::api::options::acquire::AcquireOptions) -> $crate::error::Result<Option<$guard<'_>>> {
                self.lock_owned_with(options)
            }

            /// Acquires the lock, waiting as long as it takes, as a guard that borrows nothing: to be kept in a struct, or
            /// returned.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire`].")]
            pub fn lock_owned(&self) -> $crate::error::Result<$guard<'static>> {
                match self.lock_owned_with(&$crate::locks::api::options::acquire::AcquireOptions::new())? {
                    Some(guard) => Ok(guard),
                    // Without a timeout there is no other way out.
                    None => Err($crate::error::Error::Timeout { what: "acquire".into(), after: std::time::Duration::MAX }),
                }
            }

            /// As `lock_owned`, unless the time is up first: then `None`.
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            #[must_use = "the lock is released at once if the guard is not kept, and is not held if there is none"]
            pub fn lock_owned_timeout(
                &self,
                timeout: std::time::Duration,
            ) -> $crate::error::Result<Option<$guard<'static>>> {
                self.lock_owned_with(&$crate::locks::api::options::acquire::AcquireOptions::new().timeout(timeout))
            }

            /// As `lock_owned`, with a timeout, a cancel token, both or neither. `None`: the time was up first.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire_with`].")]
            #[must_use = "the lock is released at once if the guard is not kept, and is not held if there is none"]
            pub fn lock_owned_with(
                &self,
                options: &$crate::locks::api::options::acquire::AcquireOptions,
            ) -> $crate::error::Result<Option<$guard<'static>>> {
                Ok(self.enter(options)?.map(|held| self.guard(held)))
            }

            /// Whether this process holds the lock through this object, or has given it back without the server's
            /// confirmation so far.
            #[must_use]
            pub fn is_acquired_in_this_process(&self) -> bool {
                self.is_acquired()
            }
        }

        impl $crate::locks::api::lock::InterProcessLock for $lock {
            fn acquire(&self) -> $crate::error::Result<()> {
                $lock::acquire(self)
            }

            fn acquire_timeout(&self, timeout: std::time::Duration) -> $crate::error::Result<bool> {
                $lock::acquire_timeout(self, timeout)
            }

            fn acquire_with(&self, options: &$crate::locks::api::options::acquire::AcquireOptions) -> $crate::error::Result<bool> {
                $lock::acquire_with(self, options)
            }

            fn acquire_holds(
                &self,
                options: &$crate::locks::api::options::acquire::AcquireOptions,
            ) -> $crate::error::Result<Option<Vec<$crate::locks::api::holds::hold::Hold>>> {
                Ok(self.enter(options)?.map(|held| {
                    let holds = self.told(&held);
                    self.keep(held);
                    holds
                }))
            }

            fn release(&self) -> $crate::error::Result<()> {
                self.give_back(&[])
            }

            fn release_holds(&self, holds: &[$crate::locks::api::holds::hold::Hold]) -> $crate::error::Result<()> {
                self.give_back(holds)
            }

            fn abandon_holds(&self, holds: &[$crate::locks::api::holds::hold::Hold]) {
                self.abandon(holds);
            }

            fn is_acquired_in_this_process(&self) -> bool {
                self.is_acquired()
            }

            fn path(&self) -> Option<&str> {
                self.base_path()
            }

            fn waited_for(&self) -> Option<String> {
                self.last_wait()
            }

            fn holds(&self) -> Vec<$crate::locks::api::holds::hold::Hold> {
                self.known_holds()
            }
        }
    };
}

/// The methods of a lock that belongs to the thread that acquired it.
///
/// The lock brings `parts() -> (&Arc<LockInternals>, &Arc<Owners>)` and `enter(&AcquireOptions) -> Result<Option<Arc<HeldNode>>>`.
macro_rules! thread_lock_methods {
    ($lock:ident, $(#[$acquire:meta])*) => {
        $crate::locks::api::methods::lock_methods! { $lock, LockGuard, $(#[$acquire])* }

        impl $lock {
            /// Whether the calling thread holds the lock through this object.
            #[must_use]
            pub fn is_owned_by_current_thread(&self) -> bool {
                self.parts().1.is_current()
            }

            /// The path of the calling thread's znode, if it holds the lock through this object.
            #[must_use]
            pub fn lock_path(&self) -> Option<String> {
                let (internals, owners) = self.parts();
                owners.current().map(|held| internals.client_path(&held))
            }

            /// What the calling thread knows about the lock, if it holds it through this object: for those who acquire
            /// without a guard.
            #[must_use]
            pub fn hold(&self) -> Option<$crate::locks::api::holds::hold::Hold> {
                let (internals, owners) = self.parts();
                owners.current().map(|held| internals.hold(held))
            }

            fn keep(&self, _held: std::sync::Arc<$crate::framework::held::node::HeldNode>) {
                // `enter` has counted it for the thread.
            }

            fn told(&self, held: &std::sync::Arc<$crate::framework::held::node::HeldNode>) -> Vec<$crate::locks::api::holds::hold::Hold> {
                vec![self.parts().0.hold(held.clone())]
            }

            fn guard(&self, held: std::sync::Arc<$crate::framework::held::node::HeldNode>) -> LockGuard<'static> {
                let (internals, owners) = self.parts();
                LockGuard::new(internals, owners, held)
            }

            fn give_back(&self, named: &[$crate::locks::api::holds::hold::Hold]) -> $crate::error::Result<()> {
                let (internals, owners) = self.parts();
                owners.release(internals, named)
            }

            fn abandon(&self, named: &[$crate::locks::api::holds::hold::Hold]) {
                let (internals, owners) = self.parts();
                owners.abandon(internals, named);
            }

            fn is_acquired(&self) -> bool {
                self.parts().1.is_any()
            }

            fn base_path(&self) -> Option<&str> {
                Some(self.parts().0.base_path())
            }

            fn last_wait(&self) -> Option<String> {
                self.base_path().map(str::to_owned)
            }

            fn known_holds(&self) -> Vec<$crate::locks::api::holds::hold::Hold> {
                self.hold().into_iter().collect()
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

pub(in crate::locks) use lock_methods;
pub(in crate::locks) use thread_lock_methods;
