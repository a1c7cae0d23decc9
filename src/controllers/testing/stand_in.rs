//! The controllers below a deployment in their simplest form: sets create and choose Machines, Machines boot and are
//! deleted.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::World;
use crate::object::{
    deletion_order::{self, DeletionOrder},
    in_place, owner,
};
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, MachineSet},
    node::{Node, NodeCondition},
    reasons::{InPlaceUpdateReason, NodeConditionType},
};

/// One thing that can happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// A set brings its status up to date.
    Observed { set: String },
    /// A set makes a Machine.
    Created { set: String },
    /// A set deletes the Machine that is worth least.
    Chosen { set: String, machine: String },
    /// A Machine joined the cluster, or recovered.
    Running { machine: String },
    /// A Machine lost contact.
    Lost { machine: String },
    /// A Machine becomes Failed.
    Failed { machine: String },
    /// The selected Node of a Machine is drained, and its update begins.
    Updating { machine: String },
    /// The agent on the Node updated it.
    Updated { machine: String },
    /// The agent on the Node could not update it.
    NotUpdated { machine: String },
    /// A VM and its Machine are deleted.
    Gone { machine: String },
    /// A deleted set has no Machines left.
    SetGone { set: String },
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed { set } => write!(f, "set {set} observes its spec"),
            Self::Created { set } => write!(f, "set {set} creates a machine"),
            Self::Chosen { machine, .. } => write!(f, "machine {machine} is being deleted"),
            Self::Running { machine } => write!(f, "machine {machine} is running"),
            Self::Lost { machine } => write!(f, "machine {machine} is lost"),
            Self::Failed { machine } => write!(f, "machine {machine} has failed"),
            Self::Updating { machine } => write!(f, "machine {machine} is drained and updated in place"),
            Self::Updated { machine } => write!(f, "machine {machine} is updated"),
            Self::NotUpdated { machine } => write!(f, "machine {machine} could not be updated"),
            Self::Gone { machine } => write!(f, "machine {machine} is gone"),
            Self::SetGone { set } => write!(f, "set {set} is gone"),
        }
    }
}

impl World {
    /// The next actions of the controllers, in any order. Empty when they have nothing to do.
    pub(crate) fn due(&self) -> Vec<Happening> {
        let mut due = Vec::new();
        for set in self.sets.all() {
            self.due_for_set(set, &mut due);
        }
        for machine in self.machines.all() {
            let machine_name = machine.name_any();
            if machine.is_terminating() {
                due.push(Happening::Gone { machine: machine_name });
            } else if matches!(machine.phase(), MachinePhase::New | MachinePhase::Pending | MachinePhase::Unknown) {
                let is_served = !self.unserved.contains(&machine.spec.class.name);
                due.extend(is_served.then_some(Happening::Running { machine: machine_name }));
            } else {
                due.extend(self.due_update(machine));
            }
        }
        due
    }

    /// The next step of an in-place update. Nodes that cannot be updated are in [`World::stubborn`].
    fn due_update(&self, machine: &Machine) -> Option<Happening> {
        let (name, node) = (machine.name_any(), self.nodes.get(machine.node_name()?)?);
        match machine.phase() {
            MachinePhase::InPlaceUpdating if self.stubborn.contains(&name) => {
                Some(Happening::NotUpdated { machine: name })
            }
            MachinePhase::InPlaceUpdating => Some(Happening::Updated { machine: name }),
            MachinePhase::InPlaceUpdateFailed => Some(Happening::Failed { machine: name }),
            MachinePhase::Running if in_place::is_selected(node) && in_place::result_of(node).is_none() => {
                Some(Happening::Updating { machine: name })
            }
            _ => None,
        }
    }

    fn due_for_set(&self, set: &MachineSet, due: &mut Vec<Happening>) {
        let name = set.name_any();
        let mut live: Vec<_> = self.machines_of(set).filter(|machine| !machine.is_terminating()).collect();
        live.sort_by_cached_key(|machine| DeletionOrder::for_machine(machine, self.clock.now));
        let count = i32::try_from(live.len()).unwrap();
        let is_deleting = set.metadata.deletion_timestamp.is_some();
        let wanted = if is_deleting { 0 } else { set.spec.replicas };
        let status = set.status.clone().unwrap_or_default();
        let exist = i32::try_from(self.machines_of(set).count()).unwrap();
        if is_deleting && self.machines_of(set).next().is_none() {
            due.push(Happening::SetGone { set: name });
            return;
        }
        if status.observed_generation < set.metadata.generation.unwrap() || status.replicas != exist {
            due.push(Happening::Observed { set: name.clone() });
        }
        let is_held = set.labels().contains_key(labels::SCALE_UP_DISABLED);
        // Machines that just moved here are not deleted.
        live.retain(|machine| !machine.labels().contains_key(labels::UPDATE_RESULT));
        let surplus = i32::try_from(live.len()).unwrap() > wanted;
        let scaled_at = deletion_order::scaled_at(&set.metadata);
        let is_due = |machine: &Machine| {
            surplus || machine.phase() == MachinePhase::Failed || deletion_order::is_chosen(machine, scaled_at)
        };
        if count < wanted {
            due.extend((!is_held).then_some(Happening::Created { set: name }));
        } else if let Some(least) = live.first()
            && is_due(least)
        {
            due.push(Happening::Chosen { set: name, machine: least.name_any() });
        }
    }

