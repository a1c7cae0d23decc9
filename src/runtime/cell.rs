//! A cell: one control namespace (or all) with its target clusters, caches, queues, workers and memory. A process has
//! one cell or many; they share only [`Shared`].
//!
//! Kinds register themselves with a [`Builder`]. A cache is created and watched if a registered kind uses it.

mod overview;

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, HashMap},
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    cache::{CacheableKind, Key, ObjectCache, ObjectChange, UnreadableObject},
    cells::CellRegistry,
    clock::TimeSource,
    engaged::{
        NamespaceGate,
        claims::{ClaimConfig, NamespaceClaims},
        switch::DeploymentSwitch,
    },
    events::EventRecorder,
    explain::LastPlan,
    fence,
    guard::GuardedObject,
    kind_cache::{CachedKind, KindCache, KindCaches},
    members::standing::FleetStanding,
    metrics::{ExportGuard, MetricsRegistry, TextExposition},
    objects::{CachedApi, chain},
    panics::{self, PanicPlace},
    preview::preview_of,
    queue::WorkQueue,
    reconcile::{KindReconciler, ObjectStateMap, ReconcileLoop},
    role::ControllerRole,
    shutdown,
    target::{CellTargets, TargetCluster},
    trust::{self, WatchTiming},
    unreadable,
    worker::{KeyReconciler, WorkerPool},
};
use mcm_api::backoff::Backoff;
use mcm_rules::plan::{PlanPreview, SubjectRef};

pub use super::scope::CellScope;

/// Targets whose Nodes are read at the same time when a role begins.
const TARGETS_AT_ONCE: usize = 32;
/// Time for the Nodes of one of several targets.
const NODES_OF_ONE: Duration = Duration::from_secs(5);

/// State that all cells of a process share.
#[derive(Clone)]
pub struct SharedCellState {
    /// The time.
    pub clock: Arc<dyn TimeSource>,
    /// The metrics registry.
    pub metrics: MetricsRegistry,
    /// All watched caches, for `/readyz` and `/metrics`.
    pub caches: Arc<trust::CacheRegistry>,
    /// Source of random numbers.
    pub entropy: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// The running cells, for `/explain` and `/metrics`.
    pub cells: Arc<CellRegistry>,
}

/// Configuration of a cell.
pub struct CellConfig {
    /// Its name in logs.
    pub name: String,
    /// Selects the objects of the cell.
    pub scope: CellScope,
    /// A client for the control cluster.
    pub control: Client,
    /// The target clusters.
    pub targets: Arc<CellTargets>,
    /// The event recorder.
    pub events: EventRecorder,
    /// How the objects of each kind are cached.
    pub kinds: KindCaches,
    /// State shared with the other cells of the process.
    pub shared: SharedCellState,
}

/// The rights of a cell in a namespace, beside its own Leases.
#[derive(Clone, Default)]
pub struct NamespaceRules {
    /// The Deployment of the namespace has replicas.
    pub switch: Option<Arc<DeploymentSwitch>>,
    /// The Leases of the namespace.
    pub claims: Option<ClaimConfig>,
    /// This process is a member of its fleet.
    pub member: Option<Arc<FleetStanding>>,
}

impl NamespaceRules {
    fn gate(&self, role: &ControllerRole) -> Arc<NamespaceGate> {
        let claims = self.claims.clone().map(|config| NamespaceClaims::new(config, role.lease));
        Arc::new(NamespaceGate::new(self.switch.clone(), claims, self.member.clone()))
    }
}

impl CellConfig {
    /// The name of one of its clusters in metrics and `/readyz`.
    fn label(&self, cluster: &str) -> String {
        if self.name.is_empty() { cluster.to_owned() } else { format!("{}/{cluster}", self.name) }
    }
}

/// A kind: how it registers, and the role under which its objects are reconciled.
pub struct Kind<S: 'static> {
    /// The role.
    pub role: &'static str,
    /// Registers cache, watch handlers, queue, reconciler and metrics. `S` contains the settings.
    pub register: fn(&mut CellBuilder<'_>, &S),
}

