//! CA certificates of a file that the operator of a process names.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use reqwest::{Certificate, ClientBuilder};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Most bytes of a file with CA certificates. That of a system has some 200 KiB.
const LARGEST: u64 = 4 << 20;

/// CA certificates that the operator of a process trusts in place of those of the system.
#[derive(Clone, Debug)]
pub struct CaBundle {
    pem: String,
}

/// A file with CA certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("read the CA certificates in {}", .path.display())]
pub struct CaBundleError {
    path: PathBuf,
    source: io::Error,
}

impl CaBundle {
    /// Reads a file of at most 4 MiB with certificates in PEM form.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate, or something that is not one.
    pub fn read(path: &Path) -> Result<Self, CaBundleError> {
        let read = || {
            let mut pem = String::new();
            File::open(path)?.take(LARGEST + 1).read_to_string(&mut pem)?;
            if pem.len() as u64 > LARGEST {
                return Err(io::Error::other(format!("it has more than {LARGEST} bytes")));
            }
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
            if roots.is_empty() {
                return Err(io::Error::other("it has no certificate in PEM form"));
            }
            Ok(Self { pem })
        };
        read().map_err(|source| CaBundleError { path: path.to_owned(), source })
    }

    /// The certificates in PEM form.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Lets a client trust these certificates alone.
    pub(super) fn apply(&self, builder: ClientBuilder) -> reqwest::Result<ClientBuilder> {
        Ok(builder.tls_certs_only(Certificate::from_pem_bundle(self.pem.as_bytes())?))
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs};

    use rcgen::{CertificateParams, KeyPair};
    use rstest::rstest;

    use super::*;

    fn certificate() -> String {
        CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn a_bundle_has_all_certificates_of_its_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pem = format!("# two\n{}{}", certificate(), certificate());
        fs::write(&file, &pem).unwrap();
        assert_eq!(CaBundle::read(file.path()).unwrap().pem(), pem);
    }

    #[rstest]
    #[case::empty("", "it has no certificate in PEM form")]
    #[case::text("certificates", "it has no certificate in PEM form")]
    #[case::not_a_certificate(
        "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
        "invalid peer certificate"
    )]
    #[case::too_large(&"#".repeat((4 << 20) + 1), "it has more than 4194304 bytes")]
    fn a_file_without_certificates_is_refused_with_its_path(#[case] text: &str, #[case] expected: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        let error = CaBundle::read(file.path()).unwrap_err();
        let path = file.path().display().to_string();
        let cause = error.source().unwrap().to_string();
        assert!(error.to_string().contains(&path) && cause.contains(expected), "{error}: {cause}");
    }
}
