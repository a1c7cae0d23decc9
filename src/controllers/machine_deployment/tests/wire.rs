//! The real executor against an API server that refuses, or loses its responses.

use std::sync::Arc;

use jiff::SignedDuration;
use kube::{ResourceExt, runtime::watcher::Event};
use rstest::rstest;
use serde_json::{Value, json};

use super::drive::{deployment, rolling};
use crate::{
    SETS,
    machine_deployment::{Action, DeploymentPolicy, apply::DeploymentReconciler},
    machine_set::{InFlightWrites, SetWritesInFlight},
    node,
    testing::{Fate, Wire},
};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment, MachineSet},
    node::Node,
};
use mcm_rules::plan::PlanInput;
use mcm_runtime::{
    cache::{Key, ObjectCache},
    clock::{ManualClock, SystemClock},
    events::EventRecorder,
    metrics::MetricsRegistry,
    objects::CachedApi,
    queue::{QueuePacing, WorkQueue},
    reconcile::{ReconcileLoop, SnapshotReader},
    target::{CellTargets, TargetAssignment, TargetClients, TargetId},
    worker::{KeyReconciler, ReconcileError, RequeueTime},
};

struct Shell {
    wire: Wire,
    deployments: Arc<ObjectCache<MachineDeployment>>,
    sets: Arc<ObjectCache<MachineSet>>,
    machines: Arc<ObjectCache<Machine>>,
    nodes: Arc<ObjectCache<Node>>,
    in_flight: Arc<InFlightWrites>,
    clock: Arc<ManualClock>,
    runner: ReconcileLoop<DeploymentReconciler>,
}

impl Shell {
    /// A deployment of class v2 whose old set of class v1 has 3 Machines that serve, each with a Node.
    fn new() -> Self {
        let wire = Wire::new();
        let client = wire.client();
        let (deployments, sets, machines) = (
            crate::machine_deployment::CACHE.empty(),
            crate::machine_set::CACHE.empty(),
            crate::machine::CACHE.empty(),
        );
        let targets = CellTargets::new(TargetAssignment::One(TargetId::only()), node::cache_for(&[SETS]));
        let nodes = Arc::clone(&targets.connect(&TargetId::only(), &TargetClients::one(&client)).nodes.cache);
        let clock = Arc::new(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap()));
        let in_flight = Arc::<InFlightWrites>::default();
        let reconciler = DeploymentReconciler {
            deployments: Arc::new(CachedApi::namespaced(&deployments, &client)),
            sets: Arc::new(CachedApi::namespaced(&sets, &client)),
            machines: Arc::new(CachedApi::namespaced(&machines, &client)),
            targets,
            in_flight: Arc::clone(&in_flight),
            holds: Arc::default(),
            policy: DeploymentPolicy { annotate_nodes: true, has_target: true },
            events: EventRecorder::start(client, "test", Arc::new(SystemClock), MetricsRegistry::new()),
            clock: Arc::clone(&clock) as _,
        };
        let runner = ReconcileLoop::new(
            Arc::new(reconciler),
            WorkQueue::new("deployments", QueuePacing::default()),
            Arc::default(),
            Arc::new(SystemClock),
        );
        let shell = Self { wire, deployments, sets, machines, nodes, in_flight, clock, runner };
        shell.fill();
        shell
    }

    fn fill(&self) {
        let mut object = serde_json::to_value(deployment(3, rolling(1, 0))).unwrap();
        object["metadata"]["finalizers"] = json!([labels::FINALIZER]);
        object["spec"]["template"]["spec"]["class"]["name"] = json!("v2");
        let deployment = self.deployments.wrote(self.wire.put("machinedeployments/pool", &object));
        let set = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": {
                "name": "old", "namespace": "shoot", "labels": {"name": "pool"},
                "annotations": {labels::DESIRED_REPLICAS: "3", labels::MAX_REPLICAS: "4", labels::REVISION: "1"},
                "ownerReferences": [owner("MachineDeployment", "pool", &deployment.uid().unwrap())],
            },
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"name": "pool", labels::TEMPLATE_HASH: "1"}},
                "template": {
                    "metadata": {"labels": {"name": "pool", labels::TEMPLATE_HASH: "1"}},
                    "spec": {"class": {"kind": "MachineClass", "name": "v1"}},
                },
            },
            "status": {"observedGeneration": 1, "replicas": 3},
        });
        let old = self.sets.wrote(self.wire.put("machinesets/old", &set));
        for name in ["a", "b", "c"] {
            let machine = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": {
                    "name": name, "namespace": "shoot", "labels": {"name": "pool", "node": name},
                    "ownerReferences": [owner("MachineSet", "old", &old.uid().unwrap())],
                },
                "spec": {"class": {"kind": "MachineClass", "name": "v1"}},
                "status": {"currentStatus": {"phase": "Running"}},
            });
            self.machines.wrote(self.wire.put(&format!("machines/{name}"), &machine));
            self.nodes.wrote(self.wire.put(&format!("nodes/{name}"), &node_of(name)));
        }
    }

    async fn reconcile(&self) -> Result<RequeueTime, ReconcileError> {
        self.runner.handle(&Key::new("shoot", "pool")).await
    }

    /// The new set gets its first Machine, which serves.
    fn grow_new_set(&self) {
        let set = self.new_set().unwrap();
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": "n", "namespace": "shoot", "labels": {"name": "pool", "node": "n"},
                "ownerReferences": [owner("MachineSet", &set.name_any(), &set.uid().unwrap())],
            },
            "spec": {"class": {"kind": "MachineClass", "name": "v2"}},
            "status": {"currentStatus": {"phase": "Running"}},
        });
        self.machines.wrote(self.wire.put("machines/n", &machine));
        let observed = json!({"status": {"observedGeneration": 1, "replicas": 1}});
        self.sets.wrote(self.wire.put(&format!("machinesets/{}", set.name_any()), &observed));
    }

    fn new_set(&self) -> Option<Arc<MachineSet>> {
        self.sets.all().into_iter().find(|set| set.spec.template.spec.class.name == "v2")
    }
}

