//! Lists by the Resource Graph: a query, and the machines in its rows.

use std::collections::{BTreeMap, HashSet};

use mcm_driver::{ListedVm, VmsByProviderId, cloud::VmOwnership};
use serde::Deserialize;

use crate::{
    names::{IDS, OWNER_TAG, is_vm_name, vm_of_nic, vm_of_os_disk},
    resource::{belonging_of, tags, value_of},
    spec::{DataDisk, Scope},
};

/// A resource of a class, as the Resource Graph shows it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "tags")]
    tags: Option<BTreeMap<String, String>>,
    /// Of a disk: the resource ID of its VM.
    managed_by: Option<String>,
    /// Of a network interface: the resource ID of its VM.
    holder: Option<String>,
}

const VM: &str = "microsoft.compute/virtualmachines";

/// The query of all resources that may be of a class, and of all VMs in its resource group: a part shows its VM for a while after that
/// is gone. Without `id` there are no further pages. `has` finds keys that begin alike, so rows are selected once more.
pub(crate) fn query(scope: &Scope) -> String {
    let [group, cluster, role] =
        [&scope.resource_group, &scope.markers.cluster, &scope.markers.role].map(|text| literal(text));
    format!(
        "Resources
| where resourceGroup =~ {group}
| extend tagKeys = bag_keys(tags), isPart = type in~ ('microsoft.network/networkinterfaces', 'microsoft.compute/disks')
| where type =~ '{VM}' or (isPart and tagKeys has {cluster} and tagKeys has {role})
| project id, name, type, tags, managedBy, holder = tostring(properties.virtualMachine.id)
| order by id asc"
    )
}

/// A text in a query.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// The machines in some rows. Parts that no VM has any more stand for their machine, so that they are collected with it.
pub(crate) fn machines(rows: &[Row], scope: &Scope, data_disks: &[DataDisk]) -> VmsByProviderId {
    let existing: HashSet<String> =
        rows.iter().filter(|row| row.is_vm()).map(|row| row.name.to_ascii_lowercase()).collect();
    let mut listed = VmsByProviderId::new();
    for row in rows.iter().filter(|row| row.is_in(scope)) {
        let stands_for = |vm: &&str| is_vm_name(vm) && (row.is_vm() || row.is_left_by(vm, &existing, scope));
        if let Some(vm) = row.machine(data_disks).filter(stands_for) {
            let owner = row.tags.as_ref().and_then(|tags| value_of(tags, OWNER_TAG)).map(str::to_owned);
            // All parts have the tags of the VM.
            listed.entry(IDS.node_form(&scope.location, vm)).or_insert_with(|| ListedVm::new(vm, owner));
        }
    }
    listed
}

impl Row {
    fn is_in(&self, scope: &Scope) -> bool {
        let keys = self.tags.iter().flatten().map(|(key, _)| key.as_str());
        belonging_of(keys, scope) == VmOwnership::Ours
    }

    fn is_vm(&self) -> bool {
        self.kind.eq_ignore_ascii_case(VM)
    }

    /// The name of the machine whose VM or part this is.
    fn machine(&self, data_disks: &[DataDisk]) -> Option<&str> {
        match self.kind.to_ascii_lowercase().as_str() {
            VM => Some(&self.name),
            "microsoft.network/networkinterfaces" => vm_of_nic(&self.name),
            "microsoft.compute/disks" => {
                let of_data_disk = || data_disks.iter().find_map(|disk| disk.vm_of(&self.name));
                vm_of_os_disk(&self.name).or_else(of_data_disk)
            }
            _ => None,
        }
    }

