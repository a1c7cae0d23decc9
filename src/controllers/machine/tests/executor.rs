//! The executor against an API server that records: what is read, with which preconditions, and what follows from answers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{PersistentVolumeSpec, Secret};
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    api::{Api, Call, Reply, status},
    world::{at, ready, unready},
};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineClass, MachinePhase},
    },
    controllers::{
        machine::{
            Action, Memory, Policy, Ports,
            apply::{Lanes, Machines},
            take_permit, token,
        },
        node,
        secret::MetadataOfSecret,
    },
    driver::{
        Capabilities, Catalogue, Code, Driver, DriverError, Guards, MachineRequest, SecretData, Vm, spec::Problems,
    },
    runtime::{
        cache::{Cache, Cached, Key},
        cell::Kept,
        clock::{Clock, ManualClock},
        events::Events,
        limiter::Rate,
        metrics::Metrics,
        objects::Objects,
        queue::{Pacing, Queue},
        reconcile::{Loop, Reconciler, States},
        secrets::Secrets,
        target::{Assignment, Target, TargetClients, TargetId, Targets},
        worker::{Handler, ReconcileError, Requeue},
    },
    safety::meltdown::{Group, PermitKey},
};

const MACHINES: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/ns/machines";
const NODE: &str = "/api/v1/nodes/n";
const PODS: &str = "/api/v1/namespaces/apps/pods";
const CLAIMS: &str = "/api/v1/namespaces/apps/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

type Hook = Box<dyn Fn(&str) + Send + Sync>;

/// One VM at most, and a hook that runs while a call is under way.
#[derive(Default)]
struct Cloud {
    vm: Mutex<Option<Vm>>,
    calls: Mutex<Vec<&'static str>>,
    /// The user data of each call.
    user_data: Mutex<Vec<String>>,
    failure: Mutex<Option<DriverError>>,
    hook: Mutex<Option<Hook>>,
}

impl Cloud {
    fn asked(&self, call: &'static str, request: &MachineRequest) -> Result<(), DriverError> {
        let user_data = request.secret.0.get("userData").map(|data| String::from_utf8_lossy(data).into_owned());
        self.user_data.lock().push(user_data.unwrap_or_default());
        self.called(call)
    }

    fn called(&self, call: &'static str) -> Result<(), DriverError> {
        self.calls.lock().push(call);
        if let Some(hook) = &*self.hook.lock() {
            hook(call);
        }
        self.failure.lock().clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Driver for Cloud {
    fn name(&self) -> &'static str {
        "cloud"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn validate(&self, _: &MachineClass) -> Problems {
        Problems::default()
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.asked("create", request)?;
        let vm = Vm { provider_id: "cloud:///1".to_owned(), node_name: "n".to_owned(), ..Vm::default() };
        *self.vm.lock() = Some(vm.clone());
        Ok(vm)
    }

    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.asked("initialize", request)?;
        Ok(Vm::default())
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        self.asked("delete", request)?;
        *self.vm.lock() = None;
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.asked("status", request)?;
        self.vm.lock().clone().ok_or_else(|| DriverError::new(Code::NotFound, "no such VM"))
    }

    async fn list(&self, _: &MachineClass, _: &SecretData) -> Result<BTreeMap<String, String>, DriverError> {
        Ok(BTreeMap::new())
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        self.called("volume_ids")?;
        Ok(specs.iter().filter_map(|spec| spec.csi.as_ref().map(|csi| csi.volume_handle.clone())).collect())
    }
}

struct Shop {
    api: Api,
    cloud: Arc<Cloud>,
    clock: ManualClock,
    context: Arc<Ports>,
    target: Arc<Target>,
    states: Arc<States<Machines>>,
    reconciler: Loop<Machines>,
    metrics: Metrics,
}

fn key() -> Key {
    Key::new("ns", "m")
}

/// The first listing is over, and had nothing.
fn filled<K: Cached>(cache: &Cache<K>) {
    cache.observe(Event::Init);
    cache.observe(Event::InitDone);
}

impl Shop {
    fn new() -> Self {
        Self::with_evictions(Rate { qps: 0.0, burst: 0 })
    }

