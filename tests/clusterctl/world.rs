//! The management cluster with everything installed, shared by all tests. Each test has a separate namespace.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    runtime::{conditions::is_crd_established, wait::Condition},
};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, sync::OnceCell};

use crate::{
    reading::Reader,
    repository,
    support::{
        cloud::Cloud,
        control_plane::ControlPlane,
        guard, identity, logs,
        program::{Program, free_port, mcm},
        wait,
        world::Manager,
    },
};

/// The release under test, and a later one.
pub const VERSION: &str = "v0.1.0";
pub const LATER: &str = "v0.2.0";
pub const NAMESPACE: &str = "capmcm-system";
/// Files of the certificates of webhooks and of extensions.
pub const CERTIFICATE: &str = "tls.crt";
pub const KEY: &str = "tls.key";
/// Allows the endpoints of the simulations of clouds.
pub const ENDPOINTS: &str = "--allowed-cloud-endpoints=http://127.0.0.1";

/// All tests share one: connections belong to a runtime.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Files of all worlds.
static FOLDER: LazyLock<guard::Folder> = LazyLock::new(|| guard::Folder::new("mcm-clusterctl-"));
const AUDIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clusterctl/audit.yaml");

/// Runs a test. Values planted in Secrets are in no log, nor in any write to an API server.
pub fn play(test: impl AsyncFnOnce(&'static World)) {
    static SHARED: OnceCell<World> = OnceCell::const_new();
    let _shown = ShownIfFailed;
    RUNTIME.block_on(async { test(SHARED.get_or_init(World::start).await).await });
    for log in logs::of(FOLDER.path()) {
        logs::assert_sound(&log);
    }
}

/// The same with core of this minor version or a later one, where earlier ones lack what the test is about.
pub fn play_since(minor: u64, test: impl AsyncFnOnce(&'static World)) {
    let core = repository::core_version(&programs());
    let own: u64 = core.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap();
    if own < minor {
        eprintln!("left out: Cluster API {core} is older than 1.{minor}");
        return;
    }
    play(test);
}

/// A failed test shows the output of our programs, and keeps all logs.
struct ShownIfFailed;

impl Drop for ShownIfFailed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            FOLDER.keep();
            let ours = ["extension", "provider", "stand-in", "natives"];
            let is_ours =
                |log: &&PathBuf| ours.iter().any(|start| log.file_name().unwrap().to_string_lossy().starts_with(start));
            logs::of(FOLDER.path()).iter().filter(is_ours).for_each(|log| logs::print_tail(log));
        }
    }
}

