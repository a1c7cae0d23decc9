//! The executor against an API server that records: live reads, preconditions, and reactions to responses.

mod calls;
mod drains;
mod nodes;
mod tokens;
mod volumes;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    api::{Api, Call},
    world::{at, ready},
};
use crate::{
    machine::apply::{MachineContext, MachineReconciler, ReconcileSlots},
    node,
};
use mcm_api::{
    labels,
    machine::{Machine, MachineClass},
};
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverError, DriverGuards, MachineRequest, SecretData, Vm, VmsByProviderId,
    cloud::LookupCoalescer, spec::ClassProblems,
};
use mcm_driver_host::DriverCatalogue;
use mcm_runtime::{
    cache::{CacheableKind, Key, ObjectCache},
    clock::{ManualClock, TimeSource},
    events::EventRecorder,
    guard::GuardedObject,
    limiter::RequestRate,
    metrics::MetricsRegistry,
    objects::CachedApi,
    owners::VmOwners,
    queue::{QueuePacing, WorkQueue},
    reconcile::{ObjectStateMap, ReconcileLoop},
    secrets::SecretCache,
    server_clock::ServerClock,
    target::{CellTargets, TargetAssignment, TargetClients, TargetCluster, TargetId},
    worker::{KeyReconciler, ReconcileError, RequeueTime},
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
    /// The owner of each call.
    owners: Mutex<Vec<String>>,
    failure: Mutex<Option<DriverError>>,
    hook: Mutex<Option<Hook>>,
}

impl Cloud {
    fn asked(&self, call: &'static str, request: &MachineRequest) -> Result<(), DriverError> {
        let user_data = request.secret.0.get("userData").map(|data| String::from_utf8_lossy(data).into_owned());
        self.user_data.lock().push(user_data.unwrap_or_default());
        self.owners.lock().push(request.owner.clone());
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

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities::default()
    }

    fn validate(&self, _: &MachineClass) -> ClassProblems {
        ClassProblems::default()
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

    async fn list(&self, _: &MachineClass, _: &SecretData) -> Result<VmsByProviderId, DriverError> {
        Ok(VmsByProviderId::new())
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
    context: Arc<MachineContext>,
    target: Arc<TargetCluster>,
    target_clock: Option<ServerClock>,
    states: Arc<ObjectStateMap<MachineReconciler>>,
    reconciler: ReconcileLoop<MachineReconciler>,
    metrics: MetricsRegistry,
}

fn key() -> Key {
    Key::new("ns", "m")
}

/// The first listing is over, and had nothing.
fn filled<K: CacheableKind>(cache: &ObjectCache<K>) {
    cache.observe(Event::Init);
    cache.observe(Event::InitDone);
}

impl Shop {
    fn new() -> Self {
        Self::with_evictions(RequestRate { qps: 0.0, burst: 0 })
    }

    fn with_evictions(evictions: RequestRate) -> Self {
        Self::with(evictions, None)
    }

    /// The clock of the target cluster is ahead by so many seconds.
    fn with_target_ahead(seconds: i64) -> Self {
        Self::with(RequestRate { qps: 0.0, burst: 0 }, Some(seconds))
    }

    fn with(evictions: RequestRate, target_ahead: Option<i64>) -> Self {
        let (api, cloud, clock) = (Api::default(), Arc::new(Cloud::default()), ManualClock::at(at(100)));
        let client = api.client();
        let (machines, classes, secrets) =
            (crate::machine::CACHE.empty(), crate::machine_class::CACHE.empty(), crate::secret::CACHE.empty());
        filled(&machines);
        filled(&classes);
        filled(&secrets);
        let targets = CellTargets::new(TargetAssignment::One(TargetId::only()), node::cache);
        let target_clock = target_ahead.map(|ahead| ServerClock::that_created_at(at(100 + ahead), &clock));
        let clients = TargetClients { evictions, clock: target_clock.clone(), ..TargetClients::one(&client) };
        let target = targets.connect(&TargetId::only(), &clients);
        filled(&target.nodes.cache);
        let (time, metrics): (Arc<dyn TimeSource>, _) = (Arc::new(clock.clone()), MetricsRegistry::new());
        let queue = WorkQueue::new("machine", QueuePacing::default());
        let context = Arc::new(MachineContext {
            machines: Arc::new(CachedApi::namespaced(&machines, &client)),
            classes: Arc::new(CachedApi::namespaced(&classes, &client)),
            secrets: SecretCache::new(secrets, &client),
            owners: Arc::new(VmOwners::new(&client)),
            targets,
            drivers: Arc::new(DriverCatalogue::from_drivers(
                [Arc::clone(&cloud) as Arc<dyn Driver>],
                &DriverGuards::unobserved(),
            )),
            lanes: Arc::new(ReconcileSlots::new(1, Arc::clone(&queue))),
            queue: Arc::clone(&queue),
            permits: Arc::default(),
            holds: Arc::default(),
            rollouts: Arc::default(),
            servers: Arc::default(),
            policy: Arc::default(),
            checks: LookupCoalescer::new(Duration::ZERO),
            freed: Arc::default(),
            events: EventRecorder::start(Api::default().client(), "test", Arc::clone(&time), metrics.clone()),
            measured: metrics.collector(),
            freeze: Arc::default(),
            clock: time,
        });
        let states = Arc::<ObjectStateMap<MachineReconciler>>::default();
        let reconciler = ReconcileLoop::new(
            Arc::new(MachineReconciler { context: Arc::clone(&context) }),
            queue,
            Arc::clone(&states),
            Arc::new(mcm_runtime::clock::SystemClock),
        );
        let shop = Self { api, cloud, clock, context, target, target_clock, states, reconciler, metrics };
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

    /// A Machine that its set created, with changes; in the API server and in the cache.
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
        crate::testing::merge(&mut value, &patch);
        let stored = self.api.put(&format!("{MACHINES}/{name}"), value);
        self.context.machines.cache.wrote(serde_json::from_value(stored).unwrap());
    }

    /// Deletes a Machine from the cache only.
    fn forget(&self, name: &str) {
        let machines = &self.context.machines.cache;
        let gone = machines.get(&Key::new("ns", name)).unwrap();
        machines.observe(Event::Delete(GuardedObject::Readable(Machine::clone(&gone))));
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
        crate::testing::merge(&mut value, patch);
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

    /// Adds it to the cluster and to the cache.
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
        crate::testing::merge(&mut attachment["metadata"], metadata);
        self.api.put(&format!("{ATTACHMENTS}/{name}"), attachment)
    }

    fn stored(&self) -> Machine {
        serde_json::from_value(self.api.get(&format!("{MACHINES}/m")).unwrap()).unwrap()
    }

    async fn reconcile(&self) -> Result<RequeueTime, ReconcileError> {
        self.reconciler.handle(&key()).await
    }

    fn wait(&self, seconds: i64) {
        self.clock.advance(SignedDuration::from_secs(seconds));
    }

    fn calls(&self, verb: &str, end: &str) -> Vec<Call> {
        self.api.calls().into_iter().filter(|call| call.is(verb, end)).collect()
    }
}

/// The source of a volume that a CSI driver attaches.
fn csi() -> Value {
    json!({ "csi": { "driver": "d", "volumeHandle": "vol-1" } })
}

/// A Machine that is deleted by force; its pod has a volume.
fn forced(shop: &Shop) {
    let label = json!({ "metadata": { "deletionTimestamp": at(90), "labels": { "force-deletion": "true" } } });
    shop.linked("Running", &label);
    shop.known_node(&ready());
    shop.pod_with_volume("db", &csi());
}
