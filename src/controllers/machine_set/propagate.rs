//! Propagates template changes that need no rollout to existing Machines.

use std::sync::Arc;

use super::construct;
use crate::{
    api::machine::{Machine, MachineConfiguration, MachinePhase, MachineSet, MachineSpec, NodeTemplate},
    controllers::object::draft::Drafts,
};

/// Copies the node template, the timeouts and the kind of the class from the template to each Machine.
pub(super) fn bring_up_to_date(set: &MachineSet, machines: &[&Arc<Machine>], drafts: &mut Drafts<Machine>) {
    let template = &set.spec.template.spec;
    for machine in machines {
        let mut spec = machine.spec.clone();
        let mut changed = Vec::new();
        if !machine.is_terminating() && machine.phase() != MachinePhase::Failed {
            if !spec.node_template.same_as(&template.node_template) {
                spec.node_template = without_nulls(&template.node_template);
                changed.push("node template");
            }
            let configuration = configuration_for(machine, template);
            if spec.configuration != configuration {
                spec.configuration = configuration;
                changed.push("timeouts and health rules");
            }
        }
        if spec.class.kind != template.class.kind {
            spec.class.kind.clone_from(&template.class.kind);
            changed.push("kind of the class");
        }
        if !changed.is_empty() {
            let reason = format!("copy from the template: {}", changed.join(", "));
            drafts.edit(machine, reason, |machine| machine.spec = spec);
        }
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
