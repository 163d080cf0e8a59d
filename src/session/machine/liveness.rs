//! How long the session lives for certain, when to send a heartbeat, and when a connection is dead.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The longest round trip with which a session stays certain. Beyond it a proof is too old when the next one comes.
pub(crate) fn longest_round_trip(timeout: Duration) -> Duration {
    timeout * 3 / 10
}

/// Timers of one connection and the proof that the session lives, on a clock that the caller passes in.
///
/// The heartbeat is a `sync`, or a transaction that changes nothing, which proves the same and more. In an ensemble an answered ping proves nothing: a follower answers by itself and hands its
/// touches to the leader only in its answer to the leader's next ping, every half tick, and a leader that was paused
/// expires sessions by touches it never got. So a heartbeat counts as a touch if it is followed by another one, sent at
/// least T/4 after the first one's answer and answered too, T being the session timeout.
///
/// Why the leader then keeps the session until T after the first one was sent, if T >= 2 ticks:
/// 1. The follower got the first one before its answer came here, and the second one after that was sent. In between lie
///    T/4 >= tick/2, so one of the leader's pings. From send to send is not enough: the first one may have been on its
///    way to the follower for a whole round trip, and the rest may lie between two pings.
/// 2. The follower answers that ping with all its touches since the ping before, the first heartbeat's among them, and
///    passes the second one on after that, over the same stream. The leader reads the touch, and then the `sync`.
/// 3. The leader answers that `sync` behind everything that it did before. Had it expired the session by then, the
///    follower would have closed the connection instead of answering. So the session lived when the touch came, and
///    that was after the first heartbeat was sent: the leader counts T from there at the earliest.
///
/// Nothing of this depends on how long an answer took: the first one's moment is a lower bound of the time until which
/// the follower had it, and the second one's answer is a statement about the past, which does not become less true on its
/// way. A slow answer makes a proof older, not weaker. How old a proof may get is a matter of how often a heartbeat goes out:
/// where the round trip r is shorter than T/12, 11/40 T after the answer to the one before, so that a proof is never older
/// than 3 r + 0.55 T when the next one comes. On slower links heartbeats overlap, one each T/40, and a proof is never
/// older than 2 r + 0.3 T. It lasts 0.95 T, of which something is left up to r = 0.3 T
/// ([`longest_round_trip`]). A session that is new has to do with its handshake until the first pair
/// after that, 3 r + 0.28 T after the handshake was sent. Beyond r = 0.22 T that is too late: it is in doubt once.
///
/// Between the moment at which a leader takes the sessions that are due from its clock, all of one tick at once, and
/// the moment at which it has expired them one after the other, a session can still be resumed, touched and synced, and
/// is expired all the same. That cannot have begun while the session is certain, as the touch of each pair comes before
/// the one of the pair before it is T old. Once `valid_until` has passed it may have begun before the next touch came. So
/// what a pair then says is [`Unconfirmed`] until a heartbeat is answered that was sent a quarter of T after its second answer,
/// and what a handshake says until one is that was sent half of T after its own: by then, T/2 after the touch, the leader
/// would have expired what it had taken. An expiry may take as long as that.
///
/// A leader that stood still while the others chose another one answers for up to a tick when it goes on, as its look at its
/// followers may come before it has heard that they left. So neither a handshake, which it answers by itself, nor a pair
/// behind a silence, 2/5 of T from answer to answer, counts before the leader has carried out a transaction over the same
/// connection, which goes out at once: a majority followed that leader after the touch, and one that is chosen later counts all of T
/// from then on. A shorter silence does not need it. If T is four ticks or more, the leader does not answer both heartbeats of a
/// pair in one tick. If it is less, the others leave it at s + 1.5 ticks at the earliest, s being the moment at which it stopped
/// (`syncLimit` is two ticks or more, from its last ping on). A touch that is believed in for too long is sent T/20 after that or
/// later, so 0.425 T after s. If no other answer came before that, this is the silence. Otherwise the second heartbeat is sent
/// T/4 later, at s + 1.5 ticks + 0.3 T, and is answered in the tick in which the leader went on: that was half a tick + 0.3 T after s,
/// and so 0.425 T again.
///
/// The proof takes the leader for the one that counts also where it is cut off from the others and never stood still. It answers a
/// `sync` for a while, and they have another one. With a transaction as each heartbeat it does not rest on such a leader.
/// The proof takes all servers for granting one timeout, always: the answer to a handshake that
/// lowers it may be lost, and the leader goes by it all the same.
///
/// The proof holds for a follower, for an observer of the leader, and for the leader itself. If an observer follows a follower
/// (an observer master), a touch takes two pings, and nothing is proved. Nor does it hold where a ping is late, so that the second
/// heartbeat overtakes the first one's touch, and the touch is late as well: the leader or the follower pauses, or a message
/// between them takes long, and so does what comes after it.
#[derive(Debug)]
pub(crate) struct Liveness {
    timeout: Duration,
    /// Whether a heartbeat may go out before the one before it is answered.
    overlaps: bool,
    last_received: Instant,
    next_heartbeat: Instant,
    /// When the heartbeats were sent that wait for their answer. It comes in this order.
    unanswered: VecDeque<Instant>,
    /// How long the last answer took.
    round_trip: Duration,
    /// Heartbeats that wait for one that follows.
    answered: Vec<Heartbeat>,
    valid_until: Option<Instant>,
    unconfirmed: Option<Unconfirmed>,
    majority: Majority,
}

