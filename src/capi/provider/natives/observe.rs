use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use crate::{
    object::{
        hold,
        observe::{is_in, owner as owner_with, view},
        view::ObjectView,
    },
    provider::{
        mcm_machine,
        native_managers::ManagerRegistry,
        observe::{cluster_name, pool_of},
        resume::ResumedClusters,
        settings::Settings,
        workload,
    },
};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment, MachineSet},
};
use mcm_controllers::object::{authority, owner};
use mcm_conversion::types::{Cluster, INFRASTRUCTURE_GROUP, MCMMachine, MCMMachinePool};
use mcm_rules::plan::ReconcileHold;
use mcm_runtime::{
    cache::{Key, ObjectCache},
    cell::CellBuilder,
    target::NodePlacement,
};

/// The objects on which the hold check of native objects depends.
pub(in super::super) struct NativeHoldCaches {
    pub clusters: Arc<ObjectCache<Cluster>>,
    pub objects: Arc<ObjectCache<MCMMachine>>,
    pub pools: Arc<ObjectCache<MCMMachinePool>>,
    pub deployments: Arc<ObjectCache<MachineDeployment>>,
    pub sets: Arc<ObjectCache<MachineSet>>,
    pub machines: Arc<ObjectCache<Machine>>,
    pub resumed: Arc<ResumedClusters>,
    pub managers: Arc<ManagerRegistry>,
    pub watch_filter: Option<String>,
}

impl NativeHoldCaches {
    pub fn new(builder: &mut CellBuilder<'_>, settings: &Settings) -> Self {
        Self {
            clusters: Arc::clone(&builder.objects::<Cluster>().cache),
            objects: Arc::clone(&builder.objects::<MCMMachine>().cache),
            pools: Arc::clone(&builder.objects::<MCMMachinePool>().cache),
            deployments: Arc::clone(&builder.objects::<MachineDeployment>().cache),
            sets: Arc::clone(&builder.objects::<MachineSet>().cache),
            machines: Arc::clone(&builder.objects::<Machine>().cache),
            resumed: builder.shared(),
            managers: builder.shared(),
            watch_filter: settings.watch_filter.clone(),
        }
    }

    /// Why a native object may not be touched.
    pub fn held(&self, meta: &ObjectMeta) -> Option<ReconcileHold> {
        if let Some(on) = hold::moved(meta).or_else(|| self.of_another(meta)) {
            return Some(on.into());
        }
        let cluster = match cluster_name(meta) {
            Some(name) => view(&self.clusters, &Key::beside(meta, name)),
            None => ObjectView::Missing,
        };
        let is_pause = cluster.known().is_some_and(|cluster| cluster.spec.paused == Some(true));
        let of_pause = |on: String| Some(ReconcileHold { is_pause, ..ReconcileHold::from(on) });
        let controller = owner::controller_of(meta);
        let is_ours = |api_version: &str| api_version.split('/').next() == Some(INFRASTRUCTURE_GROUP);
        match (pool_of(meta), controller.filter(|one| one.kind == "MCMMachine" && is_ours(&one.api_version))) {
            (Some(pool), None) => {
                let held = self.beside_another(meta);
                let held = held.or_else(|| of_pause(self.held_with_pool(meta, &cluster, pool)?));
                held.or_else(|| self.kept_with_pool(meta, pool))
            }
            (_, Some(controller)) => authority::migrating(meta)
                .or_else(|| self.beside_another(meta))
                .or_else(|| of_pause(self.held_with_machine(meta, &cluster, controller)?))
                .or_else(|| self.kept_with_machine(meta, controller)),
            (None, None) => {
                let on = "an MCMMachine or MCMMachinePool to own it: this manager ignores other objects";
                Some(on.to_owned().into())
            }
        }
    }

    /// The manager of a pool also manages its native objects: their own label is that of their template, and may be
    /// older.
    fn of_another(&self, meta: &ObjectMeta) -> Option<String> {
        let pool = pool_of(meta).and_then(|pool| self.pools.get(&Key::beside(meta, pool)));
        let labelled = pool.as_ref().map_or(meta, |pool| &pool.metadata);
        hold::of_another(labelled, self.watch_filter.as_deref())
    }

