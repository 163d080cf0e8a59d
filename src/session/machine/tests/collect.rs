//! Writes that go together. The server here keeps znodes, so that each caller's answer shows what was carried out, and when.

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::{proto::types::CreateMode, session::machine::collect::LEAST};

const NO_NODE: i32 = -101;
const NOT_EMPTY: i32 = -111;
const UNIMPLEMENTED: i32 = -6;

/// What a caller was told: its tag, and the error's name, or the czxid and the path, or the children.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Failed(u32, String),
    Created(u32, i64, String),
    Listed(u32, Vec<String>),
    Done(u32),
    Dropped(u32),
    Other,
}

impl Told {
    fn tag(&self) -> Option<u32> {
        match self {
            Told::Failed(tag, _)
            | Told::Created(tag, ..)
            | Told::Listed(tag, _)
            | Told::Done(tag)
            | Told::Dropped(tag) => Some(*tag),
            Told::Other => None,
        }
    }
}

fn told(action: Action<u32, u32>) -> Told {
    match action {
        Action::Complete(tag, Ok(Response::Created { path, czxid })) => Told::Created(tag, czxid, path),
        Action::Complete(tag, Ok(Response::Children { names, .. })) => Told::Listed(tag, names),
        Action::Complete(tag, Ok(_)) => Told::Done(tag),
        Action::Complete(tag, Err(SessionError::Server(code))) => Told::Failed(tag, format!("{code:?}")),
        Action::Complete(tag, Err(SessionError::ConnectionLoss(_))) => Told::Failed(tag, "lost".into()),
        Action::Complete(tag, Err(SessionError::FrameTooLarge { .. })) => Told::Failed(tag, "too large".into()),
        Action::Complete(tag, Err(error)) => Told::Failed(tag, format!("{error:?}")),
        Action::DropCompletion(tag) => Told::Dropped(tag),
        Action::Notify(..) | Action::Raise(_) | Action::DropWatcher(_) => Told::Other,
    }
}

/// A server with a directory for each letter.
#[derive(Default)]
struct Directories {
    paths: BTreeSet<String>,
    zxid: i64,
    next: u64,
    /// The operations that it does not know.
    unknown: Vec<i32>,
}

impl Directories {
    fn with(directories: &[&str]) -> Directories {
        Directories { paths: directories.iter().map(|path| (*path).to_owned()).collect(), ..Directories::default() }
    }

    fn answer(&mut self, frame: &Frame) -> Vec<u8> {
        let refused = |code| server::reply(frame.xid, self.zxid, code, b"");
        if self.unknown.contains(&frame.op) {
            return refused(UNIMPLEMENTED);
        }
        let mut body = frame.body.as_slice();
        match frame.op {
            op::MULTI | op::MULTI_READ => {
                let (before, mut code) = (self.paths.clone(), 0);
                let mut results = Vec::new();
                self.zxid += i64::from(frame.op == op::MULTI);
                while let Some(inner) = inner(&mut body) {
                    let result = self.carry_out(inner, &mut body);
                    if frame.op == op::MULTI {
                        code = if code == 0 { result.as_ref().err().copied().unwrap_or(0) } else { code };
                    }
                    results.push((inner, result));
                }
                if code != 0 {
                    self.paths = before;
                }
                let mut reply = Vec::new();
                for (inner, result) in results {
                    match result {
                        Ok(body) if code == 0 => reply.extend(header(inner, false, 0).into_iter().chain(body)),
                        result => {
                            let code = result.err().unwrap_or(0);
                            reply.extend(header(-1, false, code).into_iter().chain(code.to_be_bytes()));
                        }
                    }
                }
                reply.extend(header(-1, true, -1));
                server::reply(frame.xid, self.zxid, code, &reply)
            }
            op::CREATE | op::DELETE | op::GET_CHILDREN => {
                self.zxid += i64::from(frame.op != op::GET_CHILDREN);
                match self.carry_out(frame.op, &mut body) {
                    Ok(body) => server::reply(frame.xid, self.zxid, 0, &body),
                    Err(code) => server::reply(frame.xid, self.zxid, code, b""),
                }
            }
            _ => server::answer(frame, self.zxid, 0),
        }
    }

