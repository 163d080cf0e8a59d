//! Spans of acquires and holds with the feature `tracing`; without it nothing is traced.

use std::fmt;
#[cfg(feature = "tracing")]
use std::mem;

#[cfg(feature = "tracing")]
use crate::base::log::contained;

/// Runs one acquire, from the call to its return: log messages in between belong to its span. `outcome` names how it ended.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "what the span says"))]
pub(crate) fn in_acquire_span<T>(
    path: &str,
    kind: &str,
    acquire: impl FnOnce() -> T,
    outcome: impl FnOnce(&T) -> &'static str,
) -> T {
    #[cfg(feature = "tracing")]
    let span = contained(|| {
        use tracing::field::Empty;
        tracing::info_span!(target: "curator_locks", "acquire", path, kind, outcome = Empty, waited = Empty)
    });
    // The clock is read only for a span that is recorded.
    #[cfg(feature = "tracing")]
    let since = span.as_ref().filter(|span| !span.is_disabled()).map(|_| crate::base::clock::now());
    #[cfg(feature = "tracing")]
    let entered = span.as_ref().and_then(|span| contained(|| span.enter()));
    let acquired = acquire();
    #[cfg(feature = "tracing")]
    contained(|| drop(entered));
    let outcome = outcome(&acquired);
    // A lock that was granted gets to its caller, whatever a subscriber does.
    #[cfg(feature = "tracing")]
    contained(|| {
        if let Some((span, since)) = span.as_ref().zip(since) {
            span.record("outcome", outcome);
            span.record("waited", tracing::field::debug(crate::base::clock::since(since)));
        }
        drop(span);
    });
    acquired
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
        let begin = || tracing::info_span!(target: "curator_locks", "hold", path, token, end = tracing::field::Empty);
        let span = contained(begin)?;
        (!span.is_disabled()).then(|| HoldSpan { span, end: String::new() })
    }

    pub(crate) fn ends(&mut self, how: impl fmt::Display) {
        self.end = how.to_string();
    }
}

#[cfg(feature = "tracing")]
impl Drop for HoldSpan {
    fn drop(&mut self) {
        let span = mem::replace(&mut self.span, tracing::Span::none());
        contained(|| {
            span.record("end", self.end.as_str());
            drop(span);
        });
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
