//! A machine without a set, between Cluster API and the native controllers.
//!
//! ```text
//! Cluster API    Machine ─▶ MCMMachine ─▶ ┐
//!                                         ├─ native Machine ─▶ VM
//! native                                  ┘
//! ```
//!
//! The steps are those of a deployment, except that the native Machine has no owner.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::{
    object::{Kind, UnstructuredObject, replacing},
    snapshot::{MachineObjects, Snapshot, machine_kind, set_kind},
    step::{RemainingWork, Step, paused},
    to_capi::{self, is_made},
    to_native::{self, before, is_selected},
    verdicts::CheckVerdict,
    way::MigrationDirection,
};
use mcm_api::{labels, selector::Selector};
use {
    mcm_conversion as conversion,
    mcm_conversion::{ConversionOptions, ConversionResult, types::MigrationSide},
};

/// Steps to the native controllers, until the authority is switched.
pub const TO_NATIVE: [Step; 3] = [
    Step { title: "pause the CAPI objects", todo: to_native::pause_all, undo: Some(to_native::resume_all) },
    Step { title: "create the class of the MCM Machine, paused", todo: supply, undo: Some(to_native::forget) },
    Step { title: "detach the MCM Machine from its MCMMachine", todo: release, undo: Some(to_native::take_back) },
];

/// Steps after the switch.
pub const AFTER_TO_NATIVE: [Step; 2] = [
    Step { title: "remove the CAPI objects", todo: to_native::remove, undo: None },
    Step { title: "unpause the MCM objects", todo: start_natively, undo: None },
];

/// Steps to Cluster API, until the authority is switched.
pub const TO_CAPI: [Step; 3] = [
    Step { title: "pause the MCM Machine", todo: to_capi::pause_all, undo: Some(to_capi::resume_all) },
    Step { title: "create Machine and MCMMachine, paused", todo: describe, undo: Some(to_capi::forget) },
    Step {
        title: "attach the MCM Machine to its MCMMachine",
        todo: to_capi::hand_over,
        undo: Some(to_capi::take_back),
    },
];

/// Steps after the switch.
pub const AFTER_TO_CAPI: [Step; 2] = [
    Step { title: "remove the MCM finalizer from the Node", todo: to_capi::remove, undo: None },
    Step { title: "unpause the CAPI objects", todo: start_core, undo: None },
];

/// A derived class, and its Secret.
fn supply(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let ConversionResult { objects, refusals, .. } = to_native_of(s);
    todo.expect(refusals.is_empty() && !objects.is_empty(), "the Machine to be convertible again, or mcm adopt abort");
    if !todo.is_done() {
        return todo;
    }
    for (kind, object) in objects.iter().filter_map(|object| Some((Kind::from_value(object)?, object))) {
        if matches!(kind, Kind::Class | Kind::Secret) && s.is_to_be_made(kind, object) {
            todo.make(s, kind, &paused(kind, object.clone(), s));
        }
    }
    todo
}

/// The native Machine gets the fields of a Machine without a set, and records its former state.
fn release(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let made = to_native_of(s).objects;
    let wanted = made.iter().find(|object| Kind::from_value(object) == Some(Kind::Machine));
    for member in s.recorded() {
        match (wanted, member.native, member.node) {
            (Some(wanted), Some(native), Some(node)) => todo.want(native, &as_lone(wanted, native, node, s)),
            _ => todo.expect(false, format!("MCM Machine {} and its Node, or mcm adopt abort", member.name)),
        }
    }
    todo
}

