//! Tables of child names, and what they mean for one contender.
#![allow(clippy::indexing_slicing)]

use proptest::prelude::*;

use super::*;

const UUID: &str = "90bd831e-1681-4114-b233-1c2e85f422cc";

fn listing(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn sequence_of(name: &str) -> Option<i64> {
    sequence_for(name, "")
}

fn wait(watch: &str, first: bool) -> Decision {
    Decision::Wait { watch: watch.to_owned(), first }
}

fn mutex(children: &[&str], own: &str) -> Decision {
    StandardLockInternalsDriver::new().decide(&listing(children), own, 1)
}

fn reader(children: &[&str], own: &str) -> Decision {
    ReadLockDriver.decide(&listing(children), own, usize::MAX)
}

fn writer(children: &[&str], own: &str) -> Decision {
    WriteLockDriver.decide(&listing(children), own, 1)
}

#[test]
fn a_sequence_number_is_read_as_the_server_prints_it() {
    for (name, sequence) in [
        ("lock-0000000000", Some(0)),
        ("_c_90bd831e-1681-4114-b233-1c2e85f422cc-lock-0000000042", Some(42)),
        ("0000000007", Some(7)),
        ("lock-2147483647", Some(2_147_483_647)),
        ("lock-1000000000", Some(1_000_000_000)),
        ("a__lock__0000000003", Some(3)),
        ("a-__READ__0000000003", Some(3)),
        ("what-ever0000000003", Some(3)),
        ("order-1230000000003", Some(3)),
        ("x-144115188075855872-0000000003", Some(3)),
        ("\u{fc}0000000003", Some(3)),
        // a number that no 32 bits hold, or none at all
        ("lock-2147483648", None),
        ("lock-9999999999", None),
        ("", None),
        ("lock-", None),
        ("zookeeper", None),
        ("lock-000000005", None),
        ("lock-000000000a", None),
        ("lock-+000000005", None),
        ("lock-00000 0005", None),
        ("lock-0000000005x", None),
        ("lock-\u{661}000000005", None),
        ("\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}", None),
        // below zero
        ("a-lock--000000005", Some(-5)),
        ("a-lock--999999999", Some(-999_999_999)),
        ("a-lock--1000000000", Some(-1_000_000_000)),
        ("a-lock--2147483647", Some(-2_147_483_647)),
        ("a-lock--2147483648", Some(-2_147_483_648)),
        ("a-__READ__-000000005", Some(-5)),
        ("a-__WRIT__-2147483648", Some(-2_147_483_648)),
        ("a__lock__-1500000000", Some(-1_500_000_000)),
        ("-000000005", Some(-5)),
        ("-2147483648", Some(-2_147_483_648)),
        // not as Java prints it: a zero has no sign, a padded number no eleventh character
        ("a-lock--000000000", None),
        ("a-lock--0000000005", Some(5)),
        ("a-lock--2147483649", None),
        // a dash that ends a name rather than begins a number
        ("lock-1500000000", Some(1_500_000_000)),
        ("build-123456789", None),
    ] {
        assert_eq!(sequence_of(name), sequence, "{name:?}");
    }
}

#[test]
fn a_known_lock_name_leaves_no_doubt_about_the_sign() {
    for (name, lock_name, sequence) in [
        ("a-mine-000000005", "mine", Some(-5)),
        ("a-mine-2147483648", "mine", Some(-2_147_483_648)),
        ("a-mine0000000005", "mine", Some(5)),
        ("a-mine--1500000000", "mine--", Some(1_500_000_000)),
        ("a-lock--1500000000", "lock-", Some(-1_500_000_000)),
        ("a-lock-1500000000", "lock-", Some(1_500_000_000)),
        ("other-0000000005", "lock-", Some(5)),
        ("other--000000005", "lock-", Some(-5)),
        ("lock-0000000005-zzz", "lock-", None),
        ("lock-", "lock-", None),
    ] {
        assert_eq!(sequence_for(name, lock_name), sequence, "{name:?} with {lock_name:?}");
    }
}

#[test]
fn numbers_are_used_up_a_million_before_the_last_one() {
    for (sequence, exhausted) in [
        (0, false),
        (1, false),
        (2_146_483_646, false),
        (2_146_483_647, true),
        (2_147_483_647, true),
        (-1, true),
        (-2_147_483_648, true),
        (i64::MAX, true),
        (i64::MIN, true),
    ] {
        assert_eq!(is_exhausted(sequence), exhausted, "{sequence}");
    }
}

#[test]
fn the_first_contender_holds_a_mutex_and_the_others_watch_their_predecessor() {
    let children = ["c-lock-0000000012", "a-lock-0000000013", "b-lock-0000000009", "d-lock-0000000010"];
    assert_eq!(mutex(&children, "b-lock-0000000009"), Decision::Granted);
    assert_eq!(mutex(&children, "d-lock-0000000010"), wait("b-lock-0000000009", true));
    assert_eq!(mutex(&children, "c-lock-0000000012"), wait("d-lock-0000000010", false));
    assert_eq!(mutex(&children, "a-lock-0000000013"), wait("c-lock-0000000012", false));
}

#[test]
fn the_number_counts_and_not_the_uuid() {
    let (older, newer) = (format!("_c_f{UUID}-lock-0000000001"), format!("_c_0{UUID}-lock-0000000002"));
    assert_eq!(mutex(&[&newer, &older], &older), Decision::Granted);
    assert_eq!(mutex(&[&newer, &older], &newer), wait(&older, true));
}

#[test]
fn children_without_a_number_are_ignored() {
    let children =
        ["!foreign", "zzz", "zookeeper", "", "lock-", "a-lock-0000000004", "!-000000001", "b-lock-0000000005"];
    assert_eq!(mutex(&children, "a-lock-0000000004"), Decision::Granted);
    assert_eq!(mutex(&children, "b-lock-0000000005"), wait("a-lock-0000000004", true));
    assert_eq!(sorted_contenders(&listing(&children)), ["a-lock-0000000004", "b-lock-0000000005"]);
}

#[test]
fn a_lock_in_the_root_ignores_the_servers_own_child() {
    assert_eq!(mutex(&["zookeeper", "a-lock-0000000000"], "a-lock-0000000000"), Decision::Granted);
}

#[test]
fn contenders_under_other_lock_names_stand_in_the_same_queue() {
    let children = [
        "8f14e45f__lock__0000000001",
        "a-lock-0000000002",
        "x-7-0000000003",
        "a-lease-0000000004",
        "b-lock-0000000005",
    ];
    assert_eq!(mutex(&children, "a-lock-0000000002"), wait("8f14e45f__lock__0000000001", true));
    assert_eq!(mutex(&children, "b-lock-0000000005"), wait("a-lease-0000000004", false));
    assert_eq!(sorted_contenders(&listing(&children)), children);
}

#[test]
fn a_node_that_is_not_listed_is_missing() {
    for children in [&[][..], &["b-lock-0000000001"], &["!foreign"], &["a-lock-0000000004x", "xa-lock-0000000004"]] {
        assert_eq!(mutex(children, "a-lock-0000000004"), Decision::Missing, "{children:?}");
        assert_eq!(reader(children, "a-__READ__0000000004"), Decision::Missing, "{children:?}");
        assert_eq!(writer(children, "a-__WRIT__0000000004"), Decision::Missing, "{children:?}");
    }
}

#[test]
fn a_node_without_a_number_is_no_contender() {
    assert_eq!(mutex(&["mine", "a-lock-0000000004"], "mine"), Decision::Missing);
    assert_eq!(reader(&["mine"], "mine"), Decision::Missing);
}

#[test]
fn around_the_last_number_the_order_is_that_of_the_numbers() {
    let children = ["a-lock-2147483647", "b-lock--2147483648", "c-lock-2147483646", "d-lock--000000001"];
    let sorted = ["b-lock--2147483648", "d-lock--000000001", "c-lock-2147483646", "a-lock-2147483647"];
    assert_eq!(sorted_contenders(&listing(&children)), sorted);
    assert_eq!(mutex(&children, "b-lock--2147483648"), Decision::Granted);
    assert_eq!(mutex(&children, "a-lock-2147483647"), wait("c-lock-2147483646", false));
}

#[test]
fn equal_numbers_have_the_same_order_in_every_listing() {
    let (one, other) = ("a-lock-2147483647", "b-lock-2147483647");
    for children in [[one, other], [other, one]] {
        assert_eq!(mutex(&children, one), Decision::Granted);
        assert_eq!(mutex(&children, other), wait(one, true));
        assert_eq!(sorted_contenders(&listing(&children)), [one, other]);
    }
}

#[test]
fn with_n_leases_n_are_granted_and_the_others_watch_the_nth_in_front() {
    let names: Vec<String> = (0..6).map(|number| format!("a-lock-000000000{number}")).collect();
    let children: Vec<String> = [3, 0, 5, 1, 4, 2].iter().filter_map(|&at: &usize| names.get(at).cloned()).collect();
    let driver = StandardLockInternalsDriver::with_lock_name("lock-");
    for leases in 1..=7 {
        for (index, own) in names.iter().enumerate() {
            let expected = match index.checked_sub(leases).and_then(|watched| names.get(watched)) {
                None => Decision::Granted,
                Some(watched) => wait(watched, index == leases),
            };
            assert_eq!(driver.decide(&children, own, leases), expected, "{own} of {leases}");
        }
    }
}

#[test]
fn without_leases_nobody_is_granted() {
    let own = "a-lock-0000000000";
    assert_eq!(StandardLockInternalsDriver::new().decide(&listing(&[own]), own, 0), wait(own, false));
}

#[test]
fn readers_share_until_the_first_writer() {
    let children = ["a-__READ__0000000001", "b-__READ__0000000002", "c-__WRIT__0000000003", "d-__READ__0000000004"];
    assert_eq!(reader(&children, children[0]), Decision::Granted);
    assert_eq!(reader(&children, children[1]), Decision::Granted);
    assert_eq!(writer(&children, children[2]), wait("b-__READ__0000000002", false));
    assert_eq!(reader(&children, children[3]), wait("c-__WRIT__0000000003", false));
}

#[test]
fn a_reader_watches_the_last_writer_in_front_of_it() {
    let children = [
        "f-__WRIT__0000000006",
        "b-__WRIT__0000000002",
        "e-__READ__0000000005",
        "a-__WRIT__0000000001",
        "d-__WRIT__0000000004",
        "c-__READ__0000000003",
    ];
    assert_eq!(reader(&children, "e-__READ__0000000005"), wait("d-__WRIT__0000000004", false));
    assert_eq!(reader(&children, "c-__READ__0000000003"), wait("b-__WRIT__0000000002", false));
    assert_eq!(writer(&children, "f-__WRIT__0000000006"), wait("e-__READ__0000000005", false));
    assert_eq!(reader(&children[1..2], "c-__READ__0000000003"), Decision::Missing);
    assert_eq!(
        reader(&["a-__WRIT__0000000001", "b-__READ__0000000002"], "b-__READ__0000000002"),
        wait("a-__WRIT__0000000001", true)
    );
}

#[test]
fn a_downgraded_reader_has_the_writers_place() {
    let children = ["z-__WRIT__0000000005", "a-__READ__0000000005", "b-__WRIT__0000000006", "c-__READ__0000000007"];
    assert_eq!(writer(&children, "z-__WRIT__0000000005"), Decision::Granted);
    assert_eq!(reader(&children, "a-__READ__0000000005"), Decision::Granted);
    assert_eq!(writer(&children, "b-__WRIT__0000000006"), wait("a-__READ__0000000005", false));
    // The writer has released: its reader goes on in front of the writer that waited.
    assert_eq!(reader(&children[1..], "a-__READ__0000000005"), Decision::Granted);
    assert_eq!(writer(&children[1..], "b-__WRIT__0000000006"), wait("a-__READ__0000000005", true));
    assert_eq!(reader(&children[1..], "c-__READ__0000000007"), wait("b-__WRIT__0000000006", false));
}

#[test]
fn a_downgraded_reader_sorts_behind_its_writer_whatever_the_names() {
    for [write, read] in
        [["a-__WRIT__0000000005", "z-__READ__0000000005"], ["z-__WRIT__0000000005", "a-__READ__0000000005"]]
    {
        for children in [[write, read], [read, write]] {
            assert_eq!(writer(&children, write), Decision::Granted);
            assert_eq!(reader(&children, read), Decision::Granted);
            assert_eq!(sorted_contenders(&listing(&children)), [write, read]);
        }
    }
}

#[test]
fn readers_of_kazoo_share_and_what_is_unknown_does_not() {
    let own = "own-__READ__0000000009";
    for (other, decision) in [
        ("1f__rlock__0000000001", Decision::Granted),
        ("1f__lock__0000000001", wait("1f__lock__0000000001", true)),
        ("a-lock-0000000001", wait("a-lock-0000000001", true)),
        ("0000000001", wait("0000000001", true)),
        // the name of a reader, but not in front of the number
        ("__READ__-lock-0000000001", wait("__READ__-lock-0000000001", true)),
        ("__WRIT__", Decision::Granted),
        ("b-__WRIT__0000000010", Decision::Granted),
    ] {
        assert_eq!(reader(&[own, other], own), decision, "{other}");
    }
}

#[test]
fn ten_thousand_children_are_decided_as_ten_are() {
    let names: Vec<String> = (0..10_000).map(|number| format!("_c_{UUID}-lock-{number:010}")).collect();
    let mut children = names.clone();
    fastrand::Rng::with_seed(3).shuffle(&mut children);
    let driver = StandardLockInternalsDriver::new();
    for index in [0, 1, 2, 4_999, 9_999_usize] {
        let expected = index.checked_sub(1).map_or(Decision::Granted, |before| wait(&names[before], before == 0));
        assert_eq!(driver.decide(&children, &names[index], 1), expected);
        let expected = index.checked_sub(5_000).map_or(Decision::Granted, |before| wait(&names[before], before == 0));
        assert_eq!(driver.decide(&children, &names[index], 5_000), expected);
    }
    assert_eq!(sorted_contenders(&children), names);
}

#[test]
fn zookeepers_own_recipe_orders_by_number_and_watches_the_one_in_front() {
    let decided = |children: &[&str], own: &str| ZNodeNameDriver.decide(&listing(children), own, 1);
    let queue = ["x-12-0000000003", "x-11-0000000001", "x-10-0000000002"];
    assert_eq!(decided(&queue, queue[1]), Decision::Granted);
    assert_eq!(decided(&queue, queue[2]), wait(queue[1], true));
    assert_eq!(decided(&queue, queue[0]), wait(queue[2], false));
    assert_eq!(decided(&queue[1..], queue[0]), Decision::Missing);
}

#[test]
fn others_stand_in_the_way_unless_readers_share() {
    let (own, reader, writer) = ("a-__READ__0000000001", "b-__READ__0000000002", "c-__WRIT__0000000003");
    for (others, is_shared, is_so) in [
        (&[own, "leases"][..], false, false),
        (&[own, reader], true, false),
        (&[own, reader], false, true),
        (&[own, reader, writer], true, true),
        (&[own, reader, &marked(Mark::UPGRADABLE, 3)], true, false),
        (&[own, reader, &marked(Mark::UPGRADE, 3)], true, true),
    ] {
        assert_eq!(stands_in_the_way(&listing(others), own, is_shared), is_so, "{others:?}");
    }
}

/// A reader's name where its mark says so, and a writer's otherwise.
fn marked(mark: Mark, number: u32) -> String {
    let name = if mark.has(Mark::PASSES) { READ_NAME } else { WRITE_NAME };
    format!("{}{name}{number:010}", mark.sample())
}

#[test]
fn a_marked_reader_goes_past_upgradable_ones_and_waits_for_other_writers() {
    let [first, second] = [2, 4].map(|number| marked(Mark::UPGRADABLE, number));
    let (own, upgrade) = (marked(Mark::PASSES, 6), marked(Mark::UPGRADE, 7));
    let (java, writer) = ("j-__READ__0000000005", "w-__WRIT__0000000003");
    let all = [&*first, writer, &*second, java, &*own, &*upgrade];
    let without = |name: &str| all.into_iter().filter(|other| *other != name).collect::<Vec<_>>();
    assert_eq!(reader(&all, &own), wait(writer, false));
    assert_eq!(reader(&without(writer), &own), Decision::Requeue);
    assert_eq!(reader(&[&first, &second, &own], &own), Decision::Granted);
    assert_eq!(reader(&[&own, &upgrade], &own), Decision::Granted, "it goes past nothing");
    assert_eq!(reader(&[java, &upgrade, &marked(Mark::PASSES, 8)], &marked(Mark::PASSES, 8)), wait(&upgrade, false));
    assert_eq!(reader(&all, java), wait(&second, false), "not marked");
    // The reader of the holder, with the number of its upgradable znode.
    let own = marked(Mark::PASSES, 2);
    assert_eq!(reader(&[&first, &own, &upgrade], &own), Decision::Granted);
}

#[test]
fn an_upgradable_one_waits_for_what_is_no_reader() {
    let decided = |children: &[&str], own: &str| UpgradableLockDriver.decide(&listing(children), own, 1);
    let [first, second] = [2, 4].map(|number| marked(Mark::UPGRADABLE, number));
    let (reader, writer) = (marked(Mark::PASSES, 1), "w-__WRIT__0000000003");
    assert_eq!(decided(&[&reader, &first, writer], &first), Decision::Granted);
    assert_eq!(decided(&[&first, &second], &second), wait(&first, true));
    assert_eq!(decided(&[&first, writer, &second], &second), wait(writer, false));
    assert_eq!(decided(&[&first], &second), Decision::Missing);
    // Everybody else takes it for a writer.
    let [java, java_writer] = ["j-__READ__0000000005", "k-__WRIT__0000000006"];
    assert_eq!(self::reader(&[&first, java], java), wait(&first, true));
    assert_eq!(self::writer(&[&first, java_writer], java_writer), wait(&first, true));
}

#[test]
fn an_upgrade_waits_for_the_readers_that_may_hold() {
    let upgradable = marked(Mark::UPGRADABLE, 3);
    let own = marked(Mark::UPGRADE, 9);
    let decided = |others: &[&str]| {
        let children = listing(&[others, &[&*upgradable, &*own][..]].concat());
        UpgradeDriver { upgradable: upgradable.clone() }.decide(&children, &own, 1)
    };
    let passes = |number: u32| marked(Mark::PASSES, number);
    let [in_front, of_holder, behind, later] = [1, 3, 5, 10].map(passes);
    let (java_in_front, java, writer) = ("j-__READ__0000000002", "j-__READ__0000000004", "w-__WRIT__0000000006");
    assert_eq!(decided(&[]), Decision::Granted);
    assert_eq!(decided(&[&in_front]), wait(&in_front, false));
    assert_eq!(decided(&[java_in_front]), wait(java_in_front, false));
    assert_eq!(decided(&[java]), Decision::Granted, "it waits itself");
    assert_eq!(decided(&[&behind]), wait(&behind, false));
    assert_eq!(decided(&[&behind, &in_front, writer]), wait(&behind, false));
    assert_eq!(decided(&[&passes(7), writer, &later, &of_holder]), Decision::Granted);
    assert_eq!(decided(&[&passes(7), &marked(Mark::UPGRADABLE, 6)]), wait(&passes(7), false));
}

#[test]
fn the_sorter_takes_what_follows_the_last_lock_name() {
    let driver = StandardLockInternalsDriver::default();
    for (name, fixed) in [
        ("a-lock-0000000001", "0000000001"),
        ("lock-lock-0000000001", "0000000001"),
        ("other", "other"),
        ("lock-", ""),
        ("lock-\u{fc}", "\u{fc}"),
    ] {
        assert_eq!(driver.fix_for_sorting(name, "lock-"), fixed);
    }
    let children = listing(&["z-lock-0000000002", "!other", "a-lock-0000000003", "b-lock-0000000002"]);
    let sorted = ["!other", "z-lock-0000000002", "b-lock-0000000002", "a-lock-0000000003"];
    assert_eq!(sorted_children(&children, "lock-", &driver), sorted);
}

#[test]
fn drivers_say_what_their_nodes_look_like() {
    let drivers: [(Box<dyn LockInternalsDriver>, &str); 4] = [
        (Box::new(StandardLockInternalsDriver::new()), "lock-"),
        (Box::new(StandardLockInternalsDriver::with_lock_name("lease-")), "lease-"),
        (Box::new(ReadLockDriver), "__READ__"),
        (Box::new(WriteLockDriver), "__WRIT__"),
    ];
    for (driver, lock_name) in drivers {
        assert_eq!(driver.lock_name(), lock_name);
    }
}

#[test]
fn predicate_results_become_decisions() {
    let granted = PredicateResults::new(Some("a".into()), true);
    assert!(granted.gets_the_lock() && granted.path_to_watch() == Some("a") && !granted.predecessor_is_first());
    assert_eq!(Decision::from(granted), Decision::Granted);
    let behind = PredicateResults::new(Some("a".into()), false).with_predecessor_first(true);
    assert!(behind.predecessor_is_first());
    assert_eq!(Decision::from(behind), wait("a", true));
    assert_eq!(Decision::from(PredicateResults::new(None, false)), Decision::Missing);
}

/// Distinct numbers under random uuids, in random order.
fn queue() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::hash_map(0..2_000_000_000_u32, "[0-9a-f]{4}", 1..60)
        .prop_map(|numbers| numbers.into_iter().map(|(number, id)| format!("_c_{id}-lock-{number:010}")).collect())
}

