//! VMs, network interfaces and disks, as Azure shows them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeAddress;
use mcm_driver::{
    Code, Vm,
    cloud::{CloudFailure, CloudVm, MachineIdentity, VmOwnership},
};
use serde::{Deserialize, Deserializer};

use crate::{
    errors::Named,
    names::{IDS, MARKERS, MOST_TAGS, OWN_TAGS, OWNER_TAG, UID_TAG, is_own, marker_keys},
    spec::Scope,
};

const FAILED: &str = "ProvisioningState/failed/";
const POWER: &str = "PowerState/";
/// States of power in which a VM does not run, and does not begin to.
const HALTED: [&str; 4] = ["stopped", "stopping", "deallocated", "deallocating"];
const CASCADE: &str = "Delete";

/// A kind of resource, with its place in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Vm,
    Nic,
    Disk,
}

impl Kind {
    /// The resource provider, the type and the version of the API.
    pub const fn place(self) -> [&'static str; 3] {
        match self {
            Self::Vm => ["Microsoft.Compute", "virtualMachines", "2023-07-01"],
            Self::Nic => ["Microsoft.Network", "networkInterfaces", "2023-05-01"],
            Self::Disk => ["Microsoft.Compute", "disks", "2023-04-02"],
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vm => "VM",
            Self::Nic => "network interface",
            Self::Disk => "disk",
        }
    }
}

/// One resource in the resource group of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub kind: Kind,
    pub name: String,
}

