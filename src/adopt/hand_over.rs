//! From the stand-in for core to the native controllers alone, which manage the machines before and after.
//!
//! ```text
//! before   MachineDeployment ─▶ MachineSet ─▶ Machine          what the stand-in serves and shows
//!               │                                 ▲
//! stays    native MachineDeployment ─▶ native MachineSet ─▶ native Machine ─▶ VM
//! ```
//!
//! The stand-in itself releases the authority, and removes the objects it shows. Without the label of its namespace,
//! core may serve the namespace.

use serde_json::json;

use super::{
    Kind, MigrationStage, Snapshot, UnstructuredObject,
    step::{RemainingWork, Step, delete, each, expect, wait, want},
    verdicts::{CheckVerdict, MigrationCheck, cluster_is_unpaused, of_whole},
};
use mcm_api::{labels, reasons::StandInCondition};
use mcm_conversion::types::{MachineAuthority, MigrationSide, names};

/// Conditions of the stand-in.
const STAND_IN: &str = StandInCondition::StandIn.as_str();
const SYNCHRONIZED: &str = StandInCondition::Synchronized.as_str();

/// No step can be undone: until the first is done, the stand-in takes the authority back on request.
pub const STEPS: [Step; 3] = [
    Step::new("transfer the authority to the MCM controllers", give),
    Step::new("remove the MachineSets and Machines that mirror the machines", remove),
    Step::new("remove the label from the namespace", leave),
];

/// The stage of the hand-over of a deployment; a finished one is `Closing`.
pub fn stage_of(s: &Snapshot) -> MigrationStage {
    let migration = s.find(Kind::Migration, s.name());
    let is_moved = migration.is_some_and(|migration| !is_of_stand_in(migration));
    let is_given = migration.is_some_and(|one| one.at("/spec/authority") == json!(MigrationSide::MachineController));
    match shown(s) {
        Some(deployment) if deployment.is_deleting() && (is_given || migration.is_none()) => MigrationStage::Closing,
        Some(_) if is_given => MigrationStage::Forward,
        None if is_moved || native(s).is_some() => MigrationStage::Closing,
        Some(_) | None => MigrationStage::Fresh,
    }
}

/// Preconditions for releasing the machines from the stand-in.
pub fn checks(s: &Snapshot) -> Vec<MigrationCheck> {
    let Some(deployment) = shown(s) else {
        return vec![of_whole("deployment", Err(format!("{} {} does not exist", Kind::CapiDeployment, s.name())))];
    };
    vec![
        of_whole("deployment", is_served(deployment)),
        of_whole("stand-in", serves(s)),
        of_whole("pause", nobody_paused(s, deployment)),
        of_whole("synchronized", is_synchronized(deployment)),
        of_whole("mcm", has_native(s)),
    ]
}

fn is_served(deployment: &UnstructuredObject) -> CheckVerdict {
    if deployment.is_deleting() {
        return Err("is being deleted, and its machines with it".to_owned());
    }
    match has_finalizer(deployment) {
        true => Ok("is served by the stand-in".to_owned()),
        false => Err("is not served by the stand-in, or not yet".to_owned()),
    }
}

/// The stand-in does its part only while it is active.
fn serves(s: &Snapshot) -> CheckVerdict {
    if !asks(s) {
        return Err(format!("Namespace {} has no label {}={}", s.namespace, labels::STAND_IN, labels::SERVED));
    }
    let Some(migration) = s.find(Kind::Migration, s.name()).filter(|one| is_of_stand_in(one)) else {
        return Err(format!("there is no {} {} of the stand-in", Kind::Migration, s.name()));
    };
    match migration.condition(STAND_IN) {
        "True" => Ok("acts".to_owned()),
        _ => Err(format!("does not act; see the condition {STAND_IN} of {}", migration.id())),
    }
}

fn nobody_paused(s: &Snapshot, deployment: &UnstructuredObject) -> CheckVerdict {
    cluster_is_unpaused(s)?;
    match deployment.annotation(names::PAUSED) {
        Some(_) => Err(format!("{} is paused: remove the annotation {}", deployment.id(), names::PAUSED)),
        None => Ok("nothing is paused".to_owned()),
    }
}

