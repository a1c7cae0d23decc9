//! Memory of cached machines. The caches of a process are filled with Machines and Nodes as Gardener makes them, and the kernel
//! is asked for the memory of this process.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{fs, sync::Arc};

use kube::runtime::watcher::Event;
use mcm_api::{labels, machine::Machine, node::Node};
use mcm_controllers::{MACHINES, SETS, machine, node};
use mcm_runtime::{
    cache::{CacheableKind, ObjectCache},
    guard::GuardedObject,
};
use serde_json::{Value, json};

/// Machines of the first list, which fills what is not for each machine.
const FEW: usize = 1_000;
/// Machines of the second list.
const MANY: usize = 21_000;
/// Machines of a namespace and of a class.
const OF_CLASS: usize = 50;
/// Bytes of a Machine with its Node in the caches, at most. The number only falls.
const MOST_BYTES: u64 = 10_000;
/// Peak of a list of objects that are stored, as a multiple of the memory before it.
const MOST_PEAK: f64 = 1.15;
/// Lives of machines, after which the memory is compared.
const SHORT_RUN: usize = 2_000;
const LONG_RUN: usize = 20_000;
/// Growth between them: the caches remember the UIDs of the last deleted objects.
const MOST_GROWTH: u64 = 8 << 20;

/// The caches of a cell and its target.
struct MachineCaches {
    machines: Arc<ObjectCache<Machine>>,
    nodes: Arc<ObjectCache<Node>>,
}

#[test]
fn machines_need_little_memory() {
    let caches = MachineCaches {
        machines: machine::CACHE.empty_for(&[SETS, MACHINES]),
        nodes: node::cache_for(&[SETS, MACHINES])(),
    };
    caches.list(FEW);
    let machines = growth(|| list(&caches.machines, MANY, machine_object));
    let nodes = growth(|| list(&caches.nodes, MANY, node_object));
    let count = (MANY - FEW) as u64;
    let each = (machines + nodes) / count;
    println!(
        "| bytes of a cached Machine | {} |\n| of its Node | {} |\n| of both | {each} |",
        machines / count,
        nodes / count
    );

    let before = status("VmRSS");
    fs::write("/proc/self/clear_refs", "5").unwrap();
    caches.list(MANY);
    let peak = status("VmHWM") as f64 / before as f64;
    println!("| peak of a list of stored objects, as a multiple | {peak:.2} |");

    caches.live(0..SHORT_RUN);
    let lives = growth(|| caches.live(SHORT_RUN..LONG_RUN));
    println!("| growth from {SHORT_RUN} to {LONG_RUN} lives, in KiB | {} |", lives >> 10);
    assert!(each <= MOST_BYTES, "{each} bytes");
    assert!(peak <= MOST_PEAK, "{peak}");
    assert!(lives <= MOST_GROWTH, "{lives} bytes");
}

impl MachineCaches {
    fn list(&self, count: usize) {
        list(&self.machines, count, machine_object);
        list(&self.nodes, count, node_object);
    }

    /// Machines come and are deleted.
    fn live(&self, numbers: impl Iterator<Item = usize>) {
        for at in numbers.map(|number| MANY + number) {
            self.machines.observe(Event::Apply(decoded(&machine_object(at))));
            self.nodes.observe(Event::Apply(decoded(&node_object(at))));
            self.nodes.observe(Event::Delete(decoded(&node_object(at))));
            self.machines.observe(Event::Delete(decoded(&machine_object(at))));
        }
    }
}

/// A list of so many objects.
fn list<K: CacheableKind>(cache: &ObjectCache<K>, count: usize, object: fn(usize) -> Value) {
    cache.observe(Event::Init);
    for at in 0..count {
        cache.observe(Event::InitApply(decoded(&object(at))));
    }
    cache.observe(Event::InitDone);
}

/// As a watch reads it.
fn decoded<K: CacheableKind>(object: &Value) -> GuardedObject<K> {
    serde_json::from_str(&object.to_string()).unwrap()
}

/// The memory that some work leaves behind, in bytes.
fn growth(work: impl FnOnce()) -> u64 {
    let before = status("VmRSS");
    work();
    status("VmRSS").saturating_sub(before)
}

/// A size of this process, in bytes.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn namespace_of(at: usize) -> String {
    format!("shoot--project--cluster-{}", at / OF_CLASS)
}

fn name_of(at: usize) -> String {
    format!("shoot--project--cluster-{}-worker-z1-{:05x}", at / OF_CLASS, at)
}

fn node_name(at: usize) -> String {
    format!("ip-10-{}-{}-{}.eu-central-1.compute.internal", at >> 16, (at >> 8) & 255, at & 255)
}

fn uid(kind: &str, at: usize) -> String {
    format!("{kind:0>8}-0000-4000-8000-{at:012x}")
}

fn provider_id(at: usize) -> String {
    format!("aws:///eu-central-1a/i-{at:017x}")
}

