//! A control plane of the demo: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes of this machine.

mod programs;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kube::Client;
use tokio::{task::JoinHandle, time::Instant};

pub use self::programs::ControlPlanePrograms;
use super::{
    identities::{self, ControlPlaneIdentities},
    kubelets,
    process::{ChildProcess, free_port},
    stage,
};

const START_LIMIT: Duration = Duration::from_secs(60);
/// Controllers that the demo needs.
const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,serviceaccount-controller,deployment-controller,\
    replicaset-controller,disruption-controller,node-lifecycle-controller,taint-eviction-controller,\
    pod-garbage-collector-controller";

/// The processes, and the kubelets.
#[derive(Default)]
pub struct ControlPlane {
    processes: Vec<ChildProcess>,
    kubelets: Option<JoinHandle<()>>,
}

impl ControlPlane {
    /// Starts it with its state and its logs in these folders. Returns the kubeconfig of an administrator.
    pub async fn start(&mut self, programs: &ControlPlanePrograms, state: &Path, logs: &Path) -> Result<PathBuf> {
        fs::create_dir_all(logs).context("create the log directory")?;
        fs::create_dir_all(state).context("create the directory of the control plane")?;
        let etcd = free_port(26_000)?;
        self.launch("etcd", &programs.etcd, &etcd_flags(state, etcd), logs)?;
        self.last()?.until_it_answers(&format!("http://127.0.0.1:{etcd}/health")).await?;

        let port = free_port(28_000)?;
        let identities = identities::write(state, port)?;
        self.launch("kube-apiserver", &programs.api_server, &api_server_flags(&identities, etcd, port), logs)?;
        let client = stage::client_of(&identities.kubeconfig).await?;
        until_ready(self.last()?, &client).await?;

        let kubeconfig = identities.kubeconfig.display();
        let controllers = [
            format!("--kubeconfig={kubeconfig}"),
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
            format!("--controllers={CONTROLLERS}"),
            format!("--service-account-private-key-file={}", identities.service_accounts_key.display()),
            format!("--root-ca-file={}", identities.ca.display()),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=200".to_owned(),
        ];
        self.launch("kube-controller-manager", &programs.controller_manager, &controllers, logs)?;
        let scheduler = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
        ];
        self.launch("kube-scheduler", &programs.scheduler, &scheduler, logs)?;
        self.kubelets = Some(tokio::spawn(kubelets::play(client)));
        Ok(identities.kubeconfig)
    }

    /// Ends all processes, the last one first. Their state is lost.
    pub async fn stop(&mut self) {
        if let Some(kubelets) = self.kubelets.take() {
            kubelets.abort();
        }
        while let Some(mut process) = self.processes.pop() {
            process.kill().await;
        }
    }

    fn launch(&mut self, name: &'static str, program: &Path, flags: &[String], logs: &Path) -> Result<()> {
        let process = ChildProcess::start(name, program, flags, logs.join(format!("{name}.log")), false)?;
        self.processes.push(process);
        Ok(())
    }

    fn last(&mut self) -> Result<&mut ChildProcess> {
        self.processes.last_mut().context("no process was started")
    }
}

fn etcd_flags(state: &Path, port: u16) -> [String; 7] {
    let url = format!("http://127.0.0.1:{port}");
    [
        format!("--data-dir={}", state.join("etcd").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        // It has no peers: any port will do.
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        // The state is lost with the demo.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
        "--logger=zap".to_owned(),
    ]
}

fn api_server_flags(identities: &ControlPlaneIdentities, etcd: u16, port: u16) -> [String; 13] {
    let file = |flag: &str, file: &Path| format!("--{flag}={}", file.display());
    [
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        file("tls-cert-file", &identities.server),
        file("tls-private-key-file", &identities.server_key),
        file("client-ca-file", &identities.ca),
        file("service-account-key-file", &identities.service_accounts),
        file("service-account-signing-key-file", &identities.service_accounts_key),
    ]
}

async fn until_ready(process: &mut ChildProcess, client: &Client) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < START_LIMIT {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        if client.request_text(request).await.is_ok() {
            return Ok(());
        }
        process.check()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("{process} is not ready after {} s", START_LIMIT.as_secs())
}
