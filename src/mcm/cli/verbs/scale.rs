//! The number of machines of a deployment, or of a set without one. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::json;

use super::{
    patch::{ObjectPatch, change, deleted, machines},
    verb::ScaleTarget,
};
use crate::{api::labels, cli::exit::ExitError};
use mcm_controllers::object::owner::controller_of;
use mcm_conversion::types::names::{AUTOSCALER_MAX, AUTOSCALER_MIN};
use mcm_insight::{
    plan::change::{ChangeContent, PlannedChange},
    story::{DEPLOYMENT, NamespaceFacts, SET},
};
use mcm_rules::plan::SubjectRef;

/// Parts of the field managers of programs that write the number of machines again and again.
const SCALERS: [&str; 7] =
    ["autoscaler", "kube-controller-manager", "keda", "gardener", "argocd", "kustomize-controller", "helm-controller"];

/// A MachineDeployment, or a MachineSet without one.
pub(super) struct ScaledObject<'a> {
    pub object: SubjectRef,
    pub kind: &'static str,
    pub replicas: i32,
    meta: &'a ObjectMeta,
}

/// Changes the number of machines.
pub(super) fn scale(
    facts: &NamespaceFacts,
    object: &SubjectRef,
    target: ScaleTarget,
) -> Result<ObjectPatch, ExitError> {
    let scaled = ScaledObject::find(facts, object, &format!("--replicas {}", target.replicas))?;
    let (SubjectRef { kind, name, namespace }, replicas) = (&scaled.object, scaled.replicas);
    deleted(&scaled.object, scaled.meta)?;
    let why = format!("mcm why {}/{name} -n {namespace}", kind.to_lowercase());
    if let Some(expected) = target.current.filter(|expected| *expected != replicas) {
        return Err(ExitError::no(format!("{kind} {name} has {replicas} replicas, and not {expected}"), why));
    }
    if replicas == target.replicas {
        return Err(ExitError::no(format!("{kind} {name} has {replicas} replicas already"), why));
    }
    let says = format!("scales {kind} {name} from {replicas} to {}", count_of(target.replicas));
    let follow = if scaled.kind == DEPLOYMENT { format!("mcm rollout status {name} -n {namespace}") } else { why };
    let patch = scaled.patch(target.replicas, says);
    Ok(ObjectPatch {
        needs_consent: target.replicas < replicas || !patch.warnings.is_empty(),
        next: Some(follow),
        ..patch
    })
}

/// A number of machines in words.
pub(super) fn count_of(replicas: i32) -> String {
    machines(usize::try_from(replicas).unwrap_or_default())
}

impl<'a> ScaledObject<'a> {
    /// The named object. `flags` are those of a command for its deployment.
    ///
    /// # Errors
    /// The object is of another kind, or another object sets its number of machines.
    pub(super) fn find(facts: &'a NamespaceFacts, object: &SubjectRef, flags: &str) -> Result<Self, ExitError> {
        let SubjectRef { kind, name, namespace } = object;
        if let Some(deployment) = facts.deployments.get(name).filter(|_| kind == DEPLOYMENT) {
            let (replicas, meta) = (deployment.spec.replicas, &deployment.metadata);
            return Ok(Self { object: object.clone(), kind: DEPLOYMENT, replicas, meta });
        }
        let Some(set) = facts.sets.get(name).filter(|_| kind == SET) else {
            let hint = "name a MachineDeployment, or a MachineSet without one";
            return Err(ExitError::no(format!("{kind} {name} has no number of machines"), hint));
        };
        if let Some(owner) = controller_of(&set.metadata) {
            let command = match owner.kind == DEPLOYMENT {
                true => format!("mcm scale {} -n {namespace} {flags}", owner.name),
                false => format!("mcm why machineset/{name} -n {namespace}"),
            };
            let message = format!("{} {} sets the replicas of MachineSet {name}", owner.kind, owner.name);
            return Err(ExitError::no(message, command));
        }
        Ok(Self { object: object.clone(), kind: SET, replicas: set.spec.replicas, meta: &set.metadata })
    }

