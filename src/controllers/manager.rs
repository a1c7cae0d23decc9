//! Starts the controllers: caches first, then each role once it may lead.

use std::{
    future::Future,
    sync::{Arc, Once},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::{ObjectReference, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, core::PartialObjectMeta, runtime::watcher};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    context::{Caches, Context, Memory, Queues},
    controller, machine, machine_class, machine_deployment, machine_set, node,
    plan::Note,
    wiring,
};
use crate::{
    api::{
        machine::{Machine, MachineDeployment, MachineSet},
        reasons::EventReason,
    },
    driver::Registry,
    runtime::{
        cache::{Cache, Cached, Key},
        clock::Clock,
        events::Events,
        guard::Guard,
        metrics::{Collect, Exposition, Metrics, objects},
        objects::Objects,
        queue::Queue,
        secrets::Secrets,
    },
};

/// Passes of one kind at once; each is a task, and those that wait are only keys.
const OTHER_PASSES: usize = 64;
/// How long passes that are under way may go on after the wish to stop.
const LAST_PASSES: Duration = Duration::from_secs(20);

/// What the processes of the reference do: one role each, or both in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// MachineDeployments and MachineSets (`machine-controller-manager`).
    Sets,
    /// Machines, MachineClasses, Secrets and Nodes (`machine-controller`).
    Machines,
}

/// Everything the controllers are given.
pub struct Setup {
    /// The control namespace.
    pub namespace: String,
    /// Which roles this process may play.
    pub roles: Vec<Role>,
    /// The control cluster.
    pub control: Client,
    /// The target cluster, if there is one.
    pub target: Option<Client>,
    /// Clouds.
    pub drivers: Registry,
    /// Where events go.
    pub events: Events,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is measured.
    pub metrics: Metrics,
    /// Choices for Machines.
    pub machine_policy: machine::Policy,
    /// Choices for deployments.
    pub deployment_policy: machine_deployment::Policy,
    /// Choices for Nodes.
    pub node_policy: node::Policy,
    /// Slots in each lane.
    pub slots: usize,
}

/// Caches that are being filled, and controllers that may be started.
pub struct Manager {
    context: Arc<Context>,
    caches: Arc<Caches>,
    control: Client,
    roles: Vec<Role>,
    watches: Vec<JoinHandle<()>>,
    gauges: Arc<Gauges>,
    measured: Once,
}

impl Manager {
    /// Begins to fill the caches.
    pub fn new(setup: Setup) -> Self {
        let caches = Arc::new(Caches::default());
        let queues = Arc::new(Queues::default());
        let memory = Arc::new(Memory::default());
        if setup.roles.contains(&Role::Sets) {
            wiring::connect_sets(&caches, &queues, &memory);
        }
        if setup.roles.contains(&Role::Machines) {
            wiring::connect_machines(&caches, &queues, &memory);
        }
        let gauges = Arc::new(Gauges { caches: Arc::clone(&caches), roles: setup.roles.clone() });
        let control = setup.control.clone();
        let watches = watch(&setup, &caches);
        let roles = setup.roles.clone();
        let context = Arc::new(context(setup, &caches, queues, memory));
        Self { context, caches, control, roles, watches, gauges, measured: Once::new() }
    }

    /// Waits until every cache is filled.
    pub async fn wait_synced(&self) {
        let caches = &self.caches;
        caches.machines.wait_synced().await;
        caches.nodes.wait_synced().await;
        if self.roles.contains(&Role::Sets) {
            caches.sets.wait_synced().await;
            caches.deployments.wait_synced().await;
        }
        if self.roles.contains(&Role::Machines) {
            caches.classes.wait_synced().await;
            caches.secrets.wait_synced().await;
        }
    }

