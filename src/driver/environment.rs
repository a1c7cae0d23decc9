use std::sync::Arc;

use crate::simulated_cloud::{CloudApi, InvalidAddress};

/// What a process offers to the drivers that it opens.
pub(crate) struct Environment<'a> {
    /// The simulated cloud, in the process or beside it.
    pub simulated_cloud: &'a dyn Fn() -> Result<Arc<dyn CloudApi>, InvalidAddress>,
}

/// A driver cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The operator asks for one that is not there.
    #[error("--provider {provider} is not built in: use one of {}", .known.join(", "))]
    NotBuiltIn {
        /// What was asked for.
        provider: String,
        /// Names that would do.
        known: Vec<&'static str>,
    },
    /// The address of its cloud is not one.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
}
