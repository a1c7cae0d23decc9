//! Target clusters, which the Nodes of Machines join. A cell has none, one, or several that are connected and
//! disconnected while it runs.
//!
//! Of several targets the namespace of an object chooses one. Nothing in the object does: its author would choose the cluster
//! whose bootstrap tokens are made and whose Nodes are drained.

mod connector;
mod demand;
mod namespaces;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::policy::v1::PodDisruptionBudget, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client};
use parking_lot::{Mutex, RwLock};
use tokio_util::task::AbortOnDropHandle;

use super::{
    cache::{self, AnyIndex, CacheBounds, CacheIndex, Key, ObjectCache, ObjectChange},
    clock::TimeSource,
    fair::FairBucket,
    freeze::FreezeNotice,
    handlers::HandlerList,
    limiter::RequestRate,
    objects::CachedApi,
    on_demand::OnDemand,
    panics::{self, PanicPlace},
    server_clock::{self, ServerClock},
    trust::{self, CacheTrust, WatchTiming},
};
use mcm_api::{node::Node, volume_attachment::VolumeAttachment};

use demand::TargetDemand;

pub use connector::TargetConnector;
pub use namespaces::NamespaceWatch;

/// Index: the PersistentVolume.
pub const ATTACHMENTS_BY_VOLUME: &CacheIndex<VolumeAttachment, String> =
    &CacheIndex::new("volume", |attachment| vec![attachment.spec.source.persistent_volume_name.clone()]);
/// Index: the Node.
pub const ATTACHMENTS_BY_NODE: &CacheIndex<VolumeAttachment, String> =
    &CacheIndex::new("node", |attachment| vec![attachment.spec.node_name.clone()]);

/// Identifies a target cluster within a cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub Arc<str>);

impl TargetId {
    /// The only target of a cell.
    pub fn only() -> Self {
        Self::named("target")
    }

    /// One of several targets.
    pub fn named(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A Node of one target cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetNodeKey {
    /// Its cluster.
    pub target: TargetId,
    /// Its name.
    pub name: String,
}

impl TargetNodeKey {
    /// A Node of a target.
    pub fn new(target: &TargetId, name: impl Into<String>) -> Self {
        Self { target: target.clone(), name: name.into() }
    }

    /// Its key in the cache of its target.
    pub fn in_target(&self) -> Key {
        Key::new("", &self.name)
    }
}

impl fmt::Display for TargetNodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.name, self.target)
    }
}

/// Assignment of objects of the control cluster to targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetAssignment {
    /// The object has no target cluster.
    None,
    /// All objects have the same target, unless a [rule](Targets::set_placement) places them.
    One(TargetId),
    /// The namespace of the object has its target; see [`assign`](CellTargets::assign).
    Namespace,
    /// A [rule](Targets::set_placement) of the cell chooses it for each object.
    Rule,
}

/// Where the Node of an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePlacement {
    /// In no cluster.
    Nowhere,
    /// The target is unknown.
    Unknown,
    /// In this target.
    In(TargetId),
}

/// The clients for one target cluster.
#[derive(Clone)]
pub struct TargetClients {
    pub requests: Client,
    /// Has separate limits, so that drains do not delay other requests.
    pub drains: Client,
    /// Rate limit of evictions.
    pub evictions: RequestRate,
    /// The time of its API server; `None` if it is that of the control cluster.
    pub clock: Option<ServerClock>,
}

impl TargetClients {
    /// One client for everything, without a limit of evictions.
    pub fn one(client: &Client) -> Self {
        Self {
            requests: client.clone(),
            drains: client.clone(),
            evictions: RequestRate { qps: 0.0, burst: 0 },
            clock: None,
        }
    }
}