    fn with_evictions(evictions: Rate) -> Self {
        let (api, cloud, clock) = (Api::default(), Arc::new(Cloud::default()), ManualClock::at(at(100)));
        let client = api.client();
        let (machines, classes, secrets) = (Machine::cache(), MachineClass::cache(), MetadataOfSecret::cache());
        filled(&machines);
        filled(&classes);
        filled(&secrets);
        let targets = Targets::new(Assignment::One(TargetId::only()), node::cache);
        let target = targets.connect(&TargetId::only(), &TargetClients { evictions, ..TargetClients::one(&client) });
        filled(&target.nodes.cache);
        let (time, metrics): (Arc<dyn Clock>, _) = (Arc::new(clock.clone()), Metrics::new());
        let queue = Queue::new("machine", Pacing::default());
        let context = Arc::new(Ports {
            machines: Arc::new(Objects::namespaced(&machines, &client)),
            classes: Arc::new(Objects::namespaced(&classes, &client)),
            secrets: Secrets::new(secrets, &client),
            targets,
            drivers: Arc::new(Catalogue::of([Arc::clone(&cloud) as Arc<dyn Driver>], &Guards::unobserved())),
            lanes: Lanes::new(1, Arc::clone(&queue)),
            queue: Arc::clone(&queue),
            permits: Arc::default(),
            holds: Arc::default(),
            servers: Arc::default(),
            policy: Policy::default(),
            events: Events::start(Api::default().client(), "test", Arc::clone(&time), metrics.clone()),
            measured: metrics.of(),
            clock: time,
        });
        let states = Arc::<States<Machines>>::default();
        let reconciler = Loop::new(Machines { context: Arc::clone(&context) }, queue, Arc::clone(&states));
        let shop = Self { api, cloud, clock, context, target, states, reconciler, metrics };
        let class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": { "name": "c", "namespace": "ns", "uid": "class", "resourceVersion": "1", "finalizers": [labels::FINALIZER] },
            "secretRef": { "name": "s", "namespace": "ns" },
        });
        shop.context.classes.cache.wrote(serde_json::from_value(class).unwrap());
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "ns" }, "data": { "userData": "eA==" } });
        shop.api.put("/api/v1/namespaces/ns/secrets/s", secret);
        shop
    }

    /// A Machine that its set made, with changes; in the API server and in the cache.
    fn machine(&self, name: &str, patch: Value) {
        let mut value = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "creationTimestamp": at(0),
                "labels": { "name": "pool" }, "finalizers": [labels::FINALIZER],
                "annotations": { labels::PRIORITY: "3" },
            },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } },
        });
        crate::controllers::testing::merge(&mut value, &patch);
        let stored = self.api.put(&format!("{MACHINES}/{name}"), value);
        self.context.machines.cache.wrote(serde_json::from_value(stored).unwrap());
    }

    /// A Machine with VM and Node name, in a phase.
    fn linked(&self, phase: &str, patch: &Value) {
        let mut value = json!({
            "metadata": { "labels": { "node": "n" } }, "spec": { "providerID": "cloud:///1" },
            "status": {
                "currentStatus": { "phase": phase, "lastUpdateTime": at(0) }, "conditions": ready(),
                "lastOperation": { "type": "HealthCheck", "state": "Processing", "lastUpdateTime": at(0) },
            },
        });
        crate::controllers::testing::merge(&mut value, patch);
        self.machine("m", value);
        *self.cloud.vm.lock() =
            Some(Vm { provider_id: "cloud:///1".to_owned(), node_name: "n".to_owned(), ..Vm::default() });
    }

    fn deleted(&self) {
        self.linked("Running", &json!({ "metadata": { "deletionTimestamp": at(90) } }));
    }

    /// A Node that is in the API server only.
    fn node(&self, conditions: &Value) {
        self.api.put(
            NODE,
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {
                    "name": "n", "uid": "node", "labels": { labels::MACHINE_NAME: "m" }, "finalizers": [labels::NODE_FINALIZER],
                },
                "spec": { "providerID": "cloud:///1" }, "status": { "conditions": conditions },
            }),
        );
    }

    /// It is in the cache, too.
    fn known_node(&self, conditions: &Value) {
        self.node(conditions);
        self.target.nodes.cache.wrote(serde_json::from_value(self.api.get(NODE).unwrap()).unwrap());
    }

    fn pod(&self, name: &str, node: &str) {
        self.api.put(
            &format!("{PODS}/{name}"),
            json!({ "metadata": { "name": name, "namespace": "apps", "uid": format!("pod-{name}") }, "spec": { "nodeName": node, "containers": [] } }),
        );
    }

    /// A pod whose claim `data` is bound to the volume `pv`, which is attached to its Node.
    fn pod_with_volume(&self, name: &str, spec: &Value) {
        let claim = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data" } });
        self.api.put(
            &format!("{PODS}/{name}"),
            json!({
                "metadata": { "name": name, "namespace": "apps", "uid": format!("pod-{name}") },
                "spec": { "nodeName": "n", "containers": [], "volumes": [claim] },
            }),
        );
        let (claim, volume) = (json!({ "volumeName": "pv" }), json!({ "name": "pv" }));
        self.api.put(
            &format!("{CLAIMS}/data"),
            json!({ "metadata": { "name": "data", "namespace": "apps" }, "spec": claim }),
        );
        self.api.put(&format!("{CLAIMS}/other"), json!({ "metadata": { "name": "other", "namespace": "apps" } }));
        self.api.put(&format!("{VOLUMES}/pv"), json!({ "metadata": volume, "spec": spec }));
        self.attached(&["vol-1"]);
    }

    /// The Node has these volumes; in the API server and in the cache.
    fn attached(&self, ids: &[&str]) {
        let mut node = self.api.get(NODE).unwrap();
        let volumes: Vec<Value> =
            ids.iter().map(|id| json!({ "name": format!("kubernetes.io/csi/d^{id}"), "devicePath": "" })).collect();
        node["status"]["volumesAttached"] = json!(volumes);
        let node = self.api.put(NODE, node);
        self.target.nodes.cache.wrote(serde_json::from_value(node).unwrap());
    }

    fn attachment(&self, name: &str, node: &str, metadata: &Value) -> Value {
        let mut attachment = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}") },
            "spec": { "attacher": "d", "nodeName": node, "source": { "persistentVolumeName": "pv" } },
            "status": { "attached": true },
        });
        crate::controllers::testing::merge(&mut attachment["metadata"], metadata);
        self.api.put(&format!("{ATTACHMENTS}/{name}"), attachment)
    }

    fn stored(&self) -> Machine {
        serde_json::from_value(self.api.get(&format!("{MACHINES}/m")).unwrap()).unwrap()
    }

    async fn reconcile(&self) -> Result<Requeue, ReconcileError> {
        self.reconciler.handle(&key()).await
    }

    fn wait(&self, seconds: i64) {
        self.clock.advance(SignedDuration::from_secs(seconds));
    }

    fn calls(&self, verb: &str, end: &str) -> Vec<Call> {
        self.api.calls().into_iter().filter(|call| call.is(verb, end)).collect()
    }
}

