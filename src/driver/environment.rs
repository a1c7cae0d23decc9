//! The settings of a process for its drivers, and errors when one is opened.

use super::secret_policy::SecretPolicy;

/// The settings that a process passes to its drivers.
pub struct DriverEnvironment<'a> {
    /// Restricts the Secrets of classes.
    pub secrets: &'a SecretPolicy,
}

/// A driver cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The flag names a provider that is not built in.
    #[error("--provider {provider} is not built in: use one of {}", .known.join(", "))]
    NotBuiltIn {
        /// The provider in the flag.
        provider: String,
        /// The built-in providers.
        known: Vec<&'static str>,
    },
    /// The address of its cloud is invalid.
    #[error(transparent)]
    Address(Box<dyn std::error::Error + Send + Sync>),
    /// A variable of the environment has a value that cannot be used.
    #[error("{name} in the environment cannot be used: correct or remove it")]
    Variable {
        /// The name of the variable.
        name: &'static str,
        /// The problem of its value.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
