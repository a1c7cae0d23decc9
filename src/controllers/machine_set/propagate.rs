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
        let spec = &machine.spec;
        let is_live = !machine.is_terminating() && machine.phase() != MachinePhase::Failed;
        let node_template = is_live && !spec.node_template.same_as(&template.node_template);
        let configuration = is_live
            && spec.configuration != template.configuration
            && spec.configuration != configuration_for(machine, template);
        let kind = spec.class.kind != template.class.kind;
        if !(node_template || configuration || kind) {
            continue;
        }
        let changes = [
            (node_template, "node template"),
            (configuration, "timeouts and health rules"),
            (kind, "kind of the class"),
        ];
        let changed: Vec<&str> =
            changes.into_iter().filter_map(|(is_changed, what)| is_changed.then_some(what)).collect();
        drafts.edit(machine, format!("copy from the template: {}", changed.join(", ")), |desired| {
            let spec = &mut desired.spec;
            if node_template {
                spec.node_template = without_nulls(&template.node_template);
            }
            if configuration {
                spec.configuration = configuration_for(machine, template);
            }
            if kind {
                spec.class.kind.clone_from(&template.class.kind);
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