/// The world of one test. Its programs and its management cluster end when this is dropped, also if the test fails. Its logs are
/// read later.
pub struct WorldBeside(pub &'static World);

impl Drop for WorldBeside {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The content, also after a failure of the thread that had it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct World {
    pub management: ControlPlane,
    pub workload: Arc<ControlPlane>,
    pub cloud: Arc<Cloud>,
    /// Of the management cluster.
    pub reader: Reader,
    /// Of the cluster whose machines they are.
    pub nodes: Reader,
    folder: PathBuf,
    programs: PathBuf,
    /// More feature gates of core.
    gates: &'static str,
    /// Our provider, and the address of its readiness.
    provider: Mutex<Option<(Program, String)>>,
    running: Mutex<Vec<Program>>,
    natives: Mutex<Vec<Manager>>,
}

impl World {
    async fn start() -> Self {
        let world = Self::empty(folder(), &[]).await;
        world.install().await;
        world
    }

    /// A management cluster in which nothing is installed, a workload cluster, and a cloud with these flags.
    pub async fn empty(folder: PathBuf, flags: &[&str]) -> Self {
        let workload = Arc::new(audited("workload", &folder, &[]).await);
        let cloud = Arc::new(Cloud::start(workload.kubeconfig(), &folder.join("cloud.log"), flags).await);
        Self::bare(workload, cloud, folder).await
    }

    /// Another management cluster, for machines of the same cloud and the same workload cluster.
    pub async fn another(&self) -> &'static Self {
        static ANOTHER: OnceCell<World> = OnceCell::const_new();
        ANOTHER.get_or_init(|| self.beside()).await
    }

    /// A world whose provider is upgraded, which affects all its clusters.
    pub async fn to_upgrade(&self) -> &'static Self {
        static TO_UPGRADE: OnceCell<World> = OnceCell::const_new();
        TO_UPGRADE.get_or_init(|| self.beside()).await
    }

    /// Another management cluster whose core has more feature gates.
    pub async fn with_gates(&self, gates: &'static str) -> Self {
        let bare = Self::bare(Arc::clone(&self.workload), Arc::clone(&self.cloud), folder()).await;
        let world = Self { gates, ..bare };
        world.install().await;
        world
    }

    async fn beside(&self) -> Self {
        let world = Self::bare(Arc::clone(&self.workload), Arc::clone(&self.cloud), folder()).await;
        world.install().await;
        world
    }

    /// An API server for the Nodes of one cluster.
    pub async fn further_workload(&self, name: &str) -> ControlPlane {
        audited(&format!("workload-{name}"), &self.folder, &[]).await
    }

    /// A management cluster in which nothing is installed, for machines of the same cloud and the same workload cluster.
    pub async fn bare_beside(&self) -> WorldBeside {
        let world = Self::bare(Arc::clone(&self.workload), Arc::clone(&self.cloud), folder()).await;
        WorldBeside(Box::leak(Box::new(world)))
    }

    /// Ends the programs, and then the management cluster.
    fn end(&self) {
        locked(&self.natives).clear();
        drop(locked(&self.provider).take());
        locked(&self.running).clear();
        self.management.take_down();
    }

    async fn bare(workload: Arc<ControlPlane>, cloud: Arc<Cloud>, folder: PathBuf) -> Self {
        let management = audited("management", &folder, &["--with", "kube-controller-manager"]).await;
        let programs = programs();
        repository::lay_out(&folder, &programs);
        Self {
            reader: Reader::new(management.client()),
            nodes: Reader::new(workload.client()),
            management,
            workload,
            cloud,
            folder,
            programs,
            gates: "",
            provider: Mutex::default(),
            running: Mutex::default(),
            natives: Mutex::default(),
        }
    }

    /// Installs and starts core, the kubeadm providers and ours.
    pub async fn install(&self) {
        self.install_core(&["--infrastructure", &format!("mcm:{VERSION}")]).await;
        self.start_provider().await;
    }

    /// Installs and starts core and the kubeadm providers.
    pub async fn install_core(&self, others: &[&str]) {
        self.install_certificate_kinds().await;
        let version = repository::core_version(&self.programs);
        let (core, kubeadm) = (format!("cluster-api:{version}"), format!("kubeadm:{version}"));
        let init = ["init", "--core", &core, "--bootstrap", &kubeadm, "--control-plane", &kubeadm];
        self.must(&[&init[..], others].concat());
        self.start_managers().await;
    }

    /// The stand-in for core, of the release under test, with the rights of its ServiceAccount and no more.
    pub async fn start_stand_in(&self) {
        let components = self.folder.join(format!("repository/infrastructure-mcm/{VERSION}/stand-in-components.yaml"));
        self.kubectl(&["apply", "--server-side", "-f", &components.display().to_string()]);
        self.established("machinedeployments.cluster.x-k8s.io").await;
        self.established("mcmmigrations.infrastructure.cluster.x-k8s.io").await;
        let (client, admin) = (self.management.client(), self.management.kubeconfig().to_owned());
        let account = "mcm-stand-in";
        let kubeconfig = identity::kubeconfig(&client, &admin, account, account, &self.folder).await;
        let health = free_port();
        let arguments = [
            "capi-manager".to_owned(),
            "--stand-in".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect".to_owned(),
            "--vm-check-period=10s".to_owned(),
            format!("--health-addr=127.0.0.1:{health}"),
            format!("--diagnostics-address=127.0.0.1:{}", free_port()),
            "--v=3".to_owned(),
        ];
        let environment = vec![("POD_NAMESPACE".to_owned(), account.to_owned())];
        let program = Program::start_in(environment, mcm(), arguments.to_vec(), self.folder.join("stand-in.log"));
        self.running(program, "the stand-in to be ready", health).await;
    }

    /// Starts the native controllers of a namespace, to run as long as this world.
    pub async fn start_natives(&self, namespace: &str) {
        let natives = self.natives(namespace, &[]).await;
        self.natives.lock().unwrap().push(natives);
    }

    /// The native controllers of a namespace, with the cluster of the Nodes as their target.
    pub async fn natives(&self, namespace: &str, flags: &[&str]) -> Manager {
        let port = free_port();
        let mut arguments = vec![
            "run".to_owned(),
            format!("--control-kubeconfig={}", self.management.kubeconfig().display()),
            format!("--target-kubeconfig={}", self.workload.kubeconfig().display()),
            format!("--namespace={namespace}"),
            format!("--simulated-cloud={}", self.cloud.url),
            format!("--port={port}"),
            "--leader-elect=false".to_owned(),
            "--v=3".to_owned(),
        ];
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let log = self.folder.join(format!("natives-{namespace}.log"));
        let program = Program::start(mcm(), arguments, log);
        Manager { program, url: format!("http://127.0.0.1:{port}") }.ready().await
    }

    /// clusterctl takes cert-manager as installed if its kinds exist. The control plane is a kind without a controller.
    pub async fn install_certificate_kinds(&self) {
        let none: [(&str, &str); 0] = [];
        self.kind("cert-manager.io", "v1", "Issuer", &none);
        self.kind("cert-manager.io", "v1", "Certificate", &none);
        let labels = [("cluster.x-k8s.io/v1beta2", "v1beta2"), ("clusterctl.cluster.x-k8s.io", "")];
        self.kind("controlplane.cluster.x-k8s.io", "v1beta2", "FixedControlPlane", &labels);
        self.established("issuers.cert-manager.io").await;
        self.established("fixedcontrolplanes.controlplane.cluster.x-k8s.io").await;
    }

    /// Waits until the API server serves a kind. `kubectl wait` fails on a CRD that has no conditions yet.
    pub async fn established(&self, crd: &str) {
        let api: Api<CustomResourceDefinition> = Api::all(self.management.client());
        wait::until(&format!("{crd} to be established"), async || {
            let definition = api.get(crd).await.unwrap();
            is_crd_established().matches_object(Some(&definition)).then_some(())
        })
        .await;
    }

    fn kind(&self, group: &str, version: &str, kind: &str, labels: &[(&str, &str)]) {
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({
            "name": version, "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
        });
        self.apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"), "labels": labels},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": [version],
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            },
        }));
    }

    /// Core and the kubeadm managers as processes, to which their webhooks are pointed.
    pub async fn start_managers(&self) {
        let managers = [
            ("capi-core", "capi-webhook-service", "MachinePool=true,ClusterTopology=true"),
            (
                "capi-kubeadm-bootstrap",
                "capi-kubeadm-bootstrap-webhook-service",
                "MachinePool=true,KubeadmBootstrapFormatIgnition=true",
            ),
            ("capi-kubeadm-control-plane", "capi-kubeadm-control-plane-webhook-service", "ClusterTopology=true"),
        ];
        let certificates = self.certificates();
        std::fs::create_dir_all(&certificates).unwrap();
        for (from, to) in [("server.crt", CERTIFICATE), ("server.key", KEY)] {
            std::fs::copy(self.management.folder().join("pki").join(from), certificates.join(to)).unwrap();
        }
        let ports: Vec<(&str, u16)> = managers.iter().map(|(_, service, _)| (*service, free_port())).collect();
        self.point_webhooks(&ports);
        for ((name, _, gates), (_, port)) in managers.into_iter().zip(ports) {
            let health = free_port();
            let arguments = [
                format!("--kubeconfig={}", self.management.kubeconfig().display()),
                "--leader-elect=false".to_owned(),
                format!("--webhook-port={port}"),
                format!("--webhook-cert-dir={}", certificates.display()),
                format!("--health-addr=127.0.0.1:{health}"),
                format!("--diagnostics-address=127.0.0.1:{}", free_port()),
                "--insecure-diagnostics".to_owned(),
                format!("--feature-gates={gates}{}", if name == "capi-core" { self.gates } else { "" }),
            ];
            let environment = ["POD_NAMESPACE", "POD_NAME", "POD_UID"].map(|key| (key.to_owned(), name.to_owned()));
            let log = self.folder.join(format!("{name}.log"));
            let program = Program::start_in(environment.to_vec(), self.programs.join(name), arguments.to_vec(), log);
            self.running(program, &format!("{name} to be ready"), health).await;
        }
    }

    /// The folder with a certificate for 127.0.0.1, of the authority of the management cluster.
    pub fn certificates(&self) -> PathBuf {
        self.folder.join("certificates")
    }

    /// That authority.
    pub fn authority(&self) -> Value {
        json!(k8s_openapi::ByteString(std::fs::read(self.management.folder().join("pki/ca.crt")).unwrap()))
    }

    /// Keeps a program until the end of this world.
    pub fn keep(&self, program: Program) {
        self.running.lock().unwrap().push(program);
    }

    /// `service` becomes `url` and `caBundle`, in webhooks and in conversions.
    fn point_webhooks(&self, ports: &[(&str, u16)]) {
        let authority = self.authority();
        let turn = |client: &mut Value| {
            let service = client["service"].clone();
            let Some((_, port)) = ports.iter().find(|(name, _)| service["name"] == *name) else { return false };
            let path = service["path"].as_str().unwrap_or_default();
            client.as_object_mut().unwrap().remove("service");
            client["url"] = json!(format!("https://127.0.0.1:{port}{path}"));
            client["caBundle"] = authority.clone();
            true
        };
        let kinds = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations", "customresourcedefinitions"];
        for kind in kinds {
            for mut object in self.reader.all("", kind, "") {
                let mut is_changed = false;
                let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
                for webhook in webhooks.into_iter().flatten() {
                    is_changed |= turn(&mut webhook["clientConfig"]);
                }
                if let Some(client) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
                    is_changed |= turn(client);
                }
                if is_changed {
                    self.kubectl_with(&["replace", "-f", "-"], &object.to_string());
                }
            }
        }
    }

    /// Our provider, with the rights of its ServiceAccount and no more.
    pub async fn start_provider(&self) {
        let client = self.management.client();
        let admin = self.management.kubeconfig().to_owned();
        let kubeconfig = identity::kubeconfig(&client, &admin, NAMESPACE, "capmcm-manager", &self.folder).await;
        let health = free_port();
        let arguments = [
            "capi-manager".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--simulated-cloud={}", self.cloud.url),
            ENDPOINTS.to_owned(),
            "--leader-elect".to_owned(),
            "--vm-check-period=1m".to_owned(),
            format!("--health-addr=127.0.0.1:{health}"),
            format!("--diagnostics-address=127.0.0.1:{}", free_port()),
            "--v=3".to_owned(),
        ];
        let environment = vec![("POD_NAMESPACE".to_owned(), NAMESPACE.to_owned())];
        let program = Program::start_in(environment, mcm(), arguments.to_vec(), self.folder.join("provider.log"));
        *self.provider.lock().unwrap() = Some((program, ready_url(health)));
        self.provider_is_ready().await;
    }

    async fn provider_is_ready(&self) {
        wait::until("the provider to be ready", async || {
            let url = {
                let mut provider = self.provider.lock().unwrap();
                let (program, url) = provider.as_mut().unwrap();
                program.assert_runs();
                url.clone()
            };
            is_ready(&url).await
        })
        .await;
    }

    /// Ends our provider in good order.
    pub async fn stop_provider(&self) {
        let provider = self.provider.lock().unwrap().take();
        let (mut program, _) = provider.unwrap();
        program.terminate();
        assert!(program.ended().await.success());
    }

    /// SIGKILL of our provider, which then restarts and waits for the lease of its predecessor.
    pub fn kill_provider(&self) {
        self.provider.lock().unwrap().as_mut().unwrap().0.restart_after_kill();
    }

    async fn running(&self, mut program: Program, what: &str, health: u16) {
        let url = ready_url(health);
        wait::until(what, async || {
            program.assert_runs();
            is_ready(&url).await
        })
        .await;
        self.running.lock().unwrap().push(program);
    }

    /// Runs clusterctl.
    pub fn clusterctl(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// The same, to be started by the test.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("clusterctl"));
        command.arg("--config").arg(repository::config(&self.folder)).args(words);
        command.env("KUBECONFIG", self.management.kubeconfig());
        command.env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true").env("GOPROXY", "off");
        command.env("XDG_CONFIG_HOME", &self.folder).process_group(guard::process_group());
        command
    }

    /// Runs clusterctl, which must succeed; returns its output.
    pub fn must(&self, words: &[&str]) -> String {
        let output = self.clusterctl(words);
        assert!(output.status.success(), "clusterctl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs kubectl in the management cluster, which must succeed.
    pub fn kubectl(&self, words: &[&str]) -> String {
        self.kubectl_with(words, "")
    }

    /// The same with something to read.
    pub fn kubectl_with(&self, words: &[&str], input: &str) -> String {
        self.try_kubectl(words, input).unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    /// Runs kubectl; returns its output, or its error.
    pub fn try_kubectl(&self, words: &[&str], input: &str) -> Result<String, String> {
        run_kubectl(&self.programs, self.management.kubeconfig(), words, input)
    }

    /// Applies an object.
    pub fn apply(&self, object: &Value) {
        self.kubectl_with(&["apply", "--server-side", "-f", "-"], &object.to_string());
    }

    /// One of the programs that hack/test-clusterctl gets.
    pub fn program(&self, name: &str) -> PathBuf {
        let path = self.programs.join(name);
        assert!(path.exists(), "{} is missing: run these tests with hack/test-clusterctl", path.display());
        path
    }

    /// Where logs and kubeconfigs are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The inventory entry of clusterctl for our provider.
    pub fn installed(&self) -> Value {
        let kind = "providers.clusterctl.cluster.x-k8s.io";
        self.reader.find(NAMESPACE, kind, "infrastructure-mcm").unwrap()
    }
}

/// The folder of the programs that `hack/test-clusterctl` gets.
fn programs() -> PathBuf {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.join("clusterctl").exists());
    folder.unwrap_or_else(|| panic!("run these tests with hack/test-clusterctl"))
}

fn folder() -> PathBuf {
    tempfile::tempdir_in(FOLDER.path()).unwrap().keep()
}

/// A control plane that records its writes in `NAME-writes.log`.
async fn audited(name: &str, folder: &Path, flags: &[&str]) -> ControlPlane {
    let policy = format!("--arg=kube-apiserver=--audit-policy-file={AUDIT}");
    let log = format!("--arg=kube-apiserver=--audit-log-path={}", folder.join(format!("{name}-writes.log")).display());
    ControlPlane::apart_with(&[flags, &[&policy, &log]].concat()).await.unwrap()
}

fn ready_url(health: u16) -> String {
    format!("http://127.0.0.1:{health}/readyz")
}

async fn is_ready(url: &str) -> Option<()> {
    reqwest::get(url).await.ok()?.status().is_success().then_some(())
}

fn run_kubectl(programs: &Path, kubeconfig: &Path, words: &[&str], input: &str) -> Result<String, String> {
    use std::io::Write;
    let mut command = Command::new(programs.join("kubectl"));
    command.arg("--kubeconfig").arg(kubeconfig).args(words).process_group(guard::process_group());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}
