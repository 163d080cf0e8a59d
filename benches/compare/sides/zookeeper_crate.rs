//! The package `zookeeper` running the plain recipe: create, list, watch the predecessor, list again; delete.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    thread::{self, ThreadId},
    time::Duration,
};

use parking_lot::Mutex;
use zookeeper::{Acl, CreateMode, WatchedEvent, ZkError, ZooKeeper};

use super::{
    side::{Outcome, Side, unknown},
    threaded::{Library, Lock, Threaded},
};

pub fn side() -> impl Side {
    Threaded::new(ZooKeeperCrate)
}

struct ZooKeeperCrate;

impl Library for ZooKeeperCrate {
    type Client = Arc<ZooKeeper>;

    fn connect(&self, address: &str) -> Outcome<Arc<ZooKeeper>> {
        Ok(Arc::new(ZooKeeper::connect(address, Duration::from_secs(60), |_: WatchedEvent| {})?))
    }

    fn close(&self, client: Arc<ZooKeeper>) {
        // Closed or lost: either way it is gone.
        let _ = client.close();
    }

    fn lock(&self, client: &Arc<ZooKeeper>, kind: &str, path: &str) -> Outcome<Arc<dyn Lock>> {
        if kind != "mutex" {
            return Err(unknown(&[kind]));
        }
        Ok(Arc::new(Recipe { client: client.clone(), path: path.to_owned(), nodes: Mutex::default() }))
    }

    fn children(&self, client: &Arc<ZooKeeper>, path: &str) -> Outcome<usize> {
        Ok(client.exists(path, false)?.map_or(0, |stat| usize::try_from(stat.num_children).unwrap_or(0)))
    }
}

struct Recipe {
    client: Arc<ZooKeeper>,
    path: String,
    /// What each thread has in the queue.
    nodes: Mutex<HashMap<ThreadId, String>>,
}

impl Recipe {
    fn create(&self) -> Outcome<String> {
        loop {
            let (path, acl) = (format!("{}/lock-", self.path), Acl::open_unsafe().clone());
            match self.client.create(&path, super::bare_socket::DATA.to_vec(), acl, CreateMode::EphemeralSequential) {
                Ok(node) => return Ok(node),
                Err(ZkError::NoNode) => self.make_directory()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn make_directory(&self) -> Outcome<()> {
        let ends = self.path.match_indices('/').map(|(at, _)| at).skip(1).chain([self.path.len()]);
        for end in ends {
            let path = self.path.get(..end).unwrap_or_default();
            match self.client.create(path, Vec::new(), Acl::open_unsafe().clone(), CreateMode::Persistent) {
                Ok(_) | Err(ZkError::NodeExists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn await_turn(&self, node: &str) -> Outcome<()> {
        let name = node.rsplit('/').next().unwrap_or_default();
        loop {
            let mut names = self.client.get_children(&self.path, false)?;
            names.sort_unstable();
            let place = names.iter().position(|other| other == name).ok_or("the own znode is gone")?;
            let Some(predecessor) = place.checked_sub(1).and_then(|at| names.get(at)) else { return Ok(()) };
            let (sender, changed) = mpsc::channel();
            let watcher = move |_: WatchedEvent| {
                // The waiter may have gone.
                let _ = sender.send(());
            };
            if self.client.exists_w(&format!("{}/{predecessor}", self.path), watcher)?.is_some() {
                changed.recv()?;
            }
        }
    }
}

impl Lock for Recipe {
    fn acquire(&self) -> Outcome<()> {
        let node = self.create()?;
        self.await_turn(&node)?;
        self.nodes.lock().insert(thread::current().id(), node);
        Ok(())
    }

    fn release(&self) -> Outcome<()> {
        let node = self.nodes.lock().remove(&thread::current().id()).ok_or("not held")?;
        Ok(self.client.delete(&node, None)?)
    }
}