/// The Node of a Machine with the same name.
fn node_of(name: &str) -> Value {
    let labels = json!({ labels::MACHINE_NAME: name });
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true})
}

#[rstest]
#[case::none(&[], 1)]
#[case::a_create_of_the_old_set(&["d"], 0)]
#[tokio::test]
async fn what_sets_have_in_flight_takes_room(#[case] creates: &[&str], #[case] replicas: i32) {
    let shell = Shell::new();
    let creates = creates.iter().map(|&name| name.to_owned()).collect();
    let old = shell.sets.get(&Key::new("shoot", "old")).unwrap();
    shell.in_flight.announce(&old, SetWritesInFlight { creates, ..SetWritesInFlight::default() });
    shell.reconcile().await.unwrap();
    assert_eq!(shell.new_set().unwrap().spec.replicas, replicas);
}

#[tokio::test]
async fn nothing_is_planned_before_a_resize_without_an_answer_was_read_again() {
    let shell = Shell::new();
    shell.reconcile().await.unwrap();
    // The old set may shrink; the answer to that is lost.
    shell.grow_new_set();
    shell.wire.judge(|request| if request == "PATCH machinesets/old" { Fate::Lost } else { Fate::Answered });
    shell.reconcile().await.unwrap_err();
    assert_eq!(shell.wire.get::<MachineSet>("machinesets/old").unwrap().spec.replicas, 2);
    assert_eq!(shell.sets.get(&Key::new("shoot", "old")).unwrap().spec.replicas, 3, "nobody knows yet");

    shell.wire.judge(|request| if request.starts_with("GET") { Fate::Unavailable } else { Fate::Answered });
    let before = shell.wire.requests().len();
    shell.reconcile().await.unwrap_err();
    assert_eq!(shell.wire.requests()[before..], ["GET machinesets/old".to_owned()]);

    shell.wire.judge(|_| Fate::Answered);
    shell.reconcile().await.unwrap();
    assert_eq!(shell.sets.get(&Key::new("shoot", "old")).unwrap().spec.replicas, 2, "what was read is in the cache");
}

/// The rollout decided to shrink the old set because the new machine served. It fails while a Node of the old set is tainted.
#[tokio::test]
async fn replicas_follow_changes_made_while_nodes_were_tainted() {
    let shell = Shell::new();
    shell.reconcile().await.unwrap();
    shell.grow_new_set();
    let (wire, machines) = (shell.wire.clone(), Arc::clone(&shell.machines));
    shell.nodes.wrote(shell.wire.put("nodes/a", &json!({"spec": {"taints": []}})));
    shell.wire.judge(move |request| {
        if request == "PATCH nodes/a" {
            let unknown = json!({"status": {"currentStatus": {"phase": "Unknown"}}});
            machines.wrote(wire.put("machines/n", &unknown));
        }
        Fate::Answered
    });
    shell.reconcile().await.unwrap();
    assert_eq!(shell.wire.count("PATCH nodes/a"), 2);
    assert_eq!(shell.wire.get::<MachineSet>("machinesets/old").unwrap().spec.replicas, 3);
}

/// Writes of sets and Nodes after the first `seen` requests, in order and without repetitions.
fn writes_after(shell: &Shell, seen: usize) -> Vec<&'static str> {
    let requests = shell.wire.own_requests();
    let target = |request: &String| match request.strip_prefix("PATCH ")?.split_once('/')? {
        ("machinesets", "old") => Some("old set"),
        ("machinesets", _) => Some("new set"),
        ("nodes", _) => Some("nodes"),
        _ => None,
    };
    let mut writes: Vec<&str> = requests[seen..].iter().filter_map(target).collect();
    writes.dedup();
    writes
}

