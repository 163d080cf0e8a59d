//! The processes' own account, and the checks of it.

use std::{collections::BTreeMap, time::Duration};

use crate::{Rule, SESSION, support::PATIENCE};

/// One unbroken time in which a holder believed its hold valid, on the clock that all processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub party: usize,
    pub is_reader: bool,
    pub token: i64,
    /// The holder's session, where that is known.
    pub session: i64,
    pub from: u64,
    pub to: u64,
}

/// One acquire, from its call to the return of its release.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    pub invoked: u64,
    /// Token, the return of the acquire and the call of the release; what a killed process had is not known.
    pub held: Option<(i64, u64, u64)>,
    /// Microseconds to `valid_until` at the call of the release, of a hold that was valid at the look before.
    pub margin: Option<i64>,
    pub done: Option<u64>,
    /// Empty: it went well.
    pub error: String,
}

/// The account of one process, and of those that took its place.
#[derive(Debug, Default)]
pub struct History {
    pub claims: Vec<Claim>,
    pub attempts: Vec<Attempt>,
    pub deaths: Vec<u64>,
    pub updates: Updates,
    /// The sessions that an administrator ended, and from when to when.
    pub ended_from_outside: Vec<(i64, u64, u64)>,
}

/// The additions of one process to a counter that it shares with others.
#[derive(Debug, Clone, Default)]
pub struct Updates {
    pub begun: usize,
    /// The numbers that were written, where a server has said so.
    pub done: Vec<i64>,
}

impl History {
    pub fn invoked(&mut self, at: u64) {
        self.attempts.push(Attempt { invoked: at, ..Attempt::default() });
    }

    /// A claim is told while it lasts: the last time counts.
    pub fn claimed(&mut self, claim: Claim) {
        match self.claims.last_mut() {
            Some(last) if (last.token, last.from) == (claim.token, claim.from) => last.to = claim.to,
            _ => self.claims.push(claim),
        }
    }

    pub fn released(&mut self, token: i64, returned: u64, at: u64, margin: i64) {
        if let Some(attempt) = self.attempts.last_mut() {
            (attempt.held, attempt.margin) = (Some((token, returned, at)), (margin >= 0).then_some(margin));
        }
    }

