//! Whether a znode still stands: the one rule for holders and for those who are about to hold.

use std::time::Instant;

/// Whether a znode still stands. Of several the last variant counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certainty {
    /// It stands, unless somebody deletes it right now.
    Certain,
    /// It is not known to be gone, and not certain.
    InDoubt,
    /// It is gone, or its session is.
    Gone,
}

/// The proof that a call needs to return with a lock, besides that a server has shown its znode over the last connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The caller holds it already. A holder without a connection holds on: the servers keep its session.
    Nothing,
    /// A live connection: its contender has just been granted it.
    Connection,
    /// A watch, which would have told of its end.
    Watch,
    /// The answer of a server that has caught up with the leader: an event may be late, or kept back from a client that may
    /// not read the znode any more (CVE-2024-23944).
    Answer,
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
    pub(crate) fn and(self, other: Evidence) -> Evidence {
        Evidence {
            is_gone: self.is_gone || other.is_gone,
            is_connected: self.is_connected && other.is_connected,
            is_seen: self.is_seen && other.is_seen,
            is_watched: self.is_watched && other.is_watched,
            valid_until: self.valid_until.zip(other.valid_until).map(|(one, other)| one.min(other)),
        }
    }

    /// Whether the znode stands until then.
    ///
    /// The clock has to be read after the evidence, which a pause in between makes older, and never younger.
    pub(crate) fn certainty(&self, until: Instant) -> Certainty {
        if self.is_gone {
            Certainty::Gone
        } else if self.is_seen && self.valid_until.is_some_and(|at| until < at) {
            Certainty::Certain
        } else {
            Certainty::InDoubt
        }
    }

    /// Whether a call may return with the lock. `is_confirmed`: the server was asked over this connection, a moment ago.
    pub(crate) fn certainty_for(&self, until: Instant, needs: Needs, is_confirmed: bool) -> Certainty {
        let has_connection = self.is_connected || needs == Needs::Nothing;
        let is_enough = has_connection && (is_confirmed || self.is_enough(needs));
        self.certainty(until).max(if is_enough { Certainty::Certain } else { Certainty::InDoubt })
    }

    /// Whether no server has to be asked about the znode, if it was seen over the live connection.
    pub(crate) fn is_enough(&self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing | Needs::Connection => true,
            Needs::Watch => self.is_watched,
            Needs::Answer => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::clock;

    #[test]
    fn a_znode_is_handed_out_only_where_nothing_is_missing() {
        let now = clock::now();
        let until = now + Duration::from_secs(1);
        let valid_until = Some(until + Duration::from_nanos(1));
        let certain = Evidence { is_gone: false, is_connected: true, is_seen: true, is_watched: true, valid_until };
        let young = Evidence { is_watched: false, ..certain };
        let suspended = Evidence { is_connected: false, ..certain };
        let (yes, no) = (Certainty::Certain, Certainty::InDoubt);
        for (needs, expected) in [
            (Needs::Nothing, [yes, yes, yes]),
            (Needs::Connection, [yes, yes, no]),
            (Needs::Watch, [yes, no, no]),
            (Needs::Answer, [no, no, no]),
        ] {
            let certainties = [certain, young, suspended].map(|evidence| evidence.certainty_for(until, needs, false));
            assert_eq!(certainties, expected, "{needs:?}");
        }
        assert_eq!(young.certainty_for(until, Needs::Answer, true), Certainty::Certain);
        for shaky in [
            suspended,
            Evidence { is_seen: false, ..certain },
            Evidence { valid_until: Some(until), ..certain },
            Evidence { valid_until: None, ..certain },
        ] {
            for both in [shaky, shaky.and(certain), certain.and(shaky)] {
                assert_eq!(both.certainty_for(until, Needs::Connection, true), Certainty::InDoubt, "{both:?}");
            }
        }
        let gone = Evidence { is_gone: true, ..suspended };
        assert_eq!(gone.and(certain).certainty_for(until, Needs::Answer, false), Certainty::Gone);
    }
}
