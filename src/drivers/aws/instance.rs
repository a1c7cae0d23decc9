//! VMs as EC2 describes them.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{self, InstanceNetworkInterface};
use k8s_openapi::api::core::v1::NodeAddress;

use super::{
    names::{GROUP_TAG, IDS, NAME_TAG, OWNER_TAG, UID_TAG},
    spec::{MARKERS, Scope, Spec},
};
use mcm_driver::{
    Vm,
    cloud::{CloudVm, VmOwnership},
};

/// States of VMs that exist and do not run.
const HALTED: [&str; 2] = ["stopping", "stopped"];

/// A VM that EC2 shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Instance {
    pub id: String,
    /// It is being terminated, or was.
    pub is_gone: bool,
    /// It was terminated: nothing runs in it any more.
    pub has_ended: bool,
    /// Its state, if it exists and does not run.
    halted: Option<String>,
    /// Why it was terminated: a code of EC2 and a text.
    pub reason: Option<(String, String)>,
    /// Token of the request that created it.
    pub client_token: String,
    /// Name of its Node; empty until EC2 assigned it.
    pub node_name: String,
    pub tags: BTreeMap<String, String>,
    pub interfaces: Vec<Interface>,
    pub addresses: Vec<NodeAddress>,
    /// The address of its first interface. Others may be those of pods.
    pub private_address: Option<String>,
    pub zone: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    pub id: String,
    /// Network card and place on it.
    pub place: Option<(i32, i32)>,
    pub is_efa: bool,
    pub source_dest_check: bool,
    pub ipv6_prefixes: usize,
}

/// A change that an interface still needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Todo {
    DisableSourceDestCheck { interface: String },
    AssignIpv6Prefixes { interface: String, missing: i32 },
}

impl Instance {
    /// Reads an instance. `None` if it has no ID or no state.
    pub(super) fn from_api(instance: &types::Instance) -> Option<Self> {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let state = instance.state()?.name()?.as_str();
        let reason = instance.state_reason();
        let zone = instance.placement().and_then(types::Placement::availability_zone);
        Some(Self {
            id: filled(instance.instance_id())?.to_owned(),
            is_gone: ["shutting-down", "terminated"].contains(&state),
            has_ended: state == "terminated",
            halted: HALTED.contains(&state).then(|| state.to_owned()),
            reason: reason.map(|reason| (text(reason.code()), text(reason.message()))),
            client_token: text(instance.client_token()),
            node_name: text(instance.private_dns_name()),
            tags: instance.tags().iter().map(|tag| (text(tag.key()), text(tag.value()))).collect(),
            interfaces: instance.network_interfaces().iter().map(interface).collect(),
            addresses: addresses(instance),
            private_address: private_address(instance),
            zone: filled(zone).map(str::to_owned),
        })
    }

    /// It exists and is a member of an Auto Scaling group.
    pub(super) fn is_member_of(&self, group: &str) -> bool {
        !self.is_gone && self.tags.get(GROUP_TAG).is_some_and(|name| name == group)
    }

    /// How many VMs of the Machine with this UID were created before it, by its token.
    pub(super) fn generation(&self, uid: &str) -> Option<u32> {
        match self.client_token.strip_prefix(uid)? {
            "" => Some(0),
            rest => rest.strip_prefix('-')?.parse().ok(),
        }
    }

    pub(super) fn vm(&self, region: &str) -> Vm {
        Vm {
            provider_id: IDS.node_form(region, &self.id),
            node_provider_id: None,
            node_name: self.node_name.clone(),
            zone: self.zone.clone(),
            addresses: self.addresses.clone(),
            last_known_state: None,
            halted: self.halted.clone(),
        }
    }

    /// The terminated VM, with the reason of EC2, such as that of a spot VM: `Server.SpotInstanceTermination`.
    pub(super) fn ended(&self, region: &str) -> Vm {
        let reason = self.reason.as_ref().filter(|(code, _)| !code.is_empty());
        let halted = match reason {
            Some((code, _)) => format!("terminated ({code})"),
            None => "terminated".to_owned(),
        };
        Vm { halted: Some(halted), ..self.vm(region) }
    }

