//! The real executor against an API server that is slow, refuses, or loses its responses.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::{ResourceExt, runtime::watcher::Event};
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    machine_set::{Action, InFlightWrites, MachineSetReconciler, SetWritesInFlight},
    object::owner::is_controlled_by,
    testing::{Fate, Wire},
};
use mcm_api::machine::{Machine, MachineSet};
use mcm_rules::plan::PlanInput;
use mcm_runtime::{
    cache::{Key, ObjectCache},
    clock::SystemClock,
    events::EventRecorder,
    fence::{self, LeaseFence},
    metrics::MetricsRegistry,
    objects::CachedApi,
    queue::{QueuePacing, WorkQueue},
    reconcile::{ReconcileLoop, SnapshotReader},
    worker::{KeyReconciler, ReconcileError, RequeueTime},
};

/// One set, `machinesets/a`, of the deployment `pool`.
struct Shell {
    wire: Wire,
    sets: Arc<ObjectCache<MachineSet>>,
    machines: Arc<ObjectCache<Machine>>,
    in_flight: Arc<InFlightWrites>,
    woken: Arc<Mutex<Vec<Key>>>,
    metrics: MetricsRegistry,
    runner: ReconcileLoop<MachineSetReconciler>,
}

impl Shell {
    fn new(replicas: i32, machines: usize) -> Self {
        let (wire, sets, cached) = (Wire::new(), crate::machine_set::CACHE.empty(), crate::machine::CACHE.empty());
        let client = wire.client();
        let (clock, metrics) = (Arc::new(SystemClock), MetricsRegistry::new());
        let in_flight = Arc::<InFlightWrites>::default();
        let woken = Arc::<Mutex<Vec<Key>>>::default();
        let log = Arc::clone(&woken);
        in_flight.on_settled(move |key| log.lock().push(key.clone()));
        let reconciler = MachineSetReconciler {
            sets: Arc::new(CachedApi::namespaced(&sets, &client)),
            machines: Arc::new(CachedApi::namespaced(&cached, &client)),
            deployments: crate::machine_deployment::CACHE.empty(),
            classes: Arc::new(CachedApi::namespaced(&crate::machine_class::CACHE.empty(), &client)),
            secrets: Arc::new(CachedApi::namespaced(&crate::secret::CACHE.empty(), &client)),
            in_flight: Arc::clone(&in_flight),
            recent: Arc::default(),
            holds: Arc::default(),
            events: EventRecorder::start(client, "test", Arc::clone(&clock) as _, metrics.clone()),
            clock,
            measured: metrics.collector(),
            entropy: Arc::new(|| 7),
        };
        let runner = ReconcileLoop::new(
            Arc::new(reconciler),
            WorkQueue::new("sets", QueuePacing::default()),
            Arc::default(),
            Arc::new(SystemClock),
        );
        let shell = Self { wire, sets, machines: cached, in_flight, woken, metrics, runner };
        shell.edit(&json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": {
                "name": "a", "namespace": "shoot", "finalizers": [mcm_api::labels::FINALIZER],
                "ownerReferences": [owner("MachineDeployment", "pool", "pool")],
            },
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"name": "pool"}},
                "template": {"metadata": {"labels": {"name": "pool"}}, "spec": {"class": {"kind": "MachineClass", "name": "c"}}},
            },
        }));
        for index in 0..machines {
            let name = format!("m{index:03}");
            let machine = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": {
                    "name": name, "namespace": "shoot", "labels": {"name": "pool"}, "finalizers": ["x"],
                    "ownerReferences": [owner("MachineSet", "a", &shell.uid())],
                },
                "spec": {"class": {"kind": "MachineClass", "name": "c"}},
                "status": {"currentStatus": {"phase": "Running"}},
            });
            shell.machines.wrote(shell.wire.put(&format!("machines/{name}"), &machine));
        }
        shell
    }

    /// Changes the set as another client; the watch reports it.
    fn edit(&self, change: &Value) {
        self.sets.wrote(self.wire.put("machinesets/a", change));
    }

    async fn reconcile(&self) -> Result<RequeueTime, ReconcileError> {
        self.runner.handle(&key()).await
    }

    fn in_flight(&self) -> SetWritesInFlight {
        self.in_flight.set_writes(&self.uid())
    }

    fn uid(&self) -> String {
        self.sets.get(&key()).unwrap().uid().unwrap()
    }

    fn alive(&self) -> usize {
        self.machines.all().iter().filter(|machine| !machine.is_terminating()).count()
    }

    /// Calls `then` before the first request that begins so, and lets all pass.
    fn before_first(&self, head: &'static str, then: impl FnOnce() + Send + 'static) {
        let mut then = Some(then);
        self.wire.judge(move |request| {
            if request.starts_with(head)
                && let Some(then) = then.take()
            {
                then();
            }
            Fate::Answered
        });
    }
}

