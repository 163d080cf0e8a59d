//! The servers to connect to, and the path under which everything lives there.

use std::{fmt, net::Ipv6Addr, str::FromStr};

use super::paths::validate_path;
use crate::error::{Error, Result};

const DEFAULT_PORT: u16 = 2181;

/// A connect string, taken apart: `host1:port1,host2:port2/chroot`. Java: the argument of `connectString`.
///
/// A port is 2181 where none is given. An IPv6 address stands in brackets. Spaces around the commas do not matter. The
/// order of the servers is kept here; a session shuffles it.
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
    /// Takes a connect string apart.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the text and the rule that it breaks: no server, an empty entry, a bad host or
    /// port, an IPv6 address without brackets, or a chroot that is not a valid path.
    pub fn parse(text: &str) -> Result<ConnectString> {
        parse(text).map_err(|rule| Error::InvalidArgument { name: "connect_string", value: text.to_owned(), rule })
    }

    /// Host and port of each server, in the order given; an IPv6 address without its brackets.
    #[must_use]
    pub fn hosts(&self) -> &[(String, u16)] {
        &self.hosts
    }

    /// The path that is prepended to every path at the server, such as `/app`; empty if there is none.
    #[must_use]
    pub fn chroot(&self) -> &str {
        &self.chroot
    }
}

impl FromStr for ConnectString {
    type Err = Error;

    fn from_str(text: &str) -> Result<ConnectString> {
        ConnectString::parse(text)
    }
}

impl fmt::Display for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            if host.contains(':') {
                write!(f, "{comma}[{host}]:{port}")?;
            } else {
                write!(f, "{comma}{host}:{port}")?;
            }
        }
        f.write_str(&self.chroot)
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
    let (host, port) = match entry.split_once(':') {
        Some((_, rest)) if rest.contains(':') => {
            return Err(format!("{entry:?} has several colons; an IPv6 address stands in brackets: [::1]:2181"));
        }
        Some((host, digits)) => (host, port(entry, digits)?),
        None => (entry, DEFAULT_PORT),
    };
    if host.is_empty() {
        return Err(format!("{entry:?} has no host"));
    }
    if let Some(bad) = host.chars().find(|c| !(c.is_alphanumeric() || matches!(c, '-' | '.' | '_'))) {
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
    if address.parse::<Ipv6Addr>().is_err() || zone.is_empty() || !zone.chars().all(char::is_alphanumeric) {
        return Err(format!("{entry:?} holds no IPv6 address between its brackets"));
    }
    let port = match rest.strip_prefix(':') {
        Some(digits) => port(entry, digits)?,
        None if rest.is_empty() => DEFAULT_PORT,
        None => return Err(format!("{entry:?} goes on after its bracket without a colon")),
    };
    Ok((host.to_owned(), port))
}

/// Digits only: the number parser of the standard library would take a sign too.
fn port(entry: &str, digits: &str) -> Result<u16, String> {
    let number = if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().unwrap_or(0) } else { 0 };
    if number == 0 { Err(format!("the port of {entry:?} is not a number from 1 to 65535")) } else { Ok(number) }
}
