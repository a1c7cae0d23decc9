//! A cell that only reads: caches, and the plans that the controllers would make. It holds no Lease, and its clients refuse every
//! request that could write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use http::{Method, Request, Response, StatusCode, Uri};
use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Namespace},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, ResourceExt, client::Body};
use serde_json::json;
use tower::{BoxError, service_fn};

use crate::place::CallTarget;
use mcm_api::{
    kinds::NODES,
    labels,
    machine::{Machine, MachinePhase},
    node::Node,
};
use mcm_controllers::{KINDS, MACHINES, SETS, Settings, machine_deployment, node};
use mcm_rules::plan::{PlanPreview, shell::CallFlags};
use mcm_runtime::{
    cache::{Key, UnreadableObject},
    cell::{CellConfig, CellScope, ControllerCell, SharedCellState, UnreadCause, UnreadKind},
    clock::{SystemClock, TimeSource},
    dated::DatedObject,
    engaged::switch::{DEPLOYMENT, ParkCause, is_of_shoot, park_cause},
    events::EventRecorder,
    kind_cache::CachedKind,
    kubeconfig::{
        self, ContextChoice, ControlKubeconfig, KubeconfigFallback, ProcessClusters, TargetKubeconfig, UserAgent,
    },
    members::MemberIdentity,
    metrics::MetricsRegistry,
    role::{ControllerRole, PROVIDER_LEASE},
    target::{CellTargets, NodePlacement, TargetAssignment, TargetClients, TargetId},
    trust,
};

/// Time until the API servers listed every kind, or refused to. What is not read by then is unknown.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The roles whose plans are made.
const ROLES: [ControllerRole; 2] = [SETS, MACHINES];

/// The role of the provider for Cluster API, under the Lease that its process takes.
const PROVIDER: ControllerRole = ControllerRole { name: "provider", lease: PROVIDER_LEASE };

/// The namespace in which `clusterctl` installs the provider.
const PROVIDER_NAMESPACE: &str = "capmcm-system";

/// A request of a cell that only reads would have changed something.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path} was not sent, because this command only reads: please report this as a bug")]
struct WouldWrite {
    method: Method,
    path: String,
}

/// Clients that only read, for the clusters of a command. Nothing has been asked yet.
#[derive(Clone)]
pub struct ReadOnlyClients {
    /// For the control cluster.
    pub control: Client,
    /// Its API server.
    pub server: Uri,
    /// The target cluster and its API server; `None` without one.
    pub target: Option<(Client, Uri)>,
    /// The namespace of the objects.
    pub namespace: String,
    /// The control cluster, for texts.
    pub place: CallTarget,
}

/// A cell that only reads.
pub struct ReadOnly {
    cell: Arc<ControllerCell>,
    /// A client for the control cluster, which only reads.
    pub control: Client,
    /// A client for the target cluster, which only reads; `None` without a target.
    pub target: Option<Client>,
    /// The settings of the controllers.
    pub settings: Settings,
    /// The namespace of the objects.
    pub namespace: String,
    /// The control cluster, for texts.
    pub place: CallTarget,
    /// The time of this computer.
    pub clock: Arc<dyn TimeSource>,
    /// Kinds that could not be read.
    pub unread: Vec<UnreadKind>,
}

/// The Lease of a role.
#[derive(Clone, Debug)]
pub struct RoleLease {
    /// The role.
    pub role: ControllerRole,
    pub lease: Option<Lease>,
    pub membership: MembershipReading,
    /// Why its holder, a replica of a fleet, does nothing in the namespace, as far as that could be read.
    pub parked: Option<ParkCause>,
}

impl RoleLease {
    /// The Lease of a role, without the membership of its holder.
    pub fn new(role: ControllerRole, lease: Option<Lease>) -> Self {
        Self { role, lease, membership: MembershipReading::default(), parked: None }
    }

    fn holder(&self) -> Option<&str> {
        self.lease.as_ref()?.spec.as_ref()?.holder_identity.as_deref()
    }

    fn member(&self) -> Option<MemberIdentity<'_>> {
        self.holder().and_then(MemberIdentity::parse)
    }
}

