//! As whom peers log in with SASL, so that what they create is theirs alone.

#[cfg(feature = "kerberos")]
use std::{env, fs, path::Path};

use curator_locks::Builder;
#[cfg(feature = "kerberos")]
use curator_locks::{CreatorAllAclProvider, Sasl, testing::TestingKdc};

/// The one who may do everything, and what the server has to know of it.
#[cfg(feature = "kerberos")]
pub(crate) const SUPER: &str = "super:secret";
#[cfg(feature = "kerberos")]
pub(crate) const SUPER_DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

#[cfg(feature = "kerberos")]
const KEYTAB: &str = "PEER_KEYTAB";
#[cfg(feature = "kerberos")]
const PASSWORD: &str = "PEER_PASSWORD";

/// By default as nobody.
#[derive(Debug, Clone, Default)]
pub(crate) struct Login {
    /// For this crate's peers.
    environment: Vec<(&'static str, String)>,
    /// For Curator's peers.
    jvm_options: Vec<String>,
}

impl Login {
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        self.environment.clone()
    }

    pub(crate) fn jvm_options(&self) -> Vec<String> {
        self.jvm_options.clone()
    }
}

#[cfg(feature = "kerberos")]
impl Login {
    /// As the user `shop`; Java reads the file that this writes.
    pub(crate) fn digest(directory: &Path) -> Login {
        let module =
            "org.apache.zookeeper.server.auth.DigestLoginModule required username=\"shop\" password=\"secret\"";
        Login { environment: vec![(PASSWORD, "secret".to_owned())], jvm_options: jaas(directory, module) }
    }

    /// As the principal `shop`, each with the keytab.
    pub(crate) fn kerberos(directory: &Path, kdc: &TestingKdc) -> Login {
        let keytab = kdc.keytab("shop").unwrap().display().to_string();
        let module = format!(
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false \
             keyTab=\"{keytab}\" principal=\"shop@{}\"",
            kdc.realm()
        );
        let mut jvm_options = jaas(directory, &module);
        jvm_options.push(format!("-Djava.security.krb5.conf={}", kdc.configuration().display()));
        jvm_options.push(format!("-Dzookeeper.server.principal=zookeeper/127.0.0.1@{}", kdc.realm()));
        Login { environment: kdc.environment().into_iter().chain([(KEYTAB, keytab)]).collect(), jvm_options }
    }
}

#[cfg(feature = "kerberos")]
fn jaas(directory: &Path, module: &str) -> Vec<String> {
    let file = directory.join("client.jaas");
    fs::write(&file, format!("Client {{\n  {module};\n}};\n")).unwrap();
    vec![format!("-Djava.security.auth.login.config={}", file.display()), "-Dpeer.creatorOnly=true".to_owned()]
}

/// A peer of this crate logs in as its environment says.
#[cfg(feature = "kerberos")]
pub(crate) fn log_in(builder: Builder) -> Builder {
    let builder = match (env::var(PASSWORD), env::var(KEYTAB)) {
        (Ok(password), _) => builder.sasl(Sasl::digest("shop", password)),
        (_, Ok(keytab)) => builder.sasl(Sasl::kerberos().keytab(keytab).principal("shop")),
        _ => return builder,
    };
    builder.acl_provider(CreatorAllAclProvider)
}

#[cfg(not(feature = "kerberos"))]
pub(crate) fn log_in(builder: Builder) -> Builder {
    builder
}
