//! 9.7: `mcm adopt`, there and back. The cloud must not notice, wherever the command dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    moves::{ids, journal_of, journal_so_far, nodes},
    scene::{Scene, name_of},
    support::{guard, identity, program::MCM, secrets, world::Manager},
    world::{ENDPOINTS, World, play},
};

const MACHINES: usize = 20;
const ROLE: &str = include_str!("../../config/cluster-api/adopt.yaml");

/// Kinds of Cluster API without objects while the machines are native.
const OF_CLUSTER_API: [&str; 4] =
    ["machinedeployments.cluster.x-k8s.io", "machinesets.cluster.x-k8s.io", "machines.cluster.x-k8s.io", "mcmmachines"];
/// Native kinds without objects while core has the machines.
const NATIVE: [&str; 2] = ["machinedeployments.machine.sapcloud.io", "machinesets.machine.sapcloud.io"];

/// A Cluster with machines, and the native controllers in the same namespace. They search for orphans all the time.
pub struct Adoption {
    pub scene: Scene,
    natives: Manager,
    /// Of a user with the rights that the documentation names, and no more.
    user: PathBuf,
    _folder: TempDir,
}

impl Adoption {
    async fn new(world: &'static World, name: &str, machines: usize) -> Self {
        let scene = Scene::with_workers(world, name, machines).await;
        scene.until("all Machines to run", async || scene.has_running(machines)).await;
        Self::beside(scene).await
    }

    /// The native controllers in the namespace of a cluster.
    pub async fn beside(scene: Scene) -> Self {
        let orphans = ["--machine-safety-orphan-vms-dry-run", "--machine-safety-orphan-vms-period=2s"];
        let natives = scene.world.natives(&scene.namespace, &[&orphans[..], &[ENDPOINTS]].concat()).await;
        let folder = tempfile::tempdir().unwrap();
        let user = user(&scene, folder.path()).await;
        Self { scene, natives, user, _folder: folder }
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(MCM);
        command.arg("adopt").args(words).args(["--cluster", &self.scene.name, "--namespace", &self.scene.namespace]);
        command.arg(format!("--simulated-cloud={}", self.scene.world.cloud.url)).arg(ENDPOINTS);
        command.env("KUBECONFIG", &self.user).process_group(guard::process_group());
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        let output = self.command(words).output().unwrap();
        for text in [&output.stdout, &output.stderr] {
            assert!(!secrets::are_in(&String::from_utf8_lossy(text)), "mcm adopt {words:?} prints a planted secret");
        }
        output
    }

    pub fn must(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let (out, error) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(output.status.success(), "mcm adopt {words:?}: {out}{error}");
        out
    }

    /// Runs `mcm adopt apply` and kills it at the beginning of each new step, until it ends by itself.
    /// Where it was killed: at the beginning of each step at least, and at some write. A write may be faster than the kill.
    pub fn apply_with_kills(&self, ends: &[&str]) -> BTreeSet<String> {
        self.apply_with_kills_before(ends, |_| {})
    }

    /// The same before a reader of its output.
    pub fn apply_with_kills_before(&self, ends: &[&str], read: impl Fn(&str)) -> BTreeSet<String> {
        let mut killed = BTreeSet::new();
        loop {
            let mut command = self.command(&[&["apply", "--timeout=600s"], ends].concat());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut lines = lines_of(&mut child);
            let mut step = String::new();
            let novelty = lines.find_map(|line| {
                read(&line);
                let place = place_of(&line, &mut step)?;
                killed.insert(place.clone()).then_some(place)
            });
            if novelty.is_some() {
                child.kill().unwrap();
                child.wait().unwrap();
                continue;
            }
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let steps = steps_of(&killed);
            let is_begun = |step: usize| killed.iter().any(|place| place.starts_with(&format!("{step} of {steps}: ")));
            assert!(steps > 0 && (1..=steps).all(is_begun) && killed.len() > steps, "{killed:#?}");
            return killed;
        }
    }

