//! From Cluster API to the native controllers: a deployment whose VMs are those of the provider mcm.
//!
//! ```text
//! before   MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! after    native MachineDeployment ─▶ native MachineSet ───────────▶ native Machine ─▶ VM
//! ```
//!
//! The native Machine stays, and with it the VM and the Node. Its controller changes: first to none, then to the native
//! set. Names also stay, so that undoing restores the same objects.

use serde_json::{Value, json};

use super::{
    object::{Kind, UnstructuredObject, replacing},
    snapshot::{MachineObjects, Snapshot},
    step::{RemainingWork, Step, detach, is_whole, pause_each, paused, resume, resume_each},
};
use mcm_api::{labels, selector::Selector};
use {
    mcm_conversion as conversion,
    mcm_conversion::{
        ConversionOptions, ConversionResult,
        types::{MigrationSide, names},
    },
};

/// Steps until the authority is switched. Each can be undone.
pub const BEFORE: [Step; 3] = [
    Step { title: "pause the CAPI objects", todo: pause_all, undo: Some(resume_all) },
    Step { title: "create the MCM objects, paused", todo: describe, undo: Some(forget) },
    Step { title: "attach the MCM Machines to the MCM MachineSet", todo: hand_over, undo: Some(take_back) },
];

/// Steps after the switch.
pub const AFTER: [Step; 2] = [
    Step { title: "remove the CAPI objects", todo: remove, undo: None },
    Step { title: "unpause the MCM objects", todo: start, undo: None },
];

/// Step 1. Core and the provider confirm that each object is paused.
pub fn pause_all(s: &Snapshot) -> RemainingWork {
    pause_each(s, &[of_cluster_api(s), natives(s)].concat())
}

pub fn resume_all(s: &Snapshot) -> RemainingWork {
    resume_each(&[natives(s), of_cluster_api(s)].concat())
}

/// Step 2. The set is created first and without machines: a manager that does not support migrations would ignore it,
/// and never confirm the hold.
fn describe(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let (Some(wanted), Some(set)) = (NativeSideObjects::from_snapshot(s), s.recorded_set(MigrationSide::ClusterApi))
    else {
        todo.expect(false, "the deployment to be convertible again, or mcm adopt abort");
        return todo;
    };
    for (kind, object) in &wanted.others {
        todo.make(s, *kind, &paused(*kind, object.clone(), s));
    }
    let native_set = |replicas: usize, owner: &Value| {
        let object = json!({
            "apiVersion": Kind::Set.api_version(), "kind": "MachineSet",
            "metadata": {
                "name": set.name(), "labels": wanted.template["metadata"]["labels"], "finalizers": [labels::FINALIZER],
                "ownerReferences": owner,
            },
            "spec": {
                "replicas": replicas, "selector": wanted.selector, "template": wanted.template,
                "minReadySeconds": wanted.deployment["spec"]["minReadySeconds"],
            },
        });
        paused(Kind::Set, object, s)
    };
    match s.find(Kind::Set, set.name()) {
        None => todo.make(s, Kind::Set, &native_set(0, &Value::Null)),
        Some(known) if known.is_of_migration(s.name()) => todo.expect_paused([known]),
        Some(other) => todo.expect(false, format!("the name of {}, which another object has", other.id())),
    }
    let todo = todo.then(|| {
        let mut todo = RemainingWork::default();
        let mut deployment = paused(Kind::Deployment, wanted.deployment.clone(), s);
        deployment["metadata"]["finalizers"] = json!([labels::FINALIZER]);
        todo.make(s, Kind::Deployment, &deployment);
        todo.expect_paused(s.find(Kind::Deployment, s.name()));
        todo
    });
    todo.then(|| {
        let mut todo = RemainingWork::default();
        let owner = s.find(Kind::Deployment, s.name()).map(UnstructuredObject::as_controller).unwrap_or_default();
        todo.make(s, Kind::Set, &native_set(s.recorded().count(), &owner));
        todo
    })
}

/// Undoes step 2, which created all these objects.
pub fn forget(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let made = s.objects.values().filter(|object| {
        let is_native = matches!(object.kind, Kind::Deployment | Kind::Set | Kind::Class | Kind::Secret);
        is_native && object.is_of_migration(s.name())
    });
    detach(&mut todo, made);
    todo
}

/// Step 3. The native Machine gets the fields of a Machine of that set, and records its former state.
fn hand_over(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let (Some(wanted), Some(set)) =
        (NativeSideObjects::from_snapshot(s), s.recorded_set(MigrationSide::MachineController))
    else {
        todo.expect(false, "the MCM MachineSet, which was deleted: run mcm adopt abort");
        return todo;
    };
    let members: Vec<MachineObjects<'_>> = s.recorded().collect();
    for member in &members {
        let (Some(native), Some(node)) = (member.native, member.node) else {
            todo.expect(false, format!("MCM Machine {} and its Node", member.name));
            continue;
        };
        todo.want(native, &as_machine_of(set, &wanted.template, native, node));
    }
    let count = i64::try_from(members.len()).ok();
    todo.expect(
        set.number("/status/replicas") == count,
        format!("MCM MachineSet {} to count {} machines", set.name(), members.len()),
    );
    todo
}

