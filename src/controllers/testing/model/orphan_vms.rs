//! VMs without a Machine: created by hand, or left after a finalizer was removed. And VMs of other clusters.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{
    super::api_server::{MACHINES, NODES},
    desired_state::any_class,
    world::{NAMESPACE, World},
};
use mcm_api::labels::MACHINE_NAME;

/// So many at a time at most: the collector deletes a few of them in a quarter of an hour.
const MOST: usize = 6;

impl World {
    /// Changes a VM without any process.
    pub(super) fn strand(self: &Arc<Self>) {
        if self.ledger.lock().count_orphan_vms() >= MOST {
            return;
        }
        match self.faults.rng(|rng| rng.below(3)) {
            0 => self.free_some_machine(),
            1 => self.make_vm_by_hand(None),
            // A second one for a Machine that has one.
            _ => self.make_vm_by_hand(self.some(&MACHINES)),
        }
    }

    fn make_vm_by_hand(&self, machine: Option<String>) {
        let twin = machine.as_ref().and_then(|name| self.control.get(&MACHINES, NAMESPACE, name));
        let class = twin.and_then(|twin| twin.value["spec"]["class"]["name"].as_str().map(str::to_owned));
        let class = class.unwrap_or_else(|| self.faults.rng(any_class));
        // A VM without a marker stays for ever where other owners use the tag.
        let is_marked = self.cloud.lock().is_shared || self.faults.one_in(2);
        let id = self.cloud.lock().make_orphan_vm(machine, &class, is_marked.then_some(NAMESPACE));
        self.say(format!("user: make VM {id} of {class}"));
        self.ledger.lock().stranded(&id);
    }

    /// Deletes a Machine without its finalizers. Its VM stays.
    fn free_some_machine(&self) {
        let Some(name) = self.some(&MACHINES) else { return };
        self.say(format!("user: remove the finalizers of machine {name}"));
        self.control
            .edit(&MACHINES, NAMESPACE, &name, |machine| machine["metadata"]["finalizers"] = json!([]))
            .unwrap();
        // It may have been terminating, and be deleted by now.
        drop(self.control.delete(&MACHINES, NAMESPACE, &name));
    }

    /// The collector deleted a VM. Its Node is left to the cloud controller.
    pub(super) fn orphan_vm_deleted(self: &Arc<Self>, id: &str, node: String) {
        self.say(format!("  VM {id} is deleted as an orphan"));
        self.lose_contact(&node);
        self.later(Duration::from_mins(2), move |world| world.sweep(&node));
    }

    /// The cloud controller removes the Nodes of dead VMs whose Machines were released: no other controller manages
    /// them.
    pub(super) fn sweep_orphan_vms(&self) {
        for node in self.target.all(&NODES) {
            let machine = node.value["metadata"]["labels"][MACHINE_NAME].as_str().unwrap_or_default();
            if self.control.get(&MACHINES, NAMESPACE, machine).is_none() {
                self.sweep(node.name());
            }
        }
    }
}
