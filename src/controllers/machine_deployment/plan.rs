use super::{
    Action, DeploymentPolicy, Snapshot,
    bounds::ReplicaBounds,
    lost_replicas,
    rollout::{RolloutPlanner, lint::lint},
    sets::OwnedSets,
    status::{self, DeploymentStatusInput},
    steps::{emit_deployment, emit_status, machines, wait_for_unreadable, with_finalizer},
    validate::{InvalidDeployment, ValidSpec, validate},
};
use crate::object::{
    condition::{self, ConditionRefresh, DesiredCondition},
    draft::ObjectDraft,
    finalizer,
};
use mcm_api::{
    labels,
    machine::{MachineDeploymentStatus, StrategyType},
    reasons::{ConditionReason, ConditionType, EventReason},
};
use mcm_rules::plan::{
    Event, Plan, PlanInput, ReconcileHold, SentPatch, Step, SubjectRef, UndoneWrite, WaitKind, counted,
};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self, &self.policy)
    }

    fn lint(&self, plan: &Plan<Action>) -> Option<String> {
        lint(self, &plan.steps).first().map(ToString::to_string)
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }

    fn is_look(action: &Action) -> bool {
        matches!(action, Action::TrySet(_))
    }

    fn subject(action: &Action) -> Option<SubjectRef> {
        action.subject()
    }

    /// A set or a Node that cannot be written as planned does not hold up the others.
    const STEPS_DEPEND_ON_ORDER: bool = false;

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match action {
            Action::PatchDeployment(patch) | Action::RestoreReplicas(patch) => {
                Some(SentPatch::new(&*self.deployment, patch))
            }
            Action::PatchSet { set, patch } => Some(SentPatch::new(&**set, patch)),
            Action::PatchMachine { machine, patch } => Some(SentPatch::new(&**machine, patch)),
            Action::PatchNode { node, patch, .. } => Some(SentPatch::packed(&**node, patch)),
            _ => None,
        }
    }

    fn show_undone(&self, plan: &mut Plan<Action>, undone: &[UndoneWrite]) {
        if self.hold.is_none() {
            show_undone(self, plan, undone);
        }
    }
}

/// Plans the next steps of a deployment. The loop calls it with fresh snapshots until no steps are left.
pub fn plan(snapshot: &Snapshot, policy: &DeploymentPolicy) -> Plan<Action> {
    if let Some(hold) = &snapshot.hold {
        return leave(snapshot, hold);
    }
    if snapshot.deployment.metadata.deletion_timestamp.is_some() {
        return delete(snapshot);
    }
    if let Some(plan) = lost_replicas::restore(snapshot) {
        return plan;
    }
    match validate(&snapshot.deployment) {
        Err(invalid) => refuse(snapshot, &invalid),
        Ok(spec) if spec.strategy == StrategyType::InPlaceUpdate && !policy.has_target => {
            report_unsupported(snapshot, &spec)
        }
        Ok(spec) => RolloutPlanner::new(snapshot, policy, &spec).plan(),
    }
}

/// Another manager has the deployment, or reconciliation is on hold. A hold is confirmed if a client waits for it.
fn leave(snapshot: &Snapshot, hold: &ReconcileHold) -> Plan<Action> {
    let mut plan = Plan::waiting(WaitKind::Hold, hold.on.as_str(), None);
    if hold.is_confirmed {
        let mut status = snapshot.deployment.status.clone().unwrap_or_default();
        condition::set(&mut status.conditions, ConditionType::Paused, condition::paused(Some(hold)), snapshot.now);
        emit_status(&mut plan, snapshot, status, None);
    }
    plan
}

/// All sets are deleted, then the finalizer is removed. Sets that have to stay are released by the garbage collector first.
fn delete(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    let deployment = &snapshot.deployment;
    let Some(finalizers) = finalizer::without(&deployment.metadata, labels::FINALIZER) else { return plan };
    if finalizer::is_orphaning(&deployment.metadata) {
        plan.wait(
            WaitKind::Finalizers,
            "the garbage collector to remove the deployment from the owners of its sets",
            None,
        );
        return plan;
    }
    let sets = OwnedSets::controlled(snapshot);
    for set in sets.sets.iter().filter(|set| !set.is_deleting()) {
        let reason = format!("delete set {}: its deployment is being deleted", set.name());
        plan.then(Action::DeleteSet(set.draft.current().clone()), reason);
    }
    if !sets.sets.is_empty() {
        let bounds = validate(deployment).map_or(ReplicaBounds::exact(deployment.spec.replicas), |spec| spec.bounds);
        let facts = DeploymentStatusInput { snapshot, sets: &sets, bounds: &bounds, created: None, collisions: 0 };
        emit_status(&mut plan, snapshot, status::counters_of(&facts), None);
        let text = format!("{} with {} to be deleted", counted(sets.sets.len(), "set"), machines(sets.current()));
        plan.wait(WaitKind::MachineDeletion, text, None);
        return plan;
    }
    if !sets.unknown.is_empty() {
        wait_for_unreadable(&mut plan, &sets.unknown);
        return plan;
    }
    let mut draft = ObjectDraft::new(deployment.clone());
    draft.edit("remove the finalizer: the deployment is being deleted and has no sets left", |deployment| {
        deployment.metadata.finalizers = Some(finalizers);
    });
    emit_deployment(&mut plan, draft);
    plan
}