/// A target cluster that is connected.
pub struct TargetCluster {
    /// Its identifier.
    pub id: TargetId,
    /// A client for it.
    pub client: Client,
    /// A client for drains, with separate limits.
    pub drains: Client,
    /// The turns of its Nodes at evictions.
    pub evictions: Arc<FairBucket>,
    /// Its Nodes.
    pub nodes: CachedApi<Node>,
    /// Its VolumeAttachments, watched while Nodes with volumes are drained.
    pub attachments: Arc<OnDemand<VolumeAttachment>>,
    /// Its PodDisruptionBudgets, watched while some refuse evictions.
    pub budgets: Arc<OnDemand<PodDisruptionBudget>>,
    clock: Option<ServerClock>,
    watch: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// The target of an object.
#[derive(Clone)]
pub enum TargetOf {
    /// The cell has no target.
    NoTarget,
    /// The target is not connected, or the namespace has no target: its Node is unknown.
    Unknown,
    /// The target.
    Known(Arc<TargetCluster>),
}

type NodeHandler = dyn Fn(&TargetCluster, &ObjectChange<Node>) + Send + Sync;
type TargetTrustHandler = dyn Fn(&TargetCluster, &CacheTrust) + Send + Sync;
type PlacementRule = Box<dyn Fn(&ObjectMeta) -> NodePlacement + Send + Sync>;

/// Registration of the Node caches for `/readyz` and `/metrics`.
struct NodeCacheRegistration {
    prefix: String,
    caches: Arc<trust::CacheRegistry>,
}

/// `namespace/name` of a budget that allows a disruption; the others are filtered out.
fn allowing(budget: &PodDisruptionBudget) -> String {
    let allows = budget.status.as_ref().is_some_and(|status| status.disruptions_allowed > 0);
    if allows { Key::from_meta(&budget.metadata).to_string() } else { String::new() }
}

/// The targets of a cell.
pub struct CellTargets {
    assignment: TargetAssignment,
    connected: RwLock<BTreeMap<TargetId, Arc<TargetCluster>>>,
    /// By namespace.
    assigned: RwLock<BTreeMap<String, TargetId>>,
    /// The label of Namespaces with the name of their target, once they are listed.
    label: OnceLock<String>,
    /// Namespaces with objects and without that label, which were logged.
    unlabelled: Mutex<BTreeSet<String>>,
    handlers: Arc<HandlerList<NodeHandler>>,
    trust_handlers: Arc<HandlerList<TargetTrustHandler>>,
    make_cache: fn() -> Arc<ObjectCache<Node>>,
    /// Set once watches may begin.
    followed: OnceLock<NodeCacheRegistration>,
    rule: OnceLock<PlacementRule>,
    bounds: OnceLock<CacheBounds>,
    freeze: Arc<FreezeNotice>,
    demand: TargetDemand,
}

impl TargetCluster {
    /// How far its clock is ahead of that of the control cluster, which shows `now`.
    pub fn ahead_of(&self, now: Timestamp) -> SignedDuration {
        let ahead = self.clock.as_ref().map(|clock| clock.now().duration_since(now));
        ahead.filter(|ahead| ahead.abs() > server_clock::NOISE).unwrap_or_default()
    }

    fn start(&self, followed: &NodeCacheRegistration, need: trust::CacheNeed) {
        let mut watch = self.watch.lock();
        if watch.is_none() {
            followed.caches.add(&format!("{}{}", followed.prefix, self.id), &self.nodes.cache, need);
            let (cache, client) = (Arc::clone(&self.nodes.cache), self.client.clone());
            *watch = Some(panics::keep(PanicPlace::Watch, format!("nodes of {}", self.id), move || {
                Arc::clone(&cache).watch(client.clone(), Api::all, WatchTiming::TARGET)
            }));
        }
    }
}

impl CellTargets {
    /// The freeze of the Machines of the cell.
    pub const fn freeze(&self) -> &Arc<FreezeNotice> {
        &self.freeze
    }

    /// Without connected targets. `make_cache` creates the cache of Nodes of each.
    pub fn new(assignment: TargetAssignment, make_cache: fn() -> Arc<ObjectCache<Node>>) -> Arc<Self> {
        Arc::new(Self {
            assignment,
            connected: RwLock::default(),
            assigned: RwLock::default(),
            label: OnceLock::new(),
            unlabelled: Mutex::default(),
            handlers: Arc::default(),
            trust_handlers: Arc::default(),
            make_cache,
            followed: OnceLock::new(),
            rule: OnceLock::new(),
            bounds: OnceLock::new(),
            freeze: Arc::default(),
            demand: TargetDemand::default(),
        })
    }

