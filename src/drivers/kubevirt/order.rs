//! The objects of a Machine: its VirtualMachine, and the Secret with its user data.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use mcm_driver::cloud::MachineIdentity;
use serde_json::{Value, json};

use super::{
    markers::Scope,
    names::{NO_PLACE, OWN_LABELS, OWNER_LABEL, ROOT_DISK, UID_LABEL, VM_LABEL, secret_of},
    spec::{Network, Source, Spec},
};

pub(crate) const API_VERSION: &str = "kubevirt.io/v1";
pub(crate) const KIND: &str = "VirtualMachine";
const CLOUD_INIT_DISK: &str = "cloudinitdisk";
/// Seconds.
const GRACE: u32 = 30;
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// All interfaces get an address by DHCP.
const NETWORK_DATA: &str = "version: 2\nethernets:\n  id0:\n    match:\n      name: \"e*\"\n    dhcp4: true\n";

/// A VM that is ordered.
pub(crate) struct Order<'a> {
    pub spec: &'a Spec,
    pub scope: &'a Scope,
    pub wanted: MachineIdentity<'a>,
    pub owner: &'a str,
}

impl Order<'_> {
    /// The Secret with the user data.
    pub fn secret(&self, user_data: &[u8]) -> Value {
        let mut labels = self.scope.labels();
        labels.extend(self.own_labels());
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": self.secret_name(), "labels": labels},
            "data": {"userdata": STANDARD.encode(user_data)},
        })
    }

    pub fn secret_name(&self) -> String {
        secret_of(self.wanted.name, self.wanted.uid)
    }

    /// The VM. Its disks are in the order of the reference, because the guest may go by it.
    pub fn virtual_machine(&self) -> Value {
        let (spec, name) = (self.spec, self.wanted.name);
        let (mut disks, mut volumes, mut data_volumes) = (Vec::new(), Vec::new(), Vec::new());
        disks.push(self.disk(ROOT_DISK, ROOT_DISK));
        volumes.push(json!({"name": ROOT_DISK, "dataVolume": {"name": name}}));
        data_volumes.push(data_volume(name, &spec.root_volume));
        disks.push(plain_disk(CLOUD_INIT_DISK));
        volumes.push(self.cloud_init());
        for (index, volume) in spec.additional_volumes.iter().enumerate() {
            let disk = format!("disk{index}");
            disks.push(self.disk(&volume.name, &disk));
            match &volume.source {
                Source::DataVolume(source) => {
                    let name = format!("{name}-{index}");
                    volumes.push(json!({"name": disk, "dataVolume": {"name": name}}));
                    data_volumes.push(data_volume(&name, source));
                }
                Source::Existing(kind, source) => volumes.push(json!({"name": disk, *kind: source})),
                Source::Unusable(_) => {}
            }
        }
        let mut labels: BTreeMap<&str, &str> =
            spec.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        labels.retain(|key, _| !OWN_LABELS.contains(key));
        labels.insert(VM_LABEL, name);
        let own = self.own_labels();
        labels.extend(own.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "runStrategy": "Always",
                "dataVolumeTemplates": data_volumes,
                "template": {"metadata": {"labels": {VM_LABEL: name}}, "spec": self.instance(disks, volumes)},
            },
        })
    }

    fn instance(&self, disks: Vec<Value>, volumes: Vec<Value>) -> Value {
        let spec = self.spec;
        let mut devices = json!({
            "disks": disks,
            "blockMultiQueue": spec.devices.block_multi_queue,
            "networkInterfaceMultiqueue": spec.devices.network_interface_multiqueue,
        });
        let mut instance = json!({
            "affinity": self.affinity(),
            "terminationGracePeriodSeconds": GRACE,
            "volumes": volumes,
        });
        if !spec.networks.is_empty() {
            let (interfaces, networks) = networks(&spec.networks);
            devices["interfaces"] = interfaces.into();
            instance["networks"] = networks.into();
        }
        set(&mut devices, "rng", spec.devices.rng.clone());
        let mut domain = json!({"resources": spec.resources, "devices": devices});
        set(&mut domain, "cpu", spec.cpu.clone());
        set(&mut domain, "memory", spec.memory.clone());
        instance["domain"] = domain;
        set(&mut instance, "dnsPolicy", spec.dns_policy.map(Value::from));
        set(&mut instance, "dnsConfig", spec.dns_config.clone());
        instance
    }

    /// The disk of a volume: that of the class, under another name, or a plain one.
    fn disk(&self, volume: &str, name: &str) -> Value {
        let of_class = self.spec.devices.disks.iter().find(|disk| disk.get("name").is_some_and(|name| name == volume));
        let Some(mut disk) = of_class.cloned() else { return plain_disk(name) };
        disk["name"] = name.into();
        disk
    }

    fn cloud_init(&self) -> Value {
        let mut source = json!({"secretRef": {"name": self.secret_name()}});
        if !self.spec.networks.is_empty() {
            source["networkData"] = NETWORK_DATA.into();
        }
        json!({"name": CLOUD_INIT_DISK, "cloudInitNoCloud": source})
    }

    fn affinity(&self) -> Value {
        let place = |key: &str, name: &str| {
            if name == NO_PLACE {
                json!({"key": key, "operator": "DoesNotExist"})
            } else {
                json!({"key": key, "operator": "In", "values": [name]})
            }
        };
        let expressions = [place(REGION, &self.spec.region), place(ZONE, &self.spec.zone)];
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]});
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    }

    fn own_labels(&self) -> BTreeMap<String, String> {
        let own = [(UID_LABEL, self.wanted.uid), (OWNER_LABEL, self.owner)];
        own.into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}

/// Sets a field, if there is a value.
fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[field] = value;
    }
}

fn plain_disk(name: &str) -> Value {
    json!({"name": name, "disk": {"bus": "virtio"}})
}

fn data_volume(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Interfaces and networks. Without a default among them the network of pods is the first.
fn networks(of_class: &[Network]) -> (Vec<Value>, Vec<Value>) {
    let interface = |name: &str| json!({"name": name, "bridge": {}});
    let (mut interfaces, mut networks) = (Vec::new(), Vec::new());
    if !of_class.iter().any(|network| network.is_default) {
        interfaces.push(interface("default"));
        networks.push(json!({"name": "default", "pod": {}}));
    }
    for (index, network) in of_class.iter().enumerate() {
        let name = format!("net{index}");
        interfaces.push(interface(&name));
        networks.push(json!({"name": name, "multus": {"networkName": network.name, "default": network.is_default}}));
    }
    (interfaces, networks)
}

/// A merge patch that makes a VM the owner of its Secret, so that the Secret is deleted with it.
pub(crate) fn ownership(vm: &str, uid: &str) -> Value {
    let owner = json!({
        "apiVersion": API_VERSION, "kind": KIND, "name": vm, "uid": uid, "controller": true, "blockOwnerDeletion": true,
    });
    json!({"metadata": {"ownerReferences": [owner]}})
}