    /// Requests here have no data and no ACL.
    fn carry_out(&mut self, op: i32, body: &mut &[u8]) -> Result<Vec<u8>, i32> {
        let path = server::string(body);
        let parent = path.rsplit_once('/').unwrap().0.to_owned();
        *body = &body[match op {
            op::CREATE => 12,
            op::DELETE => 4,
            _ => 1,
        }..];
        let children = |path: &str| -> Vec<String> {
            let inside = format!("{path}/");
            self.paths.iter().filter_map(|path| path.strip_prefix(&inside)).map(str::to_owned).collect()
        };
        match op {
            op::CREATE if !self.paths.contains(&parent) => Err(NO_NODE),
            op::CREATE => {
                self.next += 1;
                let path = format!("{path}{:010}", self.next);
                self.paths.insert(path.clone());
                Ok(server::prefixed(path.as_bytes()))
            }
            op::DELETE if !children(&path).is_empty() => Err(NOT_EMPTY),
            op::DELETE => {
                if self.paths.remove(&path) {
                    Ok(Vec::new())
                } else {
                    Err(NO_NODE)
                }
            }
            _ if !self.paths.contains(&path) => Err(NO_NODE),
            _ => {
                let names = children(&path);
                let count = i32::try_from(names.len()).unwrap().to_be_bytes().to_vec();
                Ok(names.iter().fold(count, |all, name| [all, server::prefixed(name.as_bytes())].concat()))
            }
        }
    }
}

fn header(op: i32, done: bool, err: i32) -> Vec<u8> {
    [&op.to_be_bytes()[..], &[u8::from(done)], &err.to_be_bytes()].concat()
}

fn inner(body: &mut &[u8]) -> Option<i32> {
    let op = i32::from_be_bytes(*body.first_chunk().unwrap());
    let is_done = body[4] != 0;
    *body = &body[9..];
    (!is_done).then_some(op)
}

/// The operations of a frame that holds several.
fn inside(frame: &Frame) -> Vec<(i32, String)> {
    let (mut body, mut all) = (frame.body.as_slice(), Vec::new());
    while let Some(op) = inner(&mut body) {
        let path = server::string(&mut body);
        body = &body[match op {
            op::CREATE => 12,
            op::DELETE => 4,
            _ => 1,
        }..];
        all.push((op, path));
    }
    all
}

fn create(directory: &str) -> Request {
    let (path, mode) = (format!("{directory}/x-"), CreateMode::EphemeralSequential);
    Request::Create { path, data: Vec::new(), acl: Vec::new(), mode }
}

fn list(directory: &str) -> Request {
    Request::GetChildren { path: directory.into(), watch: false, with_stat: false }
}

fn delete(path: &str) -> Request {
    Request::Delete { path: path.into(), version: -1 }
}

/// A machine and its server: what is written arrives, and is answered when the test says so.
struct World {
    rig: Rig<Told>,
    server: Directories,
    arrived: VecDeque<Frame>,
}

impl World {
    fn new(server: Directories) -> World {
        World::with(server::config(), server)
    }

    /// The round trip is known already, and short.
    fn with(config: SessionConfig, server: Directories) -> World {
        let mut world = World { rig: Rig::noting(config, clock::now(), told), server, arrived: VecDeque::new() };
        world.rig.connect();
        world.server.paths.insert("/warm".into());
        world.rig.submit(&create("/warm"), 0);
        world.write();
        world.answer_all();
        world.rig.take_log();
        world
    }

    /// What is written now.
    fn write(&mut self) -> Vec<i32> {
        let frames = self.rig.written();
        self.arrived.extend(frames.clone());
        ops(&frames)
    }

    fn submit(&mut self, requests: &[Request], first: u32) -> Vec<i32> {
        for (tag, request) in (first..).zip(requests) {
            self.rig.submit(request, tag);
        }
        self.write()
    }

    /// As many creates in directories of their own as may be on the wire.
    fn fill(&mut self) {
        for index in 0..u32::try_from(LEAST).unwrap() {
            let directory = format!("/full{index}");
            self.server.paths.insert(directory.clone());
            assert_eq!(self.submit(&[create(&directory)], 1000 + index), [op::CREATE]);
        }
    }

