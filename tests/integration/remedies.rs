//! Every remedy of the catalogue on a real control plane: its command is run as it is printed, and has the effect that its text
//! names. Cluster API is installed as well, so that short names of kinds lead to other objects, and the current context of the
//! kubeconfig leads nowhere, so that a command without the flags of the call fails.

use std::{collections::BTreeMap, fs, panic::AssertUnwindSafe, path::PathBuf};

use futures::{FutureExt, future::join_all};
use k8s_openapi::{
    api::policy::v1::PodDisruptionBudget,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use mcm::api::{labels, machine::MachinePhase};
use mcm_insight::story::{CLASS, DEPLOYMENT, MACHINE, SET, filled};
use mcm_rules::plan::{
    SubjectRef, WaitKind,
    cause::WaitCause,
    guide::{RemedyDanger, WaitRemedy},
    shell::{CallFlags, CommandCluster},
};
use serde_json::{Value, json};
use tokio::{process::Command, sync::Semaphore};

use crate::support::{
    control_plane::{ControlPlane, install},
    objects, pods,
    program::mcm,
    wait,
    world::{Manager, World},
};

/// Programs that run at the same time.
static PROGRAMS: Semaphore = Semaphore::const_new(3);
/// The name of the objects of Cluster API.
const CAPI: &str = "remedied";
/// An MCM object of each kind that commands for any kind get, beside the set of the deployment.
const READ: [(&str, &str); 3] = [(MACHINE, "reader"), (DEPLOYMENT, "pool"), (CLASS, "small")];

/// How a remedy shows that it works.
enum RemedyProof {
    /// It is an instruction for people.
    Instruction,
    /// A command that only reads: it ends with one of the codes of an answer, and its output has these texts.
    Shows(&'static [&'static str]),
    /// The same for an object of any kind: its output has the name of the object.
    ShowsObject,
    /// A command that changes something.
    Changes(RemedyEffect),
    /// A command of clusterctl, which is no part of mcm. Tests with Cluster API core use the same sub-command.
    Clusterctl,
}

/// The effect of a command that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemedyEffect {
    BudgetAllowsOne,
    CapiAnnotated(&'static str),
    CapiMachineDeleted,
    CapiResumed,
    ClusterResumed,
    ControlPlaneReported,
    DrainForced,
    MachineReplaced,
    PreservationEnded,
    RolloutResumed,
    SetUnfrozen,
    CapiPauseEnded,
}

