//! As whom to log in with SASL.

use std::{env, fmt, path::PathBuf};

use curator_locks::Builder;
#[cfg(feature = "sasl")]
use curator_locks::Sasl;

use crate::{
    args::Connection,
    failure::{Failure, Result},
};

/// The variable with the password, which would be seen on a command line.
pub(crate) const PASSWORD: &str = "ZKLOCK_SASL_PASSWORD";

/// By default as nobody.
#[derive(Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) kerberos: bool,
    pub(crate) keytab: Option<PathBuf>,
    pub(crate) principal: Option<String>,
    pub(crate) server_principal: Option<String>,
}

impl Login {
    /// The command line and the environment come before the file.
    pub(crate) fn overridden_by(mut self, args: &Connection) -> Login {
        #[cfg(feature = "sasl")]
        if args.sasl_user.is_some() {
            self.user.clone_from(&args.sasl_user);
        }
        #[cfg(feature = "kerberos")]
        {
            self.kerberos |= args.kerberos;
            self.keytab = args.keytab.clone().or(self.keytab);
            self.principal = args.principal.clone().or(self.principal);
            self.server_principal = args.server_principal.clone().or(self.server_principal);
        }
        let _ = args;
        self.password = env::var(PASSWORD).ok().filter(|password| !password.is_empty()).or(self.password);
        self.kerberos |= self.keytab.is_some() || self.principal.is_some() || self.server_principal.is_some();
        self
    }

    pub(crate) fn checked(self) -> Result<Login> {
        match &self {
            Login { user: Some(_), kerberos: true, .. } => Err(Failure::new(
                "a password or Kerberos? One client logs in once: sasl-user, or kerberos and its settings",
            )),
            Login { user: Some(user), password: None, .. } => Err(Failure::new(format!(
                "no password of the user {user:?}: say {PASSWORD}=..., or write sasl-password = \"...\" into the file"
            ))),
            _ => Ok(self),
        }
    }

    /// Without TLS somebody on the way learns this, or can do it.
    pub(crate) fn exposed(&self) -> Option<&'static str> {
        match self {
            Login { user: Some(_), .. } => {
                Some("the password of --sasl-user can be guessed from what it is proved with")
            }
            Login { kerberos: true, .. } => {
                Some("a ticket proves who begins a connection, and not who goes on with it")
            }
            _ => None,
        }
    }

    #[cfg(feature = "sasl")]
    pub(crate) fn log_in(&self, builder: Builder) -> Result<Builder> {
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => Ok(builder.sasl(Sasl::digest(user, password))),
            _ if self.kerberos => self.with_tickets(builder),
            _ => Ok(builder),
        }
    }

    #[cfg(not(feature = "sasl"))]
    pub(crate) fn log_in(&self, builder: Builder) -> Result<Builder> {
        if self.user.is_some() || self.kerberos {
            return Err(Failure::new(
                "this zklock was built without SASL: build it with the features cli and kerberos",
            ));
        }
        Ok(builder)
    }

    #[cfg(feature = "kerberos")]
    #[expect(clippy::unnecessary_wraps, reason = "without Kerberos it fails")]
    fn with_tickets(&self, builder: Builder) -> Result<Builder> {
        let mut kerberos = Sasl::kerberos();
        if let Some(keytab) = &self.keytab {
            kerberos = kerberos.keytab(keytab);
        }
        if let Some(principal) = &self.principal {
            kerberos = kerberos.principal(principal);
        }
        if let Some(server) = &self.server_principal {
            kerberos = kerberos.server_principal(server);
        }
        Ok(builder.sasl(kerberos))
    }

    #[cfg(all(feature = "sasl", not(feature = "kerberos")))]
    fn with_tickets(&self, _: Builder) -> Result<Builder> {
        Err(Failure::new("this zklock was built without Kerberos: build it with the features cli and kerberos"))
    }
}

/// Never the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).field("kerberos", &self.kerberos).finish_non_exhaustive()
    }
}
