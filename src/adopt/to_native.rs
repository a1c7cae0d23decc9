//! From Cluster API to the native controllers: a deployment, or a machine without a set, whose VMs are those of the provider mcm.
//!
//! ```text
//! before   MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! after    native MachineDeployment ─▶ native MachineSet ───────────▶ native Machine ─▶ VM
//! ```
//!
//! The native Machine stays, and with it the VM and the Node. Its controller changes: first to none, then to the native
//! set. Names also stay, so that undoing restores the same objects. A Machine without a set has no controller in the end.

use serde_json::{Map, Value, json};

use super::{
    Kind, Snapshot, UnstructuredObject,
    hold::{health_checks, of_cluster_api},
    object::replacing,
    start::made,
    step::{RemainingWork, detach, each, expect, expect_paused, make, make_each, wait, want},
};
use mcm_api::labels;
use mcm_conversion::{
    self as conversion, ConversionOptions, ConversionResult,
    types::{MigrationSide, names},
};

/// Creates deployment and set. The set is created first and without machines: a manager that does not support migrations would
/// ignore it, and never confirm the hold.
pub fn describe(s: &Snapshot) -> RemainingWork {
    let (Some(wanted), Some(set)) = (NativeSideObjects::from_snapshot(s), s.recorded_set(MigrationSide::ClusterApi))
    else {
        return wait("the deployment to be convertible again, or mcm adopt abort");
    };
    let native_set = |replicas: usize, owner: &Value| {
        json!({
            "metadata": {
                "name": set.name(), "labels": wanted.template["metadata"]["labels"], "finalizers": [labels::FINALIZER],
                "ownerReferences": owner,
            },
            "spec": {
                "replicas": replicas, "selector": wanted.selector, "template": wanted.template,
                "minReadySeconds": wanted.deployment["spec"]["minReadySeconds"],
            },
        })
    };
    let todo = make_each(s, &[Kind::Class, Kind::Secret], &wanted.objects).and(match s.find(Kind::Set, set.name()) {
        None => make(s, Kind::Set, &native_set(0, &Value::Null)),
        Some(known) if known.is_of_migration(s.name()) => expect_paused([known]),
        Some(other) => wait(format!("the name of {}, which another object has", other.id())),
    });
    let deployment = || s.find(Kind::Deployment, s.name());
    let todo = todo.then(|| make(s, Kind::Deployment, &wanted.deployment).and(expect_paused(deployment())));
    todo.then(|| {
        let owner = deployment().map(UnstructuredObject::as_controller).unwrap_or_default();
        make(s, Kind::Set, &native_set(s.recorded().count(), &owner))
    })
}

/// Creates the class of a Machine without a set, and its Secret, if they are derived.
pub fn supply(s: &Snapshot) -> RemainingWork {
    match converted(s) {
        ConversionResult { objects, refusals, .. } if refusals.is_empty() && !objects.is_empty() => {
            make_each(s, &[Kind::Class, Kind::Secret], &objects)
        }
        _ => wait("the Machine to be convertible again, or mcm adopt abort"),
    }
}

/// Undoes [`describe`] and [`supply`], which created all these objects.
pub fn forget(s: &Snapshot) -> RemainingWork {
    detach(made(s, MigrationSide::MachineController).rev())
}

/// The native Machines get the fields of Machines of the set, and record their former state.
pub fn hand_over(s: &Snapshot) -> RemainingWork {
    let (Some(wanted), Some(set)) =
        (NativeSideObjects::from_snapshot(s), s.recorded_set(MigrationSide::MachineController))
    else {
        return wait("the MCM MachineSet, which was deleted: run mcm adopt abort");
    };
    let count = s.recorded().count();
    let todo = each(s.recorded(), |member| match (member.native, member.node) {
        (Some(native), Some(node)) => want(native, &as_machine_of(set, &wanted.template, native, node)),
        _ => wait(format!("MCM Machine {} and its Node", member.name)),
    });
    let is_counted = set.number("/status/replicas") == i64::try_from(count).ok();
    todo.and(expect(is_counted, format!("MCM MachineSet {} to count {count} machines", set.name())))
}

/// The native Machine gets the fields of a Machine without a set, and records its former state.
pub fn release(s: &Snapshot) -> RemainingWork {
    let made = converted(s).objects;
    let wanted = made.iter().find(|object| Kind::from_value(object) == Some(Kind::Machine));
    each(s.recorded(), |member| match (wanted, member.native, member.node) {
        (Some(wanted), Some(native), Some(node)) => want(native, &as_lone(wanted, native, node, s)),
        _ => wait(format!("MCM Machine {} and its Node, or mcm adopt abort", member.name)),
    })
}

/// Restores the native Machines as they were before the migration.
pub fn take_back(s: &Snapshot) -> RemainingWork {
    each(s.recorded().filter_map(|member| member.native), put_back)
}

/// Removes all objects of Cluster API except the Cluster and the template, and core's fields from Nodes.
pub fn remove(s: &Snapshot) -> RemainingWork {
    detach(of_cluster_api(s)).and(release_nodes(s))
}

/// Removes the annotations of core from the Nodes.
pub fn release_nodes(s: &Snapshot) -> RemainingWork {
    each(s.recorded().filter_map(|member| member.node), |node| {
        let annotations = node.at("/metadata/annotations");
        let of_core = annotations.as_object().into_iter().flatten().map(|(key, _)| key);
        let of_core = of_core.filter(|key| key.starts_with("cluster.x-k8s.io/"));
        let nulls: Map<_, _> = of_core.map(|key| (key.clone(), Value::Null)).collect();
        want(node, &json!({ "metadata": { "annotations": nulls } }))
    })
}

