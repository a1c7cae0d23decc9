//! An API server that records who asked for what, with helm and kubectl beside it.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{runtime::Runtime, sync::OnceCell};

use crate::support::{
    cloud::Cloud,
    control_plane::ControlPlane,
    guard, identity, logs,
    program::{Program, free_port, mcm},
    world::Manager,
};

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/mcm");
const AUDIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/charts/audit.yaml");

/// All tests share one: connections belong to a runtime.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
/// Files of all clusters, which are never dropped.
static FOLDER: LazyLock<guard::Folder> = LazyLock::new(|| guard::Folder::new("mcm-charts-"));

/// Runs a test on a cluster with our CRDs, which the tests share.
pub fn play(test: impl AsyncFnOnce(&'static Cluster)) {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    run(async || {
        let shared = SHARED.get_or_init(async || {
            let cluster = Cluster::start().await;
            let kinds = [mcm::api::crd::crds(), mcm_capi::crd::crds(), mcm_capi::crd::stand_in()].concat();
            crate::support::control_plane::install(&cluster.control.client(), &kinds).await.unwrap();
            cluster
        });
        test(shared.await).await;
    });
}

/// Runs a test on a cluster without CRDs, which ends with it.
pub fn play_apart(test: impl AsyncFnOnce(&'static Cluster)) {
    run(async || {
        let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start().await));
        let _end = ClusterEnd(cluster);
        test(cluster).await;
    });
}

/// Takes the cluster of one test down, also if the test fails. Its logs are read later.
struct ClusterEnd(&'static Cluster);

impl Drop for ClusterEnd {
    fn drop(&mut self) {
        self.0.control.take_down();
    }
}

fn run(test: impl AsyncFnOnce()) {
    let _shown = ShownIfFailed;
    RUNTIME.block_on(test());
    for log in logs::of(FOLDER.path()) {
        logs::assert_sound(&log);
    }
}

/// A failed test shows the logs of the programs, and keeps them.
struct ShownIfFailed;

impl Drop for ShownIfFailed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            FOLDER.keep();
            logs::of(FOLDER.path())
                .iter()
                .filter(|log| !log.ends_with("audit.log"))
                .for_each(|log| logs::print_tail(log));
        }
    }
}

pub struct Cluster {
    pub control: ControlPlane,
    pub folder: PathBuf,
    programs: PathBuf,
}

impl Cluster {
    async fn start() -> Self {
        let folder = tempfile::tempdir_in(FOLDER.path()).unwrap().keep();
        let policy = format!("--arg=kube-apiserver=--audit-policy-file={AUDIT}");
        let log = format!("--arg=kube-apiserver=--audit-log-path={}", folder.join("audit.log").display());
        let flags = ["--with", "kube-controller-manager", policy.as_str(), log.as_str()];
        let control = ControlPlane::apart_with(&flags).await.unwrap();
        let programs = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let programs = programs.filter(|folder| folder.join("helm").exists());
        let programs = programs.unwrap_or_else(|| panic!("run these tests with hack/test-charts"));
        Self { control, folder, programs }
    }

    /// A new namespace whose pods must be of the strictest Pod Security Standard.
    pub async fn namespace(&self, prefix: &str) -> String {
        self.control.namespace_with(prefix, &[("pod-security.kubernetes.io/enforce", "restricted")]).await
    }

    /// Runs helm, which must succeed.
    pub fn helm(&self, words: &[&str]) -> String {
        self.try_helm(words).unwrap_or_else(|error| panic!("helm {words:?}: {error}"))
    }

    /// Runs helm; returns its output, or its error.
    pub fn try_helm(&self, words: &[&str]) -> Result<String, String> {
        self.run("helm", words, "")
    }

