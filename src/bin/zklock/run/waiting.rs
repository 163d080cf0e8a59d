//! The display at a terminal while the lock is waited for.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use curator_locks::{CancelToken, CuratorFramework, EntryMode, EntryState, LockKind, LockQueue, QueueEntry};
use parking_lot::Mutex;

use super::mark::{KEEPER, Mark, OUTER};
use crate::{args::Kind, show, voice};

/// A shorter wait is not shown.
const FIRST: Duration = Duration::from_millis(400);
/// The pause between two looks, and how long a caller that gives up waits for the last one.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a look that is under way is asked for a signal.
const STEP: Duration = Duration::from_millis(50);

/// Takes the line away.
const CLEAR: &str = "\r\x1b[2K";
/// A line that is too long is cut at the terminal's edge: of one that goes on below, only the last part could be taken
/// away.
const CUT: &str = "\x1b[?7l";
const DO_NOT_CUT: &str = "\x1b[?7h";

/// One line that is written again and again, on a terminal only. Dropping it takes it away.
pub(super) struct Line {
    stage: Arc<Mutex<Stage>>,
    /// Its end wakes the thread, which is not waited for: it may be asking servers that do not answer.
    _stop: Sender<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Blank,
    Written,
    Over,
}

impl Line {
    pub(super) fn begin(client: &CuratorFramework, is_quiet: bool, paths: Vec<String>) -> Option<Line> {
        if is_quiet || !io::stderr().is_terminal() {
            return None;
        }
        let (stop, stopped) = bounded::<()>(0);
        let stage = Arc::new(Mutex::new(Stage::Blank));
        let (client, begun, shared) = (client.clone(), Instant::now(), Arc::clone(&stage));
        let write = move || {
            let mut pause = FIRST;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let text = describe(&client, &paths).unwrap_or_else(|error| error.to_string());
                let waited = show::brief(begun.elapsed());
                let mut stage = shared.lock();
                if *stage == Stage::Over {
                    return;
                }
                *stage = Stage::Written;
                voice::write(format!("{CLEAR}{CUT}zklock: waiting for {waited}: {text}{DO_NOT_CUT}"));
                pause = PAUSE;
            }
        };
        thread::Builder::new().name("waiting".into()).spawn(write).ok()?;
        Some(Line { stage, _stop: stop })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut stage = self.stage.lock();
        if *stage == Stage::Written {
            voice::write(CLEAR.to_owned());
        }
        *stage = Stage::Over;
    }
}

/// The lock that is waited for. If there are several, the ones before it are held already.
fn describe(client: &CuratorFramework, paths: &[String]) -> curator_locks::Result<String> {
    let session = client.session_id();
    for path in paths {
        let queues = LockQueue::inspect(client, path)?;
        let queue = waited_for(&queues, session);
        if queue.holders().any(|entry| entry.session == session) {
            continue;
        }
        let place = queue.waiters().find(|entry| entry.session == session).map(|entry| entry.state);
        let in_front = match place {
            Some(EntryState::Waits(0)) => "next in line, ".to_owned(),
            Some(EntryState::Waits(others)) => format!("{others} in front, "),
            Some(EntryState::Holds | EntryState::Cached(_)) | None => String::new(),
        };
        let holders = name_holders(queue, session).unwrap_or_else(|| "nobody any more".to_owned());
        return Ok(format!("{path}: {in_front}held by {holders}"));
    }
    Ok("the servers".to_owned())
}

/// The holder of the lock, if the servers say so at once.
pub(super) fn holders(client: &CuratorFramework, path: &str) -> Option<String> {
    let queues = look(client, &[path.to_owned()]).recv_timeout(PAUSE).ok()?.pop()?;
    let session = client.session_id();
    name_holders(waited_for(&queues, session), session)
}

