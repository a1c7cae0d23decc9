//! GCPMachineTemplate and GCPMachinePool of Cluster API Provider GCP (`v1beta1`), and the `providerSpec` of the driver `GCP`.

mod cluster;
mod ids;
mod pool;
mod shared;
mod to_capi;
mod to_native;

use serde_json::Value;

use super::provider::{InfrastructureProvider, KindName, ProviderKinds};

/// Cluster API Provider GCP.
pub const PROVIDER: InfrastructureProvider = InfrastructureProvider {
    kinds: ProviderKinds {
        driver: "GCP",
        version: "v1beta1",
        older: &[],
        cluster: KindName { kind: "GCPCluster", plural: "gcpclusters" },
        managed: "",
        machine: KindName { kind: "GCPMachine", plural: "gcpmachines" },
        template: KindName { kind: "GCPMachineTemplate", plural: "gcpmachinetemplates" },
        pool: KindName { kind: "GCPMachinePool", plural: "gcpmachinepools" },
    },
    to_native: to_native::to_native,
    of_pool: pool::machine_spec,
    pool_path: "spec",
    choices: &[("/ipForwarding", &["Enabled", "Disabled"]), ("/onHostMaintenance", &["Migrate", "Terminate"])],
    cluster_fields: cluster::CLUSTER_FIELDS,
    to_capi: to_capi::to_capi,
    is_interruptible,
    zone_is_of_subnet: false,
    ids: ids::IDS,
};

/// `scheduling` is an object, or a list of them as the Go driver has it.
fn is_interruptible(spec: &Value) -> bool {
    let all = spec["scheduling"].as_array().into_iter().flatten().chain([&spec["scheduling"]]);
    all.into_iter().any(|scheduling| scheduling["preemptible"] == true)
}
