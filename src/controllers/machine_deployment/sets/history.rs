//! Old, empty sets beyond `spec.revisionHistoryLimit` are deleted, oldest first.

use std::sync::Arc;

use super::{OwnedSets, SetView};
use crate::api::machine::MachineSet;

/// The sets to delete.
pub(in super::super) fn surplus(sets: &OwnedSets, limit: Option<i32>) -> Vec<Arc<MachineSet>> {
    let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return Vec::new() };
    let candidates: Vec<_> = sets.old_sets().filter(|set| !set.is_deleting()).collect();
    let count = candidates.len().saturating_sub(limit);
    candidates.into_iter().take(count).filter(|set| is_empty(set)).map(|set| set.draft.current().clone()).collect()
}

/// The set has no Machines and no replicas, and its controller has observed that.
fn is_empty(set: &SetView) -> bool {
    let reported = set.draft.current().status.as_ref().map_or(0, |status| status.replicas);
    set.counts.planned() == 0 && set.desired_replicas() == 0 && reported == 0 && set.is_observed()
}