proptest! {
    #[test]
    fn one_contender_is_granted_and_each_other_watches_its_direct_predecessor(children in queue()) {
        let driver = StandardLockInternalsDriver::new();
        let mut sorted = children.clone();
        sorted.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
        prop_assert_eq!(sorted_contenders(&children), sorted.clone());
        let mut granted = 0;
        for (index, own) in sorted.iter().enumerate() {
            match driver.decide(&children, own, 1) {
                Decision::Granted => {
                    granted += 1;
                    prop_assert_eq!(index, 0);
                }
                Decision::Wait { watch, first } => {
                    prop_assert_eq!(Some(&watch), index.checked_sub(1).and_then(|before| sorted.get(before)));
                    prop_assert_eq!(first, index == 1);
                }
                Decision::Missing => prop_assert!(false, "{} is listed", own),
            }
        }
        prop_assert_eq!(granted, 1);
    }

    #[test]
    fn a_granted_writer_is_alone(kinds in proptest::collection::vec(any::<bool>(), 1..40), seed in any::<u64>()) {
        let mut children: Vec<String> = kinds.iter().enumerate().map(|(number, writes)| {
            format!("{}{number:010}", if *writes { "w-__WRIT__" } else { "r-__READ__" })
        }).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut children);
        let granted: Vec<&String> = children.iter().filter(|own| {
            let driver: &dyn LockInternalsDriver = if own.starts_with('w') { &WriteLockDriver } else { &ReadLockDriver };
            driver.decide(&children, own, 1) == Decision::Granted
        }).collect();
        let writers = granted.iter().filter(|name| name.starts_with('w')).count();
        prop_assert!(!granted.is_empty());
        prop_assert!(writers == 0 || granted.len() == 1, "{:?}", granted);
    }

    #[test]
    fn no_name_panics(names in proptest::collection::vec("[-_a0-9\u{fc}]{0,14}", 0..12), lock_name in "[-_a\u{fc}]{0,3}") {
        for own in &names {
            let driver = StandardLockInternalsDriver::with_lock_name(lock_name.clone());
            for leases in [0, 1, 3] {
                let decision = driver.decide(&names, own, leases);
                prop_assert_eq!(decision == Decision::Missing, sequence_for(own, &lock_name).is_none());
            }
            let _ = (ReadLockDriver.decide(&names, own, 1), driver.fix_for_sorting(own, &lock_name));
        }
    }

    #[test]
    fn every_number_survives_printing(number in any::<i32>(), id in "[a-z]{0,6}-(lock-|__READ__|x-)") {
        // Rust pads as Java does: the sign is one of the ten characters.
        prop_assert_eq!(sequence_of(&format!("{id}{number:010}")), Some(number.into()));
    }
}