#[tokio::test]
async fn a_machine_comes_to_life_and_ends_with_everything_that_it_had() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    shop.reconcile().await.unwrap();
    assert_eq!((shop.stored().phase(), shop.stored().spec.provider_id.as_str()), (MachinePhase::Pending, "cloud:///1"));
    assert_eq!(*shop.cloud.calls.lock(), ["status", "create"]);
    shop.known_node(&ready());
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().phase(), MachinePhase::Running);
    shop.machine("m", json!({
        "metadata": { "labels": { "node": "n" }, "deletionTimestamp": at(101) }, "spec": { "providerID": "cloud:///1" },
    }));
    shop.reconcile().await.unwrap();
    assert!(shop.api.get(&format!("{MACHINES}/m")).is_none() && shop.api.get(NODE).is_none());
    assert!(shop.cloud.vm.lock().is_none());
}

#[tokio::test]
async fn only_the_pods_of_its_node_are_evicted_and_only_this_incarnation_of_them() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod("mine", "n");
    shop.pod("other", "elsewhere");
    shop.reconcile().await.unwrap();
    let evictions = shop.calls("POST", "/eviction");
    assert_eq!(evictions.len(), 1);
    assert!(evictions[0].path.ends_with("/pods/mine/eviction"));
    assert_eq!(evictions[0].body["deleteOptions"]["preconditions"]["uid"], "pod-mine");
    assert!(shop.api.get(&format!("{PODS}/other")).is_some());
    let listed = shop.calls("GET", "/pods");
    assert!(!listed.is_empty() && listed.iter().all(|call| call.query.contains("spec.nodeName%3Dn")), "{listed:?}");
}

#[tokio::test]
async fn a_pod_is_killed_at_once_and_only_this_incarnation_of_it() {
    let shop = Shop::new();
    shop.linked(
        "Running",
        &json!({ "metadata": { "deletionTimestamp": at(90), "labels": { "force-deletion": "true" } } }),
    );
    shop.known_node(&ready());
    shop.pod("mine", "n");
    shop.reconcile().await.unwrap();
    let deletes = shop.calls("DELETE", "/pods/mine");
    assert_eq!(deletes.len(), 1);
    assert_eq!(deletes[0].body["preconditions"]["uid"], "pod-mine");
    assert_eq!(deletes[0].body["gracePeriodSeconds"], 0);
    assert!(shop.calls("POST", "/eviction").is_empty());
}

#[tokio::test]
async fn refusals_are_explained_with_one_listing_of_budgets_and_pods_are_called_together() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    for number in 0..12 {
        shop.pod(&format!("p{number}"), "n");
    }
    shop.api.put(
        "/apis/policy/v1/namespaces/apps/poddisruptionbudgets/budget",
        json!({ "metadata": { "name": "budget", "namespace": "apps" }, "spec": { "selector": {} } }),
    );
    shop.api.rule(|call| call.is("POST", "/eviction").then(|| Reply::Say(429, status(429, "TooManyRequests", ""))));
    shop.reconcile().await.unwrap();
    assert_eq!((shop.calls("POST", "/eviction").len(), shop.calls("GET", "/apps/poddisruptionbudgets").len()), (12, 1));
    assert!((2..=10).contains(&shop.api.most_in_flight()), "{}", shop.api.most_in_flight());
    let text = shop.stored().status.unwrap().last_operation.description;
    assert_eq!(text, "Evictions are refused by the disruption budget apps/budget. Initiate node drain");
}

#[rstest]
#[case::the_budget_went(404, "budget")]
#[case::the_budget_was_written(409, "p")]
#[tokio::test]
async fn a_refusal_that_may_be_about_the_budget_does_not_end_a_drain(#[case] code: u16, #[case] about: &'static str) {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod("p", "n");
    shop.api.rule(move |call| call.is("POST", "/eviction").then(|| Reply::Say(code, status(code, "Because", about))));
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.calls.lock().is_empty(), "the VM must not be deleted under a pod that runs");
    assert_eq!(shop.calls("GET", "/pods").len(), 2, "listed again");
}

#[tokio::test]
async fn force_is_seen_while_a_drain_is_under_way() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod("p", "n");
    let machines = Arc::clone(&shop.context.machines.cache);
    shop.api.rule(move |call| {
        call.is("POST", "/eviction").then(|| {
            let mut machine = Machine::clone(&machines.get(&key()).unwrap());
            machine.metadata.labels.as_mut().unwrap().insert("force-deletion".to_owned(), "true".to_owned());
            machine.metadata.resource_version = Some("50".to_owned());
            machines.wrote(machine);
            Reply::Say(429, status(429, "TooManyRequests", ""))
        })
    });
    let _conflict = shop.reconcile().await;
    assert_eq!(shop.calls("DELETE", "/pods/p").len(), 1, "{:?}", shop.api.told());
}

