//! The certificate of an endpoint: from files that are read again when they change, or self-signed and created at the
//! start.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    version::TLS13,
};

use crate::{
    acceptor::TlsEndpoint,
    pem::{self, PemError},
};

/// How often the files are read, by the next connection.
pub(super) const LOOK: Duration = Duration::from_secs(10);
const ALPN: &[u8] = b"http/1.1";

/// PEM files of a certificate, with its chain, and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// `--tls-cert-file`.
    pub cert: PathBuf,
    /// `--tls-private-key-file`.
    pub key: PathBuf,
}

/// The endpoint has no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] PemError),
    /// They do not fit each other.
    #[error("use {} with {}", .files.cert.display(), .files.key.display())]
    Rejected {
        /// The files.
        files: CertificateFiles,
        /// The TLS error.
        #[source]
        source: rustls::Error,
    },
    /// No self-signed certificate could be created.
    #[error("create a self-signed certificate")]
    SelfSigned(#[source] rcgen::Error),
    /// It cannot be used.
    #[error("use the self-signed certificate")]
    Unusable(#[source] rustls::Error),
}

/// Reads the certificate of an endpoint, or creates a self-signed one.
pub(super) fn endpoint(files: Option<CertificateFiles>, every: Duration) -> Result<TlsEndpoint, CertificateError> {
    let Some(files) = files else { return TlsEndpoint::watching([], every, self_signed) };
    TlsEndpoint::watching([files.cert.clone(), files.key.clone()], every, move || read(&files))
}

/// A certificate for the host name. Clients cannot verify it: they trust the network, or the user supplies certificate
/// files.
fn self_signed() -> Result<ServerConfig, CertificateError> {
    let host = hostname::get().unwrap_or_default().to_string_lossy().into_owned();
    let names = [host, "localhost".to_owned()].into_iter().filter(|name| !name.is_empty() && name.is_ascii());
    let made = rcgen::generate_simple_self_signed(names.collect::<Vec<_>>()).map_err(CertificateError::SelfSigned)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    config(vec![made.cert.der().clone()], key.into()).map_err(CertificateError::Unusable)
}

fn read(files: &CertificateFiles) -> Result<ServerConfig, CertificateError> {
    let (chain, key) = pem::identity(&files.cert, &files.key)?;
    config(chain, key).map_err(|source| CertificateError::Rejected { files: files.clone(), source })
}

fn config(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[&TLS13])?.with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}
