//! The driver on KubeVirt itself: its webhooks and its controller on a real API server, with the permissions that
//! `docs/drivers/kubevirt.md` names. `hack/kubevirt get` builds it; without it these tests are skipped.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use mcm::{
    api::machine::{Machine, MachineClass},
    driver_tester::{DriverTester, FailedCall},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::fake::{REGION, ZONE};
use crate::{
    support::{guard::Guard, wait},
    tester::machine,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/kubevirt");
/// The namespace of the VMs.
const NAMESPACE: &str = "vms";

/// A cluster with KubeVirt, which lives as long as this process.
struct KubeVirt {
    folder: PathBuf,
    _guard: Guard,
}

impl KubeVirt {
    /// That of this process, started on first use. `None` if KubeVirt is not built, and the reason is printed.
    async fn shared() -> Option<&'static Self> {
        static SHARED: OnceCell<Option<KubeVirt>> = OnceCell::const_new();
        let start = async || tokio::task::spawn_blocking(Self::start).await.unwrap();
        SHARED.get_or_init(start).await.as_ref()
    }

    fn start() -> Option<Self> {
        let found = Command::new(SCRIPT).arg("find").output().unwrap();
        if !found.status.success() {
            eprintln!("skipped: {}", String::from_utf8_lossy(&found.stderr).trim());
            return None;
        }
        let folder = tempfile::Builder::new().prefix("mcm-kubevirt-").tempdir().unwrap().keep();
        let guard = Guard::start(r#"read -r _; "$0" down "$1"; rm -rf "$1""#, &[Path::new(SCRIPT), &folder]);
        let started = Command::new(SCRIPT).arg("up").arg(&folder).output().unwrap();
        assert!(started.status.success(), "hack/kubevirt up: {}", String::from_utf8_lossy(&started.stderr));
        Some(Self { folder, _guard: guard })
    }

    fn tester(&self, spec: Value) -> DriverTester {
        let kubeconfig = fs::read(self.folder.join("vms.kubeconfig")).unwrap();
        let secret: BTreeMap<String, Vec<u8>> =
            [("kubeconfig".to_owned(), kubeconfig), ("userData".to_owned(), b"hunter2-hunter2".to_vec())].into();
        DriverTester::new(class(spec), secret).unwrap()
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        let folder = &self.folder;
        let mut command = Command::new(folder.join("bin/kubectl"));
        command.arg("--kubeconfig").arg(folder.join("kubeconfig")).args(["-n", NAMESPACE]).args(arguments);
        command.output().unwrap()
    }

    /// An object, as its API server shows it.
    fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let output = self.kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).ok()
    }

    fn create(&self, object: &Value) {
        let file = self.folder.join(format!("{}.json", object["metadata"]["name"].as_str().unwrap()));
        fs::write(&file, object.to_string()).unwrap();
        let output = self.kubectl(&["create", "-f", file.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn spec() -> Value {
    json!({
        "region": REGION, "zone": ZONE, "resources": {"requests": {"cpu": 0.5, "memory": "1Gi"}},
        "rootVolume": {
            "pvc": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}},
            "source": {"http": {"url": "https://images.example.com/a.img"}},
        },
        "tags": {"mcm.gardener.cloud/cluster": "shoot", "mcm.gardener.cloud/role": "node"},
    })
}

fn spec_with(field: &str, value: Value) -> Value {
    let mut spec = spec();
    spec[field] = value;
    spec
}

fn class(spec: Value) -> MachineClass {
    let mut class = MachineClass { provider: "kubevirt".to_owned(), provider_spec: spec, ..MachineClass::default() };
    class.metadata.name = Some("class".to_owned());
    class.metadata.namespace = Some("ns".to_owned());
    class
}

/// Repeats a creation as the controller does, until it succeeds or fails for good.
async fn create(tester: &DriverTester, machine: &Machine) -> Result<(String, String), FailedCall> {
    loop {
        match tester.create(machine).await {
            Err(failed) if failed.is_transient => {}
            done => return done,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_lives_on_kubevirt_itself() {
    let Some(kubevirt) = KubeVirt::shared().await else { return };
    let (tester, machine) = (kubevirt.tester(spec()), machine("life"));
    let ids = ("kubevirt://life".to_owned(), "life".to_owned());
    assert_eq!(tester.status(&machine).await.unwrap_err().code, "NotFound");
    assert_eq!(create(&tester, &machine).await.unwrap(), ids);
    let vm = kubevirt.get("vm", "life").unwrap();
    assert_eq!(vm["status"]["printableStatus"], "Running");
    assert_eq!(vm["metadata"]["labels"]["machine.sapcloud.io/machine-uid"], "uid-life");
    let secret = kubevirt.get("secret", "userdata-life-uid-life").unwrap();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], vm["metadata"]["uid"]);
    assert_eq!(create(&tester, &machine).await.unwrap(), ids, "it is found");
    assert_eq!(tester.status(&machine).await.unwrap(), ids);
    assert_eq!(tester.list().await.unwrap().get("kubevirt://life").map(String::as_str), Some("life"));
    tester.delete(&machine).await.unwrap();
    assert_eq!((kubevirt.get("vm", "life"), kubevirt.get("vmi", "life")), (None, None));
    assert_eq!(tester.status(&machine).await.unwrap_err().code, "NotFound");
    wait::until("the Secret to be deleted with its owner", async || {
        kubevirt.get("secret", "userdata-life-uid-life").is_none().then_some(())
    })
    .await;
    tester.delete(&machine).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_without_room_is_a_stock_out_on_kubevirt_itself() {
    let Some(kubevirt) = KubeVirt::shared().await else { return };
    let (tester, machine) = (kubevirt.tester(spec_with("zone", json!("nowhere"))), machine("no-room"));
    let failed = create(&tester, &machine).await.unwrap_err();
    assert_eq!(failed.code, "ResourceExhausted", "{}", failed.message);
    assert!(failed.message.contains("ErrorUnschedulable: 0/1 nodes are available"), "{}", failed.message);
    tester.delete(&machine).await.unwrap();
    assert_eq!(kubevirt.get("vm", "no-room"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_fails_is_a_failure_of_the_creation_on_kubevirt_itself() {
    let Some(kubevirt) = KubeVirt::shared().await else { return };
    let mut volume = spec()["rootVolume"].clone();
    volume["source"]["http"]["url"] = "https://broken.invalid/a.img".into();
    let (tester, machine) = (kubevirt.tester(spec_with("rootVolume", volume)), machine("no-image"));
    let failed = create(&tester, &machine).await.unwrap_err();
    assert_eq!(failed.code, "FailedPrecondition", "{}", failed.message);
    assert!(failed.message.contains("DataVolumeError"), "{}", failed.message);
    tester.delete(&machine).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_kubevirt_refuses_is_an_invalid_class() {
    let Some(kubevirt) = KubeVirt::shared().await else { return };
    let cpu = json!({"cores": "two"});
    let (tester, machine) = (kubevirt.tester(spec_with("cpu", cpu)), machine("refused"));
    let failed = create(&tester, &machine).await.unwrap_err();
    assert_eq!(failed.code, "InvalidArgument", "{}", failed.message);
    assert_eq!(kubevirt.get("vm", "refused"), None);
    // Its Secret was created before it.
    tester.delete(&machine).await.unwrap();
    assert_eq!(kubevirt.get("secret", "userdata-refused-uid-refused"), None);
}

/// As Gardener's driver made it.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_of_the_reference_is_adopted_and_deleted_on_kubevirt_itself() {
    let Some(kubevirt) = KubeVirt::shared().await else { return };
    let labels =
        json!({"mcm.gardener.cloud/cluster": "shoot", "mcm.gardener.cloud/role": "node", "kubevirt.io/vm": "old"});
    kubevirt.create(&json!({
        "apiVersion": "kubevirt.io/v1alpha3", "kind": "VirtualMachine", "metadata": {"name": "old", "labels": labels},
        "spec": {
            "running": true,
            "template": {"spec": {"domain": {"devices": {}, "resources": {"requests": {"memory": "1Gi"}}}}},
        },
    }));
    let (tester, machine) = (kubevirt.tester(spec()), machine("old"));
    assert_eq!(create(&tester, &machine).await.unwrap().0, "kubevirt://old");
    assert_eq!(kubevirt.get("secret", "userdata-old-uid-old"), None, "nothing was created");
    tester.delete(&machine).await.unwrap();
    assert_eq!((kubevirt.get("vm", "old"), kubevirt.get("vmi", "old")), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_conforms_on_kubevirt_itself() {
    let Some(kubevirt) = KubeVirt::shared().await else { return };
    let tags = json!({"mcm.gardener.cloud/cluster": "other", "mcm.gardener.cloud/role": "node"});
    let (invalid, foreign) = (class(spec_with("zone", json!(7))), class(spec_with("tags", tags)));
    let volume = json!({"csi": {"driver": "csi.kubevirt.io", "volumeHandle": "handle"}});
    let volumes = vec![(serde_json::from_value(volume).unwrap(), Some("handle".to_owned()))];
    let (failed, report) = kubevirt.tester(spec()).conformance(invalid, foreign, volumes).await;
    assert_eq!(failed, [""; 0], "\n{report}");
}
