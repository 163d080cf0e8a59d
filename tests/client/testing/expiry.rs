//! `expire_session`.

use std::{
    iter,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use curator_locks::testing::{FaultProxy, TestingError, TestingServer, expire_session, op};
use socket2::{Domain, Socket, Type};

use crate::support::{
    eventually,
    raw::{NO_NODE, OK, RawClient},
};

const SESSION: Duration = Duration::from_secs(60);

#[test]
fn an_expired_session_has_lost_its_znodes_and_cannot_be_taken_up() {
    let server = TestingServer::start().unwrap();
    let address = server.connect_string();
    let mut client = RawClient::connect(&address, SESSION).unwrap();
    assert_eq!(client.create("/session", true).unwrap(), OK);
    expire_session(&address, client.session_id, &client.password).unwrap();
    eventually("the connection is ended", || client.ping().is_err());
    assert_eq!(RawClient::resume(&address, SESSION, client.session_id, &client.password).unwrap().session_id, 0);
    assert_eq!(RawClient::connect(&address, SESSION).unwrap().exists("/session").unwrap(), NO_NODE);
}

#[test]
fn a_session_expires_although_its_client_connects_again_and_again() {
    let server = TestingServer::start().unwrap();
    let address = server.connect_string();
    for _ in 0..20 {
        let client = RawClient::connect(&address, SESSION).unwrap();
        let (id, password, done) = (client.session_id, client.password.clone(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let taken_up = RawClient::resume(&address, SESSION, id, &password);
                    if taken_up.is_ok_and(|client| client.session_id == 0) {
                        break;
                    }
                }
            });
            expire_session(&address, id, &password).unwrap();
            done.store(true, Ordering::SeqCst);
        });
        assert_eq!(RawClient::resume(&address, SESSION, id, &password).unwrap().session_id, 0);
    }
}

#[test]
fn a_session_that_there_is_not_is_refused() {
    let server = TestingServer::start().unwrap();
    let address = server.connect_string();
    let client = RawClient::connect(&address, SESSION).unwrap();
    let refused = |id, password: &[u8]| matches!(expire_session(&address, id, password), Err(TestingError::Refused(_)));
    assert!(refused(42, &client.password));
    assert!(refused(client.session_id, &[9; 16]));
    expire_session(&address, client.session_id, &client.password).unwrap();
    assert!(refused(client.session_id, &client.password));
}

#[test]
fn servers_that_do_not_answer_are_passed_over_and_a_chroot_is_ignored() {
    let server = TestingServer::start().unwrap();
    let client = RawClient::connect(&server.connect_string(), SESSION).unwrap();
    let stopped = TestingServer::start().unwrap();
    stopped.stop().unwrap();
    let servers = format!("{},{}/some/chroot", stopped.connect_string(), server.connect_string());
    expire_session(&servers, client.session_id, &client.password).unwrap();
}

#[test]
fn a_server_that_does_not_even_accept_is_passed_over_in_time() {
    let server = TestingServer::start().unwrap();
    let client = RawClient::connect(&server.connect_string(), SESSION).unwrap();
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
    let waiting: Vec<TcpStream> = iter::repeat_with(connect).map_while(Result::ok).take(100).collect();
    assert!(waiting.len() < 100, "its queue has no end");
    let begin = Instant::now();
    expire_session(&format!("{address},{}", server.connect_string()), client.session_id, &client.password).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn the_whole_conversation_is_one_request_on_a_connection() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.connect_string()).unwrap();
    let client = RawClient::connect(&server.connect_string(), SESSION).unwrap();
    expire_session(&proxy.connect_string(), client.session_id, &client.password).unwrap();
    // A server that stands still is asked again.
    let connections = proxy.connections();
    assert!(connections >= 1);
    assert_eq!((proxy.requests(op::CLOSE_SESSION), proxy.log().len() as u64), (connections, connections));
}
