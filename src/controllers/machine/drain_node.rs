//! The part that all drains of a Node share, and the whole drain of a Node whose Machine stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    Action, MachinePolicy, Snapshot, conditions,
    policy::after,
    status,
    views::{PodsView, TargetNodeView},
};
use mcm_api::{backoff::Backoff, node::Node, reasons::EventReason};
use mcm_rules::{
    drain::{
        self, DrainAnswer, DrainAttempt, DrainMode, DrainPlan, DrainPolicy, DrainRuleInput, PodAttempts, PodFacts,
        PodRef, PodRemovalMethod, policy as drain_policy,
    },
    plan::{Event, Plan, WaitKind},
};

/// When to list pods again after a failed list.
pub(super) const LIST_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// Pauses after a forced delete of a pod that failed.
const DELETE_AGAIN: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(10));

/// The progress of the drain of a Node whose Machine stays. Its steps and waits are in the plan.
pub(super) enum NodeDrainProgress {
    /// No pod is left to drain.
    Drained,
    /// The drain continues.
    Busy {
        /// The disruption budgets that refuse evictions now.
        refused_by: BTreeSet<String>,
    },
    /// The drain continues or is repeated; this is its obstacle.
    Blocked(String),
}

/// The rules of a drain that began at a time, and is forced if a label demands it.
pub(super) fn rules(snapshot: &Snapshot, policy: &MachinePolicy, since: Timestamp, is_demanded: bool) -> DrainPolicy {
    let machine = &snapshot.machine;
    let conditions = match &snapshot.own_node() {
        TargetNodeView::Present(node) if !node.status.conditions.is_empty() => node.status.conditions.clone(),
        _ => status::stored(machine).conditions,
    };
    DrainPolicy {
        evict_for: DrainPolicy::evict_for(policy.max_evict_retries_of(machine)),
        deadline: after(since, policy.drain_timeout_of(machine).as_signed()),
        broken_from: drain_policy::broken_from(&conditions).map(|from| snapshot.by_control(from)),
        is_demanded,
    }
}

/// Plans the drain of a Node whose Machine stays. Nothing is deleted afterwards, so it is repeated until it succeeds.
pub(super) fn plan(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &MachinePolicy,
    rules: &DrainPolicy,
    node: &Node,
) -> NodeDrainProgress {
    let node = node.metadata.name.as_deref().unwrap_or_default();
    let pods = match &snapshot.learned.pods {
        PodsView::NotListed => {
            if rules.is_forced(snapshot.now) && delete_known_pods(plan, snapshot) {
                return NodeDrainProgress::Busy { refused_by: BTreeSet::new() };
            }
            plan.then(Action::ListPods { node: node.to_owned() }, "the drain needs the current pods of the Node");
            return NodeDrainProgress::Busy { refused_by: BTreeSet::new() };
        }
        PodsView::Failed(error) => {
            let until = after(snapshot.now, LIST_AGAIN);
            plan.wait(WaitKind::PodList, format!("the list of the pods of the Node: {error}"), Some(until));
            return NodeDrainProgress::Blocked(error.clone());
        }
        PodsView::Listed(pods) => pods,
    };
    let (mode, memory) = (rules.mode(snapshot.now), &snapshot.memory);
    let unread = memory.volumes.unread(pods);
    if mode == DrainMode::Normal && !unread.is_empty() && snapshot.learned.unread_volumes.is_none() {
        plan.then(
            Action::ReadVolumes(unread),
            "volumes determine the order of evictions, and the drain waits for them",
        );
        return NodeDrainProgress::Busy { refused_by: BTreeSet::new() };
    }
    let (attempts, again) = match mode {
        DrainMode::Normal => (memory.pods.clone(), None),
        DrainMode::Forced => due(&memory.pods, pods, snapshot.now),
    };
    let drain = next(snapshot, policy, rules, node, pods, &attempts);
    let (is_done, error, refused_by) = (drain.is_done(), drain.error(), drain.refused_by.clone());
    append(plan, drain);
    match error {
        None if is_done => NodeDrainProgress::Drained,
        None => NodeDrainProgress::Busy { refused_by },
        Some(_) if is_done && mode == DrainMode::Normal => NodeDrainProgress::Drained,
        Some(error) => {
            if is_done {
                plan.wait(WaitKind::PodTermination, format!("the next attempt to delete pods: {error}"), again);
            }
            NodeDrainProgress::Blocked(error)
        }
    }
}