    pub fn done(&mut self, at: u64, error: &str) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.done = Some(at);
            attempt.error = if error == "ok" { String::new() } else { error.to_owned() };
        }
    }

    pub fn ended(&mut self, at: u64) {
        self.deaths.push(at);
    }

    /// A holder that said no more had its lock for as long as it said so.
    pub fn cut_short(&mut self) {
        if let (Some(attempt), Some(claim)) = (self.attempts.last_mut(), self.claims.last())
            && attempt.held.is_none()
            && claim.from >= attempt.invoked
        {
            attempt.held = Some((claim.token, claim.from, claim.to));
        }
    }

    /// The longest acquire, with the moment of its end, if it took longer than a test waits.
    pub fn longest_wait(&self, end: u64) -> Option<(u64, String)> {
        let ends = self.attempts.iter().skip(1).map(|next| next.invoked).chain([end]);
        let wait = |(attempt, next): (&Attempt, u64)| {
            let granted = attempt.held.map(|(_, returned, _)| returned);
            let dead = self.deaths.iter().copied().find(|death| *death > attempt.invoked);
            let over = [granted, attempt.done, dead, Some(next)].into_iter().flatten().min().unwrap_or(next);
            (over.saturating_sub(attempt.invoked), over)
        };
        let (longest, over) = self.attempts.iter().zip(ends).map(wait).max()?;
        let longest = Duration::from_nanos(longest);
        (longest > PATIENCE).then(|| (over, format!("an acquire took {longest:?}, of {} in all", self.attempts.len())))
    }

    /// The claims that are promised: a session that an administrator ends has no lock from that moment on. The time for which
    /// such a holder still believed stands beside them.
    pub fn promised(&self) -> (Vec<Claim>, Vec<Duration>) {
        self.cut(&self.claims)
    }

    fn cut(&self, all: &[Claim]) -> (Vec<Claim>, Vec<Duration>) {
        let (mut claims, mut believed): (Vec<Claim>, _) = (Vec::new(), Vec::new());
        for claim in all {
            let of_session = |(session, from, _): &&(i64, u64, u64)| *session == claim.session && *from <= claim.to;
            let end = self.ended_from_outside.iter().filter(of_session);
            // The end may have come in the first claim of a hold, or between two of them.
            let begin = claims
                .iter()
                .rev()
                .take_while(|other| other.token == claim.token)
                .last()
                .map_or(claim.from, |other| other.from);
            match end.filter(|(.., to)| *to >= begin).map(|(_, from, _)| *from).min() {
                Some(end) => {
                    believed.push(Duration::from_nanos(claim.to - end));
                    if end >= claim.from {
                        claims.push(Claim { to: end, ..*claim });
                    }
                }
                None => claims.push(*claim),
            }
        }
        (claims, believed)
    }

    /// The acquires that were given a token which is not larger than the one before, of a lock that is not kept.
    pub fn repeated(&self) -> Vec<Violation> {
        // A holder that has lost its lock meanwhile may have none at the end.
        let has_token = |held: &(i64, u64, u64)| held.0 > 0;
        let held = self.attempts.iter().filter_map(|attempt| attempt.held).filter(has_token).collect::<Vec<_>>();
        let is_wrong = |pair: &&[(i64, u64, u64)]| pair[1].0 <= pair[0].0;
        let wrong = held.windows(2).filter(is_wrong).map(|pair| Violation {
            what: format!("an acquire got the token {} after {}", pair[1].0, pair[0].0),
            at: pair[1].1,
        });
        wrong.collect()
    }

    /// The claims of a holder that does not look, but believes until it releases.
    pub fn until_release(&self, is_reader: bool, party: usize) -> Vec<Claim> {
        let sessions: BTreeMap<i64, i64> = self.claims.iter().map(|claim| (claim.token, claim.session)).collect();
        let held = self.attempts.iter().filter_map(|attempt| attempt.held);
        let session = |token: i64| sessions.get(&token).copied().unwrap_or_default();
        let claim = |(token, from, to)| Claim { party, is_reader, token, session: session(token), from, to };
        let claims: Vec<Claim> = held.map(claim).collect();
        self.cut(&claims).0
    }

    /// The claims of a holder that believes a quarter of the session timeout longer than it may.
    pub fn too_long(&self) -> Vec<Claim> {
        let mut released = BTreeMap::new();
        for (token, _, to) in self.attempts.iter().filter_map(|attempt| attempt.held) {
            released.insert(token, to);
        }
        let longer = |claim: &Claim| {
            let to = claim.to + (SESSION / 4).as_nanos() as u64;
            Claim { to: released.get(&claim.token).map_or(to, |released| to.min(*released)).max(claim.to), ..*claim }
        };
        self.cut(&self.claims.iter().map(longer).collect::<Vec<_>>()).0
    }
}

/// Two claims that may not be at one time, or tokens in a wrong order.
#[derive(Debug)]
pub struct Violation {
    pub what: String,
    pub at: u64,
}

