//! Checks that the world has converged to the desired state.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    super::api_server::{CLASSES, DEPLOYMENTS, Kind, MACHINES, NODES, SETS, ServerObject},
    desired_state::{DesiredState, POOL},
    freezes::conditions_of,
    in_place::{is_candidate, is_selected, result_of},
    kubelet::ready_status,
    world::{NAMESPACE, World},
};
use mcm_api::{
    labels,
    reasons::{ConditionReason, ConditionType},
};

impl World {
    /// The desired state is reached, and nothing more will happen.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_quiet() && self.differences().is_empty()
    }

    /// The differences from the desired state.
    pub(super) fn differences(&self) -> Vec<String> {
        let desired = self.desired.lock().clone();
        let mut missing = if desired.is_deleted { self.what_is_left() } else { self.what_is_amiss(&desired) };
        let cloud = self.cloud.lock();
        let foreign = cloud.vms.values().filter(|server| server.is_foreign).count();
        if foreign != cloud.foreign {
            missing.push(format!("{foreign} VMs of others"));
        }
        missing
    }

    fn what_is_amiss(&self, desired: &DesiredState) -> Vec<String> {
        let mut missing = self.missing_machines(desired);
        let machines = self.control.all(&MACHINES);
        let vms = self.cloud.lock().own().count();
        if vms != machines.len() {
            missing.push(format!("{vms} VMs"));
        }
        let nodes = self.target.all(&NODES).len();
        if nodes != machines.len() {
            missing.push(format!("{nodes} nodes"));
        }
        for machine in &machines {
            let id = text(machine, "/spec/providerID");
            if !self.cloud.lock().vms.contains_key(id) {
                missing.push(format!("the VM of {}", machine.name()));
            }
            missing.extend(self.flaw_of_node(machine, desired));
        }
        self.check_statuses(desired, &mut missing);
        missing
    }

    /// Missing Machines.
    pub(super) fn missing_machines(&self, desired: &DesiredState) -> Vec<String> {
        let mut missing = Vec::new();
        let machines = self.control.all(&MACHINES);
        if machines.len() != usize::try_from(desired.replicas).unwrap() {
            missing.push(format!("{} machines of {}", machines.len(), desired.replicas));
        }
        for machine in &machines {
            let (phase, class) = (text(machine, "/status/currentStatus/phase"), text(machine, "/spec/class/name"));
            let is_current = desired.is_of_template(machine, self.areas);
            if phase != "Running" || machine.is_terminating() || !is_current {
                missing.push(format!("{} is {phase:?} and of {class}, current: {is_current}", machine.name()));
            }
            if !text(machine, "/status/currentStatus/preserveExpiryTime").is_empty() {
                missing.push(format!("{} is preserved", machine.name()));
            }
            if label(machine, labels::DEPLOYMENT_NAME) != POOL {
                missing.push(format!("{} is not in the pool", machine.name()));
            }
            if !label(machine, labels::UPDATE_RESULT).is_empty() {
                missing.push(format!("{} is marked as if it moved", machine.name()));
            }
        }
        missing
    }

    pub(super) fn has_machine_in(&self, phase: &str) -> bool {
        self.control.all(&MACHINES).iter().any(|machine| text(machine, "/status/currentStatus/phase") == phase)
    }

    fn flaw_of_node(&self, machine: &ServerObject, desired: &DesiredState) -> Option<String> {
        let node = self.target.get(&NODES, "", label(machine, labels::NODE));
        let Some(node) = node else { return Some(format!("the node of {}", machine.name())) };
        let name = node.name();
        if label(&node, labels::MACHINE_NAME) != machine.name() {
            return Some(format!("node {name} does not name {}", machine.name()));
        }
        if label(&node, "pool") != desired.node_label() {
            return Some(format!("node {name} has label {}", label(&node, "pool")));
        }
        let is_tainted = node.value["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
        if is_tainted || !node.value["metadata"]["annotations"][labels::SCALE_DOWN_DISABLED].is_null() {
            return Some(format!("node {name} is marked as if a rollout went on"));
        }
        let is_closed = node.value["spec"]["unschedulable"] == true;
        if is_closed || is_candidate(&node) || is_selected(&node) || !result_of(&node).is_empty() {
            return Some(format!("node {name} is closed, or marked as if it was updated in place"));
        }
        if node.is_terminating() {
            return Some(format!("node {name} is going"));
        }
        if !node.finalizers().any(|finalizer| finalizer == labels::NODE_FINALIZER) {
            return Some(format!("node {name} may go at any time"));
        }
        None
    }

    fn check_statuses(&self, desired: &DesiredState, missing: &mut Vec<String>) {
        let Some(deployment) = self.control.get(&DEPLOYMENTS, NAMESPACE, POOL) else {
            return missing.push("the deployment".to_owned());
        };
        let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        let counts = counts.map(|field| number(&deployment, &format!("/status/{field}")));
        let is_complete = counts == [i64::from(desired.replicas); 4];
        let others = number(&deployment, "/status/unavailableReplicas");
        let failed = deployment.value["status"]["failedMachines"].as_array().is_some_and(|all| !all.is_empty());
        if !is_complete || others != 0 || failed {
            missing.push(format!("deployment status {counts:?}"));
        }
        if !is_observed(&deployment) {
            missing.push("the deployment's generation is not observed".to_owned());
        }
        if is_frozen(&deployment) || !condition(&deployment, ConditionType::Frozen.as_str()).is_empty() {
            missing.push("the deployment is frozen".to_owned());
        }
        let reason = condition(&deployment, ConditionType::Progressing.as_str());
        if reason != ConditionReason::NewMachineSetAvailable.as_str() {
            missing.push(format!("the deployment's progress is {reason:?}"));
        }
        for set in self.control.all(&SETS) {
            let counts = ["replicas", "readyReplicas", "availableReplicas"];
            let counts = counts.map(|field| number(&set, &format!("/status/{field}")));
            let has_conditions =
                set.value["status"][conditions_of(&SETS)].as_array().is_some_and(|all| !all.is_empty());
            let replicas = number(&set, "/spec/replicas");
            let is_held = !label(&set, labels::SCALE_UP_DISABLED).is_empty();
            if counts != [replicas; 3] || !is_observed(&set) || has_conditions || is_held || is_frozen(&set) {
                let (meta, conditions) = (&set.value["metadata"], &set.value["status"][conditions_of(&SETS)]);
                missing.push(format!("set {} of {replicas}: status {counts:?}, {meta}, {conditions}", set.name()));
            }
        }
    }

    fn what_is_left(&self) -> Vec<String> {
        let held = self.control.all(&CLASSES).iter().filter(|class| class.finalizers().next().is_some()).count();
        let count = |kind: &Kind| self.control.all(kind).len();
        let left = [
            ("deployments", count(&DEPLOYMENTS)),
            ("sets", count(&SETS)),
            ("machines", count(&MACHINES)),
            ("nodes", self.target.all(&NODES).len()),
            ("VMs", self.cloud.lock().own().count()),
            ("held classes", held),
        ];
        left.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what} left")).collect()
    }

    /// The whole state, for a reader.
    pub(super) fn describe(&self) -> String {
        let mut lines = format!("-- {:?}\n", self.desired.lock());
        let going = |object: &ServerObject| if object.is_terminating() { ", going" } else { "" };
        for set in self.control.all(&SETS) {
            let class = text(&set, "/spec/template/spec/class/name");
            writeln!(
                lines,
                "set {} of {class}: {} replicas{}",
                set.name(),
                number(&set, "/spec/replicas"),
                going(&set)
            )
            .unwrap();
        }
        for machine in self.control.all(&MACHINES) {
            let (phase, id) = (text(&machine, "/status/currentStatus/phase"), text(&machine, "/spec/providerID"));
            let operation = text(&machine, "/status/lastOperation/description");
            let node = label(&machine, labels::NODE);
            writeln!(lines, "machine {} [{phase}] VM {id} node {node}{}: {operation}", machine.name(), going(&machine))
                .unwrap();
        }
        for (id, server) in &self.cloud.lock().vms {
            writeln!(lines, "VM {id} of {} node {}", server.owner, server.node).unwrap();
        }
        for node in self.target.all(&NODES) {
            writeln!(lines, "node {} ready {}{}", node.name(), ready_status(&node), going(&node)).unwrap();
        }
        lines
    }
}

fn text<'a>(object: &'a ServerObject, path: &str) -> &'a str {
    object.value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &ServerObject, path: &str) -> i64 {
    object.value.pointer(path).and_then(Value::as_i64).unwrap_or_default()
}

fn label<'a>(object: &'a ServerObject, key: &str) -> &'a str {
    object.value["metadata"]["labels"][key].as_str().unwrap_or_default()
}

/// By its label, or while the end of a freeze is requested.
fn is_frozen(object: &ServerObject) -> bool {
    !label(object, labels::FREEZE).is_empty() || !object.value["metadata"]["annotations"][labels::UNFREEZE].is_null()
}

fn is_observed(object: &ServerObject) -> bool {
    number(object, "/status/observedGeneration") == number(object, "/metadata/generation")
}

fn condition<'a>(object: &'a ServerObject, of_type: &str) -> &'a str {
    let conditions = object.value["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|it| it["type"] == of_type);
    found.and_then(|it| it["reason"].as_str()).unwrap_or_default()
}
