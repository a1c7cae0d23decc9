//! Commands that only read: the objects of one namespace and the plans that the controllers would make for them. Nothing is
//! written, and no manager is needed, so they work on control planes of the Go programs.

pub(super) mod watch;

use std::{path::PathBuf, sync::Arc};

use anyhow::Result;
use clap::Args;

use super::{
    flags::{ControlKubeconfig, TargetKubeconfig},
    run,
};
use crate::{
    process::DriverSources,
    simulated_cloud::{CloudApi, CloudSimulator, SimulationSettings},
};
use mcm_driver::DriverGuards;
use mcm_driver_host::DriverCatalogue;
use mcm_insight::read_only::{ReadOnly, ReadOnlyClients};

/// The clusters and the namespace that a command reads.
#[derive(Args, Clone, Debug)]
pub(super) struct ReadingOptions {
    /// Namespace of the objects; that of the kubeconfig if absent
    #[arg(short = 'n', long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Kubeconfig of the control cluster, which contains the machine objects; if absent, KUBECONFIG, the credentials of this pod,
    /// or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the target cluster, which the Nodes join: a file, "none" if the manager runs without one, or empty if the
    /// Nodes are in the control cluster
    #[arg(long, default_value = "", value_name = "FILE")]
    target_kubeconfig: String,
}

impl ReadingOptions {
    /// The options of a command that also writes.
    pub(super) fn for_clusters(
        namespace: Option<String>,
        kubeconfig: Option<PathBuf>,
        target_kubeconfig: String,
    ) -> Self {
        Self { namespace, kubeconfig, target_kubeconfig }
    }

    /// Reads the caches of the namespace.
    ///
    /// # Errors
    /// The control cluster cannot be reached.
    pub(super) async fn open(&self) -> Result<ReadOnly> {
        let reach = self.reach().await?;
        reach.check().await?;
        self.cell(reach).await
    }

    /// Clients that only read. Nothing is asked.
    ///
    /// # Errors
    /// A kubeconfig cannot be used.
    pub(super) async fn reach(&self) -> Result<ReadOnlyClients> {
        ReadOnlyClients::load(&self.control(), &self.target(), self.namespace.clone()).await
    }

    /// Reads the caches through clients of [`Self::reach`].
    ///
    /// # Errors
    /// A driver of this build cannot be opened.
    pub(super) async fn cell(&self, reach: ReadOnlyClients) -> Result<ReadOnly> {
        Ok(ReadOnly::from_clients(reach, run::default_settings(drivers()?)).await)
    }

    fn control(&self) -> ControlKubeconfig {
        self.kubeconfig.clone().into()
    }

    fn target(&self) -> TargetKubeconfig {
        match (self.target_kubeconfig.as_str(), &self.kubeconfig) {
            ("none", _) => TargetKubeconfig::None,
            ("", Some(control)) => TargetKubeconfig::Path(control.clone()),
            ("", None) => TargetKubeconfig::InCluster,
            (path, _) => TargetKubeconfig::Path(path.into()),
        }
    }
}

/// The drivers of this build, which validate classes. None of them is asked anything else.
pub(super) fn drivers() -> Result<DriverCatalogue> {
    let simulated_cloud = || Ok(Arc::new(CloudSimulator::new(0, SimulationSettings::default())) as Arc<dyn CloudApi>);
    let sources = DriverSources {
        simulated_cloud: Some(&simulated_cloud),
        secrets: &mcm_driver::SecretPolicy::default(),
        #[cfg(feature = "remote")]
        remote: &[],
    };
    Ok(sources.open(None, &DriverGuards::unobserved())?)
}
