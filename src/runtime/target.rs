//! Target clusters, which the Nodes of Machines join. A cell has none, one, or several that are connected and
//! disconnected while it runs.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::policy::v1::PodDisruptionBudget, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client};
use parking_lot::{Mutex, RwLock};
use tokio_util::task::AbortOnDropHandle;

use super::{
    cache::{AnyIndex, Bounds, Cache, Change, Index, Key},
    clock::Clock,
    fair::FairBucket,
    handlers::Handlers,
    limiter::Rate,
    objects::Objects,
    on_demand::{self, OnDemand},
    panics::{self, Place},
    server_clock::{self, ServerClock},
    trust::{self, Liveness, Trust},
};
use mcm_api::{node::Node, volume_attachment::VolumeAttachment};

/// Index: the PersistentVolume.
pub const ATTACHMENTS_BY_VOLUME: &Index<VolumeAttachment, String> =
    &Index::new("volume", |attachment| vec![attachment.spec.source.persistent_volume_name.clone()]);
/// Index: the Node.
pub const ATTACHMENTS_BY_NODE: &Index<VolumeAttachment, String> =
    &Index::new("node", |attachment| vec![attachment.spec.node_name.clone()]);

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
pub struct NodeKey {
    /// Its cluster.
    pub target: TargetId,
    /// Its name.
    pub name: String,
}

impl NodeKey {
    /// A Node of a target.
    pub fn new(target: &TargetId, name: impl Into<String>) -> Self {
        Self { target: target.clone(), name: name.into() }
    }

    /// Its key in the cache of its target.
    pub fn in_target(&self) -> Key {
        Key::new("", &self.name)
    }
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.name, self.target)
    }
}

/// Assignment of objects of the control cluster to targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// The object has no target cluster.
    None,
    /// All objects have the same target, unless a [rule](Targets::set_placement) places them.
    One(TargetId),
    /// The value of this label names the target.
    Label(String),
    /// A [rule](Targets::set_placement) of the cell tells it for each object.
    Rule,
}

/// Where the Node of an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
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
    pub evictions: Rate,
    /// The time of its API server; `None` if it is that of the control cluster.
    pub clock: Option<ServerClock>,
}

impl TargetClients {
    /// One client for everything, without a limit of evictions.
    pub fn one(client: &Client) -> Self {
        Self { requests: client.clone(), drains: client.clone(), evictions: Rate { qps: 0.0, burst: 0 }, clock: None }
    }
}

/// A target cluster that is connected.
pub struct Target {
    /// Its identifier.
    pub id: TargetId,
    /// A client for it.
    pub client: Client,
    /// A client for drains, with separate limits.
    pub drains: Client,
    /// The turns of its Nodes at evictions.
    pub evictions: Arc<FairBucket>,
    /// Its Nodes.
    pub nodes: Objects<Node>,
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
    /// The target is not connected, or the label is absent: its Node is unknown.
    Unknown,
    /// The target.
    Known(Arc<Target>),
}

type NodeHandler = dyn Fn(&Target, &Change<Node>) + Send + Sync;
type TrustHandler = dyn Fn(&Target, &Trust) + Send + Sync;
type Rule = Box<dyn Fn(&ObjectMeta) -> Placement + Send + Sync>;

/// Registration of the Node caches for `/readyz` and `/metrics`.
struct Followed {
    prefix: String,
    caches: Arc<trust::Caches>,
}

/// `namespace/name` of a budget that allows a disruption; the others are filtered out.
fn allowing(budget: &PodDisruptionBudget) -> String {
    let allows = budget.status.as_ref().is_some_and(|status| status.disruptions_allowed > 0);
    if allows { Key::of(&budget.metadata).to_string() } else { String::new() }
}

/// The targets of a cell.
pub struct Targets {
    assignment: Assignment,
    connected: RwLock<BTreeMap<TargetId, Arc<Target>>>,
    handlers: Arc<Handlers<NodeHandler>>,
    trust_handlers: Arc<Handlers<TrustHandler>>,
    make_cache: fn() -> Arc<Cache<Node>>,
    /// Set once watches may begin.
    followed: OnceLock<Followed>,
    rule: OnceLock<Rule>,
    bounds: OnceLock<Bounds>,
}

impl Target {
    /// How far its clock is ahead of that of the control cluster, which shows `now`.
    pub fn ahead_of(&self, now: Timestamp) -> SignedDuration {
        let ahead = self.clock.as_ref().map(|clock| clock.now().duration_since(now));
        ahead.filter(|ahead| ahead.abs() > server_clock::NOISE).unwrap_or_default()
    }

    fn start(&self, followed: &Followed, need: trust::Need) {
        let mut watch = self.watch.lock();
        if watch.is_none() {
            followed.caches.add(&format!("{}{}", followed.prefix, self.id), &self.nodes.cache, need);
            let (cache, client) = (Arc::clone(&self.nodes.cache), self.client.clone());
            *watch = Some(panics::keep(Place::Watch, format!("nodes of {}", self.id), move || {
                Arc::clone(&cache).watch(client.clone(), Api::all, Liveness::TARGET)
            }));
        }
    }
}