    /// Bounds what each target that is connected from now on may send; only the first bounds count.
    pub fn limit(&self, bounds: CacheBounds) {
        let _ = self.bounds.set(bounds);
    }

    /// Sets the rule of [`Assignment::Rule`] or [`Assignment::One`]; only the first one counts.
    pub fn set_placement(&self, rule: impl Fn(&ObjectMeta) -> NodePlacement + Send + Sync + 'static) {
        let _ = self.rule.set(Box::new(rule));
    }

    /// Calls `handler` after each change of a Node in any target.
    pub fn on_node_change(&self, handler: impl Fn(&TargetCluster, &ObjectChange<Node>) + Send + Sync + 'static) {
        self.handlers.add(Box::new(handler));
    }

    /// Calls `handler` when the Nodes of a target are known, when they become untrusted, and when they are trusted again.
    pub fn on_trust_change(&self, handler: impl Fn(&TargetCluster, &CacheTrust) + Send + Sync + 'static) {
        self.trust_handlers.add(Box::new(handler));
    }

    /// Drops all handlers with their captured values.
    pub fn forget_handlers(&self) {
        self.handlers.forget();
        self.trust_handlers.forget();
    }

    /// Connects a target and watches its Nodes. Replaces one of the same name.
    pub fn connect(&self, id: &TargetId, clients: &TargetClients) -> Arc<TargetCluster> {
        let client = &clients.requests;
        let cache = (self.make_cache)();
        let bounds = self.bounds.get().copied();
        bounds.into_iter().for_each(|bounds| cache.limit(bounds));
        let small = bounds.map(CacheBounds::for_small_objects);
        let target = Arc::new_cyclic(|weak: &std::sync::Weak<TargetCluster>| {
            let (trusting, trust_handlers) = (weak.clone(), Arc::clone(&self.trust_handlers));
            cache.on_trust(move |trust| {
                if let Some(target) = trusting.upgrade() {
                    trust_handlers.each(|handler| handler(&target, trust));
                }
            });
            let (weak, handlers) = (weak.clone(), Arc::clone(&self.handlers));
            cache.on_change(move |change| {
                if let Some(target) = weak.upgrade() {
                    handlers.each_of(|| format!("Node {}", change.key), |handler| handler(&target, change));
                }
            });
            TargetCluster {
                id: id.clone(),
                client: client.clone(),
                drains: clients.drains.clone(),
                evictions: FairBucket::new(clients.evictions),
                clock: clients.clock.clone(),
                nodes: CachedApi::cluster_wide(&cache, client),
                budgets: OnDemand::new(
                    &clients.drains,
                    small,
                    |client| Arc::new(CachedApi::namespaced(&ObjectCache::new(&[], cache::keep_identity), client)),
                    allowing,
                ),
                attachments: OnDemand::new(
                    &clients.drains,
                    small,
                    |client| {
                        let indexes: [&dyn AnyIndex<VolumeAttachment>; 2] =
                            [ATTACHMENTS_BY_VOLUME, ATTACHMENTS_BY_NODE];
                        Arc::new(CachedApi::cluster_wide(&ObjectCache::new(&indexes, cache::keep_identity), client))
                    },
                    |attachment| attachment.volume().to_owned(),
                ),
                watch: Mutex::default(),
            }
        });
        self.connected.write().insert(id.clone(), Arc::clone(&target));
        if let Some(followed) = self.followed.get() {
            target.start(followed, self.need());
        }
        target
    }

    /// Disconnects a target: from now on its Nodes are unknown.
    pub fn disconnect(&self, id: &TargetId) {
        let removed = self.connected.write().remove(id);
        let trust = CacheTrust::Unknown { why: "disconnected".to_owned() };
        // It freezes no Machine any more.
        removed.iter().for_each(|target| self.trust_handlers.each(|handler| handler(target, &trust)));
    }

    /// Asks for the Nodes of the only target for a time, although the cell may have no Machines. They are read if a
    /// [`TargetConnector`] connects the target.
    pub fn demand(&self, time: Duration) {
        self.demand.extend(time);
    }