impl Target {
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// A resource. Fields that Azure always sends must be there: an answer without them is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    pub name: String,
    pub location: String,
    #[serde(default, deserialize_with = "tags")]
    tags: Option<BTreeMap<String, String>>,
    zones: Option<Vec<String>>,
    /// Of a disk: the resource ID of its VM.
    managed_by: Option<String>,
    properties: Properties,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Properties {
    provisioning_state: String,
    /// Of a network interface.
    virtual_machine: Option<Reference>,
    instance_view: Option<InstanceView>,
    storage_profile: Option<StorageProfile>,
    network_profile: Option<NetworkProfile>,
}

#[derive(Clone, Debug, Deserialize)]
struct Reference {
    id: String,
}

#[derive(Clone, Debug, Deserialize)]
struct InstanceView {
    #[serde(default)]
    statuses: Vec<Status>,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    code: String,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageProfile {
    os_disk: Option<Attached>,
    #[serde(default)]
    data_disks: Vec<Attached>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetworkProfile {
    #[serde(default)]
    network_interfaces: Vec<AttachedNic>,
}

#[derive(Clone, Debug, Deserialize)]
struct AttachedNic {
    properties: Option<Attached>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attached {
    delete_option: Option<String>,
}

impl Attached {
    fn cascades(&self) -> bool {
        self.delete_option.as_deref() == Some(CASCADE)
    }
}

/// The stage of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Azure works on it.
    Working,
    Ready,
    Failed,
    Deleting,
}

impl Resource {
    pub fn stage(&self) -> Stage {
        match self.properties.provisioning_state.to_ascii_lowercase().as_str() {
            "succeeded" => Stage::Ready,
            "failed" | "canceled" => Stage::Failed,
            "deleting" => Stage::Deleting,
            // A change of a VM that exists.
            "updating" if self.runs() => Stage::Ready,
            _ => Stage::Working,
        }
    }

    /// The reason of the failure of a VM, if Azure reports one.
    pub fn failure(&self) -> Option<CloudFailure> {
        let named = self.statuses().find_map(|status| {
            let code = status.code.get(..FAILED.len()).filter(|start| start.eq_ignore_ascii_case(FAILED))?;
            let code = status.code.strip_prefix(code)?.to_owned();
            Some(Named { code, message: status.message.clone() })
        });
        named.map(Named::failure).filter(|_| self.stage() == Stage::Failed)
    }

    /// A VM was never started for want of capacity or quota: nothing runs, and nothing will.
    pub fn is_starved(&self) -> bool {
        !self.runs() && self.failure().is_some_and(|failure| failure.code() == Code::ResourceExhausted)
    }

    /// All parts of a VM are deleted with it.
    pub fn cascades(&self) -> bool {
        let Properties { storage_profile, network_profile, .. } = &self.properties;
        let disks = storage_profile.as_ref().is_some_and(|profile| {
            profile.os_disk.as_ref().is_some_and(Attached::cascades)
                && profile.data_disks.iter().all(Attached::cascades)
        });
        let is_cascading = |nic: &AttachedNic| nic.properties.as_ref().is_some_and(Attached::cascades);
        disks && network_profile.as_ref().is_some_and(|profile| profile.network_interfaces.iter().all(is_cascading))
    }

    /// The VM that has a network interface or disk. `None` if none has it.
    pub fn holder(&self) -> Option<&str> {
        let of_nic = self.properties.virtual_machine.as_ref().map(|vm| vm.id.as_str());
        let id = of_nic.or(self.managed_by.as_deref()).filter(|id| !id.is_empty())?;
        id.rsplit('/').next()
    }

    /// Another VM has a network interface or disk.
    pub fn is_held_by_another(&self, vm: &str) -> bool {
        self.holder().is_some_and(|holder| !holder.eq_ignore_ascii_case(vm))
    }

    /// It was made for a Machine of the class.
    pub fn is_of(&self, wanted: MachineIdentity<'_>, scope: &Scope) -> bool {
        self.belonging(scope) == VmOwnership::Ours && wanted.is(wanted.name, self.machine_uid())
    }

    pub fn vm(&self, location: &str) -> Vm {
        let zone = self.zones.iter().flatten().next().map(|zone| format!("{}-{zone}", self.location));
        let address = NodeAddress { type_: "Hostname".to_owned(), address: self.name.clone() };
        let halted = match self.stage() {
            Stage::Deleting => Some("deleting"),
            _ => self.power().filter(|power| HALTED.contains(power)),
        };
        Vm {
            provider_id: IDS.node_form(location, &self.name),
            node_provider_id: None,
            node_name: self.name.clone(),
            zone,
            addresses: vec![address],
            last_known_state: None,
            halted: halted.map(str::to_owned),
        }
    }

    /// Its tags, with others in place of those with the same keys, and without some.
    pub fn tags_with(&self, tags: &BTreeMap<String, String>, without: &[&str]) -> BTreeMap<String, String> {
        let is = |key: &str, other: &str| key.eq_ignore_ascii_case(other);
        let own =
            self.tags.iter().flatten().filter(|(key, _)| {
                !tags.keys().any(|other| is(key, other)) && !without.iter().any(|other| is(key, other))
            });
        own.chain(tags).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn statuses(&self) -> impl Iterator<Item = &Status> {
        self.properties.instance_view.iter().flat_map(|view| &view.statuses)
    }

    fn power(&self) -> Option<&str> {
        self.statuses().find_map(|status| status.code.strip_prefix(POWER))
    }

    fn runs(&self) -> bool {
        self.power() == Some("running")
    }
}

impl CloudVm for Resource {
    type Scope = Scope;

    /// An ID holds the name of the Machine, which no other Machine has.
    const REUSES_IDS: bool = false;

    fn id(&self) -> &str {
        &self.name
    }

    fn machine_name(&self) -> &str {
        &self.name
    }

    fn machine_uid(&self) -> Option<&str> {
        value_of(self.tags.as_ref()?, UID_TAG)
    }

    fn owner(&self) -> Option<&str> {
        self.tags.as_ref().and_then(|tags| value_of(tags, OWNER_TAG))
    }

    fn belonging(&self, scope: &Scope) -> VmOwnership {
        belonging_of(self.tags.iter().flatten().map(|(key, _)| key.as_str()), scope)
    }
}

/// The ownership of a resource with these tags.
pub(crate) fn belonging_of<'a>(keys: impl Iterator<Item = &'a str>, scope: &Scope) -> VmOwnership {
    let lower: Vec<String> = keys.map(str::to_ascii_lowercase).collect();
    scope.markers.ownership(marker_keys(lower.iter().map(String::as_str)), MARKERS)
}

/// The value of a tag, whose key is the same in any case.
pub(crate) fn value_of<'a>(tags: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    tags.iter().find(|(own, _)| own.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
}

/// Reads tags, whose values may be `null`.
pub(crate) fn tags<'de, D: Deserializer<'de>>(value: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let tags: Option<BTreeMap<String, Option<String>>> = Option::deserialize(value)?;
    Ok(tags.map(|tags| tags.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect()))
}

/// The tags of a Machine's resources: those of the class, and ours as far as Azure takes so many. A VM without the UID is found by
/// its name, as one of the reference, and a VM without an owner is listed as one of the cluster.
pub(crate) fn tags_of(of_class: &BTreeMap<String, String>, uid: &str, owner: &str) -> BTreeMap<String, String> {
    let room = MOST_TAGS.saturating_sub(of_class.keys().filter(|key| !is_own(key)).count());
    let own = OWN_TAGS.into_iter().zip([uid, owner]).filter(|(_, value)| !value.is_empty()).take(room);
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    of_class.iter().map(|(key, value)| (key.clone(), value.clone())).chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::cloud::ClassMarkers;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn resource(changes: &Value) -> Resource {
        let mut value =
            json!({"name": "m", "location": "westeurope", "properties": {"provisioningState": "Succeeded"}});
        for (key, change) in changes.as_object().unwrap() {
            value[key] = change.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    fn with_states(state: &str, codes: &[&str]) -> Resource {
        let statuses: Vec<Value> = codes.iter().map(|code| json!({"code": code, "level": "Info"})).collect();
        resource(&json!({"properties": {"provisioningState": state, "instanceView": {"statuses": statuses}}}))
    }

    #[rstest]
    #[case("Succeeded", &[], Stage::Ready)]
    #[case("Creating", &[], Stage::Working)]
    #[case("Updating", &[], Stage::Working)]
    #[case::of_a_vm_that_runs("Updating", &["PowerState/running"], Stage::Ready)]
    #[case("Deleting", &["PowerState/running"], Stage::Deleting)]
    #[case("Failed", &[], Stage::Failed)]
    #[case("Canceled", &[], Stage::Failed)]
    #[case::new_to_us("Migrating", &[], Stage::Working)]
    fn a_resource_has_a_stage(#[case] state: &str, #[case] codes: &[&str], #[case] expected: Stage) {
        assert_eq!(with_states(state, codes).stage(), expected);
    }

    #[rstest]
    #[case::stock_out("Failed", &["ProvisioningState/failed/AllocationFailed"], true)]
    #[case::but_it_runs("Failed", &["ProvisioningState/failed/AllocationFailed", "PowerState/running"], false)]
    #[case::boot("Failed", &["ProvisioningState/failed/OSProvisioningTimedOut"], false)]
    #[case::of_an_earlier_attempt("Succeeded", &["ProvisioningState/failed/AllocationFailed"], false)]
    #[case::unsaid("Failed", &["ProvisioningState/failed"], false)]
    fn a_vm_without_capacity_is_starved(#[case] state: &str, #[case] codes: &[&str], #[case] expected: bool) {
        assert_eq!(with_states(state, codes).is_starved(), expected);
    }

    #[rstest]
    #[case("PowerState/running", None)]
    #[case("PowerState/starting", None)]
    #[case("PowerState/stopped", Some("stopped"))]
    #[case("PowerState/deallocated", Some("deallocated"))]
    fn a_vm_that_does_not_run_says_so(#[case] code: &str, #[case] expected: Option<&str>) {
        assert_eq!(with_states("Succeeded", &[code]).vm("westeurope").halted.as_deref(), expected);
    }

    #[test]
    fn a_vm_that_is_being_deleted_does_not_run() {
        let vm = with_states("Deleting", &["PowerState/running"]).vm("westeurope");
        assert_eq!(vm.halted.as_deref(), Some("deleting"));
    }

    #[test]
    fn a_vm_cascades_if_all_its_parts_do() {
        let with = |nic: &str, os: &str, data: &str| {
            resource(&json!({"properties": {
                "provisioningState": "Succeeded",
                "networkProfile": {"networkInterfaces": [{"id": "n", "properties": {"deleteOption": nic}}]},
                "storageProfile": {"osDisk": {"deleteOption": os}, "dataDisks": [{"lun": 0, "deleteOption": data}]},
            }}))
        };
        assert!(with("Delete", "Delete", "Delete").cascades());
        for one in
            [with("Detach", "Delete", "Delete"), with("Delete", "Detach", "Delete"), with("Delete", "Delete", "Detach")]
        {
            assert!(!one.cascades());
        }
        assert!(!resource(&json!({})).cascades(), "nothing is known");
    }

    #[rstest]
    #[case(&["kubernetes.io-cluster-a", "kubernetes.io-role-node"], VmOwnership::Ours)]
    #[case::in_any_case(&["Kubernetes.io-Cluster-A", "kubernetes.io-role-node"], VmOwnership::Ours)]
    #[case::of_a_longer_name(&["kubernetes.io-cluster-a-b", "kubernetes.io-role-node"], VmOwnership::Foreign)]
    #[case::of_another_role(&["kubernetes.io-cluster-a", "kubernetes.io-role-bastion"], VmOwnership::Unmarked)]
    #[case::inside_another_key(&["x-kubernetes.io-cluster-a", "kubernetes.io-role-node"], VmOwnership::Unmarked)]
    #[case(&["other"], VmOwnership::Unmarked)]
    fn both_markers_make_a_resource_ours(#[case] keys: &[&str], #[case] expected: VmOwnership) {
        let (cluster, role) = ("kubernetes.io-cluster-a".to_owned(), "kubernetes.io-role-node".to_owned());
        let markers = ClassMarkers { cluster, role };
        let scope = Scope { location: "l".to_owned(), resource_group: "g".to_owned(), markers };
        assert_eq!(belonging_of(keys.iter().copied(), &scope), expected);
    }

    #[test]
    fn a_tag_without_a_value_does_not_hide_the_others() {
        let tagged = resource(&json!({"tags": {"a": null, UID_TAG: "u"}}));
        assert_eq!((tagged.machine_uid(), value_of(tagged.tags.as_ref().unwrap(), "A")), (Some("u"), Some("")));
    }

    #[test]
    fn a_part_names_its_vm() {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m";
        let nic = json!({"properties": {"provisioningState": "Succeeded", "virtualMachine": {"id": id}}});
        assert_eq!(resource(&nic).holder(), Some("m"));
        assert_eq!(resource(&json!({"managedBy": id})).holder(), Some("m"));
        assert_eq!(resource(&json!({"managedBy": ""})).holder(), None);
    }

    #[test]
    fn the_zone_is_that_of_the_label_of_nodes() {
        assert_eq!(resource(&json!({"zones": ["2"]})).vm("westeurope").zone.as_deref(), Some("westeurope-2"));
        assert_eq!(resource(&json!({"zones": null, "tags": null})).vm("westeurope").zone, None);
    }
}
