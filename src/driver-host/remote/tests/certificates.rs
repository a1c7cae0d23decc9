//! CAs and certificates in files.

use std::{fs, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::remote::tls::TlsFiles;

pub(super) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// The files of one side.
pub(super) struct Files {
    folder: TempDir,
}

impl Files {
    /// A certificate of a CA, and the CA to trust.
    pub(super) fn new(own: &Ca, trusted: &Ca) -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        files.replace(own, trusted);
        files
    }

    pub(super) fn replace(&self, own: &Ca, trusted: &Ca) {
        let (cert, key) = own.issue();
        for (name, text) in [("cert", &cert), ("key", &key), ("ca", &trusted.pem)] {
            fs::write(self.path(name), text).unwrap();
        }
    }

    pub(super) fn all(&self) -> TlsFiles {
        let path = |name| Some(self.path(name));
        TlsFiles { ca: path("ca"), cert: path("cert"), key: path("key") }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