    /// Why the Nodes of the objects of a namespace are unknown, although their target is known.
    pub fn unknown_nodes(&self, namespace: &str) -> Option<String> {
        let meta = ObjectMeta { namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
        let id = self.node_key(&meta, "")?.target;
        match self.get(&id) {
            None => Some(format!("cluster {id} is not connected")),
            Some(target) if !target.nodes.cache.is_synced() => {
                Some(format!("the Nodes of cluster {id} are not read yet"))
            }
            Some(_) => None,
        }
    }

    /// Sets the target of the objects of a namespace; `None` if it is unknown.
    pub fn assign(&self, namespace: &str, target: Option<TargetId>) {
        let mut assigned = self.assigned.write();
        let before = match target.clone() {
            Some(target) => assigned.insert(namespace.to_owned(), target),
            None => assigned.remove(namespace),
        };
        drop(assigned);
        if before == target {
            return;
        }
        self.unlabelled.lock().remove(namespace);
        let target = target.and_then(|id| self.get(&id));
        // The plans of its Machines were made without this target.
        if let Some(target) = target {
            let trust = target.nodes.cache.trust();
            self.trust_handlers.each(|handler| handler(&target, &trust));
        }
    }

    /// All Namespaces are listed: those without the label have no target.
    fn labels_known(&self, label: &str) {
        self.label.get_or_init(|| label.to_owned());
    }

    fn warn_of_missing_label(&self, namespace: &str) {
        let Some(label) = self.label.get() else { return };
        if self.unlabelled.lock().insert(namespace.to_owned()) {
            tracing::warn!(
                namespace,
                "the target of the namespace is unknown: kubectl label namespace {namespace} {label}=<its kubeconfig in the cells \
                 file>; a label of machines has no effect"
            );
        }
    }

    /// The namespaces whose objects have this target, where namespaces choose it.
    pub fn namespaces_of(&self, id: &TargetId) -> Vec<String> {
        let assigned = self.assigned.read();
        assigned.iter().filter(|(_, target)| *target == id).map(|(namespace, _)| namespace.clone()).collect()
    }

    /// Starts the watches, after all handlers are registered. `/readyz` and `/metrics` show the caches under their
    /// names with `prefix`.
    pub fn start(&self, prefix: String, caches: &Arc<trust::CacheRegistry>) {
        let followed = self.followed.get_or_init(|| NodeCacheRegistration { prefix, caches: Arc::clone(caches) });
        self.all().iter().for_each(|target| target.start(followed, self.need()));
    }

    /// Clusters that come and go while the cell runs, and each of several, do not decide whether the process is ready.
    fn need(&self) -> trust::CacheNeed {
        match self.assignment {
            TargetAssignment::Rule | TargetAssignment::Namespace => trust::CacheNeed::Optional,
            TargetAssignment::None | TargetAssignment::One(_) => trust::CacheNeed::Required,
        }
    }

    /// The cell has targets.
    pub fn exist(&self) -> bool {
        self.assignment != TargetAssignment::None
    }

    /// The only target, if all objects have the same and it is connected.
    pub fn only(&self) -> Option<Arc<TargetCluster>> {
        match &self.assignment {
            TargetAssignment::One(id) => self.get(id),
            TargetAssignment::None | TargetAssignment::Namespace | TargetAssignment::Rule => None,
        }
    }

    /// A target by its name.
    pub fn get(&self, id: &TargetId) -> Option<Arc<TargetCluster>> {
        self.connected.read().get(id).cloned()
    }

    /// All connected targets.
    pub fn all(&self) -> Vec<Arc<TargetCluster>> {
        self.connected.read().values().cloned().collect()
    }

    /// The target of an object.
    pub fn target_for(&self, meta: &ObjectMeta) -> TargetOf {
        match self.placement(meta) {
            NodePlacement::Nowhere => TargetOf::NoTarget,
            NodePlacement::Unknown => TargetOf::Unknown,
            NodePlacement::In(id) => self.get(&id).map_or(TargetOf::Unknown, TargetOf::Known),
        }
    }

    /// The Node of an object with this name.
    pub fn node_key(&self, meta: &ObjectMeta, name: &str) -> Option<TargetNodeKey> {
        match self.placement(meta) {
            NodePlacement::In(id) => Some(TargetNodeKey::new(&id, name)),
            NodePlacement::Nowhere | NodePlacement::Unknown => None,
        }
    }

    fn placement(&self, meta: &ObjectMeta) -> NodePlacement {
        match &self.assignment {
            TargetAssignment::None => NodePlacement::Nowhere,
            TargetAssignment::One(id) => {
                self.rule.get().map_or_else(|| NodePlacement::In(id.clone()), |rule| rule(meta))
            }
            TargetAssignment::Namespace => {
                let assigned = self.assigned.read();
                let Some(namespace) = &meta.namespace else { return NodePlacement::Unknown };
                match assigned.get(namespace) {
                    Some(target) => NodePlacement::In(target.clone()),
                    None => {
                        self.warn_of_missing_label(namespace);
                        NodePlacement::Unknown
                    }
                }
            }
            TargetAssignment::Rule => self.rule.get().map_or(NodePlacement::Unknown, |rule| rule(meta)),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::{client::Body, runtime::watcher};

    use super::*;

    fn away() -> Client {
        let service = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        });
        Client::new(service, "default")
    }

    fn in_cluster(name: &str) -> ObjectMeta {
        let labels = [("cluster".to_owned(), name.to_owned())].into();
        ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }
    }

