//! How to test a service of your own with faults: a server that dies, a network that fails, a session that ends.
//!
//! In your crate these are tests: `cargo add --dev curator-locks --features testing`. Here they are run one after the
//! other, with servers of their own.
//!
//! ```text
//! cargo run --features testing --example tests_of_your_service
//! ```

mod common;

use std::{thread, time::Duration};

use common::{Result, builder, connect, start};
use curator_locks::{
    CuratorFramework, Error, InterProcessMutex, LockInternals,
    testing::{Direction, Fault, FaultProxy, RequestMatch, TestingServer, expire_session},
};

const PATH: &str = "/orders";

/// The service under test: does something under a lock, and says whether it can vouch for it.
fn book(client: &CuratorFramework, order: impl FnOnce() -> Result<()>) -> Result<bool> {
    let held = InterProcessMutex::new(client, PATH)?.lock()?;
    order()?;
    match held.release() {
        // Somebody else may have been there at the same time: what was done has to be looked at.
        Err(Error::LockLost { .. }) => Ok(false),
        released => Ok(released.map(|()| true)?),
    }
}

fn a_reply_that_is_lost_makes_no_second_contender(server: &TestingServer) -> Result<()> {
    let proxy = FaultProxy::start(server.connect_string())?;
    let client = connect(&proxy.connect_string())?;
    book(&client, || Ok(()))?; // makes the directories
    // The server creates the lock's znode, and the client loses its connection instead of seeing the reply.
    let lost = proxy.inject(RequestMatch::creates().path(|path| path.contains(PATH)), Fault::CutInsteadOfReply);
    let is_alone = || {
        assert_eq!(LockInternals::participant_nodes(&client, PATH)?.len(), 1);
        Ok(())
    };
    assert!(book(&client, is_alone)?);
    assert_eq!(lost.hits(), 1);
    Ok(())
}

fn a_server_that_is_killed_and_comes_back_takes_no_lock_away(server: &TestingServer) -> Result<()> {
    // Longer than a server takes to start, also on a busy machine.
    let client = start(builder(&server.connect_string()).session_timeout(Duration::from_secs(40)))?;
    let restart = || {
        server.kill()?;
        Ok(server.restart()?)
    };
    assert!(book(&client, restart)?);
    Ok(())
}

fn an_order_is_not_vouched_for_when_the_session_has_ended(server: &TestingServer) -> Result<()> {
    let client = connect(&server.connect_string())?;
    let expire = || Ok(expire_session(&server.connect_string(), client.session_id(), &client.session_password())?);
    assert!(!book(&client, expire)?);
    Ok(())
}

fn a_holder_whose_network_is_silent_knows_before_the_next_one_has_the_lock(server: &TestingServer) -> Result<()> {
    let proxy = FaultProxy::start(server.connect_string())?;
    // So long the other one has to wait.
    let client = start(builder(&proxy.connect_string()).session_timeout(Duration::from_secs(2)))?;
    let other = connect(&server.connect_string())?;
    let held = InterProcessMutex::new(&client, PATH)?.lock()?;
    proxy.black_hole(Direction::Both); // nothing is closed, nothing arrives
    let next = InterProcessMutex::new(&other, PATH)?.lock()?;
    assert!(!held.is_valid());
    proxy.pass()?;
    Ok(next.release()?)
}

type Test = fn(&TestingServer) -> Result<()>;

fn main() -> Result<()> {
    let tests: [(&str, Test); 4] = [
        ("a reply that is lost makes no second contender", a_reply_that_is_lost_makes_no_second_contender),
        (
            "a server that is killed and comes back takes no lock away",
            a_server_that_is_killed_and_comes_back_takes_no_lock_away,
        ),
        (
            "an order is not vouched for when the session has ended",
            an_order_is_not_vouched_for_when_the_session_has_ended,
        ),
        (
            "a holder whose network is silent knows before the next one has the lock",
            a_holder_whose_network_is_silent_knows_before_the_next_one_has_the_lock,
        ),
    ];
    // Each with a server of its own, all at once.
    let results = thread::scope(|scope| {
        let server = || TestingServer::builder().tick_time(Duration::from_millis(200)).start();
        let running: Vec<_> =
            tests.map(|(name, test)| (name, scope.spawn(move || test(&server()?)))).into_iter().collect();
        running.into_iter().map(|(name, test)| (name, test.join())).collect::<Vec<_>>()
    });
    for (name, result) in results {
        result.map_err(|_| "a test panicked")??;
        println!("ok: {name}");
    }
    Ok(())
}