/// Whether a majority follows the leader over this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Majority {
    Unknown,
    /// A transaction that will tell is on its way.
    Asked,
    /// It did, and the leader has not been silent since.
    Follows,
}

/// How a connection came by its session; the moments are those at which the handshake was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// The leader made the session, which takes a majority.
    Created(Instant),
    /// A session that there was: the leader itself took the handshake for a touch.
    Resumed(Instant),
    /// A read-only server has no leader, and answers while the quorum on the other side lets the session expire. Or nobody knows
    /// when there was a handshake.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
struct Heartbeat {
    sent: Instant,
    answered: Instant,
}

/// A proof that holds if a majority followed the leader, and, where it came while the session was in doubt, if the leader had not
/// taken the session from its clock before the touch came.
#[derive(Debug, Clone, Copy)]
struct Unconfirmed {
    until: Instant,
    /// The answer to a heartbeat that is sent from here on says that the leader had not.
    confirmed_by: Instant,
}

impl Liveness {
    pub(crate) fn new(timeout: Duration, now: Instant) -> Self {
        Liveness {
            timeout,
            overlaps: true,
            last_received: now,
            next_heartbeat: now,
            unanswered: VecDeque::new(),
            round_trip: Duration::ZERO,
            answered: Vec::new(),
            valid_until: None,
            unconfirmed: None,
            majority: Majority::Unknown,
        }
    }

    /// For connections that take one request at a time.
    #[cfg(any(test, feature = "zookeeper"))]
    pub(crate) fn one_at_a_time(timeout: Duration, now: Instant) -> Self {
        Liveness { overlaps: false, ..Liveness::new(timeout, now) }
    }

    /// A server took the session up. The handshake is a heartbeat like any other, which another one has to follow, and
    /// a touch by itself.
    pub(crate) fn connected(&mut self, timeout: Duration, origin: Origin, now: Instant) {
        self.disconnected();
        self.timeout = timeout;
        self.last_received = now;
        self.next_heartbeat = now + self.pause();
        match origin {
            Origin::Created(sent) => {
                self.valid_until = Some(self.lasts_from(sent));
                self.heartbeat_answered(sent, now, true);
            }
            Origin::Resumed(sent) => {
                let touched = self.lasts_from(sent);
                // The leader goes by this timeout from now on, even if it is shorter, and whatever counts as a proof.
                let certain = self.certain_until(now).map(|until| until.min(touched));
                self.valid_until = certain.or(self.valid_until);
                self.heartbeat_answered(sent, now, false);
                self.proved(touched, now, self.timeout / 2);
            }
            Origin::Unknown => {}
        }
    }

    pub(crate) fn disconnected(&mut self) {
        // A pair of heartbeats proves something only if both took the same way to the leader.
        self.answered.clear();
        self.unconfirmed = None;
        self.majority = Majority::Unknown;
        self.unanswered.clear();
        self.round_trip = Duration::ZERO;
    }

    pub(crate) fn received(&mut self, now: Instant) {
        self.last_received = self.last_received.max(now);
    }

    /// Whether a heartbeat is due; if so, it counts as sent, and the next one is scheduled.
    pub(crate) fn take_heartbeat(&mut self, now: Instant) -> bool {
        if now < self.next_heartbeat {
            return false;
        }
        self.unanswered.push_back(now);
        if self.majority == Majority::Unknown {
            self.majority = Majority::Asked;
        }
        self.next_heartbeat = now + self.interval();
        true
    }

    /// Whether a heartbeat has to be a transaction, as nothing counts before a majority follows the leader.
    pub(crate) fn needs_majority(&self) -> bool {
        self.majority != Majority::Follows
    }

    /// The answer to a heartbeat says that the session lived, and if that was a transaction, that a majority followed the leader.
    pub(crate) fn heartbeat_answered(&mut self, sent: Instant, now: Instant, is_transaction: bool) {
        let was_silent = self.answered.last().is_some_and(|last| last.answered + self.timeout * 2 / 5 < now);
        if is_transaction {
            self.majority = Majority::Follows;
        } else if was_silent && self.majority == Majority::Follows {
            self.majority = Majority::Unknown;
        }
        self.heartbeat_refused(sent, now);
        if self.majority == Majority::Unknown {
            self.next_heartbeat = now;
        }
        self.pair(sent, now);
        self.confirm(sent, now);
    }

