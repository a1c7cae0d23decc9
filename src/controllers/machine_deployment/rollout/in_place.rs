//! InPlaceUpdate: Nodes are updated by the agents on them, and their Machines move to the new set.
//!
//! The Nodes of old sets are candidates; a few of them at a time are selected, by this controller within maxUnavailable
//! and maxSurge, or by a user (`Manual`). The machine controller drains a selected Node, the agent updates it, and the
//! Machine moves to the new set: its labels and its controller change in one patch. The next plans give both sets the
//! right replicas, tidy the Node up, and take the mark from the Machine.
//!
//! An old set must not replace a Machine that moved, so it carries the label `scale-up-disabled`; the new set must not
//! delete it, so the Machine carries the label `update-result` until the replicas of the set include it.
//!
//! A Node that is unknown counts as selected and not available: it is never updated, and never counted as deleted.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::{
    RolloutPlanner,
    rolling_update::new_replicas,
    updates::{counts_of, is_eligible, is_under_way, is_updated, may_serve_unseen, node_of},
};
use crate::{
    machine_deployment::{
        bounds::ReplicaBounds,
        counts::ReplicaCounts,
        sets::{SetView, i32_count},
        steps::{PlannedReplicas, machines, scale_set},
    },
    object::{in_place, owner},
};
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, MachineSet, StrategyType},
    selector::Selector,
};
use mcm_rules::plan::{Wait, WaitKind};

