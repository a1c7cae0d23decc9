//! Autonomous changes in the target cluster: Nodes join, become ready or not ready, and pods end.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    super::api_server::{ATTACHMENTS, NODES, OUTSIDE, PODS, ServerObject, WriteRecord},
    world::World,
};
use mcm_api::labels;
use mcm_runtime::clock::TimeSource;

pub(super) const POD_NAMESPACE: &str = "default";
/// Key and value of the label that all pods have.
pub(super) const POD_LABEL: &str = "app";
/// After this silence of its kubelet a Node is unknown.
const CONTACT: Duration = Duration::from_secs(40);

impl World {
    /// A new VM boots, or fails to boot.
    pub(super) fn boot(self: &Arc<Self>, id: &str) {
        if self.faults.rates().mishaps > 0 && self.faults.one_in(12) {
            return self.say("  it will never boot");
        }
        let id = id.to_owned();
        let after = self.faults.millis(200..90_000);
        self.later(after, move |world| world.join(&id));
    }

    fn join(self: &Arc<Self>, vm: &str) {
        let Some(name) = self.cloud.lock().vms.get(vm).map(|server| server.node.clone()) else { return };
        let held = self.target.get(&NODES, "", &name);
        if let Some(held) = &held
            && held.value["spec"]["providerID"] != vm
        {
            // A kubelet whose Node belongs to another VM cannot register.
            let vm = vm.to_owned();
            return self.later(Duration::from_secs(10), move |world| world.join(&vm));
        }
        if held.is_none() {
            // Pods of an earlier Node of the name.
            self.collect_pods();
            let node = json!({
                "metadata": { "name": name },
                "spec": { "providerID": vm },
                "status": { "conditions": [ready("False", self)] },
            });
            self.target.create(&NODES, node).unwrap();
            self.say(format!("node {name} joins"));
        }
        let after = self.faults.millis(100..20_000);
        let vm = vm.to_owned();
        self.later(after, move |world| world.become_ready(&name, &vm));
    }

    /// A Node is ready if its VM lives.
    pub(super) fn become_ready(self: &Arc<Self>, node: &str, vm: &str) {
        if self.cloud.lock().vms.contains_key(vm) {
            self.set_ready(node, "True");
            self.place_pods(node);
        }
    }

    /// A Node is not ready, for so long or for ever.
    pub(super) fn ail(self: &Arc<Self>, node: &str, for_seconds: Option<u64>) {
        self.set_ready(node, "False");
        let Some(seconds) = for_seconds else { return };
        let node = node.to_owned();
        self.later(Duration::from_secs(seconds), move |world| world.recover(&node));
    }

    pub(super) fn recover(self: &Arc<Self>, node: &str) {
        if self.has_its_vm(node) {
            self.set_ready(node, "True");
        }
    }

    /// The kubelet of a Node stops reporting.
    pub(super) fn lose_contact(self: &Arc<Self>, node: &str) {
        let (node, uid) = (node.to_owned(), self.uid_of_node(node));
        self.later(CONTACT, move |world| {
            if world.has_its_vm(&node) || world.uid_of_node(&node) != uid {
                return;
            }
            world.set_ready(&node, "Unknown");
            // A Node that joined in the last moment, and that no Machine ever knew, is left to the cloud controller.
            let held = world.target.get(&NODES, "", &node);
            if held.is_some_and(|held| held.value["metadata"]["labels"][labels::MACHINE_NAME].is_null()) {
                world.later(Duration::from_mins(5), move |world| world.sweep(&node));
            }
        });
    }

    /// The VM that joined as this Node exists. Another VM can have the Node's name by now.
    pub(super) fn has_its_vm(&self, node: &str) -> bool {
        let held = self.target.get(&NODES, "", node);
        let id = held.as_ref().and_then(|held| held.value["spec"]["providerID"].as_str());
        id.is_some_and(|id| self.cloud.lock().vms.contains_key(id))
    }

    /// The cloud controller removes a Node whose VM is deleted.
    pub(super) fn sweep(&self, node: &str) {
        if !self.has_its_vm(node) && self.target.get(&NODES, "", node).is_some() {
            self.say(format!("the cloud controller deletes node {node}"));
            // It may go at the same moment.
            drop(self.target.delete(&NODES, "", node));
        }
    }

    pub(super) fn uid_of_node(&self, node: &str) -> Option<String> {
        self.target.get(&NODES, "", node).map(|node| node.uid().to_owned())
    }

    fn set_ready(&self, name: &str, status: &str) {
        let Some(node) = self.target.get(&NODES, "", name) else { return };
        if ready_status(&node) == status {
            return;
        }
        self.say(format!("node {name} is ready: {status}"));
        let condition = ready(status, self);
        let edited = self.target.edit(&NODES, "", name, |node| {
            let conditions = node["status"]["conditions"].as_array_mut().unwrap();
            conditions.retain(|it| it["type"] != "Ready");
            conditions.push(condition);
        });
        edited.unwrap();
    }

    fn place_pods(&self, node: &str) {
        let has_pods = self.target.all(&PODS).iter().any(|pod| pod.value["spec"]["nodeName"] == node);
        let held = self.target.get(&NODES, "", node);
        let is_closed = held.is_none_or(|held| held.value["spec"]["unschedulable"] == true);
        if has_pods || is_closed {
            return;
        }
        let most = if self.areas.volumes { 6 } else { 3 };
        for _ in 0..self.faults.rng(|rng| rng.below(most)) {
            let name = self.faults.rng(|rng| format!("pod-{}", rng.roll() % 100_000));
            self.place_pod(&name, node, &Value::Null);
        }
    }