    pub(super) fn meta(&self) -> &ObjectMeta {
        self.meta
    }

    /// The patch to a number of machines, with its plan.
    pub(super) fn patch(&self, replicas: i32, says: String) -> ObjectPatch {
        let patch = json!({"spec": {"replicas": replicas}});
        let wish = ChangeContent::Patch(patch.clone());
        ObjectPatch {
            planned: Some(PlannedChange { kind: self.kind, name: self.object.name.clone(), wish }),
            warnings: self.warnings(replicas),
            ..change(&self.object, self.meta, patch, says)
        }
    }

    /// Programs that change the number of machines again.
    fn warnings(&self, replicas: i32) -> Vec<String> {
        let SubjectRef { kind, name, .. } = &self.object;
        let owner = controller_of(self.meta)
            .map(|owner| format!("{} {} controls {kind} {name}, and sets its replicas again", owner.kind, owner.name));
        owner.into_iter().chain(self.bounds(replicas)).chain(self.last_scaler()).collect()
    }

    /// The bounds of an autoscaler in annotations.
    fn bounds(&self, replicas: i32) -> Option<String> {
        let annotations = self.meta.annotations.as_ref()?;
        let bound = |key: &str| annotations.get(key)?.parse::<i32>().ok();
        let (min, max) = (bound(AUTOSCALER_MIN), bound(AUTOSCALER_MAX));
        let is_outside = min.is_some_and(|min| replicas < min) || max.is_some_and(|max| replicas > max);
        let range = match (min, max) {
            (Some(min), Some(max)) => format!("between {min} and {max}"),
            (Some(min), None) => format!("at {min} or more"),
            (None, Some(max)) => format!("at {max} or less"),
            (None, None) => return None,
        };
        let says = if is_outside { "scales it back" } else { "may change it again" };
        Some(format!("an autoscaler keeps the number of machines {range}, as annotations say, and {says}"))
    }

