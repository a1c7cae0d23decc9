//! The simulated cloud in another process, and its client for tests.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{
    program::{Program, free_port, mcm},
    wait,
};

/// A running cloud.
pub struct Cloud {
    /// Its address: `http://127.0.0.1:PORT`.
    pub url: String,
    /// The file that keeps its VMs: each change is a line.
    pub journal: PathBuf,
    http: reqwest::Client,
    program: Program,
}

impl Cloud {
    /// Starts it. Its Nodes register in the cluster of the kubeconfig, without heartbeats unless set by `flags`.
    pub async fn start(kubeconfig: &Path, log: &Path, flags: &[&str]) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let journal = log.with_extension("journal");
        let mut arguments = vec![
            "simulated-cloud".to_owned(),
            format!("--state={}", journal.display()),
            format!("--address={address}"),
            format!("--target-kubeconfig={}", kubeconfig.display()),
            "--node-removal-delay=0s".to_owned(),
        ];
        if flags.is_empty() {
            arguments.push("--heartbeat-period=0s".to_owned());
        }
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let mut program = Program::start(mcm(), arguments, log.to_owned());
        let url = format!("http://{address}");
        let health = format!("{url}/healthz");
        wait::until("the simulated cloud to answer", async || {
            program.assert_runs();
            reqwest::get(&health).await.ok()?.status().is_success().then_some(())
        })
        .await;
        Self { url, journal, http: reqwest::Client::new(), program }
    }

    /// All VMs that are not deleted.
    pub async fn vms(&self) -> Vec<Value> {
        self.get("/v1/state").await["vms"].as_array().unwrap().clone()
    }

    /// The provider IDs of the VMs of each Machine.
    pub async fn provider_ids(&self) -> BTreeMap<String, Vec<String>> {
        let mut ids = BTreeMap::<_, Vec<_>>::new();
        for vm in self.vms().await {
            ids.entry(text(&vm["machineName"])).or_default().push(text(&vm["providerID"]));
        }
        ids
    }

    /// One of the cloud's counters, such as `/created` or `/calls/create/total`.
    pub async fn count(&self, pointer: &str) -> u64 {
        self.get("/v1/stats").await.pointer(pointer).and_then(Value::as_u64).unwrap()
    }

    /// The process ID of the cloud.
    pub fn process(&self) -> u32 {
        self.program.id()
    }

    /// Creates a VM by hand, without a token, a marker and a Node, and returns it.
    pub async fn make(&self, namespace: &str, machine: &str) -> Value {
        self.make_of(namespace, machine, "").await
    }

    /// The same with the marker of an owner.
    pub async fn make_of(&self, namespace: &str, machine: &str, owner: &str) -> Value {
        let spec = json!({"neverJoin": true});
        let vm = json!({"machineName": machine, "namespace": namespace, "owner": owner, "providerSpec": spec});
        let answer = self.http.post(format!("{}/v1/vms", self.url)).json(&vm).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        answer.json().await.unwrap()
    }

    /// Changes which volumes are attached to the Node of a Machine. False if it has no VM any more.
    pub async fn volumes(&self, machine: &str, attach: &[String], detach: &[String]) -> bool {
        self.handle().volumes(machine, attach, detach).await
    }

    /// For a task that changes volumes on its own.
    pub fn handle(&self) -> Handle {
        Handle { url: self.url.clone(), http: self.http.clone() }
    }

    /// Replaces all settings.
    pub async fn control(&self, settings: Value) {
        let answer = self.http.put(format!("{}/v1/control", self.url)).json(&settings).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    /// Stops a VM by hand.
    pub async fn kill(&self, machine: &str, mode: &str) {
        self.act(machine, "kill", json!({ "mode": mode })).await;
    }

    /// Sets a condition of the Node of a Machine; without a status takes it back.
    pub async fn condition(&self, machine: &str, type_: &str, status: Option<&str>) {
        self.act(machine, "condition", json!({"type": type_, "status": status, "reason": "Test"})).await;
    }

    async fn act(&self, machine: &str, what: &str, body: Value) {
        let vms = self.vms().await;
        let vm = vms.iter().find(|vm| vm["machineName"] == machine).unwrap_or_else(|| panic!("{machine} has no VM"));
        let url = format!("{}/v1/vms/{}/{what}", self.url, text(&vm["id"]));
        let answer = self.http.post(url).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    async fn get(&self, path: &str) -> Value {
        self.http.get(format!("{}{path}", self.url)).send().await.unwrap().json().await.unwrap()
    }
}

/// A way to the cloud that does not keep it alive.
#[derive(Clone)]
pub struct Handle {
    url: String,
    http: reqwest::Client,
}

impl Handle {
    /// Changes which volumes are attached to the Node of a Machine. False if it has no VM any more.
    pub async fn volumes(&self, machine: &str, attach: &[String], detach: &[String]) -> bool {
        let answer = self.http.get(format!("{}/v1/state", self.url)).send().await.unwrap();
        let state: Value = answer.json().await.unwrap();
        let vms = state["vms"].as_array().unwrap();
        let Some(vm) = vms.iter().find(|vm| vm["machineName"] == machine) else { return false };
        let url = format!("{}/v1/vms/{}/volumes", self.url, text(&vm["id"]));
        let body = json!({"attach": attach, "detach": detach});
        self.http.post(url).json(&body).send().await.unwrap().status().is_success()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