    fn beside_another(&self, meta: &ObjectMeta) -> Option<ReconcileHold> {
        let another = self.managers.namespace_obstacle(meta.namespace.as_deref().unwrap_or_default());
        another.map(|another| ReconcileHold::from(another.on))
    }

    fn held_with_machine(
        &self,
        meta: &ObjectMeta,
        cluster: &ObjectView<Cluster>,
        controller: &OwnerReference,
    ) -> Option<String> {
        if let Some(on) = hold::paused(meta, cluster) {
            return Some(on);
        }
        let name = &controller.name;
        match owner_with(&self.objects, meta, controller) {
            ObjectView::Unknown => Some(format!("MCMMachine {name} to become readable")),
            ObjectView::Missing if meta.deletion_timestamp.is_none() => {
                Some(format!("MCMMachine {name}, which controls it, to exist"))
            }
            ObjectView::Missing => None,
            ObjectView::Present(object) => self.held_by(&object.metadata).or_else(|| held_by_members(meta, &object)),
        }
    }

    /// The VM of a native Machine is deleted only if its MCMMachine, or a user, requested it in the Machine itself.
    /// Without an MCMMachine the garbage collector has deleted the Machine.
    fn kept_with_machine(&self, meta: &ObjectMeta, controller: &OwnerReference) -> Option<ReconcileHold> {
        let owner = owner_with(&self.objects, meta, controller);
        keep(meta, &format!("MCMMachine {}", controller.name), owner.known().map(|owner| &owner.metadata))
    }

    /// The same for the deployments of a pool. Sets and Machines are deleted by the native controllers, as long as the
    /// pool exists.
    fn kept_with_pool(&self, meta: &ObjectMeta, pool: &str) -> Option<ReconcileHold> {
        let of_pool = owner::controller_of(meta).filter(|controller| controller.kind == "MCMMachinePool");
        let owner = match of_pool {
            Some(controller) => owner_with(&self.pools, meta, controller),
            None => view(&self.pools, &Key::beside(meta, pool)),
        };
        let owner = owner.known().map(|owner| &owner.metadata);
        if of_pool.is_none() && owner.is_some() {
            return None;
        }
        keep(meta, &format!("MCMMachinePool {pool}"), owner)
    }

    /// At the source of a move, the Cluster and the pool may be deleted before the deletion of the rest is observed:
    /// then a set without its Machines must not create others.
    fn held_with_pool(&self, meta: &ObjectMeta, cluster: &ObjectView<Cluster>, pool: &str) -> Option<String> {
        if let Some(on) = hold::paused(meta, cluster) {
            return Some(on);
        }
        let is_deleting = meta.deletion_timestamp.is_some();
        match cluster.known() {
            None if !is_deleting => return Some("its Cluster to exist".to_owned()),
            None => {}
            Some(cluster) => {
                let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
                if !self.resumed.contains(uid) {
                    return Some(hold::UNREAD.to_owned());
                }
            }
        }
        match view(&self.pools, &Key::beside(meta, pool)) {
            ObjectView::Unknown => Some(format!("MCMMachinePool {pool} to become readable")),
            ObjectView::Missing if is_deleting => None,
            ObjectView::Missing => Some(format!("MCMMachinePool {pool} to exist")),
            ObjectView::Present(object) => self.held_by(&object.metadata).or_else(|| self.held_by_member(meta)),
        }
    }

    /// A Machine of a pool whose VMs are also Machines of Cluster API: core drains it before its VM is deleted.
    fn held_by_member(&self, meta: &ObjectMeta) -> Option<String> {
        let member = self.member_of(meta)?;
        let is_drained = member.metadata.deletion_timestamp.is_some();
        (meta.deletion_timestamp.is_some() && !is_drained).then(|| "Cluster API core to drain its Node".to_owned())
    }

    fn held_by(&self, owner: &ObjectMeta) -> Option<String> {
        let on = hold::not_ours(owner, self.watch_filter.as_deref());
        on.or_else(|| hold::paused(owner, &ObjectView::Missing))
    }

