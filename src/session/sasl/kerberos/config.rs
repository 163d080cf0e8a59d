//! Which principal the client is, and where its tickets come from.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A Kerberos principal that [`Sasl`](crate::Sasl) is made of (feature `kerberos`).
///
/// Tickets come from the credential cache of this process, as MIT's library finds it: `KRB5CCNAME`, else what `krb5.conf`
/// says. Without more, somebody else fills it (`kinit`, `k5start`, sssd); where its ticket is renewable, the client renews it
/// when a fifth of its lifetime is left. With a [`keytab`](Kerberos::keytab) the client fills the cache by itself, and again
/// when a fifth of the lifetime is left. Both run MIT's program `kinit`, on a thread that each client has for Kerberos alone. Give each
/// process that has a keytab a cache of its own (`KRB5CCNAME=FILE:/run/shop/krb5cc`, or `MEMORY:` where nothing else reads it): a
/// cache that holds the tickets of another principal is left alone, and is an error.
///
/// A ticket that expires ends no session: it is needed on the next connection. The key distribution centre may be
/// away for a while: then the client tries to connect again and again, and calls fail with [`Error::ConnectionLoss`] meanwhile. If
/// there is no valid ticket, or the servers refuse it, calls fail with [`Error::AuthFailed`].
///
/// | Java | here |
/// |---|---|
/// | `useTicketCache=true` | nothing to set |
/// | `useKeyTab=true`, `keyTab`, `principal` | [`keytab`](Kerberos::keytab), [`principal`](Kerberos::principal) |
/// | `zookeeper.sasl.client.username` | [`service`](Kerberos::service) |
/// | `zookeeper.server.principal` | [`server_principal`](Kerberos::server_principal) |
/// | `zookeeper.sasl.client.canonicalize.hostname` | [`canonicalize_hostname`](Kerberos::canonicalize_hostname) |
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFramework, RetryOneTime, Sasl};
///
/// let shop = Sasl::kerberos().keytab("/etc/shop.keytab").principal("shop@EXAMPLE.COM");
/// let client = CuratorFramework::builder()
///     .connect_string("zk1.example.com:2181,zk2.example.com:2181")
///     .retry_policy(RetryOneTime::new(Duration::from_secs(1)))
///     .sasl(shop)
///     .build()?;
///
/// // The servers' names in Kerberos, where they are not `zookeeper/<host>`:
/// let elsewhere = Sasl::kerberos().service("zk").canonicalize_hostname(false);
/// let the_same_for_all = Sasl::kerberos().server_principal("zookeeper/cluster@EXAMPLE.COM");
/// # drop((elsewhere, the_same_for_all));
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is given to a builder"]
pub struct Kerberos {
    pub(super) service: String,
    pub(super) server_principal: Option<String>,
    pub(super) canonicalize_hostname: bool,
    pub(super) principal: Option<String>,
    pub(super) keytab: Option<PathBuf>,
}

impl Default for Kerberos {
    fn default() -> Kerberos {
        Kerberos {
            service: "zookeeper".to_owned(),
            server_principal: None,
            canonicalize_hostname: true,
            principal: None,
            keytab: None,
        }
    }
}

impl Kerberos {
    /// The first part of the servers' principal, in front of their host. Defaults to `zookeeper`.
    pub fn service(mut self, service: impl Into<String>) -> Kerberos {
        self.service = service.into();
        self
    }

    /// The principal of every server, whatever its host: `zookeeper/cluster@EXAMPLE.COM`. Defaults to none: it follows from
    /// [`service`](Kerberos::service) and the host of the connect string.
    pub fn server_principal(mut self, principal: impl Into<String>) -> Kerberos {
        self.server_principal = Some(principal.into());
        self
    }

    /// Whether the library looks a server's host up in DNS, to find its full name for the principal, as `dns_canonicalize_hostname`
    /// and `rdns` of `krb5.conf` say. Defaults to yes. `false` takes the host as the connect string has it.
    pub fn canonicalize_hostname(mut self, on: bool) -> Kerberos {
        self.canonicalize_hostname = on;
        self
    }

    /// The client's own principal, `shop@EXAMPLE.COM`; without a realm that of `krb5.conf`. Defaults to the first of the credential
    /// cache; a keytab needs it.
    pub fn principal(mut self, principal: impl Into<String>) -> Kerberos {
        self.principal = Some(principal.into());
        self
    }

    /// A file with the principal's keys, with which the client gets its tickets by itself. Defaults to none.
    pub fn keytab(mut self, path: impl AsRef<Path>) -> Kerberos {
        self.keytab = Some(path.as_ref().to_owned());
        self
    }

    /// Checks the whole, without any I/O.
    pub(in crate::session::sasl) fn check(&self) -> Result<()> {
        let principal = self.principal.as_deref().unwrap_or_default();
        if self.keytab.is_some() && self.principal.is_none() {
            return Err(invalid("principal", "", "a keytab may hold keys of several: say which one this client is"));
        }
        // An option of `kinit` would begin so.
        if self.principal.is_some() && (principal.is_empty() || principal.starts_with('-')) {
            return Err(invalid("principal", principal, "must be name@REALM"));
        }
        if self.service.is_empty() || self.service.contains(['/', '@']) {
            let rule = "the part in front of the host, such as zookeeper; a whole principal goes to server_principal()";
            return Err(invalid("service", &self.service, rule));
        }
        Ok(())
    }
}

fn invalid(name: &'static str, value: &str, rule: &str) -> Error {
    Error::InvalidArgument { name, value: value.to_owned(), rule: rule.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_login_is_told_before_anything_is_opened() {
        let argument = |config: Kerberos| match config.check() {
            Err(Error::InvalidArgument { name, .. }) => name,
            _ => "none",
        };
        assert_eq!(argument(Kerberos::default()), "none");
        assert_eq!(argument(Kerberos::default().keytab("/etc/shop.keytab")), "principal");
        assert_eq!(argument(Kerberos::default().principal("-V")), "principal");
        assert_eq!(argument(Kerberos::default().service("zookeeper/zk1")), "service");
        assert_eq!(argument(Kerberos::default().keytab("/etc/shop.keytab").principal("shop")), "none");
    }
}
