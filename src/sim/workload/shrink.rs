//! Makes a plan that fails shorter: without faults, threads and acts that are not needed for the same rule to be broken.
#![allow(clippy::disallowed_methods, reason = "how long runs take is told by the real clock")]

use std::time::{Duration, Instant};

use super::{plan::Plan, run::run};

/// Drops parts as long as the same rule is broken, for so long.
pub(crate) fn shrink(plan: &Plan, rule: &str, time: Duration) -> (Plan, u32) {
    let mut shrinking = Shrinking { best: plan.clone(), rule: rule.to_owned(), until: Instant::now() + time, tries: 0 };
    while shrinking.round() {}
    (shrinking.best, shrinking.tries)
}

struct Shrinking {
    best: Plan,
    rule: String,
    until: Instant,
    tries: u32,
}

impl Shrinking {
    /// `false`: nothing can be dropped any more.
    fn round(&mut self) -> bool {
        let before = self.best.size();
        let count = self.best.faults.len();
        let mut piece = count.div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < self.best.faults.len() {
                let mut plan = self.best.clone();
                let to = (from + piece).min(plan.faults.len());
                plan.faults.drain(from..to);
                if !self.keeps(plan) {
                    from += piece;
                }
            }
            if piece == 1 {
                break;
            }
            piece /= 2;
        }
        for process in 0..self.best.processes.len() {
            for thread in (0..self.best.processes[process].threads.len()).rev() {
                let mut plan = self.best.clone();
                plan.processes[process].threads[thread].clear();
                if self.best.processes[process].threads[thread].is_empty() || self.keeps(plan) {
                    continue;
                }
                for act in (0..self.best.processes[process].threads[thread].len()).rev() {
                    let mut plan = self.best.clone();
                    plan.processes[process].threads[thread].remove(act);
                    self.keeps(plan);
                }
            }
        }
        if let Some(last) = self.best.faults.last().map(|last| last.at + self.best.timeout * 3) {
            let mut plan = self.best.clone();
            plan.lasts = plan.lasts.min(last);
            if plan.lasts < self.best.lasts {
                self.keeps(plan);
            }
        }
        self.best.size() < before && Instant::now() < self.until
    }

    /// Whether the plan breaks the same rule; if so it is the best one.
    fn keeps(&mut self, plan: Plan) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        self.tries += 1;
        let fails = run(&plan).verdict.violations.iter().any(|violation| violation.rule == self.rule);
        if fails {
            self.best = plan;
        }
        fails
    }
}

impl Plan {
    fn size(&self) -> usize {
        let acts = self.processes.iter().flat_map(|process| &process.threads).map(Vec::len).sum::<usize>();
        self.faults.len() + acts
    }
}
