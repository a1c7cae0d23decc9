//! What Google tells of a VM.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeAddress;
use serde::Deserialize;

use super::{
    names::{IDS, MARKERS, OWNER_LABEL, UID_LABEL},
    spec::Scope,
};
use crate::driver::{ListedVm, Vm, cloud::Wanted};

/// The fields that look-ups ask for. Metadata are none of them: they contain the user data of other machines.
pub(super) const FIELDS: &str = "name,status,labels,tags/items,\
     networkInterfaces(networkIP,ipv6Address,accessConfigs/natIP,ipv6AccessConfigs/externalIpv6)";

/// A VM that Google knows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Instance {
    pub name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    tags: Tags,
    #[serde(default)]
    network_interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Tags {
    items: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Interface {
    #[serde(rename = "networkIP")]
    network_ip: String,
    ipv6_address: String,
    access_configs: Vec<AccessConfig>,
    ipv6_access_configs: Vec<Ipv6AccessConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct AccessConfig {
    #[serde(rename = "natIP")]
    nat_ip: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ipv6AccessConfig {
    external_ipv6: String,
}

/// States of VMs that exist and do not run. `TERMINATED` is the state of a stopped VM.
const HALTED: [&str; 5] = ["STOPPING", "STOPPED", "TERMINATED", "SUSPENDING", "SUSPENDED"];

impl Instance {
    /// Whether its creation may still fail, for want of resources. In any other state it exists, also when it is stopped:
    /// only Google knows whether it is being deleted.
    pub(super) fn is_provisioning(&self) -> bool {
        self.status == "PROVISIONING"
    }

    /// The instance as a list shows it.
    pub(super) fn listed(&self) -> ListedVm {
        ListedVm::new(&self.name, self.labels.get(OWNER_LABEL).cloned())
    }

    /// Whether it is one of the class.
    pub(super) fn is_in(&self, scope: &Scope) -> bool {
        scope.markers.are_on(self.tags())
    }

    /// Whether it was created for a Machine: one of the class, of the same name, and not for another UID.
    pub(super) fn is_of(&self, wanted: Wanted<'_>, scope: &Scope) -> bool {
        self.is_in(scope) && wanted.is(&self.name, self.uid())
    }

    /// Whether it is the VM that the provider ID of a Machine names. One that lost its tags is known by its UID.
    pub(super) fn is_known(&self, wanted: Wanted<'_>, scope: &Scope) -> bool {
        let is_foreign = scope.markers.are_foreign(self.tags(), MARKERS);
        self.is_in(scope) || (!is_foreign && !wanted.uid.is_empty() && self.uid() == Some(wanted.uid))
    }

    pub(super) fn vm(&self, project: &str, zone: &str) -> Vm {
        Vm {
            provider_id: self.provider_id(project, zone),
            node_name: self.name.clone(),
            zone: Some(zone.to_owned()),
            addresses: self.addresses(),
            last_known_state: None,
            halted: HALTED.contains(&self.status.as_str()).then(|| self.status.to_lowercase()),
        }
    }

    pub(super) fn provider_id(&self, project: &str, zone: &str) -> String {
        IDS.node_form(&format!("{project}/{zone}"), &self.name)
    }

    fn uid(&self) -> Option<&str> {
        self.labels.get(UID_LABEL).map(String::as_str)
    }

    fn tags(&self) -> impl Iterator<Item = &str> + Clone {
        self.tags.items.iter().map(String::as_str)
    }

    /// Addresses in the order of the interfaces, then the name.
    fn addresses(&self) -> Vec<NodeAddress> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        for interface in &self.network_interfaces {
            found.extend([("InternalIP", &*interface.network_ip), ("InternalIP", &*interface.ipv6_address)]);
            found.extend(interface.access_configs.iter().map(|one| ("ExternalIP", &*one.nat_ip)));
            found.extend(interface.ipv6_access_configs.iter().map(|one| ("ExternalIP", &*one.external_ipv6)));
        }
        found.push(("Hostname", &self.name));
        found.retain(|(_, address)| !address.is_empty());
        let address =
            |(kind, address): (&str, &str)| NodeAddress { type_: kind.to_owned(), address: address.to_owned() };
        found.into_iter().map(address).collect()
    }
}
