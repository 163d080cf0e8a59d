//! What threads of one process cost without any server: the limit of a cached lock.

use std::{sync::Barrier, thread, time::Duration};

use crossbeam_channel::bounded;
use parking_lot::{ReentrantMutex, RwLock};

use super::{
    side::{Outcome, Side, now, unknown},
    threaded::together,
};

#[derive(Default)]
pub struct Limits {
    mutex: ReentrantMutex<()>,
    shared: RwLock<()>,
}

impl Side for Limits {
    fn answer(&mut self, words: &[&str]) -> Outcome<Vec<u64>> {
        match *words {
            ["connect", _] => Ok(Vec::new()),
            ["reentrant", count] => {
                let count: usize = count.parse()?;
                let begin = now()?;
                for _ in 0..count {
                    drop(std::hint::black_box(&self.mutex).lock());
                }
                Ok(vec![now()? - begin])
            }
            ["reads", threads, count] => {
                let read = || {
                    drop(std::hint::black_box(&self.shared).read());
                    Ok(())
                };
                Ok(vec![together(threads.parse()?, count.parse()?, read)?])
            }
            ["chain", count] => chain(count.parse()?),
            _ => Err(unknown(words)),
        }
    }
}

/// Threads that sleep, each woken by the one before over a channel of its own: when the first was woken, and the last.
fn chain(count: usize) -> Outcome<Vec<u64>> {
    let last = Barrier::new(count + 1);
    let (first, mut next) = bounded::<()>(1);
    let mut ends = Vec::new();
    let mut begin = 0;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|_| {
                let (sender, receiver) = bounded(1);
                let (mine, last) = (std::mem::replace(&mut next, receiver), &last);
                scope.spawn(move || {
                    // As the locks wait, without a spin.
                    let never = crossbeam_channel::never::<()>();
                    crossbeam_channel::select_biased! {
                        recv(mine) -> _ => {}
                        recv(never) -> _ => {}
                    }
                    let at = now();
                    let _ = sender.send(());
                    // The end of a thread costs as much as a hand-over, and is none.
                    last.wait();
                    at
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(100));
        begin = now()?;
        let _ = first.send(());
        last.wait();
        for thread in threads {
            ends.push(thread.join().map_err(|_| "a thread panicked")??);
        }
        Outcome::Ok(())
    })?;
    Ok(vec![begin, ends.into_iter().max().unwrap_or(begin)])
}
