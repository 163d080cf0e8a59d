//! SASL: who the client is, proved on each connection behind the handshake and in front of everything else.
//!
//! | open | for |
//! |---|---|
//! | `exchange` | the rounds, as a state machine |
//! | `mechanism` | what it asks of a mechanism, and why a connection is not authenticated |
//! | `digest_md5` | a user and a password |
//! | `kerberos` | tickets: where they come from, their renewal, GSSAPI |

mod digest_md5;
pub(crate) mod exchange;
#[cfg(feature = "kerberos")]
pub(crate) mod kerberos;
pub(crate) mod mechanism;

use std::{fmt, sync::Arc, time::Instant};

use digest_md5::DigestMd5;
#[cfg(feature = "kerberos")]
use kerberos::{config::Kerberos, login::Login};
use mechanism::{Authenticator, Begun, Failure};

use crate::error::{Error, Result};

/// Proves to the servers who this client is (feature `sasl`), for [`Builder::sasl`](crate::Builder::sasl).
///
/// With [`digest`](Sasl::digest) it is a user with a password, for servers with ZooKeeper's `DigestLoginModule`; with
/// `Sasl::kerberos` (feature `kerberos`) a Kerberos principal, for servers with a `Krb5LoginModule`. To ACLs it is
/// `sasl:user`; [`CreatorAllAclProvider`](crate::CreatorAllAclProvider) makes znodes that only this identity may use.
///
/// The client authenticates on every connection, before anything else is sent, within the time of an attempt to connect
/// ([`connection_timeout`](crate::Builder::connection_timeout)). Held locks outlive a reconnect as they do without SASL. If the servers
/// refuse the client, or it has no valid credentials, its session ends: what it held is lost, and every call fails
/// with [`Error::AuthFailed`], which says why, until another client is built. Java: `java.security.auth.login.config`.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CreatorAllAclProvider, CuratorFramework, RetryOneTime, Sasl};
///
/// let client = CuratorFramework::builder()
///     .connect_string("zk1:2181,zk2:2181")
///     .retry_policy(RetryOneTime::new(Duration::from_secs(1)))
///     .sasl(Sasl::digest("shop", "secret"))
///     .acl_provider(CreatorAllAclProvider)
///     .build()?;
/// assert!(!format!("{:?}", Sasl::digest("shop", "secret")).contains("secret"));
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "it does nothing until it is given to a builder"]
pub struct Sasl(Method);

#[derive(Clone)]
enum Method {
    Digest {
        user: String,
        password: String,
    },
    #[cfg(feature = "kerberos")]
    Kerberos(Kerberos),
}

impl Sasl {
    /// A user with a password, as a line `user_shop="secret"` of the servers' JAAS section `Server` has it. Java: `username` and
    /// `password` of a `DigestLoginModule`.
    ///
    /// Its mechanism, DIGEST-MD5, sends no password, but hashes from which a weak one can be guessed: use
    /// [`tls`](crate::Builder) where others may listen.
    pub fn digest(user: impl Into<String>, password: impl Into<String>) -> Sasl {
        Sasl(Method::Digest { user: user.into(), password: password.into() })
    }

    /// A Kerberos principal: by default the one whose tickets are in the credential cache of this process.
    #[cfg(feature = "kerberos")]
    pub fn kerberos() -> Kerberos {
        Kerberos::default()
    }

    /// Checks the whole.
    pub(crate) fn authenticator(self) -> Result<Arc<dyn Authenticator>> {
        match self.0 {
            Method::Digest { user, password } => {
                if user.is_empty() {
                    let rule = "a digest needs a user".to_owned();
                    return Err(Error::InvalidArgument { name: "sasl", value: user, rule });
                }
                Ok(Arc::new(Digest { user, password }))
            }
            #[cfg(feature = "kerberos")]
            Method::Kerberos(config) => {
                config.check()?;
                Ok(Arc::new(Login::new(config)))
            }
        }
    }
}

#[cfg(feature = "kerberos")]
impl From<Kerberos> for Sasl {
    fn from(config: Kerberos) -> Sasl {
        Sasl(Method::Kerberos(config))
    }
}

/// The user, and never the password.
impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Method::Digest { user, .. } => f.debug_struct("Sasl").field("user", user).finish_non_exhaustive(),
            #[cfg(feature = "kerberos")]
            Method::Kerberos(config) => f.debug_tuple("Sasl").field(config).finish(),
        }
    }
}

struct Digest {
    user: String,
    password: String,
}

impl Authenticator for Digest {
    fn begin(&self, _: &str, _: Instant, _: &dyn Fn() -> bool) -> std::result::Result<Begun, Failure> {
        // The server speaks first: an empty token asks it to.
        Ok((Box::new(DigestMd5::new(self.user.clone(), self.password.clone())), Vec::new()))
    }
}
