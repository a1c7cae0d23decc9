//! From a pool of another infrastructure provider to a deployment of core with the provider mcm.
//!
//! ```text
//! before   MachinePool ─▶ AWSMachinePool ─▶ Auto Scaling group ──────────────────────────▶ VM
//! after    MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! ```
//!
//! The VMs leave the group and keep running. The MachinePool stays, without machines: its bootstrap data are those of later
//! machines, and the VMs can return to it.

use serde_json::{Value, json};

use super::{
    group,
    object::{Kind, UnstructuredObject, lacking},
    snapshot::Snapshot,
    step::{Action, RemainingWork, Step, pause_each, paused, resume_each},
    swap,
    to_capi::{self, CoreSideObjects},
};
use mcm_api::labels;
use mcm_conversion::types::{INFRASTRUCTURE_GROUP, MigrationSide, names};

const NOT_CONVERTIBLE: &str = "the pool to be convertible again, or mcm adopt abort";

/// Steps until the authority is switched. Each can be undone; the class stays.
pub const BEFORE: [Step; 4] = [
    Step { title: "pause the MachinePool and its infrastructure", todo: pause_all, undo: Some(resume_all) },
    Step { title: "create the class, paused", todo: supply, undo: None },
    Step { title: "wait until the VMs left their group", todo: group::leave, undo: Some(group::joined) },
    Step { title: "create template and the CAPI objects, paused", todo: describe, undo: Some(to_capi::forget) },
];

/// Steps after the switch.
pub const AFTER: [Step; 3] = [
    Step { title: "tag the VMs as their class specifies", todo: swap::tag, undo: None },
    Step { title: "unpause the CAPI objects", todo: start, undo: None },
    Step { title: "unpause the MachinePool, without machines", todo: empty, undo: None },
];

/// The MachinePool and its infrastructure. Without one of them, the migration waits.
pub fn both(s: &Snapshot) -> Result<(&UnstructuredObject, &UnstructuredObject), RemainingWork> {
    s.deployment_of(MigrationSide::OtherProvider).zip(s.pool()).ok_or_else(|| {
        let mut todo = RemainingWork::default();
        todo.expect(false, format!("MachinePool {} and its infrastructure, or a MachinePool of that name", s.name()));
        todo
    })
}

/// The MachinePool and its infrastructure, as far as they exist.
pub fn pools(s: &Snapshot) -> Vec<&UnstructuredObject> {
    s.deployment_of(MigrationSide::OtherProvider).into_iter().chain(s.pool()).collect()
}

/// Step 1. Core confirms the pause of the MachinePool. The other provider ignores a paused pool, which it does not confirm.
fn pause_all(s: &Snapshot) -> RemainingWork {
    let mut todo = pause_each(s, &pools(s));
    swap::hold(&mut todo, s);
    todo
}

/// First the infrastructure, so that core finds the VMs in it.
fn resume_all(s: &Snapshot) -> RemainingWork {
    let infrastructure: Vec<&UnstructuredObject> = s.pool().into_iter().collect();
    let todo = resume_each(&infrastructure).then(|| resume_each(&pools(s)));
    todo.then(|| swap::release(s))
}

/// Step 2. The members of the group are listed with the class, also to undo the migration without the flags for the class.
fn supply(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    todo.expect(swap::class(s).is_some(), NOT_CONVERTIBLE);
    for made in swap::class_made(s).objects {
        todo.make(s, Kind::Class, &paused(Kind::Class, made, s));
    }
    todo
}

/// Step 4. Each MCMMachine has the ID of its VM, and its controllers confirm the pause.
fn describe(s: &Snapshot) -> RemainingWork {
    let Some(wanted) = described(s) else {
        let mut todo = RemainingWork::default();
        todo.expect(false, NOT_CONVERTIBLE);
        return todo;
    };
    to_capi::make(s, &wanted, &format!("{}-{}", s.name(), wanted.hash))
}