/// Removes all notes of an earlier migration, or undoing would restore them.
fn as_lone(wanted: &Value, native: &UnstructuredObject, node: &UnstructuredObject, s: &Snapshot) -> Value {
    let mut spec = wanted["spec"].clone();
    spec["providerID"] = native.at("/spec/providerID");
    let mut keys = wanted["metadata"]["labels"].clone();
    keys[labels::NODE] = json!(node.name());
    let mut annotations = wanted["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(labels::MIGRATION.to_owned(), json!(s.name()));
    annotations.insert(labels::BEFORE_MIGRATION.to_owned(), json!(before(native)));
    json!({
        "metadata": {
            "ownerReferences": null,
            "labels": replacing(&native.at("/metadata/labels"), &keys),
            "annotations": replacing(&native.at("/metadata/annotations"), &annotations.into()),
        },
        "spec": replacing(&native.at("/spec"), &spec),
    })
}

fn start_natively(s: &Snapshot) -> RemainingWork {
    to_native::start_machines(s).then(|| {
        let mut todo = RemainingWork::default();
        to_native::resume_made(&mut todo, s);
        todo
    })
}

/// Both controllers confirm the pause before the native Machine changes its owner.
fn describe(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let made = to_capi_of(s);
    let of_kind = |wanted: Kind| made.objects.iter().find(|object| Kind::from_value(object) == Some(wanted)).cloned();
    let (Some(mut machine), Some(mut infra), true) =
        (of_kind(Kind::CapiMachine), of_kind(Kind::InfraMachine), made.refusals.is_empty())
    else {
        todo.expect(false, "the MCM Machine to be convertible again, or mcm adopt abort");
        return todo;
    };
    let Some(node) = s.recorded().find_map(|member| member.node) else {
        todo.expect(false, format!("the Node of MCM Machine {}", s.name()));
        return todo;
    };
    if let Some(secret) = of_kind(Kind::Secret).filter(|secret| s.is_to_be_made(Kind::Secret, secret)) {
        todo.make(s, Kind::Secret, &paused(Kind::Secret, secret, s));
    }
    machine.as_object_mut().map(|fields| fields.remove("status"));
    machine["spec"]["providerID"] = node.at("/spec/providerID");
    todo.make(s, Kind::CapiMachine, &paused(Kind::CapiMachine, machine, s));
    let Some(machine) = s.lone_of(MigrationSide::ClusterApi) else { return todo };
    infra["metadata"]["labels"] = machine.at("/metadata/labels");
    infra["metadata"]["ownerReferences"] = machine.as_controller();
    infra["spec"]["providerID"] = node.at("/spec/providerID");
    todo.make(s, Kind::InfraMachine, &paused(Kind::InfraMachine, infra, s));
    let made = s.objects.values().filter(|object| is_made(s, object));
    todo.expect_paused(made.filter(|object| object.kind.is_paused_by_annotation()));
    todo
}

fn start_core(s: &Snapshot) -> RemainingWork {
    to_capi::start_infrastructure(s).then(|| to_capi::start_machines(s)).then(|| {
        let mut todo = RemainingWork::default();
        to_capi::resume_made(&mut todo, s);
        todo
    })
}

/// The Machine as a native one, with its class.
pub fn to_native_of(s: &Snapshot) -> ConversionResult {
    let Some(machine) = s.lone_of(MigrationSide::ClusterApi) else { return ConversionResult::default() };
    let MachineObjects { infra, .. } = s.member(s.name(), Some(machine));
    let class = infra.map(|infra| infra.text("/spec/machineClassRef/name"));
    let class = class.and_then(|name| s.find(Kind::Class, name));
    let bootstrap = s.find(Kind::Secret, machine.text("/spec/bootstrap/dataSecretName"));
    let own = class.and_then(|class| s.find(Kind::Secret, class.text("/secretRef/name")));
    let all = [Some(machine), infra, class, bootstrap, own].into_iter().flatten();
    let options = ConversionOptions { now: Some(s.now), ..ConversionOptions::default() };
    conversion::to_native(&s.written(all.map(UnstructuredObject::id)), &options)
}

/// The native Machine as one of Cluster API, with its MCMMachine.
pub fn to_capi_of(s: &Snapshot) -> ConversionResult {
    let Some(native) = s.find(Kind::Machine, s.name()) else { return ConversionResult::default() };
    let native = as_it_was(native);
    let class = s.find(Kind::Class, native["spec"]["class"]["name"].as_str().unwrap_or_default());
    let secret = class.and_then(|class| s.find(Kind::Secret, class.text("/secretRef/name")));
    let mut all = vec![native];
    all.extend(s.written([class, secret].into_iter().flatten().map(UnstructuredObject::id)));
    let options =
        ConversionOptions { cluster: Some(s.cluster.clone()), now: Some(s.now), ..ConversionOptions::default() };
    conversion::to_capi(&all, &options)
}

/// The state of the native Machine before its MCMMachine took it over. Its generation is not part of it.
fn as_it_was(native: &UnstructuredObject) -> Value {
    let mut object = native.clone();
    let before = native.annotation(labels::BEFORE_MIGRATION).and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(before) = before {
        object.value["metadata"]["labels"] = before["metadata"]["labels"].clone();
        object.value["metadata"]["annotations"] = before["metadata"]["annotations"].clone();
        object.value["spec"] = before["spec"].clone();
    }
    let mut written = object.as_written();
    written["metadata"].as_object_mut().map(|fields| fields.remove("generation"));
    written
}

/// A set adopts a Machine without a controller that it selects.
pub fn no_set_adopts_it(s: &Snapshot, way: MigrationDirection, made: &ConversionResult) -> CheckVerdict {
    let now = s.lone_of(way.from()).map(|machine| machine.at("/metadata/labels"));
    let later = made.objects.iter().find(|object| Kind::from_value(object) == Some(machine_kind(way.to())));
    let later = later.map(|machine| machine["metadata"]["labels"].clone());
    for (side, labels) in [(way.from(), now), (way.to(), later)] {
        let labels: Option<BTreeMap<String, String>> = serde_json::from_value(labels.unwrap_or_default()).ok();
        for set in s.all(set_kind(side)) {
            let selector = serde_json::from_value::<Option<LabelSelector>>(set.at("/spec/selector"));
            let selector = selector.ok().and_then(|selector| Selector::parse(selector.as_ref()).ok());
            match selector {
                None => return Err(format!("the selector of {} cannot be read", set.id())),
                Some(selector) if selector.matches(labels.as_ref()) => {
                    return Err(format!("{} selects it and would adopt it: change its labels", set.id()));
                }
                Some(_) => {}
            }
        }
    }
    Ok("no set selects it".to_owned())
}

/// A machine without a set is never replaced, but a health check may request a repair.
pub fn nobody_repairs_it(s: &Snapshot) -> CheckVerdict {
    let Some(machine) = s.lone_of(MigrationSide::ClusterApi) else { return Ok("MCM has none".to_owned()) };
    let repairs = |check: &&UnstructuredObject| {
        !check.at("/spec/remediation/templateRef").is_null() && is_selected(check, machine)
    };
    match s.all(Kind::HealthCheck).find(repairs) {
        Some(check) => Err(format!(
            "{} has another controller repair it (remediation.templateRef), which MCM cannot do: change its selector",
            check.id()
        )),
        None => Ok("no health check replaces it on either side".to_owned()),
    }
}