    /// Targets that namespaces of their names have.
    fn by_namespace(namespaces: &[&str]) -> Arc<CellTargets> {
        let targets = CellTargets::new(TargetAssignment::Namespace, cache);
        namespaces.iter().for_each(|name| targets.assign(name, Some(TargetId::named(name))));
        targets
    }

    fn known(of: TargetOf) -> String {
        match of {
            TargetOf::NoTarget => "none".to_owned(),
            TargetOf::Unknown => "unknown".to_owned(),
            TargetOf::Known(target) => target.id.to_string(),
        }
    }

    fn cache() -> Arc<ObjectCache<Node>> {
        ObjectCache::new(&[], |_| {})
    }

    #[tokio::test]
    async fn the_namespace_has_the_target_of_its_objects_whatever_they_write_and_one_without_it_is_unknown() {
        let targets = by_namespace(&["a", "b"]);
        targets.connect(&TargetId::named("a"), &TargetClients::one(&away()));
        let object = |namespace: &str, label: &str| ObjectMeta {
            namespace: Some(namespace.to_owned()),
            annotations: in_cluster(label).labels,
            ..in_cluster(label)
        };
        for label in ["a", "b", "c"] {
            assert_eq!(known(targets.target_for(&object("a", label))), "a");
            assert_eq!(known(targets.target_for(&object("b", label))), "unknown", "not connected yet");
            assert_eq!(known(targets.target_for(&object("c", label))), "unknown", "no target");
        }
        assert_eq!(targets.node_key(&object("c", "a"), "n"), None);
        assert_eq!(known(targets.target_for(&in_cluster("a"))), "unknown", "no namespace");
        targets.connect(&TargetId::named("b"), &TargetClients::one(&away()));
        assert_eq!(known(targets.target_for(&object("b", "a"))), "b");
        targets.assign("b", None);
        assert_eq!(known(targets.target_for(&object("b", "b"))), "unknown");
        assert_eq!(targets.namespaces_of(&TargetId::named("a")), ["a"]);
    }

    #[tokio::test]
    async fn without_targets_nothing_has_one_and_with_one_everything_has_it() {
        let none = CellTargets::new(TargetAssignment::None, cache);
        assert_eq!(known(none.target_for(&in_cluster("a"))), "none");
        let one = CellTargets::new(TargetAssignment::One(TargetId::only()), cache);
        assert_eq!(known(one.target_for(&in_cluster("a"))), "unknown", "not connected yet");
        one.connect(&TargetId::only(), &TargetClients::one(&away()));
        assert_eq!(known(one.target_for(&in_cluster("a"))), "target");
    }

