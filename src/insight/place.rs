//! The cluster that a command reads, for the heads of its texts and for the commands that it prints. Pure.

use mcm_rules::plan::shell::{CallFlags, CommandCluster, is_of_target};

/// The step before every command for a target cluster that is not known.
const NAME_TARGET: &str = "add --target-kubeconfig FILE to this command, with the kubeconfig of the cluster of the Nodes: it then prints the \
     commands for that cluster";

/// The control cluster of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTarget {
    /// The context of the kubeconfig, or the address of the API server without one.
    pub cluster: String,
    /// The flags that lead to it.
    pub call: CallFlags,
    /// The Nodes are in none of the clusters that were read.
    pub is_target_unknown: bool,
}

impl CallTarget {
    /// No command for this cluster can be printed.
    pub fn is_unknown(&self, cluster: CommandCluster) -> bool {
        self.is_target_unknown && cluster == CommandCluster::Target
    }

    /// A text with the flags of the call in its commands. One for an unknown target becomes the instruction to name that.
    pub fn addressed_to(&self, text: &str, cluster: CommandCluster) -> String {
        match self.is_unknown(cluster) {
            true => NAME_TARGET.to_owned(),
            false => self.call.addressed_to(text, cluster),
        }
    }

    /// The same for a text whose resource names its cluster.
    pub fn addressed(&self, text: &str) -> String {
        let cluster = if is_of_target(text) { CommandCluster::Target } else { CommandCluster::Control };
        self.addressed_to(text, cluster)
    }

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
        self.title_of_many("all namespaces")
    }

    /// The cluster and several namespaces in words.
    pub fn title_of_many(&self, namespaces: &str) -> String {
        match self.cluster.as_str() {
            "" => namespaces.to_owned(),
            cluster => format!("cluster {cluster}, {namespaces}"),
        }
    }
}