    /// Changes that the class requires and the VM still lacks.
    pub(super) fn todo(&self, spec: &Spec) -> Vec<Todo> {
        let mut todo = Vec::new();
        if spec.source_dest_check == Some(false) {
            let checked = self.interfaces.iter().filter(|interface| interface.source_dest_check && !interface.is_efa);
            todo.extend(checked.map(|interface| Todo::DisableSourceDestCheck { interface: interface.id.clone() }));
        }
        for (index, wanted) in (0..).zip(&spec.network_interfaces) {
            let Some(count) = wanted.ipv6_prefix_count.filter(|count| *count > 0) else { continue };
            let place = (wanted.network_card_index.unwrap_or_default(), wanted.device_index.unwrap_or(index));
            let Some(interface) = self.interfaces.iter().find(|interface| interface.place == Some(place)) else {
                continue;
            };
            let missing = count.saturating_sub(i32::try_from(interface.ipv6_prefixes).unwrap_or(i32::MAX));
            if missing > 0 {
                todo.push(Todo::AssignIpv6Prefixes { interface: interface.id.clone(), missing });
            }
        }
        todo
    }
}

impl CloudVm for Instance {
    type Scope = Scope;

    const REUSES_IDS: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    /// Empty if it has no name.
    fn machine_name(&self) -> &str {
        self.tags.get(NAME_TAG).map_or("", String::as_str)
    }

    fn machine_uid(&self) -> Option<&str> {
        self.tags.get(UID_TAG).map(String::as_str)
    }

    fn owner(&self) -> Option<&str> {
        self.tags.get(OWNER_TAG).map(String::as_str)
    }

    /// A terminated instance still belongs to its class. EC2 filters by the same rules; other clouds with its API may not.
    fn belonging(&self, scope: &Scope) -> VmOwnership {
        scope.markers.ownership(self.tags.keys().map(String::as_str), MARKERS)
    }

    fn is_leaving(&self) -> bool {
        self.is_gone
    }
}

/// A VM of this class has to be initialized.
pub(super) fn needs_initialization(spec: &Spec) -> bool {
    let has_prefixes = |count: Option<i32>| count.is_some_and(|count| count > 0);
    spec.source_dest_check == Some(false)
        || spec.network_interfaces.iter().any(|interface| has_prefixes(interface.ipv6_prefix_count))
}

/// A text that is not empty.
fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn interface(interface: &InstanceNetworkInterface) -> Interface {
    let attachment = interface.attachment();
    Interface {
        id: interface.network_interface_id().unwrap_or_default().to_owned(),
        place: attachment.and_then(|one| Some((one.network_card_index().unwrap_or(0), one.device_index()?))),
        is_efa: interface.interface_type().is_some_and(|kind| kind.starts_with("efa")),
        source_dest_check: interface.source_dest_check() == Some(true),
        ipv6_prefixes: interface.ipv6_prefixes().len(),
    }
}

/// In a subnet without IPv4 it is one of IPv6.
fn private_address(instance: &types::Instance) -> Option<String> {
    filled(instance.private_ip_address()).or_else(|| filled(instance.ipv6_address())).map(str::to_owned)
}

/// Addresses in the order of the interfaces, then the names.
fn addresses(instance: &types::Instance) -> Vec<NodeAddress> {
    let mut found: Vec<(&str, Option<&str>)> = Vec::new();
    for interface in instance.network_interfaces() {
        let private = interface.private_ip_addresses().iter().map(|one| one.private_ip_address());
        let ipv6 = interface.ipv6_addresses().iter().map(|one| one.ipv6_address());
        found.extend(private.chain(ipv6).map(|address| ("InternalIP", address)));
    }
    found.extend([
        ("InternalIP", instance.private_ip_address()),
        ("ExternalIP", instance.public_ip_address()),
        ("InternalDNS", instance.private_dns_name()),
        ("ExternalDNS", instance.public_dns_name()),
        ("Hostname", instance.private_dns_name()),
    ]);
    let mut addresses: Vec<NodeAddress> = Vec::new();
    for (kind, address) in found {
        let Some(address) = filled(address) else { continue };
        let address = NodeAddress { type_: kind.to_owned(), address: address.to_owned() };
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}