fn key() -> Key {
    Key::new("shoot", "a")
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true})
}

#[rstest]
#[case::made_smaller(json!({"spec": {"replicas": 3}}), 3)]
#[case::frozen(json!({"metadata": {"labels": {"freeze": "True"}}}), 1)]
#[case::deleted(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), 1)]
#[tokio::test]
async fn a_batch_of_creations_ends_when_the_set_asks_for_something_else(#[case] change: Value, #[case] created: usize) {
    let shell = Shell::new(80, 0);
    let (wire, sets) = (shell.wire.clone(), Arc::clone(&shell.sets));
    shell.before_first("POST machines", move || drop(sets.wrote(wire.put("machinesets/a", &change))));
    shell.reconcile().await.unwrap();
    assert_eq!(shell.wire.count("POST machines"), created);
    assert_eq!(shell.in_flight(), SetWritesInFlight::default(), "what is not made is in flight no longer");
}

#[tokio::test]
async fn a_batch_of_creations_ends_when_the_lease_is_lost() {
    let (shell, fence) = (Shell::new(80, 0), LeaseFence::default());
    let closing = fence.clone();
    shell.before_first("POST machines", move || closing.close());
    fence::within(fence, shell.reconcile()).await.unwrap();
    assert_eq!(shell.wire.count("POST machines"), 1);
    assert_eq!(shell.in_flight(), SetWritesInFlight::default());
}

#[tokio::test]
async fn a_batch_of_deletions_ends_when_the_set_asks_for_something_else() {
    let shell = Shell::new(0, 90);
    let (wire, sets) = (shell.wire.clone(), Arc::clone(&shell.sets));
    let change = json!({"spec": {"replicas": 90}});
    shell.before_first("DELETE machines", move || drop(sets.wrote(wire.put("machinesets/a", &change))));
    shell.reconcile().await.unwrap();
    assert!(shell.wire.count("DELETE machines") <= 32, "{}", shell.wire.count("DELETE machines"));
    assert_eq!(shell.alive(), 90, "those that went are replaced");
}

/// A Machine without finalizer can be deleted, although no driver could say whether it has a VM.
#[rstest]
#[case::class_and_secret_exist(Some("s"), "shoot", true, true)]
#[case::unknown(None, "shoot", false, true)]
#[case::no_class(None, "shoot", true, false)]
#[case::no_secret(Some("gone"), "shoot", true, false)]
#[case::secret_of_another_namespace(Some("s"), "garden", true, false)]
#[tokio::test]
async fn a_machine_has_the_finalizer_from_birth_if_its_class_and_secrets_exist(
    #[case] secret: Option<&str>,
    #[case] namespace: &str,
    #[case] is_synced: bool,
    #[case] is_held: bool,
) {
    let shell = Shell::new(1, 0);
    let MachineSetReconciler { classes, secrets, .. } = &*shell.runner.reconciler;
    if is_synced {
        for event in [Event::Init, Event::InitDone] {
            classes.cache.observe(event);
        }
        for event in [Event::Init, Event::InitDone] {
            secrets.cache.observe(event);
        }
    }
    let stored = |name: &str| json!({"name": name, "namespace": "shoot", "uid": name, "resourceVersion": "1"});
    secrets.cache.wrote(serde_json::from_value(json!({"metadata": stored("s")})).unwrap());
    if let Some(secret) = secret {
        let reference = json!({"name": secret, "namespace": namespace});
        let class = json!({"metadata": stored("c"), "providerSpec": {}, "credentialsSecretRef": reference});
        classes.cache.wrote(serde_json::from_value(class).unwrap());
    }
    shell.reconcile().await.unwrap();
    let made = shell.wire.all::<Machine>("machines");
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].metadata.finalizers.is_some(), is_held);
}

