//! The time of the reconcile after a change to the deployment.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::KIND;
use crate::testing::{Leading, Wire, settings, until};
use mcm_api::machine::MachineSet;

const POOL: &str = "machinedeployments/pool";
/// Less than the time for which changes are gathered.
const AT_ONCE: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn a_change_of_the_spec_waits_for_no_pause() {
    let wire = Wire::new();
    let deployment = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": "pool", "namespace": "shoot"},
        "spec": {
            "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"pool": "pool"}},
            "template": {"metadata": {"labels": {"pool": "pool"}}, "spec": {"class": {"kind": "MachineClass", "name": "c"}}},
        },
    });
    wire.put::<Value>(POOL, &deployment);
    let _leading = Leading::start(&wire, &[KIND], &settings());
    let replicas = || wire.all::<MachineSet>("machinesets").first().map(|set| set.spec.replicas);
    until("its set has a replica", || replicas() == Some(1)).await;
    sleep(Duration::from_secs(10)).await;

    // It is reconciled for this one, and the pause begins.
    wire.put::<Value>(POOL, &json!({"metadata": {"annotations": {"a": "b"}}}));
    sleep(Duration::from_millis(1)).await;
    wire.put::<Value>(POOL, &json!({"spec": {"replicas": 5}}));
    let begun = Instant::now();
    while replicas() != Some(5) {
        assert!(begun.elapsed() < AT_ONCE, "it waits");
        sleep(Duration::from_millis(1)).await;
    }
}
