use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::{
    apply::{DeploymentReconciler, RolloutCaches, RolloutNodes},
    cache::BY_NAMESPACE,
    metrics,
    overlap::{overlap, selects},
};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment, MachineSet, StrategyType},
    node::Node,
    selector::Selector,
};
use mcm_runtime::{
    cache::{CacheableKind, Key, ObjectCache, ObjectChange},
    cell::CellBuilder,
    enqueue::{EnqueueMapper, itself},
    queue::{QueuePacing, WorkQueue},
    target::{TargetCluster, TargetNodeKey},
    trust::CacheTrust,
};
use {
    crate as controllers,
    crate::{
        Kind, Settings,
        machine::{self, metrics::MachineMetrics},
        machine_set,
        object::{self, owner},
    },
};

pub const KIND: Kind = Kind { role: controllers::SETS.name, register };

const WORKERS: usize = 64;

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let deployments = Arc::new(DeploymentReconciler::new(builder, settings));
    let queue = WorkQueue::new("machinedeployment", QueuePacing::OF_OWNERS);
    builder.controller::<MachineDeployment, _>(&deployments, &queue, &Arc::default(), WORKERS, |_| true);
    builder.export::<MachineDeployment>(|deployments, out| metrics::machine_deployments(deployments, out));
    let measured = builder.config().shared.metrics.collector::<MachineMetrics>();
    builder.on_change::<MachineDeployment>(move |change| {
        if change.gone {
            measured.forget(&change.key.namespace, &change.key.name);
        }
    });
    if settings.deployment.annotate_nodes {
        builder.shared::<RolloutNodes>().fill(RolloutCaches {
            deployments: Arc::clone(&deployments.deployments.cache),
            sets: Arc::clone(&deployments.sets.cache),
            machines: Arc::clone(&deployments.machines.cache),
            is_leading: builder.is_leading(),
        });
    }
    let enqueue = EnqueueMapper::new(&deployments, &queue);
    deployments.holds.on_change(enqueue.on(itself));
    deployments.in_flight.on_settled(enqueue.on(itself));
    deployments.targets.on_node_change(enqueue.within(of_node));
    deployments.targets.on_trust_change(enqueue.within(updated_in_place));
    builder.on_change(enqueue.on(of_set));
    builder.on_change(enqueue.on(of_rival));
    builder.on_change(enqueue.on(of_machine));
}

impl DeploymentReconciler {
    fn new(builder: &mut CellBuilder<'_>, settings: &Settings) -> Self {
        let (deployments, sets, machines) = (builder.objects(), builder.objects(), builder.objects());
        let (in_flight, holds) = (builder.shared(), object::holds(builder));
        let config = builder.config();
        Self {
            deployments,
            sets,
            machines,
            targets: Arc::clone(&config.targets),
            in_flight,
            holds,
            policy: settings.deployment,
            events: config.events.clone(),
            clock: Arc::clone(&config.shared.clock),
        }
    }
}

/// The deployments that control a set, or did so before. One without a controller, now or before, concerns every
/// deployment that selects it.
fn of_set(caches: &DeploymentReconciler, change: &ObjectChange<MachineSet>) -> Vec<Key> {
    let orphans = [&change.old, &change.new].into_iter().flatten();
    let orphans = orphans.filter(|set| owner::controller_of(&set.metadata).is_none());
    let selecting = orphans.flat_map(|set| selecting(&caches.deployments.cache, set));
    let owners = controllers_of(change).map(|reference| Key::new(&change.key.namespace, &reference.name));
    owners.chain(selecting).collect()
}