    /// Runs `mcm adopt apply` and kills it when it begins a step.
    pub fn stop_at(&self, ends: &[&str], step: &str) {
        let mut command = self.command(&[&["apply", "--timeout=600s"], ends].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = lines_of(&mut child);
        assert!(lines.any(|line| line.contains(step)), "it never came to that step");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn names(&self, kinds: &[&str]) -> Vec<String> {
        let all = kinds.iter().flat_map(|kind| self.scene.all(kind));
        all.map(|object| format!("{} {}", object["kind"].as_str().unwrap(), name_of(&object))).collect()
    }

    /// State that must not change: VMs, Nodes since the same boot, and the objects that have the VMs.
    pub async fn essence(&self) -> Essence {
        let natives = self.scene.all("machines.machine.sapcloud.io");
        let uid = |one: &Value| one["metadata"]["uid"].as_str().unwrap().to_owned();
        let natives = natives.iter().map(|one| (name_of(one).to_owned(), uid(one))).collect();
        Essence { vms: self.scene.vms().await, nodes: nodes(&self.scene), boots: self.boots(), natives }
    }

    pub fn boots(&self) -> BTreeMap<String, String> {
        let boot = |node: &Value| node["status"]["nodeInfo"]["bootID"].as_str().unwrap().to_owned();
        self.scene.nodes().iter().map(|node| (name_of(node).to_owned(), boot(node))).collect()
    }

    /// Core can delete the Nodes.
    fn nodes_have_no_finalizer(&self) {
        for node in self.scene.nodes() {
            assert!(node["metadata"]["finalizers"].is_null(), "{node:#}");
        }
    }

    /// The dry run of the collector found nothing, ever.
    pub fn found_no_orphans(&self) {
        let events = self.scene.all("events");
        let orphans: Vec<&Value> = events.iter().filter(|event| event["reason"] == "OrphanFound").collect();
        assert!(orphans.is_empty(), "{orphans:#?}");
        assert!(!self.natives.program.log().contains("OrphanFound"));
    }
}

/// Output lines of a child. No line has a secret in it.
pub fn lines_of(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.inspect(|line| assert!(!secrets::are_in(line), "mcm adopt prints a planted secret"))
}

/// The kubeconfig of an account with the role of users of `mcm adopt`, in the namespace of a scene only.
async fn user(scene: &Scene, folder: &Path) -> PathBuf {
    let (world, namespace) = (scene.world, &scene.namespace);
    world.kubectl_with(&["apply", "--server-side", "-f", "-"], ROLE);
    let name = json!({"name": "adopter", "namespace": namespace});
    world.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name}));
    bind(scene, "mcm-adopt");
    let (client, admin) = (world.management.client(), world.management.kubeconfig().to_owned());
    identity::kubeconfig(&client, &admin, namespace, "adopter", folder).await
}

/// Gives that account a role in the namespace of a scene.
pub fn bind(scene: &Scene, role: &str) {
    let namespace = &scene.namespace;
    scene.world.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "adopter", "namespace": namespace}],
    }));
}

#[derive(Debug, PartialEq)]
pub struct Essence {
    vms: BTreeMap<String, Vec<String>>,
    nodes: BTreeMap<String, String>,
    boots: BTreeMap<String, String>,
    natives: BTreeMap<String, String>,
}

/// How many steps there are, by the words of the first one.
fn steps_of(places: &BTreeSet<String>) -> usize {
    let (_, first) = places.first().and_then(|place| place.split_once(" of ")).unwrap();
    first.split_once(':').unwrap().0.parse().unwrap()
}

/// A step, or the first write of a sort in a step. Names of objects do not count.
fn place_of(line: &str, step: &mut String) -> Option<String> {
    if let Some((_, began)) = line.split_once(": step ") {
        began.clone_into(step);
        return Some(began.to_owned());
    }
    let write = line.trim_start().split([' ', ':']).filter(|word| !word.contains(char::is_numeric));
    let sort: Vec<&str> = write.take(3).collect();
    (!line.contains("waiting for") && line.starts_with(' ')).then(|| format!("{step}: {}", sort.join(" ")))
}