impl Targets {
    /// Without connected targets. `make_cache` creates the cache of Nodes of each.
    pub fn new(assignment: Assignment, make_cache: fn() -> Arc<Cache<Node>>) -> Arc<Self> {
        Arc::new(Self {
            assignment,
            connected: RwLock::default(),
            handlers: Arc::default(),
            trust_handlers: Arc::default(),
            make_cache,
            followed: OnceLock::new(),
            rule: OnceLock::new(),
            bounds: OnceLock::new(),
        })
    }

    /// Bounds what each target that is connected from now on may send; only the first bounds count.
    pub fn limit(&self, bounds: Bounds) {
        let _ = self.bounds.set(bounds);
    }

    /// Sets the rule of [`Assignment::Rule`] or [`Assignment::One`]; only the first one counts.
    pub fn set_placement(&self, rule: impl Fn(&ObjectMeta) -> Placement + Send + Sync + 'static) {
        let _ = self.rule.set(Box::new(rule));
    }

    /// Calls `handler` after each change of a Node in any target.
    pub fn on_node_change(&self, handler: impl Fn(&Target, &Change<Node>) + Send + Sync + 'static) {
        self.handlers.add(Box::new(handler));
    }

    /// Calls `handler` when the Nodes of a target are known, when they become untrusted, and when they are trusted again.
    pub fn on_trust_change(&self, handler: impl Fn(&Target, &Trust) + Send + Sync + 'static) {
        self.trust_handlers.add(Box::new(handler));
    }

    /// Drops all handlers with their captured values.
    pub fn forget_handlers(&self) {
        self.handlers.forget();
        self.trust_handlers.forget();
    }

