//! The servers' own list of themselves, as they keep it in `/zookeeper/config`.

use std::{collections::BTreeMap, net::IpAddr};

/// The znode of the list, outside of any chroot.
pub(crate) const CONFIG: &str = "/zookeeper/config";

/// Host and port of each server.
pub(crate) type Hosts = Vec<(String, u16)>;

/// The servers' addresses for clients: the plain ones, and those for TLS. A list in which a server is missing is empty, as a
/// server says no more of the others than their configuration files do: a client that went by half a list would be lost
/// once that half is down.
pub(crate) fn client_addresses(config: &[u8]) -> [Hosts; 2] {
    let text = String::from_utf8_lossy(config);
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("server.")?.split_once('='));
    // A server that stands there twice counts once, by what is said last: so the servers read it.
    let servers: BTreeMap<&str, &str> = servers.collect();
    let list = |section| servers.values().map(|server| client_address(server, section)).collect::<Option<Hosts>>();
    [1, 2].map(|section| {
        let mut hosts = list(section).unwrap_or_default();
        hosts.sort_unstable();
        hosts
    })
}

/// `host:port:port[:role][|host:port:port[:role]..][;[address:]port][;[address:]securePort]`
fn client_address(server: &str, section: usize) -> Option<(String, u16)> {
    let mut sections = server.split(';').map(str::trim);
    let quorum = sections.next()?.split('|').next()?;
    let (address, port) = host_and_rest(sections.nth(section - 1)?);
    // A port alone has no colon in front, and is one for all addresses of the machine.
    let (address, port) = if port.is_empty() { ("", address) } else { (address, port) };
    let port = port.parse().ok().filter(|&port| port != 0)?;
    // CURATOR-384, CURATOR-402: that a server listens on every address says nothing of how to reach it.
    let is_any = address.is_empty() || address.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
    let host = if is_any { host_and_rest(quorum).0 } else { address };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// The text before the first colon, or in brackets, and the text behind it.
fn host_and_rest(text: &str) -> (&str, &str) {
    let (host, rest) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or_default()),
        None => text.split_once(':').unwrap_or((text, "")),
    };
    // Java writes `name/address` where it has resolved a name.
    (host.split('/').next().unwrap_or_default(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(config: &str) -> Vec<String> {
        let [plain, _] = client_addresses(config.as_bytes());
        plain.into_iter().map(|(host, port)| format!("{host}:{port}")).collect()
    }

    #[test]
    fn every_server_stands_there_with_its_address_for_clients_observers_included() {
        let config = "server.1=zk1:2888:3888:participant;10.0.0.1:2181\n\
                      server.2=zk2:2888:3888:participant;2182\n\
                      server.3=zk3:2888:3888:observer;0.0.0.0:2183\n\
                      server.4=[2001:db8::4]:2888:3888:participant;[::]:2184\n\
                      server.5=[2001:db8::5]:2888:3888;[2001:db8::50]:2185\n\
                      server.6=zk6:2888:3888|zk6b:2888:3888:participant;0.0.0.0:2186\n\
                      server.7=zk7:2888:3888:participant;clients.example/10.0.0.7:2187\n\
                      group.1=1:2:3\nweight.1=1\nversion=100000000";
        let expected = [
            "10.0.0.1:2181",
            "2001:db8::4:2184",
            "2001:db8::50:2185",
            "clients.example:2187",
            "zk2:2182",
            "zk3:2183",
            "zk6:2186",
        ];
        assert_eq!(plain(config), expected);
    }

    #[test]
    fn a_list_in_which_a_server_is_missing_is_none() {
        for config in [
            "",
            "version=0",
            "server.1=zk1:2888:3888:participant\nversion=0",
            "server.1=zk1:2888:3888:participant;2181\nserver.2=zk2:2888:3888:participant\nversion=0",
            "server.1=zk1:2888:3888:participant;\nversion=0",
            "server.1=zk1:2888:3888:participant;0\nversion=0",
            "server.1=zk1:2888:3888:participant;zk1:x\nversion=0",
            "server.1=;0.0.0.0:2181",
            "server.1",
            "\u{fffd}=;:[]",
        ] {
            assert!(plain(config).is_empty(), "{config:?}");
        }
    }

    #[test]
    fn ports_for_tls_are_a_list_of_their_own() {
        let config = b"server.1=zk1:2888:3888;;2281\nserver.2=zk2:2888:3888;2182;10.0.0.2:2282";
        let host = |name: &str, port| (name.to_owned(), port);
        assert_eq!(client_addresses(config), [vec![], vec![host("10.0.0.2", 2282), host("zk1", 2281)]]);
    }
}