    /// No VM has this part of a VM any more: it shows none, or the VM that it was made for, which does not exist.
    fn is_left_by(&self, vm: &str, existing: &HashSet<String>, scope: &Scope) -> bool {
        let own = format!("/resourceGroups/{}/providers/{VM}/{vm}", scope.resource_group).to_ascii_lowercase();
        let is_gone = !existing.contains(&vm.to_ascii_lowercase());
        let mut holders = [&self.managed_by, &self.holder].into_iter().flatten().filter(|id| !id.is_empty());
        holders.all(|id| is_gone && id.to_ascii_lowercase().ends_with(&own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::cloud::ClassMarkers;
    use rstest::rstest;
    use serde_json::{Value, json};

    const NIC: &str = "Microsoft.Network/networkInterfaces";
    const DISK: &str = "microsoft.compute/disks";

    fn scope() -> Scope {
        let markers =
            ClassMarkers { cluster: "kubernetes.io-cluster-a".to_owned(), role: "kubernetes.io-role-node".to_owned() };
        Scope { location: "westeurope".to_owned(), resource_group: "g".to_owned(), markers }
    }

    fn row(kind: &str, name: &str, changes: &Value) -> Row {
        let tags = json!({"kubernetes.io-cluster-a": "1", "kubernetes.io-role-node": "1"});
        let mut row = json!({"id": "i", "name": name, "type": kind, "tags": tags, "managedBy": "", "holder": ""});
        for (key, value) in changes.as_object().unwrap() {
            row[key] = value.clone();
        }
        serde_json::from_value(row).unwrap()
    }

    #[rstest]
    #[case::vm("microsoft.compute/virtualMachines", "m", json!({}), Some("m"))]
    #[case::nic_that_is_left(NIC, "m-nic", json!({}), Some("m"))]
    #[case::nic_of_a_vm_elsewhere(NIC, "m-nic", json!({"holder": "/resourceGroups/h/providers/Microsoft.Compute/virtualMachines/m"}), None)]
    #[case::nic_of_another_vm(NIC, "m-nic", json!({"holder": "/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n"}), None)]
    #[case::nic_of_a_vm_that_is_gone(NIC, "m-nic", json!({"holder": "/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/M"}), Some("m"))]
    #[case::nic_of_another_kind(NIC, "bastion", json!({}), None)]
    #[case::short(NIC, "nic", json!({}), None)]
    #[case::disk_that_is_left(DISK, "m-os-disk", json!({"managedBy": null}), Some("m"))]
    #[case::data_disk(DISK, "m-logs-1-data-disk", json!({}), Some("m"))]
    #[case::unnamed_data_disk(DISK, "m-0-data-disk", json!({}), Some("m"))]
    #[case::disk_of_another_vm(DISK, "m-os-disk", json!({"managedBy": "/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n"}), None)]
    #[case::of_another_class(DISK, "m-other-2-data-disk", json!({}), None)]
    #[case::of_a_longer_cluster(NIC, "m-nic", json!({"tags": {"kubernetes.io-cluster-a-b": "1", "kubernetes.io-role-node": "1"}}), None)]
    #[case::of_another_kind("microsoft.storage/accounts", "m-nic", json!({}), None)]
    fn a_row_stands_for_its_machine(
        #[case] kind: &str,
        #[case] name: &str,
        #[case] changes: Value,
        #[case] expected: Option<&str>,
    ) {
        let disk = |name: &str, lun| DataDisk { name: name.to_owned(), lun, ..DataDisk::default() };
        let listed = machines(&[row(kind, name, &changes)], &scope(), &[disk("logs", 1), disk("", 0)]);
        assert_eq!(listed.into_values().map(|one| one.machine).next().as_deref(), expected);
    }

    #[test]
    fn texts_in_a_query_stay_texts() {
        let markers = ClassMarkers {
            cluster: "kubernetes.io-cluster-' or 'a' == 'a".to_owned(),
            role: "kubernetes.io-role-\\".to_owned(),
        };
        let query = query(&Scope { resource_group: "o'group".to_owned(), markers, ..scope() });
        assert!(query.contains(r"| where resourceGroup =~ 'o\'group'"), "{query}");
        let markers = r"(isPart and tagKeys has 'kubernetes.io-cluster-\' or \'a\' == \'a' and tagKeys has 'kubernetes.io-role-\\')";
        assert!(query.contains(markers), "{query}");
    }

    #[test]
    fn a_machine_is_listed_once_with_its_owner() {
        let tags = json!({"kubernetes.io-cluster-a": "1", "kubernetes.io-role-node": "1", "machine.sapcloud.io-owner": "team"});
        let rows = [row(NIC, "m-nic", &json!({"tags": tags})), row(DISK, "m-os-disk", &json!({"tags": tags}))];
        let expected = [("azure:///westeurope/m".to_owned(), ListedVm::new("m", Some("team".to_owned())))];
        assert_eq!(machines(&rows, &scope(), &[]), expected.into());
    }
}
