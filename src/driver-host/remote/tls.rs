//! TLS on both sides, from files that are read again for each connection: a certificate is replaced without a restart.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::WebPkiClientVerifier,
    version::TLS13,
};

use mcm_runtime::pem::{self, PemError, TlsIdentity};

/// HTTP/2, the only one that gRPC uses.
const ALPN: &[u8] = b"h2";

/// PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The CA of the other side.
    pub ca: Option<PathBuf>,
    /// The own certificate with its chain.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// Files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] PemError),
    /// Certificate and key go together.
    #[error("a certificate needs its key, and a key its certificate: pass both files or none")]
    Half,
    /// The CA is missing.
    #[error("https needs the file of the CA that signed the certificate of the driver")]
    NoCa,
    /// The certificate is missing.
    #[error("a server with TLS needs a certificate and its key")]
    NoCertificate,
    /// rustls rejects them.
    #[error("use the TLS files")]
    Rejected(#[source] rustls::Error),
    /// The CA of clients cannot be used.
    #[error("use the CA of clients")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

impl TlsFiles {
    /// No file is named.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The files that are named.
    pub(super) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        [&self.ca, &self.cert, &self.key].into_iter().flatten().cloned()
    }

    /// For connections to a driver.
    pub(super) fn client(&self) -> Result<ClientConfig, TlsError> {
        let roots = self.roots()?.ok_or(TlsError::NoCa)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(TlsError::Rejected)?
            .with_root_certificates(roots);
        let mut config = match self.identity()? {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(TlsError::Rejected)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// For connections from clients. With a CA, each needs a certificate of it.
    pub(super) fn server(&self) -> Result<ServerConfig, TlsError> {
        let (chain, key) = self.identity()?.ok_or(TlsError::NoCertificate)?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(TlsError::Rejected)?;
        let builder = match self.roots()? {
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
                builder.with_client_cert_verifier(verifier.build().map_err(TlsError::Verifier)?)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Rejected)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    fn roots(&self) -> Result<Option<RootCertStore>, TlsError> {
        const WHAT: &str = "CA certificate";
        let Some(path) = &self.ca else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(pem::certificates(WHAT, path)?);
        if added == 0 { Err(PemError::Empty { what: WHAT, path: path.clone() }.into()) } else { Ok(Some(roots)) }
    }

    fn identity(&self) -> Result<Option<TlsIdentity>, TlsError> {
        match (&self.cert, &self.key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => Ok(Some(pem::identity(cert, key)?)),
            _ => Err(TlsError::Half),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
