//! The new Nodes that a rollout annotates. The machine controller of the same cell annotates them in the patch
//! that adds its finalizer, and the deployment controller finds nothing to write.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use crate::{machine, machine_set, object::owner};
use mcm_api::machine::{Machine, MachineDeployment, MachineSet};
use mcm_runtime::cache::{Key, ObjectCache};

/// Filled by the deployment controller. Empty in a process that does not run it.
#[derive(Default)]
pub(crate) struct RolloutNodes(OnceLock<RolloutCaches>);

/// The caches of the deployment controller.
pub(in super::super) struct RolloutCaches {
    pub deployments: Arc<ObjectCache<MachineDeployment>>,
    pub sets: Arc<ObjectCache<MachineSet>>,
    pub machines: Arc<ObjectCache<Machine>>,
    /// True while this process leads the deployment controller, which removes the annotations after the rollout.
    pub is_leading: Arc<AtomicBool>,
}

impl RolloutNodes {
    pub(in super::super) fn fill(&self, caches: RolloutCaches) {
        // A cell registers each kind once.
        drop(self.0.set(caches));
    }

    /// The Machine is one of the new set of a rollout that goes on. False if another process may lead the deployment
    /// controller.
    pub(crate) fn are_annotated(&self, machine: &Machine) -> bool {
        let leading = self.0.get().filter(|caches| caches.is_leading.load(Ordering::Relaxed));
        leading.is_some_and(|caches| caches.is_rolled_to(machine).unwrap_or_default())
    }
}

impl RolloutCaches {
    fn is_rolled_to(&self, machine: &Machine) -> Option<bool> {
        let of_machine = owner::controller_of(&machine.metadata)?;
        let set = self.sets.get(&Key::beside(&machine.metadata, &of_machine.name))?;
        let of_set =
            owner::controller_of(&set.metadata).filter(|_| set.metadata.uid.as_ref() == Some(&of_machine.uid))?;
        let deployment = self.deployments.get(&Key::beside(&set.metadata, &of_set.name))?;
        let spec = &deployment.spec;
        let is_rolled = deployment.metadata.uid.as_ref() == Some(&of_set.uid)
            && deployment.metadata.deletion_timestamp.is_none()
            && !spec.paused
            && set.spec.makes(&spec.template);
        let is_old = |other: &Arc<MachineSet>| self.has_machines(other) && !other.spec.makes(&spec.template);
        Some(is_rolled && self.sets.by(machine_set::BY_CONTROLLER, &of_set.uid).iter().any(is_old))
    }

    /// The set has Machines or will create some.
    fn has_machines(&self, set: &MachineSet) -> bool {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        set.spec.replicas > 0 || self.machines.with(machine::BY_CONTROLLER, uid, |own| !own.is_empty())
    }
}
