//! The kinds of mcm's own infrastructure provider (`infrastructure.cluster.x-k8s.io/v1beta2`).

mod cluster;
mod machine;
mod migration;
mod pool;
mod schema;
mod status;

pub use cluster::{
    ClusterResource, ClusterSecretRef, ControlPlaneRegistration, Endpoint, FailureDomain, MCMCluster, MCMClusterSpec,
    MCMClusterStatus, MCMClusterTemplate, MCMClusterTemplateSpec, ReportedFailureDomain,
};
pub use machine::{
    ClassRef, ClassZones, MCMMachine, MCMMachineSpec, MCMMachineStatus, MCMMachineTemplate, MCMMachineTemplateSpec,
    MCMMachineTemplateStatus, NodeInfo, NodeMeta, NodeTaint, TemplateResource,
};
pub use migration::{
    MCMMigration, MCMMigrationSpec, MCMMigrationStatus, MachineAuthority, MigratedKind, MigratedMachine, MigrationSide,
};
pub use pool::{
    MCMMachinePool, MCMMachinePoolSpec, MCMMachinePoolStatus, MCMMachinePoolTemplate, MCMMachinePoolTemplateSpec,
    PoolInstance, PoolResource,
};
pub use status::Provisioning;
