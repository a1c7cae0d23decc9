use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{Action, CountedSet, OvershootPolicy, Snapshot};
use crate::{
    machine_deployment::IntOrPercent,
    object::condition::{self, DesiredCondition, StoredCondition},
};
use mcm_api::{
    labels::{self, FREEZE, TRUE, UNFREEZE},
    machine::{MachineDeployment, MachineSet},
    reasons::{ConditionReason, ConditionType, EventReason},
};
use mcm_rules::{
    plan::{Event, Plan, PlanInput, SentPatch, WaitKind},
    safety::overshoot::{FreezeDecision, OvershootLimits},
};

/// The shortest pause between two checks.
const SHORTEST_PERIOD: SignedDuration = SignedDuration::from_secs(1);
const STATE_SYNC: &str =
    "MachineDeployment State was inconsistent, hence safety controller has fixed this and frozen it";

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self, &self.policy)
    }

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match action {
            Action::WriteSet { set, patch: Some(patch), .. } => Some(SentPatch::new(&**set, patch)),
            Action::WriteDeployment { patch: Some(patch), .. } => {
                self.deployment.as_deref().map(|deployment| SentPatch::new(deployment, patch))
            }
            _ => None,
        }
    }

    fn subject(action: &Action) -> Option<mcm_rules::plan::SubjectRef> {
        action.subject()
    }
}

/// Plans which sets are frozen and unfrozen.
///
/// The loop calls it with fresh snapshots until no steps are left. The deployment is written after its sets: its
/// annotation `unfreeze` is removed only when all of them are unfrozen.
pub fn plan(snapshot: &Snapshot, policy: &OvershootPolicy) -> Plan<Action> {
    let mut plan = Plan::default();
    let again = Some(next_check(snapshot.now, policy));
    if let Some(problem) = &snapshot.uncertain {
        plan.wait(WaitKind::CacheUntrusted, format!("a reliable number of machines: {problem}"), again);
        return plan;
    }
    let deployment = snapshot.deployment.as_deref();
    if deployment.is_some_and(|deployment| deployment.metadata.deletion_timestamp.is_some()) {
        return plan;
    }
    let sets: Vec<JudgedSet<'_>> = snapshot
        .sets
        .iter()
        .filter(|counted| counted.set.metadata.deletion_timestamp.is_none())
        .map(|counted| judge(snapshot, policy, counted))
        .collect();
    for set in &sets {
        plan_set(&mut plan, snapshot, set);
    }
    if let Some(deployment) = deployment {
        plan_deployment(&mut plan, snapshot, deployment, &sets);
    }
    let frozen: Vec<&JudgedSet<'_>> = sets.iter().filter(|set| set.is_frozen_after()).collect();
    if let Some(set) = frozen.first()
        && let Some(limits) = set.limits
    {
        let text = format!("the machines of set {} to become at most {}: it has {}", set.name, limits.lower, set.count);
        plan.wait(WaitKind::MachineCount, text, again);
    } else {
        plan.wait(WaitKind::MachineCount, "the next check of the number of machines", again);
    }
    plan
}

/// When the numbers are checked again even if nothing changes.
fn next_check(now: Timestamp, policy: &OvershootPolicy) -> Timestamp {
    let period = SignedDuration::try_from(policy.period).unwrap_or(SignedDuration::MAX);
    now.checked_add(period.max(SHORTEST_PERIOD)).unwrap_or(Timestamp::MAX)
}

/// A set with the decision about it.
struct JudgedSet<'a> {
    set: &'a Arc<MachineSet>,
    name: String,
    count: usize,
    /// `None` if the spec of its deployment is invalid.
    limits: Option<OvershootLimits>,
    fate: SetFreezeChange,
    marks: FreezeMarks,
}

/// The decision about a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetFreezeChange {
    Frozen,
    Unfrozen { by_user: bool },
    Unchanged,
}

/// How an object shows that it is frozen.
#[derive(Clone, Copy)]
struct FreezeMarks {
    label: bool,
    condition: bool,
}

impl FreezeMarks {
    const fn any(self) -> bool {
        self.label || self.condition
    }
}

