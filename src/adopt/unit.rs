//! The unit of a migration.

use std::fmt;

use serde::Serialize;

use mcm_conversion::types::{MCMMigrationSpec, MigratedKind};

/// A deployment with its machines, a single machine, or a pool. Also the name of its MCMMigration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MigrationUnit {
    /// The name of the deployment, on all sides.
    Deployment(String),
    /// The name of a native Machine without a set, which is that of its MCMMachine.
    Machine(String),
    /// The name of a MachinePool of another provider, and of the deployment that its machines become.
    Pool(String),
}

impl MigrationUnit {
    /// The unit of an MCMMigration with this name.
    pub fn from_spec(spec: &MCMMigrationSpec, name: &str) -> Self {
        match spec.kind {
            MigratedKind::MachineDeployment => Self::Deployment(name.to_owned()),
            MigratedKind::Machine => Self::Machine(name.to_owned()),
            MigratedKind::MachinePool => Self::Pool(name.to_owned()),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Deployment(name) | Self::Machine(name) | Self::Pool(name) => name,
        }
    }

    /// Its kind, as an MCMMigration stores it.
    pub const fn kind(&self) -> MigratedKind {
        match self {
            Self::Deployment(_) => MigratedKind::MachineDeployment,
            Self::Machine(_) => MigratedKind::Machine,
            Self::Pool(_) => MigratedKind::MachinePool,
        }
    }

    /// The path of the spec of a machine in the root object of the unit, and in the infrastructure to which that refers.
    pub const fn path_of_machine(&self) -> &'static str {
        if self.is_lone() { "/spec" } else { "/spec/template/spec" }
    }

    /// It is a machine without a set.
    pub const fn is_lone(&self) -> bool {
        matches!(self, Self::Machine(_))
    }

    /// It is a pool of another provider.
    pub const fn is_pool(&self) -> bool {
        matches!(self, Self::Pool(_))
    }
}

impl fmt::Display for MigrationUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deployment(name) => write!(f, "deployment {name}"),
            Self::Machine(name) => write!(f, "machine {name}"),
            Self::Pool(name) => write!(f, "machine pool {name}"),
        }
    }
}
