//! Nodes during a rollout: new pods avoid those that are about to go, and the autoscaler leaves all of them alone.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;

use super::{Policy, Snapshot, draft::Draft, sets::SetView};
use crate::api::{labels, machine::Machine, node::Node};

const EFFECT: &str = "PreferNoSchedule";
/// Value of the annotations that the autoscaler reads.
const ANNOTATED: &str = "true";

/// The Nodes of a deployment, and what changes on them.
pub(super) struct Nodes<'a> {
    seen: &'a BTreeMap<String, Arc<Node>>,
    has_target: bool,
    annotate: bool,
    drafts: BTreeMap<String, Draft<Node>>,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, policy: &Policy) -> Self {
        Self {
            seen: &snapshot.nodes,
            has_target: policy.has_target,
            annotate: policy.annotate_nodes,
            drafts: BTreeMap::new(),
        }
    }

    /// The changed Nodes, in the order of their names.
    pub(super) fn finish(self) -> impl Iterator<Item = Draft<Node>> {
        self.drafts.into_values()
    }

    /// Taints what is there, also Nodes that joined after the rollout began, and marks the set.
    pub(super) fn taint(&mut self, set: &mut SetView) {
        if !self.has_target || set.count().planned() == 0 {
            return;
        }
        let reason = format!("new pods shall avoid the nodes of old set {}", set.name());
        for machine in &set.machines {
            if self.wanted(machine).is_none_or(is_tainted) {
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
        let reason = format!("set {} is wanted again", set.name());
        let mut clean = set.unreadable == 0;
        for machine in &set.machines {
            match self.wanted(machine) {
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
            if self.wanted(machine).is_some_and(|node| !node.annotations().contains_key(labels::SCALE_DOWN_DISABLED)) {
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
        for machine in set.machines.iter().filter(|machine| !is_preserved(machine)) {
            let Some(node) = self.wanted(machine) else { continue };
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
    fn wanted(&self, machine: &Machine) -> Option<&Node> {
        let name = machine.node_name()?;
        let seen = self.seen.get(name).filter(|node| node.metadata.deletion_timestamp.is_none())?;
        Some(self.drafts.get(name).map_or(seen, Draft::wanted))
    }

    fn edit(&mut self, machine: &Machine, reason: &str, change: impl FnOnce(&mut Node)) {
        if let Some(name) = machine.node_name()
            && let Some(node) = self.seen.get(name)
        {
            self.drafts.entry(name.to_owned()).or_insert_with(|| Draft::of(node.clone())).edit(reason, change);
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
    set.draft.wanted().annotations().contains_key(labels::PREFER_NO_SCHEDULE)
}

fn is_preserved(machine: &Machine) -> bool {
    machine.status.as_ref().is_some_and(|status| status.current_status.preserve_expiry_time.is_some())
}
