//! Many callers of one session whose connections are cut at random, with all ways for a wait to end.

use std::{io::Write, sync::atomic::AtomicUsize, thread};

use super::*;
use crate::{base::clock, session::wait::cancel::CancelToken};

#[test]
fn a_session_that_is_cut_at_random_leaves_no_waiter_behind_and_mixes_no_replies_up() {
    const THREADS: usize = 8;
    const CONNECTIONS: usize = 12;
    let fake = Fake::new();
    let (client, first) = Client::connected(&fake);
    let (is_over, synced) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let callers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (session, is_over, synced) = (&client.session, &is_over, &synced);
                scope.spawn(move || {
                    let mut round = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        round += 1;
                        synced.fetch_add(usize::from(one_call(session, thread, round)), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut peer = first;
        for connection in 0..CONNECTIONS {
            serve_and_cut(peer, connection);
            peer = client.welcome(&fake);
        }
        is_over.store(true, Ordering::Relaxed);
        let server = scope.spawn(|| peer.answer_all());
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert!(is_synced(&wait(&client.session, "/last")));
        client.session.close(clock::now() + LONG);
        assert_eq!(server.join().unwrap().last(), Some(&server::CLOSE));
    });
    assert!(synced.load(Ordering::Relaxed) > CONNECTIONS);
    // One after the other, none twice and none left out.
    let mut connections = 1..;
    for event in client.events.try_iter().collect::<Vec<_>>().chunks(2) {
        let [SessionEvent::Disconnected, SessionEvent::Connected { connection, .. }] = event else {
            panic!("{event:?}");
        };
        assert_eq!(Some(*connection), connections.next().map(|before| before + 1));
    }
}

/// Asks once, with a deadline or a cancellation or neither. `true`: it was answered.
fn one_call(session: &Arc<dyn Session>, thread: usize, round: usize) -> bool {
    let path = format!("/{thread}/{round}");
    let token = CancelToken::new();
    let longest = [LONG, Duration::from_millis(30), Duration::from_millis(3), LONG][round % 4];
    let bound = WaitBound { cancel: Some(&token), deadline: Some(clock::now() + longest) };
    let pending = submit_one(session, sync(&path));
    if round % 7 == thread % 7 {
        drop(pending);
        return false;
    }
    thread::scope(|scope| {
        if round % 4 == 3 {
            scope.spawn(|| token.cancel());
        }
        let begun = clock::now();
        let answer = pending.wait(bound);
        assert!(clock::since(begun) < LONG / 2, "{:?}: {answer:?}", clock::since(begun));
        match answer {
            Ok(Ok(Response::Synced { path: synced })) => {
                assert_eq!(synced, path);
                true
            }
            Ok(Err(SessionError::ConnectionLoss(_))) | Err(Stopped { .. }) => false,
            other => panic!("{other:?}"),
        }
    })
}

/// Answers for a while, in pieces of any size, and hangs up in the middle of a frame.
fn serve_and_cut(mut peer: Peer, connection: usize) {
    for number in 0..60 + connection * 10 {
        let request = peer.request();
        let reply = server::prefixed(&server::answer(&request, 1, 0));
        let cut = (number * 7 + connection) % reply.len();
        peer.stream.write_all(&reply[..cut]).unwrap_or_default();
        if number % 5 == 0 {
            thread::yield_now();
        }
        peer.stream.write_all(&reply[cut..]).unwrap_or_default();
    }
    let request = peer.request();
    let reply = server::prefixed(&server::answer(&request, 1, 0));
    peer.stream.write_all(&reply[..connection % reply.len()]).unwrap_or_default();
    if !connection.is_multiple_of(3) {
        hang_up(&peer);
    }
}