/// The spec is invalid: reports it and does nothing else.
fn refuse(snapshot: &Snapshot, invalid: &InvalidDeployment) -> Plan<Action> {
    let mut plan = Plan::default();
    let message = invalid.to_string();
    let mut status = snapshot.deployment.status.clone().unwrap_or_default();
    status.observed_generation = snapshot.deployment.metadata.generation.unwrap_or_default();
    condition::remove(&mut status.conditions, ConditionType::Paused);
    say_invalid(&mut status, ConditionReason::InvalidSpec, &message, snapshot);
    let event = match invalid {
        InvalidDeployment::SelectsAll => EventReason::SelectingAll,
        InvalidDeployment::Fields(_) => EventReason::InvalidSpec,
    };
    emit_status(&mut plan, snapshot, status, Some(Event::warning(event, message.clone())));
    plan.wait(WaitKind::SpecCorrection, format!("the spec to be corrected: {message}"), None);
    plan
}

/// Nodes cannot be updated in place without their cluster: keep the finalizer and the status, touch nothing.
fn report_unsupported(snapshot: &Snapshot, spec: &ValidSpec) -> Plan<Action> {
    const TEXT: &str = "in-place updates need a target cluster, and this process has none: no set is created or changed; \
                        use the strategy RollingUpdate or Recreate to have machines replaced";
    let mut plan = Plan::default();
    emit_deployment(&mut plan, with_finalizer(&snapshot.deployment));
    let sets = OwnedSets::controlled(snapshot);
    if !sets.unknown.is_empty() {
        wait_for_unreadable(&mut plan, &sets.unknown);
        return plan;
    }
    let facts = DeploymentStatusInput { snapshot, sets: &sets, bounds: &spec.bounds, created: None, collisions: 0 };
    let mut status = status::status_of(&facts);
    let stored = snapshot.deployment.status.as_ref();
    let observed = stored.map_or(0, |status| status.observed_generation);
    let is_said = stored.is_some_and(|stored| {
        condition::find(&stored.conditions, ConditionType::Invalid).is_some_and(|said| said.message == TEXT)
    });
    say_invalid(&mut status, ConditionReason::Unsupported, TEXT, snapshot);
    let is_news = !is_said || observed != status.observed_generation;
    emit_status(&mut plan, snapshot, status, is_news.then(|| Event::warning(EventReason::Waiting, TEXT)));
    plan.wait(WaitKind::Unsupported, format!("another strategy: {TEXT}"), None);
    plan
}

fn say_invalid(status: &mut MachineDeploymentStatus, reason: ConditionReason, message: &str, snapshot: &Snapshot) {
    if let Some(stored) = &snapshot.deployment.status
        && let Some(said) = condition::find(&stored.conditions, ConditionType::Invalid)
        && condition::find(&status.conditions, ConditionType::Invalid).is_none()
    {
        status.conditions.push(said.clone());
    }
    let said = DesiredCondition::is_true(reason, message).refreshed(ConditionRefresh::OnMessage);
    condition::set(&mut status.conditions, ConditionType::Invalid, Some(said), snapshot.now);
}

/// Shows in the condition `InSync` which writes are undone. It waits for the other steps, so that it costs no extra write.
fn show_undone(snapshot: &Snapshot, plan: &mut Plan<Action>, undone: &[UndoneWrite]) {
    let Some((first, others)) = plan.steps.split_first_mut() else {
        let mut status = snapshot.deployment.status.clone().unwrap_or_default();
        if let Some(shown) = condition::show_undone(&mut status.conditions, undone, snapshot.now) {
            let step = Step { action: Action::WriteStatus(Box::new(status)), reason: shown.reason, event: shown.event };
            plan.steps.push(step);
        }
        return;
    };
    if let (Action::WriteStatus(status), []) = (&mut first.action, others)
        && let Some(shown) = condition::show_undone(&mut status.conditions, undone, snapshot.now)
    {
        first.event = first.event.take().or(shown.event);
    }
}
