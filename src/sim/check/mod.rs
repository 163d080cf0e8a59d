//! Checks the history of one run, in which every moment is known exactly: T1 to T8 of the crate's promises.
//!
//! [`history`] is what was written down; each other file is one promise, with histories of its tests that break it.
//! What `docs/guarantees.md` names as breaking a promise excuses a claim from that moment on, and is counted.

mod bounds;
mod claims;
mod deaths;
mod doubts;
pub(crate) mod history;
mod leases;
mod served;
mod standing;
mod stays;
mod tenures;
mod tokens;
mod told;
mod writes;

use std::{collections::BTreeMap, fmt, ops::Range, time::Duration};

use history::{Claim, Excuse, History};

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The promise: shortening a schedule must not come to another one.
    pub(crate) rule: &'static str,
    /// The true time at which it was broken.
    pub(crate) at: Duration,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s: {}: {}", self.at.as_secs_f64(), self.rule, self.what)
    }
}

/// The result of all checks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<Violation>,
    /// How often a promise was broken on an assumption that did not hold.
    pub(crate) excused: BTreeMap<Excuse, u64>,
}

impl Verdict {
    /// Checks everything.
    pub(crate) fn of(history: &History) -> Verdict {
        let mut verdict = Verdict::default();
        for check in [
            claims::check,
            leases::check,
            tokens::check,
            standing::check,
            stays::check,
            tenures::check,
            doubts::check,
            bounds::check,
            served::check,
            told::check,
            deaths::check,
            writes::check,
        ] {
            check(history, &mut verdict);
        }
        verdict.violations.extend(history.reported.iter().cloned());
        verdict.violations.sort_by_key(|violation| violation.at);
        verdict
    }

    fn broken(&mut self, rule: &'static str, at: Duration, what: String) {
        self.violations.push(Violation { rule, at, what });
    }

    /// The moment at which a broken promise has the least excuse: one that it had at first may have ended.
    fn worst(&self, history: &History, claims: &[&Claim], broken: Range<Duration>) -> Duration {
        let is_excused = claims.iter().any(|claim| history.facts.excuse(claim, broken.start).is_some());
        if is_excused { broken.end.saturating_sub(Duration::from_nanos(1)).max(broken.start) } else { broken.start }
    }

    /// A promise is broken, unless one of these claims is excused at that moment.
    fn broken_unless_excused(
        &mut self,
        history: &History,
        claims: &[&Claim],
        (rule, at): (&'static str, Duration),
        what: impl FnOnce() -> String,
    ) {
        match claims.iter().find_map(|claim| history.facts.excuse(claim, at)) {
            Some(excuse) => *self.excused.entry(excuse).or_default() += 1,
            None => self.broken(rule, at, what()),
        }
    }
}

#[cfg(test)]
mod tests;
