//! GCPMachineTemplate of Cluster API Provider GCP (`v1beta1`), and the `providerSpec` of the driver `GCP`.

mod ids;
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
        cluster: KindName { kind: "GCPCluster", plural: "gcpclusters" },
        machine: KindName { kind: "GCPMachine", plural: "gcpmachines" },
        template: KindName { kind: "GCPMachineTemplate", plural: "gcpmachinetemplates" },
    },
    to_native: to_native::to_native,
    to_capi: to_capi::to_capi,
    is_interruptible,
    ids: ids::IDS,
};

/// `scheduling` is an object, or a list of them as the Go driver has it.
fn is_interruptible(spec: &Value) -> bool {
    let all = spec["scheduling"].as_array().into_iter().flatten().chain([&spec["scheduling"]]);
    all.into_iter().any(|scheduling| scheduling["preemptible"] == true)
}