    /// Connects a target and watches its Nodes. Replaces one of the same name.
    pub fn connect(&self, id: &TargetId, clients: &TargetClients) -> Arc<Target> {
        let client = &clients.requests;
        let cache = (self.make_cache)();
        let bounds = self.bounds.get().copied();
        bounds.into_iter().for_each(|bounds| cache.limit(bounds));
        let small = bounds.map(Bounds::for_small_objects);
        let target = Arc::new_cyclic(|weak: &std::sync::Weak<Target>| {
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
            Target {
                id: id.clone(),
                client: client.clone(),
                drains: clients.drains.clone(),
                evictions: FairBucket::new(clients.evictions),
                clock: clients.clock.clone(),
                nodes: Objects::cluster_wide(&cache, client),
                budgets: OnDemand::new(
                    &clients.drains,
                    small,
                    |client| Arc::new(Objects::namespaced(&Cache::new(&[], on_demand::prune), client)),
                    allowing,
                ),
                attachments: OnDemand::new(
                    &clients.drains,
                    small,
                    |client| {
                        let indexes: [&dyn AnyIndex<VolumeAttachment>; 2] =
                            [ATTACHMENTS_BY_VOLUME, ATTACHMENTS_BY_NODE];
                        Arc::new(Objects::cluster_wide(&Cache::new(&indexes, on_demand::prune), client))
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
        self.connected.write().remove(id);
    }

    /// Starts the watches, after all handlers are registered. `/readyz` and `/metrics` show the caches under their
    /// names with `prefix`.
    pub fn start(&self, prefix: String, caches: &Arc<trust::Caches>) {
        let followed = self.followed.get_or_init(|| Followed { prefix, caches: Arc::clone(caches) });
        self.all().iter().for_each(|target| target.start(followed, self.need()));
    }

    /// Clusters that come and go while the cell runs do not decide whether the process is ready.
    fn need(&self) -> trust::Need {
        match self.assignment {
            Assignment::Rule => trust::Need::Optional,
            Assignment::None | Assignment::One(_) | Assignment::Label(_) => trust::Need::Required,
        }
    }

    /// Whether the cell has targets.
    pub fn exist(&self) -> bool {
        self.assignment != Assignment::None
    }

    /// The only target, if all objects have the same and it is connected.
    pub fn only(&self) -> Option<Arc<Target>> {
        match &self.assignment {
            Assignment::One(id) => self.get(id),
            Assignment::None | Assignment::Label(_) | Assignment::Rule => None,
        }
    }

    /// A target by its name.
    pub fn get(&self, id: &TargetId) -> Option<Arc<Target>> {
        self.connected.read().get(id).cloned()
    }

    /// All connected targets.
    pub fn all(&self) -> Vec<Arc<Target>> {
        self.connected.read().values().cloned().collect()
    }

    /// The target of an object.
    pub fn of(&self, meta: &ObjectMeta) -> TargetOf {
        match self.placement(meta) {
            Placement::Nowhere => TargetOf::NoTarget,
            Placement::Unknown => TargetOf::Unknown,
            Placement::In(id) => self.get(&id).map_or(TargetOf::Unknown, TargetOf::Known),
        }
    }

    /// The Node of an object with this name.
    pub fn node_key(&self, meta: &ObjectMeta, name: &str) -> Option<NodeKey> {
        match self.placement(meta) {
            Placement::In(id) => Some(NodeKey::new(&id, name)),
            Placement::Nowhere | Placement::Unknown => None,
        }
    }

    fn placement(&self, meta: &ObjectMeta) -> Placement {
        match &self.assignment {
            Assignment::None => Placement::Nowhere,
            Assignment::One(id) => self.rule.get().map_or_else(|| Placement::In(id.clone()), |rule| rule(meta)),
            Assignment::Label(label) => {
                let name = meta.labels.as_ref().and_then(|labels| labels.get(label));
                name.map_or(Placement::Unknown, |name| Placement::In(TargetId::named(name)))
            }
            Assignment::Rule => self.rule.get().map_or(Placement::Unknown, |rule| rule(meta)),
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

    fn known(of: TargetOf) -> String {
        match of {
            TargetOf::NoTarget => "none".to_owned(),
            TargetOf::Unknown => "unknown".to_owned(),
            TargetOf::Known(target) => target.id.to_string(),
        }
    }

    fn cache() -> Arc<Cache<Node>> {
        Cache::new(&[], |_| {})
    }

    #[tokio::test]
    async fn a_label_leads_each_object_to_its_own_target_and_what_is_not_connected_is_unknown() {
        let targets = Targets::new(Assignment::Label("cluster".to_owned()), cache);
        targets.connect(&TargetId::named("a"), &TargetClients::one(&away()));
        assert_eq!(known(targets.of(&in_cluster("a"))), "a");
        assert_eq!(known(targets.of(&in_cluster("b"))), "unknown");
        assert_eq!(known(targets.of(&ObjectMeta::default())), "unknown", "no label");
        targets.connect(&TargetId::named("b"), &TargetClients::one(&away()));
        assert_eq!(known(targets.of(&in_cluster("b"))), "b");
    }

    #[tokio::test]
    async fn without_targets_nothing_has_one_and_with_one_everything_has_it() {
        let none = Targets::new(Assignment::None, cache);
        assert_eq!(known(none.of(&in_cluster("a"))), "none");
        let one = Targets::new(Assignment::One(TargetId::only()), cache);
        assert_eq!(known(one.of(&in_cluster("a"))), "unknown", "not connected yet");
        one.connect(&TargetId::only(), &TargetClients::one(&away()));
        assert_eq!(known(one.of(&in_cluster("a"))), "target");
    }

    #[tokio::test]
    async fn a_rule_places_each_object_and_a_target_that_is_disconnected_is_unknown() {
        let targets = Targets::new(Assignment::Rule, cache);
        assert_eq!(known(targets.of(&in_cluster("a"))), "unknown", "there is no rule yet");
        targets.set_placement(|meta| match meta.labels.as_ref().and_then(|labels| labels.get("cluster")) {
            Some(name) => Placement::In(TargetId::named(name)),
            None => Placement::Nowhere,
        });
        targets.connect(&TargetId::named("a"), &TargetClients::one(&away()));
        assert_eq!(known(targets.of(&in_cluster("a"))), "a");
        assert_eq!(known(targets.of(&in_cluster("b"))), "unknown");
        assert_eq!(known(targets.of(&ObjectMeta::default())), "none");
        assert_eq!(targets.node_key(&ObjectMeta::default(), "n"), None);
        targets.disconnect(&TargetId::named("a"));
        assert_eq!(known(targets.of(&in_cluster("a"))), "unknown");
    }

    #[tokio::test]
    async fn only_targets_that_the_cell_was_started_with_decide_whether_the_process_is_ready() {
        for (assignment, problems) in [(Assignment::One(TargetId::only()), 1), (Assignment::Rule, 0)] {
            let (targets, caches) = (Targets::new(assignment, cache), Arc::new(trust::Caches::default()));
            targets.start(String::new(), &caches);
            let target = targets.connect(&TargetId::only(), &TargetClients::one(&away()));
            assert_eq!((caches.problems().len(), caches.all().len()), (problems, 1));
            drop(target);
        }
    }

    #[tokio::test]
    async fn a_target_with_more_nodes_than_its_bound_is_not_trusted_and_the_others_are() {
        let targets = Targets::new(Assignment::Label("cluster".to_owned()), cache);
        targets.limit(Bounds::for_objects(2));
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
        let targets = Targets::new(Assignment::Label("cluster".to_owned()), cache);
        let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let changes = Arc::clone(&seen);
        targets.on_node_change(move |target, change| changes.lock().push(NodeKey::new(&target.id, &change.key.name)));
        for name in ["a", "b"] {
            let target = targets.connect(&TargetId::named(name), &TargetClients::one(&away()));
            let node = serde_json::json!({ "metadata": { "name": "n", "uid": name, "resourceVersion": "1" } });
            target.nodes.cache.wrote(serde_json::from_value(node).unwrap());
        }
        let both = ["a", "b"].map(|name| NodeKey::new(&TargetId::named(name), "n"));
        assert_eq!(*seen.lock(), both);
    }
}
