//! The simulated cloud as the cloud of the demo.

use std::path::Path;

use anyhow::{Context, Result};
use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    cloud::{DemoCloud, DemoVms},
    options::DemoOptions,
    process::{ChildProcess, free_port},
};

const POOL: &str = include_str!("../../../../templates/simulated/pool.yaml");
const REPLICAS: usize = 5;
const LOG: &str = "simulated-cloud.log";

/// The simulated cloud in a separate process.
pub struct SimulatedDemoCloud {
    url: String,
}

impl SimulatedDemoCloud {
    /// Starts it.
    pub async fn start(program: &Path, options: &DemoOptions, kubeconfig: &Path) -> Result<(Self, ChildProcess)> {
        std::fs::create_dir_all(options.show.logs()).context("create the log directory")?;
        let port = free_port(24_000)?;
        let arguments = [
            "simulated-cloud".to_owned(),
            format!("--address=127.0.0.1:{port}"),
            format!("--target-kubeconfig={}", kubeconfig.display()),
            "--heartbeat-period=2s".to_owned(),
            "--node-monitor-grace=3s".to_owned(),
        ];
        let url = format!("http://127.0.0.1:{port}");
        let log = options.show.logs().join(LOG);
        let mut process =
            ChildProcess::start("the simulated cloud", program, &arguments, log, options.leaves_processes())?;
        process.until_it_answers(&format!("{url}/healthz")).await?;
        Ok((Self { url }, process))
    }
}

#[async_trait]
impl DemoCloud for SimulatedDemoCloud {
    fn replicas(&self) -> usize {
        REPLICAS
    }

    fn flags(&self) -> Vec<String> {
        vec![format!("--simulated-cloud={}", self.url)]
    }

    fn objects(&self) -> String {
        POOL.to_owned()
    }

    fn hint(&self) -> String {
        format!("curl -s {}/v1/state", self.url)
    }

    async fn kill(&self, provider_id: &str) -> Result<()> {
        let id = provider_id.rsplit('/').next().unwrap_or_default();
        let url = format!("{}/v1/vms/{id}/kill", self.url);
        let answer = reqwest::Client::new().post(url).json(&json!({ "mode": "stop" })).send().await?;
        answer.error_for_status()?;
        Ok(())
    }

    async fn vms(&self) -> Result<DemoVms> {
        let statistics: Value = reqwest::get(format!("{}/v1/stats", self.url)).await?.json().await?;
        let count = |name: &str| statistics.get(name).and_then(Value::as_u64).unwrap_or_default();
        Ok(DemoVms { created: count("created"), alive: count("alive"), ..DemoVms::default() })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::api::machine::MachineDeployment;

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
                assert_eq!(usize::try_from(deployment.spec.replicas), Ok(REPLICAS));
            }
            kinds.push(kind);
        }
        assert_eq!(kinds, ["Namespace", "Secret", "MachineClass", "MachineClass", "MachineDeployment"]);
    }
}