impl RolloutPlanner<'_> {
    /// Takes the label `scale-up-disabled` from sets that are not, or no longer, old sets of an in-place update, such as
    /// one that the reference left. The replicas of a set are first lowered by the Machines that left it. True if that was
    /// needed.
    pub(super) fn unblock_scale_up(&mut self) -> bool {
        let holds = self.strategy == StrategyType::InPlaceUpdate && !self.snapshot.deployment.spec.paused;
        let mut is_lowered = false;
        for set in self.sets.sets.iter_mut().filter(|set| set.is_held() && !set.is_deleting()) {
            if holds && !set.is_new && set.counts.planned() > 0 {
                continue;
            }
            let (counts, name) = (set.counts, set.name());
            if counts.present() < counts.replicas {
                let why = format!("it has {} and replaces none that moved", machines(counts.present()));
                scale_set(set, &self.annotated, PlannedReplicas::Final(counts.present()), &why);
                is_lowered = true;
            }
            set.draft.edit(format!("set {name} may grow again: it is not an old set of an in-place update"), |set| {
                set.labels_mut().remove(labels::SCALE_UP_DISABLED);
            });
        }
        is_lowered
    }

    /// Removes labels, cordon and taints from Nodes whose Machine has moved; then the mark from the Machine, once its
    /// set counts it.
    pub(super) fn tidy_up(&mut self) {
        for set in self.sets.sets.iter().filter(|set| !set.is_deleting()) {
            let counts = set.counts;
            for machine in set.machines.iter().filter(|machine| !set.is_going(machine)) {
                let Some(node) = node_of(self.snapshot, machine) else { continue };
                if (set.is_new || in_place::was_updated(machine)) && is_updated(machine, node) {
                    self.nodes.finish_update(machine);
                }
                let is_tidy = in_place::result_of(node).is_none() && !in_place::is_selected(node);
                let is_counted = counts.present() <= counts.replicas || self.strategy != StrategyType::InPlaceUpdate;
                if in_place::was_updated(machine) && is_tidy && is_counted {
                    let reason = format!("set {} counts machine {}", set.name(), machine.name_any());
                    self.machines.edit(machine, reason, |machine| {
                        machine.labels_mut().remove(labels::UPDATE_RESULT);
                    });
                }
            }
        }
    }

    pub(super) fn update_in_place(&mut self) {
        self.hold_old_sets();
        if let Some(why) = &self.snapshot.nodes_unknown
            && self.sets.is_rolling()
        {
            let text = format!("the nodes of the old sets to be known: {why}");
            self.also_waits.push(Wait::new(WaitKind::NodesUnknown, text, None));
        }
        self.unreadable =
            self.sets.old_sets().flat_map(|set| set.unreadable.iter().map(|it| it.name.clone())).collect();
        if self.move_updated() {
            return;
        }
        let old: Vec<ReplicaCounts> = self.sets.old_sets().map(|set| counts_of(self.snapshot, set)).collect();
        let Some(before) = self.sets.new_set().map(|set| counts_of(self.snapshot, set)) else {
            let replicas = new_replicas(self.bounds, &ReplicaCounts::default(), &old);
            return self.create(replicas);
        };
        let new = self.resize_new(&before, &old);
        if !self.resize_old(&new, &old) && !self.is_manual {
            self.select(&before, &new, &old);
        } else if self.is_manual {
            self.wait_for_user();
        }
    }

    /// Old sets do not grow, and their Nodes are candidates.
    fn hold_old_sets(&mut self) {
        let is_old = |set: &&mut SetView| !set.is_new && !set.is_deleting() && set.counts.planned() > 0;
        for set in self.sets.sets.iter_mut().filter(is_old) {
            self.nodes.mark_candidates(set);
            if !set.is_held() {
                set.draft.edit("its machines move to the new set, and it replaces none of them", |set| {
                    set.labels_mut().insert(labels::SCALE_UP_DISABLED.to_owned(), labels::SET.to_owned());
                });
            }
        }
    }

    /// Moves the Machines of old sets whose update was successful. True if there are any: the sets are resized in the
    /// next plan.
    fn move_updated(&mut self) -> bool {
        let Some(new) = self.sets.new_set().filter(|set| !set.is_deleting()) else { return false };
        let to = Arc::clone(new.draft.current());
        let (Some(reference), Ok(selector)) =
            (owner::reference_to(to.as_ref()), Selector::parse(to.spec.selector.as_ref()))
        else {
            return false;
        };
        let mut is_moving = false;
        // A set that is not held yet would replace the Machine, and one that is to delete Machines may choose it.
        let is_at_rest = |set: &&SetView| {
            let counts = set.counts;
            set.is_held() && !set.is_deleting() && counts.present() <= counts.replicas
        };
        for set in self.sets.old_sets().filter(is_at_rest) {
            let from = Arc::clone(set.draft.current());
            for machine in
                set.machines.iter().filter(|machine| !set.is_going(machine) && !in_place::was_updated(machine))
            {
                let desired = labels_of_moved(machine, &from, &to);
                let is_ready = node_of(self.snapshot, machine).is_some_and(|node| is_updated(machine, node));
                if !is_ready || !selector.matches(Some(&desired)) {
                    continue;
                }
                let reason = format!("its Node was updated in place: move it to new set {}", to.name_any());
                let owners = owner::moved(&machine.metadata, &reference);
                self.machines.edit(machine, reason, |machine| {
                    machine.metadata.labels = Some(desired);
                    machine.metadata.owner_references = Some(owners);
                });
                is_moving = true;
            }
        }
        is_moving
    }

    /// Resizes the new set; returns its counts afterwards.
    fn resize_new(&mut self, new: &ReplicaCounts, old: &[ReplicaCounts]) -> ReplicaCounts {
        let bounds = self.bounds;
        let target = new_replicas(bounds, new, old);
        let planned = new.planned() + old.iter().map(ReplicaCounts::planned).sum::<i32>();
        let annotated = self.annotated;
        self.release_moved(|set| set.is_new && target < new.present() && has_at_least(set, target));
        if let Some(set) = self.sets.new_set_mut() {
            let why = if target < new.replicas {
                format!("spec.replicas is {}", bounds.desired)
            } else if target == new.replicas {
                "machines whose nodes were updated in place moved to it".to_owned()
            } else {
                format!("{planned} planned < {} replicas + {} maxSurge", bounds.desired, bounds.max_surge)
            };
            scale_set(set, &annotated, PlannedReplicas::Final(target), &why);
        }
        ReplicaCounts { replicas: target, ..*new }
    }

    /// Removes from old sets the replicas of Machines that left, and those no longer needed. True if Machines will be
    /// deleted.
    fn resize_old(&mut self, new: &ReplicaCounts, old: &[ReplicaCounts]) -> bool {
        let (bounds, snapshot) = (self.bounds, self.snapshot);
        let mut targets = old_replicas(bounds, new, old);
        for ((set, count), target) in self.sets.old_sets().zip(old).zip(&mut targets) {
            if may_serve_unseen(snapshot, set) {
                *target = count.replicas;
            }
        }
        let is_shrinking = old.iter().zip(&targets).any(|(count, target)| *target < count.replicas);
        let shrinking: Vec<String> = self
            .sets
            .old_sets()
            .zip(old.iter().zip(&targets))
            .filter(|(set, (count, target))| **target < count.present() && has_at_least(set, **target))
            .map(|(set, _)| set.name())
            .collect();
        self.release_moved(|set| shrinking.contains(&set.name()));
        let annotated = self.annotated;
        for ((set, count), target) in self.sets.old_sets_mut().zip(old).zip(targets) {
            let why = if target < count.replicas && new.replicas >= bounds.desired {
                format!("the new set has all {} replicas", bounds.desired)
            } else if target < count.replicas {
                format!("more machines than {} replicas + {} maxSurge", bounds.desired, bounds.max_surge)
            } else {
                format!("{} left; it replaces none", machines(count.present()))
            };
            scale_set(set, &annotated, PlannedReplicas::Final(target), &why);
        }
        is_shrinking
    }

    /// A set that has to delete Machines may also choose Machines that moved to it.
    fn release_moved(&mut self, is_shrinking: impl Fn(&SetView) -> bool) {
        for set in self.sets.sets.iter().filter(|set| is_shrinking(set)) {
            for machine in set.machines.iter().filter(|machine| in_place::was_updated(machine)) {
                let reason = format!("set {} has more machines than it is to have", set.name());
                self.machines.edit(machine, reason, |machine| {
                    machine.labels_mut().remove(labels::UPDATE_RESULT);
                });
            }
        }
    }

    /// Selects Nodes of old sets as far as the bounds allow, the oldest set first. Machines that the new set keeps only
    /// with its new replicas do not count yet: it may see these replicas later.
    fn select(&mut self, before: &ReplicaCounts, new: &ReplicaCounts, old: &[ReplicaCounts]) {
        let (bounds, snapshot) = (self.bounds, self.snapshot);
        let of_old = || self.sets.old_sets().flat_map(|set| set.machines.iter().map(move |machine| (set, machine)));
        let staying = || of_old().filter(|(set, machine)| !set.is_going(machine));
        let under_way: Vec<String> =
            staying().filter(|(_, machine)| is_under_way(snapshot, machine)).map(|(_, it)| it.name_any()).collect();
        let candidates: Vec<Arc<Machine>> = staying()
            .filter(|(_, machine)| node_of(snapshot, machine).is_some_and(is_eligible))
            .map(|(_, machine)| Arc::clone(machine))
            .collect();
        let mut needed = bounds.desired - new.replicas - i32_count(under_way.iter());
        let of_new = before.available_now().min(new.available_now());
        let available = of_new + old.iter().map(ReplicaCounts::available_now).sum::<i32>();
        let mut spare = available - bounds.min_available();
        let why = format!(
            "update it in place: {available} available > {} replicas - {} maxUnavailable",
            bounds.desired, bounds.max_unavailable
        );
        let (serving, idle): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|machine| machine.is_available());
        let mut left = 0;
        for machine in serving {
            if needed > 0 && spare > 0 {
                self.nodes.select(&machine, &why);
                (needed, spare) = (needed - 1, spare - 1);
            } else {
                left += 1;
            }
        }
        // A preserved Machine serves no workload, and it is not replaced otherwise.
        for machine in idle.iter().filter(|machine| machine.preserved_until(snapshot.now).is_some()) {
            if needed > 0 && machine.phase() == MachinePhase::Failed {
                self.nodes.select(machine, "update it in place: it is preserved and not available");
                needed -= 1;
            }
        }
        self.wait_for_updates(&under_way);
        if left > 0 && needed > 0 {
            let text = format!(
                "machines to become available before more nodes are selected: {available} available <= {} replicas - {} \
                 maxUnavailable",
                bounds.desired, bounds.max_unavailable
            );
            self.also_waits.push(Wait::new(WaitKind::MachineAvailability, text, None));
        }
    }

    fn wait_for_user(&mut self) {
        let staying = || self.sets.old_sets().flat_map(|set| set.machines.iter().filter(|it| !set.is_going(it)));
        let names = |machines: Vec<&Arc<Machine>>| machines.iter().map(|it| it.name_any()).collect::<Vec<_>>();
        let under_way = names(staying().filter(|machine| is_under_way(self.snapshot, machine)).collect());
        let is_idle = |machine: &&Arc<Machine>| node_of(self.snapshot, machine).is_some_and(is_eligible);
        let idle = names(staying().filter(is_idle).collect());
        self.wait_for_updates(&under_way);
        if !idle.is_empty() {
            let text = format!(
                "a user to label the nodes of machines {} with {}={}",
                idle.join(", "),
                labels::SELECTED_FOR_UPDATE,
                labels::SET
            );
            self.also_waits.push(Wait::new(WaitKind::InPlaceUpdate, text, None));
        }
    }

    fn wait_for_updates(&mut self, names: &[String]) {
        if !names.is_empty() {
            let text = format!("the nodes of machines {} to be updated in place", names.join(", "));
            self.also_waits.push(Wait::new(WaitKind::InPlaceUpdate, text, None));
        }
    }
}

