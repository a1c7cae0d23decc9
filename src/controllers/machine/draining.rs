//! What every drain of a Node needs, whether its Machine is deleted or stays.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Policy, Snapshot};
use crate::{
    api::reasons::EventReason,
    drain::{self, DrainPlan, DrainPolicy, Method, PodFacts, Round},
    plan::{Event, Plan},
};

/// The next calls and waits of the drain of a Node whose pods were listed.
pub(super) fn next(
    snapshot: &Snapshot,
    policy: &Policy,
    drain: &DrainPolicy,
    node: &str,
    pods: &[PodFacts],
) -> DrainPlan {
    let (held, released) = (BTreeMap::new(), BTreeSet::new());
    let round = Round {
        node,
        mode: drain.mode(snapshot.now),
        evict_for: drain.evict_for,
        forced_from: drain.forced_from().unwrap_or(snapshot.now),
        attempts: &snapshot.memory.pods,
        rounds: &snapshot.memory.rounds,
        volumes: &snapshot.memory.volumes,
        unread: snapshot.learned.unread_volumes.as_deref(),
        patience: policy.volumes,
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
            Method::Evict => (Action::EvictPod(call.pod), "its Node is drained"),
            Method::Delete => (Action::DeletePod(call.pod), "its Node is drained, and the eviction period is over"),
        };
        match call.report {
            Some(text) => plan.then_recording(action, reason, Event::warning(EventReason::DrainBlocked, text)),
            None => plan.then(action, reason),
        };
    }
    plan.waits.extend(drain.waits);
}
