//! Old, empty sets beyond `spec.revisionHistoryLimit` are deleted, oldest first, and so are sets that were never used.

use std::sync::Arc;

use super::{OwnedSets, SetView};
use mcm_api::machine::MachineSet;

/// A set to delete, and why.
pub(in super::super) type SetDeletion = (Arc<MachineSet>, &'static str);

/// The most unused sets that one plan deletes.
const MOST: usize = 100;

/// The sets to delete: sets beyond the limit, and, unless the deployment is paused, sets that were never used.
pub(in super::super) fn superfluous(sets: &OwnedSets, limit: Option<i32>, is_paused: bool) -> Vec<SetDeletion> {
    let surplus = surplus(sets, limit);
    let is_listed = |set: &Arc<MachineSet>| surplus.iter().any(|listed| Arc::ptr_eq(listed, set));
    let unused = unused(sets).filter(|set| !is_paused && !is_listed(set)).take(MOST);
    let unused: Vec<_> = unused.map(|set| (set, "it never had a machine")).collect();
    let beyond = "it is empty and beyond revisionHistoryLimit";
    surplus.into_iter().map(|set| (set, beyond)).chain(unused).collect()
}

fn surplus(sets: &OwnedSets, limit: Option<i32>) -> Vec<Arc<MachineSet>> {
    let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return Vec::new() };
    let candidates: Vec<_> = sets.old_sets().filter(|set| !set.is_deleting()).collect();
    let count = candidates.len().saturating_sub(limit);
    candidates.into_iter().take(count).filter(|set| is_empty(set)).map(|set| set.draft.current().clone()).collect()
}

/// Old sets that never had replicas, so that no Machine ever had their template: what is left of sets that the API server
/// stored with another template than the template that was sent.
fn unused(sets: &OwnedSets) -> impl Iterator<Item = Arc<MachineSet>> {
    let is_first = |set: &&SetView| set.draft.current().metadata.generation == Some(1);
    let unused = sets.old_sets().filter(is_first).filter(|set| !set.is_deleting() && is_empty(set));
    unused.map(|set| set.draft.current().clone())
}

/// The set has no Machines and no replicas, and its controller has observed that.
fn is_empty(set: &SetView) -> bool {
    let reported = set.draft.current().status.as_ref().map_or(0, |status| status.replicas);
    set.counts.planned() == 0 && set.desired_replicas() == 0 && reported == 0 && set.is_observed()
}
