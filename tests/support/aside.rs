//! A thread that looks on beside a test until it is told to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

pub struct Aside<T> {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Aside<T> {
    /// It looks by itself whether it is over.
    pub fn run(work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Aside<T> {
        let is_over = Arc::<AtomicBool>::default();
        let told = is_over.clone();
        Aside { is_over, thread: thread::spawn(move || work(&told)) }
    }

    /// Tells it to end, and gives what it has seen.
    pub fn end(self) -> T {
        self.is_over.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}
