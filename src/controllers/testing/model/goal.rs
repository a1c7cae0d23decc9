//! What there is when the wish is met.

use std::fmt::Write as _;

use kube::ResourceExt;

use super::{Model, manager::Controller, wish::POOL};
use crate::api::{
    labels,
    machine::{Machine, MachinePhase},
    node::Node,
    reasons::{ConditionReason, ConditionType},
};

impl Model {
    /// The wish is met, and everybody is done with it.
    pub(super) fn is_at_rest(&self) -> bool {
        self.manager.is_idle()
            && self.agenda.is_empty()
            && self.cluster.unreported().iter().all(|count| *count == 0)
            && self.what_is_missing().is_empty()
    }

    /// The Machines are as wished, and no older wish is on its way.
    pub(super) fn is_settled(&self) -> bool {
        let [deployments, sets, machines, ..] = self.cluster.unreported();
        let is_current = |set: &crate::api::machine::MachineSet| {
            let wanted =
                if set.spec.template.spec.class.name == self.wish.class_name() { self.wish.replicas } else { 0 };
            set.spec.replicas == wanted
        };
        deployments + sets + machines == 0
            && !self.wish.is_deleted
            && self.cluster.sets.all().all(|set| is_current(set))
            && self.missing_machines().is_empty()
    }

    /// Everything that is not as it should be in the end.
    pub(super) fn what_is_missing(&self) -> Vec<String> {
        if self.wish.is_deleted {
            return self.what_is_left();
        }
        let mut missing = self.missing_machines();
        let machines: Vec<_> = self.cluster.machines.all().collect();
        if self.cloud.vms.len() != machines.len() {
            missing.push(format!("{} VMs", self.cloud.vms.len()));
        }
        let nodes = self.cluster.nodes.all().count();
        if nodes != machines.len() {
            missing.push(format!("{nodes} nodes"));
        }
        for machine in machines {
            if !self.cloud.vms.contains_key(&machine.spec.provider_id) {
                missing.push(format!("the VM of {}", machine.name_any()));
            }
            let node = machine.node_name().and_then(|name| self.cluster.nodes.get(name));
            missing.extend(self.flaw_of_node(machine, node.map(AsRef::as_ref)));
        }
        self.check_statuses(&mut missing);
        missing
    }

    fn missing_machines(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let count = self.cluster.machines.all().count();
        let wanted = usize::try_from(self.wish.replicas).unwrap();
        if count != wanted {
            missing.push(format!("{count} machines of {wanted}"));
        }
        let class = self.wish.class_name();
        for machine in self.cluster.machines.all() {
            let is_right = machine.phase() == MachinePhase::Running
                && machine.metadata.deletion_timestamp.is_none()
                && machine.spec.class.name == class;
            if !is_right {
                let phase = machine.phase().as_str();
                missing.push(format!("{} is {phase:?} and of {}", machine.name_any(), machine.spec.class.name));
            }
        }
        missing
    }

    fn flaw_of_node(&self, machine: &Machine, node: Option<&Node>) -> Option<String> {
        let Some(node) = node else { return Some(format!("the node of {}", machine.name_any())) };
        let name = node.name_any();
        let label = |key: &str| node.labels().get(key).cloned().unwrap_or_default();
        if label(labels::MACHINE_NAME) != machine.name_any() {
            return Some(format!("node {name} does not name {}", machine.name_any()));
        }
        if label("pool") != self.wish.node_label() {
            return Some(format!("node {name} has label {}", label("pool")));
        }
        if !node.spec.taints.is_empty() || node.annotations().contains_key(labels::SCALE_DOWN_DISABLED) {
            return Some(format!("node {name} is marked as if a rollout went on"));
        }
        if !node.finalizers().iter().any(|finalizer| finalizer == labels::NODE_FINALIZER) {
            return Some(format!("node {name} may go at any time"));
        }
        None
    }