/// The Lease that a replica of a fleet renews every few seconds: it renews its claims of namespaces every few minutes.
#[derive(Clone, Debug, Default)]
pub enum MembershipReading {
    /// The holder is no replica of a fleet, or its Lease could not be read.
    #[default]
    NotRead,
    /// The Lease that the name of the holder names, if it exists.
    Read(Option<Box<Lease>>),
}

impl ReadOnlyClients {
    /// Makes the clients. The namespace is by default that of the kubeconfig.
    ///
    /// # Errors
    /// A kubeconfig cannot be used.
    pub async fn load(
        control: &ControlKubeconfig,
        target: &TargetKubeconfig,
        namespace: Option<String>,
        choice: &ContextChoice,
        call: CallFlags,
    ) -> Result<Self> {
        let fallback = KubeconfigFallback::LocalKubeconfig;
        let ProcessClusters { control, target } =
            ProcessClusters::load_chosen(control, target, fallback, choice).await?;
        let client = reading(kubeconfig::client(&control, UserAgent::Mcm).await?);
        let target = match target {
            Some(target) => {
                Some((reading(kubeconfig::client(&target, UserAgent::Mcm).await?), target.config.cluster_url))
            }
            None => None,
        };
        let namespace = namespace.unwrap_or_else(|| control.config.default_namespace.clone());
        let place = CallTarget { cluster: control.title(), call, is_target_unknown: false };
        Ok(Self { control: client, server: control.config.cluster_url, target, namespace, place })
    }

    /// The same clients for another namespace.
    pub fn within(&self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self.clone() }
    }

    /// The target cluster is another one than the control cluster.
    pub fn is_apart(&self) -> bool {
        self.target.as_ref().is_some_and(|(_, of_target)| *of_target != self.server)
    }

    /// Requests the version of the control cluster.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn check(&self) -> Result<()> {
        kubeconfig::check(&self.control, &self.server).await?;
        Ok(())
    }

    /// The Leases of the managers in the namespace.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn leaderships(&self) -> Result<Vec<RoleLease>> {
        leaderships(&self.control, &self.namespace).await
    }
}

/// The Lease of the provider for Cluster API. It is not found if the provider is in another namespace than usual, runs without
/// leader election, or its Lease cannot be read.
pub async fn provider_leadership(control: &Client) -> Option<RoleLease> {
    let leases: Api<DatedObject<Lease>> = Api::namespaced(control.clone(), PROVIDER_NAMESPACE);
    let DatedObject(lease) = leases.get_opt(PROVIDER.lease).await.ok()??;
    let mut found = [RoleLease::new(PROVIDER, Some(lease))];
    read_memberships(control, &mut found).await;
    let [found] = found;
    Some(found)
}

/// The Leases of the managers in a namespace.
///
/// # Errors
/// They cannot be read.
pub async fn leaderships(control: &Client, namespace: &str) -> Result<Vec<RoleLease>> {
    let leases: Api<DatedObject<Lease>> = Api::namespaced(control.clone(), namespace);
    let mut found = Vec::new();
    for role in ROLES {
        let lease = leases.get_opt(role.lease).await.with_context(|| format!("read Lease {}", role.lease))?;
        found.push(RoleLease::new(role, lease.map(|DatedObject(lease)| lease)));
    }
    read_memberships(control, &mut found).await;
    read_switch(control, namespace, &mut found).await;
    Ok(found)
}

/// Reads the memberships of the holders, each once. One that cannot be read is left out.
async fn read_memberships(control: &Client, leases: &mut [RoleLease]) {
    let mut read = BTreeMap::<(String, String), MembershipReading>::new();
    for one in leases {
        let Some(member) = one.member() else { continue };
        let key = (member.namespace.to_owned(), member.lease.to_owned());
        if !read.contains_key(&key) {
            let leases: Api<DatedObject<Lease>> = Api::namespaced(control.clone(), &key.0);
            let reading = match leases.get_opt(&key.1).await {
                Ok(lease) => MembershipReading::Read(lease.map(|DatedObject(lease)| Box::new(lease))),
                Err(_) => MembershipReading::NotRead,
            };
            read.insert(key.clone(), reading);
        }
        one.membership = read[&key].clone();
    }
}

