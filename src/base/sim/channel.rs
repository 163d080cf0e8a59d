//! The channels of simulated threads. A channel that another thread has made is `crossbeam-channel`'s.

use std::{collections::VecDeque, fmt, panic::Location, sync::Arc, time::Duration};

pub use crossbeam_channel::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use parking_lot::Mutex;

use super::{
    Until, Wake, What,
    caller::Me,
    me,
    select::{Selectable, selectable, wait},
    thread::in_time,
};

pub struct Sender<T>(Tx<T>);

pub struct Receiver<T>(Rx<T>);

enum Tx<T> {
    Real(crossbeam_channel::Sender<T>),
    Simulated(Arc<Shared<T>>),
}

enum Rx<T> {
    Real(crossbeam_channel::Receiver<T>),
    Simulated(Arc<Shared<T>>),
    Never,
}

/// Locked for moments, in which no other thread runs: never while a message is dropped.
type Shared<T> = Mutex<State<T>>;

struct State<T> {
    queue: VecDeque<T>,
    capacity: usize,
    senders: usize,
    receivers: usize,
    /// Messages that were taken so far: with no room at all, a sender waits until its own was.
    taken: u64,
    sent: u64,
    /// Receivers that wait: where there is no room, `try_send` needs one.
    waiting: usize,
}

pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    match me() {
        None => real(crossbeam_channel::unbounded()),
        Some(_) => simulated(usize::MAX),
    }
}

pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    match me() {
        None => real(crossbeam_channel::bounded(capacity)),
        Some(_) => simulated(capacity),
    }
}

pub fn never<T>() -> Receiver<T> {
    match me() {
        None => Receiver(Rx::Real(crossbeam_channel::never())),
        Some(_) => Receiver(Rx::Never),
    }
}

fn real<T>(
    (sender, receiver): (crossbeam_channel::Sender<T>, crossbeam_channel::Receiver<T>),
) -> (Sender<T>, Receiver<T>) {
    (Sender(Tx::Real(sender)), Receiver(Rx::Real(receiver)))
}

fn simulated<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let queue = VecDeque::new();
    let state = State { queue, capacity, senders: 1, receivers: 1, taken: 0, sent: 0, waiting: 0 };
    let shared = Arc::new(Mutex::new(state));
    (Sender(Tx::Simulated(shared.clone())), Receiver(Rx::Simulated(shared)))
}

fn receivers_key<T>(shared: &Arc<Shared<T>>) -> usize {
    Arc::as_ptr(shared).addr()
}

fn senders_key<T>(shared: &Arc<Shared<T>>) -> usize {
    receivers_key(shared) + 2
}

fn wake(key: usize) {
    if let Some(me) = me() {
        me.run.wake(key);
    }
}

fn point(at: &'static Location<'static>) {
    if let Some(me) = me() {
        me.point(at);
    }
}

