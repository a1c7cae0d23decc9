//! After a forced drain: the VolumeAttachments of the Node are deleted, so that its volumes can be attached elsewhere
//! before the Node is deleted.

use super::record::advance;
use crate::machine::{Action, Snapshot, memory::NodeWrite, progress::DeletionProgress, views::TargetNodeView};
use mcm_rules::plan::{Plan, WaitKind};

/// How often it is tried. A forced deletion must not wait for ever.
const ATTEMPTS: u32 = 4;

/// Plans the deletion of the VolumeAttachments, or returns false if nothing is left to do before the VM is deleted.
pub(super) fn plan(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    let TargetNodeView::Present(node) = snapshot.own_node() else { return false };
    let name = node.metadata.name.clone().unwrap_or_default();
    match snapshot.learned.detached {
        // They are listed again in case more were created meanwhile, unless the Node has no volumes.
        Some(0) | None if node.status.volumes_attached.is_empty() => return false,
        Some(0) => {
            let story = format!("No Live VolumeAttachments for node: {name}. Moving to VM Deletion. ");
            advance(plan, snapshot, DeletionProgress::DeleteVm, &story, "its volumes are being detached");
            return true;
        }
        _ => {}
    }
    match snapshot.memory.node_failure_of(NodeWrite::DetachVolumes, snapshot.now) {
        Some(failure) if failure.count >= ATTEMPTS => {
            let story =
                format!("Skipping deleteNodeVolAttachments due to - {}. Moving to VM Deletion. ", failure.message);
            advance(plan, snapshot, DeletionProgress::DeleteVm, &story, "the deletion is forced");
        }
        Some(failure) => {
            let text = format!("the volume attachments of Node {name} to be deleted: {}", failure.message);
            plan.wait(WaitKind::NodeWrite, text, Some(failure.retry_at()));
        }
        None => {
            plan.then(Action::DetachVolumes { node: name }, "its volumes can be attached elsewhere only after that");
        }
    }
    true
}
