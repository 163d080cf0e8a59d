//! The ZooKeeper that the sale uses: the one that `ZK_CONNECT` names, else a server of its own.

use std::{env, fmt};

use curator_locks::{CuratorFramework, testing::TestingServer};

use crate::{
    Failure,
    common::{builder, start},
};

/// A client that is connected, and works below a path of its own.
pub(crate) fn connect(connect_string: &str) -> Result<CuratorFramework, Failure> {
    start(builder(connect_string).namespace(""))
}

pub(crate) struct Ensemble {
    connect_string: String,
    /// Everything of ours is below.
    root: String,
    owner: Owner,
}

enum Owner {
    Us(#[allow(dead_code, reason = "dropping it throws the server away")] Box<TestingServer>),
    /// With a client to tidy up.
    Others(CuratorFramework),
}

impl Ensemble {
    pub(crate) fn get() -> Result<Ensemble, Failure> {
        let root = format!("/flash-sale-{}", uuid::Uuid::new_v4());
        if let Some(connect_string) = env::var("ZK_CONNECT").ok().filter(|value| !value.is_empty()) {
            let owner = Owner::Others(connect(&connect_string)?);
            return Ok(Ensemble { connect_string, root, owner });
        }
        let server = TestingServer::start()?;
        Ok(Ensemble { connect_string: server.connect_string(), root, owner: Owner::Us(Box::new(server)) })
    }

    pub(crate) fn connect_string(&self) -> String {
        self.connect_string.clone()
    }

    pub(crate) fn lock_path(&self) -> String {
        format!("{}/lock", self.root)
    }

    /// Leaves nothing behind. (Servers would remove the empty containers by themselves, a minute or so later.)
    pub(crate) fn leave(self) -> curator_locks::Result<()> {
        let Owner::Others(client) = self.owner else { return Ok(()) };
        match client.delete().deleting_children_if_needed().for_path(&self.root) {
            Err(error) if !error.is_no_node() => Err(error),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Ensemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Owner::Us(_) => write!(f, "a server of our own at {}, thrown away afterwards", self.connect_string),
            Owner::Others(_) => {
                write!(f, "{} (ZK_CONNECT), below {}, which is removed afterwards", self.connect_string, self.root)
            }
        }
    }
}
