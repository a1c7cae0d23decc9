//! A real API server with our definitions in it, one for all tests of a process.
//!
//! It is started by `hack/control-plane`, or is the one that `MCM_TEST_KUBECONFIG` leads to. Tests keep out of each other's
//! way by their namespaces.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use tokio::sync::OnceCell;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/control-plane");

/// A real API server.
pub struct ControlPlane {
    kubeconfig: PathBuf,
    config: Config,
    /// The control plane lives as long as this process holds the pipe to its guard.
    _guard: Option<Child>,
}

impl ControlPlane {
    /// The control plane of this process, started by the first who asks. If it does not start, nobody tries again.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Option<ControlPlane>> = OnceCell::const_new();
        let started = SHARED.get_or_init(async || tokio::spawn(Self::start()).await.ok()).await;
        started.as_ref().unwrap_or_else(|| panic!("no control plane to test with; the first test that asked says why"))
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
        let namespace = Namespace {
            metadata: ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let created = Api::all(self.client()).create(&PostParams::default(), &namespace).await.unwrap();
        created.name_any()
    }

    /// One of its own, without definitions, for a test that changes what all tests share.
    pub async fn apart() -> Self {
        let (kubeconfig, guard) = tokio::task::spawn_blocking(up).await.unwrap();
        Self::reach(kubeconfig, Some(guard)).await
    }

    /// The folder with kubectl and the other programs.
    pub fn programs() -> PathBuf {
        let answer = Command::new(SCRIPT).arg("get").stderr(Stdio::null()).output().unwrap();
        PathBuf::from(String::from_utf8(answer.stdout).unwrap().trim())
    }

    async fn start() -> Self {
        let control_plane = match env::var_os("MCM_TEST_KUBECONFIG") {
            Some(given) => Self::reach(PathBuf::from(given), None).await,
            None => Self::apart().await,
        };
        install(&control_plane.client(), &mcm::api::crd::crds()).await;
        control_plane
    }

    async fn reach(kubeconfig: PathBuf, guard: Option<Child>) -> Self {
        let credentials = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(credentials, &KubeConfigOptions::default()).await.unwrap();
        Self { kubeconfig, config, _guard: guard }
    }
}

/// Creates the definitions or brings them up to date, and waits until they are served.
pub async fn install(client: &Client, crds: &[CustomResourceDefinition]) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        api.patch(&name, &PatchParams::apply("mcm-tests").force(), &Patch::Apply(crd))
            .await
            .unwrap_or_else(|error| panic!("install {name}: {error}"));
    }
    for crd in crds {
        await_condition(api.clone(), &crd.name_any(), is_crd_established()).await.unwrap();
    }
}

fn up() -> (PathBuf, Child) {
    let dir = tempfile::Builder::new().prefix("mcm-test-").tempdir().unwrap().keep();
    let guard = guard(&dir);
    let started = Command::new(SCRIPT).arg("up").arg(&dir).output().unwrap();
    let said = String::from_utf8_lossy(&started.stderr);
    assert!(started.status.success(), "hack/control-plane up: {said}");
    let kubeconfig = PathBuf::from(String::from_utf8(started.stdout).unwrap().trim());
    assert!(fs::exists(&kubeconfig).unwrap(), "hack/control-plane up names no kubeconfig: {said}");
    (kubeconfig, guard)
}

/// Takes the control plane down when this process ends, however it ends: then the pipe that the shell reads is closed.
/// In a process group of its own it outlives an interrupt from the keyboard.
fn guard(dir: &Path) -> Child {
    Command::new("sh")
        .args(["-c", r#"read -r _; "$0" down "$1"; rm -rf "$1""#, SCRIPT])
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}
