//! From drafts to steps, with the words that go with them.

use kube::ResourceExt;

use super::{
    Action, Snapshot, conditions,
    draft::Draft,
    revision,
    rollout::Bounds,
    sets::{Family, SetView},
};
use crate::{
    api::{
        machine::{MachineDeployment, MachineDeploymentStatus, MachineSet},
        reasons::{ConditionType, EventReason},
    },
    controllers::plan::{Note, Plan},
};

/// Gives a set its size, and notes for which size of the deployment that was.
pub(super) fn resize(set: &mut SetView, is_new: bool, bounds: &Bounds, size: i32, why: &str) {
    if set.is_deleting() {
        return;
    }
    let before = set.draft.seen().spec.replicas;
    resize_for_now(set, is_new, size, why);
    if size != before || size > 0 || is_new {
        annotate_size(set, bounds);
    }
}

/// Gives a set a size that is not yet what the deployment wants of it.
pub(super) fn resize_for_now(set: &mut SetView, is_new: bool, size: i32, why: &str) {
    let (name, before) = (set.name(), set.draft.seen().spec.replicas);
    if size == before {
        return;
    }
    let role = if is_new { "new" } else { "old" };
    set.draft.edit(format!("scale {role} set {name} from {before} to {size}: {why}"), |set| {
        set.spec.replicas = size;
    });
    let direction = if size > before { "up" } else { "down" };
    set.draft
        .note(Note::normal(EventReason::ScalingMachineSet, format!("Scaled {direction} machine set {name} to {size}")));
}

fn annotate_size(set: &mut SetView, bounds: &Bounds) {
    let mut wanted = revision::size_annotations(bounds).to_vec();
    let present = set.draft.seen().annotations();
    wanted.retain(|(key, value)| present.get(*key) != Some(value));
    if !wanted.is_empty() {
        let reason = format!("sized for {}, at most {}", machines(bounds.desired), bounds.at_most());
        set.draft.edit(reason, |set| {
            set.annotations_mut().extend(wanted.into_iter().map(|(key, value)| (key.to_owned(), value)));
        });
    }
}

pub(super) fn emit_deployment(plan: &mut Plan<Action>, deployment: Draft<MachineDeployment>) {
    if let Some(change) = deployment.finish() {
        push(plan, Action::PatchDeployment(change.patch), change.reason, change.note);
    }
}

pub(super) fn emit_creation(plan: &mut Plan<Action>, set: MachineSet, family: &Family, bounds: &Bounds) {
    let (name, size) = (set.name_any(), set.spec.replicas);
    let planned: i32 = family.sets.iter().map(|set| set.count().planned()).sum();
    let reason = format!(
        "create new set {name} with {}: {} exist or are asked for, at most {} may",
        machines(size),
        machines(planned),
        bounds.at_most()
    );
    let note = (size > 0)
        .then(|| Note::normal(EventReason::ScalingMachineSet, format!("Scaled up machine set {name} to {size}")));
    push(plan, Action::CreateSet(Box::new(set)), reason, note);
}

/// The status is written when it says something new.
pub(super) fn emit_status(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    status: MachineDeploymentStatus,
    note: Option<Note>,
) {
    if snapshot.deployment.status.as_ref() == Some(&status) {
        return;
    }
    let progress = conditions::find(&status.conditions, ConditionType::Progressing);
    let reason = format!(
        "{}, {} of the current template, {} available; progress: {}",
        machines(status.replicas),
        status.updated_replicas,
        status.available_replicas,
        progress.map_or("none yet", |condition| &condition.reason),
    );
    push(plan, Action::WriteStatus(Box::new(status)), reason, note);
}

pub(super) fn wait_for_unreadable(plan: &mut Plan<Action>, names: &[String]) {
    plan.wait(format!("{} to become readable: what they are decides what to do", names.join(", ")), None);
}

pub(super) fn push(plan: &mut Plan<Action>, action: Action, reason: String, note: Option<Note>) {
    match note {
        Some(note) => plan.then_noting(action, reason, note),
        None => plan.then(action, reason),
    };
}

/// A number of Machines, in words.
pub(super) fn machines(count: i32) -> String {
    format!("{count} machine{}", if count == 1 { "" } else { "s" })
}
