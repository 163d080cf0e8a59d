//! One history of what all processes held, on the clock that they share, and what has to be true of it.

use std::collections::BTreeMap;

use curator_locks::FencingToken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Rust,
    Java,
    Kazoo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    /// Alone.
    Write,
    /// One of several.
    Lease,
}

/// One hold of one znode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) side: Side,
    pub(crate) mode: Mode,
    /// On the shared clock: after the acquire returned, and before the release was called.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) node: String,
    /// What the server said of the znode after the grant; zeros if it was gone. For our side, the fencing token: where it
    /// caches, several holds have one znode, one after the other.
    pub(crate) token: FencingToken,
    pub(crate) owner: i64,
    /// The session that the holder's client had then.
    pub(crate) session: i64,
    /// Whether the holder was told that the lock is lost, and up to when it was valid.
    pub(crate) was_told_lost: bool,
    pub(crate) valid_until: u64,
}

impl Hold {
    /// `MODE FROM TO NODE TOKEN OWNER SESSION UNTIL LOST`
    pub(crate) fn parse(side: Side, line: &str) -> Hold {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words.len(), 9, "{line}");
        let mode = match words[0] {
            "read" => Mode::Read,
            "write" => Mode::Write,
            "lease" => Mode::Lease,
            other => panic!("{other}"),
        };
        Hold {
            side,
            mode,
            from: words[1].parse().unwrap(),
            to: words[2].parse().unwrap(),
            node: words[3].to_owned(),
            token: words[4].parse().unwrap(),
            owner: words[5].parse().unwrap(),
            session: words[6].parse().unwrap(),
            valid_until: words[7].parse().unwrap(),
            was_told_lost: words[8] == "1",
        }
    }

    /// `FROM NODE TOKEN OWNER SESSION`: held until further notice.
    pub(crate) fn acquired(side: Side, line: &str) -> Hold {
        let (from, rest) = line.split_once(' ').unwrap();
        let mode = if line.contains("/leases/") {
            "lease"
        } else if line.contains("__READ__") {
            "read"
        } else {
            "write"
        };
        Hold::parse(side, &format!("{mode} {from} {} {rest} {} 0", u64::MAX, u64::MAX))
    }

    pub(crate) fn directory(&self) -> &str {
        self.node.rsplit_once('/').unwrap().0
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.node[self.node.len() - 10..].parse().unwrap()
    }

    /// Where it stood in the queue. The directory of leases goes when it is empty, and then the numbers begin again.
    fn place(&self) -> u64 {
        if self.mode == Mode::Lease { u64::try_from(self.token.value()).unwrap() } else { self.sequence() }
    }

    /// A holder that was told answers for what it did before the lock became doubtful.
    fn end(&self) -> u64 {
        if self.was_told_lost { self.to.min(self.valid_until) } else { self.to }
    }

    fn overlaps(&self, later: &Hold) -> bool {
        later.from < self.end() && self.from < later.end()
    }

    /// CURATOR-604: granted on a znode of a session that the client had given up already. The server deletes it when
    /// that session ends, whoever believes to hold it.
    pub(crate) fn is_of_a_former_session(&self) -> bool {
        self.side == Side::Java && self.owner != 0 && self.owner != self.session
    }
}

/// What was seen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) holds: usize,
    /// Grants that went from one language to another.
    pub(crate) crossings: usize,
    pub(crate) overlaps_by_curator_604: usize,
    /// The most that were held at a time.
    pub(crate) peak: usize,
}

fn by_directory(holds: &[Hold]) -> BTreeMap<&str, Vec<&Hold>> {
    let mut directories: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        directories.entry(hold.directory()).or_default().push(hold);
    }
    for holds in directories.values_mut() {
        holds.sort_by_key(|hold| (hold.from, hold.end()));
    }
    directories
}

/// Never two holders, but for readers; grants in the order of the queue: of the sequence numbers, and of creation.
#[track_caller]
pub(crate) fn check_exclusive(holds: &[Hold]) -> Report {
    exclusive(holds).unwrap_or_else(|violation| panic!("{violation}"))
}

