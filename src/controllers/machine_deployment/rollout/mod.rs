//! Plans a rollout: the replicas of each set, and the steps around them.
//!
//! One file per strategy; `counts` and `bounds` are the numbers they work on, [`lint`] checks the result.

mod in_place;
pub(super) mod lint;
mod recreate;
mod rolling_update;
mod scale;
mod updates;

use std::{cmp::Ordering, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Action, DeploymentPolicy, NodePatchOrder, SetCreateFailure, Snapshot, autoscaler,
    bounds::ReplicaBounds,
    counts::ScalableSet,
    nodes::DeploymentNodes,
    overlap,
    sets::{OwnedSets, SetView, hash_label, history, naming::identity_for, revision, rollback},
    status::{self, DeploymentStatusInput},
    steps::{
        PlannedReplicas, emit_creation, emit_deployment, emit_status, machines, scale_set, wait_for_unreadable,
        with_finalizer,
    },
    validate::ValidSpec,
};
use crate::object::{
    draft::{DraftPatch, DraftsByName, ObjectDraft},
    strays::CreationGate,
};
use mcm_api::{
    machine::{Machine, MachineDeployment, MachineDeploymentStatus, MachineSet, StrategyType},
    reasons::EventReason,
};
use mcm_rules::plan::{Event, Plan, Step, Wait, WaitKind};
use scale::ScalingInput;
use updates::paused_counts;

/// Plans one reconcile of a valid deployment.
pub(super) struct RolloutPlanner<'a> {
    snapshot: &'a Snapshot,
    bounds: &'a ReplicaBounds,
    /// The bounds that sets are annotated with: maxSurge counts only for RollingUpdate.
    annotated: ReplicaBounds,
    strategy: StrategyType,
    /// InPlaceUpdate: a user selects the Nodes.
    is_manual: bool,
    deployment: ObjectDraft<MachineDeployment>,
    sets: OwnedSets,
    nodes: DeploymentNodes<'a>,
    machines: DraftsByName<Machine>,
    created: Option<MachineSet>,
    /// A set about which the API server is asked first.
    tried: Option<MachineSet>,
    collisions: i32,
    /// Machines that cannot be decoded and for which the strategy has to wait.
    unreadable: Vec<String>,
    /// Further waits of the strategy.
    also_waits: Vec<Wait>,
}

