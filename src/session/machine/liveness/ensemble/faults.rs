//! The faults of a run, and the rule that is tried.

/// Microseconds since the beginning.
pub(super) type Time = u64;

/// The session timeout.
pub(super) const T: Time = 6_000_000;

/// The faults of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    /// The time between client and follower, in thousandths of T.
    pub(super) round_trip: Time,
    /// Whether the processes pause, up to one and a half T each.
    pub(super) leader_pauses: bool,
    pub(super) follower_pauses: bool,
    pub(super) client_pauses: bool,
    /// The leader pauses shortly after one of the others.
    pub(super) leader_pauses_after: bool,
    /// The network between client and follower keeps what it is given for a while, and then lets go of it.
    pub(super) network_lets_go: bool,
    /// How many thousandths of the messages between leader and follower are late, by up to T/6.
    pub(super) delays: Time,
    /// How long the leader takes at most to expire all the sessions of one tick.
    pub(super) mass_expiry: Time,
}

/// The rule that is tried, and what it would be without some part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Whole,
    /// A pair counts at once, also in doubt.
    NothingIsConfirmed,
    /// A pair counts from send to send instead of from answer to send.
    FromSendToSend,
}

pub(super) const NO_FAULT: Faults = Faults {
    round_trip: 0,
    leader_pauses: false,
    follower_pauses: false,
    client_pauses: false,
    leader_pauses_after: false,
    network_lets_go: false,
    delays: 0,
    mass_expiry: 0,
};