    /// A program that wrote the number of machines last.
    fn last_scaler(&self) -> Option<String> {
        let writes = |entry: &&ManagedFieldsEntry| {
            entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
        };
        let entries = self.meta.managed_fields.iter().flatten().filter(writes);
        let last = entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
        let last = last.and_then(|entry| entry.manager.as_deref());
        if let Some(last) = last.filter(|last| SCALERS.iter().any(|scaler| last.contains(scaler))) {
            return Some(format!("{last} wrote spec.replicas last, and may write them again"));
        }
        let at = self.meta.annotations.as_ref()?.get(labels::LAST_SCALER_CHANGE)?;
        Some(format!("an autoscaler changed spec.replicas at {at}, and may change them again"))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use crate::cli::verbs::{decide::decide, verb::ChangeVerb};
    use mcm_insight::testing::{blocked_pool, object};

    fn scaled(
        facts: &NamespaceFacts,
        object: &str,
        replicas: i32,
        current: Option<i32>,
    ) -> Result<ObjectPatch, String> {
        let verb = ChangeVerb::Scale(ScaleTarget { replicas, current });
        decide(facts, verb, &facts.find(object).unwrap()).map_err(|ended| format!("{} ({})", ended.message, ended.hint))
    }

    /// The pool with other metadata.
    fn with(meta: &Value) -> NamespaceFacts {
        let mut facts = blocked_pool();
        let mut value = serde_json::to_value(&facts.deployments["pool"]).unwrap();
        crate::api::patch::apply(&mut value, &json!({ "metadata": meta }));
        facts.deployments.insert("pool".to_owned(), serde_json::from_value(value).unwrap());
        facts
    }

    #[rstest]
    #[case::up(5, None, false, "scales MachineDeployment pool from 3 to 5 machines")]
    #[case::down(1, Some(3), true, "scales MachineDeployment pool from 3 to 1 machine")]
    #[case::to_nothing(0, None, true, "scales MachineDeployment pool from 3 to 0 machines")]
    fn a_deployment_is_scaled_with_consent_where_machines_are_deleted(
        #[case] replicas: i32,
        #[case] current: Option<i32>,
        #[case] asks: bool,
        #[case] says: &str,
    ) {
        let change = scaled(&blocked_pool(), "pool", replicas, current).unwrap();
        assert_eq!(change.patch, json!({"spec": {"replicas": replicas}}));
        assert_eq!((change.needs_consent, change.says.as_str(), change.warnings.len()), (asks, says, 0));
        assert_eq!(change.planned.map(|planned| planned.kind), Some(DEPLOYMENT));
    }

    #[rstest]
    #[case::same(
        "pool",
        3,
        None,
        "MachineDeployment pool has 3 replicas already (mcm why machinedeployment/pool -n demo)"
    )]
    #[case::another_number(
        "pool",
        5,
        Some(4),
        "MachineDeployment pool has 3 replicas, and not 4 (mcm why machinedeployment/pool -n demo)"
    )]
    #[case::set_of_a_deployment(
        "machineset/pool-84dff",
        2,
        None,
        "MachineDeployment pool sets the replicas of MachineSet pool-84dff (mcm scale pool -n demo --replicas 2)"
    )]
    #[case::machine(
        "machine/pool-84dff-jpgkd",
        2,
        None,
        "Machine pool-84dff-jpgkd has no number of machines (name a MachineDeployment, or a MachineSet without one)"
    )]
    fn what_is_not_scaled_is_refused(
        #[case] object: &str,
        #[case] replicas: i32,
        #[case] current: Option<i32>,
        #[case] expected: &str,
    ) {
        assert_eq!(scaled(&blocked_pool(), object, replicas, current).unwrap_err(), expected);
    }

    #[test]
    fn a_set_without_a_deployment_is_scaled() {
        let mut facts = blocked_pool();
        let (name, set) = object(SET, "alone", None, &json!({"spec": {"replicas": 1}}));
        facts.sets.insert(name, set);
        let change = scaled(&facts, "machineset/alone", 2, None).unwrap();
        assert_eq!((change.object.kind.as_str(), change.planned.as_ref().unwrap().kind), (SET, SET));
        let expected =
            "kubectl patch machinesets.machine.sapcloud.io alone -n demo --type merge -p '{\"spec\":{\"replicas\":2}}'";
        assert_eq!(change.kubectl(), expected);
    }

    #[rstest]
    #[case::controller(
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "MCMMachinePool", "name": "p", "uid": "u", "controller": true}]}),
        "MCMMachinePool p controls MachineDeployment pool, and sets its replicas again"
    )]
    #[case::beyond_the_bounds(
        json!({"annotations": {AUTOSCALER_MIN: "1", AUTOSCALER_MAX: "4"}}),
        "an autoscaler keeps the number of machines between 1 and 4, as annotations say, and scales it back"
    )]
    #[case::within_the_bounds(
        json!({"annotations": {AUTOSCALER_MIN: "1"}}),
        "an autoscaler keeps the number of machines at 1 or more, as annotations say, and may change it again"
    )]
    #[case::manager(
        json!({"managedFields": [
            {"manager": "kubectl-edit", "time": "1970-01-01T00:00:01Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "cluster-autoscaler", "time": "1970-01-01T00:00:02Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        ]}),
        "cluster-autoscaler wrote spec.replicas last, and may write them again"
    )]
    #[case::scaler(
        json!({"annotations": {labels::LAST_SCALER_CHANGE: "2026-01-01T00:00:00Z"}}),
        "an autoscaler changed spec.replicas at 2026-01-01T00:00:00Z, and may change them again"
    )]
    fn what_would_undo_it_is_said_and_needs_consent(#[case] meta: Value, #[case] expected: &str) {
        let change = scaled(&with(&meta), "pool", 5, None).unwrap();
        assert_eq!(change.warnings, [expected]);
        assert!(change.needs_consent);
        let by_user =
            json!({"managedFields": [{"manager": "kubectl-edit", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]});
        assert!(scaled(&with(&by_user), "pool", 5, None).unwrap().warnings.is_empty());
    }
}
