//! What the two halves of a read/write lock have in common: a mutex does the work.

/// The methods of one half. The attributes are those of `acquire`.
macro_rules! half_methods {
    ($lock:ident, $(#[$acquire:meta])*) => {
        $crate::locks::methods::thread_lock_methods! { $lock, $(#[$acquire])* }

        impl $lock {
            /// The paths of all contenders of this kind, in the order of the queue.
            ///
            /// # Errors
            /// As every operation on a znode.
            pub fn participant_nodes(&self) -> $crate::Result<Vec<String>> {
                self.mutex.participant_nodes_of_kind()
            }

            /// Has the listener told when somebody asks for the lock with [`Revoker`](crate::Revoker); see
            /// [`InterProcessMutex::make_revocable`]. Java: `makeRevocable`.
            pub fn make_revocable(&self, listener: impl RevocationListener<$lock>) {
                self.mutex.revocable(listener, None, |mutex| $lock { mutex });
            }

            /// The same, but `executor` runs the listener; see [`InterProcessMutex::make_revocable_with_executor`].
            pub fn make_revocable_with_executor(
                &self,
                listener: impl RevocationListener<$lock>,
                executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
            ) {
                self.mutex.revocable(listener, Some(Box::new(executor)), |mutex| $lock { mutex });
            }

            /// What the lock stands on.
            #[must_use]
            pub fn internals(&self) -> &LockInternals {
                self.mutex.internals()
            }

            pub(super) fn map(self, change: impl FnOnce(InterProcessMutex) -> InterProcessMutex) -> $lock {
                $lock { mutex: change(self.mutex) }
            }

            fn parts(&self) -> (&Arc<LockInternals>, &Arc<Owners>) {
                self.mutex.parts()
            }

            fn enter(&self, options: &AcquireOptions) -> Result<Option<Arc<HeldNode>>> {
                self.mutex.enter(options)
            }
        }

        impl Revocable<$lock> for $lock {
            fn make_revocable(&self, listener: impl RevocationListener<$lock>) {
                $lock::make_revocable(self, listener);
            }

            fn make_revocable_with_executor(
                &self,
                listener: impl RevocationListener<$lock>,
                executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
            ) {
                $lock::make_revocable_with_executor(self, listener, executor);
            }
        }
    };
}

pub(super) use half_methods;
