//! Whether the servers show znodes that were deleted.
//!
//! A follower that has missed transactions after an election shows such a znode until the next one, and some elections bring it
//! back at all servers: whoever queues there waits, whatever its client does. A list tells it from a lock's own fault. It is
//! asked for behind a write, which needs a quorum, so that a server that lacks a znode which another one has shown before is one
//! that knows of its end, and whoever shows it later does not.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use crate::{
    GROUPS, NAMESPACE, SESSION,
    support::{
        history::shared_clock,
        raw::{NODE_EXISTS, RawClient},
    },
};

const PAUSE: Duration = Duration::from_millis(500);

/// One that takes longer is not waited for, as the others are to be asked meanwhile.
const LONG: Duration = Duration::from_millis(500);

/// A znode that vanished so long ago and is shown again has come back just now.
const RECENT: Duration = Duration::from_secs(3);

/// From when to when a server showed a znode of this lock that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    pub lock: &'static str,
    pub znode: String,
    pub server: usize,
    pub from: u64,
    pub to: u64,
}

/// The znodes of all locks, each with its lock.
type View = BTreeMap<String, &'static str>;

/// Asks one server after the other, again and again.
pub fn compare(servers: &[String], is_over: &AtomicBool) -> Vec<Stale> {
    let (mut comparison, mut clients) = (Comparison::default(), Vec::new());
    clients.resize_with(servers.len(), || None);
    while !is_over.load(Relaxed) {
        for (server, client) in clients.iter_mut().enumerate() {
            let from = shared_clock();
            match seen(client, &servers[server]) {
                Ok(view) => comparison.add(server, &view, from, shared_clock()),
                Err(_) => *client = None,
            }
        }
        thread::sleep(PAUSE);
    }
    comparison.end(shared_clock())
}

fn seen(client: &mut Option<RawClient>, address: &str) -> io::Result<View> {
    let client = match client {
        Some(client) => client,
        None => {
            let stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(LONG))?;
            client.insert(RawClient::over(stream, SESSION, 0, &[0; 16])?)
        }
    };
    let code = client.create(&format!("/{NAMESPACE}"), false)?;
    if code != NODE_EXISTS {
        return Err(io::Error::other(format!("a write is answered by {code}")));
    }
    let mut view = View::new();
    for group in &GROUPS {
        let mut paths = vec![format!("/{NAMESPACE}/{}", group.name)];
        while let Some(path) = paths.pop() {
            let Some((names, czxid, owner)) = client.children(&path)? else { continue };
            if owner != 0 {
                // A fixed name is used again.
                view.insert(format!("{path} of {czxid:#x}"), group.name);
            }
            for name in names {
                let path = format!("{path}/{name}");
                // A queued znode has a name of its own, and nothing below it.
                if name.ends_with(|last: char| last.is_ascii_digit()) {
                    view.insert(path, group.name);
                } else {
                    paths.push(path);
                }
            }
        }
    }
    Ok(view)
}

#[derive(Default)]
struct Comparison {
    shown: View,
    /// When their end was seen.
    gone: BTreeMap<String, u64>,
    stale: BTreeMap<(usize, String), Stale>,
    ended: Vec<Stale>,
}

impl Comparison {
    fn add(&mut self, server: usize, view: &View, from: u64, to: u64) {
        let vanished: BTreeSet<String> =
            self.shown.keys().filter(|znode| !view.contains_key(*znode)).cloned().collect();
        for znode in vanished {
            self.shown.remove(&znode);
            self.gone.insert(znode, from);
        }
        for (znode, lock) in view {
            match self.gone.get(znode) {
                Some(gone) => {
                    let from = (*gone).max(from.saturating_sub(RECENT.as_nanos() as u64));
                    let new = || Stale { lock, znode: znode.clone(), server, from, to };
                    self.stale.entry((server, znode.clone())).or_insert_with(new);
                }
                None => _ = self.shown.insert(znode.clone(), lock),
            }
        }
        self.stale.retain(|(of, znode), stale| {
            let is_over = *of == server && !view.contains_key(znode);
            if is_over {
                self.ended.push(Stale { to, ..stale.clone() });
            }
            !is_over
        });
    }

    fn end(mut self, at: u64) -> Vec<Stale> {
        self.ended.extend(self.stale.into_values().map(|stale| Stale { to: at, ..stale }));
        self.ended
    }
}

#[test]
fn a_server_that_shows_what_another_knows_to_be_deleted_is_stale() {
    let of = |znodes: &[&str]| znodes.iter().map(|znode| (znode.to_string(), "mutex")).collect::<View>();
    let mut comparison = Comparison::default();
    for (server, view, at) in [(0, &["a"][..], 1), (1, &["a", "b"], 2), (0, &["a", "b"], 3), (1, &["b"], 4)] {
        comparison.add(server, &of(view), at, at);
    }
    assert!(comparison.stale.is_empty(), "nobody has shown it since");
    for (server, view, at) in [(0, &["a", "b"][..], 5), (1, &["b", "c"], 6), (0, &["a", "c"], 7), (0, &["c"], 8)] {
        comparison.add(server, &of(view), at, at);
    }
    let a = Stale { lock: "mutex", znode: "a".to_owned(), server: 0, from: 4, to: 8 };
    assert_eq!(comparison.ended, [a]);
    comparison.add(1, &of(&["b", "c"]), 9, 9);
    let b = Stale { lock: "mutex", znode: "b".to_owned(), server: 1, from: 7, to: 10 };
    assert_eq!(comparison.end(10)[1..], [b]);
}
