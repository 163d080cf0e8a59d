//! Ending somebody else's session, as the server ends one that has expired.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use super::{error::TestingError, proxy::op};

/// How long all attempts together may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long one server may be silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The lengths of the two answers read here: a connect response without and with the read-only flag.
const CONNECT_RESPONSE: std::ops::RangeInclusive<usize> = 36..=37;

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
    while Instant::now() < deadline {
        for server in servers.split(',') {
            match close_session(server.trim(), session_id, password) {
                Ok(Closing::Closed) => return Ok(()),
                // An earlier attempt may have closed it without our getting the answer.
                Ok(Closing::Unknown) if asked_before => return Ok(()),
                Ok(Closing::Unknown) => {
                    return Err(TestingError::Refused(format!("no session 0x{session_id:x} with this password")));
                }
                // A client that connects again at this very moment takes the session back, once.
                Err(error) => asked_before |= error.asked,
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(TestingError::Timeout { what: format!("an answer of {servers}"), after: TIMEOUT })
}

enum Closing {
    Closed,
    Unknown,
}

/// No answer.
struct Unanswered {
    /// Whether the server may have got the request.
    asked: bool,
}

fn close_session(server: &str, session_id: i64, password: &[u8]) -> Result<Closing, Unanswered> {
    let mut stream = connect(server).map_err(|_| Unanswered { asked: false })?;
    converse(&mut stream, session_id, password).map_err(|_| Unanswered { asked: true })
}

fn connect(server: &str) -> io::Result<TcpStream> {
    let stream = match server.rsplit_once(':') {
        Some(_) => TcpStream::connect(server)?,
        None => TcpStream::connect((server, 2181))?,
    };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(stream)
}

fn converse(stream: &mut TcpStream, session_id: i64, password: &[u8]) -> io::Result<Closing> {
    // Both in one write: in between, the session's client could connect again and take the session back.
    stream.write_all(&[connect_request(session_id, password), close_request()].concat())?;
    let response = read_frame(stream)?;
    if !CONNECT_RESPONSE.contains(&response.len()) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // The server shows a session that has expired by the id 0.
    if response.get(8..16) != Some(&session_id.to_be_bytes()) {
        return Ok(Closing::Unknown);
    }
    let reply = read_frame(stream)?;
    match reply.get(12..16) {
        Some([0, 0, 0, 0]) => Ok(Closing::Closed),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn connect_request(session_id: i64, password: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0i32.to_be_bytes()); // protocol version
    body.extend(0i64.to_be_bytes()); // last zxid seen
    body.extend(10_000i32.to_be_bytes()); // session timeout
    body.extend(session_id.to_be_bytes());
    body.extend((password.len() as i32).to_be_bytes());
    body.extend(password);
    body.push(0); // not read-only
    frame(&body)
}

fn close_request() -> Vec<u8> {
    frame(&[1i32.to_be_bytes(), op::CLOSE_SESSION.to_be_bytes()].concat())
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as i32).to_be_bytes(), body].concat()
}

fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = Vec::new();
    // The answers read here are short; nothing is allocated for another length.
    let length = u64::from(u32::from_be_bytes(length));
    stream.take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length { Ok(body) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
