//! Which threads of this process hold a lock through one object.

use std::{
    collections::HashMap,
    sync::Arc,
    thread::{self, ThreadId},
};

use crossbeam_channel::{Receiver, select};
use parking_lot::Mutex;

use super::{Hold, internals::LockInternals};
use crate::{Error, Result, framework::HeldNode, session::Stop};

/// Where one thread stands.
#[derive(Debug)]
enum Owner {
    /// It holds the lock, this many times.
    Holds { held: Arc<HeldNode>, count: usize },
    /// It gave the lock back and the server has not confirmed that. The channel is disconnected when the znode is gone.
    Releasing(Receiver<()>),
}

/// The threads that hold a re-entrant lock.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    threads: Mutex<HashMap<ThreadId, Owner>>,
}

impl Owners {
    /// Counts one more hold of the calling thread. `None`: it holds nothing yet.
    pub(crate) fn enter_again(&self, lock: &LockInternals) -> Result<Option<Arc<HeldNode>>> {
        match self.threads.lock().get_mut(&thread::current().id()) {
            Some(Owner::Holds { held, count }) => {
                if let Some(reason) = held.lost() {
                    return Err(lock.lost(reason));
                }
                *count += 1;
                Ok(Some(held.clone()))
            }
            Some(Owner::Releasing(_)) | None => Ok(None),
        }
    }

    pub(crate) fn entered(&self, lock: &LockInternals, held: Arc<HeldNode>) {
        lock.register(&held);
        self.threads.lock().insert(thread::current().id(), Owner::Holds { held, count: 1 });
    }

    /// Counts one hold of the calling thread less, and gives the lock back with the last. Who names the holds it means, as a
    /// guard does, releases no later one.
    pub(crate) fn release(&self, lock: &LockInternals, named: &[Hold]) -> Result<()> {
        let me = thread::current().id();
        let held = {
            let mut threads = self.threads.lock();
            match threads.get_mut(&me) {
                Some(Owner::Holds { held, .. }) if !is_meant(held, named) => {
                    return Err(self.not_owner(lock, &threads));
                }
                Some(Owner::Holds { held, count }) if *count > 1 => {
                    *count -= 1;
                    return held.lost().map_or(Ok(()), |reason| Err(lock.lost(reason)));
                }
                Some(Owner::Holds { held, .. }) => held.clone(),
                Some(Owner::Releasing(done)) => {
                    let done = done.clone();
                    drop(threads);
                    return self.await_release(lock, &done);
                }
                None => return Err(self.not_owner(lock, &threads)),
            }
        };
        lock.unregister(&held);
        let (result, job) = lock.release(&held);
        let mut threads = self.threads.lock();
        match job {
            None => {
                threads.remove(&me);
            }
            Some(mut job) => {
                threads.insert(me, Owner::Releasing(job.done()));
                drop(threads);
                lock.client().core.clean_up(job);
            }
        }
        result
    }

    /// The background has yet to hear that the znode is gone.
    fn await_release(&self, lock: &LockInternals, done: &Receiver<()>) -> Result<()> {
        let client = lock.client();
        let result = select! {
            recv(done) -> _ => client.core.check_open(),
            recv(client.core.closed.signal()) -> _ => Err(Error::ClientClosed),
            recv(crossbeam_channel::after(client.session_timeout())) -> _ => {
                return Err(client.call("release", lock.base_path(), Stop::default()).connection_loss());
            }
        };
        self.threads.lock().remove(&thread::current().id());
        result
    }

    /// Forgets one hold of the calling thread; the last one is handed out, to be given back without waiting. Does
    /// nothing if that hold was released before.
    pub(crate) fn leave(&self, lock: &LockInternals, own: &Arc<HeldNode>) -> Option<Arc<HeldNode>> {
        let me = thread::current().id();
        let held = {
            let mut threads = self.threads.lock();
            match threads.get_mut(&me)? {
                Owner::Holds { held, .. } if !Arc::ptr_eq(own, held) => return None,
                Owner::Holds { count, .. } if *count > 1 => {
                    *count -= 1;
                    return None;
                }
                Owner::Holds { held, .. } => {
                    let held = held.clone();
                    threads.remove(&me);
                    held
                }
                Owner::Releasing(_) => return None,
            }
        };
        lock.unregister(&held);
        Some(held)
    }

    /// [`leave`](Self::leave) for these holds, or whatever the thread holds if none is named; the last one is given back
    /// without waiting.
    pub(crate) fn abandon(&self, lock: &LockInternals, named: &[Hold]) {
        let meant = self.current().filter(|held| is_meant(held, named));
        if let Some(held) = meant.and_then(|held| self.leave(lock, &held)) {
            lock.release_in_background(&held);
        }
    }

    fn not_owner(&self, lock: &LockInternals, threads: &HashMap<ThreadId, Owner>) -> Error {
        let others = threads.values().filter(|owner| matches!(owner, Owner::Holds { .. })).count();
        let detail = match others {
            0 => "no thread holds it through this object".to_owned(),
            _ if threads.contains_key(&thread::current().id()) => "the guard's hold was released before".to_owned(),
            _ => "another thread of this process holds it; the thread that acquires has to release".to_owned(),
        };
        Error::NotOwner { path: lock.base_path().to_owned(), detail }
    }

    /// Whether any thread holds the lock, or gave it back without the server's confirmation.
    pub(crate) fn is_any(&self) -> bool {
        let mut threads = self.threads.lock();
        threads.retain(|_, owner| !owner.is_over());
        !threads.is_empty()
    }

    pub(crate) fn is_current(&self) -> bool {
        matches!(self.threads.lock().get(&thread::current().id()), Some(Owner::Holds { .. }))
    }

    pub(crate) fn current(&self) -> Option<Arc<HeldNode>> {
        match self.threads.lock().get(&thread::current().id())? {
            Owner::Holds { held, .. } => Some(held.clone()),
            Owner::Releasing(_) => None,
        }
    }
}

/// Whether a call is about this hold: it names it, or none.
pub(super) fn is_meant(held: &Arc<HeldNode>, named: &[Hold]) -> bool {
    named.is_empty() || named.iter().any(|hold| Arc::ptr_eq(hold.node(), held))
}

impl Owner {
    fn is_over(&self) -> bool {
        match self {
            Owner::Holds { .. } => false,
            Owner::Releasing(done) => done.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected),
        }
    }
}