/// The entry of a remedy. A remedy without one fails the tests.
fn proof(text: &str) -> RemedyProof {
    use RemedyProof::{Changes, Clusterctl, Instruction, Shows, ShowsObject};
    const INSTRUCTIONS: [&str; 21] = [
        "after a stock-out: raise the quota, or change the instance type or zone in the class",
        "allow the manager to create Secrets in the namespace kube-system of the target cluster",
        "allow the manager to list and watch machineclasses",
        "allow the manager to list pods in the target cluster",
        "allow the manager to patch nodes in the target cluster",
        "allow the manager to read persistentvolumes and persistentvolumeclaims in the target cluster",
        "check the API server of the target cluster, and the kubeconfig of the manager for it",
        "choose another strategy, or another version",
        "correct spec.template.spec.nodeTemplate of the MachineDeployment",
        "create the Secret {secret} in namespace {namespace} with the keys that its class needs, such as userData",
        "create the Secret, and set spec.bootstrap.dataSecretName of the Machine",
        "if clusterctl move or mcm adopt paused it, let that end",
        "if it is migrated: mcm adopt status --cluster NAME",
        "read the console log of the VM: most often the user data failed",
        "resume the Cluster or the object, if it is paused on purpose",
        "scale the workload up, so that its budget allows a disruption",
        "see the console of the VM, and the log of cloud-init on it",
        "see the log of that controller; remove the annotation only if it does not exist any more",
        "see the log of the bootstrap provider",
        "start the manager, or scale its Deployment up",
        "wait until the drain timeout: the pods are deleted then",
    ];
    match text {
        text if INSTRUCTIONS.contains(&text) => Instruction,
        "clusterctl describe cluster NAME -n {namespace}"
        | "clusterctl describe cluster NAME -n {namespace} --show-conditions all"
        | "clusterctl get kubeconfig {cluster} -n {namespace}" => Clusterctl,

        "kubectl describe {kind} {name} -n {namespace}"
        | "kubectl get {kind} {name} -n {namespace} -o yaml"
        | "kubectl get {kind} {name} -n {namespace} -o yaml --show-managed-fields"
        | "kubectl edit {kind} {name} -n {namespace}" => ShowsObject,
        "kubectl get {kind} {name} -n {namespace} -o jsonpath='{.metadata.finalizers}'" => Shows(&[]),
        "kubectl describe cluster {cluster} -n {namespace}" => Shows(&[CAPI, "cluster.x-k8s.io/v1beta2"]),
        "kubectl describe machinehealthcheck -n {namespace}" => Shows(&[CAPI, "MachineHealthCheck"]),
        "kubectl describe {config-kind} {config} -n {namespace}" => Shows(&[CAPI, "KubeadmConfig"]),
        "kubectl describe {vm} -n {namespace}" => Shows(&[CAPI, "MCMMachine"]),
        "kubectl get --raw /readyz" => Shows(&["ok"]),
        "kubectl get events -n {namespace} --field-selector reason=Unreadable" => {
            Shows(&["spec.replicas is no number"])
        }
        "kubectl get leases,deployments -n {namespace}" => Shows(&["lease.coordination.k8s.io/remedied"]),
        "kubectl get machineclasses.machine.sapcloud.io -n {namespace}" => Shows(&["small", "wrong"]),
        "kubectl get machinedeployments.machine.sapcloud.io,machinesets.machine.sapcloud.io,machines.machine.sapcloud.io -n {namespace} -o wide" => {
            Shows(&[
                "machinedeployment.machine.sapcloud.io/pool",
                "machineset.machine.sapcloud.io/frozen",
                "machine.machine.sapcloud.io/reader",
            ])
        }
        "kubectl get machines.machine.sapcloud.io -n {namespace}" => Shows(&["reader", "Running"]),
        "kubectl get machinesets.machine.sapcloud.io {machineset} -n {namespace} -o yaml" => {
            Shows(&["name: frozen", "freeze: \"True\""])
        }
        "kubectl get mutatingwebhookconfigurations,mutatingadmissionpolicies" => Shows(&["remedied"]),
        "kubectl get nodes" => Shows(&["reader"]),
        "kubectl get pdb -A" => Shows(&["guard", "strict"]),
        "kubectl get pods -A --field-selector spec.nodeName={node}" => Shows(&["on-reader"]),
        "kubectl get pods -n capmcm-system" => Shows(&["provider"]),
        "kubectl get secret {cluster}-kubeconfig -n {namespace}" => Shows(&["remedied-kubeconfig"]),
        "kubectl get secrets -n {namespace}" => Shows(&["pool"]),
        "kubectl get validatingwebhookconfigurations,validatingadmissionpolicies" => Shows(&["remedied"]),
        "kubectl get volumeattachments" => Shows(&["remedied"]),
        "kubectl get machineclasses.machine.sapcloud.io,secrets -n {namespace} -o yaml | mcm class check -f -" => {
            Shows(&["wrong", "providerSpec.zone"])
        }
        "kubectl get machineclasses.machine.sapcloud.io,secrets -n {namespace} -o yaml | mcm class check --live -f -" => {
            Shows(&["small", "providerSpec.zone"])
        }
        "mcm check -n {namespace}" => Shows(&["leases"]),
        "mcm plan {name} -n {namespace} --set paused=false" => Shows(&["paused", "Plan:"]),
        "mcm why -n {namespace}" => Shows(&["drained", "strict"]),
        "mcm why cluster/{cluster} -n {namespace}" => Shows(&[CAPI, "resumed"]),

        "kubectl delete machines.machine.sapcloud.io {machine} -n {namespace}" => {
            Changes(RemedyEffect::MachineReplaced)
        }
        "mcm drain force {machine} -n {namespace}" => Changes(RemedyEffect::DrainForced),
        "kubectl annotate machines.machine.sapcloud.io {machine} -n {namespace} node.machine.sapcloud.io/preserve=false --overwrite" => {
            Changes(RemedyEffect::PreservationEnded)
        }
        "kubectl annotate machinesets.machine.sapcloud.io {machineset} -n {namespace} safety.machine.sapcloud.io/unfreeze=True --overwrite" => {
            Changes(RemedyEffect::SetUnfrozen)
        }
        "kubectl patch machinedeployments.machine.sapcloud.io {name} -n {namespace} --type merge -p '{\"spec\":{\"paused\":false}}'" => {
            Changes(RemedyEffect::RolloutResumed)
        }
        "kubectl patch pdb {budget} -n {budget-namespace} --type merge -p '{\"spec\":{\"minAvailable\":null,\"maxUnavailable\":1}}'" => {
            Changes(RemedyEffect::BudgetAllowsOne)
        }
        "kubectl patch cluster {cluster} -n {namespace} --type merge -p '{\"spec\":{\"paused\":false}}'" => {
            Changes(RemedyEffect::ClusterResumed)
        }
        text if text.starts_with("kubectl patch cluster {cluster} -n {namespace} --subresource=status ") => {
            Changes(RemedyEffect::ControlPlaneReported)
        }
        "kubectl patch {kind} {name} -n {namespace} --type merge -p '{\"spec\":{\"paused\":false}}'" => {
            Changes(RemedyEffect::CapiResumed)
        }
        "kubectl annotate {kind} {name} -n {namespace} cluster.x-k8s.io/paused-" => {
            Changes(RemedyEffect::CapiPauseEnded)
        }
        "kubectl annotate {kind} {name} -n {namespace} machine.cluster.x-k8s.io/exclude-node-draining=" => {
            Changes(RemedyEffect::CapiAnnotated("machine.cluster.x-k8s.io/exclude-node-draining"))
        }
        "kubectl annotate {kind} {name} -n {namespace} machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach=" => {
            Changes(RemedyEffect::CapiAnnotated("machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"))
        }
        "kubectl delete machine.cluster.x-k8s.io {machine} -n {namespace}" => Changes(RemedyEffect::CapiMachineDeleted),
        other => panic!("{other:?} has no entry: say in this test what it shows or changes"),
    }
}

