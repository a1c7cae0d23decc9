//! The VMs of a pool, with IDs in the form of their Nodes.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt;

use super::Snapshot;
use mcm_api::machine::{Machine, MachinePhase};
pub use mcm_conversion::{VERSION, content_of, provider_id, types::PoolInstance, zone_of};

/// The API server takes objects of 1.5 MiB.
const MOST_WITH_ADDRESSES: usize = 1000;

impl Snapshot {
    /// The IDs of all VMs. The ID of a terminating Machine stays until the Machine, and so its VM, is deleted: core
    /// deletes the Node of an ID that is removed from the list.
    pub(super) fn ids(&self) -> Vec<String> {
        let known = self.machines.values().filter_map(|machine| self.id_of(machine));
        // The ID of an undecodable Machine is unknown, and so is the zone of a Machine without its class.
        let is_incomplete = !self.unreadable_machines.is_empty() || self.without_id().is_some();
        let kept = self.object.spec.provider_id_list.iter().filter(|_| is_incomplete);
        let all: BTreeSet<String> = known.chain(kept.cloned()).collect();
        all.into_iter().collect()
    }

    /// The VMs with the names of their native Machines.
    pub(super) fn instances(&self) -> Vec<PoolInstance> {
        let has_addresses = self.machines.len() <= MOST_WITH_ADDRESSES;
        let instance = |(name, machine): (&String, &Arc<Machine>)| PoolInstance {
            instance_name: name.clone(),
            ready: machine.phase() == MachinePhase::Running,
            provider_id: self.id_of(machine).unwrap_or_default(),
            addresses: machine
                .status
                .as_ref()
                .filter(|_| has_addresses)
                .map_or_else(Vec::new, |one| one.addresses.clone()),
            version: machine.annotations().get(VERSION).cloned().unwrap_or_default(),
        };
        self.machines.iter().map(instance).collect()
    }

    /// A native Machine with a VM whose ID in the form of the Node is unknown.
    pub(super) fn without_id(&self) -> Option<&Arc<Machine>> {
        self.machines.values().find(|machine| !machine.spec.provider_id.is_empty() && self.id_of(machine).is_none())
    }

    /// An ID in the form of the driver that the list has from an earlier version stays: core deletes the Node of an ID that is
    /// removed.
    fn id_of(&self, machine: &Machine) -> Option<String> {
        let native = &machine.spec.provider_id;
        if !native.is_empty() && self.object.spec.provider_id_list.contains(native) {
            return Some(native.clone());
        }
        let class = self.classes.get(&machine.spec.class.name).and_then(|class| class.known());
        let of_class = || class.and_then(|class| zone_of(Some(&content_of(class))));
        let zone = machine.vm_zone().map(str::to_owned).or_else(of_class);
        provider_id::of_node(machine, zone.as_deref()).filter(|id| !id.is_empty())
    }
}
