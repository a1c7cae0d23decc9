use std::sync::Arc;

use crate::simulated_cloud::{CloudApi, InvalidAddress};

/// What a process passes to the drivers that it opens.
pub(crate) struct Environment<'a> {
    /// The simulated cloud, in the process or beside it.
    pub simulated_cloud: &'a dyn Fn() -> Result<Arc<dyn CloudApi>, InvalidAddress>,
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
    Address(#[from] InvalidAddress),
}
