//! Nodes and Leases as a kubelet writes them. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{AttachedVolume, Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
};
use serde_json::{Value, json};

use crate::record::{SetCondition, VmRecord};

/// Namespace of the Leases of Nodes.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Annotation by which kwok runs pods on a Node.
const KWOK: &str = "kwok.x-k8s.io/node";
const LEASE_SECONDS: i32 = 40;
const VOLUME_PREFIX: &str = "kubernetes.io/csi/simulated.csi.mcm.dev^";
const VERSION: &str = "v1.33.0";

/// Type, status, reason and text of each condition of a Node that is well.
const WELL: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

/// The Node of a VM at its registration.
pub(super) fn node(vm: &VmRecord, now: Timestamp) -> Node {
    let spec = &vm.spec;
    let mut labels = spec.node_labels.clone();
    labels.extend(
        [
            ("kubernetes.io/hostname", vm.machine_name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            ("node.kubernetes.io/instance-type", &spec.instance_type),
            ("topology.kubernetes.io/region", &spec.region),
            ("topology.kubernetes.io/zone", &spec.zone),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    Node {
        metadata: ObjectMeta {
            name: Some(vm.machine_name.clone()),
            labels: Some(labels),
            annotations: Some([(KWOK.to_owned(), "fake".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(vm.provider_id()),
            taints: Some(spec.taints.clone()).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: Some(vm.addresses()),
            allocatable: Some(spec.capacity.clone()),
            capacity: Some(spec.capacity.clone()),
            conditions: Some(conditions(&vm.conditions, now, now)),
            node_info: Some(system_info(vm)),
            volumes_attached: Some(attached(&vm.volumes)).filter(|volumes| !volumes.is_empty()),
            volumes_in_use: Some(vm.volumes.iter().map(|volume| volume_name(volume)).collect())
                .filter(|volumes: &Vec<_>| !volumes.is_empty()),
            ..NodeStatus::default()
        }),
    }
}

/// The patch of a Node's status with the current state of its VM.
pub(super) fn status(vm: &VmRecord, registered_at: Timestamp, now: Timestamp) -> Value {
    let mut list: Vec<Value> =
        conditions(&vm.conditions, registered_at, now).iter().map(|condition| json!(condition)).collect();
    let taken_back = vm.conditions.iter().filter(|(type_, set)| set.status.is_none() && !is_standard(type_));
    list.extend(taken_back.map(|(type_, _)| json!({"$patch": "delete", "type": type_})));
    let in_use: Vec<String> = vm.volumes.iter().map(|volume| volume_name(volume)).collect();
    json!({"status": {"conditions": list, "volumesAttached": attached(&vm.volumes), "volumesInUse": in_use}})
}

/// The patch of the status of a Node without heartbeats.
pub(super) fn dead(now: Timestamp) -> Value {
    let list: Vec<NodeCondition> = WELL
        .iter()
        .map(|(type_, ..)| NodeCondition {
            type_: (*type_).to_owned(),
            status: "Unknown".to_owned(),
            reason: Some("NodeStatusUnknown".to_owned()),
            message: Some("Kubelet stopped posting node status.".to_owned()),
            last_transition_time: Some(Time(now)),
            // The time of the last heartbeat is not changed.
            last_heartbeat_time: None,
        })
        .collect();
    json!({"status": {"conditions": list}})
}

/// The Lease of a Node.
pub(super) fn lease(node: &str, uid: &str, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node.to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

/// Patch of a Lease that renews it.
pub(super) fn renewal(now: Timestamp) -> Value {
    json!({"spec": {"renewTime": MicroTime(now)}})
}

fn conditions(set: &BTreeMap<String, SetCondition>, since: Timestamp, now: Timestamp) -> Vec<NodeCondition> {
    let condition = |type_: &str, status: &str, reason: &str, message: &str, since: Timestamp| NodeCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(since)),
    };
    let other = |(type_, given): (&String, &SetCondition)| {
        let status = given.status.as_ref()?;
        let (reason, message) = (given.reason.as_str(), given.message.as_str());
        Some(condition(type_, status, if reason.is_empty() { "Simulated" } else { reason }, message, given.since))
    };
    let well = |(type_, status, reason, message): &(&str, &str, &str, &str)| {
        // One that was set and taken back has been well since then.
        let since = set.get(*type_).map_or(since, |given| given.since);
        condition(type_, status, reason, message, since)
    };
    let is_set = |type_: &str| set.get(type_).is_some_and(|given| given.status.is_some());
    let mut all: Vec<_> = set.iter().filter(|(type_, _)| !is_standard(type_)).filter_map(other).collect();
    for standard in &WELL {
        match set.get_key_value(standard.0).filter(|_| is_set(standard.0)) {
            Some(given) => all.extend(other(given)),
            None => all.push(well(standard)),
        }
    }
    all
}

fn is_standard(type_: &str) -> bool {
    WELL.iter().any(|(standard, ..)| *standard == type_)
}

fn attached(volumes: &[String]) -> Vec<AttachedVolume> {
    volumes.iter().map(|volume| AttachedVolume { name: volume_name(volume), device_path: String::new() }).collect()
}

fn volume_name(volume: &str) -> String {
    if volume.contains('/') { volume.to_owned() } else { format!("{VOLUME_PREFIX}{volume}") }
}

/// The version at the end of the name of an image, such as `kubelet-v1.36.0`.
fn kubelet_version(image: &str) -> &str {
    let last = image.rsplit('-').next().unwrap_or_default();
    let is_version = last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    if is_version { last } else { VERSION }
}

fn system_info(vm: &VmRecord) -> NodeSystemInfo {
    NodeSystemInfo {
        architecture: "amd64".to_owned(),
        boot_id: vm.id.clone(),
        container_runtime_version: "simulated://1".to_owned(),
        kernel_version: "simulated".to_owned(),
        kube_proxy_version: String::new(),
        kubelet_version: kubelet_version(&vm.spec.image).to_owned(),
        machine_id: vm.id.clone(),
        operating_system: "linux".to_owned(),
        os_image: "simulated".to_owned(),
        system_uuid: vm.id.clone(),
        ..NodeSystemInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{control::OperationLatencies, messages::CreateVm, spec::ProviderSpec};

    #[rstest::rstest]
    #[case("", VERSION)]
    #[case("kubelet-v1.36.0", "v1.36.0")]
    #[case("v1.37.1", "v1.37.1")]
    #[case("os-vanilla", VERSION)]
    fn an_image_has_the_version_of_its_kubelet(#[case] image: &str, #[case] expected: &str) {
        assert_eq!(kubelet_version(image), expected);
    }

    fn vm() -> VmRecord {
        let request = CreateVm { machine_name: "m".into(), namespace: "ns".into(), ..CreateVm::default() };
        let spec = json!({
            "region": "moon", "zone": "moon-b", "instanceType": "large", "volumes": ["v", "example.com/x^y"],
            "nodeLabels": {"pool": "p"}, "taints": [{"key": "k", "effect": "NoSchedule"}], "capacity": {"cpu": 8}
        });
        let spec = ProviderSpec::parse(&spec).unwrap();
        VmRecord::new(1, "vm-1".into(), &request, spec, &OperationLatencies::default(), Timestamp::UNIX_EPOCH)
    }

    fn set(status: Option<&str>) -> SetCondition {
        let since = Timestamp::from_second(5).unwrap();
        SetCondition { status: status.map(str::to_owned), reason: String::new(), message: "m".into(), since }
    }

    fn statuses(status: &Value) -> Vec<(String, String)> {
        let text = |condition: &Value, key: &str| condition[key].as_str().unwrap_or("-").to_owned();
        let list = status["conditions"].as_array().unwrap();
        list.iter().map(|condition| (text(condition, "type"), text(condition, "status"))).collect()
    }

    #[test]
    fn a_node_registers_complete() {
        insta::assert_yaml_snapshot!(node(&vm(), Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn set_conditions_are_there_at_registration_and_replace_standard_ones() {
        let mut vm = vm();
        vm.conditions.insert("Ready".into(), set(Some("False")));
        vm.conditions.insert("KernelDeadlock".into(), set(Some("True")));
        vm.conditions.insert("Gone".into(), set(None));
        let expected = [
            ("KernelDeadlock", "True"),
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "False"),
        ];
        let node = serde_json::to_value(node(&vm, Timestamp::UNIX_EPOCH)).unwrap();
        assert_eq!(statuses(&node["status"]), expected.map(|(type_, status)| (type_.to_owned(), status.to_owned())));
    }

    #[test]
    fn conditions_that_are_taken_back_are_well_again_or_vanish() {
        let mut vm = vm();
        vm.conditions.insert("Ready".into(), set(None));
        vm.conditions.insert("KernelDeadlock".into(), set(None));
        let patch = status(&vm, Timestamp::UNIX_EPOCH, Timestamp::from_second(9).unwrap());
        let list = patch["status"]["conditions"].as_array().unwrap();
        assert!(list.contains(&json!({"$patch": "delete", "type": "KernelDeadlock"})));
        let ready = list.iter().find(|condition| condition["type"] == "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["lastTransitionTime"]), (&json!("True"), &json!("1970-01-01T00:00:05Z")));
    }
}
