//! Propagates template changes that need no rollout to existing Machines.

use std::sync::Arc;

use super::construct;
use crate::object::draft::DraftsByName;
use mcm_api::machine::{Machine, MachineConfiguration, MachinePhase, MachineSet, MachineSpec, NodeTemplate};

/// Copies the node template, the timeouts and the kind of the class from the template to each Machine.
pub(super) fn bring_up_to_date(set: &MachineSet, machines: &[&Arc<Machine>], drafts: &mut DraftsByName<Machine>) {
    let template = &set.spec.template.spec;
    for machine in machines {
        let spec = &machine.spec;
        let is_live = !machine.is_terminating() && machine.phase() != MachinePhase::Failed;
        let node_template = is_live && !spec.node_template.same_as(&template.node_template);
        let node_template = node_template.then(|| without_nulls(&template.node_template));
        let configuration = is_live.then(|| configuration_for(machine, template));
        let configuration = configuration.filter(|configuration| spec.configuration != *configuration);
        let kind = (spec.class.kind != template.class.kind).then(|| template.class.kind.clone());
        let changed = [
            node_template.as_ref().map(|_| "node template"),
            configuration.as_ref().map(|_| "timeouts and health rules"),
            kind.as_ref().map(|_| "kind of the class"),
        ];
        let changed: Vec<&str> = changed.into_iter().flatten().collect();
        if changed.is_empty() {
            continue;
        }
        drafts.edit(machine, format!("copy from the template: {}", changed.join(", ")), |machine| {
            let spec = &mut machine.spec;
            if let Some(node_template) = node_template {
                spec.node_template = node_template.into();
            }
            if let Some(configuration) = configuration {
                spec.configuration = configuration;
            }
            if let Some(kind) = kind {
                spec.class.kind = kind;
            }
        });
    }
}

/// A `null` in a template counts as absent.
fn without_nulls(template: &NodeTemplate) -> NodeTemplate {
    NodeTemplate { metadata: template.metadata.normalised(), spec: template.spec.clone() }
}

/// A Machine created under an override of the creation timeout keeps its own value; the override applies anyway.
fn configuration_for(machine: &Machine, template: &MachineSpec) -> MachineConfiguration {
    let mut configuration = template.configuration.clone();
    if construct::creation_timeout_override(machine.metadata.annotations.as_ref()).is_some() {
        configuration.creation_timeout = machine.spec.configuration.creation_timeout;
    }
    configuration
}
