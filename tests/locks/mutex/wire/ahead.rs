//! What a waiter learns of those in front of it before its turn comes: contenders with a session each.

use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use curator_locks::{
    AcquireOptions, CancelToken, CuratorFramework, Error,
    testing::{Fault, FaultProxy, RequestMatch, op},
};

use crate::support::{self, PATIENCE, await_queue, builder_at, connect, eventually, mutex};

/// A contender on a thread of its own, with a session of its own.
struct Contender {
    granted: Receiver<()>,
    token: CancelToken,
    let_go: Sender<()>,
    thread: JoinHandle<()>,
}

impl Contender {
    fn queue(client: CuratorFramework) -> Contender {
        let (tell, granted) = bounded(1);
        let (let_go, may_go) = bounded(1);
        let token = CancelToken::new();
        let options = AcquireOptions::new().cancel_token(&token);
        let thread = thread::spawn(move || {
            let mutex = mutex(&client);
            match mutex.acquire_with(&options) {
                Ok(true) => {
                    tell.send(()).unwrap();
                    may_go.recv().unwrap();
                    mutex.release().unwrap();
                }
                result => assert!(matches!(result, Err(Error::Cancelled { .. })), "{result:?}"),
            }
            client.close();
        });
        Contender { granted, token, let_go, thread }
    }

    fn await_grant(&self) {
        self.granted.recv_timeout(PATIENCE).unwrap();
    }

    fn is_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    fn leave(self) {
        // One that gives up does not wait for it.
        let _ = self.let_go.send(());
        self.thread.join().unwrap();
    }

    fn give_up(self) {
        self.token.cancel();
        self.thread.join().unwrap();
    }
}

/// A holder, waiters behind it, and at the end one more, whose requests pass a proxy.
struct Line {
    client: CuratorFramework,
    /// The holder first.
    front: Vec<Contender>,
    last: Contender,
    proxy: FaultProxy,
}

impl Line {
    fn form(front: usize) -> Line {
        Line::prepared(front, |_, _| {}).0
    }

    fn prepared<T>(front: usize, prepare: impl FnOnce(&FaultProxy, &[String]) -> T) -> (Line, T) {
        let client = support::client();
        let mut contenders = Vec::new();
        for length in 1..=front {
            contenders.push(Contender::queue(support::another(&client)));
            await_queue(&client, "/locks/m", length);
        }
        contenders[0].await_grant();
        let proxy = FaultProxy::start(("127.0.0.1", support::server().port())).unwrap();
        let prepared = prepare(&proxy, &await_queue(&client, "/locks/m", front));
        let last = Contender::queue(connect(builder_at(&proxy.connect_string(), client.namespace())));
        await_queue(&client, "/locks/m", front + 1);
        let line = Line { client, front: contenders, last, proxy };
        eventually("it watches its predecessor, itself, and who is in front of that", || line.reads() == 3);
        (line, prepared)
    }

    fn reads(&self) -> usize {
        let is_of_lock = |path: &String| path.contains("/locks/m/");
        let log = self.proxy.log().into_iter();
        log.filter(|read| read.op == op::GET_DATA && read.path.as_ref().is_some_and(is_of_lock)).count()
    }

    fn listings(&self) -> u64 {
        self.proxy.requests(op::GET_CHILDREN)
    }

    /// The holder lets go.
    fn pass_on(&mut self) {
        self.front.remove(0).leave();
        self.front[0].await_grant();
    }
}

#[test]
fn it_lists_while_its_predecessor_holds_the_lock_and_not_while_nobody_does() {
    let mut line = Line::form(2);
    assert_eq!(line.listings(), 1);
    line.pass_on();
    eventually("it lists", || line.listings() == 2);
    line.front.remove(0).leave();
    line.last.await_grant();
    assert_eq!((line.listings(), line.reads()), (2, 3), "listings and reads");
    line.last.leave();
}

#[test]
fn a_listing_that_is_under_way_when_the_predecessor_goes_is_not_sent_twice() {
    let mut line = Line::form(2);
    let listing = line.proxy.inject(RequestMatch::op(op::GET_CHILDREN), Fault::HoldRequest);
    line.pass_on();
    listing.wait_for_hits(1, PATIENCE).unwrap();
    line.front.remove(0).leave();
    await_queue(&line.client, "/locks/m", 1);
    listing.release();
    line.last.await_grant();
    assert_eq!(line.listings(), 2);
    line.last.leave();
}

#[test]
fn a_listing_that_is_lost_with_the_connection_is_made_again() {
    let mut line = Line::form(2);
    let listing = line.proxy.inject(RequestMatch::op(op::GET_CHILDREN), Fault::CutInsteadOfRequest);
    line.pass_on();
    listing.wait_for_hits(1, PATIENCE).unwrap();
    line.front.remove(0).leave();
    line.last.await_grant();
    line.last.leave();
}

#[test]
fn who_is_gone_before_it_is_watched_is_no_loss() {
    let (mut line, read) = Line::prepared(2, |proxy, queue| {
        let holder = queue[0].rsplit('/').next().unwrap().to_owned();
        let path = move |path: &str| path.ends_with(&holder);
        proxy.inject(RequestMatch::op(op::GET_DATA).path(path), Fault::HoldRequest)
    });
    line.pass_on();
    read.release();
    eventually("it lists", || line.listings() == 2);
    line.front.remove(0).leave();
    line.last.await_grant();
    assert_eq!(line.listings(), 2);
    line.last.leave();
}

#[test]
fn predecessors_that_gave_up_hand_nothing_over() {
    let mut line = Line::form(3);
    // The one in front of the predecessor: the predecessor does not hold the lock for that.
    line.front.remove(1).give_up();
    eventually("it lists", || line.listings() == 2);
    line.front.remove(1).give_up();
    eventually("it watches the holder", || line.reads() == 4);
    await_queue(&line.client, "/locks/m", 2);
    assert!(!line.last.is_granted(), "two holders");
    line.front.remove(0).leave();
    line.last.await_grant();
    line.last.leave();
}

#[test]
fn a_waiter_that_gives_up_leaves_no_watch() {
    let server = curator_locks::testing::TestingServer::start().unwrap();
    let namespace = support::namespace();
    let open = || connect(support::builder(&server, &namespace));
    let client = open();
    let mut contenders = Vec::new();
    for length in 1..=4 {
        contenders.push(Contender::queue(open()));
        await_queue(&client, "/locks/m", length);
    }
    // Each waiter has its own znode, its predecessor and who is in front of that; the holder its own, after 100 ms.
    eventually("all watch", || server.watch_count().unwrap() == 1 + 2 + 3 + 3);
    contenders.pop().unwrap().give_up();
    eventually("its watches are gone", || server.watch_count().unwrap() == 1 + 2 + 3);
    for contender in contenders {
        contender.await_grant();
        contender.leave();
    }
    eventually("all watches are gone", || server.watch_count().unwrap() == 0);
}
