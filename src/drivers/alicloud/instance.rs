//! VMs as ECS describes them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeAddress;
use mcm_driver::{
    Vm,
    cloud::{CloudVm, VmOwnership},
};
use serde::Deserialize;

use super::{
    names::{MARKERS, OWNER_TAG, UID_TAG, node_name, provider_id},
    spec::Scope,
};

/// Statuses in which ECS deletes a VM.
const SETTLED: [&str; 2] = ["Running", "Stopped"];
/// Statuses of VMs that exist and do not run.
const HALTED: [&str; 2] = ["Stopping", "Stopped"];

/// A VM that ECS shows. Fields that ECS always sends must be there: an answer without them is an error.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Described")]
pub(crate) struct Instance {
    pub id: String,
    name: String,
    pub status: String,
    zone: Option<String>,
    tags: BTreeMap<String, String>,
    addresses: Vec<(&'static str, String)>,
}

/// The form of ECS, where each list is in an object.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Described {
    instance_id: String,
    instance_name: String,
    status: String,
    zone_id: Option<String>,
    tags: Option<Tags>,
    vpc_attributes: Option<VpcAttributes>,
    inner_ip_address: Option<Addresses>,
    network_interfaces: Option<Interfaces>,
    public_ip_address: Option<Addresses>,
    eip_address: Option<Eip>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Tags {
    tag: Vec<Tag>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tag {
    tag_key: String,
    #[serde(default)]
    tag_value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VpcAttributes {
    private_ip_address: Option<Addresses>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Addresses {
    ip_address: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Interfaces {
    network_interface: Vec<Interface>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Interface {
    #[serde(rename = "Ipv6Sets")]
    ipv6: Option<Ipv6Sets>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ipv6Sets {
    #[serde(rename = "Ipv6Set")]
    all: Vec<Ipv6>,
}

#[derive(Deserialize)]
struct Ipv6 {
    #[serde(rename = "Ipv6Address")]
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Eip {
    ip_address: Option<String>,
}

impl From<Described> for Instance {
    fn from(described: Described) -> Self {
        let addresses = described.addresses();
        let tags = described.tags.unwrap_or_default().tag;
        Self {
            id: described.instance_id,
            name: described.instance_name,
            status: described.status,
            zone: described.zone_id.filter(|zone| !zone.is_empty()),
            tags: tags.into_iter().map(|tag| (tag.tag_key, tag.tag_value)).collect(),
            addresses,
        }
    }
}

impl Described {
    /// Private addresses, then public ones. A VM outside of a VPC has inner ones.
    fn addresses(&self) -> Vec<(&'static str, String)> {
        let of =
            |addresses: &Option<Addresses>| addresses.iter().flat_map(|all| all.ip_address.clone()).collect::<Vec<_>>();
        let private = self.vpc_attributes.as_ref().map(|vpc| of(&vpc.private_ip_address)).unwrap_or_default();
        let interfaces = self.network_interfaces.iter().flat_map(|all| &all.network_interface);
        let ipv6 =
            interfaces.filter_map(|one| one.ipv6.as_ref()).flat_map(|all| &all.all).map(|one| one.address.clone());
        let eip = self.eip_address.iter().filter_map(|eip| eip.ip_address.clone());
        let internal = private.into_iter().chain(of(&self.inner_ip_address)).chain(ipv6);
        let external = of(&self.public_ip_address).into_iter().chain(eip);
        let all = internal.map(|one| ("InternalIP", one)).chain(external.map(|one| ("ExternalIP", one)));
        all.filter(|(_, address)| !address.is_empty()).collect()
    }
}

impl Instance {
    /// ECS deletes it in this status. While it starts or stops ECS refuses.
    pub fn is_settled(&self) -> bool {
        SETTLED.contains(&self.status.as_str())
    }

    /// A list of the class contains it.
    pub fn is_in(&self, scope: &Scope) -> bool {
        scope.tags().iter().all(|(key, value)| self.tags.get(*key).is_some_and(|own| own == value))
    }

    pub fn vm(&self, region: &str) -> Vm {
        let node_name = node_name(&self.id);
        let addresses = self.addresses.iter().map(|(kind, address)| (*kind, address.as_str()));
        let addresses = addresses.chain([("Hostname", node_name.as_str())]);
        let address =
            |(kind, address): (&str, &str)| NodeAddress { type_: kind.to_owned(), address: address.to_owned() };
        Vm {
            provider_id: provider_id(region, &self.id),
            node_provider_id: None,
            addresses: addresses.map(address).collect(),
            node_name,
            zone: self.zone.clone(),
            last_known_state: None,
            halted: HALTED.contains(&self.status.as_str()).then(|| self.status.to_lowercase()),
        }
    }
}

impl CloudVm for Instance {
    type Scope = Scope;

    const REUSES_IDS: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    fn machine_name(&self) -> &str {
        &self.name
    }

    fn machine_uid(&self) -> Option<&str> {
        self.tags.get(UID_TAG).map(String::as_str)
    }

    fn owner(&self) -> Option<&str> {
        self.tags.get(OWNER_TAG).map(String::as_str)
    }

    fn belonging(&self, scope: &Scope) -> VmOwnership {
        if self.is_in(scope) {
            VmOwnership::Ours
        } else if scope.markers.are_foreign(self.tags.keys().map(String::as_str), MARKERS) {
            VmOwnership::Foreign
        } else {
            VmOwnership::Unmarked
        }
    }
}
