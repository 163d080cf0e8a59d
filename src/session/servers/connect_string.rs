//! The servers to connect to, and the path under which everything lives there.

use std::{fmt, net::Ipv6Addr, str::FromStr};

use super::srv::PREFIX;
use crate::{
    base::paths::validate_path,
    error::{Error, Result},
};

const DEFAULT_PORT: u16 = 2181;

/// A connect string, taken apart: `host1:port1,host2:port2/chroot`. Java: the argument of `connectString`.
///
/// A port is 2181 where none is given. An IPv6 address stands in brackets. Spaces around the commas do not matter. The
/// order of the servers is kept here; a session shuffles it.
///
/// With the feature `dns-srv`, `dnssrv:_zk._tcp.example` stands for the servers that the SRV records of this name name, with their
/// ports; priorities and weights do not matter. The records are looked up anew at each round over the servers, as all names are.
///
/// ```
/// use curator_locks::ConnectString;
///
/// let parsed: ConnectString = "zk1, zk2:2182,[::1]/app".parse()?;
/// assert_eq!(parsed.hosts(), [("zk1".into(), 2181), ("zk2".into(), 2182), ("::1".into(), 2181)]);
/// assert_eq!(parsed.chroot(), "/app");
/// assert_eq!(parsed.to_string(), "zk1:2181,zk2:2182,[::1]:2181/app");
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConnectString {
    hosts: Vec<(String, u16)>,
    chroot: String,
}

impl ConnectString {
    /// Host and port of each server, in the order given; an IPv6 address without its brackets, and a name of SRV records as it was
    /// given, with the port 0.
    #[must_use]
    pub fn hosts(&self) -> &[(String, u16)] {
        &self.hosts
    }

    /// The path that is prepended to every path at the server, such as `/app`; empty if there is none.
    #[must_use]
    pub fn chroot(&self) -> &str {
        &self.chroot
    }

    /// Other servers, and the same chroot.
    pub(crate) fn with_hosts(&self, hosts: Vec<(String, u16)>) -> ConnectString {
        ConnectString { hosts, chroot: self.chroot.clone() }
    }
}

/// `parse` takes a connect string apart. It fails with [`Error::InvalidArgument`], which has the text and the rule that it
/// breaks: no server, an empty entry, a bad host or port, an IPv6 address without brackets, or a chroot that is not a valid
/// path or holds a comma.
impl FromStr for ConnectString {
    type Err = Error;

    fn from_str(text: &str) -> Result<ConnectString> {
        parse(text).map_err(|rule| Error::InvalidArgument { name: "connect_string", value: text.to_owned(), rule })
    }
}

impl fmt::Display for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = |(host, port): &(String, u16)| {
            if host.starts_with(PREFIX) {
                host.clone()
            } else if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        };
        let servers: Vec<String> = self.hosts.iter().map(server).collect();
        write!(f, "{}{}", servers.join(","), self.chroot)
    }
}

/// The parts, or the rule that the text breaks.
fn parse(text: &str) -> Result<ConnectString, String> {
    let text = text.trim();
    let (servers, chroot) = match text.find('/') {
        Some(slash) => text.split_at(slash),
        None => (text, ""),
    };
    if servers.trim().is_empty() {
        return Err("at least one server is needed, such as zk1:2181,zk2:2181/chroot".to_owned());
    }
    let hosts = servers.split(',').map(|entry| server(entry.trim())).collect::<Result<_, String>>()?;
    Ok(ConnectString { hosts, chroot: checked_chroot(chroot)? })
}

/// A lone `/` means no chroot, as in ZooKeeper.
fn checked_chroot(chroot: &str) -> Result<String, String> {
    if chroot.is_empty() || chroot == "/" {
        return Ok(String::new());
    }
    if chroot.contains(',') {
        return Err(format!(
            "a chroot stands once, behind the last server, as in zk1:2181,zk2:2181/chroot, and {chroot:?} holds a comma"
        ));
    }
    match validate_path(chroot) {
        Ok(()) => Ok(chroot.to_owned()),
        Err(Error::InvalidPath { rule, .. }) => Err(format!("the chroot {chroot:?} is not a valid path: {rule}")),
        Err(other) => Err(other.to_string()),
    }
}