#[rstest]
#[case::a_drain_is_not_skipped(json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:01:00Z" } }), "Running", 1)]
#[case::a_running_machine_stays_so(json!({}), "Running", 0)]
#[case::a_late_one_joins_after_all(json!({ "metadata": { "creationTimestamp": "2027-01-01T00:00:00Z" } }), "Pending", 0)]
#[tokio::test]
async fn a_node_that_the_cache_lacks_is_read_live(#[case] patch: Value, #[case] phase: &str, #[case] evictions: usize) {
    let shop = Shop::new();
    shop.linked(phase, &patch);
    shop.node(&ready());
    shop.pod("p", "n");
    shop.reconcile().await.unwrap();
    assert!(!shop.calls("GET", NODE).is_empty());
    assert_eq!(shop.calls("POST", "/eviction").len(), evictions);
    if evictions == 0 {
        assert_eq!(shop.stored().phase(), MachinePhase::Running);
    }
}

#[rstest]
#[case::away(503, json!({}))]
#[case::its_kind_is_not_served(404, status(404, "NotFound", ""))]
#[case::undecodable(200, json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" }, "status": { "conditions": "nonsense" } }))]
#[tokio::test]
async fn a_node_that_cannot_be_read_is_waited_for(
    #[values("Running", "Pending", "Unknown", "deleted")] phase: &str,
    #[case] code: u16,
    #[case] body: Value,
) {
    let shop = Shop::new();
    match phase {
        "deleted" => shop.deleted(),
        phase => shop.linked(phase, &json!({ "metadata": { "creationTimestamp": "2027-01-01T00:00:00Z" } })),
    }
    shop.wait(3600);
    shop.api.rule(move |call| call.is("GET", NODE).then(|| Reply::Say(code, body.clone())));
    let requeue = shop.reconcile().await.unwrap();
    assert_eq!(shop.api.told(), ["GET n"], "nothing is written, and the cloud is not called");
    assert!(shop.cloud.calls.lock().is_empty());
    assert_eq!(requeue, Requeue::At(at(3705)));
}

#[tokio::test]
async fn a_machine_without_a_node_name_finds_its_node_by_a_live_listing() {
    let shop = Shop::new();
    shop.machine("m", json!({ "metadata": { "deletionTimestamp": at(90) }, "spec": { "providerID": "cloud:///1" } }));
    shop.node(&ready());
    shop.pod("p", "n");
    shop.reconcile().await.unwrap();
    let listed = shop.calls("GET", "/nodes");
    assert!(listed[0].query.contains("node.gardener.cloud%2Fmachine-name%3Dm"), "{listed:?}");
    assert_eq!(shop.calls("POST", "/eviction").len(), 1);
}

#[tokio::test]
async fn a_node_that_joins_during_a_call_is_seen_in_the_same_reconcile() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    let (nodes, api) = (Arc::clone(&shop.target.nodes.cache), shop.api.clone());
    shop.node(&ready());
    *shop.cloud.hook.lock() = Some(Box::new(move |call| {
        if call == "create" {
            nodes.wrote(serde_json::from_value(api.get(NODE).unwrap()).unwrap());
        }
    }));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().phase(), MachinePhase::Running);
}

#[tokio::test]
async fn what_the_cloud_said_of_a_machine_is_not_believed_of_the_next_one_of_its_name() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    let (machines, api) = (Arc::clone(&shop.context.machines.cache), shop.api.clone());
    *shop.cloud.hook.lock() = Some(Box::new(move |call| {
        let path = format!("{MACHINES}/m");
        let mut machine = api.get(&path).unwrap();
        if call == "status" && machine["metadata"]["uid"] == "uid-m" {
            machine["metadata"]["uid"] = "its successor".into();
            machines.wrote(serde_json::from_value(api.put(&path, machine)).unwrap());
        }
    }));
    shop.reconcile().await.unwrap();
    assert_eq!(*shop.cloud.calls.lock(), ["status", "status", "create"]);
}

#[tokio::test]
async fn after_a_lost_answer_nothing_is_done_before_the_machine_was_read() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    let mut is_first = true;
    shop.api.rule(move |call| {
        (call.is("PATCH", "/machines/m") && std::mem::take(&mut is_first)).then_some(Reply::DoAndLose)
    });
    assert!(shop.reconcile().await.is_err());
    // The VM dies; who does not know that there was one would make another.
    *shop.cloud.vm.lock() = None;
    shop.cloud.calls.lock().clear();
    shop.api.forget_calls();
    let is_away = Arc::new(Mutex::new(true));
    let away = Arc::clone(&is_away);
    shop.api.rule(move |call| (call.is("GET", "/machines/m") && *away.lock()).then(|| Reply::Say(500, json!({}))));
    assert!(shop.reconcile().await.is_err());
    assert_eq!((shop.api.told(), shop.cloud.calls.lock().len()), (vec!["GET m".to_owned()], 0));
    *is_away.lock() = false;
    shop.reconcile().await.unwrap();
    assert_eq!(shop.api.told()[1], "GET m");
    assert!(!shop.cloud.calls.lock().contains(&"create"), "its ID is known");
}

#[tokio::test]
async fn a_machine_that_is_gone_when_it_is_read_leaves_the_cache() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    shop.api.rule(|call| call.is("PATCH", "/machines/m").then_some(Reply::DoAndLose));
    assert!(shop.reconcile().await.is_err());
    shop.api.remove(&format!("{MACHINES}/m"));
    assert_eq!(shop.reconcile().await.unwrap(), Requeue::OnChange);
    assert!(shop.context.machines.cache.get(&key()).is_none());
}

