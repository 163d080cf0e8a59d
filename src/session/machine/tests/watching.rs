//! Watches, from the request to the last word.

use super::*;

/// What `removeWatches` said: path and table.
fn removals(frames: &[Frame]) -> Vec<(String, i32)> {
    assert!(frames.iter().all(|frame| frame.op == server::REMOVE_WATCHES));
    frames.iter().map(|frame| (frame.path(), frame.table())).collect()
}

fn refused(rig: &mut Rig, request: &Request, tag: u32, err: i32) -> u64 {
    let ticket = rig.submit(request, tag);
    for frame in rig.written() {
        rig.receive(&server::answer(&frame, 1, err)).unwrap();
    }
    ticket
}

#[test]
fn a_watch_fires_once_and_is_forgotten() {
    let mut rig = Rig::connected();
    let ticket = rig.watch(&get_data("/a"), 1);
    for _ in 0..2 {
        rig.receive(&server::notification(server::CHANGED, "/a")).unwrap();
    }
    assert_eq!(rig.take_log(), ["1 ok", "watcher 1 NodeDataChanged over 1"]);
    rig.unwatch(ticket);
    assert!(rig.written().is_empty());
    assert_eq!(rig.machine.watches.len(), 0);
}

#[test]
fn events_reach_the_watches_that_the_server_fires_for_them() {
    for (event, told) in [
        (server::CREATED, vec![1, 2]),
        (server::CHANGED, vec![1, 2]),
        (server::CHILDREN_CHANGED, vec![3]),
        (server::DELETED, vec![1, 2, 3]),
        (5, vec![]),
        (-1, vec![]),
    ] {
        let mut rig = Rig::connected();
        for (tag, request) in (1..).zip([get_data("/a"), exists("/a"), children("/a"), get_data("/b")]) {
            rig.watch(&request, tag);
        }
        rig.take_log();
        rig.receive(&server::notification(event, "/a")).unwrap();
        let tags: Vec<u32> = rig.log.iter().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect();
        assert_eq!(tags, told, "event {event}");
        assert_eq!(rig.machine.watches.len(), 4 - told.len());
    }
}

#[test]
fn a_watch_is_booked_only_where_the_server_left_one() {
    let mut rig = Rig::connected();
    refused(&mut rig, &get_data("/missing"), 1, server::NO_NODE);
    refused(&mut rig, &children("/missing"), 2, server::NO_NODE);
    refused(&mut rig, &exists("/forbidden"), 3, -102);
    assert_eq!(rig.machine.watches.len(), 0);
    refused(&mut rig, &exists("/missing"), 4, server::NO_NODE);
    assert_eq!(rig.machine.watches.len(), 1);
    rig.take_log();
    rig.receive(&server::notification(server::CREATED, "/missing")).unwrap();
    assert_eq!(rig.take_log(), ["watcher 4 NodeCreated over 1"]);
}

#[test]
fn the_server_is_told_when_the_last_watcher_of_a_znode_goes() {
    let mut rig = Rig::connected();
    let first = rig.watch(&get_data("/a"), 1);
    let second = rig.watch(&exists("/a"), 2);
    let child = rig.watch(&children("/a"), 3);
    rig.unwatch(first);
    assert!(rig.written().is_empty());
    rig.unwatch(second);
    assert_eq!(removals(&rig.answer_all()), [("/a".into(), 2)]);
    rig.unwatch(child);
    assert_eq!(removals(&rig.answer_all()), [("/a".into(), 1)]);
    assert_eq!(rig.machine.watches.len(), 0);
}

#[test]
fn a_registration_in_flight_counts_as_a_watcher() {
    let mut rig = Rig::connected();
    let armed = rig.watch(&get_data("/a"), 1);
    rig.submit(&get_data("/a"), 2);
    let on_its_way = rig.written();
    rig.unwatch(armed);
    assert!(rig.written().is_empty());
    rig.receive(&server::answer(&on_its_way[0], 1, 0)).unwrap();
    rig.take_log();
    rig.receive(&server::notification(server::DELETED, "/a")).unwrap();
    assert_eq!(rig.take_log(), ["watcher 2 NodeDeleted over 1"]);
}

#[test]
fn a_watch_of_the_server_goes_when_the_registration_behind_it_is_refused() {
    let mut rig = Rig::connected();
    let armed = rig.watch(&get_data("/a"), 1);
    rig.submit(&get_data("/a"), 2);
    let on_its_way = rig.written();
    rig.unwatch(armed);
    rig.receive(&server::answer(&on_its_way[0], 1, server::NO_NODE)).unwrap();
    assert_eq!(removals(&rig.written()), [("/a".into(), 2)]);
    assert_eq!(rig.machine.watches.len(), 0);
}

