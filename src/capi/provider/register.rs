//! The kinds of the provider, which native objects it may touch, and where the Nodes of their Machines are.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    mcm_cluster, mcm_machine, mcm_machine_pool, mcm_machine_template, native_managers,
    natives::NativeHoldCaches,
    observe::pool_of,
    resume,
    settings::{ROLE_NAME, Settings},
    workload,
};
use crate::object::observe::is_in;
use mcm_controllers::{machine, machine_class, machine_deployment, machine_set, node, overshoot, secret};
use mcm_conversion::types::{Cluster, MCMMachine, MCMMachinePool};
use mcm_runtime::{
    cache::{Key, ObjectChange},
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    hold_check::HoldCheck,
    kind_cache::KindCaches,
    role::{ControllerRole, PROVIDER_LEASE},
};

/// All kinds run under one Lease.
pub const ROLE: ControllerRole = ControllerRole { name: ROLE_NAME, lease: PROVIDER_LEASE };

/// All kinds. Orphan VMs are not collected: each VM has an object that its finalizer keeps, and while a cluster moves the
/// objects are elsewhere for a moment.
pub const KINDS: &[Kind<Settings>] = &[
    mcm_cluster::KIND,
    mcm_machine::KIND,
    mcm_machine_template::KIND,
    mcm_machine_pool::KIND,
    native_managers::KIND,
    resume::KIND,
    workload::KIND,
    Kind { role: ROLE_NAME, register: native_objects },
    Kind { role: ROLE_NAME, register: |builder, settings| (machine_class::KIND.register)(builder, &settings.native) },
    Kind { role: ROLE_NAME, register: |builder, settings| (secret::KIND.register)(builder, &settings.native) },
];

/// Adds the caches of all kinds.
pub fn with_caches(kinds: KindCaches) -> KindCaches {
    kinds
        .with(mcm_cluster::CACHE)
        .with(mcm_machine::CACHE)
        .with(mcm_machine::MACHINES)
        .with(mcm_machine::CLUSTERS)
        .with(mcm_machine_template::CACHE)
        .with(mcm_machine_pool::CACHE)
        .with(mcm_machine_pool::POOLS)
}

/// Native objects, each held while its cluster is paused or another client has it. Where the Nodes of Machines are.
fn native_objects(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let holds = builder.shared::<HoldCheck>();
    let around = Arc::new(NativeHoldCaches::new(builder, settings));
    let judge = Arc::clone(&around);
    holds.set(move |meta| judge.held(meta));
    let rule = Arc::clone(&around);
    builder.config().targets.set_placement(move |meta| rule.placement(meta));

    let holds = Arc::downgrade(&holds);
    let changed = EnqueueMapper::to(&around, move |key| {
        if let Some(holds) = holds.upgrade() {
            holds.changed(&key);
        }
    });
    builder.on_change(changed.on(of_cluster));
    builder.on_change(changed.on(of_machine));
    builder.on_change(changed.on(of_pool));
    around.resumed.on_change(changed.all(|around| around.natives_of_pools(|_| true).into_iter().collect()));
    around.managers.on_change(changed.all(|around| around.all_natives().into_iter().collect()));
    for native in [machine::KIND, machine_deployment::KIND, machine_set::KIND, overshoot::KIND, node::KIND] {
        (native.register)(builder, &settings.native);
    }
}

/// The native objects of a Cluster that is paused or deleted, or no longer paused.
fn of_cluster(around: &NativeHoldCaches, change: &ObjectChange<Cluster>) -> Vec<Key> {
    let state = |cluster: &Arc<Cluster>| (cluster.spec.paused, cluster.metadata.deletion_timestamp.clone());
    if change.old.as_ref().map(state) == change.new.as_ref().map(state) {
        return Vec::new();
    }
    around.natives_of(&change.key).into_iter().collect()
}

/// The native Machine of an object whose annotations or load balancers changed, or that is deleted.
fn of_machine(_: &NativeHoldCaches, change: &ObjectChange<MCMMachine>) -> Vec<Key> {
    let state = |object: &Arc<MCMMachine>| {
        let ObjectMeta { annotations, deletion_timestamp, .. } = &object.metadata;
        (annotations.clone(), deletion_timestamp.clone(), mcm_machine::registered_in(object).to_vec())
    };
    if change.old.as_ref().map(state) == change.new.as_ref().map(state) {
        return Vec::new();
    }
    vec![change.key.clone()]
}

/// The native objects of a pool whose annotations or labels changed, or that is deleted.
fn of_pool(around: &NativeHoldCaches, change: &ObjectChange<MCMMachinePool>) -> Vec<Key> {
    let state = |object: &Arc<MCMMachinePool>| {
        let ObjectMeta { annotations, labels, deletion_timestamp, .. } = &object.metadata;
        (annotations.clone(), labels.clone(), deletion_timestamp.clone())
    };
    if change.old.as_ref().map(state) == change.new.as_ref().map(state) {
        return Vec::new();
    }
    let is_own = |meta: &ObjectMeta| pool_of(meta) == Some(&change.key.name) && is_in(meta, &change.key.namespace);
    around.natives_of_pools(is_own).into_iter().collect()
}
