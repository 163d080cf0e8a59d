//! The cases. Each takes a lock's description and makes its own world.

/// One line for each module with its cases; behind a bar those that take long.
macro_rules! cases {
    ($($module:ident: $($case:ident),* $(| $($slow:ident),*)?;)*) => {
        $(
            mod $module;
            pub(crate) use $module::{$($case,)* $($($slow),*)?};
        )*

        /// Gives the name of each case to another macro.
        macro_rules! for_each_case {
            ($macro:ident) => {
                $($($macro! { $case })*)*

                mod slow {
                    #[allow(unused_imports, reason = "some locks are without what takes long")]
                    use super::*;

                    $($($($macro! { $slow })*)?)*
                }
            };
        }
        pub(crate) use for_each_case;
    };
}

cases! {
    acquiring: acquire_and_release, hand_over, timeout, zero_time, time_already_up, longest_time, vanishing_directory,
        refused_directory, long_wait, cancel, reentrancy;
    releasing: release_of_nothing, release_by_another_thread, locker, stale_locker, guard_drop, guard_release,
        guard_knows, guard_tokens_grow, guard_send, released_changes, panic_while_holding;
    exclusion: exclusion_of_its_own_kind, exclusion_over_threads, exclusion_over_clients, exclusion_over_processes,
        fifo, namespace, container_cleanup;
    faults: session_loss_of_holder, session_loss_of_waiter, unknown_session, server_restart, close_of_waiter,
        close_of_holder, client_that_is_not_open | vanished_servers;
    endings: stale_release, released_hold, release_after_close, refused_release, refused_withdrawal;
    doubts: lost_member | old_answer, slow_link;
}

use curator_locks::{Hold, Result};

use super::{
    seam::{PATIENCE, Receiver, Scope, ScopedThread, Sender, Start, unbounded},
    subject::Lock,
};

pub(crate) use doubts::paused_child;

/// A thread that acquires a lock, says so, and releases it when it is told to.
struct Waiter<'scope> {
    granted: Receiver<Result<Vec<Hold>>>,
    release: Sender<()>,
    thread: ScopedThread<'scope, Result<()>>,
}

impl<'scope> Waiter<'scope> {
    fn start(scope: &'scope Scope<'scope, '_>, lock: &'scope dyn Lock) -> Waiter<'scope> {
        let (say, granted) = unbounded();
        let (release, go_on) = unbounded();
        let thread = scope.start(move || {
            let result = lock.acquire().map(|()| lock.holds());
            let is_granted = result.is_ok();
            // A case that has failed listens no more, and tells no more.
            let _ = say.send(result);
            let _ = go_on.recv();
            if is_granted { lock.release() } else { Ok(()) }
        });
        Waiter { granted, release, thread }
    }

    #[track_caller]
    fn is_granted(&self) -> bool {
        self.ended().is_some_and(|result| result.is_ok())
    }

    /// How its acquire has ended.
    fn ended(&self) -> Option<Result<Vec<Hold>>> {
        self.granted.try_recv().ok()
    }

    /// How its acquire ends.
    #[track_caller]
    fn outcome(&self) -> Result<Vec<Hold>> {
        self.granted.recv_timeout(PATIENCE).expect("it still waits")
    }

    /// What its thread knows of the lock then.
    #[track_caller]
    fn await_grant(&self) -> Vec<Hold> {
        self.outcome().unwrap()
    }

    #[track_caller]
    fn release(self) {
        self.release.send(()).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}