/// A kind whose objects could not be listed, so that all about them is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadKind {
    /// The kind, in the plural.
    pub kind: String,
    /// The reason.
    pub cause: UnreadCause,
}

/// The reason why objects could not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnreadCause {
    /// The API server did not answer in time.
    Silence,
    /// The API server refused, with this message.
    Refusal(String),
    /// The objects are in another cluster than the one that was read, with the next step in words.
    OtherCluster(String),
}

impl UnreadKind {
    fn from_cache<K: CacheableKind>(cache: &ObjectCache<K>) -> Option<Self> {
        let cause = || cache.refusal().map_or(UnreadCause::Silence, UnreadCause::Refusal);
        (!cache.is_synced()).then(|| Self { kind: K::plural(&()).into_owned(), cause: cause() })
    }
}

trait KindWatcher: Send + Sync {
    fn kind(&self) -> String;
    fn wait_synced(&self) -> BoxFuture<'_, ()>;
    fn wait_listed_or_refused(&self) -> BoxFuture<'_, ()>;
    fn unread(&self) -> Option<UnreadKind>;
    fn follow(&self, followed: &trust::CacheRegistry, cluster: &str);
    fn watch(&self, client: &Client, scope: &CellScope) -> BoxFuture<'static, ()>;
    fn refresh(&self, client: &Client, scope: &CellScope) -> BoxFuture<'static, kube::Result<()>>;
    fn forget_handlers(&self);
    /// A namespace has objects of a kind for which the cell works.
    fn is_used(&self, namespace: &str) -> bool;
}

/// A cache of a cell.
struct WatchedCache<K: CachedKind> {
    cache: Arc<ObjectCache<K>>,
    kind: KindCache<K>,
}

impl<K: CachedKind> KindWatcher for WatchedCache<K> {
    fn kind(&self) -> String {
        K::plural(&()).into_owned()
    }

    fn wait_synced(&self) -> BoxFuture<'_, ()> {
        ObjectCache::wait_synced(&self.cache).boxed()
    }

    fn wait_listed_or_refused(&self) -> BoxFuture<'_, ()> {
        ObjectCache::wait_listed_or_refused(&self.cache).boxed()
    }

    fn unread(&self) -> Option<UnreadKind> {
        UnreadKind::from_cache(&self.cache)
    }

    fn follow(&self, followed: &trust::CacheRegistry, cluster: &str) {
        followed.add(cluster, &self.cache, trust::CacheNeed::Required);
    }

    fn watch(&self, client: &Client, scope: &CellScope) -> BoxFuture<'static, ()> {
        let scope = if self.kind.is_of_cluster() { CellScope::All } else { scope.clone() };
        let cache = Arc::clone(&self.cache);
        cache.watch(client.clone(), move |client| scope.api::<GuardedObject<K>>(&client), WatchTiming::CONTROL).boxed()
    }

    fn refresh(&self, client: &Client, scope: &CellScope) -> BoxFuture<'static, kube::Result<()>> {
        if !self.kind.is_read_by_new_leaders() {
            return std::future::ready(Ok(())).boxed();
        }
        let scope = if self.kind.is_of_cluster() { &CellScope::All } else { scope };
        let (cache, api) = (Arc::clone(&self.cache), scope.api::<GuardedObject<K>>(client));
        async move { ObjectCache::refresh(&cache, &api).await }.boxed()
    }

    fn forget_handlers(&self) {
        ObjectCache::forget_handlers(&self.cache);
    }

    fn is_used(&self, namespace: &str) -> bool {
        K::group(&()) == mcm_api::machine::GROUP && self.cache.has_in(namespace)
    }
}

