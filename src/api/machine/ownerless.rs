//! Machines and MachineSets that no other object controls. Users create some of them so; others lost their owner.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Machine, MachineSet};

impl Machine {
    /// True if it has a VM and no object controls it, so that no controller replaces it.
    pub fn is_ownerless(&self) -> bool {
        let has_vm = !self.spec.provider_id.is_empty() || self.node_name().is_some();
        has_vm && !self.is_terminating() && !is_controlled(&self.metadata)
    }
}

impl MachineSet {
    /// True if it keeps Machines and no deployment controls it.
    pub fn is_ownerless(&self) -> bool {
        self.spec.replicas > 0 && self.metadata.deletion_timestamp.is_none() && !is_controlled(&self.metadata)
    }
}

fn is_controlled(meta: &ObjectMeta) -> bool {
    meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true))
}