    fn answer_next(&mut self) {
        let frame = self.arrived.pop_front().unwrap();
        let reply = self.server.answer(&frame);
        self.rig.receive(&reply).unwrap();
    }

    /// Answers what has arrived, and what follows from that.
    fn answer_all(&mut self) {
        while !self.arrived.is_empty() {
            self.answer_next();
            self.write();
        }
    }

    /// What callers were told, without those that only fill the wire.
    fn told(&mut self) -> Vec<Told> {
        let all = self.rig.take_log();
        all.into_iter().filter(|told| told.tag().is_some_and(|tag| (1..1000).contains(&tag))).collect()
    }
}

fn failed(tag: u32, why: &str) -> Told {
    Told::Failed(tag, why.into())
}

#[test]
fn a_few_writes_go_at_once_and_as_they_are() {
    let mut world = World::new(Directories::with(&["/a", "/b", "/c", "/d"]));
    for (tag, directory) in (1..).zip(["/a", "/b", "/c", "/d"]).take(LEAST) {
        let request = create(directory);
        world.rig.submit(&request, tag);
        let mut bytes = Vec::new();
        world.rig.machine.take_output(world.rig.now, &mut bytes);
        let xid = i32::from_be_bytes(*bytes[4..].first_chunk().unwrap());
        assert_eq!(bytes, request.encode(xid));
    }
    // What is no write waits for nobody.
    assert_eq!(world.submit(&[list("/a"), sync("/")], 5), [op::GET_CHILDREN, op::SYNC]);
    assert_eq!(world.submit(&[delete("/a/y")], 7), [0; 0]);
    assert!(!world.rig.machine.has_output());
}

#[test]
fn before_anything_is_known_of_the_way_to_the_server_nothing_waits() {
    let mut rig = Rig::connected();
    (0..20).for_each(|tag| _ = rig.submit(&delete("/a"), tag));
    assert_eq!(rig.written().len(), 20);
}

#[test]
fn on_a_slow_network_more_writes_are_on_the_wire_before_others_wait() {
    let mut rig = Rig::connected();
    rig.submit(&delete("/a"), 0);
    let frame = rig.written().pop().unwrap();
    rig.now += Duration::from_millis(1);
    rig.receive(&server::answer(&frame, 1, 0)).unwrap();
    (0..30).for_each(|tag| _ = rig.submit(&delete("/a"), tag));
    assert_eq!(rig.written().len(), 20);
    rig.disconnect();
    rig.connect();
    assert_eq!(rig.written().len(), 10, "the next server may be further away");
}

#[test]
fn what_has_waited_goes_together_with_the_next_reply_and_the_lists_behind_it() {
    let mut world = World::new(Directories::with(&["/a", "/b", "/c", "/c/1"]));
    world.fill();
    let waiting = [create("/a"), list("/a"), create("/b"), list("/b"), delete("/c/1")];
    assert_eq!(world.submit(&waiting, 1), [0; 0]);
    world.answer_next();
    assert_eq!(world.write(), [op::MULTI, op::MULTI_READ]);
    let [.., writes, lists] = world.arrived.make_contiguous() else { panic!() };
    let expected = [(op::CREATE, "/a/x-"), (op::CREATE, "/b/x-"), (op::DELETE, "/c/1")];
    assert_eq!(inside(writes), expected.map(|(op, path)| (op, path.to_owned())));
    assert_eq!(inside(lists), ["/a", "/b"].map(|path| (op::GET_CHILDREN, path.to_owned())));
    world.answer_all();
    let zxid = world.server.zxid;
    let expected = [
        Told::Created(1, zxid, "/a/x-0000000004".into()),
        Told::Created(3, zxid, "/b/x-0000000005".into()),
        Told::Done(5),
        Told::Listed(2, vec!["x-0000000004".into()]),
        Told::Listed(4, vec!["x-0000000005".into()]),
    ];
    assert_eq!(world.told(), expected);
}

