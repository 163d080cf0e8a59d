//! A queue that empties: what one hand-over takes.

use crate::{
    peer::Kind,
    results::{short, table},
    run::Run,
    sides::Outcome,
};

const SHARED: &str = "drain_shared_session";
const OWN: &str = "drain_own_session";

/// At this length Curator takes minutes.
const ONCE_FOR_CURATOR: usize = 1000;

/// A median of few drains that last for moments is a matter of luck. Curator's are so long that five have to do, so it
/// takes part in every third round.
const MANY: usize = 15;

/// Waiters are threads that share one client and one lock object.
pub fn one_client(run: &mut Run) -> Outcome<()> {
    for n in [1, 10, 100, 300, 1000, 3000] {
        let sides: Vec<Kind> = match n {
            3000 => vec![Kind::CuratorLocks],
            _ => Kind::ALL.into(),
        };
        drain(run, SHARED, n, &sides, if n <= 300 { MANY } else { 5 })?;
    }
    run.print("Hand-over between threads of one client", &[SHARED]);
    packets(run, SHARED);
    Ok(())
}

/// Waiters are threads with a client each.
pub fn own_sessions(run: &mut Run) -> Outcome<()> {
    for n in [10, 100, 300] {
        drain(run, OWN, n, &Kind::ALL, if n <= 100 { MANY } else { 5 })?;
    }
    for side in Kind::ALL {
        run.ask(side, "forget")?;
    }
    run.print("Hand-over between sessions", &[OWN]);
    packets(run, OWN);
    Ok(())
}

/// A few of both.
pub fn a_few(run: &mut Run) -> Outcome<()> {
    for n in [10, 100] {
        drain(run, SHARED, n, &Kind::ALL, 3)?;
    }
    drain(run, OWN, 10, &Kind::ALL, 3)?;
    run.print("Hand-over", &[SHARED, OWN]);
    Ok(())
}

#[derive(Default)]
struct Measured {
    /// Nanoseconds per hand-over, of each drain.
    drains: Vec<f64>,
    /// Nanoseconds from one grant to the next.
    gaps: Vec<f64>,
    packets: u64,
    hand_overs: u64,
}

fn drain(run: &mut Run, workload: &str, n: usize, sides: &[Kind], rounds: usize) -> Outcome<()> {
    let mut measured: Vec<Measured> = sides.iter().map(|_| Measured::default()).collect();
    let rounds = run.rounds(rounds);
    for round in 0..rounds {
        for (side, measured) in Run::turns(round, sides, &mut measured) {
            let is_left_out = match n {
                ONCE_FOR_CURATOR.. => round > 0 || run.is_quick,
                11.. => rounds >= MANY && round % 3 > 0,
                _ => false,
            };
            if *side == Kind::Curator && is_left_out {
                continue;
            }
            drain_once(run, workload, n, *side, measured)?;
        }
    }
    for (side, measured) in sides.iter().zip(measured).filter(|(_, measured)| !measured.drains.is_empty()) {
        run.book_fact(&format!("{workload}_packets"), *side, n, measured.packets as f64 / measured.hand_overs as f64);
        run.book(workload, *side, n, measured.drains, measured.gaps);
    }
    Ok(())
}

fn drain_once(run: &mut Run, workload: &str, n: usize, side: Kind, measured: &mut Measured) -> Outcome<()> {
    let sessions = if workload == SHARED { "shared" } else { "own" };
    run.ask(side, &format!("queue {sessions} /{workload}/{} {n} held", side.name()))?;
    run.await_watches(n as u64)?;
    let before = run.server.packets_received()?;
    let times = run.ask(side, "drain")?;
    // The question counts as one.
    measured.packets += run.server.packets_received()?.saturating_sub(before + 1);
    measured.hand_overs += n as u64;
    let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64);
    measured.gaps.extend(gaps);
    measured.drains.push(times[times.len() - 1].saturating_sub(times[0]) as f64 / n as f64);
    Ok(())
}

fn packets(run: &mut Run, workload: &str) {
    let name = format!("{workload}_packets");
    let facts = &run.results.facts;
    let mut lengths: Vec<usize> = facts.iter().filter(|fact| fact.name == name).map(|fact| fact.n).collect();
    lengths.dedup();
    let cell = |side, n| run.results.fact(&name, side, n).map_or("-".into(), short);
    let line = |n: &usize| [n.to_string()].into_iter().chain(Kind::ALL.map(|side| cell(side, *n))).collect();
    let lines: Vec<Vec<String>> = lengths.iter().map(line).collect();
    let header: Vec<String> = ["n"].into_iter().chain(Kind::ALL.map(Kind::name)).map(str::to_owned).collect();
    run.say("\nRequests at the server per hand-over:\n");
    run.say(table(&header, &lines).trim_end());
}