type WorkerRun = Arc<dyn Fn(CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>;
type StartHook = Box<dyn Fn() + Send + Sync>;
/// Describes an object; `None` if it does not exist.
type ObjectInspector<T> = Box<dyn Fn(&Key) -> Option<T> + Send + Sync>;

/// Visits the last plan of each object of a controller. References to objects are made on demand: metrics need none.
type PlanVisitor = Box<dyn Fn(&mut dyn FnMut(&dyn Fn() -> SubjectRef, &LastPlan)) + Send + Sync>;
type MetricsExport = Box<dyn Fn(&MetricsRegistry) -> ExportGuard + Send + Sync>;

/// The queues and hooks of a role in a cell.
#[derive(Default)]
struct RoleTasks {
    is_leading: Arc<AtomicBool>,
    /// A program that is no replica of this process holds the Lease.
    is_foreign: Arc<AtomicBool>,
    /// By the name of their queue.
    workers: Vec<(&'static str, WorkerRun)>,
    on_start: Vec<StartHook>,
    exports: Vec<MetricsExport>,
}

/// A running cell. Its caches are being filled and its roles can be run.
pub struct ControllerCell {
    config: CellConfig,
    caches: Vec<Arc<dyn KindWatcher>>,
    tasks: BTreeMap<&'static str, RoleTasks>,
    gates: BTreeMap<&'static str, Arc<NamespaceGate>>,
    /// The values of this process.
    roles: Vec<ControllerRole>,
    /// The last plans of each controller of objects.
    plans: BTreeMap<&'static str, PlanVisitor>,
    /// The next plan of an object, by controller.
    previews: BTreeMap<&'static str, ObjectInspector<PlanPreview>>,
    /// Objects of each kind, and other values that kinds share.
    shared: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    _watches: Vec<AbortOnDropHandle<()>>,
}

/// How a role ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleEnd {
    /// No reconcile is running.
    Completely,
    /// Running reconciles were aborted; their calls may still take effect.
    Aborted,
}

/// Passed to kinds to register themselves.
pub struct CellBuilder<'a> {
    config: &'a CellConfig,
    roles: &'a [ControllerRole],
    role: &'static str,
    shared: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    caches: Vec<Arc<dyn KindWatcher>>,
    tasks: BTreeMap<&'static str, RoleTasks>,
    gates: BTreeMap<&'static str, Arc<NamespaceGate>>,
    plans: BTreeMap<&'static str, PlanVisitor>,
    previews: BTreeMap<&'static str, ObjectInspector<PlanPreview>>,
}

