//! What a person at a terminal sees while the lock is waited for.

use std::{
    io::{self, IsTerminal, Write},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crossbeam_channel::{Sender, after, bounded, select};
use curator_locks::{CuratorFramework, EntryState, LockQueue};

use crate::{args::Run, show};

/// Who waits for a shorter time is not told of it.
const FIRST: Duration = Duration::from_millis(400);
const PAUSE: Duration = Duration::from_secs(1);

/// One line that is written again and again, on a terminal only. Dropping it takes it away.
pub(super) struct Line {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Line {
    pub(super) fn begin(client: &CuratorFramework, args: &Run) -> Option<Line> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let (stop, stopped) = bounded::<()>(0);
        let (client, path, begun) = (client.clone(), args.path.clone(), Instant::now());
        let write = move || {
            let mut pause = FIRST;
            loop {
                select! {
                    recv(stopped) -> _ => break,
                    recv(after(pause)) -> _ => {}
                }
                let text = LockQueue::inspect(&client, &path).map(|queue| describe(&queue, client.session_id()));
                let text = text.unwrap_or_else(|error| error.to_string());
                let waited = show::brief(begun.elapsed());
                let _ = write!(io::stderr(), "\r\x1b[2Kzklock: waiting for {path} since {waited}: {text}");
                pause = PAUSE;
            }
            if pause == PAUSE {
                let _ = write!(io::stderr(), "\r\x1b[2K");
            }
        };
        let thread = thread::Builder::new().name("waiting".into()).spawn(write).ok()?;
        Some(Line { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn describe(queue: &LockQueue, session: i64) -> String {
    let in_front = queue.waiters().find(|entry| entry.session == session).map(|entry| match entry.state {
        EntryState::Waits(0) => "next in line, ".to_owned(),
        EntryState::Waits(others) => format!("{others} in front, "),
        EntryState::Holds => String::new(),
    });
    format!("{}held by {}", in_front.unwrap_or_default(), name_holders(queue, session))
}

/// Who else holds the lock.
pub(super) fn holders(client: &CuratorFramework, path: &str) -> Option<String> {
    let queue = LockQueue::inspect(client, path).ok().filter(LockQueue::is_held)?;
    Some(name_holders(&queue, client.session_id()))
}

fn name_holders(queue: &LockQueue, session: i64) -> String {
    let mut others = queue.holders().filter(|entry| entry.session != session);
    let Some(first) = others.next() else { return "nobody any more".to_owned() };
    let name = match show::data(first) {
        data if data.is_empty() => format!("session {:#x}", first.session),
        data => data,
    };
    let since = show::brief(show::age(first.since_millis));
    match others.count() {
        0 => format!("{name} for {since}"),
        more => format!("{name} for {since}, and {more} more"),
    }
}