/// T1, T5, T6: no claim beside another that it excludes; T3: tokens grow.
pub fn check(rule: Rule, mut claims: Vec<Claim>) -> Vec<Violation> {
    claims.sort_by_key(|claim| (claim.from, claim.to));
    let mut violations = Vec::new();
    let mut open: Vec<Claim> = Vec::new();
    let (mut newest, mut newest_writer): (Option<Claim>, Option<Claim>) = (None, None);
    for claim in claims {
        open.retain(|other| other.to >= claim.from);
        let is_other = |other: &&Claim| (other.party, other.token) != (claim.party, claim.token);
        let beside: Vec<&Claim> = open.iter().filter(is_other).collect();
        let most = match rule {
            Rule::AtMost(most) => most,
            Rule::ReadWrite if claim.is_reader && beside.iter().all(|other| other.is_reader) => usize::MAX,
            _ => 1,
        };
        if beside.len() >= most {
            let common = beside.iter().map(|other| other.to.min(claim.to) - claim.from).max().unwrap_or_default();
            let what = format!("{} beside {claim:?} for {:?}: {beside:?}", beside.len(), Duration::from_nanos(common));
            violations.push(Violation { what, at: claim.from });
        }
        // A process hands a kept lock on, under one token, and a hold in doubt may be certain again.
        let earlier = match rule {
            Rule::One | Rule::Cached | Rule::ReadWrite => {
                if claim.is_reader {
                    newest_writer
                } else {
                    newest
                }
            }
            Rule::AtMost(_) | Rule::Touched | Rule::Foreign | Rule::Nothing => None,
        };
        let is_same = |other: &Claim| (other.party, other.token) == (claim.party, claim.token);
        if let Some(earlier) = earlier.filter(|earlier| earlier.token >= claim.token && !is_same(earlier)) {
            let what = format!("the token {} comes after {}: {earlier:?} {claim:?}", claim.token, earlier.token);
            violations.push(Violation { what, at: claim.from });
        }
        newest = newest.filter(|newest| newest.token > claim.token).or(Some(claim));
        if !claim.is_reader {
            newest_writer = newest_writer.filter(|newest| newest.token > claim.token).or(Some(claim));
        }
        open.push(claim);
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(rule: Rule, claims: &[(usize, bool, i64, u64, u64)]) -> usize {
        let claim = |&(party, is_reader, token, from, to): &_| Claim { party, is_reader, token, session: 0, from, to };
        check(rule, claims.iter().map(claim).collect()).len()
    }

    #[test]
    fn what_excludes_each_other_is_found_beside_each_other() {
        let (writer, reader) = (false, true);
        assert_eq!(violations(Rule::One, &[(0, writer, 1, 1, 5), (1, writer, 2, 6, 9)]), 0);
        assert_eq!(violations(Rule::One, &[(0, writer, 1, 1, 6), (1, writer, 2, 6, 9)]), 1);
        assert_eq!(violations(Rule::One, &[(0, writer, 1, 1, 20), (0, writer, 2, 6, 9)]), 1, "also in one process");
        assert_eq!(violations(Rule::One, &[(0, writer, 1, 1, 3), (0, writer, 1, 5, 9)]), 0, "in doubt in between");
        assert_eq!(violations(Rule::AtMost(2), &[(0, writer, 1, 1, 9), (1, writer, 2, 2, 9)]), 0);
        let three = [(0, writer, 1, 1, 9), (1, writer, 2, 2, 9), (2, writer, 3, 3, 9)];
        assert_eq!(violations(Rule::AtMost(2), &three), 1);
        assert_eq!(violations(Rule::ReadWrite, &[(0, reader, 1, 1, 9), (1, reader, 2, 2, 9)]), 0);
        assert_eq!(violations(Rule::ReadWrite, &[(0, reader, 1, 1, 9), (1, writer, 2, 2, 9)]), 1);
        assert_eq!(violations(Rule::ReadWrite, &[(0, writer, 1, 1, 9), (1, reader, 2, 2, 9)]), 1);
    }

    #[test]
    fn a_session_ended_from_outside_has_no_lock_any_more() {
        let claim = |token, session, from, to| Claim { party: 0, is_reader: false, token, session, from, to };
        let claims = vec![claim(1, 9, 1, 5), claim(2, 9, 10, 20), claim(2, 9, 22, 25), claim(3, 8, 30, 40)];
        let history = History { claims, ended_from_outside: vec![(9, 7, 8), (9, 15, 31)], ..History::default() };
        let (promised, believed) = history.promised();
        assert_eq!(
            promised,
            [claim(1, 9, 1, 5), claim(2, 9, 10, 15), claim(3, 8, 30, 40)],
            "the next session has its own"
        );
        assert_eq!(believed, [5, 10].map(Duration::from_nanos));
    }

    #[test]
    fn tokens_that_do_not_grow_are_found() {
        let writer = false;
        assert_eq!(violations(Rule::One, &[(0, writer, 2, 1, 2), (1, writer, 1, 3, 4)]), 1);
        assert_eq!(violations(Rule::One, &[(0, writer, 2, 1, 2), (1, writer, 2, 3, 4)]), 1);
        assert_eq!(violations(Rule::Cached, &[(0, writer, 2, 1, 2), (0, writer, 2, 3, 4)]), 0);
        assert_eq!(violations(Rule::Cached, &[(0, writer, 2, 1, 2), (1, writer, 2, 3, 4)]), 1);
        let reader = true;
        assert_eq!(violations(Rule::ReadWrite, &[(0, reader, 3, 1, 2), (1, reader, 2, 3, 4)]), 0);
        assert_eq!(violations(Rule::ReadWrite, &[(0, writer, 3, 1, 2), (1, reader, 2, 3, 4)]), 1);
        assert_eq!(violations(Rule::ReadWrite, &[(0, reader, 3, 1, 2), (1, writer, 2, 3, 4)]), 1);
    }

    #[test]
    fn a_second_acquire_has_another_token() {
        let attempt = |token| Attempt { held: Some((token, 1, 2)), ..Attempt::default() };
        let of = |tokens: [i64; 3]| History { attempts: tokens.map(attempt).to_vec(), ..History::default() }.repeated();
        assert_eq!((of([1, 2, 3]).len(), of([1, 2, 2]).len(), of([3, 2, 4]).len()), (0, 1, 1));
    }
}