/// Otherwise the set would not count them as terminating, and could delete others in their stead.
#[tokio::test]
async fn a_rejected_delete_does_not_cut_those_beside_it() {
    let shell = Shell::new(0, 90);
    shell.wire.judge(|request| if request.ends_with("machines/m000") { Fate::Refused } else { Fate::Answered });
    shell.reconcile().await.unwrap_err();
    assert!(shell.wire.count("DELETE machines") <= 32, "none is made after it failed");
    let going = shell.wire.all::<Machine>("machines").iter().filter(|machine| machine.is_terminating()).count();
    assert!(going > 0);
    assert_eq!((shell.alive(), shell.in_flight()), (90 - going, SetWritesInFlight::default()));
}

#[tokio::test]
async fn one_plan_creates_a_hundred_machines_at_most() {
    let shell = Shell::new(150, 0);
    let seen = Arc::<Mutex<usize>>::default();
    let (in_flight, uid, peak) = (Arc::clone(&shell.in_flight), shell.uid(), Arc::clone(&seen));
    shell.wire.judge(move |_| {
        let count = in_flight.set_writes(&uid).creates.len();
        let mut peak = peak.lock();
        *peak = count.max(*peak);
        Fate::Answered
    });
    shell.reconcile().await.unwrap();
    assert_eq!((*seen.lock(), shell.alive()), (100, 150), "all that is planned is announced before the first call");
}

#[tokio::test]
async fn a_rejected_create_fails_fast_and_leaves_nothing_in_flight() {
    let shell = Shell::new(60, 0);
    shell.wire.judge(|request| if request.starts_with("POST") { Fate::Refused } else { Fate::Answered });
    shell.reconcile().await.unwrap_err();
    assert_eq!(shell.wire.count("POST machines"), 1, "slow start");
    assert_eq!(shell.in_flight(), SetWritesInFlight::default());
    assert_eq!(*shell.woken.lock(), [Key::new("shoot", "pool")], "the deployment has its room back");
}

/// The first creation of the second plan is not answered.
#[tokio::test(start_paused = true)]
async fn after_a_plan_of_creations_the_next_one_does_not_start_slowly() {
    let (shell, mut count) = (Shell::new(150, 0), 0);
    shell.wire.judge(move |request| {
        count += usize::from(request == "POST machines");
        if count == 101 && request == "POST machines" { Fate::Silent } else { Fate::Answered }
    });
    timeout(Duration::from_secs(1), shell.reconcile()).await.unwrap_err();
    assert_eq!(shell.wire.count("POST machines"), 150);
}

#[tokio::test]
async fn a_rejected_create_stops_those_behind_it() {
    let (shell, mut count) = (Shell::new(200, 0), 0);
    shell.wire.judge(move |request| {
        count += usize::from(request == "POST machines");
        if count > 100 && request == "POST machines" { Fate::Refused } else { Fate::Answered }
    });
    shell.reconcile().await.unwrap_err();
    let created = shell.wire.count("POST machines");
    assert!((101..=132).contains(&created), "{created}");
    assert_eq!(shell.in_flight(), SetWritesInFlight::default());
    shell.reconcile().await.unwrap_err();
    assert_eq!(shell.wire.count("POST machines"), created + 1, "it starts slowly again");
}

#[tokio::test]
async fn the_deployment_is_woken_when_nothing_is_in_flight_any_more() {
    let shell = Shell::new(2, 0);
    shell.reconcile().await.unwrap();
    assert_eq!(*shell.woken.lock(), [Key::new("shoot", "pool")]);
}

