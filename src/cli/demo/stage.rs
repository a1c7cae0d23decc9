//! The child processes of the demo: the simulated cloud and `mcm run`.

use std::{net::TcpListener, path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    time::Instant,
};

use super::DemoOptions;
use crate::cli::{apply, crd};

const POOL: &str = include_str!("../../../templates/simulated/pool.yaml");
const WORKLOAD: &str = include_str!("../../../templates/simulated/workload.yaml");
const START_LIMIT: Duration = Duration::from_secs(30);
const CLOUD_LOG: &str = "simulated-cloud.log";
const MANAGER_LOG: &str = "mcm.log";

/// The processes and clients of the demo.
pub struct Stage {
    /// The cluster.
    pub client: Client,
    cloud: String,
    kubeconfig: String,
    children: Vec<Child>,
}

impl Stage {
    /// Installs the CRDs and starts the processes.
    pub async fn set(options: &DemoOptions) -> Result<Self> {
        std::fs::create_dir_all(&options.logs).context("create the log directory")?;
        let kubeconfig = Kubeconfig::read_from(&options.kubeconfig)
            .with_context(|| format!("read the kubeconfig {}", options.kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        apply::apply(&client, &crd::render(None)?, "mcm-demo").await.context("install the CRDs")?;

        let kubeconfig = options.kubeconfig.display().to_string();
        let (cloud_port, manager_port) = (free_port(24_000)?, free_port(25_000)?);
        let cloud = format!("http://127.0.0.1:{cloud_port}");
        let cloud_arguments = [
            "simulated-cloud".to_owned(),
            format!("--address=127.0.0.1:{cloud_port}"),
            format!("--target-kubeconfig={kubeconfig}"),
            "--heartbeat-period=2s".to_owned(),
            "--node-monitor-grace=3s".to_owned(),
        ];
        let manager_arguments = [
            "run".to_owned(),
            format!("--control-kubeconfig={kubeconfig}"),
            format!("--target-kubeconfig={kubeconfig}"),
            "--namespace=demo".to_owned(),
            format!("--simulated-cloud={cloud}"),
            format!("--port={manager_port}"),
            "--address=127.0.0.1".to_owned(),
            "--machine-health-timeout=2s".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=200".to_owned(),
            "--v=3".to_owned(),
        ];
        apply::apply(&client, "apiVersion: v1\nkind: Namespace\nmetadata: {name: demo}", "mcm-demo").await?;
        let children = vec![
            start(&cloud_arguments, &options.logs.join(CLOUD_LOG), options.keep)?,
            start(&manager_arguments, &options.logs.join(MANAGER_LOG), options.keep)?,
        ];
        let mut stage = Self { client, cloud, kubeconfig, children };
        stage.record_pids(&options.logs)?;
        let url = format!("{}/healthz", stage.cloud);
        stage.wait_for(0, &url, "the simulated cloud", &options.logs.join(CLOUD_LOG)).await?;
        let url = format!("http://127.0.0.1:{manager_port}/readyz");
        stage.wait_for(1, &url, "the manager", &options.logs.join(MANAGER_LOG)).await?;
        Ok(stage)
    }

    /// Applies the machines and the pods.
    pub async fn apply_templates(&self) -> Result<()> {
        apply::apply(&self.client, POOL, "mcm-demo").await?;
        apply::apply(&self.client, WORKLOAD, "mcm-demo").await
    }

    /// Stops the VM of a machine through the simulated cloud's API.
    pub async fn kill_vm(&self, provider_id: &str) -> Result<()> {
        let id = provider_id.rsplit('/').next().unwrap_or_default();
        let url = format!("{}/v1/vms/{id}/kill", self.cloud);
        let answer = reqwest::Client::new().post(url).json(&json!({ "mode": "stop" })).send().await?;
        answer.error_for_status().context("kill the VM")?;
        Ok(())
    }

    /// The statistics of the simulated cloud.
    pub async fn statistics(&self) -> Result<Value> {
        Ok(reqwest::get(format!("{}/v1/stats", self.cloud)).await?.json().await?)
    }

    /// Stops the processes.
    pub async fn clear(&mut self) {
        for child in self.children.iter_mut().rev() {
            if let Some(pid) = child.id() {
                let _ = Command::new("kill").arg(pid.to_string()).status().await;
                if tokio::time::timeout(Duration::from_secs(5), child.wait()).await.is_err() {
                    let _ = child.kill().await;
                }
            }
        }
    }

    /// Hints for `--keep`.
    pub fn how_to_look_around(&self) -> String {
        format!(
            "Everything is left running. Look around with:\n\n  \
             export KUBECONFIG={}\n  \
             kubectl get mcd,mcs,mc,mcc -n demo -o wide\n  \
             kubectl get nodes\n  \
             kubectl scale mcd/pool -n demo --replicas=3\n  \
             curl -s {}/v1/state\n\nStop it with: hack/demo stop",
            self.kubeconfig, self.cloud
        )
    }

    fn record_pids(&self, logs: &Path) -> Result<()> {
        let pids: Vec<String> = self.children.iter().filter_map(Child::id).map(|pid| pid.to_string()).collect();
        std::fs::write(logs.join("pids"), pids.join("\n")).context("record the processes")
    }

    async fn wait_for(&mut self, child: usize, url: &str, what: &str, log: &Path) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if reqwest::get(url).await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if let Some(status) = self.children.get_mut(child).and_then(|child| child.try_wait().ok().flatten()) {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("{what} ended with {status}:\n{}", said.trim_end());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{what} does not respond at {url}; its log is {}", log.display())
    }
}

fn start(arguments: &[String], log: &Path, keep: bool) -> Result<Child> {
    let log = std::fs::File::create(log).with_context(|| format!("write {}", log.display()))?;
    let program = std::env::current_exe().context("find this program")?;
    let child = Command::new(program)
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(!keep)
        .spawn()?;
    Ok(child)
}

/// Below 32768: above, an outgoing connection may hold a port.
fn free_port(from: u16) -> Result<u16> {
    (from..from + 1_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .with_context(|| format!("no free port from {from} on"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::machine::MachineDeployment;
    use serde::Deserialize;

    #[test]
    fn the_templates_are_what_their_types_say() {
        let mut kinds = Vec::new();
        for document in serde_yaml_ng::Deserializer::from_str(POOL) {
            let value = serde_yaml_ng::Value::deserialize(document).unwrap();
            let kind = value["kind"].as_str().unwrap().to_owned();
            if kind == "MachineDeployment" {
                let deployment: MachineDeployment = serde_yaml_ng::from_value(value).unwrap();
                assert!(deployment.spec.strategy.kind().is_some());
                assert_eq!(deployment.spec.template.spec.class.name, "small");
            }
            kinds.push(kind);
        }
        assert_eq!(kinds, ["Namespace", "Secret", "MachineClass", "MachineClass", "MachineDeployment"]);
    }
}
