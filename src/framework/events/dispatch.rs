//! Runs user code, on a thread of its own and under no lock.

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use super::event::Task;
use crate::{
    error::{Error, Result},
    panics::caught,
};

/// Runs user callbacks one after the other, in the order in which they were handed in.
pub(crate) struct Dispatcher {
    /// Taken when it is stopped. What came later would keep alive whatever it refers to, the client even.
    tasks: Mutex<Option<Sender<Task>>>,
    /// Taken when it is started.
    queue: Mutex<Option<Receiver<Task>>>,
}

impl Dispatcher {
    pub(crate) fn new() -> Self {
        let (tasks, queue) = unbounded();
        Dispatcher { tasks: Mutex::new(Some(tasks)), queue: Mutex::new(Some(queue)) }
    }

    /// Starts the thread. It ends when `stop` was called and what was handed in before has run.
    pub(crate) fn start(&self) -> Result<()> {
        let Some(queue) = self.queue.lock().take() else { return Ok(()) };
        let run = move || {
            for task in queue {
                // The panic of one listener must not silence the others.
                let _ = caught("a listener", task);
            }
        };
        std::thread::Builder::new()
            .name("curator-dispatch".into())
            .spawn(run)
            .map(drop)
            .map_err(|error| Error::Io { what: "cannot start the dispatch thread".into(), source: error.into() })
    }

    /// Each callback is a task of its own: a panic ends its task.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        if let Some(tasks) = &*self.tasks.lock() {
            // Without a thread nobody is there to be told.
            let _ = tasks.send(Box::new(task));
        }
    }

    pub(crate) fn stop(&self) {
        let tasks = self.tasks.lock().take();
        drop(tasks);
    }
}
