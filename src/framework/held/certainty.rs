//! Whether a znode still stands: the one rule for holders and for those who are about to hold.

use std::time::Instant;

/// Whether a znode still stands. Of several the last variant counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certainty {
    /// It does, unless somebody deletes it right now.
    Certain,
    /// It is not known to be gone, and not certain.
    InDoubt,
    /// It is gone, or its session is.
    Gone,
}

/// The client's knowledge of a znode, without asking a server.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Evidence {
    /// The znode is gone, or its session is, or its hold is over.
    pub(crate) is_gone: bool,
    /// The session has a live connection.
    pub(crate) is_connected: bool,
    /// A server has shown the znode over the live connection; over the last one while there is none.
    pub(crate) is_seen: bool,
    /// A watch on the znode is in place and has not fired.
    pub(crate) is_watched: bool,
    /// Up to here the servers cannot have expired the session, and the hold does not last too long.
    pub(crate) valid_until: Option<Instant>,
}

impl Evidence {
    /// The evidence of two znodes, of which the weaker counts each time.
    #[inline]
    pub(crate) fn and(self, other: Evidence) -> Evidence {
        Evidence {
            is_gone: self.is_gone || other.is_gone,
            is_connected: self.is_connected && other.is_connected,
            is_seen: self.is_seen && other.is_seen,
            is_watched: self.is_watched && other.is_watched,
            valid_until: self.valid_until.zip(other.valid_until).map(|(one, other)| one.min(other)),
        }
    }

    /// Whether the znode stands until then. A holder without a connection holds on: the servers keep its session.
    ///
    /// The clock has to be read after the evidence, which a pause in between makes older, and never younger.
    #[inline]
    pub(crate) fn certainty(&self, until: Instant) -> Certainty {
        if self.is_gone {
            Certainty::Gone
        } else if self.is_seen && self.valid_until.is_some_and(|at| until < at) {
            Certainty::Certain
        } else {
            Certainty::InDoubt
        }
    }

    /// Whether the lock may be handed out: over a live connection, and nothing can have happened to the znode without an
    /// event. `is_confirmed`: the server was asked over this connection, a moment ago.
    #[inline]
    pub(crate) fn certainty_of_grant(&self, until: Instant, is_confirmed: bool) -> Certainty {
        let is_reported = self.is_connected && (self.is_watched || is_confirmed);
        self.certainty(until).max(if is_reported { Certainty::Certain } else { Certainty::InDoubt })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_znode_is_handed_out_only_where_nothing_is_missing() {
        let now = Instant::now();
        let until = now + Duration::from_secs(1);
        let valid_until = Some(until + Duration::from_nanos(1));
        let certain = Evidence { is_gone: false, is_connected: true, is_seen: true, is_watched: true, valid_until };
        let young = Evidence { is_watched: false, ..certain };
        assert_eq!(certain.certainty_of_grant(until, false), Certainty::Certain);
        assert_eq!(young.certainty_of_grant(until, true), Certainty::Certain);
        let suspended = Evidence { is_connected: false, ..certain };
        assert_eq!(suspended.certainty(until), Certainty::Certain, "a holder has not lost anything yet");
        for shaky in [
            suspended,
            Evidence { is_seen: false, ..certain },
            Evidence { valid_until: Some(until), ..certain },
            Evidence { valid_until: None, ..certain },
        ] {
            for both in [shaky, shaky.and(certain), certain.and(shaky)] {
                assert_eq!(both.certainty_of_grant(until, true), Certainty::InDoubt, "{both:?}");
            }
        }
        assert_eq!(young.certainty_of_grant(until, false), Certainty::InDoubt);
        let gone = Evidence { is_gone: true, ..suspended };
        assert_eq!(gone.and(certain).certainty_of_grant(until, false), Certainty::Gone);
    }
}
