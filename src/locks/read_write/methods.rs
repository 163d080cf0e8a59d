//! What the two halves of a read/write lock have in common with a mutex, which does the work.

/// Hands the mutex's methods on. The attributes are those of `acquire`.
macro_rules! lock_methods {
    ($lock:ident, $(#[$acquire:meta])*) => {
        impl $lock {
            $(#[$acquire])*
            pub fn acquire(&self) -> $crate::Result<()> {
                self.mutex.acquire()
            }

            /// Acquires the lock unless the time is up first: then `false`, and nothing is left in the queue. Zero means
            /// not to wait for others: if the lock is taken, that costs one read and no write.
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            pub fn acquire_timeout(&self, timeout: std::time::Duration) -> $crate::Result<bool> {
                self.mutex.acquire_timeout(timeout)
            }

            /// Acquires the lock with a timeout, a cancel token, both or neither. `false`: the time was up first.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire`], and [`Error::Cancelled`](crate::Error::Cancelled).")]
            pub fn acquire_with(&self, options: &$crate::AcquireOptions) -> $crate::Result<bool> {
                self.mutex.acquire_with(options)
            }

            /// Gives the lock back, once for each time the calling thread acquired it; the last time is one round trip.
            ///
            /// # Errors
            /// As [`InterProcessMutex::release`](crate::InterProcessMutex::release).
            pub fn release(&self) -> $crate::Result<()> {
                self.mutex.release()
            }

            /// Acquires the lock, waiting as long as it takes, as a guard.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire`].")]
            pub fn lock(&self) -> $crate::Result<$crate::LockGuard<'_>> {
                self.mutex.lock()
            }

            /// Acquires the lock as a guard unless the time is up first.
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            pub fn lock_timeout(
                &self,
                timeout: std::time::Duration,
            ) -> $crate::Result<Option<$crate::LockGuard<'_>>> {
                self.mutex.lock_timeout(timeout)
            }

            /// Acquires the lock as a guard unless it would have to wait for others.
            ///
            /// # Errors
            /// As [`InterProcessLock::acquire_timeout`](crate::InterProcessLock::acquire_timeout).
            pub fn try_lock(&self) -> $crate::Result<Option<$crate::LockGuard<'_>>> {
                self.mutex.try_lock()
            }

            /// Acquires the lock as a guard, with a timeout, a cancel token, both or neither.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($lock), "::acquire_with`].")]
            pub fn lock_with(
                &self,
                options: &$crate::AcquireOptions,
            ) -> $crate::Result<Option<$crate::LockGuard<'_>>> {
                self.mutex.lock_with(options)
            }

            /// Whether any thread of this process holds the lock through this object, or has given it back without the
            /// server's confirmation so far.
            #[must_use]
            pub fn is_acquired_in_this_process(&self) -> bool {
                self.mutex.is_acquired_in_this_process()
            }

            /// Whether the calling thread holds the lock through this object.
            #[must_use]
            pub fn is_owned_by_current_thread(&self) -> bool {
                self.mutex.is_owned_by_current_thread()
            }

            /// The paths of all contenders of this kind, in the order of the queue.
            ///
            /// # Errors
            /// As every operation on a znode.
            pub fn participant_nodes(&self) -> $crate::Result<Vec<String>> {
                self.mutex.participant_nodes_of_kind()
            }

            /// The path of the calling thread's znode, if it holds the lock through this object.
            #[must_use]
            pub fn lock_path(&self) -> Option<String> {
                self.mutex.lock_path()
            }

            /// What the lock stands on.
            #[must_use]
            pub fn internals(&self) -> &$crate::LockInternals {
                self.mutex.internals()
            }

            pub(super) fn map(self, change: impl FnOnce(InterProcessMutex) -> InterProcessMutex) -> $lock {
                $lock { mutex: change(self.mutex) }
            }
        }

        impl $crate::InterProcessLock for $lock {
            fn acquire(&self) -> $crate::Result<()> {
                self.mutex.acquire()
            }

            fn acquire_timeout(&self, timeout: std::time::Duration) -> $crate::Result<bool> {
                self.mutex.acquire_timeout(timeout)
            }

            fn acquire_with(&self, options: &$crate::AcquireOptions) -> $crate::Result<bool> {
                self.mutex.acquire_with(options)
            }

            fn release(&self) -> $crate::Result<()> {
                self.mutex.release()
            }

            fn is_acquired_in_this_process(&self) -> bool {
                self.mutex.is_acquired_in_this_process()
            }

            fn path(&self) -> Option<&str> {
                Some(self.mutex.internals().base_path())
            }
        }

        impl std::fmt::Debug for $lock {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let path = self.mutex.internals().base_path();
                f.debug_struct(stringify!($lock)).field("path", &path).finish_non_exhaustive()
            }
        }
    };
}

pub(super) use lock_methods;