    /// With these volumes, or with new ones.
    pub(super) fn place_pod(&self, name: &str, node: &str, volumes: &Value) {
        let grace = self.faults.rng(|rng| rng.within(1..200));
        let mut pod = json!({
            "metadata": { "namespace": POD_NAMESPACE, "name": name, "labels": { POD_LABEL: POD_LABEL } },
            "spec": { "nodeName": node, "containers": [], "terminationGracePeriodSeconds": grace },
            "status": { "phase": "Running" },
        });
        if volumes.is_array() {
            pod["spec"]["volumes"] = volumes.clone();
        } else if self.areas.volumes && self.faults.one_in(2) {
            self.add_volumes(&mut pod);
        }
        // One of that name runs already.
        drop(self.target.create(&PODS, pod));
    }

    /// Ends pods, as kubelets do.
    pub(super) fn saw_pod(self: &Arc<Self>, write: &WriteRecord<'_>) {
        let (Some(before), Some(pod)) = (write.before, write.after) else { return };
        if before.is_terminating() || !pod.is_terminating() {
            return;
        }
        let grace = pod.value["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default();
        let after = self.faults.millis(100..2000) + Duration::from_secs(grace / 2);
        let (name, uid) = (pod.name().to_owned(), pod.uid().to_owned());
        self.later(after, move |world| world.end_pod(&name, &uid));
    }

    /// Without its kubelet a pod never ends.
    fn end_pod(self: &Arc<Self>, name: &str, uid: &str) {
        let held = self.target.get(&PODS, POD_NAMESPACE, name).filter(|pod| pod.uid() == uid);
        let Some(pod) = held else { return };
        let node = pod.value["spec"]["nodeName"].as_str().unwrap_or_default();
        if self.cloud.lock().has_vm_for_node(node) || self.target.get(&NODES, "", node).is_none() {
            self.remove_pod(name);
        }
    }

    fn remove_pod(&self, name: &str) {
        let ended = self.target.edit(&PODS, POD_NAMESPACE, name, |pod| {
            let deleted = pod["metadata"]["deletionTimestamp"].take();
            let now = json!(self.now().to_string());
            pod["metadata"]["deletionTimestamp"] = if deleted.is_null() { now } else { deleted };
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        });
        ended.unwrap();
    }

    /// Deletes pods whose Node no longer exists, as the API server does.
    pub(super) fn collect_pods(&self) {
        for pod in self.target.all(&PODS) {
            let node = pod.value["spec"]["nodeName"].as_str().unwrap_or_default();
            // A kubelet also ends pods of an earlier Node of its name.
            let is_over = self.is_past(&pod.value["metadata"]["deletionTimestamp"]);
            if self.target.get(&NODES, "", node).is_none() || is_over && self.cloud.lock().has_vm_for_node(node) {
                self.remove_pod(pod.name());
            }
        }
        self.collect_attachments();
    }

    fn is_past(&self, time: &Value) -> bool {
        let time = time.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        time.is_some_and(|time| time < self.now())
    }

    /// After each write to either API server.
    pub(super) fn saw(self: &Arc<Self>, write: &WriteRecord<'_>) {
        if &*write.call.caller != OUTSIDE && (write.changed() || write.refusal.is_some()) && !is_noise(write) {
            let outcome = write.refusal.map_or(String::new(), |refusal| format!(": {}", refusal.reason));
            self.say(format!("  {} {}{}{outcome}", write.call.caller, write.call.subject(), detail(write)));
        }
        if write.call.kind == &PODS {
            self.saw_pod(write);
            self.saw_mounts(write);
        }
        if write.call.kind == &ATTACHMENTS {
            self.saw_attachment(write);
        }
        if write.call.kind == &NODES && self.areas.in_place && write.changed() {
            self.saw_update(write);
        }
        if write.refusal.is_none() {
            let cloud = self.cloud.lock();
            self.ledger.lock().saw(write, &self.faults, &cloud, &self.target);
        }
        self.ledger.lock().check_request(write.call, &self.faults);
    }
}

fn is_noise(write: &WriteRecord<'_>) -> bool {
    matches!(write.call.kind.plural, "leases" | "events")
}

/// The phase that a Machine enters, the replicas that a set gets.
fn detail(write: &WriteRecord<'_>) -> String {
    let of = |object: Option<&ServerObject>, path: &str| {
        object.and_then(|object| object.value.pointer(path).cloned()).unwrap_or(Value::Null)
    };
    let mut text = String::new();
    for path in ["/status/currentStatus/phase", "/spec/replicas", "/spec/providerID"] {
        let (before, after) = (of(write.before, path), of(write.after, path));
        if before != after && write.after.is_some() {
            text.push_str(&format!(" {before}→{after}"));
        }
    }
    text
}

pub(super) fn ready_status(node: &ServerObject) -> &str {
    let conditions = node.value["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|it| it["type"] == "Ready");
    ready.and_then(|it| it["status"].as_str()).unwrap_or_default()
}

fn ready(status: &str, world: &World) -> Value {
    let now = world.faults.clock.now();
    json!({ "type": "Ready", "status": status, "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() })
}