    /// The MCMMachine of a native Machine of a pool, if it has one.
    fn member_of(&self, meta: &ObjectMeta) -> Option<Arc<MCMMachine>> {
        let is_of_set = owner::controller_of(meta).is_some_and(|controller| controller.kind == "MachineSet");
        let member = self.objects.get(&Key::from_meta(meta)).filter(|_| is_of_set)?;
        (pool_of(&member.metadata) == pool_of(meta)).then_some(member)
    }

    /// The Nodes of pools are in the workload cluster. As core does, their deletion leaves the Nodes of a Cluster alone that
    /// is being deleted itself.
    pub fn placement(&self, meta: &ObjectMeta) -> NodePlacement {
        let (Some(_), Some(name)) = (pool_of(meta), cluster_name(meta)) else { return NodePlacement::Nowhere };
        let key = Key::beside(meta, name);
        let is_deleting = meta.deletion_timestamp.is_some();
        let is_going = |meta: &ObjectMeta| meta.deletion_timestamp.is_some();
        match view(&self.clusters, &key) {
            ObjectView::Unknown => NodePlacement::Unknown,
            ObjectView::Missing if is_deleting => NodePlacement::Nowhere,
            ObjectView::Present(cluster) if is_deleting && is_going(&cluster.metadata) => NodePlacement::Nowhere,
            ObjectView::Missing | ObjectView::Present(_) => NodePlacement::In(workload::target_of(&key)),
        }
    }

    /// The native objects of a Cluster.
    pub fn natives_of(&self, cluster: &Key) -> BTreeSet<Key> {
        let is_own = |meta: &ObjectMeta| cluster_name(meta) == Some(&cluster.name) && is_in(meta, &cluster.namespace);
        let mut keys = self.natives_of_pools(is_own);
        keys.extend(
            self.objects.by(mcm_machine::BY_CLUSTER, cluster).iter().map(|object| Key::from_meta(&object.metadata)),
        );
        keys
    }

    /// The native objects of all Clusters.
    pub fn all_natives(&self) -> BTreeSet<Key> {
        let mut keys = self.natives_of_pools(|_| true);
        keys.extend(self.objects.all().iter().map(|object| Key::from_meta(&object.metadata)));
        keys
    }

    /// The native objects of some pools.
    pub fn natives_of_pools(&self, is_meant: impl Fn(&ObjectMeta) -> bool) -> BTreeSet<Key> {
        let (deployments, sets, machines) = (self.deployments.all(), self.sets.all(), self.machines.all());
        let all = deployments.iter().map(|one| &one.metadata).chain(sets.iter().map(|one| &one.metadata));
        let all = all.chain(machines.iter().map(|one| &one.metadata));
        all.filter(|meta| pool_of(meta).is_some() && is_meant(meta)).map(Key::from_meta).collect()
    }
}

/// A VM of a control plane leaves its load balancer before it is deleted, also if a user deletes the native Machine.
fn held_by_members(meta: &ObjectMeta, object: &MCMMachine) -> Option<String> {
    let first = mcm_machine::registered_in(object).first().filter(|_| meta.deletion_timestamp.is_some())?;
    Some(format!("MCMMachine {} to deregister its VM from {first}", object.name_any()))
}

/// The hold on an object that is being deleted without [`labels::DELETE_VM`]. It is shown unless its owner is about to write
/// that.
fn keep(meta: &ObjectMeta, of: &str, owner: Option<&ObjectMeta>) -> Option<ReconcileHold> {
    let has_mark = || meta.annotations.as_ref().is_some_and(|all| all.contains_key(labels::DELETE_VM));
    if meta.deletion_timestamp.is_none() || has_mark() {
        return None;
    }
    let annotate = format!("annotate it with {} to delete its VM", labels::DELETE_VM);
    let on = match owner {
        Some(_) => format!("{of} to be deleted, because the VM is kept until then: {annotate} now"),
        None => format!(
            "a decision, because {of} was removed by force and the VM is kept: remove the finalizers of this object \
             to release the VM, or {annotate}"
        ),
    };
    let is_shown = owner.is_none_or(|owner| owner.deletion_timestamp.is_none());
    Some(ReconcileHold { is_confirmed: is_shown, is_kept: true, ..ReconcileHold::from(on) })
}
