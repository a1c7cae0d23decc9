//! AWSMachineTemplate of Cluster API Provider AWS (`v1beta2`), and the `providerSpec` of the driver `AWS`.

mod ids;
mod shared;
mod to_capi;
mod to_native;

use super::provider::{InfrastructureProvider, KindName, ProviderKinds};

/// Cluster API Provider AWS.
pub const PROVIDER: InfrastructureProvider = InfrastructureProvider {
    kinds: ProviderKinds {
        driver: "AWS",
        version: "v1beta2",
        cluster: KindName { kind: "AWSCluster", plural: "awsclusters" },
        machine: KindName { kind: "AWSMachine", plural: "awsmachines" },
        template: KindName { kind: "AWSMachineTemplate", plural: "awsmachinetemplates" },
    },
    to_native: to_native::to_native,
    to_capi: to_capi::to_capi,
    is_interruptible: |spec| spec["spotPrice"].is_string(),
    ids: ids::IDS,
};