impl<'a> RolloutPlanner<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, policy: &DeploymentPolicy, spec: &'a ValidSpec) -> Self {
        let stored = snapshot.deployment.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
        let sets = OwnedSets::claim(snapshot, &spec.selector);
        let is_taken = snapshot.failure == Some(SetCreateFailure::NameTaken) && sets.new_set().is_none();
        Self {
            snapshot,
            bounds: &spec.bounds,
            annotated: match spec.strategy {
                StrategyType::InPlaceUpdate => ReplicaBounds { max_surge: 0, ..spec.bounds },
                StrategyType::RollingUpdate | StrategyType::Recreate => spec.bounds,
            },
            strategy: spec.strategy,
            is_manual: spec.is_manual,
            deployment: with_finalizer(&snapshot.deployment),
            sets,
            nodes: DeploymentNodes::new(snapshot, policy),
            machines: DraftsByName::default(),
            created: None,
            tried: None,
            collisions: if is_taken { stored.saturating_add(1) } else { stored },
            unreadable: Vec::new(),
            also_waits: Vec::new(),
        }
    }

    pub(super) fn plan(mut self) -> Plan<Action> {
        if !self.sets.unknown.is_empty() {
            let mut plan = Plan::default();
            emit_deployment(&mut plan, self.deployment);
            wait_for_unreadable(&mut plan, &self.sets.unknown);
            return plan;
        }
        autoscaler::mark_machines(&mut self.deployment, &mut self.machines, self.snapshot);
        self.sets.see_marks(&self.machines);
        let spec = &self.snapshot.deployment.spec;
        if let Some(request) = spec.rollback_to.as_ref().filter(|_| !spec.paused) {
            rollback::roll_back(&mut self.deployment, &mut self.sets, &mut self.nodes, request);
            return self.emit(None, Vec::new());
        }
        revision::update_new_set(&mut self.sets, self.deployment.desired());
        let name = self.snapshot.deployment.name_any();
        hash_label::complete(&mut self.sets, &mut self.machines, &name, &self.snapshot.sets);
        self.tidy_up();
        let is_scaled = self.unblock_scale_up() || self.scale(spec.paused);
        if !is_scaled && !spec.paused {
            self.prepare_nodes();
            match self.strategy {
                StrategyType::Recreate => self.recreate(),
                StrategyType::RollingUpdate => self.rolling_update(),
                StrategyType::InPlaceUpdate => self.update_in_place(),
            }
        }
        self.set_revision();
        self.finish()
    }

    /// Machines of two sets may exist at the same time.
    fn may_overlap(&self) -> bool {
        self.strategy != StrategyType::Recreate
    }

    fn scalable(&self) -> Vec<ScalableSet> {
        let scalable = |set: &SetView| match self.strategy {
            StrategyType::InPlaceUpdate => ScalableSet { counts: paused_counts(self.snapshot, set), ..set.scalable() },
            StrategyType::RollingUpdate | StrategyType::Recreate => set.scalable(),
        };
        self.sets.sets.iter().filter(|set| !set.is_deleting()).map(scalable).collect()
    }

    /// Handles a change of `spec.replicas`, and all scaling of a paused deployment. True if a set gets other replicas;
    /// the rollout continues in the next plan then.
    fn scale(&mut self, paused: bool) -> bool {
        if self.strategy == StrategyType::InPlaceUpdate && !paused {
            return false;
        }
        let sets = self.scalable();
        let side_by_side = sets.iter().filter(|set| set.counts.planned() > 0).count() > 1;
        let waits_for_old = !self.may_overlap() && (!paused || side_by_side);
        if waits_for_old || !scale::is_pending(self.bounds, &sets, paused) {
            return false;
        }
        let departing = self.sets.sets.iter().filter(|set| set.is_deleting()).map(|set| set.counts).sum();
        let mode = ScalingInput { paused, may_overlap: self.may_overlap(), departing };
        let desired = scale::desired_replicas(self.bounds, &sets, mode);
        let mut capped = scale::capped(self.bounds, &sets, mode, &desired);
        if self.strategy == StrategyType::InPlaceUpdate {
            capped = scale::keeping_minimum(self.bounds, &sets, capped);
        }
        let is_changed = sets.iter().zip(&capped).any(|(set, replicas)| set.counts.replicas != *replicas);
        if !paused && !is_changed {
            return false;
        }
        let ReplicaBounds { desired: all, max_surge, max_unavailable } = *self.bounds;
        let why = format!("spec.replicas is {all}");
        if capped.iter().zip(&desired).any(|(now, later)| now > later) {
            let text = format!(
                "machines to become available before others are deleted: {all} replicas - {max_unavailable} \
                 maxUnavailable"
            );
            self.also_waits.push(Wait::new(WaitKind::MachineAvailability, text, None));
        }
        let sets = self.sets.sets.iter_mut().filter(|set| !set.is_deleting());
        for (set, (capped, desired)) in sets.zip(capped.into_iter().zip(desired)) {
            let replicas =
                if capped == desired { PlannedReplicas::Final(capped) } else { PlannedReplicas::ForNow(capped) };
            let why = match capped.cmp(&desired) {
                Ordering::Less => format!("{why}, for now planned <= {all} replicas + {max_surge} maxSurge"),
                Ordering::Equal => why.clone(),
                Ordering::Greater => {
                    format!("{why}, for now available >= {all} replicas - {max_unavailable} maxUnavailable")
                }
            };
            scale_set(set, &self.annotated, replicas, &why);
        }
        is_changed
    }

    /// Before old Machines are deleted, new pods avoid their Nodes. Meanwhile the autoscaler is stopped. Afterwards the reverse.
    fn prepare_nodes(&mut self) {
        if self.sets.is_rolling() {
            // Taints come first: sets that shrink wait for them.
            if self.may_overlap() {
                for set in self.sets.old_sets_mut() {
                    self.nodes.taint(set);
                }
            }
            for set in &self.sets.sets {
                self.nodes.disable_scale_down(set);
            }
        }
        if let Some(set) = self.sets.new_set_mut() {
            self.nodes.untaint(set);
            self.nodes.withdraw_candidates(set);
        }
    }

    fn create(&mut self, replicas: i32) {
        if let Some((why, until)) = self.creation_paused() {
            let text = format!("a new machine set to stay that of the deployment: {why}");
            self.also_waits.push(Wait::new(WaitKind::WriteUndone, text, Some(until)));
            return;
        }
        let deployment = &self.snapshot.deployment;
        let identity = identity_for(
            &deployment.name_any(),
            &deployment.spec.template,
            self.collisions,
            self.snapshot.sets.iter().map(Arc::as_ref),
        );
        let revision = revision::next_revision(&self.sets);
        let set = revision::new_set(self.deployment.desired(), &identity, &self.annotated, revision, replicas);
        match self.snapshot.strays.growth {
            CreationGate::Tried { .. } => self.tried = Some(set),
            CreationGate::Free | CreationGate::Paused { .. } => self.created = Some(set),
        }
    }

    /// Why no set may be created now, and until when.
    fn creation_paused(&self) -> Option<(String, Timestamp)> {
        match &self.snapshot.strays.growth {
            CreationGate::Paused { why, until } => Some((why.clone(), *until)),
            CreationGate::Free | CreationGate::Tried { .. } => {
                let until = self.snapshot.sets_paused_until?;
                Some((status::UNKNOWN_SETS.to_owned(), until))
            }
        }
    }

    fn set_revision(&mut self) {
        let revision = match &self.created {
            Some(set) => revision::revision_of(set),
            None => self.sets.new_set().map_or(0, |set| revision::revision_of(set.draft.desired())),
        };
        revision::set_on_deployment(&mut self.deployment, revision);
    }

    /// Adds status, clean-up and waits.
    fn finish(mut self) -> Plan<Action> {
        let created = self.created.as_ref().map(|set| (set.name_any(), set.spec.replicas));
        let facts = DeploymentStatusInput {
            snapshot: self.snapshot,
            sets: &self.sets,
            bounds: self.bounds,
            created: created.as_ref().map(|(name, replicas)| (name.as_str(), *replicas)),
            collisions: self.collisions,
        };
        let status = status::status_of(&facts);
        let deadline = status::progress_deadline(&facts, &status);
        let spec = &self.snapshot.deployment.spec;
        let is_complete = status::is_complete(&status, spec.replicas) && !self.sets.is_rolling();
        if is_complete
            && !spec.paused
            && let Some(set) = self.sets.new_set()
        {
            self.nodes.allow_scale_down(set);
        }
        let surplus = if is_complete || spec.paused {
            history::superfluous(&self.sets, spec.revision_history_limit, spec.paused)
        } else {
            Vec::new()
        };
        let (is_held, waits) = (self.is_held(), self.waits());
        let unreadable = std::mem::take(&mut self.unreadable);
        let also = std::mem::take(&mut self.also_waits);
        let unclear = overlap::waits(self.snapshot, &self.sets.unclear);
        let mut plan = self.emit(Some(status), surplus);
        if is_held {
            plan.wait(WaitKind::Paused, "the deployment to be resumed: spec.paused is true", deadline);
        }
        for wait in waits {
            plan.wait(WaitKind::Rollout, wait, deadline);
        }
        plan.waits.extend(also);
        plan.waits.extend(unclear);
        if !unreadable.is_empty() {
            wait_for_unreadable(&mut plan, &unreadable);
        }
        plan
    }

    /// A rollout waits for the deployment to be resumed.
    fn is_held(&self) -> bool {
        self.snapshot.deployment.spec.paused && (self.sets.new_set().is_none() || self.sets.is_rolling())
    }

    /// The waits of the rollout.
    fn waits(&self) -> Vec<String> {
        let mut waits = Vec::new();
        if let Some(set) = &self.created {
            waits.push(format!("new set {} to create {}", set.name_any(), machines(set.spec.replicas)));
        }
        if let Some(set) = self.sets.new_set() {
            let (name, counts) = (set.name(), set.counts);
            let missing = self.bounds.desired - counts.available;
            if set.is_deleting() {
                waits.push(format!("new set {name} to be deleted, so that it can be created again"));
            } else if missing > 0 {
                waits.push(format!("{} of new set {name} to become available", machines(missing)));
            }
            if counts.live > counts.replicas && !set.is_deleting() {
                waits.push(format!("new set {name} to delete {}", machines(counts.live - counts.replicas)));
            }
            if counts.terminating > 0 {
                waits.push(format!("{} of new set {name} to be deleted", machines(counts.terminating)));
            }
        }
        for set in self.sets.old_sets().filter(|set| !set.is_gone()) {
            let planned = set.counts.planned();
            waits.push(match planned {
                0 => format!("old set {} to observe its new replicas", set.name()),
                _ if self.strategy == StrategyType::InPlaceUpdate && set.desired_replicas() > 0 => {
                    format!("{} of old set {} to be updated in place", machines(planned), set.name())
                }
                _ => format!("{} of old set {} to be deleted", machines(planned), set.name()),
            });
        }
        waits
    }

    /// The steps, in a safe order: deletion marks before replicas, updated Nodes before their Machines, taints between sets that
    /// grow and sets that shrink, status last.
    fn emit(self, status: Option<MachineDeploymentStatus>, surplus: Vec<history::SetDeletion>) -> Plan<Action> {
        let mut plan = Plan::default();
        let Self { snapshot, deployment, sets, nodes, machines, created, tried, bounds, .. } = self;
        let failed = match (&snapshot.failure, &created) {
            (Some(SetCreateFailure::Other { message }), Some(set)) => Some(Event::warning(
                EventReason::MachineSetCreateError,
                format!("Failed to create new machine set {}: {message}", set.name_any()),
            )),
            _ => None,
        };
        // A failed create may fail again, so the status that reports it is written first.
        let (early, late) =
            if snapshot.failure.is_some() && created.is_some() { (status, None) } else { (None, status) };

        emit_deployment(&mut plan, deployment);
        if let Some(status) = early {
            emit_status(&mut plan, snapshot, status, failed);
        }
        let mut nodes = nodes.finish(&mut plan);
        plan.steps.extend(nodes.remove(&NodePatchOrder::BeforeMachines).into_iter().flatten());
        for DraftPatch { current, patch, reason, .. } in machines.finish() {
            plan.then(Action::PatchMachine { machine: current, patch }, reason);
        }
        for set in &snapshot.strays.altered {
            let name = set.name_any();
            let reason = format!(
                "delete set {name}: the deployment created it, and the API server stored it so that it is not its own"
            );
            plan.then(Action::DeleteSet(Arc::clone(set)), reason);
        }
        if let Some(set) = tried {
            let why = snapshot.strays.growth.obstacle().unwrap_or_default();
            plan.then(Action::TrySet(Box::new(set)), format!("see whether that is over: {why}"));
        }
        if let Some(set) = created {
            emit_creation(&mut plan, set, &sets, bounds);
        }
        let changed = sets.into_drafts().filter_map(ObjectDraft::finish).map(|draft| {
            let DraftPatch { current: set, patch, reason, event } = draft;
            Step { action: Action::PatchSet { set, patch }, reason, event }
        });
        let (shrinking, growing): (Vec<_>, Vec<_>) = changed.partition(|step| step.action.shrinks_set());
        plan.steps.extend(growing);
        plan.steps.extend(nodes.remove(&NodePatchOrder::BeforeShrinking).into_iter().flatten());
        plan.steps.extend(shrinking);
        for (set, why) in surplus {
            let reason = format!("delete old set {}: {why}", set.name_any());
            plan.then(Action::DeleteSet(set), reason);
        }
        plan.steps.extend(nodes.remove(&NodePatchOrder::Last).into_iter().flatten());
        if let Some(status) = late {
            let event = status::newly_stopped(snapshot, &status).or_else(|| status::overlap_event(snapshot, &status));
            emit_status(&mut plan, snapshot, status, event);
        }
        plan
    }
}
