//! The data of OpenStack for the cases that every driver has.

use std::{collections::BTreeSet, time::Duration};

use mcm_api::machine::MachineClass;
use mcm_driver::{
    Driver, MachineRequest, SecretData, SecretPolicy,
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
    CLUSTER, ROLE, UID, World, class, credentials, driver,
    fake::{
        self, APPLICATION, APPLICATION_SECRET, IMAGE_ID, NETWORK, REGION, SERVER_GROUP_ID, SUBNET_ID, VOLUME_TYPE, ZONE,
    },
    secret, spec_with,
};
use crate::login::Login;

fn parts() -> Value {
    json!({"subnetIDs": [SUBNET_ID], "rootDiskSize": 50, "rootDiskType": VOLUME_TYPE})
}

impl CloudProfile for World {
    const NAME: &'static str = crate::NAME;
    const FOLDER: &'static str = "openstack";
    const LIST: &'static str = "server.list";
    const COUNTS: RequestCounts = RequestCounts {
        create: &[("cinder", 3, 0), ("keystone", 1, 0), ("neutron", 5, 0), ("nova", 5, 0)],
        list: &[("nova", 1, 1)],
        delete: &[("cinder", 2, 0), ("neutron", 2, 0), ("nova", 2, 1)],
        has_more: false,
    };
    const RARE: &'static [&'static str] = &["network.list", "port.update"];
    const CSI: Option<&'static str> = Some("cinder.csi.openstack.org");
    const IS_UNMARKED_LISTED: bool = false;

    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver> {
        Box::new(driver(Duration::from_secs(20), requests))
    }

    fn class_with(&self, changes: &Value) -> MachineClass {
        class(spec_with(changes))
    }

    fn changes() -> ClassChanges {
        let tags = |cluster: &str, role: &str| json!({"tags": {cluster: "1", role: "1"}});
        ClassChanges {
            invalid: json!({"flavorName": 7}),
            spoilt: json!({"imageName": null, "flavorName": 7, "keyName": "", "networkID": "x"}),
            foreign: tags("kubernetes.io-cluster-other", ROLE.0),
            unmarked: json!({"tags": {}}),
            same_list: json!({"flavorName": "other", "availabilityZone": "other"}),
            other_lists: vec![json!({"region": "other"}), tags(CLUSTER.0, "kubernetes.io-role-other")],
        }
    }

    /// The second gets a port and a volume before its server.
    fn conforming() -> Vec<Value> {
        vec![json!({}), parts()]
    }

    fn slow(&self) {
        let cloud = &mut self.openstack.lock().cloud;
        (cloud.builds, cloud.downloads, cloud.lingers) = (3, 3, 3);
    }

    fn storm(&self, faults: Vec<Fault>) {
        self.openstack.lock().storm = faults;
    }

    fn resources(&self) -> usize {
        let (servers, ports, volumes) = self.counts();
        servers + ports + volumes
    }

    fn expected(&self) -> ExpectedVm {
        let openstack = self.openstack.lock();
        let provider_id = format!("openstack:///{REGION}/{}", openstack.cloud.existing()[0].id);
        ExpectedVm {
            created: format!("Created {provider_id}"),
            provider_id,
            node_name: "m-1".to_owned(),
            zone: Some(ZONE.to_owned()),
            addresses: vec!["InternalIP 10.0.0.3".to_owned()],
            ..ExpectedVm::default()
        }
    }

    fn provider_ids(id: &str) -> Vec<(String, bool)> {
        let server = id.rsplit('/').next().unwrap();
        let with = |prefix: &str, is_found| (format!("{prefix}{server}"), is_found);
        vec![
            with("openstack:///RegionOne/", true),
            // Of the cloud controller manager.
            with("openstack:///", true),
            with("openstack://RegionOne/", true),
            with("aws:///eu-west-1/", false),
            ("openstack:///RegionOne/a%2Fb".to_owned(), false),
            ("openstack:///RegionOne/..".to_owned(), false),
            ("openstack:///RegionOne/".to_owned(), false),
        ]
    }

    fn tags(&self) -> Value {
        json!(self.openstack.lock().cloud.existing()[0].metadata)
    }

    fn released(&self) -> Value {
        json!({CLUSTER.0: "1", UID: "uid-m-1", "pool": "workers"})
    }

    fn user_data_of(&self, name: &str) -> Vec<u8> {
        let openstack = self.openstack.lock();
        let server = openstack.cloud.existing().into_iter().find(|server| server.name == name);
        server.unwrap().user_data.clone()
    }

    fn counted_request(&self) -> MachineRequest {
        self.request_with_parts("m-1")
    }

    fn needs() -> Value {
        changed(parts(), &json!({"serverGroupID": SERVER_GROUP_ID}))
    }

    fn furnish(&self) {
        self.openstack.lock().cloud.quota = Some(10);
    }

    fn findings(&self) -> Vec<String> {
        let expected = [
            "Secret Present: the credentials are those of user machines in project team",
            "providerSpec.spec.imageName Present: image \"gardenlinux\" exists",
            "providerSpec.spec.flavorName Present: flavor \"m1.small\" exists",
            "providerSpec.spec.availabilityZone Present: zone \"nova\" is available",
            "providerSpec.spec.keyName Present: keypair \"operator\" exists",
            "providerSpec.spec.networkID Present: network \"00000000-0000-4000-8000-0000000000b1\" exists",
            "providerSpec.spec.subnetIDs Present: subnet \"00000000-0000-4000-8000-0000000000c1\" exists",
            "providerSpec.spec.securityGroups Present: security group \"shoot-group\" exists",
            "providerSpec.spec.serverGroupID Present: server group \"00000000-0000-4000-8000-0000000000e1\" exists",
            "providerSpec.spec.rootDiskType Present: volume type \"ssd\" exists",
            "providerSpec.spec.flavorName Present: the project has 0 of at most 10 servers",
        ];
        expected.map(str::to_owned).into()
    }

    fn remove(&self, what: &'static str) {
        self.openstack.lock().cloud.absent.push(what);
    }

    fn absent_resources() -> Vec<AbsentResource> {
        let by_id = json!({"imageID": IMAGE_ID});
        let by_name = json!({"networkID": null, "networks": [{"name": NETWORK}]});
        let none = json!({});
        vec![
            ("image", none.clone(), vec!["providerSpec.spec.imageName: there is no image \"gardenlinux\""]),
            (
                "image",
                by_id,
                vec!["providerSpec.spec.imageID: there is no image \"00000000-0000-4000-8000-0000000000a1\""],
            ),
            ("m1.small", none.clone(), vec!["providerSpec.spec.flavorName: there is no flavor \"m1.small\""]),
            ("zone", none.clone(), vec!["providerSpec.spec.availabilityZone: zone \"nova\" is not available"]),
            (
                "zone",
                json!({"availabilityZone": "other"}),
                vec!["providerSpec.spec.availabilityZone: there is no zone \"other\""],
            ),
            ("keypair", none.clone(), vec!["providerSpec.spec.keyName: there is no keypair \"operator\""]),
            (
                "network",
                none.clone(),
                vec!["providerSpec.spec.networkID: there is no network \"00000000-0000-4000-8000-0000000000b1\""],
            ),
            ("network", by_name, vec!["providerSpec.spec.networks: there is no network \"shoot-network\""]),
            (
                "group",
                none.clone(),
                vec!["providerSpec.spec.securityGroups: there is no security group \"shoot-group\""],
            ),
            ("type", none, vec!["providerSpec.spec.rootDiskType: there is no volume type \"ssd\""]),
        ]
    }

    fn sent(&self) -> BTreeSet<String> {
        self.openstack.lock().log.iter().map(|(call, _)| (*call).to_owned()).collect()
    }

    fn permissions() -> &'static [PermittedCalls] {
        &[
            (
                "member",
                &[
                    "flavor.get",
                    "flavor.list",
                    "flavor.specs",
                    "group.list",
                    "image.list",
                    "keypair.get",
                    "limits.get",
                    "metadata.delete",
                    "metadata.set",
                    "network.get",
                    "network.list",
                    "port.create",
                    "port.delete",
                    "port.list",
                    "port.tag",
                    "port.update",
                    "server-group.get",
                    "server.create",
                    "server.delete",
                    "server.get",
                    "server.list",
                    "subnet.get",
                    "type.list",
                    "volume.create",
                    "volume.delete",
                    "volume.get",
                    "volume.list",
                    "zone.list",
                ],
            ),
            ("load-balancer_member", &[]),
            ("", &["token.create"]),
        ]
    }

    fn wrong_secrets(&self) -> Vec<SecretData> {
        let mut wrong = self.secret();
        wrong.0.insert("password".to_owned(), b"another-password".to_vec());
        vec![wrong]
    }

    fn other_secrets(&self) -> Vec<SecretData> {
        let url = self.auth_url();
        let application = [
            ("authURL", url.as_str()),
            ("applicationCredentialID", APPLICATION),
            ("applicationCredentialSecret", APPLICATION_SECRET),
        ];
        vec![secret(&application)]
    }

    fn secrets_elsewhere(&self) -> Vec<SecretData> {
        vec![secret(&credentials("http://keystone.example.com/v3"))]
    }

    fn secret_cases(&self) -> Vec<SecretCase> {
        let with = |changes: &[(&str, &str)]| {
            let data: Vec<_> = credentials("https://keystone.example.com").iter().chain(changes).copied().collect();
            secret(&data)
        };
        vec![
            (with(&[]), &[], &[]),
            (with(&[("username", "")]), &["no username"], &[]),
            (with(&[("userData", "")]), &["no userData"], &[]),
            (with(&[("insecure", "maybe")]), &["neither \"true\" nor \"false\""], &[]),
            (with(&[("caCert", "no certificate")]), &["is not a certificate in PEM form"], &[]),
        ]
    }

    fn refusal(&self, text: &str) -> Reply {
        fake::nova(400, "badRequest", text)
    }

    fn needs_no_flag(data: &SecretData) -> bool {
        Login::from_secret(data, &SecretPolicy::default()).is_ok()
    }
}

profile_suite!(World);
