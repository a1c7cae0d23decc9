//! The data of Azure for the cases that every driver has.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    Driver, SecretData, SecretPolicy,
    cloud::RequestReporter,
    profile_suite,
    testing::{
        profile::{AbsentResource, ClassChanges, CloudProfile, ExpectedVm, PermittedCalls, RequestCounts, SecretCase},
        server::{Fault, Reply},
    },
};
use serde_json::{Value, json};

use super::{
    UID_TAG, World, class, driver,
    fake::{Arm, CLIENT, CLIENT_SECRET, GROUP, LOCATION, SIZE, SUBNET, SUBSCRIPTION, TENANT, URN, VNET},
    flows::node_id,
    id_of, of_cluster, secret, spec_with,
};
use crate::{clouds::PUBLIC, login::Login};

impl CloudProfile for World {
    const NAME: &'static str = crate::NAME;
    const FOLDER: &'static str = "azure";
    const LIST: &'static str = "graph.query";
    const COUNTS: RequestCounts = RequestCounts {
        create: &[
            ("nic_create", 1, 0),
            ("nic_get", 0, 1),
            ("operation_get", 1, 0),
            ("subnet_get", 1, 0),
            ("token", 1, 0),
            ("virtual_machine_create", 1, 0),
            ("virtual_machine_get", 0, 1),
        ],
        list: &[("resource_graph_query", 1, 1)],
        delete: &[("operation_get", 1, 0), ("virtual_machine_delete", 1, 0), ("virtual_machine_get", 1, 0)],
        has_more: false,
    };
    const RARE: &'static [&'static str] =
        &["disk.get", "disk.put", "disk.delete", "nic.delete", "provider.register", "provider.get"];
    const CSI: Option<&'static str> = Some("disk.csi.azure.com");
    const UNUSED: &'static [&'static str] = &["nic.delete"];

    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver> {
        Box::new(driver(Duration::from_secs(20), requests))
    }

    /// A change may name a field by its path.
    fn class_with(&self, changes: &Value) -> MachineClass {
        let changes = changes.as_object().unwrap().iter();
        class(spec_with(&changes.map(|(path, value)| (path.as_str(), value.clone())).collect::<Vec<_>>()))
    }

    fn changes() -> ClassChanges {
        ClassChanges {
            invalid: json!({"properties.hardwareProfile.vmSize": 7}),
            spoilt: json!({"properties": {"zone": "x"}, "subnetInfo": null}),
            foreign: json!({"tags": of_cluster("other")}),
            unmarked: json!({"tags": {}}),
            same_list: json!({"properties.zone": 2, "resourceGroup": GROUP.to_uppercase()}),
            other_lists: vec![json!({"resourceGroup": "other"})],
        }
    }

    fn slow(&self) {
        let cloud = &mut self.arm.lock().cloud;
        (cloud.steps, cloud.steps_of_parts) = (4, 2);
    }

    fn storm(&self, faults: Vec<Fault>) {
        self.arm.lock().storm = faults;
    }

    fn resources(&self) -> usize {
        let (vms, interfaces, disks) = self.counts();
        vms + interfaces + disks
    }

    fn expected(&self) -> ExpectedVm {
        ExpectedVm {
            provider_id: id_of("m-1"),
            node_name: "m-1".to_owned(),
            node_provider_id: Some(node_id(GROUP, "m-1")),
            zone: Some("westeurope-1".to_owned()),
            addresses: vec!["Hostname m-1".to_owned()],
            created: "Created azure:///westeurope/m-1".to_owned(),
            ..ExpectedVm::default()
        }
    }

    fn provider_ids(id: &str) -> Vec<(String, bool)> {
        let name = id.rsplit('/').next().unwrap();
        let found = [
            id.to_owned(),
            format!("azure://westeurope/{name}"),
            node_id(GROUP, name),
            node_id("Shoot--A--B", &name.to_uppercase()),
        ];
        let others = [
            node_id("other", name),
            format!("gce:///project/zone/{name}"),
            format!("azure:///{name}"),
            "azure:///westeurope/a%2Fb".to_owned(),
            "azure:///westeurope/..".to_owned(),
            "azure:///westeurope/".to_owned(),
        ];
        found.map(|id| (id, true)).into_iter().chain(others.map(|id| (id, false))).collect()
    }

    fn tags(&self) -> Value {
        self.arm.lock().cloud.vms()[0]["tags"].clone()
    }

    fn released(&self) -> Value {
        json!({"pool": "workers", UID_TAG: "uid-m-1"})
    }

    fn user_data_of(&self, name: &str) -> Vec<u8> {
        let sent = self.arm.lock().sent("vm.put");
        let sent = sent.iter().find(|request| request.path.ends_with(&format!("/{name}"))).unwrap();
        let sent: Value = serde_json::from_str(&sent.body).unwrap();
        STANDARD.decode(sent["properties"]["osProfile"]["customData"].as_str().unwrap()).unwrap()
    }

    fn fit(class: &mut MachineClass) {
        let spec = &mut class.provider_spec;
        (spec["location"], spec["resourceGroup"]) = (json!(LOCATION), json!(GROUP));
        spec["subnetInfo"] = json!({"vnetName": VNET, "subnetName": SUBNET});
        spec["properties"]["hardwareProfile"]["vmSize"] = json!(SIZE);
        let image = &mut spec["properties"]["storageProfile"]["imageReference"];
        if image["urn"].is_string() {
            image["urn"] = json!(URN);
        }
    }

    fn needs() -> Value {
        json!({"properties.storageProfile.imageReference": {"urn": URN}})
    }

    fn findings(&self) -> Vec<String> {
        let expected = [
            "Secret Present: the credentials are those of application 33333333-0000-4000-8000-000000000003",
            "providerSpec.resourceGroup Present: resource group shoot--a--b exists",
            "providerSpec.subnetInfo Present: subnet nodes of vnet: 10.250.0.0/16",
            "providerSpec.properties.storageProfile.imageReference Present: the image exists; the first VM accepts the terms of plan greatest",
            "providerSpec.properties.hardwareProfile.vmSize Present: size Standard_D2s_v5 is offered in westeurope",
            "providerSpec.properties.hardwareProfile.vmSize Present: the quotas have room for 2 more cores",
        ];
        expected.map(str::to_owned).into()
    }

    fn remove(&self, what: &'static str) {
        self.arm.lock().cloud.absent.push(what);
    }

    fn absent_resources() -> Vec<AbsentResource> {
        let absent = |what, expected| (what, json!({}), vec![expected]);
        vec![
            absent("subnet", "providerSpec.subnetInfo: there is no subnet nodes in virtual network vnet"),
            absent(
                "image",
                "providerSpec.properties.storageProfile.imageReference: there is no such image in westeurope",
            ),
            absent(
                "size",
                "providerSpec.properties.hardwareProfile.vmSize: there is no size Standard_D2s_v5 in westeurope",
            ),
            (
                "group",
                json!({}),
                vec![
                    "providerSpec.resourceGroup: there is no resource group shoot--a--b",
                    "providerSpec.subnetInfo: there is no subnet nodes in virtual network vnet",
                ],
            ),
        ]
    }

    fn sent(&self) -> BTreeSet<String> {
        self.arm.lock().log.iter().map(|(call, _)| (*call).to_owned()).collect()
    }

    fn permissions() -> &'static [PermittedCalls] {
        &[
            ("Microsoft.Compute/disks/delete", &["disk.delete", "vm.delete"]),
            ("Microsoft.Compute/disks/read", &["disk.get"]),
            ("Microsoft.Compute/disks/write", &["disk.put", "vm.put"]),
            ("Microsoft.Compute/locations/diskOperations/read", &["operation.get"]),
            ("Microsoft.Compute/locations/operations/read", &["operation.get"]),
            ("Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read", &["image.get"]),
            ("Microsoft.Compute/locations/usages/read", &["usages.list"]),
            ("Microsoft.Compute/register/action", &["provider.register", "provider.get"]),
            ("Microsoft.Compute/skus/read", &["skus.list"]),
            ("Microsoft.Compute/virtualMachines/delete", &["vm.delete"]),
            ("Microsoft.Compute/virtualMachines/read", &["vm.get", "graph.query"]),
            ("Microsoft.Compute/virtualMachines/write", &["vm.put", "vm.patch"]),
            ("Microsoft.MarketplaceOrdering/offertypes/publishers/offers/plans/agreements/read", &["terms.get"]),
            ("Microsoft.MarketplaceOrdering/offertypes/publishers/offers/plans/agreements/write", &["terms.put"]),
            ("Microsoft.Network/locations/operations/read", &["operation.get"]),
            ("Microsoft.Network/networkInterfaces/delete", &["nic.delete", "vm.delete"]),
            ("Microsoft.Network/networkInterfaces/join/action", &["vm.put"]),
            ("Microsoft.Network/networkInterfaces/read", &["nic.get"]),
            ("Microsoft.Network/networkInterfaces/write", &["nic.put"]),
            ("Microsoft.Network/register/action", &["provider.register", "provider.get"]),
            ("Microsoft.Network/virtualNetworks/subnets/join/action", &["nic.put"]),
            ("Microsoft.Network/virtualNetworks/subnets/read", &["subnet.get"]),
            ("Microsoft.Resources/subscriptions/resourceGroups/read", &["group.get"]),
            ("", &["token"]),
        ]
    }

    fn wrong_secrets(&self) -> Vec<SecretData> {
        let mut wrong = self.secret();
        wrong.0.insert("clientSecret".to_owned(), b"another-secret".to_vec());
        vec![wrong]
    }

    fn secrets_elsewhere(&self) -> Vec<SecretData> {
        let elsewhere = |key: &str| {
            let mut secret = self.secret();
            secret.0.insert(key.to_owned(), b"http://azure.example.com".to_vec());
            secret
        };
        ["endpointURL", "authorityURL"].map(elsewhere).into()
    }

    fn secret_cases(&self) -> Vec<SecretCase> {
        let with = |more: &[(&str, &str)]| {
            let ids = [("tenantID", TENANT), ("clientID", CLIENT), ("subscriptionID", SUBSCRIPTION)];
            secret(&ids.iter().chain(more).copied().collect::<Vec<_>>())
        };
        let (key, large) = (("clientSecret", "s"), "x".repeat(65_536));
        vec![
            (with(&[key]), &[], &[]),
            (with(&[]), &["neither clientSecret nor workloadIdentityTokenFile"], &[]),
            (with(&[key, ("userData", "")]), &["no userData"], &[]),
            (with(&[key, ("userData", &large)]), &["at most 65535"], &[]),
        ]
    }

    fn refusal(&self, text: &str) -> Reply {
        Arm::error(400, "InvalidParameter", text)
    }

    fn quoted() -> String {
        CLIENT_SECRET.to_owned()
    }

    fn needs_no_flag(data: &SecretData) -> bool {
        Login::from_secret(data, PUBLIC, &SecretPolicy::default()).is_ok()
    }
}

profile_suite!(World);
