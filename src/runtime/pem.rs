//! Certificates and keys in PEM files.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::files;

/// The name of a certificate file in errors.
const CERTIFICATE: &str = "certificate";

/// A certificate with its chain, and its key.
pub type TlsIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// It cannot be read.
    #[error("read {what} {}", .path.display())]
    Read {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("{} has no {what} in PEM form", .path.display())]
    Empty {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
}

/// Reads a certificate with its chain, and its key.
pub fn identity(cert: &Path, key: &Path) -> Result<TlsIdentity, PemError> {
    let chain = certificates(CERTIFICATE, cert)?;
    if chain.is_empty() {
        return Err(PemError::Empty { what: CERTIFICATE, path: cert.to_owned() });
    }
    // The text of a parser error could quote the key.
    let read = PrivateKeyDer::from_pem_slice(&read("key", key)?).ok();
    let key = read.ok_or_else(|| PemError::Empty { what: "key", path: key.to_owned() })?;
    Ok((chain, key))
}

/// Reads the certificates of a file, perhaps none. `what` names the file in errors.
pub fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let text = read(what, path)?;
    Ok(CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect())
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, PemError> {
    files::read(path, files::PEM).map_err(|source| PemError::Read { what, path: path.to_owned(), source })
}