#[test]
fn two_creates_of_one_directory_never_share_a_transaction() {
    let mut world = World::new(Directories::with(&["/a", "/b"]));
    world.fill();
    world.submit(&[create("/a"), create("/b"), create("/a"), create("/b"), create("/a")], 1);
    world.answer_next();
    assert_eq!(world.write(), [op::MULTI, op::MULTI, op::CREATE]);
    world.answer_all();
    let mut tokens = BTreeSet::new();
    for told in world.told() {
        let Told::Created(_, czxid, path) = told else { panic!("{told:?}") };
        assert!(tokens.insert((path[..2].to_owned(), czxid)));
    }
    assert_eq!(tokens.len(), 5);
}

#[test]
fn a_list_is_not_moved_behind_a_write_in_its_directory_nor_anything_behind_other_requests() {
    let mut world = World::new(Directories::with(&["/a", "/b", "/c", "/a/1"]));
    world.fill();
    world.submit(&[create("/b"), list("/a"), create("/c"), delete("/a/1"), sync("/"), create("/a"), create("/b")], 1);
    world.answer_next();
    let expected = [op::MULTI, op::GET_CHILDREN, op::DELETE, op::SYNC, op::MULTI];
    assert_eq!(world.write(), expected);
    world.answer_all();
    assert!(world.told().contains(&Told::Listed(2, vec!["1".into()])));
}

#[test]
fn of_requests_submitted_back_to_back_only_a_write_and_its_lists_may_go_with_others() {
    let batches = [
        (vec![create("/a"), list("/a"), list("/b")], true),
        (vec![delete("/a/1")], true),
        (vec![create("/a"), create("/b")], false),
        (vec![create("/a"), list("/a"), delete("/b/1")], false),
        (vec![create("/a"), get_data("/a")], false),
        (vec![sync("/a"), delete("/b/1")], false),
    ];
    for (batch, may_wait) in batches {
        let mut world = World::new(Directories::with(&["/a", "/b"]));
        world.fill();
        let tickets: Vec<_> = batch.iter().map(|request| world.rig.submit(request, 1)).collect();
        world.rig.machine.submitted(tickets[0]);
        assert_eq!(world.write().is_empty(), may_wait, "{batch:?}");
    }
}

#[test]
fn where_one_fails_each_gets_its_own_answer_and_a_list_is_made_again() {
    let mut world = World::new(Directories::with(&["/a", "/c"]));
    world.fill();
    world.submit(&[create("/a"), list("/a"), create("/b"), list("/b"), delete("/c/1"), delete("/c")], 1);
    world.answer_next();
    assert_eq!(world.write(), [op::MULTI, op::MULTI_READ]);
    // What comes later stays behind.
    world.submit(&[list("/c")], 7);
    for _ in 0..LEAST {
        world.answer_next();
    }
    let again = [op::CREATE, op::GET_CHILDREN, op::CREATE, op::GET_CHILDREN, op::DELETE, op::DELETE];
    assert_eq!(world.write(), again, "one by one, in their order");
    world.answer_all();
    let expected = [
        Told::Listed(7, Vec::new()),
        Told::Created(1, world.server.zxid - 3, "/a/x-0000000005".into()),
        Told::Listed(2, vec!["x-0000000005".into()]),
        failed(3, "NoNode"),
        failed(4, "NoNode"),
        failed(5, "NoNode"),
        Told::Done(6),
    ];
    assert_eq!(world.told(), expected);
}

#[test]
fn requests_that_go_again_can_be_withdrawn_until_they_are_written() {
    let mut world = World::new(Directories::with(&["/a"]));
    world.fill();
    let tickets = [create("/a"), list("/a"), create("/b")].map(|request| world.rig.submit(&request, 1));
    world.answer_next();
    world.write();
    assert!(!world.rig.withdraw(tickets[0]), "on the wire");
    // A heartbeat that is due goes in front.
    world.rig.now += T / 3;
    world.rig.machine.timer(world.rig.now).unwrap();
    (0..LEAST).for_each(|_| world.answer_next());
    assert!(world.rig.withdraw(tickets[2]) && world.rig.withdraw(tickets[0]));
    assert_eq!(world.write(), [op::SYNC, op::GET_CHILDREN]);
}

