//! A deployment whose `spec.replicas` a tool removed, by a manifest without it, a JSON patch or a `null`.
//!
//! The API server records the owner of a field, and no client that removes one. So an absent field is judged by the
//! clients that write the rest of the spec. Gardener's, and the autoscaler, write 0 by leaving the field out. From all
//! others it means that the field was lost, which must delete no VM. A 0 that was written always means 0. The API server
//! records no owner of a 0 that was written through the scale subresource, so a live read decides before the replicas are
//! written again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Action, Snapshot, autoscaler::chosen, sets::OwnedSets};
use crate::object::{deletion_order::goes_first, prune};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment},
    reasons::EventReason,
};
use mcm_rules::plan::{Event, Plan};

/// Names under which Gardener writes deployments, or the beginnings of such names.
const GARDENER: [&str; 3] = ["gardenlet", "gardenadm", "gardener-extension-"];

/// Keeps `managedFields` only of a deployment without replicas.
pub(super) fn prune_unless_needed(deployment: &mut MachineDeployment) {
    let managed_fields = deployment.metadata.managed_fields.take();
    prune(deployment);
    deployment.metadata.managed_fields = managed_fields.filter(|_| deployment.spec.replicas == 0);
}

/// Writes the last known replicas into the deployment; `None` if the field was not lost, or if there is no Machine to keep.
pub(super) fn restore(snapshot: &Snapshot) -> Option<Plan<Action>> {
    let deployment = snapshot.deployment.as_ref();
    if snapshot.is_zero_written || !is_lost(deployment) || !has_machines(snapshot) {
        return None;
    }
    let replicas = last_replicas(&OwnedSets::controlled(snapshot)).filter(|replicas| *replicas > 0)?;
    if is_scaled_by_autoscaler(snapshot, replicas) {
        return None;
    }
    let text = format!("spec.replicas was removed; {replicas} is kept: write replicas: 0 to delete all machines");
    let event = Event::warning(EventReason::ReplicasRestored, text.clone());
    let mut plan = Plan::default();
    plan.then_recording(Action::RestoreReplicas(json!({ "spec": { "replicas": replicas } })), text, event);
    Some(plan)
}

/// The field is absent, and that does not mean 0.
fn is_lost(deployment: &MachineDeployment) -> bool {
    deployment.spec.replicas == 0
        && !specs(deployment).any(|(_, spec)| spec.has("f:replicas"))
        && keeps_machines(deployment)
}

/// True if a deployment without `spec.replicas` keeps the Machines that it has.
pub fn keeps_machines(deployment: &MachineDeployment) -> bool {
    let means_zero = deployment.annotations().get(labels::ABSENT_REPLICAS).is_some_and(|value| value == labels::ZERO);
    let is_tracked = deployment.metadata.managed_fields.iter().flatten().next().is_some();
    is_tracked && !means_zero && !is_written_by_gardener(deployment)
}

/// Gardener writes the template. A manifest that it applies is as complete as that of any tool.
fn is_written_by_gardener(deployment: &MachineDeployment) -> bool {
    specs(deployment).any(|(entry, spec)| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        entry.operation.as_deref() != Some("Apply")
            && GARDENER.iter().any(|name| manager.starts_with(name))
            && spec.has("f:template")
    })
}

