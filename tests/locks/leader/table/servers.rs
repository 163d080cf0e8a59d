//! What the processes connect to.

use std::{thread, time::Duration};

use curator_locks::testing::{Direction, FaultProxy, TestingCluster, TestingServer};
use parking_lot::Mutex;

use super::TICK;
use crate::support::PATIENCE;

pub enum Servers {
    One(Box<TestingServer>),
    /// Whoever strikes it has it alone.
    Ensemble(TestingCluster, Mutex<()>),
}

impl Servers {
    pub fn one() -> Servers {
        Servers::One(Box::new(TestingServer::builder().tick_time(TICK).start().unwrap()))
    }

    pub fn ensemble() -> Servers {
        Servers::Ensemble(TestingCluster::builder(3).tick_time(TICK).start().unwrap(), Mutex::new(()))
    }

    /// A network of one's own: a way to each server.
    pub fn network(&self) -> Network {
        let addresses = match self {
            Servers::One(server) => vec![server.connect_string()],
            Servers::Ensemble(cluster, _) => cluster.servers().iter().map(TestingServer::connect_string).collect(),
        };
        Network(addresses.into_iter().map(|address| FaultProxy::start(address).unwrap()).collect())
    }

    /// Kills the leader of the ensemble, and starts it again after that long. `false`: it is none.
    pub fn lose_the_leader(&self, length: Duration) -> bool {
        let Servers::Ensemble(cluster, turn) = self else { return false };
        let _turn = turn.lock();
        let leader = cluster.wait_for_leader(PATIENCE).unwrap();
        cluster.servers()[leader].kill().unwrap();
        thread::sleep(length);
        cluster.servers()[leader].restart().unwrap();
        cluster.wait_for_leader(PATIENCE).unwrap();
        true
    }
}

pub struct Network(Vec<FaultProxy>);

impl Network {
    pub fn connect_string(&self) -> String {
        self.0.iter().map(FaultProxy::connect_string).collect::<Vec<_>>().join(",")
    }

    pub fn cut(&self) {
        for way in &self.0 {
            way.cut();
        }
    }

    pub fn refuse(&self) {
        self.0.iter().for_each(FaultProxy::refuse);
    }

    pub fn black_hole(&self, direction: Direction) {
        self.0.iter().for_each(|way| way.black_hole(direction));
    }

    pub fn pass(&self) {
        self.0.iter().for_each(|way| way.pass().unwrap());
    }
}
