//! The interface for the task that keeps the Nodes.

use std::{collections::BTreeSet, io};

use jiff::Timestamp;

use super::CloudSimulator;
use crate::{
    control::{NodeSettings, WildcardPattern},
    record::{DepartedVm, NodeLink, VmRecord},
};

/// The state of a VM as far as its Node is concerned.
#[derive(Clone, Debug)]
pub(crate) enum NodeView {
    /// The VM exists.
    Vm(Box<VmRecord>),
    /// The VM is deleted, its Node is not.
    Departed(DepartedVm),
    /// VM and Node are deleted.
    Nothing,
}

impl CloudSimulator {
    /// Returns when VMs have changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The VMs that have changed since the last call; at first, all.
    pub(crate) fn take_changed(&self) -> BTreeSet<String> {
        let (mut inner, _) = self.lock();
        inner.changed.replace(BTreeSet::new()).unwrap_or_else(|| inner.everything())
    }

    pub(crate) fn node_rules(&self) -> (NodeSettings, Vec<WildcardPattern>) {
        let (inner, _) = self.lock();
        (inner.control.nodes, inner.control.never_join.clone())
    }

    pub(crate) fn node_view(&self, id: &str) -> NodeView {
        let (inner, _) = self.lock();
        match (inner.vms.get(id), inner.vms.departed().get(id)) {
            (Some(vm), _) => NodeView::Vm(Box::new(vm.clone())),
            (None, Some(departed)) => NodeView::Departed(departed.clone()),
            (None, None) => NodeView::Nothing,
        }
    }

    /// The VM is about to request its Node; false if the VM no longer exists.
    pub(crate) fn node_asked(&self, id: &str) -> bool {
        self.link(id, |vm, _| {
            if vm.node.is_none() {
                vm.node = NodeLink::Asked;
            }
        })
    }

    /// The VM has the Node with this UID.
    pub(crate) fn node_registered(&self, id: &str, uid: &str) {
        self.link(id, |vm, now| vm.node = NodeLink::Registered { uid: uid.to_owned(), at: now });
        let (mut inner, _) = self.lock();
        inner.stats.nodes_registered += 1;
        if let Some(departed) = inner.vms.departed().get(id) {
            let departed = DepartedVm { uid: Some(uid.to_owned()), ..departed.clone() };
            log_unwritten(inner.vms.put_departed(departed));
        }
    }

    /// A client deleted the Node of a VM.
    pub(crate) fn node_lost(&self, id: &str) {
        self.link(id, |vm, _| {
            if let NodeLink::Registered { uid, .. } = &vm.node {
                vm.node = NodeLink::Lost { uid: uid.clone() };
            }
        });
    }

    /// The Node of a deleted VM was deleted.
    pub(crate) fn node_removed(&self, id: &str, removed: bool) {
        let (mut inner, _) = self.lock();
        inner.stats.nodes_removed += u64::from(removed);
        log_unwritten(inner.vms.forget(id));
    }

    fn link(&self, id: &str, change: impl FnOnce(&mut VmRecord, Timestamp)) -> bool {
        let (mut inner, now) = self.lock();
        let Some(old) = inner.vms.get(id) else { return false };
        let mut vm = old.clone();
        change(&mut vm, now);
        if vm != *old {
            log_unwritten(inner.vms.put(vm));
        }
        true
    }
}

fn log_unwritten(outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, "cannot write the state file; a Node may be checked again after a restart");
    }
}
