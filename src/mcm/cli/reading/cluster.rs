//! The control cluster of a command: its kubeconfig, context, user and namespace.

use std::path::PathBuf;

use clap::Args;

use crate::cli::{flags::ControlKubeconfig, program};
use mcm_rules::plan::shell::{CallFlags, control_flags};
use mcm_runtime::kubeconfig::ContextChoice;

/// The context of the kubeconfig, and the user in whose name requests are made, with the meaning that kubectl gives the flags.
#[derive(Args, Clone, Debug, Default)]
pub struct ContextOptions {
    /// Context of the kubeconfig; the current one if absent
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) context: Option<String>,
    /// User in whose name the cluster is asked, as kubectl does
    #[arg(long = "as", value_name = "USER")]
    pub(in crate::cli) as_user: Option<String>,
    /// Group in whose name the cluster is asked, with --as; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user")]
    pub(in crate::cli) as_group: Vec<String>,
}

/// The control cluster and the namespace of a command.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterOptions {
    /// Namespace of the objects; that of the kubeconfig if absent
    #[arg(short = 'n', long, value_name = "NAME")]
    pub(in crate::cli) namespace: Option<String>,
    /// Kubeconfig of the control cluster, which contains the machine objects; if absent, KUBECONFIG, the credentials of this pod,
    /// or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) context: ContextOptions,
}

impl ContextOptions {
    /// The choice for the control cluster.
    pub(in crate::cli) fn choice(&self) -> ContextChoice {
        ContextChoice { context: self.context.clone(), user: self.as_user.clone(), groups: self.as_group.clone() }
    }
}

impl ClusterOptions {
    pub(in crate::cli) fn control(&self) -> ControlKubeconfig {
        self.kubeconfig.clone().into()
    }

    /// The flags of this call, for the commands that it prints.
    pub(in crate::cli) fn call(&self, target: &str) -> CallFlags {
        let ContextOptions { context, as_user, as_group } = &self.context;
        let kubeconfig = self.kubeconfig.as_ref().map(|path| path.display().to_string());
        let control = control_flags(kubeconfig, context.clone(), as_user.clone(), as_group.iter().cloned());
        CallFlags { program: program::plugin_name(), control, target: target.to_owned() }
    }
}
