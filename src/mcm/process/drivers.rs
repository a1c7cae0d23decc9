//! The drivers of a process, and the embedded simulated cloud.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context;
use async_trait::async_trait;
use http::Uri;
use kube::Client as KubeClient;
use tokio_util::sync::CancellationToken;

use super::{
    built_in::{DriverSources, SimulatedCloud},
    options::SimulatedPlace,
};
use crate::simulated_cloud::{
    CloudApi, CloudCallError, CloudSimulator, CreateVm, ListedVms, SimulatedCloudClient, SimulationSettings,
    TagRequest, VmSelector, VmView, keep_nodes,
};
use mcm_driver::{Code, DriverGuards, DriverObserver, DriverOperation, OpenError, SecretPolicy};
use mcm_driver_host::DriverCatalogue;
use mcm_runtime::metrics::MetricsRegistry;

/// Configuration of the drivers.
pub(crate) struct DriverConfig<'a> {
    /// Only the driver of this provider.
    pub provider: Option<&'a str>,
    /// The simulated cloud; its classes are not served if `None`.
    pub simulated_cloud: Option<&'a SimulatedPlace>,
    /// Restricts the Secrets of classes.
    pub secrets: &'a SecretPolicy,
    /// The control cluster and namespace; name the state file of an embedded cloud.
    pub control_server: &'a Uri,
    pub namespace: &'a str,
    /// Drivers in other processes.
    #[cfg(feature = "remote")]
    pub remote: &'a [mcm_driver_host::remote::DriverEndpoint],
    /// The cluster in which VMs of an embedded cloud register as Nodes.
    pub target: Option<&'a KubeClient>,
}

/// Opens the drivers. An embedded cloud runs until `stop`.
///
/// # Errors
/// The provider is not built in, or the address of the simulated cloud is invalid.
pub(crate) fn open(
    options: &DriverConfig<'_>,
    guards: &DriverGuards,
    stop: &CancellationToken,
) -> Result<DriverCatalogue, OpenError> {
    let simulated_cloud = || {
        Ok(match options.simulated_cloud {
            Some(SimulatedPlace::Url(address)) => Arc::new(SimulatedCloudClient::new(address)?) as Arc<dyn CloudApi>,
            Some(SimulatedPlace::Embedded) | None => Arc::new(EmbeddedCloud::new(options, stop)),
        })
    };
    let sources = DriverSources {
        simulated_cloud: options.simulated_cloud.map(|_| &simulated_cloud as &SimulatedCloud<'_>),
        secrets: options.secrets,
        #[cfg(feature = "remote")]
        remote: options.remote,
    };
    sources.open(options.provider, guards)
}

/// The wrappers of every driver. Each cell has its own limits, because the same account name can mean different
/// accounts.
pub(super) fn guards(metrics: &MetricsRegistry) -> DriverGuards {
    DriverGuards::new(Arc::new(DriverMetricsObserver(metrics.clone())))
}

struct DriverMetricsObserver(MetricsRegistry);

impl DriverObserver for DriverMetricsObserver {
    fn observed(&self, provider: &str, operation: DriverOperation, duration: Duration, outcome: Result<(), Code>) {
        let outcome = outcome.map_err(|code| code as u8);
        // The reference's dashboards read lower case.
        self.0.drivers().observed(&provider.to_ascii_lowercase(), operation.metric_label(), duration, outcome);
    }

    fn requested(&self, provider: &str, service: &'static str, duration: Duration, is_success: bool) {
        self.0.drivers().requested(&provider.to_ascii_lowercase(), service, duration, is_success);
    }

    fn reached(&self, provider: &str, is_up: bool) {
        self.0.drivers().reached(&provider.to_ascii_lowercase(), is_up);
    }
}

/// A simulated cloud in this process. It starts with the first call; with the process if it has VMs from before.
#[derive(Debug)]
struct EmbeddedCloud {
    started: OnceLock<Arc<CloudSimulator>>,
    state_file: Option<PathBuf>,
    target: Option<EmbeddedCloudTarget>,
    stop: CancellationToken,
}

/// The cluster in which its VMs register as Nodes.
struct EmbeddedCloudTarget(pub KubeClient);

impl std::fmt::Debug for EmbeddedCloudTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Target")
    }
}

impl EmbeddedCloud {
    fn new(options: &DriverConfig<'_>, stop: &CancellationToken) -> Self {
        let embedded = Self {
            started: OnceLock::new(),
            state_file: state_file(options),
            target: options.target.cloned().map(EmbeddedCloudTarget),
            stop: stop.clone(),
        };
        if embedded.state_file.as_ref().is_some_and(|path| path.exists()) {
            embedded.cloud();
        }
        embedded
    }

    fn cloud(&self) -> &Arc<CloudSimulator> {
        self.started.get_or_init(|| self.start())
    }

