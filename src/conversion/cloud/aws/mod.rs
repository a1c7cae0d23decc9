//! AWSMachineTemplate and AWSMachinePool of Cluster API Provider AWS (`v1beta2`), and the `providerSpec` of the driver `AWS`.

mod cluster;
mod ids;
pub mod network;
mod pool;
mod shared;
mod to_capi;
mod to_native;

use super::provider::{InfrastructureProvider, KindName, ProviderKinds};

/// Cluster API Provider AWS.
pub const PROVIDER: InfrastructureProvider = InfrastructureProvider {
    kinds: ProviderKinds {
        driver: "AWS",
        version: "v1beta2",
        older: &["v1beta1"],
        cluster: KindName { kind: "AWSCluster", plural: "awsclusters" },
        managed: shared::MANAGED,
        machine: KindName { kind: "AWSMachine", plural: "awsmachines" },
        template: KindName { kind: "AWSMachineTemplate", plural: "awsmachinetemplates" },
        pool: KindName { kind: "AWSMachinePool", plural: "awsmachinepools" },
    },
    to_native: to_native::to_native,
    of_pool: pool::machine_spec,
    pool_path: "spec.awsLaunchTemplate",
    choices: &[("/cloudInit/secureSecretsBackend", &[shared::SECRETS_MANAGER, shared::PARAMETER_STORE])],
    cluster_fields: cluster::CLUSTER_FIELDS,
    to_capi: to_capi::to_capi,
    is_interruptible: |spec| spec["spotPrice"].is_string(),
    zone_is_of_subnet: true,
    ids: ids::IDS,
};
