//! What is in front of a waiter's predecessor, looked at before it matters.
//!
//! When the predecessor is deleted, a waiter has the lock without another listing if it knows that the predecessor held
//! it. Of a predecessor in another session it learns that only from a listing made after all in front of it were gone. So
//! it watches the contender in front of its predecessor, too, and lists when that one is gone: while the predecessor holds
//! the lock, not while nobody does. The waiter itself sleeps on, since all of it happens where replies arrive.
//!
//! It is a hint: whatever goes wrong with it, the waiter lists when its predecessor is gone.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::{
    framework::Listing,
    proto::{ErrorCode, EventType, Request, Response},
    session::{Reply, Session, SessionError, Submission, Ticket, Watch, WatchEvent, Watcher},
};

/// Called with the listing that was waited for, or with `None` if it failed.
pub(super) type OnListing = Box<dyn Fn(Option<Listing>) + Send + Sync>;

/// One look at what is in front of a predecessor.
pub(super) struct Ahead {
    look: Arc<Look>,
    #[allow(dead_code, reason = "dropping it gives the watch up")]
    watch: Watch,
}

/// What the look has come to when the predecessor is gone.
#[derive(Debug)]
pub(super) enum Seen {
    /// This stood in the directory after all in front of the predecessor were gone.
    Listing(Listing),
    /// The listing is under way and will be handed over.
    Coming,
    Nothing,
}

struct Look {
    session: Weak<dyn Session>,
    list: Request,
    on_listing: OnListing,
    state: Mutex<State>,
}

enum State {
    /// The contender in front of the predecessor is still there.
    Watching,
    /// The directory is being listed; whether the waiter waits for that.
    Asking {
        is_waited_for: bool,
    },
    Known(Listing),
    Over,
}

impl Ahead {
    /// Begins with a watch on the contender at `path`, in front of the predecessor. Does not wait for anything.
    pub(super) fn watch(session: &Arc<dyn Session>, path: String, list: Request, on_listing: OnListing) -> Ahead {
        let state = Mutex::new(State::Watching);
        let look = Arc::new(Look { session: Arc::downgrade(session), list, on_listing, state });
        let (watching, answered) = (look.clone(), look.clone());
        let watcher: Watcher = Arc::new(move |event: &WatchEvent| {
            if matches!(event, WatchEvent::Node { event: EventType::NodeDeleted, .. }) {
                watching.ask();
            }
        });
        let on_reply = Box::new(move |reply: Reply| {
            if matches!(reply, Err(SessionError::Server(ErrorCode::NoNode))) {
                answered.ask();
            }
        });
        let request = Request::GetData { path, watch: true };
        let tickets = session.submit(vec![Submission { request, watcher: Some(watcher), on_reply }]);
        let watch = Watch::new(session.clone(), tickets.first().copied().unwrap_or(Ticket(0)));
        Ahead { look, watch }
    }

    /// The predecessor is gone. After [`Seen::Coming`] the listing is handed over in any case.
    pub(super) fn seen(&self) -> Seen {
        let mut state = self.look.state.lock();
        match std::mem::replace(&mut *state, State::Over) {
            State::Known(listing) => Seen::Listing(listing),
            State::Asking { .. } => {
                *state = State::Asking { is_waited_for: true };
                Seen::Coming
            }
            State::Watching | State::Over => Seen::Nothing,
        }
    }
}

impl Look {
    /// Lists the directory, once.
    fn ask(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if !matches!(*state, State::Watching) {
                return;
            }
            *state = State::Asking { is_waited_for: false };
        }
        let Some(session) = self.session.upgrade() else { return self.answered(None) };
        let (look, connection) = (self.clone(), session.connection());
        let on_reply = Box::new(move |reply: Reply| {
            look.answered(match reply {
                Ok(Response::Children { names, .. }) => Some(Listing { children: names, connection }),
                _ => None,
            });
        });
        session.submit(vec![Submission { request: self.list.clone(), watcher: None, on_reply }]);
    }

    fn answered(&self, listing: Option<Listing>) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Asking { is_waited_for: true }) {
            *state = listing.map_or(State::Over, State::Known);
            return;
        }
        *state = State::Over;
        drop(state);
        (self.on_listing)(listing);
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").finish_non_exhaustive()
    }
}
