//! Nodes during a rollout: new pods avoid those that are about to go, and the autoscaler leaves all of them alone.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;

use super::{Action, Policy, Snapshot, sets::SetView};
use crate::{
    api::{labels, machine::Machine, node::Node},
    controllers::object::draft::{Change, Drafts},
    plan::{Plan, WaitKind},
};

const EFFECT: &str = "PreferNoSchedule";
/// Value of the annotations that the autoscaler reads.
const ANNOTATED: &str = "true";

/// The Nodes of a deployment, and what changes on them.
pub(super) struct Nodes<'a> {
    snapshot: &'a Snapshot,
    has_target: bool,
    annotate: bool,
    drafts: Drafts<Node>,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, policy: &Policy) -> Self {
        Self { snapshot, has_target: policy.has_target, annotate: policy.annotate_nodes, drafts: Drafts::default() }
    }

    /// The changed Nodes, by name. One that refused its last patch waits for its next turn.
    pub(super) fn emit(self, plan: &mut Plan<Action>) {
        let retry_at = |name: &str| self.snapshot.node_retries.get(name).copied().filter(|at| *at > self.snapshot.now);
        let mut held: Vec<(String, Timestamp)> = Vec::new();
        for Change { current, patch, reason, .. } in self.drafts.finish() {
            match retry_at(&current.name_any()) {
                Some(at) => held.push((current.name_any(), at)),
                None => {
                    plan.then(Action::PatchNode { node: current, patch }, reason);
                }
            }
        }
        if let Some(first) = held.iter().map(|(_, at)| *at).min() {
            let names: Vec<&str> = held.iter().map(|(name, _)| name.as_str()).collect();
            let text = format!("the next try to patch nodes that refused it: {}", names.join(", "));
            plan.wait(WaitKind::NodeWrite, text, Some(first));
        }
    }

    /// Taints what is there, also Nodes that joined after the rollout began, and marks the set.
    pub(super) fn taint(&mut self, set: &mut SetView) {
        if !self.has_target || set.counts().planned() == 0 {
            return;
        }
        let reason = format!("new pods shall avoid the nodes of old set {}", set.name());
        for machine in &set.machines {
            if self.desired(machine).is_none_or(is_tainted) {
                continue;
            }
            self.edit(machine, &reason, |node| {
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

    /// Takes the taint from the Nodes of a set that is old no longer, also where the mark of the set was never written.
    /// The mark goes in a later plan, when every Node is known to be clean.
    pub(super) fn untaint(&mut self, set: &mut SetView) {
        if !self.has_target || set.is_deleting() {
            return;
        }
        let reason = format!("set {} makes machines of the current template again", set.name());
        let mut clean = set.unreadable.is_empty();
        for machine in &set.machines {
            match self.desired(machine) {
                Some(node) if is_tainted(node) => {
                    self.edit(machine, &reason, |node| node.spec.taints.retain(|taint| !is_ours(taint)));
                    clean = false;
                }
                Some(_) => {}
                None => clean &= machine.node_name().is_none(),
            }
        }
        if clean && is_marked(set) {
            set.draft.edit("its nodes are not tainted any more", |set| {
                set.annotations_mut().remove(labels::PREFER_NO_SCHEDULE);
            });
        }
    }

    /// Keeps the autoscaler away. A Node on which somebody else has already decided is left as it is.
    pub(super) fn disable_scale_down(&mut self, set: &SetView) {
        if !self.has_target || !self.annotate {
            return;
        }
        for machine in &set.machines {
            if self.desired(machine).is_some_and(|node| !node.annotations().contains_key(labels::SCALE_DOWN_DISABLED)) {
                self.edit(machine, "the autoscaler shall not remove nodes during a rollout", |node| {
                    for key in [labels::SCALE_DOWN_DISABLED, labels::SCALE_DOWN_DISABLED_BY_MCM] {
                        node.annotations_mut().insert(key.to_owned(), ANNOTATED.to_owned());
                    }
                });
            }
        }
    }

    /// Lets the autoscaler come back, except to Nodes whose Machine is preserved.
    pub(super) fn allow_scale_down(&mut self, set: &SetView) {
        if !self.has_target {
            return;
        }
        for machine in set.machines.iter().filter(|machine| machine.preserve_expiry().is_none()) {
            let Some(node) = self.desired(machine) else { continue };
            if node.annotations().get(labels::SCALE_DOWN_DISABLED_BY_MCM).is_some_and(|value| value == ANNOTATED) {
                self.edit(machine, "the rollout is over: the autoscaler may remove nodes again", |node| {
                    for key in [labels::SCALE_DOWN_DISABLED, labels::SCALE_DOWN_DISABLED_BY_MCM] {
                        node.annotations_mut().remove(key);
                    }
                });
            }
        }
    }

    /// A Machine's Node as it shall be so far, if it is there to be changed.
    fn desired(&self, machine: &Machine) -> Option<&Node> {
        let current = self.snapshot.nodes.get(machine.node_name()?)?;
        current.metadata.deletion_timestamp.is_none().then(|| self.drafts.desired(current))
    }

    fn edit(&mut self, machine: &Machine, reason: &str, change: impl FnOnce(&mut Node)) {
        let node: Option<&'a Arc<Node>> = machine.node_name().and_then(|name| self.snapshot.nodes.get(name));
        if let Some(node) = node {
            self.drafts.edit(node, reason, change);
        }
    }
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
