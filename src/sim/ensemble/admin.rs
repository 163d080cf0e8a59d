//! What administrators and strangers do to the znodes. A transaction each, as if a client with all rights had asked.

use std::time::Duration;

use super::{
    Ensemble, Output,
    wire::{Call, NewNode},
};
use crate::proto::{op, types::Acl};

impl Ensemble {
    /// Deletes a znode and everything below it. `false`: nobody leads.
    pub(crate) fn delete(&mut self, path: &str, now: Duration, out: &mut Vec<Output>) -> bool {
        self.advance(now);
        let paths = self.leader().map(|leader| self.below(leader, path));
        for path in paths.iter().flatten().rev() {
            self.administer(&Call::Delete { path: path.clone(), version: -1 });
        }
        self.finish(out);
        paths.is_some()
    }

    /// The paths of a znode and of everything below it, parents first.
    fn below(&self, server: usize, path: &str) -> Vec<String> {
        let below = format!("{path}/");
        let nodes = self.servers[server].tree.nodes().map(|(path, _)| path);
        nodes.filter(|node| *node == path || node.starts_with(&below)).map(str::to_owned).collect()
    }

    /// Creates a persistent znode.
    pub(crate) fn create(&mut self, path: &str, data: &[u8], now: Duration, out: &mut Vec<Output>) -> bool {
        let new = NewNode {
            op: op::CREATE,
            path: path.to_owned(),
            data: data.to_vec(),
            acl: Acl::open_unsafe(),
            flags: 0,
            ttl: -1,
        };
        self.ask(&Call::Create(new), now, out)
    }

    /// Changes a znode's data.
    pub(crate) fn set_data(&mut self, path: &str, data: &[u8], now: Duration, out: &mut Vec<Output>) -> bool {
        let call = Call::SetData { path: path.to_owned(), data: data.to_vec(), version: -1 };
        self.ask(&call, now, out)
    }

    /// Takes permits away, or gives them back.
    pub(crate) fn set_acl(&mut self, path: &str, acl: Vec<Acl>, now: Duration, out: &mut Vec<Output>) -> bool {
        self.ask(&Call::SetAcl { path: path.to_owned(), acl, version: -1 }, now, out)
    }

    fn ask(&mut self, call: &Call, now: Duration, out: &mut Vec<Output>) -> bool {
        self.advance(now);
        let is_asked = self.administer(call);
        self.finish(out);
        is_asked
    }
}
