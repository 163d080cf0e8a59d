//! How sessions end, and what everybody is told then.

use std::time::{Duration, Instant};

use curator_locks::{
    CreateMode,
    testing::{Direction, FaultProxy},
    unversioned::{Request, SessionError, SessionEvent, WatchEvent, now},
};

use crate::{
    opened::{Kind, LONG, Opened, Pending, Watch, create, exists, is_there, observer},
    support::{
        eventually,
        machine::{Machine, since},
        server,
    },
};

/// What does not wait for a server.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A session with a znode of its own and a watch on it, behind a proxy.
struct Stage {
    /// Before the proxy, as they are dropped in this order.
    opened: Opened,
    proxy: FaultProxy,
    mine: String,
    watch: Watch,
}

impl Stage {
    fn new(kind: Kind, timeout: Duration) -> Stage {
        let proxy = FaultProxy::start(server().connect_string()).unwrap();
        let opened = kind.open(&proxy.connect_string(), timeout);
        let mine = opened.path("mine");
        opened.ask(create(&mine, CreateMode::Ephemeral)).unwrap();
        let watch = opened.watch(Request::GetData { path: mine.clone(), watch: true });
        Stage { opened, proxy, mine, watch }
    }

    /// Requests, of which the first is with the server, that nobody answers.
    fn unanswered(&self) -> Vec<Pending> {
        self.proxy.black_hole(Direction::ToClient);
        self.opened.submit(vec![exists("/"), exists("/")])
    }

    /// That everything ends in this error, now and from now on, and nothing more is told.
    fn assert_over(&self, pending: &[Pending], is_it: fn(&SessionError) -> bool) {
        for pending in pending {
            let reply = pending.wait();
            assert!(reply.as_ref().is_err_and(is_it), "{reply:?}");
        }
        let told: Vec<WatchEvent> = self.watch.rest().into_iter().filter(|told| !is_of_connection(told)).collect();
        assert_eq!(told, [WatchEvent::Ended]);
        assert!(self.opened.session.is_ended() && self.opened.session.valid_until().is_none());
        assert_eq!(self.opened.session.connection(), 0);
        let (late, watch) = self.opened.send_watching(Request::GetData { path: "/".into(), watch: true });
        assert!(late.wait().as_ref().is_err_and(is_it), "after the end");
        assert_eq!(watch.rest(), []);
    }
}

fn is_of_connection(told: &WatchEvent) -> bool {
    matches!(told, WatchEvent::Disconnected | WatchEvent::Reconnected { .. })
}

fn is_expired(error: &SessionError) -> bool {
    matches!(error, SessionError::Expired)
}

fn is_closed(error: &SessionError) -> bool {
    matches!(error, SessionError::Closed)
}

/// A session that was away for so long that the server has ended it is told so with the next connection.
pub(crate) fn a_session_that_the_server_has_ended_is_told_so(kind: Kind) {
    let stage = Stage::new(kind, Duration::from_secs(2));
    let session = format!("0x{:x}", stage.opened.session.id());
    stage.proxy.refuse();
    stage.proxy.cut();
    assert_eq!(stage.opened.next_event(), SessionEvent::Disconnected);
    let pending = stage.opened.submit(vec![exists("/"), exists("/")]);
    eventually("the server has ended it", || {
        let dump = server().four_letter_word("dump").unwrap();
        !dump.split("Connections dump").next().unwrap().contains(&session)
    });
    stage.proxy.pass().unwrap();
    assert_eq!(stage.opened.next_event(), SessionEvent::Expired);
    stage.assert_over(&pending, is_expired);
    eventually("nothing runs for it", || stage.opened.session.is_finished());
    assert!(stage.opened.events.try_recv().is_err(), "nothing follows");
}

/// Requests that nobody has answered, watches, and at the server the znodes.
pub(crate) fn close_ends_everything_and_deletes_the_znodes(kind: Kind) {
    let (stage, other) = (Stage::new(kind, LONG), observer());
    assert!(is_there(&other, &stage.mine));
    stage.opened.session.close(Instant::now() + LONG);
    assert!(stage.opened.session.is_finished() && !is_there(&other, &stage.mine), "before it returned");
    stage.assert_over(&[], is_closed);
    assert!(stage.opened.events.try_recv().is_err(), "its own end is told to nobody");
    stage.opened.session.close(Instant::now() + LONG);
}

/// While no server answers, the callers are told at once, and it takes no longer than it may.
pub(crate) fn close_returns_at_its_deadline(kind: Kind) {
    let machine = Machine::watch();
    let stage = Stage::new(kind, LONG);
    let pending = stage.unanswered();
    let (begin, time) = (Instant::now(), Duration::from_millis(300));
    stage.opened.session.close(begin + time);
    machine.assert_at_most("closed", since(begin), time + AT_ONCE);
    stage.assert_over(&pending, is_closed);
    stage.proxy.pass().unwrap();
    let other = observer();
    eventually("its znodes go all the same", || !is_there(&other, &stage.mine));
}

/// Everybody is told without a wait, though no server answers; the znodes go once no holder may rely on them.
pub(crate) fn abandon_ends_everything_at_once_and_the_znodes_go(kind: Kind) {
    let machine = Machine::watch();
    let (stage, other) = (Stage::new(kind, Duration::from_secs(3)), observer());
    let pending = stage.unanswered();
    let valid_until = stage.opened.session.valid_until().unwrap();
    let begin = Instant::now();
    stage.opened.session.abandon();
    stage.assert_over(&pending, is_expired);
    machine.assert_at_most("abandoned", since(begin), AT_ONCE);
    assert!(stage.opened.events.try_recv().is_err(), "its own end is told to nobody");
    stage.proxy.pass().unwrap();
    eventually("its znodes go", || !is_there(&other, &stage.mine));
    assert!(now() >= valid_until, "they went under their holder");
    eventually("nothing runs for it", || stage.opened.session.is_finished());
}

/// The last handle is the session's end, for the server as well.
pub(crate) fn a_session_that_is_dropped_is_closed(kind: Kind) {
    let other = observer();
    let opened = kind.begin(&server().connect_string(), LONG, &[]);
    opened.await_connection(1);
    let mine = other.path("mine");
    opened.ask(create(&mine, CreateMode::Ephemeral)).unwrap();
    opened.let_go();
    eventually("its znodes go", || !is_there(&other, &mine));
}