#[test]
fn a_lost_connection_costs_what_was_on_the_wire_and_no_more() {
    let waiting = [create("/a"), list("/a"), create("/b"), list("/b")];
    // Still waiting; together on the wire; refused, to go again.
    for (answers, expected) in [(0, vec![]), (1, vec![1, 3, 2, 4]), (LEAST, vec![])] {
        let directories: &[&str] = if answers == LEAST { &["/a"] } else { &["/a", "/b"] };
        let mut world = World::new(Directories::with(directories));
        world.fill();
        world.submit(&waiting, 1);
        if answers > 0 {
            world.answer_next();
            world.write();
            (1..answers).for_each(|_| world.answer_next());
        }
        if answers == LEAST {
            // The transaction.
            world.answer_next();
        }
        world.rig.disconnect();
        world.arrived.clear();
        assert_eq!(world.told(), expected.iter().map(|tag| failed(*tag, "lost")).collect::<Vec<_>>());
        world.server.paths.insert("/b".into());
        world.rig.connect();
        world.write();
        world.answer_all();
        let tags: Vec<_> = world.told().iter().filter_map(Told::tag).collect();
        assert_eq!(tags, if expected.is_empty() { vec![1, 2, 3, 4] } else { vec![] });
    }
}

#[test]
fn a_session_that_ends_tells_each_of_those_that_went_together_and_that_wait() {
    let mut world = World::new(Directories::with(&["/a", "/b"]));
    world.fill();
    world.submit(&[create("/a"), list("/a"), create("/b"), list("/b")], 1);
    world.answer_next();
    world.write();
    world.submit(&[create("/a"), list("/a")], 5);
    world.rig.leave(SessionError::Closed, None);
    let ended: Vec<_> = [1, 3, 2, 4, 5, 6].map(|tag| failed(tag, "Closed")).into();
    assert_eq!(world.told(), ended);
    assert_eq!(world.write(), [op::CLOSE_SESSION]);
    world.answer_all();
    assert!(world.told().is_empty() && world.rig.machine.is_over(world.rig.now));
}

#[test]
fn what_goes_together_is_neither_larger_than_a_request_may_be_nor_than_what_is_written_at_once() {
    let most = 200;
    let mut world = World::with(
        SessionConfig { max_request_size: most, ..server::config() },
        Directories::with(&["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i"]),
    );
    world.fill();
    let creates = ["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i"].map(create);
    world.submit(&creates, 1);
    world.answer_next();
    let frames = world.rig.written();
    assert!(frames.iter().all(|frame| frame.size <= most), "{frames:?}");
    assert_eq!(ops(&frames), [op::MULTI, op::MULTI, op::CREATE]);
    world.arrived.extend(frames);
    world.answer_all();
    assert_eq!(world.told().len(), creates.len());

    let large = |tag: usize| delete(&format!("/{tag}{}", "x".repeat(3000)));
    let mut world = World::new(Directories::default());
    world.fill();
    (0..60).for_each(|tag| _ = world.rig.submit(&large(tag), 1));
    world.answer_next();
    let mut pieces = 0;
    while world.rig.machine.has_output() {
        let mut piece = Vec::new();
        world.rig.machine.take_output(world.rig.now, &mut piece);
        assert!(piece.len() <= OUTPUT_CHUNK);
        pieces += 1;
    }
    assert_eq!(pieces, 3);
}

#[test]
fn a_write_goes_with_all_of_its_lists_wherever_a_piece_ends() {
    for length in 900..1000 {
        let name = |index: u32| format!("/{index:03}{}", "x".repeat(length));
        let names: Vec<String> = (0..100).map(name).collect();
        let mut world = World::new(Directories::with(&names.iter().map(String::as_str).collect::<Vec<_>>()));
        world.fill();
        world.submit(&names.iter().flat_map(|name| [create(name), list(name)]).collect::<Vec<_>>(), 1);
        world.answer_next();
        world.write();
        world.answer_all();
        let told = world.told();
        assert_eq!(told.len(), 200);
        assert!(told.iter().all(|told| !matches!(told, Told::Listed(_, names) if names.len() != 1)), "{length}");
    }
}

