//! `FaultProxy`.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use curator_locks::testing::{Direction, Fault, FaultProxy, RequestMatch, TestingServer, op};

use crate::support::{
    eventually, namespace,
    raw::{CREATE, NO_NODE, OK, PING, RawClient, create_body},
    server,
};

const SESSION: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

/// A proxy before the server that all tests share, and a client behind the proxy.
fn stage() -> (FaultProxy, RawClient) {
    stage_at(server())
}

/// The same with a server that serves nobody else.
fn stage_alone() -> (TestingServer, FaultProxy, RawClient) {
    let server = TestingServer::start().unwrap();
    let (proxy, client) = stage_at(&server);
    (server, proxy, client)
}

fn stage_at(server: &TestingServer) -> (FaultProxy, RawClient) {
    let proxy = FaultProxy::start(server.connect_string()).unwrap();
    let client = connect(&proxy);
    (proxy, client)
}

fn connect(proxy: &FaultProxy) -> RawClient {
    RawClient::connect(&proxy.connect_string(), SESSION).unwrap()
}

/// Paths that no other test uses.
fn own_paths() -> impl Fn(&str) -> String {
    let test = namespace();
    move |name| format!("/{test}-{name}")
}

/// Whether the znode exists, as the shared server says without the proxy.
fn exists(path: &str) -> bool {
    RawClient::connect(&server().connect_string(), SESSION).unwrap().exists(path).unwrap() == OK
}

/// The client gets nothing, and its connection is not closed.
fn hears_nothing(client: &mut RawClient) -> bool {
    client.stream.set_read_timeout(Some(SHORT)).unwrap();
    let error = client.stream.peek(&mut [0]).err().map(|error| error.kind());
    client.stream.set_read_timeout(Some(LONG)).unwrap();
    matches!(error, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn hears_the_end(client: &mut RawClient) -> bool {
    matches!(client.stream.read(&mut [0; 64]), Ok(0))
}

fn threads_of_proxies() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("fault-proxy")).count()
}

#[test]
fn everything_passes_and_is_counted() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    assert_eq!(client.create(&at("a"), false).unwrap(), OK);
    assert_eq!(client.exists(&at("missing")).unwrap(), NO_NODE);
    assert_eq!(client.ping().unwrap(), OK);
    assert!(exists(&at("a")));
    assert_eq!((proxy.connections(), proxy.open_connections()), (1, 1));
    assert_eq!([op::CREATE, op::EXISTS, op::PING, op::DELETE].map(|op| proxy.requests(op)), [1, 1, 1, 0]);
    let log = proxy.log();
    assert_eq!(log.iter().map(|record| record.op).collect::<Vec<_>>(), [op::CREATE, op::EXISTS, op::PING]);
    assert_eq!(log.iter().map(|record| record.error).collect::<Vec<_>>(), [Some(OK), Some(NO_NODE), Some(OK)]);
    assert_eq!(log[0].path.as_deref(), Some(&*at("a")));
    assert!(log.iter().all(|record| record.connection == 1 && record.replied.unwrap() >= record.received));
    proxy.clear_log();
    assert!(proxy.log().is_empty());
    assert_eq!(proxy.requests(op::CREATE), 1);
}

#[test]
fn a_client_that_closes_is_gone_at_the_server_too() {
    let (server, proxy, client) = stage_alone();
    drop(client);
    eventually("the proxy has no connection", || proxy.open_connections() == 0);
    // The one that asks is counted.
    eventually("the server has none", || server.metric("zk_num_alive_connections").unwrap() == 1);
}

#[test]
fn four_letter_words_pass() {
    let (proxy, _client) = stage();
    let mut stream = TcpStream::connect(proxy.connect_string()).unwrap();
    stream.write_all(b"ruok").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "imok");
}

