//! A count and a value that both sides change and both see.

use std::time::{Duration, Instant};

use curator_locks::SharedValue;

use crate::{
    arena::Arena,
    history::Side,
    peer::Peer,
    slow::contention::ROUNDS,
    support::{self, history::shared_clock},
};

const COUNT: &str = "/counts/c";

/// One successful increment: when it was begun, when it was known, what it wrote.
struct Increment {
    side: Side,
    from: u64,
    to: u64,
    value: usize,
}

impl Increment {
    /// `FROM TO VALUE`
    fn parse(side: Side, line: &str) -> Increment {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        Increment { side, from: numbers[0], to: numbers[1], value: usize::try_from(numbers[2]).unwrap() }
    }
}

#[test]
fn no_increment_of_either_side_is_lost_and_each_side_hears_of_the_last() {
    let (arena, begin) = (Arena::shared(), Instant::now());
    let peers = arena.peers(3);
    peers.iter().for_each(|peer| peer.tell(&format!("count-hammer {COUNT} {ROUNDS}")));
    let values = check(peers.iter().flat_map(|peer| finish(peer, Vec::new())).collect());
    let last = 6 * ROUNDS;
    assert_eq!(values, (1..=last).collect::<Vec<_>>(), "increments were lost");
    println!("SharedCount: {last} increments in {:.1} s", begin.elapsed().as_secs_f64());
    for peer in &peers {
        peer.tell(&format!("watch-count {COUNT}"));
        await_count(peer, last, Some("watching"));
    }
    for (index, writer) in peers.iter().enumerate() {
        let value = last + index + 1;
        writer.tell(&format!("set-count {COUNT} {value}"));
        for peer in &peers {
            await_count(peer, value, (peer.pid() == writer.pid()).then_some("set"));
        }
    }
    arena.client.delete().for_path(COUNT).unwrap();
    arena.check_nothing_is_left(&[], peers);
}

/// No value is written twice. One that nobody has written for sure is one whose reply was lost: then our side says that it
/// does not know, and Curator that it did not write.
#[test]
fn increments_survive_a_restart_of_the_server() {
    const RESTARTS: usize = 2;
    let (server, begin) = (support::quick_server().start().unwrap(), Instant::now());
    let arena = Arena::new(&server, Duration::from_secs(40));
    let peers = arena.peers(3);
    peers.iter().for_each(|peer| peer.tell(&format!("count-hammer {COUNT} {}", u32::MAX >> 1)));
    let mut increments: Vec<Increment> = Vec::new();
    await_progress(&peers, &mut increments);
    for _ in 0..RESTARTS {
        server.kill().unwrap();
        server.restart().unwrap();
        await_progress(&peers, &mut increments);
    }
    peers.iter().for_each(|peer| peer.tell("stop"));
    for peer in &peers {
        increments = finish(peer, increments);
    }
    let values = check(increments);
    let unknown = values.last().unwrap() - values.len();
    println!(
        "SharedCount, server restarted: {} increments, and {unknown} that nobody is sure of, in {:.1} s",
        values.len(),
        begin.elapsed().as_secs_f64()
    );
    assert!(unknown <= 6 * RESTARTS, "{unknown} values that nobody has written");
    arena.client.delete().for_path(COUNT).unwrap();
    arena.check_nothing_is_left(&[], peers);
}

/// Each value is written once, and in this order. Gives the values.
#[track_caller]
fn check(mut increments: Vec<Increment>) -> Vec<usize> {
    increments.sort_by_key(|increment| increment.value);
    let mut latest = 0;
    for increment in &increments {
        latest = latest.max(increment.from);
        assert!(latest <= increment.to, "{} was written before what comes before it", increment.value);
    }
    for pair in increments.windows(2) {
        let [one, other] = [&pair[0], &pair[1]];
        assert!(one.value < other.value, "{:?} and {:?} believe to have written {}", one.side, other.side, one.value);
    }
    increments.iter().map(|increment| increment.value).collect()
}

/// Everybody has written some more.
fn await_progress(peers: &[Peer], increments: &mut Vec<Increment>) {
    let since = shared_clock();
    for peer in peers {
        let mut written = 0;
        while written < 10 {
            let increment = Increment::parse(peer.side, &peer.hear("counted"));
            written += usize::from(increment.from > since);
            increments.push(increment);
        }
    }
}

