//! A namespace with its own cloud and its own managers.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use mcm::api::machine::{Machine, MachineClass, MachineDeployment, MachineSet};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    cloud::Cloud,
    control_plane::ControlPlane,
    door::Door,
    identity::{self, Identity, Rights},
    line::Line,
    logs, objects,
    program::{Program, free_port, mcm},
    scene::{Scene, Watched},
    secrets,
    wait::{self, PATIENCE},
};

/// Each test has three processes or more: with more tests at once, two slow cores do nothing but switch.
static SLOTS: Semaphore = Semaphore::const_new(MOST);
const MOST: usize = 3;
/// Metrics that a failed test prints.
const TELLING: [&str; 5] = [
    "no answer",
    "mcm_cache_age_seconds",
    "mcm_workqueue_adds_total",
    "mcm_workqueue_depth",
    "mcm_workqueue_unfinished_work_seconds",
];
const SERVER: &str = "/clusters/0/cluster/server";

/// One test's world.
pub struct World {
    pub namespace: String,
    /// Of the control cluster.
    pub client: Client,
    /// Of the cluster that the Nodes join.
    pub target: Client,
    pub cloud: Cloud,
    pub scene: Watched,
    admin: PathBuf,
    identity: Identity,
    folder: PathBuf,
    /// Managers may lack rights for a while, as a part of the test.
    pub may_be_refused: bool,
    /// Managers may panic, as a part of the test.
    pub may_panic: bool,
    /// Environment variables of managers.
    pub environment: Vec<(String, String)>,
    _slot: Option<SemaphorePermit<'static>>,
}

/// A running `mcm run`, or one half of it.
pub struct Manager {
    pub program: Program,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
}

impl World {
    /// A world on the shared control plane, without a manager yet.
    pub async fn new(name: &str) -> Self {
        Self::with_cloud(name, &[]).await
    }

    /// A world whose cloud has extra flags.
    pub async fn with_cloud(name: &str, flags: &[&str]) -> Self {
        let slot = SLOTS.acquire().await.unwrap();
        let control_plane = ControlPlane::shared().await;
        Self::on((control_plane, control_plane), Some(slot), name, flags, Rights::usual()).await
    }

    /// A world of a test that measures time: no other test that is busy runs beside it.
    pub async fn undisturbed(name: &str) -> Self {
        let slots = SLOTS.acquire_many(MOST.try_into().unwrap()).await.unwrap();
        let control_plane = ControlPlane::shared().await;
        Self::on((control_plane, control_plane), Some(slots), name, &[], Rights::usual()).await
    }

    /// A world of a test that mostly waits for time to pass. It uses no slot.
    pub async fn patient(name: &str) -> Self {
        let control_plane = ControlPlane::shared().await;
        Self::on((control_plane, control_plane), None, name, &[], Rights::usual()).await
    }

