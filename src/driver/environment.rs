#[cfg(feature = "remote")]
use super::remote::Endpoint;
use super::secret_policy::SecretPolicy;

/// The settings that a process passes to its drivers.
pub(crate) struct Environment<'a> {
    /// Restricts the Secrets of classes.
    pub secrets: &'a SecretPolicy,
    /// Drivers in other processes. They replace built-in ones of the same name.
    #[cfg(feature = "remote")]
    pub remote: &'a [Endpoint],
}

#[cfg(feature = "remote")]
impl Environment<'_> {
    /// Whether a driver in another process has this name.
    pub(super) fn has_remote(&self, provider: &str) -> bool {
        self.remote.iter().any(|endpoint| endpoint.name.eq_ignore_ascii_case(provider))
    }
}

/// A driver cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
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
}