    /// There is an answer to a heartbeat, but it says nothing of the session.
    pub(crate) fn heartbeat_refused(&mut self, sent: Instant, now: Instant) {
        self.round_trip = now.saturating_duration_since(sent);
        self.unanswered.retain(|other| *other > sent);
        self.next_heartbeat = match (self.unanswered.back(), self.is_slow()) {
            (last, true) => *last.unwrap_or(&sent) + self.interval(),
            (Some(last), false) => *last + self.interval(),
            (None, false) => now + self.pause(),
        };
    }

    /// A server that cannot write answers the oldest ping.
    pub(crate) fn ping_answered(&mut self, now: Instant) {
        if let Some(sent) = self.unanswered.front() {
            self.heartbeat_refused(*sent, now);
        }
    }

    /// Finds the last heartbeat that this one follows, and which therefore was a touch.
    fn pair(&mut self, sent: Instant, now: Instant) {
        let followed = self.answered.iter().filter(|earlier| earlier.answered + self.timeout / 4 <= sent);
        if let Some(touched) = followed.map(|earlier| earlier.sent).max() {
            self.proved(self.lasts_from(touched), now, self.timeout / 4);
            self.answered.retain(|earlier| earlier.sent > touched);
        }
        self.answered.push(Heartbeat { sent, answered: now });
    }

    /// The leader keeps the session until then, if a majority follows it. In doubt only if it has not taken the session from its
    /// clock before, which shows after this pause.
    fn proved(&mut self, until: Instant, now: Instant, pause: Duration) {
        let certain = self.certain_until(now);
        if let Some(certain) = certain.filter(|_| !self.needs_majority()) {
            self.valid_until = Some(certain.max(until));
        } else if let Some(proof) = self.unconfirmed.as_mut().filter(|proof| now < proof.until) {
            proof.until = proof.until.max(until);
        } else {
            let confirmed_by = if certain.is_some() { now } else { now + pause };
            self.unconfirmed = Some(Unconfirmed { until, confirmed_by });
        }
    }

    /// A heartbeat sent at this moment was answered.
    fn confirm(&mut self, sent: Instant, now: Instant) {
        let is_confirmed = |proof: &Unconfirmed| proof.confirmed_by <= sent && now < proof.until;
        if let Some(proof) = self.unconfirmed.filter(|proof| !self.needs_majority() && is_confirmed(proof)) {
            (self.valid_until, self.unconfirmed) = (self.valid_until.max(Some(proof.until)), None);
        }
    }

    fn certain_until(&self, now: Instant) -> Option<Instant> {
        self.valid_until.filter(|until| now < *until)
    }

    /// Whether an answer takes so long that the next heartbeat does not wait for it.
    fn is_slow(&self) -> bool {
        self.overlaps && self.round_trip > self.timeout / 12
    }

    /// How long after a heartbeat the next one goes out if there is no answer by then.
    fn interval(&self) -> Duration {
        match (self.overlaps, self.is_slow()) {
            // Transactions are writes to the logs of all servers.
            (true, true) if !self.needs_majority() => self.timeout / 40,
            (true, _) => self.timeout / 12,
            // Without an answer for this long, the connection is dead.
            (false, _) => self.timeout,
        }
    }

    /// How long after an answer the next heartbeat goes out. T/40 more than has to be, because the leader's pings are
    /// not punctual either.
    fn pause(&self) -> Duration {
        self.timeout / 4 + self.timeout / 40
    }

    /// Why the connection is dead, whatever TCP says.
    pub(crate) fn why_dead(&self, now: Instant) -> Option<&'static str> {
        if now >= self.silent_at() {
            Some("nothing received for two thirds of the session timeout")
        } else if self.unanswerable_at().is_some_and(|at| now >= at) {
            Some("a heartbeat was not answered within the session timeout")
        } else {
            None
        }
    }

    /// When the connection is dead if nothing comes until then.
    pub(crate) fn dead_at(&self) -> Instant {
        self.unanswerable_at().map_or(self.silent_at(), |at| at.min(self.silent_at()))
    }

    fn silent_at(&self) -> Instant {
        self.last_received + self.timeout * 2 / 3
    }

    /// When the server has not answered the oldest heartbeat for a session timeout, whatever else it sends: then it
    /// answers no caller's request either.
    fn unanswerable_at(&self) -> Option<Instant> {
        self.unanswered.front().map(|sent| *sent + self.timeout)
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
    /// different rates. No clock stands: this one goes on while the system sleeps.
    fn lasts_from(&self, touched: Instant) -> Instant {
        touched + self.timeout - self.timeout / 20
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod ensemble;
#[cfg(test)]
mod tests;
