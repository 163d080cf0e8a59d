//! Certificates for tests of TLS.

use std::{fmt, fs, net::IpAddr, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    SanType, date_time_ymd,
};

use super::TlsServerConfig;
use crate::{error::Result, session::transport::tls_config::TlsConfig, testing::error::TestingError};

/// A certificate authority for one test run, and what it issues for servers and clients. Features `testing` and `tls`.
///
/// It is for tests only: its key is in the hands of whoever has this value.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFramework, InterProcessMutex, RetryOneTime};
/// use curator_locks::testing::{TestingAuthority, TestingServer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let authority = TestingAuthority::new("tests of the shop")?;
/// let tls = authority.server()?.client_auth(true); // clients have to show a certificate
/// let server = TestingServer::builder().secure_client_port(tls).start()?;
/// let client = CuratorFramework::builder()
///     .connect_string(server.secure_connect_string().ok_or("no port for TLS")?)
///     .retry_policy(RetryOneTime::new(Duration::from_millis(100)))
///     .tls(authority.client("checkout")?)
///     .build()?;
/// client.start()?;
/// InterProcessMutex::new(&client, "/locks/order-42")?.lock()?.release()?;
/// # Ok(())
/// # }
/// ```
///
/// Certificates that are to be refused:
///
/// ```
/// use curator_locks::testing::TestingAuthority;
///
/// let authority = TestingAuthority::new("tests of the shop")?;
/// let expired = authority.issue_expired("server", [[127, 0, 0, 1].into()])?;
/// let server = authority.server_with(&expired)?; // no client may accept it
/// let client = authority.trusted()?; // shows no certificate of its own
/// assert!(authority.pem().starts_with("-----BEGIN CERTIFICATE-----"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TestingAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key, in PEM form.
///
/// ```
/// use curator_locks::testing::{TestingAuthority, TestingCertificate};
///
/// let authority = TestingAuthority::new("tests of the shop")?;
/// let server: TestingCertificate = authority.issue("server", [[127, 0, 0, 1].into()])?;
/// assert!(server.certificate_pem().starts_with("-----BEGIN CERTIFICATE-----"));
/// assert!(server.key_pem().contains("PRIVATE KEY"));
/// # Ok::<(), curator_locks::testing::TestingError>(())
/// ```
#[derive(Clone)]
pub struct TestingCertificate {
    certificate: String,
    key: String,
}

impl TestingCertificate {
    /// The certificate.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// The private key.
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key
    }
}

impl TestingAuthority {
    /// A new authority of this name.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn new(name: &str) -> Result<TestingAuthority, TestingError> {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(cannot_issue)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(cannot_issue)?;
        Ok(TestingAuthority { issuer })
    }

    /// The authority's own certificate, in PEM form. Whoever is shown a certificate that it issued has to trust this one.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate for these addresses; a client needs none.
    ///
    /// # Errors
    /// As [`new`](TestingAuthority::new).
    pub fn issue(
        &self,
        name: &str,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<TestingCertificate, TestingError> {
        self.sign(named(name), addresses)
    }

    /// Issues one whose time was over years ago.
    ///
    /// # Errors
    /// As [`new`](TestingAuthority::new).
    pub fn issue_expired(
        &self,
        name: &str,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<TestingCertificate, TestingError> {
        let mut params = named(name);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        self.sign(params, addresses)
    }

    /// For a server, with a certificate for 127.0.0.1, that trusts clients of this authority.
    ///
    /// # Errors
    /// As [`new`](TestingAuthority::new), and as [`server_with`](TestingAuthority::server_with).
    pub fn server(&self) -> Result<TlsServerConfig, TestingError> {
        self.server_with(&self.issue("server", [[127, 0, 0, 1].into()])?)
    }

    /// For a server with this certificate that trusts clients of this authority.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub fn server_with(&self, own: &TestingCertificate) -> Result<TlsServerConfig, TestingError> {
        let directory = tempfile::tempdir().map_err(TestingError::io("no temporary directory"))?;
        let [key_store, trust_store] = ["server.pem", "authority.pem"].map(|name| directory.path().join(name));
        fs::write(&key_store, format!("{}{}", own.key, own.certificate))
            .and_then(|()| fs::write(&trust_store, self.pem()))
            .map_err(TestingError::io("cannot write a certificate"))?;
        let files = TlsServerConfig::new(key_store, trust_store);
        Ok(TlsServerConfig { _directory: Some(Arc::new(directory)), ..files })
    }

    /// For a client that trusts servers of this authority and has no certificate of its own.
    ///
    /// # Errors
    /// None that is known.
    pub fn trusted(&self) -> Result<TlsConfig> {
        TlsConfig::new().root_certificates_pem(self.pem())
    }

    /// For a client that trusts servers of this authority, and shows them a certificate with this name.
    ///
    /// # Errors
    /// As [`new`](TestingAuthority::new).
    pub fn client(&self, name: &str) -> Result<TlsConfig, TestingError> {
        let own = self.issue(name, [])?;
        let config = self.trusted().and_then(|config| config.client_certificate_pem(own.certificate, own.key));
        config.map_err(cannot_issue)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<TestingCertificate, TestingError> {
        params.subject_alt_names.extend(addresses.into_iter().map(SanType::IpAddress));
        let key = KeyPair::generate().map_err(cannot_issue)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(cannot_issue)?;
        Ok(TestingCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

impl fmt::Debug for TestingAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestingAuthority").finish_non_exhaustive()
    }
}

impl fmt::Debug for TestingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestingCertificate").finish_non_exhaustive()
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn cannot_issue(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TestingError {
    TestingError::io("cannot issue a certificate")(std::io::Error::other(error))
}
