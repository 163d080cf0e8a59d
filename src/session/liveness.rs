//! How long the session lives for certain, when to send a heartbeat, and when a connection is dead.

use std::time::{Duration, Instant};

/// Timers of one connection and the proof that the session lives, on a clock that the caller passes in.
///
/// The heartbeat is `sync`, every third of the session timeout T. In an ensemble an answered ping proves nothing: a
/// follower answers by itself and hands its touches to the leader only with the leader's next ping, and a leader that
/// was paused expires sessions by touches it never got. A `sync` passes through the leader, in order behind the
/// follower's touches. So a heartbeat counts as a touch at the leader when it was answered within T/6 and is followed
/// by another such one sent at least T/4 later (a leader's ping, every half tick, lies in between if T >= 2 ticks).
#[derive(Debug)]
pub(crate) struct Liveness {
    timeout: Duration,
    last_received: Instant,
    next_heartbeat: Instant,
    /// Send times of prompt heartbeats that wait for one that follows.
    prompt: Vec<Instant>,
    /// A moment at or after which the leader knew the session to live.
    touched: Option<Instant>,
    /// The session timeout that the leader goes by; a read-only server may have agreed to another.
    lease: Duration,
}

impl Liveness {
    pub(crate) fn new(timeout: Duration, now: Instant) -> Self {
        Liveness { timeout, last_received: now, next_heartbeat: now, prompt: Vec::new(), touched: None, lease: timeout }
    }

    /// A server took the session up, for which the leader itself touches it. `handshake_sent` is `None` for a read-only
    /// server: it has no leader, and answers while the quorum on the other side lets the session expire.
    pub(crate) fn connected(&mut self, timeout: Duration, handshake_sent: Option<Instant>, now: Instant) {
        self.timeout = timeout;
        self.last_received = now;
        self.next_heartbeat = now + timeout / 3;
        self.prompt.clear();
        if handshake_sent.is_some() {
            self.touched = self.touched.max(handshake_sent);
            self.lease = timeout;
        }
    }

    pub(crate) fn disconnected(&mut self) {
        // A pair of heartbeats proves something only if both took the same way to the leader.
        self.prompt.clear();
    }

    pub(crate) fn received(&mut self, now: Instant) {
        self.last_received = self.last_received.max(now);
    }

    /// Whether a heartbeat is due; if so, the next one is scheduled.
    pub(crate) fn take_heartbeat(&mut self, now: Instant) -> bool {
        if now < self.next_heartbeat {
            return false;
        }
        self.next_heartbeat = now + self.timeout / 3;
        true
    }

    pub(crate) fn heartbeat_answered(&mut self, sent: Instant, now: Instant) {
        if now.saturating_duration_since(sent) > self.timeout / 6 {
            return;
        }
        let apart = self.timeout / 4;
        if let Some(proved) = self.prompt.iter().copied().filter(|earlier| *earlier + apart <= sent).max() {
            self.touched = self.touched.max(Some(proved));
            self.prompt.retain(|earlier| *earlier > proved);
        }
        self.prompt.push(sent);
    }

    /// Whether nothing was received for so long that the connection is dead, whatever TCP says.
    pub(crate) fn is_dead(&self, now: Instant) -> bool {
        now >= self.dead_at()
    }

    /// When it is dead if nothing comes until then.
    pub(crate) fn dead_at(&self) -> Instant {
        self.last_received + self.timeout * 2 / 3
    }

    /// When there is something to do next.
    pub(crate) fn next_timer(&self) -> Instant {
        self.next_heartbeat.min(self.dead_at())
    }

    /// Up to here the servers cannot have expired the session. The margin covers clocks that run at different rates.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        self.touched.map(|touched| touched + self.lease - self.lease / 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(12);

    fn connected() -> (Liveness, Instant) {
        let start = Instant::now();
        let mut liveness = Liveness::new(T, start);
        liveness.connected(T, Some(start), start + Duration::from_millis(5));
        (liveness, start)
    }

