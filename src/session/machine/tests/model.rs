//! Random inputs against a model of the server: every request ends once, every watch fires or is at the server, and
//! none is there that nobody waits for.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{
    model_server::{Change, Server, path_of},
    *,
};

#[derive(Debug, Clone, Copy)]
enum Op {
    Submit { kind: u8, node: usize },
    Withdraw(Index),
    Unwatch(Index),
    Connect,
    Expire,
    Write,
    Process(usize),
    Deliver(usize),
    Change(usize, Change),
    WriteFailed,
    Disconnect,
    Wait(u32),
    Leave,
}

fn op() -> impl Strategy<Value = Op> {
    let change = prop_oneof![2 => Just(Change::Toggle), 1 => Just(Change::Set), 1 => Just(Change::Children)];
    prop_oneof![
        40 => (0..4_u8, 0..3_usize).prop_map(|(kind, node)| Op::Submit { kind, node }),
        8 => any::<Index>().prop_map(Op::Withdraw),
        20 => any::<Index>().prop_map(Op::Unwatch),
        25 => Just(Op::Connect),
        30 => Just(Op::Write),
        20 => (1..8_usize).prop_map(Op::Process),
        20 => (1..8_usize).prop_map(Op::Deliver),
        15 => (0..3_usize, change).prop_map(|(node, change)| Op::Change(node, change)),
        2 => Just(Op::WriteFailed),
        6 => Just(Op::Disconnect),
        10 => (0..5000_u32).prop_map(Op::Wait),
        1 => Just(Op::Leave),
        1 => Just(Op::Expire),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    None,
    Withdrawn,
    Ok,
    NoNode,
    Failed,
}

/// What the client knows of one request and its watch. Its tag is its place in the list.
struct Asked {
    ticket: u64,
    kind: u8,
    node: usize,
    reply: Reply,
    given_up: bool,
    fired: bool,
    ended: bool,
    /// The server's last zxid when the reply came.
    zxid: i64,
}

impl Asked {
    fn watches_children(&self) -> bool {
        self.kind == 3
    }

    /// Whether the server has, or had, a watch for it.
    fn is_booked(&self) -> bool {
        self.kind != 0 && (self.reply == Reply::Ok || (self.kind == 2 && self.reply == Reply::NoNode))
    }

    fn waits(&self) -> bool {
        self.is_booked() && !self.given_up && !self.fired && !self.ended
    }
}

struct World {
    rig: Rig,
    server: Server,
    asked: Vec<Asked>,
    last_written: (i32, Option<u32>),
    over: bool,
}

impl World {
    fn new(first_xid: i32) -> World {
        let mut rig = Rig::new();
        rig.machine.next_xid = first_xid;
        let before = if first_xid == 1 { i32::MAX } else { first_xid - 1 };
        World { rig, server: Server::default(), asked: Vec::new(), last_written: (before, None), over: false }
    }

    fn input<T>(&mut self, input: impl FnOnce(&mut Machine<u32, u32>, &mut Vec<Action<u32, u32>>) -> T) -> T {
        let mut actions = Vec::new();
        let result = input(&mut self.rig.machine, &mut actions);
        for action in actions {
            self.act(action);
        }
        result
    }

    fn act(&mut self, action: Action<u32, u32>) {
        match action {
            Action::Complete(tag, reply) => {
                let asked = &mut self.asked[tag as usize];
                assert_eq!(asked.reply, Reply::None, "request {tag} is answered twice");
                asked.reply = match reply {
                    Ok(_) => Reply::Ok,
                    Err(SessionError::Server(ErrorCode::NoNode)) => Reply::NoNode,
                    Err(_) => Reply::Failed,
                };
                asked.zxid = self.rig.machine.last_zxid;
            }
            Action::DropCompletion(tag) => {
                let asked = &mut self.asked[tag as usize];
                assert_eq!(asked.reply, Reply::None, "request {tag} is withdrawn after its reply");
                asked.reply = Reply::Withdrawn;
            }
            Action::Notify(tag, WatchEvent::Node { .. }) => {
                let asked = &mut self.asked[tag as usize];
                assert!(asked.waits(), "watcher {tag} is told of an event it does not wait for");
                asked.fired = true;
            }
            Action::Notify(tag, event) => {
                let asked = &mut self.asked[tag as usize];
                assert!(!asked.given_up && !asked.fired && !asked.ended, "watcher {tag} is told {event:?}");
                asked.ended = event == WatchEvent::Ended;
            }
            Action::Raise(_) => assert!(!self.over, "an event after the end"),
            Action::DropWatcher(_) | Action::Log(..) => {}
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Submit { kind, node } => self.submit(kind, node),
            Op::Withdraw(index) => self.with(&index, |machine, actions, asked| {
                machine.withdraw(asked, actions);
            }),
            Op::Unwatch(index) => self.unwatch(&index),
            Op::Connect => self.connect(),
            Op::Expire => self.expire(),
            Op::Write => self.write(),
            Op::Process(count) => _ = (0..count).take_while(|_| self.server.process()).count(),
            Op::Deliver(count) => _ = (0..count).take_while(|_| self.deliver()).count(),
            Op::Change(node, change) => self.server.change(node, change),
            Op::WriteFailed => _ = self.rig.machine.write_failed(self.rig.machine.connections),
            Op::Disconnect => self.disconnect(),
            Op::Wait(millis) => self.wait(Duration::from_millis(millis.into())),
            Op::Leave => self.leave(),
        }
        let open = self.asked.iter().filter(|asked| asked.kind != 0 && !asked.fired && !asked.ended);
        assert!(self.rig.machine.watches.len() <= open.count(), "more watches booked than asked for");
    }

    fn with(&mut self, index: &Index, input: impl FnOnce(&mut Machine<u32, u32>, &mut Vec<Action<u32, u32>>, u64)) {
        if !self.asked.is_empty() {
            let ticket = index.get(&self.asked).ticket;
            self.input(|machine, actions| input(machine, actions, ticket));
        }
    }

    fn submit(&mut self, kind: u8, node: usize) {
        let path = path_of(node);
        let request = [sync, get_data, exists, children][kind as usize](&path);
        let tag = u32::try_from(self.asked.len()).unwrap();
        self.asked.push(Asked {
            ticket: 0,
            kind,
            node,
            reply: Reply::None,
            given_up: false,
            fired: false,
            ended: false,
            zxid: 0,
        });
        let watcher = request.watch_table().map(|_| tag);
        let ticket = self.input(|machine, actions| machine.submit(&request, request.encode(0), tag, watcher, actions));
        self.asked[tag as usize].ticket = ticket;
    }

    fn unwatch(&mut self, index: &Index) {
        self.with(index, |machine, actions, ticket| machine.unwatch(ticket, actions));
        if !self.asked.is_empty() {
            let place = index.index(self.asked.len());
            self.asked[place].given_up = true;
        }
    }

    fn connect(&mut self) {
        if self.rig.machine.link != Link::Down || self.rig.machine.fate == Fate::Ended {
            return;
        }
        if self.server.closed {
            return self.expire();
        }
        let now = self.rig.now;
        self.input(|machine, actions| machine.connected(response(ID), now, now, actions)).unwrap();
    }

    fn expire(&mut self) {
        if self.rig.machine.link == Link::Down && self.rig.machine.session_id != 0 {
            let now = self.rig.now;
            let expired = ConnectResponse { timeout_ms: 0, ..response(0) };
            self.input(|machine, actions| machine.connected(expired, now, now, actions)).unwrap();
            self.over = true;
        }
    }

    fn disconnect(&mut self) {
        self.input(|machine, actions| machine.disconnected(None, actions));
        self.server.disconnected();
    }

    fn leave(&mut self) {
        let (now, until) = (self.rig.now, self.rig.now + 100 * T);
        self.input(|machine, actions| machine.leave(SessionError::Closed, now, until, actions));
        self.over = true;
    }

    fn wait(&mut self, time: Duration) {
        self.rig.now += time;
        if self.rig.machine.timer(self.rig.now).is_err() {
            self.disconnect();
        }
    }

    /// One piece of output arrives at the server. Numbers go up by one, requests come in the order of submission.
    fn write(&mut self) {
        if !self.rig.machine.has_output() {
            return;
        }
        let before = self.rig.machine.in_flight.len();
        let mut out = Vec::new();
        self.rig.machine.take_output(&mut out);
        let frames = server::frames(&out);
        let numbered: Vec<i32> = frames.iter().map(|frame| frame.xid).filter(|xid| *xid > 0).collect();
        let purposes: Vec<_> = self.rig.machine.in_flight.iter().skip(before).collect();
        assert_eq!(numbered, purposes.iter().map(|request| request.0).collect::<Vec<_>>());
        let (mut last_xid, mut last_tag) = self.last_written;
        for request in purposes {
            assert_eq!(request.0, if last_xid == i32::MAX { 1 } else { last_xid + 1 });
            last_xid = request.0;
            if let Purpose::Caller { completion, .. } = request.1.purpose {
                assert!(last_tag < Some(completion), "request {completion} is written after {last_tag:?}");
                last_tag = Some(completion);
            }
        }
        self.last_written = (last_xid, last_tag);
        self.server.arrive(frames);
    }

    /// One frame arrives at the client. `false`: there is none.
    fn deliver(&mut self) -> bool {
        if self.rig.machine.link == Link::Down {
            return false;
        }
        let Some(frame) = self.server.sent.pop_front() else { return false };
        let now = self.rig.now;
        self.input(|machine, actions| machine.frame(&frame, now, actions)).unwrap();
        true
    }

    /// Lets everything that is under way come to its end.
    fn settle(&mut self) {
        if self.rig.machine.link == Link::Failing {
            self.disconnect();
        }
        self.connect();
        while self.rig.machine.has_output() || self.server.process() || self.deliver() {
            self.write();
        }
    }

    fn assert_settled(&self) {
        assert!(self.asked.iter().all(|asked| asked.reply != Reply::None), "a request without an end");
        if self.over {
            return;
        }
        for (tag, asked) in self.asked.iter().enumerate().filter(|(_, asked)| asked.waits()) {
            let table = if asked.watches_children() { &self.server.child } else { &self.server.data };
            assert!(table.contains(&asked.node), "watcher {tag} waits for what the server does not watch");
            let node = self.server.nodes[asked.node];
            let changed = if asked.watches_children() { node.pzxid } else { node.mzxid };
            let unchanged = changed <= asked.zxid || (asked.reply == Reply::NoNode && !node.exists);
            assert!(unchanged, "watcher {tag} was not told");
        }
        for (table, is_child) in [(&self.server.data, false), (&self.server.child, true)] {
            for node in table {
                let waits =
                    |asked: &Asked| asked.node == *node && asked.watches_children() == is_child && asked.waits();
                assert!(self.asked.iter().any(waits), "the server watches {node} for nobody");
            }
        }
        let waiting = self.asked.iter().filter(|asked| asked.waits()).count();
        assert_eq!(self.rig.machine.watches.len(), waiting);
    }

    fn assert_over(&self) {
        for (tag, asked) in self.asked.iter().enumerate() {
            assert_ne!(asked.reply, Reply::None, "request {tag} without an end");
            assert!(!asked.waits(), "watcher {tag} does not know of the end");
        }
        assert_eq!(self.rig.machine.watches.len(), 0);
        let callers = |purpose: &Purpose<u32>| matches!(purpose, Purpose::Caller { .. });
        assert!(!self.rig.machine.in_flight.iter().any(|(_, request)| callers(&request.purpose)));
        assert!(!self.rig.machine.unsent.iter().any(|request| callers(&request.purpose)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once_and_every_watch_fires_or_is_at_the_server(
        ops in vec(op(), 0..150),
        first_xid in prop_oneof![Just(1), i32::MAX - 20..i32::MAX],
    ) {
        let mut world = World::new(first_xid);
        for op in ops {
            world.apply(op);
        }
        world.settle();
        world.assert_settled();
        world.leave();
        world.assert_over();
        world.settle();
        world.settle();
        world.assert_over();
        prop_assert!(world.rig.machine.is_over(world.rig.now));
    }
}

/// Bytes, or a frame that means something.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let xid = prop_oneof![1..6_i32, prop::sample::select(vec![-1, -2, -4, -8]), any::<i32>()];
    let err = prop_oneof![Just(0), prop::sample::select(vec![-101, -112, -115, -119]), any::<i32>()];
    prop_oneof![
        vec(any::<u8>(), 0..120),
        (xid, any::<i64>(), err, vec(prop_oneof![Just(0_u8), any::<u8>()], 0..90))
            .prop_map(|(xid, zxid, err, body)| server::reply(xid, zxid, err, &body)),
        (1..8_i32, 0..3_usize).prop_map(|(event, node)| server::notification(event, &path_of(node))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_makes_it_panic_or_answer_twice(
        requests in vec((0..4_u8, 0..3_usize), 0..6),
        frames in vec(any_frame(), 0..12),
        timeout_ms in any::<i32>(),
        session_id in any::<i64>(),
    ) {
        let mut world = World::new(1);
        for (kind, node) in requests {
            world.submit(kind, node);
        }
        let now = world.rig.now;
        let hello = ConnectResponse { timeout_ms, ..response(session_id) };
        let mut up = world.input(|machine, actions| machine.connected(hello, now, now, actions)).is_ok();
        world.write();
        for frame in frames {
            up = up && world.input(|machine, actions| machine.frame(&frame, now, actions)).is_ok();
            world.rig.machine.next_timer();
        }
        world.disconnect();
        world.leave();
        world.assert_over();
    }
}
