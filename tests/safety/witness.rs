//! Clients that only write, one at each server, so that what the servers do is not taken for what the locks do.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use crate::{
    NAMESPACE, SESSION,
    support::{history::shared_clock, raw::RawClient},
};

const PAUSE: Duration = Duration::from_millis(50);

/// A server that answers no write for so long serves nobody.
const LONG: Duration = Duration::from_millis(500);

/// From when to when this server answered no write.
pub fn outages(address: &str, is_over: &AtomicBool) -> Vec<(u64, u64)> {
    let connect = || RawClient::connect(address, SESSION).ok();
    let path = format!("/{NAMESPACE}");
    let (mut client, mut last, mut outages) = (connect(), shared_clock(), Vec::new());
    loop {
        // It is there already: a quorum has to agree on that answer, too.
        let is_written = client.as_mut().is_some_and(|client| client.create(&path, false).is_ok());
        let (now, is_over) = (shared_clock(), is_over.load(Relaxed));
        if (is_written || is_over) && now - last > LONG.as_nanos() as u64 {
            outages.push((last, now));
        }
        if is_over {
            return outages;
        }
        if is_written {
            last = now;
        } else {
            client = connect();
        }
        thread::sleep(PAUSE);
    }
}
