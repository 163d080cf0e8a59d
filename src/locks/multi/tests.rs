//! What a multi lock says where its time is up, and what it refuses.

use super::*;
use crate::{
    base::{clock, paths::ServerPath},
    framework::{
        config::retry::RetryOneTime,
        events::{dispatch::Dispatcher, event::event_channel},
        held::registry::HeldNodes,
    },
    session::fake::stub::StubSession,
};

/// Whether the last look at two locks, of which the second one is certain for so long, ends with the time being up; and at
/// which lock.
fn look(valid_for: Duration, options: &AcquireOptions) -> (Result<bool>, Option<String>) {
    let retry = RetryOneTime::new(Duration::from_millis(1));
    let client = CuratorFramework::builder().connect_string("127.0.0.1:1").retry_policy(retry).build().unwrap();
    let multi = InterProcessMultiLock::new(&client, ["/a", "/b"]).unwrap();
    let nodes = HeldNodes::new(None, event_channel().0, Arc::new(Dispatcher::new()), Arc::default());
    let hold = |path: &str, valid_for: Duration| {
        let session = StubSession::new();
        *session.valid_until.lock() = Some(clock::now() + valid_for);
        Hold::new(nodes.add(ServerPath::from_server(path), session, 3, 1, None), path.to_owned(), None)
    };
    let holds = vec![hold("/a/1", Duration::from_secs(60)), hold("/b/1", valid_for)];
    let taken = Members { multi: multi.clone(), holds, ends: vec![1, 2], since: None };
    let is_time_up = multi.look_at(taken, Wait::of(options)).map(|end| matches!(end, Break(None)));
    (is_time_up, multi.timed_out_at())
}

#[test]
fn a_time_that_is_up_at_the_last_look_names_the_lock_that_is_in_doubt() {
    let (is_time_up, at) = look(Duration::ZERO, &AcquireOptions::new().timeout(Duration::from_millis(20)));
    assert_eq!((is_time_up.unwrap(), at.as_deref()), (true, Some("/b")));
}

#[test]
fn a_validity_that_a_session_cannot_give_is_refused_instead_of_waited_for() {
    let (is_time_up, _) = look(Duration::from_secs(13), &AcquireOptions::new().min_validity(Duration::from_secs(11)));
    assert!(matches!(is_time_up, Err(Error::InvalidArgument { name: "min_validity", .. })), "{is_time_up:?}");
}
