//! The next steps of the controllers, the scheduler and the kubelets of a small cluster. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::kubelets;
use mcm_fake_api::{BUDGETS, DEFINITIONS, EVENTS, Kind, NAMESPACES, NODES, PODS, ServerObject, WORKLOADS};

/// Finalizer of a Namespace, until its objects are gone.
const CONTENTS: &str = "demo.mcm/contents";
/// How long Events are kept.
const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// All objects of one moment.
pub struct ClusterObjects {
    kinds: Vec<(&'static Kind, Vec<Arc<ServerObject>>)>,
    uids: BTreeSet<String>,
}

impl ClusterObjects {
    /// The objects by their kinds.
    pub fn new(kinds: impl IntoIterator<Item = (&'static Kind, Vec<Arc<ServerObject>>)>) -> Self {
        let kinds: Vec<_> = kinds.into_iter().collect();
        let uids = kinds.iter().flat_map(|(_, objects)| objects).map(|object| object.uid().to_owned()).collect();
        Self { kinds, uids }
    }

    fn all(&self, kind: &Kind) -> impl Iterator<Item = &Arc<ServerObject>> {
        self.kinds.iter().filter(move |(one, _)| *one == kind).flat_map(|(_, objects)| objects)
    }

    fn of_namespace<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'static Kind, &'a Arc<ServerObject>)> {
        let pairs = self.kinds.iter().flat_map(|(kind, objects)| objects.iter().map(move |object| (*kind, object)));
        pairs.filter(move |(kind, object)| kind.is_namespaced && namespace_of(object) == name)
    }

