//! The request of an instance.

use std::collections::BTreeMap;

use mcm_driver::cloud::MachineIdentity;
use serde_json::{Value, json};

use crate::{
    names::{OWNER_LABEL, UID_LABEL, USER_DATA},
    spec::{Interface, Spec},
};

/// An instance that is ordered.
pub(crate) struct Order<'a> {
    pub spec: &'a Spec,
    pub folder: &'a str,
    pub wanted: MachineIdentity<'a>,
    pub owner: &'a str,
    pub user_data: &'a str,
    /// The static public address of each interface that has one.
    pub addresses: &'a [Option<String>],
}

impl Order<'_> {
    /// The body in JSON. Whole numbers are texts, as everywhere in this API.
    pub(crate) fn body(&self) -> Value {
        let Self { spec, wanted, .. } = self;
        let (resources, disk) = (&spec.resources, &spec.boot_disk);
        let mut disk_spec = json!({"size": disk.size.to_string(), "imageId": disk.image});
        if let Some(kind) = &disk.kind {
            disk_spec["typeId"] = kind.as_str().into();
        }
        let mut resources_spec = json!({"cores": resources.cores.to_string(), "memory": resources.memory.to_string()});
        for (name, number) in [("coreFraction", resources.core_fraction), ("gpus", resources.gpus)] {
            if number > 0 {
                resources_spec[name] = number.to_string().into();
            }
        }
        let mut metadata = spec.metadata.clone();
        metadata.insert(USER_DATA.to_owned(), self.user_data.to_owned());
        let addresses = self.addresses.iter().map(Option::as_deref).chain(std::iter::repeat(None));
        let interfaces = spec.interfaces.iter().zip(addresses).map(|(one, address)| interface(one, address));
        let mut body = json!({
            "folderId": self.folder,
            "name": wanted.name,
            "hostname": wanted.name,
            "labels": labels(&spec.labels, wanted.uid, self.owner),
            "zoneId": spec.zone,
            "platformId": spec.platform,
            "resourcesSpec": resources_spec,
            "metadata": metadata,
            "bootDiskSpec": {"mode": "READ_WRITE", "autoDelete": disk.is_auto_deleted, "diskSpec": disk_spec},
            "networkInterfaceSpecs": interfaces.collect::<Vec<Value>>(),
            "schedulingPolicy": {"preemptible": spec.is_preemptible},
        });
        if let Some(kind) = &spec.network_type {
            body["networkSettings"] = json!({"type": kind});
        }
        body
    }
}

fn interface(interface: &Interface, address: Option<&str>) -> Value {
    let mut primary = json!({});
    if interface.has_public_address {
        primary["oneToOneNatSpec"] = json!({"ipVersion": "IPV4"});
        if let Some(address) = address {
            primary["oneToOneNatSpec"]["address"] = address.into();
        }
    }
    json!({"subnetId": interface.subnet, "primaryV4AddressSpec": primary})
}

/// The labels of an instance: those of the class, and ours.
fn labels(of_class: &BTreeMap<String, String>, uid: &str, owner: &str) -> BTreeMap<String, String> {
    let mut labels = of_class.clone();
    labels.insert(UID_LABEL.to_owned(), uid.to_owned());
    if !owner.is_empty() {
        labels.insert(OWNER_LABEL.to_owned(), owner.to_owned());
    }
    labels
}
