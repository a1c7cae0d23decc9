//! Reads the preconditions of the stand-in: namespaces, CRDs, and the last answer about core.

use std::{fmt::Debug, marker::PhantomData, sync::Arc};

use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Client, Resource};
use serde::{Deserialize, Serialize};

use super::{
    mirror::{self, MirrorAncestors},
    signals::CoreCheckState,
    standing::{self, CoreCheckResult, StandInStatus},
};
use crate::object::{hold, observe::view, view::ObjectView};
use mcm_api::machine as native;
use mcm_controllers::object::owner;
use mcm_conversion::types::{Cluster, MCMMigration, MachineDeployment};
use mcm_runtime::{
    cache::{Key, ObjectCache},
    cell::{CellBuilder, CellScope},
    kind_cache::{CachedKind, KindCache, KindCaches},
    objects::CachedApi,
    queue::WorkQueue,
    trust::CacheTrust,
    worker::ReconcileError,
};

/// Metadata of the objects of a cluster-scoped kind. They are cached regardless of the scope of the cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct OfCluster<K> {
    metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> Resource for OfCluster<K> {
    type DynamicType = ();
    // Its path is that of all namespaces together.
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        K::kind(&()).into_owned().into()
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        K::group(&()).into_owned().into()
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        K::version(&()).into_owned().into()
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        K::plural(&()).into_owned().into()
    }

    fn metadata_api() -> bool {
        true
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// How the metadata of the objects of a kind without namespaces is cached.
const fn metadata_of_cluster<K: Resource<DynamicType = ()> + Clone + Debug + 'static>() -> KindCache<OfCluster<K>> {
    KindCache::new(|_| {
        ObjectCache::new(&[], |object: &mut OfCluster<K>| {
            object.metadata.managed_fields = None;
            object.metadata.annotations = None;
        })
    })
    .of_cluster()
}

/// Adds the caches of the kinds without namespaces.
pub fn with_caches(kinds: KindCaches) -> KindCaches {
    kinds.with(metadata_of_cluster::<CustomResourceDefinition>()).with(metadata_of_cluster::<Namespace>())
}

/// The deployments on both sides, with all facts that decide whether their dependents are shown.
pub(super) struct DeploymentCaches {
    own: Arc<CachedApi<MachineDeployment>>,
    natives: Arc<CachedApi<native::MachineDeployment>>,
    migrations: Arc<CachedApi<MCMMigration>>,
    clusters: Arc<CachedApi<Cluster>>,
}

impl DeploymentCaches {
    pub fn new(builder: &mut CellBuilder<'_>) -> Self {
        Self {
            own: builder.objects(),
            natives: builder.objects(),
            migrations: builder.objects(),
            clusters: builder.objects(),
        }
    }

    /// UID of a native deployment.
    pub fn native_uid(&self, deployment: &Key) -> Option<String> {
        self.natives.cache.get(deployment).and_then(|one| one.metadata.uid.clone())
    }

    /// The objects above a native set; `None` if they cannot be read.
    pub fn above(&self, set: &native::MachineSet) -> Option<MirrorAncestors> {
        let Some(controller) = owner::controller_of(&set.metadata) else { return Some(MirrorAncestors::default()) };
        let key = Key::beside(&set.metadata, &controller.name);
        let native = readable(view(&self.natives.cache, &key))?;
        let own = readable(view(&self.own.cache, &key))?;
        let migration = readable(view(&self.migrations.cache, &key))?;
        let is_shown = native
            .as_ref()
            .zip(own.as_ref())
            .is_some_and(|(native, own)| mirror::is_shown(own, native, migration.as_deref()));
        let deployment = own.filter(|_| is_shown);
        let paused = deployment.as_ref().and_then(|deployment| {
            let cluster = Key::new(&key.namespace, &*deployment.spec.cluster_name);
            hold::paused(&deployment.metadata, &view(&self.clusters.cache, &cluster))
        });
        Some(MirrorAncestors { native, deployment, paused })
    }
}