#[rstest]
#[case::alone("Running", "Failed")]
#[case::one_is_being_replaced("Pending", "Unknown")]
#[tokio::test]
async fn who_is_out_of_service_counts(#[case] sibling: &str, #[case] expected: &str) {
    let shop = Shop::new();
    shop.linked("Unknown", &json!({}));
    shop.machine("sibling", json!({ "status": { "currentStatus": { "phase": sibling } } }));
    shop.known_node(&unready());
    shop.wait(3600);
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().phase().as_str(), expected);
    let permit = [PermitKey { namespace: "ns".to_owned(), group: Group::Deployment("pool".to_owned()) }];
    let (held, _) =
        take_permit(&shop.context.permits, &shop.context.machines.cache, &permit, &Key::new("ns", "sibling"));
    assert!(held.is_some(), "the permit was given back");
}

#[tokio::test]
async fn a_permit_is_kept_while_nobody_knows_whether_it_was_used() {
    let shop = Shop::new();
    shop.linked("Unknown", &json!({}));
    shop.machine("sibling", json!({ "status": { "currentStatus": { "phase": "Running" } } }));
    shop.known_node(&unready());
    shop.wait(3600);
    let mut is_first = true;
    shop.api
        .rule(move |call| (call.is("PATCH", "/m/status") && std::mem::take(&mut is_first)).then_some(Reply::DoAndLose));
    let permit = [PermitKey { namespace: "ns".to_owned(), group: Group::Deployment("pool".to_owned()) }];
    let take =
        || take_permit(&shop.context.permits, &shop.context.machines.cache, &permit, &Key::new("ns", "sibling")).0;
    assert!(shop.reconcile().await.is_err());
    assert!(take().is_none(), "m may be Failed, and the cache does not say so");
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().phase(), MachinePhase::Failed);
    assert!(take().is_some());
}

#[tokio::test]
async fn a_slot_is_given_back_when_the_reconcile_ends() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    *shop.cloud.failure.lock() = Some(DriverError::new(Code::Internal, "because"));
    shop.reconcile().await.unwrap();
    shop.machine("other", json!({}));
    shop.reconciler.handle(&Key::new("ns", "other")).await.unwrap();
    assert_eq!(shop.cloud.calls.lock().len(), 2, "there is one slot, and both had it");
}

#[tokio::test]
async fn credentials_that_come_during_a_call_are_tried_at_once() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    *shop.cloud.failure.lock() = Some(DriverError::new(Code::PermissionDenied, "old credentials"));
    let (states, cloud) = (Arc::clone(&shop.states), Arc::clone(&shop.cloud));
    let changed = Mutex::new(false);
    *shop.cloud.hook.lock() = Some(Box::new(move |_| {
        if std::mem::replace(&mut *changed.lock(), true) {
            *cloud.failure.lock() = None;
        } else {
            states.update_if_known(&key(), Memory::forget_failures);
        }
    }));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.stored().spec.provider_id, "cloud:///1", "without waiting for the next attempt");
    assert_eq!(shop.calls("GET", "/secrets/s").len(), 2, "and with what the Secret has now");
}

#[rstest]
#[case::another_node_has_its_name("another", true)]
#[case::a_webhook_objects("node", false)]
#[tokio::test]
async fn a_node_whose_delete_met_a_conflict_is_read(#[case] uid: &'static str, #[case] is_gone: bool) {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    let api = shop.api.clone();
    shop.api.rule(move |call| {
        call.is("DELETE", NODE).then(|| {
            let mut node = api.get(NODE).unwrap();
            if uid != node["metadata"]["uid"] {
                node["metadata"] = json!({ "name": "n", "uid": uid });
                node["spec"] = json!({ "providerID": "cloud:///2" });
            }
            api.put(NODE, node);
            Reply::Say(409, status(409, "Conflict", "n"))
        })
    });
    shop.reconcile().await.unwrap();
    assert_eq!(shop.api.get(&format!("{MACHINES}/m")).is_none(), is_gone, "{:?}", shop.api.told());
    assert!(shop.api.get(NODE).is_some());
}

#[tokio::test]
async fn every_write_to_a_node_says_which_node_it_means() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.reconcile().await.unwrap();
    let writes: Vec<Call> =
        shop.api.calls().into_iter().filter(|call| call.verb == "PATCH" && call.path.starts_with(NODE)).collect();
    assert!(writes.len() >= 3, "{writes:?}");
    assert!(writes.iter().all(|call| call.body["metadata"]["uid"] == "node"), "{writes:?}");
}

#[tokio::test]
async fn a_vm_that_could_not_join_is_no_deletion_of_a_machine_in_the_metrics() {
    let shop = Shop::new();
    shop.machine("m", json!({}));
    shop.known_node(&ready());
    let mut node = shop.api.get(NODE).unwrap();
    node["spec"]["providerID"] = json!("cloud:///old");
    let node = shop.api.put(NODE, node);
    shop.target.nodes.cache.wrote(serde_json::from_value(node).unwrap());
    shop.reconcile().await.unwrap();
    assert_eq!(*shop.cloud.calls.lock(), ["status", "create", "delete"]);
    assert!(!shop.metrics.render().contains("mcm_machine_delete_duration_seconds{"));
}

#[tokio::test]
async fn the_deletion_of_a_machine_is_measured_from_the_wish_to_the_end_of_its_vm() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.reconcile().await.unwrap();
    let text = shop.metrics.render();
    let series =
        r#"mcm_machine_delete_duration_seconds{namespace="ns",machine_deployment="pool",instance_type="",zone=""} 10"#;
    assert!(text.lines().any(|line| line == series), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_long_reconcile_lets_others_have_its_slot() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod("p", "n");
    let clock = shop.clock.clone();
    shop.api.rule(move |call| {
        call.is("POST", "/eviction").then(|| {
            clock.advance(SignedDuration::from_secs(30));
            Reply::Say(429, status(429, "TooManyRequests", ""))
        })
    });
    let reconciled = async {
        tokio::select! {
            outcome = shop.reconcile() => outcome,
            () = async { loop { tokio::time::advance(Duration::from_secs(1)).await; } } => unreachable!(),
        }
    };
    let requeue = reconciled.await.unwrap();
    assert!(matches!(requeue, Requeue::After(Duration::ZERO)), "{requeue:?}");
}