/// Thousands of Nodes take longer to taint than new machines take to boot. Pods of the deleted machines would move to Nodes
/// without the taint.
#[tokio::test]
async fn a_set_that_grows_does_not_wait_for_taints_and_one_that_shrinks_does() {
    let shell = Shell::new();
    shell.reconcile().await.unwrap();
    shell.grow_new_set();
    for node in ["a", "b", "c"] {
        shell.nodes.wrote(shell.wire.put(&format!("nodes/{node}"), &json!({"spec": {"taints": []}})));
    }
    let surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 2}}}});
    shell.deployments.wrote(shell.wire.put("machinedeployments/pool", &surge));
    let seen = shell.wire.own_requests().len();
    shell.reconcile().await.unwrap();
    assert_eq!(writes_after(&shell, seen), ["new set", "nodes", "old set"]);
    assert_eq!(shell.wire.get::<MachineSet>("machinesets/old").unwrap().spec.replicas, 2);
}

/// They only concern the autoscaler.
#[tokio::test]
async fn no_set_waits_for_annotations_of_nodes() {
    let shell = Shell::new();
    shell.reconcile().await.unwrap();
    shell.grow_new_set();
    shell.nodes.wrote(shell.wire.put("nodes/n", &node_of("n")));
    let seen = shell.wire.own_requests().len();
    shell.reconcile().await.unwrap();
    assert_eq!(writes_after(&shell, seen), ["old set", "nodes"]);
}

#[tokio::test]
async fn a_node_that_cannot_be_tainted_does_not_stop_the_rollout() {
    let shell = Shell::new();
    shell.reconcile().await.unwrap();
    shell.grow_new_set();
    shell.nodes.wrote(shell.wire.put("nodes/a", &json!({"spec": {"taints": []}})));
    shell.wire.judge(|request| if request == "PATCH nodes/a" { Fate::Refused } else { Fate::Answered });
    shell.reconcile().await.unwrap();
    assert_eq!(shell.wire.get::<MachineSet>("machinesets/old").unwrap().spec.replicas, 2);
}

#[tokio::test]
async fn a_node_that_refuses_patches_is_tried_less_and_less_often() {
    let shell = Shell::new();
    shell.wire.judge(|request| if request == "PATCH nodes/b" { Fate::Refused } else { Fate::Answered });
    let mut tries = Vec::new();
    for second in 0..1200 {
        let before = shell.wire.count("PATCH nodes/b");
        shell.reconcile().await.unwrap();
        if shell.wire.count("PATCH nodes/b") > before {
            tries.push(second);
        }
        shell.clock.advance(SignedDuration::from_secs(1));
    }
    assert_eq!(tries, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111]);
    assert_eq!(shell.wire.count("PATCH nodes/a"), 1, "the others are marked once");
}

#[tokio::test]
async fn a_set_that_is_refused_is_reported_once() {
    let shell = Shell::new();
    shell.wire.judge(|request| if request == "POST machinesets" { Fate::Refused } else { Fate::Answered });
    for _ in 0..5 {
        shell.reconcile().await.unwrap_err();
    }
    let status = shell.wire.get::<MachineDeployment>("machinedeployments/pool").unwrap().status.unwrap();
    let progressing = status.conditions.iter().find(|condition| condition.type_ == "Progressing").unwrap();
    assert_eq!((progressing.reason.as_str(), shell.new_set().is_none()), ("MachineSetCreateError", true));
    assert_eq!(shell.wire.count("PATCH machinedeployments/pool/status"), 1);
}

#[tokio::test]
async fn the_loop_asks_the_lint() {
    let shell = Shell::new();
    let reconciler = &shell.runner.reconciler;
    let snapshot = reconciler.observe(&Key::new("shoot", "pool"), &Default::default(), &Default::default()).unwrap();
    let mut plan = snapshot.plan();
    assert_eq!(snapshot.lint(&plan), None);
    plan.then(Action::DeleteSet(Arc::clone(&snapshot.sets[0])), "no reason");
    let refusal = snapshot.lint(&plan).unwrap();
    assert_eq!(refusal, "it would delete an object that is still in use: machine set old has machines");
}