/// 4.3, 4.4 paths C and D, T9, T24: 20 machines leave core and return; the command is killed in every step and after the first
/// write of every sort.
#[test]
fn machines_leave_core_and_return_and_the_cloud_does_not_notice() {
    play(async |world: &'static World| {
        let adoption = Adoption::new(world, "adopted", MACHINES).await;
        let scene = &adoption.scene;
        let (before, ids, from) = (adoption.essence().await, ids(scene).await, journal_so_far(scene));
        let of_capi = adoption.names(&OF_CLUSTER_API);
        assert_eq!((before.nodes.len(), before.natives.len(), of_capi.len()), (MACHINES, MACHINES, 2 * MACHINES + 2));

        let killed = adoption.apply_with_kills(&["--to", "native"]);
        assert!(killed.len() >= 12, "{killed:#?}");
        assert_eq!(adoption.essence().await, before, "after the way there");
        assert_eq!(adoption.names(&OF_CLUSTER_API), [""; 0]);
        assert_eq!(adoption.names(&NATIVE).len(), 2);
        adoption.found_no_orphans();

        let killed = adoption.apply_with_kills(&["--to", "capi"]);
        assert!(killed.len() >= 12, "{killed:#?}");
        assert_eq!(adoption.essence().await, before, "after the way back");
        assert_eq!(adoption.names(&OF_CLUSTER_API), of_capi, "no new MachineSet, the same names");
        assert_eq!(adoption.names(&NATIVE), [""; 0]);
        adoption.found_no_orphans();
        assert_eq!(journal_of(scene, &from, &ids), [""; 0], "the cloud noticed");
        adoption.nodes_have_no_finalizer();

        // It is alive: machines come and go again.
        scene.scale(MACHINES + 1);
        scene.until("one more Machine", async || scene.has_running(MACHINES + 1)).await;
        scene.kubectl(&["delete", "cluster", "adopted", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}

/// 4.3: a plan changes nothing, a check that fails keeps everything from being begun, and what is under way can be undone.
#[test]
fn a_plan_is_shown_and_what_is_under_way_is_undone() {
    play(async |world: &'static World| {
        let adoption = Adoption::new(world, "undecided", 2).await;
        let scene = &adoption.scene;
        let (before, ids, from) = (adoption.essence().await, ids(scene).await, journal_so_far(scene));
        let plan = adoption.must(&["plan", "--from", "capi"]);
        for text in ["every check passed", "undecided-md-0", "attach the MCM Machines to the MCM MachineSet"] {
            assert!(plan.contains(text), "{plan}");
        }
        let plan: Value = serde_json::from_str(&adoption.must(&["plan", "--to", "native", "-o", "json"])).unwrap();
        assert_eq!(plan["plans"][0]["stage"], "Fresh");
        assert!(plan["plans"][0]["checks"].as_array().unwrap().iter().all(|check| check["passed"] == true));
        assert!(scene.all("mcmmigrations").is_empty(), "a plan changes nothing");

        let pause = |is_paused: bool| {
            let change = json!({"spec": {"paused": is_paused}}).to_string();
            scene.kubectl(&["patch", "cluster", "undecided", "--type=merge", "-p", &change])
        };
        pause(true);
        let refused = adoption.run(&["apply", "--to", "native"]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains("Cluster undecided is paused"), "{error}");
        assert!(scene.all("mcmmigrations").is_empty(), "nothing was begun");
        pause(false);

        adoption.stop_at(&["--to", "native"], "attach the MCM Machines to the MCM MachineSet");
        let status = adoption.must(&["status"]);
        assert!(status.contains("Forward") && status.contains("attach the MCM Machines"), "{status}");
        assert_eq!(scene.all("machinedeployments.machine.sapcloud.io").len(), 1);
        adoption.must(&["abort", "--timeout=600s"]);
        assert_eq!(adoption.essence().await, before);
        assert_eq!(adoption.names(&NATIVE), [""; 0]);
        assert_eq!(scene.all("mcmmigrations")[0]["status"]["authority"], "ClusterAPI");
        scene.until("all Machines to run", async || scene.has_running(2)).await;
        let again = adoption.run(&["abort"]);
        assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("nothing to undo"));

        adoption.must(&["apply", "--to", "native", "--timeout=600s"]);
        assert_eq!(adoption.essence().await, before);
        assert_eq!(journal_of(scene, &from, &ids), [""; 0], "the cloud noticed");
        // The native controllers are at work.
        let deployment = "machinedeployments.machine.sapcloud.io/undecided-md-0";
        scene.kubectl(&["patch", deployment, "--type=merge", "-p", r#"{"spec":{"replicas":3}}"#]);
        scene
            .until("a third machine", async || {
                let all = scene.all("machines.machine.sapcloud.io");
                let runs = |machine: &&Value| machine["status"]["currentStatus"]["phase"] == "Running";
                (all.iter().filter(runs).count() == 3).then_some(())
            })
            .await;
        adoption.must(&["apply", "--to", "capi", "--timeout=600s"]);
        scene.until("three Machines", async || scene.has_running(3)).await;
        scene.kubectl(&["delete", "cluster", "undecided", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}
