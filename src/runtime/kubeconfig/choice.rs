//! The context of a kubeconfig, and the user in whose name requests are made.

use kube::{Config, config::Kubeconfig};

use super::StartError;

/// The choice of `--context`, `--as` and `--as-group`, which have the meaning that they have for kubectl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextChoice {
    /// Name of the context; the current one if absent.
    pub context: Option<String>,
    /// The user who is impersonated.
    pub user: Option<String>,
    /// The groups that are impersonated.
    pub groups: Vec<String>,
}

impl ContextChoice {
    /// The name of the context that is used.
    ///
    /// # Errors
    /// The kubeconfig does not have the chosen one.
    pub(super) fn context_of(&self, kubeconfig: &Kubeconfig, file: &str) -> Result<Option<String>, StartError> {
        let Some(chosen) = &self.context else { return Ok(kubeconfig.current_context.clone()) };
        let known: Vec<String> = kubeconfig.contexts.iter().map(|one| one.name.clone()).collect();
        match known.contains(chosen) {
            true => Ok(Some(chosen.clone())),
            false => Err(StartError::ContextMissing { context: chosen.clone(), file: file.to_owned(), known }),
        }
    }

    /// The configuration with the user who is impersonated. A kubeconfig may impersonate one as well.
    pub(super) fn impersonated(&self, mut config: Config) -> Config {
        if let Some(user) = &self.user {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = None;
        }
        if !self.groups.is_empty() {
            config.auth_info.impersonate_groups = Some(self.groups.clone());
        }
        config
    }
}