/// Reads the Deployment that parks the namespace, if a replica of a fleet holds one of its Leases. A Go program ends with its
/// Deployment, and cells of a file may have no such switch.
async fn read_switch(control: &Client, namespace: &str, leases: &mut [RoleLease]) {
    if leases.iter().any(|one| one.member().is_some()) {
        let cause = park_cause_in(control, namespace).await;
        leases.iter_mut().filter(|one| one.member().is_some()).for_each(|one| one.parked = cause);
    }
}

/// The cause for which a shoot is parked; `None` if it is not, is no shoot, or that could not be read.
async fn park_cause_in(control: &Client, namespace: &str) -> Option<ParkCause> {
    let namespaces: Api<Namespace> = Api::all(control.clone());
    let deployments: Api<DatedObject<Deployment>> = Api::namespaced(control.clone(), namespace);
    let (of_namespace, deployment) =
        tokio::join!(namespaces.get_metadata_opt(namespace), deployments.get_opt(DEPLOYMENT));
    let is_shoot = of_namespace.ok()?.is_some_and(|one| is_of_shoot(one.labels()));
    let deployment = deployment.ok().filter(|_| is_shoot)?;
    park_cause(deployment.as_ref().map(|DatedObject(deployment)| deployment))
}

impl ReadOnly {
    /// Reads the caches of one namespace. The controllers plan with the settings, and have a target if the clients have one.
    /// Nodes of another cluster are unknown: without a kubeconfig of the target cluster, the Nodes of the control cluster were read.
    pub async fn from_clients(reach: ReadOnlyClients, settings: Settings) -> Self {
        Self::from_clients_with(reach, settings, Arc::new(SystemClock)).await
    }

    /// The same with the time of a clock.
    pub async fn from_clients_with(reach: ReadOnlyClients, settings: Settings, clock: Arc<dyn TimeSource>) -> Self {
        let found = Self::read(reach.clone(), settings.clone(), &clock).await;
        if reach.is_apart() {
            return found;
        }
        match found.foreign_nodes().await {
            Some(count) => {
                let message =
                    format!("none of {count} Nodes is in the cluster that was read: pass --target-kubeconfig");
                let target = reach.target.map(|(_, server)| (refusing(message.clone()), server));
                let mut found = Self::read(ReadOnlyClients { target, ..reach }, settings, &clock).await;
                let nodes = found.unread.iter_mut().filter(|unread| unread.kind == NODES.plural);
                nodes.for_each(|unread| unread.cause = UnreadCause::OtherCluster(message.clone()));
                found.place.is_target_unknown = true;
                found
            }
            None => found,
        }
    }

    /// The number of Nodes that machines have, if there are several and none of them is in the cluster that was read. The Nodes of
    /// machines of the provider for Cluster API are elsewhere by intent. The kinds were listed at different times, so the server is
    /// asked once more for one of the Nodes.
    async fn foreign_nodes(&self) -> Option<usize> {
        let nodes: BTreeSet<String> = self.nodes()?.iter().map(|node| node.name_any()).collect();
        let machines = self.cached::<Machine>();
        let placed = machines.iter().filter(|machine| placement(&machine.metadata, false) != NodePlacement::Nowhere);
        let named: BTreeSet<&str> =
            placed.filter(|machine| has_joined(machine)).filter_map(|machine| machine.node_name()).collect();
        if named.len() < 2 || named.iter().any(|name| nodes.contains(*name)) {
            return None;
        }
        let api: Api<Node> = Api::all(self.target.clone()?);
        let is_there = api.get_metadata_opt(named.first()?).await.is_ok_and(|node| node.is_some());
        (!is_there).then_some(named.len())
    }

    async fn read(reach: ReadOnlyClients, settings: Settings, clock: &Arc<dyn TimeSource>) -> Self {
        let is_apart = reach.is_apart();
        let ReadOnlyClients { control, target, namespace, place, .. } = reach;
        let target = target.map(|(client, _)| client);
        let assignment =
            if target.is_some() { TargetAssignment::One(TargetId::only()) } else { TargetAssignment::None };
        let targets = CellTargets::new(assignment, node::cache_for(&ROLES));
        targets.set_placement(move |meta| placement(meta, is_apart));
        if let Some(client) = &target {
            drop(targets.connect(&TargetId::only(), &TargetClients::one(client)));
        }
        let deployment = machine_deployment::DeploymentPolicy { has_target: targets.exist(), ..settings.deployment };
        let settings = Settings { deployment, ..settings };
        let (cell, clock) = (cell(&control, &namespace, targets, &settings, clock), Arc::clone(clock));
        let unread = cell.unread_after(PATIENCE).await;
        Self { cell, control, target, settings, namespace, place, clock, unread }
    }