    fn check_statuses(&self, missing: &mut Vec<String>) {
        let Some(deployment) = self.cluster.deployments.get(POOL) else {
            return missing.push("the deployment".to_owned());
        };
        let wanted = self.wish.replicas;
        let status = deployment.status.clone().unwrap_or_default();
        let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
        if counts != [wanted; 4] || status.unavailable_replicas != 0 || !status.failed_machines.is_empty() {
            missing.push(format!("deployment status {counts:?}"));
        }
        if Some(status.observed_generation) != deployment.metadata.generation {
            missing.push("the deployment's generation is not observed".to_owned());
        }
        let progress = status.conditions.iter().find(|it| it.type_ == ConditionType::Progressing.as_str());
        let reason = progress.map(|it| it.reason.as_str()).unwrap_or_default();
        if reason != ConditionReason::NewMachineSetAvailable.as_str() {
            missing.push(format!("the deployment's progress is {reason:?}"));
        }
        for set in self.cluster.sets.all() {
            let status = set.status.clone().unwrap_or_default();
            let counts = [status.replicas, status.ready_replicas, status.available_replicas];
            let is_observed = Some(status.observed_generation) == set.metadata.generation;
            if counts != [set.spec.replicas; 3] || !is_observed || !status.conditions.is_empty() {
                missing.push(format!("set {} of {}: status {counts:?}", set.name_any(), set.spec.replicas));
            }
        }
    }

    fn what_is_left(&self) -> Vec<String> {
        let cluster = &self.cluster;
        let left = [
            ("deployments", cluster.deployments.all().count()),
            ("sets", cluster.sets.all().count()),
            ("machines", cluster.machines.all().count()),
            ("nodes", cluster.nodes.all().count()),
            ("VMs", self.cloud.vms.len()),
            ("held classes", cluster.classes.all().filter(|class| !class.finalizers().is_empty()).count()),
        ];
        left.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what} left")).collect()
    }

    /// Everything there is, for a person.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("-- {:?}\n", self.wish);
        for set in self.cluster.sets.all() {
            let (name, class) = (set.name_any(), &set.spec.template.spec.class.name);
            let going = if set.metadata.deletion_timestamp.is_some() { ", going" } else { "" };
            writeln!(text, "set {name} of {class}: {} wanted{going}", set.spec.replicas).unwrap();
        }
        for machine in self.cluster.machines.all() {
            let going = if machine.metadata.deletion_timestamp.is_some() { ", going" } else { "" };
            let operation = machine.status.clone().unwrap_or_default().last_operation.description;
            let node = machine.node_name().unwrap_or("-");
            let (name, phase, id) = (machine.name_any(), machine.phase().as_str(), &machine.spec.provider_id);
            writeln!(text, "machine {name} [{phase}] VM {id} node {node}{going}: {operation}").unwrap();
        }
        for (id, server) in &self.cloud.vms {
            writeln!(text, "VM {id} of {} node {}", server.owner, server.node).unwrap();
        }
        for node in self.cluster.nodes.all() {
            let ready = node.status.conditions.iter().find(|it| it.type_ == "Ready").map(|it| it.status.clone());
            let going = if node.metadata.deletion_timestamp.is_some() { ", going" } else { "" };
            writeln!(text, "node {} ready {}{going}", node.name_any(), ready.unwrap_or_default()).unwrap();
        }
        let jobs = |jobs: Vec<&(Controller, crate::runtime::cache::Key)>| -> String {
            jobs.iter().map(|(controller, key)| format!("{controller:?} {}, ", key.name)).collect()
        };
        writeln!(text, "under way: {}", jobs(self.manager.passes.keys().collect())).unwrap();
        writeln!(text, "pending: {}", jobs(self.manager.pending.iter().collect())).unwrap();
        writeln!(text, "to wake: {}", jobs(self.manager.wakes.keys().collect())).unwrap();
        write!(text, "unreported: {:?}", self.cluster.unreported()).unwrap();
        text
    }
}