/// Each text of the catalogue once, with the kinds of its objects.
fn catalogue() -> BTreeMap<(&'static str, bool), WaitRemedy> {
    let of_mcm = WaitKind::ALL.into_iter().flat_map(|kind| kind.guide().remedies).map(|one| ((one.text, false), one));
    let of_capi = WaitCause::ALL.iter().flat_map(|cause| cause.guide().remedies).map(|one| ((one.text, true), one));
    of_mcm.chain(of_capi).collect()
}

fn is_command(text: &str) -> bool {
    ["clusterctl ", "kubectl ", "mcm "].iter().any(|program| text.starts_with(program))
}

#[test]
fn each_remedy_has_a_proof_and_those_that_change_something_say_so() {
    for ((text, _), remedy) in catalogue() {
        let proof = proof(text);
        assert_eq!(matches!(proof, RemedyProof::Instruction), !is_command(text), "{text}");
        let is_read = matches!(proof, RemedyProof::Shows(_) | RemedyProof::ShowsObject | RemedyProof::Clusterctl);
        assert!(!is_read || remedy.danger == RemedyDanger::Safe, "{remedy:?}");
    }
}

#[tokio::test]
async fn every_remedy_runs_as_it_is_printed_and_has_its_effect() {
    let control_plane = ControlPlane::apart().await.unwrap().install().await.unwrap();
    let stage = Stage::prepare(&control_plane).await;
    let remedies = catalogue();
    let (reading, changing): (Vec<_>, Vec<_>) = remedies
        .iter()
        .map(|((text, of_capi), remedy)| (remedy, *of_capi, proof(text)))
        .partition(|(_, _, proof)| !matches!(proof, RemedyProof::Changes(_)));
    let stage = &stage;
    let reads = reading.iter().map(|(remedy, of_capi, proof)| tried(remedy, stage.read(remedy, *of_capi, proof)));
    let mut failed: Vec<&str> = join_all(reads).await.into_iter().flatten().collect();
    let effects = changing.iter().map(|(remedy, of_capi, proof)| {
        let RemedyProof::Changes(effect) = proof else { panic!("{remedy:?} changes nothing") };
        tried(remedy, stage.change(remedy, *of_capi, *effect))
    });
    failed.extend(join_all(effects).await.into_iter().flatten());
    assert_eq!(failed, [""; 0], "remedies whose panics are above");
    stage.assert_namesakes_are_untouched().await;
}