/// The condition `DrainBlocked` still names budgets that can never be met, although no such budget delays the
/// drain any more. After a restart, nothing is known before the next eviction.
pub(super) fn is_condition_outdated(snapshot: &Snapshot) -> bool {
    let is_known = !snapshot.memory.pods.is_empty();
    is_known
        && snapshot.memory.never_met_budgets().is_empty()
        && conditions::drain_blocked(&status::stored(&snapshot.machine).conditions).is_some()
}

/// A forced drain begins with the pods that were listed last: another list would delay it. Returns whether there are any.
pub(super) fn delete_known_pods(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    let Snapshot { memory, .. } = snapshot;
    let is_deleted =
        |pod: &PodRef| memory.pods.get(&pod.uid).is_some_and(|last| last.method == PodRemovalMethod::Delete);
    let mut has_any = false;
    for pod in memory.listed.iter().filter(|pod| !is_deleted(pod)) {
        plan.then(Action::DeletePod(pod.clone()), "the drain is forced, and the last list had the pod");
        has_any = true;
    }
    has_any
}

/// In a forced drain: the attempts without failed deletes that are due again, and when the next one will be.
fn due(attempts: &PodAttempts, pods: &[PodFacts], now: Timestamp) -> (PodAttempts, Option<Timestamp>) {
    let again = |attempt: &DrainAttempt| {
        let has_failed = attempt.method == PodRemovalMethod::Delete && attempt.answer != DrainAnswer::Accepted;
        has_failed.then(|| after(attempt.at, DELETE_AGAIN.after(attempt.count)))
    };
    let mut left = attempts.clone();
    left.retain(|_, attempt| again(attempt).is_none_or(|at| now < at));
    let of_pods = pods.iter().filter_map(|pod| again(left.get(&pod.pod.uid)?));
    let next = of_pods.min();
    (left, next)
}

/// The next calls and waits of the drain of a Node whose pods were listed.
pub(super) fn next(
    snapshot: &Snapshot,
    policy: &MachinePolicy,
    rules: &DrainPolicy,
    node: &str,
    pods: &[PodFacts],
    attempts: &PodAttempts,
) -> DrainPlan {
    let (held, released) = (BTreeMap::new(), BTreeSet::new());
    let round = DrainRuleInput {
        node,
        mode: rules.mode(snapshot.now),
        evict_for: rules.evict_for,
        forced_from: rules.forced_from().unwrap_or(snapshot.now),
        attempts,
        rounds: &snapshot.memory.rounds,
        volumes: &snapshot.memory.volumes,
        unread: snapshot.learned.unread_volumes.as_deref(),
        timeouts: policy.volumes,
        held: &held,
        allowances: &snapshot.learned.allowances,
        released: &released,
        now: snapshot.now,
    };
    drain::plan(pods, &round)
}

/// Adds the calls and waits of a drain.
pub(super) fn append(plan: &mut Plan<Action>, drain: DrainPlan) {
    for call in drain.calls {
        let (action, reason) = match call.method {
            PodRemovalMethod::Evict => (Action::EvictPod(call.pod), "its Node is drained"),
            PodRemovalMethod::Delete => {
                (Action::DeletePod(call.pod), "its Node is drained, and the eviction period is over")
            }
        };
        match call.report {
            Some(text) => plan.then_recording(action, reason, Event::warning(EventReason::DrainBlocked, text)),
            None => plan.then(action, reason),
        };
    }
    plan.waits.extend(drain.waits);
}
