//! The cluster that a command reads, for the heads of its texts and for the commands that it prints. Pure.

use mcm_rules::plan::shell::CallFlags;

/// The control cluster of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTarget {
    /// The context of the kubeconfig, or the address of the API server without one.
    pub cluster: String,
    /// The flags that lead to it.
    pub call: CallFlags,
}

impl CallTarget {
    /// The first line of a text about a namespace.
    pub fn head(&self, namespace: &str) -> String {
        format!("{}\n", self.title(namespace))
    }

    /// The cluster and a namespace in words.
    pub fn title(&self, namespace: &str) -> String {
        match self.cluster.as_str() {
            "" => format!("namespace {namespace}"),
            cluster => format!("cluster {cluster}, namespace {namespace}"),
        }
    }

    /// The cluster in words, for a text about all its namespaces.
    pub fn title_of_all(&self) -> String {
        match self.cluster.as_str() {
            "" => "all namespaces".to_owned(),
            cluster => format!("cluster {cluster}, all namespaces"),
        }
    }
}
