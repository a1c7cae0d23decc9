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
    Kind, Snapshot, UnstructuredObject,
    step::{RemainingWork, expect, make_each, resume_each, wait, want, want_status},
    swap,
    to_capi::{CoreSideObjects, make_all},
};
use mcm_api::labels;
use mcm_conversion::types::{INFRASTRUCTURE_GROUP, names};

const NOT_CONVERTIBLE: &str = "the pool to be convertible again, or mcm adopt abort";

/// The MachinePool and its infrastructure. Without one of them, the migration waits.
pub fn both(s: &Snapshot) -> Result<(&UnstructuredObject, &UnstructuredObject), RemainingWork> {
    s.machine_pool()
        .zip(s.pool())
        .ok_or_else(|| wait(format!("MachinePool {} and its infrastructure, or a MachinePool of that name", s.name())))
}

/// Creates the class. The members of the group are listed with it, also to undo the migration without the flags for the class.
pub fn supply(s: &Snapshot) -> RemainingWork {
    expect(swap::class(s).is_some(), NOT_CONVERTIBLE).and(make_each(s, &[Kind::Class], &swap::class_made(s).objects))
}

/// Creates the objects of core and MCMMachines. Each has the ID of its VM, and its controllers confirm the pause.
pub fn describe(s: &Snapshot) -> RemainingWork {
    match described(s) {
        Some(wanted) => make_all(s, &wanted, &format!("{}-{}", s.name(), wanted.hash)),
        None => wait(NOT_CONVERTIBLE),
    }
}

/// The deployment has the template of the pool, with its bootstrap data.
fn described(s: &Snapshot) -> Option<CoreSideObjects> {
    let machine_pool = s.machine_pool()?;
    let made = swap::template_wanted(s)?;
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
        "metadata": { "name": s.name(), "labels": { (names::CLUSTER_NAME): s.cluster } },
        "spec": {
            "clusterName": s.cluster, "replicas": s.recorded().count(), "selector": { "matchLabels": keys },
            "template": of_machines,
        },
    });
    let hash = machine_pool.uid().split('-').next()?.to_owned();
    let template = swap::own_template(s).map_or_else(|| made.clone(), |own| own.value.clone());
    Some(CoreSideObjects { hash, deployment, template, objects: vec![made] })
}

/// Resumes the MachinePool. Core deletes the Nodes that it lists without their VMs, so it lists none before. With a minimum of 0,
/// the provider leaves its group empty.
pub fn empty(s: &Snapshot) -> RemainingWork {
    let (machine_pool, pool) = match both(s) {
        Ok(both) => both,
        Err(missing) => return missing,
    };
    let mut todo = RemainingWork::default();
    if pool.is_of_migration(s.name()) {
        let before = pool.annotation(labels::BEFORE_MIGRATION).map(str::to_owned);
        let before = before.unwrap_or_else(|| json!({ "minSize": pool.at("/spec/minSize") }).to_string());
        let annotations = json!({ (labels::BEFORE_MIGRATION): before });
        let spec = json!({ "minSize": 0, "providerIDList": null });
        todo = want(pool, &json!({ "metadata": { "annotations": annotations }, "spec": spec }));
    }
    if machine_pool.is_of_migration(s.name()) {
        let emptied = json!({ "spec": { "replicas": 0, "providerIDList": null } });
        todo = todo.and(want(machine_pool, &emptied)).and(want_status(machine_pool, &json!({ "nodeRefs": null })));
    }
    let unpause = |one: &UnstructuredObject| {
        let is_empty = one.number("/status/replicas").unwrap_or_default() == 0;
        resume_each(&[one]).and(expect(is_empty, format!("{} to have no machines", one.id())))
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
