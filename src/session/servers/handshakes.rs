//! How many sessions of one process come back to one server at a time.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::base::sync::Mutex;

/// One server gets at most so many handshakes at once, and one more each interval: 190 in any two seconds, ZooKeeper's usual
/// tick. Each is work for the leader as well, and hundreds at once keep a server that has just come back from serving.
const AT_ONCE: u32 = 90;
const INTERVAL: Duration = Duration::from_millis(20);

/// The count of sessions that cannot wait ends here: those that come later would pay for them.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The handshakes of sessions that come back after an outage, server by server. Without it the first server that serves again
/// would get all sessions of the process.
#[derive(Debug)]
pub(crate) struct Handshakes(
    /// When nothing will be left of the handshakes that a server got.
    Mutex<BTreeMap<SocketAddr, Instant>>,
);

/// Those of this process.
pub(crate) static OF_THIS_PROCESS: Handshakes = Handshakes::new();

impl Handshakes {
    pub(crate) const fn new() -> Handshakes {
        Handshakes(Mutex::new(BTreeMap::new()))
    }

    /// How long the next handshake with this server should wait.
    pub(crate) fn wait(&self, server: SocketAddr, now: Instant) -> Duration {
        self.0.lock().get(&server).map_or(Duration::ZERO, |clear| wait(*clear + INTERVAL, now))
    }

    /// Books the next handshake with this server, with or without a wait.
    pub(crate) fn take(&self, server: SocketAddr, now: Instant) {
        let mut servers = self.0.lock();
        servers.retain(|_, clear| *clear > now);
        let clear = servers.get(&server).copied().unwrap_or(now) + INTERVAL;
        let clear = clear.min(now + INTERVAL * AT_ONCE + LONGEST_WAIT);
        servers.insert(server, clear);
    }

    /// A handshake came to nothing, as the server does not serve yet: others may try at once.
    pub(crate) fn give_back(&self, server: SocketAddr) {
        if let Some(clear) = self.0.lock().get_mut(&server) {
            *clear = clear.checked_sub(INTERVAL).unwrap_or(*clear);
        }
    }
}

fn wait(clear: Instant, now: Instant) -> Duration {
    clear.saturating_duration_since(now + INTERVAL * AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    const TICK: Duration = Duration::from_secs(2);

    fn server(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 2181))
    }

    #[test]
    fn any_two_seconds_have_less_than_200_handshakes_with_one_server() {
        let (handshakes, begin) = (Handshakes::new(), clock::now());
        let mut times = Vec::new();
        for now in (0..10_000).map(|k| begin + Duration::from_millis(1) * k) {
            if handshakes.wait(server(1), now).is_zero() {
                handshakes.take(server(1), now);
                times.push(now);
            }
        }
        let lasts = |window: &[Instant]| window.first().zip(window.last()).map(|(first, last)| *last - *first);
        assert!(times.len() > 500 && times.windows(200).all(|window| lasts(window).is_some_and(|lasts| lasts > TICK)));
        assert_eq!(handshakes.wait(server(2), begin), Duration::ZERO, "another server has room");
    }

    #[test]
    fn what_came_to_nothing_and_what_is_long_ago_does_not_count() {
        let (handshakes, now) = (Handshakes::new(), clock::now());
        for _ in 0..1000 {
            handshakes.take(server(1), now);
            handshakes.give_back(server(1));
        }
        for _ in 0..AT_ONCE {
            assert_eq!(handshakes.wait(server(1), now), Duration::ZERO);
            handshakes.take(server(1), now);
        }
        assert_eq!(handshakes.wait(server(1), now), INTERVAL);
        assert_eq!(handshakes.wait(server(1), now + INTERVAL), Duration::ZERO);
    }

    #[test]
    fn nobody_pays_for_long_for_those_that_could_not_wait() {
        let (handshakes, now) = (Handshakes::new(), clock::now());
        for _ in 0..10_000 {
            handshakes.take(server(1), now);
        }
        assert_eq!(handshakes.wait(server(1), now), LONGEST_WAIT + INTERVAL);
    }
}