#[test]
fn a_watch_of_the_server_goes_when_the_request_behind_it_is_withdrawn() {
    let mut rig = Rig::connected();
    let armed = rig.watch(&get_data("/a"), 1);
    let unsent = rig.submit(&get_data("/a"), 2);
    rig.unwatch(armed);
    assert!(rig.withdraw(unsent));
    assert_eq!(removals(&rig.written()), [("/a".into(), 2)]);
}

#[test]
fn a_watch_given_up_on_its_way_is_removed_when_it_arrives() {
    let mut rig = Rig::connected();
    let ticket = rig.submit(&get_data("/a"), 1);
    let on_its_way = rig.written();
    rig.unwatch(ticket);
    assert!(rig.written().is_empty());
    rig.receive(&server::answer(&on_its_way[0], 1, 0)).unwrap();
    assert_eq!(removals(&rig.written()), [("/a".into(), 2)]);
    assert_eq!(rig.take_log(), ["drop watcher 1", "1 ok"]);
}

#[test]
fn a_watch_given_up_twice_on_its_way_is_removed_when_it_arrives() {
    let mut rig = Rig::connected();
    let ticket = rig.submit(&get_data("/a"), 1);
    let on_its_way = rig.written();
    rig.unwatch(ticket);
    rig.unwatch(ticket);
    rig.receive(&server::answer(&on_its_way[0], 1, 0)).unwrap();
    assert_eq!(removals(&rig.written()), [("/a".into(), 2)]);
}

#[test]
fn a_watch_given_up_on_its_way_is_not_removed_where_another_came() {
    let mut rig = Rig::connected();
    let given_up = rig.submit(&get_data("/a"), 1);
    rig.submit(&get_data("/a"), 2);
    let on_their_way = rig.written();
    rig.unwatch(given_up);
    for frame in on_their_way {
        rig.receive(&server::answer(&frame, 1, 0)).unwrap();
    }
    assert!(rig.written().is_empty());
    assert_eq!(rig.machine.watches.len(), 1);
}

#[test]
fn a_watch_given_up_on_its_way_that_the_server_did_not_leave_needs_no_removal() {
    let mut rig = Rig::connected();
    let ticket = rig.submit(&get_data("/a"), 1);
    let on_its_way = rig.written();
    rig.unwatch(ticket);
    rig.receive(&server::answer(&on_its_way[0], 1, server::NO_NODE)).unwrap();
    assert!(rig.written().is_empty());
    assert_eq!(rig.machine.watches.len(), 0);
}

#[test]
fn an_event_does_not_reach_a_registration_that_is_still_on_its_way() {
    let mut rig = Rig::connected();
    rig.watch(&get_data("/a"), 1);
    rig.submit(&get_data("/a"), 2);
    let on_its_way = rig.written();
    rig.take_log();
    rig.receive(&server::notification(server::CHANGED, "/a")).unwrap();
    assert_eq!(rig.take_log(), ["watcher 1 NodeDataChanged over 1"]);
    rig.receive(&server::answer(&on_its_way[0], 1, 0)).unwrap();
    rig.receive(&server::notification(server::CHANGED, "/a")).unwrap();
    assert_eq!(rig.take_log(), ["2 ok", "watcher 2 NodeDataChanged over 1"]);
}

#[test]
fn every_watch_hears_of_the_connection_but_for_those_given_up() {
    let mut rig = Rig::connected();
    rig.watch(&get_data("/armed"), 1);
    rig.submit(&get_data("/in-flight"), 2);
    rig.written();
    rig.submit(&get_data("/unsent"), 3);
    let given_up = rig.submit(&get_data("/given-up"), 4);
    rig.unwatch(given_up);
    rig.take_log();
    rig.disconnect();
    rig.connect();
    let mut told = rig.take_log();
    told.sort();
    assert_eq!(
        told,
        [
            "2 lost",
            "drop watcher 2",
            "raise Connected { connection: 2, read_only: false }",
            "raise Disconnected",
            "watcher 1 Disconnected",
            "watcher 1 Reconnected { connection: 2 }",
            "watcher 3 Disconnected",
            "watcher 3 Reconnected { connection: 2 }",
        ]
    );
}