    /// The plan that a controller would make for an object; `None` if the object does not exist or is unreadable.
    pub fn preview(&self, controller: &str, name: &str) -> Option<PlanPreview> {
        self.cell.preview(controller, &Key::new(&self.namespace, name))
    }

    /// The objects of a kind in the cache, which a watch keeps up to date. Fields that no plan needs are missing.
    pub fn cached<K: CachedKind>(&self) -> Vec<Arc<K>> {
        self.cell.cached()
    }

    /// The objects of a kind that exist and cannot be decoded.
    pub fn unreadable<K: CachedKind>(&self) -> Vec<UnreadableObject> {
        self.cell.unreadable::<K>()
    }

    /// The Nodes of the target cluster; `None` if they could not be read, or there is no target.
    pub fn nodes(&self) -> Option<Vec<Arc<Node>>> {
        let target = self.cell.targets().only()?;
        let cache = &target.nodes.cache;
        cache.is_synced().then(|| cache.all())
    }

    /// The Leases of the managers in the namespace.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn leaderships(&self) -> Result<Vec<RoleLease>> {
        leaderships(&self.control, &self.namespace).await
    }
}

/// A Node of the Machine was seen: it has the name of one from the creation of its VM on, minutes before the Node exists.
fn has_joined(machine: &Machine) -> bool {
    use MachinePhase::{InPlaceUpdateFailed, InPlaceUpdateSuccessful, InPlaceUpdating, Running, Unknown};
    matches!(machine.phase(), Running | Unknown | InPlaceUpdating | InPlaceUpdateSuccessful | InPlaceUpdateFailed)
}

/// Where the Node of an object is: that of a machine of the provider for Cluster API is in its workload cluster, where core
/// manages it. Only the Nodes of its pools are read here, if the target cluster is another one.
fn placement(meta: &ObjectMeta, is_apart: bool) -> NodePlacement {
    let is_of_pool = meta.labels.as_ref().is_some_and(|labels| labels.contains_key(labels::POOL));
    let is_provided = meta.owner_references.iter().flatten().any(|owner| owner.kind == "MCMMachine");
    if is_provided || is_of_pool && !is_apart { NodePlacement::Nowhere } else { NodePlacement::In(TargetId::only()) }
}

fn cell(
    control: &Client,
    namespace: &str,
    targets: Arc<CellTargets>,
    settings: &Settings,
    clock: &Arc<dyn TimeSource>,
) -> Arc<ControllerCell> {
    let metrics = MetricsRegistry::new();
    let shared = SharedCellState {
        clock: Arc::clone(clock),
        metrics: metrics.clone(),
        caches: Arc::new(trust::CacheRegistry::default()),
        entropy: Arc::new(rand::random),
        cells: Arc::default(),
    };
    let config = CellConfig {
        name: String::new(),
        scope: CellScope::Namespace(namespace.to_owned()),
        control: control.clone(),
        targets,
        events: EventRecorder::start(control.clone(), "mcm", Arc::clone(clock), metrics),
        kinds: mcm_controllers::kind_caches(),
        shared,
    };
    ControllerCell::new(config, KINDS, &ROLES, settings)
}

/// Requests that only ask the API server what a user may do, and who the user is.
const REVIEWS: [(&str, &[&str]); 2] = [
    (
        "/apis/authorization.k8s.io/v1/",
        &["selfsubjectaccessreviews", "subjectaccessreviews", "localsubjectaccessreviews"],
    ),
    ("/apis/authentication.k8s.io/v1/", &["selfsubjectreviews"]),
];

/// The request changes nothing: it reads, or is a review.
fn only_reads(method: &Method, path: &str) -> bool {
    if method != Method::POST {
        return method == Method::GET;
    }
    REVIEWS.iter().any(|(group, reviews)| {
        let resource = path.strip_prefix(group).map(|rest| match rest.strip_prefix("namespaces/") {
            Some(rest) => rest.split_once('/').map_or("", |(_, resource)| resource),
            None => rest,
        });
        resource.is_some_and(|resource| reviews.contains(&resource))
    })
}

