//! Commands that only read: the objects of one namespace and the plans that the controllers would make for them. Nothing is
//! written, and no manager is needed, so they work on control planes of the Go programs.

pub(super) mod cloud;
mod cluster;
pub(super) mod namespaces;
pub(super) mod watch;

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};

use self::namespaces::ClusterNamespaces;
use super::{flags::TargetKubeconfig, run};
use crate::{
    process::DriverSources,
    simulated_cloud::{CloudApi, CloudSimulator, SimulationSettings},
};
use mcm_driver::DriverGuards;
use mcm_driver_host::DriverCatalogue;
use mcm_insight::{
    place::CallTarget,
    read_only::{ReadOnly, ReadOnlyClients},
};
use mcm_rules::plan::shell::CallFlags;

pub use cluster::{ClusterOptions, ContextOptions};

/// The clusters and the namespace that a command reads.
#[derive(Args, Clone, Debug)]
pub(super) struct ReadingOptions {
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Kubeconfig of the target cluster, which the Nodes join: a file, "none" if the manager runs without one, or empty if the
    /// Nodes are in the control cluster
    #[arg(long, default_value = "", value_name = "FILE")]
    target_kubeconfig: String,
}

impl ReadingOptions {
    /// The options of a command that also writes.
    pub(super) fn for_clusters(cluster: ClusterOptions, target_kubeconfig: String) -> Self {
        Self { cluster, target_kubeconfig }
    }

    /// The same options for another namespace.
    pub(super) fn within(&self, namespace: String) -> Self {
        let cluster = ClusterOptions { namespace: Some(namespace), ..self.cluster.clone() };
        Self { cluster, ..self.clone() }
    }

    /// The flags of this call, for the commands that it prints.
    fn call(&self) -> CallFlags {
        self.cluster.call(&self.target_kubeconfig)
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
        let (choice, namespace) = (self.cluster.context.choice(), self.cluster.namespace.clone());
        ReadOnlyClients::load(&self.cluster.control(), &self.target(), namespace, &choice, self.call()).await
    }

    /// Reads each namespace with deployments or sets, a few at a time.
    ///
    /// # Errors
    /// The namespaces cannot be listed, or one of them cannot be read.
    pub(super) async fn each_namespace<T>(
        &self,
        read: impl AsyncFn(ReadOnly) -> Result<T>,
    ) -> Result<NamespaceReadings<T>> {
        let reach = self.reach().await?;
        reach.check().await?;
        let ClusterNamespaces { used, refused } = namespaces::namespaces(&reach).await?;
        let (reach, read) = (&reach, &read);
        let readings = used.into_iter().map(|name| async move { read(self.cell(reach.within(&name)).await?).await });
        let readings = stream::iter(readings).buffered(namespaces::AT_A_TIME).try_collect().await?;
        Ok(NamespaceReadings { place: reach.place.clone(), readings, refused: refused.into_iter().collect() })
    }

    /// Reads the caches through clients of [`Self::reach`].
    ///
    /// # Errors
    /// A driver of this build cannot be opened.
    pub(super) async fn cell(&self, reach: ReadOnlyClients) -> Result<ReadOnly> {
        Ok(ReadOnly::from_clients(reach, run::default_settings(drivers()?)).await)
    }

    fn target(&self) -> TargetKubeconfig {
        match self.target_kubeconfig.as_str() {
            "none" => TargetKubeconfig::None,
            "" => TargetKubeconfig::SameAsControl,
            path => TargetKubeconfig::Path(path.into()),
        }
    }
}

/// The readings of all namespaces of a cluster.
pub(super) struct NamespaceReadings<T> {
    /// The cluster.
    pub place: CallTarget,
    /// In the order of the names of the namespaces.
    pub readings: Vec<T>,
    /// Namespaces that the user may not read, with the refusal.
    pub refused: Vec<(String, String)>,
}

impl<T> NamespaceReadings<T> {
    /// Notes about the namespaces that the user may not read.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |(namespace, refusal): &(String, String)| format!("namespace {namespace} was not read: {refusal}");
        self.refused.iter().map(note).collect()
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
