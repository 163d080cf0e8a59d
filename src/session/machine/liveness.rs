//! How long the session lives for certain, when to send a heartbeat, and when a connection is dead.

use std::time::{Duration, Instant};

/// Timers of one connection and the proof that the session lives, on a clock that the caller passes in.
///
/// The heartbeat is `sync`: a quarter of the session timeout T after the answer to the one before, if that came within
/// T/12, else a third of T after its send. In an ensemble an answered ping proves nothing: a
/// follower answers by itself and hands its touches to the leader only in its answer to the leader's next ping, every
/// half tick, and a leader that was paused expires sessions by touches it never got. So a heartbeat counts as a touch
/// if it was answered within T/6 and is followed by another such one, sent at least T/4 after the first one's answer.
///
/// Why the leader then keeps the session until T after the first one was sent, if T >= 2 ticks:
/// 1. The follower got the first one before its answer came here, and the second one after that was sent. In between lie
///    T/4 >= tick/2, so one of the leader's pings. From send to send is not enough: the first one may have been on its
///    way to the follower for T/6, and what is left of T/3, T/6, may lie between two pings.
/// 2. The follower answers that ping with all its touches since the ping before, the first heartbeat's among them, and
///    passes the second one on after that, over the same stream. The leader reads the touch, and then the `sync`.
/// 3. The leader answers that `sync` behind everything that it did before. Had it expired the session by then, the
///    follower would have closed the connection instead of answering. So the session lived when the touch came, and
///    that was after the first heartbeat was sent: the leader counts T from there at the earliest.
///
/// It takes that leader for the one that counts. One that is cut off from the others answers a `sync` and resumes sessions
/// by itself, while they have another one. A transaction as the heartbeat needs a majority, and so the leader that counts.
///
/// It holds for a follower, for an observer of the leader, and for the leader itself. Where an observer follows a follower
/// (an observer master), a touch takes two pings, and nothing is proved. Nor does it hold for a leader that pauses in
/// between, so that its ping is overdue when the second heartbeat comes, and pauses again before the answer to that ping.
#[derive(Debug)]
pub(crate) struct Liveness {
    timeout: Duration,
    last_received: Instant,
    next_heartbeat: Instant,
    /// Prompt heartbeats that wait for one that follows.
    prompt: Vec<Heartbeat>,
    valid_until: Option<Instant>,
}

/// How a connection came by its session; the moments are those at which the handshake was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// The leader made the session.
    Created(Instant),
    /// The leader touched a session that there was. It `counts` where a leader is believed that may be cut off
    /// from the others.
    Resumed { sent: Instant, counts: bool },
    /// A read-only server has no leader, and answers while the quorum on the other side lets the session expire.
    ReadOnly,
}

#[derive(Debug, Clone, Copy)]
struct Heartbeat {
    sent: Instant,
    answered: Instant,
}

impl Liveness {
    pub(crate) fn new(timeout: Duration, now: Instant) -> Self {
        Liveness { timeout, last_received: now, next_heartbeat: now, prompt: Vec::new(), valid_until: None }
    }