impl CellBuilder<'_> {
    /// The objects of a kind: cache and writes.
    pub fn objects<K: CachedKind>(&mut self) -> Arc<CachedApi<K>> {
        if let Some(known) = self.known::<CachedApi<K>>() {
            return known;
        }
        let kind = self.config.kinds.get::<K>();
        let cache = kind.empty_for(self.roles);
        self.caches.push(Arc::new(WatchedCache { cache: Arc::clone(&cache), kind }));
        let control = self.config.control.clone();
        self.shared_with(|_| CachedApi::namespaced(&cache, &control))
    }

    /// A value that kinds of one cell share, created at its first use.
    pub fn shared<T: Default + Send + Sync + 'static>(&mut self) -> Arc<T> {
        self.shared_with(|_| T::default())
    }

    /// A value that kinds of one cell share, created at its first use.
    pub fn shared_with<T: Send + Sync + 'static>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Arc<T> {
        if let Some(known) = self.known::<T>() {
            return known;
        }
        let made = Arc::new(make(self));
        self.shared.insert(TypeId::of::<T>(), Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
        made
    }

    fn known<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.shared.get(&TypeId::of::<T>()).and_then(|known| Arc::clone(known).downcast().ok())
    }

    /// Calls `handler` after each change of an object of a kind.
    pub fn on_change<K: CachedKind>(&mut self, handler: impl Fn(&ObjectChange<K>) + Send + Sync + 'static) {
        self.objects::<K>().cache.on_change(handler);
    }

    /// Reconciles the objects of a kind after their own changes. `is_relevant` selects the changes that count; one of the
    /// spec waits for no pause.
    pub fn controller<K: CachedKind, R: KindReconciler<Key = Key>>(
        &mut self,
        reconciler: &Arc<R>,
        queue: &Arc<WorkQueue<Key>>,
        states: &Arc<ObjectStateMap<R>>,
        limit: usize,
        is_relevant: impl Fn(&ObjectChange<K>) -> bool + Send + Sync + 'static,
    ) {
        let workers = self.reconciler_of::<K, R>(reconciler, queue, states, limit);
        let (queue, states) = (Arc::clone(queue), Arc::clone(states));
        self.on_change::<K>(move |change| {
            if change.gone {
                workers.forget(&change.key);
                states.forget(&change.key);
            } else if is_relevant(change) {
                match is_spec_changed(change) {
                    true => queue.add_now(change.key.clone()),
                    false => queue.add(change.key.clone()),
                }
            }
        });
        self.report_unreadable::<K>();
    }

    /// Reconciles the objects of a kind whose keys others add to the queue. Each can be explained.
    pub fn reconciler_of<K: CachedKind, R: KindReconciler<Key = Key>>(
        &mut self,
        reconciler: &Arc<R>,
        queue: &Arc<WorkQueue<Key>>,
        states: &Arc<ObjectStateMap<R>>,
        limit: usize,
    ) -> Arc<WorkerPool<ReconcileLoop<R>>> {
        let (controller, planner, known) = (queue.name(), Arc::clone(reconciler), Arc::clone(states));
        let preview = move |key: &Key| preview_of(&*planner, &known, key, &K::kind(&()), controller);
        self.previews.insert(controller, Box::new(preview));
        let subject = |key: &Key| {
            let Key { namespace, name } = key.clone();
            SubjectRef { kind: K::kind(&()).into_owned(), namespace, name }
        };
        self.reconciler_with(reconciler, queue, states, limit, subject)
    }

    /// Reconciles the keys of a queue that others fill. Each key is that of an object, which can be explained.
    pub fn reconciler_with<R: KindReconciler>(
        &mut self,
        reconciler: &Arc<R>,
        queue: &Arc<WorkQueue<R::Key>>,
        states: &Arc<ObjectStateMap<R>>,
        limit: usize,
        subject: fn(&R::Key) -> SubjectRef,
    ) -> Arc<WorkerPool<ReconcileLoop<R>>> {
        let known = Arc::clone(states);
        let visit: PlanVisitor = Box::new(move |see| known.each_plan(&mut |key, plan| see(&|| subject(key), plan)));
        self.plans.insert(queue.name(), visit);
        self.reconciler(reconciler, queue, states, limit)
    }

    /// Reconciles the keys of a queue that others fill. They stand for no object.
    pub fn reconciler<R: KindReconciler>(
        &mut self,
        reconciler: &Arc<R>,
        queue: &Arc<WorkQueue<R::Key>>,
        states: &Arc<ObjectStateMap<R>>,
        limit: usize,
    ) -> Arc<WorkerPool<ReconcileLoop<R>>> {
        let clock = Arc::clone(&self.config.shared.clock);
        let gate = self.gates.get(self.role).cloned().unwrap_or_default();
        let run = ReconcileLoop::new(Arc::clone(reconciler), Arc::clone(queue), Arc::clone(states), clock);
        self.workers(run.admitted_by(&gate), queue, limit)
    }

    /// Handles the keys of a queue that others fill.
    pub fn workers<H: KeyReconciler>(
        &mut self,
        handler: H,
        queue: &Arc<WorkQueue<H::Key>>,
        limit: usize,
    ) -> Arc<WorkerPool<H>> {
        let metrics = self.config.shared.metrics.clone();
        // Its series exist from the start. A standby counts no keys: nothing waits for its workers.
        drop(metrics.queue(queue.name()));
        let clock = Arc::clone(&self.config.shared.clock);
        let workers = Arc::new(WorkerPool::new(Arc::new(handler), Arc::clone(queue), clock, limit));
        let (run, measured) = (Arc::clone(&workers), Arc::clone(queue));
        let run = move |stop| {
            measured.measure(&metrics);
            Arc::clone(&run).run(stop).boxed()
        };
        self.tasks().workers.push((queue.name(), Arc::new(run)));
        workers
    }

    /// Calls `hook` when this process becomes leader of the role, before the first reconcile.
    pub fn on_start(&mut self, hook: impl Fn() + Send + Sync + 'static) {
        self.tasks().on_start.push(Box::new(hook));
    }

    /// Exports metrics of the objects of a kind, while this process leads the role.
    pub fn export<K: CachedKind>(&mut self, export: fn(&[Arc<K>], &mut TextExposition)) {
        let cache = Arc::clone(&self.objects::<K>().cache);
        self.tasks().exports.push(Box::new(move |metrics| metrics.export(&cache, export)));
    }

    /// Records an event on objects that cannot be decoded, while this process leads the role.
    pub fn report_unreadable<K: CachedKind>(&mut self) {
        let cache = Arc::clone(&self.objects::<K>().cache);
        let events = self.config.events.clone();
        unreadable::watch(&cache, &events, self.is_leading());
        self.on_start(move || unreadable::report(&cache, &events));
    }

    /// True while this process leads the role. A standby watches, but must not collect facts on which only a leader acts.
    pub fn is_leading(&mut self) -> Arc<AtomicBool> {
        Arc::clone(&self.tasks().is_leading)
    }

    fn tasks(&mut self) -> &mut RoleTasks {
        self.tasks.entry(self.role).or_default()
    }

    /// The configuration of the cell.
    pub fn config(&self) -> &CellConfig {
        self.config
    }
}

