//! Leaders that one thread starts and another one closes.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, thread, time::Duration};

use crate::{
    error::{Error, Result},
    framework::{client::core::CuratorFramework, config::retry::RetryOneTime},
    locks::leader::{latch::LeaderLatch, leadership::Leadership, selector::LeaderSelector},
};

const ROUNDS: usize = 500;

/// A client whose servers are not there.
fn client() -> CuratorFramework {
    let retry = RetryOneTime::new(Duration::from_millis(1));
    let client = CuratorFramework::builder().connect_string("127.0.0.1:1").retry_policy(retry).build().unwrap();
    client.start().unwrap();
    client
}

/// Closes it as soon as it is in use, while another thread is still starting it.
fn close_while_it_starts(start: impl FnOnce() -> Result<()> + Send, close: impl Fn() -> Result<()>) {
    thread::scope(|scope| {
        let starting = scope.spawn(start);
        loop {
            match close() {
                Err(Error::NotInUse { state: "not started", .. }) => std::hint::spin_loop(),
                result => break result.unwrap(),
            }
        }
        // It was started before it was closed, or has seen the close.
        let started = starting.join().unwrap();
        assert!(matches!(started, Ok(()) | Err(Error::NotInUse { state: "closed", .. })), "{started:?}");
    });
}

#[test]
fn a_latch_that_is_closed_while_it_starts_leaves_no_listener_behind() {
    let client = client();
    for _ in 0..ROUNDS {
        let latch = LeaderLatch::new(&client, "/leader").unwrap();
        close_while_it_starts(|| latch.start(), || latch.close());
        assert_eq!(latch.our_path(), None);
        assert_eq!(Arc::weak_count(&latch.candidate), 0, "the client still tells it of its connection");
    }
    client.close();
}

#[test]
fn a_selector_that_is_closed_while_it_starts_leaves_no_listener_and_no_task_behind() {
    let client = client();
    for _ in 0..ROUNDS {
        let never = |_: &CuratorFramework, _: &Leadership| {};
        let selector = LeaderSelector::new(&client, "/leader", never).unwrap();
        close_while_it_starts(|| selector.start(), || selector.close());
        let shared = Arc::downgrade(&selector.shared);
        assert_eq!(shared.weak_count(), 1, "the client still tells it of its connection");
        drop(selector);
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }
    client.close();
}
