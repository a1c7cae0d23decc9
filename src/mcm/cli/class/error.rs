//! Errors of a check.

use std::io;

use crate::{api::machine::API_VERSION, cli::objects::ObjectsError};

/// Classes that could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum NotChecked {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] ObjectsError),
    /// An object in the file is invalid for its kind.
    #[error("{object}: {problem}")]
    Invalid {
        /// Kind and name.
        object: String,
        /// The problem.
        problem: String,
    },
    /// An object of a kind that is not served in this version.
    #[error("{object}: apiVersion {given} is not served: write {API_VERSION}")]
    Version {
        /// Kind and name.
        object: String,
        /// Its `apiVersion`.
        given: String,
    },
    /// There is nothing to check.
    #[error("there is no MachineClass in {0}")]
    Nothing(String),
    /// Credentials would be readable by others.
    #[error("credentials would be sent unencrypted to {0}: use https://, or --driver-insecure")]
    Exposed(String),
    /// A driver cannot be used.
    #[error("{0}")]
    Driver(String),
}

/// Classes that could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum NotCompleted {
    /// The classes cannot be read.
    #[error(transparent)]
    Input(#[from] NotChecked),
    /// A path is no file.
    #[error("{0} is no file: name the files with the classes and the Secrets")]
    NoFile(String),
    /// A file cannot be written.
    #[error("write {path}")]
    Write {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}