fn server(entry: &str) -> Result<(String, u16), String> {
    if entry.is_empty() {
        return Err("an entry between the commas is empty".to_owned());
    }
    if let Some(bracketed) = entry.strip_prefix('[') {
        return ipv6_server(entry, bracketed);
    }
    if let Some(service) = entry.strip_prefix(PREFIX) {
        return service_records(entry, service);
    }
    let (host, port) = match entry.split_once(':') {
        Some((_, rest)) if rest.contains(':') => {
            return Err(format!(
                "{entry:?} has several colons; servers are separated by commas, and an IPv6 address stands in brackets: [::1]:2181"
            ));
        }
        Some((host, digits)) => (host, port(entry, digits)?),
        None => (entry, DEFAULT_PORT),
    };
    if host.is_empty() {
        return Err(format!("{entry:?} has no host"));
    }
    if let Some(bad) = host.chars().find(|&c| !belongs_to_a_name(c)) {
        return Err(format!("the host of {entry:?} contains {bad:?}; servers are separated by commas"));
    }
    Ok((host.to_owned(), port))
}

/// `::1]:2181` and the like, after the opening bracket.
fn ipv6_server(entry: &str, bracketed: &str) -> Result<(String, u16), String> {
    let Some((host, rest)) = bracketed.split_once(']') else {
        return Err(format!("{entry:?} lacks its closing bracket"));
    };
    let (address, zone) = host.split_once('%').unwrap_or((host, "0"));
    if address.parse::<Ipv6Addr>().is_err() || zone.is_empty() || !zone.chars().all(belongs_to_a_name) {
        return Err(format!("{entry:?} holds no IPv6 address between its brackets"));
    }
    let port = match rest.strip_prefix(':') {
        Some(digits) => port(entry, digits)?,
        None if rest.is_empty() => DEFAULT_PORT,
        None => return Err(format!("{entry:?} goes on after its bracket without a colon")),
    };
    Ok((host.to_owned(), port))
}

/// `dnssrv:_zk._tcp.example`, after the colon.
fn service_records(entry: &str, service: &str) -> Result<(String, u16), String> {
    if service.is_empty() || !service.chars().all(belongs_to_a_name) {
        return Err(format!(
            "{entry:?} holds no name of SRV records, such as dnssrv:_zk._tcp.example; they have the ports"
        ));
    }
    if cfg!(feature = "dns-srv") {
        Ok((entry.to_owned(), 0))
    } else {
        Err(format!("{entry:?} takes the feature `dns-srv` of the crate curator-locks"))
    }
}

fn belongs_to_a_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '.' | '_')
}

