//! Why no server could be reached, in words for callers that wait for a connection.

use std::{collections::BTreeMap, io, net::SocketAddr};

/// The last connect error of each server, since there was a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectErrors(BTreeMap<String, String>);

impl ConnectErrors {
    /// A name has no address.
    pub(super) fn unresolved(&mut self, host: &str, why: &str) {
        self.0.insert(host.to_owned(), why.to_owned());
    }

    /// A server does not take the session. Returns all connect errors as one.
    pub(crate) fn refused(&mut self, host: &str, addresses: &[SocketAddr], error: &io::Error) -> io::Error {
        let address = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        // An address that was given as such stands there once.
        let is_named = !address.trim_start_matches('[').starts_with(host);
        let server = if is_named { format!("{host} ({address})") } else { address };
        self.0.remove(host);
        self.0.insert(server, said(error));
        self.as_error(error.kind())
    }

    /// All connect errors as one; `None` without any.
    pub(super) fn of_names(&self) -> Option<io::Error> {
        (!self.0.is_empty()).then(|| self.as_error(io::ErrorKind::NotFound))
    }

    fn as_error(&self, kind: io::ErrorKind) -> io::Error {
        let all: Vec<String> = self.0.iter().map(|(server, why)| format!("{server}: {why}")).collect();
        io::Error::new(kind, all.join("; "))
    }
}

/// The system's message, without the number that Rust adds, which means nothing to most.
fn said(error: &io::Error) -> String {
    let said = error.to_string();
    match said.find(" (os error ") {
        Some(at) => said.get(..at).unwrap_or_default().to_owned(),
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_stands_there_once_with_its_last_trouble() {
        let mut connect_errors = ConnectErrors::default();
        assert!(connect_errors.of_names().is_none());
        let at = |last: u8| SocketAddr::from(([127, 0, 0, last], 2181));
        let refused = io::Error::from_raw_os_error(111);
        connect_errors.unresolved("zk3", "no such host");
        let _ = connect_errors.refused("zk1", &[at(1)], &io::Error::other("no answer to the handshake"));
        let _ = connect_errors.refused("zk1", &[at(1)], &refused);
        let all = connect_errors.refused("127.0.0.2", &[at(2)], &refused);
        assert_eq!(all.kind(), io::ErrorKind::ConnectionRefused);
        let expected =
            "127.0.0.2:2181: Connection refused; zk1 (127.0.0.1:2181): Connection refused; zk3: no such host";
        assert_eq!(all.to_string(), expected);
    }
}
