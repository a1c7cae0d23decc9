//! MachinePools that no migration moves, or only if they are named: the cloud keeps the VMs of a pool of another provider together
//! in a group.

use serde::Serialize;

use super::{MigrationDirection, UnstructuredObject};
use mcm_conversion::types::MigrationSide;

const KIND: &str = "/spec/template/spec/infrastructureRef/kind";
const NAME: &str = "/spec/template/spec/infrastructureRef/name";
/// The way to other VMs.
pub const REPLACE: &str = "create a MachineDeployment of the new provider beside it, then scale the pool to 0";

/// A MachinePool that keeps its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StayingPool {
    /// Its name.
    pub machine_pool: String,
    /// Why it is not migrated, and the remedy.
    pub reason: String,
}

impl StayingPool {
    /// Of a MachinePool that belongs to the side from which a migration starts.
    pub fn for_pool(pool: &UnstructuredObject, way: MigrationDirection) -> Option<Self> {
        let (kind, name) = (pool.text(KIND), pool.text(NAME));
        let is_of_mcm = kind == "MCMMachinePool";
        let reason = match way.from() {
            MigrationSide::OtherProvider if !is_of_mcm => of_other(kind, name),
            MigrationSide::ClusterApi if is_of_mcm && way == MigrationDirection::ToOther => format!(
                "its machines are those of MCMMachinePool {name}, and another provider keeps a pool in a group of its cloud: \
                 {REPLACE}"
            ),
            MigrationSide::ClusterApi if is_of_mcm && way == MigrationDirection::ToNative => format!(
                "its machines are those of MCMMachinePool {name}, and only MachineDeployments and Machines are migrated: \
                 {REPLACE}"
            ),
            MigrationSide::OtherProvider | MigrationSide::ClusterApi | MigrationSide::MachineController => return None,
        };
        Some(Self { machine_pool: pool.name().to_owned(), reason })
    }
}

fn of_other(kind: &str, name: &str) -> String {
    let group = match kind {
        "AWSMachinePool" => {
            return format!(
                "its instances are in the Auto Scaling group {name}, which they leave by commands of AWS: name it with \
                 --machine-pool, or {REPLACE}"
            );
        }
        "GCPMachinePool" => {
            format!(
                "its VMs are in the managed instance group of GCPMachinePool {name}, which replaces each that leaves it"
            )
        }
        _ => format!("its machines are managed by {kind} {name}"),
    };
    format!("{group}: {REPLACE}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::object::Kind;

    #[rstest]
    #[case::asg("AWSMachinePool", MigrationDirection::FromOther, Some("Auto Scaling group i"))]
    #[case::mig("GCPMachinePool", MigrationDirection::FromOther, Some("managed instance group of GCPMachinePool i"))]
    #[case::of_the_cloud(
        "AWSManagedMachinePool",
        MigrationDirection::FromOther,
        Some("managed by AWSManagedMachinePool i")
    )]
    #[case::of_mcm("MCMMachinePool", MigrationDirection::FromOther, None)]
    #[case::to_other("MCMMachinePool", MigrationDirection::ToOther, Some("MCMMachinePool i"))]
    #[case::to_native("MCMMachinePool", MigrationDirection::ToNative, Some("only MachineDeployments and Machines"))]
    #[case::of_other("AWSMachinePool", MigrationDirection::ToNative, None)]
    #[case::from_native("MCMMachinePool", MigrationDirection::FromNative, None)]
    fn a_pool_stays_with_its_owner_and_says_why(
        #[case] kind: &str,
        #[case] way: MigrationDirection,
        #[case] expected: Option<&str>,
    ) {
        let reference = json!({ "kind": kind, "name": "i" });
        let value = json!({
            "metadata": { "name": "p" }, "spec": { "template": { "spec": { "infrastructureRef": reference } } },
        });
        let found = StayingPool::for_pool(&UnstructuredObject { kind: Kind::MachinePool, value }, way);
        assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
        if let (Some(found), Some(text)) = (found, expected) {
            assert_eq!(found.machine_pool, "p");
            assert!(found.reason.contains(text) && found.reason.ends_with("scale the pool to 0"), "{}", found.reason);
        }
    }
}