/// The replicas of the old sets, given oldest first: those of Machines that will move. The rest is removed: all once
/// the new set is complete, before that the excess over maxSurge because `spec.replicas` was lowered. Machines that are
/// not available are deleted first, then available ones beyond the minimum.
fn old_replicas(bounds: &ReplicaBounds, new: &ReplicaCounts, old: &[ReplicaCounts]) -> Vec<i32> {
    let mut targets: Vec<i32> = old.iter().map(|count| count.replicas).collect();
    let total: i32 = targets.iter().sum();
    let most = if new.replicas >= bounds.desired { 0 } else { bounds.max_replicas() - new.asked() };
    let mut surplus = (total - most.max(0)).max(0);
    for (target, count) in targets.iter_mut().zip(old) {
        let fewest = count.fewest_keeping(count.available_now());
        let step = (*target - fewest).clamp(0, surplus);
        *target -= step;
        surplus -= step;
    }
    let available = new.available_now() + old.iter().map(ReplicaCounts::available_now).sum::<i32>();
    let mut spare = (available - bounds.min_available()).max(0);
    for (target, count) in targets.iter_mut().zip(old) {
        let now = count.available_after(*target);
        let fewest = count.fewest_keeping(now - spare).max(*target - surplus).min(*target);
        surplus -= *target - fewest;
        *target = fewest;
        spare -= now - count.available_after(fewest);
    }
    targets
}

