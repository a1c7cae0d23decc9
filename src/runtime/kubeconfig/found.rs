//! A kubeconfig that is found in objects or folders, and replaced while clients use it.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

/// A kubeconfig as text. Clients reload it after a replacement, and their caches stay. It is equal to its clones only.
#[derive(Clone)]
pub struct FoundKubeconfig {
    /// Its source, for errors.
    name: Arc<str>,
    current: Arc<Mutex<FoundText>>,
}

struct FoundText {
    text: Arc<str>,
    /// Grows with each replacement.
    version: u64,
}

impl FoundKubeconfig {
    /// A kubeconfig with the name of its source.
    pub fn new(name: &str, text: &str) -> Self {
        Self { name: name.into(), current: Arc::new(Mutex::new(FoundText { text: text.into(), version: 0 })) }
    }

    /// Replaces the text and returns whether it differs. The new one must be for the same server: caches belong to it.
    pub fn replace(&self, text: &str) -> bool {
        let mut current = self.current.lock();
        let is_changed = *current.text != *text;
        if is_changed {
            *current = FoundText { text: text.into(), version: current.version + 1 };
        }
        is_changed
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn current(&self) -> (Arc<str>, u64) {
        let current = self.current.lock();
        (Arc::clone(&current.text), current.version)
    }
}

impl PartialEq for FoundKubeconfig {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.current, &other.current)
    }
}

impl Eq for FoundKubeconfig {}

/// Without the text, which contains credentials.
impl fmt::Debug for FoundKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FoundKubeconfig").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig::{ControlKubeconfig, KubeconfigFallback, ProcessClusters, TargetKubeconfig};

    fn text(token: &str) -> String {
        format!(
            "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: 'https://one.example'}}}}], users: [{{name: a, user: {{username: {token}, password: x}}}}]}}"
        )
    }

    #[tokio::test]
    async fn a_replaced_text_is_reloaded_once_and_one_that_cannot_be_used_is_an_error() {
        let found = FoundKubeconfig::new("shoot--a", &text("first"));
        let target = TargetKubeconfig::Found(found.clone());
        let clusters = ProcessClusters::load(&ControlKubeconfig::SameAsTarget, &target, KubeconfigFallback::None).await;
        let before = clusters.unwrap().control;
        assert!(before.reload().await.unwrap().is_none());
        assert!(!found.replace(&text("first")), "it is the same");
        assert!(before.reload().await.unwrap().is_none());
        assert!(found.replace(&text("second")));
        let after = before.reload().await.unwrap().unwrap();
        let token = after.config.auth_info.username.as_deref();
        assert_eq!(token, Some("second"));
        assert!(after.reload().await.unwrap().is_none());
        found.replace("users: [");
        let error = after.reload().await.unwrap_err().to_string();
        assert!(error.contains("shoot--a") && !error.contains("users"), "{error}");
    }

    #[test]
    fn a_kubeconfig_is_no_other_one_with_its_text_and_is_not_shown() {
        let found = FoundKubeconfig::new("a", "secret");
        assert!(found == found.clone() && found != FoundKubeconfig::new("a", "secret"));
        assert!(!format!("{found:?}").contains("secret"));
    }
}