#[test]
fn cut_ends_connections_in_order_and_reset_does_not() {
    let (proxy, mut client) = stage();
    assert_eq!(proxy.cut(), 1);
    assert!(hears_the_end(&mut client));
    let mut client = connect(&proxy);
    assert_eq!(proxy.reset(), 1);
    assert_eq!(client.stream.read(&mut [0; 64]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.cut(), 0);
    assert_eq!(proxy.connections(), 2);
    assert_eq!(connect(&proxy).ping().unwrap(), OK);
}

#[test]
fn refused_is_refused_until_it_passes_again() {
    let (proxy, mut client) = stage();
    proxy.refuse();
    proxy.refuse();
    assert_eq!(TcpStream::connect(proxy.connect_string()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(client.ping().unwrap(), OK, "connections that there were stay");
    proxy.pass().unwrap();
    proxy.pass().unwrap();
    assert_eq!(connect(&proxy).ping().unwrap(), OK);
}

#[test]
fn a_server_that_is_not_there_resets_the_client() {
    let (server, proxy, mut client) = stage_alone();
    server.kill().unwrap();
    assert!(client.receive().is_err());
    drop(client);
    let error = RawClient::connect(&proxy.connect_string(), SESSION).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    eventually("the proxy has no connection", || proxy.open_connections() == 0);
    server.restart().unwrap();
    assert_eq!(connect(&proxy).ping().unwrap(), OK);
}

#[test]
fn a_delay_is_added_in_each_direction_but_takes_no_throughput() {
    let (proxy, mut client) = stage();
    proxy.delay(Duration::from_millis(100));
    let begin = Instant::now();
    for _ in 0..300 {
        client.send(PING, &[]).unwrap();
    }
    for _ in 0..300 {
        assert_eq!(client.receive().unwrap().code, OK);
    }
    let took = begin.elapsed();
    println!("300 pipelined pings took {took:?}");
    assert!(took >= Duration::from_millis(200) && took < LONG / 2, "{took:?}");
    proxy.pass().unwrap();
    assert_eq!(client.ping().unwrap(), OK);
}

#[test]
fn a_black_hole_to_the_server_keeps_requests_and_delivers_them_afterwards() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    proxy.black_hole(Direction::ToServer);
    client.send(CREATE, &create_body(&at("kept"), false)).unwrap();
    eventually("the request has reached the proxy", || proxy.requests(op::CREATE) == 1);
    assert!(hears_nothing(&mut client));
    assert!(!exists(&at("kept")));
    proxy.pass().unwrap();
    assert_eq!(client.receive().unwrap().code, OK);
    assert!(exists(&at("kept")));
}

#[test]
fn a_black_hole_to_the_client_lets_requests_take_effect() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    proxy.black_hole(Direction::ToClient);
    client.send(CREATE, &create_body(&at("done"), false)).unwrap();
    eventually("the server has done it", || exists(&at("done")));
    assert!(hears_nothing(&mut client));
    proxy.pass().unwrap();
    assert_eq!(client.receive().unwrap().code, OK);
}

#[test]
fn a_second_black_hole_in_the_other_direction_leaves_the_first_one_as_it_is() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    proxy.black_hole(Direction::ToClient);
    client.send(CREATE, &create_body(&at("done"), false)).unwrap();
    eventually("the server has done it", || exists(&at("done")));
    proxy.black_hole(Direction::ToServer);
    client.send(CREATE, &create_body(&at("kept"), false)).unwrap();
    eventually("the request has reached the proxy", || proxy.requests(op::CREATE) == 2);
    assert!(hears_nothing(&mut client), "the first one is gone");
    assert!(!exists(&at("kept")));
    proxy.pass().unwrap();
    assert_eq!(client.receive().unwrap().code, OK);
    assert_eq!(client.receive().unwrap().code, OK);
}

#[test]
fn a_black_hole_swallows_new_connections_and_hides_the_end_of_old_ones() {
    let (server, proxy, mut client) = stage_alone();
    proxy.black_hole(Direction::Both);
    let mut newcomer = TcpStream::connect(proxy.connect_string()).unwrap();
    newcomer.set_read_timeout(Some(SHORT)).unwrap();
    newcomer.write_all(b"ruok").unwrap();
    assert!(newcomer.read(&mut [0; 4]).is_err());
    server.kill().unwrap();
    assert!(hears_nothing(&mut client));
    proxy.pass().unwrap();
    assert!(client.receive().is_err());
}

#[test]
fn a_client_that_left_a_black_hole_does_not_reach_the_server_afterwards() {
    let (server, proxy, mut client) = stage_alone();
    proxy.black_hole(Direction::Both);
    let mut ghost = TcpStream::connect(proxy.connect_string()).unwrap();
    ghost.set_read_timeout(Some(SHORT)).unwrap();
    let (id, password) = (client.session_id.to_be_bytes(), client.password.clone());
    let hello = [&[0; 12], &60_000i32.to_be_bytes()[..], &id, &[0, 0, 0, 16], &password, &[0]].concat();
    ghost.write_all(&[&(hello.len() as i32).to_be_bytes()[..], &hello].concat()).unwrap();
    drop(ghost);
    eventually("the proxy has seen it come and go", || proxy.connections() == 2 && proxy.open_connections() == 1);
    proxy.pass().unwrap();
    assert_eq!(client.ping().unwrap(), OK, "the session was not taken away");
    // This one, and the one that asks; those that have asked before end a moment later.
    eventually("the ghost has none", || server.metric("zk_num_alive_connections").unwrap() == 2);
}

