//! The data of Google Cloud for the cases that every driver has.

use std::{collections::BTreeSet, time::Duration};

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
    CLUSTER, ROLE, World, ZONE, class,
    fake::{EMAIL, NODES, PRIVATE_KEY, PROJECT},
    flows::id,
    measured_driver, secret, spec, spec_with,
    suite::fault_of,
};
use crate::credentials::Login;

/// It stands for the account of the Secret, whose URL is another each time.
const QUOTED: &str = "the-account-of-the-secret";

/// A Secret whose service account has another field.
fn with_field(world: &World, field: &str, value: &str) -> SecretData {
    let mut secret = world.secret();
    let mut account: Value = serde_json::from_slice(&secret.0["serviceAccountJSON"]).unwrap();
    account[field] = value.into();
    secret.0.insert("serviceAccountJSON".to_owned(), account.to_string().into_bytes());
    secret
}

impl CloudProfile for World {
    const NAME: &'static str = crate::NAME;
    const FOLDER: &'static str = "gcp";
    const LIST: &'static str = "instances.list";
    const COUNTS: RequestCounts = RequestCounts {
        create: &[("instance_create", 1, 0), ("token_get", 1, 0)],
        list: &[("instance_list", 1, 1)],
        delete: &[("instance_delete", 1, 0)],
        has_more: true,
    };
    const CSI: Option<&'static str> = Some("pd.csi.storage.gke.io");
    const IS_UNMARKED_LISTED: bool = false;
    /// Changes of load balancers, families of images, and operations that an account may not list.
    const RARE: &'static [&'static str] = &[
        "images.getFromFamily",
        "instanceGroups.addInstances",
        "instanceGroups.listInstances",
        "instanceGroups.removeInstances",
        "zoneOperations.get",
    ];

    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver> {
        Box::new(measured_driver(&self.url, Duration::from_secs(20), requests))
    }

    fn class_with(&self, changes: &Value) -> MachineClass {
        class(spec_with(changes))
    }

    fn changes() -> ClassChanges {
        ClassChanges {
            invalid: json!({"region": 7}),
            spoilt: json!({"region": null, "disks": 7, "scheduling": {}}),
            foreign: json!({"tags": ["kubernetes-io-cluster-other", ROLE]}),
            unmarked: json!({"tags": []}),
            same_list: json!({"machineType": "other"}),
            other_lists: vec![
                json!({"zone": "europe-west1-c"}),
                json!({"tags": [CLUSTER, "kubernetes-io-role-other"]}),
            ],
        }
    }

    /// Lists have no filters.
    fn slow(&self) {
        let gce = &mut *self.gce.lock();
        (gce.steps, gce.page, gce.ignores_filters) = (12, Some(2), true);
    }

    fn storm(&self, faults: Vec<Fault>) {
        self.gce.lock().storm = faults.into_iter().map(fault_of).collect();
    }

    fn expected(&self) -> ExpectedVm {
        ExpectedVm {
            provider_id: id("m-1"),
            node_name: "m-1".to_owned(),
            zone: Some(ZONE.to_owned()),
            addresses: ["InternalIP 10.0.0.1", "ExternalIP 198.51.100.1", "Hostname m-1"].map(str::to_owned).into(),
            created: format!("Created {}", id("m-1")),
            ..ExpectedVm::default()
        }
    }

    fn provider_ids(id: &str) -> Vec<(String, bool)> {
        let others = [
            "aws:///eu-west-1/i-1",
            "gce:///europe-west1-b/m-1",
            "gce:///other/europe-west1-b/m-1",
            "gce:///my-project/europe-west1-b?x/m-1",
        ];
        // The second is of the cloud controller manager.
        let found = [id.to_owned(), id.replace("gce:///", "gce://")].map(|id| (id, true));
        found.into_iter().chain(others.map(|id| (id.to_owned(), false))).collect()
    }

    fn user_data_of(&self, name: &str) -> Vec<u8> {
        let gce = self.gce.lock();
        let body = gce.bodies("instances.insert").into_iter().find(|body| body["name"] == name).unwrap();
        let items = body["metadata"]["items"].as_array().unwrap();
        assert_eq!(items.iter().map(|item| &item["key"]).collect::<Vec<_>>(), ["user-data"]);
        items[0]["value"].as_str().unwrap().as_bytes().to_vec()
    }

    fn needs_no_flag(data: &SecretData) -> bool {
        Login::from_secret(data, &SecretPolicy::default()).is_ok()
    }

    /// A class that needs something of each kind.
    fn needs() -> Value {
        let boot = spec()["disks"][0].clone();
        json!({
            "disks": [boot, {"type": "SCRATCH", "interface": "NVME"}],
            "gpu": {"acceleratorType": "nvidia-l4", "count": 1},
            "networkInterfaces": [
                {"network": "vpc", "subnetwork": "nodes", "useAliasIPs": true, "subnetworkRangeName": "pods"}
            ],
            "scheduling": {"automaticRestart": true, "onHostMaintenance": "TERMINATE"},
            "serviceAccounts": [{"email": NODES, "scopes": ["s"]}, {"email": "default", "scopes": ["s"]}],
        })
    }

    fn furnish(&self) {
        self.gce.lock().furnish();
    }

    fn findings(&self) -> Vec<String> {
        let expected = [
            &format!("Secret Present: {EMAIL} has access to project my-project"),
            "providerSpec.zone Present: zone europe-west1-b is up",
            "providerSpec.region Present: region europe-west1 exists",
            "providerSpec.machineType Present: 2 CPUs, 8192 MiB",
            "providerSpec.disks[0].type Present: europe-west1-b offers pd-ssd",
            "providerSpec.disks[0].image Present: os-1",
            "providerSpec.disks[1].type Present: europe-west1-b offers local-ssd",
            "providerSpec.gpu Present: europe-west1-b offers nvidia-l4",
            "providerSpec.networkInterfaces[0].network Present: network vpc exists",
            "providerSpec.networkInterfaces[0].subnetwork Present: 10.0.0.0/16 of network vpc",
            &format!("providerSpec.serviceAccounts[0].email Present: {NODES} exists"),
            "providerSpec.serviceAccounts[1].email Present: 1-compute@developer.gserviceaccount.com",
            "providerSpec Present: quota INSTANCES: 1 of 72 used, a VM takes 1",
            "providerSpec.machineType Present: quota N2_CPUS: 2 of 24 used, a VM takes 2",
            "providerSpec.disks Present: quota SSD_TOTAL_GB: 50 of 500 used, a VM takes 50",
        ];
        expected.map(str::to_owned).into()
    }

    fn remove(&self, what: &'static str) {
        self.gce.lock().things.remove(what).unwrap();
    }

    fn absent_resources() -> Vec<AbsentResource> {
        let absent = |what, expected| (what, json!({}), vec![expected]);
        vec![
            absent("my-project/zones/europe-west1-b", "providerSpec.zone: there is no zone europe-west1-b"),
            absent("my-project/regions/europe-west1", "providerSpec.region: there is no region europe-west1"),
            absent(
                "my-project/zones/europe-west1-b/machineTypes/n2-standard-2",
                "providerSpec.machineType: europe-west1-b does not offer n2-standard-2",
            ),
            absent(
                "my-project/zones/europe-west1-b/diskTypes/local-ssd",
                "providerSpec.disks[1].type: europe-west1-b does not offer local-ssd",
            ),
            absent(
                "os/global/images/os-1",
                "providerSpec.disks[0].image: there is no image projects/os/global/images/os-1",
            ),
            absent(
                "my-project/zones/europe-west1-b/acceleratorTypes/nvidia-l4",
                "providerSpec.gpu: europe-west1-b does not offer nvidia-l4",
            ),
            absent(
                "my-project/global/networks/vpc",
                "providerSpec.networkInterfaces[0].network: there is no network vpc",
            ),
            absent(
                "my-project/regions/europe-west1/subnetworks/nodes",
                "providerSpec.networkInterfaces[0].subnetwork: there is no subnetwork nodes in europe-west1",
            ),
            absent(
                NODES,
                "providerSpec.serviceAccounts[0].email: there is no service account nodes@my-project.iam.gserviceaccount.com",
            ),
        ]
    }

    fn sent(&self) -> BTreeSet<String> {
        self.gce.lock().sent.iter().map(|sent| sent.call.to_owned()).collect()
    }

    fn permissions() -> &'static [PermittedCalls] {
        &[
            ("", &["token"]),
            ("compute.acceleratorTypes.get", &["acceleratorTypes.get"]),
            ("compute.diskTypes.get", &["diskTypes.get"]),
            ("compute.disks.create", &["instances.insert"]),
            ("compute.disks.setLabels", &["instances.insert"]),
            ("compute.images.get", &["images.get"]),
            ("compute.images.getFromFamily", &["images.getFromFamily"]),
            ("compute.images.useReadOnly", &["instances.insert"]),
            ("compute.instanceGroups.get", &["instanceGroups.listInstances"]),
            ("compute.instanceGroups.list", &["instanceGroups.listInstances"]),
            ("compute.instanceGroups.update", &["instanceGroups.addInstances", "instanceGroups.removeInstances"]),
            ("compute.instances.create", &["instances.insert"]),
            ("compute.instances.delete", &["instances.delete"]),
            ("compute.instances.list", &["instances.list"]),
            ("compute.instances.setLabels", &["instances.insert"]),
            ("compute.instances.setMetadata", &["instances.insert"]),
            ("compute.instances.setServiceAccount", &["instances.insert"]),
            ("compute.instances.setTags", &["instances.insert"]),
            ("compute.instances.use", &["instanceGroups.addInstances"]),
            ("compute.machineTypes.get", &["machineTypes.get"]),
            ("compute.networks.get", &["networks.get"]),
            ("compute.projects.get", &["projects.get"]),
            ("compute.regions.get", &["regions.get"]),
            ("compute.subnetworks.get", &["subnetworks.get"]),
            ("compute.subnetworks.use", &["instances.insert"]),
            ("compute.subnetworks.useExternalIp", &["instances.insert"]),
            ("compute.zoneOperations.get", &["zoneOperations.get"]),
            ("compute.zoneOperations.list", &["zoneOperations.list"]),
            ("compute.zones.get", &["zones.get"]),
            ("iam.serviceAccounts.get", &["account"]),
        ]
    }

    fn wrong_secrets(&self) -> Vec<SecretData> {
        vec![
            with_field(self, "client_email", "another-account@my-project.iam.gserviceaccount.com"),
            with_field(self, "private_key", "another-key"),
        ]
    }

    fn secrets_elsewhere(&self) -> Vec<SecretData> {
        let mut secret = self.secret();
        secret.0.insert("endpointURL".to_owned(), b"http://compute.googleapis.com".to_vec());
        vec![secret]
    }

    fn secret_cases(&self) -> Vec<SecretCase> {
        vec![
            (secret(&self.url), &[], &[]),
            (SecretData::default(), &["serviceAccountJSON", "userData"], &[]),
            (with_field(self, "project_id", PROJECT), &[], &[]),
        ]
    }

    /// With the account of the Secret.
    fn refusal(&self, text: &str) -> Reply {
        let account = String::from_utf8(self.secret().0.remove("serviceAccountJSON").unwrap()).unwrap();
        let text = text.replace(QUOTED, &account);
        let errors = json!([{"message": text, "domain": "global", "reason": "invalid"}]);
        let body = json!({"error": {"code": 400, "message": text, "errors": errors}});
        Reply { status: 400, body: body.to_string() }
    }

    fn quoted() -> String {
        QUOTED.to_owned()
    }

    fn hidden() -> Vec<String> {
        vec![PRIVATE_KEY.lines().nth(3).unwrap().to_owned(), QUOTED.to_owned()]
    }
}

profile_suite!(World);
