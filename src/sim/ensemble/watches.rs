//! The watches of one server.

use std::collections::{BTreeMap, BTreeSet};

use super::ConnId;

/// One of the two tables: data (and existence), or children.
#[derive(Debug, Default)]
pub(super) struct WatchTable {
    by_path: BTreeMap<String, BTreeSet<ConnId>>,
}

impl WatchTable {
    pub(super) fn add(&mut self, path: &str, conn: ConnId) {
        self.by_path.entry(path.to_owned()).or_default().insert(conn);
    }

    /// Takes the watches of a path away: they were left for one event.
    pub(super) fn take(&mut self, path: &str) -> BTreeSet<ConnId> {
        self.by_path.remove(path).unwrap_or_default()
    }

    pub(super) fn remove(&mut self, path: &str, conn: ConnId) -> bool {
        let Some(conns) = self.by_path.get_mut(path) else { return false };
        let removed = conns.remove(&conn);
        if conns.is_empty() {
            self.by_path.remove(path);
        }
        removed
    }

    /// Whether anybody watches the path. `checkWatches` asks for its own watch and is answered so.
    pub(super) fn is_watched(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    pub(super) fn forget(&mut self, conn: ConnId) {
        self.by_path.retain(|_, conns| {
            conns.remove(&conn);
            !conns.is_empty()
        });
    }

    fn iter(&self) -> impl Iterator<Item = (&str, ConnId)> {
        self.by_path.iter().flat_map(|(path, conns)| conns.iter().map(move |conn| (path.as_str(), *conn)))
    }
}

#[derive(Debug, Default)]
pub(super) struct Watches {
    pub(super) data: WatchTable,
    pub(super) children: WatchTable,
}

impl Watches {
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.data.forget(conn);
        self.children.forget(conn);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, ConnId)> {
        self.data.iter().chain(self.children.iter())
    }
}