#[test]
fn the_connection_is_cut_after_the_kth_request() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    let fault = proxy.cut_after(3);
    assert_eq!(client.create(&at("1"), false).unwrap(), OK);
    assert_eq!(client.ping().unwrap(), OK);
    assert_eq!(client.create(&at("2"), false).unwrap(), OK);
    client.send(CREATE, &create_body(&at("3"), false)).unwrap();
    fault.wait_for_hits(1, LONG).unwrap();
    eventually("the connection ends", || client.receive().is_err());
    eventually("the server has got it", || exists(&at("3")));
    assert_eq!(connect(&proxy).ping().unwrap(), OK);
}

#[test]
fn a_dropped_reply_leaves_the_request_done_and_the_connection_open() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    let requests = RequestMatch::creates().path(|path| path.contains("-lock")).skip(1).times(2);
    let fault = proxy.inject(requests, Fault::DropReply);
    assert_eq!(client.create(&at("other"), false).unwrap(), OK);
    assert_eq!(client.create(&at("lock1"), false).unwrap(), OK);
    client.send(CREATE, &create_body(&at("lock2"), false)).unwrap();
    client.send(CREATE, &create_body(&at("lock3"), false)).unwrap();
    let xid = client.send(CREATE, &create_body(&at("lock4"), false)).unwrap();
    assert_eq!(client.receive().unwrap().xid, xid);
    assert_eq!(fault.hits(), 2);
    assert!((1..=4).all(|number| exists(&at(&format!("lock{number}")))));
    assert!(proxy.log().iter().all(|record| record.error == Some(OK)), "{:?}", proxy.log());
}

#[test]
fn a_cut_instead_of_the_reply_leaves_the_request_done() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    let fault = proxy.inject(RequestMatch::op(op::CREATE), Fault::CutInsteadOfReply);
    client.send(CREATE, &create_body(&at("done"), true)).unwrap();
    assert!(hears_the_end(&mut client));
    assert_eq!(fault.hits(), 1);
    assert!(exists(&at("done")));
    let mut client = RawClient::resume(&proxy.connect_string(), SESSION, client.session_id, &client.password).unwrap();
    assert_eq!(client.exists(&at("done")).unwrap(), OK, "the session lives on");
}

#[test]
fn a_cut_instead_of_the_request_leaves_it_undone() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    let fault = proxy.inject(RequestMatch::any(), Fault::CutInsteadOfRequest);
    client.send(CREATE, &create_body(&at("undone"), false)).unwrap();
    assert!(hears_the_end(&mut client));
    assert_eq!(fault.hits(), 1);
    assert!(!exists(&at("undone")));
}

#[test]
fn a_dropped_request_leaves_the_connection_open() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    let _fault = proxy.inject(RequestMatch::any(), Fault::DropRequest);
    client.send(CREATE, &create_body(&at("undone"), false)).unwrap();
    assert_eq!(client.ping().unwrap(), OK);
    assert!(!exists(&at("undone")));
}

#[test]
fn a_refused_request_is_undone_and_its_error_comes_in_its_turn() {
    const THROTTLED: i32 = -127;
    let (proxy, mut client) = stage();
    let fault = proxy.inject(RequestMatch::creates().skip(1), Fault::Refuse(THROTTLED));
    let names = ["first", "refused", "last"].map(own_paths());
    let xids = names.each_ref().map(|path| client.send(CREATE, &create_body(path, false)).unwrap());
    let replies = names.each_ref().map(|_| client.receive().unwrap());
    assert_eq!(replies.map(|reply| reply.xid), xids);
    assert_eq!(replies.map(|reply| reply.code), [OK, THROTTLED, OK]);
    assert_eq!(names.each_ref().map(|path| exists(path)), [true, false, true]);
    let logged: Vec<Option<i32>> = proxy.log().iter().map(|record| record.error).collect();
    assert_eq!(logged, [Some(OK), Some(THROTTLED), Some(OK)]);
    assert_eq!(fault.hits(), 1);
}

