//! Servers without a quorum, which serve clients that only read, and the way back to one that can write.

use curator_locks::{
    ConnectionState::{Connected, Lost, ReadOnly, Reconnected, Suspended},
    testing::{FaultProxy, TestingCluster, TestingServerBuilder},
};

use super::scene::*;

/// Since 3.6 a read-only server gives local sessions only, and refuses those that the quorum knows.
fn can_be_read_only(server: TestingServerBuilder) -> TestingServerBuilder {
    server
        .system_property("readonlymode.enabled", "true")
        .property("localSessionsEnabled", "true")
        .property("localSessionsUpgradingEnabled", "true")
}

#[test]
fn a_client_of_a_read_only_server_goes_on_to_one_that_can_write_by_itself() {
    let builder = TestingCluster::builder(3).tick_time(500 * MS).severable(true);
    let cluster = builder.configure(can_be_read_only).start().unwrap();
    let alone = (cluster.wait_for_leader(LONG).unwrap() + 1) % 3;
    let ways = [1, 2].map(|k| FaultProxy::start_opaque(cluster.servers()[(alone + k) % 3].connect_string()).unwrap());
    ways.iter().for_each(FaultProxy::refuse);
    let servers = [cluster.servers()[alone].connect_string(), ways[0].connect_string(), ways[1].connect_string()];
    let builder = builder_of(&servers.join(","), LONG / 2).connection_timeout(2 * T);
    let client = builder.can_be_read_only(true).build().unwrap();
    let states = states_of(&client);
    start(&client);
    expect_state(&states, Connected);
    settle(&client, &states);
    cluster.isolate(alone).unwrap();
    for expected in [Suspended, Lost, ReadOnly] {
        expect_state(&states, expected);
    }
    let mutex = mutex(&client);
    assert!(mutex.acquire().is_err());
    // The quorum is back, and the client's server stays as it is.
    ways.iter().for_each(|way| way.pass().unwrap());
    // Who is slow to take it is left for the one that only reads, and asked again.
    let way_back: Vec<_> =
        std::iter::from_fn(|| Some(next_state(&states).1).filter(|state| *state != Reconnected)).collect();
    assert!(way_back.iter().all(|state| [Suspended, ReadOnly].contains(state)), "{way_back:?}");
    mutex.acquire().unwrap();
    mutex.release().unwrap();
    assert_eq!(cluster.servers()[alone].four_letter_word("isro").unwrap(), "ro");
    figure("read-only: the client went on to one that can write", client.connection_state());
}