    /// Runs kubectl with something to read, which must succeed.
    pub fn kubectl(&self, words: &[&str], input: &str) -> String {
        self.run("kubectl", words, input).unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    /// The same; returns its output, or its error.
    pub fn try_kubectl(&self, words: &[&str], input: &str) -> Result<String, String> {
        self.run("kubectl", words, input)
    }

    /// The API server accepts the objects and all their fields. Nothing is stored.
    pub fn accepts(&self, manifest: &str) {
        let words = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts"];
        self.kubectl(&[&words[..], &["-f", "-"]].concat(), manifest);
    }

    /// An object in JSON, if there is one.
    pub fn get(&self, namespace: &str, kind: &str, name: &str) -> Option<Value> {
        let words = ["get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "json"];
        serde_json::from_str(&self.kubectl(&words, "")).ok()
    }

    fn run(&self, program: &str, words: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(self.programs.join(program));
        command.args(words).env("KUBECONFIG", self.control.kubeconfig());
        for kind in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{kind}_HOME"), self.folder.join(kind));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// A kubeconfig with the token of a ServiceAccount.
    pub async fn kubeconfig(&self, namespace: &str, account: &str) -> PathBuf {
        let folder = self.folder.join(namespace);
        std::fs::create_dir_all(&folder).unwrap();
        identity::kubeconfig(&self.control.client(), self.control.kubeconfig(), namespace, account, &folder).await
    }

    /// Starts the programs of a Deployment as a kubelet would: their commands, arguments and ServiceAccount. What a pod finds in its
    /// environment is a file here: the credentials, and the kubeconfig of the target if it is mounted.
    pub async fn start_deployment(&self, namespace: &str, name: &str, cloud: &Cloud) -> Vec<Manager> {
        let deployment = self.get(namespace, "deployment", name).unwrap();
        self.start_pod(namespace, &deployment["spec"]["template"]["spec"], cloud).await
    }

    /// The same for the containers of a pod.
    pub async fn start_pod(&self, namespace: &str, pod: &Value, cloud: &Cloud) -> Vec<Manager> {
        let kubeconfig = self.kubeconfig(namespace, pod["serviceAccountName"].as_str().unwrap()).await;
        let mut managers = Vec::new();
        for container in pod["containers"].as_array().unwrap() {
            managers.push(self.start_container(namespace, container, &kubeconfig, cloud).ready().await);
        }
        managers
    }

    fn start_container(&self, namespace: &str, container: &Value, kubeconfig: &Path, cloud: &Cloud) -> Manager {
        let words = |field: &str| -> Vec<String> {
            container[field].as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        let mut command = words("command");
        if command.is_empty() {
            command.push(entry_point(container["image"].as_str().unwrap()).to_owned());
        }
        // The image has links for the names of the Go programs, which the binary also takes as its first argument.
        match command.remove(0).trim_start_matches(['.', '/']) {
            "mcm" => {}
            name => command.insert(0, name.to_owned()),
        }
        let kubeconfig = kubeconfig.display();
        let place = |argument: String| match argument.as_str() {
            "--control-kubeconfig=inClusterConfig" => format!("--control-kubeconfig={kubeconfig}"),
            _ if argument.starts_with("--target-kubeconfig=") => format!("--target-kubeconfig={kubeconfig}"),
            _ => argument.replace("$(POD_NAMESPACE)", namespace),
        };
        let mut arguments: Vec<String> = command.into_iter().chain(words("args")).map(place).collect();
        let port = free_port();
        match arguments[0].as_str() {
            "capi-manager" => arguments.extend([
                format!("--kubeconfig={kubeconfig}"),
                format!("--health-addr=127.0.0.1:{port}"),
                format!("--diagnostics-address=127.0.0.1:{}", free_port()),
            ]),
            _ => arguments.extend([format!("--port={port}"), "--address=127.0.0.1".to_owned()]),
        }
        if !["machine-controller-manager", "presence"].contains(&arguments[0].as_str()) {
            arguments.push(format!("--simulated-cloud={}", cloud.url));
        }
        arguments.push("--v=3".to_owned());
        let log = self.folder.join(format!("{namespace}-{}-{port}.log", container["name"].as_str().unwrap()));
        let environment = vec![("POD_NAMESPACE".to_owned(), namespace.to_owned())];
        let program = Program::start_in(environment, mcm(), arguments, log);
        Manager { program, url: format!("http://127.0.0.1:{port}") }
    }

    /// The recorded requests of a ServiceAccount: all that were sent before this call.
    pub async fn requests(&self, kubeconfig: &Path, account: &str) -> Vec<Value> {
        let marker = format!("marker-{}", free_port());
        let credentials = Kubeconfig::read_from(kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(credentials, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let version = http::Request::get(format!("/version?{marker}")).body(Vec::new()).unwrap();
        client.request_text(version).await.unwrap();
        let log = self.folder.join("audit.log");
        crate::support::wait::until("the audit log to be written", async || {
            let text = std::fs::read_to_string(&log).unwrap();
            text.contains(&marker).then_some(text)
        })
        .await
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| {
            event["user"]["username"] == account && !event["requestURI"].as_str().unwrap().contains(&marker)
        })
        .collect()
    }
}

/// The entry point of an image of a release, of which hack/release/tests.py makes sure.
pub fn entry_point(image: &str) -> &'static str {
    if image.ends_with("-machine-controller") { "/machine-controller" } else { "/mcm" }
}

/// The documents of a manifest.
pub fn documents(manifest: &str) -> Vec<Value> {
    let all = serde_yaml_ng::Deserializer::from_str(manifest).map(|one| Value::deserialize(one).unwrap());
    all.filter(|object| !object.is_null()).collect()
}

/// The only object of a kind in a manifest.
pub fn only(manifest: &str, kind: &str) -> Value {
    let mut found: Vec<Value> = documents(manifest).into_iter().filter(|object| object["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{kind}: {}", json!(found));
    found.remove(0)
}
