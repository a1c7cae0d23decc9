//! VMs of Compute Engine, as far as the driver reads them.

use google_cloud_compute_v1::model;
use k8s_openapi::api::core::v1::NodeAddress;

use super::{
    names::{IDS, MARKERS, OWNER_LABEL, UID_LABEL},
    spec::Scope,
};
use mcm_driver::{
    Vm,
    cloud::{CloudVm, MachineIdentity, VmOwnership},
};

/// The fields that lists ask for. Metadata are none of them: they contain the user data of other machines.
pub(super) const FIELDS: &str = "kind,nextPageToken,warning.code,items.name,items.status,items.labels,items.tags.items,\
     items.networkInterfaces.networkIP,items.networkInterfaces.ipv6Address,\
     items.networkInterfaces.accessConfigs.natIP,items.networkInterfaces.ipv6AccessConfigs.externalIpv6";

/// A VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Instance {
    pub name: String,
    pub zone: String,
    /// As Google writes it, also a newer one.
    status: String,
    uid: Option<String>,
    owner: Option<String>,
    tags: Vec<String>,
    /// Kinds and addresses in the order of the interfaces.
    addresses: Vec<(&'static str, String)>,
}

/// States of VMs that exist and do not run. `TERMINATED` is the state of a stopped VM.
const HALTED: [&str; 5] = ["STOPPING", "STOPPED", "TERMINATED", "SUSPENDING", "SUSPENDED"];

impl Instance {
    /// Reads an instance of a zone. `None` if it has no name.
    pub(super) fn from_api(found: model::Instance, zone: &str) -> Option<Self> {
        let mut labels = found.labels;
        Some(Self {
            name: found.name?,
            zone: zone.to_owned(),
            status: found.status.and_then(|status| status.name().map(str::to_owned)).unwrap_or_default(),
            uid: labels.remove(UID_LABEL),
            owner: labels.remove(OWNER_LABEL),
            tags: found.tags.map(|tags| tags.items).unwrap_or_default(),
            addresses: found.network_interfaces.into_iter().flat_map(addresses_of).collect(),
        })
    }

    /// Its creation may still fail, for want of resources. In any other state it exists, also when it is stopped: its state does
    /// not show a deletion.
    pub(super) fn is_provisioning(&self) -> bool {
        self.status == "PROVISIONING"
    }

    /// It was created for a Machine: it belongs to the class, has the same name, and has no other UID.
    pub(super) fn is_of(&self, wanted: MachineIdentity<'_>, scope: &Scope) -> bool {
        self.belonging(scope) == VmOwnership::Ours && wanted.is(&self.name, self.machine_uid())
    }

    pub(super) fn vm(&self, project: &str) -> Vm {
        Vm {
            provider_id: IDS.node_form(&format!("{project}/{}", self.zone), &self.name),
            node_provider_id: None,
            node_name: self.name.clone(),
            zone: Some(self.zone.clone()),
            addresses: self.addresses(),
            last_known_state: None,
            halted: HALTED.contains(&self.status.as_str()).then(|| self.status.to_lowercase()),
        }
    }

    fn tags(&self) -> impl Iterator<Item = &str> + Clone {
        self.tags.iter().map(String::as_str)
    }

    /// Addresses in the order of the interfaces, then the name.
    fn addresses(&self) -> Vec<NodeAddress> {
        let found = self.addresses.iter().map(|(kind, address)| (*kind, address.as_str()));
        let address =
            |(kind, address): (&str, &str)| NodeAddress { type_: kind.to_owned(), address: address.to_owned() };
        found.chain([("Hostname", self.name.as_str())]).map(address).collect()
    }
}

impl CloudVm for Instance {
    type Scope = Scope;

    /// They are names, of which each Machine has another; the session checks a VM without tags.
    const REUSES_IDS: bool = false;

    fn id(&self) -> &str {
        &self.name
    }

    fn machine_name(&self) -> &str {
        &self.name
    }

    fn machine_uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    fn belonging(&self, scope: &Scope) -> VmOwnership {
        scope.markers.ownership(self.tags(), MARKERS)
    }
}

/// The addresses of an interface: kinds and values that are not empty.
fn addresses_of(interface: model::NetworkInterface) -> impl Iterator<Item = (&'static str, String)> {
    let internal = [interface.network_ip, interface.ipv_6_address].map(|address| ("InternalIP", address));
    let ipv4 = interface.access_configs.into_iter().map(|one| ("ExternalIP", one.nat_ip));
    let ipv6 = interface.ipv_6_access_configs.into_iter().map(|one| ("ExternalIP", one.external_ipv_6));
    let all = internal.into_iter().chain(ipv4).chain(ipv6);
    all.filter_map(|(kind, address)| Some((kind, address.filter(|address| !address.is_empty())?)))
}
