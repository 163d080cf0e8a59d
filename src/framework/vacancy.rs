//! What is known of a lock's directory without asking: that nobody came while its last holder left.

use std::{
    cmp,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use super::protected::Listing;
use crate::{
    paths::ServerPath,
    session::{Session, Watch, WatchEvent, Watcher},
};

/// How many holds in a row have to follow each other, once somebody came in between, before the list is left out again.
/// Where it should not have been, it costs a round trip; where it could have been, nobody waits for it.
const TO_FOLLOW: u32 = 8;

/// Follows the directory of one lock from one of its holds to the next, so that a lock that nobody else wants is acquired
/// without a list of children.
///
/// A directory gives the numbers 0, 1, 2.. to the children that are created in it, and none of them twice. So if a znode
/// with number n stood alone there and was deleted, and the next one gets n + 1, then nobody came in between, and the next
/// one stands alone, too. That holds for one and the same directory: removed and made anew, it counts from 0 again, and
/// whoever came meanwhile could bear any number. Therefore a watch on the directory has to be in place from before the
/// delete on, and must not have fired when the reply to the create is here. All of it, the watch, the delete and the
/// create, goes over one connection, on which events come before the replies to what was done after them.
#[derive(Debug, Default)]
pub(crate) struct Vacancy {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Last>,
    /// The number of the latest znode that stood alone, also when `last` says no more.
    latest: Option<u32>,
    /// How many holds in a row still have to follow each other before the list is left out.
    to_follow: u32,
    guard: Option<Arc<Guard>>,
}

/// One connection of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Over {
    session: i64,
    connection: u64,
}

impl Over {
    /// That of this moment.
    fn now(session: &Arc<dyn Session>) -> Over {
        Over { session: session.id(), connection: session.connection() }
    }
}

/// A znode that stood alone in the directory while it held the lock.
#[derive(Debug)]
struct Last {
    number: u32,
    leave: Option<Leave>,
}

#[derive(Debug)]
struct Leave {
    /// The server confirmed the delete.
    is_confirmed: Arc<AtomicBool>,
    /// The watch that was in place before it.
    guard: Option<Arc<Guard>>,
}

/// The watch on the directory.
#[derive(Debug)]
struct Guard {
    over: Over,
    stage: Arc<Mutex<Stage>>,
}

/// Where the watch stands.
#[derive(Debug, Default)]
enum Stage {
    /// It is asked for.
    #[default]
    Requested,
    /// Dropping it gives the watch up.
    InPlace(#[allow(dead_code, reason = "dropped")] Watch),
    /// Something happened to the directory, or to the connection. It says nothing any more, so the watch is given up at
    /// once: a lock that lies idle keeps neither the server busy nor a session that has ended in memory.
    Fired,
}

/// What to send besides a create.
pub(crate) enum Plan {
    /// The request for the list of children.
    List,
    /// That, and one that leaves a watch on the directory.
    ListAndWatch(Guarding),
    /// Nothing: the number of the new znode is likely to say all.
    Nothing(Expectation),
}

/// A watch on the directory that is asked for.
pub(crate) struct Guarding {
    over: Over,
    stage: Arc<Mutex<Stage>>,
}

/// What has to be true for the new znode to stand alone.
pub(crate) struct Expectation {
    last_number: u32,
    over: Over,
    is_gone: Arc<AtomicBool>,
    guard: Arc<Guard>,
}

impl Vacancy {
    /// What has to be sent besides a create.
    pub(crate) fn plan(&self, session: &Arc<dyn Session>) -> Plan {
        if !session.tells_in_order() {
            return Plan::List;
        }
        let over = Over::now(session);
        // While the last one stands, or once it has been followed by another, its number does not help.
        let (last, to_follow) = {
            let mut state = self.state.lock();
            (state.last.take(), state.to_follow)
        };
        // Here nothing is locked: a guard that goes may have to tell the server.
        let Some(Last { number, leave: Some(leave) }) = last else { return Plan::List };
        match (leave.guard.filter(|guard| guard.is_in_place(over)), to_follow) {
            (Some(guard), 0) => {
                Plan::Nothing(Expectation { last_number: number, over, is_gone: leave.is_confirmed, guard })
            }
            // Not with the first hold: many a lock is used once.
            (None, 0 | 1) => Plan::ListAndWatch(Guarding { over, stage: Arc::default() }),
            _ => Plan::List,
        }
    }

