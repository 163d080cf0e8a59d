//! A client that writes no transcript.

use std::time::Duration;

use super::dialogue::{Came, Servers};
use crate::proto::{connect::ConnectRequest, request::Request};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn open<S: Servers>(servers: &mut S, at: &str, timeout: Duration) -> usize {
    let conn = servers.connect(at);
    let request = ConnectRequest {
        last_zxid_seen: 0,
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap(),
        session_id: 0,
        password: vec![0; 16],
        read_only: false,
    };
    servers.write(conn, &request.encode());
    assert!(matches!(servers.read(conn, PATIENCE), Came::Frame(_)));
    conn
}

/// Asks, and waits for the reply.
pub(super) fn ask<S: Servers>(servers: &mut S, conn: usize, request: &Request) {
    assert!(answers(servers, conn, request), "{request:?}");
}

/// Asks, and waits for a reply. `false`: the connection ends instead.
pub(super) fn answers<S: Servers>(servers: &mut S, conn: usize, request: &Request) -> bool {
    servers.write(conn, &request.encode(1));
    matches!(servers.read(conn, PATIENCE), Came::Frame(_))
}
