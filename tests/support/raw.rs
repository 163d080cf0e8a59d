//! A client of a few bytes, so that these tests rest on nothing but the server's protocol.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

pub const CREATE: i32 = 1;
pub const EXISTS: i32 = 3;
pub const PING: i32 = 11;
pub const GET_CHILDREN2: i32 = 12;

pub const OK: i32 = 0;
pub const NO_NODE: i32 = -101;
pub const NODE_EXISTS: i32 = -110;

/// One connection with a session.
#[derive(Debug)]
pub struct RawClient {
    pub stream: TcpStream,
    pub session_id: i64,
    pub password: Vec<u8>,
    pub timeout: Duration,
    xid: i32,
}

/// The header of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    pub xid: i32,
    pub code: i32,
}

impl RawClient {
    /// A new session.
    pub fn connect(address: &str, timeout: Duration) -> io::Result<RawClient> {
        RawClient::resume(address, timeout, 0, &[0; 16])
    }

    /// A session that exists; its id is 0 if the server says that it has expired.
    pub fn resume(address: &str, timeout: Duration, id: i64, password: &[u8]) -> io::Result<RawClient> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        RawClient::over(stream, timeout, id, password)
    }

    pub fn over(mut stream: TcpStream, timeout: Duration, id: i64, password: &[u8]) -> io::Result<RawClient> {
        stream.set_nodelay(true)?;
        let mut hello = Vec::new();
        hello.extend(0i32.to_be_bytes());
        hello.extend(0i64.to_be_bytes());
        hello.extend((timeout.as_millis() as i32).to_be_bytes());
        hello.extend(id.to_be_bytes());
        hello.extend(16i32.to_be_bytes());
        hello.extend(password);
        hello.push(0);
        write_frame(&mut stream, &hello)?;
        let answer = read_frame(&mut stream)?;
        Ok(RawClient {
            stream,
            timeout: Duration::from_millis(int(&answer, 4) as u64),
            session_id: long(&answer, 8),
            password: answer[20..36].to_vec(),
            xid: 0,
        })
    }

    /// Sends a request without waiting for its reply; gives its xid.
    pub fn send(&mut self, op: i32, body: &[u8]) -> io::Result<i32> {
        let xid = if op == PING {
            -2
        } else {
            self.xid += 1;
            self.xid
        };
        let frame = [&xid.to_be_bytes(), &op.to_be_bytes(), body].concat();
        write_frame(&mut self.stream, &frame).map(|()| xid)
    }

    pub fn receive(&mut self) -> io::Result<Reply> {
        Ok(self.receive_all()?.0)
    }

    /// With what stands behind the header.
    fn receive_all(&mut self) -> io::Result<(Reply, Vec<u8>)> {
        let mut frame = read_frame(&mut self.stream)?;
        let body = frame.split_off(16);
        Ok((Reply { xid: int(&frame, 0), code: int(&frame, 12) }, body))
    }

    fn call(&mut self, op: i32, body: &[u8]) -> io::Result<i32> {
        Ok(self.call_for(op, body)?.0)
    }

    fn call_for(&mut self, op: i32, body: &[u8]) -> io::Result<(i32, Vec<u8>)> {
        let xid = self.send(op, body)?;
        let (reply, body) = self.receive_all()?;
        assert_eq!(reply.xid, xid);
        Ok((reply.code, body))
    }

    /// The error code, 0 for success.
    pub fn create(&mut self, path: &str, ephemeral: bool) -> io::Result<i32> {
        self.call(CREATE, &create_body(path, ephemeral))
    }

    /// The error code, 0 if the znode exists.
    pub fn exists(&mut self, path: &str) -> io::Result<i32> {
        self.call(EXISTS, &exists_body(path, false))
    }

    /// The names below a znode, the id of its creation and the session that owns it. `None`: there is no such znode.
    pub fn children(&mut self, path: &str) -> io::Result<Option<(Vec<String>, i64, i64)>> {
        let (code, body) = self.call_for(GET_CHILDREN2, &exists_body(path, false))?;
        match code {
            OK => {}
            NO_NODE => return Ok(None),
            code => return Err(io::Error::other(format!("{path}: {code}"))),
        }
        let mut at = 4;
        let names = (0..int(&body, 0)).map(|_| {
            let begin = at + 4;
            at = begin + int(&body, at) as usize;
            String::from_utf8(body[begin..at].to_vec()).unwrap()
        });
        let names = names.collect();
        // Behind its czxid stand an id and two times of 8 bytes, and three versions of 4.
        Ok(Some((names, long(&body, at), long(&body, at + 44))))
    }

    pub fn watch(&mut self, path: &str) -> io::Result<i32> {
        self.call(EXISTS, &exists_body(path, true))
    }

    pub fn ping(&mut self) -> io::Result<i32> {
        self.call(PING, &[])
    }
}

/// Asks a server for a heartbeat at each call, and comes back where the connection is gone.
pub fn heartbeats(address: String) -> impl FnMut() {
    let connect = move || RawClient::connect(&address, Duration::from_secs(60)).ok();
    let mut client = connect();
    move || {
        if client.as_mut().is_none_or(|client| client.ping().is_err()) {
            client = connect();
        }
    }
}

pub fn create_body(path: &str, ephemeral: bool) -> Vec<u8> {
    let mut body = string(path);
    body.extend(0i32.to_be_bytes()); // no data
    body.extend(1i32.to_be_bytes()); // one ACL entry: everybody may do everything
    body.extend(31i32.to_be_bytes());
    body.extend(string("world"));
    body.extend(string("anyone"));
    body.extend(i32::from(ephemeral).to_be_bytes());
    body
}

pub fn exists_body(path: &str, watch: bool) -> Vec<u8> {
    let mut body = string(path);
    body.push(u8::from(watch));
    body
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as i32).to_be_bytes(), text.as_bytes()].concat()
}

fn write_frame(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    stream.write_all(&[&(body.len() as i32).to_be_bytes(), body].concat())
}

fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; i32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).map(|()| frame)
}

fn int(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}
