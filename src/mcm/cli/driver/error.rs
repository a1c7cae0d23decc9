//! Errors of a test.

use std::{path::PathBuf, time::Duration};

use crate::cli::objects::ObjectsError;
use mcm_driver_host::remote::DriverAddress;

/// A driver that could not be tested.
#[derive(Debug, thiserror::Error)]
pub enum NotTested {
    /// A file cannot be read.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// A file has not what it must have.
    #[error("read {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: anyhow::Error,
    },
    /// It is not there.
    #[error("{0}")]
    Unreachable(String),
    /// Credentials would be readable by others.
    #[error("credentials would be sent unencrypted to {0}: use https://, or --insecure")]
    Exposed(DriverAddress),
    /// It does not end.
    #[error("the test did not end within {0:?}")]
    Endless(Duration),
}