/// The same client, which refuses every request that could write; dry runs of patches are sent.
fn reading(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if !only_reads(request.method(), request.uri().path()) && !is_dry_run(&request) {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                return Err(BoxError::from(WouldWrite { method, path }));
            }
            Ok::<Response<_>, BoxError>(client.send(request).await?)
        }
    });
    Client::new(service, namespace)
}

/// A client whose requests are refused with a message, without a server.
fn refusing(message: String) -> Client {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message,
    });
    let service = service_fn(move |_: Request<Body>| {
        let body = Body::from(status.to_string().into_bytes());
        async move { Response::builder().status(StatusCode::FORBIDDEN).body(body).map_err(BoxError::from) }
    });
    Client::new(service, "default")
}

/// The API server returns what it would store, and stores nothing.
fn is_dry_run(request: &Request<Body>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    request.method() == Method::PATCH && pairs.any(|pair| pair == "dryRun=All")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::OwnerReference};
    use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
    use parking_lot::Mutex;
    use serde_json::Value;

    use crate::reader;

    /// A replica of a fleet.
    const MEMBER: &str = "pod@mcm-system/mcm-fleet-one-0000000a_0123456789abcdef0123456789abcdef";
    const GO: &str = "machine-controller-manager-7d4_2f1c9e3a-7b1d-4c59-9a52-0d7e5f3c1b11";
    /// The paths that a reader needs beside those of Leases.
    const SWITCH: [&str; 2] =
        ["/api/v1/namespaces/shoot--a", "/apis/apps/v1/namespaces/shoot--a/deployments/machine-controller-manager"];

    fn scaled(replicas: i32) -> Value {
        json!({ "metadata": { "name": "machine-controller-manager" }, "spec": { "replicas": replicas } })
    }

    fn leaving() -> Value {
        let metadata = json!({ "name": "machine-controller-manager", "deletionTimestamp": "2026-01-01T00:00:00Z" });
        json!({ "metadata": metadata, "spec": { "replicas": 1 } })
    }

    /// A refusal; its code is that of the response.
    fn refusal(code: u16, reason: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": reason,
        })
    }

    /// Only the shoots of a fleet have this switch, and an unknown one parks no namespace.
    #[rstest::rstest]
    #[case::off(MEMBER, "shoot", scaled(0), Some(ParkCause::NoReplicas))]
    #[case::on(MEMBER, "shoot", scaled(1), None)]
    #[case::being_deleted(MEMBER, "shoot", leaving(), Some(ParkCause::Terminating))]
    #[case::gone(MEMBER, "shoot", refusal(404, "NotFound"), Some(ParkCause::Missing))]
    #[case::forbidden(MEMBER, "shoot", refusal(403, "Forbidden"), None)]
    #[case::forbidden_namespace(MEMBER, "", scaled(0), None)]
    #[case::no_shoot(MEMBER, "garden", scaled(0), None)]
    #[case::no_shoot_and_no_deployment(MEMBER, "garden", refusal(404, "NotFound"), None)]
    #[case::a_go_program(GO, "shoot", scaled(0), None)]
    #[case::a_cell_of_a_file("mcm-cell-mcm-system_0123456789abcdef0123456789abcdef", "shoot", scaled(0), None)]
    #[tokio::test]
    async fn a_namespace_that_a_replica_holds_is_parked_as_the_replica_judges_it(
        #[case] holder: &'static str,
        #[case] role: &'static str,
        #[case] deployment: Value,
        #[case] expected: Option<ParkCause>,
    ) {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&seen);
        let server = service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let (name, is_lease) = (path.rsplit('/').next().unwrap_or_default(), path.contains("/leases/"));
            let body = match path.as_str() {
                _ if is_lease && path.contains("/shoot--a/") => {
                    json!({ "metadata": { "name": name, "namespace": "shoot--a" }, "spec": { "holderIdentity": holder } })
                }
                path if path == SWITCH[0] && role.is_empty() => refusal(403, "Forbidden"),
                path if path == SWITCH[0] => {
                    json!({ "metadata": { "name": name, "labels": { "gardener.cloud/role": role } } })
                }
                path if path == SWITCH[1] => deployment.clone(),
                _ => refusal(404, "NotFound"),
            };
            if !is_lease {
                log.lock().push(path);
            }
            let code = body["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(200);
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { response.map_err(BoxError::from) }
        });
        let found = leaderships(&Client::new(server, "shoot--a"), "shoot--a").await.unwrap();
        assert_eq!(found.iter().map(|one| one.parked).collect::<Vec<_>>(), [expected; 2]);
        let wait = reader::manager(&found[0]).parked.map(|park| park.why);
        assert_eq!(wait, expected.map(|cause| cause.obstacle("shoot--a")));
        let mut read = std::mem::take(&mut *seen.lock());
        read.sort_unstable();
        let wanted: &[&str] = if holder == MEMBER { &SWITCH } else { &[] };
        assert_eq!(read, wanted, "one read of each, and none without a fleet");
    }

    #[tokio::test]
    async fn a_client_that_reads_sends_nothing_that_writes() {
        let seen: Arc<Mutex<Vec<Method>>> = Arc::default();
        let log = Arc::clone(&seen);
        let server = service_fn(move |request: Request<Body>| {
            log.lock().push(request.method().clone());
            async { Ok::<_, BoxError>(Response::new(Body::from(br#"{"metadata":{"name":"a"}}"#.to_vec()))) }
        });
        let maps: Api<ConfigMap> = Api::namespaced(reading(Client::new(server, "ns")), "ns");
        let map = ConfigMap::default();
        maps.get("a").await.unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap_err();
        maps.replace("a", &PostParams::default(), &map).await.unwrap_err();
        maps.patch("a", &PatchParams::default(), &Patch::Merge(&map)).await.unwrap_err();
        maps.patch("a", &PatchParams::default().dry_run(), &Patch::Merge(&map)).await.unwrap();
        maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &map).await.unwrap_err();
        let error = maps.delete("a", &DeleteParams::default()).await.unwrap_err();
        let kube::Error::Service(error) = error else { panic!("{error}") };
        assert!(error.to_string().contains("this command only reads"), "{error}");
        assert_eq!(*seen.lock(), [Method::GET, Method::PATCH]);
    }

    #[rstest::rstest]
    #[case::of_a_native_deployment(ObjectMeta::default(), false, NodePlacement::In(TargetId::only()))]
    #[case::of_an_mcm_machine(owned_by("MCMMachine"), true, NodePlacement::Nowhere)]
    #[case::of_a_set(owned_by("MachineSet"), false, NodePlacement::In(TargetId::only()))]
    #[case::of_a_pool(of_pool(), false, NodePlacement::Nowhere)]
    #[case::of_a_pool_whose_cluster_is_named(of_pool(), true, NodePlacement::In(TargetId::only()))]
    fn nodes_of_the_provider_for_cluster_api_are_in_their_workload_clusters(
        #[case] meta: ObjectMeta,
        #[case] is_apart: bool,
        #[case] expected: NodePlacement,
    ) {
        assert_eq!(placement(&meta, is_apart), expected);
    }

    fn owned_by(kind: &str) -> ObjectMeta {
        let owner = OwnerReference { kind: kind.to_owned(), ..OwnerReference::default() };
        ObjectMeta { owner_references: Some(vec![owner]), ..ObjectMeta::default() }
    }

    fn of_pool() -> ObjectMeta {
        ObjectMeta { labels: Some([(labels::POOL.to_owned(), "p".to_owned())].into()), ..ObjectMeta::default() }
    }

    #[rstest::rstest]
    #[case("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true)]
    #[case("/apis/authorization.k8s.io/v1/subjectaccessreviews", true)]
    #[case("/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews", true)]
    #[case("/apis/authentication.k8s.io/v1/selfsubjectreviews", true)]
    #[case("/apis/authentication.k8s.io/v1/tokenreviews", false)]
    #[case("/apis/authorization.k8s.io/v1/namespaces/a/b/localsubjectaccessreviews", false)]
    #[case("/api/v1/namespaces/selfsubjectaccessreviews/secrets", false)]
    #[case("/apis/authorization.k8s.io/v1/namespaces/a/roles", false)]
    fn of_requests_that_create_only_reviews_are_sent(#[case] path: &str, #[case] is_sent: bool) {
        assert_eq!(only_reads(&Method::POST, path), is_sent);
        assert!(!only_reads(&Method::PUT, path) && !only_reads(&Method::DELETE, path));
    }
}
