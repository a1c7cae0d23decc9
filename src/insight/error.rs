//! Errors of those who ask. Pure.

/// Arguments that are well-formed and make no sense together, found only when the command runs.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct UsageError {
    /// The error.
    pub message: String,
    /// The hint.
    pub hint: String,
}
