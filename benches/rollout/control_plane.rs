//! A fresh API server, and a fresh simulated cloud, for each run.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kube::{Client, Config, config::KubeConfigOptions, config::Kubeconfig};

/// etcd and kube-apiserver, brought down when dropped.
pub struct ControlPlane {
    folder: tempfile::TempDir,
    pub kubeconfig: PathBuf,
}

impl ControlPlane {
    pub fn up() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let output = Command::new("hack/control-plane")
            .arg("up")
            .arg(folder.path())
            .stderr(Stdio::null())
            .output()
            .context("run hack/control-plane up")?;
        if !output.status.success() {
            bail!("hack/control-plane up failed; run it by hand to see why");
        }
        let kubeconfig = PathBuf::from(String::from_utf8(output.stdout)?.trim());
        Ok(Self { folder, kubeconfig })
    }

    pub async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = Command::new("hack/control-plane").arg("down").arg(self.folder.path()).stderr(Stdio::null()).status();
    }
}

/// A child process that is killed when dropped.
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &[String], environment: &[(&str, &str)], log: &Path) -> Result<Self> {
        // For clients of what it serves.
        rustls::crypto::ring::default_provider().install_default().ok();
        let (program, arguments) = command.split_first().context("an empty command")?;
        let log = std::fs::File::create(log)?;
        let child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {program}"))?;
        Ok(Self(child))
    }

    /// Stops it and waits; kills it if that takes too long.
    pub async fn stop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        for _ in 0..100 {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The address of a simulated cloud that answers.
pub async fn simulated_cloud(mcm: &Path, kubeconfig: &Path, logs: &Path) -> Result<(Process, String)> {
    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let command = [
        mcm.display().to_string(),
        "simulated-cloud".into(),
        format!("--address={address}"),
        format!("--target-kubeconfig={}", kubeconfig.display()),
        "--heartbeat-period=0s".into(),
    ];
    let process = Process::start(&command, &[], &logs.join("cloud.log"))?;
    let url = format!("http://{address}");
    for _ in 0..200 {
        let answer = reqwest::get(format!("{url}/healthz")).await;
        if answer.is_ok_and(|answer| answer.status().is_success()) {
            return Ok((process, url));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("the simulated cloud does not answer at {url}; see {}", logs.join("cloud.log").display())
}

/// A port below 32768: above, an outgoing connection may hold one.
pub fn free_port() -> Result<u16> {
    let start = 20_000 + u16::try_from(std::process::id() % 8_000)?;
    (start..32_000)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .context("no free port below 32768")
}
