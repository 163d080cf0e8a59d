//! The candidate of this crate: a child process that understands the same lines as `tests/peers/LeaderPeer.java`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{Sender, bounded, select};
use curator_locks::{
    CloseMode, CuratorFramework, LeaderLatch, LeaderLatchListener, LeaderSelector, Leadership, Participant, Result,
    RetryForever,
};
use parking_lot::Mutex;

use crate::{
    login,
    rust_peer::describe,
    support::{self, child, history::shared_clock},
};

/// How often a leader asks whether it leads.
const POLL: Duration = Duration::from_millis(2);

trait Candidate {
    /// Gives leadership up and queues again, behind all others.
    fn resign(&mut self) -> Result<()>;

    fn participants(&self) -> Result<Vec<Participant>>;
}

/// `CONNECT NAMESPACE SESSION-MILLISECONDS ID`
pub(crate) fn run(arguments: &[String]) {
    let session = Duration::from_millis(arguments[2].parse().unwrap());
    let builder = support::builder_at(&arguments[0], &arguments[1]).session_timeout(session);
    let builder = builder.retry_policy(RetryForever::new(Duration::from_millis(20)));
    let client = support::connect(login::log_in(builder));
    child::say(&format!("ready {}", describe(&client)));
    let mut candidate: Option<Box<dyn Candidate>> = None;
    loop {
        let line = child::listen();
        let words: Vec<&str> = line.split(' ').collect();
        match (words[0], &mut candidate) {
            ("latch", none) => *none = Some(Box::new(Latch::join(&client, words[1], &arguments[3]).unwrap())),
            ("selector", none) => *none = Some(Box::new(Selector::join(&client, words[1], &arguments[3]).unwrap())),
            ("resign", Some(candidate)) => candidate.resign().unwrap(),
            ("participants", Some(candidate)) => {
                let seen = candidate.participants().unwrap();
                let mark = |one: &Participant| if one.is_leader() { "*" } else { "" };
                let seen: Vec<String> = seen.iter().map(|one| format!("{}{}", one.id(), mark(one))).collect();
                child::say(&format!("participants {}", seen.join(" ")));
            }
            ("session", _) => child::say(&format!("session {}", describe(&client))),
            ("quit", _) => {
                client.close();
                child::say("bye");
                std::process::exit(0);
            }
            _ => panic!("{line}"),
        }
    }
}

/// Says that it leads, and in the end that it does not: when it was told so, and when it last asked and still did.
struct Term {
    asked: Arc<AtomicU64>,
}

impl Term {
    fn begin(leadership: &Leadership) -> Term {
        let began = shared_clock();
        child::say(&format!("leads {began}"));
        let asked = Arc::new(AtomicU64::new(began));
        let (last, leadership) = (asked.clone(), leadership.clone());
        thread::spawn(move || {
            loop {
                // The clock comes first: who leads later led then, whatever pause lies in between.
                let at = shared_clock();
                if !leadership.has_leadership() {
                    return;
                }
                last.store(at, Ordering::SeqCst);
                thread::sleep(POLL);
            }
        });
        Term { asked }
    }

    fn end(self) {
        child::say(&format!("ends {} {}", shared_clock(), self.asked.load(Ordering::SeqCst)));
    }
}

struct Latch {
    client: CuratorFramework,
    path: String,
    id: String,
    latch: LeaderLatch,
}

#[derive(Default)]
struct Teller(Mutex<Option<Term>>);

impl LeaderLatchListener for Teller {
    fn is_leader(&self, leadership: &Leadership) {
        *self.0.lock() = Some(Term::begin(leadership));
    }

    fn not_leader(&self) {
        if let Some(term) = self.0.lock().take() {
            term.end();
        }
    }
}

impl Latch {
    fn join(client: &CuratorFramework, path: &str, id: &str) -> Result<Latch> {
        let latch = LeaderLatch::new(client, path)?.with_id(id).with_close_mode(CloseMode::NotifyLeader);
        latch.add_listener(Teller::default());
        latch.start()?;
        Ok(Latch { client: client.clone(), path: path.to_owned(), id: id.to_owned(), latch })
    }
}

impl Candidate for Latch {
    fn resign(&mut self) -> Result<()> {
        self.latch.close()?;
        *self = Latch::join(&self.client, &self.path, &self.id)?;
        Ok(())
    }

    fn participants(&self) -> Result<Vec<Participant>> {
        self.latch.participants()
    }
}

struct Selector {
    selector: LeaderSelector,
    resigns: Sender<()>,
}

impl Selector {
    fn join(client: &CuratorFramework, path: &str, id: &str) -> Result<Selector> {
        let (resigns, resigned) = bounded(1);
        let selector = LeaderSelector::new(client, path, move |_: &CuratorFramework, leadership: &Leadership| {
            let _ = resigned.try_recv();
            let term = Term::begin(leadership);
            select! {
                recv(leadership.cancelled()) -> _ => {}
                recv(resigned) -> _ => {}
            }
            term.end();
            Ok(())
        })?;
        selector.set_id(id);
        selector.auto_requeue();
        selector.start()?;
        Ok(Selector { selector, resigns })
    }
}

impl Candidate for Selector {
    fn resign(&mut self) -> Result<()> {
        let _ = self.resigns.try_send(());
        Ok(())
    }

    fn participants(&self) -> Result<Vec<Participant>> {
        self.selector.participants()
    }
}
