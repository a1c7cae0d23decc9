//! A real API server with our CRDs, one for all tests of a process.
//!
//! It is started by `hack/control-plane`, or is the server of `MCM_TEST_KUBECONFIG`. Tests are separated by their
//! namespaces.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, ensure};
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::json;
use tokio::sync::OnceCell;

use super::{
    guard::Guard,
    objects,
    parts::{Part, Paused},
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/control-plane");

/// A real API server.
pub struct ControlPlane {
    kubeconfig: PathBuf,
    config: Config,
    /// The control plane lives as long as this process holds the pipe to its guard.
    guard: Mutex<Option<Guard>>,
}

impl ControlPlane {
    /// The control plane of this process, started on first use.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
        let started = SHARED.get_or_init(async || Self::start().await.map_err(|error| format!("{error:#}"))).await;
        started.as_ref().unwrap_or_else(|error| panic!("no control plane to test with: {error}"))
    }

    /// A new client with all rights. It belongs to the runtime of the calling test, hence not to be kept between tests.
    pub fn client(&self) -> Client {
        Client::try_from(self.config.clone()).unwrap()
    }

    /// Credentials with all rights, for programs under test.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A new namespace; its name starts with the prefix.
    pub async fn namespace(&self, prefix: &str) -> String {
        self.namespace_with(prefix, &[]).await
    }

    /// A new namespace with labels from its first moment: policies go by a cache, which notices a later label late.
    pub async fn namespace_with(&self, prefix: &str, labels: &[(&str, &str)]) -> String {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let namespace = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}-")),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let created = Api::all(self.client()).create(&PostParams::default(), &namespace).await.unwrap();
        created.name_any()
    }

    /// The namespace, if it is not there yet.
    pub async fn ensure_namespace(&self, name: &str) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        objects::apply(&self.client(), &namespace).await;
    }

    /// A second API server without CRDs, the target cluster of tests that need two. Shared, like the first one.
    pub async fn second() -> &'static Self {
        static SECOND: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
        let started = SECOND.get_or_init(async || Self::apart().await.map_err(|error| format!("{error:#}"))).await;
        started.as_ref().unwrap_or_else(|error| panic!("no second API server to test with: {error}"))
    }

    /// A separate one, without CRDs, for a test that changes shared state.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn apart() -> anyhow::Result<Self> {
        Self::apart_with(&[]).await
    }

    /// The same with further flags of `hack/control-plane up`.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn apart_with(flags: &[&str]) -> anyhow::Result<Self> {
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let (kubeconfig, guard) = tokio::task::spawn_blocking(move || up(&flags)).await??;
        Self::reach(kubeconfig, Some(guard)).await
    }

    /// Takes it down, where it is never dropped. Only for a control plane of one test, at its end.
    pub fn take_down(&self) {
        drop(self.guard.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Installs our CRDs.
    ///
    /// # Errors
    /// When the API server does not take one.
    pub async fn install(self) -> anyhow::Result<Self> {
        install(&self.client(), &mcm::api::crd::crds()).await?;
        Ok(self)
    }

    /// Installs the CRDs of the Go programs, from the module that `hack/bench/reference` pins.
    ///
    /// # Errors
    /// When Go or the module is not there, or the API server does not take one.
    pub async fn install_reference(self) -> anyhow::Result<Self> {
        install(&self.client(), &reference_crds()?).await?;
        Ok(self)
    }

    /// Where it listens and how to trust it, without credentials.
    pub fn anonymous(&self) -> Config {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo::default();
        config
    }

    /// Stops the API server with SIGSTOP, until the returned guard is dropped. Not for one that tests share.
    pub fn pause(&self) -> Paused {
        self.part("kube-apiserver").pause()
    }

    /// One of its programs, such as `etcd`. Only for a control plane that the tests started.
    pub fn part(&self, name: &'static str) -> Part {
        Part::of(self.folder(), name, self.config.clone())
    }

    /// A client certificate for a user, in a folder. Only for a control plane that the tests started.
    pub fn certificate(&self, user: &str, folder: &Path) -> Certificate {
        let pki = self.folder().join("pki");
        let file = |extension: &str| folder.join(format!("{user}.{extension}"));
        let [key, request, extensions, certificate] = ["key", "csr", "cnf", "crt"].map(file);
        std::fs::write(&extensions, "extendedKeyUsage = clientAuth\n").unwrap();
        let subject = format!("/CN={user}");
        openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], &[("-out", &key)]);
        let of_server = pki.join("openssl.cnf");
        openssl(&["req", "-new", "-subj", &subject], &[("-config", &of_server), ("-key", &key), ("-out", &request)]);
        let [ca, ca_key] = ["ca.crt", "ca.key"].map(|name| pki.join(name));
        openssl(
            &["x509", "-req", "-days", "1"],
            &[("-in", &request), ("-CA", &ca), ("-CAkey", &ca_key), ("-extfile", &extensions), ("-out", &certificate)],
        );
        Certificate { certificate, key }
    }

    /// The folder with its credentials and logs.
    pub fn folder(&self) -> &Path {
        self.kubeconfig.parent().unwrap()
    }

    /// The folder with kubectl and the other programs.
    ///
    /// # Errors
    /// When there are none and none can be had.
    pub fn programs() -> anyhow::Result<PathBuf> {
        let found = Command::new(SCRIPT).arg("get").output()?;
        ensure!(found.status.success(), "hack/control-plane get failed: {}", String::from_utf8_lossy(&found.stderr));
        Ok(PathBuf::from(String::from_utf8(found.stdout)?.trim()))
    }

    async fn start() -> anyhow::Result<Self> {
        let control_plane = match env::var_os("MCM_TEST_KUBECONFIG") {
            Some(given) => Self::reach(PathBuf::from(given), None).await?,
            None => Self::apart().await?,
        };
        install(&Client::try_from(control_plane.config.clone())?, &mcm::api::crd::crds()).await?;
        Ok(control_plane)
    }

    async fn reach(kubeconfig: PathBuf, guard: Option<Guard>) -> anyhow::Result<Self> {
        let credentials = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(credentials, &KubeConfigOptions::default()).await?;
        Ok(Self { kubeconfig, config, guard: Mutex::new(guard) })
    }
}