/// As [`check_exclusive`], but for the order of the sequence numbers: an upgrade comes before those that wait in front of its
/// znode. Tokens tell the order, of which Curator's readers have none.
#[track_caller]
pub(crate) fn check_upgrades(holds: &[Hold]) -> Report {
    let mut report = Report { holds: holds.len(), ..Report::default() };
    for holds in by_directory(holds).values() {
        let checked = check_overlaps(holds, &mut report).and_then(|()| check_tokens(holds));
        checked.unwrap_or_else(|violation| panic!("{violation}"));
        report.crossings += crossings(holds);
    }
    report
}

fn check_tokens(holds: &[&Hold]) -> Result<(), String> {
    let has_token = |hold: &&&Hold| hold.token.value() != 0 && (hold.side == Side::Rust || hold.mode != Mode::Read);
    let (mut newest, mut last_alone): (Option<&Hold>, Option<&Hold>) = (None, None);
    for hold in holds.iter().filter(has_token) {
        let in_front = if hold.mode == Mode::Read { last_alone } else { newest };
        let keeps_token =
            |before: &&Hold| hold.mode == Mode::Read && before.session == hold.session && before.token == hold.token;
        if let Some(before) = in_front.filter(|before| before.token >= hold.token && !keeps_token(before)) {
            return Err(format!("a token that does not grow:\n{before:?}\n{hold:?}"));
        }
        newest = newest.filter(|newest| newest.token > hold.token).or(Some(hold));
        last_alone = Some(*hold).filter(|hold| hold.mode != Mode::Read).or(last_alone);
    }
    Ok(())
}

/// Never more leases than there are.
#[track_caller]
pub(crate) fn check_leases(holds: &[Hold], limit: usize) -> Report {
    leases(holds, limit).unwrap_or_else(|violation| panic!("{violation}"))
}

/// The error says what is wrong with the history.
pub(crate) fn exclusive(holds: &[Hold]) -> Result<Report, String> {
    let mut report = Report { holds: holds.len(), ..Report::default() };
    for holds in by_directory(holds).values() {
        check_overlaps(holds, &mut report)?;
        check_order(holds)?;
        report.crossings += crossings(holds);
    }
    Ok(report)
}

fn leases(holds: &[Hold], limit: usize) -> Result<Report, String> {
    let mut report = Report { holds: holds.len(), ..Report::default() };
    for holds in by_directory(holds).values() {
        // Those that have not ended before the current one began.
        let mut open: Vec<&Hold> = Vec::new();
        for hold in holds {
            open.retain(|earlier| earlier.overlaps(hold));
            open.push(hold);
            let of_former_sessions = open.iter().filter(|hold| hold.is_of_a_former_session()).count();
            if open.len() - of_former_sessions > limit {
                return Err(format!("more than {limit} leases: {open:#?}"));
            }
            report.overlaps_by_curator_604 += usize::from(open.len() > limit);
            report.peak = report.peak.max(open.len());
        }
        report.crossings += crossings(holds);
    }
    Ok(report)
}

fn crossings(holds: &[&Hold]) -> usize {
    holds.windows(2).filter(|pair| pair[0].side != pair[1].side).count()
}

/// Two at a time are right for readers, and nobody's fault but that of Curator's with proof.
fn check_overlaps(holds: &[&Hold], report: &mut Report) -> Result<(), String> {
    let mut open: Vec<&Hold> = Vec::new();
    for hold in holds {
        open.retain(|earlier| earlier.overlaps(hold));
        for earlier in &open {
            if earlier.mode == Mode::Read && hold.mode == Mode::Read {
                continue;
            }
            if !earlier.is_of_a_former_session() && !hold.is_of_a_former_session() {
                return Err(format!("two holders, and each has a znode of its own session:\n{earlier:?}\n{hold:?}"));
            }
            report.overlaps_by_curator_604 += 1;
        }
        open.push(hold);
        report.peak = report.peak.max(open.len());
    }
    Ok(())
}

