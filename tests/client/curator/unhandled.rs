//! Errors that no call returns.

use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use curator_locks::{CreateMode, CuratorFramework, EnsembleProvider, Error, LeaderLatch, RetryOneTime};

use crate::support::{PATIENCE, builder, client, server};

/// Messages and errors, as they are told.
fn listen(client: &CuratorFramework) -> Receiver<String> {
    let (tell, told) = unbounded();
    client.add_unhandled_error_listener(|_, _| panic!("on purpose"));
    let silent = client.add_unhandled_error_listener(|_, _| panic!("was removed"));
    client.remove_unhandled_error_listener(silent);
    client.add_unhandled_error_listener(move |message, error| {
        let is_ours = error.downcast_ref::<Error>().is_some();
        tell.send(format!("{message}: {error}, {is_ours}")).unwrap_or_default();
    });
    told
}

#[test]
fn a_latch_that_nobody_awaits_tells_why_it_cannot_queue_and_one_that_panics_silences_no_other() {
    let client = client();
    let owner = client.create().with_mode(CreateMode::Ephemeral).creating_parents_if_needed();
    owner.for_path_and_data("/ephemeral", "").unwrap();
    let told = listen(&client);
    let latch = LeaderLatch::new(&client, "/ephemeral").unwrap();
    latch.start().unwrap();
    let text = told.recv_timeout(PATIENCE).unwrap();
    assert!(text.starts_with("/ephemeral: ") && text.ends_with(", true"), "{text}");
}

#[test]
fn credentials_that_the_servers_reject_are_told_and_no_session_comes() {
    let builder = builder(server(), "unhandled_auth").authorization("unheard-of", "x");
    let client = builder.build().unwrap();
    let told = listen(&client);
    client.start().unwrap();
    let text = told.recv_timeout(PATIENCE).unwrap();
    assert!(text.contains("unheard-of") && text.starts_with("no session will come"), "{text}");
    assert!(matches!(client.block_until_connected(None), Err(Error::AuthFailed { .. })));
}

/// Names good servers once.
struct Fickle(std::sync::atomic::AtomicBool);

impl EnsembleProvider for Fickle {
    fn connection_string(&self) -> String {
        let is_first = self.0.swap(false, std::sync::atomic::Ordering::SeqCst);
        if is_first { "127.0.0.1:1".into() } else { "no port:x".into() }
    }
}

#[test]
fn a_bad_connect_string_of_a_provider_is_told() {
    let builder = CuratorFramework::builder().ensemble_provider(Fickle(true.into()));
    let client = builder.retry_policy(RetryOneTime::new(Duration::from_millis(1))).build().unwrap();
    let told = listen(&client);
    client.start().unwrap();
    let text = told.recv_timeout(PATIENCE).unwrap();
    assert!(
        text.starts_with("the ensemble provider gave a bad connect string: ") && text.contains("no port:x"),
        "{text}"
    );
}
