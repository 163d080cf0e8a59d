//! A ClickHouse Keeper resumes no session, and does not say so: the client gets another one. Curator and kazoo do not look
//! which, and hold on; this crate is told.

use std::time::Duration;

use curator_locks::testing::{Dialect, FaultProxy};

use crate::{
    arena::Arena,
    history::Side,
    peer::{Peer, Place},
    support::{self, await_children},
};

const SESSION: Duration = Duration::from_secs(4);
const CUTS: usize = 3;

/// How often there were two holders after as many cuts: of a client of Keeper, and of one that waits behind it.
fn two_holders(dialect: Dialect, start: impl Fn(&Place) -> Peer) -> usize {
    let arena = Arena::new(support::server(), support::SESSION);
    let keeper = FaultProxy::start_as(&*support::server().connect_string(), dialect).unwrap();
    let place = Place { servers: keeper.connect_string(), session: SESSION, ..arena.place.clone() };
    let peers = arena.start([start(&place), Peer::rust(&arena.place, &[])]);
    let [holder, next] = &peers[..] else { unreachable!() };
    let mut both = 0;
    for cut in 0..CUTS {
        let path = format!("/locks/{cut}");
        let mut held = holder.acquire("mutex", &path);
        next.tell(&format!("acquire mutex {path} -1"));
        await_children(&arena.client, &path, 2);
        keeper.cut();
        // Not before the first session has expired, or its znode was deleted.
        let mut after = next.await_acquired();
        let until = if holder.side == Side::Rust {
            // It was told before it is asked.
            let told = holder.hear("state");
            assert!(told.ends_with("Lost(SessionExpired)"), "{told}");
            let lost = holder.ask("release", "lost");
            let (at, valid_until) = lost.split_once(' ').unwrap();
            at.parse::<u64>().unwrap().min(valid_until.parse().unwrap())
        } else {
            holder.release(&mut held);
            held.to
        };
        both += usize::from(after.from < until);
        next.release(&mut after);
    }
    println!("{:?}, {dialect}: {both} of {CUTS} cuts have made two holders", holder.side);
    both
}

#[test]
fn a_cut_makes_two_holders_of_curator() {
    assert_eq!(two_holders(Dialect::Keeper, |place| Peer::curator(place, &[])), CUTS, "the control");
}

#[test]
fn a_cut_makes_two_holders_of_kazoo() {
    assert_eq!(two_holders(Dialect::KeeperBefore267, Peer::kazoo), CUTS, "the control");
}

#[test]
fn a_cut_makes_two_holders_of_this_crate_never() {
    for dialect in [Dialect::KeeperBefore267, Dialect::Keeper] {
        assert_eq!(two_holders(dialect, |place| Peer::rust(place, &[])), 0, "{dialect}");
    }
}
