use std::time::{Duration, Instant};

use super::{
    dialogue::Dialogue,
    model::Model,
    real::{Real, Streams},
    rows::{self, Row},
};
use crate::{
    machine::Machine,
    proto::op,
    sim::ensemble::{Dialect, EnsembleConfig},
    testing::{TestingCluster, TestingServer, TestingServerBuilder},
};

const TICK: Duration = Duration::from_millis(200);

fn alone() -> EnsembleConfig {
    EnsembleConfig { tick: TICK, min_session_timeout: TICK, ..EnsembleConfig::alone() }
}

/// A server that ends connections with their sessions only. It has a second clock for them (`ConnectionExpirerThread`)
/// that looks every ten seconds: where a session ends in the same moment, its connection may end before the transaction.
fn server() -> TestingServerBuilder {
    TestingServer::builder().tick_time(TICK).system_property("zookeeper.nio.sessionlessCnxnTimeout", "3600000")
}

/// How often a row is tried on a machine that lets us wait: where times are short, one comes about that nobody meant.
pub(super) const ATTEMPTS: usize = 10;

/// A machine that is late by less than this is not what makes a difference.
pub(super) const PUNCTUAL: Duration = Duration::from_millis(20);

/// Every row that the two answer differently.
fn compare(room: &str, rows: &[Row], config: &EnsembleConfig, real: &Real) -> Vec<String> {
    let machine = Machine::watch();
    let differs = |(number, row): (usize, &Row)| {
        let mut found = None;
        for attempt in 0..ATTEMPTS {
            let directory = format!("{room}-{number}-{attempt}");
            let modelled = Dialogue::play(&mut Model::new(config.clone(), 1), &directory, row.1);
            let begin = Instant::now();
            let measured = Dialogue::play(&mut Streams::new(real), &directory, row.1);
            found = (modelled != measured).then(|| format!("{}\n{}", row.0, difference(&modelled, &measured)));
            if found.is_none() || machine.lateness(&(begin..Instant::now())) < PUNCTUAL {
                break;
            }
        }
        found
    };
    rows.iter().enumerate().filter_map(differs).collect()
}

fn difference(modelled: &[String], measured: &[String]) -> String {
    let same = modelled.iter().zip(measured).take_while(|(one, other)| one == other).count();
    let before = measured[..same].iter().map(|line| format!("    {line}\n"));
    let model = modelled.get(same).map_or("(no more)", String::as_str);
    let server = measured.get(same).map_or("(no more)", String::as_str);
    format!("{}  model:  {model}\n  server: {server}", before.collect::<String>())
}

/// Fails with every row that the two answer differently.
fn assert_alike(rooms: &[(&str, &[Row])], config: &EnsembleConfig, real: &Real) {
    let differ: Vec<String> = rooms.iter().flat_map(|(room, rows)| compare(room, rows, config, real)).collect();
    assert!(differ.is_empty(), "{} rows differ:\n\n{}", differ.len(), differ.join("\n\n"));
}

/// How many of all rows a server with this dialect answers otherwise than ZooKeeper.
fn found_with(dialect: Dialect) -> usize {
    let otherwise = EnsembleConfig { dialect, ..alone() };
    let rows = rows::ALONE.iter().flat_map(|(_, rows)| rows.iter());
    let play = |config: &EnsembleConfig, row: &Row| Dialogue::play(&mut Model::new(config.clone(), 1), "d", row.1);
    rows.filter(|row| play(&alone(), row) != play(&otherwise, row)).count()
}

#[test]
fn the_table_finds_servers_that_are_otherwise() {
    let unknown = |op_code| Dialect { unknown_ops: [op_code].into(), ..Dialect::default() };
    assert_eq!(found_with(Dialect::default()), 0);
    for op_code in
        [op::CREATE2, op::CREATE_CONTAINER, op::REMOVE_WATCHES, op::SET_WATCHES, op::MULTI, op::GET_EPHEMERALS]
    {
        assert!(found_with(unknown(op_code)) > 0, "operation {op_code}");
    }
    assert!(found_with(Dialect { resumes_as_another: true, ..Dialect::default() }) > 0);
    assert!(found_with(Dialect { containers_refused: Some(-8), ..Dialect::default() }) > 0);
}

#[test]
fn one_server_answers_as_zookeeper_does() {
    assert_alike(&rows::ALONE, &alone(), &Real::Alone(Box::new(server().start().unwrap())));
}

#[test]
fn sessions_containers_and_ttl_znodes_end_as_in_zookeeper() {
    let interval = Duration::from_millis(100);
    let config = EnsembleConfig { container_interval: interval, extended_types: true, ..alone() };
    let real = server()
        .container_check_interval(interval)
        .system_property("zookeeper.extendedTypesEnabled", "true")
        .start()
        .unwrap();
    assert_alike(&rows::ENDINGS, &config, &Real::Alone(Box::new(real)));
}

/// Three servers that do not give each other up on a machine that lets them wait.
pub(super) fn patient_cluster(tick: Duration) -> TestingCluster {
    TestingCluster::builder(3).tick_time(tick).init_limit(100).sync_limit(100).start().unwrap()
}

#[test]
fn three_servers_answer_as_zookeeper_does() {
    let config = EnsembleConfig { tick: TICK, min_session_timeout: TICK, ..EnsembleConfig::default() };
    let real = patient_cluster(TICK);
    assert_alike(&rows::ENSEMBLE, &config, &Real::Cluster(real));
}