pub fn take_back(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    natives(s).into_iter().for_each(|native| put_back(&mut todo, native));
    todo
}

/// Last but one: removes all objects of Cluster API except the Cluster and the template, and core's fields from Nodes.
pub fn remove(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    detach(&mut todo, of_cluster_api(s));
    release_nodes(&mut todo, s);
    todo
}

/// Removes the annotations of core from the Nodes.
pub fn release_nodes(todo: &mut RemainingWork, s: &Snapshot) {
    for node in s.recorded().filter_map(|member| member.node) {
        let annotations = node.at("/metadata/annotations");
        let of_core = annotations.as_object().into_iter().flatten().map(|(key, _)| key);
        let of_core = of_core.filter(|key| key.starts_with("cluster.x-k8s.io/"));
        let nulls: Value = of_core.map(|key| (key.clone(), Value::Null)).collect::<serde_json::Map<_, _>>().into();
        todo.want(node, &json!({ "metadata": { "annotations": nulls } }));
    }
}

/// Last: resumes first the machines, so that the set finds them all at work before it decides anything; then set and
/// deployment.
fn start(s: &Snapshot) -> RemainingWork {
    let surviving = s.surviving();
    let deployment = s.deployment_of(MigrationSide::MachineController);
    let set = s.recorded_set(MigrationSide::MachineController);
    let todo = start_machines(s).then(|| {
        let mut todo = RemainingWork::default();
        for set in s.sets_of(MigrationSide::MachineController) {
            todo.want(set, &resume(set));
        }
        let is_available =
            |set: &UnstructuredObject| !set.is_paused() && set.number("/status/availableReplicas") >= surviving;
        todo.expect(set.is_some_and(is_available), "all machines of the MCM MachineSet to be available");
        todo
    });
    todo.then(|| {
        let mut todo = RemainingWork::default();
        deployment.into_iter().for_each(|deployment| todo.want(deployment, &resume(deployment)));
        resume_made(&mut todo, s);
        let is_whole =
            |one: &UnstructuredObject| is_whole(one, ["replicas", "updatedReplicas", "availableReplicas"], surviving);
        todo.expect(deployment.is_some_and(is_whole), "all machines of the MCM MachineDeployment to be available");
        todo
    })
}

/// The native Machines. One whose Node is lost will not run again.
pub fn start_machines(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    for (native, node) in s.recorded().filter_map(|member| Some((member.native?, member.node))) {
        let mut patch = resume(native);
        patch["metadata"]["annotations"][labels::BEFORE_MIGRATION] = Value::Null;
        todo.want(native, &patch);
        let phase = native.text("/status/currentStatus/phase");
        let runs = phase == "Running" || node.is_none();
        todo.expect(!native.is_paused() && runs, format!("{} to be Running", native.id()));
    }
    todo
}

/// The class and the Secret that this migration created, now without a pause.
pub fn resume_made(todo: &mut RemainingWork, s: &Snapshot) {
    let made = s.objects.values().filter(|one| matches!(one.kind, Kind::Class | Kind::Secret));
    made.filter(|one| one.is_of_migration(s.name())).for_each(|one| todo.want(one, &resume(one)));
}

/// The objects of Cluster API, from the leaves to the root.
pub fn of_cluster_api(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let members = s.members_of(MigrationSide::ClusterApi);
    let infra = members.iter().filter_map(|member| member.infra);
    let left = s.recorded().filter_map(|member| member.infra);
    let machines = members.iter().filter_map(|member| member.machine);
    let recorded = s.recorded().filter_map(|member| member.machine);
    let sets = s.sets_of(MigrationSide::ClusterApi);
    let detached = s.all(Kind::CapiSet).filter(|set| set.is_of_migration(s.name()));
    let mut all: Vec<&UnstructuredObject> = infra.chain(left).chain(machines).chain(recorded).collect();
    all.extend(sets);
    all.extend(detached);
    all.extend(health_checks(s));
    all.extend(s.deployment_of(MigrationSide::ClusterApi));
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|object| seen.insert(object.id()));
    all
}

/// The native Machines.
fn natives(s: &Snapshot) -> Vec<&UnstructuredObject> {
    s.members_of(MigrationSide::ClusterApi).into_iter().filter_map(|member| member.native).collect()
}

/// The health checks that select machines of the deployment, or did so. They cannot replace machines without a set.
pub fn health_checks(s: &Snapshot) -> Vec<&UnstructuredObject> {
    if s.unit.is_lone() {
        return Vec::new();
    }
    let members = s.members_of(MigrationSide::ClusterApi);
    let selects = |check: &&UnstructuredObject| {
        check.is_of_migration(s.name())
            || members.iter().filter_map(|member| member.machine).any(|machine| is_selected(check, machine))
    };
    s.all(Kind::HealthCheck).filter(selects).collect()
}