#[tokio::test]
async fn a_machine_whose_creation_was_not_answered_is_in_flight_until_it_was_read_and_is_not_made_twice() {
    let shell = Shell::new(1, 0);
    shell.wire.judge(|request| if request.starts_with("POST") { Fate::Lost } else { Fate::Answered });
    shell.reconcile().await.unwrap_err();
    assert_eq!((shell.in_flight().creates.len(), shell.wire.len("machines")), (1, 1));
    assert_eq!(*shell.woken.lock(), []);

    shell.wire.judge(|request| if request.starts_with("GET") { Fate::Unavailable } else { Fate::Answered });
    shell.reconcile().await.unwrap_err();
    assert_eq!(shell.wire.requests().last().unwrap().split('/').next(), Some("GET machines"), "nothing is planned");
    assert_eq!(shell.in_flight().creates.len(), 1);

    shell.wire.judge(|_| Fate::Answered);
    shell.reconcile().await.unwrap();
    assert_eq!(
        (shell.wire.count("POST machines"), shell.machines.all().len()),
        (1, 1),
        "what was read is in the cache"
    );
    assert_eq!(shell.in_flight(), SetWritesInFlight::default());
    assert_eq!(*shell.woken.lock(), [Key::new("shoot", "pool")]);
}

#[tokio::test]
async fn a_machine_whose_deletion_was_not_answered_is_in_flight_until_it_was_read() {
    let shell = Shell::new(1, 2);
    shell.wire.judge(|request| if request.starts_with("DELETE") { Fate::Lost } else { Fate::Answered });
    shell.reconcile().await.unwrap_err();
    let deleted = shell.in_flight().deletes.into_iter().next().unwrap();
    shell.wire.judge(|_| Fate::Answered);
    shell.reconcile().await.unwrap();
    assert!(shell.machines.get(&Key::new("shoot", &deleted)).unwrap().is_terminating());
    assert_eq!((shell.wire.count("DELETE"), shell.in_flight()), (1, SetWritesInFlight::default()));
}

