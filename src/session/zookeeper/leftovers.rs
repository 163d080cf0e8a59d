//! The ephemeral znodes of a session whose handle lives on: with the session they would not go by themselves.

use std::collections::BTreeSet;

use ::zookeeper::{ZkError, ZkResult, ZooKeeper};

use crate::{
    base::log,
    proto::{request::Request, response::Response, types::CreateMode},
};

/// The ephemeral znodes that a session has created, or may have.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    pub(super) nodes: BTreeSet<String>,
    /// Full paths of sequential creates whose outcome is unknown, without the sequence number.
    doubts: BTreeSet<String>,
}

impl Leftovers {
    /// Notes the znode that a request has made or removed.
    pub(super) fn executed(&mut self, request: &Request, result: &ZkResult<Response>) {
        match (request, result) {
            (Request::Create { mode, .. }, Ok(Response::Created { path, .. })) if mode.is_ephemeral() => {
                self.nodes.insert(path.clone());
            }
            (Request::Create { path, mode, .. }, Err(ZkError::ConnectionLoss)) if mode.is_ephemeral() => {
                let is_whole = *mode == CreateMode::Ephemeral;
                let unknown = if is_whole { &mut self.nodes } else { &mut self.doubts };
                unknown.insert(path.clone());
            }
            (Request::Delete { path, .. }, Ok(_) | Err(ZkError::NoNode)) => {
                if self.nodes.remove(path) {
                    return;
                }
                // A path with its number: only one create can have been meant.
                let doubt = self.doubts.range(..=path.clone()).next_back().filter(|doubt| path.starts_with(*doubt));
                if let Some(doubt) = doubt.cloned() {
                    self.doubts.remove(&doubt);
                }
            }
            _ => {}
        }
    }

    /// Deletes everything that belongs to one of these sessions. Can be called again after an error.
    pub(super) fn delete(&mut self, handle: &ZooKeeper, owners: &[i64]) -> ZkResult<()> {
        while let Some(doubt) = self.doubts.first().cloned() {
            let (parent, name) = doubt.rsplit_once('/').unwrap_or(("", &doubt));
            let children = match handle.get_children(if parent.is_empty() { "/" } else { parent }, false) {
                Err(ZkError::NoNode) => Vec::new(),
                children => children?,
            };
            let found = children
                .iter()
                .filter(|child| child.strip_prefix(name).is_some_and(|number| number.parse::<i32>().is_ok()));
            self.nodes.extend(found.map(|child| format!("{parent}/{child}")));
            self.doubts.remove(&doubt);
        }
        let mut refused = Ok(());
        for path in self.nodes.clone() {
            let is_ours = handle.exists(&path, false)?.is_some_and(|stat| owners.contains(&stat.ephemeral_owner));
            match if is_ours { handle.delete(&path, None) } else { Ok(()) } {
                Err(ZkError::ConnectionLoss) => return Err(ZkError::ConnectionLoss),
                // The package says so of codes that it has no name for, as that of a busy server.
                Err(ZkError::Unimplemented) => {
                    refused = Err(ZkError::Unimplemented);
                    continue;
                }
                Err(error) => log::warn!("cannot delete {path}: {error}"),
                Ok(()) => {}
            }
            self.nodes.remove(&path);
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str) -> Request {
        let mode = CreateMode::EphemeralSequential;
        Request::Create { path: path.into(), data: Vec::new(), acl: Vec::new(), mode }
    }

    #[test]
    fn what_was_created_is_left_until_it_is_deleted() {
        let mut leftovers = Leftovers::default();
        let created = Ok(Response::Created { path: "/a/x-0000000001".into(), czxid: 1 });
        leftovers.executed(&create("/a/x-"), &created);
        leftovers.executed(&create("/a/y-"), &Err(ZkError::ConnectionLoss));
        leftovers.executed(&create("/a/z-"), &Err(ZkError::NoAuth));
        assert_eq!((leftovers.nodes.len(), leftovers.doubts.len()), (1, 1));
        let delete = |path: &str| Request::Delete { path: path.into(), version: -1 };
        leftovers.executed(&delete("/a/x-0000000001"), &Err(ZkError::ConnectionLoss));
        assert_eq!(leftovers.nodes.len(), 1);
        leftovers.executed(&delete("/a/x-0000000001"), &Err(ZkError::NoNode));
        leftovers.executed(&delete("/a/y-0000000002"), &Ok(Response::Done));
        assert_eq!((leftovers.nodes.len(), leftovers.doubts.len()), (0, 0));
    }

    #[test]
    fn a_name_without_a_number_stands_for_no_other() {
        let mut leftovers = Leftovers::default();
        let mut request = create("/a/x");
        if let Request::Create { mode, .. } = &mut request {
            *mode = CreateMode::Ephemeral;
        }
        leftovers.executed(&request, &Err(ZkError::ConnectionLoss));
        assert!(leftovers.nodes.contains("/a/x") && leftovers.doubts.is_empty());
    }

    #[test]
    fn a_lost_create_stays_in_doubt_when_what_a_later_one_made_goes() {
        let mut leftovers = Leftovers::default();
        leftovers.executed(&create("/a/x-"), &Err(ZkError::ConnectionLoss));
        let second = "/a/x-0000000002";
        leftovers.executed(&create("/a/x-"), &Ok(Response::Created { path: second.into(), czxid: 1 }));
        leftovers.executed(&Request::Delete { path: second.into(), version: -1 }, &Ok(Response::Done));
        assert_eq!((leftovers.nodes.len(), leftovers.doubts.len()), (0, 1));
    }
}
