//! The control plane in this process: an API server in memory, and the parts of Kubernetes that the demo needs.

mod actors;
mod steps;
#[cfg(test)]
mod tests;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, anyhow};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::identities;
use mcm_fake_api::{
    ApiServer, NAMESPACES, PerfectNetwork,
    serve::{CertificateFiles, LoopbackPort, RunningServer},
};
use mcm_runtime::clock::SystemClock;

/// The Namespaces of every cluster.
const DEFAULT_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// A running API server, until it is dropped.
pub struct EmbeddedControlPlane {
    /// Kubeconfig of an administrator.
    pub kubeconfig: PathBuf,
    _actors: AbortOnDropHandle<()>,
    _server: RunningServer,
}

impl EmbeddedControlPlane {
    /// Starts it with its files in this folder.
    pub async fn start(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).context("create the directory of the control plane")?;
        let port = LoopbackPort::bind().await?;
        let identity = identities::write_embedded(folder, port.number())?;
        let server = ApiServer::new(&SystemClock, Arc::new(PerfectNetwork));
        for name in DEFAULT_NAMESPACES {
            let namespace = json!({ "metadata": { "name": name } });
            server.create(&NAMESPACES, namespace).map_err(|refusal| anyhow!("create {name}: {}", refusal.message))?;
        }
        let files = CertificateFiles { cert: identity.server, key: identity.server_key };
        let running = port.serve(&server, files, &identity.token)?;
        let actors = AbortOnDropHandle::new(tokio::spawn(actors::play(server)));
        Ok(Self { kubeconfig: identity.kubeconfig, _actors: actors, _server: running })
    }
}
