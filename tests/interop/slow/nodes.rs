//! What either side writes is read and respected by the other: the list of contenders, data, ACLs, and parents.

use curator_locks::{Acl, CreateMode, CuratorFramework};

use crate::{
    arena::Arena,
    history::Side,
    peer::Peer,
    support::{self, eventually},
};

fn list(peer: &Peer, kind: &str, path: &str) -> Vec<String> {
    peer.ask(&format!("list {kind} {path}"), "list").split(' ').map(str::to_owned).collect()
}

/// Both sides say the same, and that is what is in the directory.
#[track_caller]
fn check_participants(peers: &[Peer], kind: &str, path: &str, expected: &[&str]) {
    for peer in peers.iter().filter(|peer| peer.side != Side::Kazoo) {
        let mut listed = list(peer, kind, path);
        if kind.starts_with("semaphore") {
            // Curator gives these in no order.
            listed.sort_by_key(|name| support::sequence(name));
        }
        assert_eq!(listed, expected, "{:?} lists {kind}", peer.side);
    }
}

/// Queues the peers one after the other, and gives their znodes in that order.
fn line_up(arena: &Arena, peers: &[(&Peer, &str)], path: &str) -> Vec<String> {
    let mut nodes: Vec<String> = Vec::new();
    for (peer, kind) in peers {
        peer.tell(&format!("acquire {kind} {path} -1"));
        arena.await_children(path, nodes.len() + 1);
        let known = nodes.clone();
        let new = arena.children(path).into_iter().map(|name| format!("{path}/{name}"));
        nodes.extend(new.filter(|node| !known.contains(node)));
    }
    nodes
}

/// A mutex of our side, without caching and with it.
const MUTEXES: [&str; 2] = ["mutex", "cached-mutex"];

/// Everybody in turn.
fn pass_on(peers: &[(&Peer, &str)]) {
    for (peer, _) in peers {
        let mut hold = peer.await_acquired();
        peer.release(&mut hold);
    }
}

#[test]
fn contenders_of_a_mutex_are_listed_alike_whoever_they_are() {
    let arena = Arena::shared();
    let path = "/locks/m";
    arena.keep(path);
    let mut peers = arena.peers(2);
    peers.extend(arena.start([Peer::kazoo(&arena.place)]));
    for of_ours in MUTEXES {
        let line: Vec<(&Peer, &str)> =
            vec![(&peers[1], "mutex"), (&peers[0], of_ours), (&peers[4], "compatible"), (&peers[3], "mutex")];
        let nodes = line_up(&arena, &line, path);
        let holder = line[0].0.await_acquired();
        assert_eq!(holder.node, nodes[0]);
        // Curator lists whatever is in the directory.
        let keeper = format!("{path}/keeper");
        let ours: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let theirs: Vec<&str> = ours.iter().copied().chain([keeper.as_str()]).collect();
        for peer in &peers[..4] {
            let expected = if peer.side == Side::Rust { &ours } else { &theirs };
            assert_eq!(list(peer, "mutex", path), *expected, "{:?}", peer.side);
        }
        line[0].0.ask("release", "released");
        pass_on(&line[1..]);
        arena.await_children(path, 0);
    }
    arena.check_nothing_is_left(&[path], peers);
}

#[test]
fn readers_and_writers_are_listed_alike_by_both_sides() {
    let arena = Arena::shared();
    let peers = arena.peers(2);
    let path = "/locks/rw";
    for [writes, reads] in [["write", "read"], ["cached-write", "cached-read"]] {
        let line: Vec<(&Peer, &str)> =
            vec![(&peers[0], writes), (&peers[1], "read"), (&peers[2], reads), (&peers[3], "write")];
        let nodes = line_up(&arena, &line, path);
        let mut writer = line[0].0.await_acquired();
        let of_kind = |indices: [usize; 2]| indices.map(|index| nodes[index].as_str());
        check_participants(&peers, "read", path, &of_kind([1, 2]));
        check_participants(&peers, "write", path, &of_kind([0, 3]));
        line[0].0.release(&mut writer);
        // Both readers at a time, one of each side; then the writer behind them.
        let (mut first, mut second) = (line[1].0.await_acquired(), line[2].0.await_acquired());
        assert_eq!(line[3].0.heard(), None);
        line[1].0.release(&mut first);
        line[2].0.release(&mut second);
        pass_on(&line[3..]);
    }
    arena.check_nothing_is_left(&[path], peers);
}

