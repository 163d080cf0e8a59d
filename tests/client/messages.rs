//! What errors and logs say to a person: what happened, to what, why, and what to do.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use curator_locks::{
    Builder, ConnectionState, CuratorFramework, Error, HoldState, InterProcessLock, InterProcessMultiLock,
    InterProcessMutex, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, InterProcessUnfairMutex, Locker,
    LostReason, RetryOneTime,
    testing::{FaultProxy, TestingServer},
};

use crate::support::{
    builder, builder_at, client, connect, eventually, expire,
    logs::{catch_logs, logged},
    namespace, quick_server,
};

fn impatient(connect_string: &str) -> Builder {
    builder_at(connect_string, &namespace())
        .connection_timeout(Duration::from_millis(1500))
        .retry_policy(RetryOneTime::new(Duration::from_millis(10)))
}

/// A client that never gets a connection, once it knows why.
fn unconnected(builder: Builder) -> CuratorFramework {
    let client = builder.build().unwrap();
    client.start().unwrap();
    eventually("it is known why there is no connection", || client.connection_error().is_some());
    client
}

fn acquire_error(client: &CuratorFramework) -> String {
    let mutex = InterProcessMutex::new(client, "/x").unwrap();
    mutex.acquire().unwrap_err().to_string()
}

#[test]
fn an_acquire_that_never_had_a_connection_names_each_server_and_what_it_said() {
    catch_logs(log::LevelFilter::Debug);
    let nobody = FaultProxy::start("127.0.0.1:1").unwrap();
    nobody.refuse();
    let servers = format!("{},zk.invalid:2181", nobody.connect_string());
    let client = unconnected(impatient(&servers));
    let refused = format!("{}: Connection refused", nobody.connect_string());
    eventually("both servers were tried", || {
        let error = client.connection_error().map(|error| error.to_string()).unwrap_or_default();
        error.contains(&refused) && error.contains("zk.invalid: cannot be resolved")
    });
    let said = acquire_error(&client);
    let expected = format!("acquire /x: no connection to the servers ({refused}; zk.invalid: cannot be resolved");
    assert!(said.starts_with(&expected) && said.ends_with("; the lock was not acquired"), "{said}");
    // What `fn main() -> Result` prints.
    let printed = format!("{:?}", InterProcessMutex::new(&client, "/x").unwrap().acquire().unwrap_err());
    assert!(printed.starts_with(&format!("ConnectionLoss: {expected}")), "{printed}");
    let warnings = || logged().lines().filter(|line| line.starts_with("WARN") && line.contains(&refused)).count();
    eventually("it is warned about", || warnings() == 1);
    let begin = Instant::now();
    eventually("some more attempts", || begin.elapsed() > Duration::from_millis(2500));
    assert_eq!(warnings(), 1, "{}", logged());
}

#[test]
fn a_name_without_an_address_is_the_reason() {
    let client = unconnected(impatient("zk.invalid:2181"));
    assert!(!client.block_until_connected(Some(Duration::from_millis(10))).unwrap());
    let said = acquire_error(&client);
    assert!(said.contains("no connection to the servers (zk.invalid: cannot be resolved"), "{said}");
}

#[test]
fn a_server_that_does_not_speak_the_protocol_is_the_reason() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    std::thread::spawn(move || silent.incoming().for_each(drop));
    let client = unconnected(impatient(&address.to_string()));
    eventually("it is said", || {
        let said = acquire_error(&client);
        said.contains(&address.to_string()) && said.contains("instead of answering the handshake")
    });
}

#[test]
fn lock_data_above_the_servers_limit_is_refused_before_it_is_sent_and_the_connection_stays() {
    let client = client();
    let session = client.session_id();
    let held = InterProcessMutex::new(&client, "/small").unwrap();
    let held = held.lock().unwrap();
    let large = InterProcessMutex::new(&client, "/large").unwrap().with_lock_data(vec![b'x'; 2 << 20]);
    let error = large.acquire().unwrap_err();
    assert!(matches!(&error, Error::FrameTooLarge { path, limit: 0xf_ffff, .. } if path == "/large"), "{error:?}");
    assert!(error.to_string().contains("jute.maxbuffer"), "{error}");
    assert!(held.is_valid() && client.connection_state() == Some(ConnectionState::Connected));
    assert_eq!(client.session_id(), session);
    let fits = InterProcessMutex::new(&client, "/fits").unwrap().with_lock_data(vec![b'x'; 1_000_000]);
    fits.acquire().unwrap();
    fits.release().unwrap();
}

