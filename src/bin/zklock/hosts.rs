//! The addresses of sessions, asked of the servers by a four-letter word.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use curator_locks::{ConnectString, QueueEntry};

use crate::{
    args::{Connection, Show},
    connection::Settings,
    failure::{Failure, Result},
};

/// A command of four letters takes no longer, and its answer is not longer.
const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST: usize = 1 << 20;

/// The address of each session; `None`: not wanted.
pub(crate) struct Hosts(Option<BTreeMap<i64, String>>);

impl Hosts {
    /// Asks every server for its connections, if that is wanted.
    pub(crate) fn ask(connection: &Connection, show: &Show) -> Result<Hosts> {
        if !show.hosts {
            return Ok(Hosts::unknown());
        }
        let settings = Settings::of(connection)?;
        let servers: ConnectString = settings.connect.parse()?;
        let answers = servers.hosts().iter().filter_map(|(host, port)| four_letters(host, *port, "cons"));
        let answers: Vec<String> = answers.collect();
        if answers.is_empty() {
            let why =
                "no server tells its connections: --hosts needs cons in 4lw.commands.whitelist, and a port without TLS";
            return Err(Failure::new(why));
        }
        Ok(Hosts(Some(answers.iter().flat_map(|answer| answer.lines().filter_map(connection_of)).collect())))
    }

    pub(crate) fn unknown() -> Hosts {
        Hosts(None)
    }

    pub(crate) fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn of(&self, entry: &QueueEntry) -> Option<&str> {
        self.0.as_ref()?.get(&entry.session).map(String::as_str)
    }
}

/// A line such as ` /10.0.0.7:41722[1](queued=0,recved=2,sent=2,sid=0x10000a3b8c50000,lop=PING,...)`.
fn connection_of(line: &str) -> Option<(i64, String)> {
    let (address, rest) = line.trim_start().strip_prefix('/')?.split_once('[')?;
    let session = rest.split_once("sid=0x")?.1;
    let session = session.split(|digit: char| !digit.is_ascii_hexdigit()).next()?;
    let (host, _) = address.rsplit_once(':')?;
    Some((u64::from_str_radix(session, 16).ok()?.cast_signed(), host.to_owned()))
}

/// The addresses of a server, or why it has none.
pub(crate) fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = (host, port).to_socket_addrs().map_err(|error| format!("cannot be resolved: {error}"))?;
    Ok(found.collect())
}

/// Any one of the server's addresses that answers, or why none does.
pub(crate) fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let mut why = "the name has no address".to_owned();
    for address in addresses(host, port)? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

/// `None`: no answer. A server answers only what is on its list (`4lw.commands.whitelist`).
pub(crate) fn four_letters(host: &str, port: u16, word: &str) -> Option<String> {
    let mut stream = connect(host, port).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let (begun, mut answer, mut part) = (Instant::now(), Vec::new(), [0; 4096]);
    // Lines from before an error or the end of the time count: the program at this port may go on for ever.
    while let Some(left) = PATIENCE.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
        && answer.len() < LONGEST
    {
        stream.set_read_timeout(Some(left)).ok()?;
        match stream.read(&mut part) {
            // As after a stop by the terminal.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(part.get(..count)?),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (!answer.is_empty() && !answer.contains("not in the whitelist")).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_answer_tells_hosts_and_sessions() {
        let line = " /10.0.0.7:41722[1](queued=0,recved=2,sent=2,sid=0xf0000a3b8c500001,lop=PING,est=1,to=20000)";
        assert_eq!(connection_of(line), Some((-0x0fff_f5c4_73af_ffff, "10.0.0.7".to_owned())));
        let line = "/0:0:0:0:0:0:0:1:41722[1](queued=0,sid=0x1)";
        assert_eq!(connection_of(line), Some((1, "0:0:0:0:0:0:0:1".to_owned())));
        // The connection that asks has no session.
        assert_eq!(connection_of(" /127.0.0.1:5[0](queued=0,recved=1,sent=0)"), None);
        assert_eq!(connection_of("cons is not executed because it is not in the whitelist."), None);
    }
}
