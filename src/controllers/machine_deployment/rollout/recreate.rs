//! Recreate: all old Machines are deleted before the first new one is created.

use super::{RolloutPlanner, rolling_update::new_replicas, scale};
use crate::machine_deployment::steps::{PlannedReplicas, scale_set};

impl RolloutPlanner<'_> {
    pub(super) fn recreate(&mut self) {
        let bounds = self.bounds;
        // A set never deletes a Machine that it cannot decode, so the new set could never be created.
        let unreadable: Vec<String> =
            self.sets.old_sets().flat_map(|set| set.unreadable.iter().map(|it| it.name.clone())).collect();
        if !unreadable.is_empty() {
            self.unreadable = unreadable;
            return;
        }
        // Without a new set to follow, no machine is deleted.
        if self.sets.new_set().is_none() && self.creation_paused().is_some() {
            return self.create(bounds.desired);
        }
        for set in self.sets.old_sets_mut() {
            scale_set(set, bounds, PlannedReplicas::Final(0), "strategy Recreate deletes all old machines first");
        }
        // A set that has not observed its new replicas may still be creating Machines.
        if self.sets.old_sets().any(|set| !set.is_gone()) {
            return;
        }
        let Some(new) = self.sets.new_set().map(|set| set.counts) else { return self.create(bounds.desired) };
        // Only a change of spec.replicas does not wait for Machines that are being deleted.
        let is_scaled = scale::is_pending(bounds, &self.scalable(), false);
        let replicas = if is_scaled { bounds.desired } else { new_replicas(bounds, &new, &[]) };
        if let Some(set) = self.sets.new_set_mut() {
            let why = format!("spec.replicas is {}", bounds.desired);
            scale_set(set, bounds, PlannedReplicas::Final(replicas), &why);
        }
    }
}
