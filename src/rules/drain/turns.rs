//! The order of evictions of pods with volumes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{DrainAnswer, DrainRuleInput, PodFacts, PodRef, after, rules::eviction_backoff, volumes::TrackedVolume};

/// Volumes that move at the same time, per Node. The `external-attacher` of a CSI driver works on 10 attachments at a
/// time for the whole cluster, by default: one drain uses half of them, and two drains use all. More moves would only
/// wait there.
pub(super) const MOST_MOVING: usize = 5;

/// A pod that is evicted earlier or whose volumes are being moved.
struct PrecedingPod<'a> {
    pod: &'a PodRef,
    priority: i32,
    volumes: BTreeSet<TrackedVolume>,
    /// It was evicted, or is evicted in this round.
    is_moving: bool,
}

/// Pods that must not be evicted yet, by UID, with the reason.
///
/// - Pods with a lower priority wait until those with a higher one are terminated and their volumes moved. A pod
///   whose eviction is refused delays no other pod.
/// - Pods that share a volume are evicted one after the other.
/// - At most [`MOST_MOVING`] volumes, or those of one pod, are moved at the same time.
pub(super) fn held(pods: &[&PodFacts], round: &DrainRuleInput<'_>) -> BTreeMap<Arc<str>, String> {
    let moving = round.volumes.moves().filter(|it| it.is_under_way(round.timeouts, round.now));
    let mut ahead: Vec<PrecedingPod<'_>> = moving
        .map(|it| PrecedingPod { pod: &it.pod, priority: it.priority, volumes: it.volumes.clone(), is_moving: true })
        .collect();
    let mut candidates: Vec<(&PodFacts, BTreeSet<TrackedVolume>)> = pods
        .iter()
        .filter(|pod| {
            pod.is_drained() && !pod.is_finished && pod.terminating_since.is_none() && round.rounds.count(pod)
        })
        .filter(|pod| round.attempt(pod).is_none_or(|attempt| attempt.answer != DrainAnswer::Accepted))
        .map(|pod| (*pod, round.volumes.trackable_volumes(pod)))
        .filter(|(_, volumes)| !volumes.is_empty())
        .collect();
    candidates.sort_by(|(a, _), (b, _)| (Reverse(a.priority), &a.pod).cmp(&(Reverse(b.priority), &b.pod)));
    let mut held = BTreeMap::new();
    for (pod, volumes) in candidates {
        let reason = obstacle(pod, &volumes, &ahead);
        // Its eviction was refused: it will be retried, and delays no other pod until then.
        let is_refused = round.attempt(pod).is_some();
        let is_resting =
            round.attempt(pod).is_some_and(|attempt| round.now < after(attempt.at, eviction_backoff(attempt.count)));
        if !is_refused || (reason.is_none() && !is_resting) {
            let is_moving = reason.is_none();
            // A refused pod that is called again may be accepted now, but its priority does not count.
            let priority = if is_refused { i32::MIN } else { pod.priority };
            ahead.push(PrecedingPod { pod: &pod.pod, priority, volumes, is_moving });
        }
        if let Some(reason) = reason {
            held.insert(Arc::clone(&pod.pod.uid), reason);
        }
    }
    held
}

fn obstacle(pod: &PodFacts, volumes: &BTreeSet<TrackedVolume>, ahead: &[PrecedingPod<'_>]) -> Option<String> {
    if let Some(other) = ahead.iter().find(|other| other.priority > pod.priority) {
        return Some(format!("pod {} has a higher priority", other.pod));
    }
    if let Some((other, volume)) =
        ahead.iter().find_map(|other| Some((other, other.volumes.intersection(volumes).next()?)))
    {
        return Some(format!("pod {} shares volume {} with it", other.pod, volume.name));
    }
    let moving: usize = ahead.iter().filter(|other| other.is_moving).map(|other| other.volumes.len()).sum();
    (moving > 0 && moving + volumes.len() > MOST_MOVING)
        .then(|| format!("{moving} volumes are on the move, and at most {MOST_MOVING} may be"))
}
