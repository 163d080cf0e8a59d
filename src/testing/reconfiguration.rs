//! Asking an ensemble for other members.

use std::{
    io::{self, Write},
    thread,
    time::{Duration, Instant},
};

use super::{
    error::TestingError,
    expiry::{connect, read_frame},
};
use crate::proto::{
    connect::{ConnectRequest, ConnectResponse},
    header::decode_header,
};

/// How long all attempts together may take.
const TIMEOUT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(50);

/// The operation, which the library itself has no use for.
const RECONFIG: i32 = 16;

/// Another version of the configuration than any.
const ANY_VERSION: i64 = -1;

/// Servers that join are given by their lines, `server.4=..`, those that leave by their numbers. Tries until the servers accept:
/// they refuse while those that join have not caught up, or another change is under way.
pub(super) fn reconfigure(server: &str, joining: &[String], leaving: &[String]) -> Result<(), TestingError> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match ask(server, &joining.join(","), &leaving.join(",")) {
            Ok(0) => return Ok(()),
            answer if Instant::now() >= deadline => {
                return Err(TestingError::Refused(format!("the change of the ensemble: {answer:?}")));
            }
            _ => thread::sleep(PAUSE),
        }
    }
}

/// The error code, 0 for success.
fn ask(server: &str, joining: &str, leaving: &str) -> io::Result<i32> {
    let mut stream = connect(server).ok_or(io::ErrorKind::ConnectionRefused)?;
    let password = vec![0; 16];
    let hello = ConnectRequest { last_zxid_seen: 0, timeout_ms: 10_000, session_id: 0, password, read_only: false };
    stream.write_all(&hello.encode())?;
    ConnectResponse::decode(&read_frame(&mut stream)?).map_err(io::Error::other)?;
    let mut request = [1_i32.to_be_bytes(), RECONFIG.to_be_bytes()].concat();
    for list in [joining, leaving, ""] {
        request.extend(string(list));
    }
    request.extend(ANY_VERSION.to_be_bytes());
    stream.write_all(&prefixed(&request))?;
    let reply = read_frame(&mut stream)?;
    Ok(decode_header(&reply).map_err(io::Error::other)?.0.err)
}

/// Empty is null, which is no list.
fn string(text: &str) -> Vec<u8> {
    if text.is_empty() { (-1_i32).to_be_bytes().to_vec() } else { prefixed(text.as_bytes()) }
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), bytes].concat()
}