/// Names prove nothing: a set with a long name truncates it, and users may name machines freely.
#[tokio::test]
async fn an_unreadable_machine_is_of_the_set_that_owns_it_whatever_its_name() {
    let shell = Shell::new();
    let old = shell.sets.get(&Key::new("shoot", "old")).unwrap().uid().unwrap();
    for (name, set, uid) in [("b", "old", old.as_str()), ("old-abcde", "elsewhere", "another")] {
        let machine = json!({
            "metadata": {
                "name": name, "namespace": "shoot", "uid": format!("uid-{name}"), "resourceVersion": "999",
                "labels": {"name": "pool"}, "ownerReferences": [owner("MachineSet", set, uid)],
            },
            "spec": {"class": "no class"},
        });
        shell.machines.observe(Event::Apply(serde_json::from_str(&machine.to_string()).unwrap()));
    }
    let snapshot =
        shell.runner.reconciler.observe(&Key::new("shoot", "pool"), &Default::default(), &Default::default()).unwrap();
    let unreadable: Vec<_> = snapshot.unreadable_machines.iter().map(|it| (it.name.as_str(), &it.set_uid)).collect();
    assert_eq!(unreadable, [("b", &old)]);
    shell.reconcile().await.unwrap();
    assert_eq!(shell.new_set().unwrap().spec.replicas, 1, "the rollout goes on");
}

#[tokio::test]
async fn a_machine_of_another_deployment_leaves_the_list_of_the_autoscaler_unmarked() {
    let shell = Shell::new();
    let other = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "x", "namespace": "shoot", "ownerReferences": [owner("MachineSet", "other", "other")]},
        "spec": {"class": {"kind": "MachineClass", "name": "v1"}},
    });
    shell.machines.wrote(shell.wire.put("machines/x", &other));
    let list = json!({"metadata": {"annotations": {labels::TRIGGER_DELETION: "x~2026-01-01T00:00:00Z,a~2026-01-01T00:00:00Z"}}});
    shell.deployments.wrote(shell.wire.put("machinedeployments/pool", &list));
    shell.reconcile().await.unwrap();
    let deployment: MachineDeployment = shell.wire.get("machinedeployments/pool").unwrap();
    assert_eq!(deployment.annotations()[labels::TRIGGER_DELETION], "a~2026-01-01T00:00:00Z");
    assert_eq!((shell.wire.count("PATCH machines/x"), shell.wire.count("PATCH machines/a")), (0, 1));
}

/// Another client created the set, and it is not in the cache yet.
#[tokio::test]
async fn a_set_of_this_template_that_is_there_already_is_used() {
    let model = Shell::new();
    model.reconcile().await.unwrap();
    let mut there = serde_json::to_value(model.new_set().unwrap().as_ref()).unwrap();
    let name = there["metadata"]["name"].as_str().unwrap().to_owned();
    let shell = Shell::new();
    let uid = shell.deployments.get(&Key::new("shoot", "pool")).unwrap().uid().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        there["metadata"].as_object_mut().unwrap().remove(field);
    }
    there["metadata"]["ownerReferences"] = json!([owner("MachineDeployment", "pool", &uid)]);
    shell.wire.put::<MachineSet>(&format!("machinesets/{name}"), &there);
    shell.reconcile().await.unwrap_err();
    shell.reconcile().await.unwrap();
    assert_eq!((shell.new_set().unwrap().name_any(), shell.wire.count("POST machinesets")), (name, 1));
    let status = shell.wire.get::<MachineDeployment>("machinedeployments/pool").unwrap().status.unwrap();
    assert_eq!(status.collision_count, None);
}

/// The garbage collector removed its finalizer from the deployment before the cache heard of the set that it released.
#[tokio::test]
async fn a_deployment_that_goes_leaves_a_set_that_was_released_unnoticed() {
    let shell = Shell::new();
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    shell.deployments.wrote(shell.wire.put("machinedeployments/pool", &going));
    shell.wire.put::<MachineSet>("machinesets/old", &json!({"metadata": {"ownerReferences": []}}));
    shell.reconcile().await.unwrap_err();
    assert_eq!(shell.wire.count("DELETE machinesets/old"), 1);
    assert!(shell.wire.get::<MachineSet>("machinesets/old").unwrap().metadata.deletion_timestamp.is_none());
}

/// The deployment was deleted with the policy `Orphan`, and the watch of its sets is ahead.
#[tokio::test]
async fn a_deployment_that_is_deleted_unnoticed_adopts_nothing() {
    let shell = Shell::new();
    shell.sets.wrote(shell.wire.put("machinesets/old", &json!({"metadata": {"ownerReferences": []}})));
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    shell.wire.put::<MachineDeployment>("machinedeployments/pool", &deleted);
    shell.reconcile().await.unwrap();
    let set: MachineSet = shell.wire.get("machinesets/old").unwrap();
    assert!(set.owner_references().is_empty() && set.metadata.deletion_timestamp.is_none());
    assert_eq!((shell.wire.count("POST"), shell.wire.count("PATCH machinesets/")), (0, 0));
}
