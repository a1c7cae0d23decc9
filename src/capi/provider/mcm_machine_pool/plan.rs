use std::sync::Arc;

use kube::ResourceExt;
use serde_json::json;

use super::{
    Action, Snapshot, chosen, members, native,
    parts::PoolConditionVerdicts,
    shares::{self, PoolShare},
    status,
};
use crate::{
    object::{
        gate::{self, gate, report},
        view::ObjectView,
    },
    provider::class::ClassResolution,
};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment},
};
use mcm_controllers::object::{finalizer, owner};
use mcm_conversion::types::names;
use mcm_rules::plan::{Plan, PlanInput, SentPatch, UndoneWrite, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match action {
            Action::PatchSelf(patch) => Some(SentPatch::new(&*self.object, patch)),
            Action::PatchDeployment { deployment, patch } => Some(SentPatch::new(&**deployment, patch)),
            Action::PatchNative { machine, patch } => Some(SentPatch::new(&**machine, patch)),
            Action::PatchMember { member, patch } => Some(SentPatch::new(&**member, patch)),
            Action::PatchOwner { pool, patch } => Some(SentPatch::new(&**pool, patch)),
            _ => None,
        }
    }

    fn show_undone(&self, plan: &mut Plan<Action>, undone: &[UndoneWrite]) {
        gate::show_undone(self, plan, undone);
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }
}

/// Plans the next steps of an MCMMachinePool. A plan has at most one write of the object itself.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    gate(snapshot, tear_down).unwrap_or_else(|| {
        let mut plan = Plan::default();
        provide(&mut plan, snapshot);
        plan
    })
}

/// Writes the native objects, the IDs of the VMs, and the status, in this order.
fn provide(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let parts = PoolConditionVerdicts::from_snapshot(snapshot);
    if snapshot.shown().is_empty() {
        native_objects(plan, snapshot, &parts);
        if !plan.steps.is_empty() {
            return;
        }
    }
    if let Some((pool, patch)) = snapshot.counted_elsewhere() {
        plan.then(Action::PatchOwner { pool, patch }, "another program scales the MCM MachineDeployments");
        return;
    }
    let ids = snapshot.ids();
    if ids != snapshot.object.spec.provider_id_list {
        let patch = json!({ "spec": { "providerIDList": ids } });
        plan.then(Action::PatchSelf(patch), "the IDs of the VMs are stored before anything else");
        return;
    }
    report(plan, snapshot, status::current(snapshot, &parts), "its conditions or its machines changed");
    let summary = parts.summary();
    if !summary.is_true() {
        let missing = if summary.message.is_empty() { summary.reason } else { summary.message };
        plan.wait(WaitKind::Infrastructure, format!("its VMs: {missing}"), None);
    }
}

fn native_objects(plan: &mut Plan<Action>, snapshot: &Snapshot, parts: &PoolConditionVerdicts) {
    if snapshot.has_members() {
        members::choose(plan, snapshot);
        members::create(plan, snapshot);
        members::delete(plan, snapshot);
    }
    chosen::by_nodes(plan, snapshot);
    let shares = snapshot.shares();
    for share in &shares {
        sync_deployment(plan, snapshot, parts, share);
    }
    remove_surplus(plan, snapshot, &shares);
}

/// Updates one native deployment. A class that the pool describes is written first.
fn sync_deployment(plan: &mut Plan<Action>, snapshot: &Snapshot, parts: &PoolConditionVerdicts, share: &PoolShare) {
    let class = match snapshot.class_of(share) {
        ClassResolution::Usable { name, content, is_inline: true } => match snapshot.classes.get(&name) {
            Some(ObjectView::Present(_)) => Some(name),
            Some(ObjectView::Unknown) => {
                plan.wait(WaitKind::ClassUnknown, format!("MachineClass {name} to become readable"), None);
                None
            }
            Some(ObjectView::Missing) | None if matches!(snapshot.infrastructure, ObjectView::Unknown) => {
                plan.wait(WaitKind::Unreadable, "the MCMCluster to become readable", None);
                None
            }
            Some(ObjectView::Missing) | None => {
                let class = native::class(snapshot, &name, &content);
                plan.then(Action::CreateClass(Box::new(class)), "the pool describes its VMs itself");
                return;
            }
        },
        ClassResolution::Usable { name, .. } => Some(name),
        ClassResolution::Problem(_) => None,
    };
    match (snapshot.deployments.get(&share.name), &class) {
        (Some(deployment), _) if !snapshot.owns(deployment) => {}
        (Some(deployment), class) => {
            if !chosen::is_known(plan, snapshot, share, deployment) {
                return;
            }
            if let Some(change) = native::changed(snapshot, share, class.as_deref(), deployment) {
                let action = Action::PatchDeployment { deployment: change.current, patch: change.patch };
                plan.then(action, change.reason);
            }
        }
        (None, Some(class)) if parts.may_create() && !snapshot.unreadable_deployments.contains(&share.name) => {
            if share.replicas.is_none() {
                plan.wait(WaitKind::Owner, "spec.replicas of the MachinePool to be set", None);
                return;
            }
            let deployment = native::created(snapshot, share, class);
            plan.then(Action::CreateDeployment(Box::new(deployment)), "the MachinePool has its bootstrap data");
        }
        (None, _) => {}
    }
}