/// A health check selects a Machine.
pub fn is_selected(check: &UnstructuredObject, machine: &UnstructuredObject) -> bool {
    let selector = serde_json::from_value(check.at("/spec/selector")).ok();
    let labels = serde_json::from_value(machine.at("/metadata/labels")).ok();
    let is_same_cluster = check.text("/spec/clusterName") == machine.text("/spec/clusterName");
    is_same_cluster && Selector::parse(selector.as_ref()).is_ok_and(|selector| selector.matches(labels.as_ref()))
}

/// The deployment as a native one.
pub fn converted(s: &Snapshot) -> ConversionResult {
    let Some(deployment) = s.deployment_of(MigrationSide::ClusterApi) else { return ConversionResult::default() };
    let template = s.find(Kind::InfraTemplate, deployment.text("/spec/template/spec/infrastructureRef/name"));
    let class = template.map(|template| template.text("/spec/template/spec/machineClassRef/name"));
    let class = class.and_then(|name| s.find(Kind::Class, name));
    let bootstrap = s.find(Kind::Secret, deployment.text("/spec/template/spec/bootstrap/dataSecretName"));
    let own = class.and_then(|class| s.find(Kind::Secret, class.text("/secretRef/name")));
    let around = [template, class, bootstrap, own].into_iter().flatten().chain(health_checks(s));
    let written = s.written(std::iter::once(deployment).chain(around).map(UnstructuredObject::id));
    conversion::to_native(&written, &ConversionOptions { now: Some(s.now), ..ConversionOptions::default() })
}

/// The objects for the native controllers.
struct NativeSideObjects {
    deployment: Value,
    /// Selector and template of the set: those of the deployment with the hash.
    selector: Value,
    template: Value,
    /// Class and Secret, if they are derived.
    others: Vec<(Kind, Value)>,
}

impl NativeSideObjects {
    fn from_snapshot(s: &Snapshot) -> Option<Self> {
        let ConversionResult { objects, refusals, .. } = converted(s);
        if !refusals.is_empty() {
            return None;
        }
        let hash = s.recorded_set(MigrationSide::ClusterApi)?.label(labels::TEMPLATE_HASH)?;
        let all = || objects.iter().filter_map(|object| Some((Kind::from_value(object)?, object)));
        let (_, deployment) = all().find(|(kind, _)| *kind == Kind::Deployment)?;
        let mut selector = deployment["spec"]["selector"].clone();
        selector["matchLabels"][labels::TEMPLATE_HASH] = json!(hash);
        let mut template = deployment["spec"]["template"].clone();
        template["metadata"]["labels"][labels::TEMPLATE_HASH] = json!(hash);
        let others =
            all().filter(|(kind, object)| matches!(kind, Kind::Class | Kind::Secret) && s.is_to_be_made(*kind, object));
        let others = others.map(|(kind, object)| (kind, object.clone())).collect();
        Some(Self { deployment: deployment.clone(), selector, template, others })
    }
}

/// A native Machine as one of a set, with its VM and its Node.
fn as_machine_of(
    set: &UnstructuredObject,
    template: &Value,
    native: &UnstructuredObject,
    node: &UnstructuredObject,
) -> Value {
    let mut spec = template["spec"].clone();
    spec["providerID"] = native.at("/spec/providerID");
    let mut keys = template["metadata"]["labels"].clone();
    keys[labels::NODE] = json!(node.name());
    keys[names::CLUSTER_NAME] = Value::Null;
    let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(labels::USER_DATA_SECRET.to_owned(), Value::Null);
    annotations.insert(labels::BEFORE_MIGRATION.to_owned(), json!(before(native)));
    json!({
        "metadata": { "ownerReferences": set.as_controller(), "labels": keys, "annotations": annotations },
        "spec": replacing(&native.at("/spec"), &spec),
    })
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
pub fn put_back(todo: &mut RemainingWork, native: &UnstructuredObject) {
    let Some(before) = native.annotation(labels::BEFORE_MIGRATION) else { return };
    let Ok(before) = serde_json::from_str::<Value>(before) else {
        todo.expect(false, format!("annotation {} of {} to be readable", labels::BEFORE_MIGRATION, native.id()));
        return;
    };
    let part = |pointer: &str| before.pointer(pointer).cloned().filter(|value| !value.is_null()).unwrap_or(json!({}));
    let replaced = |pointer: &str| replacing(&native.at(pointer), &part(pointer));
    let wanted = json!({
        "metadata": {
            "ownerReferences": before["metadata"]["ownerReferences"],
            "labels": replaced("/metadata/labels"),
            "annotations": replaced("/metadata/annotations"),
        },
        "spec": replaced("/spec"),
    });
    todo.want(native, &wanted);
}