impl JudgedSet<'_> {
    fn is_frozen_after(&self) -> bool {
        match self.fate {
            SetFreezeChange::Frozen => true,
            SetFreezeChange::Unfrozen { .. } => false,
            SetFreezeChange::Unchanged => self.marks.any(),
        }
    }

    /// Why it is frozen, if it has too many Machines; other programs read this text.
    fn overshoot(&self) -> Option<String> {
        let limits = self.limits.filter(|_| self.fate == SetFreezeChange::Frozen)?;
        Some(format!(
            "The number of machines backing MachineSet: {} is {} >= {} which is the Max-ScaleUp-Limit",
            self.name, self.count, limits.upper
        ))
    }
}

fn judge<'a>(snapshot: &'a Snapshot, policy: &OvershootPolicy, counted: &'a CountedSet) -> JudgedSet<'a> {
    let CountedSet { set, machines } = counted;
    let limits = limits_of_set(snapshot.deployment.as_deref(), set, policy);
    let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let marks = FreezeMarks { label: is_labelled(set.as_ref()), condition: has_condition(conditions) };
    let is_asked = |annotations: &std::collections::BTreeMap<String, String>| annotations.contains_key(UNFREEZE);
    let by_user = is_asked(set.annotations())
        || snapshot.deployment.as_ref().is_some_and(|deployment| is_asked(deployment.annotations()));
    let fate = match limits.map(|limits| limits.judge(*machines)) {
        _ if by_user => SetFreezeChange::Unfrozen { by_user },
        Some(FreezeDecision::Freeze) if marks.label || !is_spared(snapshot, policy, set) => SetFreezeChange::Frozen,
        Some(FreezeDecision::Unfreeze) if marks.any() => SetFreezeChange::Unfrozen { by_user },
        _ => SetFreezeChange::Unchanged,
    };
    JudgedSet { set, name: set.name_any(), count: *machines, limits, fate, marks }
}

/// The limits of a set; `None` if its spec, or that of its deployment, is invalid.
pub fn limits_of_set(
    deployment: Option<&MachineDeployment>,
    set: &MachineSet,
    policy: &OvershootPolicy,
) -> Option<OvershootLimits> {
    match deployment {
        Some(deployment) => limits_of(deployment, policy),
        None => (set.spec.replicas >= 0).then(|| OvershootLimits::stand_alone(set.spec.replicas, policy.margins)),
    }
}

/// `None` if the spec is invalid, so that the limit is unknown.
fn limits_of(deployment: &MachineDeployment, policy: &OvershootPolicy) -> Option<OvershootLimits> {
    let (spec, strategy) = (&deployment.spec, &deployment.spec.strategy);
    let of_rolling = strategy.rolling_update.as_ref().map(|amounts| amounts.max_surge.as_ref());
    let of_in_place = strategy.in_place_update.as_ref().map(|amounts| amounts.max_surge.as_ref());
    let surge = match of_rolling.or(of_in_place).flatten() {
        Some(surge) => IntOrPercent::parse(surge)?.rounded_up(spec.replicas),
        None => 0,
    };
    (spec.replicas >= 0).then(|| OvershootLimits::of_deployment(spec.replicas, surge.max(0), policy.margins))
}

/// A user unfroze the set less than a period ago.
fn is_spared(snapshot: &Snapshot, policy: &OvershootPolicy, set: &MachineSet) -> bool {
    let unfrozen = set.metadata.uid.as_ref().and_then(|uid| snapshot.memory.unfrozen.get(uid));
    unfrozen.is_some_and(|at| snapshot.now < next_check(*at, policy))
}

fn is_labelled(object: &impl ResourceExt) -> bool {
    labels::is_true(object, FREEZE)
}

fn has_condition<C: StoredCondition>(conditions: &[C]) -> bool {
    condition::find(conditions, ConditionType::Frozen).is_some()
}