/// The spec of an object changed, or its deletion was requested.
fn is_spec_changed<K: Resource>(change: &ObjectChange<K>) -> bool {
    let desired = |meta: &ObjectMeta| (meta.generation, meta.deletion_timestamp.is_some());
    change.old.as_ref().is_some_and(|old| change.new.is_some() && desired(old.meta()) != desired(&change.meta))
}

impl ControllerCell {
    /// Starts a cell for some roles. Its caches are filled immediately.
    pub fn new<S>(config: CellConfig, kinds: &[Kind<S>], roles: &[ControllerRole], settings: &S) -> Arc<Self> {
        Self::with_rules(config, kinds, roles, settings, &NamespaceRules::default())
    }

    /// The same for a cell whose Leases are not enough to act in a namespace.
    pub fn with_rules<S>(
        config: CellConfig,
        kinds: &[Kind<S>],
        roles: &[ControllerRole],
        settings: &S,
        rules: &NamespaceRules,
    ) -> Arc<Self> {
        let (caches, tasks, gates, plans, previews, shared) = {
            let mut builder = CellBuilder {
                config: &config,
                roles,
                role: "",
                shared: HashMap::new(),
                caches: Vec::new(),
                tasks: BTreeMap::new(),
                gates: roles.iter().map(|role| (role.name, rules.gate(role))).collect(),
                plans: BTreeMap::new(),
                previews: BTreeMap::new(),
            };
            for kind in kinds.iter().filter(|kind| roles.iter().any(|role| role.name == kind.role)) {
                builder.role = kind.role;
                (kind.register)(&mut builder, settings);
            }
            let CellBuilder { caches, tasks, gates, plans, previews, shared, .. } = builder;
            (caches, tasks, gates, plans, previews, shared)
        };
        let control = config.label("control");
        caches.iter().for_each(|cache| cache.follow(&config.shared.caches, &control));
        let watches = caches.iter().map(|cache| {
            let (cache, control, scope) = (Arc::clone(cache), config.control.clone(), config.scope.clone());
            panics::keep(PanicPlace::Watch, cache.kind(), move || cache.watch(&control, &scope))
        });
        let _watches = watches.collect();
        config.targets.start(config.label(""), &config.shared.caches);
        let roles = roles.to_vec();
        let cell = Arc::new(Self { config, caches, tasks, gates, roles, plans, previews, shared, _watches });
        cell.config.shared.cells.add(&cell);
        cell
    }

