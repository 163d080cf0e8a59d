//! The two halves of a read/write lock: a mutex does the work of each.

use std::sync::Arc;

use crate::{
    error::Result,
    framework::held::node::HeldNode,
    locks::{
        acquire::{internals::LockInternals, owners::Owners},
        face::{
            guard::LockGuard,
            methods::{revocable_methods, thread_lock_methods},
        },
        mutex::InterProcessMutex,
        options::acquire::AcquireOptions,
    },
};

/// One half. The attributes are those of the type and of `acquire`.
macro_rules! half {
    ($(#[$doc:meta])* $lock:ident, $(#[$acquire:meta])*) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $lock {
            pub(super) mutex: InterProcessMutex,
        }

        thread_lock_methods! { $lock, $(#[$acquire])* }

        impl $lock {
            /// The paths of all contenders of this kind, in the order of the queue. With
            /// [caching](crate::InterProcessReadWriteLock::with_caching) one znode stands for many threads.
            ///
            /// # Errors
            /// As [every operation on a znode](crate::operations#errors).
            pub fn participant_nodes(&self) -> Result<Vec<String>> {
                self.mutex.participant_nodes_of_kind()
            }

            /// The lock's internals: its directory and its driver.
            #[must_use]
            pub fn internals(&self) -> &LockInternals {
                self.mutex.internals()
            }

            fn parts(&self) -> (&Arc<LockInternals>, &Arc<Owners>) {
                self.mutex.parts()
            }

            fn enter(&self, options: &AcquireOptions) -> Result<Option<Arc<HeldNode>>> {
                self.mutex.enter(options)
            }
        }

        revocable_methods! { $lock, |lock| lock.mutex, |mutex| $lock { mutex },
            /// Calls the listener when somebody asks for the lock with [`Revoker`](crate::Revoker); see
            /// [`InterProcessMutex::make_revocable`]. Java: `makeRevocable`.
        }
    };
}

half! {
    /// The lock that readers share; see [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock). Java:
    /// `InterProcessReadWriteLock.ReadLock`.
    ///
    /// It waits for every writer in front of it, and watches the last of them, so it is woken once.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// use std::time::Duration;
    /// use curator_locks::{AcquireOptions, InterProcessReadWriteLock};
    ///
    /// let lock = InterProcessReadWriteLock::new(&client, "/locks/catalogue")?;
    /// let reading = lock.read_lock();
    /// reading.make_revocable(|lock: &curator_locks::InterProcessReadLock| println!("somebody wants {}", lock.lock_path().unwrap_or_default()));
    /// assert!(reading.acquire_timeout(Duration::from_secs(5))?);
    /// assert!(reading.is_owned_by_current_thread() && reading.is_acquired_in_this_process());
    /// assert_eq!(reading.participant_nodes()?, [reading.lock_path().ok_or("not held")?]);
    /// reading.release()?;
    ///
    /// let held = reading.lock()?; // or as a guard
    /// held.release()?;
    /// if let Some(held) = reading.lock_with(&AcquireOptions::new().timeout(Duration::from_secs(5)))? {
    ///     held.release()?;
    /// }
    /// if let Some(held) = reading.try_lock()? {
    ///     held.release()?;
    /// }
    /// # Ok(()) });
    /// ```
    InterProcessReadLock,
    /// Acquires the lock, waiting as long as it takes, also
    /// [when the connection goes](crate::InterProcessReadWriteLock#when-the-connection-goes). If this thread holds it
    /// already, only its hold count grows, without a request; if it holds the write lock, it gets this one at once.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire). [`Error::LockLost`](crate::Error::LockLost)
    /// also for a thread whose write lock was lost. [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) for a thread
    /// that holds a mutex or a write lock on this path through another object of this client: it would wait for itself.
    /// If it holds a read lock through another object and a writer queues in between, it waits and logs a warning, as
    /// that writer may give up.
}

half! {
    /// The lock that a writer has alone; see [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock). Java:
    /// `InterProcessReadWriteLock.WriteLock`.
    ///
    /// It waits for every contender in front of it, and watches the last of them.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// use std::time::Duration;
    /// use curator_locks::{AcquireOptions, InterProcessReadWriteLock};
    ///
    /// let lock = InterProcessReadWriteLock::new(&client, "/locks/catalogue")?;
    /// let writing = lock.write_lock();
    /// writing.make_revocable(|lock: &curator_locks::InterProcessWriteLock| println!("somebody wants {}", lock.lock_path().unwrap_or_default()));
    /// assert!(writing.acquire_timeout(Duration::from_secs(5))?);
    /// assert!(writing.is_owned_by_current_thread() && writing.is_acquired_in_this_process());
    /// assert_eq!(writing.participant_nodes()?, [writing.lock_path().ok_or("not held")?]);
    /// writing.release()?;
    ///
    /// let held = writing.lock()?; // or as a guard
    /// held.release()?;
    /// if let Some(held) = writing.lock_with(&AcquireOptions::new().timeout(Duration::from_secs(5)))? {
    ///     held.release()?;
    /// }
    /// if let Some(held) = writing.try_lock()? {
    ///     held.release()?;
    /// }
    /// # Ok(()) });
    /// ```
    InterProcessWriteLock,
    /// Acquires the lock, waiting as long as it takes, also
    /// [when the connection goes](crate::InterProcessReadWriteLock#when-the-connection-goes). If this thread holds it
    /// already, only its hold count grows, without a request.
    ///
    /// # Errors
    /// As [`InterProcessLock::acquire`](crate::InterProcessLock::acquire).
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) for a thread that holds the read lock, or a lock on this
    /// path through another object of this client: it would wait for itself.
}
