//! The driver of AWS against moto.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use mcm::{
    api::machine::Machine,
    driver_tester::{DriverTester, FailedCall},
};
use serde_json::{Value, json};

use super::{proxy::Fault, server::Server};
use crate::{
    aws::Ec2,
    class_check::{self, Line},
    simulation::Simulation,
    tester::{class, driver_for, machine},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_aws_driver_conforms_on_moto() {
    let ec2 = Ec2::start().await;
    let volume = |spec: Value| serde_json::from_value(spec).unwrap();
    let volumes = vec![
        (volume(json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-2"}})), Some("vol-2".to_owned())),
        (volume(json!({"hostPath": {"path": "/tmp"}})), None),
    ];
    let invalid = class(&ec2, json!({"region": 7}));
    let (failed, report) =
        driver_for(&ec2, ec2.spec("shoot")).conformance(invalid, class(&ec2, ec2.spec("other")), volumes).await;
    assert_eq!(failed, [""; 0], "\n{report}");
    assert!(!report.contains("skip"), "\n{report}");
    assert_eq!(ec2.vms().await.len(), 0, "the suite leaves nothing behind");
}

/// An image that MiniStack has from the start.
const MINISTACK_IMAGE: &str = "ami-0c2023a1b2c3d4e5f";

/// A second opinion, of a program that has nothing in common with moto. Behind the proxy, because it supports no tokens either:
/// without it, all checks pass but that concurrent creations create one VM.
#[tokio::test(flavor = "multi_thread")]
async fn the_aws_driver_conforms_on_ministack() {
    let ec2 = Ec2::on(Server::start("ministack").await).await;
    let spec = |cluster: &str| {
        let mut spec = ec2.spec(cluster);
        spec["ami"] = MINISTACK_IMAGE.into();
        spec
    };
    let (invalid, other) = (class(&ec2, json!({"region": 7})), class(&ec2, spec("other")));
    let (failed, report) = driver_for(&ec2, spec("shoot")).conformance(invalid, other, vec![]).await;
    assert_eq!(failed, [""; 0], "\n{report}");
    assert_eq!(ec2.vms().await.len(), 0, "the suite leaves nothing behind");
}

/// A call of EC2 that fails in a way, and the code of the driver's call.
type Row = (&'static str, Fault, &'static str);

const THROTTLE: Fault = Fault::Error("RequestLimitExceeded", 503);

/// For creations, with the number of VMs after the failure.
const CREATIONS: [(Row, usize); 13] = [
    (("RunInstances", Fault::LostAnswer, "Unknown"), 1),
    (("RunInstances", Fault::Cut, "Unknown"), 0),
    (("RunInstances", Fault::Malformed, "Unknown"), 0),
    (("RunInstances", THROTTLE, "Unavailable"), 0),
    (("RunInstances", Fault::Status(503), "Unavailable"), 0),
    (("RunInstances", Fault::Error("AuthFailure", 401), "Unauthenticated"), 0),
    (("RunInstances", Fault::Error("InsufficientInstanceCapacity", 500), "ResourceExhausted"), 0),
    (("RunInstances", Fault::Error("VcpuLimitExceeded", 400), "ResourceExhausted"), 0),
    (("RunInstances", Fault::Error("InvalidSubnetID.NotFound", 400), "InvalidArgument"), 0),
    (("DescribeImages", Fault::Cut, "Unknown"), 0),
    (("DescribeImages", THROTTLE, "Unavailable"), 0),
    (("DescribeInstances", Fault::Cut, "Unknown"), 0),
    (("DescribeInstances", THROTTLE, "Unavailable"), 0),
];

/// For deletions, with the number of VMs after the failure.
const DELETIONS: [(Row, usize); 5] = [
    (("TerminateInstances", Fault::LostAnswer, "Unknown"), 0),
    (("TerminateInstances", THROTTLE, "Unavailable"), 1),
    (("TerminateInstances", Fault::Status(500), "Unavailable"), 1),
    (("TerminateInstances", Fault::Error("UnauthorizedOperation", 403), "PermissionDenied"), 1),
    (("DescribeInstances", Fault::Malformed, "Unknown"), 1),
];

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_on_moto_the_next_attempt_leads_to_one_vm_and_then_to_none() {
    let ec2 = Ec2::start().await;
    for (number, ((action, fault, code), vms)) in CREATIONS.into_iter().enumerate() {
        // A new driver: its image cache is empty.
        let (tester, machine) = (driver_for(&ec2, ec2.spec("shoot")), machine(&format!("c-{number}")));
        ec2.proxy.fail(action, fault, 99);
        let failed = tester.create(&machine).await.unwrap_err();
        ec2.proxy.heal();
        let row = format!("{action} {fault:?}: {failed:?}");
        assert_eq!((failed.code, ec2.vms().await.len()), (code, vms), "{row}");
        tester.create(&machine).await.unwrap();
        assert_eq!(ec2.vms().await.len(), 1, "{row}");
        tester.delete(&machine).await.unwrap();
        assert_eq!(ec2.vms().await.len(), 0, "{row}");
    }
    let tester = driver_for(&ec2, ec2.spec("shoot"));
    for (number, ((action, fault, code), vms)) in DELETIONS.into_iter().enumerate() {
        let machine = machine(&format!("d-{number}"));
        tester.create(&machine).await.unwrap();
        ec2.proxy.fail(action, fault, 99);
        let failed = tester.delete(&machine).await.unwrap_err();
        ec2.proxy.heal();
        let row = format!("{action} {fault:?}: {failed:?}");
        assert_eq!((failed.code, ec2.vms().await.len()), (code, vms), "{row}");
        tester.delete(&machine).await.unwrap();
        assert_eq!(ec2.vms().await.len(), 0, "{row}");
    }
    // Specs that moto itself refuses.
    let mut spec = ec2.spec("shoot");
    spec["networkInterfaces"][0]["subnetID"] = json!("subnet-00000000");
    let failed = driver_for(&ec2, spec).create(&machine("x")).await.unwrap_err();
    assert_eq!(failed.code, "InvalidArgument", "{failed:?}");
}

/// Repeats a creation as the controller does, until it succeeds.
async fn create(tester: &DriverTester, machine: &Machine) -> String {
    loop {
        match tester.create(machine).await {
            Ok((provider_id, _)) => return provider_id,
            Err(FailedCall { is_transient: true, .. }) => {}
            Err(failed) => panic!("{failed:?}"),
        }
    }
}

/// Fewer than in the tests of the driver: each look-up of moto takes as long as it has VMs.
const MACHINES: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_machines_get_a_hundred_vms_on_moto_although_every_tenth_answer_is_lost() {
    let ec2 = Ec2::start().await;
    ec2.proxy.settings.lock().lost_every = Some(10);
    let tester = driver_for(&ec2, ec2.spec("shoot"));
    let machines: Vec<Machine> = (0..MACHINES).map(|number| machine(&format!("m-{number}"))).collect();
    let creations = futures::stream::iter(machines.iter().map(|machine| create(&tester, machine)));
    let ids: BTreeSet<String> = creations.buffer_unordered(20).collect().await;
    let found = (ids.len(), ec2.vms().await.len(), tester.list().await.unwrap().len());
    assert_eq!(found, (MACHINES, MACHINES, MACHINES));
    assert!(ec2.proxy.calls("RunInstances") > MACHINES, "answers were lost");
}

/// Output of `mcm class check --live`.
async fn checked(ec2: &Ec2, spec: Value) -> Vec<Line> {
    class_check::checked(ec2, spec, &[("AWS_ENDPOINT_URL", &ec2.url)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn class_check_looks_into_moto_and_creates_nothing() {
    let ec2 = Ec2::start().await;
    let good = checked(&ec2, ec2.spec("shoot")).await;
    assert!(good.len() >= 7 && good.iter().all(|(result, ..)| result == "ok"), "{good:#?}");

    let mut spec = ec2.spec("shoot");
    spec["ami"] = "ami-00000000000000000".into();
    spec["machineType"] = "m5.enormous".into();
    spec["iam"] = json!({"name": "nobody"});
    spec["networkInterfaces"] = json!([{"subnetID": "subnet-0", "securityGroupIDs": ["sg-0"]}]);
    let bad = checked(&ec2, spec).await;
    let missing: BTreeSet<&str> =
        bad.iter().filter(|(result, ..)| result == "error").map(|(_, field, _)| field.as_str()).collect();
    let expected = [
        "providerSpec",
        "providerSpec.ami",
        "providerSpec.iam.name",
        "providerSpec.machineType",
        "providerSpec.networkInterfaces[0].securityGroupIDs",
        "providerSpec.networkInterfaces[0].subnetID",
    ];
    assert_eq!(missing, expected.into(), "{bad:#?}");
    assert_eq!(ec2.vms().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_data_are_kept_in_secrets_manager_of_moto_until_the_machine_is_deleted() {
    let ec2 = Ec2::start().await;
    let mut spec = ec2.spec("shoot");
    spec["userDataStore"] = json!("SecretsManager");
    let mut secret: BTreeMap<String, String> = serde_json::from_value(ec2.secret()).unwrap();
    secret.insert("userData".to_owned(), "#cloud-config\n# hunter2-hunter2\n".to_owned());
    let secret = secret.into_iter().map(|(key, value)| (key, value.into_bytes())).collect();
    let (tester, machine) = (DriverTester::new(class(&ec2, spec), secret).unwrap(), machine("a"));
    let name = json!({"SecretId": "mcm/uid-a"});
    ec2.proxy.fail("RunInstances", Fault::Error("VcpuLimitExceeded", 400), 1);
    tester.create(&machine).await.unwrap_err();
    let first = ec2.proxy.ask_secrets("GetSecretValue", &name).await;
    tester.create(&machine).await.unwrap();
    let second = ec2.proxy.ask_secrets("GetSecretValue", &name).await;
    assert_eq!((&first["SecretBinary"], first["SecretBinary"].is_string()), (&second["SecretBinary"], true));
    assert_ne!(first["VersionId"], second["VersionId"], "the second attempt stored them again");
    let described = ec2.proxy.ask_secrets("DescribeSecret", &name).await;
    assert!(described["Tags"].as_array().unwrap().contains(&json!({"Key": "Name", "Value": "a"})), "{described}");
    tester.delete(&machine).await.unwrap();
    let gone = ec2.proxy.ask_secrets("DescribeSecret", &name).await;
    assert_eq!((&gone["__type"], ec2.vms().await.len()), (&json!("ResourceNotFoundException"), 0));
    tester.delete(&machine).await.expect("an absent secret is a success");
}