    #[tokio::test]
    async fn a_rule_places_each_object_and_a_target_that_is_disconnected_is_unknown() {
        let targets = CellTargets::new(TargetAssignment::Rule, cache);
        assert_eq!(known(targets.target_for(&in_cluster("a"))), "unknown", "there is no rule yet");
        targets.set_placement(|meta| match meta.labels.as_ref().and_then(|labels| labels.get("cluster")) {
            Some(name) => NodePlacement::In(TargetId::named(name)),
            None => NodePlacement::Nowhere,
        });
        targets.connect(&TargetId::named("a"), &TargetClients::one(&away()));
        assert_eq!(known(targets.target_for(&in_cluster("a"))), "a");
        assert_eq!(known(targets.target_for(&in_cluster("b"))), "unknown");
        assert_eq!(known(targets.target_for(&ObjectMeta::default())), "none");
        assert_eq!(targets.node_key(&ObjectMeta::default(), "n"), None);
        let lost = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let reports = Arc::clone(&lost);
        targets.on_trust_change(move |target, trust| reports.lock().push((target.id.clone(), trust.is_trusted())));
        targets.disconnect(&TargetId::named("a"));
        targets.disconnect(&TargetId::named("b"));
        assert_eq!(known(targets.target_for(&in_cluster("a"))), "unknown");
        assert_eq!(*lost.lock(), [(TargetId::named("a"), false)]);
    }

    #[tokio::test]
    async fn nodes_are_unknown_until_their_target_is_connected_and_read() {
        let targets = by_namespace(&["n"]);
        let unknown = |namespace: &str| targets.unknown_nodes(namespace);
        assert_eq!(unknown("other"), None, "its target is unknown as well");
        assert_eq!(unknown("n").as_deref(), Some("cluster n is not connected"));
        let target = targets.connect(&TargetId::named("n"), &TargetClients::one(&away()));
        assert_eq!(unknown("n").as_deref(), Some("the Nodes of cluster n are not read yet"));
        target.nodes.cache.observe(watcher::Event::Init);
        target.nodes.cache.observe(watcher::Event::InitDone);
        assert_eq!(unknown("n"), None);
    }

    #[tokio::test]
    async fn only_the_one_target_of_a_cell_decides_whether_the_process_is_ready() {
        let one = TargetAssignment::One(TargetId::only());
        for (assignment, problems) in [(one, 1), (TargetAssignment::Rule, 0), (TargetAssignment::Namespace, 0)] {
            let (targets, caches) = (CellTargets::new(assignment, cache), Arc::new(trust::CacheRegistry::default()));
            targets.start(String::new(), &caches);
            let target = targets.connect(&TargetId::only(), &TargetClients::one(&away()));
            assert_eq!((caches.problems().len(), caches.all().len()), (problems, 1));
            drop(target);
        }
    }

    #[tokio::test]
    async fn a_target_with_more_nodes_than_its_bound_is_not_trusted_and_the_others_are() {
        let targets = by_namespace(&[]);
        targets.limit(CacheBounds::for_objects(2));
        let [bad, good] =
            ["bad", "good"].map(|name| targets.connect(&TargetId::named(name), &TargetClients::one(&away())));
        for (target, nodes) in [(&bad, 3), (&good, 2)] {
            target.nodes.cache.observe(watcher::Event::Init);
            target.nodes.cache.observe(watcher::Event::InitDone);
            for at in 0..nodes {
                let node = serde_json::json!({ "metadata": { "name": format!("n{at}"), "uid": at.to_string() } });
                target.nodes.cache.observe(watcher::Event::Apply(serde_json::from_value(node).unwrap()));
            }
        }
        let problem = bad.nodes.cache.trust().problem().unwrap();
        assert!(problem.contains("there are more than 2 objects"), "{problem}");
        assert!(good.nodes.cache.trust().is_trusted());
    }

    #[tokio::test]
    async fn a_change_of_a_node_names_its_target() {
        let targets = by_namespace(&[]);
        let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let changes = Arc::clone(&seen);
        targets.on_node_change(move |target, change| {
            changes.lock().push(TargetNodeKey::new(&target.id, &change.key.name))
        });
        for name in ["a", "b"] {
            let target = targets.connect(&TargetId::named(name), &TargetClients::one(&away()));
            let node = serde_json::json!({ "metadata": { "name": "n", "uid": name, "resourceVersion": "1" } });
            target.nodes.cache.wrote(serde_json::from_value(node).unwrap());
        }
        let both = ["a", "b"].map(|name| TargetNodeKey::new(&TargetId::named(name), "n"));
        assert_eq!(*seen.lock(), both);
    }
}
