//! Nodes during a rollout: new pods avoid Nodes of old sets, and the autoscaler leaves all Nodes of the deployment
//! alone.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;

use super::{Action, DeploymentPolicy, NodePatchOrder, Snapshot, sets::SetView};
use crate::object::{
    draft::{DraftPatch, DraftsByName},
    in_place,
};
use mcm_api::{labels, machine::Machine, node::Node, patch::Packed};
use mcm_rules::plan::{Plan, Step, WaitKind};

const EFFECT: &str = "PreferNoSchedule";

/// Nodes that one plan taints and annotates. The next plan continues with the rest, so that no decision about sets waits for
/// thousands of patches.
const BATCH: usize = 1000;

/// The Nodes of a deployment, with their changes.
pub(super) struct DeploymentNodes<'a> {
    snapshot: &'a Snapshot,
    has_target: bool,
    annotate: bool,
    drafts: DraftsByName<Node>,
    /// The places of their patches in the plan; of the others, the last one.
    orders: BTreeMap<String, NodePatchOrder>,
    /// Nodes whose last patch failed, and when the next attempt is due.
    held: BTreeMap<String, Timestamp>,
}

impl<'a> DeploymentNodes<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, policy: &DeploymentPolicy) -> Self {
        Self {
            snapshot,
            has_target: policy.has_target,
            annotate: policy.annotate_nodes,
            drafts: DraftsByName::default(),
            orders: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// The patches of changed Nodes, by their place in the plan. A Node whose last patch failed waits for its next attempt.
    pub(super) fn finish(mut self, plan: &mut Plan<Action>) -> BTreeMap<NodePatchOrder, Vec<Step<Action>>> {
        let mut steps: BTreeMap<NodePatchOrder, Vec<Step<Action>>> = BTreeMap::new();
        for DraftPatch { current: node, patch, reason, .. } in self.drafts.finish() {
            let name = node.name_any();
            if let Some(at) = retry_at(self.snapshot, &name) {
                self.held.insert(name, at);
                continue;
            }
            let order = self.orders.get(&name).copied().unwrap_or(NodePatchOrder::Last);
            let action = Action::PatchNode { node, patch: Packed::from(&patch), order };
            steps.entry(order).or_default().push(Step { action, reason, event: None });
        }
        if let Some(first) = self.held.values().min() {
            let names: Vec<&str> = self.held.keys().map(String::as_str).collect();
            let text = format!("the next attempt to patch nodes: {}", names.join(", "));
            plan.wait(WaitKind::NodeWrite, text, Some(*first));
        }
        steps
    }

    /// Taints the Nodes of an old set, also Nodes that joined after the rollout began, and annotates the set.
    pub(super) fn taint(&mut self, set: &mut SetView) {
        if !self.has_target || set.counts.planned() == 0 {
            return;
        }
        let reason = format!("new pods should avoid the nodes of old set {}", set.name());
        for machine in &set.machines {
            if self.desired(machine).is_none_or(is_tainted) {
                continue;
            }
            self.mark(machine, NodePatchOrder::BeforeShrinking, &reason, |node| {
                node.spec.taints.push(Taint {
                    key: labels::PREFER_NO_SCHEDULE.to_owned(),
                    value: Some(labels::TRUE.to_owned()),
                    effect: EFFECT.to_owned(),
                    time_added: None,
                });
            });
        }
        if !is_marked(set) && !set.is_deleting() {
            set.draft.edit("its nodes are tainted", |set| {
                set.annotations_mut().insert(labels::PREFER_NO_SCHEDULE.to_owned(), labels::TRUE.to_owned());
            });
        }
    }

    /// Removes the taint from the Nodes of a set that is no longer old, also if the set was never annotated. The
    /// annotation of the set is removed in a later plan, when no Node has the taint.
    pub(super) fn untaint(&mut self, set: &mut SetView) {
        if !self.has_target || set.is_deleting() {
            return;
        }
        let reason = format!("set {} has the current template again", set.name());
        let mut clean = set.unreadable.is_empty();
        for machine in &set.machines {
            match self.desired(machine) {
                Some(node) if is_tainted(node) => {
                    self.mark(machine, NodePatchOrder::BeforeShrinking, &reason, |node| {
                        node.spec.taints.retain(|taint| !is_ours(taint));
                    });
                    clean = false;
                }
                Some(_) => {}
                None => clean &= machine.node_name().is_none(),
            }
        }
        if clean && is_marked(set) {
            set.draft.edit("its nodes are no longer tainted", |set| {
                set.annotations_mut().remove(labels::PREFER_NO_SCHEDULE);
            });
        }
    }

    /// Labels the Nodes of an old set as candidates for an in-place update.
    pub(super) fn mark_candidates(&mut self, set: &SetView) {
        let reason = format!("the nodes of old set {} are to be updated in place", set.name());
        for machine in set.machines.iter().filter(|machine| !machine.is_terminating()) {
            if self.desired(machine).is_some_and(|node| !in_place::is_candidate(node)) {
                self.mark(machine, NodePatchOrder::Last, &reason, |node| {
                    node.labels_mut().insert(labels::CANDIDATE_FOR_UPDATE, labels::SET);
                });
            }
        }
    }

    /// Removes the label from Nodes whose set has the current template. A selected Node stays a candidate until its
    /// update is over.
    pub(super) fn withdraw_candidates(&mut self, set: &SetView) {
        let reason = format!("set {} has the current template", set.name());
        let is_idle = |node: &Node| !in_place::is_selected(node) && !node.labels().contains_key(labels::UPDATE_RESULT);
        for machine in &set.machines {
            if self.desired(machine).is_some_and(|node| in_place::is_candidate(node) && is_idle(node)) {
                self.mark(machine, NodePatchOrder::Last, &reason, |node| {
                    node.labels_mut().remove(labels::CANDIDATE_FOR_UPDATE);
                });
            }
        }
    }

    /// Selects a Node for its in-place update.
    pub(super) fn select(&mut self, machine: &Machine, reason: &str) {
        self.edit(machine, reason, |node| {
            node.labels_mut().insert(labels::SELECTED_FOR_UPDATE, labels::SET);
        });
    }

    /// Removes the marks of an in-place update from a Node, and adds the taint that keeps other pods off until critical
    /// components run, as on a new Node.
    pub(super) fn finish_update(&mut self, machine: &Machine) {
        self.edit(machine, "its in-place update was successful", |node| {
            for key in [labels::CANDIDATE_FOR_UPDATE, labels::SELECTED_FOR_UPDATE, labels::UPDATE_RESULT] {
                node.labels_mut().remove(key);
            }
            node.annotations_mut().remove(labels::UPDATE_FAILED_REASON);
            node.spec.unschedulable = false;
            node.spec.taints.retain(|taint| !is_ours(taint));
            let is_critical =
                |taint: &Taint| taint.key == labels::CRITICAL_COMPONENTS_TAINT && taint.effect == "NoSchedule";
            if !node.spec.taints.iter().any(is_critical) {
                node.spec.taints.push(Taint {
                    key: labels::CRITICAL_COMPONENTS_TAINT.to_owned(),
                    value: None,
                    effect: "NoSchedule".to_owned(),
                    time_added: None,
                });
            }
        });
    }

    /// Stops the autoscaler from removing the Nodes of a set. A Node whose annotation was set by another client is not
    /// changed.
    pub(super) fn disable_scale_down(&mut self, set: &SetView) {
        if !self.has_target || !self.annotate {
            return;
        }
        for machine in &set.machines {
            if self.desired(machine).is_some_and(|node| !node.annotations().contains_key(labels::SCALE_DOWN_DISABLED)) {
                let reason = "the autoscaler must not remove nodes during a rollout";
                self.mark(machine, NodePatchOrder::Last, reason, |node| {
                    for key in [labels::SCALE_DOWN_DISABLED, labels::SCALE_DOWN_DISABLED_BY_MCM] {
                        node.annotations_mut().insert(key, labels::SCALE_DOWN_IS_DISABLED);
                    }
                });
            }
        }
    }

    /// Lets the autoscaler remove Nodes again, except those of preserved Machines.
    pub(super) fn allow_scale_down(&mut self, set: &SetView) {
        if !self.has_target {
            return;
        }
        for machine in set.machines.iter().filter(|machine| machine.preserve_expiry().is_none()) {
            if self.desired(machine).is_some_and(is_annotated_by_us) {
                let reason = "the rollout is over: the autoscaler may remove nodes again";
                self.mark(machine, NodePatchOrder::Last, reason, |node| {
                    for key in [labels::SCALE_DOWN_DISABLED, labels::SCALE_DOWN_DISABLED_BY_MCM] {
                        node.annotations_mut().remove(key);
                    }
                });
            }
        }
    }

    /// The draft of a Machine's Node, if the Node is known.
    fn desired(&self, machine: &Machine) -> Option<&Node> {
        let current = self.snapshot.nodes.get(machine.node_name()?)?;
        current.metadata.deletion_timestamp.is_none().then(|| self.drafts.desired(current))
    }

    fn node_of(&self, machine: &Machine) -> Option<&'a Arc<Node>> {
        machine.node_name().and_then(|name| self.snapshot.nodes.get(name))
    }

    /// Changes the Node of an in-place update.
    fn edit(&mut self, machine: &Machine, reason: &str, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.node_of(machine) {
            self.orders.insert(node.name_any(), NodePatchOrder::BeforeMachines);
            self.drafts.edit(node, reason, change);
        }
    }

    /// Changes one of many Nodes, unless it waits for its next attempt, or later plans do that.
    fn mark(&mut self, machine: &Machine, order: NodePatchOrder, reason: &str, change: impl FnOnce(&mut Node)) {
        let Some(node) = self.node_of(machine) else { return };
        let name = node.name_any();
        if let Some(at) = retry_at(self.snapshot, &name) {
            self.held.insert(name, at);
        } else if self.drafts.has(node) || self.drafts.len() < BATCH {
            self.drafts.edit(node, reason, change);
            let first = self.orders.entry(name).or_insert(order);
            *first = order.min(*first);
        }
    }
}

/// When the next patch of a Node may be tried; `None` if that is now.
fn retry_at(snapshot: &Snapshot, node: &str) -> Option<Timestamp> {
    snapshot.node_retries.get(node).copied().filter(|at| *at > snapshot.now)
}

fn is_annotated_by_us(node: &Node) -> bool {
    let value = node.annotations().get(labels::SCALE_DOWN_DISABLED_BY_MCM);
    value.is_some_and(|value| value == labels::SCALE_DOWN_IS_DISABLED)
}

fn is_ours(taint: &Taint) -> bool {
    taint.key == labels::PREFER_NO_SCHEDULE && taint.effect == EFFECT
}

fn is_tainted(node: &Node) -> bool {
    node.spec.taints.iter().any(is_ours)
}

fn is_marked(set: &SetView) -> bool {
    set.draft.desired().annotations().contains_key(labels::PREFER_NO_SCHEDULE)
}