/// Digits only: the number parser of the standard library would take a sign too.
fn port(entry: &str, digits: &str) -> Result<u16, String> {
    let number = if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().unwrap_or(0) } else { 0 };
    if number == 0 { Err(format!("the port of {entry:?} is not a number from 1 to 65535")) } else { Ok(number) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule_of(text: &str) -> String {
        match ConnectString::from_str(text) {
            Err(Error::InvalidArgument { name: "connect_string", value, rule }) if value == text => rule,
            other => unreachable!("{text:?} gave {other:?}"),
        }
    }

    #[test]
    fn valid_texts_have_these_parts() {
        type Row<'a> = (&'a str, &'a [(&'a str, u16)], &'a str);
        let table: &[Row<'_>] = &[
            ("zk1", &[("zk1", 2181)], ""),
            ("zk1:1", &[("zk1", 1)], ""),
            ("127.0.0.1:65535", &[("127.0.0.1", 65535)], ""),
            ("a:1,b,c:3", &[("a", 1), ("b", 2181), ("c", 3)], ""),
            ("  a:1 ,\tb  ", &[("a", 1), ("b", 2181)], ""),
            ("a:1 /app", &[("a", 1)], "/app"),
            ("a/", &[("a", 2181)], ""),
            ("a:1,b:2/x/y", &[("a", 1), ("b", 2)], "/x/y"),
            ("[::1]", &[("::1", 2181)], ""),
            ("[::1]:1,[2001:db8::7]/app", &[("::1", 1), ("2001:db8::7", 2181)], "/app"),
            ("[fe80::1%eth0.1]:1", &[("fe80::1%eth0.1", 1)], ""),
            ("zk_1.my-net.example:1", &[("zk_1.my-net.example", 1)], ""),
            ("b\u{fc}cher:1", &[("b\u{fc}cher", 1)], ""),
            ("a:1,a:1", &[("a", 1), ("a", 1)], ""),
            ("a:02181", &[("a", 2181)], ""),
            #[cfg(feature = "dns-srv")]
            ("dnssrv:_zk._tcp.a,b/app", &[("dnssrv:_zk._tcp.a", 0), ("b", 2181)], "/app"),
        ];
        for (text, hosts, chroot) in table {
            let parsed = ConnectString::from_str(text).unwrap();
            let expected: Vec<(String, u16)> = hosts.iter().map(|&(host, port)| (host.to_owned(), port)).collect();
            assert_eq!(parsed.hosts(), expected, "{text:?}");
            assert_eq!(parsed.chroot(), *chroot, "{text:?}");
            assert_eq!(ConnectString::from_str(&parsed.to_string()).unwrap(), parsed, "{text:?}");
        }
    }

    #[test]
    fn invalid_texts_name_the_rule_they_break() {
        for (text, part_of_rule) in [
            ("", "at least one server"),
            ("  ", "at least one server"),
            ("/app", "at least one server"),
            (",", "empty"),
            ("a,", "empty"),
            (",a", "empty"),
            ("a,,b", "empty"),
            ("a, /app", "empty"),
            (":2181", "no host"),
            ("a:", "1 to 65535"),
            ("a:0", "1 to 65535"),
            ("a:65536", "1 to 65535"),
            ("a:99999999999999999999", "1 to 65535"),
            ("a:+1", "1 to 65535"),
            ("a:-1", "1 to 65535"),
            ("a: 1", "1 to 65535"),
            ("a:1x", "1 to 65535"),
            ("a:\u{661}", "1 to 65535"),
            ("zk://a:1", "1 to 65535"),
            ("a b", "contains ' '"),
            ("a:1;b:2", "separated by commas"),
            ("a;b", "contains ';'"),
            ("user@a", "contains '@'"),
            ("::1", "in brackets"),
            ("2001:db8::7:2181", "in brackets"),
            ("a:1:2", "in brackets"),
            ("[::1", "closing bracket"),
            ("[]", "no IPv6 address"),
            ("[a]:1", "no IPv6 address"),
            ("[127.0.0.1]:1", "no IPv6 address"),
            ("[fe80::1%]:1", "no IPv6 address"),
            ("[fe80::1%e h]:1", "no IPv6 address"),
            ("[::1]1", "without a colon"),
            ("[::1]:", "1 to 65535"),
            ("[::1]:x", "1 to 65535"),
            ("zk1:2181/a,zk2:2181", "behind the last server"),
            ("zk1/a,zk2/a", "behind the last server"),
            ("a//app", "not a valid path"),
            ("a/app/", "not a valid path"),
            ("a/app/../b", "not a valid path"),
            ("a/\u{7f}", "not a valid path"),
            ("dnssrv:", "SRV records"),
            ("dnssrv:_zk._tcp.example:2181", "SRV records"),
            #[cfg(not(feature = "dns-srv"))]
            ("dnssrv:_zk._tcp.example", "feature"),
        ] {
            let rule = rule_of(text);
            assert!(rule.contains(part_of_rule), "{text:?} breaks {rule:?}, not {part_of_rule:?}");
        }
    }

    #[test]
    fn the_error_shows_text_and_rule() {
        let shown = ConnectString::from_str("zk1:x").unwrap_err().to_string();
        assert!(shown.contains("connect_string") && shown.contains("zk1:x") && shown.contains("65535"), "{shown}");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_accepted_survives_display(text in any::<String>()) {
            if let Ok(parsed) = ConnectString::from_str(&text) {
                prop_assert_eq!(ConnectString::from_str(&parsed.to_string()).unwrap(), parsed);
            }
        }

        #[test]
        fn no_text_of_the_alphabet_panics(text in "[\\[\\]a:,/%. 0-9\u{e9}]{0,24}") {
            if let Ok(parsed) = text.parse::<ConnectString>() {
                prop_assert!(!parsed.hosts().is_empty());
                prop_assert_eq!(ConnectString::from_str(&parsed.to_string()).unwrap(), parsed);
            }
        }
    }
}
