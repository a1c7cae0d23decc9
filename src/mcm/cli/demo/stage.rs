//! The cluster, the cloud and the manager of the demo.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use kube::Client;

use super::{
    cloud::DemoCloud,
    options::DemoOptions,
    process::{ChildProcess, free_port},
};
use crate::cli::{apply, crd};
use mcm_runtime::kubeconfig::{
    self, ClusterConfig, ControlKubeconfig, KubeconfigFallback, ProcessClusters, StartError, TargetKubeconfig,
    UserAgent,
};

const WORKLOAD: &str = include_str!("../../../../templates/simulated/workload.yaml");
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: demo}";
const FIELD_MANAGER: &str = "mcm-demo";
const LOG: &str = "mcm.log";

/// The clients and the manager of the demo.
pub struct DemoEnvironment {
    /// The cluster.
    pub client: Client,
    /// The cloud.
    pub cloud: Arc<dyn DemoCloud>,
    kubeconfig: String,
    manager: ChildProcess,
}

impl DemoEnvironment {
    /// Installs the CRDs and starts the manager.
    pub async fn set(
        options: &DemoOptions,
        program: &Path,
        kubeconfig: &Path,
        cloud: Arc<dyn DemoCloud>,
    ) -> Result<Self> {
        std::fs::create_dir_all(options.show.logs()).context("create the log directory")?;
        let client = client_of(kubeconfig).await?;
        apply::apply(&client, &crd::render(None)?, FIELD_MANAGER).await.context("install the CRDs")?;
        apply::apply(&client, NAMESPACE, FIELD_MANAGER).await?;

        let kubeconfig = kubeconfig.display().to_string();
        let port = free_port(25_000)?;
        let mut arguments = vec![
            "run".to_owned(),
            format!("--control-kubeconfig={kubeconfig}"),
            format!("--target-kubeconfig={kubeconfig}"),
            "--namespace=demo".to_owned(),
            format!("--port={port}"),
            "--address=127.0.0.1".to_owned(),
            "--machine-health-timeout=2s".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=200".to_owned(),
            "--v=3".to_owned(),
        ];
        arguments.extend(cloud.flags());
        let log = options.show.logs().join(LOG);
        let mut manager = ChildProcess::start("the manager", program, &arguments, log, options.leaves_processes())?;
        manager.until_it_answers(&format!("http://127.0.0.1:{port}/readyz")).await?;
        Ok(Self { client, cloud, kubeconfig, manager })
    }

    /// Applies the machines and the pods.
    pub async fn apply_templates(&self) -> Result<()> {
        apply::apply(&self.client, &self.cloud.objects(), FIELD_MANAGER).await?;
        apply::apply(&self.client, WORKLOAD, FIELD_MANAGER).await
    }

    /// The process of the manager.
    pub fn process(&self) -> Option<u32> {
        self.manager.id()
    }

    /// Stops the manager.
    pub async fn clear(&mut self) {
        self.manager.stop().await;
    }

    /// Hints for `--keep`, and how it ends.
    pub fn how_to_look_around(&self, end: &str) -> String {
        format!(
            "Everything is left running. Look around with:\n\n  \
             export KUBECONFIG={}\n  \
             kubectl get mcd,mcs,mc,mcc -n demo -o wide\n  \
             kubectl get nodes\n  \
             kubectl scale mcd/pool -n demo --replicas=3\n  \
             {}\n\nStop it with: {end}",
            self.kubeconfig,
            self.cloud.hint()
        )
    }
}

/// Checks the cluster before anything is started, with the errors and hints of the managers.
pub(super) async fn check(path: &Path) -> Result<(), StartError> {
    let cluster = cluster_of(path).await?;
    let client = kubeconfig::client(&cluster, UserAgent::Mcm).await?;
    kubeconfig::wait_until_ready(&client, &cluster.config.cluster_url).await.map(drop)
}

pub(super) async fn client_of(path: &Path) -> Result<Client, StartError> {
    kubeconfig::client(&cluster_of(path).await?, UserAgent::Mcm).await
}

async fn cluster_of(path: &Path) -> Result<ClusterConfig, StartError> {
    let control = ControlKubeconfig::Named(path.to_owned());
    Ok(ProcessClusters::load(&control, &TargetKubeconfig::None, KubeconfigFallback::None).await?.control)
}