#[test]
fn a_held_reply_comes_when_released() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    let fault = proxy.inject(RequestMatch::creates(), Fault::HoldReply);
    client.send(CREATE, &create_body(&at("done"), false)).unwrap();
    fault.wait_for_hits(1, LONG).unwrap();
    assert!(exists(&at("done")));
    client.send(PING, &[]).unwrap();
    assert!(hears_nothing(&mut client));
    assert_eq!(connect(&proxy).ping().unwrap(), OK, "other connections are not held");
    fault.release();
    assert_eq!(client.receive().unwrap().xid, 1);
    assert_eq!(client.receive().unwrap().xid, -2);
}

#[test]
fn a_held_request_goes_on_when_released() {
    let (proxy, mut client) = stage();
    let at = own_paths();
    let fault = proxy.inject(RequestMatch::creates().times(u64::MAX), Fault::HoldRequest);
    client.send(CREATE, &create_body(&at("held"), false)).unwrap();
    fault.wait_for_hits(1, LONG).unwrap();
    assert!(!exists(&at("held")));
    fault.release();
    assert_eq!(client.receive().unwrap().code, OK);
    assert_eq!(client.create(&at("next"), false).unwrap(), OK, "a released fault claims nothing");
}

#[test]
fn waiting_for_a_hit_ends_at_its_time() {
    let (proxy, _client) = stage();
    let fault = proxy.inject(RequestMatch::any(), Fault::DropReply);
    let error = fault.wait_for_hits(1, Duration::from_millis(20)).unwrap_err();
    assert!(error.to_string().contains("DropReply"), "{error}");
}

#[test]
fn a_dropped_proxy_ends_its_connections_and_threads_in_every_state() {
    let server = TestingServer::start().unwrap();
    let conditions: [fn(&FaultProxy); 5] = [
        |_| (),
        |proxy| proxy.black_hole(Direction::Both),
        |proxy| proxy.delay(Duration::from_secs(3600)),
        FaultProxy::refuse,
        |proxy| drop(proxy.inject(RequestMatch::any(), Fault::HoldRequest)),
    ];
    for condition in conditions {
        let proxy = FaultProxy::start(server.connect_string()).unwrap();
        let mut clients: Vec<RawClient> = (0..3).map(|_| connect(&proxy)).collect();
        condition(&proxy);
        for client in &mut clients {
            client.send(CREATE, &create_body("/a", false)).unwrap();
        }
        let _newcomer = TcpStream::connect(proxy.connect_string());
        let begin = Instant::now();
        drop(proxy);
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        assert!(clients.iter_mut().all(|client| {
            client.stream.set_read_timeout(Some(LONG)).unwrap();
            client.stream.read_to_end(&mut Vec::new()).is_ok()
        }));
    }
}

/// In a process of its own, because the threads of other tests' proxies have the same names.
#[test]
fn a_dropped_proxy_leaves_no_thread() {
    if std::env::var_os("TESTING_CHILD").is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "proxy::a_dropped_proxy_leaves_no_thread"])
            .env("TESTING_CHILD", "threads")
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        return;
    }
    let (proxy, _client) = stage();
    proxy.black_hole(Direction::Both);
    let _newcomer = TcpStream::connect(proxy.connect_string()).unwrap();
    // A thread has its name once it runs.
    eventually("its threads run", || threads_of_proxies() >= 5);
    drop(proxy);
    eventually("all threads have ended", || threads_of_proxies() == 0);
}

mod slow {
    use super::*;

    #[test]
    fn a_hundred_cuts_under_load_lose_no_thread_and_no_connection() {
        let (proxy, _client) = stage();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut pings = 0;
                        while proxy.connections() < 200 {
                            let client = RawClient::connect(&proxy.connect_string(), SESSION);
                            if let Ok(mut client) = client {
                                while client.ping().is_ok() {
                                    pings += 1;
                                }
                            }
                        }
                        pings
                    })
                })
                .collect();
            while !clients.iter().all(thread::ScopedJoinHandle::is_finished) {
                proxy.cut();
                proxy.reset();
            }
            let pings: u32 = clients.into_iter().map(|client| client.join().unwrap()).sum();
            println!("{pings} pings over {} connections", proxy.connections());
        });
        eventually("all connections are gone", || proxy.open_connections() == 0);
    }
}
