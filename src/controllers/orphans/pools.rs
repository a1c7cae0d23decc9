//! The pool that a VM was created for, and whether it can do without it.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::object::owner;
use mcm_api::{
    machine::{Machine, MachineConfiguration, MachineDeployment, MachinePhase, MachineSet},
    selector::Selector,
};

/// A MachineDeployment with its sets, or a MachineSet without a deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaPool {
    /// Its name, with which the names of its Machines begin.
    pub name: String,
    /// Desired replicas.
    pub replicas: usize,
    /// UIDs of its sets.
    sets: BTreeSet<String>,
    /// Timeouts of its template.
    pub configuration: MachineConfiguration,
}

/// The pools of a namespace, as the API server has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespacePools {
    pools: Vec<ReplicaPool>,
    /// Names and selectors of all sets and deployments.
    selectors: Vec<(String, Option<LabelSelector>)>,
}

impl NamespacePools {
    /// The pools of these objects.
    pub fn new(deployments: &[MachineDeployment], sets: &[MachineSet]) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let of_deployment = |one: &MachineDeployment| {
            let uid = text(&one.metadata.uid);
            let own = sets.iter().filter(|set| owner::is_controlled_by(&set.metadata, &uid));
            ReplicaPool {
                name: text(&one.metadata.name),
                replicas: usize::try_from(one.spec.replicas).unwrap_or_default(),
                sets: own.map(|set| text(&set.metadata.uid)).collect(),
                configuration: one.spec.template.spec.configuration.clone(),
            }
        };
        let alone = sets.iter().filter(|set| owner::controller_of(&set.metadata).is_none());
        let of_set = |one: &MachineSet| ReplicaPool {
            name: text(&one.metadata.name),
            replicas: usize::try_from(one.spec.replicas).unwrap_or_default(),
            sets: [text(&one.metadata.uid)].into(),
            configuration: one.spec.template.spec.configuration.clone(),
        };
        let selectors = deployments.iter().map(|one| (text(&one.metadata.name), one.spec.selector.clone()));
        Self {
            pools: deployments.iter().map(of_deployment).chain(alone.map(of_set)).collect(),
            selectors: selectors
                .chain(sets.iter().map(|one| (text(&one.metadata.name), one.spec.selector.clone())))
                .collect(),
        }
    }

    /// The pool of a Machine of this name: its name begins with that of the pool.
    pub(super) fn of_machine(&self, machine: &str) -> Option<&ReplicaPool> {
        let is_of = |pool: &&ReplicaPool| machine.strip_prefix(&pool.name).is_some_and(|rest| rest.starts_with('-'));
        self.pools.iter().filter(is_of).max_by_key(|pool| pool.name.len())
    }

    /// The pools that must have their replicas before a Node of a Machine of this name is drained: its pool or, if that does
    /// not exist, all of them, because any may use the Node.
    fn concerned(&self, machine: &str) -> Vec<&ReplicaPool> {
        self.of_machine(machine).map_or_else(|| self.pools.iter().collect(), |pool| vec![pool])
    }

    /// A pool that cannot do without the Node of a Machine of this name, as text.
    pub(super) fn short_of(&self, machine: &str, machines: &[Arc<Machine>], lost: &BTreeSet<String>) -> Option<String> {
        self.concerned(machine).into_iter().find_map(|pool| {
            let running = machines.iter().filter(|one| pool.counts(one, lost)).count();
            let (name, replicas) = (&pool.name, pool.replicas);
            (running < replicas).then(|| format!("the machines of {name}: {running} run < {replicas} replicas"))
        })
    }

    /// A set or deployment that would adopt this Machine.
    pub(super) fn adopter(&self, machine: &Machine) -> Option<&str> {
        let takes = |selector: &Option<LabelSelector>| {
            Selector::parse(selector.as_ref()).is_ok_and(|one| one.matches(machine.metadata.labels.as_ref()))
        };
        self.selectors.iter().find(|(_, selector)| takes(selector)).map(|(name, _)| name.as_str())
    }
}

impl ReplicaPool {
    /// A Machine serves the pool. `lost` are UIDs of Machines whose VM is not in the list.
    fn counts(&self, machine: &Machine, lost: &BTreeSet<String>) -> bool {
        let set = owner::controller_of(&machine.metadata).map(|set| set.uid.as_str()).unwrap_or_default();
        let uid = machine.metadata.uid.as_deref().unwrap_or_default();
        self.sets.contains(set)
            && !machine.is_terminating()
            && machine.phase() == MachinePhase::Running
            && !lost.contains(uid)
    }
}
