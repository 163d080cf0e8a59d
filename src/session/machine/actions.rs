//! The actions that follow from an input, and carrying them out.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
};

use crate::{
    base::{log, panics::message},
    proto::response::Response,
    session::api::{OnReply, SessionError, SessionEvent, SessionObserver, WatchEvent, Watcher},
};

/// An action for the owner of the machine, in this order, after it has let go of the machine.
pub(crate) enum Action<C = OnReply, W = Watcher> {
    /// Hand a reply to its receiver.
    Complete(C, Result<Response, SessionError>),
    /// Tell a watcher.
    Notify(W, WatchEvent),
    /// Tell the client.
    Raise(SessionEvent),
    /// Drop a receiver that is not called any more. Its contents may go with it, a session even, and that needs the machine.
    DropCompletion(C),
    /// As `DropCompletion`.
    DropWatcher(W),
    /// Log this. A logger may take its time.
    Log(log::Level, String),
}

/// Carries out the actions of a state machine; called without a lock, as it runs callers' code. If an action panics the
/// rest is done all the same, before the panic goes on: a waiter that is not told of its watch would sleep for ever. On
/// a thread that unwinds already it does not go on: a session may be dropped or ended there, and a panic that leaves a
/// drop then aborts the process.
pub(crate) fn carry_out(actions: Vec<Action>, observer: &SessionObserver) {
    let mut first_panic = None;
    for action in actions {
        let act = || match action {
            Action::Complete(on_reply, reply) => on_reply(reply),
            Action::Notify(watcher, event) => watcher(&event),
            Action::Raise(event) => observer(event),
            Action::DropCompletion(on_reply) => drop(on_reply),
            Action::DropWatcher(watcher) => drop(watcher),
            Action::Log(level, text) => log::log!(level, "{text}"),
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(act)) {
            first_panic.get_or_insert(panic);
        }
    }
    match first_panic {
        Some(panic) if thread::panicking() => log::error!("a callback of the session panicked: {}", message(&*panic)),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}
