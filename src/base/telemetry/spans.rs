//! Spans of acquires and holds with the feature `tracing`; without it these types are empty, and nothing is done.

use std::fmt;

/// One acquire, from the call to its return.
#[derive(Debug)]
pub(crate) struct AcquireSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
    #[cfg(feature = "tracing")]
    since: Option<std::time::Instant>,
}

#[cfg(feature = "tracing")]
impl AcquireSpan {
    pub(crate) fn begin(path: &str, kind: &str) -> AcquireSpan {
        use tracing::field::Empty;

        let span = tracing::info_span!(target: "curator_locks", "acquire", path, kind, outcome = Empty, waited = Empty);
        // The clock is read only for a span that is recorded.
        let since = (!span.is_disabled()).then(std::time::Instant::now);
        AcquireSpan { span, since }
    }

    /// Log messages in between belong to the span.
    pub(crate) fn run<T>(&self, acquire: impl FnOnce() -> T) -> T {
        self.span.in_scope(acquire)
    }

    pub(crate) fn ended(&self, outcome: &str) {
        if let Some(since) = self.since {
            self.span.record("outcome", outcome);
            self.span.record("waited", tracing::field::debug(since.elapsed()));
        }
    }
}

#[cfg(not(feature = "tracing"))]
impl AcquireSpan {
    pub(crate) fn begin(_path: &str, _kind: &str) -> AcquireSpan {
        AcquireSpan {}
    }

    #[expect(clippy::unused_self, reason = "with the feature there is a span")]
    pub(crate) fn run<T>(&self, acquire: impl FnOnce() -> T) -> T {
        acquire()
    }

    #[expect(clippy::unused_self, reason = "with the feature there is a span")]
    pub(crate) fn ended(&self, _outcome: &str) {}
}

/// One hold, from the grant to its release or loss. Dropping it ends the span, which may run a subscriber's code: not under
/// a lock.
#[derive(Debug)]
pub(crate) struct HoldSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
    #[cfg(feature = "tracing")]
    end: String,
}

#[cfg(feature = "tracing")]
impl HoldSpan {
    /// `None`: the span is not recorded.
    pub(crate) fn begin(path: &str, token: i64) -> Option<HoldSpan> {
        let span = tracing::info_span!(target: "curator_locks", "hold", path, token, end = tracing::field::Empty);
        (!span.is_disabled()).then(|| HoldSpan { span, end: String::new() })
    }

    pub(crate) fn ends(&mut self, how: impl fmt::Display) {
        self.end = how.to_string();
    }
}

#[cfg(feature = "tracing")]
impl Drop for HoldSpan {
    fn drop(&mut self) {
        self.span.record("end", self.end.as_str());
    }
}

#[cfg(not(feature = "tracing"))]
impl HoldSpan {
    pub(crate) fn begin(_path: &str, _token: i64) -> Option<HoldSpan> {
        None
    }

    #[expect(clippy::unused_self, reason = "with the feature there is a span")]
    pub(crate) fn ends(&mut self, _how: impl fmt::Display) {}
}
