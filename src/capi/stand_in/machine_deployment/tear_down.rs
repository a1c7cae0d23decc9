//! The deletion of a MachineDeployment.

use std::sync::Arc;

use kube::ResourceExt;

use super::{
    Action, Snapshot,
    native::{self, is_ours},
};
use crate::object::view::ObjectView;
use mcm_api::labels;
use mcm_controllers::object::finalizer;
use mcm_conversion::types::{MCMMigration, MachineAuthority, MachineDeployment};
use mcm_rules::plan::{Plan, WaitKind};

/// S6: the native deployment is deleted first, if the MachineDeployment has the authority; otherwise it stays. It also
/// stays if the propagation policy of the deletion is `Orphan`: the garbage collector then removes the
/// MachineDeployment from the owners of its sets, which is visible even after it has removed its finalizer.
pub(super) fn plan(plan: &mut Plan<Action>, snapshot: &Snapshot, object: &MachineDeployment) {
    let Some(released) = finalizer::remove(&object.metadata, labels::STAND_IN_FINALIZER) else {
        plan.wait(WaitKind::Finalizers, "other controllers to remove their finalizers", None);
        return;
    };
    let is_made = |migration: &Arc<MCMMigration>| migration.labels().contains_key(labels::STAND_IN);
    let migration = snapshot.migration.known().filter(|migration| is_made(migration));
    let is_orphaning = finalizer::is_orphaning(&object.metadata) || snapshot.session.are_sets_released == Some(true);
    if snapshot.authority() != Some(MachineAuthority::ClusterApi) || is_orphaning {
        if migration.is_some() {
            plan.then(Action::DeleteMigration, "only the MCM side is left");
        } else {
            plan.then(Action::PatchSelf(released), "the MCM MachineDeployment is kept");
        }
        return;
    }
    match &snapshot.native {
        ObjectView::Unknown => {
            plan.wait(WaitKind::Unreadable, "the MCM MachineDeployment to become readable", None);
        }
        ObjectView::Present(native) if !is_ours(native, object) => {
            plan.then(Action::PatchSelf(released), "the MCM MachineDeployment belongs to another client and is kept");
        }
        ObjectView::Present(native) if native.metadata.deletion_timestamp.is_some() => {
            plan.wait(WaitKind::MachineDeletion, "the MCM machines to be deleted", None);
        }
        ObjectView::Present(_) if snapshot.session.are_sets_released.is_none() => {
            plan.then(Action::ReadSets, "its deletion may have to keep the machines");
        }
        ObjectView::Present(_) if !snapshot.session.is_confirmed => {
            plan.then(Action::Confirm, "if Cluster API core is installed, the machines must be kept");
        }
        ObjectView::Present(native) => {
            plan.then(Action::DeleteNative(Arc::clone(native)), "its MachineDeployment is being deleted");
        }
        ObjectView::Missing if !snapshot.session.is_gone => {
            plan.then(Action::ReadNative, "the cache may not have it yet");
        }
        // The caches of other kinds may lag behind that of deployments; class and copy are in use until they catch up.
        ObjectView::Missing if snapshot.children > 0 => {
            plan.wait(WaitKind::MachineDeletion, "the MCM machines to be deleted", None);
        }
        ObjectView::Missing => {
            native::clean_up(plan, snapshot, None);
            if !plan.steps.is_empty() {
                return;
            }
            // A class names its copy until its finalizer is removed, and then no controller would delete the copy.
            if let Some(class) = native::unused_classes(snapshot, None).next() {
                plan.wait(WaitKind::Class, format!("MachineClass {} to be deleted", class.name_any()), None);
                return;
            }
            if migration.is_some() {
                plan.then(Action::DeleteMigration, "there are no machines left to have authority over");
                return;
            }
            plan.then(Action::PatchSelf(released), "the MCM machines are deleted");
        }
    }
}
