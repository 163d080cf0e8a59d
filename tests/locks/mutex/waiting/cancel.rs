//! Calls that another thread cancels.

use std::{
    thread,
    time::{Duration, Instant},
};

use curator_locks::{AcquireOptions, CancelToken, Error};

use crate::{
    kept::and_kept,
    support::{
        self, another, builder, connect, eventually,
        machine::{Machine, since},
        mutex,
    },
};

/// Beside what the threads are kept from running.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Cancelled at any moment of the acquire: while it makes the parents, creates, lists, watches or waits.
#[test]
fn wherever_an_acquire_is_cancelled_nothing_is_left() {
    let client = support::client();
    let other = another(&client);
    for round in 0..200_u32 {
        let path = format!("/cancelled/{round}/locks/m");
        let mutex = curator_locks::InterProcessMutex::new(&other, &path).unwrap();
        let token = CancelToken::new();
        thread::scope(|scope| {
            let acquiring = scope.spawn(|| mutex.acquire_with(&AcquireOptions::new().cancel_token(&token)));
            let until = Instant::now() + Duration::from_micros(u64::from(round) * 40);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            token.cancel();
            match acquiring.join().unwrap() {
                // The hold belongs to a thread that is gone. Its client ends it.
                Ok(true) | Err(Error::Cancelled { .. }) => {}
                other => panic!("{other:?}"),
            }
        });
    }
    other.sync().for_path("/").unwrap();
    other.close();
    eventually("no container is left", || client.check_exists().for_path("/cancelled").unwrap().is_none());
}

#[test]
fn a_cancelled_call_does_not_wait_for_a_connection() {
    let machine = Machine::watch();
    let client = builder(support::server(), "nobody").connect_string("127.0.0.1:1").build().unwrap();
    client.start().unwrap();
    let (mutex, token) = (mutex(&client), CancelToken::new());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| and_kept(|| mutex.acquire_with(&AcquireOptions::new().cancel_token(&token))));
        token.cancel();
        let begin = Instant::now();
        let ((result, kept), of_this) = and_kept(|| waiting.join().unwrap());
        assert!(matches!(result, Err(Error::Cancelled { .. })), "{result:?}");
        machine.assert_at_most("cancelled", since(begin), AT_ONCE + kept + of_this);
    });
    connect(builder(support::server(), "nobody")).close();
}
