//! Self-fencing: the end of this process before a hold may be another's.

use std::{fmt, time::Duration};

use crate::{
    base::channel::unbounded,
    error::{Error, Result},
    framework::held::{
        changes::HoldState,
        fence::{self, FenceId},
    },
    locks::{holds::hold::Hold, options::acquire::AcquireOptions},
};

/// A fence by which the kernel ends this process before its lock may be another's, whatever keeps its threads from running: dropping it
/// takes the fence away. Made by [`Hold::self_fence`] and [`MultiLockGuard::self_fence`](crate::MultiLockGuard::self_fence).
///
/// A holder may be paused after its last look at its lock (SIGSTOP, a debugger, a page that comes in late, a machine that sleeps),
/// the lock goes to somebody else, and the holder goes on and writes. A fenced process does not go on: a timer of the system is set for
/// [`valid_until`](Hold::valid_until) less the margin, and moved on with each heartbeat that proves the session. If none does, the
/// timer goes off, and SIGKILL reaches also a process that is stopped. There is one timer a process, for the earliest of
/// these moments; it goes on while the system sleeps.
///
/// **A release disarms it, and nothing else does but dropping the `SelfFence`**, and the client's
/// [`close`](crate::CuratorFramework::close); for a leader's term that is the `close` of its latch, or its drop, also after its loss. It lasts as
/// long as the hold, also where the lock object is gone before. A hold that is lost keeps the moment of its last proof, so that its holder has to hear
/// of the loss and to release it, or drop its guard, by then; a hold that [ends after some time](crate::AcquireOptions::hold_at_most) has to be
/// released a margin before. So a process that would rather live watches a [`Deadline`](crate::Deadline)
/// with a larger margin, stops its work and releases; or keeps fewer locks in a process.
///
/// # What it does not do
/// It ends *this process*, in time. What that had handed to the kernel, or to the network, may still arrive later; children that it has
/// started live on. Process 1 of a container is immune from its own signals, so a fence is refused there: start it by an init, such as
/// tini. A virtual machine that is paused as a whole may not see time pass: the timer is as good as
/// `CLOCK_BOOTTIME`. Storage that checks the [fencing token](Hold::fencing_token) refuses those too. For some 10 ms after the last
/// release the timer stays set, as short holds follow each other: a process that is stopped just then, and
/// for as long, ends as well.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::time::Duration;
/// # use curator_locks::InterProcessMutex;
///
/// # if cfg!(target_os = "linux") {
/// # let mutex = InterProcessMutex::new(client, "/locks/ledger")?;
/// let held = mutex.lock()?;
/// let fence = held.self_fence(Duration::from_millis(200))?;
/// // ... write to what nothing else guards ...
/// drop(fence); // or `held.release()` right away
/// held.release()?;
/// # }
/// # Ok(()) });
/// ```
#[must_use = "the fence is taken away at once if it is not kept"]
pub struct SelfFence {
    ids: Vec<FenceId>,
}

impl SelfFence {
    pub(in crate::locks) fn new(holds: &[Hold], margin: Duration) -> Result<SelfFence> {
        // Those that are armed before one fails are disarmed with it.
        let mut armed = SelfFence { ids: Vec::with_capacity(holds.len()) };
        for hold in holds {
            armed.ids.push(arm(hold, margin)?);
        }
        Ok(armed)
    }

    /// Ends the process by SIGABRT, which leaves a core where the system is told to, instead of SIGKILL. A process that is
    /// stopped then ends when it goes on, and another of its threads may run for a moment before; one that handles or blocks
    /// that signal does not end.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use std::time::Duration;
    /// # if cfg!(target_os = "linux") {
    /// # let mutex = curator_locks::InterProcessMutex::new(client, "/example")?;
    /// let held = mutex.lock()?;
    /// let fence = held.self_fence(Duration::from_millis(200))?.aborting()?;
    /// # drop(fence);
    /// # held.release()?;
    /// # }
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if the system has no timer left.
    pub fn aborting(self) -> Result<SelfFence> {
        fence::abort(&self.ids).map_err(refused)?;
        Ok(self)
    }
}

impl Drop for SelfFence {
    fn drop(&mut self) {
        fence::disarm(&self.ids);
    }
}

impl fmt::Debug for SelfFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SelfFence")
    }
}

fn refused(source: std::io::Error) -> Error {
    Error::Io { what: "cannot set a timer that ends this process".to_owned(), source: source.into() }
}

