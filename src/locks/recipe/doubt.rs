//! How long a contender could not make sure of its lock, although it could ask the servers.

use std::time::{Duration, Instant};

/// The doubt of one contender.
///
/// Only time in which the servers could be asked counts. A process that is paused asks no server, and heartbeats
/// would settle its doubt as soon as it goes on. So a step that comes long after the sleep before it was to end begins
/// the count anew, and so does a wait for a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Doubt {
    since: Option<Instant>,
    /// When the last step was taken, and whether it asked the servers.
    last: Option<(Instant, bool)>,
    /// How long the last two answers took, each at most half of the timeout. On a slow link both took long, so that a third
    /// that does is no pause, whatever the link was like before.
    answers: [Option<Duration>; 2],
}

impl Doubt {
    /// Notes that the next step is taken.
    pub fn steps(&mut self, now: Instant, timeout: Duration) {
        let Some((at, has_asked)) = self.last.take() else { return };
        let took = now.saturating_duration_since(at);
        let late = timeout / 4;
        let quicker = self.answers.into_iter().flatten().min();
        let usual = if has_asked { quicker.unwrap_or(late) } else { Duration::ZERO };
        if took > usual + late {
            self.since = None;
        }
        if has_asked {
            // No answer takes longer on a connection that lives: it ends where nothing comes for two thirds of the timeout.
            self.answers = [Some(took.min(timeout / 2)), self.answers[0]];
        }
    }

    /// Notes that the step is done; the next one comes after a sleep, which is short unless it `asks` the servers.
    pub fn sleeps(&mut self, now: Instant, asks: bool) {
        self.last = (asks || self.since.is_some()).then_some((now, asks));
    }

    /// Notes that the contender is in doubt. Returns whether that has lasted for the session timeout.
    pub fn has_lasted(&mut self, now: Instant, timeout: Duration) -> bool {
        now.saturating_duration_since(*self.since.get_or_insert(now)) >= timeout
    }

    /// Notes that the doubt is over.
    pub fn ends(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    const T: Duration = Duration::from_secs(100);

    /// Runs the steps: the pause after each, and whether it asks the servers. Returns the second at which the doubt has
    /// lasted.
    fn has_lasted(steps: impl IntoIterator<Item = (u64, bool)>) -> Option<u64> {
        let (begin, mut doubt, mut second) = (clock::now(), Doubt::default(), 0);
        for (pause, asks) in steps {
            let now = begin + Duration::from_secs(second);
            doubt.steps(now, T);
            if doubt.has_lasted(now, T) {
                return Some(second);
            }
            doubt.sleeps(now, asks);
            second += pause;
        }
        None
    }

    #[test]
    fn it_has_lasted_after_a_session_timeout_of_short_sleeps() {
        assert_eq!(has_lasted(std::iter::repeat_n((2, false), 100)), Some(100));
    }

    #[test]
    fn a_pause_begins_the_count_anew_whenever_it_comes() {
        for asks in [false, true] {
            // 80 s of doubt with an answer now and then, and a pause.
            let before = (0..40).map(|k| (2, k % 10 == 0)).chain([(2, true), (90, asks)]);
            let steps = before.chain(std::iter::repeat_n((2, false), 100));
            assert_eq!(has_lasted(steps), Some(82 + 90 + 100), "{asks}");
        }
    }

    #[test]
    fn the_first_answers_may_all_come_late_because_of_pauses() {
        let steps =
            [(2, false), (95, true), (80, true), (90, true)].into_iter().chain(std::iter::repeat_n((2, false), 100));
        assert_eq!(has_lasted(steps), Some(2 + 95 + 80 + 90 + 100));
    }

    #[test]
    fn a_slow_link_is_no_pause() {
        for round_trip in [30, 50, 66] {
            let lasted = has_lasted(std::iter::repeat_n((round_trip, true), 100)).unwrap_or(u64::MAX);
            // The first answer may have come late for another reason.
            assert!(lasted < 100 + 2 * round_trip, "{round_trip}: {lasted}");
        }
    }

    #[test]
    fn a_link_that_gets_slow_is_no_pause_either() {
        for round_trip in [30, 50, 66] {
            let quick = [(1, true), (1, true), (1, true)];
            let lasted = has_lasted(quick.into_iter().chain(std::iter::repeat_n((round_trip, true), 100)));
            assert!(lasted.is_some_and(|second| second < 3 + 100 + 3 * round_trip), "{round_trip}: {lasted:?}");
        }
    }

    #[test]
    fn a_doubt_that_has_passed_does_not_count_for_the_next_one() {
        let (begin, mut doubt) = (clock::now(), Doubt::default());
        assert!(!doubt.has_lasted(begin, T) && doubt.has_lasted(begin + T, T));
        doubt.ends();
        assert!(!doubt.has_lasted(begin + T, T));
    }
}
