//! All kinds together, and how plans meet them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::store::{Clock, Refused, Store};
use crate::{machine_deployment, object::owner};
use kube::{Resource, ResourceExt};
use mcm_api::{
    machine::{Machine, MachineDeployment, MachineSet},
    node::Node,
    selector::Selector,
};

/// One namespace of a control cluster and the Nodes of its target cluster.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub clock: Clock,
    pub deployments: Store<MachineDeployment>,
    pub sets: Store<MachineSet>,
    pub machines: Store<Machine>,
    pub nodes: Store<Node>,
    /// Machines whose Nodes cannot be updated in place.
    pub stubborn: BTreeSet<String>,
    /// Classes of which the cloud makes no VM: their Machines stay pending.
    pub unserved: BTreeSet<String>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::new(),
            deployments: Store::default(),
            sets: Store::default(),
            machines: Store::default(),
            nodes: Store::default(),
            stubborn: BTreeSet::new(),
            unserved: BTreeSet::new(),
        }
    }

    /// The snapshot that the deployment's controller would observe.
    pub(crate) fn deployment_snapshot(&self, name: &str) -> Option<machine_deployment::Snapshot> {
        let deployment = self.deployments.get(name)?.clone();
        let selector = Selector::parse(deployment.spec.selector.as_ref()).ok();
        let belongs = |set: &MachineSet| {
            let controller = controller_uid(set);
            controller == deployment.uid()
                || (controller.is_none()
                    && selector.as_ref().is_some_and(|selector| selector.matches(set.metadata.labels.as_ref())))
        };
        let sets: Vec<_> = self.sets.all().filter(|set| belongs(set)).cloned().collect();
        let owned = |machine: &Machine| sets.iter().any(|set| set.uid() == controller_uid(machine));
        let machines: Vec<_> = self.machines.all().filter(|machine| owned(machine)).cloned().collect();
        let is_rival =
            |other: &MachineDeployment| other.name_any() != name && other.metadata.deletion_timestamp.is_none();
        let nodes: BTreeMap<String, Arc<Node>> = machines
            .iter()
            .filter_map(|machine| self.nodes.get(machine.node_name()?))
            .map(|node| (node.name_any(), node.clone()))
            .collect();
        Some(machine_deployment::Snapshot {
            policy: machine_deployment::DeploymentPolicy { annotate_nodes: true, has_target: true },
            rivals: self.deployments.all().filter(|other| is_rival(other)).cloned().collect(),
            deployment,
            sets,
            machines,
            in_flight: BTreeMap::new(),
            unreadable_sets: Vec::new(),
            unreadable_machines: Vec::new(),
            nodes,
            nodes_unknown: None,
            node_retries: BTreeMap::new(),
            strays: Default::default(),
            sets_paused_until: None,
            is_zero_written: false,
            failure: None,
            hold: None,
            now: self.clock.now,
        })
    }

    /// Carries out one action of a deployment's plan, which was made from `seen`.
    pub(crate) fn apply_deployment_action(
        &mut self,
        seen: &machine_deployment::Snapshot,
        action: &machine_deployment::Action,
    ) -> Result<(), Refused> {
        use machine_deployment::Action;
        let clock = &mut self.clock;
        let name = seen.deployment.name_any();
        match action {
            // Earlier steps of the same plan may have written the deployment: the shell follows its version.
            Action::PatchDeployment(patch) | Action::RestoreReplicas(patch) => {
                let current = self.deployments.get(&name).ok_or(Refused::NotFound)?.clone();
                self.deployments.patch(clock, &current, patch).map(drop)
            }
            Action::PatchSet { set, patch } => self.sets.patch(clock, set, patch).map(drop),
            Action::PatchMachine { machine, patch } => self.machines.patch(clock, machine, patch).map(drop),
            Action::PatchNode { node, patch, .. } => self.nodes.patch(clock, node, &patch.unpack()).map(drop),
            Action::CreateSet(set) => self.sets.create(clock, MachineSet::clone(set)).map(drop),
            Action::TrySet(_) => Ok(()),
            Action::DeleteSet(set) => self.sets.delete(clock, &set.name_any()),
            Action::WriteStatus(status) => self.deployments.write_status(clock, &name, status).map(drop),
        }
    }

    /// Machines that a set controls.
    pub(crate) fn machines_of<'a>(&'a self, set: &'a MachineSet) -> impl Iterator<Item = &'a Arc<Machine>> {
        self.machines.all().filter(|machine| controller_uid(machine.as_ref()) == set.uid())
    }
}

/// UID of the controller of an object.
fn controller_uid(object: &impl Resource) -> Option<String> {
    owner::controller_of(object.meta()).map(|owner| owner.uid.clone())
}