/// The stand-in changes no authority while the sides differ.
fn is_synchronized(deployment: &UnstructuredObject) -> CheckVerdict {
    let conditions = deployment.at("/status/conditions");
    let condition = conditions.as_array().into_iter().flatten().find(|one| one["type"] == SYNCHRONIZED);
    let is_true = condition.is_some_and(|one| {
        one["status"] == "True" && one["observedGeneration"] == deployment.value["metadata"]["generation"]
    });
    match is_true {
        true => Ok("both sides are synchronized".to_owned()),
        false => Err(format!("see the condition {SYNCHRONIZED} of {}", deployment.id())),
    }
}

fn has_native(s: &Snapshot) -> CheckVerdict {
    match native(s) {
        None => Err(format!("there is no {} {} of the stand-in", Kind::Deployment, s.name())),
        Some(native) if native.is_deleting() => Err(format!("{} is being deleted", native.id())),
        Some(native) => Ok(format!("{} is kept", native.id())),
    }
}

/// From now on the deletion of the MachineDeployment deletes nothing natively.
fn give(s: &Snapshot) -> RemainingWork {
    if shown(s).is_none_or(UnstructuredObject::is_deleting) {
        return RemainingWork::default();
    }
    let Some(migration) = s.find(Kind::Migration, s.name()) else {
        return wait(format!("{} {}, which the stand-in creates", Kind::Migration, s.name()));
    };
    let is_given = migration.value["status"]["authority"] == json!(MachineAuthority::MachineController);
    want(migration, &json!({ "spec": { "authority": MigrationSide::MachineController } }))
        .and(expect(is_given, "the stand-in to transfer the authority to the MCM controllers"))
}

/// The stand-in removes the rest.
fn remove(s: &Snapshot) -> RemainingWork {
    let to_be_deleted = |left: &UnstructuredObject| wait(format!("{} to be deleted", left.id()));
    let root = each(shown(s), |deployment| match deployment.is_deleting() {
        true => to_be_deleted(deployment),
        false => delete(deployment),
    });
    let is_mirror = |one: &&UnstructuredObject| one.annotation(labels::MIRROR).is_some();
    let is_own = |one: &&UnstructuredObject| one.label(names::DEPLOYMENT_NAME) == Some(s.name());
    let mirrors = s.all(Kind::CapiSet).chain(s.all(Kind::CapiMachine)).filter(is_mirror).filter(is_own);
    let migration = s.find(Kind::Migration, s.name()).filter(|one| is_of_stand_in(one));
    root.and(each(mirrors.chain(migration), to_be_deleted))
}

/// The last deployment also removes the label, which keeps core from acting in the namespace.
fn leave(s: &Snapshot) -> RemainingWork {
    match s.find(Kind::Namespace, &s.namespace) {
        None => wait(format!("Namespace {}", s.namespace)),
        Some(_) if other(s).is_some() => RemainingWork::default(),
        Some(namespace) => want(namespace, &json!({ "metadata": { "labels": { (labels::STAND_IN): null } } })),
    }
}

/// The reason for which the label stays, if it does.
pub fn kept_label(s: &Snapshot) -> Option<String> {
    let other = other(s).filter(|_| asks(s))?;
    Some(format!("the namespace keeps the label {} as long as {} exists", labels::STAND_IN, other.id()))
}

/// The deployment as the stand-in serves it, or will serve it.
fn shown(s: &Snapshot) -> Option<&UnstructuredObject> {
    s.find(Kind::CapiDeployment, s.name()).filter(|one| has_finalizer(one) || asks(s))
}

/// The native deployment that the stand-in created.
fn native(s: &Snapshot) -> Option<&UnstructuredObject> {
    s.find(Kind::Deployment, s.name()).filter(|one| one.label(labels::STAND_IN) == Some(s.name()))
}

/// Another deployment of the namespace, of any Cluster.
fn other(s: &Snapshot) -> Option<&UnstructuredObject> {
    s.all(Kind::CapiDeployment).find(|one| one.name() != s.name())
}

fn asks(s: &Snapshot) -> bool {
    let namespace = s.find(Kind::Namespace, &s.namespace);
    namespace.and_then(|namespace| namespace.label(labels::STAND_IN)) == Some(labels::SERVED)
}

fn is_of_stand_in(migration: &UnstructuredObject) -> bool {
    migration.label(labels::STAND_IN).is_some()
}

/// The stand-in serves a deployment.
pub fn has_finalizer(deployment: &UnstructuredObject) -> bool {
    let finalizers = deployment.at("/metadata/finalizers");
    finalizers.as_array().is_some_and(|all| all.contains(&json!(labels::STAND_IN_FINALIZER)))
}