    /// The watch that was asked for is in place.
    pub(crate) fn guarded(&self, guarding: Guarding, watch: Watch) {
        let Guarding { over, stage } = guarding;
        let late = {
            let mut stage = stage.lock();
            match *stage {
                Stage::Requested => {
                    *stage = Stage::InPlace(watch);
                    None
                }
                Stage::InPlace(_) | Stage::Fired => Some(watch),
            }
        };
        drop(late);
        let before = self.state.lock().guard.replace(Arc::new(Guard { over, stage }));
        // It may have to tell the server.
        drop(before);
    }

    /// A znode has the lock, and was alone in the list of children.
    pub(crate) fn stands_alone(&self, path: &ServerPath) {
        let number = number_of(path.name());
        let mut state = self.state.lock();
        let mut guard = None;
        if let (Some(number), Some(next)) = (number, state.latest.and_then(|latest| latest.checked_add(1))) {
            match number.cmp(&next) {
                cmp::Ordering::Equal => state.to_follow = state.to_follow.saturating_sub(1),
                cmp::Ordering::Greater => {
                    state.to_follow = TO_FOLLOW;
                    // It would be of no use for long.
                    guard = state.guard.take();
                }
                // In a new directory.
                cmp::Ordering::Less => {}
            }
        }
        state.latest = number;
        let before = std::mem::replace(&mut state.last, number.map(|number| Last { number, leave: None }));
        drop(state);
        // They may have to tell the server.
        drop((before, guard));
    }

    /// The delete of a znode that had the lock is about to be submitted. Gives what to set once it is confirmed.
    pub(crate) fn leaves(&self, path: &ServerPath) -> Option<Arc<AtomicBool>> {
        let mut state = self.state.lock();
        let guard = state.guard.clone();
        let last = state.last.as_mut().filter(|last| last.leave.is_none())?;
        if number_of(path.name()) != Some(last.number) {
            return None;
        }
        let is_confirmed = Arc::<AtomicBool>::default();
        last.leave = Some(Leave { is_confirmed: is_confirmed.clone(), guard });
        Some(is_confirmed)
    }
}

impl Guard {
    fn is_in_place(&self, over: Over) -> bool {
        self.over == over && matches!(*self.stage.lock(), Stage::InPlace(_))
    }
}

impl Guarding {
    pub(crate) fn watcher(&self) -> Watcher {
        // The session has the watcher, and the watch the session.
        let stage = Arc::downgrade(&self.stage);
        Arc::new(move |_: &WatchEvent| {
            let Some(stage) = stage.upgrade() else { return };
            let before = std::mem::replace(&mut *stage.lock(), Stage::Fired);
            // It may have to tell the server.
            drop(before);
        })
    }
}

impl Expectation {
    /// The list of children, after the reply to the create that made `path`; `None` if it has to be asked for.
    pub(crate) fn listing(&self, session: &Arc<dyn Session>, path: &ServerPath) -> Option<Listing> {
        let name = path.name();
        let holds = number_of(name).and_then(|number| number.checked_sub(1)) == Some(self.last_number)
            && self.is_gone.load(Ordering::Acquire)
            && self.guard.is_in_place(self.over)
            && Over::now(session) == self.over;
        holds.then(|| Listing { children: vec![name.to_owned()], connection: self.over.connection })
    }
}

/// The number at the end of a sequential znode's name.
fn number_of(name: &str) -> Option<u32> {
    let digits = name.get(name.len().checked_sub(10)?..)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
