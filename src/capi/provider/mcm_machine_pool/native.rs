//! The native deployments of an MCMMachinePool, and the classes that are created for it.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{LabelSelector, ObjectMeta},
    util::intstr::IntOrString,
};
use kube::ResourceExt;

use super::{Snapshot, shares::PoolShare};
use crate::provider::class;
use mcm_api::{
    labels,
    machine::{ClassContent, ClassSpec, GROUP, MachineClass, MachineDeployment, RollingUpdate, Strategy},
};
use mcm_controllers::object::{
    draft::{DraftPatch, ObjectDraft},
    owner,
};
pub use mcm_conversion::{VERSION, is_in, limit, types::names};

type PoolMetadataMap = BTreeMap<String, String>;

/// A deployment that does not exist yet.
pub(super) fn created(snapshot: &Snapshot, share: &PoolShare, class: &str) -> MachineDeployment {
    let mut deployment = MachineDeployment::default();
    deployment.metadata.name = Some(share.name.clone());
    deployment.metadata.namespace = snapshot.object.namespace();
    deployment.metadata.finalizers = Some(vec![labels::FINALIZER.to_owned()]);
    deployment.spec.selector = Some(LabelSelector {
        match_labels: Some([(labels::DEPLOYMENT_NAME.to_owned(), share.name.clone())].into()),
        ..LabelSelector::default()
    });
    deployment.spec.replicas = share.replicas.unwrap_or_default();
    settle(&mut deployment, snapshot, share, Some(class));
    deployment
}

/// The change of an existing deployment; `None` if it is up to date. Without a usable class it keeps its class.
pub(super) fn changed(
    snapshot: &Snapshot,
    share: &PoolShare,
    class: Option<&str>,
    deployment: &Arc<MachineDeployment>,
) -> Option<DraftPatch<MachineDeployment>> {
    let mut draft = ObjectDraft::new(Arc::clone(deployment));
    draft.edit("the MachinePool or the MCMMachinePool changed", |deployment| {
        if let Some(replicas) = share.replicas.filter(|_| !snapshot.is_scaled_elsewhere()) {
            deployment.spec.replicas = replicas;
        }
        settle(deployment, snapshot, share, class);
    });
    draft.finish()
}

/// Sets all fields except the number of machines. A change of labels, annotations or class of the template is a
/// rollout.
fn settle(deployment: &mut MachineDeployment, snapshot: &Snapshot, share: &PoolShare, class: Option<&str>) {
    let meta = &mut deployment.metadata;
    if let Some(reference) = owner::reference_to(snapshot.object.as_ref())
        && let Some(owners) = owner::adopted(meta, &reference)
    {
        meta.owner_references = Some(owners);
    }
    meta.labels.get_or_insert_default().extend(labels_of(snapshot));
    let spec = &mut deployment.spec;
    spec.strategy = snapshot.object.spec.strategy.clone().unwrap_or_else(one_by_one);
    spec.revision_history_limit = Some(0);

    let template = &mut spec.template;
    // Another watch filter must not replace VMs: the pool has the current one, and a template keeps its first one.
    let filter = template.metadata.labels.remove(names::WATCH_FILTER);
    template.metadata.labels = labels_of(snapshot);
    template.metadata.labels.remove(names::WATCH_FILTER);
    template.metadata.labels.extend(filter.map(|filter| (names::WATCH_FILTER.to_owned(), filter)));
    template.metadata.labels.insert(labels::DEPLOYMENT_NAME.to_owned(), share.name.clone());
    if let Some(name) = class {
        let (api_group, kind) = (GROUP.to_owned(), "MachineClass".to_owned());
        template.spec.class = ClassSpec { api_group, kind, name: name.to_owned() };
    }
    let Some(owner) = snapshot.owner.known() else { return };
    let wanted = &owner.spec.template.spec;
    let annotations = &mut template.metadata.annotations;
    // Only the name of the data, not their content: core renews a token in place, which must not replace machines.
    match wanted.bootstrap.data_secret_name.as_deref() {
        Some("") => drop(annotations.remove(labels::USER_DATA_SECRET)),
        Some(name) => drop(annotations.insert(labels::USER_DATA_SECRET.to_owned(), name.to_owned())),
        None => {}
    }
    if wanted.version.is_empty() {
        annotations.remove(VERSION);
    } else {
        annotations.insert(VERSION.to_owned(), wanted.version.clone());
    }
    let of_machines = &owner.spec.template.metadata;
    let node = &mut template.spec.node_template.metadata;
    node.labels = of_nodes(&of_machines.labels, &names::NODE_LABEL_DOMAINS);
    node.annotations = of_nodes(&of_machines.annotations, &names::NODE_ANNOTATION_DOMAINS);
    let configuration = &mut template.spec.configuration;
    let drain = wanted.deletion.node_drain_timeout_seconds.unwrap_or_default();
    configuration.drain_timeout = Some(limit(drain));
    // With Machines of Cluster API, a health check of Cluster API decides.
    configuration.disable_health_timeout = snapshot.has_members().then_some(true);
    spec.min_ready_seconds = wanted.min_ready_seconds.unwrap_or_default();
}

fn of_nodes(all: &PoolMetadataMap, domains: &[&str]) -> PoolMetadataMap {
    let chosen = all.iter().filter(|(key, _)| is_in(key, domains));
    chosen.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn one_by_one() -> Strategy {
    let update = RollingUpdate { max_unavailable: Some(IntOrString::Int(0)), max_surge: Some(IntOrString::Int(1)) };
    Strategy { type_: "RollingUpdate".to_owned(), rolling_update: Some(update), in_place_update: None }
}

/// The class for a description in the pool itself.
pub(super) fn class(snapshot: &Snapshot, name: &str, content: &ClassContent) -> MachineClass {
    let object = &snapshot.object;
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: object.namespace(),
        labels: Some(labels_of(snapshot)),
        owner_references: owner::reference_to(object.as_ref()).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    };
    class::described(metadata, content, &snapshot.infrastructure)
}

/// The labels of all objects that are created for the pool.
pub(super) fn labels_of(snapshot: &Snapshot) -> PoolMetadataMap {
    let pool = Some((labels::POOL.to_owned(), snapshot.object.name_any()));
    let cluster = snapshot.cluster_name().map(|name| (names::CLUSTER_NAME.to_owned(), name.to_owned()));
    let filter = snapshot.watch_filter.as_ref().map(|value| (names::WATCH_FILTER.to_owned(), value.clone()));
    pool.into_iter().chain(cluster).chain(filter).collect()
}
