//! Decides which controller manages an object: the native controllers, the provider for Cluster API, or a migration
//! between them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::owner;
use mcm_api::{labels, machine::INFRASTRUCTURE};
use mcm_rules::plan::ReconcileHold;

/// The rule of the native controllers. They manage an object without a mark of another controller.
pub fn of_native(meta: &ObjectMeta) -> Option<ReconcileHold> {
    let controller = owner::controller_of(meta).filter(|controller| controller.api_version.starts_with(INFRASTRUCTURE));
    let pool = || meta.labels.as_ref()?.get(labels::POOL).map(|pool| format!("MCMMachinePool {pool}"));
    let of_provider = controller.map(|controller| format!("{} {}", controller.kind, controller.name)).or_else(pool);
    match of_provider {
        Some(owner) => Some(ReconcileHold::from(format!("the manager of {owner}, which owns this object"))),
        None => migrating(meta),
    }
}

/// The provider for Cluster API manages the object.
pub fn is_of_provider(meta: &ObjectMeta) -> bool {
    of_native(meta).is_some_and(|hold| !hold.is_confirmed)
}

/// The hold on an object that is migrated between two owners. Its controller confirms the hold, because the migration
/// continues only after all calls for the object have returned.
pub fn migrating(meta: &ObjectMeta) -> Option<ReconcileHold> {
    let migration = meta.annotations.as_ref()?.get(labels::MIGRATION)?;
    Some(ReconcileHold {
        is_confirmed: true,
        ..ReconcileHold::from(format!("MCMMigration {migration} to be complete"))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn controller(api_version: &str, kind: &str) -> Value {
        json!([{ "apiVersion": api_version, "kind": kind, "name": "x", "uid": "u", "controller": true }])
    }

    /// T26: two managers in one namespace never act on one object, and none acts on one that is moved.
    #[rstest]
    #[case::native(json!({}), None)]
    #[case::of_a_set(json!({ "ownerReferences": controller("machine.sapcloud.io/v1alpha1", "MachineSet") }), None)]
    #[case::of_the_provider(
        json!({ "ownerReferences": controller("infrastructure.cluster.x-k8s.io/v1beta2", "MCMMachine") }),
        Some(("the manager of MCMMachine x, which owns this object", false))
    )]
    #[case::of_a_pool(
        json!({ "labels": { "machine.mcm/pool": "p" } }),
        Some(("the manager of MCMMachinePool p, which owns this object", false))
    )]
    #[case::moved(
        json!({ "annotations": { "machine.mcm/migration": "m" } }),
        Some(("MCMMigration m to be complete", true))
    )]
    #[case::moved_and_of_the_provider(
        json!({
            "annotations": { "machine.mcm/migration": "m" },
            "ownerReferences": controller("infrastructure.cluster.x-k8s.io/v1beta2", "MCMMachine"),
        }),
        Some(("the manager of MCMMachine x, which owns this object", false))
    )]
    fn an_object_has_one_master(#[case] meta: Value, #[case] expected: Option<(&str, bool)>) {
        let hold = of_native(&serde_json::from_value(meta).unwrap());
        assert_eq!(hold.as_ref().map(|hold| (hold.on.as_str(), hold.is_confirmed)), expected);
    }
}