/// After a deployment came, went or changed its labels: the deployments that share Machines with it, or that select sets
/// without a controller that it selects.
fn of_rival(caches: &DeploymentReconciler, change: &ObjectChange<MachineDeployment>) -> Vec<Key> {
    let labels = |deployment: &Arc<MachineDeployment>| {
        let spec = &deployment.spec;
        (spec.selector.clone(), spec.template.metadata.labels.clone(), deployment.metadata.deletion_timestamp.is_some())
    };
    if change.old.as_ref().map(labels) == change.new.as_ref().map(labels) {
        return Vec::new();
    }
    let versions: Vec<&Arc<MachineDeployment>> = [&change.old, &change.new].into_iter().flatten().collect();
    let orphans = caches.sets.cache.by(machine_set::BY_CONTROLLER, "");
    let is_shared = |set: &&Arc<MachineSet>| {
        set.metadata.namespace.as_deref() == Some(change.key.namespace.as_str())
            && versions.iter().any(|version| selects(version, set.labels()))
    };
    let shared: Vec<&Arc<MachineSet>> = orphans.iter().filter(is_shared).collect();
    let is_concerned = |other: &&Arc<MachineDeployment>| {
        versions.iter().any(|version| overlap(version, other)) || shared.iter().any(|set| selects(other, set.labels()))
    };
    let cache = &caches.deployments.cache;
    cache.with(BY_NAMESPACE, &change.key.namespace, |all| {
        all.iter().filter(is_concerned).map(|other| Key::from_meta(&other.metadata)).collect()
    })
}

/// The deployments of the sets that control a Machine, or did so before.
fn of_machine(caches: &DeploymentReconciler, change: &ObjectChange<Machine>) -> Vec<Key> {
    let sets = controllers_of(change).filter_map(|reference| {
        let set = caches.sets.cache.get(&Key::new(&change.key.namespace, &reference.name))?;
        (set.metadata.uid.as_ref() == Some(&reference.uid)).then_some(set)
    });
    sets.filter_map(|set| deployment_of(&set)).collect()
}

/// The deployments of the Machines of a Node. The result of an in-place update may reach this process with the Machine before
/// it does with the Node. A Node that is added to the cache after its Machine, or that names it later, gets its annotation and taint
/// now.
fn of_node(caches: &DeploymentReconciler, target: &TargetCluster, change: &ObjectChange<Node>) -> Vec<Key> {
    let has_come = names_another_machine(change);
    if !has_come && !is_about_update(change) {
        return Vec::new();
    }
    let node = TargetNodeKey::new(&target.id, &change.key.name);
    let machines = machine::of_node(&caches.machines.cache, &caches.targets, &node);
    let deployments = machines.filter_map(|machine| {
        let of_machine = owner::controller_of(&machine.metadata)?;
        let set = caches.sets.cache.get(&Key::beside(&machine.metadata, &of_machine.name))?;
        deployment_of(&set)
    });
    let is_concerned =
        |key: &Key| caches.deployments.cache.get(key).is_some_and(|it| has_come || is_updated_in_place(&it));
    deployments.filter(is_concerned).collect()
}

/// The deployments that depend on Nodes, when the trust in a target changes.
fn updated_in_place(caches: &DeploymentReconciler, _: &TargetCluster, _: &CacheTrust) -> Vec<Key> {
    let all = caches.deployments.cache.all();
    all.iter().filter(|it| is_updated_in_place(it)).map(|it| Key::from_meta(&it.metadata)).collect()
}

/// The controllers of an object, before a change and after it.
fn controllers_of<K: CacheableKind>(change: &ObjectChange<K>) -> impl Iterator<Item = &OwnerReference> {
    let metas = [change.old.as_ref().map(|old| old.meta()), Some(&*change.meta)];
    metas.into_iter().flatten().filter_map(owner::controller_of)
}

fn deployment_of(set: &MachineSet) -> Option<Key> {
    owner::controller_of(&set.metadata).map(|deployment| Key::beside(&set.metadata, &deployment.name))
}

fn is_updated_in_place(deployment: &MachineDeployment) -> bool {
    deployment.spec.strategy.kind() == Some(StrategyType::InPlaceUpdate)
}