fn plan_set(plan: &mut Plan<Action>, snapshot: &Snapshot, judged: &JudgedSet<'_>) {
    let JudgedSet { set, name, count, limits, marks, .. } = judged;
    let mut status = set.status.clone().unwrap_or_default();
    let numbers = |relation: &str, limit: Option<i64>| match limit {
        Some(limit) => format!("{count} machines {relation} {limit}"),
        None => format!("{count} machines"),
    };
    let (patch, reason, event) = match judged.fate {
        SetFreezeChange::Unchanged => return,
        SetFreezeChange::Frozen => {
            let Some(text) = judged.overshoot() else { return };
            let said = DesiredCondition::is_true(ConditionReason::OverShootingReplicaCount, text.clone());
            condition::set(&mut status.conditions, ConditionType::Frozen, Some(said), snapshot.now);
            let upper = limits.map(|limits| limits.upper);
            let event = (!marks.label).then(|| Event::normal(EventReason::FrozeMachineSet, text));
            (frozen_patch(marks.label), format!("freeze set {name}: {}", numbers(">=", upper)), event)
        }
        SetFreezeChange::Unfrozen { by_user } => {
            condition::remove(&mut status.conditions, ConditionType::Frozen);
            let why = match limits {
                _ if by_user => format!("the annotation {UNFREEZE} asks for it"),
                limits => numbers("<=", limits.map(|limits| limits.lower)),
            };
            let event = marks
                .any()
                .then(|| Event::normal(EventReason::UnfrozeMachineSet, format!("Unfroze machine set {name}: {why}")));
            (unfrozen_patch(set.as_ref()), format!("unfreeze set {name}: {why}"), event)
        }
    };
    let status = (status != set.status.clone().unwrap_or_default()).then(|| Box::new(status));
    if status.is_none() && patch.is_none() {
        return;
    }
    if judged.fate == (SetFreezeChange::Unfrozen { by_user: true })
        && let Some(uid) = set.uid()
    {
        plan.then(Action::RememberUnfreeze(uid), format!("set {name} is not frozen again for one period"));
    }
    let action = Action::WriteSet { set: Arc::clone(set), status, patch };
    match event {
        Some(event) => plan.then_recording(action, reason, event),
        None => plan.then(action, reason),
    };
}

/// The deployment is marked while one of its sets is.
fn plan_deployment(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    deployment: &MachineDeployment,
    sets: &[JudgedSet<'_>],
) {
    let before = deployment.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let marks = FreezeMarks { label: is_labelled(deployment), condition: has_condition(&before.conditions) };
    let frozen = sets.iter().find(|set| set.is_frozen_after());
    let (patch, reason) = match frozen {
        Some(set) => {
            if !marks.condition {
                let said = match sets.iter().find_map(JudgedSet::overshoot) {
                    Some(text) => DesiredCondition::is_true(ConditionReason::OverShootingReplicaCount, text),
                    None => DesiredCondition::is_true(ConditionReason::MachineDeploymentStateSync, STATE_SYNC),
                };
                condition::set(&mut status.conditions, ConditionType::Frozen, Some(said), snapshot.now);
            }
            (frozen_patch(marks.label), format!("mark the deployment as frozen: its set {} is", set.name))
        }
        // One of them may be frozen. Only the mark is at stake.
        None if !snapshot.unreadable_sets.is_empty() => return,
        None => {
            condition::remove(&mut status.conditions, ConditionType::Frozen);
            (unfrozen_patch(deployment), "no set of the deployment is frozen".to_owned())
        }
    };
    let status = (status != before).then(|| Box::new(status));
    if status.is_some() || patch.is_some() {
        plan.then(Action::WriteDeployment { status, patch }, reason);
    }
}

fn frozen_patch(is_labelled: bool) -> Option<Value> {
    (!is_labelled).then(|| json!({ "metadata": { "labels": { FREEZE: TRUE } } }))
}

/// Removes label and annotation. A label with another value means nothing and stays.
fn unfrozen_patch(object: &impl ResourceExt) -> Option<Value> {
    let mut metadata = Map::new();
    if is_labelled(object) {
        metadata.insert("labels".to_owned(), json!({ FREEZE: null }));
    }
    if object.annotations().contains_key(UNFREEZE) {
        metadata.insert("annotations".to_owned(), json!({ UNFREEZE: null }));
    }
    (!metadata.is_empty()).then(|| json!({ "metadata": metadata }))
}
