//! Seeds are fixed, and printed where a lie is found. `LIVENESS_SEEDS=1000` takes so many of each kind.

use super::{faults::NO_FAULT, *};

/// Runs of this length each.
const LENGTH: Time = 300 * T;

fn seeds(few: u64) -> u64 {
    std::env::var("LIVENESS_SEEDS").map_or(few, |seeds| seeds.parse().unwrap())
}

/// Over so many seeds, with each round trip in thousandths of T.
fn run(what: &str, few: u64, round_trips: &[Time], faults: Faults, rule: Rule) -> Outcome {
    let mut sum = Outcome::default();
    for (round_trip, seed) in
        round_trips.iter().flat_map(|round_trip| (0..seeds(few)).map(move |seed| (*round_trip, seed)))
    {
        let mut world = World::new(seed, T / [2, 2, 2, 4][seed as usize % 4], Faults { round_trip, ..faults }, rule);
        world.run(LENGTH);
        let one = world.outcome;
        if one.lies > 0 {
            println!("{what}: {} lies with seed {seed} and a round trip of 0.{round_trip:03} T", one.lies);
        }
        sum.sessions += one.sessions;
        sum.answers += one.answers;
        sum.lies += one.lies;
        sum.worst = sum.worst.max(one.worst);
    }
    let Outcome { sessions, answers, lies, worst } = sum;
    let worst = worst * 1000 / T;
    println!("{what}, {rule:?}: {sessions} sessions, {answers} answers, {lies} lies, by 0.{worst:03} T at worst");
    sum
}

#[test]
fn no_fault_makes_a_client_take_an_expired_session_for_certain() {
    let cases = [
        ("nothing", NO_FAULT),
        ("the leader pauses", Faults { leader_pauses: true, ..NO_FAULT }),
        ("the follower pauses", Faults { follower_pauses: true, ..NO_FAULT }),
        ("the client pauses", Faults { client_pauses: true, ..NO_FAULT }),
        ("and then the leader", Faults { client_pauses: true, leader_pauses_after: true, ..NO_FAULT }),
        ("the network lets go", Faults { network_lets_go: true, ..NO_FAULT }),
        ("and the leader pauses", Faults { network_lets_go: true, leader_pauses: true, ..NO_FAULT }),
        ("messages between the servers are late", Faults { delays: 20, ..NO_FAULT }),
        ("and the network lets go", Faults { delays: 20, network_lets_go: true, ..NO_FAULT }),
        ("and the client pauses", Faults { delays: 20, client_pauses: true, ..NO_FAULT }),
        (
            "an expiry takes 0.2 T",
            Faults { mass_expiry: T / 5, network_lets_go: true, client_pauses: true, ..NO_FAULT },
        ),
        (
            "and the follower pauses",
            Faults { mass_expiry: T / 5, network_lets_go: true, follower_pauses: true, ..NO_FAULT },
        ),
    ];
    for (what, faults) in cases {
        assert_eq!(run(what, 4, &[0, 100, 300], faults, Rule::Whole).lies, 0, "{what}");
    }
}

#[test]
fn without_a_part_of_the_rule_there_are_lies() {
    let what = "the follower pauses, the network lets go";
    let faults = Faults { follower_pauses: true, network_lets_go: true, ..NO_FAULT };
    for (few, mass_expiry, without) in [(8, T / 5, Rule::NothingIsConfirmed), (100, 0, Rule::FromSendToSend)] {
        let faults = Faults { mass_expiry, ..faults };
        assert_eq!(run(what, few, &[0], faults, Rule::Whole).lies, 0);
        assert!(run(what, few, &[0], faults, without).lies > 0, "{without:?}");
    }
}

/// `docs/guarantees.md` excepts both, and has the numbers of `LIVENESS_SEEDS=100`.
#[test]
fn an_expiry_that_takes_longer_than_half_the_timeout_is_believed_too_long() {
    let away = Faults { network_lets_go: true, client_pauses: true, ..NO_FAULT };
    let takes = |what, mass_expiry| run(what, 1, &[0, 100, 200, 300], Faults { mass_expiry, ..away }, Rule::Whole).lies;
    assert_eq!(takes("an expiry takes 0.4 T", 2 * T / 5), 0);
    assert!(takes("an expiry takes 0.8 T", 4 * T / 5) > 0);
    let paused = Faults { mass_expiry: T / 5, leader_pauses: true, ..away };
    let sum = run("the leader pauses in an expiry", 40, &[0, 50, 100], paused, Rule::Whole);
    assert!(sum.lies > 0 && sum.lies * 100 <= sum.sessions, "{sum:?}");
}

/// `docs/guarantees.md` excepts these as well, and has the numbers of `LIVENESS_SEEDS=300`.
#[test]
fn two_faults_of_the_servers_in_a_row_are_hardly_ever_believed() {
    let pauses = Faults { leader_pauses: true, follower_pauses: true, ..NO_FAULT };
    let leader = Faults { leader_pauses: true, delays: 20, ..NO_FAULT };
    let follower = Faults { follower_pauses: true, delays: 20, ..NO_FAULT };
    let cases = [
        pauses,
        Faults { network_lets_go: true, ..pauses },
        Faults { delays: 20, ..pauses },
        leader,
        Faults { network_lets_go: true, ..leader },
        follower,
        Faults { network_lets_go: true, mass_expiry: T / 5, ..follower },
    ];
    let (mut sessions, mut lies, mut worst) = (0, 0, 0);
    for faults in cases {
        let sum = run("two faults", 4, &[0, 50, 100, 200, 300], faults, Rule::Whole);
        (sessions, lies, worst) = (sessions + sum.sessions, lies + sum.lies, worst.max(sum.worst));
    }
    println!("two faults: {lies} lies of {sessions} sessions, by 0.{:03} T at worst", worst * 1000 / T);
    assert!(lies * 1000 <= sessions, "{lies} of {sessions}");
}
