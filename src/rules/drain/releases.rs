//! Releases refused pods from their pause early when a disruption budget has changed since.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{DrainAnswer, DrainRuleInput, PodFacts};

/// The refused pods, by UID, whose budgets allow an eviction now: of each budget as many as it allows, because the
/// others
/// would only be refused again.
pub(super) fn released(pods: &[&PodFacts], round: &DrainRuleInput<'_>) -> BTreeSet<Arc<str>> {
    let mut left: BTreeMap<&str, i32> = BTreeMap::new();
    let mut released = BTreeSet::new();
    for pod in pods.iter().filter(|pod| pod.terminating_since.is_none() && !round.held.contains_key(&pod.pod.uid)) {
        let Some(DrainAnswer::Refused(refusal)) = round.attempt(pod).map(|attempt| &attempt.answer) else { continue };
        let Some(budget) = refusal.budget.as_deref() else { continue };
        let Some(allowance) = round.allowances.get(budget) else { continue };
        if !refusal.version.as_deref().is_some_and(|seen| is_newer(&allowance.version, seen)) {
            continue;
        }
        let left = left.entry(budget).or_insert(allowance.disruptions);
        if *left > 0 {
            *left -= 1;
            released.insert(Arc::clone(&pod.pod.uid));
        }
    }
    released
}

/// Versions are compared as numbers, as everywhere.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => false,
    }
}
