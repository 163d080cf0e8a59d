//! A holder's knowledge of its lock.

use std::{fmt, sync::Arc, thread, time::Instant};

use crate::{
    base::{clock, log},
    framework::held::{
        changes::{HoldState, StateChanges},
        node::HeldNode,
        waited_for::WaitedFor,
    },
    locks::holds::{
        death::{Heard, UncleanDeath},
        fencing::token::FencingToken,
    },
};

/// A held lock, as its holder knows it: the part that all guards and [leases](crate::Lease) have in common.
///
/// Nothing here talks to a server, and nothing blocks. A clone is the same hold, for another thread to look at. A hold
/// that outlives its release says that it is
/// [`Released`](HoldState::Released), from the moment in which the release begins; its fencing token stays readable. One
/// that was [`Lost`](HoldState::Lost) before that stays lost.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use curator_locks::HoldState;
/// # let mutex = &curator_locks::InterProcessMutex::new(client, "/example")?;
/// let held = mutex.lock()?;
/// println!("{} with token {}", held.path(), held.fencing_token());
/// assert!(held.is_valid() && !held.is_lost());
/// let outlives = mutex.hold();
/// held.release()?;
/// assert_eq!(outlives.map(|hold| hold.state()), Some(HoldState::Released));
/// # Ok(()) });
/// ```
///
/// Listening for changes, and for the time that is left:
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::{sync::mpsc, time::{Duration, Instant}};
/// use curator_locks::{Hold, HoldState, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?;
/// mutex.acquire()?; // without a guard
/// let hold: Hold = mutex.hold().ok_or("not held")?;
/// assert!(hold.valid_until() > Instant::now() && hold.revocation().is_none());
/// assert!(hold.unclean_deaths().is_empty());
/// let (tell, told) = mpsc::channel();
/// hold.on_state_change(move |state| tell.send(state).unwrap_or_default());
/// let near = hold.deadline(Duration::from_secs(3));
/// assert!(near.is_empty());
/// mutex.release()?;
/// assert_eq!(told.recv()?, HoldState::Released);
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Hold {
    held: Arc<HeldNode>,
    path: String,
    heard: Option<Arc<Heard>>,
}

impl Hold {
    /// `path` is the znode's path as the caller sees it.
    pub(in crate::locks) fn new(held: Arc<HeldNode>, path: String, heard: Option<Arc<Heard>>) -> Hold {
        Hold { held, path, heard }
    }

    pub(crate) fn node(&self) -> &Arc<HeldNode> {
        &self.held
    }