#[test]
fn watches_are_told_before_the_client_that_there_is_a_connection_or_none() {
    let mut rig = Rig::connected();
    rig.watch(&get_data("/a"), 1);
    rig.take_log();
    rig.disconnect();
    rig.connect();
    assert_eq!(
        rig.log,
        [
            "watcher 1 Disconnected",
            "raise Disconnected",
            "watcher 1 Reconnected { connection: 2 }",
            "raise Connected { connection: 2, read_only: false }"
        ]
    );
}

#[test]
fn armed_watches_are_set_again_each_in_its_list_with_the_last_zxid() {
    let mut rig = Rig::connected();
    rig.watch(&get_data("/data"), 1);
    rig.watch(&exists("/data"), 2);
    rig.watch(&children("/child"), 3);
    refused(&mut rig, &exists("/absent"), 4, server::NO_NODE);
    let given_up = rig.watch(&get_data("/given-up"), 5);
    rig.submit(&sync("/"), 6);
    let frame = rig.written().remove(0);
    rig.receive(&server::answer(&frame, 77, 0)).unwrap();
    rig.disconnect();
    rig.unwatch(given_up);
    rig.submit(&get_data("/unsent"), 7);
    rig.connect();
    let frames = rig.written();
    assert_eq!(ops(&frames), [server::SET_WATCHES, server::GET_DATA]);
    let (zxid, [data, exist, child]) = frames[0].set_watches();
    assert_eq!((zxid, data, exist, child), (77, vec!["/data".into()], vec!["/absent".into()], vec!["/child".into()]));
}

#[test]
fn watches_set_again_are_removed_at_the_server_when_given_up() {
    let mut rig = Rig::connected();
    let ticket = rig.watch(&get_data("/a"), 1);
    rig.disconnect();
    rig.connect();
    // Not even written yet: the removal follows in the same piece.
    rig.unwatch(ticket);
    assert_eq!(ops(&rig.answer_all()), [server::SET_WATCHES, server::REMOVE_WATCHES]);
    assert_eq!(rig.machine.watches.len(), 0);
}

#[test]
fn no_set_watches_without_watches_and_none_for_a_new_session() {
    let mut rig = Rig::new();
    rig.submit(&get_data("/unsent"), 1);
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::GET_DATA]);
    rig.disconnect();
    rig.connect();
    assert!(rig.written().is_empty());
}

#[test]
fn set_watches_goes_out_in_frames_of_at_most_128_kib() {
    let mut rig = Rig::connected();
    let mut paths: Vec<String> = (0..5000).map(|k| format!("/{k:0100}")).collect();
    let too_long = format!("/{}", "x".repeat(200 * 1024));
    for (tag, path) in (0..).zip(paths.iter().chain([&too_long])) {
        let request = [get_data, exists, children][tag as usize % 3](path);
        rig.submit(&request, tag);
    }
    rig.answer_all();
    rig.disconnect();
    rig.connect();
    let frames = rig.written();
    let mut again = Vec::new();
    for frame in &frames {
        assert_eq!((frame.op, frame.xid), (server::SET_WATCHES, XID_SET_WATCHES));
        let lists = frame.set_watches().1.concat();
        assert!(frame.size <= 128 * 1024 || lists.len() == 1, "{} bytes, {} paths", frame.size, lists.len());
        again.extend(lists);
    }
    // Four frames and a little more, in an order that is not given; the long one cuts them where it comes.
    assert!(frames.len() <= 7, "{} frames", frames.len());
    again.sort();
    paths.push(too_long);
    paths.sort();
    assert!(again == paths);
}

#[test]
fn set_watches_goes_out_in_frames_that_the_clients_limit_allows() {
    for (max_frame_size, max_request_size) in [(1000, 4 << 20), (4 << 20, 1000)] {
        let mut rig = Rig::with(SessionConfig { max_frame_size, max_request_size, ..server::config() });
        rig.connect();
        let mut paths: Vec<String> = (0..100).map(|k| format!("/{k:0100}")).collect();
        // The longest one that `setWatches` has room for: behind header, zxid, three counts and its own length.
        paths.push(format!("/{}", "x".repeat(1000 - 8 - 8 - 3 * 4 - 4 - 1)));
        for (tag, path) in (0..).zip(&paths) {
            rig.watch(&get_data(path), tag);
        }
        rig.disconnect();
        rig.connect();
        let frames = rig.written();
        let sizes: Vec<usize> = frames.iter().map(|frame| frame.size).collect();
        assert!(sizes.iter().all(|size| *size <= 1000 + PREFIX), "{sizes:?}");
        let mut again: Vec<String> = frames.iter().flat_map(|frame| frame.set_watches().1.concat()).collect();
        again.sort();
        paths.sort();
        assert!(again == paths);
    }
}

