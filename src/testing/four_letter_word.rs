//! ZooKeeper's four letter words: a question of four bytes on a connection of its own, answered in plain text.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, SocketAddrV4, TcpStream},
    time::Duration,
};

/// Asks, and reads the answer to its end. `timeout` bounds each wait for the network.
pub(super) fn ask(server: SocketAddrV4, word: &str, timeout: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::V4(server), timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Whether this answer to `srvr` comes from a server that takes requests: alone, or as part of a quorum.
pub(super) fn is_serving(srvr: &str) -> bool {
    srvr.contains("Mode: ")
}

/// The number that `mntr` shows under `name`.
pub(super) fn metric(mntr: &str, name: &str) -> io::Result<u64> {
    mntr.lines()
        .filter_map(|line| line.split_once('\t'))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no number {name} in mntr's answer")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let mntr = "zk_watch_count_max\t9\nzk_watch_count\t2\nzk_server_state\tleader\n";
        assert_eq!(metric(mntr, "zk_watch_count").ok(), Some(2));
        assert!(metric(mntr, "zk_watch").is_err());
        assert!(metric(mntr, "zk_server_state").is_err());
    }

    #[test]
    fn a_server_that_does_not_serve_yet_is_told_apart() {
        assert!(is_serving("Zookeeper version: 3.8.0\nMode: follower\n"));
        assert!(!is_serving("This ZooKeeper instance is not currently serving requests\n"));
    }
}
