use std::time::Duration;

use super::{
    model::Model,
    real::{Real, Streams},
    rows::{self, Row},
    scene::Scene,
};
use crate::{
    sim::ensemble::EnsembleConfig,
    testing::{TestingCluster, TestingServer, TestingServerBuilder},
};

const TICK: Duration = Duration::from_millis(200);

fn alone() -> EnsembleConfig {
    EnsembleConfig { tick: TICK, min_session_timeout: TICK, ..EnsembleConfig::alone() }
}

fn server() -> TestingServerBuilder {
    TestingServer::builder().tick_time(TICK)
}

/// Every row that the two answer differently.
fn compare(room: &str, rows: &[Row], config: &EnsembleConfig, real: &Real) -> Vec<String> {
    let mut differ = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let directory = format!("{room}-{number}");
        let modelled = Scene::play(&mut Model::new(config.clone(), 1), &directory, row.1);
        let measured = Scene::play(&mut Streams::new(real), &directory, row.1);
        println!("{}\n    {}", row.0, measured.join("\n    "));
        if modelled != measured {
            differ.push(format!("{}\n{}", row.0, difference(&modelled, &measured)));
        }
    }
    differ
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

#[test]
fn one_server_answers_as_zookeeper_does() {
    assert_alike(&rows::ALONE, &alone(), &Real::Alone(server().start().unwrap()));
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
    assert_alike(&rows::ENDINGS, &config, &Real::Alone(real));
}

#[test]
fn three_servers_answer_as_zookeeper_does() {
    let config = EnsembleConfig { tick: TICK, min_session_timeout: TICK, ..EnsembleConfig::default() };
    let real = TestingCluster::builder(3).tick_time(TICK).start().unwrap();
    assert_alike(&rows::ENSEMBLE, &config, &Real::Cluster(real));
}
