//! The kinds of Cluster API (`cluster.x-k8s.io/v1beta2`) that mcm reads and writes, and the kinds of its infrastructure
//! provider. Field names are those of the public API; defaults are not applied here.

mod cluster;
mod health_check;
mod infrastructure;
mod machine;
mod machine_deployment;
mod machine_pool;
mod machine_set;
pub mod names;
mod schema;

pub use cluster::{Cluster, ClusterInitialization, ClusterSpec, ClusterStatus};
pub use health_check::{
    Checks, MachineHealthCheck, MachineHealthCheckSpec, MachineHealthCheckStatus, Remediation, TriggerIf,
    UnhealthyCondition,
};
pub use infrastructure::{
    ClassRef, ClassZones, ClusterResource, ClusterSecretRef, ControlPlaneRegistration, Endpoint, FailureDomain,
    MCMCluster, MCMClusterSpec, MCMClusterStatus, MCMClusterTemplate, MCMClusterTemplateSpec, MCMMachine,
    MCMMachinePool, MCMMachinePoolSpec, MCMMachinePoolStatus, MCMMachinePoolTemplate, MCMMachinePoolTemplateSpec,
    MCMMachineSpec, MCMMachineStatus, MCMMachineTemplate, MCMMachineTemplateSpec, MCMMachineTemplateStatus,
    MCMMigration, MCMMigrationSpec, MCMMigrationStatus, MachineAuthority, MigratedKind, MigratedMachine, MigrationSide,
    NodeInfo, NodeMeta, NodeTaint, PoolInstance, PoolResource, Provisioning, ReportedFailureDomain, TemplateResource,
};
pub use machine::{
    Bootstrap, Initialization, Machine, MachineDeletion, MachineMeta, MachineSpec, MachineStatus, MachineTaint,
    MachineTemplate, NodeRef, ObjectRef, ReadinessGate,
};
pub use machine_deployment::{
    Deletion, MachineDeployment, MachineDeploymentSpec, MachineDeploymentStatus, MachineNaming, MaxInFlight,
    RollingUpdate, Rollout, RolloutStrategy,
};
pub use machine_pool::{MachinePool, MachinePoolSpec};
pub use machine_set::{MachineSet, MachineSetSpec, MachineSetStatus};
pub use mcm_api::kinds::{CORE_GROUP, INFRASTRUCTURE_GROUP};

/// `apiVersion` of the core kinds.
pub const CORE: &str = "cluster.x-k8s.io/v1beta2";
/// API group of control plane providers.
pub const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io";