#[tokio::test]
async fn an_aborted_reconcile_leaves_nothing_in_flight() {
    let shell = Shell::new(40, 0);
    let mut reconcile = Box::pin(shell.reconcile());
    for _ in 0..20 {
        assert!(reconcile.as_mut().now_or_never().is_none());
        if !shell.in_flight().creates.is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(!shell.in_flight().creates.is_empty());
    drop(reconcile);
    assert_eq!(shell.in_flight(), SetWritesInFlight::default());
}

#[tokio::test]
async fn deletions_carry_the_uid_and_patches_the_version_that_was_seen() {
    let shell = Shell::new(1, 1);
    // Another Machine has taken the name since.
    let first = shell.machines.all()[0].uid();
    let mut successor: Value = shell.wire.get("machines/m000").unwrap();
    successor["metadata"]["resourceVersion"] = Value::Null;
    shell.wire.remove("machines/m000");
    shell.wire.put::<Machine>("machines/m000", &successor);
    shell.edit(&json!({"spec": {"replicas": 0}}));
    // The precondition fails: the intended object is deleted.
    drop(shell.reconcile().await);
    assert!(shell.wire.count("DELETE machines/m000") > 0);
    let successor: Machine = shell.wire.get("machines/m000").unwrap();
    assert!(successor.uid() != first && !successor.is_terminating());
}

/// The cache of a process that was stopped for a while is old.
#[tokio::test]
async fn a_machine_that_has_changed_since_the_plan_is_not_deleted() {
    let shell = Shell::new(0, 1);
    shell.wire.put::<Machine>("machines/m000", &json!({"metadata": {"annotations": {"a": "b"}}}));
    assert!(matches!(shell.reconcile().await, Err(ReconcileError::Write(_))));
    assert_eq!(shell.wire.count("DELETE machines/m000"), 1);
    assert!(!shell.wire.get::<Machine>("machines/m000").unwrap().is_terminating());
}

/// The set was deleted with the policy `Orphan`, and the watch of its Machines is ahead.
#[tokio::test]
async fn a_set_that_is_deleted_unnoticed_adopts_nothing() {
    let shell = Shell::new(1, 1);
    shell.machines.wrote(shell.wire.put("machines/m000", &json!({"metadata": {"ownerReferences": []}})));
    shell.wire.put::<MachineSet>("machinesets/a", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    shell.reconcile().await.unwrap();
    let machine: Machine = shell.wire.get("machines/m000").unwrap();
    assert!(machine.owner_references().is_empty() && !machine.is_terminating());
    assert_eq!((shell.wire.count("POST"), shell.wire.count("PATCH machines/")), (0, 0));
}

#[tokio::test]
async fn a_machine_is_adopted_after_its_set_was_read() {
    let shell = Shell::new(1, 1);
    shell.machines.wrote(shell.wire.put("machines/m000", &json!({"metadata": {"ownerReferences": []}})));
    shell.reconcile().await.unwrap();
    assert!(is_controlled_by(&shell.wire.get::<Machine>("machines/m000").unwrap().metadata, &shell.uid()));
    assert_eq!(shell.wire.count("GET machinesets/a"), 1);
}

/// The garbage collector removed its finalizer from the set before the cache heard of the Machines that it released.
#[tokio::test]
async fn a_set_that_goes_leaves_a_machine_that_was_released_unnoticed() {
    let shell = Shell::new(2, 2);
    shell.edit(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    shell.wire.put::<Machine>("machines/m000", &json!({"metadata": {"ownerReferences": []}}));
    shell.reconcile().await.unwrap_err();
    let is_going = |name: &str| shell.wire.get::<Machine>(name).unwrap().is_terminating();
    assert_eq!((is_going("machines/m000"), is_going("machines/m001")), (false, true));
    assert!(shell.runner.reconciler.events.flush(Duration::from_secs(5)).await);
    let reasons: Vec<_> = shell.wire.all::<CoreEvent>("events").into_iter().filter_map(|event| event.reason).collect();
    assert_eq!(reasons, ["SuccessfulDelete"], "a conflict is only retried");
}

#[tokio::test]
async fn the_loop_asks_the_lint() {
    let shell = Shell::new(1, 1);
    let reconciler = &shell.runner.reconciler;
    let snapshot = reconciler.observe(&key(), &Default::default(), &Default::default()).unwrap();
    let mut plan = snapshot.plan();
    assert_eq!(snapshot.lint(&plan), None);
    plan.then(Action::DeleteMachine(Arc::clone(&snapshot.machines[0])), "no reason");
    let refusal = snapshot.lint(&plan).unwrap();
    assert!(refusal.starts_with("it would delete too many machines: machine m000 "), "{refusal}");
}

#[rstest]
#[case::for_its_health("HealthCheck", 1)]
#[case::for_its_creation("Create", 0)]
#[tokio::test]
async fn a_machine_that_is_replaced_for_its_health_is_counted(#[case] operation: &str, #[case] expected: usize) {
    let shell = Shell::new(1, 1);
    let failed = json!({"status": {"currentStatus": {"phase": "Failed"}, "lastOperation": {"type": operation, "state": "Failed"}}});
    shell.machines.wrote(shell.wire.put("machines/m000", &failed));
    shell.reconcile().await.unwrap();
    let text = shell.metrics.render();
    assert!(text.contains(&format!("\nmcm_machine_stale_machines_total {expected}\n")), "{text}");
}

#[rstest]
#[case::create(1, 0, "POST machines", "FailedCreate")]
#[case::delete(0, 1, "DELETE machines", "FailedDelete")]
#[tokio::test]
async fn a_refused_call_is_told_in_an_event_of_the_set(
    #[case] replicas: i32,
    #[case] machines: usize,
    #[case] refused: &'static str,
    #[case] reason: &str,
) {
    let shell = Shell::new(replicas, machines);
    shell.wire.judge(move |request| if request.starts_with(refused) { Fate::Refused } else { Fate::Answered });
    shell.reconcile().await.unwrap_err();
    assert!(shell.runner.reconciler.events.flush(Duration::from_secs(5)).await);
    let told: Vec<CoreEvent> = shell.wire.all("events");
    let told: Vec<_> = told
        .iter()
        .map(|event| {
            let component = event.source.as_ref().and_then(|source| source.component.as_deref());
            (event.type_.as_deref(), event.reason.as_deref(), event.involved_object.kind.as_deref(), component)
        })
        .collect();
    assert_eq!(told, [(Some("Warning"), Some(reason), Some("MachineSet"), Some("machineset-controller"))]);
}

#[tokio::test]
async fn a_set_deletes_a_machine_and_leaves_its_status_to_the_machine_controller() {
    let shell = Shell::new(0, 1);
    let before: Value = shell.wire.get("machines/m000").unwrap();
    shell.reconcile().await.unwrap();
    assert_eq!((shell.wire.count("DELETE machines/m000"), shell.wire.count("PATCH machines/")), (1, 0));
    let after: Value = shell.wire.get("machines/m000").unwrap();
    assert_eq!(after["status"], before["status"]);
}
