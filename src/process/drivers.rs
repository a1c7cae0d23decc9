//! The drivers of a process, and the embedded simulated cloud.

use std::{fs::File, path::PathBuf, sync::Arc, time::Duration};

use http::Uri;
use kube::Client as KubeClient;
use tokio_util::sync::CancellationToken;

use crate::{
    driver::{Catalogue, Code, Environment, Guards, Observer, OpenError, Operation, SecretPolicy},
    runtime::metrics::Metrics,
    simulated_cloud::{Client, Cloud, CloudApi, Control, keep_nodes},
};

/// Configuration of the drivers.
pub(crate) struct DriverOptions<'a> {
    /// Only the driver of this provider.
    pub provider: Option<&'a str>,
    /// URL of the simulated cloud; embedded in this process if `None`.
    pub simulated_cloud: Option<&'a str>,
    /// What Secrets of classes may use.
    pub secrets: &'a SecretPolicy,
    /// The control cluster and namespace; name the state file of an embedded cloud.
    pub control_server: &'a Uri,
    pub namespace: &'a str,
    /// Drivers in processes of their own.
    #[cfg(feature = "remote")]
    pub remote: &'a [crate::driver::remote::Endpoint],
    /// The cluster in which VMs of an embedded cloud register as Nodes.
    pub target: Option<&'a KubeClient>,
}

/// Opens the drivers. An embedded cloud runs until `stop`.
///
/// # Errors
/// The provider is not built in, or the address of the simulated cloud is invalid.
pub(crate) fn open(
    options: &DriverOptions<'_>,
    guards: &Guards,
    stop: &CancellationToken,
) -> Result<Catalogue, OpenError> {
    let simulated_cloud = || {
        Ok(match options.simulated_cloud {
            Some(address) => Arc::new(Client::new(address)?) as Arc<dyn CloudApi>,
            None => embedded_cloud(options, stop),
        })
    };
    let environment = Environment {
        simulated_cloud: &simulated_cloud,
        secrets: options.secrets,
        #[cfg(feature = "remote")]
        remote: options.remote,
    };
    Catalogue::open(&environment, options.provider, guards)
}

/// The wrappers of every driver. Each cell has its own limits, because the same account name can mean different
/// accounts.
pub(super) fn guards(metrics: &Metrics) -> Guards {
    Guards::new(Arc::new(Measured(metrics.clone())))
}

struct Measured(Metrics);

impl Observer for Measured {
    fn observed(&self, provider: &str, operation: Operation, duration: Duration, outcome: Result<(), Code>) {
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

/// Starts an embedded simulated cloud, with its VMs in a state file if possible.
fn embedded_cloud(options: &DriverOptions<'_>, stop: &CancellationToken) -> Arc<Cloud> {
    let seed = rand::random();
    let (cloud, lock) = match kept_cloud(options, seed) {
        Some((cloud, lock)) => (Arc::new(cloud), Some(lock)),
        None => {
            tracing::debug!("embedded simulated cloud keeps its VMs in memory only");
            (Arc::new(Cloud::new(seed, Control::default())), None)
        }
    };
    let ended = stop.clone();
    tokio::spawn(async move {
        ended.cancelled().await;
        drop(lock);
    });
    if let Some(target) = options.target {
        tokio::spawn(keep_nodes(Arc::clone(&cloud), target.clone(), stop.clone()));
    }
    cloud
}

/// Opens and locks the state file. Without the lock, two processes would overwrite each other's changes.
fn kept_cloud(options: &DriverOptions<'_>, seed: u64) -> Option<(Cloud, File)> {
    let path = state_file(options)?;
    std::fs::create_dir_all(path.parent()?).ok()?;
    let lock = File::create(path.with_extension("lock")).ok()?;
    lock.try_lock().ok()?;
    let cloud = Cloud::open(&path, seed, Control::default())
        .inspect_err(|error| tracing::warn!(%error, "state file of the embedded cloud unusable, starting without VMs"))
        .ok()?;
    Some((cloud, lock))
}

fn state_file(options: &DriverOptions<'_>) -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))?;
    let server: String =
        options.control_server.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Some(state.join("mcm").join(format!("{server}{}.journal", options.namespace)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_a_provider_is_in_lower_case() {
        let metrics = Metrics::new();
        Measured(metrics.clone()).observed("AWS", Operation::Create, Duration::from_secs(1), Err(Code::Internal));
        let expected = r#"mcm_cloud_api_driver_requests_failed_total{provider="aws",operation="create_machine""#;
        assert!(metrics.render().contains(expected), "{}", metrics.render());
        Measured(metrics.clone()).requested("AWS", "instance_create", Duration::from_secs(1), true);
        let expected = r#"mcm_cloud_api_requests_total{provider="aws",service="instance_create"} 1"#;
        assert!(metrics.render().contains(expected), "{}", metrics.render());
    }
}