/// The text of a remedy that failed. The others are tried as well.
async fn tried(remedy: &WaitRemedy, run: impl Future<Output = ()>) -> Option<&str> {
    AssertUnwindSafe(run).catch_unwind().await.err().map(|_| remedy.text)
}

/// The objects for which commands are printed.
struct Stage {
    world: World,
    /// The call for whose user commands are printed.
    call: CallFlags,
    /// A kubeconfig whose current context leads nowhere.
    kubeconfig: PathBuf,
    path: String,
    /// A machine of the deployment `pool`, and its set.
    replaced: String,
    set: String,
    /// Objects of Cluster API with the names of MCM objects that commands change.
    namesakes: Vec<Value>,
    _manager: Manager,
}

impl Stage {
    async fn prepare(control_plane: &ControlPlane) -> Self {
        let client = control_plane.client();
        install(&client, &cluster_api()).await.unwrap();
        let world = World::apart(control_plane, "remedies").await;
        // A count of machines would unfreeze the set.
        let manager = world.run(&["--machine-safety-overshooting-period=1h"]).await;
        world.pool(1, json!({})).await;
        for name in ["reader", "drained"] {
            world.apply(objects::machine(name)).await;
        }
        let mut preserved = objects::machine("preserved");
        preserved["metadata"]["annotations"] = json!({ labels::PRESERVE: "now" });
        world.apply(preserved).await;
        let mut paused = objects::deployment("paused", 0);
        paused["spec"]["paused"] = true.into();
        world.apply(paused).await;
        let mut wrong = objects::class("wrong");
        wrong["providerSpec"]["zone"] = 7.into();
        world.apply(wrong).await;
        let template = json!({
            "metadata": {"labels": {"name": "frozen"}}, "spec": {"class": {"kind": "MachineClass", "name": "small"}},
        });
        world
            .apply(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
                "metadata": {"name": "frozen"},
                "spec": {"replicas": 0, "selector": {"matchLabels": {"name": "frozen"}}, "template": template},
            }))
            .await;
        others(&world).await;
        for name in ["reader", "drained", "preserved"] {
            world.until(name, |scene| scene.phase(name) == Some(MachinePhase::Running)).await;
        }
        world.until("the pool", |scene| scene.machines.keys().any(|name| name.starts_with("pool-"))).await;
        world.until("the pool to serve", |scene| scene.complete("pool", 1)).await;
        let replaced =
            world.find("a machine", |scene| scene.machines.keys().find(|name| name.starts_with("pool-")).cloned());
        let (replaced, set) = (
            replaced.await,
            world.find("a set", |scene| scene.sets.keys().find(|name| name.starts_with("pool-")).cloned()).await,
        );
        protect(&world).await;
        // Each machine that is created leads to a check of its set, which would end a freeze.
        let frozen = Patch::Merge(json!({"metadata": {"labels": {labels::FREEZE: "True"}}}));
        world.sets().patch("frozen", &PatchParams::default(), &frozen).await.unwrap();
        let namesakes = namesakes(&world, &replaced).await;
        let kubeconfig = world.folder().join("two-contexts");
        two_contexts(world.admin(), &kubeconfig);
        let control = vec![("--kubeconfig", kubeconfig.display().to_string()), ("--context", "blue".to_owned())];
        let call = CallFlags { program: None, control, target: world.admin().display().to_string() };
        let folders = [ControlPlane::programs().unwrap(), mcm().parent().unwrap().to_owned()];
        let own: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let path = format!("{}:{}", own.join(":"), std::env::var("PATH").unwrap_or_default());
        Self { world, call, kubeconfig, path, replaced, set, namesakes, _manager: manager }
    }

    fn subject(&self, kind: &str, name: &str) -> SubjectRef {
        SubjectRef { kind: kind.to_owned(), namespace: self.world.namespace.clone(), name: name.to_owned() }
    }

    /// The MCM objects for which the text of a remedy is printed.
    fn objects(&self, text: &str) -> Vec<SubjectRef> {
        let one = |kind, name: &str| vec![self.subject(kind, name)];
        match text {
            text if text.contains("{machineset}") => one(SET, "frozen"),
            text if text.contains("jsonpath") => one(MACHINE, "reader"),
            text if text.contains("{kind}") => {
                let others = READ.iter().map(|(kind, name)| self.subject(kind, name));
                others.chain([self.subject(SET, &self.set)]).collect()
            }
            text if text.starts_with("kubectl delete ") => one(MACHINE, &self.replaced),
            text if text.starts_with("mcm drain ") => one(MACHINE, "drained"),
            text if text.contains("preserve=") => one(MACHINE, "preserved"),
            text if text.contains("{name}") => one(DEPLOYMENT, "paused"),
            text if text.contains("{node}") => one(MACHINE, "reader"),
            _ => one(DEPLOYMENT, "pool"),
        }
    }

    /// The commands of a remedy as they are printed, with the names of their objects.
    fn printed(&self, remedy: &WaitRemedy, of_capi: bool) -> Vec<(String, String)> {
        let namespace = self.world.namespace.as_str();
        // A user has the kubeconfig of a workload cluster, which is this one.
        let cluster = match remedy.cluster {
            CommandCluster::Workload => CommandCluster::Target,
            other => other,
        };
        let addressed = |text: &str| self.call.addressed_to(text, cluster);
        if of_capi {
            let kind = match remedy.text.contains("\"paused\"") {
                true => "machinedeployment.cluster.x-k8s.io",
                false => "machine.cluster.x-k8s.io",
            };
            let name = if remedy.text.starts_with("kubectl delete ") { "deleted" } else { CAPI };
            let vm = format!("mcmmachine {CAPI}");
            let places = [
                ("kind", Some(kind)),
                ("namespace", Some(namespace)),
                ("name", Some(name)),
                ("machine", Some(name)),
                ("cluster", Some(CAPI)),
                ("vm", Some(&vm)),
                ("config-kind", Some("kubeadmconfig")),
                ("config", Some(CAPI)),
            ];
            let text = remedy.text_with(&places).unwrap();
            return vec![(addressed(&text), name.to_owned())];
        }
        let wait = format!("budget {namespace}/guard to allow an eviction");
        let objects = self.objects(remedy.text).into_iter();
        let filled = objects.map(|object| {
            let node = Some(object.name.as_str()).filter(|_| object.kind == MACHINE);
            let text =
                filled(remedy, &object, node, &wait).unwrap_or_else(|| panic!("{remedy:?} is not for {object:?}"));
            (addressed(&text.text), object.name)
        });
        filled.collect()
    }

    /// Runs a line as a user pastes it; its output. An editor shows the object, and changes nothing.
    async fn run(&self, line: &str, codes: &[i32]) -> String {
        let _turn = PROGRAMS.acquire().await.unwrap();
        let output = Command::new("bash")
            .args(["-c", &format!("set -o pipefail\n{line}")])
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("EDITOR", "cat")
            .output()
            .await
            .unwrap();
        let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let is_answered = output.status.code().is_some_and(|code| codes.contains(&code));
        assert!(is_answered, "{line} ended with {}:\n{said}\n{error}", output.status);
        format!("{said}\n{error}")
    }

    async fn read(&self, remedy: &WaitRemedy, of_capi: bool, proof: &RemedyProof) {
        // An answer of mcm that is bad news is an answer.
        let codes: &[i32] = if remedy.text.contains("mcm ") { &[0, 3, 4] } else { &[0] };
        if !matches!(proof, RemedyProof::Shows(_) | RemedyProof::ShowsObject) {
            return;
        }
        for (line, name) in self.printed(remedy, of_capi) {
            let expected: Vec<&str> = match proof {
                RemedyProof::Shows(texts) => texts.to_vec(),
                RemedyProof::ShowsObject if of_capi => vec![name.as_str(), "cluster.x-k8s.io/v1beta2"],
                RemedyProof::ShowsObject => vec![name.as_str(), "machine.sapcloud.io/v1alpha1"],
                RemedyProof::Instruction | RemedyProof::Clusterctl | RemedyProof::Changes(_) => return,
            };
            let said = self.run(&line, codes).await;
            // Texts are wrapped.
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            for text in expected {
                assert!(said.contains(text), "{line}: {text:?} is not in\n{said}");
            }
        }
    }

    async fn change(&self, remedy: &WaitRemedy, of_capi: bool, effect: RemedyEffect) {
        for (line, _) in self.printed(remedy, of_capi) {
            let consent = if line.starts_with("mcm ") { " --yes" } else { "" };
            self.run(&format!("{line}{consent}"), &[0]).await;
        }
        self.assert_effect(effect).await;
    }

    async fn assert_effect(&self, effect: RemedyEffect) {
        let world = &self.world;
        let capi = async |kind: &str, name: &str| {
            let object = object_of(kind, name, &world.namespace);
            let api = objects::api_of(&world.client, &object);
            api.get_opt(name).await.unwrap().map(|object| serde_json::to_value(object).unwrap())
        };
        match effect {
            RemedyEffect::MachineReplaced => {
                let is_replaced = |scene: &crate::support::scene::Scene| {
                    let mut of_pool = scene.machines.iter().filter(|(name, _)| name.starts_with("pool-"));
                    !scene.machines.contains_key(&self.replaced) && of_pool.any(|(_, machine)| machine.is_available())
                };
                world.until("another machine in its place", is_replaced).await;
            }
            RemedyEffect::DrainForced => {
                world.until("the machine to be gone", |scene| !scene.machines.contains_key("drained")).await;
                let left = pods::api(&world.target, &world.namespace).get_opt("on-drained").await.unwrap();
                assert!(left.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()), "its pod is deleted");
            }
            RemedyEffect::PreservationEnded => {
                world
                    .until("the preservation to end", |scene| {
                        let status = scene.machines["preserved"].status.as_ref();
                        status.is_some_and(|status| status.current_status.preserve_expiry_time.is_none())
                    })
                    .await;
            }
            RemedyEffect::SetUnfrozen => {
                world
                    .until("the set to be unfrozen", |scene| {
                        !scene.sets["frozen"].labels().contains_key(labels::FREEZE)
                    })
                    .await;
            }
            RemedyEffect::RolloutResumed => {
                assert!(!world.deployments().get("paused").await.unwrap().spec.paused);
            }
            RemedyEffect::BudgetAllowsOne => {
                let budgets: Api<PodDisruptionBudget> = Api::namespaced(world.target.clone(), &world.namespace);
                let spec = serde_json::to_value(budgets.get("guard").await.unwrap().spec).unwrap();
                assert_eq!((&spec["maxUnavailable"], &spec["minAvailable"]), (&json!(1), &Value::Null), "{spec}");
            }
            RemedyEffect::ClusterResumed => assert_eq!(capi("Cluster", CAPI).await.unwrap()["spec"]["paused"], false),
            RemedyEffect::ControlPlaneReported => {
                let status = capi("Cluster", CAPI).await.unwrap()["status"].clone();
                assert_eq!(status["initialization"]["controlPlaneInitialized"], true, "{status}");
                assert_eq!(status["conditions"][0]["type"], "ControlPlaneInitialized", "{status}");
            }
            RemedyEffect::CapiResumed => {
                assert_eq!(capi("MachineDeployment", CAPI).await.unwrap()["spec"]["paused"], false);
            }
            RemedyEffect::CapiPauseEnded => {
                let machine = capi("Machine", CAPI).await.unwrap();
                assert!(machine["metadata"]["annotations"].get("cluster.x-k8s.io/paused").is_none(), "{machine}");
            }
            RemedyEffect::CapiAnnotated(key) => {
                let machine = capi("Machine", CAPI).await.unwrap();
                assert!(machine["metadata"]["annotations"].get(key).is_some(), "{machine}");
            }
            RemedyEffect::CapiMachineDeleted => assert_eq!(capi("Machine", "deleted").await, None),
        }
    }

    /// No command for an MCM object has changed the object of Cluster API that has its name.
    async fn assert_namesakes_are_untouched(&self) {
        for namesake in &self.namesakes {
            let name = namesake["metadata"]["name"].as_str().unwrap();
            let now = objects::api_of(&self.world.client, namesake).get(name).await.unwrap();
            assert_eq!(
                now.resource_version().as_deref(),
                namesake["metadata"]["resourceVersion"].as_str(),
                "{namesake}"
            );
        }
    }
}

