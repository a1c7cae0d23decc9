//! The data of KubeVirt for the cases that every driver has.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
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
    CLUSTER, ROLE, UID_LABEL, World, class, driver,
    fake::{Kubernetes, REGION, Start, TOKEN, ZONE},
    kubeconfig_of, secret, spec_with,
};
use crate::login::Login;

impl CloudProfile for World {
    const NAME: &'static str = crate::NAME;
    const FOLDER: &'static str = "kubevirt";
    const LIST: &'static str = "vm.list";
    const COUNTS: RequestCounts = RequestCounts {
        create: &[
            ("secret_create", 1, 0),
            ("secret_patch", 1, 0),
            ("virtual_machine_create", 1, 0),
            ("virtual_machine_get", 1, 1),
        ],
        list: &[("virtual_machine_list", 1, 1)],
        delete: &[("secret_get", 0, 1), ("virtual_machine_delete", 1, 0), ("virtual_machine_get", 1, 1)],
        has_more: false,
    };
    const RARE: &'static [&'static str] = &["secret.delete"];
    const CSI: Option<&'static str> = Some("csi.kubevirt.io");
    const UNUSED: &'static [&'static str] = &["secret.delete"];
    const QUOTING: &'static [&'static str] = &["vm.create", "secret.create"];

    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver> {
        Box::new(driver(Duration::from_secs(20), requests))
    }

    fn class_with(&self, changes: &Value) -> MachineClass {
        class(spec_with(changes))
    }

    fn changes() -> ClassChanges {
        let tags = |cluster: &str, role: &str| json!({"tags": {CLUSTER: cluster, ROLE: role}});
        ClassChanges {
            invalid: json!({"zone": 7}),
            spoilt: json!({"region": null, "zone": 7, "resources": null, "rootVolume": {}}),
            foreign: tags("other", "node"),
            unmarked: json!({"tags": {}}),
            same_list: json!({"zone": "other", "region": "other"}),
            other_lists: vec![tags("shoot", "other")],
        }
    }

    fn slow(&self) {
        let cloud = &mut self.kubernetes.lock().cloud;
        (cloud.lingers, cloud.start) = (3, Start::AfterLooks(3));
    }

    fn storm(&self, faults: Vec<Fault>) {
        self.kubernetes.lock().storm = faults;
    }

    fn resources(&self) -> usize {
        self.count() + self.secrets()
    }

    fn expected(&self) -> ExpectedVm {
        ExpectedVm {
            provider_id: "kubevirt://m-1".to_owned(),
            node_name: "m-1".to_owned(),
            zone: Some(ZONE.to_owned()),
            addresses: vec!["Hostname m-1".to_owned()],
            created: "Created kubevirt://m-1".to_owned(),
            deleted: Some("Deleted kubevirt://m-1".to_owned()),
            absent: Some("Deleted ".to_owned()),
            ..ExpectedVm::default()
        }
    }

    fn provider_ids(id: &str) -> Vec<(String, bool)> {
        let others = ["aws:///eu-west-1/i-1", "kubevirt://ns/a", "kubevirt://..", "kubevirt://"];
        [(id, true)]
            .into_iter()
            .chain(others.map(|id| (id, false)))
            .map(|(id, is_found)| (id.to_owned(), is_found))
            .collect()
    }

    fn tags(&self) -> Value {
        self.kubernetes.lock().cloud.vms["m-1"]["metadata"]["labels"].clone()
    }

    fn released(&self) -> Value {
        json!({CLUSTER: "shoot", UID_LABEL: "uid-m-1", "pool": "workers", "kubevirt.io/vm": "m-1"})
    }

    fn user_data_of(&self, name: &str) -> Vec<u8> {
        let secret = &self.kubernetes.lock().cloud.secrets[&format!("userdata-{name}-uid-{name}")];
        STANDARD.decode(secret["data"]["userdata"].as_str().unwrap()).unwrap()
    }

    fn gardener_secret(&self) -> SecretData {
        let kubeconfig = kubeconfig_of("https://192.0.2.1", &json!({}), &json!({"token": "t"}));
        secret(&[("userData", "#cloud-config\nruncmd: []\n"), ("kubeconfig", &kubeconfig)])
    }

    fn fit(class: &mut MachineClass) {
        class.provider_spec = changed(class.provider_spec.take(), &json!({"region": REGION, "zone": ZONE}));
    }

    /// An object of each kind.
    fn needs() -> Value {
        let claim = json!({"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"});
        json!({
            "rootVolume": {"pvc": claim},
            "additionalVolumes": [
                {"name": "a", "dataVolume": {"pvc": claim}},
                {"name": "b", "volumeSource": {"persistentVolumeClaim": {"claimName": "data"}}},
                {"name": "c", "volumeSource": {"configMap": {"name": "settings"}}},
                {"name": "d", "volumeSource": {"secret": {"secretName": "key"}}},
            ],
            "networks": [{"name": "other/net"}],
        })
    }

    fn findings(&self) -> Vec<String> {
        let login = format!("Secret Present: namespace vms of {}/ has VirtualMachines", self.url);
        let expected = [
            login.as_str(),
            "Secret Present: the credentials have all permissions that mcm needs",
            "providerSpec Present: KubeVirt accepts a VM of the class",
            "providerSpec.region Present: there are Nodes with topology.kubernetes.io/region=region-1",
            "providerSpec.zone Present: there are Nodes with topology.kubernetes.io/zone=zone-1",
            "providerSpec.rootVolume.pvc.storageClassName Present: StorageClass fast exists",
            "providerSpec.additionalVolumes[0].dataVolume.pvc.storageClassName Present: StorageClass fast exists",
            "providerSpec.additionalVolumes[1].volumeSource Present: PersistentVolumeClaim data exists",
            "providerSpec.additionalVolumes[2].volumeSource Present: ConfigMap settings exists",
            "providerSpec.additionalVolumes[3].volumeSource Present: Secret key exists",
            "providerSpec.networks[0].name Present: NetworkAttachmentDefinition net exists",
        ];
        expected.map(str::to_owned).into()
    }

    fn remove(&self, what: &'static str) {
        self.kubernetes.lock().cloud.absent.push(what);
    }

    fn absent_resources() -> Vec<AbsentResource> {
        let absent = |what, expected: &[&'static str]| (what, json!({}), expected.to_vec());
        let volume = |number: usize| match number {
            1 => "providerSpec.additionalVolumes[1].volumeSource: there is no PersistentVolumeClaim data",
            2 => "providerSpec.additionalVolumes[2].volumeSource: there is no ConfigMap settings",
            _ => "providerSpec.additionalVolumes[3].volumeSource: there is no Secret key",
        };
        vec![
            absent(
                "storageclasses",
                &[
                    "providerSpec.rootVolume.pvc.storageClassName: there is no StorageClass fast",
                    "providerSpec.additionalVolumes[0].dataVolume.pvc.storageClassName: there is no StorageClass fast",
                ],
            ),
            absent("persistentvolumeclaims", &[volume(1)]),
            absent("configmaps", &[volume(2)]),
            absent("secrets", &[volume(3)]),
            absent(
                "network-attachment-definitions",
                &["providerSpec.networks[0].name: there is no NetworkAttachmentDefinition net"],
            ),
            absent(
                "nodes",
                &[
                    "providerSpec.region: there is no Node with topology.kubernetes.io/region=region-1",
                    "providerSpec.zone: there is no Node with topology.kubernetes.io/zone=zone-1",
                ],
            ),
        ]
    }

    fn sent(&self) -> BTreeSet<String> {
        self.kubernetes.lock().log.iter().map(|(call, _)| (*call).to_owned()).collect()
    }

    fn permissions() -> &'static [PermittedCalls] {
        &[
            ("get virtualmachines", &["vm.get"]),
            ("list virtualmachines", &["vm.list"]),
            ("create virtualmachines", &["vm.create", "vm.dryRun"]),
            ("patch virtualmachines", &["vm.patch"]),
            ("delete virtualmachines", &["vm.delete"]),
            ("get secrets", &["secret.get"]),
            ("create secrets", &["secret.create"]),
            ("patch secrets", &["secret.patch"]),
            ("delete secrets", &["secret.delete"]),
            // Of every user, and of live checks that may not have an answer.
            ("", &["access.review", "node.list", "object.get"]),
        ]
    }

    fn wrong_secrets(&self) -> Vec<SecretData> {
        vec![self.secret_with(&json!({"token": "another-token"}))]
    }

    fn secrets_elsewhere(&self) -> Vec<SecretData> {
        let elsewhere =
            |server, cluster| secret(&[("kubeconfig", &kubeconfig_of(server, &cluster, &json!({"token": TOKEN})))]);
        vec![
            elsewhere("http://api.example.com", json!({})),
            elsewhere("https://api.example.com", json!({"insecure-skip-tls-verify": true})),
        ]
    }

    fn secret_cases(&self) -> Vec<SecretCase> {
        let with = |user: Value, user_data: &str| {
            let kubeconfig = kubeconfig_of("https://api.example.com", &json!({}), &user);
            secret(&[("kubeconfig", &kubeconfig), ("userData", user_data)])
        };
        let (token, cloud_config) = (json!({"token": "t"}), "#cloud-config");
        let certificate = json!({"client-certificate-data": "eA==", "client-key-data": "eA=="});
        vec![
            (with(token.clone(), cloud_config), &[], &[]),
            (with(token.clone(), ""), &["no userData"], &[]),
            (with(token.clone(), "#cloud-config\nssh_authorized_keys: []"), &["ssh_authorized_keys: already"], &[]),
            (with(token, "#!/bin/sh"), &[], &["not a #cloud-config"]),
            (with(json!({"exec": {}}), cloud_config), &["has exec"], &[]),
            (with(certificate, cloud_config), &["PEM"], &[]),
        ]
    }

    fn secret_classes() -> Vec<Value> {
        vec![json!({"sshKeys": ["ssh-rsa A"]})]
    }

    /// The API server may quote its requests in Base64.
    fn refusal(&self, text: &str) -> Reply {
        Kubernetes::error(
            400,
            "BadRequest",
            &format!("{text} or {}", STANDARD.encode("#!/bin/sh\nhunter2-hunter2\n")),
            "",
            "",
        )
    }

    fn needs_no_flag(data: &SecretData) -> bool {
        Login::from_secret(data, &SecretPolicy::default()).is_ok()
    }
}

profile_suite!(World);
