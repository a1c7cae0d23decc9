//! An instance of Compute Cloud: a VM.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeAddress;
use mcm_driver::{
    Vm,
    cloud::{CloudVm, VmOwnership},
};
use serde::Deserialize;

use crate::{
    names::{MARKERS, OWNER_LABEL, SCHEME, UID_LABEL},
    spec::Scope,
};

/// An instance. Fields that the cloud always sends are required: an answer without them cannot be read. Empty fields are left out.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Instance {
    pub id: String,
    pub folder_id: String,
    pub zone_id: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub fqdn: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    network_interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Interface {
    primary_v4_address: Option<Address>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    #[serde(default)]
    address: String,
    one_to_one_nat: Option<Nat>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Nat {
    #[serde(default)]
    address: String,
}

impl Instance {
    /// The cloud still searches for a host, and may not find one.
    pub(crate) fn is_provisioning(&self) -> bool {
        self.status == "PROVISIONING"
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.status == "DELETING"
    }

    pub(crate) fn provider_id(&self) -> String {
        format!("{SCHEME}{}/{}", self.zone_id, self.id)
    }

    pub(crate) fn vm(&self) -> Vm {
        Vm {
            provider_id: self.provider_id(),
            node_provider_id: None,
            node_name: self.name.clone(),
            zone: Some(self.zone_id.clone()),
            addresses: self.addresses(),
            last_known_state: None,
            halted: self.halted(),
        }
    }

    fn halted(&self) -> Option<String> {
        let does_not_run = ["STOPPING", "STOPPED", "ERROR", "CRASHED", "DELETING"].contains(&self.status.as_str());
        does_not_run.then(|| self.status.to_ascii_lowercase())
    }

    /// Private addresses, public ones, and names.
    fn addresses(&self) -> Vec<NodeAddress> {
        let all = || self.network_interfaces.iter().filter_map(|one| one.primary_v4_address.as_ref());
        let private = all().map(|one| ("InternalIP", &one.address));
        let public = all().filter_map(|one| one.one_to_one_nat.as_ref()).map(|nat| ("ExternalIP", &nat.address));
        let names = [("Hostname", &self.name), ("InternalDNS", &self.fqdn)];
        let found = private.chain(public).chain(names).filter(|(_, address)| !address.is_empty());
        found.map(|(kind, address)| NodeAddress { type_: kind.to_owned(), address: address.clone() }).collect()
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
        self.labels.get(UID_LABEL).map(String::as_str)
    }

    fn owner(&self) -> Option<&str> {
        self.labels.get(OWNER_LABEL).map(String::as_str)
    }

    fn belonging(&self, scope: &Scope) -> VmOwnership {
        if self.folder_id != scope.folder {
            return VmOwnership::Foreign;
        }
        scope.markers.ownership(self.labels.keys().map(String::as_str), MARKERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::cloud::ClassMarkers;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn instance(changes: Value) -> Instance {
        let mut instance = json!({
            "id": "fhm1", "folderId": "b1g", "zoneId": "ru-central1-a", "name": "m", "status": "RUNNING",
            "labels": {"kubernetes-io-cluster-shoot": "1", "kubernetes-io-role-node": "1"},
        });
        instance.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(instance).unwrap()
    }

    #[rstest]
    #[case("RUNNING", None)]
    #[case("UPDATING", None)]
    #[case("RESTARTING", None)]
    #[case("STOPPED", Some("stopped"))]
    #[case("CRASHED", Some("crashed"))]
    #[case("ERROR", Some("error"))]
    #[case::newer("SUSPENDED", None)]
    fn a_vm_that_does_not_run_has_the_word_of_the_cloud(#[case] status: &str, #[case] expected: Option<&str>) {
        assert_eq!(instance(json!({"status": status})).vm().halted.as_deref(), expected);
    }

    #[test]
    fn addresses_are_private_ones_then_public_ones_then_names() {
        let interfaces = json!([
            {"index": "0", "primaryV4Address": {"address": "10.0.0.1", "oneToOneNat": {"address": "198.51.100.1"}}},
            {"index": "1", "primaryV4Address": {"address": "10.1.0.1"}},
            {"index": "2"},
        ]);
        let vm = instance(json!({"networkInterfaces": interfaces, "fqdn": "m.ru-central1.internal"})).vm();
        let found: Vec<String> = vm.addresses.iter().map(|one| format!("{} {}", one.type_, one.address)).collect();
        let expected = [
            "InternalIP 10.0.0.1",
            "InternalIP 10.1.0.1",
            "ExternalIP 198.51.100.1",
            "Hostname m",
            "InternalDNS m.ru-central1.internal",
        ];
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case::ours(json!({}), VmOwnership::Ours)]
    #[case::of_another_folder(json!({"folderId": "other"}), VmOwnership::Foreign)]
    #[case::of_another_cluster(json!({"labels": {"kubernetes-io-cluster-other": "1", "kubernetes-io-role-node": "1"}}), VmOwnership::Foreign)]
    #[case::without_a_role(json!({"labels": {"kubernetes-io-cluster-shoot": "1"}}), VmOwnership::Unmarked)]
    #[case::without_labels(json!({"labels": {}}), VmOwnership::Unmarked)]
    fn an_instance_belongs_to_a_class_by_folder_and_both_markers(
        #[case] changes: Value,
        #[case] expected: VmOwnership,
    ) {
        let markers =
            ClassMarkers { cluster: "kubernetes-io-cluster-shoot".into(), role: "kubernetes-io-role-node".into() };
        assert_eq!(instance(changes).belonging(&Scope { folder: "b1g".into(), markers }), expected);
    }
}
