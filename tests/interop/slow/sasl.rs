//! Curator's recipes once more, with SASL on: processes of both sides are the same user, or the same Kerberos principal, and what
//! they create is closed to everybody else.

use std::time::Duration;

use curator_locks::testing::{TestingKdc, TestingServer};
use tempfile::TempDir;

use super::contention::{check_line, hammer, of_ours};
use crate::{
    arena::Arena,
    history::{Side, check_exclusive, check_leases},
    login::{Login, SUPER_DIGEST},
    peer::Peer,
    support::quick_server,
};

const LOCK: &str = "/deep/down/lock";

/// Each process has so many holds of each kind; the rows without SASL have more.
const ROUNDS: usize = 60;

/// Changes of leader.
const CHANGES: usize = 12;

/// Servers that know the users, and as whom the peers log in.
struct Realm {
    arena: Arena,
    _server: TestingServer,
    _kdc: Option<TestingKdc>,
    _files: TempDir,
}

impl Realm {
    fn digest() -> Realm {
        let (server, files) = (quick_server().sasl_user("shop", "secret"), tempfile::tempdir().unwrap());
        let login = Login::digest(files.path());
        Realm::of(server.system_property(SUPER_PROPERTY, SUPER_DIGEST).start().unwrap(), None, files, login)
    }

    fn kerberos() -> Realm {
        let (kdc, files) = (TestingKdc::start(Duration::from_secs(600)).unwrap(), tempfile::tempdir().unwrap());
        let server = quick_server().kerberos(&kdc).unwrap().system_property(SUPER_PROPERTY, SUPER_DIGEST);
        let login = Login::kerberos(files.path(), &kdc);
        Realm::of(server.start().unwrap(), Some(kdc), files, login)
    }

    fn of(server: TestingServer, kdc: Option<TestingKdc>, files: TempDir, login: Login) -> Realm {
        Realm { arena: Arena::with_login(&server, login), _server: server, _kdc: kdc, _files: files }
    }
}

const SUPER_PROPERTY: &str = "zookeeper.DigestAuthenticationProvider.superDigest";

/// A znode that a holder has created is its identity's alone.
#[track_caller]
fn check_owner(arena: &Arena, directory: &str, identity: &str) {
    let child = arena.children(directory).remove(0);
    let acl = arena.client.get_acl().for_path(&format!("{directory}/{child}")).unwrap();
    let owners: Vec<String> = acl.iter().map(|entry| format!("{}:{}", entry.scheme, entry.id)).collect();
    assert_eq!(owners, [identity]);
}

/// Mutex and read/write lock, ours cached or not, and semaphore, one after the other.
fn check_locks(realm: &Realm, identity: &str) {
    const LIMIT: usize = 3;
    let arena = &realm.arena;
    arena.keep(LOCK);
    let peers = arena.peers(2);
    for peer in &peers {
        let mut hold = peer.acquire("mutex", LOCK);
        check_owner(arena, LOCK, identity);
        peer.release(&mut hold);
    }
    for ours in ["", "cached-"] {
        check_line(arena, &peers, of_ours(ours, "mutex"), LOCK, LOCK, 1);
        let holds = hammer(&peers, ROUNDS, of_ours(ours, "mutex"), |_| LOCK.to_owned());
        assert_eq!(holds.len(), 4 * ROUNDS);
        println!("{ours}InterProcessMutex: {:?}", check_exclusive(&holds));
        arena.await_children(LOCK, 0);

        check_line(arena, &peers, of_ours(ours, "write"), LOCK, LOCK, 1);
        let holds = hammer(&peers, ROUNDS, of_ours(ours, "rw"), |_| LOCK.to_owned());
        println!("{ours}InterProcessReadWriteLock: {:?}", check_exclusive(&holds));
        arena.await_children(LOCK, 0);
    }

    let [semaphore, locks, leases] = ["/deep/sem", "/deep/sem/locks", "/deep/sem/leases"];
    arena.keep(locks);
    let holds = hammer(&peers, ROUNDS, of_ours("", "semaphore:3"), |_| semaphore.to_owned());
    println!("InterProcessSemaphoreV2: {:?}", check_leases(&holds, LIMIT));
    arena.check_nothing_is_left(&[LOCK, locks, leases], peers);
}

fn check_leaders(realm: &Realm, identity: &str) {
    for kind in ["latch", "selector"] {
        check_election(realm, kind, &format!("/leaders/{kind}"), identity);
    }
}

fn check_election(realm: &Realm, kind: &str, path: &str, identity: &str) {
    let place = &realm.arena.place;
    let mut peers: Vec<Peer> = Vec::new();
    for number in 0..4 {
        let side = if number % 2 == 0 { Side::Rust } else { Side::Java };
        let mut peer = Peer::leader(side, place, &format!("{side:?}-{number}"));
        peer.await_ready();
        peer.tell(&format!("{kind} {path}"));
        realm.arena.await_children(path, number + 1);
        peers.push(peer);
    }
    check_owner(&realm.arena, path, identity);
    let mut began: u64 = peers[0].hear("leads").parse().unwrap();
    for change in 0..CHANGES {
        let (leader, next) = (&peers[change % 4], &peers[(change + 1) % 4]);
        leader.tell("resign");
        let said = leader.hear("ends");
        let ended: u64 = said.split(' ').next().unwrap().parse().unwrap();
        assert!(began < ended);
        began = next.hear("leads").parse().unwrap();
        assert!(ended < began, "two leaders for {} ns", ended - began);
        realm.arena.await_children(path, 4);
    }
}

#[test]
fn locks_shared_with_curator_as_one_user() {
    check_locks(&Realm::digest(), "sasl:shop");
}

#[test]
fn locks_shared_with_curator_as_one_kerberos_principal() {
    check_locks(&Realm::kerberos(), "sasl:shop@TESTS.EXAMPLE");
}

#[test]
fn leaders_shared_with_curator_as_one_user() {
    check_leaders(&Realm::digest(), "sasl:shop");
}

#[test]
fn leaders_shared_with_curator_as_one_kerberos_principal() {
    check_leaders(&Realm::kerberos(), "sasl:shop@TESTS.EXAMPLE");
}
