//! The driver of AWS against moto.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Stdio,
    sync::Arc,
};

use futures::StreamExt;
use mcm::{
    api::machine::{Machine, MachineClass},
    driver_tester::{Failed, Tester},
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    moto::Moto,
    proxy::{Fault, Proxy},
};

/// moto with a network, behind its proxy.
struct World {
    proxy: Arc<Proxy>,
    url: String,
    subnet: String,
    group: String,
    _moto: Moto,
}

impl World {
    async fn new() -> Self {
        let moto = Moto::start().await;
        let (proxy, url) = Proxy::start(&moto.url).await;
        let version = ("Version", "2016-11-15");
        let subnets = proxy.ask(&[("Action", "DescribeSubnets"), version]).await;
        let groups = proxy.ask(&[("Action", "DescribeSecurityGroups"), version]).await;
        let (subnet, group) = (between(&subnets, "subnetId"), between(&groups, "groupId"));
        let profile = [("Action", "CreateInstanceProfile"), ("Version", "2010-05-08"), ("InstanceProfileName", "node")];
        proxy.ask_service("iam", &profile).await;
        Self { proxy, url, subnet, group, _moto: moto }
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "ami": "ami-12c6146b", "region": "eu-west-1", "machineType": "m5.large", "iam": {"name": "node"},
            "blockDevices": [{"ebs": {"volumeType": "gp3", "volumeSize": 50}}],
            "networkInterfaces": [{"subnetID": self.subnet, "securityGroupIDs": [self.group]}],
            "srcAndDstChecksEnabled": false,
            "tags": {format!("kubernetes.io/cluster/{cluster}"): "1", "kubernetes.io/role/node": "1"},
        })
    }

    fn tester(&self) -> Tester {
        let secret = [
            ("accessKeyID", "AKIDEXAMPLE"),
            ("secretAccessKey", "top-secret-key"),
            ("userData", "hunter2-hunter2"),
            ("endpointURL", self.url.as_str()),
        ];
        let secret: BTreeMap<String, Vec<u8>> =
            secret.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        Tester::new(class(self.spec("shoot")), secret).unwrap()
    }

    /// VMs that exist, as moto itself counts them.
    async fn alive(&self) -> usize {
        let mut count = 0;
        for state in ["pending", "running", "stopping", "stopped"] {
            let all = self
                .proxy
                .ask(&[
                    ("Action", "DescribeInstances"),
                    ("Version", "2016-11-15"),
                    ("Filter.1.Name", "instance-state-name"),
                    ("Filter.1.Value.1", state),
                ])
                .await;
            count += all.matches("<instanceState>").count();
        }
        count
    }
}

fn between(text: &str, tag: &str) -> String {
    let found = text.split(&format!("<{tag}>")).nth(1).and_then(|rest| rest.split('<').next());
    found.unwrap_or_else(|| panic!("no {tag} in {text}")).to_owned()
}

fn class(spec: Value) -> MachineClass {
    let mut class = MachineClass { provider: "AWS".to_owned(), provider_spec: spec, ..MachineClass::default() };
    class.metadata.name = Some("class".to_owned());
    class.metadata.namespace = Some("ns".to_owned());
    class
}

fn machine(name: &str) -> Machine {
    let mut machine = Machine::default();
    machine.metadata.name = Some(name.to_owned());
    machine.metadata.namespace = Some("ns".to_owned());
    machine.metadata.uid = Some(format!("uid-{name}"));
    machine
}

