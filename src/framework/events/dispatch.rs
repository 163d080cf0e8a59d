//! Runs user code, on a thread of its own and under no lock.

use std::cell::Cell;

use super::event::Task;
use crate::{
    base::{
        channel::{Receiver, Sender, unbounded},
        panics::caught,
        sync::Mutex,
        threads::spawn,
    },
    error::Result,
};

thread_local! {
    static IS_LISTENER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs a listener, which must not wait until other listeners were told.
pub(crate) fn is_listener() -> bool {
    IS_LISTENER.get()
}

/// Runs a listener. It must not panic.
pub(crate) fn as_listener(run: impl FnOnce()) {
    let before = IS_LISTENER.replace(true);
    run();
    IS_LISTENER.set(before);
}

/// Runs user callbacks one after the other, in the order in which they were handed in.
pub(crate) struct Dispatcher {
    /// Taken by `stop`. A later task would keep alive all that it refers to, even the client.
    tasks: Mutex<Option<Sender<Task>>>,
    /// Taken when it is started.
    queue: Mutex<Option<Receiver<Task>>>,
}

impl Dispatcher {
    pub(crate) fn new() -> Self {
        let (tasks, queue) = unbounded();
        Dispatcher { tasks: Mutex::new(Some(tasks)), queue: Mutex::new(Some(queue)) }
    }

    /// Starts the thread. It ends when `stop` was called and all earlier tasks have run.
    pub(crate) fn start(&self) -> Result<()> {
        let Some(queue) = self.queue.lock().take() else { return Ok(()) };
        spawn("curator-dispatch", move || {
            as_listener(|| {
                for task in queue {
                    // The panic of one listener must not silence the others.
                    let _ = caught("a listener", task);
                }
            });
        })
    }

    /// Runs one callback. Give each callback a task of its own: a panic ends its task. `false`: stopped before.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) -> bool {
        let tasks = self.tasks.lock();
        if let Some(tasks) = &*tasks {
            // The send fails only if the thread has gone: then no listener can be told.
            let _ = tasks.send(Box::new(task));
        }
        tasks.is_some()
    }

    pub(crate) fn stop(&self) {
        let tasks = self.tasks.lock().take();
        drop(tasks);
    }
}
