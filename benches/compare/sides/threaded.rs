//! Sides whose threads block in a lock.

use std::{
    collections::HashMap,
    sync::{
        Arc, Barrier, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::side::{Outcome, Side, now, unknown};

/// A lock that threads share.
pub trait Lock: Send + Sync {
    fn acquire(&self) -> Outcome<()>;
    fn release(&self) -> Outcome<()>;
    /// Does not wait.
    fn try_acquire(&self) -> Outcome<bool> {
        Err("this side cannot try".into())
    }
}

/// A client library.
pub trait Library {
    type Client;
    fn connect(&self, address: &str) -> Outcome<Self::Client>;
    fn close(&self, client: Self::Client);
    fn lock(&self, client: &Self::Client, kind: &str, path: &str) -> Outcome<Arc<dyn Lock>>;
    /// How many children a znode has, 0 if there is none.
    fn children(&self, client: &Self::Client, path: &str) -> Outcome<usize>;
    /// What only this library can be asked.
    fn answer(&mut self, _client: Option<&Self::Client>, words: &[&str]) -> Outcome<Vec<u64>> {
        Err(unknown(words))
    }
}

pub struct Threaded<L: Library> {
    library: L,
    address: String,
    shared: Option<L::Client>,
    own: Vec<L::Client>,
    queue: Option<Queue>,
    held: Option<Arc<dyn Lock>>,
    /// The locks on many paths, which last from one round to the next.
    many: HashMap<String, Vec<Arc<dyn Lock>>>,
    /// Those of batches, which do so too.
    kept: HashMap<String, Arc<dyn Lock>>,
}

impl<L: Library> Threaded<L> {
    pub fn new(library: L) -> Threaded<L> {
        Threaded {
            library,
            address: String::new(),
            shared: None,
            own: Vec::new(),
            queue: None,
            held: None,
            many: HashMap::new(),
            kept: HashMap::new(),
        }
    }

    fn lock(&self, kind: &str, path: &str) -> Outcome<Arc<dyn Lock>> {
        self.library.lock(self.shared()?, kind, path)
    }

    fn kept(&mut self, kind: &str, path: &str) -> Outcome<Arc<dyn Lock>> {
        let lock = match self.kept.get(path) {
            Some(lock) => lock.clone(),
            None => self.lock(kind, path)?,
        };
        self.kept.insert(path.to_owned(), lock.clone());
        Ok(lock)
    }

    fn shared(&self) -> Outcome<&L::Client> {
        self.shared.as_ref().ok_or_else(|| "not connected".into())
    }

    fn queue(&mut self, is_shared: bool, path: &str, count: usize, is_held: bool) -> Outcome<()> {
        while !is_shared && self.own.len() < count {
            self.own.push(self.library.connect(&self.address)?);
        }
        let common = self.lock("mutex", path)?;
        if is_held {
            common.acquire()?;
        }
        let locks = (0..count).map(|index| match self.own.get(index) {
            Some(client) if !is_shared => self.library.lock(client, "mutex", path),
            _ => Ok(common.clone()),
        });
        let locks = locks.collect::<Outcome<Vec<_>>>()?;
        self.queue = Some(Queue::start(is_held.then_some(common), locks));
        while self.library.children(self.shared()?, path)? < count + 1 {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl<L: Library> Side for Threaded<L> {
    fn answer(&mut self, words: &[&str]) -> Outcome<Vec<u64>> {
        match *words {
            ["connect", address] => {
                self.address = address.to_owned();
                self.shared = Some(self.library.connect(address)?);
                Ok(Vec::new())
            }
            ["cycles", kind, path, count] => {
                let (lock, count) = (self.lock(kind, path)?, count.parse()?);
                timed(|done| done >= count, || lock.acquire().and_then(|()| lock.release()))
            }
            ["batch", kind, path, count] => {
                let count: usize = count.parse()?;
                let lock = self.kept(kind, path)?;
                lock.acquire().and_then(|()| lock.release())?;
                let begin = now()?;
                for _ in 0..count {
                    lock.acquire()?;
                    lock.release()?;
                }
                Ok(vec![now()? - begin])
            }
            ["batches", kind, path, threads, count] => {
                let (lock, threads, count) = (self.kept(kind, path)?, threads.parse()?, count.parse()?);
                Ok(vec![batches(&*lock, threads, count)?])
            }
            ["hammer", path, millis] => {
                let (lock, end) = (self.lock("mutex", path)?, now()? + millis.parse::<u64>()? * 1_000_000);
                timed(|_| now().is_ok_and(|now| now >= end), || lock.acquire().and_then(|()| lock.release()))
            }
            ["waits", path, millis] => {
                let (lock, end) = (self.lock("mutex", path)?, now()? + millis.parse::<u64>()? * 1_000_000);
                let mut waits = Vec::new();
                while now()? < end {
                    waits.append(&mut timed(|done| done > 0, || lock.acquire())?);
                    lock.release()?;
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(waits)
            }
            ["queue", sessions, path, count, held] => {
                self.queue(sessions == "shared", path, count.parse()?, held == "held")?;
                Ok(Vec::new())
            }
            ["first"] => self.queue.as_ref().ok_or("no queue")?.first(),
            ["drain"] => self.queue.take().ok_or("no queue")?.drain(),
            ["forget"] => {
                for client in self.own.drain(..) {
                    self.library.close(client);
                }
                Ok(Vec::new())
            }
            ["hold", path] => {
                let lock = self.lock("mutex", path)?;
                lock.acquire()?;
                self.held = Some(lock);
                Ok(Vec::new())
            }
            ["unhold"] => {
                let released = now()?;
                self.held.take().ok_or("nothing held")?.release()?;
                Ok(vec![released])
            }
            ["try", path, count] => {
                let (lock, count) = (self.lock("mutex", path)?, count.parse()?);
                timed(
                    |done| done >= count,
                    || if lock.try_acquire()? { Err("the lock was free".into()) } else { Ok(()) },
                )
            }
            ["many", prefix, paths, threads, millis] => {
                let (paths, threads): (usize, usize) = (paths.parse()?, threads.parse()?);
                if !self.many.contains_key(prefix) {
                    let locks = (0..paths).map(|index| self.lock("mutex", &format!("{prefix}/{index}")));
                    let locks = locks.collect::<Outcome<Vec<_>>>()?;
                    self.many.insert(prefix.to_owned(), locks);
                }
                let locks = self.many.get(prefix).ok_or("no locks")?;
                run(threads, millis.parse()?, |thread| {
                    let mut mine = locks.iter().skip(thread).step_by(threads).cycle();
                    move || {
                        let lock = mine.next().ok_or("no path")?;
                        lock.acquire()?;
                        lock.release()
                    }
                })
            }
            ["mix", kind, path, threads, millis] => {
                let (usual, rare) = match kind {
                    "read_write" => (self.lock("read", path)?, Some(self.lock("write", path)?)),
                    _ => (self.lock(kind, path)?, None),
                };
                run(threads.parse()?, millis.parse()?, |thread| {
                    let mut chance = fastrand::Rng::with_seed(thread as u64);
                    let (usual, rare) = (usual.clone(), rare.clone());
                    move || {
                        let lock = rare.as_ref().filter(|_| chance.u8(..10) == 0).unwrap_or(&usual);
                        lock.acquire()?;
                        lock.release()
                    }
                })
            }
            _ => self.library.answer(self.shared.as_ref(), words),
        }
    }
}

/// How long threads took for so many cycles each, from when all of them were there.
fn batches(lock: &dyn Lock, threads: usize, count: usize) -> Outcome<u64> {
    let cycle = || lock.acquire().and_then(|()| lock.release());
    cycle()?;
    together(threads, count, cycle)
}

/// How long threads take that each do so many cycles at the same time.
pub fn together(threads: usize, count: usize, cycle: impl Fn() -> Outcome<()> + Sync) -> Outcome<u64> {
    let all = Barrier::new(threads);
    thread::scope(|scope| {
        // Each looks at the clock by itself: who only waits for them may be woken when they are half through.
        let work = || {
            all.wait();
            let begin = now()?;
            for _ in 0..count {
                cycle()?;
            }
            Outcome::Ok((begin, now()?))
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let (mut begin, mut end) = (u64::MAX, 0);
        for thread in threads {
            let (begun, ended) = thread.join().map_err(|_| "a thread panicked")??;
            (begin, end) = (begin.min(begun), end.max(ended));
        }
        Outcome::Ok(end - begin)
    })
}

/// How long each call of `work` took.
fn timed(mut is_over: impl FnMut(usize) -> bool, mut work: impl FnMut() -> Outcome<()>) -> Outcome<Vec<u64>> {
    let mut times = Vec::new();
    while !is_over(times.len()) {
        let begin = now()?;
        work()?;
        times.push(now()? - begin);
    }
    Ok(times)
}

/// Runs a task on threads for a while: how often all of them together did it, and the time that took.
fn run<'a, T: FnMut() -> Outcome<()> + Send + 'a>(
    threads: usize,
    millis: u64,
    task_of: impl Fn(usize) -> T,
) -> Outcome<Vec<u64>> {
    let (ready, go, end, cycles) =
        (Barrier::new(threads + 1), Barrier::new(threads + 1), AtomicU64::new(0), AtomicU64::new(0));
    let mut took = 0;
    thread::scope(|scope| {
        let tasks = (0..threads).map(|thread| {
            let mut task = task_of(thread);
            let (ready, go, end, cycles) = (&ready, &go, &end, &cycles);
            scope.spawn(move || {
                let warm = task();
                ready.wait();
                go.wait();
                warm?;
                while now()? < end.load(Ordering::Relaxed) {
                    task()?;
                    cycles.fetch_add(1, Ordering::Relaxed);
                }
                Outcome::Ok(())
            })
        });
        let tasks: Vec<_> = tasks.collect();
        ready.wait();
        let begin = now()?;
        end.store(begin + millis * 1_000_000, Ordering::Relaxed);
        go.wait();
        for task in tasks {
            task.join().map_err(|_| "a thread panicked")??;
        }
        took = now()? - begin;
        Outcome::Ok(())
    })?;
    Ok(vec![cycles.load(Ordering::Relaxed), took])
}

/// Waiters behind one holder.
struct Queue {
    holder: Option<Arc<dyn Lock>>,
    grants: Arc<Mutex<Vec<u64>>>,
    waiters: Vec<JoinHandle<Outcome<()>>>,
}

impl Queue {
    fn start(holder: Option<Arc<dyn Lock>>, locks: Vec<Arc<dyn Lock>>) -> Queue {
        let grants = Arc::new(Mutex::new(Vec::with_capacity(locks.len())));
        // The end of a thread costs as much as a hand-over, and is none.
        let last = Arc::new(Barrier::new(locks.len()));
        let waiters = locks.into_iter().map(|lock| {
            let (grants, last) = (grants.clone(), last.clone());
            thread::spawn(move || {
                let passed = lock.acquire().and_then(|()| {
                    grants.lock().unwrap_or_else(PoisonError::into_inner).push(now()?);
                    lock.release()
                });
                last.wait();
                passed
            })
        });
        let waiters = waiters.collect();
        Queue { holder, grants, waiters }
    }

    /// When the first of them was granted, once one was.
    fn first(&self) -> Outcome<Vec<u64>> {
        loop {
            if let Some(first) = self.grants.lock().unwrap_or_else(PoisonError::into_inner).first() {
                return Ok(vec![*first]);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn drain(self) -> Outcome<Vec<u64>> {
        let mut times = vec![now()?];
        if let Some(holder) = self.holder {
            holder.release()?;
        }
        for waiter in self.waiters {
            waiter.join().map_err(|_| "a waiter panicked")??;
        }
        times.append(&mut self.grants.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(times)
    }
}