#[test]
fn who_gives_up_on_several_locks_learns_which_one_was_taken() {
    let client = client();
    let taken = InterProcessSemaphoreMutex::new(&client, "/b").unwrap();
    taken.acquire().unwrap();
    let members: [Arc<dyn InterProcessLock>; 3] = [
        Arc::new(InterProcessMutex::new(&client, "/a").unwrap()),
        Arc::new(InterProcessSemaphoreMutex::new(&client, "/b").unwrap()),
        Arc::new(InterProcessMutex::new(&client, "/c").unwrap()),
    ];
    let all = InterProcessMultiLock::from_locks(members).unwrap();
    assert_eq!(all.timed_out_at(), None);
    let mut time = Duration::from_secs(1);
    // Longer where this machine takes longer to get the first.
    let error = loop {
        assert!(!all.acquire_timeout(time).unwrap());
        let error = Locker::with_timeout(&all, time).unwrap_err().to_string();
        if all.timed_out_at().as_deref() != Some("/a") {
            break error;
        }
        time *= 2;
    };
    assert_eq!(all.timed_out_at().as_deref(), Some("/b"));
    assert_eq!(error, format!("acquiring /b did not end within {time:?}"));
    let one = InterProcessSemaphoreMutex::new(&client, "/b").unwrap();
    let error = Locker::with_timeout(&one, Duration::from_secs(1)).unwrap_err().to_string();
    assert_eq!(error, "acquiring /b did not end within 1s");
}

#[test]
fn an_outage_is_one_warning_and_its_end_one_line_and_a_lost_lock_is_warned_about() {
    catch_logs(log::LevelFilter::Debug);
    let server = quick_server().start().unwrap();
    let proxy = FaultProxy::start(server.connect_string()).unwrap();
    let client = connect(builder_at(&proxy.connect_string(), &namespace()));
    let session = format!("{:#x}", client.session_id());
    let mutex = InterProcessMutex::new(&client, "/m").unwrap();
    let held = mutex.lock().unwrap();
    let node = held.path().rsplit('/').next().unwrap().to_owned();
    let lines = |level: &str, part: &str| {
        logged()
            .lines()
            .filter(|line| line.starts_with(level) && line.contains(part))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };

    proxy.refuse();
    proxy.cut();
    eventually("suspended", || client.connection_state() == Some(ConnectionState::Suspended));
    proxy.pass().unwrap();
    eventually("reconnected", || client.connection_state() == Some(ConnectionState::Reconnected));
    assert_eq!(lines("WARN", &session).len(), 1, "{:?}", lines("WARN", &session));
    assert!(lines("WARN", &session)[0].contains("SUSPENDED"));
    eventually("its end is told", || !lines("INFO", &format!("RECONNECTED, session {session}")).is_empty());

    client.delete().for_path(held.path()).unwrap();
    eventually("lost", || held.state() == HoldState::Lost(LostReason::NodeDeleted));
    drop(held);
    eventually("it is warned about", || lines("WARN", &node).len() == 1);
    assert!(lines("WARN", &node)[0].contains("somebody deleted the lock's znode"), "{:?}", lines("WARN", &node));
}

#[test]
fn a_lost_lock_is_warned_about_also_where_its_guard_is_dropped_before_anybody_knows() {
    catch_logs(log::LevelFilter::Debug);
    let client = client();
    let held = InterProcessMutex::new(&client, "/m").unwrap();
    let held = held.lock().unwrap();
    let node = held.path().rsplit('/').next().unwrap().to_owned();
    let lost = format!(
        "connection state LOST: session {:#x} at {} is gone",
        client.session_id(),
        support::server().connect_string()
    );
    expire(&client);
    eventually("lost", || held.is_lost());
    eventually("the session's end is told", || logged().contains(&lost));
    drop(held);
    eventually("it is warned about", || {
        logged().lines().any(|line| line.starts_with("WARN") && line.contains(&node) && line.contains("expired"))
    });
}

#[test]
fn a_client_is_named_in_its_own_lines_and_a_name_is_one_that_can_be_read() {
    catch_logs(log::LevelFilter::Debug);
    let name = format!("billing of {}", namespace());
    let client = connect(builder(support::server(), &namespace()).client_name(name.as_str()));
    let session = format!("{:#x}", client.session_id());
    assert!(format!("{client:?}").contains(&name), "{client:?}");
    eventually("it is told", || {
        logged().contains(&format!("client {name}: connection state CONNECTED, session {session}"))
    });
    expire(&client);
    eventually("its end is told", || {
        logged().contains(&format!("client {name}: connection state LOST: session {session}"))
    });
    for bad in ["", "two\nlines"] {
        let refused = builder(support::server(), "x").client_name(bad).build();
        assert!(matches!(refused, Err(Error::InvalidArgument { name: "client_name", .. })), "{refused:?}");
    }
}