#[tokio::test]
async fn the_loop_asks_the_lint() {
    let shop = Shop::new();
    shop.linked("Running", &json!({}));
    let reconciler = &shop.reconciler.reconciler;
    let snapshot = reconciler.observe(&key(), &Memory::default(), &Default::default()).unwrap();
    let mut plan = reconciler.plan(&snapshot);
    assert_eq!(reconciler.lint(&snapshot, &plan), None);
    plan.then(Action::CreateVm, "no reason");
    let refusal = reconciler.lint(&snapshot, &plan).unwrap();
    assert_eq!(refusal, "it would create a VM too many: spec.providerID is cloud:///1");
}

fn csi() -> Value {
    json!({ "csi": { "driver": "d", "volumeHandle": "vol-1" } })
}

#[tokio::test]
async fn a_volume_is_followed_from_its_claim_to_another_node() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod_with_volume("db", &csi());
    shop.reconcile().await.unwrap();
    assert_eq!(shop.calls("POST", "/eviction").len(), 1);
    for end in ["/persistentvolumeclaims", "/persistentvolumes"] {
        let reads = shop.calls("GET", end);
        assert_eq!(reads.len(), 1, "{end}");
        assert!(reads[0].query.contains("metadata.name%3D"), "{reads:?}");
    }
    shop.wait(1);
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_some(), "the pod is gone, and its volume is still attached");
    shop.attached(&["vol-12"]);
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_some(), "it is detached, and attached nowhere");

    let arrived = shop.attachment("a", "elsewhere", &json!({}));
    while shop.context.queue.take().now_or_never().is_some() {}
    shop.target.attachments.demand().cache.wrote(serde_json::from_value(arrived).unwrap());
    assert_eq!(shop.context.queue.take().now_or_never().map(|(key, _)| key), Some(key()), "the change enqueues it");
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_none());
    assert_eq!(*shop.cloud.calls.lock(), ["volume_ids", "delete"], "the ID is asked for once");
}

#[rstest]
#[case::a_kind_that_the_driver_does_not_know(json!({ "nfs": { "path": "/", "server": "s" } }), None)]
#[case::the_driver_fails(csi(), Some(Code::Unimplemented))]
#[tokio::test]
async fn a_volume_without_id_is_not_awaited(#[case] spec: Value, #[case] failure: Option<Code>) {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod_with_volume("db", &spec);
    *shop.cloud.failure.lock() = failure.map(|code| DriverError::new(code, "because"));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.calls("POST", "/eviction").len(), 1);
    *shop.cloud.failure.lock() = None;
    shop.wait(1);
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_none());
}

#[rstest]
#[case("/persistentvolumeclaims", "cannot list claim data: ")]
#[case("/persistentvolumes", "cannot list persistent volume pv: ")]
#[tokio::test]
async fn a_pod_whose_volumes_cannot_be_read_stays_and_the_others_go(#[case] end: &'static str, #[case] text: &str) {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    shop.pod_with_volume("db", &csi());
    shop.pod("plain", "n");
    shop.api.rule(move |call| call.is("GET", end).then(|| Reply::Say(503, json!({}))));
    shop.reconcile().await.unwrap();
    let evicted = shop.calls("POST", "/eviction");
    assert_eq!(evicted.len(), 1);
    assert!(evicted[0].path.ends_with("/plain/eviction"));
    let told = shop.stored().status.unwrap().last_operation.description;
    assert!(told.starts_with(&format!("Drain failed due to - {text}")), "{told}");
}

fn forced(shop: &Shop) {
    let label = json!({ "metadata": { "deletionTimestamp": at(90), "labels": { "force-deletion": "true" } } });
    shop.linked("Running", &label);
    shop.known_node(&ready());
    shop.pod_with_volume("db", &csi());
}

#[tokio::test]
async fn after_a_forced_drain_the_volume_attachments_of_the_node_are_deleted() {
    let shop = Shop::new();
    forced(&shop);
    shop.attachment("mine", "n", &json!({}));
    shop.attachment("ending", "n", &json!({ "deletionTimestamp": at(95), "finalizers": ["external-attacher/d"] }));
    shop.attachment("other", "elsewhere", &json!({}));
    shop.reconcile().await.unwrap();
    let deletes: Vec<Call> = shop
        .api
        .calls()
        .into_iter()
        .filter(|call| call.verb == "DELETE" && call.path.starts_with(ATTACHMENTS))
        .collect();
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    assert_eq!(
        (deletes[0].path.as_str(), &deletes[0].body["preconditions"]["uid"]),
        (&*format!("{ATTACHMENTS}/mine"), &json!("uid-mine"))
    );
    let told = told_statuses(&shop);
    assert_eq!(
        told[1..],
        [
            "Force Drain successful. Delete Volume Attachments",
            "No Live VolumeAttachments for node: n. Moving to VM Deletion. Initiate VM deletion",
        ]
    );
    assert!(shop.cloud.vm.lock().is_none());
    assert!(!shop.cloud.calls.lock().contains(&"volume_ids"), "a forced drain does not follow volumes");
}

