//! VMs, and the pods on them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;

use super::dice::Dice;
use crate::{
    api::machine::Machine,
    drain::PodFacts,
    driver::{Capabilities, Code, DriverError, Vm},
};

/// A cloud that keeps to the contract of a driver, in one of the ways in which clouds differ.
pub(super) struct Cloud {
    pub vms: BTreeMap<String, Server>,
    /// By Node.
    pub pods: BTreeMap<String, Vec<PodFacts>>,
    /// UIDs of Machines for which a VM was made while there was one.
    pub doubled: BTreeSet<String>,
    style: Style,
    serial: u64,
}

/// A VM.
pub(super) struct Server {
    pub owner: String,
    pub node: String,
    initialized: bool,
}

/// How clouds differ.
#[derive(Clone, Copy)]
struct Style {
    initializes: bool,
    /// A second create makes a second VM, instead of finding the first one by its token.
    forgets_tokens: bool,
    /// Nodes have the names of their Machines, instead of names of their own.
    names_nodes_like_machines: bool,
}

impl Cloud {
    pub(super) fn of(dice: &mut Dice) -> Self {
        let style = Style {
            initializes: dice.one_in(3),
            forgets_tokens: dice.one_in(2),
            names_nodes_like_machines: dice.one_in(2),
        };
        Self { vms: BTreeMap::new(), pods: BTreeMap::new(), doubled: BTreeSet::new(), style, serial: 0 }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities { initialize: self.style.initializes, list: false }
    }

    pub(super) fn create(&mut self, machine: &Machine) -> Result<Vm, DriverError> {
        let owner = machine.uid().unwrap();
        if let Some(id) = self.id_of(&owner) {
            if !self.style.forgets_tokens {
                return Ok(self.describe(&id));
            }
            self.doubled.insert(owner.clone());
        }
        self.serial += 1;
        let id = format!("cloud:///{}", self.serial);
        let node = match self.style.names_nodes_like_machines {
            true => machine.name_any(),
            false => format!("ip-{}", self.serial),
        };
        self.vms.insert(id.clone(), Server { owner, node, initialized: false });
        Ok(self.describe(&id))
    }

    pub(super) fn initialize(&mut self, machine: &Machine) -> Result<Vm, DriverError> {
        let Some(id) = self.find(machine) else { return Err(missing()) };
        if let Some(server) = self.vms.get_mut(&id) {
            server.initialized = true;
        }
        Ok(self.describe(&id))
    }

    pub(super) fn status(&self, machine: &Machine) -> Result<Vm, DriverError> {
        let id = self.find(machine).ok_or_else(missing)?;
        let vm = self.describe(&id);
        if self.style.initializes && !self.vms[&id].initialized {
            let vm = Some(Box::new(vm));
            return Err(DriverError { vm, ..DriverError::new(Code::Uninitialized, "half a VM") });
        }
        Ok(vm)
    }

    /// Answers the names of the Nodes that lose their VMs.
    pub(super) fn delete(&mut self, machine: &Machine) -> Vec<String> {
        let mut nodes = Vec::new();
        let owner = machine.uid();
        let wanted = &machine.spec.provider_id;
        self.vms.retain(|id, server| {
            let is_meant = if wanted.is_empty() { Some(&server.owner) == owner.as_ref() } else { id == wanted };
            if is_meant {
                nodes.push(server.node.clone());
            }
            !is_meant
        });
        nodes
    }

    pub(super) fn has_vm_for_node(&self, node: &str) -> bool {
        self.vms.values().any(|server| server.node == node)
    }

    pub(super) fn owned_by(&self, uid: &str) -> usize {
        self.vms.values().filter(|server| server.owner == uid).count()
    }

    /// A pod was told to go.
    pub(super) fn terminate(&mut self, uid: &str, now: Timestamp) {
        for pod in self.pods.values_mut().flatten().filter(|pod| *pod.pod.uid == *uid) {
            pod.terminating_since.get_or_insert(now);
        }
    }

    pub(super) fn remove_pod(&mut self, uid: &str) {
        for pods in self.pods.values_mut() {
            pods.retain(|pod| *pod.pod.uid != *uid);
        }
    }

    fn find(&self, machine: &Machine) -> Option<String> {
        let id = &machine.spec.provider_id;
        if id.is_empty() { self.id_of(&machine.uid().unwrap()) } else { self.vms.contains_key(id).then(|| id.clone()) }
    }

    fn id_of(&self, owner: &str) -> Option<String> {
        self.vms.iter().find(|(_, server)| server.owner == owner).map(|(id, _)| id.clone())
    }

    fn describe(&self, id: &str) -> Vm {
        Vm { provider_id: id.to_owned(), node_name: self.vms[id].node.clone(), ..Vm::default() }
    }
}

fn missing() -> DriverError {
    DriverError::new(Code::NotFound, "no such VM")
}