/// Before that, the set would delete more than it should.
fn has_at_least(set: &SetView, replicas: i32) -> bool {
    set.draft.current().spec.replicas >= replicas
}

/// The labels of a Machine that moves: those of the old set's template and selector become those of the new one's.
fn labels_of_moved(machine: &Machine, from: &MachineSet, to: &MachineSet) -> BTreeMap<String, String> {
    let of_selector = |selector: &Option<LabelSelector>| {
        selector.as_ref().and_then(|selector| selector.match_labels.clone()).unwrap_or_default()
    };
    let mut all = machine.labels().clone();
    let former = of_selector(&from.spec.selector);
    all.retain(|key, _| !former.contains_key(key) && !from.spec.template.metadata.labels.contains_key(key));
    all.extend(to.spec.template.metadata.labels.clone());
    all.extend(of_selector(&to.spec.selector));
    all.insert(labels::UPDATE_RESULT.to_owned(), labels::SUCCESSFUL.to_owned());
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::counts::examples::{booting, healthy};
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::all_move((3, 0, 1), healthy(0), vec![healthy(3)], vec![3])]
    #[case::beside_the_surge((3, 1, 0), healthy(1), vec![healthy(3)], vec![3])]
    #[case::the_new_set_is_complete((3, 1, 0), healthy(3), vec![healthy(1)], vec![0])]
    #[case::but_does_not_serve_yet((3, 1, 0), booting(3), vec![healthy(1)], vec![1])]
    #[case::fewer_are_desired((2, 0, 1), healthy(1), vec![healthy(3)], vec![1])]
    #[case::the_unavailable_go_first((3, 0, 1), healthy(1), vec![healthy(2), booting(1)], vec![2, 0])]
    #[case::the_oldest_go_next((2, 0, 2), healthy(1), vec![healthy(1), healthy(2)], vec![0, 1])]
    #[case::no_fewer_than_must_serve((2, 0, 0), booting(2), vec![healthy(3)], vec![2])]
    fn old_sets_keep_the_machines_that_move(
        #[case] (desired, max_surge, max_unavailable): (i32, i32, i32),
        #[case] new: ReplicaCounts,
        #[case] old: Vec<ReplicaCounts>,
        #[case] expected: Vec<i32>,
    ) {
        let bounds = ReplicaBounds { desired, max_surge, max_unavailable };
        assert_eq!(old_replicas(&bounds, &new, &old), expected);
    }
}