/// Descriptions of all statuses that were written, in order.
fn told_statuses(shop: &Shop) -> Vec<String> {
    let writes = shop.calls("PATCH", "/m/status").into_iter();
    writes
        .filter_map(|call| call.body.pointer("/status/lastOperation/description")?.as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn a_node_without_volumes_has_no_attachments_to_delete() {
    let shop = Shop::new();
    forced(&shop);
    shop.attached(&[]);
    shop.reconcile().await.unwrap();
    assert!(shop.calls("GET", "/volumeattachments").is_empty());
    assert!(shop.cloud.vm.lock().is_none());
}

#[tokio::test]
async fn attachments_that_cannot_be_deleted_do_not_hold_up_a_forced_deletion_for_ever() {
    let shop = Shop::new();
    forced(&shop);
    shop.attachment("mine", "n", &json!({}));
    shop.api.rule(|call| call.is("DELETE", "/mine").then(|| Reply::Say(403, status(403, "Forbidden", "mine"))));
    for _ in 0..3 {
        shop.reconcile().await.unwrap();
        assert!(shop.cloud.vm.lock().is_some());
        shop.wait(5);
    }
    shop.reconcile().await.unwrap();
    assert!(shop.cloud.vm.lock().is_none());
    let told = told_statuses(&shop);
    let skipped = "Skipping deleteNodeVolAttachments due to - delete of VolumeAttachment mine failed: Forbidden mine. Moving \
                   to VM Deletion. Initiate VM deletion";
    assert!(told.iter().any(|text| text == skipped), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn volume_attachments_are_watched_only_while_somebody_needs_them() {
    let shop = Shop::new();
    let attachments = &shop.target.attachments;
    assert!(!attachments.is_running());
    shop.attachment("a", "n", &json!({}));
    attachments.demand().cache.wait_synced().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(attachments.demand().cache.len(), 1);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(attachments.is_running(), "it was needed again");
    assert_eq!(shop.calls("GET", "/volumeattachments").len(), 1);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!attachments.is_running());
}

#[tokio::test(start_paused = true)]
async fn evictions_of_all_nodes_have_one_rate_and_deletes_none() {
    let shop = Shop::with_evictions(Rate { qps: 1.0, burst: 1 });
    shop.deleted();
    shop.known_node(&ready());
    for number in 0..3 {
        shop.pod(&format!("p{number}"), "n");
    }
    let began = tokio::time::Instant::now();
    shop.reconcile().await.unwrap();
    assert_eq!((shop.calls("POST", "/eviction").len(), began.elapsed().as_secs()), (3, 2));

    let shop = Shop::with_evictions(Rate { qps: 1.0, burst: 1 });
    forced(&shop);
    shop.pod("p", "n");
    let began = tokio::time::Instant::now();
    shop.reconcile().await.unwrap();
    assert_eq!((shop.calls("DELETE", "/pods/p").len(), began.elapsed().as_secs()), (1, 0));
}

#[tokio::test]
async fn refused_pods_are_evicted_again_as_soon_as_their_budget_allows_it() {
    let shop = Shop::new();
    shop.deleted();
    shop.known_node(&ready());
    for name in ["a", "b"] {
        shop.pod(name, "n");
    }
    let budget = |allowed: i32| {
        let stored = shop.api.put(
            "/apis/policy/v1/namespaces/apps/poddisruptionbudgets/budget",
            json!({
                "metadata": { "name": "budget", "namespace": "apps", "uid": "b" }, "spec": { "selector": {} },
                "status": { "disruptionsAllowed": allowed, "expectedPods": 2, "currentHealthy": 1, "desiredHealthy": 1 },
            }),
        );
        serde_json::from_value(stored).unwrap()
    };
    shop.target.budgets.demand().cache.wrote(budget(0));
    let allowed = Arc::new(Mutex::new(0));
    let left = Arc::clone(&allowed);
    shop.api.rule(move |call| {
        let mut left = left.lock();
        let is_refused = call.is("POST", "/eviction") && *left == 0;
        *left -= i32::from(call.is("POST", "/eviction") && !is_refused);
        is_refused.then(|| Reply::Say(429, status(429, "TooManyRequests", "")))
    });
    shop.reconcile().await.unwrap();
    assert_eq!(shop.calls("POST", "/eviction").len(), 2);
    let enqueued = || std::iter::from_fn(|| shop.context.queue.take().now_or_never()).count();
    enqueued();
    shop.target.budgets.demand().cache.wrote(budget(0));
    assert_eq!(enqueued(), 0, "it still allows nothing");

    *allowed.lock() = 1;
    shop.target.budgets.demand().cache.wrote(budget(1));
    assert_eq!(enqueued(), 1);
    shop.reconcile().await.unwrap();
    assert_eq!(shop.calls("POST", "/eviction").len(), 3, "no time has passed, and only one may go");
    assert!(shop.api.get(&format!("{PODS}/a")).is_none());
}

#[rstest]
#[case::the_list("GET", "/pods")]
#[case::an_eviction("POST", "/eviction")]
#[case::a_claim("GET", "/persistentvolumeclaims")]
#[case::the_cordon("PATCH", NODE)]
#[tokio::test(start_paused = true)]
async fn a_drain_is_forced_in_time_although_the_api_server_does_not_answer(
    #[case] verb: &'static str,
    #[case] end: &'static str,
) {
    let shop = Shop::new();
    let spec = json!({ "drainTimeout": "1m", "providerID": "cloud:///1" });
    shop.linked("Running", &json!({ "metadata": { "deletionTimestamp": at(90) }, "spec": spec }));
    shop.known_node(&ready());
    shop.pod_with_volume("db", &csi());
    let (clock, since) = (shop.clock.clone(), tokio::time::Instant::now());
    shop.api.rule(move |call| (call.is(verb, end) && since.elapsed().as_secs() < 49).then_some(Reply::Hang));
    let reconciled = async {
        tokio::select! {
            () = async {
                while shop.cloud.vm.lock().is_some() {
                    shop.reconcile().await.unwrap();
                }
            } => {}
            () = async {
                // A moment before the deadline is over.
                tokio::time::sleep(Duration::from_millis(49_990)).await;
                clock.advance(SignedDuration::from_secs(50));
                std::future::pending().await
            } => unreachable!(),
        }
    };
    tokio::time::timeout(Duration::from_secs(90), reconciled).await.unwrap();
    assert_eq!(since.elapsed().as_secs(), 50, "{:?}", shop.api.told());
}

#[tokio::test]
async fn a_forced_drain_begins_with_the_pods_of_the_last_list_and_lists_again_before_it_ends() {
    let shop = Shop::new();
    let spec = json!({ "drainTimeout": "1m", "providerID": "cloud:///1" });
    shop.linked("Running", &json!({ "metadata": { "deletionTimestamp": at(90) }, "spec": spec }));
    shop.known_node(&ready());
    shop.pod("a", "n");
    let refused = status(429, "TooManyRequests", "");
    shop.api.rule(move |call| call.is("POST", "/eviction").then(|| Reply::Say(429, refused.clone())));
    shop.reconcile().await.unwrap();
    let begun = shop.api.calls().len();
    shop.pod("late", "n");
    shop.clock.advance(SignedDuration::from_mins(1));
    shop.reconcile().await.unwrap();
    let calls: Vec<String> = shop.api.calls()[begun..]
        .iter()
        .filter(|call| call.path.contains("/pods"))
        .map(|call| format!("{} {}", call.verb, call.path.rsplit('/').next().unwrap()))
        .collect();
    assert_eq!(calls, ["DELETE a", "GET pods", "DELETE late"]);
    assert!(shop.cloud.vm.lock().is_none());
}

const TOKENS: &str = "/api/v1/namespaces/kube-system/secrets";
/// `<<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>`
const PLACEHOLDERS: &str = "PDxNQUNISU5FX05BTUU+PiA8PEJPT1RTVFJBUF9UT0tFTj4+";

/// A Machine that is to be made with its own token; where the Secret of the token is.
fn wants_token(shop: &Shop) -> String {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "ns" }, "data": { "userData": PLACEHOLDERS } });
    shop.api.put("/api/v1/namespaces/ns/secrets/s", secret);
    shop.machine("m", json!({ "spec": { "creationTimeout": "5m" } }));
    format!("{TOKENS}/bootstrap-token-{}", token::id_of(&shop.stored()))
}