fn arm(hold: &Hold, margin: Duration) -> Result<FenceId> {
    let held = hold.node();
    let timeout = held.session().timeout();
    if margin > timeout / 3 {
        let rule =
            format!("at most a third of the session timeout, which is {timeout:?}: a healthy session has that left");
        return Err(Error::InvalidArgument { name: "margin", value: format!("{margin:?}"), rule });
    }
    let armed = held.arm_fence(margin).map_err(refused)?;
    armed.ok_or_else(|| {
        let path = hold.path().to_owned();
        match (held.lost(), hold.state()) {
            (Some(reason), _) => Error::LockLost { path, reason },
            (None, HoldState::Released) => Error::NotOwner { path, detail: "that hold was released before".to_owned() },
            _ => Error::Uncertain { path, wanted: margin, after: timeout },
        }
    })
}

/// Acquires, and fences what was got, if the options ask for that; gives it back if that fails.
pub(in crate::locks) fn fenced<H>(
    options: &AcquireOptions,
    enter: impl FnOnce(&AcquireOptions) -> Result<Option<H>>,
    holds_of: impl FnOnce(&H) -> Vec<Hold>,
    give_back: impl FnOnce(H),
) -> Result<Option<H>> {
    // A multi lock fences what it has got of its members.
    let Some(margin) = options.self_fence.filter(|_| !options.is_member) else { return enter(options) };
    let (sender, put_off) = unbounded();
    let Some(held) = enter(&AcquireOptions { put_off: Some(sender), ..options.clone() })? else { return Ok(None) };
    // Those that are entered again have theirs.
    let mut holds = holds_of(&held);
    holds.retain(|hold| !hold.node().is_fenced_by(margin));
    match SelfFence::new(&holds, margin) {
        Ok(mut fence) => {
            // They go with their holds.
            fence.ids.clear();
            holds.iter().for_each(|hold| hold.node().keeps_fence(margin));
            put_off.try_iter().for_each(|last| options.when_all_is_had(last));
            Ok(Some(held))
        }
        Err(error) => {
            give_back(held);
            Err(error)
        }
    }
}

impl Hold {
    /// Ends this process when no more than this margin is left of the time for which the hold is certain, unless it is released
    /// before, or the [`SelfFence`] is dropped. Blocks only until the timer is set, some 50 µs if none was; with a fence a cycle of a mutex costs
    /// up to 2 % more, and one of a cached lock 0.4 µs.
    ///
    /// The margin is for the clocks' rates, and for what is under way to the storage: a tenth of the session timeout is plenty. At
    /// most a third may be asked for, as a healthy session has 0.40 of it left right before a heartbeat, on a quick link. On a slow
    /// one it has less, 0.17 where the round trip is a quarter of the session timeout, and the process ends once the margin is
    /// larger than that. Where servers lower the session timeout, the process may end a twentieth of it late.
    /// It works for every kind of hold: a lock, a lease, a leader's term, also of a lock that is [cached](crate::Caching).
    ///
    /// # Errors
    /// [`Error::Io`] of the kind [`Unsupported`](std::io::ErrorKind::Unsupported) on a system other than Linux, and for process 1 of
    /// a container; of others where the
    /// system has no timer or thread left; [`Error::InvalidArgument`] for too large a margin; [`Error::Uncertain`] if the hold is
    /// certain for no longer than the margin, [`Error::LockLost`] if it is lost, [`Error::NotOwner`] if it was released.
    pub fn self_fence(&self, margin: Duration) -> Result<SelfFence> {
        SelfFence::new(std::slice::from_ref(self), margin)
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        base::{clock, paths::ServerPath},
        framework::{
            events::{dispatch::Dispatcher, event::event_channel},
            held::registry::HeldNodes,
        },
        session::fake::stub::StubSession,
    };

    const MARGIN: Duration = Duration::from_secs(1);

    #[test]
    fn a_hold_that_is_entered_again_and_again_has_one_fence() {
        let said = StubSession::new();
        *said.valid_until.lock() = Some(clock::now() + MARGIN * 3600);
        let nodes = HeldNodes::new(None, event_channel().0, Arc::new(Dispatcher::new()), Arc::default());
        let held = nodes.add(ServerPath::from_server("/held"), said, 3, 1, None);
        let hold = Hold::new(held.clone(), "/held".to_owned(), None);
        let enter = |margin| {
            let options = AcquireOptions::new().self_fence(margin);
            fenced(&options, |_| Ok(Some(())), |()| vec![hold.clone()], drop).unwrap();
            held.fences()
        };
        assert_eq!((0..5).map(|_| enter(MARGIN)).max(), Some(1));
        assert_eq!([enter(MARGIN * 2), enter(MARGIN), enter(MARGIN * 2)], [2; 3], "the larger margin counts");
        held.released();
        assert_eq!(held.fences(), 0);
    }
}
