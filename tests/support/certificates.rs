//! Certificate authorities and certificates for one test run.

use std::{fs, net::IpAddr, path::PathBuf};

use curator_locks::TlsConfig;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType,
    date_time_ymd,
};
use tempfile::TempDir;

/// An authority and the directory of what it has issued.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// A certificate and its key, in PEM form.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer, directory: tempfile::tempdir().unwrap() }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate for this address.
    pub fn issue(&self, name: &str, address: Option<IpAddr>) -> Issued {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.extend(address.map(SanType::IpAddress));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// One whose time is over.
    pub fn issue_expired(&self, name: &str, address: IpAddr) -> Issued {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.push(SanType::IpAddress(address));
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// The file of a server's key and certificate.
    pub fn key_store(&self, issued: &Issued) -> PathBuf {
        self.write("server.pem", &format!("{}{}", issued.key, issued.certificate))
    }

    /// The file of the authority's own certificate.
    pub fn trust_store(&self) -> PathBuf {
        self.write("authority.pem", &self.pem())
    }

    /// A client's configuration that trusts this authority.
    pub fn trusted(&self) -> TlsConfig {
        TlsConfig::new().root_certificates_file(self.trust_store()).unwrap()
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}
