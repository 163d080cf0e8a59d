//! Servers that speak ZooKeeper and are none: proxies in front of the tests' own servers.
//!
//! `DIALECT=keeper cargo test --all-features --test contract` runs a whole program of tests over one of them: `zookeeper34`,
//! `keeper_before_267`, `keeper`, `raft_keeper`. `DIALECTS=all` does so one after the other in the tests that say so.

use std::{
    collections::HashMap,
    env,
    sync::{Mutex, OnceLock, PoisonError},
};

use curator_locks::testing::{Dialect, FaultProxy};

const NAMES: [(&str, Dialect); 5] = [
    ("zookeeper", Dialect::ZooKeeper),
    ("zookeeper34", Dialect::ZooKeeper34),
    ("keeper_before_267", Dialect::KeeperBefore267),
    ("keeper", Dialect::Keeper),
    ("raft_keeper", Dialect::RaftKeeper),
];

/// The servers of a connect string, each behind a proxy that answers as this kind of server. It lasts as long as the process.
pub fn address(connect_string: &str, dialect: Dialect) -> String {
    static PROXIES: OnceLock<Mutex<HashMap<(String, Dialect), FaultProxy>>> = OnceLock::new();
    let (servers, chroot) = match connect_string.find('/') {
        Some(at) => connect_string.split_at(at),
        None => (connect_string, ""),
    };
    let mut proxies = PROXIES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let mut proxy_of = |server: &str| {
        let start = || FaultProxy::start_as(server, dialect).unwrap();
        proxies.entry((server.to_owned(), dialect)).or_insert_with(start).connect_string()
    };
    let servers: Vec<String> = servers.split(',').map(&mut proxy_of).collect();
    servers.join(",") + chroot
}

/// Whether the tests run over servers as they are.
pub fn is_zookeeper() -> bool {
    env::var("DIALECT").map_or(true, |name| name == "zookeeper")
}

/// The same for the kind of server that the environment wants; without one the connect string as it is.
pub fn wanted(connect_string: &str) -> String {
    let Ok(name) = env::var("DIALECT") else { return connect_string.to_owned() };
    let found = NAMES.iter().find(|(known, _)| *known == name);
    let (_, dialect) = found.unwrap_or_else(|| panic!("DIALECT={name} is none of {NAMES:?}"));
    address(connect_string, *dialect)
}