/// An object of Cluster API.
fn object_of(kind: &str, name: &str, namespace: &str) -> Value {
    let group = match kind {
        "KubeadmConfig" => "bootstrap.cluster.x-k8s.io",
        "MCMMachine" => "infrastructure.cluster.x-k8s.io",
        _ => "cluster.x-k8s.io",
    };
    json!({"apiVersion": format!("{group}/v1beta2"), "kind": kind, "metadata": {"name": name, "namespace": namespace}})
}

/// The kinds of Cluster API, of a bootstrap provider and of the provider mcm, without their fields.
fn cluster_api() -> Vec<CustomResourceDefinition> {
    let kinds =
        ["Cluster", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck", "KubeadmConfig", "MCMMachine"];
    let crd = |kind: &str| {
        let object = object_of(kind, "", "");
        let group = object["apiVersion"].as_str().unwrap().split('/').next().unwrap();
        let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "singular": singular, "plural": plural, "listKind": format!("{kind}List")},
                "versions": [{"name": "v1beta2", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}, "subresources": {"status": {}}}],
            },
        }))
        .unwrap()
    };
    kinds.map(crd).into()
}

/// The other objects that commands show, and those of Cluster API that they change.
async fn others(world: &World) {
    let (client, namespace) = (&world.client, &world.namespace);
    let capi = async |kind: &str, name: &str, more: Value| {
        let mut object = object_of(kind, name, namespace);
        objects::merge(&mut object, more);
        objects::apply(client, &object).await
    };
    let cluster =
        json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": CAPI}}, "spec": {"clusterName": CAPI}});
    capi("Cluster", CAPI, json!({"spec": {"paused": true}})).await;
    capi("MachineDeployment", CAPI, json!({"spec": {"clusterName": CAPI, "paused": true}})).await;
    for name in [CAPI, "deleted"] {
        let mut machine = cluster.clone();
        machine["metadata"]["annotations"] = json!({"cluster.x-k8s.io/paused": ""});
        capi("Machine", name, machine).await;
    }
    for kind in ["MachineHealthCheck", "KubeadmConfig", "MCMMachine"] {
        capi(kind, CAPI, cluster.clone()).await;
    }
    world.apply(objects::secret("remedied-kubeconfig")).await;
    world
        .apply(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "remedied"},
            "spec": {"holderIdentity": "remedied"},
        }))
        .await;
    world
        .apply(json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "unreadable"}, "type": "Warning",
            "reason": "Unreadable", "message": "spec.replicas is no number", "source": {"component": "tests"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1,
            "involvedObject": {
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "pool",
                "namespace": namespace,
            },
        }))
        .await;
    let rule = json!({
        "apiGroups": ["machine.sapcloud.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["machines"],
    });
    for object in [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "remedied"}, "webhooks": [],
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "remedied"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]},
        }),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "remedied"},
            "spec": {"attacher": "none.example.com", "nodeName": "reader", "source": {"persistentVolumeName": "none"}},
        }),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capmcm-system"}}),
    ] {
        objects::apply(client, &object).await;
    }
    pods::run(client, "capmcm-system", pods::pod("provider", "elsewhere")).await;
}

