//! Several protected znodes in one write.

use std::sync::Arc;

use super::{
    Call,
    call::Failure,
    protected::{Claim, Created, Creation},
};
use crate::{
    Error, Result,
    proto::{Request, Response},
    session::{Pending, Session, submit},
};

/// Znodes that were created together, and what was read right after.
#[derive(Debug)]
pub(crate) struct Batch {
    /// In the order of their sequence numbers.
    pub(crate) nodes: Vec<Created>,
    /// The replies to the reads, in their order.
    pub(crate) reads: Vec<Result<Response>>,
    /// The connection that was asked.
    pub(crate) connection: u64,
}

impl Creation<'_> {
    /// Creates `count` znodes and reads, all in one write; retries as the policy says.
    ///
    /// All or nothing: after a failure the next attempt makes all of them anew, and those of the failed attempt are
    /// deleted in the background, also those whose reply was lost.
    pub(crate) fn run_many(&self, call: &Call<'_>, count: usize, reads: &[Request]) -> Result<Batch> {
        self.retry(call, |session| self.attempt_many(call, session, count, reads))
    }

    fn attempt_many(
        &self,
        call: &Call<'_>,
        session: &Arc<dyn Session>,
        count: usize,
        reads: &[Request],
    ) -> Result<Batch> {
        let connection = session.connection();
        let prefixes: Vec<String> = (0..count).map(|_| (self.unique)(session.id())).collect();
        let claims: Vec<Claim> = prefixes.iter().map(|prefix| Claim::doubtful(self, session, prefix)).collect();
        let creates = prefixes.iter().map(|prefix| self.request(prefix));
        let requests = creates.chain(reads.iter().cloned()).map(|request| (request, None));
        let mut sent = submit(session, requests);
        call.await_last(&mut sent);
        let mut replies = sent.into_iter().map(|(pending, _)| pending);
        let mut nodes = Vec::with_capacity(count);
        let mut failed = None;
        for claim in claims {
            // All replies are looked at, also after a failure: each tells whether there is something to delete.
            match settle(call, claim, replies.next()) {
                Ok(created) => nodes.push(created),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Batch { nodes, reads: replies.map(|pending| call.reply(pending)).collect(), connection }),
        }
    }
}

/// Waits for the reply to one create.
fn settle(call: &Call<'_>, mut claim: Claim, pending: Option<Pending>) -> Result<Created> {
    let Some(pending) = pending else { return Err(call.connection_loss()) };
    match call.reply_or_failure(pending) {
        Ok(Response::Created { path, stat: Some(stat) }) => {
            claim.created(&path);
            Ok(Created { stat, claim, listing: None })
        }
        Ok(other) => Err(call.unexpected(&other)),
        Err(Failure { error, maybe_done }) => {
            if !maybe_done {
                claim.keep();
            }
            Err::<Created, Error>(error)
        }
    }
}
