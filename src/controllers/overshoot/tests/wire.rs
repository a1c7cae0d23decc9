//! The real executor against an API server that refuses.

use std::sync::Arc;

use kube::{ResourceExt, runtime::watcher::Event};
use serde_json::{Value, json};

use super::super::{MachineSetGroup, OvershootPolicy, apply::OvershootReconciler, observe::subject_of};
use crate::testing::{Fate, Wire};
use mcm_api::machine::{Machine, MachineDeployment, MachineSet};
use mcm_runtime::{
    cache::{CacheableKind, Key, ObjectCache},
    clock::ManualClock,
    events::EventRecorder,
    guard::GuardedObject,
    metrics::MetricsRegistry,
    objects::CachedApi,
    queue::{QueuePacing, WorkQueue},
    reconcile::ReconcileLoop,
    worker::{KeyReconciler, ReconcileError, RequeueTime},
};

struct Shell {
    wire: Wire,
    deployments: Arc<ObjectCache<MachineDeployment>>,
    sets: Arc<ObjectCache<MachineSet>>,
    machines: Arc<ObjectCache<Machine>>,
    clock: Arc<ManualClock>,
    runner: ReconcileLoop<OvershootReconciler>,
}

fn filled<K: CacheableKind>(cache: &ObjectCache<K>) {
    cache.observe(Event::Init);
    cache.observe(Event::InitDone);
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true})
}

fn pool() -> MachineSetGroup<Key> {
    MachineSetGroup::Deployment(Key::new("shoot", "pool"))
}

impl Shell {
    /// Deployments `pool` and `other` of 1 replica, without a surge, each with a set and so many Machines. The limit is
    /// 3.
    fn new(machines: usize) -> Self {
        let wire = Wire::new();
        let client = wire.client();
        let (deployments, sets, cached) = (
            crate::machine_deployment::CACHE.empty(),
            crate::machine_set::CACHE.empty(),
            crate::machine::CACHE.empty(),
        );
        let clock = Arc::new(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap()));
        let reconciler = OvershootReconciler {
            deployments: Arc::new(CachedApi::namespaced(&deployments, &client)),
            sets: Arc::new(CachedApi::namespaced(&sets, &client)),
            machines: Arc::new(CachedApi::namespaced(&cached, &client)),
            holds: Arc::default(),
            policy: OvershootPolicy::default(),
            events: EventRecorder::start(client, "test", Arc::clone(&clock) as _, MetricsRegistry::new()),
            clock: Arc::clone(&clock) as _,
        };
        let runner = ReconcileLoop::new(
            Arc::new(reconciler),
            WorkQueue::new("overshoot", QueuePacing::default()),
            Arc::default(),
            Arc::new(mcm_runtime::clock::SystemClock),
        );
        filled(&deployments);
        filled(&sets);
        filled(&cached);
        let shell = Self { wire, deployments, sets, machines: cached, clock, runner };
        for name in ["pool", "other"] {
            let deployment = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
                "metadata": {"name": name, "namespace": "shoot"},
                "spec": {"replicas": 1, "template": {}, "strategy": {"type": "Recreate"}},
            });
            let path = format!("machinedeployments/{name}");
            let deployment = shell.deployments.wrote(shell.wire.put(&path, &deployment));
            let set = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
                "metadata": {
                    "name": name, "namespace": "shoot",
                    "ownerReferences": [owner("MachineDeployment", name, &deployment.uid().unwrap())],
                },
                "spec": {"replicas": 1},
            });
            let set = shell.sets.wrote(shell.wire.put(&format!("machinesets/{name}"), &set));
            (0..machines).for_each(|index| shell.add(name, &set.uid().unwrap(), index));
        }
        shell
    }

    fn add(&self, set: &str, uid: &str, index: usize) {
        let name = format!("{set}-{index}");
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"name": name, "namespace": "shoot", "ownerReferences": [owner("MachineSet", set, uid)]},
            "spec": {},
        });
        self.machines.wrote(self.wire.put(&format!("machines/{name}"), &machine));
    }

    /// All Machines of a set but this many are deleted.
    fn keep(&self, set: &str, count: usize) {
        for machine in self.machines.all() {
            let (of, index) = machine.metadata.name.as_deref().and_then(|name| name.split_once('-')).unwrap();
            if of == set && index.parse::<usize>().unwrap() >= count {
                self.machines.removed(&Key::from_meta(&machine.metadata), &machine.uid().unwrap());
            }
        }
    }

    async fn check(&self, subject: &MachineSetGroup<Key>) -> Result<RequeueTime, ReconcileError> {
        self.runner.handle(subject).await
    }

    fn set(&self, name: &str) -> Value {
        self.wire.get(&format!("machinesets/{name}")).unwrap()
    }

    fn events(&self) -> usize {
        self.wire.count("PATCH")
    }
}

