//! The data of vSphere for the cases that every driver has.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    Driver, SecretData, SecretPolicy,
    cloud::RequestReporter,
    profile_suite,
    testing::{
        profile::{
            AbsentResource, ClassChanges, CloudProfile, ExpectedVm, PermittedCalls, RequestCounts, SecretCase, changed,
        },
        server::{Fault, Reply},
    },
};
use serde_json::{Value, json};

use super::{
    CLUSTER, ID_FIELD, ROLE, UID, World, class, driver, secret, spec_with,
    vcenter::{PASSWORD, USER, fault},
};
use crate::login::Login;

impl CloudProfile for World {
    const NAME: &'static str = crate::NAME;
    const FOLDER: &'static str = "vsphere";
    const LIST: &'static str = "look";
    const COUNTS: RequestCounts = RequestCounts {
        create: &[
            ("clone_vm", 1, 0),
            ("login", 1, 0),
            ("power_on_vm", 1, 0),
            ("reconfigure_vm", 1, 0),
            ("service_content", 1, 0),
        ],
        list: &[("find_by_inventory_path", 1, 0), ("retrieve_properties", 2, 0)],
        delete: &[("destroy_vm", 1, 0), ("power_off_vm", 1, 0)],
        has_more: true,
    };
    const RARE: &'static [&'static str] = &["GetCustomizationSpec", "PlaceVm"];
    const CSI: Option<&'static str> = Some("csi.vsphere.vmware.com");
    const QUOTING: &'static [&'static str] = &["Login", "CloneVM_Task"];

    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver> {
        Box::new(driver(Duration::from_secs(20), requests))
    }

    fn class_with(&self, changes: &Value) -> MachineClass {
        class(spec_with(changes))
    }

    fn changes() -> ClassChanges {
        ClassChanges {
            invalid: json!({"numCpus": "7"}),
            spoilt: json!({"templateVM": null, "network": 7, "datastore": null, "resourcePool": "", "numCpus": "x"}),
            foreign: json!({"tags": {CLUSTER.0: "other", ROLE.0: ROLE.1}}),
            unmarked: json!({"tags": {}}),
            same_list: json!({"templateVM": "other", "datacenter": ""}),
            other_lists: vec![json!({"folder": "other"})],
        }
    }

    fn slow(&self) {
        self.vcenter.change(&json!({"CloneTime": 60}));
    }

    fn storm(&self, faults: Vec<Fault>) {
        self.vcenter.settings.lock().storm = faults;
    }

    fn busy() -> Reply {
        fault("TaskInProgress", "another task works on it")
    }

    fn expected(&self) -> ExpectedVm {
        let provider_id = format!("vsphere://eu/{}", self.vm("m-1").uuid);
        ExpectedVm {
            created: format!("Created {provider_id}"),
            provider_id,
            node_name: "m-1".to_owned(),
            addresses: ["InternalIP 10.0.0.2", "Hostname m-1"].map(str::to_owned).into(),
            ..ExpectedVm::default()
        }
    }

    fn provider_ids(id: &str) -> Vec<(String, bool)> {
        let uuid = id.rsplit('/').next().unwrap().to_uppercase();
        let with = |prefix: &str, is_found| (format!("{prefix}{uuid}"), is_found);
        let others = ["vsphere://eu/../..", "vsphere://eu/a b", "vsphere://eu/", "4230-uuid"];
        let others = others.map(|id| (id.to_owned(), false));
        // The last is of the cloud controller manager.
        let found = [with("vsphere://eu/", true), with("vsphere:///", true), with("vsphere://", true)];
        found.into_iter().chain([with("aws:///eu-west-1/", false)]).chain(others).collect()
    }

    fn tags(&self) -> Value {
        // An empty field is an absent one.
        let mut fields = self.vm("m-1").fields;
        fields.retain(|_, value| !value.is_empty());
        json!(fields)
    }

    fn released(&self) -> Value {
        let id = format!("vsphere://eu/{}", self.vm("m-1").uuid);
        json!({
            CLUSTER.0: CLUSTER.1, ROLE.0: ROLE.1, UID: "uid-m-1", "pool": "workers", ID_FIELD: id,
            "machine.sapcloud.io/unlisted": "true",
        })
    }

    fn user_data_of(&self, name: &str) -> Vec<u8> {
        let properties = self.vm(name).properties;
        match properties.get("guestinfo.ignition.config.data") {
            Some(ignition) => ignition.as_bytes().to_vec(),
            None => STANDARD.decode(&properties["user-data"]).unwrap(),
        }
    }

    fn bootstrap_class(data: &[u8]) -> Value {
        json!({"templateVM": if data.starts_with(b"{") { "template-ignition" } else { "template" }})
    }

    fn gardener_secret(&self) -> SecretData {
        secret(&[
            ("vsphereHost", "vcenter.example.com"),
            ("vsphereUsername", "gardener"),
            ("vspherePassword", "p"),
            ("vsphereInsecureSSL", "false"),
        ])
    }

    fn fit(class: &mut MachineClass) {
        let places = json!({
            "datacenter": "DC0", "computeCluster": "DC0_C0", "network": "DC0_DVPG0", "switchUuid": null, "folder": "workers",
            "datastoreCluster": "DC0_POD0", "templateVM": "template-ignition",
        });
        class.provider_spec = changed(class.provider_spec.take(), &places);
    }

    fn needs() -> Value {
        json!({"hostSystem": "DC0_H0", "computeCluster": "DC0_C0", "datastoreCluster": "DC0_POD0"})
    }

    fn findings(&self) -> Vec<String> {
        let expected = [
            "Secret Present: administrator@vsphere.local has logged in",
            "providerSpec.folder Present: workers",
            "providerSpec.templateVM Present: template",
            "providerSpec.datastore Present: LocalDS_0",
            "providerSpec.datastoreCluster Present: DC0_POD0",
            "providerSpec.computeCluster Present: DC0_C0",
            "providerSpec.resourcePool Present: DC0_C0/Resources",
            "providerSpec.hostSystem Present: DC0_H0",
            "providerSpec.network Present: DC0_DVPG0",
        ];
        expected.map(str::to_owned).into()
    }

    /// The IDs of the simulator have no meaning.
    fn finding_text(text: &str) -> &str {
        if text.starts_with("there is ") { text } else { text.split(" is ").next().unwrap() }
    }

    fn absent_resources() -> Vec<AbsentResource> {
        vec![
            ("", json!({"datacenter": "DC9"}), vec!["providerSpec.datacenter: there is no datacenter DC9"]),
            ("", json!({"folder": "none"}), vec!["providerSpec.folder: there is no folder none in datacenter DC0"]),
            (
                "",
                json!({"templateVM": "none"}),
                vec!["providerSpec.templateVM: there is no templateVM none in datacenter DC0"],
            ),
            (
                "",
                json!({"datastore": "none"}),
                vec!["providerSpec.datastore: there is no datastore none in datacenter DC0"],
            ),
            (
                "",
                json!({"resourcePool": "none"}),
                vec!["providerSpec.resourcePool: there is no resourcePool none in datacenter DC0"],
            ),
            ("", json!({"network": "none"}), vec!["providerSpec.network: there is no network none in datacenter DC0"]),
        ]
    }

    fn sent(&self) -> BTreeSet<String> {
        self.vcenter.settings.lock().log.iter().map(|(call, _)| call.clone()).collect()
    }

    fn permissions() -> &'static [PermittedCalls] {
        &[
            ("System.Read", &["disks", "look", "markers", "task", "template", "RetrievePropertiesEx"]),
            ("System.View", &["FindAllByUuid", "FindByInventoryPath", "FindChild"]),
            ("Datastore.AllocateSpace", &["CloneVM_Task"]),
            ("Global.ManageCustomFields", &["AddCustomFieldDef"]),
            ("Global.SetCustomField", &["SetField"]),
            ("Network.Assign", &["ReconfigVM_Task"]),
            ("Resource.ApplyRecommendation", &["PlaceVm", "RecommendDatastores"]),
            ("Resource.AssignVMToPool", &["CloneVM_Task"]),
            ("StorageProfile.View", &["RecommendDatastores"]),
            ("VirtualMachine.Config.AddExistingDisk", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.AddNewDisk", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.AddRemoveDevice", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.AdvancedConfig", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.CPUCount", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.DiskExtend", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.EditDevice", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.Memory", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.RemoveDisk", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.Resource", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.Settings", &["ReconfigVM_Task"]),
            ("VirtualMachine.Config.UpgradeVirtualHardware", &["UpgradeVM_Task"]),
            ("VirtualMachine.Interact.PowerOff", &["PowerOffVM_Task"]),
            ("VirtualMachine.Interact.PowerOn", &["PowerOnVM_Task"]),
            ("VirtualMachine.Inventory.CreateFromExisting", &["CloneVM_Task"]),
            ("VirtualMachine.Inventory.Delete", &["Destroy_Task"]),
            ("VirtualMachine.Provisioning.Clone", &["CloneVM_Task"]),
            ("VirtualMachine.Provisioning.DeployTemplate", &["CloneVM_Task"]),
            ("VirtualMachine.Provisioning.ReadCustSpecs", &["GetCustomizationSpec"]),
            ("", &["Login", "RetrieveServiceContent"]),
        ]
    }

    fn wrong_secrets(&self) -> Vec<SecretData> {
        let mut wrong = self.secret();
        wrong.0.insert("vspherePassword".to_owned(), b"another-password".to_vec());
        vec![wrong]
    }

    fn secrets_elsewhere(&self) -> Vec<SecretData> {
        let mut secret = self.secret();
        secret.0.insert("vsphereHost".to_owned(), b"http://vc.example.com".to_vec());
        vec![secret]
    }

    fn secret_cases(&self) -> Vec<SecretCase> {
        let with = |more: &[(&str, &str)]| {
            let login = [("vsphereHost", "vc.example.com"), ("vsphereUsername", USER)];
            secret(&login.iter().chain(more).copied().collect::<Vec<_>>())
        };
        let (password, insecure) = (("vspherePassword", PASSWORD), ("vsphereInsecureSSL", "1"));
        vec![
            (with(&[password]), &[], &[]),
            (with(&[]), &["no vspherePassword"], &[]),
            (with(&[password, ("userData", "")]), &["no userData"], &[]),
            (with(&[password, insecure, ("vsphereHost", "127.0.0.1")]), &[], &["is not verified"]),
            (with(&[password, insecure]), &["--allowed-cloud-endpoints"], &[]),
        ]
    }

    fn refusal(&self, text: &str) -> Reply {
        fault("InvalidArgument", text)
    }

    fn needs_no_flag(data: &SecretData) -> bool {
        Login::from_secret(data, &SecretPolicy::default()).is_ok()
    }
}

profile_suite!(World);