/// By sequence number, and by creation. Readers that hold the lock together may have got it in any order.
fn check_order(holds: &[&Hold]) -> Result<(), String> {
    let (mut newest, mut last_alone): (Option<&Hold>, Option<&Hold>) = (None, None);
    for hold in holds {
        let in_front = if hold.mode == Mode::Read { last_alone } else { newest };
        if let Some(before) = in_front.filter(|before| !is_after(hold, before)) {
            return Err(format!("out of order:\n{before:?}\n{hold:?}"));
        }
        newest = newest.filter(|newest| newest.place() > hold.place()).or(Some(hold));
        last_alone = Some(*hold).filter(|hold| hold.mode != Mode::Read).or(last_alone);
    }
    Ok(())
}

fn is_after(hold: &Hold, before: &Hold) -> bool {
    // A downgrade keeps the place of its writer, and its token.
    let is_downgrade = before.mode == Mode::Write && hold.mode == Mode::Read && before.session == hold.session;
    let are_known = before.token.value() != 0 && hold.token.value() != 0;
    let is_younger = !are_known || before.token < hold.token;
    // The next grant of the same znode.
    let is_handed_on = before.node == hold.node && before.token < hold.token;
    let keeps_place = is_downgrade || is_handed_on;
    before.place() < hold.place() && is_younger || keeps_place && before.place() == hold.place()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(side: Side, mode: Mode, from: u64, to: u64, sequence: u64) -> Hold {
        let token = FencingToken::from_value(i64::try_from(sequence).unwrap() + 100);
        let node = format!("/l/_c_uuid-lock-{sequence:010}");
        let (owner, session) = (7, 7);
        Hold { side, mode, from, to, node, token, owner, session, was_told_lost: false, valid_until: to }
    }

    use Mode::{Lease, Read, Write};
    use Side::{Java, Rust};

    #[test]
    fn one_after_the_other_is_right() {
        let holds = [hold(Rust, Write, 10, 20, 0), hold(Java, Write, 20, 30, 1), hold(Java, Write, 31, 32, 2)];
        let report = check_exclusive(&holds);
        assert_eq!(report, Report { holds: 3, crossings: 1, overlaps_by_curator_604: 0, peak: 1 });
    }

    #[test]
    fn two_at_a_time_are_found_wherever_they_are_in_the_history() {
        let (one, other) = (hold(Rust, Write, 10, 40, 0), hold(Java, Write, 35, 38, 2));
        for between in [vec![], vec![hold(Rust, Write, 41, 42, 3)]] {
            let holds: Vec<Hold> = [other.clone(), one.clone()].into_iter().chain(between).collect();
            assert!(exclusive(&holds).is_err());
        }
    }

    #[test]
    fn an_overlap_is_reported_apart_only_with_the_proof_that_the_znode_was_of_javas_former_session() {
        let rust = hold(Rust, Write, 10, 40, 1);
        let java = Hold { owner: 5, session: 6, ..hold(Java, Write, 5, 20, 0) };
        assert_eq!(check_exclusive(&[rust.clone(), java.clone()]).overlaps_by_curator_604, 1);
        // No proof: the same session, a znode that was gone, or on our side.
        for java in
            [Hold { session: 5, ..java.clone() }, Hold { owner: 0, ..java.clone() }, Hold { side: Rust, ..java }]
        {
            assert!(exclusive(&[rust.clone(), java.clone()]).is_err());
        }
    }

    #[test]
    fn who_was_told_answers_until_its_lock_became_doubtful() {
        let told = Hold { was_told_lost: true, valid_until: 20, ..hold(Rust, Write, 10, 50, 0) };
        let next = hold(Java, Write, 30, 40, 1);
        check_exclusive(&[told.clone(), next.clone()]);
        let was_not_told = Hold { was_told_lost: false, ..told.clone() };
        assert!(exclusive(&[was_not_told, next.clone()]).is_err());
        let too_late = Hold { valid_until: 35, ..told };
        assert!(exclusive(&[too_late, next]).is_err());
    }

    #[test]
    fn who_overtakes_is_found() {
        let holds = [hold(Rust, Write, 10, 20, 1), hold(Java, Write, 20, 30, 0)];
        assert!(exclusive(&holds).is_err());
    }

    #[test]
    fn readers_hold_together_in_any_order_but_beside_no_writer() {
        let readers = [hold(Rust, Read, 10, 20, 2), hold(Java, Read, 12, 25, 1)];
        let writer = hold(Java, Write, 26, 30, 3);
        let last = hold(Rust, Read, 31, 32, 4);
        let holds = [readers[0].clone(), readers[1].clone(), writer.clone(), last];
        assert_eq!(check_exclusive(&holds).peak, 2);
        for writer in [Hold { from: 24, ..writer.clone() }, hold(Java, Write, 26, 30, 1), hold(Java, Write, 5, 11, 0)] {
            let holds = [readers[0].clone(), readers[1].clone(), writer];
            assert!(exclusive(&holds).is_err());
        }
        let overtaker = hold(Rust, Read, 31, 32, 0);
        assert!(exclusive(&[writer, overtaker]).is_err());
    }

    #[test]
    fn a_downgrade_keeps_its_number() {
        let writer = hold(Rust, Write, 10, 20, 1);
        let reader = hold(Rust, Read, 20, 30, 1);
        let next = hold(Java, Write, 30, 31, 2);
        check_exclusive(&[writer.clone(), reader.clone(), next.clone()]);
        let in_between = Hold { from: 25, ..next };
        assert!(exclusive(&[writer, reader, in_between]).is_err());
    }

    #[test]
    fn a_znode_that_is_handed_on_serves_one_hold_after_the_other_and_their_tokens_grow() {
        let granted = |from, to, token: &str| Hold { token: token.parse().unwrap(), ..hold(Rust, Write, from, to, 1) };
        let last = hold(Java, Write, 30, 31, 2);
        check_exclusive(&[granted(10, 20, "101.1"), granted(20, 30, "101.2"), last.clone()]);
        for wrong in [
            [granted(10, 21, "101.1"), granted(20, 30, "101.2")],
            [granted(10, 20, "101.2"), granted(20, 30, "101.1")],
            [granted(10, 20, "101.2"), granted(20, 30, "101.2")],
            [granted(10, 20, "101.1"), granted(31, 32, "101.2")],
        ] {
            assert!(exclusive(&[&wrong[..], std::slice::from_ref(&last)].concat()).is_err());
        }
    }

    #[test]
    fn an_upgrade_may_come_before_those_in_front_of_its_znode_if_its_token_says_so() {
        let upgrade = |token: &str| Hold { token: token.parse().unwrap(), ..hold(Rust, Write, 10, 20, 9) };
        let (reader, writer) = (hold(Rust, Read, 5, 9, 2), hold(Java, Write, 20, 30, 3));
        // Curator's reader, which the other one has overtaken.
        let java = hold(Java, Read, 31, 32, 1);
        let history = |token: &str| vec![reader.clone(), upgrade(token), writer.clone(), java.clone()];
        assert_eq!(check_upgrades(&history("102.9223372036854775809")).holds, 4);
        let by_directory = history("109");
        assert!(check_tokens(&by_directory.iter().collect::<Vec<_>>()).is_err());
        assert!(exclusive(&history("102.9223372036854775809")).is_err(), "by its number it overtakes");
    }

    #[test]
    fn one_lease_too_many_is_found() {
        let holds = [hold(Rust, Lease, 10, 20, 0), hold(Java, Lease, 12, 22, 1), hold(Java, Lease, 20, 30, 2)];
        assert_eq!(check_leases(&holds, 2).peak, 2);
        assert!(leases(&holds, 1).is_err());
    }
}