    /// The possible faults.
    pub(crate) fn mishaps(&self) -> Vec<Happening> {
        let live = self.machines.all().filter(|machine| !machine.is_terminating());
        live.filter_map(|machine| match machine.phase() {
            MachinePhase::Running => Some(Happening::Lost { machine: machine.name_any() }),
            MachinePhase::Unknown | MachinePhase::Pending => Some(Happening::Failed { machine: machine.name_any() }),
            _ => None,
        })
        .collect()
    }

    /// Lets it happen.
    pub(crate) fn happen(&mut self, happening: &Happening) {
        let phase = match happening {
            Happening::Observed { set } => {
                let replicas = i32::try_from(self.machines_of(&self.sets.get(set).unwrap().clone()).count()).unwrap();
                let mut status = self.sets.get(set).unwrap().status.clone().unwrap_or_default();
                status.observed_generation = self.sets.get(set).unwrap().metadata.generation.unwrap();
                status.replicas = replicas;
                self.sets.write_status(&mut self.clock, set, status).unwrap();
                return;
            }
            Happening::Created { set } => {
                let machine = machine_of(self.sets.get(set).unwrap());
                self.machines.create(&mut self.clock, machine).unwrap();
                return;
            }
            Happening::Gone { machine } => {
                if let Some(node) = self.machines.get(machine).unwrap().node_name() {
                    let node = node.to_owned();
                    self.nodes.delete(&mut self.clock, &node).unwrap();
                }
                self.machines.delete(&mut self.clock, machine).unwrap();
                return self.let_go(machine);
            }
            Happening::SetGone { set } => {
                return self.sets.edit(&mut self.clock, set, |set| set.metadata.finalizers = None);
            }
            Happening::Updating { machine } => return self.update(machine, MachinePhase::InPlaceUpdating, None),
            Happening::Updated { machine } => {
                return self.update(machine, MachinePhase::Running, Some(labels::SUCCESSFUL));
            }
            Happening::NotUpdated { machine } => {
                return self.update(machine, MachinePhase::InPlaceUpdateFailed, Some(labels::FAILED));
            }
            Happening::Chosen { .. } => MachinePhase::Terminating,
            Happening::Running { .. } => MachinePhase::Running,
            Happening::Lost { .. } => MachinePhase::Unknown,
            Happening::Failed { .. } => MachinePhase::Failed,
        };
        let (Happening::Chosen { machine, .. }
        | Happening::Running { machine }
        | Happening::Lost { machine }
        | Happening::Failed { machine }) = happening
        else {
            return;
        };
        if phase == MachinePhase::Running {
            self.join(machine);
        }
        self.machines.edit(&mut self.clock, machine, |machine| {
            machine.status.get_or_insert_default().current_status.phase = phase;
        });
    }

    /// An update of the Node and the Machine by the machine controller and the agent.
    fn update(&mut self, machine: &str, phase: MachinePhase, result: Option<&str>) {
        let node = self.machines.get(machine).unwrap().node_name().unwrap().to_owned();
        self.nodes.edit(&mut self.clock, &node, |node| {
            node.spec.unschedulable = true;
            if let Some(result) = result {
                node.labels_mut().insert(labels::UPDATE_RESULT, result);
            }
        });
        let reason = match result {
            None => InPlaceUpdateReason::ReadyForUpdate,
            Some(labels::SUCCESSFUL) => InPlaceUpdateReason::UpdateSuccessful,
            Some(_) => InPlaceUpdateReason::UpdateFailed,
        };
        self.machines.edit(&mut self.clock, machine, |machine| {
            let status = machine.status.get_or_insert_default();
            status.current_status.phase = phase;
            status.conditions = vec![NodeCondition {
                type_: NodeConditionType::InPlaceUpdate.as_str().into(),
                status: "True".into(),
                reason: Some(reason.as_str().into()),
                ..NodeCondition::default()
            }];
        });
    }

    fn join(&mut self, machine: &str) {
        let node = format!("node-{machine}");
        if self.nodes.get(&node).is_none() {
            let metadata = ObjectMeta { name: Some(node.clone()), ..ObjectMeta::default() }.into();
            self.nodes.create(&mut self.clock, Node { metadata, ..Node::default() }).unwrap();
            self.machines.edit(&mut self.clock, machine, |machine| {
                machine.labels_mut().insert(labels::NODE.to_owned(), node);
            });
        }
    }

    fn let_go(&mut self, machine: &str) {
        if self.machines.get(machine).is_some() {
            self.machines.edit(&mut self.clock, machine, |machine| machine.metadata.finalizers = None);
        }
    }
}

fn machine_of(set: &MachineSet) -> Machine {
    let template = &set.spec.template;
    Machine {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", set.name_any())),
            labels: Some(template.metadata.labels.clone()),
            finalizers: Some(vec![labels::FINALIZER.to_owned()]),
            owner_references: Some(vec![owner::reference_to(set).unwrap()]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