#[test]
fn a_contenders_life_can_be_read_in_the_log() {
    catch_logs(log::LevelFilter::Debug);
    let client = connect(builder(support::server(), &namespace()));
    let mutex = InterProcessMutex::new(&client, "/life").unwrap();
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let held = mutex.lock().unwrap();
    let first = name(held.path());
    let second = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let held = mutex.lock().unwrap();
            let node = name(held.path());
            held.release().unwrap();
            node
        });
        eventually("it waits", || logged().contains(&format!(" waits for {first}")));
        held.release().unwrap();
        waiter.join().unwrap()
    });
    for line in [
        format!("/life: {first} granted after "),
        format!("/life: {second} waits for {first}"),
        format!("/life: {first} released"),
        format!("/life: {second} granted after "),
        format!("/life: {second} released"),
    ] {
        assert!(logged().contains(&line), "{line}");
    }
}

/// They do not exclude each other, so whoever uses both by mistake is to hear of it.
#[test]
fn locks_of_several_kinds_at_one_path_are_warned_about_once_and_refused_where_that_is_wanted() {
    catch_logs(log::LevelFilter::Debug);
    let namespace = namespace();
    let client = connect(builder(support::server(), &namespace));
    let strict = connect(builder(support::server(), &namespace).refuse_mixed_kinds(true));
    let warnings = |path: &str| {
        let said = format!("{path} is the path of ");
        logged().lines().filter_map(|line| Some(line.split_once(&said)?.1.to_owned())).collect::<Vec<_>>()
    };
    let semaphore = InterProcessSemaphoreV2::new(&client, "/both/s", 2).unwrap();
    let unfair = InterProcessUnfairMutex::new(&client, "/both/u").unwrap();
    let (_lease, _held) = (semaphore.acquire().unwrap(), unfair.lock().unwrap());
    // The directories have such names, and nobody uses them as locks.
    for path in ["/names/locks/orders", "/names/leases", "/names/lock/here"] {
        client.create().creating_parents_if_needed().for_path(path).unwrap();
    }
    // Nor is a mutex at such a path a semaphore or an unfair lock.
    let inner =
        ["/app/leases", "/app/lock/holder"].map(|path| InterProcessMutex::new(&client, path).unwrap().lock().unwrap());
    for (path, found) in
        [("/both/s", Some("a semaphore")), ("/both/u", Some("an unfair lock")), ("/names", None), ("/app", None)]
    {
        for _ in 0..3 {
            InterProcessMutex::new(&client, path).unwrap().run(|_| ()).unwrap();
        }
        client.sync().for_path("/").unwrap();
        let said: Vec<String> =
            found.map(|found| format!("{found} and of a queue, which do not exclude each other")).into_iter().collect();
        assert_eq!(warnings(path), said);
        let refused = InterProcessMutex::new(&strict, path).unwrap().lock().map(drop);
        match (&refused, found) {
            (Ok(()), None) => {}
            (Err(Error::MixedKinds { path: told, found: what }), Some(found)) => {
                assert_eq!((told.as_str(), *what), (path, found));
            }
            _ => panic!("{path}: {refused:?}"),
        }
        let left = || client.get_children().for_path(path).unwrap().into_iter().any(|name| name.contains("-lock-"));
        eventually("nothing is left in the queue", || !left());
    }
    drop(inner);
    let held = InterProcessMutex::new(&client, "/both/m").unwrap().lock().unwrap();
    let refused = [
        InterProcessUnfairMutex::new(&strict, "/both/m").unwrap().acquire(),
        InterProcessSemaphoreMutex::new(&strict, "/both/m").unwrap().acquire(),
        InterProcessSemaphoreV2::new(&strict, "/both/u", 2).unwrap().acquire().map(drop),
        InterProcessUnfairMutex::new(&strict, "/both/s").unwrap().acquire(),
    ];
    assert!(refused.iter().all(|refused| matches!(refused, Err(Error::MixedKinds { .. }))), "{refused:?}");
    held.release().unwrap();
}

#[test]
fn a_server_can_be_had_on_a_port_of_ones_own() {
    // Somebody else may take the port that the first one leaves.
    let (port, second) = std::iter::repeat_with(|| {
        let port = TestingServer::start().unwrap().port();
        (port, TestingServer::builder().port(port).start())
    })
    .find(|(_, second)| !second.as_ref().is_err_and(|error| error.to_string().contains("the port is not free")))
    .unwrap();
    let second = second.unwrap();
    assert_eq!(second.port(), port);
    let client = connect(builder(&second, "x"));
    assert!(client.is_connected());
}