/// The part of a Node that its Machine determines.
fn node_template(at: usize) -> Value {
    let worker = "worker.gardener.cloud";
    let mut labels = json!({
        "kubernetes.io/arch": "amd64", "networking.gardener.cloud/node-local-dns-enabled": "true", "node.kubernetes.io/role": "node",
        "topology.kubernetes.io/zone": "eu-central-1a", "worker.garden.sapcloud.io/group": "worker",
    });
    for (key, value) in [
        ("cri-name", "containerd"),
        ("gardener-node-agent-secret-name", "gardener-node-agent-worker-77ac3"),
        ("image-name", "gardenlinux"),
        ("image-version", "1592.9.0"),
        ("kubernetes-version", "1.33.2"),
        ("pool", "worker"),
        ("system-components", "true"),
    ] {
        labels[format!("{worker}/{key}")] = value.into();
    }
    json!({
        "metadata": {"annotations": {"worker.gardener.cloud/cluster": namespace_of(at)}, "creationTimestamp": null, "labels": labels},
        "spec": {},
    })
}

fn conditions(at: usize) -> Value {
    let healthy = |type_: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": if type_ == "Ready" { "True" } else { "False" }, "reason": reason, "message": message,
            "lastHeartbeatTime": format!("2026-01-01T{:02}:{:02}:00Z", at % 24, at % 60), "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    json!([
        healthy("CorruptDockerOverlay2", "NoCorruptDockerOverlay2", "docker overlay2 is functioning properly"),
        healthy("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        healthy("FrequentContainerdRestart", "NoFrequentContainerdRestart", "containerd is functioning properly"),
        healthy("FrequentKubeletRestart", "NoFrequentKubeletRestart", "kubelet is functioning properly"),
        healthy("FrequentUnregisterNetDevice", "NoFrequentUnregisterNetDevice", "node is functioning properly"),
        healthy("KernelDeadlock", "KernelHasNoDeadlock", "kernel has no deadlock"),
        healthy("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        healthy("NetworkUnavailable", "CalicoIsUp", "Calico is running on this node"),
        healthy("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        healthy("ReadonlyFilesystem", "FilesystemIsNotReadOnly", "Filesystem is not read-only"),
        healthy("Ready", "KubeletReady", "kubelet is posting ready status"),
    ])
}

fn machine_object(at: usize) -> Value {
    let (namespace, set) = (namespace_of(at), format!("shoot--project--cluster-{}-worker-z1-6d4f8", at / OF_CLASS));
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name_of(at), "namespace": namespace, "uid": uid("1", at), "resourceVersion": (1_000_000 + at).to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 2, "finalizers": ["machine.sapcloud.io/machine-controller"],
            "annotations": {"node.machine.sapcloud.io/trigger-deletion-by-mcm": "false", "machinepriority.machine.sapcloud.io": "3"},
            "labels": {"name": format!("{namespace}-worker-z1"), "machine-template-hash": "6d4f8", "node": node_name(at)},
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": set, "uid": uid("2", at / OF_CLASS),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "class": {"kind": "MachineClass", "name": format!("{namespace}-worker-z1-77ac3")}, "providerID": provider_id(at),
            "nodeTemplate": node_template(at), "creationTimeout": "20m0s", "drainTimeout": "2h0m0s", "healthTimeout": "10m0s",
            "nodeConditions": "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable",
        },
        "status": {
            "conditions": conditions(at), "currentStatus": {"phase": "Running", "lastUpdateTime": "2026-01-01T00:00:00Z"},
            "lastOperation": {
                "description": format!("Machine {} successfully joined the cluster", name_of(at)), "state": "Successful",
                "type": "Create", "lastUpdateTime": "2026-01-01T00:00:00Z",
            },
        },
    })
}

fn node_object(at: usize) -> Value {
    let (template, name, machine) = (node_template(at), node_name(at), name_of(at));
    let mut labels = template["metadata"]["labels"].clone();
    for (key, value) in [
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/instance-type", "m5.large"),
        ("beta.kubernetes.io/os", "linux"),
        ("failure-domain.beta.kubernetes.io/region", "eu-central-1"),
        ("failure-domain.beta.kubernetes.io/zone", "eu-central-1a"),
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", "m5.large"),
        ("topology.ebs.csi.aws.com/zone", "eu-central-1a"),
        ("topology.kubernetes.io/region", "eu-central-1"),
        (labels::MACHINE_NAME, machine.as_str()),
    ] {
        labels[key] = value.into();
    }
    let annotations = json!({
        "checksum/cloud-config-data": "f3a1c9d2b7", "csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"i-{at:017x}\"}}"),
        "node.alpha.kubernetes.io/ttl": "0", labels::LAST_APPLIED_NODE_TEMPLATE: template.to_string(),
        labels::NODE_OF: format!("{}/{machine}/{}", namespace_of(at), uid("1", at)),
        "projectcalico.org/IPv4Address": "10.250.0.12/19", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "worker.gardener.cloud/kubernetes-version": "1.33.2",
    });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": uid("3", at), "resourceVersion": (2_000_000 + at).to_string(), "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations,
            "finalizers": [labels::NODE_FINALIZER],
        },
        "spec": {"providerID": provider_id(at), "podCIDR": "10.64.0.0/24"},
        "status": {
            "conditions": conditions(at),
            "capacity": {
                "cpu": "2", "ephemeral-storage": "51221532Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0", "memory": "7933412Ki",
                "pods": "110",
            },
        },
    })
}