/// The managers of the deployment with the fields of the spec that each owns.
fn specs(deployment: &MachineDeployment) -> impl Iterator<Item = (&ManagedFieldsEntry, OwnedFields<'_>)> {
    let entries = deployment.metadata.managed_fields.iter().flatten();
    entries.map(|entry| (entry, OwnedFields(entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:spec")))))
}

/// Fields of one manager.
struct OwnedFields<'a>(Option<&'a Value>);

impl OwnedFields<'_> {
    fn has(&self, field: &str) -> bool {
        self.0.is_some_and(|fields| !fields[field].is_null())
    }
}

fn has_machines(snapshot: &Snapshot) -> bool {
    let is_creating = snapshot.in_flight.values().any(|writes| !writes.creates.is_empty());
    !snapshot.machines.is_empty() || !snapshot.unreadable_machines.is_empty() || is_creating
}

/// The autoscaler lists the Machines that go when it scales to 0, as many as there were replicas. Older versions give them
/// a priority.
fn is_scaled_by_autoscaler(snapshot: &Snapshot, replicas: i32) -> bool {
    let listed = chosen(&snapshot.deployment);
    let is_chosen = |machine: &Machine| {
        goes_first(machine) || machine.metadata.name.as_ref().is_some_and(|name| listed.contains(name.as_str()))
    };
    let machines = || snapshot.machines.iter().filter(|machine| !machine.is_terminating());
    let chosen = machines().filter(|machine| is_chosen(machine)).count();
    chosen > 0 && (chosen == machines().count() || i32::try_from(chosen).is_ok_and(|chosen| chosen >= replicas))
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

    fn entry(manager: &str, operation: &str, subresource: &str, spec: &Value) -> Value {
        json!({ "manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": { "f:spec": spec } })
    }

    fn by(manager: &str, operation: &str) -> Value {
        entry(manager, operation, "", &json!({ "f:template": {} }))
    }

    fn deployment(replicas: Option<i32>, entries: &[Value]) -> MachineDeployment {
        let meta = json!({ "name": "pool", "managedFields": entries });
        serde_json::from_value(json!({ "metadata": meta, "spec": { "replicas": replicas, "template": {} } })).unwrap()
    }

    #[rstest]
    #[case::a_manifest_without_it(&[by("flux", "Apply")], true)]
    #[case::a_json_patch(&[by("kubectl-client-side-apply", "Update")], true)]
    #[case::a_null_of_helm(&[by("helm", "Update")], true)]
    #[case::replace(&[by("kubectl-create", "Update"), by("kubectl-replace", "Update")], true)]
    #[case::a_client_of_unknown_name(&[by("OpenAPI-Generator", "Update")], true)]
    #[case::only_labels_are_applied(&[entry("a", "Apply", "", &json!({})), by("kubectl-edit", "Update")], true)]
    #[case::a_manifest_that_gardener_applies(&[by("gardenlet", "Apply")], true)]
    #[case::gardener_wrote_something_else(
        &[by("kubectl-create", "Update"), entry("gardenlet", "Update", "", &json!({ "f:paused": {} }))],
        true
    )]
    #[case::gardenlet(&[by("gardenlet", "Update")], false)]
    #[case::an_extension_whose_deployment_was_edited(
        &[by("kubectl-edit", "Update"), by("gardener-extension-provider-aws", "Update")],
        false
    )]
    #[case::zero_is_applied(&[entry("m", "Apply", "", &json!({ "f:template": {}, "f:replicas": {} }))], false)]
    #[case::zero_was_written_by_kubectl_scale(
        &[by("flux", "Apply"), entry("kubectl", "Update", "scale", &json!({ "f:replicas": {} }))],
        false
    )]
    #[case::nothing_is_known(&[], false)]
    fn a_lost_field_is_distinguished_from_zero(#[case] entries: &[Value], #[case] expected: bool) {
        assert_eq!(is_lost(&deployment(None, entries)), expected);
        assert!(!is_lost(&deployment(Some(1), entries)));
    }

    #[test]
    fn an_annotation_makes_an_absent_field_zero() {
        let mut absent = deployment(None, &[by("operator", "Update")]);
        absent.annotations_mut().insert(labels::ABSENT_REPLICAS.to_owned(), "zero".to_owned());
        assert!(!is_lost(&absent));
    }

    #[test]
    fn managed_fields_are_kept_only_without_replicas() {
        let entries = [by("flux", "Apply")];
        let kept = [Some(0), Some(3)].map(|replicas| {
            let mut deployment = deployment(replicas, &entries);
            prune_unless_needed(&mut deployment);
            deployment.metadata.managed_fields.is_some()
        });
        assert_eq!(kept, [true, false]);
    }
}
