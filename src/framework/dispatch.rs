//! Runs user code, on a thread of its own and under no lock.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::{Error, Result};

enum Task {
    Run(Box<dyn FnOnce() + Send>),
    Stop,
}

/// Runs user callbacks one after the other, in the order in which they were handed in.
pub(crate) struct Dispatcher {
    tasks: Sender<Task>,
    queue: Receiver<Task>,
}

impl Dispatcher {
    pub(crate) fn new() -> Self {
        let (tasks, queue) = unbounded();
        Dispatcher { tasks, queue }
    }

    /// Starts the thread. It ends when `stop` was called and what was handed in before has run.
    pub(crate) fn start(&self) -> Result<()> {
        let queue = self.queue.clone();
        let run = move || {
            while let Ok(Task::Run(task)) = queue.recv() {
                // The panic of one listener must not silence the others. The panic hook has reported it.
                let _ = catch_unwind(AssertUnwindSafe(task));
            }
        };
        std::thread::Builder::new()
            .name("curator-dispatch".into())
            .spawn(run)
            .map(drop)
            .map_err(|error| Error::Io { what: "cannot start the dispatch thread".into(), source: error.into() })
    }

    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        // The queue lives as long as this object.
        let _ = self.tasks.send(Task::Run(Box::new(task)));
    }

    pub(crate) fn stop(&self) {
        let _ = self.tasks.send(Task::Stop);
    }
}
