//! Core objects of `v1beta1`, read as `v1beta2`, as the conversion webhooks of Cluster API do: durations become seconds,
//! references name a group, and some fields have another place. Fields that neither version has stay where they are, so that the
//! decoder refuses them.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::types::{CORE, CORE_GROUP};
use mcm_api::GoDuration;

const NANOSECONDS: i64 = 1_000_000_000;

/// An object of any kind; an old core object in the current version.
pub(super) fn read(given: &Value) -> Cow<'_, Value> {
    let is_old = given["apiVersion"].as_str() == Some(format!("{CORE_GROUP}/v1beta1").as_str());
    let convert: fn(&mut Value) = match given["kind"].as_str() {
        Some("Cluster") => cluster,
        Some("MachineDeployment") => deployment,
        Some("MachineSet") => set,
        Some("MachinePool") => pool,
        Some("Machine") => machine,
        Some("MachineHealthCheck") => health_check,
        _ => return Cow::Borrowed(given),
    };
    if !is_old {
        return Cow::Borrowed(given);
    }
    let mut object = given.clone();
    object["apiVersion"] = json!(CORE);
    // Both sides compute the status again; only the Node of a Machine is read.
    let node = object.pointer("/status/nodeRef/name").cloned();
    object.as_object_mut().map(|fields| fields.remove("status"));
    if let Some(node) = node.filter(|_| given["kind"] == "Machine") {
        object["status"] = json!({ "nodeRef": { "name": node } });
    }
    if let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) {
        convert(spec);
    }
    Cow::Owned(object)
}

fn cluster(spec: &mut Value) {
    reference(spec, "/infrastructureRef");
    reference(spec, "/controlPlaneRef");
}

fn deployment(spec: &mut Value) {
    shift(spec, "/rolloutAfter", "/rollout/after");
    shift(spec, "/strategy/type", "/rollout/strategy/type");
    shift(spec, "/strategy/rollingUpdate/deletePolicy", "/deletion/order");
    shift(spec, "/strategy/rollingUpdate", "/rollout/strategy/rollingUpdate");
    shift(spec, "/strategy/remediation", "/remediation");
    shift(spec, "/machineNamingStrategy", "/machineNaming");
    shift(spec, "/minReadySeconds", "/template/spec/minReadySeconds");
    // Core ignored both before it dropped them.
    for ignored in ["revisionHistoryLimit", "progressDeadlineSeconds"] {
        take(spec, &format!("/{ignored}"));
    }
    remove_empty(spec, "strategy");
    template(spec);
}

fn set(spec: &mut Value) {
    shift(spec, "/deletePolicy", "/deletion/order");
    shift(spec, "/machineNamingStrategy", "/machineNaming");
    shift(spec, "/minReadySeconds", "/template/spec/minReadySeconds");
    template(spec);
}

fn pool(spec: &mut Value) {
    shift(spec, "/minReadySeconds", "/template/spec/minReadySeconds");
    template(spec);
}

fn template(spec: &mut Value) {
    if let Some(spec) = spec.pointer_mut("/template/spec").filter(|spec| spec.is_object()) {
        machine(spec);
    }
}

fn machine(spec: &mut Value) {
    reference(spec, "/bootstrap/configRef");
    reference(spec, "/infrastructureRef");
    for name in ["nodeDrainTimeout", "nodeVolumeDetachTimeout", "nodeDeletionTimeout"] {
        duration(spec, &format!("/{name}"), &format!("/deletion/{name}Seconds"));
    }
}

fn health_check(spec: &mut Value) {
    duration(spec, "/nodeStartupTimeout", "/checks/nodeStartupTimeoutSeconds");
    for (from, to) in [
        ("/unhealthyConditions", "/checks/unhealthyNodeConditions"),
        ("/unhealthyMachineConditions", "/checks/unhealthyMachineConditions"),
    ] {
        for condition in spec.pointer_mut(from).and_then(Value::as_array_mut).into_iter().flatten() {
            duration(condition, "/timeout", "/timeoutSeconds");
        }
        shift(spec, from, to);
    }
    shift(spec, "/maxUnhealthy", "/remediation/triggerIf/unhealthyLessThanOrEqualTo");
    shift(spec, "/unhealthyRange", "/remediation/triggerIf/unhealthyInRange");
    shift(spec, "/remediationTemplate", "/remediation/templateRef");
    if let Some(reference) = spec.pointer_mut("/remediation/templateRef").and_then(Value::as_object_mut) {
        reference.retain(|field, _| ["apiVersion", "kind", "name"].contains(&field.as_str()));
    }
}

/// A reference to any object: `apiVersion` becomes `apiGroup`, and fields that the old version never used are left out.
fn reference(spec: &mut Value, pointer: &str) {
    let Some(Value::Object(fields)) = spec.pointer_mut(pointer) else { return };
    if let Some(version) = fields.remove("apiVersion") {
        let group = version.as_str().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        fields.entry("apiGroup").or_insert_with(|| json!(group));
    }
    for unused in ["namespace", "uid", "resourceVersion", "fieldPath"] {
        fields.remove(unused);
    }
}

/// A duration such as `5m0s` becomes whole seconds. An unreadable text stays, so that it is refused.
fn duration(spec: &mut Value, from: &str, to: &str) {
    let Some(given) = take(spec, from) else { return };
    let parsed = given.as_str().and_then(|text| text.parse::<GoDuration>().ok());
    put(spec, to, parsed.map_or(given, |duration| json!(duration.as_nanos() / NANOSECONDS)));
}

fn shift(spec: &mut Value, from: &str, to: &str) {
    if let Some(value) = take(spec, from) {
        put(spec, to, value);
    }
}

/// Removes a field that is not null.
fn take(spec: &mut Value, pointer: &str) -> Option<Value> {
    let (above, name) = pointer.rsplit_once('/')?;
    spec.pointer_mut(above)?.as_object_mut()?.remove(name).filter(|value| !value.is_null())
}

/// Sets a field; missing objects are made, and anything else in their place is replaced.
fn put(spec: &mut Value, pointer: &str, value: Value) {
    let mut at = spec;
    for name in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[name];
    }
    *at = value;
}

fn remove_empty(spec: &mut Value, name: &str) {
    if spec[name].as_object().is_some_and(Map::is_empty) {
        take(spec, &format!("/{name}"));
    }
}
