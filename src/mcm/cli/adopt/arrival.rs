//! The arrival of core between two ways: a user installs it.

use std::time::Duration;

use anyhow::{Result, bail};
use kube::ResourceExt;
use tokio::time::{Instant, sleep};

use super::view::say;
use crate::api::labels;
use mcm_adopt::{Kind, observe::MigrationEnvironment};

/// Between two polls.
const PERIOD: Duration = Duration::from_secs(1);

/// Waits until Cluster API core and the provider mcm serve a Cluster.
pub(super) async fn of_core(world: &MigrationEnvironment, cluster: &str, limit: Duration) -> Result<()> {
    let namespace = world.api(Kind::Namespace).get_opt(&world.namespace).await?;
    if namespace.is_some_and(|one| one.labels().contains_key(labels::STAND_IN)) {
        bail!(
            "namespace {} keeps the label {}, because it has other MachineDeployments: hand them over as well",
            world.namespace,
            labels::STAND_IN
        );
    }
    let since = Instant::now();
    let mut said = String::new();
    while let Some(on) = missing(world, cluster).await {
        if since.elapsed() > limit {
            bail!("waiting for {on}; run the command again to continue");
        }
        if on != said {
            say(&format!("waiting for {on}"));
            said = on;
        }
        sleep(PERIOD).await;
    }
    Ok(())
}

/// Prerequisites of Cluster API core for the machines. During its installation the API server returns varying errors.
async fn missing(world: &MigrationEnvironment, cluster: &str) -> Option<String> {
    // Kinds that the stand-in does not serve.
    for kind in [Kind::MachinePool, Kind::InfraMachine] {
        if world.list(kind).await.is_err() {
            return Some("Cluster API core and the provider mcm: run clusterctl init --infrastructure mcm".to_owned());
        }
    }
    let found = world.list(Kind::Cluster).await.unwrap_or_default();
    let found = found.into_iter().find(|one| one.name() == cluster);
    let is_ready = found.is_some_and(|one| one.value["status"]["initialization"]["infrastructureProvisioned"] == true);
    (!is_ready).then(|| {
        format!("the infrastructure of Cluster {cluster}, which Cluster API core and the provider mcm provide")
    })
}