    /// What has not been read yet, for `/readyz`.
    pub fn missing(&self) -> Vec<&'static str> {
        let caches = &self.caches;
        let sets = self.roles.contains(&Role::Sets);
        let machines = self.roles.contains(&Role::Machines);
        let parts = [
            (true, caches.machines.is_synced(), "machines"),
            (sets, caches.sets.is_synced(), "machinesets"),
            (sets, caches.deployments.is_synced(), "machinedeployments"),
            (machines, caches.classes.is_synced(), "machineclasses"),
            (machines, caches.secrets.is_synced(), "secrets"),
            (true, caches.nodes.is_synced(), "nodes"),
        ];
        parts.into_iter().filter(|(needed, synced, _)| *needed && !synced).map(|(_, _, name)| name).collect()
    }

    /// Plays a role until `stop`. The process must hold the role's lease; once that is lost, dropping this future ends
    /// every pass where it is.
    pub async fn play(&self, role: Role, stop: CancellationToken) {
        self.wait_synced().await;
        self.measured.call_once(|| self.context.metrics.attach(&self.gauges));
        let mut passes = match role {
            Role::Sets => {
                self.catch_up().await;
                self.sets(&stop)
            }
            Role::Machines => {
                self.catch_up_on_machines().await;
                self.machines(&stop)
            }
        };
        self.tell_of_unreadable(role);
        tracing::info!(?role, namespace = self.context.namespace, "at work");
        stop.cancelled().await;
        let ended = async { while passes.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_PASSES, ended).await.is_err() {
            tracing::warn!(?role, "some passes did not end in time");
        }
    }

    /// A standby's caches may be a moment behind the last writes of its predecessor. Creations rest on counts, which no
    /// resource version guards, so what exists is read once more.
    async fn catch_up(&self) {
        self.catch_up_on_machines().await;
        let namespace = &self.context.namespace;
        let sets: Api<Guard<MachineSet>> = Api::namespaced(self.control.clone(), namespace);
        let deployments: Api<Guard<MachineDeployment>> = Api::namespaced(self.control.clone(), namespace);
        until_done("machinesets", || self.caches.sets.refresh(&sets)).await;
        until_done("machinedeployments", || self.caches.deployments.refresh(&deployments)).await;
    }

    /// A Machine whose VM is known to the predecessor alone would get another one if that VM died.
    async fn catch_up_on_machines(&self) {
        let machines: Api<Guard<Machine>> = Api::namespaced(self.control.clone(), &self.context.namespace);
        until_done("machines", || self.caches.machines.refresh(&machines)).await;
    }

    /// Who plays the role of a kind tells of its objects that cannot be read.
    fn tell_of_unreadable(&self, role: Role) {
        let events = &self.context.events;
        match role {
            Role::Sets => {
                tell_of_unreadable(&self.caches.sets, events);
                tell_of_unreadable(&self.caches.deployments, events);
            }
            Role::Machines => {
                tell_of_unreadable(&self.caches.machines, events);
                tell_of_unreadable(&self.caches.classes, events);
            }
        }
    }

    fn sets(&self, stop: &CancellationToken) -> JoinSet<()> {
        let (caches, queues) = (&self.caches, &self.context.queues);
        let mut passes = JoinSet::new();
        let limit = OTHER_PASSES;
        passes.spawn(self.controller(
            &caches.deployments,
            &queues.deployments,
            machine_deployment::reconcile,
            limit,
            stop,
        ));
        passes.spawn(self.controller(&caches.sets, &queues.sets, machine_set::reconcile, limit, stop));
        passes
    }

    fn machines(&self, stop: &CancellationToken) -> JoinSet<()> {
        let (caches, queues) = (&self.caches, &self.context.queues);
        let mut passes = JoinSet::new();
        let limit = OTHER_PASSES;
        // Whatever the lanes hold, there is room for passes that need no slot.
        let machines = self.context.lanes.slots().saturating_add(OTHER_PASSES);
        passes.spawn(self.controller(&caches.machines, &queues.machines, machine::reconcile, machines, stop));
        passes.spawn(self.controller(&caches.classes, &queues.classes, machine_class::reconcile, limit, stop));
        passes.spawn(self.controller(&caches.secrets, &queues.secrets, machine_class::reconcile_secret, limit, stop));
        passes.spawn(self.controller(&caches.nodes, &queues.nodes, node::reconcile, limit, stop));
        passes.spawn(node::follow_gone(Arc::clone(&self.context), stop.clone()));
        passes
    }

    fn controller<K, F>(
        &self,
        cache: &Arc<Cache<K>>,
        queue: &Arc<Queue<Key>>,
        reconcile: fn(Key, Arc<Context>) -> F,
        limit: usize,
        stop: &CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<K, F>
    where
        K: Cached,
        F: Future<Output = Result<controller::Wake, controller::ReconcileError>> + Send + 'static,
    {
        let (cache, queue, context, stop) =
            (Arc::clone(cache), Arc::clone(queue), Arc::clone(&self.context), stop.clone());
        async move { controller::run(&cache, queue, context, reconcile, limit, stop).await }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

fn tell_of_unreadable<K: Cached>(cache: &Cache<K>, events: &Events) {
    for object in cache.unreadable() {
        events.record(reference::<K>(&object.meta), &unreadable(&object.error));
    }
    let events = events.clone();
    cache.on_change(move |change| {
        if let Some(error) = &change.unreadable {
            events.record(reference::<K>(&change.meta), &unreadable(error));
        }
    });
}

fn reference<K: Cached>(meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        ..ObjectReference::default()
    }
}

fn unreadable(error: &str) -> Note {
    Note::warning(EventReason::Unreadable, format!("cannot be read and is left alone until it is corrected: {error}"))
}

/// A read that everything rests on is tried until it succeeds.
async fn until_done<F: Future<Output = kube::Result<()>>>(what: &str, read: impl Fn() -> F) {
    let mut pause = Duration::from_millis(200);
    while let Err(error) = read().await {
        tracing::warn!(what, error = %crate::runtime::objects::chain(&error), "cannot be read, trying again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

fn watch(setup: &Setup, caches: &Caches) -> Vec<JoinHandle<()>> {
    let (client, namespace) = (&setup.control, &setup.namespace);
    let mut watches =
        vec![tokio::spawn(Arc::clone(&caches.machines).watch(Api::namespaced(client.clone(), namespace)))];
    if setup.roles.contains(&Role::Sets) {
        watches.push(tokio::spawn(Arc::clone(&caches.sets).watch(Api::namespaced(client.clone(), namespace))));
        watches.push(tokio::spawn(Arc::clone(&caches.deployments).watch(Api::namespaced(client.clone(), namespace))));
    }
    if setup.roles.contains(&Role::Machines) {
        watches.push(tokio::spawn(Arc::clone(&caches.classes).watch(Api::namespaced(client.clone(), namespace))));
        let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
        let events = watcher(secrets, watcher::Config::default()).map(|event| event.map(guarded));
        watches.push(tokio::spawn(Arc::clone(&caches.secrets).follow(events)));
    }
    match &setup.target {
        Some(target) => watches.push(tokio::spawn(Arc::clone(&caches.nodes).watch(Api::all(target.clone())))),
        None => caches.nodes.assume_empty(),
    }
    watches
}

fn guarded<K: kube::Resource<DynamicType = ()>>(event: watcher::Event<K>) -> watcher::Event<Guard<K>> {
    let guard = Guard::Readable;
    match event {
        watcher::Event::Apply(object) => watcher::Event::Apply(guard(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(guard(object)),
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(object) => watcher::Event::InitApply(guard(object)),
        watcher::Event::InitDone => watcher::Event::InitDone,
    }
}

fn context(setup: Setup, caches: &Caches, queues: Arc<Queues>, memory: Arc<Memory>) -> Context {
    let secrets: Api<Secret> = Api::namespaced(setup.control.clone(), &setup.namespace);
    let lanes = Arc::new(machine::Lanes::new(setup.slots, Arc::clone(&queues.machines)));
    let gone = Arc::clone(&lanes);
    caches.machines.on_change(move |change| {
        if change.gone {
            gone.forget(&change.key);
        }
    });
    let metrics = setup.metrics.clone();
    caches.deployments.on_change(move |change| {
        if change.gone {
            metrics.machines().forget(&change.key.namespace, &change.key.name);
        }
    });
    Context {
        machines: Objects::namespaced(&caches.machines, &setup.control),
        sets: Objects::namespaced(&caches.sets, &setup.control),
        deployments: Objects::namespaced(&caches.deployments, &setup.control),
        classes: Objects::namespaced(&caches.classes, &setup.control),
        nodes: setup.target.as_ref().map(|target| Objects::cluster_wide(&caches.nodes, target)),
        secrets: Secrets::new(Arc::clone(&caches.secrets), secrets, &setup.namespace),
        namespace: setup.namespace,
        target: setup.target,
        drivers: setup.drivers,
        events: setup.events,
        clock: setup.clock,
        machine_policy: setup.machine_policy,
        deployment_policy: setup.deployment_policy,
        node_policy: setup.node_policy,
        queues,
        memory,
        lanes,
        permits: machine::Permits::default(),
        metrics: setup.metrics,
    }
}

/// Numbers of objects, read from the caches at each scrape.
struct Gauges {
    caches: Arc<Caches>,
    roles: Vec<Role>,
}

impl Collect for Gauges {
    fn collect(&self, out: &mut Exposition) {
        if self.roles.contains(&Role::Machines) {
            objects::machines(&self.caches.machines.all(), out);
        }
        if self.roles.contains(&Role::Sets) {
            objects::machine_sets(&self.caches.sets.all(), out);
            objects::machine_deployments(&self.caches.deployments.all(), out);
        }
    }
}
