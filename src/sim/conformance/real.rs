//! Real servers as those of a row: plain TCP.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::dialogue::{Came, Servers, named};
use crate::testing::{TestingCluster, TestingServer};

/// One server, or several.
pub(super) enum Real {
    Alone(Box<TestingServer>),
    Cluster(TestingCluster),
}

pub(super) struct Streams<'a> {
    servers: &'a Real,
    streams: Vec<TcpStream>,
    begin: Instant,
}

impl<'a> Streams<'a> {
    pub(super) fn new(servers: &'a Real) -> Self {
        Streams { servers, streams: Vec::new(), begin: Instant::now() }
    }
}

impl Real {
    fn server(&self, at: &str) -> &TestingServer {
        match self {
            Real::Alone(server) => server,
            Real::Cluster(cluster) => &cluster.servers()[number(cluster, at)],
        }
    }
}

fn number(cluster: &TestingCluster, at: &str) -> usize {
    let leader = cluster.wait_for_leader(Duration::from_secs(60)).unwrap();
    named(at, leader, cluster.servers().len())
}

impl Servers for Streams<'_> {
    fn connect(&mut self, at: &str) -> usize {
        let stream = TcpStream::connect(self.servers.server(at).connect_string()).unwrap();
        stream.set_nodelay(true).unwrap();
        self.streams.push(stream);
        self.streams.len() - 1
    }

    fn write(&mut self, conn: usize, bytes: &[u8]) {
        // The server may have ended the connection, which reading tells.
        let _ = self.streams[conn].write_all(bytes);
    }

    fn read(&mut self, conn: usize, grace: Duration) -> Came {
        let deadline = Instant::now() + grace;
        let mut length = [0; 4];
        match read(&mut self.streams[conn], &mut length, deadline) {
            Some(true) => {}
            Some(false) => return Came::End,
            None => return Came::Nothing,
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        match read(&mut self.streams[conn], &mut frame, deadline) {
            Some(true) => Came::Frame(frame),
            _ => Came::End,
        }
    }

    fn hang_up(&mut self, conn: usize) {
        let _ = self.streams[conn].shutdown(Shutdown::Both);
    }

    fn cut_off(&mut self, at: &str) {
        let Real::Cluster(cluster) = self.servers else { panic!("one server is nothing to cut") };
        cluster.sever(number(cluster, at)).unwrap();
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn pass(&mut self, time: Duration) {
        thread::sleep(time);
    }
}

/// `false`: the stream has ended. `None`: nothing came in time.
fn read(stream: &mut TcpStream, bytes: &mut [u8], deadline: Instant) -> Option<bool> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left)).unwrap();
    match stream.read_exact(bytes) {
        Ok(()) => Some(true),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        Err(_) => Some(false),
    }
}