#[tokio::test(flavor = "multi_thread")]
async fn the_aws_driver_conforms_on_moto() {
    let world = World::new().await;
    let volume = |spec: Value| serde_json::from_value(spec).unwrap();
    let volumes = vec![
        (volume(json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-2"}})), Some("vol-2".to_owned())),
        (volume(json!({"hostPath": {"path": "/tmp"}})), None),
    ];
    let invalid = class(json!({"region": 7}));
    let (failed, report) = world.tester().conformance(invalid, class(world.spec("other")), volumes).await;
    assert_eq!(failed, [""; 0], "\n{report}");
    assert!(!report.contains("skip"), "\n{report}");
    assert_eq!(world.alive().await, 0, "the suite leaves nothing behind");
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
    let world = World::new().await;
    for (number, ((action, fault, code), vms)) in CREATIONS.into_iter().enumerate() {
        // A new driver: it knows no image yet.
        let (tester, machine) = (world.tester(), machine(&format!("c-{number}")));
        world.proxy.fail(action, fault, 99);
        let failed = tester.create(&machine).await.unwrap_err();
        world.proxy.heal();
        let row = format!("{action} {fault:?}: {failed:?}");
        assert_eq!((failed.code, world.alive().await), (code, vms), "{row}");
        tester.create(&machine).await.unwrap();
        assert_eq!(world.alive().await, 1, "{row}");
        tester.delete(&machine).await.unwrap();
        assert_eq!(world.alive().await, 0, "{row}");
    }
    let tester = world.tester();
    for (number, ((action, fault, code), vms)) in DELETIONS.into_iter().enumerate() {
        let machine = machine(&format!("d-{number}"));
        tester.create(&machine).await.unwrap();
        world.proxy.fail(action, fault, 99);
        let failed = tester.delete(&machine).await.unwrap_err();
        world.proxy.heal();
        let row = format!("{action} {fault:?}: {failed:?}");
        assert_eq!((failed.code, world.alive().await), (code, vms), "{row}");
        tester.delete(&machine).await.unwrap();
        assert_eq!(world.alive().await, 0, "{row}");
    }
    // What moto itself refuses.
    let mut spec = world.spec("shoot");
    spec["networkInterfaces"][0]["subnetID"] = json!("subnet-00000000");
    let secret =
        [("accessKeyID", "AKIDEXAMPLE"), ("secretAccessKey", "x"), ("userData", "u"), ("endpointURL", &world.url)];
    let secret = secret.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
    let failed = Tester::new(class(spec), secret).unwrap().create(&machine("x")).await.unwrap_err();
    assert_eq!(failed.code, "InvalidArgument", "{failed:?}");
}

/// Repeats a creation as the controller does, until it succeeds.
async fn create(tester: &Tester, machine: &Machine) -> String {
    loop {
        match tester.create(machine).await {
            Ok((provider_id, _)) => return provider_id,
            Err(Failed { is_transient: true, .. }) => {}
            Err(failed) => panic!("{failed:?}"),
        }
    }
}

/// Fewer than in the tests of the driver: each look-up of moto takes as long as it has VMs.
const MACHINES: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_machines_get_a_hundred_vms_on_moto_although_every_tenth_answer_is_lost() {
    let world = World::new().await;
    world.proxy.settings.lock().lost_every = Some(10);
    let tester = world.tester();
    let machines: Vec<Machine> = (0..MACHINES).map(|number| machine(&format!("m-{number}"))).collect();
    let creations = futures::stream::iter(machines.iter().map(|machine| create(&tester, machine)));
    let ids: BTreeSet<String> = creations.buffer_unordered(20).collect().await;
    let found = (ids.len(), world.alive().await, tester.list().await.unwrap().len());
    assert_eq!(found, (MACHINES, MACHINES, MACHINES));
    assert!(world.proxy.calls("RunInstances") > MACHINES, "answers were lost");
}

/// What `mcm class check --live` says: result, field and text.
async fn checked(world: &World, spec: Value) -> Vec<(String, String, String)> {
    let mut class = class(spec);
    class.secret_ref = Some(serde_json::from_value(json!({"name": "secret", "namespace": "ns"})).unwrap());
    let mut class = serde_json::to_value(class).unwrap();
    (class["apiVersion"], class["kind"]) = (json!("machine.sapcloud.io/v1alpha1"), json!("MachineClass"));
    let data =
        json!({"accessKeyID": "AKIDEXAMPLE", "secretAccessKey": "top-secret-key", "userData": "hunter2-hunter2"});
    let metadata = json!({"name": "secret", "namespace": "ns"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
    let mut child = Command::new(env!("CARGO_BIN_EXE_mcm"))
        .args(["class", "check", "--live", "-o", "json", "-f", "-"])
        .env("AWS_ENDPOINT_URL", &world.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{class}\n{secret}").as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("top-secret-key"), "{text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    let of = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines = report["classes"][0]["results"].as_array().unwrap();
    lines.iter().map(|line| (of(line, "result"), of(line, "field"), of(line, "text"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn class_check_looks_into_moto_and_creates_nothing() {
    let world = World::new().await;
    let good = checked(&world, world.spec("shoot")).await;
    assert!(good.len() >= 7 && good.iter().all(|(result, ..)| result == "ok"), "{good:#?}");

    let mut spec = world.spec("shoot");
    spec["ami"] = "ami-00000000000000000".into();
    spec["machineType"] = "m5.enormous".into();
    spec["iam"] = json!({"name": "nobody"});
    spec["networkInterfaces"] = json!([{"subnetID": "subnet-0", "securityGroupIDs": ["sg-0"]}]);
    let bad = checked(&world, spec).await;
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
    assert_eq!(world.alive().await, 0);
}
