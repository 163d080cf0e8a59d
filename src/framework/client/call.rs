//! One call from outside: its deadline, its cancellation, its retries.

use std::{
    cell::{Cell, OnceCell},
    sync::Arc,
    time::{Duration, Instant},
};

use super::core::{Core, CuratorFramework};
use crate::{
    base::clock,
    error::{Error, Result},
    framework::config::retry::RetrySleeper,
    proto::{request::Request, response::Response},
    session::{
        api::{Session, SessionError},
        wait::{
            deadline::{WaitBound, WaitEnd},
            pending::{Pending, Stopped, Watch, submit, submit_one},
        },
    },
};

/// One operation on one path, bounded by one deadline.
pub(crate) struct Call<'a> {
    core: &'a Core,
    operation: &'static str,
    /// The path as the caller sees it.
    path: &'a str,
    bound: WaitBound<'a>,
    /// When it began, or last went on after a wait.
    started: Cell<Instant>,
    /// The session it began with.
    session: OnceCell<Arc<dyn Session>>,
    /// Whether in some attempt a request was sent and never answered.
    is_in_doubt: Cell<bool>,
}

impl Call<'_> {
    /// Tries until it succeeds, fails for good, or the retry policy, the deadline, a cancellation or the client's end
    /// put an end to it.
    pub(crate) fn retry<T>(&self, mut attempt: impl FnMut(&Arc<dyn Session>) -> Result<T>) -> Result<T> {
        let mut retries = 0;
        loop {
            let error = match self.session().and_then(|session| attempt(&session)) {
                Err(error) if error.is_retryable() => error,
                result => return result,
            };
            self.allow_retry(&mut retries, error)?;
        }
    }

    /// `Ok` if the policy allows another attempt, after it has slept; otherwise the error to end with.
    pub(crate) fn allow_retry(&self, retries: &mut u32, error: Error) -> Result<()> {
        if self.core.retry_policy.allows_error(&error) {
            return self.allow_again(retries, error);
        }
        self.core.check_open()?;
        Err(error)
    }

    /// Like `allow_retry`, for an error that the policy is not asked about: the caller knows that trying again helps.
    pub(crate) fn allow_again(&self, retries: &mut u32, error: Error) -> Result<()> {
        let allowed = self.core.retry_policy.allow_retry(*retries, clock::since(self.started.get()), self);
        *retries += 1;
        self.core.check_open()?;
        match self.bound.is_over() {
            Some(WaitEnd::Cancelled) => Err(self.cancelled()),
            Some(WaitEnd::Deadline) => Err(error),
            None if allowed => Ok(()),
            None => Err(error),
        }
    }

    /// Begins anew after a wait for others, which was no failure: the retry policy counts from here.
    pub(crate) fn begin_anew(&self) {
        self.started.set(clock::now());
    }

    /// The current session, once it is connected. Waits for that at most the connection timeout.
    pub(crate) fn session(&self) -> Result<Arc<dyn Session>> {
        let connected_by = clock::now() + self.core.config.connection_timeout;
        let found = self.core.connected_session(None, self.bound.by(connected_by))?;
        if self.session.get().is_none()
            && let Some(first) = found.as_ref().ok().cloned().or_else(|| self.core.current_session())
        {
            let _ = self.session.set(first);
        }
        // A policy may want a call to end with the session in which it began, also when the session is lost between two
        // attempts, where no reply says so.
        if self.session.get().is_some_and(|first| first.is_ended()) {
            let error = self.error(SessionError::Expired);
            if !self.core.retry_policy.allows_error(&error) {
                return Err(error);
            }
        }
        found.map_err(|end| match end {
            WaitEnd::Cancelled => self.cancelled(),
            WaitEnd::Deadline => self.connection_loss(),
        })
    }

    /// Sends one request and waits for its reply.
    pub(crate) fn ask(&self, session: &Arc<dyn Session>, request: Request) -> Result<Response> {
        self.reply(submit_one(session, request))
    }

    /// The replies to requests that go out in one write.
    pub(crate) fn ask_all(
        &self,
        session: &Arc<dyn Session>,
        requests: impl IntoIterator<Item = Request>,
    ) -> Vec<Result<Response>> {
        let mut sent = submit(session, requests.into_iter().map(|request| (request, None)));
        self.await_last(&mut sent);
        sent.into_iter().map(|(pending, _)| self.reply(pending)).collect()
    }

    /// Waits for the last of several replies to one write. They come in the order of the requests, so that the others are
    /// there by then: the thread is woken once, not by each of them.
    pub(crate) fn await_last(&self, sent: &mut [(Pending, Option<Watch>)]) {
        if let [_, .., (last, _)] = sent {
            last.await_arrival(self.bound, self.core.config.connection_timeout);
        }
    }

    /// Waits for a reply.
    pub(crate) fn reply(&self, pending: Pending) -> Result<Response> {
        self.reply_or_doubt(pending).map_err(|(error, _)| error)
    }

    /// Waits for a reply; beside an error stands whether the server may have carried the request out all the same.
    pub(crate) fn reply_or_doubt(&self, pending: Pending) -> Result<Response, (Error, bool)> {
        match pending.wait_sent(self.bound, self.core.config.connection_timeout) {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let error = self.error(error);
                let maybe_done = error.is_in_doubt();
                Err((error, maybe_done))
            }
            Err(Stopped { end: WaitEnd::Cancelled, sent }) => Err((self.cancelled(), sent)),
            Err(Stopped { end: WaitEnd::Deadline, sent }) => {
                self.is_in_doubt.set(self.is_in_doubt.get() || sent);
                Err((self.connection_loss(), sent))
            }
        }
    }

    /// The error as the caller sees it.
    pub(crate) fn error(&self, error: SessionError) -> Error {
        let (operation, path) = (self.operation, self.path.to_owned());
        match error {
            SessionError::Server(code) => Error::Server { code, operation, path },
            SessionError::ConnectionLoss(cause) => {
                self.is_in_doubt.set(true);
                Error::ConnectionLoss { operation, path, maybe_done: true, cause }
            }
            SessionError::Expired => Error::SessionExpired { operation, path },
            SessionError::Closed => Error::ClientClosed,
            SessionError::AuthFailed { scheme, detail } => Error::AuthFailed { scheme, detail },
            SessionError::FrameTooLarge { size, limit } => Error::FrameTooLarge { operation, path, size, limit },
        }
    }

    pub(crate) fn connection_loss(&self) -> Error {
        let cause = self.core.current_session().and_then(|session| session.last_error());
        let (path, maybe_done) = (self.path.to_owned(), self.is_in_doubt.get());
        Error::ConnectionLoss { operation: self.operation, path, maybe_done, cause }
    }

    pub(crate) fn cancelled(&self) -> Error {
        Error::Cancelled { path: self.path.to_owned() }
    }

    /// A reply of the wrong kind: our own session decodes by the request, so it can only come from another one. The error
    /// names the kind alone: contents do not belong there.
    pub(crate) fn unexpected(&self, response: &Response) -> Error {
        let shown = format!("{response:?}");
        let kind = shown.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        Error::Protocol(format!("{} {} was answered with {kind}", self.operation, self.path))
    }
}

impl CuratorFramework {
    pub(crate) fn call<'a>(&'a self, operation: &'static str, path: &'a str, bound: WaitBound<'a>) -> Call<'a> {
        Call {
            core: &self.core,
            operation,
            path,
            bound,
            started: Cell::new(clock::now()),
            session: OnceCell::new(),
            is_in_doubt: Cell::new(false),
        }
    }
}

impl RetrySleeper for Call<'_> {
    fn sleep_for(&self, duration: Duration) -> bool {
        let slept = clock::now().checked_add(duration).map_or(self.bound, |wake| self.bound.by(wake));
        // Nothing is ever sent there: the channel ends.
        let _ = slept.recv(self.core.closed.signal());
        !self.core.closed.is_cancelled() && self.bound.is_over().is_none()
    }
}