/// Deletes deployments of zones that the pool no longer has once the others are complete, and unused classes.
fn remove_surplus(plan: &mut Plan<Action>, snapshot: &Snapshot, shares: &[PoolShare]) {
    let surplus = snapshot.own_deployments().filter(|one| !shares.iter().any(|share| share.name == one.name_any()));
    for deployment in surplus {
        if deployment.metadata.deletion_timestamp.is_some() || snapshot.is_complete(shares) {
            delete(plan, deployment, "the pool has no such failure domain any more");
        } else {
            plan.wait(WaitKind::MachineAvailability, "the machines of the other failure domains", None);
        }
    }
    let uid = snapshot.object.metadata.uid.as_deref().unwrap_or_default();
    let zones = shares.iter().map(|share| share.zone.as_str()).chain([""]);
    let wanted: Vec<String> = zones.filter_map(|zone| shares::own_class(&snapshot.object, zone)).collect();
    let own = snapshot.classes.values().filter_map(ObjectView::known);
    for class in own.filter(|class| owner::is_controlled_by(&class.metadata, uid)) {
        let name = class.name_any();
        let is_wanted = wanted.contains(&name);
        if !is_wanted && !snapshot.used_classes.contains(&name) && class.metadata.deletion_timestamp.is_none() {
            plan.then(Action::DeleteClass(class.clone()), "no machine uses the class any more");
        }
    }
}

/// Deletes the native objects with their VMs, then removes the finalizer. A deployment that is only shown stays.
fn tear_down(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let meta = &snapshot.object.metadata;
    let Some(release) = finalizer::remove(meta, names::POOL_FINALIZER) else {
        if meta.finalizers.as_ref().is_some_and(|others| !others.is_empty()) {
            plan.wait(WaitKind::Finalizers, "other controllers to remove their finalizers", None);
        }
        return;
    };
    if !snapshot.shown().is_empty() {
        plan.then(Action::PatchSelf(release), "the pool does not own the deployment that it mirrors");
        return;
    }
    if finalizer::is_orphaning(meta) {
        plan.then(Action::PatchSelf(release), "it is deleted with the policy Orphan: its native objects stay");
        return;
    }
    let unreadable = snapshot.unreadable_deployments.iter().chain(&snapshot.unreadable_machines).next();
    // The garbage collector may have released them before the deletion was seen.
    let (released, own): (Vec<_>, Vec<_>) =
        snapshot.own_deployments().partition(|deployment| owner::controller_of(&deployment.metadata).is_none());
    let is_released = |machine: &Arc<Machine>| {
        released.iter().any(|one| machine.labels().get(labels::DEPLOYMENT_NAME) == Some(&one.name_any()))
    };
    if unreadable.is_none() && own.is_empty() && snapshot.machines.values().all(is_released) {
        if !released.is_empty() {
            plan.then(Action::PatchSelf(release), "its native objects were released, and stay");
        } else if !snapshot.session.is_gone {
            plan.then(Action::ReadNatives, "the caches may be stale, and no VM must be left behind");
        } else {
            plan.then(Action::PatchSelf(release), "there are no MCM objects and therefore no VMs");
        }
        return;
    }
    if report(plan, snapshot, status::deleting(snapshot), "it is being deleted") {
        return;
    }
    own.into_iter().for_each(|deployment| delete(plan, deployment, "the VMs are deleted before the object"));
    if snapshot.has_members() {
        members::delete(plan, snapshot);
    }
    match unreadable {
        Some(name) => plan.wait(WaitKind::Unreadable, format!("the MCM object {name} to become readable"), None),
        None => plan.wait(WaitKind::MachineDeletion, "the VMs to be deleted", None),
    };
}

/// Deletes a deployment with its VMs. The patch has the resource version as precondition, so it fails if the garbage collector
/// released the deployment meanwhile.
fn delete(plan: &mut Plan<Action>, deployment: &Arc<MachineDeployment>, reason: &str) {
    if !deployment.annotations().contains_key(labels::DELETE_VM) {
        let patch = json!({ "metadata": { "annotations": { (labels::DELETE_VM): "" } } });
        plan.then(Action::PatchDeployment { deployment: deployment.clone(), patch }, "its VMs are deleted with it");
    }
    if deployment.metadata.deletion_timestamp.is_none() {
        plan.then(Action::DeleteDeployment(deployment.clone()), reason);
    }
}