    /// The target clusters.
    pub fn targets(&self) -> &Arc<CellTargets> {
        &self.config.targets
    }

    /// For the election of a role, which sets it while a program that is no replica of this process holds the Lease.
    pub fn foreign_flag(&self, role: &ControllerRole) -> Arc<AtomicBool> {
        self.tasks.get(role.name).map(|tasks| Arc::clone(&tasks.is_foreign)).unwrap_or_default()
    }

    /// The plan that a controller would make for an object now, from the caches; `None` if the object does not exist or is
    /// unreadable. Nothing is executed.
    pub fn preview(&self, controller: &str, key: &Key) -> Option<PlanPreview> {
        self.previews.get(controller)?(key)
    }

    /// The cache of a kind; `None` if no kind of the cell uses it.
    pub fn cache<K: CachedKind>(&self) -> Option<&Arc<ObjectCache<K>>> {
        let known = self.shared.get(&TypeId::of::<CachedApi<K>>())?;
        known.downcast_ref::<CachedApi<K>>().map(|objects| &objects.cache)
    }

    /// The objects of a kind in the cache.
    pub fn cached<K: CachedKind>(&self) -> Vec<Arc<K>> {
        self.cache::<K>().map(|cache| cache.all()).unwrap_or_default()
    }

    /// The objects of a kind that exist and cannot be decoded.
    pub fn unreadable<K: CachedKind>(&self) -> Vec<UnreadableObject> {
        self.cache::<K>().map(|cache| cache.unreadable()).unwrap_or_default()
    }

    /// Waits until every cache is filled. Of Nodes only those of the target that all Machines share.
    pub async fn wait_synced(&self) {
        for cache in &self.caches {
            cache.wait_synced().await;
        }
        if let Some(target) = self.config.targets.only() {
            target.nodes.cache.wait_synced().await;
        }
    }

    /// Waits until the API servers listed every kind, or refused to, but not longer than `limit`; returns the kinds that are
    /// not read.
    pub async fn unread_after(&self, limit: Duration) -> Vec<UnreadKind> {
        let nodes = self.config.targets.only().map(|target| Arc::clone(&target.nodes.cache));
        let decided = async {
            for cache in &self.caches {
                cache.wait_listed_or_refused().await;
            }
            if let Some(nodes) = &nodes {
                nodes.wait_listed_or_refused().await;
            }
        };
        let _ = timeout(limit, decided).await;
        let unread = self.caches.iter().filter_map(|cache| cache.unread());
        unread.chain(nodes.and_then(|nodes| UnreadKind::from_cache(&nodes))).collect()
    }

    /// Runs a role until `stop`. The process must hold the role's Lease. Dropping this future aborts every reconcile.
    pub async fn lead(&self, role: &ControllerRole, stop: &CancellationToken) -> RoleEnd {
        let Some(claims) = self.gates.get(role.name).and_then(|gate| gate.claims()) else {
            if stop.run_until_cancelled(self.catch_up()).await.is_none() {
                return RoleEnd::Completely;
            }
            return self.work(role, stop).await;
        };
        let caches = self.caches.clone();
        let is_used = Arc::new(move |namespace: &str| caches.iter().any(|cache| cache.is_used(namespace)));
        let release = CancellationToken::new();
        let mut holding = pin!(claims.hold(is_used, || self.catch_up().boxed(), &release));
        let ended = tokio::select! {
            ended = self.work(role, stop) => ended,
            () = &mut holding => return RoleEnd::Aborted,
        };
        // Others wait until the Leases expire if calls may still take effect.
        if ended == RoleEnd::Completely {
            release.cancel();
            if timeout(shutdown::LEASE, holding).await.is_err() {
                tracing::warn!(
                    cell = self.config.name,
                    role = role.name,
                    "not all leases of namespaces were released, they expire"
                );
            }
        }
        ended
    }