#[tokio::test]
async fn a_freeze_and_its_end_are_two_writes_of_each_object() {
    let shell = Shell::new(3);
    let RequeueTime::At(again) = shell.check(&pool()).await.unwrap() else { panic!("not checked again") };
    assert_eq!(again.to_string(), "2026-01-01T00:01:00Z");
    let expected = [
        "PATCH machinesets/pool/status",
        "PATCH machinesets/pool",
        "PATCH machinedeployments/pool/status",
        "PATCH machinedeployments/pool",
    ];
    assert_eq!(shell.wire.requests(), expected);
    let set = shell.set("pool");
    assert_eq!(set["metadata"]["labels"]["freeze"], "True");
    assert_eq!(set["status"]["machineSetCondition"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");

    shell.check(&pool()).await.unwrap();
    assert_eq!(shell.wire.requests().len(), 4, "what is frozen is not written again");

    shell.keep("pool", 2);
    shell.check(&pool()).await.unwrap();
    assert_eq!(shell.wire.requests()[4..], expected);
    let set = shell.set("pool");
    assert_eq!(
        (&set["metadata"]["labels"]["freeze"], &set["status"]["machineSetCondition"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn one_deployment_never_blocks_another() {
    let shell = Shell::new(3);
    shell.wire.judge(|request| if request.contains("/pool") { Fate::Refused } else { Fate::Answered });
    shell.check(&pool()).await.unwrap_err();
    shell.check(&MachineSetGroup::Deployment(Key::new("shoot", "other"))).await.unwrap();
    assert_eq!(shell.set("other")["metadata"]["labels"]["freeze"], "True");
    assert_eq!(shell.set("pool")["metadata"]["labels"]["freeze"], Value::Null);
}

#[tokio::test]
async fn the_annotation_stays_until_every_set_is_unfrozen() {
    let shell = Shell::new(3);
    shell.check(&pool()).await.unwrap();
    let annotation = json!({"metadata": {"annotations": {"safety.machine.sapcloud.io/unfreeze": "True"}}});
    shell.deployments.wrote(shell.wire.put("machinedeployments/pool", &annotation));
    shell.wire.judge(|request| if request == "PATCH machinesets/pool" { Fate::Refused } else { Fate::Answered });
    shell.check(&pool()).await.unwrap_err();
    let asks = || shell.wire.get::<Value>("machinedeployments/pool").unwrap()["metadata"]["annotations"].clone();
    assert_eq!(asks()["safety.machine.sapcloud.io/unfreeze"], "True");

    shell.wire.judge(|_| Fate::Answered);
    shell.check(&pool()).await.unwrap();
    assert_eq!((asks()["safety.machine.sapcloud.io/unfreeze"].clone(), shell.events() > 0), (Value::Null, true));
    assert_eq!(shell.set("pool")["metadata"]["labels"]["freeze"], Value::Null);

    shell.clock.advance(jiff::SignedDuration::from_mins(1));
    shell.check(&pool()).await.unwrap();
    assert_eq!(shell.set("pool")["metadata"]["labels"]["freeze"], "True", "it still has too many machines");
}

#[tokio::test]
async fn machines_that_cannot_be_decoded_count() {
    let shell = Shell::new(2);
    shell.check(&pool()).await.unwrap();
    assert_eq!(shell.wire.requests(), [""; 0]);
    let uid = shell.sets.get(&Key::new("shoot", "pool")).unwrap().uid().unwrap();
    let mut odd = json!({"metadata": {"name": "odd", "namespace": "shoot", "uid": "odd", "resourceVersion": "1"}});
    odd["metadata"]["ownerReferences"] = json!([owner("MachineSet", "pool", &uid)]);
    let metadata = serde_json::from_value(odd["metadata"].clone()).unwrap();
    let guard = GuardedObject::Unreadable { metadata: Box::new(metadata), error: "a duration".to_owned() };
    shell.machines.observe(Event::Apply(guard));
    shell.check(&pool()).await.unwrap();
    assert_eq!(shell.set("pool")["metadata"]["labels"]["freeze"], "True");
}

#[tokio::test]
async fn a_set_is_checked_with_its_deployment_or_by_itself() {
    let shell = Shell::new(3);
    let set = shell.sets.get(&Key::new("shoot", "pool")).unwrap();
    assert_eq!(subject_of(&shell.deployments, &set), Some(pool()));
    let alone = MachineSetGroup::Set(Key::new("shoot", "pool"));
    shell.check(&alone).await.unwrap();
    assert_eq!(shell.wire.requests(), [""; 0], "its deployment's key is another one");

    let orphan = json!({"metadata": {"ownerReferences": null}, "spec": {"replicas": 0}});
    shell.sets.wrote(shell.wire.put("machinesets/pool", &orphan));
    shell.check(&alone).await.unwrap();
    assert_eq!(shell.set("pool")["metadata"]["labels"]["freeze"], "True", "3 machines >= 2 * 0 + 2");
}

/// A paused Cluster of Cluster API.
#[tokio::test]
async fn a_set_that_is_held_is_not_frozen() {
    let shell = Shell::new(3);
    shell.runner.reconciler.holds.set(|_| Some("Cluster c to be unpaused".to_owned().into()));
    shell.check(&pool()).await.unwrap();
    assert_eq!(shell.wire.requests(), [""; 0]);
}
