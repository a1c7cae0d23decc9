use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use mcm_api::wire::is_zero;

/// Spec of an MCMMigration.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMMigration",
    plural = "mcmmigrations",
    singular = "mcmmigration",
    category = "cluster-api",
    namespaced,
    status = "MCMMigrationStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMMigration records which controllers manage the machines of the MachineDeployment, Machine or \
           MachinePool with its name. `mcm adopt` writes it.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterName",
        description = "Cluster to which the machines belong."
    ),
    printcolumn(
        name = "Authority",
        type_ = "string",
        json_path = ".status.authority",
        description = "Controllers that manage the machines."
    ),
    printcolumn(
        name = "Wanted",
        type_ = "string",
        json_path = ".spec.authority",
        description = "Controllers that are to manage the machines."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    )
)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["authority", "clusterName"]))]
pub struct MCMMigrationSpec {
    /// New owner of the machines: `MachineController` (the MCM controllers), `ClusterAPI` (Cluster API core with the provider
    /// mcm) or `OtherProvider` (Cluster API core with the provider of the cloud).
    #[schemars(schema_with = "schema::side")]
    pub authority: MigrationSide,
    /// Name of the Cluster to which the machines belong.
    #[schemars(schema_with = "schema::class_name")]
    pub cluster_name: String,
    /// Kind of the migrated object: `MachineDeployment`, `Machine` for one without a set, or `MachinePool`. MachineDeployment if absent.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::migrated")]
    pub kind: MigratedKind,
}

/// Kind of the object that is migrated as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigratedKind {
    /// A deployment with its machines.
    #[default]
    MachineDeployment,
    /// A machine without a set.
    Machine,
    /// A pool of another infrastructure provider, whose machines become a deployment.
    MachinePool,
}

/// A side that can have machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationSide {
    /// The MCM controllers.
    #[default]
    MachineController,
    /// Core, with the infrastructure provider mcm.
    #[serde(rename = "ClusterAPI")]
    ClusterApi,
    /// Core, with another infrastructure provider.
    OtherProvider,
}

/// Owner of the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MachineAuthority {
    /// The MCM controllers.
    MachineController,
    /// Core, with the infrastructure provider mcm.
    #[serde(rename = "ClusterAPI")]
    ClusterApi,
    /// Core, with another infrastructure provider.
    OtherProvider,
    /// No owner: the controllers of both sides ignore them.
    Migrating,
}

/// Status of an MCMMigration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MCMMigrationStatus {
    /// Owner of the machines: `MachineController`, `ClusterAPI`, `OtherProvider`, or `Migrating` while no controller acts on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::authority")]
    pub authority: Option<MachineAuthority>,
    /// Owner before the migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::side")]
    pub from: Option<MigrationSide>,
    /// Owner after the migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::side")]
    pub to: Option<MigrationSide>,
    /// Name of the MachineSet of the machines, on both sides.
    #[serde(skip_serializing_if = "is_zero")]
    pub set: String,
    /// The machines, as they were when everything was paused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 10_000))]
    pub machines: Vec<MigratedMachine>,
    /// Conditions; `Migrated` is True if the migration is complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A machine that is moved from one side to the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MigratedMachine {
    /// Name of the MCM Machine, of the MCMMachine and of the infrastructure object of another provider.
    pub name: String,
    /// Name of the Machine of Cluster API.
    pub machine: String,
    /// ID of the VM, as its Node has it.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Name of its Node.
    pub node: String,
    /// UID of its Node.
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// Boot ID of its Node; empty if the Node reports none.
    #[serde(rename = "bootID", skip_serializing_if = "is_zero")]
    pub boot_id: String,
}

impl From<MigrationSide> for MachineAuthority {
    fn from(side: MigrationSide) -> Self {
        match side {
            MigrationSide::MachineController => Self::MachineController,
            MigrationSide::ClusterApi => Self::ClusterApi,
            MigrationSide::OtherProvider => Self::OtherProvider,
        }
    }
}