    fn after_margin(touched: Instant) -> Option<Instant> {
        Some(touched + T - T / 20)
    }

    #[test]
    fn the_handshake_is_a_touch() {
        let (liveness, start) = connected();
        assert_eq!(liveness.valid_until(), after_margin(start));
    }

    #[test]
    fn a_read_only_server_proves_nothing() {
        let (mut liveness, start) = connected();
        liveness.disconnected();
        liveness.connected(2 * T, None, start + T / 2);
        assert_eq!(liveness.valid_until(), after_margin(start));
        let mut never_seen_by_a_leader = Liveness::new(T, start);
        never_seen_by_a_leader.connected(T, None, start);
        assert_eq!(never_seen_by_a_leader.valid_until(), None);
    }

    #[test]
    fn the_timeout_of_the_last_handshake_counts_even_if_it_is_shorter() {
        let (mut liveness, start) = connected();
        let again = start + Duration::from_secs(1);
        liveness.disconnected();
        liveness.connected(T / 4, Some(again), again);
        assert_eq!(liveness.valid_until(), Some(again + T / 4 - T / 80));
    }

    #[test]
    fn one_prompt_heartbeat_alone_proves_nothing() {
        let (mut liveness, start) = connected();
        liveness.heartbeat_answered(start + T / 3, start + T / 3 + Duration::from_millis(1));
        assert_eq!(liveness.valid_until(), after_margin(start));
    }

    #[test]
    fn a_prompt_heartbeat_followed_by_another_is_a_touch() {
        let (mut liveness, start) = connected();
        for k in 1..=3 {
            liveness.heartbeat_answered(start + k * T / 3, start + k * T / 3 + Duration::from_millis(1));
        }
        assert_eq!(liveness.valid_until(), after_margin(start + 2 * T / 3));
    }

    #[test]
    fn two_heartbeats_close_together_prove_nothing() {
        let (mut liveness, start) = connected();
        let first = start + T / 3;
        liveness.heartbeat_answered(first, first);
        liveness.heartbeat_answered(first + T / 5, first + T / 5);
        assert_eq!(liveness.valid_until(), after_margin(start));
    }

    #[test]
    fn a_late_answer_does_not_count() {
        let (mut liveness, start) = connected();
        liveness.heartbeat_answered(start + T / 3, start + T / 3);
        liveness.heartbeat_answered(start + 2 * T / 3, start + 2 * T / 3 + T / 6 + Duration::from_millis(1));
        assert_eq!(liveness.valid_until(), after_margin(start));
        liveness.heartbeat_answered(start + T, start + T);
        assert_eq!(liveness.valid_until(), after_margin(start + T / 3));
    }

    #[test]
    fn heartbeats_of_two_connections_do_not_pair() {
        let (mut liveness, start) = connected();
        liveness.heartbeat_answered(start + T / 3, start + T / 3);
        liveness.disconnected();
        liveness.heartbeat_answered(start + 2 * T / 3, start + 2 * T / 3);
        assert_eq!(liveness.valid_until(), after_margin(start));
    }

    #[test]
    fn the_connection_is_dead_after_two_thirds_of_silence() {
        let (mut liveness, start) = connected();
        let received = start + Duration::from_secs(1);
        liveness.received(received);
        assert!(!liveness.is_dead(received + T * 2 / 3 - Duration::from_millis(1)));
        assert!(liveness.is_dead(received + T * 2 / 3));
    }

    #[test]
    fn heartbeats_come_every_third_of_the_timeout() {
        let (mut liveness, start) = connected();
        let connected = start + Duration::from_millis(5);
        assert!(!liveness.take_heartbeat(connected + T / 3 - Duration::from_millis(1)));
        assert!(liveness.take_heartbeat(connected + T / 3));
        assert!(!liveness.take_heartbeat(connected + T / 3));
        assert_eq!(liveness.next_timer(), connected + T * 2 / 3);
    }
}
