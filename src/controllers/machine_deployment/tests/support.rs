//! Helpers that several tests share.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    super::{Action, DeploymentPolicy, Snapshot, plan},
    drive::{Drive, NAME},
};
use crate::testing::merge;
use mcm_api::machine::MachineSet;
use mcm_rules::plan::Plan;

pub(super) const POLICY: DeploymentPolicy = DeploymentPolicy { annotate_nodes: true, has_target: true };

pub(super) fn planned(snapshot: &Snapshot) -> Plan<Action> {
    plan(snapshot, &POLICY)
}

pub(super) fn only_set(drive: &Drive) -> Arc<MachineSet> {
    let sets: Vec<_> = drive.world.sets.all().collect();
    assert_eq!(sets.len(), 1, "{}", drive.log);
    sets[0].clone()
}

pub(super) fn first_machine(drive: &Drive) -> String {
    drive.world.machines.all().next().unwrap().name_any()
}

pub(super) fn first_node(drive: &Drive) -> String {
    drive.world.nodes.all().next().unwrap().name_any()
}

pub(super) fn annotate_deployment(drive: &mut Drive, key: &str, value: &str) {
    drive.world.deployments.edit(&mut drive.world.clock, NAME, |deployment| {
        deployment.annotations_mut().insert(key.to_owned(), value.to_owned());
    });
}

pub(super) fn condition(drive: &Drive, type_: &str) -> Option<(String, String)> {
    let status = drive.deployment().status.clone()?;
    let condition = status.conditions.into_iter().find(|condition| condition.type_ == type_)?;
    Some((condition.status, condition.reason))
}

pub(super) fn reads(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

/// A set that another client created.
pub(super) fn foreign_set(change: Value) -> MachineSet {
    let mut set = json!({
        "metadata": {"name": "found", "namespace": "shoot", "labels": {"name": NAME}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"name": NAME}},
            "template": {"metadata": {"labels": {"name": NAME}}, "spec": {"class": {"kind": "MachineClass", "name": "v1"}}},
        },
    });
    merge(&mut set, &change);
    serde_json::from_value(set).unwrap()
}
