//! The rounds of SASL as a plain state machine: (state, frame) -> what to send next. No socket, no thread, no clock.

use super::mechanism::{Failure, Mechanism};
use crate::proto::{error::ProtoError, sasl, types::ErrorCode};

/// GSSAPI takes three rounds, DIGEST-MD5 two. A server that goes on and on must not keep the session busy.
const MOST_ROUNDS: i32 = 8;

/// An authentication under way on one connection.
pub(crate) struct Exchange {
    mechanism: Box<dyn Mechanism>,
    /// The round under way, counted from 1: also the xid of its request, as nothing else is on the wire.
    round: i32,
}

impl Exchange {
    /// Begins with this token, and gives the first frame to send.
    pub(crate) fn begin(mechanism: Box<dyn Mechanism>, token: &[u8]) -> (Exchange, Vec<u8>) {
        (Exchange { mechanism, round: 1 }, sasl::encode(1, token))
    }

    /// Takes the server's reply, and gives the next frame to send; `None`: the server has accepted the client.
    pub(crate) fn reply(&mut self, frame: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let answer = sasl::decode(self.round, frame).map_err(|error| Failure::Protocol(error.to_string()))?;
        let challenge = answer.map_err(|code| self.refused(code))?;
        let Some(token) = self.mechanism.step(&challenge)? else { return Ok(None) };
        if self.round >= MOST_ROUNDS {
            let error = ProtoError::Unexpected { what: "round of SASL", value: self.round };
            return Err(Failure::Protocol(error.to_string()));
        }
        self.round += 1;
        Ok(Some(sasl::encode(self.round, &token)))
    }

    fn refused(&self, code: i32) -> Failure {
        match ErrorCode::from(code) {
            ErrorCode::AuthFailed | ErrorCode::SessionClosedRequireSaslAuth => {
                Failure::Refused(self.mechanism.why_refused())
            }
            other => Failure::Protocol(format!("the server answered SASL with an error: {other}")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::{fake::server_side as server, sasl::digest_md5::DigestMd5};

    /// Says `go on` to every challenge but `done`.
    struct Endless;

    impl Mechanism for Endless {
        fn step(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
            Ok((challenge != b"done").then(|| b"go on".to_vec()))
        }

        fn why_refused(&self) -> String {
            "it has reasons".to_owned()
        }
    }

    fn begun() -> Exchange {
        Exchange::begin(Box::new(Endless), b"hello").0
    }

    fn reply(xid: i32, err: i32, token: &[u8]) -> Vec<u8> {
        server::reply(xid, 0, err, &server::prefixed(token))
    }

    #[test]
    fn each_round_has_a_number_of_its_own() {
        let (mut exchange, first) = Exchange::begin(Box::new(Endless), b"hello");
        assert_eq!(server::frames(&first).iter().map(|frame| (frame.xid, frame.op)).collect::<Vec<_>>(), [(1, 102)]);
        let second = exchange.reply(&reply(1, 0, b"a")).unwrap().unwrap();
        let frames = server::frames(&second);
        assert_eq!(frames.first().map(|frame| (frame.xid, frame.body.clone())), Some((2, server::prefixed(b"go on"))));
        assert!(exchange.reply(&reply(2, 0, b"done")).unwrap().is_none());
    }

    #[test]
    fn an_answer_to_another_round_is_no_answer() {
        assert!(matches!(begun().reply(&reply(2, 0, b"done")), Err(Failure::Protocol(_))));
        assert!(matches!(begun().reply(&server::notification(server::DELETED, "/a")), Err(Failure::Protocol(_))));
    }

    #[test]
    fn a_refusal_says_what_the_mechanism_knows_of_it() {
        for code in [server::AUTH_FAILED, -124] {
            let refused = begun().reply(&reply(1, code, b"")).unwrap_err();
            assert!(matches!(&refused, Failure::Refused(why) if why == "it has reasons"), "{refused:?}");
        }
        assert!(matches!(begun().reply(&reply(1, server::NO_NODE, b"")), Err(Failure::Protocol(_))));
    }

    #[test]
    fn a_server_that_goes_on_and_on_is_left() {
        let mut exchange = begun();
        for round in 1..MOST_ROUNDS {
            assert!(exchange.reply(&reply(round, 0, b"more")).unwrap().is_some());
        }
        assert!(matches!(exchange.reply(&reply(MOST_ROUNDS, 0, b"more")), Err(Failure::Protocol(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_server_make_it_panic(token in proptest::collection::vec(any::<u8>(), 0..300), cut in 0..40_usize) {
            let digest = || Box::new(DigestMd5::new("me".into(), "secret".into()));
            for frame in [token.clone(), reply(1, 0, &token)] {
                let _ = Exchange::begin(digest(), b"").0.reply(frame.get(..frame.len().saturating_sub(cut)).unwrap());
                let _ = Exchange::begin(digest(), b"").0.reply(&frame);
            }
        }
    }
}
