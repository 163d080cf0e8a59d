//! Asking for a lock back, across languages.

use std::{collections::HashMap, time::Instant};

use curator_locks::FencingToken;

use crate::{
    arena::Arena,
    history::{Hold, Side, check_exclusive},
    peer::Peer,
    slow::contention::{CACHED_ROUNDS, ROUNDS},
};

const LOCK: &str = "/locks/revocable";

#[test]
fn javas_holders_give_the_lock_back_when_our_side_asks() {
    holders_give_the_lock_back_when_asked(Side::Java, "revocable", "revoke-all");
}

/// They are asked with Curator's ten bytes, because the znode's name says whose it is.
#[test]
fn javas_holders_give_the_lock_back_when_our_side_says_who_asks_and_why() {
    holders_give_the_lock_back_when_asked(Side::Java, "revocable", "request-all");
}

#[test]
fn our_holders_give_the_lock_back_when_java_asks() {
    holders_give_the_lock_back_when_asked(Side::Rust, "revocable", "revoke-all");
}

#[test]
fn our_holders_give_a_cached_lock_back_when_java_asks() {
    holders_give_the_lock_back_when_asked(Side::Rust, "cached-revocable", "revoke-all");
}

/// Three processes of one side hold in turn, and each gives the lock back when one of three of the other side has asked.
fn holders_give_the_lock_back_when_asked(holding: Side, kind: &str, how: &str) {
    let (arena, begin) = (Arena::shared(), Instant::now());
    let rounds = if kind == "revocable" { ROUNDS } else { CACHED_ROUNDS };
    arena.keep(LOCK);
    let peers = arena.peers(3);
    let (holders, askers): (Vec<&Peer>, Vec<&Peer>) = peers.iter().partition(|peer| peer.side == holding);
    askers.iter().for_each(|peer| peer.tell(&format!("{how} {LOCK}")));
    holders.iter().for_each(|peer| peer.tell(&format!("hammer {kind} {LOCK} {rounds}")));
    let (mut holds, mut told) = (Vec::new(), HashMap::new());
    for peer in holders {
        listen(peer, &mut holds, &mut told);
    }
    askers.iter().for_each(|peer| peer.tell("stop"));
    let mut asked: HashMap<String, u64> = HashMap::new();
    for peer in askers {
        heed(peer, &mut asked);
    }
    assert_eq!(holds.len(), 3 * rounds);
    let report = check_exclusive(&holds);
    for hold in &holds {
        let (asked_at, told_at) = (asked[&hold.node], told[&key(&hold.node, hold.token)]);
        assert!(asked_at < told_at, "told before anybody asked: {hold:?}");
        assert!(told_at < hold.to, "given back before it was asked for: {hold:?}");
    }
    println!("{how}, held by {holding:?}: {report:?} in {:.1} s", begin.elapsed().as_secs_f64());
    arena.check_nothing_is_left(&[LOCK], peers);
}

/// What one hold is known by: cached, a znode serves many.
type Key = (String, FencingToken);

fn key(node: &str, token: FencingToken) -> Key {
    (node.to_owned(), token)
}

fn listen(peer: &Peer, holds: &mut Vec<Hold>, told: &mut HashMap<Key, u64>) {
    loop {
        let line = peer.line();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["told", at, node, token, ..] => {
                assert_eq!(told.insert(key(node, token.parse().unwrap()), at.parse().unwrap()), None);
            }
            ["hold", ..] => holds.push(Hold::parse(peer.side, &line["hold ".len()..])),
            ["done", failures] => return assert_eq!(failures, "0"),
            _ => panic!("{:?} says: {line}", peer.side),
        }
    }
}

/// When each znode's owner was first asked.
fn heed(peer: &Peer, asked: &mut HashMap<String, u64>) {
    loop {
        let line = peer.line();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["asked", at, node] => {
                let at: u64 = at.parse().unwrap();
                asked.entry(node.to_owned()).and_modify(|first| *first = at.min(*first)).or_insert(at);
            }
            ["stopped"] => return,
            _ => panic!("{:?} says: {line}", peer.side),
        }
    }
}