/// The deployment, or the Machine, as a native one.
pub fn converted(s: &Snapshot) -> ConversionResult {
    let Some(root) = s.root_of(MigrationSide::ClusterApi) else { return ConversionResult::default() };
    let in_machine = |path: &str| root.text(&format!("{}/{path}", s.unit.path_of_machine()));
    let infra_kind = if s.unit.is_lone() { Kind::InfraMachine } else { Kind::InfraTemplate };
    let infra = s.find(infra_kind, in_machine("infrastructureRef/name"));
    let class = infra.map(|infra| infra.text(&format!("{}/machineClassRef/name", s.unit.path_of_machine())));
    let class = class.and_then(|name| s.find(Kind::Class, name));
    let bootstrap = s.find(Kind::Secret, in_machine("bootstrap/dataSecretName"));
    let own = class.and_then(|class| s.find(Kind::Secret, class.text("/secretRef/name")));
    let around = [infra, class, bootstrap, own].into_iter().flatten().chain(health_checks(s));
    let written = s.written(std::iter::once(root).chain(around).map(UnstructuredObject::id));
    conversion::to_native(&written, &ConversionOptions { now: Some(s.now), ..ConversionOptions::default() })
}

/// The objects for the native controllers.
struct NativeSideObjects {
    deployment: Value,
    /// Selector and template of the set: those of the deployment with the hash.
    selector: Value,
    template: Value,
    /// The whole conversion, with class and Secret, if they are derived.
    objects: Vec<Value>,
}

impl NativeSideObjects {
    fn from_snapshot(s: &Snapshot) -> Option<Self> {
        let ConversionResult { objects, refusals, .. } = converted(s);
        if !refusals.is_empty() {
            return None;
        }
        let hash = s.recorded_set(MigrationSide::ClusterApi)?.label(labels::TEMPLATE_HASH)?;
        let mut deployment = objects.iter().find(|object| Kind::from_value(object) == Some(Kind::Deployment))?.clone();
        deployment["metadata"]["finalizers"] = json!([labels::FINALIZER]);
        let mut selector = deployment["spec"]["selector"].clone();
        selector["matchLabels"][labels::TEMPLATE_HASH] = json!(hash);
        let mut template = deployment["spec"]["template"].clone();
        template["metadata"]["labels"][labels::TEMPLATE_HASH] = json!(hash);
        Some(Self { deployment, selector, template, objects })
    }
}

/// A native Machine as one of a set.
fn as_machine_of(
    set: &UnstructuredObject,
    template: &Value,
    native: &UnstructuredObject,
    node: &UnstructuredObject,
) -> Value {
    let mut machine = as_described(template, native, node);
    machine["metadata"]["ownerReferences"] = set.as_controller();
    machine["metadata"]["labels"][names::CLUSTER_NAME] = Value::Null;
    machine["metadata"]["annotations"][labels::USER_DATA_SECRET] = Value::Null;
    machine
}

/// A native Machine without a set. Removes all notes of an earlier migration, or undoing would restore them.
fn as_lone(wanted: &Value, native: &UnstructuredObject, node: &UnstructuredObject, s: &Snapshot) -> Value {
    let mut machine = as_described(wanted, native, node);
    let metadata = &mut machine["metadata"];
    metadata["ownerReferences"] = Value::Null;
    metadata["annotations"][labels::MIGRATION] = json!(s.name());
    for key in ["labels", "annotations"] {
        metadata[key] = replacing(&native.value["metadata"][key], &metadata[key]);
    }
    machine
}

/// A native Machine as a conversion describes it, with its VM and its Node.
fn as_described(wanted: &Value, native: &UnstructuredObject, node: &UnstructuredObject) -> Value {
    let mut spec = wanted["spec"].clone();
    spec["providerID"] = native.at("/spec/providerID");
    let metadata = json!({ "labels": wanted["metadata"]["labels"], "annotations": wanted["metadata"]["annotations"] });
    let mut machine = json!({ "metadata": metadata, "spec": replacing(&native.at("/spec"), &spec) });
    machine["metadata"]["labels"][labels::NODE] = json!(node.name());
    machine["metadata"]["annotations"][labels::BEFORE_MIGRATION] = json!(before(native));
    machine
}

/// The state of a native Machine before the migration, as JSON.
pub fn before(native: &UnstructuredObject) -> String {
    let stored = native.annotation(labels::BEFORE_MIGRATION).map(str::to_owned);
    stored.unwrap_or_else(|| {
        let meta = |key: &str| native.value["metadata"][key].clone();
        json!({
            "metadata": {
                "ownerReferences": meta("ownerReferences"), "labels": meta("labels"), "annotations": meta("annotations"),
            },
            "spec": native.at("/spec"),
        })
        .to_string()
    })
}

/// Restores the state of a native Machine before the migration.
fn put_back(native: &UnstructuredObject) -> RemainingWork {
    let Some(before) = native.annotation(labels::BEFORE_MIGRATION) else { return RemainingWork::default() };
    let Ok(before) = serde_json::from_str::<Value>(before) else {
        return wait(format!("annotation {} of {} to be readable", labels::BEFORE_MIGRATION, native.id()));
    };
    let part = |pointer: &str| before.pointer(pointer).cloned().filter(|value| !value.is_null()).unwrap_or(json!({}));
    let replaced = |pointer: &str| replacing(&native.at(pointer), &part(pointer));
    want(
        native,
        &json!({
            "metadata": {
                "ownerReferences": before["metadata"]["ownerReferences"],
                "labels": replaced("/metadata/labels"),
                "annotations": replaced("/metadata/annotations"),
            },
            "spec": replaced("/spec"),
        }),
    )
}