fn finish(peer: &Peer, mut increments: Vec<Increment>) -> Vec<Increment> {
    loop {
        let line = peer.line();
        match line.split_once(' ') {
            Some(("counted", rest)) => increments.push(Increment::parse(peer.side, rest)),
            Some(("done", "0")) => return increments,
            _ => panic!("{:?} says: {line}", peer.side),
        }
    }
}

/// Until it knows the value, and has given the answer that is due, in whatever order.
#[track_caller]
fn await_count(peer: &Peer, value: usize, mut due: Option<&str>) {
    let mut is_known = false;
    while !is_known || due.is_some() {
        let line = peer.line();
        let (word, number) = line.split_once(' ').unwrap();
        assert!(word == "count-is" || due == Some(word), "{:?} says: {line}", peer.side);
        due = due.filter(|due| *due != word);
        // What comes before it is what it had not heard of yet.
        is_known |= word != "set" && number == value.to_string();
    }
}

/// The answer, whatever news come before it.
#[track_caller]
fn ask(peer: &Peer, line: &str, word: &str) -> String {
    peer.tell(line);
    loop {
        let line = peer.line();
        match line.split_once(' ').unwrap() {
            ("value-is", _) => {}
            (first, rest) if first == word => return rest.to_owned(),
            _ => panic!("{:?} says: {line}", peer.side),
        }
    }
}

#[test]
fn a_value_of_either_side_is_seen_and_replaced_by_the_other() {
    const VALUE: &str = "/values/v";
    let arena = Arena::shared();
    let java = arena.start([Peer::curator(&arena.place, &[])]).remove(0);
    assert_eq!(java.ask(&format!("watch-value {VALUE}"), "watching"), "0 of-java", "it makes the znode");
    let ours = SharedValue::new(&arena.client, VALUE, "of-rust").unwrap();
    let (tell, told) = crossbeam_channel::unbounded();
    ours.start().unwrap();
    ours.add_listener(move |value: &[u8]| tell.send(value.to_vec()).unwrap_or_default());
    assert_eq!((ours.value(), ours.versioned_value().version()), (b"of-java".to_vec(), 0));
    let before = ours.versioned_value();
    ours.set_value("rust-1").unwrap();
    assert_eq!(java.hear("value-is"), "rust-1");
    assert_eq!(ask(&java, &format!("try-value {VALUE} java-2"), "tried"), "true", "it knows the last value");
    while told.recv_timeout(support::PATIENCE).unwrap() != b"java-2" {}
    assert!(!ours.try_set_value(&before, "stale").unwrap());
    assert!(ours.try_set_value(&ours.versioned_value(), "rust-3").unwrap());
    while java.hear("value-is") != "rust-3" {}
    ask(&java, &format!("set-value {VALUE} java-4"), "set");
    support::eventually("known here", || ours.value() == b"java-4" && ours.versioned_value().version() == 4);
    ours.close();
    arena.client.delete().for_path(VALUE).unwrap();
    arena.check_nothing_is_left(&[], vec![java]);
}

/// The limit of a semaphore is a count that the other side raises.
#[test]
fn a_waiter_of_either_side_gets_a_lease_when_the_other_side_raises_the_limit() {
    let arena = Arena::shared();
    let [semaphore, kind] = ["/leases/s", "semaphore@/counts/limit"];
    let peers = arena.peers(2);
    let (holder, setters) = (&peers[0], &peers[..2]);
    holder.ask("set-count /counts/limit 1", "set");
    let mut holds = vec![holder.acquire(kind, semaphore)];
    // A waiter of Java's, and the limit raised by our side; then the other way round.
    for (limit, (waiter, setter)) in [(2, (&peers[3], &setters[0])), (3, (&peers[2], &setters[1]))] {
        waiter.tell(&format!("acquire {kind} {semaphore} -1"));
        arena.await_children("/leases/s/locks", 1);
        setter.ask(&format!("set-count /counts/limit {limit}"), "set");
        holds.push(waiter.await_acquired());
        arena.await_children("/leases/s/leases", limit);
    }
    for (peer, hold) in [&peers[0], &peers[3], &peers[2]].into_iter().zip(&mut holds) {
        peer.release(hold);
    }
    arena.await_children("/leases/s/leases", 0);
    arena.client.delete().for_path("/counts/limit").unwrap();
    arena.check_nothing_is_left(&[], peers);
}