#[tokio::test]
async fn a_token_is_made_as_the_api_server_reads_it_and_filled_in_where_a_vm_is_made() {
    let shop = Shop::new();
    let path = wants_token(&shop);
    shop.reconcile().await.unwrap();
    let stored: Secret = serde_json::from_value(shop.api.get(&path).unwrap()).unwrap();
    assert_eq!(stored.type_.as_deref(), Some("bootstrap.kubernetes.io/token"));
    let data: BTreeMap<String, String> =
        stored.data.unwrap().into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect();
    let (id, secret) = (data["token-id"].clone(), data["token-secret"].clone());
    assert!(path.ends_with(&format!("-{id}")), "{path} {id}");
    assert!(secret.len() == 16 && secret.bytes().all(|it| it.is_ascii_digit() || it.is_ascii_lowercase()), "{secret}");
    assert_eq!(data["expiration"], at(100 + 300).to_string());
    assert_eq!(
        (data["usage-bootstrap-authentication"].as_str(), data["usage-bootstrap-signing"].as_str()),
        ("true", "true")
    );
    assert_eq!(data["auth-extra-groups"], "", "written even if empty");
    assert!(data["description"].contains(" m "), "{data:?}");

    let asked: Vec<_> = shop.cloud.calls.lock().iter().copied().zip(shop.cloud.user_data.lock().clone()).collect();
    let raw = "<<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>".to_owned();
    assert_eq!(asked, [("status", raw.clone()), ("create", format!("m {id}.{secret}"))]);

    shop.known_node(&ready());
    shop.machine("m", json!({
        "metadata": { "labels": { "node": "n" }, "deletionTimestamp": at(101) }, "spec": { "providerID": "cloud:///1" },
    }));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.cloud.user_data.lock().last(), Some(&raw), "a deletion gets the Secret as it is");
}

#[tokio::test]
async fn a_token_that_is_there_is_used_as_it_is() {
    let shop = Shop::new();
    let path = wants_token(&shop);
    let id = token::id_of(&shop.stored());
    let base64 = |text: &str| serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap();
    let data =
        json!({ "token-id": base64(&id), "token-secret": base64("old"), "expiration": base64("2020-01-01T00:00:00Z") });
    let name = path.rsplit('/').next().unwrap();
    let before = shop.api.put(&path, json!({ "metadata": { "name": name, "namespace": "kube-system" }, "data": data }));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.cloud.user_data.lock().last(), Some(&format!("m {id}.old")));
    assert_eq!(shop.api.get(&path), Some(before));
}
