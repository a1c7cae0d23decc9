//! In-place updates of Nodes, as far as they are seen, and what they mean for the counts of a set.

use crate::{
    machine_deployment::{
        Snapshot,
        counts::ReplicaCounts,
        sets::{SetView, i32_count},
    },
    object::in_place::{self, UpdateResult},
};
use mcm_api::{
    machine::{Machine, MachinePhase},
    node::Node,
    reasons::InPlaceUpdateReason,
};

/// The counts of a set. Available is a Machine whose Node is known and not selected. The replicas include Machines that
/// moved to the set, and no Machines that left it.
pub(super) fn counts_of(snapshot: &Snapshot, set: &SetView) -> ReplicaCounts {
    let serves =
        |machine: &Machine| machine.is_available() && node_of(snapshot, machine).is_some_and(|node| !is_closed(node));
    let counts = set.counts_by(serves);
    let moved =
        i32_count(set.machines.iter().filter(|machine| in_place::was_updated(machine) && !set.is_going(machine)));
    let excess = (counts.present() - counts.replicas).clamp(0, moved);
    let replicas = counts.replicas + excess;
    let replicas = if set.is_held() && !set.is_new { replicas.min(counts.present()) } else { replicas };
    ReplicaCounts { replicas, ..counts }
}

/// The counts of a set that is scaled while the rollout is paused: a Machine whose Node waits for its update, or to
/// move, does not serve. The last observation of a Node counts until there is a newer one.
pub(super) fn paused_counts(snapshot: &Snapshot, set: &SetView) -> ReplicaCounts {
    let last_seen = |machine: &Machine| snapshot.nodes.get(machine.node_name()?);
    set.counts_by(|machine| machine.is_available() && !last_seen(machine).is_some_and(|node| is_closed(node)))
}

/// The Node is drained for an update, or was updated.
pub(super) fn is_closed(node: &Node) -> bool {
    in_place::is_selected(node) || in_place::result_of(node).is_some()
}

/// A Machine of the set may serve, but its Node is not known. It does not count as available, and it does not go for that.
pub(super) fn may_serve_unseen(snapshot: &Snapshot, set: &SetView) -> bool {
    let is_unseen = |machine: &Machine| machine.is_available() && node_of(snapshot, machine).is_none();
    set.machines.iter().any(|machine| is_unseen(machine) && !set.is_going(machine))
}

/// The Node of a Machine, if it is known.
pub(super) fn node_of<'a>(snapshot: &'a Snapshot, machine: &Machine) -> Option<&'a Node> {
    if snapshot.nodes_unknown.is_some() {
        return None;
    }
    let node = snapshot.nodes.get(machine.node_name()?)?;
    node.metadata.deletion_timestamp.is_none().then_some(node)
}

/// The agent reported success, and the machine controller has seen it.
pub(super) fn is_updated(machine: &Machine, node: &Node) -> bool {
    let copied = machine.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let is_busy = matches!(
        machine.phase(),
        MachinePhase::InPlaceUpdating | MachinePhase::InPlaceUpdateFailed | MachinePhase::Failed
    );
    in_place::result_of(node) == Some(UpdateResult::Successful)
        && in_place::progress_of(copied) == Some(InPlaceUpdateReason::UpdateSuccessful)
        && !is_busy
}

/// The Node of a Machine is selected. One that is not known may be.
pub(super) fn is_under_way(snapshot: &Snapshot, machine: &Machine) -> bool {
    machine.node_name().is_some() && node_of(snapshot, machine).is_none_or(in_place::is_selected)
}

/// The Node may be selected: it is a candidate, and there is no result yet.
pub(super) fn is_eligible(node: &Node) -> bool {
    in_place::is_candidate(node) && !in_place::is_selected(node) && in_place::result_of(node).is_none()
}