    /// A slot for a test whose worlds use none, although it is as busy as the others. It is taken before the first world.
    pub async fn slot() -> SemaphorePermit<'static> {
        SLOTS.acquire().await.unwrap()
    }

    /// A world on a separate control plane.
    pub async fn apart(control_plane: &ControlPlane, name: &str) -> Self {
        let slot = SLOTS.acquire().await.unwrap();
        Self::on((control_plane, control_plane), Some(slot), name, &[], Rights::usual()).await
    }

    /// A world whose Nodes are in another cluster than its Machines. It uses no slot.
    pub async fn between(control: &ControlPlane, target: &ControlPlane, name: &str, flags: &[&str]) -> Self {
        Self::on((control, target), None, name, flags, Rights::usual()).await
    }

    /// The same with chosen rights.
    pub async fn between_with(rights: Rights, control: &ControlPlane, target: &ControlPlane, name: &str) -> Self {
        Self::on((control, target), None, name, &[], rights).await
    }

    async fn on(
        (control, target): (&ControlPlane, &ControlPlane),
        slot: Option<SemaphorePermit<'static>>,
        name: &str,
        flags: &[&str],
        rights: Rights,
    ) -> Self {
        let (client, in_target) = (control.client(), target.client());
        let namespace = control.namespace(name).await;
        target.ensure_namespace(&namespace).await;
        let folder = tempfile::Builder::new().prefix(&format!("{namespace}-")).tempdir().unwrap().keep();
        let identity = identity::create((control, target), rights, &namespace, &folder).await;
        let cloud = Cloud::start(target.kubeconfig(), &folder.join("cloud.log"), flags).await;
        let scene = Watched::start(&client, &in_target, &namespace);
        let admin = control.kubeconfig().to_owned();
        Self {
            namespace,
            client,
            target: in_target,
            cloud,
            scene,
            admin,
            identity,
            folder,
            may_be_refused: false,
            may_panic: false,
            environment: Vec::new(),
            _slot: slot,
        }
    }

    /// Puts a line between the API server and the managers that start from now on.
    pub async fn tap(&self) -> Line {
        let line = Line::to(identity::server(&self.identity.control)).await;
        for kubeconfig in [&self.identity.control, &self.identity.target] {
            identity::change(kubeconfig, SERVER, format!("https://{}", line.address).into());
        }
        line
    }

    /// Puts a door into the way to the target cluster, for the managers that start from now on.
    pub async fn door_to(&self, target: &ControlPlane) -> Door {
        let door = Door::to(target).await;
        identity::change(&self.identity.target, SERVER, door.url().into());
        door
    }

    /// Puts a door into the way to both clusters of this world, which are one, for the managers that start from now on.
    pub async fn door(&self) -> Door {
        let door = Door::to(ControlPlane::shared().await).await;
        for kubeconfig in [&self.identity.control, &self.identity.target] {
            identity::change(kubeconfig, SERVER, door.url().into());
        }
        door
    }

    /// The credentials of the managers.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Starts `mcm run` without leader election and waits until it is ready.
    pub async fn run(&self, flags: &[&str]) -> Manager {
        self.launch_run(&[&["--leader-elect=false"], flags].concat()).ready().await
    }

    /// Starts `mcm run` with its own defaults and without waiting.
    pub fn launch_run(&self, flags: &[&str]) -> Manager {
        self.launch("run", &[&[self.cloud_flag().as_str()], flags].concat())
    }

    /// Starts a subcommand of the binary.
    pub fn launch(&self, command: &str, flags: &[&str]) -> Manager {
        let name = format!("{command}-{}.log", free_port());
        self.launch_as(&mcm(), &[command], &name, flags)
    }

    /// Starts the binary under another name.
    pub fn launch_as(&self, program: &Path, words: &[&str], log: &str, flags: &[&str]) -> Manager {
        self.launch_in((&self.namespace, &self.identity), program, words, log, flags)
    }

    /// The same for another namespace, with its credentials.
    pub fn launch_in(
        &self,
        (namespace, identity): (&str, &Identity),
        program: &Path,
        words: &[&str],
        log: &str,
        flags: &[&str],
    ) -> Manager {
        let clusters = [
            format!("--control-kubeconfig={}", identity.control.display()),
            format!("--target-kubeconfig={}", identity.target.display()),
            format!("--namespace={namespace}"),
        ];
        let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
        self.launch_anything(program, words, log, &[&clusters[..], flags].concat())
    }

    /// Starts a subcommand without the clusters of this world.
    pub fn launch_bare(&self, command: &str, flags: &[&str]) -> Manager {
        let name = format!("{command}-{}.log", free_port());
        self.launch_anything(&mcm(), &[command], &name, flags)
    }

    fn launch_anything(&self, program: &Path, words: &[&str], log: &str, flags: &[&str]) -> Manager {
        let port = free_port();
        let mut arguments: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        arguments.extend([
            format!("--port={port}"),
            "--address=127.0.0.1".to_owned(),
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
            "--v=3".to_owned(),
        ]);
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let program = Program::start_in(self.environment.clone(), program, arguments, self.folder.join(log));
        Manager { program, url: format!("http://127.0.0.1:{port}") }
    }

    /// The flag that leads to the cloud.
    pub fn cloud_flag(&self) -> String {
        format!("--simulated-cloud={}", self.cloud.url)
    }

    /// A kubeconfig with all rights.
    pub fn admin(&self) -> &Path {
        &self.admin
    }

    /// Where logs and kubeconfigs are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits until the scene is as it should be.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Scene) -> bool) {
        self.scene.find(what, PATIENCE, |scene| is_so(scene).then_some(())).await;
    }

    /// Waits until the scene has the answer.
    pub async fn find<T>(&self, what: &str, answer: impl Fn(&Scene) -> Option<T>) -> T {
        self.scene.find(what, PATIENCE, answer).await
    }

    /// Applies an object in this namespace.
    pub async fn apply(&self, mut object: Value) -> DynamicObject {
        object["metadata"]["namespace"] = self.namespace.as_str().into();
        if let Some(reference) = object.pointer_mut("/secretRef").filter(|reference| reference["namespace"].is_null()) {
            reference["namespace"] = self.namespace.as_str().into();
        }
        objects::apply(&self.client, &object).await
    }

    /// Classes `small` and `large`, their Secret, and the deployment `pool`, changed by a merge patch.
    pub async fn pool(&self, replicas: u32, change: Value) {
        self.classes().await;
        let mut deployment = objects::deployment("pool", replicas);
        objects::merge(&mut deployment, change);
        self.apply(deployment).await;
    }

    /// Classes `small` and `large`, and their Secret.
    pub async fn classes(&self) {
        self.apply(objects::secret("pool")).await;
        for name in ["small", "large"] {
            self.apply(objects::class(name)).await;
        }
    }

    /// Merge-patches the deployment `pool`.
    pub async fn change(&self, patch: Value) {
        self.deployments().patch("pool", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Sets the number of machines of the deployment `pool`.
    pub async fn scale(&self, replicas: u32) {
        self.change(json!({"spec": {"replicas": replicas}})).await;
    }

    /// Gives the machines of the deployment `pool` another class.
    pub async fn roll(&self, class: &str) {
        self.change(json!({"spec": {"template": {"spec": {"class": {"name": class}}}}})).await;
    }

    /// Waits until the deployment `pool` has the desired machines and reports it.
    pub async fn settled(&self, count: usize, class: &str) {
        let all = i32::try_from(count).unwrap();
        let what = format!("{count} machines of class {class} that serve");
        self.until(&what, |scene| scene.settled(count, class) && scene.complete("pool", all)).await;
    }

    /// Waits until the sets have so many machines, all of a class, and all serve; other machines without a set are
    /// ignored.
    pub async fn pool_serves(&self, count: usize, class: &str) {
        let what = format!("{count} machines of class {class} that serve in sets");
        self.until(&what, |scene| {
            let owned = scene.machines.values().filter(|machine| machine.metadata.owner_references.is_some());
            let serving =
                owned.clone().filter(|machine| machine.is_available() && machine.spec.class.name == class).count();
            owned.count() == count && serving == count
        })
        .await;
    }

    /// Deletes the deployment `pool` and waits until nothing of it is left.
    pub async fn remove_pool(&self) {
        self.deployments().delete("pool", &DeleteParams::background()).await.unwrap();
        self.until("everything of the pool to be gone", |scene| {
            scene.machines.is_empty() && scene.sets.is_empty() && scene.deployments.is_empty()
        })
        .await;
    }

    /// Each Machine has exactly one VM, whose ID it names, and there is no other VM.
    pub async fn assert_vms_match(&self) {
        let vms = self.cloud.provider_ids().await;
        let scene = self.scene.now();
        let machines = scene.machines.iter();
        let named: std::collections::BTreeMap<_, _> =
            machines.map(|(name, machine)| (name.clone(), vec![machine.spec.provider_id.clone()])).collect();
        assert_eq!(vms, named, "VMs by machine on the left, what the machines name on the right");
    }

    pub fn machines(&self) -> Api<Machine> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn sets(&self) -> Api<MachineSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn deployments(&self) -> Api<MachineDeployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn class_api(&self) -> Api<MachineClass> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

impl Manager {
    /// Waits until its caches are filled.
    pub async fn ready(mut self) -> Self {
        self.until_ready().await;
        self
    }

    /// Waits until its caches are filled.
    pub async fn until_ready(&mut self) {
        let url = format!("{}/readyz", self.url);
        wait::until("the manager to be ready", async || {
            self.program.assert_runs();
            reqwest::get(&url).await.ok()?.status().is_success().then_some(())
        })
        .await;
    }

    /// The body and the status of an endpoint.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let answer = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

impl Drop for Manager {
    /// A failed test shows the queues and the age of the caches. Otherwise no metric has a secret.
    fn drop(&mut self) {
        let address = self.url.trim_start_matches("http://");
        let metrics = said(address, "/metrics").unwrap_or_else(|error| format!("no answer: {error}"));
        if std::thread::panicking() {
            let tells = |line: &&str| TELLING.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0");
            let lines: Vec<&str> = metrics.lines().filter(tells).collect();
            println!("--- metrics of {}\n{}", self.url, lines.join("\n"));
        } else {
            assert!(!secrets::are_in(&metrics), "a planted secret is in the metrics of {}", self.url);
        }
    }
}

/// The response of an endpoint, without a runtime: that of a failed test may have ended.
fn said(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

impl Drop for World {
    /// A failed test shows what there was and what was said. In any other case no program was refused anything, none
    /// panicked, and none logged a secret.
    fn drop(&mut self) {
        let logs = logs::of(&self.folder);
        if std::thread::panicking() {
            println!("--- namespace {}\n{}", self.namespace, self.scene.describe());
            logs.iter().for_each(|log| logs::print_tail(log));
            return;
        }
        let broken = self.scene.broken();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
        for log in logs {
            let text = if self.may_panic { logs::assert_silent(&log) } else { logs::assert_sound(&log) };
            let refused = text.lines().find(|line| line.contains("is forbidden"));
            assert!(self.may_be_refused || refused.is_none(), "in {}: {refused:?}", log.display());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
