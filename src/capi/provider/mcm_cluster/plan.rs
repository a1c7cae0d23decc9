use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use super::{Action, Snapshot};
use crate::object::{
    conditions::ConditionVerdict,
    gate::{self, GateInput, GatedSnapshot, gate, report, with_conditions},
    hold,
    view::{ObjectView, OwnerState},
};
use mcm_api::reasons::{FulfilledReason, ProviderCondition, ProviderReason as Reason};
use mcm_controllers::object::finalizer;
use mcm_conversion::types::{Cluster, MCMClusterStatus, ReportedFailureDomain, names};
use mcm_rules::plan::{Plan, PlanInput, SentPatch, UndoneWrite, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match action {
            Action::PatchSelf(patch) => Some(SentPatch::new(&*self.object, patch)),
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

/// Plans the next steps of an MCMCluster. A plan has at most one write.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let meta = &snapshot.object.metadata;
    if hold::not_ours(meta, snapshot.watch_filter.as_deref()).is_none() {
        let is_deleting = meta.deletion_timestamp.is_some();
        let is_managed_elsewhere = hold::is_managed_elsewhere(meta);
        // The finalizer was set before the object was managed elsewhere, or the Cluster does not exist any more.
        if is_deleting
            && (snapshot.cluster.is_none() || (is_managed_elsewhere && finalizer::has(meta, names::CLUSTER_FINALIZER)))
        {
            let mut plan = Plan::default();
            release(&mut plan, snapshot);
            return plan;
        }
        if is_managed_elsewhere {
            return Plan::waiting(WaitKind::Hold, format!("the manager that {} names", names::MANAGED_BY), None);
        }
    }
    gate(snapshot, release).unwrap_or_else(|| provide(snapshot))
}

fn provide(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    let ready = ready(snapshot);
    if !ready.is_true() {
        plan.wait(WaitKind::Infrastructure, format!("what it needs: {}", ready.message), None);
    }
    report(&mut plan, snapshot, current(snapshot, ready), "its conditions or failure domains changed");
    plan
}

/// The Cluster of an MCMCluster without an owner.
static NO_CLUSTER: ObjectView<Cluster> = ObjectView::Missing;

impl GatedSnapshot for Snapshot {
    type Status = MCMClusterStatus;
    type Action = Action;

    fn facts(&self) -> GateInput<'_> {
        GateInput {
            meta: &self.object.metadata,
            watch_filter: self.watch_filter.as_deref(),
            owner_kind: "Cluster",
            owner: self.cluster.as_ref().map_or(OwnerState::None, ObjectView::ownership),
            cluster: self.cluster.as_ref().unwrap_or(&NO_CLUSTER),
            are_natives_read: true,
            obstacle: None,
            finalizer: (names::CLUSTER_FINALIZER, "it takes part in the deletion of its Cluster"),
            now: self.now,
        }
    }

    fn stored(&self) -> MCMClusterStatus {
        self.object.status.clone().unwrap_or_default()
    }

    fn conditions(status: &mut MCMClusterStatus) -> &mut Vec<Condition> {
        &mut status.conditions
    }

    fn patch_self(patch: Value) -> Action {
        Action::PatchSelf(patch)
    }

    fn write_status(status: MCMClusterStatus) -> Action {
        Action::WriteStatus(Box::new(status))
    }
}

/// There is nothing to delete. Core has already deleted the Machines.
fn release(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let meta = &snapshot.object.metadata;
    match finalizer::remove(meta, names::CLUSTER_FINALIZER) {
        Some(patch) => {
            plan.then(Action::PatchSelf(patch), "a cluster has no infrastructure other than its machines");
        }
        None if meta.finalizers.as_ref().is_some_and(|others| !others.is_empty()) => {
            plan.wait(WaitKind::Finalizers, "other controllers to remove their finalizers", None);
        }
        None => {}
    }
}

/// The condition `Ready`: everything that the object names exists, and the API server has an address.
fn ready(snapshot: &Snapshot) -> ConditionVerdict {
    let spec = &snapshot.object.spec;
    let cluster = snapshot.cluster.as_ref().and_then(ObjectView::known);
    let of_cluster = cluster.is_some_and(|cluster| cluster.spec.control_plane_endpoint.is_complete());
    if !spec.control_plane_endpoint.is_complete() && !of_cluster {
        let text = "spec.controlPlaneEndpoint of the MCMCluster and of the Cluster is empty: set one of them";
        return ConditionVerdict::no(Reason::WaitingForEndpoint, text);
    }
    let secret = spec.credentials_secret_ref.as_ref().map(|reference| reference.name.as_str()).unwrap_or_default();
    match &snapshot.credentials {
        Some(ObjectView::Missing) => {
            return ConditionVerdict::no(Reason::SecretMissing, format!("Secret {secret} does not exist: create it"));
        }
        Some(ObjectView::Unknown) => {
            return ConditionVerdict::no(Reason::Unreadable, format!("Secret {secret} cannot be read"));
        }
        Some(ObjectView::Present(_)) | None => {}
    }
    for (class, seen) in &snapshot.classes {
        match seen {
            ObjectView::Missing => {
                let text = format!("MachineClass {class} in spec.failureDomains does not exist: create it");
                return ConditionVerdict::no(Reason::ClassMissing, text);
            }
            ObjectView::Unknown => {
                return ConditionVerdict::no(Reason::Unreadable, format!("MachineClass {class} cannot be read"));
            }
            ObjectView::Present(_) => {}
        }
    }
    ConditionVerdict::yes(FulfilledReason::Provisioned)
}

fn current(snapshot: &Snapshot, ready: ConditionVerdict) -> MCMClusterStatus {
    let mut next = snapshot.stored();
    if ready.is_true() {
        next.initialization.provisioned = Some(true);
    }
    let domains = snapshot.object.spec.failure_domains.iter();
    next.failure_domains = domains
        .map(|domain| ReportedFailureDomain {
            name: domain.name.clone(),
            control_plane: domain.control_plane,
            attributes: domain.attributes.clone(),
        })
        .collect();
    with_conditions(snapshot, next, [(ProviderCondition::Ready, ready)])
}
