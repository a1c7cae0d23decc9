//! Turns drafts into steps with reasons and events.

use std::sync::Arc;

use kube::ResourceExt;

use super::{
    Action, Snapshot,
    bounds::ReplicaBounds,
    sets::{OwnedSets, SetView, revision},
};
use crate::object::{condition, draft::ObjectDraft, finalizer};
use mcm_api::{
    labels,
    machine::{MachineDeployment, MachineDeploymentStatus, MachineSet},
    reasons::{ConditionType, EventReason},
};
use mcm_rules::plan::{Event, Plan, WaitKind, counted};

/// The replicas that a plan sets on a MachineSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedReplicas {
    /// The desired replicas. Annotations of the set record for which `spec.replicas` of the deployment they are.
    Final(i32),
    /// As many as maxSurge allows now.
    ForNow(i32),
}

/// Sets the replicas of a set.
pub(super) fn scale_set(set: &mut SetView, bounds: &ReplicaBounds, replicas: PlannedReplicas, why: &str) {
    if set.is_deleting() {
        return;
    }
    let (PlannedReplicas::Final(desired) | PlannedReplicas::ForNow(desired)) = replicas;
    let current = set.draft.current().spec.replicas;
    if desired != current {
        let (name, role) = (set.name(), if set.is_new { "new" } else { "old" });
        set.draft.edit(format!("scale {role} set {name} from {current} to {desired}: {why}"), |set| {
            set.spec.replicas = desired;
        });
        let direction = if desired > current { "up" } else { "down" };
        set.draft.record(Event::normal(
            EventReason::ScalingMachineSet,
            format!("Scaled {direction} machine set {name} to {desired}"),
        ));
    }
    let is_worth_annotating = desired != current || desired > 0 || set.is_new;
    if is_worth_annotating && matches!(replicas, PlannedReplicas::Final(_)) {
        annotate_size(set, bounds);
    }
}

fn annotate_size(set: &mut SetView, bounds: &ReplicaBounds) {
    let mut desired = revision::size_annotations(bounds).to_vec();
    let present = set.draft.current().annotations();
    desired.retain(|(key, value)| present.get(*key) != Some(value));
    if !desired.is_empty() {
        let reason = format!("scaled for {} replicas + {} maxSurge", bounds.desired, bounds.max_surge);
        set.draft.edit(reason, |set| {
            set.annotations_mut().extend(desired.into_iter().map(|(key, value)| (key.to_owned(), value)));
        });
    }
}

/// A draft of the deployment with its finalizer.
pub(super) fn with_finalizer(deployment: &Arc<MachineDeployment>) -> ObjectDraft<MachineDeployment> {
    let mut draft = ObjectDraft::new(Arc::clone(deployment));
    if let Some(finalizers) = finalizer::with(&deployment.metadata, labels::FINALIZER) {
        draft.edit("add the finalizer: its sets must be deleted before the deployment", |deployment| {
            deployment.metadata.finalizers = Some(finalizers);
        });
    }
    draft
}

pub(super) fn emit_deployment(plan: &mut Plan<Action>, deployment: ObjectDraft<MachineDeployment>) {
    if let Some(change) = deployment.finish() {
        push(plan, Action::PatchDeployment(change.patch), change.reason, change.event);
    }
}

pub(super) fn emit_creation(plan: &mut Plan<Action>, set: MachineSet, sets: &OwnedSets, bounds: &ReplicaBounds) {
    let (name, replicas) = (set.name_any(), set.spec.replicas);
    let planned: i32 = sets.sets.iter().map(|set| set.counts.planned()).sum();
    let relation = if replicas > 0 { "<" } else { ">=" };
    let (desired, max_surge) = (bounds.desired, bounds.max_surge);
    let reason = format!(
        "create new set {name} with {}: {planned} planned {relation} {desired} replicas + {max_surge} maxSurge",
        machines(replicas),
    );
    let text = || format!("Scaled up machine set {name} to {replicas}");
    let event = (replicas > 0).then(|| Event::normal(EventReason::ScalingMachineSet, text()));
    push(plan, Action::CreateSet(Box::new(set)), reason, event);
}

/// Writes the status if it differs from the stored one.
pub(super) fn emit_status(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    status: MachineDeploymentStatus,
    event: Option<Event>,
) {
    if snapshot.deployment.status.as_ref() == Some(&status) {
        return;
    }
    let progress = condition::find(&status.conditions, ConditionType::Progressing);
    let reason = format!(
        "{}, {} of the current template, {} available; progress: {}",
        machines(status.replicas),
        status.updated_replicas,
        status.available_replicas,
        progress.map_or("none yet", |condition| &condition.reason),
    );
    push(plan, Action::WriteStatus(Box::new(status)), reason, event);
}

pub(super) fn wait_for_unreadable(plan: &mut Plan<Action>, names: &[String]) {
    plan.wait(
        WaitKind::Unreadable,
        format!("{} to become readable: the next step depends on their content", names.join(", ")),
        None,
    );
}

fn push(plan: &mut Plan<Action>, action: Action, reason: String, event: Option<Event>) {
    match event {
        Some(event) => plan.then_recording(action, reason, event),
        None => plan.then(action, reason),
    };
}

/// A number of Machines, as text.
pub(super) fn machines(count: i32) -> String {
    counted(count, "machine")
}