    /// Pods that a workload has and that are not being deleted.
    fn pods_of(&self, workload: &ServerObject) -> Vec<&Arc<ServerObject>> {
        let owned = |pod: &&Arc<ServerObject>| owners(pod).any(|owner| owner["uid"].as_str() == Some(workload.uid()));
        self.all(&PODS).filter(|pod| !pod.is_terminating()).filter(owned).collect()
    }
}

/// A write of one object.
#[derive(Clone, Debug)]
pub enum ClusterStep {
    /// Creates it.
    Create(&'static Kind, Value),
    /// Merges fields of spec, status or metadata.
    Patch(&'static Kind, Arc<ServerObject>, Value),
    /// Deletes it with its grace period.
    Delete(&'static Kind, Arc<ServerObject>),
    /// Deletes it without a grace period.
    DeleteNow(&'static Kind, Arc<ServerObject>),
}

/// The steps that are due.
pub fn due(objects: &ClusterObjects, now: Timestamp) -> Vec<ClusterStep> {
    let mut steps = Vec::new();
    steps.extend(objects.all(&NAMESPACES).flat_map(|namespace| of_namespace(objects, namespace)));
    steps.extend(objects.all(&DEFINITIONS).filter_map(|definition| of_definition(definition, now)));
    steps.extend(garbage(objects));
    steps.extend(objects.all(&WORKLOADS).flat_map(|workload| of_workload(objects, workload)));
    steps.extend(of_pods(objects, now));
    steps.extend(bindings(objects));
    steps.extend(objects.all(&BUDGETS).filter_map(|budget| of_budget(objects, budget)));
    steps.extend(
        objects
            .all(&EVENTS)
            .filter(|event| has_expired(event, now))
            .map(|event| ClusterStep::DeleteNow(&EVENTS, Arc::clone(event))),
    );
    steps
}

/// A Namespace is active, or it is emptied and then removed.
fn of_namespace(objects: &ClusterObjects, namespace: &Arc<ServerObject>) -> Vec<ClusterStep> {
    let patch = |patch| vec![ClusterStep::Patch(&NAMESPACES, Arc::clone(namespace), patch)];
    if !namespace.is_terminating() {
        let is_held = namespace.finalizers().any(|finalizer| finalizer == CONTENTS);
        let wanted = json!({ "metadata": { "finalizers": [CONTENTS] }, "status": { "phase": "Active" } });
        return if is_held { Vec::new() } else { patch(wanted) };
    }
    if namespace.value["status"]["phase"] != "Terminating" {
        return patch(json!({ "status": { "phase": "Terminating" } }));
    }
    let left: Vec<_> = objects.of_namespace(namespace.name()).collect();
    if left.is_empty() {
        return patch(json!({ "metadata": { "finalizers": null } }));
    }
    let left = left.into_iter().filter(|(_, object)| !object.is_terminating());
    left.map(|(kind, object)| ClusterStep::Delete(kind, Arc::clone(object))).collect()
}

/// A definition is established at once: the server has its kind in any case.
fn of_definition(definition: &Arc<ServerObject>, now: Timestamp) -> Option<ClusterStep> {
    let names = &definition.value["spec"]["names"];
    if definition.value["status"]["acceptedNames"] == *names {
        return None;
    }
    let condition = |kind: &str, reason: &str| json!({ "type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": written(now) });
    let conditions = [condition("NamesAccepted", "NoConflicts"), condition("Established", "InitialNamesAccepted")];
    let versions = definition.value["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<&Value> =
        versions.filter(|version| version["storage"] == true).map(|version| &version["name"]).collect();
    let status = json!({ "acceptedNames": names, "conditions": conditions, "storedVersions": stored });
    Some(ClusterStep::Patch(&DEFINITIONS, Arc::clone(definition), json!({ "status": status })))
}

/// Objects without an owner of those that they name.
fn garbage(objects: &ClusterObjects) -> Vec<ClusterStep> {
    let is_served = |owner: &Value| {
        let name = owner["kind"].as_str().unwrap_or_default();
        objects.kinds.iter().any(|(kind, _)| kind.name == name)
    };
    let is_gone = |owner: &Value| {
        let uid = owner["uid"].as_str().unwrap_or_default();
        is_served(owner) && !objects.uids.contains(uid)
    };
    let is_garbage = |object: &ServerObject| {
        !object.is_terminating() && owners(object).next().is_some() && owners(object).all(is_gone)
    };
    let pairs = objects.kinds.iter().flat_map(|(kind, all)| all.iter().map(move |object| (*kind, object)));
    let pairs = pairs.filter(|(_, object)| is_garbage(object));
    pairs.map(|(kind, object)| ClusterStep::Delete(kind, Arc::clone(object))).collect()
}

/// Pods that a workload lacks or has beyond its replicas, and its status.
fn of_workload(objects: &ClusterObjects, workload: &Arc<ServerObject>) -> Vec<ClusterStep> {
    if workload.is_terminating() {
        return Vec::new();
    }
    let (pods, wanted) = (objects.pods_of(workload), replicas_of(workload));
    let missing = wanted.saturating_sub(pods.len());
    let mut steps: Vec<ClusterStep> = (0..missing).map(|_| ClusterStep::Create(&PODS, pod_of(workload))).collect();
    let surplus = pods.iter().rev().take(pods.len().saturating_sub(wanted));
    steps.extend(surplus.map(|pod| ClusterStep::Delete(&PODS, Arc::clone(pod))));
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let status = json!({
        "replicas": pods.len(), "updatedReplicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready,
        "unavailableReplicas": wanted.saturating_sub(ready),
    });
    if workload.value["status"] != status {
        steps.push(ClusterStep::Patch(&WORKLOADS, Arc::clone(workload), json!({ "status": status })));
    }
    steps
}

fn pod_of(workload: &ServerObject) -> Value {
    let template = &workload.value["spec"]["template"];
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": workload.name(), "uid": workload.uid(), "controller": true,
        "blockOwnerDeletion": true,
    });
    let metadata = json!({
        "generateName": format!("{}-", workload.name()), "namespace": namespace_of(workload),
        "labels": template["metadata"]["labels"], "ownerReferences": [owner],
    });
    json!({ "metadata": metadata, "spec": template["spec"], "status": { "phase": "Pending" } })
}

/// Pods of Nodes run, end once they are deleted, and end with their Node.
fn of_pods(objects: &ClusterObjects, now: Timestamp) -> Vec<ClusterStep> {
    let nodes: BTreeSet<&str> = objects.all(&NODES).map(|node| node.name()).collect();
    let step = |pod: &Arc<ServerObject>| {
        let node = node_of(pod)?;
        let is_waiting = matches!(pod.value["status"]["phase"].as_str(), None | Some("Pending"));
        if pod.is_terminating() || !nodes.contains(node) {
            Some(ClusterStep::DeleteNow(&PODS, Arc::clone(pod)))
        } else if is_waiting {
            Some(ClusterStep::Patch(&PODS, Arc::clone(pod), json!({ "status": kubelets::running(now) })))
        } else {
            None
        }
    };
    objects.all(&PODS).filter_map(step).collect()
}

/// Pods without a Node get one that is Ready, has room and has no taints that they do not tolerate: that with the fewest pods.
fn bindings(objects: &ClusterObjects) -> Vec<ClusterStep> {
    let mut used: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for (pod, node) in objects.all(&PODS).filter_map(|pod| Some((pod, node_of(pod)?))) {
        let (pods, cpu) = used.entry(node).or_default();
        *pods += 1;
        *cpu = cpu.saturating_add(requested_cpu(pod));
    }
    let mut steps = Vec::new();
    for pod in objects.all(&PODS).filter(|pod| node_of(pod).is_none() && !pod.is_terminating()) {
        let room = |node: &ServerObject, cpu: u64| {
            let whole = millis(&node.value["status"]["allocatable"]["cpu"]);
            cpu.saturating_add(requested_cpu(pod)) <= whole
        };
        let fitting = objects.all(&NODES).filter(|node| is_open(node, pod)).filter_map(|node| {
            let (pods, cpu) = used.get(node.name()).copied().unwrap_or_default();
            room(node, cpu).then_some((pods, node.name()))
        });
        let Some((_, node)) = fitting.min() else { continue };
        let (pods, cpu) = used.entry(node).or_default();
        *pods += 1;
        *cpu = cpu.saturating_add(requested_cpu(pod));
        steps.push(ClusterStep::Patch(&PODS, Arc::clone(pod), json!({ "spec": { "nodeName": node } })));
    }
    steps
}

/// The Node is Ready, and the pod tolerates its taints.
fn is_open(node: &ServerObject, pod: &ServerObject) -> bool {
    let taints = list(&node.value["spec"]["taints"]).iter().filter(|taint| taint["effect"] != "PreferNoSchedule");
    let tolerations = list(&pod.value["spec"]["tolerations"]);
    let is_tolerated = |taint: &Value| {
        tolerations.iter().any(|toleration| {
            let same_key = toleration["key"].is_null() || toleration["key"] == taint["key"];
            let same_effect = toleration["effect"].is_null() || toleration["effect"] == taint["effect"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let same_value = toleration["operator"] == "Exists" || text(&toleration["value"]) == text(&taint["value"]);
            same_key && same_effect && same_value
        })
    };
    !node.is_terminating()
        && node.value["spec"]["unschedulable"] != true
        && is_ready(node)
        && taints.into_iter().all(is_tolerated)
}

/// The status of a budget: how many of its pods may be evicted now.
fn of_budget(objects: &ClusterObjects, budget: &Arc<ServerObject>) -> Option<ClusterStep> {
    let spec = &budget.value["spec"];
    let labels = spec["selector"]["matchLabels"].as_object();
    let is_selected = |pod: &&Arc<ServerObject>| {
        let of_pod = &pod.value["metadata"]["labels"];
        namespace_of(pod) == namespace_of(budget)
            && labels.is_some_and(|labels| labels.iter().all(|(key, value)| of_pod[key] == *value))
    };
    let pods: Vec<&Arc<ServerObject>> = objects.all(&PODS).filter(is_selected).collect();
    let owned = |workload: &&Arc<ServerObject>| {
        let is_owner = |owner: &Value| owner["uid"].as_str() == Some(workload.uid());
        pods.iter().any(|pod| owners(pod).any(is_owner))
    };
    let alone = pods.iter().filter(|pod| owners(pod).next().is_none()).count();
    let expected = objects.all(&WORKLOADS).filter(owned).map(|workload| replicas_of(workload)).sum::<usize>() + alone;
    let healthy = pods.iter().filter(|pod| is_ready(pod) && !pod.is_terminating()).count();
    let desired = match (share(&spec["maxUnavailable"], expected), share(&spec["minAvailable"], expected)) {
        (Some(unavailable), _) => expected.saturating_sub(unavailable),
        (None, available) => available.unwrap_or_default(),
    };
    let status = json!({
        "expectedPods": expected, "currentHealthy": healthy, "desiredHealthy": desired,
        "disruptionsAllowed": healthy.saturating_sub(desired),
    });
    let is_new = budget.value["status"] != status;
    is_new.then(|| {
        // Evicted pods are counted above.
        let mut patch = json!({ "status": status });
        patch["status"]["disruptedPods"] = Value::Null;
        ClusterStep::Patch(&BUDGETS, Arc::clone(budget), patch)
    })
}

/// A number, or a percentage of a whole, rounded up.
fn share(value: &Value, whole: usize) -> Option<usize> {
    match value {
        Value::Number(number) => usize::try_from(number.as_u64()?).ok(),
        Value::String(text) => {
            let percent: usize = text.strip_suffix('%')?.parse().ok()?;
            Some(whole.saturating_mul(percent).div_ceil(100))
        }
        _ => None,
    }
}

fn has_expired(event: &ServerObject, now: Timestamp) -> bool {
    let last = event.value["lastTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    last.is_some_and(|last| now.duration_since(last) > EVENT_LIFETIME)
}

fn owners(object: &ServerObject) -> impl Iterator<Item = &Value> {
    list(&object.value["metadata"]["ownerReferences"]).iter()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn namespace_of(object: &ServerObject) -> &str {
    object.value["metadata"]["namespace"].as_str().unwrap_or_default()
}

fn node_of(pod: &ServerObject) -> Option<&str> {
    pod.value["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())
}

fn replicas_of(workload: &ServerObject) -> usize {
    workload.value["spec"]["replicas"].as_u64().map_or(1, |replicas| usize::try_from(replicas).unwrap_or(usize::MAX))
}

/// The condition `Ready` of a Node or a pod is true.
fn is_ready(object: &ServerObject) -> bool {
    let conditions = list(&object.value["status"]["conditions"]);
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The CPU that the containers of a pod request, in thousandths.
fn requested_cpu(pod: &ServerObject) -> u64 {
    list(&pod.value["spec"]["containers"])
        .iter()
        .map(|container| millis(&container["resources"]["requests"]["cpu"]))
        .fold(0, u64::saturating_add)
}

/// Thousandths of a CPU.
fn millis(quantity: &Value) -> u64 {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    match text.strip_suffix('m') {
        Some(millis) => millis.parse().unwrap_or_default(),
        None => text.parse::<u64>().map_or(0, |whole| whole.saturating_mul(1_000)),
    }
}

fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