/// The deployment has the template of the pool, with its bootstrap data.
fn described(s: &Snapshot) -> Option<CoreSideObjects> {
    let machine_pool = s.deployment_of(MigrationSide::OtherProvider)?;
    let class = swap::class(s)?["metadata"]["name"].clone();
    let template = json!({
        "apiVersion": Kind::InfraTemplate.api_version(), "kind": "MCMMachineTemplate",
        "metadata": { "name": swap::template_name(s) },
        "spec": { "template": { "spec": { "machineClassRef": { "name": class } } } },
    });
    let others = match swap::own_template(s) {
        Some(own) if !own.is_of_migration(s.name()) => Vec::new(),
        _ => vec![(Kind::InfraTemplate, template.clone())],
    };
    let template = swap::own_template(s).map_or(template, |own| own.value.clone());
    let keys = json!({ (names::CLUSTER_NAME): s.cluster, (names::DEPLOYMENT_NAME): s.name() });
    let mut of_machines = machine_pool.at("/spec/template");
    for (key, value) in keys.as_object().into_iter().flatten() {
        of_machines["metadata"]["labels"][key] = value.clone();
    }
    let secret = machine_pool.text("/spec/template/spec/bootstrap/dataSecretName");
    of_machines["spec"]["bootstrap"] = json!({ "dataSecretName": secret });
    of_machines["spec"]["infrastructureRef"] = json!({
        "apiGroup": INFRASTRUCTURE_GROUP, "kind": "MCMMachineTemplate", "name": swap::template_name(s),
    });
    let deployment = json!({
        "apiVersion": Kind::CapiDeployment.api_version(), "kind": "MachineDeployment",
        "metadata": { "name": s.name(), "labels": { (names::CLUSTER_NAME): s.cluster } },
        "spec": {
            "clusterName": s.cluster, "replicas": s.recorded().count(), "selector": { "matchLabels": keys },
            "template": of_machines,
        },
    });
    let hash = machine_pool.uid().split('-').next()?.to_owned();
    Some(CoreSideObjects { hash, deployment, template, others })
}

fn start(s: &Snapshot) -> RemainingWork {
    to_capi::start(s).then(|| swap::release(s))
}

/// Last. Core deletes the Nodes that a MachinePool lists without their VMs, so it lists none before it is unpaused. With a
/// minimum of 0, the provider leaves its group empty.
fn empty(s: &Snapshot) -> RemainingWork {
    let (machine_pool, pool) = match both(s) {
        Ok(both) => both,
        Err(missing) => return missing,
    };
    let mut todo = RemainingWork::default();
    if pool.is_of_migration(s.name()) {
        let before = pool.annotation(labels::BEFORE_MIGRATION).map(str::to_owned);
        let before = before.unwrap_or_else(|| json!({ "minSize": pool.at("/spec/minSize") }).to_string());
        todo.want(
            pool,
            &json!({
                "metadata": { "annotations": { (labels::BEFORE_MIGRATION): before } },
                "spec": { "minSize": 0, "providerIDList": null },
            }),
        );
    }
    if machine_pool.is_of_migration(s.name()) {
        todo.want(machine_pool, &json!({ "spec": { "replicas": 0, "providerIDList": null } }));
        let patch = lacking(&machine_pool.value, &json!({ "status": { "nodeRefs": null } }));
        todo.actions.extend(patch.map(|patch| Action::PatchStatus { id: machine_pool.id(), patch }));
    }
    let is_empty = |one: &UnstructuredObject| one.number("/status/replicas").unwrap_or_default() == 0;
    let unpause = |one: &UnstructuredObject| {
        let mut todo = resume_each(&[one]);
        todo.expect(is_empty(one), format!("{} to have no machines", one.id()));
        todo
    };
    todo.then(|| unpause(pool)).then(|| unpause(machine_pool))
}

/// The bounds of a pool before it was emptied, as a patch that restores them.
pub fn bounds_before(pool: &UnstructuredObject) -> Option<Value> {
    let before = serde_json::from_str::<Value>(pool.annotation(labels::BEFORE_MIGRATION)?).ok()?;
    Some(json!({
        "metadata": { "annotations": { (labels::BEFORE_MIGRATION): null } },
        "spec": { "minSize": before["minSize"] },
    }))
}