    /// Starts it, with its VMs in a state file if possible. Its tasks end with the token.
    fn start(&self) -> Arc<CloudSimulator> {
        let seed = rand::random();
        let kept = self.state_file.as_deref().map(|path| kept_cloud(path, seed)).transpose();
        let (cloud, lock) = match kept {
            Ok(Some((cloud, lock))) => (cloud, Some(lock)),
            Ok(None) => (CloudSimulator::new(seed, SimulationSettings::default()), None),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    error,
                    "the embedded simulated cloud starts without VMs and keeps new ones in memory only"
                );
                (CloudSimulator::new(seed, SimulationSettings::default()), None)
            }
        };
        let (cloud, ended) = (Arc::new(cloud), self.stop.clone());
        tokio::spawn(async move {
            ended.cancelled().await;
            drop(lock);
        });
        if let Some(EmbeddedCloudTarget(target)) = &self.target {
            tokio::spawn(keep_nodes(Arc::clone(&cloud), target.clone(), self.stop.clone()));
        }
        cloud
    }
}

#[async_trait]
impl CloudApi for EmbeddedCloud {
    async fn create(&self, request: &CreateVm) -> Result<VmView, CloudCallError> {
        CloudApi::create(&**self.cloud(), request).await
    }

    async fn initialize(&self, id: &str) -> Result<VmView, CloudCallError> {
        CloudApi::initialize(&**self.cloud(), id).await
    }

    async fn tag(&self, id: &str, tags: &TagRequest) -> Result<VmView, CloudCallError> {
        CloudApi::tag(&**self.cloud(), id, tags).await
    }

    async fn delete(&self, selector: &VmSelector) -> Result<(), CloudCallError> {
        CloudApi::delete(&**self.cloud(), selector).await
    }

    async fn status(&self, selector: &VmSelector) -> Result<VmView, CloudCallError> {
        CloudApi::status(&**self.cloud(), selector).await
    }

    async fn list(&self, cluster: &str) -> Result<ListedVms, CloudCallError> {
        CloudApi::list(&**self.cloud(), cluster).await
    }

    async fn set_member(&self, balancer: &str, id: &str, is_member: bool) -> Result<(), CloudCallError> {
        CloudApi::set_member(&**self.cloud(), balancer, id, is_member).await
    }
}

/// Opens and locks the state file. Without the lock, two processes would overwrite each other's changes.
fn kept_cloud(path: &Path, seed: u64) -> anyhow::Result<(CloudSimulator, File)> {
    let lock = path.with_extension("lock");
    path.parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| File::create(&lock))
        .and_then(|file| {
            file.try_lock()?;
            Ok(file)
        })
        .with_context(|| format!("lock {}: another process may use its VMs", lock.display()))
        .and_then(|lock| Ok((CloudSimulator::open(path, seed, SimulationSettings::default())?, lock)))
}

fn state_file(options: &DriverConfig<'_>) -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))?;
    let server: String =
        options.control_server.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Some(state.join("mcm").join(format!("{server}{}.journal", options.namespace)))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn embedded(folder: &TempDir, stop: &CancellationToken) -> EmbeddedCloud {
        let state_file = Some(folder.path().join("state/it.journal"));
        EmbeddedCloud { started: OnceLock::new(), state_file, target: None, stop: stop.clone() }
    }

    #[tokio::test]
    async fn an_embedded_cloud_starts_with_its_first_call_and_lets_go_of_its_file_when_its_run_ends() {
        let (folder, stop) = (TempDir::new().unwrap(), CancellationToken::new());
        let first = embedded(&folder, &stop);
        assert!(first.started.get().is_none());
        assert!(first.list("cluster").await.is_ok());
        let path = folder.path().join("state/it.journal");
        let error = format!("{:#}", kept_cloud(&path, 1).unwrap_err());
        assert!(error.contains("it.lock: another process may use its VMs"), "{error}");

        stop.cancel();
        let released = async {
            while kept_cloud(&path, 1).is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), released).await.unwrap();
    }

    #[test]
    fn the_label_of_a_provider_is_in_lower_case() {
        let metrics = MetricsRegistry::new();
        DriverMetricsObserver(metrics.clone()).observed(
            "AWS",
            DriverOperation::Create,
            Duration::from_secs(1),
            Err(Code::Internal),
        );
        let expected = r#"mcm_cloud_api_driver_requests_failed_total{provider="aws",operation="create_machine""#;
        assert!(metrics.render().contains(expected), "{}", metrics.render());
        DriverMetricsObserver(metrics.clone()).requested("AWS", "instance_create", Duration::from_secs(1), true);
        let expected = r#"mcm_cloud_api_requests_total{provider="aws",service="instance_create"} 1"#;
        assert!(metrics.render().contains(expected), "{}", metrics.render());
    }
}
