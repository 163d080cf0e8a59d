//! Whom it asks and when, over a transport that only notes that.

#![allow(clippy::unwrap_used)]

use std::net::{TcpListener, TcpStream};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::*;
use crate::session::transport::tcp::Tcp;

const LONG: Duration = Duration::from_secs(20);

/// Notes who is asked, and answers nothing before it may.
struct Notes {
    asked: Sender<SocketAddr>,
    may_end: Receiver<()>,
}

impl Transport for Notes {
    fn connect(
        &self,
        _host: &str,
        address: SocketAddr,
        _limit: Duration,
        _is_over: &dyn Fn() -> bool,
    ) -> io::Result<Connection> {
        self.asked.send(address).unwrap();
        let _ = self.may_end.recv();
        Err(io::ErrorKind::ConnectionRefused.into())
    }
}

/// A connection that nobody uses.
fn connection() -> (Closer, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = Tcp.connect("", listener.local_addr().unwrap(), LONG, &|| false).unwrap();
    (connection.closer, listener.accept().unwrap().0)
}

fn hosts() -> Vec<(String, u16)> {
    (1..=3).map(|k| (format!("127.0.0.{k}"), 2181)).collect()
}

fn search() -> (Search, Receiver<SocketAddr>, Sender<()>) {
    let ((asked, who), (end, may_end)) = (unbounded(), unbounded());
    (Search::new(Arc::new(Notes { asked, may_end }), LONG), who, end)
}

#[test]
fn servers_are_asked_in_turn_after_pauses_that_double_up_to_a_minute() {
    let (mut search, who, end) = search();
    let (closer, _there) = connection();
    let mut now = Instant::now();
    search.begin(now);
    let mut pauses = Vec::new();
    for k in 0..12 {
        let pause = search.until_next(now);
        search.look(now + pause - Duration::from_nanos(1), &hosts(), &closer);
        assert!(who.is_empty());
        now += pause;
        search.look(now, &hosts(), &closer);
        assert_eq!(who.recv_timeout(LONG).unwrap().ip().to_string(), format!("127.0.0.{}", k % 3 + 1));
        end.send(()).unwrap();
        search.asking.take().unwrap().join().unwrap();
        pauses.push(pause.as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000]);
    search.is_over();
    search.begin(now);
    assert_eq!(search.until_next(now), FIRST_PAUSE);
}

#[test]
fn one_server_is_asked_at_a_time() {
    let (mut search, who, end) = search();
    let (closer, _there) = connection();
    let mut now = Instant::now();
    search.begin(now);
    for _ in 0..5 {
        now += search.until_next(now);
        search.look(now, &hosts(), &closer);
    }
    drop(end);
    search.asking.take().unwrap().join().unwrap();
    assert_eq!(who.len(), 1);
}

#[test]
fn without_servers_nobody_is_asked() {
    let (mut search, who, _end) = search();
    search.look(Instant::now(), &[], &connection().0);
    assert!(who.is_empty() && search.asking.is_none());
}

#[test]
fn what_is_answered_after_the_search_is_forgotten() {
    let (mut search, ..) = search();
    let late = search.found.clone();
    search.is_over();
    *late.lock() = Some(("late".into(), ([127, 0, 0, 1], 2181).into()));
    assert_eq!(search.take_found(), None);
}