/// A Node is new, or names another Machine than before. Until then a rollout counts it as unknown.
fn names_another_machine(change: &ObjectChange<Node>) -> bool {
    let named = |node: &Arc<Node>| {
        [node.labels().get(labels::MACHINE_NAME).cloned(), node.annotations().get(labels::NODE_OF).cloned()]
    };
    let is_other = |new: &Arc<Node>| change.old.as_ref().is_none_or(|old| named(old) != named(new));
    change.new.as_ref().is_some_and(is_other)
}

/// A label of a Node's in-place update changed.
fn is_about_update(change: &ObjectChange<Node>) -> bool {
    const LABELS: [&str; 3] = [labels::CANDIDATE_FOR_UPDATE, labels::SELECTED_FOR_UPDATE, labels::UPDATE_RESULT];
    let of = |node: Option<&Arc<Node>>| {
        let labels = node?.labels();
        Some(LABELS.map(|label| labels.get(label).cloned()))
    };
    change.new.is_some() && of(change.old.as_ref()) != of(change.new.as_ref())
}

fn selecting<'a>(
    deployments: &ObjectCache<MachineDeployment>,
    set: &'a MachineSet,
) -> impl Iterator<Item = Key> + use<'a> {
    let selects = move |deployment: &Arc<MachineDeployment>| {
        let selector = Selector::parse(deployment.spec.selector.as_ref());
        deployment.metadata.namespace == set.metadata.namespace
            && selector.is_ok_and(|selector| selector.matches(set.metadata.labels.as_ref()))
    };
    deployments.all().into_iter().filter(selects).map(|deployment| Key::from_meta(&deployment.metadata))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::it_came(None, Some(json!({})), true)]
    #[case::the_result(Some(json!({})), Some(json!({ labels::UPDATE_RESULT: "failed" })), true)]
    #[case::another_result(Some(json!({ labels::UPDATE_RESULT: "failed" })), Some(json!({ labels::UPDATE_RESULT: "successful" })), true)]
    #[case::a_user_selects_it(Some(json!({})), Some(json!({ labels::SELECTED_FOR_UPDATE: "true" })), true)]
    #[case::another_label(Some(json!({})), Some(json!({ "zone": "a" })), false)]
    #[case::it_is_gone(Some(json!({})), None, false)]
    fn the_labels_of_an_in_place_update_concern_the_deployment(
        #[case] old: Option<Value>,
        #[case] new: Option<Value>,
        #[case] expected: bool,
    ) {
        let node = |labels: Value| json!({ "metadata": { "name": "n", "labels": labels } });
        assert_eq!(is_about_update(&change(old.map(node), new.map(node))), expected);
    }

    #[rstest]
    #[case::it_came(None, Some(json!({})), true)]
    #[case::its_label(Some(json!({})), Some(json!({ "labels": { labels::MACHINE_NAME: "m" } })), true)]
    #[case::its_annotation(Some(json!({})), Some(json!({ "annotations": { labels::NODE_OF: "a/m/u" } })), true)]
    #[case::of_another(
        Some(json!({ "labels": { labels::MACHINE_NAME: "m" } })),
        Some(json!({ "labels": { labels::MACHINE_NAME: "n" } })),
        true
    )]
    #[case::the_same(
        Some(json!({ "labels": { labels::MACHINE_NAME: "m" } })),
        Some(json!({ "labels": { labels::MACHINE_NAME: "m", "zone": "a" } })),
        false
    )]
    #[case::it_is_gone(Some(json!({})), None, false)]
    fn a_node_that_names_a_machine_concerns_its_deployment(
        #[case] old: Option<Value>,
        #[case] new: Option<Value>,
        #[case] expected: bool,
    ) {
        let node = |metadata: Value| json!({ "metadata": metadata });
        assert_eq!(names_another_machine(&change(old.map(node), new.map(node))), expected);
    }

    fn change(old: Option<Value>, new: Option<Value>) -> ObjectChange<Node> {
        let node = |node: Value| -> Node { serde_json::from_value(node).unwrap() };
        ObjectChange::between(old.map(node), new.map(node))
    }
}