#[test]
fn a_watch_that_could_not_be_set_again_is_refused() {
    let mut rig = Rig::with(SessionConfig { max_frame_size: 1000, ..server::config() });
    rig.connect();
    rig.take_log();
    let path = format!("/{}", "x".repeat(1000 - 8 - 8 - 3 * 4 - 4));
    for (tag, request) in (0..).zip([get_data(&path), exists(&path), children(&path)]) {
        rig.submit(&request, tag);
    }
    // Without a watch there is room for it.
    rig.submit(&Request::Exists { path, watch: false }, 3);
    let refused = |tag| [format!("{tag} FrameTooLarge {{ size: 1001, limit: 1000 }}"), format!("drop watcher {tag}")];
    assert_eq!(rig.take_log(), [refused(0), refused(1), refused(2)].concat());
    assert_eq!(rig.written().len(), 1);
}

#[test]
fn set_watches_refused_ends_the_connection_and_is_tried_again() {
    let mut rig = Rig::connected();
    rig.watch(&get_data("/a"), 1);
    for _ in 0..2 {
        rig.disconnect();
        rig.connect();
        assert_eq!(ops(&rig.written()), [server::SET_WATCHES]);
        assert!(rig.receive(&server::reply(XID_SET_WATCHES, 1, -127, b"")).is_err());
    }
}

#[test]
fn set_watches_that_is_not_answered_before_what_came_after_ends_the_connection() {
    let mut rig = Rig::connected();
    rig.watch(&get_data("/a"), 1);
    rig.disconnect();
    rig.connect();
    rig.submit(&sync("/"), 2);
    let xid = rig.written()[1].xid;
    assert!(rig.receive(&server::reply(xid, 1, 0, b"\0\0\0\x01/")).is_err());
    rig.disconnect();
    rig.connect();
    assert_eq!(ops(&rig.written()), [server::SET_WATCHES]);
    rig.submit(&sync("/"), 3);
    let xid = rig.written()[0].xid;
    rig.receive(&server::reply(XID_SET_WATCHES, 1, 0, b"")).unwrap();
    rig.receive(&server::reply(xid, 1, 0, b"\0\0\0\x01/")).unwrap();
}

#[test]
fn a_watch_given_up_without_a_connection_leaves_nothing_to_do() {
    let mut rig = Rig::connected();
    let ticket = rig.watch(&get_data("/a"), 1);
    rig.disconnect();
    rig.unwatch(ticket);
    rig.connect();
    assert!(rig.written().is_empty());
    assert_eq!(rig.machine.watches.len(), 0);
}

#[test]
fn two_watches_given_up_one_of_them_on_its_way_are_removed_at_once() {
    let mut rig = Rig::connected();
    let armed = rig.watch(&get_data("/a"), 1);
    let requested = rig.submit(&get_data("/a"), 2);
    let on_its_way = rig.written();
    rig.unwatch(requested);
    rig.unwatch(armed);
    assert!(rig.written().is_empty());
    rig.receive(&server::answer(&on_its_way[0], 1, server::NO_NODE)).unwrap();
    assert_eq!(removals(&rig.written()), [("/a".into(), 2)]);
}

#[test]
fn a_registration_refused_over_the_next_connection_needs_no_removal() {
    let mut rig = Rig::connected();
    let armed = rig.watch(&get_data("/a"), 1);
    rig.submit(&get_data("/a"), 2);
    rig.disconnect();
    rig.unwatch(armed);
    rig.connect();
    let frames = rig.written();
    assert_eq!(ops(&frames), [server::GET_DATA]);
    rig.receive(&server::answer(&frames[0], 1, server::NO_NODE)).unwrap();
    assert!(rig.written().is_empty());
}

#[test]
fn a_removal_does_not_outlive_its_connection() {
    let mut rig = Rig::connected();
    let ticket = rig.watch(&get_data("/a"), 1);
    rig.unwatch(ticket);
    rig.disconnect();
    rig.connect();
    assert!(rig.written().is_empty());
}

mod slow {
    use super::*;

    #[test]
    fn a_hundred_thousand_watches_that_come_and_go_leave_nothing() {
        let mut rig = Rig::connected();
        for tag in 0..100_000 {
            let ticket = rig.watch(&get_data("/a"), tag);
            rig.unwatch(ticket);
            rig.take_log();
        }
        assert_eq!(rig.answer_all().len(), 1);
        assert_eq!(rig.machine.watches.len(), 0);
        assert!(rig.machine.in_flight.is_empty() && rig.machine.unsent.is_empty());
    }
}
