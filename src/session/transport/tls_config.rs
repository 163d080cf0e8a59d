//! The certificates that the client trusts, and its own.

use std::{fmt, fs, path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

use crate::error::{Error, Result};

/// How connections to the servers are encrypted (feature `tls`), for
/// [`Builder::tls`](crate::Builder::tls).
///
/// The servers need a `secureClientPort`. The client speaks TLS 1.2 and 1.3. The server's certificate must come from one of
/// the given roots, be within its time, and name the host of the connect string, an IP address included, as a subject
/// alternative name; the common name does not count. The client checks each connection in full, and resumes no earlier
/// handshake.
///
/// The handshake counts towards the time of an attempt to connect
/// ([`connection_timeout`](crate::Builder::connection_timeout)). A handshake that fails is like a server that
/// is away: the client tries again, and calls that have waited long enough fail with [`Error::ConnectionLoss`], which says
/// what was wrong. Java: `zookeeper.client.secure`, `zookeeper.ssl.trustStore.location`,
/// `zookeeper.ssl.keyStore.location`.
///
/// ```
/// use curator_locks::{CuratorFramework, ExponentialBackoffRetry, TlsConfig};
/// # use std::time::Duration;
///
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let authority = curator_locks::testing::TestingAuthority::new("example")?;
/// # let port = authority.server()?.client_auth(true);
/// # let server = curator_locks::testing::TestingServer::builder().secure_client_port(port).start()?;
/// # let servers = server.secure_connect_string().ok_or("no port for TLS")?;
/// # let own = authority.issue("checkout", [])?;
/// # let directory = tempfile::tempdir()?;
/// # let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|name| directory.path().join(name));
/// # std::fs::write(&ca, authority.pem())?;
/// # std::fs::write(&certificate, own.certificate_pem())?;
/// # std::fs::write(&key, own.key_pem())?;
/// let tls = TlsConfig::new().root_certificates_file(ca)?.client_certificate_files(&certificate, &key)?;
/// let client = CuratorFramework::builder()
///     .connect_string(servers) // their `secureClientPort`
///     .retry_policy(ExponentialBackoffRetry::new(Duration::from_secs(1), 3))
///     .tls(tls)
///     .build()?;
/// client.start()?;
/// assert!(client.block_until_connected(Some(Duration::from_secs(30)))?);
///
/// let pem = authority.pem(); // from wherever it is kept
/// let tls = TlsConfig::new()
///     .root_certificates_pem(pem)?
///     .client_certificate_pem(own.certificate_pem(), own.key_pem())?
///     .hostname_verification(false); // for tests: anybody with a certificate of the roots is believed
/// # drop(tls);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until it is given to a builder"]
pub struct TlsConfig {
    roots: RootCertStore,
    /// The client's own certificate with its chain, and the key.
    identity: Option<(Vec<CertificateDer<'static>>, Arc<PrivateKeyDer<'static>>)>,
    hostname_verification: bool,
}

impl Default for TlsConfig {
    fn default() -> TlsConfig {
        TlsConfig { roots: RootCertStore::empty(), identity: None, hostname_verification: true }
    }
}

impl TlsConfig {
    /// Trusts nobody yet: at least one root certificate is required.
    pub fn new() -> TlsConfig {
        TlsConfig::default()
    }

    /// Trusts these certificates, one or more in PEM form, and those that they have issued. Can be called several times.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no certificate in it, or one that cannot be read.
    pub fn root_certificates_pem(mut self, pem: impl AsRef<[u8]>) -> Result<TlsConfig> {
        for certificate in certificates("root_certificates_pem", pem.as_ref())? {
            self.roots.add(certificate).map_err(|error| invalid("root_certificates_pem", error))?;
        }
        Ok(self)
    }

    /// As [`root_certificates_pem`](TlsConfig::root_certificates_pem), from a file. Reads it once, now.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, and as `root_certificates_pem`.
    pub fn root_certificates_file(self, path: impl AsRef<Path>) -> Result<TlsConfig> {
        let pem = read(path.as_ref())?;
        self.root_certificates_pem(pem)
    }

    /// The client's own certificate, for servers that ask for one (`ssl.clientAuth`), with those that lead to the
    /// servers' root behind it, and its private key (PKCS#8, PKCS#1 or SEC1, not encrypted), both in PEM form.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if one of them cannot be read. [`build`](crate::Builder::build) checks whether
    /// they belong together.
    pub fn client_certificate_pem(mut self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<TlsConfig> {
        let chain = certificates("client_certificate_pem", chain.as_ref())?;
        let key = PrivateKeyDer::from_pem_slice(key.as_ref()).map_err(|_| {
            invalid("client_certificate_pem", "there is no private key in PEM form that is not encrypted")
        })?;
        self.identity = Some((chain, Arc::new(key)));
        Ok(self)
    }

    /// As [`client_certificate_pem`](TlsConfig::client_certificate_pem), from files. Reads them once, now.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, and as `client_certificate_pem`.
    pub fn client_certificate_files(self, chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<TlsConfig> {
        let (chain, key) = (read(chain.as_ref())?, read(key.as_ref())?);
        self.client_certificate_pem(chain, key)
    }

    /// Whether the server's certificate must name the host that was connected to. Defaults to yes.
    ///
    /// `false` turns this one check off, as `zookeeper.ssl.hostnameVerification=false` does in Java: any server with a
    /// certificate of the given roots will do then, so give only roots that issue for your servers and nobody else.
    pub fn hostname_verification(mut self, on: bool) -> TlsConfig {
        self.hostname_verification = on;
        self
    }

    /// Checks the whole, and turns it into the configuration of connections.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>> {
        if self.roots.is_empty() {
            return Err(invalid("tls", "no server is trusted without root_certificates_pem()"));
        }
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let versions = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("tls", error))?;
        let trust = if self.hostname_verification {
            versions.with_root_certificates(self.roots.clone())
        } else {
            let verifier = AnyHost { roots: self.roots.clone(), algorithms };
            versions.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        };
        let mut config = match &self.identity {
            Some((chain, key)) => trust
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(|error| invalid("client_certificate_pem", error))?,
            None => trust.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// Numbers in place of contents: the key is secret.
impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig")
            .field("roots", &self.roots.len())
            .field("client_certificate", &self.identity.is_some())
            .field("hostname_verification", &self.hostname_verification)
            .finish()
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| Error::Io { what: format!("cannot read {}", path.display()), source: error.into() })
}

fn certificates(argument: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(invalid(argument, "there is no certificate in PEM form")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(invalid(argument, error)),
    }
}

/// The value stays out of it: it is long, or secret.
fn invalid(name: &'static str, rule: impl ToString) -> Error {
    Error::InvalidArgument { name, value: String::new(), rule: rule.to_string() }
}

/// Checks all of a server's certificate but the name in it.
#[derive(Debug)]
struct AnyHost {
    roots: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