    async fn work(&self, role: &ControllerRole, stop: &CancellationToken) -> RoleEnd {
        let Some(tasks) = self.tasks.get(role.name) else {
            stop.cancelled().await;
            return RoleEnd::Completely;
        };
        let _leading = LeadingFlag::begin(&tasks.is_leading);
        let _exported: Vec<ExportGuard> =
            tasks.exports.iter().map(|export| export(&self.config.shared.metrics)).collect();
        tasks.on_start.iter().for_each(|hook| hook());
        let mut workers = JoinSet::new();
        for (name, run) in &tasks.workers {
            let (name, run, stop) = ((*name).to_owned(), Arc::clone(run), stop.clone());
            let work = panics::kept(PanicPlace::Task, format!("the workers of {name}"), move || run(stop.clone()));
            workers.spawn(fence::within(fence::current(), panics::of_current_cell(work)));
        }
        tracing::info!(cell = self.config.name, role = role.name, scope = %self.config.scope, "controllers started");
        stop.cancelled().await;
        let ended = async { while workers.join_next().await.is_some() {} };
        match tokio::time::timeout(shutdown::WORK, ended).await {
            Ok(()) => RoleEnd::Completely,
            Err(_) => {
                tracing::warn!(cell = self.config.name, role = role.name, "aborted reconciles in flight");
                workers.shutdown().await;
                RoleEnd::Aborted
            }
        }
    }

    /// Reads all cached objects live. The caches of a standby may lag behind the last writes of its predecessor, and
    /// creations depend on counts and on the absence of a VM, which no resource version guards.
    async fn catch_up(&self) {
        let CellConfig { control, scope, .. } = &self.config;
        for cache in &self.caches {
            until_done(&cache.kind(), || cache.refresh(control, scope)).await;
        }
        let targets = stream::iter(self.config.targets.all());
        targets.for_each_concurrent(TARGETS_AT_ONCE, |target| self.read_nodes(target)).await;
    }

    /// Reads the Nodes of a target live. With several targets, one that does not answer delays no other: its cache is
    /// as current as its watch.
    async fn read_nodes(&self, target: Arc<TargetCluster>) {
        let nodes = Api::all(target.client.clone());
        let read = until_done("nodes", || target.nodes.cache.refresh(&nodes));
        if self.config.targets.only().is_some() {
            read.await;
        } else if timeout(NODES_OF_ONE, read).await.is_err() {
            tracing::warn!(target = %target.id, "could not list nodes before starting controllers");
        }
    }
}

/// Caches hold their handlers, these hold queues and reconcilers, and these hold the caches: without an end they would keep
/// each other alive.
impl Drop for ControllerCell {
    fn drop(&mut self) {
        self.caches.iter().for_each(|cache| cache.forget_handlers());
        self.gates.values().for_each(|gate| gate.forget_handlers());
        self.config.targets.forget_handlers();
    }
}

/// Sets a flag while the role runs; cleared on drop.
struct LeadingFlag<'a>(&'a AtomicBool);

impl<'a> LeadingFlag<'a> {
    fn begin(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::Relaxed);
        Self(flag)
    }
}

impl Drop for LeadingFlag<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Repeats an indispensable read until it succeeds.
async fn until_done<F: Future<Output = kube::Result<()>>>(what: &str, read: impl Fn() -> F) {
    let mut pauses = Backoff::new(Duration::from_millis(200), Duration::from_secs(10)).pauses();
    while let Err(error) = read().await {
        let pause = pauses.advance();
        tracing::warn!(what, error = %chain(&error), retry_in = ?pause, "read failed, retrying");
        tokio::time::sleep(pause).await;
    }
}