/// The CRDs of the Go programs.
fn reference_crds() -> anyhow::Result<Vec<CustomResourceDefinition>> {
    const MODULE: &str = "github.com/gardener/machine-controller-manager";
    let found = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/hack/bench/reference"))
        .output()
        .context("run go")?;
    ensure!(found.status.success(), "download {MODULE}: {}", String::from_utf8_lossy(&found.stderr));
    let module: serde_json::Value = serde_json::from_slice(&found.stdout)?;
    let folder = Path::new(module["Dir"].as_str().context("a folder of the module")?).join("kubernetes/crds");
    let files = std::fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?;
    let read = |file: &std::fs::DirEntry| -> anyhow::Result<CustomResourceDefinition> {
        Ok(serde_yaml_ng::from_str(&std::fs::read_to_string(file.path())?)?)
    };
    files.iter().map(read).collect()
}

/// Files of a client certificate.
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

fn openssl(words: &[&str], files: &[(&str, &Path)]) {
    let mut command = Command::new("openssl");
    command.args(words);
    for (flag, file) in files {
        command.arg(flag).arg(file);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Creates or updates the CRDs, and waits until they are served.
///
/// # Errors
/// When the API server does not take one.
pub async fn install(client: &Client, crds: &[CustomResourceDefinition]) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        let apply = PatchParams::apply("mcm-tests").force();
        api.patch(&name, &apply, &Patch::Apply(crd)).await.with_context(|| format!("install {name}"))?;
    }
    for crd in crds {
        await_condition(api.clone(), &crd.name_any(), is_crd_established()).await?;
    }
    Ok(())
}

fn up(flags: &[String]) -> anyhow::Result<(PathBuf, Guard)> {
    let dir = tempfile::Builder::new().prefix("mcm-test-").tempdir()?.keep();
    // The control plane is taken down when this process ends.
    let guard = Guard::start(r#"read -r _; "$0" down "$1"; rm -rf "$1""#, &[Path::new(SCRIPT), &dir]);
    let started = Command::new(SCRIPT).arg("up").arg(&dir).args(flags).output()?;
    ensure!(started.status.success(), "hack/control-plane up failed: {}", String::from_utf8_lossy(&started.stderr));
    let kubeconfig = String::from_utf8(started.stdout)?;
    Ok((PathBuf::from(kubeconfig.trim()), guard))
}
