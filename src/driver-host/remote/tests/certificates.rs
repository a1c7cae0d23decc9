//! Certificates in files.

use std::{fs, path::PathBuf};

use mcm_driver::testing::TestCa;
use tempfile::TempDir;

use crate::remote::tls::TlsFiles;

/// The files of one side.
pub(super) struct Files {
    folder: TempDir,
}

impl Files {
    /// A certificate of a CA, and the CA to trust.
    pub(super) fn new(own: &TestCa, trusted: &TestCa) -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        files.replace(own, trusted);
        files
    }

    pub(super) fn replace(&self, own: &TestCa, trusted: &TestCa) {
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
