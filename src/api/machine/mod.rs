//! The kinds of `machine.sapcloud.io/v1alpha1`, serialized exactly like the Go reference.

#[cfg(any(test, feature = "testing"))]
pub mod any;
mod class;
mod compare;
mod deployment;
mod flaws;
#[expect(clippy::module_inception, reason = "the kind Machine of the group machine")]
mod machine;
mod ownerless;
mod preservation;
pub mod schema;
mod set;
mod shared;
mod template;

pub use class::{ClassContent, ClassNodeTemplate, MachineClass, SecretRef};
pub use compare::{rollout_key, same_template, update_in_place};
pub use deployment::{
    InPlaceUpdate, MachineDeployment, MachineDeploymentCondition, MachineDeploymentSpec, MachineDeploymentStatus,
    RollbackConfig, RollingUpdate, Strategy, StrategyType,
};
pub use flaws::Flaw;
pub use flaws::is_quantity;
pub use machine::node_name;
pub use machine::{
    CurrentStatus, INFRASTRUCTURE, LastOperation, Machine, MachineConfiguration, MachinePhase, MachineSpec,
    MachineStatus, OperationState, OperationType,
};
pub use preservation::is_auto_preserved;
pub use preservation::{AUTO_PRESERVED, NOT_PRESERVED, PreserveMode};
pub use set::{MachineSet, MachineSetCondition, MachineSetSpec, MachineSetStatus};
pub use shared::{ClassSpec, NodeTemplate, TemplateMeta};
pub use template::{MachineSummary, MachineTemplate};

pub use super::kinds::{GROUP, VERSION};

/// `apiVersion` of owner references.
pub const API_VERSION: &str = "machine.sapcloud.io/v1alpha1";
/// More replicas than any user can have. Sums of the replicas of several sets fit into the type of the field.
pub const MOST_REPLICAS: i32 = 1_000_000;

#[cfg(test)]
mod tests;
