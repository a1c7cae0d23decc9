use std::sync::Arc;

use kube::ResourceExt;

use super::{Action, Snapshot};
use crate::{
    object::{
        conditions::{self, ConditionVerdict},
        view::ObjectView,
    },
    stand_in::mirror,
};
use mcm_api::{
    labels,
    machine::MachineSet as Native,
    reasons::{StandInCondition, StandInReason},
};
use mcm_conversion::{
    VERSION,
    status::selector_text,
    types::{MachineDeployment, MachineSet, MachineSetSpec, MachineSetStatus, names},
};
use mcm_rules::plan::{Plan, PlanInput, SentPatch, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match action {
            Action::Patch { mirror, patch } => Some(SentPatch::new(&**mirror, patch)),
            _ => None,
        }
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus { .. })
    }
}

/// Plans the next steps of a MachineSet.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    if let Some(on) = snapshot.standing.wait().or_else(|| snapshot.above.paused.clone()) {
        plan.wait(WaitKind::Hold, on, None);
        return plan;
    }
    match (&snapshot.mirror, &snapshot.native) {
        (ObjectView::Unknown, _) | (_, ObjectView::Unknown) => {
            plan.wait(WaitKind::Unreadable, "the set to become readable on both sides", None);
        }
        (ObjectView::Missing, ObjectView::Missing) => {}
        (ObjectView::Present(mirror), _) if !mirror::is_mirror(&mirror.metadata) => refuse(&mut plan, snapshot, mirror),
        (ObjectView::Present(mirror), _) if mirror.metadata.deletion_timestamp.is_some() => {
            plan.wait(WaitKind::Finalizers, "other controllers to remove their finalizers", None);
        }
        (ObjectView::Present(_), ObjectView::Missing) if !snapshot.is_gone => {
            plan.then(Action::ReadNative, "the cache may not have it yet");
        }
        (ObjectView::Present(mirror), ObjectView::Missing) => {
            plan.then(Action::Delete(Arc::clone(mirror)), "its MCM MachineSet was deleted");
        }
        (mirror, ObjectView::Present(native)) => show(&mut plan, snapshot, mirror.known(), native),
    }
    plan
}

fn show(plan: &mut Plan<Action>, snapshot: &Snapshot, mirror: Option<&Arc<MachineSet>>, native: &Native) {
    let Some(deployment) = snapshot.above.deployment.as_ref().filter(|_| is_in_use(snapshot, native)) else {
        if let Some(mirror) = mirror {
            plan.then(Action::Delete(Arc::clone(mirror)), "it is no longer mirrored");
        }
        return;
    };
    let Some(mirror) = mirror else {
        // A set created now would have no owner.
        if is_going(deployment) {
            return;
        }
        let made = made(native, deployment);
        plan.then(Action::Create(Box::new(made)), "it shows the MCM MachineSet");
        return;
    };
    let next = updated(mirror, native, deployment);
    if let Some(patch) = mirror::change(mirror.as_ref(), &next) {
        plan.then(Action::Patch { mirror: Arc::clone(mirror), patch }, "it shows the MCM MachineSet");
        return;
    }
    let status = status(snapshot, mirror, native);
    if mirror.status.as_ref() != Some(&status) {
        let action = Action::WriteStatus { mirror: Arc::clone(mirror), status: Box::new(status) };
        plan.then(action, "its machines changed");
    }
}

/// It has machines, or the current template.
fn is_in_use(snapshot: &Snapshot, native: &Native) -> bool {
    let replicas = native.status.as_ref().map_or(0, |status| status.replicas);
    native.spec.replicas > 0 || replicas > 0 || is_current(snapshot, native)
}

/// The native deployment has the revision of this set, its newest.
fn is_current(snapshot: &Snapshot, native: &Native) -> bool {
    let deployment = snapshot.above.native.as_ref();
    let revision = deployment.and_then(|deployment| deployment.annotations().get(labels::REVISION));
    revision.is_some() && native.annotations().get(labels::REVISION) == revision
}

/// The garbage collector decides about the owners of its sets.
fn is_going(deployment: &MachineDeployment) -> bool {
    deployment.metadata.deletion_timestamp.is_some()
}

fn made(native: &Native, deployment: &MachineDeployment) -> MachineSet {
    let mut template = deployment.spec.template.clone();
    // Only the version of an old set is kept; the rest of its template is unknown to Cluster API.
    let version = native.spec.template.metadata.annotations.get(VERSION);
    template.spec.version = version.cloned().unwrap_or_default();
    let hash = native.labels().get(labels::TEMPLATE_HASH);
    template.metadata.labels = mirror::common_labels(deployment, hash);
    let spec = MachineSetSpec { template, ..MachineSetSpec::default() };
    let mut mirror = MachineSet::new(&native.name_any(), spec);
    mirror.metadata.namespace = native.namespace();
    updated(&mirror, native, deployment)
}

/// S4: changes by users are undone; labels and annotations of other programs stay.
fn updated(mirror: &MachineSet, native: &Native, deployment: &MachineDeployment) -> MachineSet {
    let mut next = mirror.clone();
    let hash = native.labels().get(labels::TEMPLATE_HASH);
    let own = mirror::common_labels(deployment, hash);
    let controller = mirror::controller(deployment).filter(|_| !is_going(deployment));
    mirror::mark(&mut next.metadata, own, controller);
    next.spec.cluster_name.clone_from(&deployment.spec.cluster_name);
    next.spec.replicas = Some(native.spec.replicas);
    next.spec.selector = deployment.spec.selector.clone();
    let labels = next.spec.selector.match_labels.get_or_insert_default();
    labels.extend(hash.map(|hash| (labels::TEMPLATE_HASH.to_owned(), hash.clone())));
    labels.insert(names::CLUSTER_NAME.to_owned(), deployment.spec.cluster_name.clone());
    next
}

fn status(snapshot: &Snapshot, mirror: &MachineSet, native: &Native) -> MachineSetStatus {
    let shown = native.status.clone().unwrap_or_default();
    let mut next = mirror.status.clone().unwrap_or_default();
    next.selector = selector_text(&mirror.spec.selector);
    next.replicas = Some(shown.replicas);
    next.ready_replicas = Some(shown.ready_replicas);
    next.available_replicas = Some(shown.available_replicas);
    next.up_to_date_replicas = Some(if is_current(snapshot, native) { shown.replicas } else { 0 });
    next.observed_generation = mirror.metadata.generation;
    next
}

/// S5: a MachineSet without a MachineDeployment is refused.
fn refuse(plan: &mut Plan<Action>, snapshot: &Snapshot, mirror: &Arc<MachineSet>) {
    let mut next = mirror.status.clone().unwrap_or_default();
    let text = "the stand-in serves MachineDeployments only: create one of them";
    let refused = ConditionVerdict::no(StandInReason::UnownedUnsupported, text);
    let generation = mirror.metadata.generation;
    conditions::set(&mut next.conditions, StandInCondition::StandIn, refused, generation, snapshot.now);
    if mirror.status.as_ref() != Some(&next) {
        let action = Action::WriteStatus { mirror: Arc::clone(mirror), status: Box::new(next) };
        plan.then(action, "it is not served");
    }
}
