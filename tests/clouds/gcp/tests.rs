//! The driver of Google Cloud against a fake that refuses what does not fit Google's discovery document.

use std::collections::BTreeSet;

use futures::StreamExt;
use mcm::{
    api::machine::Machine,
    driver_tester::{DriverTester, FailedCall},
};
use serde_json::{Value, json};

use super::{
    World,
    fake::{Fault, NODES, PROJECT},
    world::ZONE,
};
use crate::{
    class_check::{self, Line},
    simulation::Simulation,
    tester::{class, driver_for, machine},
};

/// A class with all fields.
fn every_field() -> Value {
    json!({
        "region": "europe-west1", "zone": ZONE, "machineType": "g2-standard-4", "canIpForward": true,
        "deletionProtection": true, "description": "d", "minCpuPlatform": "Intel Ice Lake",
        "disks": [
            {
                "boot": true, "sizeGb": 50, "type": "hyperdisk-balanced", "image": "projects/os/global/images/os-1",
                "encryption": {"kmsKeyName": "k", "kmsKeyServiceAccount": "a"}, "labels": {"name": "d"},
                "provisionedIops": 5000, "provisionedThroughput": 250, "storagePool": "zones/z/storagePools/p",
                "autoDelete": false,
            },
            {"type": "SCRATCH", "interface": "NVME"},
        ],
        "gpu": {"acceleratorType": "nvidia-l4", "count": 1},
        "labels": {"team": "a"},
        "metadata": [{"key": "k", "value": "v"}],
        "networkInterfaces": [{
            "network": "vpc", "subnetwork": "nodes", "stackType": "IPV4_IPV6", "ipv6accessType": "EXTERNAL",
            "useAliasIPs": true, "ipCidrRange": "/24", "subnetworkRangeName": "pods",
        }],
        "scheduling": {"automaticRestart": false, "onHostMaintenance": "TERMINATE", "preemptible": true},
        "serviceAccounts": [{"email": "e", "scopes": ["s"]}],
        "tags": ["kubernetes-io-cluster-shoot", "kubernetes-io-role-node"],
        "shieldedInstanceConfiguration": {"integrityMonitoring": true, "secureBoot": true, "vtpm": true},
        "advancedMachineFeatures": {"enableNestedVirtualization": true},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gcp_driver_conforms_and_its_requests_fit_googles_document() {
    let world = World::new().await;
    let volume = |spec: Value| serde_json::from_value(spec).unwrap();
    let handle = "projects/p/zones/z/disks/d";
    let csi = json!({"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": handle}});
    let volumes = vec![(volume(csi), Some(handle.to_owned())), (volume(json!({"hostPath": {"path": "/tmp"}})), None)];
    let (tester, invalid) = (driver_for(&world, world.spec("shoot")), class(&world, json!({"region": 7})));
    let (failed, report) = tester.conformance(invalid, class(&world, world.spec("other")), volumes).await;
    assert_eq!(failed, [""; 0], "\n{report}");
    assert_eq!((world.violations(), world.count()), (vec![], 0), "the suite leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_with_every_field_fits_googles_document() {
    let world = World::new().await;
    let tester = driver_for(&world, every_field());
    assert_eq!(tester.problems(), (vec![], vec![]));
    tester.create(&machine("m")).await.unwrap();
    assert_eq!(world.violations(), [""; 0]);
    let error = tester.delete(&machine("m")).await.unwrap_err();
    assert_eq!(error.code, "InvalidArgument", "it is protected: {error:?}");
}

/// Changes of a valid request, and the refusals of the fake.
const FLAWS: [(&str, &str, &str); 7] = [
    ("/nonesuch", "1", "there is no field .nonesuch"),
    ("/disks/0/initializeParams/diskSizeGb", "50", "expected string, found 50"),
    ("/disks/0/type", r#""FLOPPY""#, "FLOPPY is none of"),
    ("/disks/0/boot", r#""yes""#, "expected boolean"),
    ("/creationTimestamp", r#""x""#, "is for output only"),
    ("/name", r#""A""#, "A does not match"),
    ("/labels", r#"{"a": 1}"#, "expected string, found 1"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_fake_refuses_what_does_not_fit_googles_document() {
    let world = World::new().await;
    driver_for(&world, world.spec("shoot")).create(&machine("m")).await.unwrap();
    let (valid, token) = {
        let gce = world.gce.lock();
        let sent = gce.of_call("instances.insert").next().unwrap();
        (sent.body.clone(), sent.token.clone())
    };
    let url = format!("{}/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances", world.url);
    let http = reqwest::Client::new();
    let ask = async |body: &Value, query: &str| {
        let request = http.post(format!("{url}?{query}")).bearer_auth(&token).json(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    for (pointer, value, expected) in FLAWS {
        let mut body = valid.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[key] = serde_json::from_str(value).unwrap();
        let (status, text) = ask(&body, "").await;
        assert!(status == 400 && text.contains(expected), "{pointer}: {status} {text}");
    }
    let (status, text) = ask(&valid, "requestID=x").await;
    assert!(status == 400 && text.contains("there is no parameter requestID"), "{text}");
    let mut incomplete = valid.clone();
    incomplete.as_object_mut().unwrap().remove("name");
    let (status, text) = ask(&incomplete, "").await;
    assert!(status == 400 && text.contains(".name is missing"), "{text}");
    let answer = http.get(format!("{url}?fields=items(nam)")).bearer_auth(&token).send().await.unwrap();
    assert!(answer.text().await.unwrap().contains("fields.items has no nam"));
}

/// Repeats a creation as the controller does, until it succeeds.
async fn create(tester: &DriverTester, machine: &Machine) -> String {
    loop {
        let found = match tester.status(machine).await {
            Err(FailedCall { code: "NotFound", .. }) => tester.create(machine).await,
            other => other,
        };
        match found {
            Ok((provider_id, _)) => return provider_id,
            Err(FailedCall { is_transient: true, .. }) => {}
            Err(failed) => panic!("{failed:?}"),
        }
    }
}

/// Fewer than in the tests of the driver: its patience is that of a real cloud.
const MACHINES: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_machines_get_a_hundred_vms_although_every_tenth_answer_is_lost() {
    let world = World::new().await;
    world.gce.lock().fails_every = Some((10, Fault::LostAnswer));
    world.gce.lock().faults.push(("instances.list", Fault::Error("rateLimitExceeded", 403), 3));
    let tester = driver_for(&world, world.spec("shoot"));
    let machines: Vec<Machine> = (0..MACHINES).map(|number| machine(&format!("m-{number}"))).collect();
    let creations = futures::stream::iter(machines.iter().map(|machine| create(&tester, machine)));
    let ids: BTreeSet<String> = creations.buffer_unordered(50).collect().await;
    let found = (ids.len(), world.count(), tester.list().await.unwrap().len());
    assert_eq!(found, (MACHINES, MACHINES, MACHINES));
    assert!(world.gce.lock().inserts > MACHINES, "answers were lost");
    assert_eq!(world.violations(), [""; 0]);
}

/// Output of `mcm class check --live`.
async fn checked(world: &World, spec: Value) -> Vec<Line> {
    let compute = format!("{}/compute/v1", world.url);
    let environment = [
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", compute.as_str()),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAM", &world.url),
    ];
    class_check::checked(world, spec, &environment).await
}

#[tokio::test(flavor = "multi_thread")]
async fn class_check_looks_into_the_fake_and_creates_nothing() {
    let world = World::new().await;
    world.gce.lock().furnish();
    let mut spec = world.spec("shoot");
    spec["serviceAccounts"] = json!([{"email": NODES, "scopes": ["s"]}]);
    let good = checked(&world, spec.clone()).await;
    assert!(good.len() >= 10 && good.iter().all(|(result, ..)| result == "ok"), "{good:#?}");

    spec["machineType"] = "n2-enormous-2".into();
    spec["disks"][0]["type"] = "pd-unknown".into();
    spec["disks"][0]["image"] = "projects/os/global/images/family/none".into();
    spec["networkInterfaces"] = json!([{"network": "none", "subnetwork": "none"}]);
    spec["serviceAccounts"][0]["email"] = "nobody@my-project.iam.gserviceaccount.com".into();
    let bad = checked(&world, spec).await;
    let missing: BTreeSet<&str> =
        bad.iter().filter(|(result, ..)| result == "error").map(|(_, field, _)| field.as_str()).collect();
    let expected = [
        "providerSpec.disks[0].image",
        "providerSpec.disks[0].type",
        "providerSpec.machineType",
        "providerSpec.networkInterfaces[0].network",
        "providerSpec.networkInterfaces[0].subnetwork",
        "providerSpec.serviceAccounts[0].email",
    ];
    assert_eq!(missing, expected.into(), "{bad:#?}");
    assert_eq!((world.violations(), world.count()), (vec![], 0));
}