    /// A number that is larger than the tokens of all earlier grants that exclude this one, over all processes: for an
    /// exclusive lock or a writer all earlier grants, for a reader all earlier writers.
    ///
    /// Grants that may stand side by side are in no order: readers that are woken together, or leases of a semaphore, those of
    /// one acquire included. A writer that goes on as a reader keeps its token.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::of_grant(self.held.token(), self.held.grant_number())
    }

    /// Up to this moment the servers cannot have given the lock to anybody else, unless somebody deletes its znode.
    ///
    /// It moves on with every heartbeat, a quarter of the session timeout apart. Once the lock is lost or released, it
    /// lies in the past. It goes by a clock that goes on while the system sleeps, and is worked out at the call: after a sleep ask anew,
    /// or [`is_valid`](Hold::is_valid). It rests on assumptions (clocks that run at one rate; a session timeout of at least two of the server's ticks; a leader that is not cut off from the
    /// other servers, but for [`quorum_heartbeats`](crate::Builder::quorum_heartbeats)), so it is a bound and no proof: the
    /// proof is the [fencing token](Hold::fencing_token).
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        clock::on_the_standard_clock(self.held.valid_until())
    }

    /// Whether the lock is held for certain right now. It is not once [`valid_until`](Hold::valid_until) has passed, nor after
    /// a reconnect until the server has confirmed the znode.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.state() == HoldState::Held
    }

    /// Whether the lock is gone for certain, and not by its holder's own release.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.state(), HoldState::Lost(_))
    }

    /// The state of the hold right now.
    ///
    /// When the lock's znode is gone, the state is [`InDoubt`](HoldState::InDoubt) until the servers have said why:
    /// [`Lost`](HoldState::Lost) because somebody deleted it, or because the session has ended. That takes one round trip,
    /// and while the connection is gone as long as that lasts. `release` and re-entry do not wait for it: in between they
    /// fail with [`Error::LockLost`](crate::Error::LockLost) and
    /// [`NodeDeleted`](crate::LostReason::NodeDeleted), or [`SessionExpired`](crate::LostReason::SessionExpired) if that is
    /// known by then.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.held.state(clock::now())
    }

    /// Every change of the state from now on, in order, as a channel for `select!`. The current state comes first, unless
    /// it is [`Held`](HoldState::Held); after [`Lost`](HoldState::Lost) or [`Released`](HoldState::Released) the channel
    /// ends.
    ///
    /// A state that is over before the client's thread comes to it is not told: a lock whose znode was deleted may be told as
    /// lost, and not as in doubt before.
    ///
    /// Each call makes a channel of its own, with all changes. So ask once, in front of a loop: in the loop a lock in doubt
    /// would be told as in doubt in each round.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use curator_locks::HoldState;
    /// # let (send, work) = crossbeam_channel::unbounded();
    /// # send.send(1)?;
    /// # drop(send);
    /// # let mutex = &curator_locks::InterProcessMutex::new(client, "/example")?;
    /// let held = mutex.lock()?;
    /// let changes = held.state_changes();
    /// loop {
    ///     crossbeam_channel::select! {
    ///         recv(changes) -> state => match state {
    ///             Ok(HoldState::Held) => println!("go on"),
    ///             Ok(HoldState::InDoubt) => println!("write nothing for now"),
    ///             _ => break,
    ///         },
    ///         recv(work) -> next => match next {
    ///             Ok(number) => println!("{number}"),
    ///             Err(_) => break,
    ///         },
    ///     }
    /// }
    /// held.release()?;
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn state_changes(&self) -> StateChanges {
        self.held.channel()
    }

    /// Calls the listener on every change of the state from now on, in order, on the client's dispatch thread and under no
    /// lock. The current state comes first, unless it is [`Held`](HoldState::Held); [`Lost`](HoldState::Lost) or
    /// [`Released`](HoldState::Released) is the last.
    pub fn on_state_change(&self, listener: impl Fn(HoldState) + Send + Sync + 'static) {
        self.held.listen(Arc::new(listener));
    }

    /// The holders that went without releasing the lock since its last release; none for a lock that does not listen
    /// for deaths.
    #[must_use]
    pub fn unclean_deaths(&self) -> &[UncleanDeath] {
        self.heard.as_ref().map_or(&[], |heard| &heard.deaths)
    }

    /// The contender that was in front last while the acquire waited, and for how long that was; `None` if it found nobody in front.
    ///
    /// This is what the acquire has read anyway, and no request more: with [`WaitStrategy::WatchPredecessor`](crate::WaitStrategy),
    /// the default, the name, the session and the data of the contender in front, with the other strategies its name. For a
    /// semaphore's lease it is the contender in front in the semaphore's queue; for the first one there, the lease that it waited
    /// for, by its name. In a long queue the one in front is a waiter like this one, and not the holder of that moment.
    ///
    /// A hold that waited at no server has none: a re-entry has what the first hold of its thread has, and of a lock [with
    /// caching](crate::Caching) only the first hold of each tenure can have waited there. A multi lock's holds have each their
    /// own. Of a lost hold it stays readable.
    #[must_use]
    pub fn waited_for(&self) -> Option<&WaitedFor> {
        self.held.waited_for()
    }

    /// The path of the lock's own znode, as the client sees it: without the namespace and the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("path", &self.path).field("state", &self.state()).finish_non_exhaustive()
    }
}

/// Logs that a guard was dropped by a thread that unwinds: its lock is released, and its work perhaps half done.
pub(in crate::locks) fn note_panic(hold: &Hold) {
    if thread::panicking() && !hold.is_lost() {
        log::warn!("{}: the holder's thread panicked; its lock is released", hold.path());
    }
}