    /// A server took the session up.
    ///
    /// That a session was resumed proves nothing once it may be due: a leader takes all the sessions that are due from its
    /// clock, and then marks and expires one after the other. Until its turn has come a session can still be resumed, and
    /// is expired all the same. Then the handshake is a heartbeat like any other, which another one has to follow.
    pub(crate) fn connected(&mut self, timeout: Duration, origin: Origin, now: Instant) {
        self.timeout = timeout;
        self.last_received = now;
        self.next_heartbeat = now + timeout / 3;
        self.prompt.clear();
        match origin {
            Origin::Created(sent) => self.valid_until = Some(self.lasts_from(sent)),
            Origin::Resumed { sent, counts } => {
                if counts && self.valid_until.is_some_and(|until| now < until) {
                    // The leader goes by this timeout from now on, even if it is shorter.
                    self.valid_until = Some(self.lasts_from(sent));
                }
                self.heartbeat_answered(sent, now);
            }
            Origin::ReadOnly => {}
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

    /// Whether the answer came soon enough to prove something.
    pub(crate) fn heartbeat_answered(&mut self, sent: Instant, now: Instant) -> bool {
        if now.saturating_duration_since(sent) > self.timeout / 6 {
            return false;
        }
        let apart = self.timeout / 4;
        let followed = self.prompt.iter().filter(|earlier| earlier.answered + apart <= sent);
        if let Some(proved) = followed.map(|earlier| earlier.sent).max() {
            self.valid_until = self.valid_until.max(Some(self.lasts_from(proved)));
            self.prompt.retain(|earlier| earlier.sent > proved);
        }
        self.prompt.push(Heartbeat { sent, answered: now });
        // The earliest one that proves this one. The older a proof is when the next one comes, the less is left of it: so a
        // session whose round trip takes r is never valid for less than 0.40 T - 3 r, or 0.34 T - 3 r until the second
        // proof, where thirds of T leave 0.28 T. T/40 more than has to be, because the leader's pings are not punctual
        // either.
        self.next_heartbeat = self.next_heartbeat.min(now + apart + self.timeout / 40);
        true
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

    /// Up to here the servers cannot have expired the session.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        self.valid_until
    }

    /// For how long a leader that knew the session to live at this moment keeps it. The margin covers clocks that run at
    /// different rates, but not one that stands: this one does while the system sleeps.
    fn lasts_from(&self, touched: Instant) -> Instant {
        touched + self.timeout - self.timeout / 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(12);

    fn connected() -> (Liveness, Instant) {
        let start = Instant::now();
        let mut liveness = Liveness::new(T, start);
        liveness.connected(T, Origin::Created(start), start + Duration::from_millis(5));
        (liveness, start)
    }

    fn after_margin(touched: Instant) -> Option<Instant> {
        Some(touched + T - T / 20)
    }

    #[test]
    fn the_handshake_of_a_new_session_is_a_touch() {
        let (liveness, start) = connected();
        assert_eq!(liveness.valid_until(), after_margin(start));
    }

    #[test]
    fn the_handshake_of_a_session_that_cannot_be_due_is_a_touch() {
        let (mut liveness, start) = connected();
        let again = start + T / 2;
        liveness.disconnected();
        let answered = start + T - T / 20 - Duration::from_nanos(1);
        liveness.connected(T, Origin::Resumed { sent: again, counts: true }, answered);
        assert_eq!(liveness.valid_until(), after_margin(again));
    }

    #[test]
    fn the_handshake_of_a_session_that_may_be_due_is_a_touch_once_a_heartbeat_follows() {
        for (counts, answered) in [(true, T - T / 20), (false, T / 2)] {
            let (mut liveness, start) = connected();
            let (again, answered) = (start + answered - T / 20, start + answered);
            liveness.disconnected();
            liveness.connected(T, Origin::Resumed { sent: again, counts }, answered);
            assert_eq!(liveness.valid_until(), after_margin(start));
            assert_eq!(liveness.next_timer(), answered + T * 11 / 40);
            liveness.heartbeat_answered(answered + T / 4, answered + T / 3);
            assert_eq!(liveness.valid_until(), after_margin(again));
        }
    }

    /// Of a session whose age nobody knows.
    #[test]
    fn the_handshake_of_a_session_of_which_nothing_was_proved_counts_as_a_heartbeat() {
        let start = Instant::now();
        let mut liveness = Liveness::new(T, start);
        liveness.connected(T, Origin::Resumed { sent: start, counts: true }, start);
        assert_eq!(liveness.valid_until(), None);
        liveness.heartbeat_answered(start + T / 4, start + T / 4);
        assert_eq!(liveness.valid_until(), after_margin(start));
    }

    #[test]
    fn a_read_only_server_proves_nothing() {
        let (mut liveness, start) = connected();
        liveness.disconnected();
        liveness.connected(2 * T, Origin::ReadOnly, start + T / 2);
        assert_eq!(liveness.valid_until(), after_margin(start));
        let mut never_seen_by_a_leader = Liveness::new(T, start);
        never_seen_by_a_leader.connected(T, Origin::ReadOnly, start);
        assert_eq!(never_seen_by_a_leader.valid_until(), None);
    }

    #[test]
    fn the_timeout_of_the_last_handshake_counts_even_if_it_is_shorter() {
        for timeout in [T / 4, 2 * T] {
            let (mut liveness, start) = connected();
            let sent = start + Duration::from_secs(1);
            liveness.disconnected();
            liveness.connected(timeout, Origin::Resumed { sent, counts: true }, sent);
            assert_eq!(liveness.valid_until(), Some(sent + timeout - timeout / 20));
        }
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

    /// It may have reached the follower just before it was answered, and between that and the next one's send lie T/6,
    /// less than half a tick where T is two ticks.
    #[test]
    fn a_heartbeat_answered_late_does_not_pair_with_the_next_one_but_with_the_one_after() {
        let (mut liveness, start) = connected();
        let moment = Duration::from_millis(1);
        liveness.heartbeat_answered(start + T / 3, start + T / 3 + T / 6);
        liveness.heartbeat_answered(start + 2 * T / 3, start + 2 * T / 3 + moment);
        assert_eq!(liveness.valid_until(), after_margin(start));
        liveness.heartbeat_answered(start + T, start + T + moment);
        assert_eq!(liveness.valid_until(), after_margin(start + 2 * T / 3));
        let (mut liveness, start) = connected();
        liveness.heartbeat_answered(start + T / 3, start + T / 3 + T / 6);
        liveness.heartbeat_answered(start + T, start + T + moment);
        assert_eq!(liveness.valid_until(), after_margin(start + T / 3));
    }

    #[test]
    fn the_next_heartbeat_has_to_be_sent_a_quarter_of_the_timeout_after_the_answer() {
        let (mut liveness, start) = connected();
        let (sent, answered) = (start + T / 3, start + T / 3 + T / 12);
        liveness.heartbeat_answered(sent, answered);
        let next = answered + T / 4;
        liveness.heartbeat_answered(next - Duration::from_nanos(1), next);
        assert_eq!(liveness.valid_until(), after_margin(start));
        liveness.heartbeat_answered(next, next);
        assert_eq!(liveness.valid_until(), after_margin(sent));
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
    fn a_session_that_is_answered_promptly_keeps_040_of_the_timeout_less_3_round_trips_and_034_at_the_beginning() {
        for round_trip in [Duration::ZERO, Duration::from_millis(100), T / 12] {
            let (mut liveness, _) = connected();
            let (mut least, mut least_at_first) = (Duration::MAX, Duration::MAX);
            for number in 0..20 {
                let sent = liveness.next_timer();
                assert!(liveness.take_heartbeat(sent));
                let answered = sent + round_trip;
                liveness.received(answered);
                let left = liveness.valid_until().map(|until| until.saturating_duration_since(answered));
                let least = if number < 2 { &mut least_at_first } else { &mut least };
                *least = (*least).min(left.unwrap_or_default());
                liveness.heartbeat_answered(sent, answered);
            }
            assert!(least >= (T * 40 / 100).saturating_sub(3 * round_trip), "{round_trip:?}: {least:?}");
            assert!(
                least_at_first >= (T * 34 / 100).saturating_sub(3 * round_trip),
                "{round_trip:?}: {least_at_first:?}"
            );
        }
    }

    #[test]
    fn heartbeats_come_a_quarter_of_the_timeout_after_a_prompt_answer_and_else_every_third() {
        let (mut liveness, start) = connected();
        let connected = start + Duration::from_millis(5);
        assert!(!liveness.take_heartbeat(connected + T / 3 - Duration::from_millis(1)));
        assert!(liveness.take_heartbeat(connected + T / 3));
        assert!(!liveness.take_heartbeat(connected + T / 3));
        assert_eq!(liveness.next_timer(), connected + T * 2 / 3);
        let moment = Duration::from_millis(1);
        liveness.received(connected + T / 3 + moment);
        liveness.heartbeat_answered(connected + T / 3, connected + T / 3 + moment);
        assert_eq!(liveness.next_timer(), connected + T / 3 + moment + T * 11 / 40);
        assert!(liveness.take_heartbeat(connected + T / 3 + moment + T * 11 / 40));
    }
}