#[test]
fn leases_and_who_waits_for_one_are_listed_alike_by_both_sides() {
    let arena = Arena::shared();
    let peers = arena.peers(2);
    let (path, kind) = ("/locks/s", "semaphore:2");
    let holds = [peers[0].acquire(kind, path), peers[1].acquire(kind, path)];
    let names: Vec<&str> = holds.iter().map(|hold| hold.node.rsplit_once('/').unwrap().1).collect();
    check_participants(&peers, kind, path, &names);
    for peer in &peers[..2] {
        peer.ask("release", "released");
    }
    arena.check_nothing_is_left(&["/locks/s/leases"], peers);
}

#[test]
fn data_of_locks_and_leases_is_read_by_the_other_side() {
    let arena = Arena::shared();
    let path = "/locks/m";
    arena.keep(path);
    let (rust, java) = (Peer::rust(&arena.place, &["data=of-rust"]), Peer::curator(&arena.place, &["data=of-java"]));
    let contenders = arena.start([rust, java, Peer::kazoo(&arena.place)]);
    let [rust, java, kazoo] = [&contenders[0], &contenders[1], &contenders[2]];
    let readers = arena.peers(1);
    for of_ours in MUTEXES {
        let line = [(java, "mutex"), (rust, of_ours), (kazoo, "compatible")];
        let nodes = line_up(&arena, &line, path);
        for reader in &readers {
            for (node, data) in nodes.iter().zip(["of-java", "of-rust", "kazoo"]) {
                assert_eq!(reader.ask(&format!("read {node}"), "data"), data, "{:?} reads", reader.side);
            }
        }
        pass_on(&line);
        arena.await_children(path, 0);
    }
    for (holder, reader, data) in [(java, rust, "of-java"), (rust, java, "of-rust")] {
        let mut hold = holder.acquire("semaphore:1", "/locks/s");
        assert_eq!(reader.ask(&format!("read {}", hold.node), "data"), data);
        holder.release(&mut hold);
    }
    arena.check_nothing_is_left(&[path], contenders.into_iter().chain(readers).collect());
}

/// Each side has its own way to find it: Curator looks its host name up, this crate looks at the route to the outside.
#[test]
fn without_data_of_its_own_a_znode_carries_an_address_that_the_other_side_reads() {
    let arena = Arena::shared();
    let peers = arena.peers(1);
    for (holder, reader, kind) in [(0, 1, "mutex"), (0, 1, "cached-mutex"), (1, 0, "mutex")] {
        let mut hold = peers[holder].acquire(kind, "/locks/m");
        let data = peers[reader].ask(&format!("read {}", hold.node), "data");
        assert!(data.parse::<std::net::IpAddr>().is_ok(), "{data}");
        peers[holder].release(&mut hold);
    }
    arena.check_nothing_is_left(&[], peers);
}

const CREDENTIALS: &str = "auth=shop:secret";

/// A client that may see what the peers with credentials do.
fn insider(arena: &Arena) -> CuratorFramework {
    let builder = support::builder(support::server(), &arena.place.namespace);
    support::connect(builder.authorization("digest", b"shop:secret".to_vec()))
}

