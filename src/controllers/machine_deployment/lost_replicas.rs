//! A deployment whose `spec.replicas` was removed by a tool that applies manifests.
//!
//! Go clients write 0 by leaving the field out, so an absent field usually means 0. But a tool that applies a manifest
//! without a field that it applied before also removes the field, and that must delete no VM. `managedFields` and the
//! manifest that `kubectl apply` stores distinguish the two.

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Action, Snapshot, autoscaler::chosen, sets::OwnedSets};
use crate::{
    api::{labels, machine::MachineDeployment, reasons::EventReason},
    controllers::object::prune,
    plan::{Event, Plan},
};

/// Keeps `managedFields` only of a deployment without replicas.
pub(super) fn prune_unless_needed(deployment: &mut MachineDeployment) {
    let managed_fields = deployment.metadata.managed_fields.take();
    prune(deployment);
    deployment.metadata.managed_fields = managed_fields.filter(|_| deployment.spec.replicas == 0);
}

/// Writes the last known replicas into the deployment; `None` if the field was not lost.
pub(super) fn restore(snapshot: &Snapshot) -> Option<Plan<Action>> {
    let deployment = snapshot.deployment.as_ref();
    if !was_pruned(deployment) || is_scaled_by_autoscaler(snapshot) {
        return None;
    }
    let replicas = last_replicas(&OwnedSets::controlled(snapshot)).filter(|replicas| *replicas > 0)?;
    let text = format!(
        "spec.replicas was removed by a manifest without it; {replicas} is kept: write replicas: 0 to delete all machines"
    );
    let event = Event::warning(EventReason::ReplicasRestored, text.clone());
    let mut plan = Plan::default();
    plan.then_recording(Action::PatchDeployment(json!({ "spec": { "replicas": replicas } })), text, event);
    Some(plan)
}

/// No client owns the field, and the rest of the spec is applied by a tool that leaves it out.
pub(crate) fn was_pruned(deployment: &MachineDeployment) -> bool {
    if deployment.spec.replicas != 0 {
        return false;
    }
    let entries = deployment.metadata.managed_fields.iter().flatten();
    let owned = entries.map(|entry| {
        let fields = entry.fields_v1.as_ref().map_or(&Value::Null, |fields| &fields.0);
        (entry.operation.as_deref() == Some("Apply"), &fields["f:spec"])
    });
    let owned: Vec<(bool, &Value)> = owned.collect();
    let is_owned = owned.iter().any(|(_, spec)| !spec["f:replicas"].is_null());
    let is_applied = owned.iter().any(|(applies, spec)| *applies && !spec["f:template"].is_null());
    !owned.is_empty() && !is_owned && (is_applied || is_left_out_by_kubectl(deployment))
}

fn is_left_out_by_kubectl(deployment: &MachineDeployment) -> bool {
    let applied = deployment.annotations().get(labels::KUBECTL_LAST_APPLIED);
    let applied = applied.and_then(|text| serde_json::from_str::<Value>(text).ok());
    applied.is_some_and(|applied| applied["spec"].is_object() && applied["spec"]["replicas"].is_null())
}

/// The autoscaler lists the Machines that go when it scales to 0.
fn is_scaled_by_autoscaler(snapshot: &Snapshot) -> bool {
    let listed = chosen(&snapshot.deployment);
    let is_going = |name: Option<&String>, is_terminating| {
        is_terminating || name.is_some_and(|name| listed.contains(name.as_str()))
    };
    !listed.is_empty()
        && snapshot.machines.iter().all(|machine| is_going(machine.metadata.name.as_ref(), machine.is_terminating()))
}

/// The number for which the sets were last scaled. Without such a record, the sum of their replicas.
fn last_replicas(sets: &OwnedSets) -> Option<i32> {
    let mut youngest_first = sets.sets.iter().rev().filter(|set| !set.is_deleting());
    let recorded = |set: &super::sets::SetView| set.number(labels::DESIRED_REPLICAS);
    let of_new = sets.new_set().filter(|set| !set.is_deleting()).and_then(recorded);
    let of_any = || youngest_first.find_map(|set| recorded(set).filter(|_| set.counts.replicas > 0));
    let together = || sets.sets.iter().try_fold(0_i32, |sum, set| sum.checked_add(set.counts.replicas));
    of_new.or_else(of_any).or_else(together)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn entry(operation: &str, subresource: &str, spec: &Value) -> Value {
        json!({ "manager": "m", "operation": operation, "subresource": subresource, "fieldsV1": { "f:spec": spec } })
    }

    fn deployment(replicas: Option<i32>, entries: &[Value]) -> MachineDeployment {
        let meta = json!({ "name": "pool", "managedFields": entries });
        serde_json::from_value(json!({ "metadata": meta, "spec": { "replicas": replicas, "template": {} } })).unwrap()
    }

    #[rstest]
    #[case::a_manifest_without_it(&[entry("Apply", "", &json!({ "f:template": {} }))], true)]
    #[case::a_go_client_wrote_zero(&[entry("Update", "", &json!({ "f:template": {} }))], false)]
    #[case::zero_is_applied(&[entry("Apply", "", &json!({ "f:template": {}, "f:replicas": {} }))], false)]
    #[case::zero_was_written_by_kubectl_scale(
        &[entry("Apply", "", &json!({ "f:template": {} })), entry("Update", "scale", &json!({ "f:replicas": {} }))],
        false
    )]
    #[case::only_labels_are_applied(&[entry("Apply", "", &json!({})), entry("Update", "", &json!({ "f:template": {} }))], false)]
    #[case::nothing_is_known(&[], false)]
    fn a_pruned_field_is_distinguished_from_zero(#[case] entries: &[Value], #[case] expected: bool) {
        assert_eq!(was_pruned(&deployment(None, entries)), expected);
        assert!(!was_pruned(&deployment(Some(1), entries)));
    }

    #[rstest]
    #[case::without_it(r#"{"spec":{"template":{}}}"#, true)]
    #[case::with_zero(r#"{"spec":{"replicas":0,"template":{}}}"#, false)]
    #[case::of_something_else("nonsense", false)]
    fn the_manifest_of_kubectl_is_also_read(#[case] manifest: &str, #[case] expected: bool) {
        let mut pruned = deployment(None, &[entry("Update", "", &json!({ "f:template": {} }))]);
        pruned.annotations_mut().insert(labels::KUBECTL_LAST_APPLIED.to_owned(), manifest.to_owned());
        assert_eq!(was_pruned(&pruned), expected);
    }

    #[test]
    fn managed_fields_are_kept_only_without_replicas() {
        let entries = [entry("Apply", "", &json!({ "f:template": {} }))];
        let kept = [Some(0), Some(3)].map(|replicas| {
            let mut deployment = deployment(replicas, &entries);
            prune_unless_needed(&mut deployment);
            deployment.metadata.managed_fields.is_some()
        });
        assert_eq!(kept, [true, false]);
    }
}