impl<T> Sender<T> {
    #[track_caller]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let shared = match &self.0 {
            Tx::Real(sender) => return sender.send(message),
            Tx::Simulated(shared) => shared,
        };
        let at = Location::caller();
        point(at);
        let me = me();
        loop {
            let mut state = shared.lock();
            if state.receivers == 0 {
                return Err(SendError(message));
            }
            if state.queue.len() < state.capacity.max(1) {
                let number = state.push(message);
                let has_room = state.capacity > 0;
                drop(state);
                wake(receivers_key(shared));
                return if has_room { Ok(()) } else { await_taking(shared, number, me.as_deref(), at) };
            }
            drop(state);
            let Some(me) = &me else { return Err(SendError(message)) };
            me.wait(&[senders_key(shared)], Until::Woken, What { label: "room in a channel", at });
        }
    }

    #[track_caller]
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let shared = match &self.0 {
            Tx::Real(sender) => return sender.try_send(message),
            Tx::Simulated(shared) => shared,
        };
        point(Location::caller());
        let mut state = shared.lock();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(message));
        }
        let room = if state.capacity == 0 { state.waiting } else { state.capacity };
        if state.queue.len() >= room {
            return Err(TrySendError::Full(message));
        }
        state.push(message);
        drop(state);
        wake(receivers_key(shared));
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Tx::Real(sender) => sender.is_empty(),
            Tx::Simulated(shared) => shared.lock().queue.is_empty(),
        }
    }

    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        match (&self.0, &other.0) {
            (Tx::Real(one), Tx::Real(other)) => one.same_channel(other),
            (Tx::Simulated(one), Tx::Simulated(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Waits until the message was taken, or no receiver is left: then takes it back.
fn await_taking<T>(
    shared: &Arc<Shared<T>>,
    number: u64,
    me: Option<&Me>,
    at: &'static Location<'static>,
) -> Result<(), SendError<T>> {
    loop {
        let mut state = shared.lock();
        if state.taken > number {
            return Ok(());
        }
        let is_over = state.receivers == 0 || me.is_none_or(|me| me.run.is_ending());
        // There is one message at most.
        if let Some(message) = is_over.then(|| state.queue.pop_front()).flatten() {
            return Err(SendError(message));
        }
        drop(state);
        if let Some(me) = me {
            me.wait(&[senders_key(shared)], Until::Woken, What { label: "a receiver", at });
        }
    }
}

impl<T> State<T> {
    fn push(&mut self, message: T) -> u64 {
        self.queue.push_back(message);
        self.sent += 1;
        self.sent - 1
    }
}

/// Takes the next message, without a step.
fn take<T>(shared: &Arc<Shared<T>>) -> Result<T, TryRecvError> {
    let mut state = shared.lock();
    match state.queue.pop_front() {
        Some(message) => {
            state.taken += 1;
            let is_bounded = state.capacity < usize::MAX;
            drop(state);
            if is_bounded {
                wake(senders_key(shared));
            }
            Ok(message)
        }
        None if state.senders == 0 => Err(TryRecvError::Disconnected),
        None => Err(TryRecvError::Empty),
    }
}

impl<T> Receiver<T> {
    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match &self.0 {
            Rx::Real(receiver) => receiver.try_recv(),
            Rx::Simulated(shared) => {
                point(Location::caller());
                take(shared)
            }
            Rx::Never => Err(TryRecvError::Empty),
        }
    }

    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        match &self.0 {
            Rx::Real(receiver) => receiver.recv(),
            _ => self.recv_until(None, Location::caller()).map_err(|_| RecvError),
        }
    }

    #[track_caller]
    pub fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        match &self.0 {
            Rx::Real(receiver) => receiver.recv_timeout(time),
            _ => self.recv_until(me().map(|me| in_time(&me, time, Location::caller())), Location::caller()),
        }
    }

    fn recv_until(&self, until: Option<Until>, at: &'static Location<'static>) -> Result<T, RecvTimeoutError> {
        point(at);
        let (until, what) = (until.unwrap_or(Until::Woken), What { label: "a message", at });
        loop {
            if let Some(polled) = self.poll() {
                return polled.map_err(|_| RecvTimeoutError::Disconnected);
            }
            // Only simulated threads wait for simulated threads.
            let Some(me) = me() else { return Err(RecvTimeoutError::Timeout) };
            if wait(&me, &[selectable(self)], until, what) == Wake::TimedOut && !self.is_ready() {
                return Err(RecvTimeoutError::Timeout);
            }
        }
    }

    /// The next message, or that none will come, without a step; `None`: not now.
    pub(super) fn poll(&self) -> Option<Result<T, RecvError>> {
        let polled = match &self.0 {
            Rx::Real(receiver) => receiver.try_recv(),
            Rx::Simulated(shared) => take(shared),
            Rx::Never => Err(TryRecvError::Empty),
        };
        match polled {
            Ok(message) => Some(Ok(message)),
            Err(TryRecvError::Disconnected) => Some(Err(RecvError)),
            Err(TryRecvError::Empty) => None,
        }
    }

    pub fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Rx::Real(receiver) => receiver.len(),
            Rx::Simulated(shared) => shared.lock().queue.len(),
            Rx::Never => 0,
        }
    }
}

impl<T: 'static> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = Box<dyn Iterator<Item = T>>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(std::iter::from_fn(move || self.recv().ok()))
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(match &self.0 {
            Tx::Real(sender) => Tx::Real(sender.clone()),
            Tx::Simulated(shared) => {
                shared.lock().senders += 1;
                Tx::Simulated(shared.clone())
            }
        })
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver(match &self.0 {
            Rx::Real(receiver) => Rx::Real(receiver.clone()),
            Rx::Simulated(shared) => {
                shared.lock().receivers += 1;
                Rx::Simulated(shared.clone())
            }
            Rx::Never => Rx::Never,
        })
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let Tx::Simulated(shared) = &self.0 else { return };
        let mut state = shared.lock();
        state.senders -= 1;
        if state.senders == 0 {
            drop(state);
            wake(receivers_key(shared));
            if let Some(me) = me() {
                me.point_in_drop();
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let Rx::Simulated(shared) = &self.0 else { return };
        let mut state = shared.lock();
        state.receivers -= 1;
        // With no room, the message is its sender's until it was taken.
        if state.receivers == 0 && state.capacity > 0 {
            let messages = std::mem::take(&mut state.queue);
            drop(state);
            drop(messages);
        } else {
            drop(state);
        }
        wake(senders_key(shared));
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender { .. }")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver { .. }")
    }
}

impl<T> Selectable for Receiver<T> {
    fn is_ready(&self) -> bool {
        match &self.0 {
            Rx::Real(receiver) => {
                let mut select = crossbeam_channel::Select::new();
                select.recv(receiver);
                select.try_ready().is_ok()
            }
            Rx::Simulated(shared) => {
                let state = shared.lock();
                !state.queue.is_empty() || state.senders == 0
            }
            Rx::Never => false,
        }
    }

    fn key(&self) -> Option<usize> {
        if let Rx::Simulated(shared) = &self.0 { Some(receivers_key(shared)) } else { None }
    }

    fn waits(&self, begins: bool) {
        if let Rx::Simulated(shared) = &self.0 {
            let mut state = shared.lock();
            state.waiting = if begins { state.waiting + 1 } else { state.waiting - 1 };
        }
    }

    fn register<'a>(&'a self, select: &mut crossbeam_channel::Select<'a>) {
        if let Rx::Real(receiver) = &self.0 {
            select.recv(receiver);
        }
    }
}