#[test]
fn who_has_the_credentials_shares_a_lock_of_the_other_side_and_nobody_else_may_touch_it() {
    let arena = Arena::shared();
    let insider = insider(&arena);
    let peers = arena.start([
        Peer::rust(&arena.place, &[CREDENTIALS]),
        Peer::curator(&arena.place, &[CREDENTIALS]),
        Peer::rust(&arena.place, &[]),
        Peer::curator(&arena.place, &[]),
    ]);
    let (rust, java) = ((&peers[0], "mutex"), (&peers[1], "mutex"));
    let cached = (rust.0, "cached-mutex");
    for ((maker, kind), (other, of_other), path) in [
        (rust, java, "/of-rust/l"),
        (java, rust, "/of-java/l"),
        (cached, java, "/cached/l"),
        (java, cached, "/beside-cached/l"),
    ] {
        let mut hold = maker.acquire(kind, path);
        let acl_of = |path: &str| insider.get_acl().for_path(path).unwrap();
        let acl: Vec<Acl> = acl_of(&hold.node);
        assert!(acl.len() == 1 && acl[0].scheme == "digest" && acl[0].id.starts_with("shop:"), "{acl:?}");
        assert_eq!(acl_of(path), acl);
        other.tell(&format!("acquire {of_other} {path} -1"));
        eventually("the other one waits", || insider.get_children().for_path(path).unwrap().len() == 2);
        for stranger in &peers[2..] {
            for line in
                [format!("acquire mutex {path} 60000"), format!("revoke {}", hold.node), format!("read {}", hold.node)]
            {
                let refusal = stranger.ask(&line, "error");
                assert!(refusal.contains("NoAuth"), "{:?}, {line}: {refusal}", stranger.side);
            }
        }
        maker.release(&mut hold);
        let mut next = other.await_acquired();
        assert_eq!(acl_of(&next.node), acl, "what either side makes looks the same");
        other.release(&mut next);
        eventually("the directory is gone", || insider.check_exists().for_path(path).unwrap().is_none());
    }
    arena.check_nothing_is_left(&[], peers);
}

#[test]
fn parents_are_containers_whoever_makes_them_and_go_when_the_last_one_of_either_side_has_left() {
    let arena = Arena::shared();
    let peers = arena.peers(1);
    let path = "/deep/down/l";
    let (rust, java) = ((&peers[0], "mutex"), (&peers[1], "mutex"));
    let cached = (rust.0, "cached-mutex");
    for [(maker, kind), (other, of_other)] in [[rust, java], [java, rust], [rust, java], [cached, java], [java, cached]]
    {
        let mut hold = maker.acquire(kind, path);
        assert_eq!(hold.sequence(), 0, "a new directory counts from the beginning");
        for parent in ["/deep", "/deep/down", path] {
            let stat = arena.client.check_exists().for_path(parent).unwrap().unwrap();
            assert_eq!(stat.data_length, 0, "{parent} made by {:?}", maker.side);
        }
        other.tell(&format!("acquire {of_other} {path} -1"));
        arena.await_children(path, 2);
        maker.release(&mut hold);
        let mut next = other.await_acquired();
        other.release(&mut next);
        eventually("the parents are gone", || arena.client.check_exists().for_path("/deep").unwrap().is_none());
    }
    arena.check_nothing_is_left(&[], peers);
}

#[test]
fn parents_that_one_side_made_to_stay_are_used_and_left_by_the_other() {
    let arena = Arena::shared();
    let peers = arena.start([
        Peer::rust(&arena.place, &["persistent-parents"]),
        Peer::curator(&arena.place, &["persistent-parents"]),
        Peer::rust(&arena.place, &[]),
        Peer::curator(&arena.place, &[]),
    ]);
    for (users, path) in [
        ([(&peers[0], "mutex"), (&peers[0], "cached-mutex"), (&peers[3], "mutex")], "/of-rust"),
        ([(&peers[1], "mutex"), (&peers[2], "cached-mutex"), (&peers[2], "mutex")], "/of-java"),
    ] {
        for (peer, kind) in users {
            let mut hold = peer.acquire(kind, path);
            assert_eq!(hold.directory(), path);
            peer.release(&mut hold);
        }
    }
    // Containers that were empty for as long are gone.
    let witness = arena.client.create().with_mode(CreateMode::Container);
    witness.for_path("/witness").unwrap();
    arena.client.create().for_path("/witness/child").unwrap();
    arena.client.delete().for_path("/witness/child").unwrap();
    eventually("the witness is gone", || arena.client.check_exists().for_path("/witness").unwrap().is_none());
    for path in ["/of-rust", "/of-java"] {
        let stat = arena.client.check_exists().for_path(path).unwrap().unwrap();
        assert_eq!(stat.num_children, 0, "{path}");
        arena.client.delete().for_path(path).unwrap();
    }
    arena.check_nothing_is_left(&[], peers);
}
