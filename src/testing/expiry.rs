//! Ending somebody else's session, as the server ends one that has expired.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    thread,
    time::{Duration, Instant},
};

use super::error::TestingError;
use crate::proto::{
    connect::{ConnectRequest, ConnectResponse},
    header::decode_header,
    request::Request,
};

/// How long all attempts together may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long one server may be silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Expires a session: takes it up on a connection of its own, with the same id and password, and closes it.
///
/// When this returns, the session's ephemeral znodes are gone. Its client first loses its connection, and is told that
/// the session has expired when it connects again.
///
/// # Errors
/// [`TestingError::Refused`] if the servers know no such session, or the password is wrong (they do not say which);
/// [`TestingError::Timeout`] if no server answered within 30 s.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, RetryOneTime, testing::{TestingServer, expire_session}};
///
/// let server = TestingServer::start()?;
/// let retry = RetryOneTime::new(Duration::from_millis(100));
/// let client = CuratorFrameworkFactory::new_client(server.connect_string(), retry)?;
/// client.start()?;
/// assert!(client.block_until_connected(Some(Duration::from_secs(30)))?);
/// let session = client.session_id();
/// expire_session(&server.connect_string(), session, &client.session_password())?;
/// while [0, session].contains(&client.session_id()) {
///     std::thread::yield_now(); // the client notices, and begins another session
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn expire_session(connect_string: &str, session_id: i64, password: &[u8]) -> Result<(), TestingError> {
    let deadline = Instant::now() + TIMEOUT;
    let servers = connect_string.split('/').next().unwrap_or_default();
    let mut asked_before = false;
    let mut again_and_again = servers.split(',').cycle();
    while let Some(server) = again_and_again.next().filter(|_| Instant::now() < deadline) {
        match connect(server.trim()).map(|stream| close_session(stream, session_id, password)) {
            Some(Ok(true)) => return Ok(()),
            // An earlier attempt may have closed it without our getting the answer.
            Some(Ok(false)) if asked_before => return Ok(()),
            Some(Ok(false)) => {
                return Err(TestingError::Refused(format!("no session 0x{session_id:x} with this password")));
            }
            // A client that connects again at this very moment takes the session back, once.
            Some(Err(_)) => asked_before = true,
            None => {}
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(TestingError::Timeout { what: format!("an answer of {servers}"), after: TIMEOUT })
}

pub(super) fn connect(server: &str) -> Option<TcpStream> {
    let server = if server.contains(':') { server.to_owned() } else { format!("{server}:2181") };
    let mut addresses = server.to_socket_addrs().ok()?;
    let stream = addresses.find_map(|address| TcpStream::connect_timeout(&address, ANSWER_TIMEOUT).ok())?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    Some(stream)
}

/// `false`: the server knows no such session. An error: the server may have got the request.
fn close_session(mut stream: TcpStream, session_id: i64, password: &[u8]) -> io::Result<bool> {
    let password = password.to_vec();
    let connect = ConnectRequest { last_zxid_seen: 0, timeout_ms: 10_000, session_id, password, read_only: false };
    // Both in one write: in between, the session's client could connect again and take the session back.
    stream.write_all(&[connect.encode(), Request::CloseSession.encode(1)].concat())?;
    let response = ConnectResponse::decode(&read_frame(&mut stream)?).map_err(io::Error::other)?;
    // The server shows a session that has expired by the id 0.
    if response.session_id != session_id {
        return Ok(false);
    }
    let reply = read_frame(&mut stream)?;
    let (header, _) = decode_header(&reply).map_err(io::Error::other)?;
    if header.err == 0 { Ok(true) } else { Err(io::ErrorKind::InvalidData.into()) }
}

pub(super) fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = Vec::new();
    // The answers read here are short; nothing is allocated for another length.
    let length = u64::from(u32::from_be_bytes(length));
    stream.take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length { Ok(body) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
