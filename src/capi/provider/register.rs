//! The kinds of the provider, which native objects it may touch, and where the Nodes of their Machines are.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    mcm_cluster, mcm_machine, mcm_machine_pool, mcm_machine_template, native_managers,
    natives::Surroundings,
    observe::pool_of,
    resume,
    settings::{ROLE_NAME, Settings},
    workload,
};
use crate::{
    capi::{
        object::observe::is_in,
        types::{Cluster, MCMMachine, MCMMachinePool},
    },
    controllers::{machine, machine_class, machine_deployment, machine_set, node, overshoot, secret},
    runtime::{
        cell::{Builder, Kind, Role},
        hold_check::HoldCheck,
    },
};

/// All kinds run under one Lease, which has the name that users of Cluster API expect.
pub(crate) const ROLE: Role = Role { name: ROLE_NAME, lease: "controller-leader-election-capmcm" };

/// All kinds. Orphan VMs are not collected: each VM has an object that its finalizer keeps, and while a cluster moves the
/// objects are elsewhere for a moment.
pub(crate) const KINDS: &[Kind<Settings>] = &[
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

/// Registers the hold check of native objects, and the clusters of the Machines' Nodes.
fn native_objects(builder: &mut Builder<'_>, settings: &Settings) {
    let holds = builder.shared::<HoldCheck>();
    let around = Arc::new(Surroundings::new(builder, settings));
    let judge = Arc::clone(&around);
    holds.set(move |meta| judge.held(meta));
    let rule = Arc::clone(&around);
    builder.config().targets.set_placement(move |meta| rule.placement(meta));

    let (of_cluster, changed) = (Arc::clone(&around), Arc::clone(&holds));
    builder.on_change::<Cluster>(move |change| {
        let state = |cluster: &Arc<Cluster>| (cluster.spec.paused, cluster.metadata.deletion_timestamp.clone());
        if change.old.as_ref().map(state) != change.new.as_ref().map(state) {
            of_cluster.natives_of(&change.key).iter().for_each(|key| changed.changed(key));
        }
    });
    let (of_all, changed) = (Arc::clone(&around), Arc::clone(&holds));
    around.resumed.on_change(move || of_all.natives_of_pools(|_| true).iter().for_each(|key| changed.changed(key)));
    let (of_all, changed) = (Arc::clone(&around), Arc::clone(&holds));
    around.managers.on_change(move || of_all.all_natives().iter().for_each(|key| changed.changed(key)));
    let changed = Arc::clone(&holds);
    builder.on_change::<MCMMachine>(move |change| {
        let state = |object: &Arc<MCMMachine>| {
            (object.metadata.annotations.clone(), object.metadata.deletion_timestamp.clone())
        };
        if change.old.as_ref().map(state) != change.new.as_ref().map(state) {
            changed.changed(&change.key);
        }
    });
    builder.on_change::<MCMMachinePool>(move |change| {
        let state = |object: &Arc<MCMMachinePool>| {
            let ObjectMeta { annotations, labels, deletion_timestamp, .. } = &object.metadata;
            (annotations.clone(), labels.clone(), deletion_timestamp.clone())
        };
        if change.old.as_ref().map(state) != change.new.as_ref().map(state) {
            let is_own =
                |meta: &ObjectMeta| pool_of(meta) == Some(&change.key.name) && is_in(meta, &change.key.namespace);
            around.natives_of_pools(is_own).iter().for_each(|key| holds.changed(key));
        }
    });
    for native in [machine::KIND, machine_deployment::KIND, machine_set::KIND, overshoot::KIND, node::KIND] {
        (native.register)(builder, &settings.native);
    }
}