/// A pod and a budget that allows no eviction, for each of two machines, of which one is deleted.
async fn protect(world: &World) {
    for (name, budget, spec) in
        [("reader", "guard", json!({"minAvailable": 1})), ("drained", "strict", json!({"maxUnavailable": 0}))]
    {
        let mut pod = pods::pod(&format!("on-{name}"), name);
        pod["metadata"]["labels"]["app"] = name.into();
        pods::run(&world.target, &world.namespace, pod).await;
        let mut object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": budget},
            "spec": {"selector": {"matchLabels": {"app": name}}},
        });
        objects::merge(&mut object, json!({ "spec": spec }));
        world.apply(object).await;
        let status = json!({"status": {
            "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
        }});
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(world.target.clone(), &world.namespace);
        budgets.patch_status(budget, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
    world.machines().delete("drained", &DeleteParams::default()).await.unwrap();
    wait::until("the budget to refuse the eviction", async || {
        let machine = world.machines().get("drained").await.unwrap();
        let operation = machine.status.unwrap_or_default().last_operation.description;
        operation.contains("budget").then_some(())
    })
    .await;
}

/// Objects of Cluster API with the names of MCM objects that commands change.
async fn namesakes(world: &World, replaced: &str) -> Vec<Value> {
    let names = [
        ("Machine", replaced),
        ("Machine", "drained"),
        ("Machine", "preserved"),
        ("MachineSet", "frozen"),
        ("MachineDeployment", "paused"),
    ];
    let mut found = Vec::new();
    for (kind, name) in names {
        let object = objects::apply(&world.client, &object_of(kind, name, &world.namespace)).await;
        found.push(serde_json::to_value(object).unwrap());
    }
    found
}

/// A kubeconfig with the context `blue` of a cluster, and a current context that leads nowhere.
fn two_contexts(of_cluster: &std::path::Path, to: &std::path::Path) {
    let mut config: Value = serde_yaml_ng::from_str(&fs::read_to_string(of_cluster).unwrap()).unwrap();
    let mut blue = config["contexts"][0].clone();
    blue["name"] = "blue".into();
    let mut red = blue.clone();
    (red["name"], red["context"]["cluster"]) = ("red".into(), "nowhere".into());
    config["contexts"] = json!([red, blue]);
    config["current-context"] = "red".into();
    let nowhere = json!({"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}});
    config["clusters"].as_array_mut().unwrap().push(nowhere);
    fs::write(to, serde_json::to_string(&config).unwrap()).unwrap();
}