#[test]
fn a_server_that_refuses_transactions_or_lists_together_is_not_asked_again() {
    for unknown in [op::MULTI, op::MULTI_READ] {
        let mut world = World::new(Directories { unknown: vec![unknown], ..Directories::with(&["/a", "/b"]) });
        for round in 0..2 {
            world.fill();
            world.submit(&[create("/a"), list("/a"), create("/b"), list("/b")], 1);
            let mut seen = Vec::new();
            while !world.arrived.is_empty() {
                world.answer_next();
                seen.extend(world.write());
            }
            assert_eq!(seen.contains(&unknown), round == 0, "{unknown}: {seen:?}");
            let told = world.told();
            assert!(told.len() == 4 && !told.iter().any(|told| matches!(told, Told::Failed(..))), "{told:?}");
        }
    }
}

#[test]
fn lists_whose_replies_are_too_large_together_are_made_one_by_one() {
    let mut world = World::new(Directories::with(&["/a", "/b"]));
    world.fill();
    world.submit(&[create("/a"), list("/a"), create("/b"), list("/b")], 1);
    world.answer_next();
    world.write();
    (0..LEAST).for_each(|_| world.answer_next());
    let xid = world.arrived[0].xid;
    assert_eq!(world.arrived[0].op, op::MULTI_READ);
    world.rig.input(|machine, actions| machine.frame_too_large(xid, 5000, 4000, actions));
    world.rig.disconnect();
    world.arrived.clear();
    world.rig.connect();
    assert_eq!(world.write(), [op::GET_CHILDREN, op::GET_CHILDREN]);
    world.answer_all();
    assert!(!world.told().iter().any(|told| matches!(told, Told::Failed(..))));
}

#[test]
fn a_reply_without_a_result_for_each_ends_the_connection() {
    let mut world = World::new(Directories::with(&["/a", "/b"]));
    world.fill();
    world.submit(&[create("/a"), create("/b")], 1);
    world.answer_next();
    world.write();
    (1..LEAST).for_each(|_| world.answer_next());
    let xid = world.arrived[0].xid;
    let reply = server::reply(xid, 99, 0, &[header(2, false, 0), header(-1, true, -1)].concat());
    assert!(world.rig.receive(&reply).is_err());
    world.rig.disconnect();
    assert_eq!(world.told(), [failed(1, "lost"), failed(2, "lost")]);
}

#[test]
fn the_end_of_the_session_in_the_reply_ends_all() {
    let mut world = World::new(Directories::with(&["/a", "/b"]));
    world.fill();
    world.submit(&[create("/a"), create("/b")], 1);
    world.answer_next();
    world.write();
    (1..LEAST).for_each(|_| world.answer_next());
    let xid = world.arrived[0].xid;
    world.rig.receive(&server::reply(xid, 99, server::EXPIRED, b"")).unwrap();
    assert_eq!(world.told(), [failed(1, "Expired"), failed(2, "Expired")]);
}

/// One contender of the random run: it creates and lists, and later deletes.
#[derive(Clone)]
enum Contender {
    Idle,
    Enters { create: Option<Told>, list: Option<Told> },
    Holds(String),
    Leaves,
}

