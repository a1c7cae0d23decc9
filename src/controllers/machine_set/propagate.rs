//! What a Machine takes over from the template without being replaced.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    construct,
    edit::{Edits, difference},
};
use crate::api::machine::{Machine, MachineConfiguration, MachinePhase, MachineSet, MachineSpec, NodeTemplate};

/// Brings the node template, the timeouts and the kind of the class of each Machine in step with the template.
pub(super) fn bring_up_to_date(set: &MachineSet, machines: &[&Arc<Machine>], edits: &mut Edits) {
    let template = &set.spec.template.spec;
    for machine in machines {
        let mut changed = Vec::new();
        let mut spec = Map::new();
        if !machine.is_terminating() && machine.phase() != MachinePhase::Failed {
            if let Some(patch) = node_template(&machine.spec.node_template, &template.node_template) {
                spec.insert("nodeTemplate".to_owned(), patch);
                changed.push("node template");
            }
            if let Some(patch) = configuration(machine, template) {
                spec.extend(patch);
                changed.push("timeouts and health rules");
            }
        }
        if machine.spec.class.kind != template.class.kind {
            spec.insert("class".to_owned(), json!({ "kind": template.class.kind }));
            changed.push("kind of the class");
        }
        if !changed.is_empty() {
            let reason = format!("take over from the template: {}", changed.join(", "));
            edits.add(machine, json!({ "spec": spec }), reason);
        }
    }
}

fn node_template(present: &NodeTemplate, wanted: &NodeTemplate) -> Option<Value> {
    if present == wanted || present.same_as(wanted) {
        return None;
    }
    difference(&as_value(present)?, &as_value(wanted)?)
}

/// The `null`s of a template say nothing, but in a merge patch they would delete.
fn as_value(template: &NodeTemplate) -> Option<Value> {
    let template = NodeTemplate { metadata: template.metadata.normalised(), spec: template.spec.clone() };
    serde_json::to_value(template).ok()
}

/// A Machine made under an override of the creation timeout keeps what it was given: the override decides anyway.
fn configuration(machine: &Machine, template: &MachineSpec) -> Option<Map<String, Value>> {
    let present = &machine.spec.configuration;
    if *present == template.configuration {
        return None;
    }
    let mut wanted: MachineConfiguration = template.configuration.clone();
    if construct::creation_timeout_override(machine.metadata.annotations.as_ref()).is_some() {
        wanted.creation_timeout = present.creation_timeout;
    }
    match difference(&serde_json::to_value(present).ok()?, &serde_json::to_value(wanted).ok()?)? {
        Value::Object(patch) => Some(patch),
        _ => None,
    }
}