/// Keys of all cached objects.
pub(super) fn keys<K: CachedKind>(objects: &CachedApi<K>) -> impl Iterator<Item = Key> + use<K> {
    objects.cache.all().into_iter().map(|one| Key::from_meta(one.meta()))
}

/// Adds the keys of a namespace, or all if it is not known which.
pub(super) fn add_those_of(namespace: Option<&str>, keys: impl Iterator<Item = Key>, queue: &WorkQueue<Key>) {
    keys.filter(|key| namespace.is_none_or(|name| key.namespace == name)).for_each(|key| queue.add(key));
}

fn readable<K>(seen: ObjectView<K>) -> Option<Option<Arc<K>>> {
    match seen {
        ObjectView::Present(object) => Some(Some(object)),
        ObjectView::Missing => Some(None),
        ObjectView::Unknown => None,
    }
}

/// Definitions of kinds.
pub(super) type ClusterScopedCrd = OfCluster<CustomResourceDefinition>;

/// Where the stand-in may act.
#[derive(Clone)]
pub(super) struct PreconditionReader {
    definitions: Arc<CachedApi<ClusterScopedCrd>>,
    namespaces: Arc<CachedApi<OfCluster<Namespace>>>,
    core: Arc<CoreCheckState>,
    control: Client,
}

impl PreconditionReader {
    pub fn new(builder: &mut CellBuilder<'_>) -> Self {
        Self {
            definitions: builder.objects(),
            namespaces: builder.objects(),
            core: builder.shared(),
            control: builder.config().control.clone(),
        }
    }

    /// The right of the stand-in to act in a namespace.
    pub fn standing(&self, namespace: &str) -> StandInStatus {
        let asks = match view(&self.namespaces.cache, &Key::new("", namespace)) {
            ObjectView::Present(namespace) => Ok(standing::asks(&namespace.metadata)),
            ObjectView::Missing => Ok(false),
            ObjectView::Unknown => Err(format!("Namespace {namespace} cannot be read")),
        };
        standing::decide(asks, self.definitions(), self.core.asked().as_ref())
    }

    fn definitions(&self) -> CoreCheckResult {
        let cache = &self.definitions.cache;
        match cache.trust() {
            CacheTrust::Trusted if cache.is_synced() => {
                let all = cache.all();
                Ok(standing::shown_by(all.iter().map(|one| &one.metadata)))
            }
            _ => Err("the CustomResourceDefinitions cannot be watched".to_owned()),
        }
    }

    /// There is an inventory of clusterctl.
    pub fn has_inventory(&self) -> bool {
        self.definitions.cache.get(&Key::new("", standing::INVENTORY)).is_some()
    }

    /// Checks live whether core is installed, before something is deleted.
    pub async fn confirm(&self) -> Result<(), ReconcileError> {
        let read = self.definitions.cache.refresh(&CellScope::All.api(&self.control)).await;
        read.map_err(|source| ReconcileError::read("all CustomResourceDefinitions", source))?;
        self.core.ask(&self.control, self.has_inventory()).await;
        Ok(())
    }

    /// Calls `handler` with the namespace where the stand-in may have begun or ceased to serve; without one if that may be
    /// any.
    pub fn on_change(&self, builder: &mut CellBuilder<'_>, handler: impl Fn(Option<&str>) + Send + Sync + 'static) {
        let handler = Arc::new(handler);
        let of_namespace = Arc::clone(&handler);
        builder.on_change::<OfCluster<Namespace>>(move |change| {
            let asked = |one: &Arc<OfCluster<Namespace>>| standing::asks(&one.metadata);
            if change.old.as_ref().map(asked) != change.new.as_ref().map(asked) {
                of_namespace(Some(&change.key.name));
            }
        });
        let of_definition = Arc::clone(&handler);
        builder.on_change::<ClusterScopedCrd>(move |change| {
            if standing::is_of_core(&change.key.name) {
                of_definition(None);
            }
        });
        let of_trust = Arc::clone(&handler);
        self.definitions.cache.on_trust(move |_| of_trust(None));
        self.core.on_change(move || handler(None));
    }
}