#[test]
fn however_it_goes_each_caller_is_answered_once_and_finds_itself_in_its_list() {
    const SEED: u64 = 0x00C0_11EC;
    const DIRECTORIES: [&str; 6] = ["/a", "/b", "/c", "/d", "/e", "/f"];
    let mut rng = fastrand::Rng::with_seed(SEED);
    let (mut answered, mut together, mut refused, mut lost) = (0, 0, 0, 0);
    for _ in 0..60 {
        let mut world = World::new(Directories::with(&DIRECTORIES));
        if rng.u8(..6) == 0 {
            world.server.unknown.push(*rng.choice(&[op::MULTI, op::MULTI_READ]).unwrap());
        }
        // A contender's tags are those of its create or delete, and of its list.
        let mut contenders = vec![Contender::Idle; 40];
        let mut tokens = BTreeSet::new();
        let mut is_up = true;
        for step in 0..1500 {
            match rng.u8(..40) {
                0..16 => {
                    let index = rng.usize(..contenders.len());
                    let tag = u32::try_from(2 * index).unwrap();
                    match contenders[index].clone() {
                        Contender::Idle => {
                            let directory = *rng.choice(&DIRECTORIES).unwrap();
                            world.rig.submit(&create(directory), tag + 1);
                            world.rig.submit(&list(directory), tag + 2);
                            contenders[index] = Contender::Enters { create: None, list: None };
                        }
                        Contender::Holds(path) => {
                            world.rig.submit(&delete(&path), tag + 1);
                            contenders[index] = Contender::Leaves;
                        }
                        Contender::Enters { .. } | Contender::Leaves => {}
                    }
                }
                16..26 if is_up => {
                    let frames = world.rig.written();
                    together += frames.iter().filter(|frame| frame.op == op::MULTI).count();
                    world.arrived.extend(frames);
                }
                26..37 if is_up && !world.arrived.is_empty() => world.answer_next(),
                37 => {
                    // An administrator's delete makes the one that comes with it fail, and a directory may be gone for a while.
                    let path = world.server.paths.iter().nth(rng.usize(..world.server.paths.len())).unwrap().clone();
                    let is_directory = DIRECTORIES.contains(&path.as_str());
                    let is_used = world.server.paths.iter().any(|other| other.starts_with(&format!("{path}/")));
                    if !(is_directory && is_used) {
                        world.server.paths.remove(&path);
                    }
                }
                38 => drop(DIRECTORIES.map(|path| world.server.paths.insert(path.into()))),
                39 if step % 7 == 0 && is_up => {
                    world.rig.disconnect();
                    world.arrived.clear();
                    is_up = false;
                }
                _ if !is_up => {
                    world.rig.connect();
                    is_up = true;
                }
                _ => world.rig.now += Duration::from_micros(rng.u64(..30)),
            }
            let log = world.rig.take_log();
            for told in log {
                let Some(tag) = told.tag() else { continue };
                answered += 1;
                match &told {
                    Told::Failed(_, why) if why == "lost" => lost += 1,
                    Told::Failed(_, why) => {
                        refused += 1;
                        assert!(why == "NoNode", "{told:?}");
                    }
                    _ => {}
                }
                let contender = &mut contenders[(tag as usize - 1) / 2];
                match contender {
                    Contender::Enters { create, list } => {
                        let place = if tag % 2 == 1 { create } else { list };
                        assert!(place.replace(told).is_none(), "answered twice, seed {SEED:#x}");
                    }
                    Contender::Leaves => {
                        assert!(tag % 2 == 1);
                        *contender = Contender::Idle;
                    }
                    Contender::Idle | Contender::Holds(_) => panic!("{told:?} answers nothing, seed {SEED:#x}"),
                }
                let Contender::Enters { create: Some(create), list: Some(list) } = contender.clone() else { continue };
                *contender = Contender::Idle;
                if let Told::Created(_, czxid, path) = create {
                    let (directory, name) = path.rsplit_once('/').unwrap();
                    assert!(tokens.insert((directory.to_owned(), czxid)), "two with one token, seed {SEED:#x}");
                    if let Told::Listed(_, names) = list {
                        let is_there = world.server.paths.contains(&path);
                        assert!(
                            names.iter().any(|other| other == name) || !is_there,
                            "not in its own list, seed {SEED:#x}"
                        );
                    }
                    *contender = Contender::Holds(path);
                }
            }
        }
        world.rig.leave(SessionError::Closed, None);
        let open = |contender: &Contender| match contender {
            Contender::Enters { create, list } => usize::from(create.is_none()) + usize::from(list.is_none()),
            Contender::Leaves => 1,
            Contender::Idle | Contender::Holds(_) => 0,
        };
        let ended = world.rig.take_log().iter().filter(|told| told.tag().is_some()).count();
        assert_eq!(ended, contenders.iter().map(open).sum::<usize>(), "without an end, seed {SEED:#x}");
    }
    assert!(
        answered > 10_000 && together > 500 && refused > 200 && lost > 200,
        "{:?}",
        (answered, together, refused, lost)
    );
}