/// The locks at these paths, once the servers have answered. They are asked on a thread of its own: an outage must not keep a
/// finished program alive, nor outlast a timeout.
fn look(client: &CuratorFramework, paths: &[String]) -> Receiver<Vec<LockQueue>> {
    let (tell, told) = bounded(1);
    let (client, paths) = (client.clone(), paths.to_vec());
    let look = move || {
        let queues: curator_locks::Result<Vec<_>> =
            paths.iter().map(|path| LockQueue::inspect(&client, path)).collect();
        if let Ok(queues) = queues {
            // The receiver may be gone.
            let _ = tell.send(queues);
        }
    };
    // Without a thread there is no answer.
    let _ = thread::Builder::new().name("look".into()).spawn(look);
    told
}

/// The answer to a look for locks of other kinds.
pub(super) enum Found {
    Nothing,
    /// This program runs under a lock at this path already, which it will wait for.
    Itself(String),
    /// One that is held or waited for: its path, and what it is.
    Other(String, String),
    /// The servers have not answered in this time, or a signal came first.
    NoAnswer,
}

/// Looks for a lock of another kind at one of these paths.
pub(super) fn other_kind(
    client: &CuratorFramework,
    paths: &[String],
    wanted: &Kind,
    (time, ending): (Duration, &CancelToken),
) -> Found {
    let (told, begun) = (look(client, paths), Instant::now());
    let queues = loop {
        match told.recv_timeout(STEP.min(time.saturating_sub(begun.elapsed()))) {
            Ok(queues) => break queues,
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < time && !ending.is_cancelled() => {}
            Err(_) => return Found::NoAnswer,
        }
    };
    let is_other = |queue: &&LockQueue| {
        let is_wanted = match queue.kind {
            LockKind::Unfair => wanted.unfair,
            LockKind::Semaphore => wanted.semaphore.is_some(),
            // They queue in one directory.
            _ => !wanted.unfair && wanted.semaphore.is_none(),
        };
        // A semaphore is known by its leases: what waits below `<path>/locks` may wait for another lock, which is called so.
        let is_used = if queue.kind == LockKind::Semaphore { queue.is_held() } else { !queue.entries.is_empty() };
        !is_wanted && is_used
    };
    let other = queues.iter().flat_map(|queue| std::iter::once(queue).chain(&queue.beside)).find(is_other);
    let outer = [Mark::all(KEEPER), Mark::all(OUTER)].concat();
    let is_outers = |queue: &&LockQueue| {
        let excludes = |entry: &QueueEntry| !(wanted.shared && entry.mode == EntryMode::Read);
        let mut holders = queue.holders().filter(|entry| outer.iter().any(|mark| mark.session == entry.session));
        queue.kind != LockKind::Semaphore && holders.any(excludes)
    };
    let own = || queues.iter().find(is_outers).map_or(Found::Nothing, |queue| Found::Itself(queue.path.clone()));
    other.map_or_else(own, |other| {
        let by = name_holders(other, client.session_id()).map(|holders| format!(" held by {holders}"));
        Found::Other(other.path.clone(), format!("a lock of kind {}{}", other.kind, by.unwrap_or_default()))
    })
}

/// A path may serve several kinds of locks: this is the one in whose queue this session waits.
fn waited_for(queues: &LockQueue, session: i64) -> &LockQueue {
    let has_entry = |queue: &&LockQueue| queue.entries.iter().any(|entry| entry.session == session);
    std::iter::once(queues).chain(&queues.beside).find(has_entry).unwrap_or(queues)
}

fn name_holders(queue: &LockQueue, session: i64) -> Option<String> {
    let mut others = queue.holders().filter(|entry| entry.session != session);
    let first = others.next()?;
    let name = show::name(first);
    let idle = if show::is_cached(first) { " (or kept idle)" } else { "" };
    let since = format!("{}{idle}", show::brief(show::age(first.since_millis)));
    Some(match others.count() {
        0 => format!("{name} for {since}"),
        more => format!("{name} for {since}, and {more} more"),
    })
}
