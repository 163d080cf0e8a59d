//! What is counted, and how it is shown.

use std::{collections::BTreeMap, time::Duration};

use super::SESSION;

/// An unbroken time in which a process believed that it leads, in one term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Belief {
    pub from: u64,
    pub to: u64,
    pub token: i64,
}

/// What one process wrote down.
#[derive(Debug, Default)]
pub struct Record {
    /// It asked, and was told yes.
    pub asked: Vec<Belief>,
    /// From the call that says so to the one that says otherwise.
    pub told: Vec<Belief>,
    /// From a grant to the end of the job of one that does not listen.
    pub worked: Vec<Belief>,
    /// When it was stopped by a signal, or this machine did not run it.
    pub pauses: Vec<(u64, u64)>,
}

/// Of one kind of leader.
#[derive(Debug)]
pub struct Tally {
    pub kind: &'static str,
    pub by_fault: BTreeMap<&'static str, usize>,
    /// Pauses of whoever leads beyond its session.
    pub long_pauses: usize,
    pub terms: usize,
    pub overlaps: Vec<(Belief, Belief)>,
    /// Two had been told that they lead, and neither was stopped while it was to be told otherwise.
    pub overlaps_of_told: Vec<(Belief, Belief)>,
    /// One of the two was, and it goes by what it was told; or it does not even listen.
    pub overlaps_of_control: usize,
}

impl Tally {
    pub fn new(kind: &'static str) -> Tally {
        Tally {
            kind,
            by_fault: BTreeMap::new(),
            long_pauses: 0,
            terms: 0,
            overlaps: Vec::new(),
            overlaps_of_told: Vec::new(),
            overlaps_of_control: 0,
        }
    }

    pub fn faults(&self) -> usize {
        self.by_fault.values().sum()
    }

    pub fn and(mut self, other: Tally) -> Tally {
        for (fault, count) in other.by_fault {
            *self.by_fault.entry(fault).or_default() += count;
        }
        self.long_pauses += other.long_pauses;
        self.terms += other.terms;
        self.overlaps.extend(other.overlaps);
        self.overlaps_of_told.extend(other.overlaps_of_told);
        self.overlaps_of_control += other.overlaps_of_control;
        self
    }

    /// Of processes in one election.
    pub fn count(&mut self, records: &[Record]) {
        self.terms += records.iter().map(|record| record.told.len()).sum::<usize>();
        for (index, one) in records.iter().enumerate() {
            for other in &records[index + 1..] {
                self.overlaps.extend(overlapping(&one.asked, &other.asked));
                self.overlaps_of_control += overlapping(&one.worked, &other.worked).len();
                for (ours, theirs) in overlapping(&one.told, &other.told) {
                    if was_stopped(one, &ours, &theirs) || was_stopped(other, &theirs, &ours) {
                        self.overlaps_of_control += 1;
                    } else {
                        self.overlaps_of_told.push((ours, theirs));
                    }
                }
            }
        }
    }
}

fn overlapping(ones: &[Belief], others: &[Belief]) -> Vec<(Belief, Belief)> {
    let pairs = ones.iter().flat_map(|one| others.iter().map(|other| (*one, *other)));
    pairs.filter(|(one, other)| one.from <= other.to && other.from <= one.to).collect()
}

/// Whether a process was stopped, or had just gone on, when the other one began to lead beside it, and got no processor to
/// speak of until it was told: then nobody can have told it before.
fn was_stopped(record: &Record, own: &Belief, other: &Belief) -> bool {
    let moment = u64::try_from(SESSION.as_nanos() / 2).unwrap();
    let mut pauses = record.pauses.clone();
    pauses.sort_unstable();
    let excused = pauses.into_iter().fold(None, |until, (from, to)| match until {
        None if from <= other.from && other.from <= to + moment => Some(to + moment),
        Some(until) if from <= until => Some(until.max(to + moment)),
        until => until,
    });
    own.from <= other.from && excused.is_some_and(|until| own.to <= until)
}

pub fn print(tallies: &[Tally], took: Duration) {
    println!(
        "\n| kind | faults | terms | two that asked | two that were told | two by the control | long pauses of who leads |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for tally in tallies {
        let (faults, asked, told) = (tally.faults(), tally.overlaps.len(), tally.overlaps_of_told.len());
        let Tally { kind, terms, overlaps_of_control, long_pauses, .. } = tally;
        println!("| {kind} | {faults} | {terms} | {asked} | {told} | {overlaps_of_control} | {long_pauses} |");
    }
    println!("\nSessions of {SESSION:?}, {took:.0?} in all.");
    for tally in tallies {
        println!("{}: {:?}", tally.kind, tally.by_fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn belief(from: u64, to: u64) -> Belief {
        Belief { from, to, token: 0 }
    }

    fn record(asked: &[Belief], told: &[Belief], pauses: &[(u64, u64)]) -> Record {
        Record { asked: asked.to_vec(), told: told.to_vec(), pauses: pauses.to_vec(), ..Record::default() }
    }

    #[test]
    fn two_that_lead_at_one_moment_are_found_and_one_after_the_other_are_none() {
        let count = |one: Belief, other: Belief| {
            let mut tally = Tally::new("");
            tally.count(&[record(&[one], &[one], &[]), record(&[other], &[other], &[])]);
            (tally.overlaps.len(), tally.overlaps_of_told.len())
        };
        assert_eq!([count(belief(1, 3), belief(4, 5)), count(belief(4, 5), belief(1, 3))], [(0, 0); 2]);
        assert_eq!([count(belief(1, 4), belief(4, 5)), count(belief(4, 5), belief(1, 9))], [(1, 1); 2]);
    }

    #[test]
    fn a_stopped_leader_counts_for_the_control_and_not_for_what_it_asked() {
        let (stopped, next) = (belief(1, 10), belief(6, 20));
        let mut tally = Tally::new("");
        tally.count(&[record(&[belief(1, 3)], &[stopped], &[(4, 9)]), record(&[next], &[next], &[])]);
        assert_eq!((tally.overlaps.len(), tally.overlaps_of_told.len(), tally.overlaps_of_control), (0, 0, 1));
        // It began to lead beside the other one: no pause excuses that.
        let mut tally = Tally::new("");
        tally.count(&[record(&[], &[belief(1, 10)], &[]), record(&[], &[belief(6, 20)], &[(7, 9)])]);
        assert_eq!((tally.overlaps_of_told.len(), tally.overlaps_of_control), (1, 0));
    }

    #[test]
    fn a_process_that_gets_no_processor_for_long_is_excused_for_so_long() {
        let s = |seconds: u64| seconds * 1_000_000_000;
        let is_excused =
            |pauses: &[(u64, u64)], to| was_stopped(&record(&[], &[], pauses), &belief(s(1), to), &belief(s(4), s(20)));
        assert!(is_excused(&[(s(3), s(6))], s(7)));
        assert!(!is_excused(&[(s(3), s(6))], s(8)));
        assert!(is_excused(&[(s(7), s(8)), (s(3), s(6))], s(9)));
        assert!(!is_excused(&[(s(3), s(6)), (s(8), s(9))], s(10)), "it ran for two seconds");
        assert!(!is_excused(&[(s(5), s(6))], s(6)), "it ran when the other one began");
    }
}
