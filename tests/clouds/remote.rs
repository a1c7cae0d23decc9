//! `mcm driver serve` and `mcm driver test` over gRPC with TLS: certificates on both sides.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc, thread, time::Duration};

use mcm_driver::testing::TestCa;
use rand::Rng;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    pool::{Pool, machines_or},
    simulation::{ENDPOINTS, Simulation},
    support::{
        logs,
        objects::PLANTED,
        program::{Program, free_port, mcm},
        secrets, wait,
    },
};

/// A CA, and certificates of it for a driver and for mcm: `ca.crt`, `server.crt`, `server.key`, `client.crt`, `client.key`.
pub fn certificates(folder: &Path) {
    let ca = TestCa::new();
    fs::write(folder.join("ca.crt"), &ca.pem).unwrap();
    for side in ["server", "client"] {
        let (certificate, key) = ca.issue();
        fs::write(folder.join(format!("{side}.crt")), certificate).unwrap();
        fs::write(folder.join(format!("{side}.key")), key).unwrap();
    }
}

/// A driver of ours in another process.
pub struct Served {
    pub program: Program,
    /// `https://127.0.0.1:PORT`
    pub address: String,
    pub folder: TempDir,
}

impl Served {
    pub async fn start(provider: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let listen = format!("127.0.0.1:{}", free_port());
        let file = |name: &str| folder.path().join(name).display().to_string();
        let arguments = [
            "driver".to_owned(),
            "serve".to_owned(),
            format!("--provider={provider}"),
            format!("--listen={listen}"),
            format!("--cert-file={}", file("server.crt")),
            format!("--key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            ENDPOINTS.to_owned(),
        ];
        let program = Program::start(mcm(), arguments.to_vec(), folder.path().join("driver.log"));
        wait::until("the driver to listen", async || tokio::net::TcpStream::connect(&listen).await.ok()).await;
        Self { program, address: format!("https://{listen}"), folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, object: &Value) -> String {
        fs::write(self.folder.path().join(name), object.to_string()).unwrap();
        self.file(name)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for log in logs::of(self.folder.path()) {
            if thread::panicking() {
                logs::print_tail(&log);
            } else {
                logs::assert_sound(&log);
            }
        }
    }
}

/// Runs `mcm driver test`: no check fails, and only optional checks are skipped.
async fn passes(provider: &str, spec: &Value, foreign: Value, secret: &Value) {
    let served = Served::start(provider).await;
    let class = |namespace: &str, spec: &Value| {
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": {"name": "class", "namespace": namespace}, "provider": provider, "providerSpec": spec,
            "secretRef": {"name": "secret", "namespace": "ns"},
        })
    };
    let invalid = class("ns", &json!({"region": 7}));
    let foreign_namespace = if foreign == *spec { "other" } else { "ns" };
    let data = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret", "namespace": "ns"}, "stringData": secret,
    });
    let output = Command::new(mcm())
        .args(["driver", "test", &served.address, "-o", "json"])
        .args(["--ca-file", &served.file("ca.crt")])
        .args(["--cert-file", &served.file("client.crt"), "--key-file", &served.file("client.key")])
        .args(["-f", &served.write("class.yaml", &class("ns", spec))])
        .args(["--secret", &served.write("secret.yaml", &data)])
        .args(["--invalid-class", &served.write("invalid.yaml", &invalid)])
        .args(["--foreign-class", &served.write("foreign.yaml", &class(foreign_namespace, &foreign))])
        .output()
        .await
        .unwrap();
    let (report, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(!secrets::are_in(&report) && !secrets::are_in(&said), "mcm driver test prints a planted secret");
    assert!(output.status.success(), "{report}\n{said}\n{}", served.program.log());
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["failed"], 0, "{report:#}");
    let checks = report["checks"].as_array().unwrap();
    let skipped =
        checks.iter().filter(|check| check["result"] == "skipped").map(|check| check["check"].as_str().unwrap());
    let may_be_skipped = |name: &str| ["initialize ", "volume_ids "].iter().any(|start| name.starts_with(start));
    assert!(skipped.clone().all(may_be_skipped), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulated_driver_passes_over_tls() {
    let spec = json!({"createLatency": "1ms", "deleteLatency": "1ms"});
    passes("simulated", &spec, spec.clone(), &json!({"userData": PLANTED})).await;
}

/// The driver of a cloud passes, and the suite leaves nothing behind.
pub async fn the_driver_passes_over_tls(cloud: Arc<dyn Simulation>) {
    passes(cloud.provider(), &cloud.spec("shoot"), cloud.spec("other"), &cloud.secret()).await;
    assert_eq!((cloud.violations(), cloud.vms().await), (vec![], vec![]));
}

/// In the normal run. `CLOUD_MACHINES` sets another number.
const MACHINES: usize = 30;
const KILLS: usize = 4;
/// From before the first creation until some are done.
const LIFE_MILLIS: std::ops::Range<u64> = 300..2_000;

/// No VM is lost or doubled, however often the process of the driver is killed.
pub async fn the_driver_is_killed(cloud: Arc<dyn Simulation>) {
    let machines = machines_or(MACHINES);
    let mut served = Served::start(cloud.provider()).await;
    let files = ["ca=ca.crt", "cert=client.crt", "key=client.key"].map(|file| {
        let (name, file) = file.split_once('=').unwrap();
        format!("{name}={}", served.file(file))
    });
    let flag = format!("--driver={}={},{}", cloud.provider(), served.address, files.join(","));
    let pool = Pool::start(Arc::clone(&cloud), &[&flag, "--concurrent-syncs=50"]).await;
    let mut trouble = async || {
        for _ in 0..KILLS {
            // Not a wait for a state: the moment shall be any.
            let life = rand::rng().random_range(LIFE_MILLIS);
            tokio::time::sleep(Duration::from_millis(life)).await;
            served.program.restart_after_kill();
        }
    };
    pool.world.scale(machines.try_into().unwrap()).await;
    trouble().await;
    pool.until_settled(machines).await;
    let names: BTreeSet<String> = cloud.vms().await.into_iter().map(|vm| vm.machine).collect();
    assert_eq!(names, pool.world.scene.now().names(), "each machine has a VM");
    assert_eq!(cloud.created().await, machines as u64, "VMs ever made");

    pool.world.scale(0).await;
    trouble().await;
    pool.until_empty(machines).await;
    assert_eq!((cloud.vms().await.len(), cloud.created().await), (0, machines as u64));
}
